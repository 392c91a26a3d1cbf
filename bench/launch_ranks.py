"""Rows of bench.py about `stoker launch`: beside torchrun, beside variables set by hand, beside the shell's `&`."""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bench import Bench

# Both say when it was on the clock that all processes share.
ARRIVE = """
import os, sys, time
open(os.path.join(sys.argv[1], os.environ["RANK"]), "w").write(str(time.monotonic()))
"""
DIE = (
    ARRIVE
    + """
if os.environ["RANK"] == "1":
    time.sleep(1)
    open(os.path.join(sys.argv[1], "death"), "w").write(str(time.monotonic()))
    os._exit(3)
time.sleep(60)
"""
)


def by_hand(n: int, words: list[str], env: dict[str, str]) -> None:
    """What a user would do without any launcher. Each in a session of its own, as launchers do: on a busy machine the
    kernel shares CPU time out among sessions, so that two ranks in one would have half of what two sessions have."""
    ranks = [
        subprocess.Popen(
            words,
            env=env
            | {"RANK": str(k), "LOCAL_RANK": str(k), "WORLD_SIZE": str(n)}
            | {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500"},
            start_new_session=True,
        )
        for k in range(n)
    ]
    for rank in ranks:
        rank.wait()


def quietly(words: list[str], env: dict[str, str]) -> None:
    subprocess.run(
        words,
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


def arrival(bench: Bench, n: int, start: Callable[[list[str]], None]) -> float:
    """Seconds until the last of `n` ranks runs user code."""
    folder = bench.fresh("launch")
    begin = time.monotonic()
    start([str(folder)])
    return max(float((folder / str(k)).read_text()) for k in range(n)) - begin


def starts(bench: Bench, torchrun: str | None, accelerate: str | None) -> None:
    stoker, python, env = str(bench.args.stoker), str(bench.args.python), bench.env
    file = bench.fresh("arrive") / "arrive.py"
    file.write_text(ARRIVE)
    for n in (2, 4, 8):
        launch = [stoker, "launch", "-n", str(n)]
        ways: dict[str, Callable[[list[str]], None]] = {
            "stoker": lambda rest, launch=launch: quietly(
                [*launch, "--no-bind", "--", python, str(file), *rest], env
            ),
            "bound": lambda rest, launch=launch: quietly(
                [*launch, "--", python, str(file), *rest], env
            ),
            "hand": lambda rest, n=n: by_hand(n, [python, str(file), *rest], env),
        }
        if torchrun is not None:
            ways["torchrun"] = lambda rest, n=n: quietly(
                [torchrun, "--nproc-per-node", str(n), str(file), *rest], env
            )
        if accelerate is not None:  # --cpu would start one process, whatever it is asked
            options = ("--multi_gpu", "--num_machines", "1", "--main_process_port", "0")
            options += ("--mixed_precision", "no", "--dynamo_backend", "no")
            words = [accelerate, "launch", "--num_processes", str(n), *options, str(file)]
            ways["accelerate"] = lambda rest, words=words: quietly([*words, *rest], env)
        seen: dict[str, list[float]] = {name: [] for name in ways}
        for turn in range(9 if bench.args.quick else 41):
            for name in sorted(ways, reverse=turn % 2 == 1):  # who is first has it no better
                if name not in ("torchrun", "accelerate") or turn < 3:  # seconds each
                    seen[name].append(arrival(bench, n, ways[name]))
        mean = {name: statistics.median(figures) for name, figures in seen.items()}
        ratio = statistics.median(a / b for a, b in zip(seen["stoker"], seen["hand"]))
        others = {"torchrun": "torchrun", "accelerate": "accelerate launch"}
        beside = "".join(
            f"; {words} {mean[name] * 1e3:.0f} ms" for name, words in others.items() if name in mean
        )
        bench.add(
            f"launch-{n}",
            f"launch of {n} Python ranks, until the last runs user code "
            f"(not bound to CPUs, as by hand; bound: {mean['bound'] * 1e3:.0f} ms)",
            f"{mean['stoker'] * 1e3:.0f} ms",
            f"variables set by hand {mean['hand'] * 1e3:.0f} ms{beside}",
            ratio,
            1.1,
        )


# A step of two ranks, forked from a process that has its imports done, beside two interpreters that do them. The step before
# says when it is about to end, so what the engine does between two steps counts as ours.
STEP = """
import os, sys, time
import numpy
from stoker import pipeline, step, torchrun

def say(name):
    open(os.path.join({folder!r}, name), "w").write(str(time.monotonic()))

@step(enable_cache=False)
def before() -> int:
    say("begin")
    return 1

@torchrun(nproc_per_node=2)
@step(enable_cache=False)
def ranks(one: int) -> int:
    say(os.environ["RANK"])
    return one

@pipeline
def two():
    ranks(before())

if __name__ == "__main__":
    two()
"""


def step_starts(bench: Bench) -> None:
    python, env = str(bench.args.python), bench.env
    source = bench.fresh("hand") / "arrive.py"
    source.write_text("import numpy\n" + ARRIVE)
    pairs = []
    for _ in range(9 if bench.args.quick else 21):
        folder = bench.fresh("step")
        (folder / "two.py").write_text(STEP.format(folder=str(folder)))
        subprocess.run(
            [python, str(folder / "two.py")],
            env=env
            | {"STOKER_BIN": str(bench.args.stoker), "STOKER_STORE": str(folder / ".stoker")},
            cwd=folder,
            check=True,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        begin, *there = (float((folder / name).read_text()) for name in ("begin", "0", "1"))
        hand = arrival(bench, 2, lambda rest: by_hand(2, [python, str(source), *rest], env))
        pairs.append((max(there) - begin, hand))
    ours, theirs = (statistics.median(p[k] for p in pairs) for k in (0, 1))
    bench.add(
        "launch-step",
        "a Python step of 2 ranks, from the end of the step before until the last runs user code (forked, numpy imported)",
        f"{ours * 1e3:.0f} ms",
        f"variables set by hand {theirs * 1e3:.0f} ms",
        statistics.median(a / b for a, b in pairs),
        1.1,
    )


def many(bench: Bench) -> None:
    """64 ranks of a C program."""
    program = shutil.which("true") or "/bin/true"
    stoker = str(bench.args.stoker)
    shell = f"for i in $(seq 64); do {program} & done; wait"
    pairs = []
    for _ in range(9):
        took = []
        for words in ([stoker, "launch", "-n", "64", "--", program], ["/bin/sh", "-c", shell]):
            begin = time.monotonic()
            quietly(words, bench.env)
            took.append(time.monotonic() - begin)
        pairs.append(took)
    ours, theirs = (statistics.median(p[k] for p in pairs) for k in (0, 1))
    bench.add(
        "launch-64",
        "64 ranks of a C program, supervised, until all have ended",
        f"{ours * 1e3:.1f} ms",
        f"the shell's & {theirs * 1e3:.1f} ms",
        statistics.median(a / b for a, b in pairs),
        2.0,
    )


def death(bench: Bench, torchrun: str | None) -> None:
    """From a rank's death to the launcher's end."""
    stoker, python = str(bench.args.stoker), str(bench.args.python)
    file = bench.fresh("die") / "die.py"
    file.write_text(DIE)

    def took(words: list[str]) -> float:
        folder = bench.fresh("death")
        quietly([*words, str(file), str(folder)], bench.env)
        return time.monotonic() - float((folder / "death").read_text())

    ours = statistics.median(took([stoker, "launch", "-n", "2", "--", python]) for _ in range(5))
    other = "target"
    if torchrun is not None:
        theirs = statistics.median(took([torchrun, "--nproc-per-node", "2"]) for _ in range(3))
        other = f"torchrun {theirs * 1e3:.0f} ms"
    bench.add(
        "launch-death",
        "from a rank's death to the launcher's end, the other rank ended",
        f"{ours * 1e3:.1f} ms",
        other,
        ours * 1e3,
        100,
        "ms",
    )


def rows(bench: Bench) -> None:
    """All rows; torchrun's figures where PyTorch is installed beside the Python that is measured."""
    found, accelerate = (
        str(program) if os.access(program, os.X_OK) else None
        for program in (Path(bench.args.python).with_name(n) for n in ("torchrun", "accelerate"))
    )
    if found is None:
        print("launch: no torchrun here, left out", file=sys.stderr)
    starts(bench, found, accelerate)
    step_starts(bench)
    many(bench)
    death(bench, found)
