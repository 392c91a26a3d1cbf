"""ZenML's stacks made from stoker.yaml, secrets of steps, and the command `zenml`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from front_tools import WAIT_S, engine, environment, needs_engine

STACKS = """
stacks:
  here: {backend: local}
  boxes: {backend: docker, registry: reg.example.org/team}
  gpus: {backend: ssh, hosts: [gpu1], store: "ssh://gpu1/data"}
  cloud:
    backend: kubernetes
    registry: reg.example.org/cloud
    store: s3://bucket/prefix
    options: {namespace: ml}
"""
LOOKS = """
from zenml.client import Client

client = Client()
stack = client.active_stack
def part(one):
    return one and (one.name, one.flavor, one.config.is_remote)
print(stack.name, part(stack.orchestrator), part(stack.step_operator), sorted(stack.step_operators))
print(part(stack.container_registry), stack.artifact_store.flavor, stack.check_local_paths())
print(getattr(stack.artifact_store.config, "shared", None))
"""
RUNS = """
import os
from zenml import pipeline, step
from zenml.client import Client

@step(enable_cache=False, secrets=["login"])
def look() -> str:
    print("word is", os.environ["WORD"])
    return " ".join(sorted(name for name in os.environ if "STOKER_SECRET" in name)) or "none"

@pipeline
def looking():
    look()

client = Client()
if client.list_secrets(name="login").total == 0:
    client.create_secret("login", {"WORD": "wordthatishidden"})
run = looking()
print(run.steps["look"].output.load(), "WORD" in os.environ)
print(run.steps["look"].logs)
"""


AWAY = """
import os
from zenml import pipeline, save_artifact, step
from zenml.client import Client

@step(enable_cache=False)
def far() -> str:
    os.environ["STOKER_STORE"] = "/nonexistent/.stoker"  # as on another machine
    said = []
    for ask in (lambda: save_artifact(1, "x"), lambda: Client().list_models()):
        try:
            said.append(repr(ask()))
        except RuntimeError as bad:
            said.append(str(bad))
    return "; ".join(said)

@pipeline
def away():
    far()

print(away().steps["far"].output.load())
"""


def compat(folder: Path, *words: str, **more: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(engine()), "compat", "--", *words],
        cwd=folder,
        env=environment(folder / ".stoker", XDG_CONFIG_HOME=str(folder / "config"), **more),
        capture_output=True,
        text=True,
        timeout=WAIT_S,
    )


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "stoker.yaml").write_text(STACKS)
    (tmp_path / "looks.py").write_text(LOOKS)
    (tmp_path / "runs.py").write_text(RUNS)
    return tmp_path


DEFAULT = """\
default ('default', 'local', False) ('gpus', 'ssh', True) ['cloud', 'gpus']
('reg.example.org/cloud', 'default', True) local True
None
"""
CLOUD = """\
cloud ('cloud', 'kubernetes', True) None []
('reg.example.org/cloud', 'default', True) local False
s3://bucket/prefix
"""
BOXES = """\
boxes ('boxes', 'local_docker', False) None []
('reg.example.org/team', 'default', True) local True
None
"""


@needs_engine
@pytest.mark.parametrize("name, told", [("default", DEFAULT), ("cloud", CLOUD), ("boxes", BOXES)])
def test_stacks_are_those_of_stoker_yaml(project: Path, name: str, told: str) -> None:
    done = compat(project, sys.executable, "looks.py", ZENML_ACTIVE_STACK_NAME=name)
    assert done.returncode == 0, done.stderr
    assert done.stdout == told


@needs_engine
def test_a_stack_that_is_set_is_where_runs_go(project: Path) -> None:
    assert compat(project, sys.executable, "runs.py").returncode == 0
    done = compat(project, "zenml", "stack", "set", "here")
    assert done.returncode == 0, done.stderr
    assert "'here'" in compat(project, "zenml", "stack", "get").stdout
    done = compat(project, sys.executable, "runs.py")
    assert done.returncode == 0, done.stderr
    # `--with` of a stack that isn't in stoker.yaml is refused: the option reaches the engine
    (project / "stoker.yaml").write_text(STACKS.replace("here:", "there:"))
    done = compat(project, sys.executable, "runs.py")
    assert done.returncode != 0 and "'here'" in done.stderr


FAILS_ONCE = """
import os
from zenml import pipeline, step

