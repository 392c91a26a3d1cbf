#!/usr/bin/env python3
"""Kills Stoker in the middle of runs and checks that nothing is lost or done twice.

    python tests/crash/crash.py --kills 200 [--kind KIND] [--seed 1] [--jobs 4] [--stoker build/stoker] [--python .venv/bin/python]
    python tests/crash/crash.py --kills 2000 --write docs/benchmarks.md
    python tests/crash/crash.py --rounds 3 --wide 1000

Each round runs steps with side effects in a store of its own, kills the engine, the fork server, tasks, one of the
guardians, and what a kind has besides (`stoker contain`, stk-runner, conmon; in a pod or job the agent and its step),
alone or together, at a failpoint or at an instant, then resumes, and kills up to three resumes the same way, until the
run has ended. Kinds: Python steps, command steps, a graph that grows (with --wide a foreach over so many items), gangs
of two ranks, runs of these four whose resumes are killed 6 to 12 times, steps in containers, steps on other machines: of
a cluster that is a folder, of the fakes of Kubernetes and of AWS Batch.
Checked: every finished task's result is kept, none runs again, no process is left, no lease, control group, container,
pod or job either, the store verifies, and another machine can read what is in a share. A kill is a process that got
SIGKILL; a kind's rounds go on until it has had its part of --kills. Several processes (--jobs) play at once, each with
servers of its own, which serve all its rounds. A failing round prints the command that repeats it and keeps its folder.
A kind that can't run here is skipped, with the reason. Ends with `N passed, N failed` (rounds), and with `N skipped`
where a kind is.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import clouds
import contained
import elsewhere
from rounds import ROOT, ResumeRound, Round, Wrong

Place = Callable[[Path, Any], AbstractContextManager[Any]]


@dataclass
class Kind:
    """`part`: how many of a hundred kills it has. `place`: what its rounds share, a context of (folder, args)."""

    of: type[Round]
    part: int
    place: Place | None = None


# those that begin their servers first: they take longest
KINDS: dict[str, Kind] = {
    "container": Kind(contained.ContainedRound, 6, contained.place),
    "kubernetes": Kind(clouds.KubernetesRound, 8, clouds.kubernetes),
    "batch": Kind(clouds.BatchRound, 8, clouds.batch),
    "remote": Kind(elsewhere.RemoteRound, 10, elsewhere.place),
    "resume": Kind(ResumeRound, 24),
    "python": Kind(Round, 11),
    "commands": Kind(Round, 11),
    "grows": Kind(Round, 11),
    "ranks": Kind(Round, 11),
}
ROWS = ["python", "commands", "grows", "ranks", "resume", "container", "remote", "kubernetes", "batch"]  # fmt: skip
HEADING = "## Kills and resumes"
CHUNK = 100  # kills that one process plays of a kind before it looks what else there is
FAULTS = ("lost", "doubled", "left", "other")
KILLS_PER_ROUND = 0.2  # at least so many a round has, of all


@dataclass
class Count:
    """What was seen of one kind."""

    rounds: int = 0
    kills: int = 0
    kills_of_resume: int = 0
    resumes: int = 0
    wrong: dict[str, int] = field(default_factory=dict)
    seconds: float = 0.0  # of all processes
    skipped: str = ""  # why it can't run here
    broken: int = 0  # an undisturbed run failed, or in CI it can't run

    def add(self, other: Count) -> None:
        for name in ("rounds", "kills", "kills_of_resume", "resumes", "seconds", "broken"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        for what, n in other.wrong.items():
            self.wrong[what] = self.wrong.get(what, 0) + n
        self.skipped = self.skipped or other.skipped

    def row(self, kind: str, seed: int) -> str:
        numbers = [self.rounds, self.kills, self.kills_of_resume, self.resumes]
        numbers += [self.wrong.get(what, 0) for what in FAULTS]
        day = time.strftime("%Y-%m-%d")
        return (
            f"| {kind} | {' | '.join(map(str, numbers))} | {self.seconds:.0f} s | {seed} | {day} |"
        )


HEAD = [
    "| kind | rounds | kills | of a resume | resumes | lost | doubled | left behind | other faults | took | seed | on |",
    "|---|---|---|---|---|---|---|---|---|---|---|---|",
]


def write_page(page: Path, rows: dict[str, str]) -> None:
    """The section of the page, with these kinds' rows anew; the rest of the page stays."""
    text = page.read_text()
    before, _, section = text.partition(HEADING)
    _, mark, after = section.partition("\n## ")
    old = section.splitlines() if HEAD[0] in section else []  # else of other columns
    known = {line.split("|")[1].strip(): line for line in old if line.startswith("| ")}
    known = {**known, **rows}
    lines = [
        HEADING,
        "",
        "`make crash N=2000 WRITE=1` wrote this table. A kill is a SIGKILL at a failpoint or at a random",
        "moment; `of a resume` counts those that hit a resumed engine. The kinds run side by side; `took`",
        "adds up the time of all processes of a kind. Every column from `lost` to `other faults` must be 0.",
        "",
        *HEAD,
        *[known[kind] for kind in ROWS if kind in known],
    ]
    page.write_text(before.rstrip() + "\n\n" + "\n".join(lines) + "\n" + (mark + after if mark else ""))  # fmt: skip


