# $ run
"""Where tasks went on to, by the artifacts that Metaflow hides; a foreach over a parameter; what a
Runner and tags refuse."""

from metaflow import FlowSpec, JSONType, Parameter, Run, Runner, catch, current, namespace, step

OTHER = """
from metaflow import FlowSpec, Parameter, step

class Other(FlowSpec):
    n = Parameter("n", type=int, required=True)
    word = Parameter("word", default="w")

    @step
    def start(self):
        self.next(self.end)

    @step
    def end(self):
        pass

if __name__ == "__main__":
    Other()
"""
HIDDEN = ("_transition", "_foreach_var", "_foreach_num_splits", "_exception", "_success")


class F(FlowSpec):
    kind = Parameter("kind", default="wide")
    shapes = Parameter("shapes", type=JSONType, default='[{"a": 1}, {"a": 2}]')

    @step
    def start(self):
        self.next({"wide": self.wide, "other": self.other}, condition="kind")

    @step
    def other(self):
        self.next(self.end)

    @step
    def wide(self):
        self.items = ["p", "q", "r"]
        self.next(self.outer, foreach="items")

    @step
    def outer(self):
        self.deeper = [1, 2]
        self.next(self.inner, foreach="deeper")

    @catch(var="failed")
    @step
    def inner(self):
        if self.input == 2:
            raise ValueError("two")
        self.next(self.collect)

    @step
    def collect(self, inputs):
        self.next(self.join)

    @step
    def join(self, inputs):
        self.next(self.given)

    @step
    def given(self):
        self.next(self.one, foreach="shapes")

    @step
    def one(self):
        self.shape = self.input, self.index, self.foreach_stack(), self.shapes
        self.next(self.all)

    @step
    def all(self, inputs):
        self.shape_of = [(one.shape, one.input) for one in inputs]
        self.merge_artifacts(inputs, exclude=["shape"])
        self.next(self.split)

    @step
    def split(self):
        self.next(self.both, self.second)

    @step
    def both(self):
        self.next(self.merge)

    @step
    def second(self):
        self.next(self.merge)

    @step
    def merge(self, inputs):
        self.merge_artifacts(inputs)
        self.next(self.look)

    @step
    def look(self):
        namespace(None)
        run = Run(f"F/{current.run_id}")
        self.ways, self.paths = {}, []
        for one in run:
            found = [[task[n].data for n in HIDDEN] for task in one if one.id != "look"]
            self.ways[one.id] = sorted(found, key=str)
            paths = [task.metadata_dict.get("foreach-execution-path") for task in one]
            self.paths += sorted(filter(None, paths))
        with open("other.py", "w") as file:
            file.write(OTHER)
        self.refused = []
        for words in ({"n": None}, {"word": "x"}, {"n": 1, "word": None}):
            try:
                self.refused.append(Runner("other.py", show_output=False).run(**words).status)
            except Exception as bad:
                self.refused.append(type(bad).__name__)
        self.tagged = (
            run.add_tag("user:tester"),
            run.add_tags(["runtime:dev"]),
            sorted(run.user_tags),
        )
        self.next(self.end)

    @step
    def end(self):
        pass


if __name__ == "__main__":
    F()
