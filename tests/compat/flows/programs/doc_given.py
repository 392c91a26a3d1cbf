# $ run --rate 0.2 --text in.txt
# $ --production run --namespace user:other
"""What a run was given, by the client's step ``_parameters``; logs, namespaces and names of nothing."""

import sys

from metaflow import (
    Flow,
    FlowSpec,
    IncludeFile,
    Metaflow,
    Parameter,
    Run,
    Step,
    Task,
    current,
    get_namespace,
    namespace,
    project,
    step,
)
from metaflow.events import Trigger

with open("in.txt", "w") as file:
    file.write("line\n" * 2000)


@project(name="given")
class F(FlowSpec):
    rate = Parameter("rate", default=0.1)
    text = IncludeFile("text", default="in.txt", is_text=False)
    none = Parameter("none", default=None)

    @step(start=True)
    def first(self):
        print("a whole line")
        sys.stdout.write("an open one")
        self.space = current.namespace, get_namespace()
        self.next(self.last)

    @step(end=True)
    def last(self):
        namespace(None)
        run = Run(f"F/{current.run_id}")
        task = run["_parameters"].task
        self.given = task.data.rate, len(task.data.text), task.data.name, task["rate"].data
        self.names = sorted(one.id for one in task)
        self.ends = [task.metadata_dict.get(k) for k in ("start_step", "end_step")]
        self.listed = [one.id for one in run], "_parameters" in run
        same = Step(f"{run.pathspec}/_parameters"), Task(task.pathspec)
        self.same = [
            one.pathspec == other.pathspec for one, other in zip(same, (task.parent, task))
        ]
        self.how = task.successful, task.finished, task.data.none, len(list(run["_parameters"]))
        self.before = [one.id for one in run["first"].parent_steps]
        self.log = run["first"].task.stdout
        first = run["first"].task
        info = first["_graph_info"].data
        self.hidden = [
            name in first
            for name in ("_graph_info", "_current_step", "_task_ok", "_success", "_nothing")
        ]
        self.hidden += ["_graph_info" in task, "_graph_info" in [one.id for one in first]]
        self.graph = info == self._graph_info, sorted(info["steps"]), info["parameters"]
        self.hidden += [first["_current_step"].data, first["_task_ok"].data]
        self.hidden += [first["_success"].data, task["_success"].data]
        self.alone = hasattr(current, "parallel"), "parallel" in current
        ended = Flow("F").latest_successful_run
        self.trigger = ended and [one.name for one in Trigger.from_runs([ended]).events]
        self.triggers = ended and len(Trigger.from_runs([ended]).runs)
        self.nothing = []
        for what in (lambda: Metaflow()["G"], lambda: run["_nothing"], lambda: task["nothing"]):
            try:
                self.nothing.append(what())
            except Exception as bad:
                self.nothing.append(type(bad).__name__)


if __name__ == "__main__":
    F()
