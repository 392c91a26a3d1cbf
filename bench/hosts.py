"""Rows of bench.py about stores on hosts: beside `scp` and `sftp`, by the same sshd on this machine, in turn."""

from __future__ import annotations

import json
import os
import shutil
import socket
import statistics
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bench import Bench

ROUNDS = 3
MIB = 1 << 20
SMALL = 1000  # objects


def program(name: str) -> str | None:
    return shutil.which(name, path=f"/usr/sbin:/sbin:{os.environ['PATH']}")


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return int(s.getsockname()[1])


def start_sshd(folder: Path) -> subprocess.Popen[bytes]:
    """On loopback, for this user alone; `folder`/bin/ssh, scp and sftp reach it as "host"."""
    port = free_port()
    for name in ("host_key", "key"):
        words = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / name)]
        subprocess.run(words, check=True)
    (folder / "authorized").write_text((folder / "key.pub").read_text())
    key = " ".join((folder / "host_key.pub").read_text().split()[:2])
    (folder / "known").write_text(f"[127.0.0.1]:{port} {key}\n")
    (folder / "config").write_text(
        f"Host host\n  HostName 127.0.0.1\n  Port {port}\n  IdentityFile {folder}/key\n"
        f"  IdentitiesOnly yes\n  UserKnownHostsFile {folder}/known\n"
    )
    (folder / "sshd_config").write_text(
        f"ListenAddress 127.0.0.1\nPort {port}\nHostKey {folder}/host_key\nPidFile none\n"
        f"AuthorizedKeysFile {folder}/authorized\nStrictModes no\nUsePAM no\n"
        f"Subsystem sftp internal-sftp\nSetEnv STOKER_SYNC=0 XDG_CACHE_HOME={folder}/cache\n"
    )
    (folder / "bin").mkdir()
    for name in ("ssh", "scp", "sftp"):
        wrapper = folder / "bin" / name
        wrapper.write_text(f'#!/bin/sh\nexec {program(name)} -F {folder}/config "$@"\n')
        wrapper.chmod(0o755)
    if os.geteuid() == 0:
        Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)
    sshd = program("sshd")
    assert sshd is not None
    process = subprocess.Popen(
        [sshd, "-D", "-e", "-f", str(folder / "sshd_config")], stderr=(folder / "log").open("wb")
    )
    end = time.monotonic() + 30
    while subprocess.run([folder / "bin/ssh", "host", "true"], capture_output=True).returncode:
        if time.monotonic() > end or process.poll() is not None:
            said = (folder / "log").read_text()[-1000:]
            raise SystemExit(f"bench: sshd doesn't start: {said}")
        time.sleep(0.05)
    return process


def large_file(bench: Bench, folder: Path) -> None:
    """One large object, there and back."""
    from bench import measure

    stoker, size = str(bench.args.stoker), 128 if bench.args.quick else 1024
    block = os.urandom(MIB)
    with (folder / "in").open("wb") as file:
        for i in range(size):
            file.write(i.to_bytes(8, "little") + block[8:])
    url = f"ssh://host{folder}/ours"
    (folder / "theirs").mkdir()
    both = {
        "to": (
            [stoker, "share", "put", url, "k", "in"],
            ["scp", "-q", "in", f"host:{folder}/theirs/k"],
        ),
        "from": (
            [stoker, "share", "get", url, "k", "back"],
            ["scp", "-q", f"host:{folder}/theirs/k", "back"],
        ),
    }
    for way, (ours, theirs) in both.items():
        pairs = []
        for _ in range(ROUNDS):
            (folder / "back").unlink(missing_ok=True)
            mine = measure(ours, folder, bench.env).wall
            (folder / "back").unlink(missing_ok=True)
            pairs.append((mine, measure(theirs, folder, bench.env).wall))
        wall = [statistics.median(p[i] for p in pairs) for i in (0, 1)]
        bench.add(
            "hosts",
            f"{size} MiB {way} a store on a host (sshd on loopback)",
            f"{wall[0]:.2f} s ({size / wall[0]:.0f} MiB/s)",
            f"scp {wall[1]:.2f} s",
            statistics.median(p[0] / p[1] for p in pairs),
            1.2,
        )


def small_objects(bench: Bench, folder: Path) -> None:
    """An artifact of many small files, beside a folder by sftp."""
    from bench import measure

    stoker, source = str(bench.args.stoker), folder / "small"
    source.mkdir()
    for i in range(SMALL):
        (source / f"{i:05}").write_text(f"{i}\n" * 50)
    kept = {"env": {**bench.env, "STOKER_STORE": str(folder / "here")}, "check": True, "text": True}
    added = subprocess.run([stoker, "artifact", "add", str(source)], capture_output=True, **kept)  # type: ignore[call-overload]
    digest = json.loads(added.stdout)["digest"]
    pairs: dict[str, list[tuple[float, float]]] = {"to": [], "from": []}
    for turn in range(ROUNDS):
        url = f"ssh://host{folder}/ours{turn}"
        (folder / "put").write_text(f"put -R {source} {folder}/theirs{turn}\n")
        (folder / "get").write_text(f"get -R {folder}/theirs{turn} {folder}/got{turn}\n")
        for way, verb, store in (("to", "push", "here"), ("from", "pull", f"there{turn}")):
            env = {**bench.env, "STOKER_STORE": str(folder / store)}
            mine = measure([stoker, "share", verb, url, digest], folder, env).wall
            batch = str(folder / ("put" if way == "to" else "get"))
            pairs[way].append(
                (mine, measure(["sftp", "-q", "-b", batch, "host"], folder, bench.env).wall)
            )
    for way, of_way in pairs.items():
        wall = [statistics.median(p[i] for p in of_way) for i in (0, 1)]
        bench.add(
            "hosts",
            f"{SMALL:,} small files {way} a store on a host, as one artifact",
            f"{wall[0]:.2f} s",
            f"sftp {wall[1]:.2f} s",
            statistics.median(p[0] / p[1] for p in of_way),
            1.2,
        )


def rows(bench: Bench) -> None:
    lacks = [n for n in ("sshd", "ssh", "scp", "sftp", "ssh-keygen") if program(n) is None]
    if lacks:
        print(f"hosts: left out, there is no {lacks[0]} (openssh-server, openssh-client)")
        return
    folder = bench.fresh("hosts")
    process = start_sshd(folder)
    kept = dict(bench.env)
    bench.env.update(
        HOME=str(folder), PATH=f"{folder}/bin:{bench.env['PATH']}", STOKER_SYNC="0"
    )  # nobody waits for a disk
    try:
        check = [str(bench.args.stoker), "share", "check", f"ssh://host{folder}/first"]
        subprocess.run(check, env=bench.env, check=True, stdout=subprocess.DEVNULL)  # it is there
        large_file(bench, folder)
        small_objects(bench, folder)
    finally:
        process.terminate()
        process.wait()
        bench.env = kept
