"""tools/bootstrap.sh asks for what is missing and nothing else; tools/download_size.py counts bytes."""

from __future__ import annotations

import http.server
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))
import download_size  # noqa: E402


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    """A PATH whose dpkg knows one package, and whose apt-get and sudo write down what they are told."""
    tools = {
        "dpkg-query": 'case "$*" in *here*) echo "install ok installed";; *) exit 1;; esac',
        "apt-get": f'echo "apt-get $*" >> {tmp_path}/said',
        "sudo": f'echo "sudo" >> {tmp_path}/said; exec "$@"',
        "id": 'echo "${FAKE_UID:-0}"',
    }
    for name, body in tools.items():
        path = tmp_path / name
        path.write_text(f"#!/bin/sh\n{body}\n")
        path.chmod(0o755)
    (tmp_path / "list").write_text("# a comment\nhere\ngone   # why\nalso-gone\n")
    (tmp_path / "have").write_text("here\n")
    return tmp_path


def bootstrap(machine: Path, *args: str, **env: str) -> subprocess.CompletedProcess[str]:
    full = {**os.environ, "PATH": f"{machine}:/usr/bin:/bin", **env}
    return subprocess.run(
        [ROOT / "tools" / "bootstrap.sh", *args],
        env=full,
        cwd=machine,
        capture_output=True,
        text=True,
    )


def said(machine: Path) -> list[str]:
    path = machine / "said"
    return path.read_text().splitlines() if path.exists() else []


def test_only_what_is_missing_is_installed_after_an_update(machine: Path) -> None:
    assert bootstrap(machine, "debian", "list").returncode == 0
    update, install = said(machine)
    assert update.startswith("apt-get update")
    assert install.endswith("gone also-gone") and " here" not in install


def test_nothing_missing_asks_nobody(machine: Path) -> None:
    assert bootstrap(machine, "debian", "have").returncode == 0
    assert said(machine) == []


def test_a_user_goes_through_sudo(machine: Path) -> None:
    assert bootstrap(machine, "debian", "list", FAKE_UID="1000").returncode == 0
    assert said(machine)[0] == "sudo" and said(machine)[1].startswith("apt-get update")


def test_a_user_without_sudo_is_told_what_to_install(machine: Path) -> None:
    for name in ("bash", "sh", "dirname", "sed", "xargs", "grep", "echo"):
        (machine / name).symlink_to(f"/usr/bin/{name}")
    (machine / "sudo").unlink()
    done = bootstrap(machine, "debian", "list", FAKE_UID="1000", PATH=str(machine))
    assert done.returncode == 3 and "gone also-gone" in done.stderr
    assert said(machine) == []


def test_an_empty_list_is_an_error(machine: Path) -> None:
    (machine / "list").write_text("# nothing\n")
    done = bootstrap(machine, "debian", "list")
    assert done.returncode == 3 and "these lists name no package: list" in done.stderr


def test_an_old_python_is_refused(machine: Path) -> None:
    (machine / "old").write_text("#!/bin/sh\nexit 1\n")
    (machine / "old").chmod(0o755)
    done = bootstrap(machine, "venv", "env", PYTHON=str(machine / "old"))
    assert done.returncode == 3 and "older than 3.9" in done.stderr


def test_size_is_asked_without_fetching() -> None:
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_HEAD(self) -> None:
            self.send_response(200)
            self.send_header("Content-Length", "123456789")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with http.server.HTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        assert download_size.size_of(f"http://127.0.0.1:{server.server_port}/x.whl") == 123456789
        server.shutdown()
    assert download_size.size_of("file:///x.whl") == 0
