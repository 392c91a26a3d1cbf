# $ run
from metaflow import FlowSpec, step


def failure(what):
    try:
        what()
    except Exception as bad:
        return type(bad).__name__
    return None


class F(FlowSpec):
    @step
    def start(self):
        self.c, self.d, self.e = 1, {"x": [1]}, "start"
        self.next(self.a, self.b, self.more)

    @step
    def a(self):
        self.e, self.only_a, self.f = "a", 1, 1.0
        self.next(self.join)

    @step
    def b(self):
        self.e, self.f = "b", 1
        self.d["x"].append(2)
        self.next(self.join)

    @step
    def more(self):
        self.next(self.left, self.right)

    @step
    def left(self):
        self.g = (1, 2)
        self.next(self.inner)

    @step
    def right(self):
        self.g = [1, 2]
        self.next(self.inner)

    @step
    def inner(self, inputs):
        self.by_name = (inputs.left.g, inputs.right.g)
        self.failures = [
            failure(lambda: self.merge_artifacts(inputs)),
            failure(lambda: self.merge_artifacts(inputs, include=["zz"])),
            failure(lambda: self.merge_artifacts(inputs, include=["c"], exclude=["d"])),
            failure(lambda: self.merge_artifacts(inputs, exclude=["zz", "g"])),
            failure(lambda: inputs.nowhere),
            failure(lambda: inputs[5]),
            failure(lambda: self.nowhere),
        ]
        self.merged = hasattr(self, "g"), self.c
        self.next(self.join)

    @step
    def join(self, inputs):
        self.e, self.f, self.d = "joined", 0, inputs.b.d
        self.merge_artifacts(inputs)
        self.next(self.end)

    @step
    def end(self):
        print(self.c, self.d, self.only_a, self.e)


if __name__ == "__main__":
    F()
