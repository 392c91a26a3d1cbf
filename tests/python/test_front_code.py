"""The code of a step: the smallest relevant change is seen, irrelevant ones aren't."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from front_tools import PACKAGE, WAIT_S, needed

from stoker._code.modules import project_files

HEAD = """
import dataclasses, enum, functools, json, logging, re, threading
import sys
sys.path.insert(0, {package!r})
from stoker import step, pipeline
"""
TAIL = """
import json
from stoker._code.digester import Digester
print(json.dumps(Digester().parts(f.entrypoint)))
"""


def parts(folder: Path, source: str, **env: str) -> dict[str, str]:
    """Parts of the step ``f`` of a program, found by a process of its own."""
    file = folder / "prog.py"
    file.write_text(HEAD.format(package=str(PACKAGE)) + textwrap.dedent(source) + TAIL)
    done = subprocess.run(
        [sys.executable, str(file)],
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        env={"PATH": "/usr/bin", **env},
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


BASE = """
@step
def f(x):
    return x + 1
"""

SAME = {
    "comment": BASE.replace("return", "# why\n    return"),
    "line": "\n\n\n" + BASE,
    "docstring": BASE.replace("return", "'what it does'\n    return"),
    "decorator": BASE.replace("@step", "@step(enable_cache=True, retry=2)"),
    "another step": BASE + "\n@step\ndef g(x):\n    return x + 2\n",
}
OTHER = {
    "constant": BASE.replace("1", "2"),
    "type of constant": BASE.replace("1", "1.0"),
    "default": BASE.replace("(x)", "(x=3)"),
    "name": BASE.replace("x + 1", "abs(x) + 1"),
    "async": BASE.replace("def f", "async def f"),
    "argument": BASE.replace("(x)", "(x, y=None)"),
}


@pytest.mark.parametrize("kind", SAME)
def test_what_does_not_matter(tmp_path, kind):
    assert parts(tmp_path, SAME[kind]) == parts(tmp_path, BASE)


@pytest.mark.parametrize("kind", OTHER)
def test_what_matters(tmp_path, kind):
    assert parts(tmp_path, OTHER[kind])["function"] != parts(tmp_path, BASE)["function"]


RICH = """
RATE = 0.5
TABLE = {{"a": [1, 2, {{"x", "y"}}], "f": len}}
NAMES = frozenset({{"p", "q", "r"}})
PATTERN = re.compile("a+")
LOG = logging.getLogger("x")
UNUSED = {unused}

class Base:
    def shift(self):
        return {shift}

class Net(Base):
    size = 3
    def run(self, x):
        return deep(x) * self.size

@dataclasses.dataclass
class Config:
    depth: int = {depth}
    names: list = dataclasses.field(default_factory=lambda: [{factory}])

class Kind(enum.Enum):
    A = {enum}

CONFIG = Config()
PARTIAL = functools.partial(pow, {partial})

def deep(x):
    return x + {deep}

def helper(x):
    LOG.info("x")
    def inner(y):
        return Net().run(y) + RATE
    return [inner(v) for v in x if v in NAMES and PATTERN.match(v)]

def other():
    return {other}

def factory(n):
    @step
    def f(x):
        return helper(x), TABLE, CONFIG, Kind.A, PARTIAL(2), n
    return f

f = factory({closure})

@step
def g(x):
    return other()
"""
PLAIN = {
    "unused": 1,
    "shift": 1,
    "depth": 2,
    "factory": 1,
    "enum": 1,
    "partial": 2,
    "deep": 1,
    "other": 1,
    "closure": 4,
}
CHANGES = {
    "shift": "class 'Base'",
    "depth": "class 'Config'",
    "factory": "class 'Config'",
    "enum": "constant 'Kind'",
    "partial": "constant 'PARTIAL'",
    "deep": "helper 'deep'",
    "closure": "closure 'n'",
}


@pytest.fixture(scope="module")
def rich(tmp_path_factory):
    return parts(tmp_path_factory.mktemp("rich"), RICH.format(**PLAIN))


def test_everything_referred_to_is_a_part(rich):
    for part in (
        "helper 'helper'",
        "helper 'deep'",
        "class 'Net'",
        "constant 'RATE'",
        "constant 'NAMES'",
    ):
        assert part in rich
    assert not any(
        "other" in part or "UNUSED" in part or "can't be digested" in part for part in rich
    )


@pytest.mark.parametrize("what", CHANGES)
def test_only_the_changed_part_changes(tmp_path, rich, what):
    changed = parts(tmp_path, RICH.format(**{**PLAIN, what: 9}))
    differing = {k for k in rich.keys() | changed.keys() if rich.get(k) != changed.get(k)}
    assert differing, what
    named = {"enum": "class 'Kind'"}.get(what, CHANGES[what])
    assert named in differing
    word = named.split("'")[1]
    assert all(k.startswith(("constant", named.split("'")[0])) or word in k for k in differing), (
        differing
    )


@pytest.mark.parametrize("what", ["unused", "other"])
def test_what_another_step_uses_is_no_part(tmp_path, rich, what):
    assert parts(tmp_path, RICH.format(**{**PLAIN, what: 9})) == rich


@pytest.mark.parametrize("seed", ["1", "2", "77"])
def test_parts_do_not_depend_on_the_hash_seed(tmp_path, rich, seed):
    assert parts(tmp_path, RICH.format(**PLAIN), PYTHONHASHSEED=seed) == rich


def test_unsure_is_a_miss(tmp_path):
    source = """
    LOCK = threading.Lock()
    @step
    def f(x):
        with LOCK:
            return x
    """
    one, two = parts(tmp_path, source), parts(tmp_path, source)
    part = next(k for k in one if "LOCK" in k)
    assert "can't be digested" in part and one[part] != two[part]


WRAPPED = """
@functools.lru_cache(maxsize=None)
def cached(x):
    return x + {n}

