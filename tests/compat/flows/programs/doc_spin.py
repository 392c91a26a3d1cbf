# $ run
"""spin: one step again, with the inputs of a past task and with others, and how it fails."""

import textwrap

from metaflow import (
    FlowSpec,
    Runner,
    Task,
    default_metadata,
    get_metadata,
    inspect_spin,
    metadata,
    step,
)

OTHER = """
import time
from metaflow import Config, FlowSpec, Parameter, retry, step, timeout

class Other(FlowSpec):
    settings = Config("settings", default_value={"seconds": 60})
    alpha = Parameter("alpha", default=2)

    @step
    def start(self):
        self.parts = [1, 2, 3]
        self.next(self.work, foreach="parts")

    @step
    def work(self):
        self.made = self.input * self.alpha
        print("made", self.made)
        self.next(self.join)

    @step
    def join(self, inputs):
        self.total = sum(one.made for one in inputs)
        self.next(self.end)

    @timeout(seconds=settings.seconds)
    @step
    def end(self):
        time.sleep(1.5)  # sleeps: longer than the timeout of one spin
        self.seen = self.total, self.settings.seconds

if __name__ == "__main__":
    Other()
"""
SLOW = [("settings", {"seconds": 1})]


def found(pathspec):
    try:
        return Task(pathspec, _namespace_check=False).data.made is not None
    except Exception as bad:
        return type(bad).__name__


class F(FlowSpec):
    @step
    def start(self):
        for name, text in (("other.py", OTHER), ("given.py", "ARTIFACTS = {'total': 50}\n")):
            with open(name, "w") as file:
                file.write(textwrap.dedent(text))
        with Runner("other.py", show_output=False).run(alpha=3) as running:
            run = running.run
        self.total = run.data.total
        self.runs = len(list(run.parent))
        with Runner("other.py", show_output=False).spin(f"{run.id}/work", persist=True) as spun:
            task = spun.task
            newest = next(iter(run["work"]))
            self.worked = task.successful, task["made"].data == newest.data.made, task.data.alpha
            self.graph = sorted(task["_graph_info"].data["steps"]), task["_current_step"].data
        self.found = []
        for use in (inspect_spin, default_metadata, inspect_spin, lambda: metadata("spin@.")):
            use()
            self.found.append((get_metadata().split("@")[0], found(task.pathspec)))
        default_metadata()
        tasks = sorted(run["work"], key=lambda one: one.index)
        again = Runner("other.py", show_output=False)
        with again.spin(tasks[1].pathspec, persist=True) as spun:
            self.second = spun.task["made"].data, spun.task.stdout.splitlines()[-1]
        with Runner("other.py", show_output=False).spin("join", persist=True) as spun:
            self.joined = spun.task["total"].data
        with Runner("other.py", show_output=False).spin(
            "end", artifacts_module="given.py", persist=True
        ) as spun:
            self.given = spun.task["seen"].data
        self.no_runs = len(list(run.parent)) - self.runs
        self.next(self.otherwise)

    @step
    def otherwise(self):
        self.ends = []
        for top, words in (
            ({"config_value": [("settings", {"seconds": 30})]}, {}),
            ({"config_value": SLOW}, {}),
            ({"config_value": SLOW}, {"skip_decorators": True}),
            ({"decospecs": ["retry:times=1"]}, {}),
            ({}, {"alpha": 4}),
        ):
            runner = Runner("other.py", show_output=False, **top)
            try:
                with runner.spin("end", persist=True, **words) as spun:
                    self.ends.append((spun.task.successful, spun.task["seen"].data))
            except Exception as bad:
                kind = RuntimeError if isinstance(bad, RuntimeError) else type(bad)
                self.ends.append((kind.__name__, "Unknown argument" in str(bad)))
        self.next(self.end)

    @step
    def end(self):
        pass


if __name__ == "__main__":
    F()
