"""Changes that once were no part of a cache key: each must be seen, and what doesn't matter must not."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest
from front_tools import WAIT_S, environment

HEAD = "from stoker import step, pipeline\n"
STEP = "@step\ndef s() -> int: return h()\n"
TAIL = """
import json
print(json.dumps(p.spec()["steps"]["s"]["code"]))
"""
ONE = "\n@pipeline\ndef p(): s()\n"
TWO = "\n@pipeline\ndef p(): s(make())\n"

# One file: what stands for CHANGE is 1, then 2.
IN_ONE_FILE = {
    "function attribute": "def h(): return h.k\nh.k = CHANGE\n" + STEP + ONE,
    "metaclass": """
        class M(type):
            def go(cls): return CHANGE
        class H(metaclass=M): pass
        def h(): return H.go()
    """,
    "cached_property": """
        import functools
        class H:
            @functools.cached_property
            def go(self): return CHANGE
        def h(): return H().go
    """,
    "singledispatch": """
        import functools
        @functools.singledispatch
        def g(x): return 0
        @g.register(int)
        def _(x): return CHANGE
        def h(): return g(1)
    """,
    "globals()": """
        def g(): return CHANGE
        def h(): return globals()["g"]()
    """,
    "docstring that a base reads": """
        class Prompted: pass
        class Ask(Prompted):
            "say CHANGE"
        def h(): return len(Ask.__doc__)
    """,
    "class of an input": """
        class O:
            def go(self): return CHANGE
        @step
        def make() -> O: return O()
        @step
        def s(o: O) -> int: return o.go()
        @pipeline
        def p(): s(make())
    """,
    "class of an input that nothing names": """
        class O:
            def go(self): return CHANGE
        @step
        def make(): return O()
        @step
        def pass_on(x): return [x]
        @step
        def s(os) -> int: return os[0].go()
        @pipeline
        def p(): s(pass_on(make()))
    """,
    "registered materializer": """
        from stoker.materializers import BaseMaterializer
        class O: pass
        class OM(BaseMaterializer):
            ASSOCIATED_TYPES = (O,)
            def save(self, data): pass
            def load(self, kind): return CHANGE
        @step
        def s(o: O) -> int: return 1
        @pipeline
        def p(): s(None)
    """,
}


def source_of(text: str) -> str:
    text = textwrap.dedent(text)
    return text if "def p()" in text else text + STEP + ONE


def code(folder: Path, source: str, how: str = "file", **files: str) -> dict[str, str]:
    """Code parts of the step ``s``; the files are as old as files of a project are."""
    for name, text in {**files, "prog_py": HEAD + source + TAIL}.items():
        path = folder / (name.replace("__", "/").replace("_py", ".py"))
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text))
        os.utime(path, (time.time() - 1000,) * 2)
    words = ["prog.py"] if how == "file" else ["-c", HEAD + source + TAIL]
    done = subprocess.run(
        [sys.executable, *words],
        cwd=folder,
        env={**environment(folder / ".stoker"), "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        timeout=WAIT_S,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("what", IN_ONE_FILE)
def test_a_change_in_the_file_is_seen(tmp_path, what):
    source = source_of(IN_ONE_FILE[what])
    first = code(tmp_path, source.replace("CHANGE", "1"))
    assert code(tmp_path, source.replace("CHANGE", "1")) == first
    assert code(tmp_path, source.replace("CHANGE", "2")) != first


@pytest.mark.parametrize("decorator", ["", "import dataclasses\n@dataclasses.dataclass\n"])
def test_methods_of_a_program_without_a_file(tmp_path, decorator):
    source = decorator + "class H:\n  a: int = 1\n  def go(self): return CHANGE\n"
    source += "def h(): return H().go()\n" + STEP + ONE
    first = code(tmp_path, source.replace("CHANGE", "1"), how="-c")
    assert code(tmp_path, source.replace("CHANGE", "1"), how="-c") == first
    assert code(tmp_path, source.replace("CHANGE", "2"), how="-c") != first


def test_the_type_of_a_literal(tmp_path):
    source = "@step\ndef s(x: int = 1) -> str: return repr(x)\n" + ONE
    assert code(tmp_path, source) != code(tmp_path, source.replace("x: int", "x: float"))


# What a program does to other modules before it runs a pipeline.
MODULE = """
class Settings:
    rate = 0
