"""Rows of bench.py about Slurm: trivial tasks on a real Slurm of this machine (tests/slurm): 1,000 as an array beside sbatch's own,
100 as jobs of their own beside sbatch by hand, and 4,000 in a pilot beside GNU parallel under srun, which gets 1,000.
Slurm's daemons, its nodes and
the tasks share this machine's CPUs with the engine, and limit all rates; the engine's CPU is its own alone."""

from __future__ import annotations

import json
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from elsewhere import Used, foreach, used

if TYPE_CHECKING:
    from bench import Bench

ROUNDS = 2
CPUS = 8  # of a node and of a pilot
BY_HAND = 100  # jobs that sbatch submits one by one
TESTS = Path(__file__).resolve().parents[1] / "tests"


def project(folder: Path, share: Path, n: int, **options: Any) -> None:
    """n tasks of one step on the cluster, its first and last step here."""
    stack = {
        "backend": "slurm",
        "store": str(share),
        "options": {"poll": 0.5, **options},
    }
    (folder / "stoker.yaml").write_text(json.dumps({"stacks": {"lab": stack}}))
    foreach(folder, n)


def ours(bench: Bench, cluster: Any, n: int, **options: Any) -> Used:
    folder = bench.fresh("slurm")
    project(folder, cluster.folder / folder.name, n, **options)
    return used(bench, folder, str(bench.args.stoker), "run", "--quiet", "--with", "lab", "p.json")


def theirs(cluster: Any, *words: str) -> float:
    """How long a command by hand takes."""
    began = time.monotonic()
    done = subprocess.run(words, env=cluster.env, capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(f"bench: {' '.join(words[:4])} failed: {done.stdout}{done.stderr}")
    return time.monotonic() - began


def one_by_one(bench: Bench, cluster: Any, n: int) -> None:
    """Jobs of their own: tasks of different requests are no array."""
    rates: tuple[list[float], list[float]] = ([], [])
    for _ in range(ROUNDS):
        took = ours(bench, cluster, n, array_min=n + 1)
        rates[0].append(n / took.wall)
        began = time.monotonic()
        for _ in range(n):
            theirs(cluster, "sbatch", "--parsable", "-o", "/dev/null", "-c1", "--wrap", "true")
        cluster.drain()
        rates[1].append(n / (time.monotonic() - began))
    mine, hand = (statistics.median(one) for one in rates)
    what = f"{n} jobs of Slurm, from the first submission to the last end"
    bench.add("slurm", what, f"{mine:.1f}/s", f"sbatch by hand {hand:.1f}/s", hand / mine, 1.5)


def array(bench: Bench, cluster: Any, n: int) -> None:
    walls: tuple[list[float], list[float]] = ([], [])
    cpu = []
    for _ in range(ROUNDS):
        took = ours(bench, cluster, n)
        walls[0].append(took.wall)
        cpu.append(took.cpu / n * 1e3)
        began = time.monotonic()
        theirs(cluster, "sbatch", f"--array=0-{n - 1}", "-o", "/dev/null", "-c1", "--wrap", "true")
        cluster.drain()  # --wait looks after 2, 10, 42 seconds …
        walls[1].append(time.monotonic() - began)
    mine, hand = (statistics.median(one) for one in walls)
    what = f"{n:,} tasks of a foreach as an array, with outputs, logs and records"
    bench.add(
        "slurm", what, f"{mine:.1f} s", f"sbatch --array of `true` {hand:.1f} s", mine / hand, 2.0
    )
    each, limit = statistics.median(cpu), 5.0
    what = "CPU of the engine, and of Slurm's commands that it calls, for the same"
    bench.add("slurm", what, f"{each:.2f} ms a task", "", each, limit, "ms")


def pilot(bench: Bench, cluster: Any, n: int, by_parallel: int) -> None:
    rates: tuple[list[float], list[float]] = ([], [])
    for _ in range(ROUNDS):
        rates[0].append(n / ours(bench, cluster, n, pilot=CPUS, pilots=1, pilot_idle=1).wall)
        if shutil.which("parallel") is not None:
            words = (
                "srun",
                "-n1",
                f"-c{CPUS}",
                "sh",
                "-c",
                f"seq {by_parallel} | parallel -j{CPUS} true",
            )
            rates[1].append(by_parallel / theirs(cluster, *words))
    mine = statistics.median(rates[0])
    if rates[1]:
        hand = statistics.median(rates[1])
        what = f"{n:,} tasks of a foreach in a pilot of {CPUS} CPUs, with outputs, logs and records"
        bench.add(
            "slurm",
            what,
            f"{mine:.0f}/s",
            f"GNU parallel under srun {hand:.0f}/s",
            hand / mine,
            1.0,
        )
    else:
        print("slurm: no GNU parallel here (parallel): its row is left out")


def rows(bench: Bench) -> None:
    sys.path[:0] = [str(TESTS / "support"), str(TESTS / "slurm")]
    from slurm_cluster import Cluster, lacking
    from waiting import wait_for

    class BenchCluster(Cluster):
        def drain(self) -> None:
            """Until no job waits or runs."""
            live = "PENDING,RUNNING,COMPLETING"
            wait_for(lambda: not self.jobs(state=live), why=self.log)

    if lacking():
        print(f"slurm: {lacking()}: its rows are left out")
        return
    folder = Path(tempfile.mkdtemp(prefix="slurm-bench-", dir="/tmp"))
    folder.chmod(0o755)
    n = 100 if bench.args.quick else 1000
    try:
        cluster = BenchCluster(folder)
        try:
            bench.env |= {
                "SLURM_CONF": str(cluster.conf),
                "STOKER_ACCEL": "none",
                "STOKER_SYNC": "0",
            }
            pilot(bench, cluster, 4 * n, n)
            array(bench, cluster, n)
            one_by_one(bench, cluster, BY_HAND if not bench.args.quick else 20)
        finally:
            cluster.close()
    finally:
        for name in ("SLURM_CONF", "STOKER_ACCEL", "STOKER_SYNC"):
            bench.env.pop(name, None)
        shutil.rmtree(folder)
