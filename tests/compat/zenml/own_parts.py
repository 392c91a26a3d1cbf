"""Components of the program's own: a step operator, an alerter, an experiment tracker."""

import os
import subprocess
from typing import Optional

from facts import fact as tell
from zenml import get_step_context, log_metadata, pipeline, step
from zenml.alerter import BaseAlerter, BaseAlerterConfig, BaseAlerterFlavor
from zenml.alerter.base_alerter import BaseAlerterStepParameters
from zenml.client import Client
from zenml.config.base_settings import BaseSettings
from zenml.data_validators import BaseDataValidator, BaseDataValidatorFlavor
from zenml.enums import StackComponentType
from zenml.experiment_trackers.base_experiment_tracker import (
    BaseExperimentTracker,
    BaseExperimentTrackerConfig,
    BaseExperimentTrackerFlavor,
)
from zenml.hooks import alerter_failure_hook, alerter_success_hook
from zenml.stack import Flavor, StackComponent, StackComponentConfig, StackValidator
from zenml.step_operators import BaseStepOperator, BaseStepOperatorConfig, BaseStepOperatorFlavor


class ShellConfig(BaseStepOperatorConfig):
    greeting: str = "hello"
    retries: int = 1


class Shell(BaseStepOperator):
    @property
    def config(self) -> ShellConfig:
        return self._config

    @property
    def validator(self) -> Optional[StackValidator]:
        return StackValidator(
            required_components={StackComponentType.ALERTER},
            custom_validation_function=lambda stack: (stack.name != "wrong", "of its name"),
        )

    def launch(self, info, entrypoint_command, environment) -> None:
        with open("launched.txt", "a") as stream:
            stream.write(
                f"{self.config.greeting} {self.config.retries} {info.pipeline_step_name}\n"
            )
        subprocess.run(
            entrypoint_command, env={**os.environ, **environment, "INSIDE": "1"}, check=True
        )


class ShellFlavor(BaseStepOperatorFlavor):
    @property
    def name(self) -> str:
        return "shell"

    @property
    def config_class(self):
        return ShellConfig

    @property
    def implementation_class(self):
        return Shell


class FileAlerterConfig(BaseAlerterConfig):
    path: str


class FileAlerter(BaseAlerter):
    def post(self, message: str, params: Optional[BaseAlerterStepParameters] = None) -> bool:
        with open(self.config.path, "a") as stream:
            stream.write(message.splitlines()[0] + "\n")
        return True

    def ask(self, question: str, params: Optional[BaseAlerterStepParameters] = None) -> bool:
        return self.post(question) and question.startswith("May")


class FileAlerterFlavor(BaseAlerterFlavor):
    @property
    def name(self) -> str:
        return "file"

    @property
    def config_class(self):
        return FileAlerterConfig

    @property
    def implementation_class(self):
        return FileAlerter


class NotesSettings(BaseSettings):
    tags: dict = {}


class NotesConfig(BaseExperimentTrackerConfig, NotesSettings):
    folder: str = "notes"


class Notes(BaseExperimentTracker):
    def prepare_step_run(self, info) -> None:
        os.makedirs(self.config.folder, exist_ok=True)
        self.note(f"begins {info.pipeline_step_name} of {info.run_name}")

    def get_step_run_metadata(self, info):
        return {"notes": self.config.folder}

    def cleanup_step_run(self, info, step_failed: bool) -> None:
        self.note(f"ends {info.pipeline_step_name} {'badly' if step_failed else 'well'}")

    def note(self, text: str) -> None:
        with open(os.path.join(self.config.folder, "log.txt"), "a") as stream:
            stream.write(text + "\n")


class NotesFlavor(BaseExperimentTrackerFlavor):
    @property
    def name(self) -> str:
        return "notes"

    @property
    def config_class(self):
        return NotesConfig

    @property
    def implementation_class(self):
        return Notes


class Ranges(BaseDataValidator):
    NAME = "Ranges"

    def data_validation(self, dataset, comparison_dataset=None, check_list=None, **kwargs):
        return [name for name, low in (check_list or ()) if min(dataset) < low]


class RangesFlavor(BaseDataValidatorFlavor):
    @property
    def name(self) -> str:
        return "ranges"

    @property
    def implementation_class(self):
        return Ranges


Ranges.FLAVOR = RangesFlavor


class NoFlavor(Flavor):
    name = "half"


@step(step_operator="own_shell", experiment_tracker="own_notes")
def train(rate: float) -> float:
    Client().active_stack.experiment_tracker.note("trains")
    log_metadata({"inside": os.environ.get("INSIDE", "no")})
    return rate * 2


@step(on_success=alerter_success_hook, enable_cache=False)
def judge(score: float) -> str:
    alerter = Client().active_stack.alerter
    alerter.post(f"score {score}\nmore")
    asked = [alerter.ask("May it go?"), alerter.ask("Or not?")]
    bad = Ranges.get_active_data_validator().data_validation([1, 2], check_list=[("low", 2)])
    return f"{asked} {bad} {os.environ.get('INSIDE', 'no')} {get_step_context().step_name}"