CFG = Settings()
TABLE = {}
def g(): return 0
def f(): return g(), Inner().go()
class Inner:
    def go(self): return CFG.rate, TABLE
"""
SET_BEFORE = {
    "variable": ("m.K = CHANGE", "m.K"),
    "attribute of an object": ("m.CFG.rate = CHANGE", "m.f()"),
    "attribute of a class": ("m.Settings.rate = CHANGE", "m.Settings.rate"),
    "mapping": ("m.TABLE['k'] = CHANGE", "m.f()"),
    "function": ("m.g = lambda: CHANGE", "m.f()"),
}


@pytest.mark.parametrize("what", SET_BEFORE)
def test_what_the_program_sets_in_another_module(tmp_path, what):
    change, use = SET_BEFORE[what]
    source = f"import m\n{change}\n@step\ndef s(): return {use}\n" + ONE
    first = code(tmp_path, source.replace("CHANGE", "1"), m_py=MODULE)
    assert code(tmp_path, source.replace("CHANGE", "1"), m_py=MODULE) == first
    assert code(tmp_path, source.replace("CHANGE", "2"), m_py=MODULE) != first


def test_an_unused_object_of_another_module_that_cannot_be_digested(tmp_path):
    module = "import threading\nLOCK = threading.Lock()\ndef f():\n  with LOCK: return 1\n"
    source = "import m\n@step\ndef s() -> int: return m.f()\n" + ONE
    assert code(tmp_path, source, m_py=module) == code(tmp_path, source, m_py=module)


CIRCLE = """
from stoker import step
from pk import b
def h(): return CHANGE
@step
def s() -> int: return b.f()
@step
def other() -> int: return OTHER
"""
BACK = {
    "its module": "def f():\n  from pk import a\n  return a.h()\n",
    "its helper": "def f():\n  from pk.a import h\n  return h()\n",
    "in brackets": "def f():\n  from pk import (\n    c,  # why\n  )\n  return c.h()\n",
    "on one line": "def f(): from pk import c; return c.h()\n",
    "by a text": "import importlib\ndef f(): return importlib.import_module('pk.' + 'c').h()\n",
}


@pytest.mark.parametrize("what", BACK)
def test_imports_of_another_module(tmp_path, what):
    source = "import importlib\nfrom pk.a import s\nimportlib.import_module('pk.c')\n" + ONE
    files = {"pk__b_py": BACK[what], "pk__c_py": "def h(): return 1\n"}
    (tmp_path / "pk").mkdir()
    (tmp_path / "pk/__init__.py").write_text("")
    circle = CIRCLE.replace("OTHER", "1")
    first = code(tmp_path, source, pk__a_py=circle.replace("CHANGE", "1"), **files)
    assert code(tmp_path, source, pk__a_py=circle.replace("CHANGE", "1"), **files) == first
    if "pk.a" in BACK[what] or "import a" in BACK[what]:
        changed = code(tmp_path, source, pk__a_py=circle.replace("CHANGE", "2"), **files)
    else:
        files["pk__c_py"] = "def h(): return 2\n"
        changed = code(tmp_path, source, pk__a_py=circle.replace("CHANGE", "1"), **files)
    assert changed != first


def test_a_namespace_package(tmp_path):
    source = "import ns.b\n@step\ndef s() -> int: return ns.b.g()\n" + ONE
    first = code(tmp_path, source, ns__b_py="def g(): return 1\n")
    assert code(tmp_path, source, ns__b_py="def g(): return 2\n") != first


def test_plugins_in_a_registry(tmp_path):
    source = "import reg, plug\n@step\ndef s() -> int: return reg.R['a']()\n" + ONE
    plug = "import reg\ndef a(): return CHANGE\nreg.R['a'] = a\n"
    first = code(tmp_path, source, reg_py="R = {}\n", plug_py=plug.replace("CHANGE", "1"))
    assert code(tmp_path, source, reg_py="R = {}\n", plug_py=plug.replace("CHANGE", "2")) != first


def test_plain_data_does_not_carry_its_makers_code(tmp_path):
    source = """
class O:
    def go(self): return CHANGE
@step
def make() -> "dict[str, list[float]]":
    return {"a": [O().go()]}
@step
def s(x: dict): return x
"""
    source += TWO
    assert code(tmp_path, source.replace("CHANGE", "1")) == code(
        tmp_path, source.replace("CHANGE", "2")
    )
