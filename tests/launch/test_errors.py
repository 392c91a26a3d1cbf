"""TORCHELASTIC_ERROR_FILE: what ranks write there is told, and goes to the launcher's own."""

from __future__ import annotations

import json
import signal
import subprocess
from pathlib import Path

import pytest
from launch_tools import ENV, binary, launch, python, shell

TRACE = "Traceback (most recent call last):\\n  a\\nValueError: boom\\n"


def account(message: str, trace: str | None = None) -> str:
    """A rank that writes this as PyTorch's @record does, and nothing to stderr."""
    said = (
        f"{{'message': '{message}', 'extraInfo': {{'py_callstack': '{trace}', 'timestamp': '7'}}}}"
    )
    text = f"{{'message': {said if trace else repr(message)}}}"
    return f"""
import json
if RANK == 1:
    json.dump({text}, open(os.environ['TORCHELASTIC_ERROR_FILE'], 'w'))
    os._exit(3)
time.sleep(3000)
"""


@pytest.mark.parametrize("logs", [True, False])
@pytest.mark.parametrize("trace", [TRACE, None])
def test_a_ranks_account_is_told(logs: bool, trace: str | None, tmp_path: Path) -> None:
    own = tmp_path / "own.json"
    own.write_text("old " * 500)  # overwritten in place: it may be a mount
    words = ["--log-dir", tmp_path / "logs"] if logs else []
    env = {"TORCHELASTIC_ERROR_FILE": str(own), "TMPDIR": str(tmp_path)}
    done = launch("-n", "2", "--json", *words, *python(account("ValueError: boom", trace)), **env)
    assert done.code == 3 and "rank 1 failed: exit status 3 (ValueError: boom)" in done.sentence
    assert ("  Traceback (most" in done.err) == (trace is not None)
    passed = json.loads(own.read_text())["message"]
    assert passed["message"] == "ValueError: boom" and passed["errorCode"] == 3
    assert passed["extraInfo"]["py_callstack"] == ("" if trace is None else eval(f"'{trace}'"))
    assert int(passed["extraInfo"]["timestamp"]) > 1_000_000_000
    assert not list(tmp_path.glob("stoker-errors-*"))


def test_the_launchers_own_file_without_an_account(tmp_path: Path) -> None:
    own = tmp_path / "own.json"
    env = {"TORCHELASTIC_ERROR_FILE": str(own)}
    assert launch("-n", "2", *shell("exit 0"), **env).code == 0 and not own.exists()
    done = launch(
        "-n", "2", *python("if RANK == 1: raise KeyError('shard')\ntime.sleep(99)"), **env
    )
    passed = json.loads(own.read_text())["message"]
    assert done.code == passed["errorCode"] == 1
    assert passed["message"] == done.sentence
    assert passed["extraInfo"]["py_callstack"].endswith("KeyError: 'shard'\n")


def test_an_old_account_does_not_count(tmp_path: Path) -> None:
    """A restart begins without it."""
    code = """
if os.environ['TORCHELASTIC_RESTART_COUNT'] == '0':
    open(os.environ['TORCHELASTIC_ERROR_FILE'], 'w').write('{"message": "first"}')
sys.exit(4)
"""
    done = launch("-n", "1", "--restarts", "1", "--log-dir", tmp_path, "--json", *python(code))
    texts = [attempt["text"] for attempt in done.gang["attempts"]]
    assert texts == ["rank 0 failed: exit status 4 (first)", "rank 0 failed: exit status 4"]


@pytest.mark.parametrize("text", ["", "{", "[1]", '{"message": 7}', '{"message": {}}'])
def test_a_file_that_is_none_hurts_nobody(text: str) -> None:
    code = f"open(os.environ['TORCHELASTIC_ERROR_FILE'], 'w').write({text!r}); sys.exit(4)"
    done = launch(*python(code))
    assert done.code == 4 and done.sentence == "rank 0 failed: exit status 4"


def test_nothing_is_left_after_a_signal(tmp_path: Path) -> None:
    p = subprocess.Popen(
        [binary(), "launch", *python("print('up'); time.sleep(3000)")],
        env=ENV | {"TMPDIR": str(tmp_path)},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert p.stdout is not None and p.stdout.readline() == "[0] up\n"
    assert len(list(tmp_path.glob("stoker-errors-*"))) == 1
    p.send_signal(signal.SIGTERM)
    p.communicate(timeout=120)
    assert list(tmp_path.iterdir()) == []


def test_a_killed_launchers_folder_is_removed_by_the_next(tmp_path: Path) -> None:
    """Only by one that starts after its death; a living launcher's and other folders stay."""

    def start() -> subprocess.Popen[str]:
        p = subprocess.Popen(
            [binary(), "launch", *python("print('up'); time.sleep(3000)")],
            env=ENV | {"TMPDIR": str(tmp_path)},
            stdout=subprocess.PIPE,
            text=True,
        )
        assert p.stdout is not None and p.stdout.readline() == "[0] up\n"
        return p

    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "kept").write_text("")
    (tmp_path / "stoker-errors-linked").symlink_to(elsewhere)
    killed, alive = start(), start()
    mine = {p for p in tmp_path.glob("stoker-errors-??????") if not p.is_symlink()}
    assert len(mine) == 2
    for folder in mine:
        (folder / "0.json").write_text("{}")
    killed.kill()
    killed.communicate(timeout=120)
    assert {p for p in mine if p.exists()} == mine
    done = launch(*python("pass"), TMPDIR=str(tmp_path))
    assert done.code == 0
    (left,) = [p for p in mine if p.exists()]
    assert (left / "0.json").exists() and (elsewhere / "kept").exists()
    alive.send_signal(signal.SIGTERM)
    alive.communicate(timeout=120)
    assert {p.name for p in tmp_path.iterdir()} == {"elsewhere", "stoker-errors-linked"}
