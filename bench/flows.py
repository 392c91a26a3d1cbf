"""Flows against real Metaflow, for bench.py --only flows: the same program for both, the shim's way here."""

from __future__ import annotations

import os
import re
import statistics
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bench import Bench, Cost

WIDE = """
from metaflow import FlowSpec, step

class Wide(FlowSpec):
    @step
    def start(self):
        self.items = list(range(N))
        self.next(self.work, foreach="items")

    @step
    def work(self):
        self.x = self.input
        self.next(self.join)

    @step
    def join(self, inputs):
        self.n = sum(1 for _ in inputs)
        self.next(self.end)

    @step
    def end(self):
        pass

if __name__ == "__main__":
    Wide()
"""
ARRAY = """
import os, time
import numpy as np
from metaflow import FlowSpec, step

class Array(FlowSpec):
    @step
    def start(self):
        self.array = np.random.default_rng(1).integers(0, 255, MIB << 20, dtype=np.uint8)
        os.sync()
        self.made = time.time()
        self.next(self.end)

    @step
    def end(self):
        assert self.array[0] >= 0 and self.array[-1] >= 0 and self.array.nbytes == MIB << 20
        print("handed over in", time.time() - self.made)
        del self.array

if __name__ == "__main__":
    Array()
"""


class Sides:
    """Where the two engines run the same program."""

    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        python = bench.args.tree / "python"
        shim = os.pathsep.join([str(python / "stoker" / "_compat"), str(python)])
        user = {"METAFLOW_USER": "bench"}
        self.envs = {
            "stoker": {**bench.env, **user, "PYTHONPATH": shim},
            "metaflow": {k: v for k, v in {**bench.env, **user}.items() if k != "PYTHONPATH"},
        }
        self.pythons = {"stoker": str(bench.args.python), "metaflow": bench.args.peers}

    def run(self, side: str, folder: Path, source: str, *words: str) -> Cost:
        """One run of a program, as the command that a user types."""
        from bench import measure

        (folder / "flow.py").write_text(source)
        env = {**self.envs[side], "HOME": str(folder)}
        return measure([self.pythons[side], "flow.py", "--quiet", "run", *words], folder, env)

    def says(self, side: str, folder: Path, source: str) -> str:
        """What a run's tasks print."""
        (folder / "flow.py").write_text(source)
        env = {**self.envs[side], "HOME": str(folder)}
        done = subprocess.run(
            [self.pythons[side], "flow.py", "run"],
            cwd=folder,
            env=env,
            capture_output=True,
            text=True,
            check=True,
        )
        return done.stdout


def rows(bench: Bench) -> None:
    """All of the figures."""
    sides = Sides(bench)
    _foreach(bench, sides)
    _memory(bench, sides)
    _resume(bench, sides)
    _array(bench, sides)


def _wide(sides: Sides, side: str, n: int) -> Cost:
    words = ("--max-num-splits", str(n), "--max-workers", "2")
    return sides.run(side, sides.bench.fresh(f"flow-{side}"), WIDE.replace("N))", f"{n}))"), *words)


def _foreach(bench: Bench, sides: Sides) -> None:
    """CPU of the whole command over its number of tasks: the start is in it, as it is for who runs it."""
    sizes = [100] if bench.args.quick else [100, 997]
    for n in sizes:
        tasks = n + 3
        ours = min(_wide(sides, "stoker", n).cpu for _ in range(3)) / tasks * 1e3
        if not bench.args.peers:
            bench.add(
                "flow tasks",
                f"{tasks:,} tasks of a foreach, CPU each",
                f"{ours:.2f} ms",
                "target",
                ours,
                6.0,
                "ms",
            )
            continue
        theirs = _wide(sides, "metaflow", n).cpu / tasks * 1e3
        bench.add(
            "flow tasks",
            f"{tasks:,} tasks of a foreach, CPU each",
            f"{ours:.2f} ms",
            f"Metaflow {theirs:.0f} ms",
            ours / theirs,
            1 / 50,
        )


