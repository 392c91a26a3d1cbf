# $ run
from metaflow import FlowSpec, step


class F(FlowSpec):
    @step(start=True)
    def begin(self):
        self.items = [("t", 3), {"d": [1]}, None, 1.5, b"x"]
        self.next(self.work, foreach="items")

    @step
    def work(self):
        self.kind = type(self.input).__name__
        self.next(self.gather)

    @step
    def gather(self, inputs):
        self.kinds = [one.kind for one in inputs]
        self.merge_artifacts(inputs, exclude=["kind"])
        self.next(self.done)

    @step(end=True)
    def done(self):
        print(self.kinds, self.items)


if __name__ == "__main__":
    F()
