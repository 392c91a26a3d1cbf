"""The script by which a job's command fetches our program, in images with different tools and in
those with none.

The script is the one that `plan --manifest` shows; an "image" is a folder of links to some of this
machine's programs.
"""

from __future__ import annotations

import functools
import hashlib
import http.server
import io
import json
import shutil
import subprocess
import sys
import tarfile
import threading
from pathlib import Path
from typing import Any, Callable, Iterator

import pytest
from batch_tools import Drive, Moto
from front_tools import cannot

SHELL = ["mkdir", "cat", "rm", "id", "tar", "sha256sum"]


@pytest.fixture
def served(tmp_path: Path) -> Iterator[tuple[Path, str]]:
    """A folder, and the URL at which it is served."""
    folder = tmp_path / "served"
    folder.mkdir()
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=str(folder))
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield folder, f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()


def make_tar(path: Path) -> str:
    """Our "program": a script that prints a text and its arguments. Returns the digest."""
    script = (
        b"#!/bin/sh\necho \"agent: $*\"; env | grep -c '^STOKER_CARRY\\|^STOKER_ARGV'; exit 5\n"
    )
    with tarfile.open(path, "w") as tar:
        member = tarfile.TarInfo("bin/stoker")
        member.size, member.mode = len(script), 0o755
        tar.addfile(member, io.BytesIO(script))
    return hashlib.sha256(path.read_bytes()).hexdigest()


class Image:
    def __init__(self, path: Path, tools: list[str]) -> None:
        self.bin = path / "image-bin"
        self.bin.mkdir()
        for tool in ["sh", "env", "grep", *tools]:
            # python3 may be a wrapper that needs other files.
            found = str(Path(sys.executable).resolve()) if tool == "python3" else shutil.which(tool)
            assert found, f"this machine has no {tool}"
            (self.bin / tool).symlink_to(found)
        self.at = path / "stoker"

    def add(self, name: str, text: str) -> None:
        (self.bin / name).write_text(text)
        (self.bin / name).chmod(0o755)


@pytest.fixture
def start(
    moto: Moto, drive: Callable[..., Drive], tmp_path: Path
) -> Callable[..., subprocess.CompletedProcess[str]]:
    def run(
        image: Image, digest: str, share: str = "s3://bucket/x", link: str = "", **words: Any
    ) -> subprocess.CompletedProcess[str]:
        d = drive(moto.env, {"queue": "q"}, carry_digest=digest, share_url=share)
        argv = [f"{image.at}/bin/stoker", "agent", "it's", "two words"]
        d.send(
            "manifest",
            id=1,
            argv=argv,
            carry_at=str(image.at),
            **{"folders": [str(tmp_path / "store of ann")], **words},
        )
        definition, submit = (json.loads(d.wait(lambda r: True)["manifest"]) for _ in range(2))
        env = {e["name"]: e["value"] for e in submit["containerOverrides"]["environment"]}
        env["STOKER_CARRY_LINK"] = link
        command = definition["containerProperties"]["command"]
        return subprocess.run(
            command,
            env={**env, "PATH": str(image.bin)},
            capture_output=True,
            text=True,
            timeout=60,
        )

    return run


def test_told_to_end_while_it_fetches(start: Any, tmp_path: Path) -> None:
    """The first process of a container ignores SIGTERM unless it handles it; the exit status is
    that of an agent."""
    image = Image(tmp_path, SHELL)
    image.add("curl", "#!/bin/sh\nkill -TERM $PPID\nexit 22\n")
    assert start(image, "0" * 64, link="http://127.0.0.1:9/a.tar").returncode == 75


@pytest.mark.parametrize("tool", ["curl", "wget", "python3"])
def test_link(start: Any, served: tuple[Path, str], tmp_path: Path, tool: str) -> None:
    if shutil.which(tool) is None:
        cannot(f"this machine has no {tool} (tools/debian-test-all.txt)")
    folder, url = served
    digest = make_tar(folder / "a.tar")
    done = start(Image(tmp_path, [*SHELL, tool]), digest, link=f"{url}/a.tar")
    assert done.returncode == 5, done.stderr
    assert done.stdout == "agent: agent it's two words\n0\n"
    assert (tmp_path / "store of ann").is_dir()
    assert not (tmp_path / "stoker" / "carried.tar").exists()


def test_python_alone(start: Any, served: tuple[Path, str], tmp_path: Path) -> None:
    """Without tar and sha256sum, python3 fetches, checks and unpacks."""
    folder, url = served
    digest = make_tar(folder / "a.tar")
    done = start(
        Image(tmp_path, ["mkdir", "cat", "rm", "id", "python3"]), digest, link=f"{url}/a.tar"
    )
    assert done.returncode == 5, done.stderr


def test_aws_goes_first(start: Any, served: tuple[Path, str], tmp_path: Path) -> None:
    """aws fetches with the job's role; if it fails, its output is kept and the link is tried."""
    folder, url = served
    digest = make_tar(folder / "a.tar")
    image = Image(tmp_path, [*SHELL, "cp", "curl"])
    image.add(
        "aws", f'#!/bin/sh\n[ "$4" = s3://bucket/x/carry/{digest}.tar ] && cp {folder}/a.tar "$5"\n'
    )
    assert start(image, digest).returncode == 5
    shutil.rmtree(image.at)
    image.add("aws", "#!/bin/sh\necho fatal: denied >&2; exit 1\n")
    done = start(image, digest, link=f"{url}/a.tar")
    assert (done.returncode, "fatal: denied" in done.stderr) == (5, True)
    shutil.rmtree(image.at)
    done = start(image, digest, link="")
    assert done.returncode == 78
    assert (
        f"stoker: our program (s3://bucket/x/carry/{digest}.tar) couldn't be fetched by: aws"
        in done.stderr
    )
    assert "iam_role" in done.stderr


def test_nothing(start: Any, tmp_path: Path) -> None:
    done = start(Image(tmp_path, SHELL), "0" * 64, link="http://127.0.0.1:9/a.tar")
    assert done.returncode == 78
    assert "stoker: this image has none of aws, python3, curl, wget" in done.stderr


def test_wrong_content(start: Any, served: tuple[Path, str], tmp_path: Path) -> None:
    folder, url = served
    make_tar(folder / "a.tar")
    done = start(Image(tmp_path, [*SHELL, "curl"]), "0" * 64, link=f"{url}/a.tar")
    assert done.returncode == 78
    assert "couldn't be fetched by: curl" in done.stderr


def test_shared_folder(start: Any, tmp_path: Path) -> None:
    """A store that is a mounted folder needs no tool, and its tar stays."""
    share = tmp_path / "share"
    (share / "carry").mkdir(parents=True)
    digest = make_tar(share / "carry" / "a.tar")
    (share / "carry" / "a.tar").rename(share / "carry" / f"{digest}.tar")
    image = Image(tmp_path, SHELL)
    assert start(image, digest, share=str(share)).returncode == 5
    assert (share / "carry" / f"{digest}.tar").exists()
    (share / "carry" / f"{digest}.tar").unlink()
    assert start(image, digest, share=str(share)).returncode == 5, "it is unpacked already"


def test_unwritable(start: Any, tmp_path: Path) -> None:
    image = Image(tmp_path, SHELL)
    (tmp_path / "file").write_text("")
    done = start(image, "0" * 64, folders=[str(tmp_path / "file" / "inside")])
    assert done.returncode == 78
    assert "can't make or write" in done.stderr and "user: '0'" in done.stderr
