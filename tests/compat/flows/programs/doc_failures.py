# $ run
# $ --with retry:times=1,minutes_between_retries=0 run
# $ run --with catch:print_exception=False
"""Failures: @retry, @catch, and what a later step sees of them."""

import os

from metaflow import FlowSpec, catch, current, environment, retry, step


class Odd(Exception):
    def __init__(self, number):
        super().__init__(f"{number} is odd")
        self.number = number


class F(FlowSpec):
    @environment(vars={"WHERE": "here", "EMPTY": ""})
    @step
    def start(self):
        self.variables = os.environ["WHERE"], os.environ["EMPTY"]
        self.params = range(4)
        self.next(self.compute, foreach="params")

    @catch(var="failed", print_exception=False)
    @retry(times=0)
    @step
    def compute(self):
        self.div = self.input
        if self.input % 2:
            self.late = "set before it failed"
            raise Odd(self.input)
        self.result = 5 / (self.input + 1)
        self.next(self.join)

    @step
    def join(self, inputs):
        self.results = [one.result for one in inputs if not one.failed]
        self.failures = [
            (type(one.failed).__name__, one.failed.type.rpartition(".")[2], one.failed.exception)
            for one in inputs
            if one.failed
        ]
        self.lates = [getattr(one, "late", None) for one in inputs]
        self.next(self.again)

    @retry(times=3, minutes_between_retries=0)
    @step
    def again(self):
        if current.retry_count < 2:
            raise KeyError("not yet")
        self.attempt = current.retry_count
        self.next(self.end)

    @step
    def end(self):
        self.has = hasattr(self, "nothing")


if __name__ == "__main__":
    F()
