"""Rows of bench.py about steps on machines over SSH: 1,000 trivial ones on one host of tests/support/ssh_hosts.py, beside
`ssh HOST true` by hand through a master connection that is open already, eight at a time. CPU is that of this side alone (the
engine and its ssh; by hand the clients, without the master); what the host does isn't counted."""

from __future__ import annotations

import json
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from elsewhere import Used, document, used

if TYPE_CHECKING:
    from bench import Bench

ROUNDS = 3
AT_ONCE = 8


def by_hand(bench: Bench, folder: Path, n: int) -> Used:
    socket = str(folder / "master")
    master = ["ssh", "-o", "BatchMode=yes", "-S", socket]
    line = f"seq {n} | xargs -P {AT_ONCE} -I{{}} {' '.join(master)} gpu1 true"
    subprocess.run([*master, "-M", "-f", "-N", "gpu1"], env=bench.env, check=True)
    try:
        return used(bench, folder, "sh", "-c", line)
    finally:
        subprocess.run([*master, "-O", "exit", "gpu1"], env=bench.env, capture_output=True)


def ours(bench: Bench, folder: Path, n: int) -> Used:
    stack = {"backend": "ssh", "hosts": ["gpu1"]}
    (folder / "stoker.yaml").write_text(json.dumps({"stacks": {"lab": stack}}))
    document(folder, n)
    run = [str(bench.args.stoker), "run", "--quiet", "--no-cache", "--with", "lab", "p.json"]
    return used(bench, folder, *run)


def rows(bench: Bench) -> None:
    """All of the figures."""
    sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests/support"))
    try:
        from ssh_hosts import Lab, lacking
    except ImportError:
        print("over_ssh: left out: there is no pytest (make .venv/.stamps/test)")
        return
    if lacking():
        print(f"over_ssh: left out: {lacking()}")
        return
    n = 100 if bench.args.quick else 1000
    kept = dict(bench.env)
    place = Path(tempfile.mkdtemp(prefix="bench-lab-", dir="/tmp"))
    place.chmod(0o755)
    lab = Lab(place, ("gpu1",), accel="none")
    sides: dict[str, list[Used]] = {"ours": [], "hand": []}
    try:
        bench.env = {**bench.env, **{k: lab.user.env()[k] for k in ("HOME", "PATH")}}
        ours(bench, bench.fresh("first"), 1)  # brings the program
        for _ in range(ROUNDS):
            sides["ours"].append(ours(bench, bench.fresh("ours"), n))
            sides["hand"].append(by_hand(bench, bench.fresh("hand"), n))
    finally:
        bench.env = kept
        lab.close()
        shutil.rmtree(place)
    rate, their_rate = (n / statistics.median(u.wall for u in side) for side in sides.values())
    cpu, their_cpu = (statistics.median(u.cpu for u in side) / n for side in sides.values())
    memory = max(u.memory for u in sides["ours"]) >> 20
    hand = f"ssh HOST true through a master, {AT_ONCE} at a time"
    bench.add(
        "over_ssh",
        f"{n:,} command steps to a host over SSH, each kept, watched and recorded",
        f"{rate:.0f}/s",
        f"{hand}, {their_rate:.0f}/s",
        their_rate / rate,
        10.0,
    )
    bench.add(
        "over_ssh",
        f"CPU of the engine and its ssh for the same ({memory} MiB at most)",
        f"{cpu * 1e3:.2f} ms a step",
        f"{hand} {their_cpu * 1e3:.2f} ms",
        cpu / their_cpu,
        1.0,
    )
