# $ run
# $ resume up --origin-run-id $0
from metaflow import FlowSpec, Parameter, step


class F(FlowSpec):
    n = Parameter("n", default=2, type=int)

    @step
    def start(self):
        self.base = 7
        self.xs = list(range(self.n))
        self.next(self.a, foreach="xs")

    @step
    def a(self):
        self.ys = [f"{self.input}-{i}" for i in range(self.n)]
        self.next(self.b, foreach="ys")

    @step
    def b(self):
        self.zs = list({"k": 1, "l": 2}.items())
        self.next(self.c, foreach="zs")

    @step
    def c(self):
        self.stack = [tuple(frame) for frame in self.foreach_stack()]
        self.found = (self.input, self.index)
        self.odd = "odd" if self.index else "even"
        self.next({"odd": self.d, "even": self.e}, condition="odd")

    @step
    def d(self):
        self.way = "d"
        self.next(self.up)

    @step
    def e(self):
        self.way = "e"
        self.next(self.up)

    @step
    def up(self):
        self.next(self.join_c)

    @step
    def join_c(self, inputs):
        self.found = [(one.found, one.stack, one.way) for one in inputs]
        self.merge_artifacts(inputs, include=["base"])
        self.next(self.join_b)

    @step
    def join_b(self, inputs):
        self.found = [one.found for one in inputs]
        self.merge_artifacts(inputs)
        self.next(self.join_a)

    @step
    def join_a(self, inputs):
        self.merge_artifacts(inputs, exclude=["found"])
        self.found = [one.found for one in inputs]
        self.next(self.end)

    @step
    def end(self):
        print(self.base, self.found)


if __name__ == "__main__":
    F()
