"""With a store that is full, without inodes or read-only, each way of running a pipeline ends with
one sentence."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Iterator

import pytest
from cli_tools import PYTHON, Cli

DOCUMENT = """\
stoker: 1
name: p
cache: false
steps:
  a: {run: 'test ! -e fill || head -c 20000000 /dev/zero > $STOKER_OUTPUT/x; touch $STOKER_OUTPUT/x', outputs: [x]}
"""
PROGRAM = """
import os
from stoker import pipeline, step
@step
def one() -> bytes: return bytes(20_000_000 if os.path.exists("fill") else 1)
@pipeline(enable_cache=False)
def p(): one()
if __name__ == "__main__": p()
"""


def mount(*words: str | Path) -> bool:
    return subprocess.run(["mount", *words], capture_output=True).returncode == 0


@pytest.fixture
def disk(cli: Cli, tmp_path: Path) -> Iterator[Path]:
    """A small file system for the store."""
    folder = tmp_path / "disk"
    folder.mkdir()
    if os.geteuid() != 0 or not mount("-t", "tmpfs", "-o", "size=8m", "tmpfs", folder):
        pytest.skip("needs the right to mount a small file system")
    cli.env["STOKER_STORE"] = str(folder / "store")
    cli.write("p.yaml", DOCUMENT)
    cli.write("p.py", PROGRAM)
    yield folder
    subprocess.run(["umount", "-l", folder], check=True)


DOORS = {
    "document": ["stoker", "run", "p.yaml"],
    "file": ["stoker", "run", "--python", PYTHON, "p.py"],
    "python": [PYTHON, "p.py"],
    "resume": ["stoker", "resume", "latest"],
}


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("begun", [False, True], ids=["no store", "a store"])
@pytest.mark.parametrize("lack", ["space", "inodes", "writable", "space later"])
def test_one_sentence(cli: Cli, disk: Path, door: str, begun: bool, lack: str) -> None:
    if door == "resume" and not begun:
        pytest.skip("there is no run to resume")
    if begun:
        fills = "test ! -e fill || head -c 20000000 /dev/zero > $STOKER_TASK_DIR/x"
        cli.write("first.yaml", DOCUMENT + f"  z: {{run: '{fills}; exit 3'}}\n")
        assert cli("run", "first.yaml").code == 1
    if lack == "space":
        fill(disk)
    elif lack == "inodes":
        n = os.statvfs(disk)
        assert mount("-o", f"remount,nr_inodes={n.f_files - n.f_ffree + 1}", disk)
    elif lack == "writable":
        assert mount("-o", "remount,ro", disk)
    else:
        cli.write("fill", "")
    words = [str(cli.binary) if word == "stoker" else word for word in DOORS[door]]
    done = subprocess.run(
        words, cwd=cli.folder, env=cli.env, capture_output=True, text=True, timeout=60
    )
    own = [
        line
        for line in done.stderr.splitlines()
        if "stoker: " in line and "stoker: store /" not in line
    ]
    assert "Traceback" not in done.stderr and "locks" not in done.stderr
    assert done.returncode == 3 and len(own) == 1, done.stderr
    if lack == "writable":
        assert "Read-only file system" in own[0] and "STOKER_STORE" in own[0]
    else:
        assert "df -i" in own[0]
        assert lack != "space later" or "stoker resume" in own[0]
    if not begun and lack != "space later":
        assert cli("plan", "p.yaml").code == 0


@pytest.fixture(scope="module")
def quota(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """quota.c, to be loaded before the C library."""
    library = tmp_path_factory.mktemp("quota") / "quota.so"
    source = Path(__file__).with_name("quota.c")
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, source, "-ldl"], check=True)
    return library


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("begun", [False, True], ids=["no store", "a store"])
def test_quota(cli: Cli, quota: Path, door: str, begun: bool) -> None:
    """A user whose quota is used up gets one sentence that names the quota."""
    if door == "resume" and not begun:
        pytest.skip("there is no run to resume")
    cli.write("p.yaml", DOCUMENT)
    cli.write("p.py", PROGRAM)
    if begun:
        cli.write("first.yaml", DOCUMENT + "  z: {run: 'exit 3'}\n")
        assert cli("run", "first.yaml").code == 1
    cli.write("used", "")
    env = {
        "LD_PRELOAD": str(quota),
        "QUOTA_FOLDER": str(cli.store),
        "QUOTA_USED": str(cli.folder / "used"),
    }
    words = [str(cli.binary) if word == "stoker" else word for word in DOORS[door]]
    done = subprocess.run(
        words, cwd=cli.folder, env=cli.env | env, capture_output=True, text=True, timeout=60
    )
    own = [line for line in done.stderr.splitlines() if "stoker: " in line]
    assert "Traceback" not in done.stderr
    assert done.returncode == 3 and len(own) == 1, done.stderr
    assert "quota" in own[0].lower(), own


LOOKS = (["show"], ["runs"], ["logs"], ["why"], ["plan", "p.yaml"], ["artifact", "list"])


def fill(disk: Path) -> None:
    with open(disk / "fill", "wb", buffering=0) as file, pytest.raises(OSError):
        while True:
            file.write(bytes(1 << 12))


def test_a_read_only_store_is_read(cli: Cli, disk: Path) -> None:
    assert cli("run", "p.yaml").code == 0
    assert mount("-o", "remount,ro", disk)
    for words in LOOKS:
        assert cli(*words).code == 0, words


@pytest.mark.parametrize("lack", ["space", "inodes"])
@pytest.mark.parametrize(
    "words",
    [["store", "gc", "--keep-runs", "0", "--keep", "0s"], ["rm", "latest"]],
    ids=["gc", "rm"],
)
def test_a_full_store_is_read_and_emptied(
    cli: Cli, disk: Path, lack: str, words: list[str]
) -> None:
    for _ in range(2):
        assert cli("run", "p.yaml").code == 0
    if lack == "space":
        fill(disk)
        assert os.statvfs(disk).f_bavail == 0
    else:
        n = os.statvfs(disk)
        assert mount("-o", f"remount,nr_inodes={n.f_files - n.f_ffree + 1}", disk)
    for look in LOOKS:
        assert cli(*look).code == 0, look
    assert "store gc" in cli("run", "p.yaml").err
    assert cli(*words).code == 0
    assert len(cli.json("runs")) == (0 if words[0] == "store" else 1)
    if lack == "space":
        (disk / "fill").unlink()
    else:
        assert mount("-o", f"remount,nr_inodes={n.f_files}", disk)
    assert cli("store", "gc").code == 0
    kept = [file.stat().st_blocks for file in (disk / "store" / "reserve").iterdir()]
    assert len(kept) == 4 and all(kept)  # for the next time