@step(enable_cache=False)
def once() -> int:
    if not os.path.exists("mended"):
        raise ValueError("broken")
    return 1

@pipeline
def fails_once():
    once()

fails_once()
"""


@needs_engine
def test_plans_are_for_the_stack_that_is_set_and_resumed_runs_stay(project: Path) -> None:
    (project / "once.py").write_text(FAILS_ONCE)
    assert compat(project, sys.executable, "once.py").returncode != 0
    assert compat(project, "zenml", "stack", "set", "gpus").returncode == 0
    assert "stack 'gpus'" in compat(project, str(engine()), "plan", "once.py").stdout
    (project / "mended").touch()
    done = compat(project, str(engine()), "resume")
    assert done.returncode == 0, done.stderr
    assert "resumed 1 time" in done.stderr


@needs_engine
def test_a_stack_that_is_not_there_cannot_be_set(project: Path) -> None:
    done = compat(project, "zenml", "stack", "set", "none")
    assert done.returncode == 1 and "there is no stack 'none'" in done.stderr
    done = compat(project, "zenml", "stack", "get", ZENML_ACTIVE_STACK_NAME="defaults")
    assert done.returncode == 1 and "'defaults', which isn't there" in done.stderr


@needs_engine
def test_the_active_stack_may_have_options(project: Path) -> None:
    name = "cloud:namespace=other"
    done = compat(project, "zenml", "stack", "get", ZENML_ACTIVE_STACK_NAME=name)
    assert done.returncode == 0 and f"'{name}'" in done.stdout
    done = compat(project, sys.executable, "looks.py", ZENML_ACTIVE_STACK_NAME=name)
    assert done.stdout == CLOUD, done.stderr


@needs_engine
def test_a_stack_is_set_with_options(project: Path) -> None:
    done = compat(project, "zenml", "stack", "set", "cloud:namespace=other")
    assert done.returncode == 0 and "'cloud:namespace=other'" in done.stdout
    assert "'cloud:namespace=other'" in compat(project, "zenml", "stack", "get").stdout
    done = compat(project, "zenml", "stack", "set", "default:namespace=other")
    assert done.returncode == 1 and "which has no options" in done.stderr


MEET = """
from zenml import pipeline, step

@step(enable_cache=False)
def a() -> None:
    open("pipe", "w").close()

@step(enable_cache=False)
def b() -> None:
    open("pipe").close()

@pipeline(extra={"stoker_max_workers": WORKERS})
def both():
    a()
    b()

both()
"""


@needs_engine
def test_a_program_says_how_many_steps_run_at_a_time(project: Path) -> None:
    """Each of two steps waits for the other one."""
    os.mkfifo(project / "pipe")
    (project / "meet.py").write_text(MEET.replace("WORKERS", "2"))
    done = compat(project, sys.executable, "meet.py")
    assert done.returncode == 0 and "one after another" not in done.stderr, done.stderr
    (project / "meet.py").write_text(MEET.replace("WORKERS", "'many'"))
    done = compat(project, sys.executable, "meet.py")
    assert done.returncode != 0 and "stoker_max_workers is 'many'" in done.stderr


@needs_engine
def test_a_secret_of_the_store_is_a_variable_of_the_step_and_hidden(project: Path) -> None:
    done = compat(project, sys.executable, "runs.py")
    assert done.returncode == 0, done.stderr
    assert "none False\n" in done.stdout
    assert "word is ****" in done.stdout
    assert "wordthatishidden" not in done.stdout + done.stderr
    for file in (project / ".stoker").rglob("*"):
        if file.is_file():
            assert b"wordthatishidden" not in file.read_bytes(), file


@needs_engine
def test_a_step_without_the_store_is_told_so(project: Path) -> None:
    (project / "away.py").write_text(AWAY)
    done = compat(project, sys.executable, "away.py")
    assert done.returncode == 0, done.stderr
    sentence = "step 'far' runs where the store isn't"
    assert done.stdout.count(sentence) == 2


@needs_engine
def test_the_command_lists_as_json(project: Path) -> None:
    done = compat(project, "zenml", "stack", "list", "--output", "json")
    found = json.loads(done.stdout)
    assert [one["name"] for one in found["items"]] == ["default", "here", "boxes", "gpus", "cloud"]
    assert found["pagination"]["total"] == 5


@needs_engine
@pytest.mark.parametrize(
    "words, sentence",
    [
        ("tag register -n t -c mauve", "'mauve' is not a valid ColorVariants"),
        ("service-connector register x", "credentials are those of the machine"),
        ("stack delete x", "there is no stack 'x'"),
        ("stack import x", "stoker.yaml says where steps run"),
        ("clean", "`stoker rm RUN` removes one"),
        ("model list --colour red", "list_models() has no filter 'colour'"),
        ("pipeline list --output xml", "--output xml isn't there"),
        ("secret create s --values [1]", "--values needs a JSON object"),
        ("pipeline run nothing", "'nothing' is not a source"),
    ],
)
def test_what_the_command_cannot_do_is_one_sentence(
    project: Path, words: str, sentence: str
) -> None:
    done = compat(project, "zenml", *words.split())
    assert done.returncode == 1
    assert sentence in done.stderr and "Traceback" not in done.stderr
    assert len(done.stderr.splitlines()) == 1


@needs_engine
def test_a_command_that_is_not_there_ends_with_2_as_in_zenml(project: Path) -> None:
    done = compat(project, "zenml", "modle", "list")
    assert done.returncode == 2
    assert "there is no command 'modle'; did you mean 'model'?" in done.stderr


NAMED = """
from typing import Annotated

