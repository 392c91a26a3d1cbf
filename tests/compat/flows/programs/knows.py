# $ run --alpha 3
from metaflow import FlowSpec, Parameter, Run, catch, current, namespace, retry, step, timeout


class F(FlowSpec):
    alpha = Parameter("alpha", default=1)
    beta = Parameter("beta-name", default="b")

    @step
    def start(self):
        self.names = sorted(current.parameter_names)
        self.items = ["x", "y"]
        self.next(self.a, foreach="items")

    @step
    def a(self):
        self.deeper = [self.input + "1"]
        self.next(self.b, foreach="deeper")

    @catch(var="failed", print_exception=False)
    @retry(times=1, minutes_between_retries=0)
    @step
    def b(self):
        self.frames = [
            (one.step, one.var, one.num_splits, one.index, one.value) for one in self._foreach_stack
        ]
        self.tries = current.retry_count
        if self.input == "y1":
            raise KeyError("no such key")
        self.next(self.inner)

    @step
    def inner(self, inputs):
        self.frames = [one.frames for one in inputs]
        self.failed = [one.failed and (one.failed.type, one.failed.exception) for one in inputs]
        self.next(self.join)

    @step
    def join(self, inputs):
        self.failed = [one.failed for one in inputs]
        self.next(self.slow)

    @timeout(seconds=1)
    @step
    def slow(self):
        import time

        try:
            time.sleep(20)  # sleeps: for @timeout to end it
        except Exception as bad:
            self.late = f"{type(bad).__module__}.{type(bad).__name__}"
        self.next(self.tags)

    @step
    def tags(self):
        namespace(None)
        run, other = (Run(f"{current.flow_name}/{current.run_id}") for _ in range(2))
        before = other.user_tags
        run.add_tag("added")
        self.seen = ("added" in run.user_tags, other.user_tags == before)
        run.remove_tag("added")
        try:
            run.replace_tags([], [])
        except Exception as bad:
            self.refused = type(bad).__name__
        self.next(self.end)

    @step
    def end(self):
        self.attempts = []
        for one in Run(f"F/{current.run_id}")["b"]:
            found = sorted(m.value for m in one.metadata if m.type == "attempt")
            self.attempts.append((one.data.tries, found))
        self.attempts.sort(key=str)
        print(self.late)


if __name__ == "__main__":
    F()