def _memory(bench: Bench, sides: Sides) -> None:
    """The engine's own peak, which the kernel keeps in its status, looked at until it ends."""
    n = 1000 if bench.args.quick else 10000
    folder = bench.fresh("flow-memory")
    (folder / "flow.py").write_text(WIDE.replace("N))", f"{n}))"))
    words = [sides.pythons["stoker"], "flow.py", "--quiet", "run", "--max-num-splits", str(n)]
    running = subprocess.Popen(
        words, cwd=folder, env=sides.envs["stoker"], stdout=subprocess.DEVNULL
    )
    peak = 0
    while running.poll() is None:
        peak = max(peak, _engine_peak(running.pid))
        time.sleep(0.05)
    if running.returncode != 0:
        raise SystemExit(f"bench: a foreach of {n} failed ({running.returncode})")
    bench.add(
        "flow memory",
        f"peak memory of the engine in a foreach of {n:,}",
        f"{peak / 1e6:.1f} MB",
        "target",
        peak / 1e6,
        60,
        "MB",
    )


def _engine_peak(pid: int) -> int:
    """Bytes: ``VmHWM`` of the child whose program is ``stoker``; 0 where there is none."""
    try:
        for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
            status = Path(f"/proc/{child}/status").read_text()
            program = os.path.basename(os.readlink(f"/proc/{child}/exe"))
            found = re.search(r"VmHWM:\s+(\d+) kB", status)
            if program == "stoker" and found:
                return int(found[1]) * 1024
    except OSError:
        pass
    return 0


def _resume(bench: Bench, sides: Sides) -> None:
    """What a run of finished tasks costs again, from the command to its end, less a program's bare start."""
    n = 1000
    folder = bench.fresh("flow-resume")
    source = WIDE.replace("N))", f"{n}))").replace(
        "self.n = sum(1 for _ in inputs)",
        "import os\n        if not os.path.exists('go'):\n            raise ValueError('told to')",
    )
    (folder / "flow.py").write_text(source)
    begin = [sides.pythons["stoker"], "flow.py", "--quiet"]
    words = [*begin, "run", "--max-num-splits", str(n)]
    subprocess.run(words, cwd=folder, env=sides.envs["stoker"], capture_output=True)
    (folder / "go").touch()

    def wall(*more: str) -> float:
        start = time.perf_counter()
        subprocess.run(
            [*begin, *more], cwd=folder, env=sides.envs["stoker"], capture_output=True, check=True
        )
        return time.perf_counter() - start

    walls = [wall("resume", "--max-num-splits", str(n)) for _ in range(3)]
    seconds = statistics.median(walls)
    bench.add(
        "flow resume",
        f"resume of a run with {n + 1:,} finished tasks, to its end",
        f"{seconds:.2f} s",
        "target",
        seconds,
        1.0,
        "s",
    )


def _array(bench: Bench, sides: Sides) -> None:
    """From the end of what the producing step computes to the first use in the next one."""
    mib = 64 if bench.args.quick else 512

    def seconds(side: str) -> float:
        said = sides.says(side, bench.fresh(f"flow-array-{side}"), ARRAY.replace("MIB", str(mib)))
        return float(re.search(r"handed over in ([\d.]+)", said)[1])  # type: ignore[index]

    ours = statistics.median(seconds("stoker") for _ in range(3))
    if not bench.args.peers:
        bench.add(
            "flow array", f"{mib} MiB numpy array from step to step", f"{ours:.2f} s", "target", ours, 2.0, "s"
        )  # fmt: skip
        return
    theirs = seconds("metaflow")
    bench.add(
        "flow array",
        f"{mib} MiB numpy array from step to step of a flow",
        f"{ours:.2f} s",
        f"Metaflow {theirs:.1f} s",
        ours / theirs,
        1 / 20,
    )