import zenml.exceptions
from zenml import Model, Tag, add_tags, pipeline, step

@step
def make() -> Annotated[int, "named"]:
    return 1

@pipeline(model=Model(name="its_model"), tags=["plain"])
def making():
    make()

if __name__ == "__main__":
    run = making()
    try:
        add_tags([Tag(name="plain", exclusive=True)], run=run.id)
    except ValueError as bad:
        print(bad)
    names = dir(zenml.exceptions)
    print(len(names) == len(set(names)))
"""


@needs_engine
def test_the_command_describes_an_artifact_and_what_a_version_of_a_model_has(project: Path) -> None:
    (project / "named.py").write_text(NAMED)
    done = compat(project, sys.executable, "named.py")
    assert done.returncode == 0, done.stderr
    assert "tag 'plain' is in use and isn't exclusive" in done.stdout
    assert done.stdout.endswith("True\n")
    told = compat(project, "zenml", "artifact", "version", "describe", "named").stdout
    assert "DataArtifact" in told and "BuiltInMaterializer" in told
    told = compat(project, "zenml", "model", "data_artifacts", "its_model").stdout
    assert told.splitlines()[1].split()[:2] == ["named", "1"]
    assert "completed" in compat(project, "zenml", "model", "runs", "its_model").stdout
    assert "named" not in compat(project, "zenml", "model", "model_artifacts", "its_model").stdout


@needs_engine
def test_the_command_deletes_a_version_and_exports_a_secret(project: Path) -> None:
    code = "from zenml import save_artifact; print(save_artifact(1, 'by_hand').id)"
    made = compat(project, sys.executable, "-c", code).stdout.split()[-1]
    listed = ("zenml", "artifact", "version", "list")
    assert "by_hand" in compat(project, *listed).stdout
    done = compat(project, "zenml", "artifact", "version", "delete", made, "-y")
    assert done.returncode == 0, done.stderr
    assert "by_hand" not in compat(project, *listed).stdout
    (project / "mine.yaml").touch(0o644)
    compat(project, "zenml", "secret", "create", "mine", "--key=value")
    assert compat(project, "zenml", "secret", "export", "mine").returncode == 0
    assert (project / "mine.yaml").read_text() == '"key": "value"\n'
    assert (project / "mine.yaml").stat().st_mode & 0o777 == 0o600


REGISTERS = """
from zenml.client import Client

client = Client()
make = client.create_stack_component
make("k8s", "kubernetes", "orchestrator", {"kubernetes_namespace": "ml", "incluster": "True"})
make("box", "ssh", "step_operator", {"hosts": "gpu1", "max_jobs": "2"})
make("s3", "s3", "artifact_store", {"path": "s3://bucket/prefix"})
make("ecr", "aws", "container_registry", {"uri": "x.dkr.ecr.eu-west-1.amazonaws.com"})
parts = {"orchestrator": "k8s", "artifact_store": "s3", "container_registry": "ecr"}
client.create_stack("prod", {**parts, "step_operator": ["box"]})
made = client.get_stack("prod")
print({kind.value: one[0].name for kind, one in made.components.items() if kind.value in parts})
print(open("stoker.yaml").read())
make("odd", "kubernetes", "orchestrator", {"pending": "never"})
def told(call, *given):
    try:
        return call(*given)
    except Exception as bad:
        return f"{type(bad).__name__}: {bad}"
