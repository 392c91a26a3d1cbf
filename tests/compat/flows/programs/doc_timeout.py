# $ run
# $ --with timeout:seconds=1 run
"""Timeouts: tried again, in one task of a foreach, one that the step catches, and by --with."""

import time

from metaflow import FlowSpec, current, retry, step, timeout
from metaflow.plugins.timeout_decorator import TimeoutException


class F(FlowSpec):
    @retry(times=2, minutes_between_retries=0)
    @timeout(seconds=2, minutes=0, hours=0)
    @step
    def start(self):
        if current.retry_count < 1:
            time.sleep(30)  # sleeps: the timeouts are what this program is about
        self.attempt = current.retry_count
        self.parts = [0, 30]
        self.next(self.slow, foreach="parts")

    @timeout(seconds=3)
    @step
    def slow(self):
        self.done = True
        try:
            time.sleep(self.input)  # sleeps: the timeouts are what this program is about
        except TimeoutException as bad:
            self.done = False
            self.told = "timed out after" in str(bad)
        self.next(self.join)

    @step
    def join(self, inputs):
        self.done = [(one.done, hasattr(one, "told") and one.told) for one in inputs]
        self.next(self.quick)

    @timeout(minutes=1)
    @step
    def quick(self):
        time.sleep(2)  # sleeps: the timeouts are what this program is about
        self.next(self.bare)

    @retry(times=1, minutes_between_retries=0)
    @step
    def bare(self):
        try:
            time.sleep(3)  # sleeps: the timeouts are what this program is about
            self.late = None
        except Exception as bad:  # only by --with
            self.late = type(bad).__name__
        self.next(self.end)

    @step
    def end(self):
        print("done", self.done)


if __name__ == "__main__":
    F()
