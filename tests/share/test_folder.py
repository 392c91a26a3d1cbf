"""`stoker share` on a folder that machines share."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from share_tools import CHUNK, Tool, stoker, write_random


@pytest.fixture
def tool(tmp_path: Path) -> Tool:
    return Tool(tmp_path, {**os.environ, "STOKER_SYNC": "0"})


@pytest.fixture
def shared(tmp_path: Path) -> Path:
    return tmp_path / "shared"


def files_of(folder: Path) -> set[str]:
    """But for what keeps the store out of a project's code."""
    found = {str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file()}
    assert {".gitignore", ".stokerignore"} <= found
    return found - {".gitignore", ".stokerignore"}


@pytest.mark.parametrize("url", ["{}", "file://{}", "{}///"])
def test_objects_and_artifacts(tool: Tool, shared: Path, url: str) -> None:
    url = url.format(shared)
    assert "can be written" in tool("share", "check", url)
    folder = tool.folder / "in"
    folder.mkdir()
    write_random(folder / "large", CHUNK + 1)
    (folder / "run").write_text("#!")
    (folder / "run").chmod(0o755)
    digest = tool.add(tool.folder / "here", folder)
    tool("share", "push", url, digest, STOKER_STORE=str(tool.folder / "here"))
    tool("share", "pull", url, digest, STOKER_STORE=str(tool.folder / "there"))
    back = tool.content(tool.folder / "there", digest)
    assert subprocess.run(["diff", "-r", folder, back]).returncode == 0
    assert os.access(back / "run", os.X_OK)
    assert len(files_of(shared)) == 3 and not list((shared / ".tmp").iterdir())
    assert "its objects have no URL" in tool.fails("share", "link", url, "k")


def test_one_of_many_creates(tool: Tool, shared: Path) -> None:
    for i in range(8):
        (tool.folder / f"in{i}").write_text(f"of {i}")
    for k in range(5):
        with ThreadPoolExecutor(8) as pool:
            done = list(
                pool.map(
                    lambda i, k=k: tool.run(
                        "share", "put", "--new", str(shared), f"log/{k}", f"in{i}"
                    ),
                    range(8),
                )
            )
        won = [i for i, d in enumerate(done) if d.returncode == 0]
        assert len(won) == 1 and (shared / f"log/{k}").read_text() == f"of {won[0]}"
        assert all("already" in d.stderr for i, d in enumerate(done) if i != won[0])


def test_killed_writers_leave_nothing_that_counts(tool: Tool, shared: Path) -> None:
    """An object is there whole or not at all, whenever the writer is killed."""
    content = write_random(tool.folder / "in", 8 * CHUNK)
    tool("share", "put", str(shared), "first", "in")
    for i in range(12):
        process = tool.start("share", "put", str(shared), f"k{i}", "in")
        time.sleep(0.003 * i)  # sleeps: to kill at different moments
        process.send_signal(signal.SIGKILL)
        process.communicate()
        if (shared / f"k{i}").exists():
            assert (shared / f"k{i}").stat().st_size == content.stat().st_size
    listed = tool("share", "ls", str(shared))
    assert ".tmp" not in listed and "first" in listed


def test_leftovers_go_after_a_week(tool: Tool, shared: Path) -> None:
    (shared / ".tmp").mkdir(parents=True)
    for name, days in (("old", 8), ("new", 1)):
        path = shared / ".tmp" / name
        path.write_text("half")
        os.utime(path, (time.time() - days * 86400,) * 2)
    tool("share", "check", str(shared))
    assert files_of(shared) == {".tmp/new"}


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to become somebody else")
def test_a_folder_that_is_not_ours(tool: Tool) -> None:
    shared = Path(tempfile.mkdtemp(prefix="stoker-share-"))  # whose parents all may enter
    shared.chmod(0o755)
    (shared / "k").write_text("x")
    (shared / "k").chmod(0o600)
    tool.env["HOME"] = "/nonexistent"

    def fails(*words: str) -> str:
        done = subprocess.run(
            [stoker(), *words],
            env=tool.env,
            user=65534,
            group=65534,
            capture_output=True,
            text=True,
        )
        assert done.returncode == 3, done
        return done.stderr

    try:
        assert "can't be written" in fails("share", "check", str(shared))
        assert "Permission denied" in fails("share", "get", str(shared), "k", "/tmp/never")
    finally:
        shutil.rmtree(shared)
