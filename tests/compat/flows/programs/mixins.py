# $ run --alpha 3 --beta 4
from metaflow import FlowSpec, Parameter, retry, step


class Helper:
    def scaled(self, x):
        return x * self.factor

    @property
    def doubled(self):
        return self.x * 2

    @staticmethod
    def next_to(a):
        return a + 1

    @classmethod
    def called(cls):
        return cls.__name__


class Base(FlowSpec):
    alpha = Parameter("alpha", default=1)
    factor = 10
    table = {"a": [1, 2]}

    @step
    def start(self):
        self.x = self.alpha
        self.table["a"].append(self.x)  # nobody sees this
        self.next(self.middle)

    @retry(times=1, minutes_between_retries=0)
    @step
    def middle(self):
        self.m = "base"
        self.next(self.end)

    @step
    def end(self):
        print("base's end", self.m, self.table)


class F(Helper, Base):
    beta = Parameter("beta", default=2)
    factor = 100

    @step
    def middle(self):
        self.m = "child"
        self.told = (self.scaled(self.x), self.doubled, self.next_to(1), self.called(), self.beta)
        self._own = 3
        self.next(self.extra)

    @step
    def extra(self):
        self.p = getattr(self, "_own", None)
        self.next(self.end)


if __name__ == "__main__":
    F()
