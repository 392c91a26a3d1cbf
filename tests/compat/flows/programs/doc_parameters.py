# $ run --alpha 0.5 --labels a,b --table table.csv
# $ run --shape "[1, 2]" --alpha 1 --table table.csv --raw table.csv
# $ run --alpha high --table table.csv
# $ run --mode warm --table table.csv
# $ run --alpha 2 --table nowhere.csv
"""Parameters of every kind: types, choices, separators, functions as defaults, files."""

import json
import os

from metaflow import FlowSpec, IncludeFile, JSONType, Parameter, current, step

if not os.path.exists("table.csv"):
    with open("table.csv", "w") as file:
        file.write("x,y\n1,2\n3,4\n")


def shape(context):
    return json.dumps({"flow": context.flow_name, "name": context.parameter_name})


def size(context):
    return 7


class F(FlowSpec):
    alpha = Parameter("alpha", help="Learning rate", default=0.01)
    count = Parameter("count", default=size, type=int)
    labels = Parameter("labels", separator=",", default="x,y,z")
    shape = Parameter("shape", type=JSONType, default=shape)
    flag = Parameter("flag", type=bool, default=True)
    none = Parameter("none", type=str, default=None)
    dashed = Parameter("some-name", default="dash")
    table = IncludeFile("table", help="a table", required=True)
    raw = IncludeFile("raw", is_text=False, default=None)

    @step
    def start(self):
        self.kinds = [
            type(one).__name__ for one in (self.alpha, self.count, self.labels, self.shape)
        ]
        self.rows = [line.split(",") for line in self.table.splitlines()]
        self.size = self.raw and len(self.raw)
        try:
            self.alpha = 4
        except AttributeError as bad:
            self.refused = type(bad).__name__
        self.known = sorted(current.parameter_names)
        self.next(self.end)

    @step
    def end(self):
        self.again = (self.alpha, self.labels, self.dashed, self.none, self.flag)
        print("shape", self.shape, "count", self.count)


if __name__ == "__main__":
    F()
