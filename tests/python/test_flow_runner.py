"""Runner, its processes and streams (python/stoker/flow/runner.py), with a program that stands for a flow."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import tempfile
import time
from pathlib import Path
from typing import Any

import front_tools  # noqa: F401 (puts the package on the path)
import pytest
from flow_tools import FakeStore, whole

from stoker.flow.deployer import NBDeployer
from stoker.flow.exception import MetaflowException
from stoker.flow.runner import NBRunner, Runner, _words

# What `python flow.py run` does, as seen from outside: its words come out, the run's facts go into the file.
PROGRAM = """\
import json, os, sys, time
words = sys.argv[1:]
print("words", json.dumps(words[:-2]), flush=True)
print("wrong", file=sys.stderr, flush=True)
if os.environ.get("NO_RUN"):
    sys.exit("Error: --x is missing")
facts = {"run_id": "r1", "flow_name": "F", "metadata": "local@" + os.environ["STOKER_STORE"]}
with open(words[-1], "w") as file:
    json.dump(facts, file)
time.sleep(float(os.environ.get("SLEEP", 0)))  # sleeps: until it is ended
print("done", flush=True)
sys.exit(int(os.environ.get("STATUS", 0)))
"""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: Any) -> Path:
    store = FakeStore(tmp_path)
    store.add("r1", whole())
    monkeypatch.setenv("STOKER_BIN", str(store.binary))
    monkeypatch.setenv("STOKER_STORE", str(store.path))
    (tmp_path / "flow.py").write_text(PROGRAM)
    return tmp_path / "flow.py"


def test_options_become_words() -> None:
    assert _words({"alpha": 5, "n_items": 2, "max_workers": 3}) == [
        "--alpha=5",
        "--n_items=2",
        "--max-workers=3",
    ]
    assert _words({"tags": ["a", "b"], "decospecs": ["retry:times=1"]}) == [
        *("--tag", "a", "--tag", "b", "--with", "retry:times=1")
    ]
    assert _words({"pylint": False, "quiet": True, "clone_only": True}) == [
        *("--no-pylint", "--quiet", "--clone-only")
    ]
    assert _words({"config": [("c", "c.json")], "shape": [1, 2], "flag": True, "none": None}) == [
        *("--config", "c", "c.json", "--shape=[1, 2]", "--flag=true")
    ]


def test_run_waits_and_has_what_came_of_it(place: Path, capsys: Any) -> None:
    with Runner(str(place), pylint=False, env={"LONG": "1"}) as runner:
        result = runner.run(alpha=5, tags=["abc"])
        words = ["--no-pylint", "run", "--alpha=5", "--tag", "abc"]
        assert (result.status, result.returncode) == ("successful", 0)
        assert result.stdout == f"words {json.dumps(words)}\ndone\n" and result.stderr == "wrong\n"
        assert result.run.pathspec == "F/r1" and result.run.data.total == 7.5
        folder = result.command_obj.folder
    seen = capsys.readouterr()
    assert seen.out == f"words {json.dumps(words)}\ndone\n" and seen.err == "wrong\n"
    assert not os.path.exists(folder)


def test_output_is_kept_to_itself_where_asked(place: Path, capsys: Any) -> None:
    with Runner(str(place), show_output=False, env={"STATUS": "1"}).run() as result:
        assert (result.status, result.returncode) == ("failed", 1)
    assert capsys.readouterr().out == ""


def test_a_program_that_has_no_run_says_why(place: Path) -> None:
    with (
        Runner(str(place), show_output=False, env={"NO_RUN": "1"}) as runner,
        pytest.raises(
            MetaflowException,
            match=r"ended with status 1 before it had a run: Error: --x is missing",
        ),
    ):
        runner.run()
    with pytest.raises(FileNotFoundError, match="no such file"):
        Runner("nowhere.py")


def test_resume_names_the_step_first(place: Path) -> None:
    with Runner(str(place), show_output=False) as runner:
        result = runner.resume(step_to_rerun="work", origin_run_id="r0")
        assert '["resume", "work", "--origin-run-id=r0"]' in result.stdout


def test_async_run_returns_while_it_runs(place: Path) -> None:
    async def go() -> None:
        async with Runner(str(place), env={"SLEEP": "1"}) as runner:
            result = await runner.async_run()
            assert (result.status, result.returncode) == ("running", None)
            assert result.run.id == "r1"
            lines = [line async for _, line in result.stream_log("stdout")]
            assert lines[0].startswith("words") and lines[-1] == "done"
            await result.wait()
            assert result.status == "successful"
            at = [position async for position, _ in result.stream_log("stdout")]
            again = [line async for _, line in result.stream_log("stdout", position=at[0])]
            assert again == lines[1:]

    asyncio.run(go())


def test_wait_prints_a_stream_and_ends_what_takes_too_long(place: Path, capsys: Any) -> None:
    async def go() -> None:
        async with Runner(str(place), env={"SLEEP": "60"}) as runner:
            result = await runner.async_run()
            began = time.monotonic()
            await result.wait(timeout=0.2, stream="stderr")
            assert result.status == "timeout" and time.monotonic() - began < 30
            assert result.returncode not in (None, 0)

    asyncio.run(go())
    assert capsys.readouterr().out == "wrong\n"


def test_cleanup_ends_what_still_runs(place: Path) -> None:
    async def go() -> Any:
        async with Runner(str(place), env={"SLEEP": "60"}) as runner:
            return await runner.async_run()

    assert asyncio.run(go()).command_obj.process.returncode is not None


def test_nothing_is_left(place: Path, monkeypatch: Any) -> None:
    """Not even by who never asks for a clean-up; but a program that still runs has its folder."""
    (own := place.parent / "tmp").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(own))
    Runner(str(place), show_output=False).run()
    runner = Runner(str(place), show_output=False, env={"NO_RUN": "1"})
    with pytest.raises(MetaflowException):
        runner.run()
    del runner
    gc.collect()
    assert list(own.iterdir()) == []
    started = asyncio.run(Runner(str(place), env={"SLEEP": "60"}).async_run())
    process = started.command_obj.process
    del started
    gc.collect()
    assert [one.name.split("-")[1] for one in own.iterdir()] == ["runner"]
    process.kill()
    process.wait()


def test_what_is_not_there_says_so(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    for kind in (NBRunner, NBDeployer):
        with pytest.raises(MetaflowException, match=f"{kind.__name__} takes .* not a notebook"):
            kind(object)
    gc.collect()
    assert list(tmp_path.iterdir()) == []


def test_a_file_without_a_flow(tmp_path: Path) -> None:
    (tmp_path / "none.py").write_text("print('hi')\n")
    with (
        Runner(str(tmp_path / "none.py"), show_output=False) as runner,
        pytest.raises(
            MetaflowException,
            match="ended well, but without a run: it must define a FlowSpec class",
        ),
    ):
        runner.run()