before = open("stoker.yaml").read()
print(told(client.create_stack, "odd", {**parts, "orchestrator": "odd"}).partition(":")[0])
print(told(client.delete_stack, "here"))
print(told(client.create_stack, "two words", parts))
print(open("stoker.yaml").read() == before)
client.delete_stack("prod")
client.delete_stack("box")
client.delete_stack_component("k8s", "orchestrator")
print(told(client.get_stack_component, "orchestrator", "k8s"))
print(open("stoker.yaml").read())
"""
REGISTERED = """\
{'orchestrator': 'k8s', 'artifact_store': 's3', 'container_registry': 'ecr'}
# ours
stacks:  # of the lab
  "prod": {"backend": "kubernetes", "options": {"kubernetes_namespace": "ml", "incluster": true}, \
"registry": "x.dkr.ecr.eu-west-1.amazonaws.com", "store": "s3://bucket/prefix"}  \
# by zenml stack register
  "box": {"backend": "ssh", "hosts": "gpu1", "max_jobs": 2, "store": "s3://bucket/prefix"}  # by zenml stack register
  here: {backend: local}

trackers: []

StackValidationError
IllegalOperationError: stack 'here' wasn't registered: it is written in stoker.yaml: change it there
ValueError: 'two words' can't name a stack of stoker.yaml: letters, digits, _, . and -
True
KeyError: "there is no orchestrator 'k8s'"
"""


@needs_engine
def test_a_stack_is_registered_in_stoker_yaml(tmp_path: Path) -> None:
    begin, end = "# ours\nstacks:  # of the lab\n", "  here: {backend: local}\n\ntrackers: []\n"
    (tmp_path / "stoker.yaml").write_text(begin + end)
    (tmp_path / "registers.py").write_text(REGISTERS)
    done = compat(tmp_path, sys.executable, "registers.py")
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"{REGISTERED}{begin}{end}\n"


@needs_engine
def test_stacks_on_one_line_stay_as_they_are(tmp_path: Path) -> None:
    text = "stacks: {here: {backend: local}}\n"
    (tmp_path / "stoker.yaml").write_text(text)
    words = ("stack", "register", "s", "-o", "default", "-a", "default")
    done = compat(tmp_path, "zenml", *words)
    assert done.returncode == 1
    assert 'write yourself: s: {"backend": "local"}' in done.stderr
    assert (tmp_path / "stoker.yaml").read_text() == text


ASKS = """
from zenml.client import Client
from zenml.models import SecretUpdate, StackUpdate

client = Client()
client.create_secret("s", {"a": "1"})
def told(call, *given, **words):
    try:
        return call(*given, **words)
    except Exception as bad:
        return f"{type(bad).__name__}: {bad}"