def spread(kills: int) -> dict[str, int]:
    """Kills by kind, each kind at least one."""
    total = sum(kind.part for kind in KINDS.values())
    return {name: max(1, round(kills * kind.part / total)) for name, kind in KINDS.items()}


def count_passes(args: argparse.Namespace, kind: str, like: str, place: Any) -> int:
    """How many failpoints a whole run passes."""
    game = KINDS[kind].of(args, like, 1, place)
    try:
        status = game.wait(game.begin(STOKER_FAILPOINTS="*:1+:log"))
        text = (game.base / "log").read_text()
    finally:
        game.close()
    if status != 0:
        raise Wrong(f"an undisturbed run failed: {text[-2000:]}")
    shutil.rmtree(game.base, ignore_errors=True)
    return max(1, sum("failpoint" in line for line in text.split("\n")))


def play(args: argparse.Namespace, kind: str, number: int, place: Any, count: Count) -> None:
    game = KINDS[kind].of(args, kind, number, place)
    count.rounds += 1
    began = time.monotonic()
    try:
        game.play()
        shutil.rmtree(game.base, ignore_errors=True)
        if args.verbose:
            print(
                f"{kind} {number}: {game.what}ok, {game.kills} kills in {time.monotonic() - began:.1f} s",
                flush=True,
            )
    except Exception as fault:  # a Wrong, or what a check itself met
        wrong = fault if isinstance(fault, Wrong) else Wrong(f"{type(fault).__name__}: {fault}")
        count.wrong[wrong.what] = count.wrong.get(wrong.what, 0) + 1
        wide = f" --wide {args.wide}" if args.wide else ""
        print(
            f"{kind} {number} ({game.what}): {wrong}\n"
            f"  repeat: {sys.argv[0]} --kind {kind} --seed {args.seed} --first {number} --rounds 1{wide}    folder: {game.base}",
            flush=True,
        )
    finally:
        count.kills += game.kills
        count.kills_of_resume += game.kills_of_resume
        count.resumes += game.resumes
        game.close()


