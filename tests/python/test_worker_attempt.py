"""The worker: one attempt directory gives one result, whatever the step does."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, Dict, Tuple

import pytest
from play_engine import ROOT, make_attempt, result_of

from stoker._definition.entry import Entry
from stoker._engine.metadata import log_metadata
from stoker._worker import context
from stoker._worker.attempt import run_attempt


def entry_of(func: Any, outputs: list[str] | None = None, **more: Any) -> Entry:
    names = ["output"] if outputs is None else outputs
    return Entry(func, names, [Any] * len(names), **more)


def attempt(
    tmp_path: Path, func: Any, *, outputs: list[str] | None = None, task: Any = None, **more: Any
):
    """Run a function as a step in this process; returns its result and its directory."""
    entry = entry_of(func, outputs, **more)
    directory = make_attempt(tmp_path, "tested", outputs=entry.output_names, **(task or {}))
    run_attempt(str(directory), entry)
    return result_of(directory), directory


def test_value_comes_back_inline(tmp_path: Path) -> None:
    result, directory = attempt(
        tmp_path, lambda a, b: a + b, task={"inputs": {"a": {"value": 2}, "b": {"value": 3}}}
    )
    assert result == {
        "stoker": 1,
        "status": "ok",
        "outputs": {"output": {"value": 5, "type": "builtins.int"}},
    }
    assert not (directory / "out").exists() or not any((directory / "out").iterdir())
    assert not context.in_task()


def test_several_outputs_and_their_configs(tmp_path: Path) -> None:
    configs = {"b": {"name": "big", "version": "3", "tags": ["x"], "run_metadata": {"k": 1}}}
    result, _ = attempt(tmp_path, lambda: (1, "two"), outputs=["a", "b"], output_configs=configs)
    assert result["outputs"] == {
        "a": {"value": 1, "type": "builtins.int"},
        "b": {"value": "two", "type": "builtins.str"},
    }
    assert result["output_names"] == {"b": {"name": "big", "version": "3"}}
    assert result["output_tags"] == {"b": ["x"]}
    assert result["output_metadata"] == {"b": {"k": 1}}


@pytest.mark.parametrize("value", [(1, 2, 3), 7, [1]])
def test_wrong_number_of_outputs_is_a_usage_error(tmp_path: Path, value: Any) -> None:
    result, _ = attempt(tmp_path, lambda: value, outputs=["a", "b"])
    assert result["status"] == "failed"
    assert result["error"]["class"] == "usage"
    assert "declares 2 outputs (a, b) but returned" in result["error"]["message"]
    assert "outputs" not in result


def test_coroutine(tmp_path: Path) -> None:
    async def step() -> int:
        return 4

    result, _ = attempt(tmp_path, step, is_async=True)
    assert result["outputs"]["output"]["value"] == 4


def test_inputs_fit_their_annotations(tmp_path: Path) -> None:
    got: dict[str, Any] = {}
    inputs = {
        "rate": {"value": 1},
        "where": {"value": "/tmp/x"},
        "pair": {"value": {"!py": "tuple", "v": [1, 2]}},
        "many": {"list": [{"value": 1}, {"value": {"!py": "set", "v": [2]}}]},
    }
    annotations = {"rate": float, "where": Path}
    result, _ = attempt(
        tmp_path,
        lambda **given: got.update(given),
        outputs=[],
        annotations=annotations,
        task={"inputs": inputs},
    )
    assert result["status"] == "ok", result
    assert got == {"rate": 1.0, "where": Path("/tmp/x"), "pair": (1, 2), "many": [1, {2}]}
    assert type(got["rate"]) is float


def test_artifacts_of_commands_fit_too(tmp_path: Path) -> None:
    got: dict[str, Any] = {}
    report = tmp_path / "report"
    report.write_text('{"a": [1, 2]}')
    given = {"path": str(report), "format": "json", "type": "json", "meta": {}}
    inputs = {
        "doc": given,
        "where": given,
        "text": {**given, "format": "text"},
        "raw": {**given, "format": "file"},
    }
    annotations = {"doc": Dict[str, Tuple[int, ...]], "where": Path, "raw": bytes}
    result, _ = attempt(
        tmp_path,
        lambda **kw: got.update(kw),
        outputs=[],
        annotations=annotations,
        task={"inputs": inputs},
    )
    assert result["status"] == "ok", result
    text = report.read_text()
    assert got == {"doc": {"a": (1, 2)}, "where": report, "text": text, "raw": text.encode()}


def test_closed_stderr(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: Any) -> None:
    with open(os.devnull) as stream:
        monkeypatch.setattr(sys, "stderr", stream)
    result, _ = attempt(tmp_path, raising(ValueError("lost?")))
    assert result["error"]["message"] == "lost?"
    assert "ValueError: lost?" in capfd.readouterr().err


class BadTextError(Exception):
    def __str__(self) -> str:
        raise ValueError("no text")


class OutOfMemoryError(RuntimeError):
    """Named as torch.cuda.OutOfMemoryError is."""


def raising(exc: BaseException) -> Any:
    def step() -> None:
        raise exc

    return step


def importing() -> None:
    import no_such_module_at_all  # noqa: F401


@pytest.mark.parametrize(
    ("func", "cls", "type_", "text"),
    [
        (raising(ValueError("bad value")), "exception", "ValueError", "bad value"),
        (raising(KeyError("lr")), "exception", "KeyError", "key 'lr' not found"),
        (raising(MemoryError()), "exception", "MemoryError", "more memory"),
        (raising(SystemExit(3)), "exception", "SystemExit", "sys.exit(3)"),
        (raising(SystemExit("why")), "exception", "SystemExit", "sys.exit('why')"),
        (raising(SystemExit(0)), "exception", "SystemExit", "before it returned its outputs"),
        (raising(KeyboardInterrupt()), "exception", "KeyboardInterrupt", "KeyboardInterrupt"),
        (importing, "import", "ModuleNotFoundError", "no_such_module_at_all"),
        (
            raising(ImportError("libx.so.6: cannot open", name="_C")),
            "import",
            "ImportError",
            "libx.so",
        ),
        (
            raising(OutOfMemoryError("CUDA out of memory. Tried")),
            "device_oom",
            None,
            "CUDA out of memory",
        ),
        (
            raising(RuntimeError("CUDA error: out of memory")),
            "device_oom",
            "RuntimeError",
            "out of memory",
        ),
        (raising(RuntimeError("out of cheese")), "exception", "RuntimeError", "out of cheese"),
        (raising(BadTextError()), "exception", "BadTextError", "raised ValueError"),
    ],
)
def test_failures_have_their_class(
    tmp_path: Path, func: Any, cls: str, type_: str | None, text: str
) -> None:
    result, _ = attempt(tmp_path, func)
    error = result["error"]
    assert (result["status"], error["class"]) == ("failed", cls)
    assert text in error["message"]
    if type_ is not None:
        assert error["type"].endswith(type_)
    if cls == "import":  # a library of it that is missing, or a name in it, is another matter
        missing = func is importing
        assert error.get("module") == ("no_such_module_at_all" if missing else None)


def test_exit_zero_without_outputs_is_fine(tmp_path: Path) -> None:
    result, _ = attempt(tmp_path, raising(SystemExit(0)), outputs=[])
    assert result["status"] == "ok"


def test_traceback_is_the_users(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    def deep() -> None:
        json.loads("{")

    result, _ = attempt(tmp_path, deep)
    error = result["error"]
    line = deep.__code__.co_firstlineno + 1
    assert error["where"].endswith(f"test_worker_attempt.py:{line}")
    assert "stoker/_worker/" not in error["traceback"]
    assert error["traceback"].startswith("Traceback (most recent call last):")
    assert error["traceback"] in capfd.readouterr().err


def test_output_that_cannot_be_pickled_names_the_culprit(tmp_path: Path) -> None:
    import threading

    result, _ = attempt(tmp_path, lambda: (1, {"model": [0, threading.Lock()]}), outputs=["a", "b"])
    error = result["error"]
    assert (error["class"], error["output"]) == ("serialize", "b")
    assert "output 'b'" in error["message"] and "['model'][1]" in error["message"]
    assert "_thread.lock" in error["message"]
    assert "outputs" not in result
    assert (
        error["where"].startswith("tests/python/test_worker_attempt.py:")
        or "test_worker" in error["where"]
    )


def test_input_that_cannot_be_read(tmp_path: Path) -> None:
    gone = {"path": str(tmp_path / "gone"), "format": "json", "type": "builtins.dict", "meta": {}}
    result, _ = attempt(tmp_path, lambda x: x, task={"inputs": {"x": gone}})
    assert result["error"]["class"] == "load"
    assert "input 'x'" in result["error"]["message"] and "gone" in result["error"]["message"]


@pytest.mark.parametrize("text", ["", "{", "[]", '{"stoker": 2}', "\xff"])
def test_damaged_task_is_a_usage_error(tmp_path: Path, text: str) -> None:
    (tmp_path / "task.json").write_bytes(text.encode("latin-1"))
    run_attempt(str(tmp_path), entry_of(lambda: 1))
    assert result_of(tmp_path)["error"]["class"] == "usage"


def test_hooks_and_their_order(tmp_path: Path) -> None:
    calls: list[Any] = []
    hooks = {
        "on_start": lambda: calls.append("start"),
        "on_success": lambda: calls.append("success"),
        "on_failure": lambda exc: calls.append(exc),
        "on_end": lambda exc: calls.append(("end", exc)),
    }
    result, _ = attempt(tmp_path / "ok", lambda: 1, hooks=hooks)
    assert calls == ["start", "success", ("end", None)]
    assert result["hooks_run"] == ["on_start", "on_success", "on_end"]
    calls.clear()
    exc = ValueError("no")
    result, _ = attempt(tmp_path / "failed", raising(exc), hooks=hooks)
    assert calls == ["start", exc, ("end", exc)]
    calls.clear()
    result, _ = attempt(tmp_path / "again", raising(exc), hooks=hooks, task={"last_attempt": False})
    assert calls == ["start"]


def test_hook_that_raises_is_a_warning(tmp_path: Path) -> None:
    result, _ = attempt(tmp_path, lambda: 1, hooks={"on_success": raising(SystemExit(9))})
    assert result["status"] == "ok"
    assert result["warnings"] == ["hook 'on_success' raised SystemExit: 9"]
    assert result["hooks_run"] == ["on_success"], "it ran, and the engine mustn't run it again"


def test_only_one_hook(tmp_path: Path) -> None:
    got: list[str] = []
    entry = entry_of(lambda: 1, hooks={"on_failure": lambda exc: got.append(str(exc))})
    directory = make_attempt(tmp_path, "tested")
    run_attempt(str(directory), entry, hook="on_failure", hook_error="it was killed")
    assert got == ["it was killed"]
    assert not (directory / "result.json").exists()
    assert json.loads((directory / "hook.json").read_text())["hooks_run"] == ["on_failure"]


def test_context(tmp_path: Path) -> None:
    seen: dict[str, Any] = {}

    def step(lr: float) -> int:
        here = context.get_step_context()
        seen.update(
            step=here.step_name,
            run=here.pipeline_run.name,
            run_id=here.run_id,
            attempt=here.step_run.attempt,
            lr=here.parameters["lr"],
            asked=here.resources.asked,
            devices=here.devices,
            uri=here.get_output_artifact_uri(),
        )
        here.add_output_metadata({"rows": 3})
        here.add_output_tags(["a", "b"])
        here.remove_output_tags("a")
        log_metadata({"accuracy": 0.5, "where": tmp_path, "worst": float("inf")})
        log_metadata({"extra": [1]}, infer_artifact=True)
        with pytest.raises(ValueError, match="no output 'nope'; its outputs: output"):
            here.get_output_artifact_uri("nope")
        with pytest.raises(TypeError, match="log_metadata: 'x' is a builtins"):
            log_metadata({"x": object()})
        return 1

    task = {
        "inputs": {"lr": {"value": 0.1}},
        "asked": {"gpu_count": 1},
        "granted": {"devices": [{"index": 0}]},
    }
    result, directory = attempt(tmp_path, step, task=task)
    assert result["status"] == "ok", result
    assert seen == {
        "step": "tested",
        "run": "20260101-000000-test",
        "run_id": "20260101-000000-test",
        "attempt": 1,
        "lr": 0.1,
        "asked": {"gpu_count": 1},
        "devices": [{"index": 0}],
        "uri": str(directory / "out" / "output"),
    }
    assert result["metadata"] == {"accuracy": 0.5, "where": str(tmp_path), "worst": "inf"}
    assert result["output_metadata"] == {"output": {"rows": 3, "extra": [1]}}
    assert result["output_tags"] == {"output": ["b"]}


def test_outside_of_a_step() -> None:
    with pytest.raises(RuntimeError, match="only available inside a running step"):
        context.get_step_context()
    with pytest.raises(RuntimeError, match="no step is running"):
        log_metadata({"a": 1})


def test_seen_modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = b"VALUE = 5\n"
    (tmp_path / "late_helper.py").write_bytes(text)
    site = tmp_path / "lib" / "site-packages"
    for folder in ("lazy_dist-1.0.dist-info", "other_name-2.0.dist-info", "unused-3.dist-info"):
        (site / folder).mkdir(parents=True)
    (site / "other_name-2.0.dist-info" / "top_level.txt").write_text("hidden_top\n")
    (site / "lazy_dist.py").write_text("")
    (site / "hidden_top.py").write_text("")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.syspath_prepend(str(site))

    def step() -> int:
        import colorsys  # noqa: F401  (the standard library doesn't count)

        import hidden_top  # noqa: F401
        import late_helper
        import lazy_dist  # noqa: F401

        return int(late_helper.VALUE)

    result, _ = attempt(tmp_path, step)
    assert result["seen"] == {
        str(tmp_path / "late_helper.py"): hashlib.sha256(text).hexdigest(),
        str(site / "lazy_dist-1.0.dist-info"): "",
        str(site / "other_name-2.0.dist-info"): "",
    }


def test_result_is_written_whole_or_not_at_all(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    directory = make_attempt(tmp_path, "tested", outputs=["output"])
    (directory / "result.json").mkdir()  # renaming a file onto a directory fails
    run_attempt(str(directory), entry_of(lambda: 1))
    assert "can't be written" in capfd.readouterr().err


# ---------------------------------------------------------------- python -m stoker._worker

SCRIPT = """
import sys
from stoker import step
if "no_guard" in sys.argv[0] or {guard}:
    pass

