# $ run
# $ run --n 4
# $ resume --origin-run-id $0
from metaflow import FlowSpec, Parameter, current, step


class F(FlowSpec):
    n = Parameter("n", default=3)

    @step(start=True, end=True)
    def only(self):
        self.total = sum(range(self.n))
        self.place = (current.step_name, self.index, self.input)
        print("only", self.total)


if __name__ == "__main__":
    F()