def play_kind(args: argparse.Namespace, kind: str, first: int, rounds: int, kills: int) -> Count:
    """`rounds` of them, or (0) as many as `kills` take. Runs in a process of its own."""
    count, began = Count(), time.monotonic()
    args.passes = {}
    try:
        with ExitStack() as stack:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="stoker-crash-")))
            place, make = None, KINDS[kind].place
            if make is not None:
                place = stack.enter_context(make(folder, args))
            for like in KINDS[kind].of.likes or (kind,):
                args.passes[like] = count_passes(args, kind, like, place)
            most = rounds or int(kills / KILLS_PER_ROUND) + 10
            while count.rounds < most and (rounds or count.kills < kills):
                play(args, kind, first + count.rounds, place, count)
    except contained.skips() as reason:
        if isinstance(reason, contained.skips()[1]):
            print(f"{kind}: {reason}", flush=True)
            count.broken = 1
        else:
            count.skipped = str(reason)
    except Wrong as wrong:
        count.broken = 1
        print(f"{kind}: {wrong}", flush=True)
    if not count.broken and not count.skipped and not rounds and count.kills < kills:
        count.broken = 1
        print(f"{kind}: {count.rounds} rounds had {count.kills} kills", flush=True)
    count.seconds = time.monotonic() - began
    return count


def chunks(args: argparse.Namespace) -> list[tuple[str, int, int, int]]:
    """What the processes play: kind, number of the first round, rounds, kills."""
    if args.rounds:
        return [(args.kind, args.first, args.rounds, 0)]
    counts = {args.kind: args.kills} if args.kind else spread(args.kills)
    found = []
    for kind, kills in counts.items():
        n = -(-kills // CHUNK)
        found += [
            (kind, args.first + i * 100_000, 0, kills * (i + 1) // n - kills * i // n)
            for i in range(n)
        ]
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--kills", type=int, default=60, help="of all kinds together")
    parser.add_argument("--rounds", type=int, default=0, help="instead, of --kind: so many rounds")
    parser.add_argument("--kind", choices=list(KINDS), help="only this one; else spread over all")
    parser.add_argument(
        "--first", type=int, default=0, help="number of the first round (to repeat one)"
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=(os.cpu_count() or 1) + 2, help="at once")
    parser.add_argument("--stoker", type=Path, default=ROOT / ".venv/bin/stoker")
    parser.add_argument("--python", type=Path, default=ROOT / ".venv/bin/python")
    parser.add_argument(
        "--wide", type=int, default=0, metavar="N", help="a foreach over N items in every round"
    )
    parser.add_argument("--timeout", type=float, default=120)
    parser.add_argument("--write", type=Path, metavar="PAGE", help="put the figures in this page")
    parser.add_argument("--verbose", "-v", action="store_true")
    args = parser.parse_args()
    args.stoker = Path(os.path.abspath(args.stoker))
    args.python = Path(os.path.abspath(args.python))
    if args.wide:
        args.kind = "grows"
    if args.rounds and not args.kind:
        parser.error("--rounds are of one --kind")
    began = time.monotonic()
    seen: dict[str, Count] = {}
    with ProcessPoolExecutor(args.jobs, get_context("fork")) as pool:
        todo = [(part[0], pool.submit(play_kind, args, *part)) for part in chunks(args)]
        for kind, answer in todo:
            try:
                count = answer.result()
            except Exception as fault:  # its process died, say for memory
                print(f"{kind}: {type(fault).__name__}: {fault}", flush=True)
                count = Count(broken=1)
            seen.setdefault(kind, Count()).add(count)
    rows = {kind: seen[kind].row(kind, args.seed) for kind in ROWS if kind in seen and seen[kind].rounds}  # fmt: skip
    print("\n".join([*HEAD, *rows.values()]))
    kills, minutes = sum(c.kills for c in seen.values()), (time.monotonic() - began) / 60
    print(f"{kills} kills in {minutes:.1f} minutes, {kills / minutes:.0f} a minute")
    for kind, count in seen.items():
        if count.skipped:
            print(f"{kind} is skipped: {count.skipped}")
    if args.write:
        write_page(args.write, rows)
    failed = sum(sum(c.wrong.values()) for c in seen.values())
    passed = sum(c.rounds for c in seen.values()) - failed
    failed += sum(c.broken for c in seen.values())
    skipped = sum(bool(c.skipped) for c in seen.values())
    print(f"{passed} passed, {failed} failed" + (f", {skipped} skipped" if skipped else ""))
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main())