@step(step_operator="own_shell", on_failure=alerter_failure_hook, enable_cache=False)
def breaks(score: float) -> None:
    raise ValueError(f"{score} is too low")


@pipeline(enable_cache=False)
def training(fail: bool = False):
    score = train(rate=0.5)
    judge(score)
    if fail:
        breaks(score)


def fact(name: str, value) -> None:
    tell(name, value if callable(value) else lambda: value)


def lines(path: str) -> list:
    if not os.path.exists(path):
        return []
    with open(path) as stream:
        return stream.read().splitlines()


def main() -> None:
    client = Client()
    kinds = StackComponentType
    for kind, source in (
        (kinds.STEP_OPERATOR, "own_parts.ShellFlavor"),
        (kinds.ALERTER, "own_parts.FileAlerterFlavor"),
        (kinds.EXPERIMENT_TRACKER, "own_parts.NotesFlavor"),
        (kinds.DATA_VALIDATOR, "own_parts.RangesFlavor"),
    ):
        made = client.create_flavor(source, kind)
        fact(f"flavor {made.name}", (made.type.value, made.is_custom, made.integration))
        fact(f"display {made.name}", made.display_name)
    fact("flavor again", lambda: client.create_flavor("own_parts.ShellFlavor", kinds.STEP_OPERATOR))
    fact(
        "flavor of another kind",
        lambda: client.create_flavor("own_parts.ShellFlavor", kinds.ALERTER),
    )
    fact("no flavor", lambda: client.create_flavor("own_parts.Shell", kinds.STEP_OPERATOR))
    fact("nowhere", lambda: client.create_flavor("own_parts.Missing", kinds.STEP_OPERATOR))
    fact("schema", sorted(client.get_flavor("shell").config_schema["properties"]))

    def part(name, flavor, kind, config=None):
        return client.create_stack_component(name, flavor, kind, config or {})

    shell = part("own_shell", "shell", kinds.STEP_OPERATOR, {"greeting": "good day"})
    fact("configuration", (shell.configuration["greeting"], shell.flavor_name))
    fact("unknown option", lambda: part("a", "shell", kinds.STEP_OPERATOR, {"nothing": 1}))
    fact("wrong value", lambda: part("a", "shell", kinds.STEP_OPERATOR, {"retries": "x"}))
    fact("lacks a value", lambda: part("a", "file", kinds.ALERTER))
    client.create_secret("places", {"alerts": os.path.abspath("alerts.txt")})
    part("own_file", "file", kinds.ALERTER, {"path": "{{places.alerts}}"})
    part("own_notes", "notes", kinds.EXPERIMENT_TRACKER, {"folder": os.path.abspath("notes")})
    part("own_ranges", "ranges", kinds.DATA_VALIDATOR)
    fact("default has none", client.active_stack.alerter)
    known = {kinds.ORCHESTRATOR: "default", kinds.ARTIFACT_STORE: "default"}
    whole = {
        **known,
        kinds.STEP_OPERATOR: "own_shell",
        kinds.ALERTER: "own_file",
        kinds.EXPERIMENT_TRACKER: "own_notes",
        kinds.DATA_VALIDATOR: "own_ranges",
    }
    client.create_stack("of_its_own", whole)
    client.activate_stack("of_its_own")
    stack = client.active_stack
    fact("stack", (stack.name, stack.step_operator.name, stack.alerter.flavor))
    fact("classes", [type(one).__name__ for one in (stack.step_operator, stack.data_validator)])
    fact(
        "bases", [isinstance(one, StackComponent) for one in stack.components.values()].count(False)
    )
    fact("config", isinstance(stack.step_operator.config, StackComponentConfig))
    fact("config values", (stack.step_operator.config.greeting, stack.step_operator.config.retries))
    fact("secret", os.path.basename(stack.alerter.config.path))

    run = training()
    fact("status", run.status.value)
    fact("judged", run.steps["judge"].output.load())
    fact("inside", run.steps["train"].run_metadata["inside"])
    fact("tracked", os.path.basename(str(run.steps["train"].run_metadata["notes"])))
    fact("not tracked", "notes" in run.steps["judge"].run_metadata)
    fact("launched", lines("launched.txt"))
    fact("notes", [one.replace(run.name, "RUN") for one in lines("notes/log.txt")])
    fact("alerts", lines("alerts.txt"))

    failed = None
    try:
        training(fail=True)
    except Exception as bad:
        failed = bad
    fact("fails", failed is not None)
    last = client.get_pipeline("training").last_run
    fact("failed status", (last.status.value, last.steps["breaks"].status.value))
    fact("failed alert", lines("alerts.txt")[-1])

    client.create_stack("wrong", {**whole})
    client.activate_stack("wrong")
    fact("refused by its name", lambda: training())
    client.create_stack("lacks", {**known, kinds.STEP_OPERATOR: "own_shell"})
    client.activate_stack("lacks")
    fact("refused by what it lacks", lambda: training())
    client.activate_stack("default")


if __name__ == "__main__":
    main()
