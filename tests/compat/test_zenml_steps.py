"""Steps of ZenML's programs: cached by what they look up, and those that are commands."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from front_tools import WAIT_S, engine, environment, needs_engine

LOOKS_UP = """
import sys
from zenml import pipeline, save_artifact, step
from zenml.client import Client
from zenml.config.cache_policy import CachePolicy

@step(cache_policy=CachePolicy(track=TRACK))
def use(x: int) -> int:
    return x + 1

@step
def use_first(x: int) -> int:
    return x + 1

@pipeline
def looks_up():
    use(Client().get_artifact_version("numbers"))
    use_first(Client().get_artifact_version("numbers", "first"))

for word in sys.argv[1:]:
    value, _, version = word.partition("=")
    save_artifact(int(value), "numbers", version=version or None)
print(dict(sorted((name, str(one.status)) for name, one in looks_up().steps.items())))
"""
COMMANDS = """
from zenml import CommandStep, pipeline, step

def hello():
    import os
    print("hello from", os.getpid() > 0, os.environ["WORD"])

@step
def before() -> int:
    return 1

@pipeline
def commands():
    first = before()
    CommandStep(hello, name="hello", step_operator="here", environment={"WORD": "w"})(after=first)
    CommandStep(["false"], name="fails", step_operator="here")(after=first)

@pipeline
def on_any():
    CommandStep(["true"], step_operator=True)()

print("on any", on_any.spec()["steps"]["CommandStep"]["backend"])
spec = commands.spec()["steps"]
print("of document", spec["hello"]["run"][:2], spec["hello"]["backend"])
try:
    run = commands()
except Exception as bad:
    print(type(bad).__name__)
from zenml.client import Client
run = Client().list_pipeline_runs().items[-1]
print({name: str(one.status) for name, one in sorted(run.steps.items())})
print(run.steps["hello"].logs, run.steps["fails"].config.command, run.steps["hello"].outputs)
"""


def run(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(engine()), *words],
        cwd=folder,
        env=environment(folder / ".stoker", XDG_CONFIG_HOME=str(folder / "config")),
        capture_output=True,
        text=True,
        timeout=WAIT_S,
    )


def told(folder: Path, *words: str) -> str:
    done = run(folder, "compat", "--", sys.executable, "prog.py", *words)
    assert done.returncode == 0, done.stderr
    return done.stdout


@needs_engine
@pytest.mark.parametrize("track", [True, False])
def test_a_step_is_cached_by_what_it_looks_up(tmp_path: Path, track: bool) -> None:
    """Also where what it reads otherwise doesn't count."""
    (tmp_path / "prog.py").write_text(LOOKS_UP.replace("TRACK", str(track)))
    assert "'use': 'completed', 'use_first': 'completed'" in told(tmp_path, "5=first")
    assert "'use': 'cached', 'use_first': 'cached'" in told(tmp_path)
    assert "'use': 'completed', 'use_first': 'cached'" in told(tmp_path, "6")
    why = run(tmp_path, "why", "latest", "use").stdout
    assert "artifact 'numbers', which it looked up, has changed" in why
    assert "'use': 'cached', 'use_first': 'cached'" in told(tmp_path, "6")
    gone = run(tmp_path, "artifact", "rm", "numbers:first")
    assert gone.returncode == 0, gone.stderr
    done = run(tmp_path, "compat", "--", sys.executable, "prog.py")
    assert done.returncode != 0
    assert "no artifact 'numbers' with version 'first'" in done.stderr


@needs_engine
def test_command_steps_run_where_their_step_operator_says(tmp_path: Path) -> None:
    (tmp_path / "prog.py").write_text(COMMANDS)
    cloud = "cloud: {backend: kubernetes, registry: reg.example.org/t, store: s3://bucket/prefix}"
    (tmp_path / "stoker.yaml").write_text(f"stacks:\n  here: {{backend: local}}\n  {cloud}\n")
    text = told(tmp_path)
    assert "of document ['python', '-c'] {'stack': 'here'}" in text
    assert "on any {'stack': 'cloud'}" in text
    assert "'hello': 'completed'" in text and "'fails': 'failed'" in text
    assert "hello from True w" in text
    assert "['false'] {}" in text


LIVES = """
import os
import threading
from zenml import get_step_context, pipeline, step

def note(word):
    with open("notes", "a") as out:
        out.write(f"{word} {os.getpid()}\\n")

def begins(word: str = "none"):
    note("begins")
    return word

def ends():
    note("ends")

@step
def asks() -> str:
    note("asks")
    return get_step_context().pipeline_state

@pipeline(enable_cache=False, on_init=begins, on_init_kwargs={"word": "w"}, on_cleanup=ends)
def lives():
    asks()

if __name__ == "__main__":
    held = threading.Event()
    if APART:  # steps aren't forked from a program with threads
        threading.Thread(target=held.wait, daemon=True).start()
    print("state", lives().steps["asks"].output.load())
    held.set()
"""


@needs_engine
@pytest.mark.parametrize("apart", [False, True])
def test_the_hooks_around_a_run_are_called_where_its_steps_are(tmp_path: Path, apart: bool) -> None:
    """In the program; also in a step whose process isn't forked from it."""
    (tmp_path / "prog.py").write_text(LIVES.replace("APART", str(apart)))
    assert "state w" in told(tmp_path)
    notes = [line.split() for line in (tmp_path / "notes").read_text().splitlines()]
    inner = ["begins", "asks", "ends"] if apart else ["asks"]
    assert [word for word, _ in notes] == ["begins", *inner, "ends"]
    assert len({process for _, process in notes}) == 2
    assert notes[0][1] == notes[-1][1]
