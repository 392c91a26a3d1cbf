# $ run
# $ --branch testing run --tag nightly
# $ --production run
# $ --production --branch testing run
# $ --branch Testing run
# $ --branch feat-1 run
"""@project, tags and namespaces as `current` and the client tell them."""

from metaflow import FlowSpec, Run, current, get_namespace, namespace, project, step


@project(name="fraud_detection")
class F(FlowSpec):
    @step
    def start(self):
        self.project = current.project_name, current.branch_name, current.is_production
        self.flow = current.project_flow_name, current.is_user_branch
        self.names = (current.flow_name, current.step_name, current.username)
        self.tagged = sorted(current.tags), current.namespace, get_namespace()
        self.origin = current.origin_run_id
        self.path = [
            one == current.pathspec.split("/")[i]
            for i, one in enumerate(("F", current.run_id, "start"))
        ]
        self.running = current.is_running_flow, getattr(current, "trigger", None)
        self.next(self.end)

    @step
    def end(self):
        namespace(None)
        run = Run(f"F/{current.run_id}")
        run.add_tags(["one", "two"])
        run.remove_tags(["two"])
        run.replace_tag("one", "three")
        self.system = sorted(t for t in run.system_tags if t.startswith("project"))
        self.seen = sorted(Run(f"F/{current.run_id}").user_tags)
        self.refused = []
        for what in (
            lambda: run.add_tag("user:other"),
            lambda: run.add_tag(""),
            lambda: run.add_tag(5),
            lambda: run.add_tags("text"),
            lambda: run.remove_tag("user:tester"),
            lambda: run.remove_tag("never"),
            lambda: run.add_tag("x" * 600),
        ):
            try:
                self.refused.append(what())
            except Exception as bad:
                self.refused.append(type(bad).__name__)
        self.last = sorted(Run(f"F/{current.run_id}").user_tags)


if __name__ == "__main__":
    F()
