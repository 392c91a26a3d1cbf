"""Mistakes of newcomers, and operations that must stay cheap."""

from __future__ import annotations

import pytest
from front_tools import needs_engine, run_python

HEAD = "from stoker import step, pipeline\n@step\ndef s() -> int: return 1\n"


@pytest.mark.parametrize(
    "body,sentence",
    [
        ("u(s)", "argument 'x' is <step 's' of __main__:s> itself; call it, s(...)"),
        ("u(1) if s() else None", "is used as a condition"),
        ("l('c')", "argument 'kind' is 'c', but the step takes 'a' or 'b'"),
        ("u(größe())", "step name 'größe'"),
        ("ü()", "step 'ü_args': argument 'größe' may hold letters"),
        ("o()", "step 'o': output 'my out' may hold letters"),
    ],
)
def test_mistakes_in_a_body(tmp_path, body, sentence):
    source = f"""
from typing import Literal
from typing_extensions import Annotated
from stoker import step, pipeline
@step
def s() -> int: return 1
@step
def u(x: int) -> int: return x
@step
def l(kind: Literal["a", "b"] = "a") -> int: return 1
@step
def größe() -> int: return 1
@pipeline
def p():
    ü = step(name="ü_args")(lambda größe=1: 1) if "ü" in {body!r} else None
    def spaced() -> Annotated[int, "my out"]: return 1
    o = step(name="o")(spaced) if "o()" == {body!r} else None
    {body}
p.spec()
"""
    done = run_python(tmp_path, source, ok=False)
    assert sentence in done.stderr, done.stderr


def test_an_output_in_a_text_warns(tmp_path):
    source = HEAD + "@pipeline\ndef p(): print(f'{s()}')\np.spec()\n"
    assert "put into a text" in run_python(tmp_path, source).stderr


@needs_engine
def test_large_bytes_cost_no_memory(tmp_path):
    run_python(
        tmp_path,
        """
from stoker import step, pipeline
@step
def s() -> bytes: return bytes(300_000_000)
@step
def d() -> dict: return {"a": bytes(5_000_000)}
@pipeline
def p(): s(); d()
if __name__ == "__main__":
    run = p()
    assert run.steps["s"].body["used"]["peak_memory_bytes"] < 200e6, run.steps["s"].body["used"]
    assert run.steps["d"].output.load() == {"a": bytes(5_000_000)}
""",
    )


@needs_engine
def test_inputs_of_a_step_load(tmp_path):
    run_python(
        tmp_path,
        """
from stoker import step, pipeline, Client
@step
def s(n: int) -> int: return n
@step
def t(x: int, xs: list) -> int: return x + sum(xs)
@pipeline
def p(): t(s(1), [s(2), s(3)])
if __name__ == "__main__":
    run = p()
    inputs = run.steps["t"].inputs
    assert inputs["x"].load() == inputs["x"][0].load() == 1
    assert inputs["xs"].load() == [2, 3]
    assert run.steps["s"].inputs["n"].load() == 1
""",
    )


def test_steps_under_the_guard_are_not_importable(tmp_path):
    done = run_python(
        tmp_path,
        """
from stoker import step
@step
def a() -> int: return 1
if __name__ == "__main__":
    x = 1

    @step
    def b() -> int: return 1
@step
def c() -> int: return 1
print([s.entry().importable is not None for s in (a, b, c)])
""",
    )
    assert done.stdout.strip() == "[True, False, True]"


@needs_engine
def test_an_output_that_is_nested_too_deeply_says_so(tmp_path):
    source = "from stoker import step, pipeline\n@step\ndef s():\n    a = []\n"
    source += "    for _ in range(100000): a = [a]\n    return a\n"
    source += "@pipeline\ndef p(): s()\nif __name__ == '__main__': p()\n"
    done = run_python(tmp_path, source, ok=False)
    assert "nested too deeply" in done.stderr and "[0][0][0]" not in done.stderr
