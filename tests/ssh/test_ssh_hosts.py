"""The hosts of tests/support/ssh_hosts.py are what tests take them for."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

from ssh_hosts import ROOT, Lab
from stoker_binary import find_binary
from waiting import wait_for


def said(lab: Lab, *words: str) -> str:
    done = lab.user.ssh(*words)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_machines_of_their_own(lab: Lab) -> None:
    names = {
        name: said(lab, name, "hostname; id -un; echo $HOME $STOKER_ACCEL") for name in lab.hosts
    }
    assert names == {name: f"{name}\nann\n/home/ann sim:2xA100" for name in lab.hosts}
    assert said(lab, "ben@gpu1", "id -un; pwd") == "ben\n/home/ben"
    said(lab, "gpu1", "echo here > ~/file; echo there > /tmp/file; touch /run/lock/file")
    assert lab["gpu1"].path("/home/ann/file").read_text() == "here\n"
    assert lab.user.ssh("gpu2", "ls ~/file /tmp/file /run/lock/file").stdout == ""
    assert not Path("/run/lock/file").exists() and not Path("/home/ann").exists()
    assert said(lab, "gpu1", f"ls -A {ROOT}") == ".venv"
    said(
        lab, "gpu1", f"{ROOT}/.venv/bin/python -c 'import pytest'"
    )  # for those who need its packages
    boots = {said(lab, name, "cat /proc/sys/kernel/random/boot_id") for name in lab.hosts}
    assert len(boots) == len(lab.hosts)
    assert said(lab, "gpu1", "ssh-keyscan -t ed25519 gpu2 2>/dev/null | cut -d' ' -f3") in lab["gpu2"].known  # fmt: skip


def test_shared_folder(lab: Lab) -> None:
    said(lab, "gpu1", f"echo one > {lab.shared}/file")
    assert said(lab, "gpu3", f"cat {lab.shared}/file") == "one"
    assert (lab.shared / "file").read_text() == "one\n"


def test_cable(lab: Lab) -> None:
    host = lab["gpu1"]
    host.cut()
    away = lab.user.ssh("-o", "ConnectTimeout=1", "gpu1", "true")
    assert away.returncode == 255 and "timed out" in away.stderr
    assert said(lab, "gpu2", "echo up") == "up"
    host.mend()
    assert said(lab, "gpu1", "echo up") == "up"


def test_reboot(lab: Lab) -> None:
    host = lab["gpu1"]
    before = said(lab, "gpu1", "cat /proc/sys/kernel/random/boot_id")
    said(
        lab,
        "gpu1",
        "touch ~/kept /run/lock/gone; setsid sleep 1000 >/dev/null 2>&1 </dev/null & echo",
    )
    assert list(host.processes().values()) == ["sleep 1000"]
    pid = next(iter(host.processes()))
    host.halt()
    assert not Path(f"/proc/{pid}").exists()
    assert "refused" in lab.user.ssh("gpu1", "true").stderr
    host.boot()
    assert host.processes() == {}
    assert said(lab, "gpu1", "cat /proc/sys/kernel/random/boot_id") != before
    assert said(lab, "gpu1", "ls ~ /run/lock") == "/home/ann:\nkept\n\n/run/lock:"


def test_keys(lab: Lab) -> None:
    lab["gpu2"].change_key()
    assert "REMOTE HOST IDENTIFICATION HAS CHANGED" in lab.user.ssh("gpu2", "true").stderr
    assert said(lab, "gpu1", "echo up") == "up"
    assert "Permission denied" in lab.client("stranger", key=False).ssh("gpu1", "true").stderr
    new = lab.client("new", known=False)
    assert "Host key verification failed" in new.ssh("gpu1", "true").stderr


def test_full_disk(lab: Lab) -> None:
    host = lab["gpu1"]
    host.fill_disk()
    full = lab.user.ssh("gpu1", "head -c 100000 /dev/zero > ~/file")
    assert full.returncode == 1 and "No space left" in full.stderr
    host.empty_disk()
    said(lab, "gpu1", "head -c 100000 /dev/zero > ~/file")
    lab.clear()
    assert said(lab, "gpu1", "ls ~") == ""


def test_commands_without_ssh(lab: Lab) -> None:
    assert lab["gpu1"].run("sh", "-c", "id -un; hostname; echo $HOME", user="ben") == "ben\ngpu1\n/home/ben\n"  # fmt: skip
    lab["gpu1"].configure(MORE="a b")
    assert said(lab, "gpu1", "echo $MORE $STOKER_ACCEL") == "a b sim:2xA100"


def test_leases_of_another_user(lab: Lab, tmp_path: Path) -> None:
    """They are what Stoker's own are."""
    folder = lab["gpu1"].path("/run/lock/stoker")
    env = {**os.environ, "STOKER_ACCEL": "sim:2xA100", "STOKER_LEASE_DIR": str(folder)}
    look = [str(find_binary()), "gpus", "--json"]
    with lab["gpu1"].leased("GPU-sim-1"):
        devices = json.loads(subprocess.run(look, env=env, capture_output=True).stdout)["devices"]
    assert [d["status"] for d in devices] == ["free", "leased"]
    assert devices[1]["holder"] == "run theirs step train (user ben, pid 1)"
    devices = json.loads(subprocess.run(look, env=env, capture_output=True).stdout)["devices"]
    assert [d["status"] for d in devices] == ["free", "free"]


def test_nothing_stays(tmp_path: Path) -> None:
    """Its test process is killed in the middle."""
    (tmp_path / "lab").mkdir()
    source = f"import sys; sys.path.insert(0, {str(ROOT / 'tests/support')!r})\n" \
        "from pathlib import Path; from ssh_hosts import Lab\n" \
        f"lab = Lab(Path({str(tmp_path / 'lab')!r}), ('one',))\n" \
        "print(lab['one'].first, lab['one'].holder.pid, lab.switch.pid, flush=True); input()"  # fmt: skip
    with subprocess.Popen([sys.executable, "-c", source], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:  # fmt: skip
        assert process.stdout is not None
        pids = process.stdout.readline().split()
        assert len(pids) == 3 and all(Path(f"/proc/{pid.decode()}").exists() for pid in pids)
        os.kill(process.pid, signal.SIGKILL)
    wait_for(lambda: not any(Path(f"/proc/{pid.decode()}").exists() for pid in pids))
    assert str(tmp_path) not in Path("/proc/mounts").read_text()