class Thing:
    def __init__(self, n): self.n = n

@step
def make(n: int) -> Thing:
    print("name is", __name__)
    return Thing(n)

@step
def use(thing: Thing) -> int:
    assert type(thing) is Thing
    return thing.n
"""


def worker(
    directory: Path, *more: str, python: str = sys.executable, **env: str
) -> subprocess.CompletedProcess:
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "python"), **env}
    command = [python, "-m", "stoker._worker", str(directory), *more]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)


def test_spawned_with_main(tmp_path: Path) -> None:
    main = tmp_path / "file.py"
    main.write_text(SCRIPT.format(guard="True"))
    made = make_attempt(
        tmp_path, "make", entry="__main__:make", inputs={"n": {"value": 3}}, outputs=["output"]
    )
    done = worker(made, "--main", str(main))
    assert (done.returncode, done.stdout) == (0, "name is __mp_main__\n"), done.stderr
    result = result_of(made)
    entry = result["outputs"]["output"]
    assert (entry["type"], entry["format"]) == ("__main__.Thing", "pickle")
    assert "was pickled" in result["warnings"][0]
    used = make_attempt(
        tmp_path,
        "use",
        entry="__main__:use",
        inputs={"thing": {**entry, "path": str(made / entry["path"])}},
        outputs=["output"],
    )
    done = worker(used, "--main", str(main))
    assert result_of(used)["outputs"]["output"]["value"] == 3, done.stderr


def test_spawned_file_that_calls_its_pipeline_unguarded(tmp_path: Path) -> None:
    main = tmp_path / "file.py"
    main.write_text(
        "from stoker import step, pipeline\n@step\ndef one() -> int:\n    return 1\n"
        "@pipeline\ndef all_of_it():\n    one()\nall_of_it()\nraise SystemExit('not reached')\n"
    )
    made = make_attempt(tmp_path, "one", entry="__main__:one", outputs=["output"])
    done = worker(made, "--main", str(main))
    assert result_of(made)["outputs"]["output"]["value"] == 1, done.stderr


@pytest.mark.parametrize(
    ("entry", "text", "cls"),
    [
        ("json:no_such", "module 'json' has no 'no_such'", "usage"),
        ("no_such_mod:f", "No module named 'no_such_mod'", "import"),
        ("", "", "usage"),
    ],
)
def test_spawned_with_a_bad_entry(tmp_path: Path, entry: str, text: str, cls: str) -> None:
    made = make_attempt(tmp_path, "one", entry=entry)
    assert worker(made).returncode == 0
    error = result_of(made)["error"]
    assert text in error["message"]
    if entry:
        assert error["class"] == cls


def test_spawned_with_a_broken_main(tmp_path: Path) -> None:
    main = tmp_path / "file.py"
    main.write_text("x = 1\nx = = 2\n")
    made = make_attempt(tmp_path, "one", entry="__main__:one")
    worker(made, "--main", str(main))
    error = result_of(made)["error"]
    assert (error["class"], error["type"]) == ("exception", "SyntaxError")
    assert error["where"].endswith("file.py:2")


def test_spawned_thread_variables(tmp_path: Path) -> None:
    (tmp_path / "mod.py").write_text(
        "import os\ndef f():\n    return os.environ['OMP_NUM_THREADS']\n"
    )
    made = make_attempt(tmp_path, "one", entry="mod:f", outputs=["output"], granted={"threads": 3})
    worker(made, PYTHONPATH=f"{ROOT / 'python'}:{tmp_path}")
    assert result_of(made)["outputs"]["output"]["value"] == "3"


def test_spawned_hook(tmp_path: Path) -> None:
    (tmp_path / "mod.py").write_text(
        "def f():\n    return 1\ndef hook(exc):\n    print('told', exc)\n"
    )
    hooks = {"on_failure": {"python": "mod:hook"}}
    made = make_attempt(tmp_path, "one", entry="mod:f", hooks=hooks)
    path = f"{ROOT / 'python'}:{tmp_path}"
    done = worker(made, PYTHONPATH=path, STOKER_HOOK="on_failure", STOKER_ERROR="timeout")
    assert (done.returncode, done.stdout) == (0, "told timeout\n"), done.stderr
    assert not (made / "result.json").exists()


def test_usage() -> None:
    done = worker(Path("/nowhere"), "--man")
    assert done.returncode == 2 and "usage:" in done.stderr


def old_python() -> str | None:
    """An interpreter of Python 3.7, as in images that know nothing of Stoker."""
    for path in (shutil.which("python3.7"), *Path.home().glob(".pyenv/versions/3.7.*/bin/python")):
        if path and subprocess.run([path, "-c", ""], capture_output=True).returncode == 0:
            return str(path)
    return None


@pytest.mark.skipif(old_python() is None, reason="no Python 3.7 on this machine")
def test_runs_on_python_3_7(tmp_path: Path) -> None:
    (tmp_path / "mod.py").write_text(
        "import stoker\n\n@stoker.step\ndef main(n: int) -> int:\n"
        "    return n + stoker.get_step_context().attempt\n"
    )
    task = {"entry": "mod:main", "outputs": ["output"], "inputs": {"n": {"value": 2}}}
    directory = make_attempt(tmp_path, "tested", attempt=3, **task)
    path = f"{ROOT / 'python'}:{tmp_path}"
    command = [str(old_python()), "-m", "stoker._worker", str(directory)]
    done = subprocess.run(command, env={"PYTHONPATH": path}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert result_of(directory)["outputs"]["output"]["value"] == 5
