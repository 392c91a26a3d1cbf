# $ run
# $ run --fast --safe --many 1 --many 2 --some c --pair 1 2
# $ METAFLOW_RUN_FAST=1 METAFLOW_RUN_MANY="3 4" METAFLOW_RUN_PAIR="1 2" run
"""Parameters whose options are switches, come several times, or take several values; and which
types of values a Runner takes for parameters."""

from metaflow import FlowSpec, Parameter, Runner, step

OTHER = """
from metaflow import FlowSpec, JSONType, Parameter, step

class Other(FlowSpec):
    must = Parameter("must", type=int, required=True)
    n = Parameter("n", default=1)
    f = Parameter("f", default=1.5)
    b = Parameter("b", default=False)
    s = Parameter("s", default="s")
    j = Parameter("j", type=JSONType, default="{}")
    parts = Parameter("parts", separator=",", default="a,b")
    fast = Parameter("fast", is_flag=True, default=False)
    many = Parameter("many", multiple=True, type=int)
    two_words = Parameter("two-words", default=1)

    @step
    def start(self):
        self.next(self.end)

    @step
    def end(self):
        self.all = self.n, self.f, self.b, self.s, self.j, self.parts, self.fast, self.many, self.two_words

if __name__ == "__main__":
    Other()
"""
GIVEN = (
    {},
    {"n": 2, "f": 2, "b": True, "s": "--x y", "j": {"a": [1]}},
    {"n": "5"},
    {"n": 1.0},
    {"f": "1"},
    {"b": 1},
    {"b": "true"},
    {"s": 5},
    {"j": '{"a": 2}'},
    {"j": [1, None]},
    {"parts": "x,y"},
    {"parts": ["x"]},
    {"fast": True, "many": [1, 2]},
    {"fast": "True"},
    {"many": 3},
    {"two_words": 2},
    {"must": "5"},
)


class F(FlowSpec):
    fast = Parameter("fast", is_flag=True, default=False)
    deep = Parameter("deep", is_flag=True, help="goes deep")
    safe = Parameter("safe", is_flag=True, default=True)
    many = Parameter("many", multiple=True, type=int)
    some = Parameter("some", multiple=True, type=str, default=["a", "b"])
    pair = Parameter("pair", nargs=2, type=float)
    quiet = Parameter("hush", hidden=True, default=3)

    @step
    def start(self):
        self.all = self.fast, self.deep, self.safe, self.many, self.some, self.pair, self.quiet
        self.found = []
        if not self.fast:
            with open("other.py", "w") as file:
                file.write(OTHER)
            for given in GIVEN:
                try:
                    with Runner("other.py", show_output=False).run(**{"must": 1, **given}) as other:
                        self.found.append(other.run.data.all)
                except Exception as bad:
                    self.found.append(type(bad).__name__)
        self.next(self.end)

    @step
    def end(self):
        pass


if __name__ == "__main__":
    F()
