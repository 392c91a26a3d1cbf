# $ run
# $ FAIL=1 run
# $ --config-value reqs "foo[x]==2" run
import os

from metaflow import (
    Config,
    FlowSpec,
    conda_environment_yml_parser,
    exit_hook,
    parallel_imap_unordered,
    parallel_map,
    profile,
    pyproject_toml_parser,
    requirements_txt_parser,
    step,
)
from metaflow.exception import MetaflowException

REQS = "numpy>=1.20,<2\n# one\npandas[perf]==1.0  # two\npython==3.10\n"
TOML = "[project]\nrequires-python = '==3.10'\ndependencies = ['a==1', 'b>=2 , <3', 'c']\n"
CONDA = "name: x\ndependencies:\n  - python=3.9\n  - numpy=1.21.2\n  - pandas\n  - b>=2\n"


def note(text):
    with open("hooks", "a") as file:
        file.write(text + "\n")


def succeeded(run):
    note(f"{run.successful} {run.finished} {run.parent.id}")


def failed():
    note("failed")
    raise ValueError("a hook that fails")


def wrong(parser, text):
    try:
        return parser(text)
    except MetaflowException as bad:
        return type(bad).__name__


@exit_hook(on_success=[succeeded], on_error=["failed"])
class F(FlowSpec):
    reqs = Config("reqs", default_value=REQS, parser=requirements_txt_parser)
    toml = Config("toml", default_value=TOML, parser=pyproject_toml_parser, plain=True)
    raw = Config("raw", default_value="x: 1", parser=lambda text: text.upper(), plain=True)

    @step
    def start(self):
        self.hooks = open("hooks").read() if os.path.exists("hooks") else None
        self.kinds = (type(self.toml).__name__, type(self.raw).__name__, self.reqs.python)
        self.conda = conda_environment_yml_parser(CONDA)
        self.refused = [
            wrong(requirements_txt_parser, "a b"),
            wrong(requirements_txt_parser, "a; python_version < '3'"),
            wrong(conda_environment_yml_parser, "dependencies:\n - pip:\n   - a"),
        ]
        self.next(self.many)

    @step
    def many(self):
        taken = {}
        with profile("block", stats_dict=taken):
            self.squares = parallel_map(lambda x: x * x, range(7), max_parallel=3)
        self.taken = (list(taken), 0 <= taken["block"] < 60000)
        self.others = sorted(parallel_imap_unordered(lambda x: "x" * x, [3, 1, 2]))
        try:
            parallel_map(lambda x: 1 / x, [1, 0])
        except Exception as bad:
            self.bad = (type(bad).__name__, str(bad))
        if os.environ.get("FAIL"):
            raise ValueError("told to")
        self.next(self.end)

    @step
    def end(self):
        pass


if __name__ == "__main__":
    F()