def twice(g):
    @functools.wraps(g)
    def wrapper(*args):
        return g(*args) * 2
    return wrapper

@twice
def doubled(x):
    return x + {m}

class Table:
    def __init__(self):
        self.how = {{"a": doubled, "b": [cached]}}
    def __call__(self, x):
        return self.how["a"](x)

TABLE = Table()

@step
def f(x):
    return {use}
"""


@pytest.mark.parametrize("use", ["cached(x)", "doubled(x)", "TABLE(x)", "[TABLE.how for _ in x]"])
def test_wrapped_functions_count_by_content(tmp_path, use):
    plain = parts(tmp_path, WRAPPED.format(n=1, m=1, use=use))
    assert plain == parts(tmp_path, WRAPPED.format(n=1, m=1, use=use))
    assert not any("can't be digested" in part for part in plain)
    for changed in ({"n": 2, "m": 1}, {"n": 1, "m": 2}):
        touched = (
            use != "cached(x)" if "m" in changed and changed["m"] == 2 else use != "doubled(x)"
        )
        assert (parts(tmp_path, WRAPPED.format(**changed, use=use)) != plain) == touched


def test_project_modules_count_as_files(tmp_path):
    (tmp_path / "helpers").mkdir()
    (tmp_path / "helpers/__init__.py").write_text("from .deep import far\n")
    (tmp_path / "helpers/deep.py").write_text("import lazy_one\ndef far(x): return x\n")
    (tmp_path / "lazy_one.py").write_text("A = 1\n")
    (tmp_path / "late.py").write_text("B = 1\n")
    (tmp_path / "unrelated.py").write_text("C = 1\n")
    source = """
    import unrelated
    from helpers import far
    @step
    def f(x):
        import late
        return far(x) + late.B
    """
    before = parts(tmp_path, source)
    assert {"module helpers.deep", "module lazy_one", "module late"} <= before.keys()
    assert "module unrelated" not in before
    for file, part in (
        ("lazy_one.py", "module lazy_one"),
        ("late.py", "module late"),
        ("unrelated.py", None),
    ):
        (tmp_path / file).write_text("Z = 2\nA = B = C = 2\n")
        after = parts(tmp_path, source)
        assert {k for k in before if before[k] != after[k]} == ({part} if part else set())
        before = after


def test_packages_without_init_in_one_that_is_not_loaded(tmp_path, monkeypatch):
    deep = tmp_path / "ns_top" / "ns" / "deep"
    deep.mkdir(parents=True)
    (tmp_path / "ns_top" / "__init__.py").write_text("")
    (deep / "m.py").write_text("X = 1\n")
    (tmp_path / "ns_user.py").write_text("def f():\n    from ns_top.ns.deep import m\n")
    monkeypatch.syspath_prepend(tmp_path)
    assert str(deep / "m.py") in project_files("ns_user")


def test_distributions_count_by_version(tmp_path):
    source = """
    import numpy as np
    @step
    def f(x):
        import sklearn.linear_model
        return np.sum(x)
    """
    from importlib.metadata import version

    numpy = needed("numpy")
    needed("sklearn")
    found = parts(tmp_path, source)
    assert found["numpy"] == numpy.__version__
    assert found["sklearn"] == version("scikit-learn")
    assert not any(k.startswith("module") for k in found)


def test_pydantic_defaults_count(tmp_path):
    needed("pydantic")
    source = """
    import pydantic
    class Config(pydantic.BaseModel):
        depth: int = {depth}
    @step
    def f(x):
        return Config()
    """
    one = parts(tmp_path, textwrap.dedent(source).format(depth=1))
    assert one == parts(tmp_path, textwrap.dedent(source).format(depth=1))
    assert (
        one["class 'Config'"]
        != parts(tmp_path, textwrap.dedent(source).format(depth=2))["class 'Config'"]
    )


def test_tensors_count_by_content(tmp_path):
    needed("torch")
    source = """
import torch
T = {{"a": torch.ones(3), "b": [torch.zeros(2, 2, dtype=torch.bfloat16), torch.tensor({value})]}}
@step
def f(x):
    return T
"""
    one, again, two = (parts(tmp_path, source.format(value=v)) for v in (1, 1, 2))
    assert one == again
    assert {k for k in one if one[k] != two[k]} == {"constant 'T'"}


def test_a_module_edited_after_its_import(tmp_path, monkeypatch):
    """The loaded code counts, not the file's new content."""
    import importlib

    from stoker._code.modules import Modules

    monkeypatch.syspath_prepend(str(tmp_path))
    file = tmp_path / "edited_mod.py"
    file.write_text("def g():\n    return 1\n")
    module = importlib.import_module("edited_mod")
    before = Modules().parts("edited_mod")
    file.write_text("def g():\n    return 20\n")
    stale = Modules().parts("edited_mod")
    importlib.invalidate_caches()
    importlib.reload(module)
    fresh = Modules().parts("edited_mod")
    assert len({json.dumps(p) for p in (before, stale, fresh)}) == 3


def test_editing_one_step_leaves_the_others(tmp_path):
    source = """
    def shared(x): return x
    @step
    def one(x): return shared(x) + {one}
    @step
    def f(x): return shared(x) + 1
    """
    text = textwrap.dedent(source)
    assert parts(tmp_path, text.format(one=1)) == parts(tmp_path, text.format(one="2\n"))