store = client.zen_store
print(told(store.update_secret, client.get_secret("s").id, SecretUpdate(private=True)))
print(told(store.update_stack, "here", StackUpdate(description="x")))
print(told(store.get_secret, client.get_secret("s").id, colour="red"))
"""
ASKED = """\
TypeError: zen_store.update_secret() can't change 'private'
TypeError: zen_store.update_stack() can't change 'description'
TypeError: zen_store.get_secret() takes no 'colour'
"""


@needs_engine
def test_the_store_refuses_what_it_would_not_change(project: Path) -> None:
    done = compat(project, sys.executable, "-c", ASKS)
    assert done.returncode == 0, done.stderr
    assert done.stdout == ASKED


@needs_engine
def test_the_default_artifact_store_is_that_of_this_machine(project: Path) -> None:
    """Not the bucket of another stack."""
    words = "register plain -o gpus -a default"
    done = compat(project, "zenml", "stack", *words.split())
    assert done.returncode == 0, done.stderr
    (line,) = [one for one in (project / "stoker.yaml").read_text().splitlines() if "plain" in one]
    assert "store" not in line.partition("#")[0]


@needs_engine
@pytest.mark.parametrize(
    "words, sentence",
    [
        (
            "orchestrator register k --flavor=kubernetes --token=hidden",
            "orchestrator 'k' takes no 'token': credentials are those of the machine",
        ),
        (
            "artifact-store register s --flavor=s3 --path=s3://b/p --secret=hidden",
            "artifact store 's' takes no 'secret': credentials are those of the machine",
        ),
        (
            "artifact-store register s --flavor=s3 --path=s3://b/p --region=x",
            "artifact store 's' takes no 'region'; it takes 'path' and 'shared'",
        ),
    ],
)
def test_a_stack_takes_no_credentials(project: Path, words: str, sentence: str) -> None:
    done = compat(project, "zenml", *words.split())
    assert done.returncode == 1 and sentence in done.stderr, done.stderr


@needs_engine
def test_a_linked_stoker_yaml_stays_a_link_with_its_mode_and_ends_of_lines(tmp_path: Path) -> None:
    (tmp_path / "shared").mkdir()
    real = tmp_path / "shared" / "stoker.yaml"
    real.write_bytes(b"stacks:\r\n  here: {backend: local}\r\n")
    real.chmod(0o640)
    link = tmp_path / "stoker.yaml"
    link.symlink_to(real)
    done = compat(tmp_path, "zenml", *["stack", "register", "s", "-o", "default", "-a", "default"])
    assert done.returncode == 0, done.stderr
    lines = real.read_bytes().split(b"\r\n")
    assert link.is_symlink() and real.stat().st_mode & 0o777 == 0o640
    assert len(lines) == 4 and not any(b"\n" in line for line in lines)


TWO = """
import subprocess, sys
words = "stack register {} -o default -a default"
both = [subprocess.Popen(["zenml", *words.format(n).split()]) for n in ("one", "two", "three")]
sys.exit(any([one.wait() for one in both]))
"""


@needs_engine
def test_programs_that_register_at_once_lose_no_stack(project: Path) -> None:
    words = "orchestrator register k --flavor=kubernetes"  # makes the store
    assert compat(project, "zenml", *words.split()).returncode == 0
    done = compat(project, sys.executable, "-c", TWO)
    assert done.returncode == 0, done.stderr
    text = (project / "stoker.yaml").read_text()
    assert all(f'  "{name}": ' in text for name in ("one", "two", "three"))


WARNS = """
from zenml import step

@step(experiment_tracker="tracker")
def tracked() -> int:
    return 1
"""


@needs_engine
def test_a_missing_tracker_is_told_though_an_orchestrator_is_registered(project: Path) -> None:
    words = "orchestrator register k --flavor=kubernetes"
    assert compat(project, "zenml", *words.split()).returncode == 0
    (project / "warns.py").write_text(WARNS)
    done = compat(project, sys.executable, "warns.py")
    assert done.returncode == 0 and "experiment_tracker" in done.stderr


KEEPS = """
from zenml import pipeline, step
from zenml.client import Client
from zenml.config.pipeline_run_configuration import PipelineRunConfiguration

@step(enable_cache=False)
def double(n: int) -> int:
    return 2 * n

@pipeline
def kept(n: int = 1):
    double(n)

def told(call, *given, **words):
    try:
        return call(*given, **words)
    except Exception as bad:
        return f"{type(bad).__name__}: {bad}"

if __name__ == "__main__":
    client = Client()
    run = kept()
    print(told(client.trigger_pipeline, run.snapshot.id).replace(str(run.snapshot.id), "ID"))
    print(told(kept.create_snapshot, name=""))
    kept.create_snapshot(name="a")
    kept.create_snapshot(name="b")
    print(told(client.update_snapshot, "a", nme="c").partition(":")[0])
    print(told(client.update_snapshot, "a", name="b").partition(":")[0])
    print(client.update_snapshot("a", name="b", replace=True).name, client.list_snapshots().total)
    print(client.list_snapshots(named_only=False).total)
    more = PipelineRunConfiguration(parameters={"n": 5}, run_name=None)
    run = client.trigger_pipeline("b", run_configuration=more, synchronous=True)
    print(run.steps["double"].output.load())
"""
KEPT = """\
ValueError: snapshot 'ID' is that of a run, which keeps only the digest of its code: create one by \
pipeline.create_snapshot(name=…)
ValueError: a snapshot's name can't be empty
TypeError
EntityExistsError
b 1
2
10
"""


@needs_engine
def test_snapshots_refuse_what_they_would_not_do(tmp_path: Path) -> None:
    (tmp_path / "keeps.py").write_text(KEEPS)
    done = compat(tmp_path, sys.executable, "keeps.py")
    assert done.returncode == 0, done.stderr
    assert done.stdout == KEPT
