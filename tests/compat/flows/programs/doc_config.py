# $ run
# $ --config-value text "b: 2" --config-value numbers "[4, 5]" run
# $ --config-value limits '{"seconds": 9, "tries": 1}' run --factor 3
# $ resume end
# $ --config-value limits '{"seconds": 2}' run
"""Configurations in every place: decorators, defaults, foreach, helpers, mutators, a resumed run."""

import json

from metaflow import Config, FlowMutator, FlowSpec, Parameter, config_expr, retry, step, timeout

LIMITS = {"seconds": 60, "tries": 2, "names": ["x", "y"], "deep": {"er": {"value": 1}}}


def words(text):
    return text.split(",")


def pair(text):
    found = json.loads(text)
    return found["a"], found["b"]


class labelled(FlowMutator):
    def pre_mutate(self, mutable_flow):
        self.seen = [name for name, _ in mutable_flow.configs]
        for _, one in mutable_flow.steps:
            one.add_decorator(
                "environment", deco_kwargs={"vars": {"CONFIGS": ",".join(sorted(self.seen))}}
            )


@labelled
class F(FlowSpec):
    limits = Config("limits", default_value=LIMITS)
    text = Config("text", default_value='{"a": 1}', plain=True)
    numbers = Config("numbers", default_value="[1, 2, 3]", parser="json.loads", plain=True)
    words = Config("words", default_value="a,b", parser=words, plain=True)
    both = Config("both", default_value='{"a": 1, "b": 2}', parser=pair, plain=True)
    none = Config("none", default_value=None)
    plain_none = Config("plain-none", default_value=None, plain=True)
    factor = Parameter("factor", default=config_expr("limits.tries + 1"))

    def doubled(self):
        return [2 * one for one in self.numbers]

    @timeout(seconds=limits.seconds)
    @retry(times=config_expr("limits.tries"), minutes_between_retries=0)
    @step
    def start(self):
        import os

        plain = (self.text, self.numbers, self.words, self.both)
        self.kinds = [type(one).__name__ for one in plain]
        self.plain = plain
        self.nothing = self.none is None, self.plain_none is None
        self.labels = os.environ["CONFIGS"]
        self.limits_too = {**self.limits}, self.limits.to_dict() == dict(self.limits)
        self.parts = self.doubled()
        self.info = sorted(self._graph_info["steps"]), self._graph_info["file"]
        self.next(self.work, foreach="parts")

    @step
    def work(self):
        self.made = self.input * self.factor
        self.next(self.join)

    @step
    def join(self, inputs):
        self.all = [one.made for one in inputs]
        self.next(self.end)

    @step
    def end(self):
        print(self.all, self.limits.seconds, self.limits.get("names"), "tries" in self.limits)


if __name__ == "__main__":
    F()
