# $ run
# $ run --limit 5
# $ resume process --origin-run-id $0
from metaflow import FlowSpec, Parameter, step


class F(FlowSpec):
    limit = Parameter("limit", default=3)

    @step
    def start(self):
        self.count, self.log = 0, []
        self.next(self.process)

    @step
    def process(self):
        self.count += 1
        self.log = [*self.log, self.count]
        self.route = "more" if self.count < self.limit else "stop"
        self.next({"more": self.process, "stop": self.decide}, condition="route")

    @step
    def decide(self):
        self.tier = 2
        self.next({1: self.low, 2: self.mid, 3: self.low}, condition="tier")

    @step
    def low(self):
        self.next(self.fin)

    @step
    def mid(self):
        self.what = "mid"
        self.next(self.fin)

    @step
    def fin(self):
        self.next(self.end)

    @step
    def end(self):
        print(self.what, self.log)


if __name__ == "__main__":
    F()
