#!/usr/bin/env python3
"""Kills Stoker in the middle of runs and checks that nothing is lost or done twice.

    python tests/crash/crash.py --rounds 60 [--kind KIND] [--seed 1] [--stoker build/stoker] [--python .venv/bin/python]
    python tests/crash/crash.py --rounds 2000 --write docs/benchmarks.md
    python tests/crash/crash.py --rounds 3 --wide 1000

Each round runs steps with side effects in a store of its own, kills the engine, the fork server, tasks, one of the
guardians, and what a kind has besides (`stoker contain`, stk-runner, conmon; the agent in a pod), alone or together, at a
failpoint or at an instant, then resumes until the run has ended. Kinds: Python steps, command steps, a graph that grows
(with --wide a foreach over so many items), gangs of two ranks, steps in containers, steps on other machines.
Checked: every finished task's result is kept, none runs again, no process is left, no lease, control group, container
or pod either, the store verifies, and another machine can read what is in a share. A failing round prints the command
that repeats it and keeps its folder. A kind that can't run here is skipped, with the reason. Ends with
`N passed, N failed`, and with `N skipped` where a kind is.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
import time
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import contained
import elsewhere
from rounds import ROOT, Round, Wrong

# kind: its class, and how many of a hundred rounds are of it
KINDS: dict[str, tuple[type[Round], int]] = {
    "python": (Round, 20),
    "commands": (Round, 20),
    "grows": (Round, 20),
    "ranks": (Round, 20),
    "container": (contained.ContainedRound, 8),
    "remote": (elsewhere.RemoteRound, 12),
}
HEADING = "## Kills and resumes"


@dataclass
class Count:
    """What was seen of one kind."""

    rounds: int = 0
    kills: int = 0
    resumes: int = 0
    wrong: dict[str, int] = field(default_factory=dict)
    seconds: float = 0.0
    skipped: str = ""  # why it can't run here
    broken: int = 0  # an undisturbed run failed, or in CI it can't run

    def row(self, kind: str, seed: int) -> str:
        numbers = [self.rounds, self.kills, self.resumes]
        numbers += [self.wrong.get(what, 0) for what in ("lost", "doubled", "left", "other")]
        day = time.strftime("%Y-%m-%d")
        return (
            f"| {kind} | {' | '.join(map(str, numbers))} | {self.seconds:.0f} s | {seed} | {day} |"
        )


HEAD = [
    "| kind | rounds | kills | resumes | lost | doubled | left behind | other faults | took | seed | on |",
    "|---|---|---|---|---|---|---|---|---|---|---|",
]


def write_page(page: Path, rows: dict[str, str]) -> None:
    """The section of the page, with these kinds' rows anew; the rest of the page stays."""
    text = page.read_text()
    before, _, section = text.partition(HEADING)
    _, mark, after = section.partition("\n## ")
    known = {line.split("|")[1].strip(): line for line in section.splitlines() if line.startswith("| ")}  # fmt: skip
    known = {**known, **rows}
    lines = [
        HEADING,
        "",
        "Written by `tests/crash/crash.py --write` (`make crash N=2000 WRITE=1`). A kill is a process",
        "that got SIGKILL, by a failpoint or at a random instant. Every column from `lost` to",
        "`other faults` must be 0.",
        "",
        *HEAD,
        *[known[kind] for kind in KINDS if kind in known],
    ]
    page.write_text(before.rstrip() + "\n\n" + "\n".join(lines) + "\n" + (mark + after if mark else ""))  # fmt: skip


def spread(rounds: int) -> dict[str, int]:
    """Rounds by kind, each kind at least once where there are as many."""
    weights = {kind: weight for kind, (_, weight) in KINDS.items()}
    total = sum(weights.values())
    counts, given = {}, 0.0
    for kind, weight in weights.items():
        counts[kind] = round((given + weight) * rounds / total) - round(given * rounds / total)
        given += weight
    return counts


def count_passes(args: argparse.Namespace, kind: str, place: Any) -> int:
    """How many failpoints a whole run passes."""
    game = KINDS[kind][0](args, kind, 1, place)
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
    game = KINDS[kind][0](args, kind, number, place)
    count.rounds += 1
    began = time.monotonic()
    try:
        game.play()
        shutil.rmtree(game.base, ignore_errors=True)
        if args.verbose:
            print(
                f"{kind} {number}: {game.what}: ok, {game.kills} kills in {time.monotonic() - began:.1f} s",
                flush=True,
            )
    except Exception as fault:  # a Wrong, or what a check itself met
        wrong = fault if isinstance(fault, Wrong) else Wrong(f"{type(fault).__name__}: {fault}")
        count.wrong[wrong.what] = count.wrong.get(wrong.what, 0) + 1
        wide = f" --wide {args.wide}" if args.wide else ""
        print(f"{kind} {number} ({game.what}): {wrong}")
        print(
            f"  repeat: {sys.argv[0]} --kind {kind} --seed {args.seed} --first {number} --rounds 1{wide}    folder: {game.base}",
            flush=True,
        )
    finally:
        count.kills += game.kills
        count.resumes += game.resumes
        game.close()


def play_kind(args: argparse.Namespace, kind: str, rounds: int, count: Count) -> None:
    began = time.monotonic()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="stoker-crash-")))
        place = None
        try:
            if kind == "container":
                place = stack.enter_context(contained.place(folder))
            elif kind == "remote":
                place = stack.enter_context(elsewhere.place(folder, args.stoker))
        except contained.skips() as reason:
            if isinstance(reason, contained.skips()[1]):
                raise Wrong(str(reason)) from None
            count.skipped = str(reason)
            return
        args.passes[kind] = count_passes(args, kind, place)
        for number in range(args.first, args.first + rounds):
            play(args, kind, number, place, count)
        count.seconds = time.monotonic() - began


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--kind", choices=list(KINDS), help="only this one; else spread over all")
    parser.add_argument(
        "--first", type=int, default=0, help="number of the first round (to repeat one)"
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--stoker", type=Path, default=ROOT / ".venv/bin/stoker")
    parser.add_argument("--python", type=Path, default=ROOT / ".venv/bin/python")
    parser.add_argument(
        "--wide", type=int, default=0, metavar="N", help="a foreach over N items in every round"
    )
    parser.add_argument("--timeout", type=float, default=60)
    parser.add_argument("--write", type=Path, metavar="PAGE", help="put the figures in this page")
    parser.add_argument("--verbose", "-v", action="store_true")
    args = parser.parse_args()
    args.stoker = Path(os.path.abspath(args.stoker))
    args.python = Path(os.path.abspath(args.python))
    args.passes = {}
    if args.wide:
        args.kind = "grows"
    counts = {args.kind: args.rounds} if args.kind else spread(args.rounds)
    seen: dict[str, Count] = {}
    for kind, rounds in counts.items():
        if rounds > 0:
            seen[kind] = Count()
            try:
                play_kind(args, kind, rounds, seen[kind])
            except Wrong as wrong:
                seen[kind].broken = 1
                print(f"{kind}: {wrong}", flush=True)
    rows = {kind: c.row(kind, args.seed) for kind, c in seen.items() if c.rounds > 0}
    print("\n".join([*HEAD, *rows.values()]))
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
