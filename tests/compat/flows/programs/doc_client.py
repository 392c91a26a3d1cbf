# $ run --tag first
# $ run --tag second
"""What the client tells of runs, steps, tasks and artifacts, asked from a later run's step."""

from metaflow import (
    DataArtifact,
    Flow,
    FlowSpec,
    Metaflow,
    Run,
    Step,
    Task,
    current,
    default_namespace,
    get_namespace,
    namespace,
    step,
)


class F(FlowSpec):
    """A flow with a text."""

    @step
    def start(self):
        self.items = [1, 2, 3]
        self.before = sorted(len(r.tags) > 0 for r in Flow("F") if r.id != current.run_id)
        self.next(self.work, foreach="items")

    @step
    def work(self):
        print("working on", self.input)
        self.squared = self.input**2
        self.next(self.join)

    @step
    def join(self, inputs):
        self.total = sum(i.squared for i in inputs)
        self.next(self.end)

    @step
    def end(self):
        self.space = get_namespace()
        self.spaces = (namespace(None), get_namespace(), default_namespace() == self.space)
        namespace(None)
        run = Run(f"F/{current.run_id}")
        self.flows = [flow.id for flow in Metaflow()]
        self.steps = [one.id for one in run]
        self.path = run.pathspec == f"F/{current.run_id}", "work" in run, "nowhere" in run
        work = Step(f"F/{current.run_id}/work")
        self.paths = sorted(t.pathspec.count("/") for t in work)
        self.values = sorted(t["squared"].data for t in work)
        self.data = sorted(t.data.squared for t in work)
        self.logs = sorted(t.stdout for t in work)
        self.control = [sorted(t.id for t in work.control_tasks()), work.control_task]
        task = work.task
        self.one = Task(task.pathspec).id == task.id, task.path_components[:1], task.parent.id
        artifact = DataArtifact(f"{task.pathspec}/squared")
        self.artifact = (artifact.id, artifact.data == task.data.squared, artifact.size > 0)
        self.has = ("squared" in task.data, "nothing" in task.data, hasattr(task.data, "nothing"))
        self.asked = []
        for what in (
            lambda: run["nowhere"],
            lambda: task["nowhere"],
            lambda: Run("F/123456789"),
            lambda: Flow("Nowhere"),
            lambda: Task("F/1"),
            lambda: task.data.nowhere,
            lambda: Step(f"F/{current.run_id}/nowhere"),
        ):
            try:
                self.asked.append(repr(what()))
            except Exception as bad:
                self.asked.append(type(bad).__name__)
        self.tags = sorted(run.user_tags), {"user:tester", "runtime:dev"} <= run.system_tags
        self.tagged = sorted(len(r.id) > 0 for r in Flow("F").runs("first"))
        self.done = (run.successful, run.finished, run.end_task is None, run.finished_at)
        self.latest = Flow("F").latest_run.id == current.run_id
        self.good = Flow("F").latest_successful_run is not None
        kept = {m.name: m.type for m in task.metadata}
        self.metadata = sorted(name for name in kept if name in ("attempt", "origin-run-id"))
        self.parents = [s.id for s in Step(f"F/{current.run_id}/join").parent_steps]
        self.parent_tasks = len(list(run["join"].task.parent_tasks))
        self.children = [s.id for s in run["start"].child_steps]
        self.child_tasks = len(list(run["start"].task.child_tasks))
        self.code = run.code is None
        self.trigger = run.trigger is None
        namespace("user:nobody")
        try:
            self.hidden = Flow("F").latest_run
        except Exception as bad:
            self.hidden = type(bad).__name__


if __name__ == "__main__":
    F()
