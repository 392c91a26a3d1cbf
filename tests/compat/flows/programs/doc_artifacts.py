# $ run --max-workers 4
# $ --quiet --metadata local --datastore local run --with resources:cpu=1 --tag t
# $ resume --origin-run-id $0 join
"""Artifacts: objects of own classes, dataclasses, branches that are merged, deep foreachs, resources."""

import enum
from collections import OrderedDict, namedtuple
from dataclasses import dataclass, field

from metaflow import FlowSpec, current, resources, step

Point = namedtuple("Point", "x y")


class Colour(enum.Enum):
    RED = 1


@dataclass
class Model:
    name: str
    weights: list = field(default_factory=list)

    def score(self, x):
        return sum(w * x for w in self.weights)


class F(FlowSpec):
    CONSTANT = 10
    shared = ["class", "attribute"]

    @step
    def start(self):
        self._model = Model("m", [1, 2])  # the client of another program can't load own classes
        self._point = Point(1, 2)
        self._colour = Colour.RED
        self.ordered = OrderedDict([("b", 1), ("a", 2)])
        self.text, self.blank, self.nothing = "ünï", "", None
        self.function = len
        self.both = {"same"}
        self.next(self.a, self.b)

    @resources(cpu=1, memory=256)
    @step
    def a(self):
        self.value = self._model.score(2)
        self.only_a = self._point.x
        self.grid = [(x, y) for x in "xy" for y in range(2)]
        self.next(self.cell, foreach="grid")

    @step
    def cell(self):
        self.name_of = f"{self.input[0]}{self.input[1]} at {self.index}"
        self.inner = range(self.index)
        self.next(self.gather)

    @step
    def gather(self, inputs):
        self.names = [one.name_of for one in inputs]
        self.lengths = {one.name_of: len(one.inner) for one in inputs}
        self.merge_artifacts(inputs, exclude=["name_of", "inner"])
        self.next(self.join)

    @step
    def b(self):
        self.value = self.CONSTANT
        self._model.weights.append(5)
        self.next(self.join)

    @step
    def join(self, inputs):
        self.values = inputs.gather.value, inputs.b.value, [type(i).__name__ for i in inputs][:0]
        self.weights = inputs.b._model.weights, inputs.gather._model.weights
        self.best = max(inputs, key=lambda one: one.value).value
        self.merge_artifacts(inputs, exclude=["value", "_model"])
        self.kept = self.names, self.only_a, self._point == Point(1, 2), self._colour is Colour.RED
        self.next(self.end)

    @step
    def end(self):
        self.seen = self.text, self.blank, self.nothing, list(self.ordered), self.function([1])
        self.resumed = current.origin_run_id is not None
        self.missing = (
            hasattr(self, "_model"),
            hasattr(self, "value"),
            self.shared,
            "both" in dir(self),
        )
        print(self.best, self.lengths)


if __name__ == "__main__":
    F()
