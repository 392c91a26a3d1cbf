#!/usr/bin/env python3
"""Kills Stoker in the middle of runs and checks that nothing is lost or done twice.

    python tests/crash/crash.py --rounds 60 [--seed 1] [--stoker build/stoker] [--python .venv/bin/python]
    python tests/crash/crash.py --rounds 3 --wide 1000

Each round runs some fifty steps with side effects (Python steps, command steps, a graph that grows, and gangs, in turn; with --wide a
foreach over so many items) in a store of its own, kills the engine,
the fork server, tasks or one of the guardians, alone or together, at a failpoint or at an instant, then resumes until the run has ended.
Checked: every finished task's result is kept, none runs again, no process is left, no lease and no control group either, and
the store verifies. A failing round prints the command that repeats it and keeps its folder. Ends with `N passed, N failed`.
"""

from __future__ import annotations

import argparse
import collections
import fcntl
import json
import os
import random
import shutil
import signal
import sqlite3
import struct
import subprocess
import sys
import tempfile
import time
import uuid
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
N_STEPS = 50
KINDS = ("python", "commands", "grows", "ranks")
F_OFD_GETLK = 36


class Wrong(Exception):
    """A promise was broken."""


def command_spec(journal: Path, n_steps: int) -> str:
    lines = ["stoker: 1", "name: crash", "retry: {max_retries: 5}", "steps:"]
    for i in range(n_steps):
        text = f"echo begin s{i} >> {journal}; echo {i} > $STOKER_OUTPUT/value; echo end s{i} >> {journal}"
        lines += [f"  s{i}:", f"    run: {json.dumps(text)}", "    outputs: [value]"]
        lines.append("    resources: {cpu_count: 0.25, gpu_count: %d}" % (1 if i % 10 == 3 else 0))
        if i >= 5:
            lines.append(
                "    inputs: {left: {from: s%d.value}, right: {from: s%d.value}}"
                % (i - 5, i - 5 + (i + 1) % 5 - i % 5)
            )
    return "\n".join(lines) + "\n"


def gang_spec(journal: Path, n_steps: int) -> str:
    """Each step is a gang of two; both ranks have a child, and the first one tells the journal."""
    lines = ["stoker: 1", "name: crash", "retry: {max_retries: 5}", "steps:"]
    for i in range(n_steps):
        first = f"echo begin s{i} >> {journal}; sleep 0.02; echo {i} > $STOKER_OUTPUT/value; echo end s{i} >> {journal}"
        text = f'if [ "$RANK" = 0 ]; then {first}; else sleep 0.02; true; fi'
        lines += [f"  s{i}:", f"    run: {json.dumps(text)}", "    outputs: [value]"]
        lines.append("    gang: {ranks: 2}")
        lines.append("    resources: {cpu_count: 0.5}")
        if i >= 2:
            lines.append("    inputs: {left: {from: s%d.value}}" % (i - 2))
    return "\n".join(lines) + "\n"


def growing_spec(journal: Path, width: int, wide: bool) -> str:
    """A foreach, in each branch of it two more and their join (unless it is to be wide), and the join of all."""

    def step(work: str) -> str:
        me = "$STOKER_STEP$STOKER_INDEX"
        return json.dumps(f"echo begin {me} >> {journal}; {work}; echo end {me} >> {journal}")

    items = ", ".join(str(i) for i in range(width))
    inner = [
        f"  work: {{run: {step('echo $STOKER_ITEM > $STOKER_OUTPUT/part')}, outputs: [part], next: {'gather' if wide else '[a, b]'}}}"
    ]
    if not wide:
        for name in "ab":
            inner.append(
                f"  {name}: {{run: {step('cp $STOKER_INPUT_x $STOKER_OUTPUT/part')}, inputs: {{x: {{from: work.part}}}}, "
                "outputs: [part], next: both}"
            )
        both = step("cat $STOKER_INPUT_x/* $STOKER_INPUT_y/* | sort -u > $STOKER_OUTPUT/part")
        inner.append(
            f"  both: {{run: {both}, join: true, inputs: {{x: {{from: a.part}}, y: {{from: b.part}}}}, "
            "outputs: [part], next: gather}"
        )
    gather = step(
        "cat $STOKER_INPUT_parts/* | wc -l > $STOKER_OUTPUT/n; cat $STOKER_INPUT_parts/* | sort -u | wc -l >> $STOKER_OUTPUT/n"
    )
    return "\n".join(
        [
            "stoker: 1",
            "name: crash",
            "retry: {max_retries: 5}",
            "resources: {cpu_count: 0.25}",
            "steps:",
            f"  start: {{run: {step(f'echo [{items}] > $STOKER_OUTPUT/todo')}, outputs: [todo], next: work, foreach: todo}}",
            *inner,
            f"  gather: {{run: {gather}, join: true, inputs: {{parts: {{from: {'work' if wide else 'both'}.part}}}}, outputs: [n], next: last}}",
            f"  last: {{run: {step('true')}}}",
            "",
        ]
    )


class Round:
    """One run that is killed and resumed, in a folder of its own."""

    def __init__(self, args: argparse.Namespace, number: int) -> None:
        self.random = random.Random(f"{args.seed}/{number}")
        self.args = args
        self.number = number
        self.folder = Path(tempfile.mkdtemp(prefix="stoker-crash-"))
        self.journal = self.folder / "journal"
        self.journal.touch()
        self.marker = f"CRASH_ROUND={uuid.uuid4().hex}"
        self.kind = "grows" if args.wide else KINDS[number % len(KINDS)]
        self.python = self.kind == "python"
        self.n_steps = N_STEPS // 4 if self.kind == "ranks" else N_STEPS
        self.width = args.wide or 12
        self.what = ""
        devices = [
            {
                "uuid": f"GPU-{i:08d}-0000-0000-0000-{os.getpid():012d}",
                "model": "Fake",
                "memory_bytes": 1 << 30,
            }
            for i in range(2)
        ]
        (self.folder / "devices.json").write_text(json.dumps(devices))
        spec = (
            growing_spec(self.journal, self.width, bool(args.wide))
            if self.kind == "grows"
            else gang_spec(self.journal, self.n_steps)
            if self.kind == "ranks"
            else command_spec(self.journal, self.n_steps)
        )
        (self.folder / "spec.yaml").write_text(spec)
        key, value = self.marker.split("=")
        self.env = {
            **{k: v for k, v in os.environ.items() if not k.startswith("STOKER_")},
            key: value,
            "CRASH_JOURNAL": str(self.journal),
            "STOKER_STORE": str(self.folder / ".stoker"),
            "STOKER_LEASE_DIR": str(self.folder / "leases"),
            "STOKER_ACCEL": f"fake:{self.folder}/devices.json",
            "STOKER_SYNC": "0",
            "STOKER_BIN": str(args.stoker),
            "PYTHONPATH": str(ROOT / "python"),
        }

    # --- what is there ---

    def start(self, words: list[str], **more: str) -> subprocess.Popen[bytes]:
        log = open(self.folder / "log", "ab")
        return subprocess.Popen(
            [str(self.args.stoker), *words],
            cwd=self.folder,
            env={**self.env, **more},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )

    def begin(self, **more: str) -> subprocess.Popen[bytes]:
        target = [str(HERE / "flow.py")] if self.python else ["spec.yaml"]
        return self.start(["run", "--python", str(self.args.python), *target], **more)

    def processes(self) -> dict[int, str]:
        """Processes of this round: pid → what it is."""
        found = {}
        for entry in os.listdir("/proc"):
            if not entry.isdigit():
                continue
            try:
                if self.marker.encode() not in Path(f"/proc/{entry}/environ").read_bytes():
                    continue
                name = Path(f"/proc/{entry}/comm").read_text().strip()
                state = Path(f"/proc/{entry}/stat").read_text().rsplit(")", 1)[1].split()[0]
            except OSError:
                continue
            if state not in "ZX":
                found[int(entry)] = name
        return found

    def parents(self) -> dict[int, int]:
        parents = {}
        for pid in self.processes():
            try:
                parents[pid] = int(
                    Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[1]
                )
            except OSError:
                pass
        return parents

    def victims(self) -> dict[str, list[int]]:
        names = self.processes()
        parents = self.parents()
        # a launcher of ranks is one of the tasks
        engines = [
            p
            for p, n in names.items()
            if n == "stoker" and names.get(parents.get(p, 0)) != "stoker"
        ]
        guards = [p for p, n in names.items() if n in ("stoker-guard", "stk-guard")]
        servers = [p for p in names if parents.get(p) in engines and names[p].startswith("python")]
        known = {*engines, *guards, *servers}
        tasks = [
            p
            for p in names
            if p not in known and (parents.get(p) in servers or parents.get(p) in engines)
        ]
        # of the two guardians either is enough
        one = [p for p in guards if parents.get(p) in engines]
        one = [self.random.choice(sorted(one))] if one else []
        return {"engine": engines, "server": servers, "task": tasks, "guard": one}

    def show(self) -> dict[str, object] | None:
        out = subprocess.run(
            [str(self.args.stoker), "show", "latest", "--json"],
            cwd=self.folder,
            env=self.env,
            capture_output=True,
            check=False,
        )
        if out.returncode != 0:
            if b"not_found" in out.stdout:
                return None
            raise Wrong(f"show failed: {out.stderr.decode()}")
        return json.loads(out.stdout)

    def lines(self) -> collections.Counter[str]:
        return collections.Counter(self.journal.read_text().split("\n")[:-1])

    # --- killing ---

    def kill_at_failpoint(self) -> subprocess.Popen[bytes]:
        number = self.random.randint(1, self.args.passes)
        self.what = f"kill at pass {number} of the failpoints"
        return self.begin(STOKER_FAILPOINTS=f"*:{number}:kill")

    def kill_at_instant(self) -> subprocess.Popen[bytes]:
        groups = ["engine", "server", "task", "guard"]
        chosen = self.random.choice(
            [
                ["engine"],
                ["server"],
                ["task"],
                ["guard"],
                ["engine", "server"],
                ["engine", "guard"],
                ["engine", "task"],
                ["server", "task"],
                groups,
            ]
        )
        span = 0.6 if self.python else 0.35 if not self.args.wide else self.width / 200
        delay = self.random.uniform(0.02, span)
        self.what = f"kill {'+'.join(chosen)} after {delay:.3f} s"
        process = self.begin()
        time.sleep(delay)
        found = self.victims()
        for group in chosen:
            for pid in found[group]:
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass
        return process

    # --- checking ---

    def wait(self, process: subprocess.Popen[bytes]) -> int:
        try:
            return process.wait(timeout=self.args.timeout)
        except subprocess.TimeoutExpired:
            raise Wrong(f"it hangs: {self.processes()}") from None

    def check_no_orphans(self) -> None:
        end = time.monotonic() + 10
        while left := self.processes():
            if time.monotonic() > end:
                raise Wrong(f"processes are left: {left}")
            time.sleep(0.02)

    def check_leases(self) -> None:
        folder = self.folder / "leases"
        for path in folder.glob("*") if folder.is_dir() else []:
            with open(path, "r+b") as file:
                ask = struct.pack("hhqqi4x", fcntl.F_WRLCK, 0, 0, 0, 0)
                answer = struct.unpack("hhqqi4x", fcntl.fcntl(file, F_OFD_GETLK, ask))
                if answer[0] != fcntl.F_UNLCK:
                    raise Wrong(f"lease {path.name} is still held")

    def check_cgroups(self, run: str) -> None:
        for top in (
            "/sys/fs/cgroup",
            "/sys/fs/cgroup/memory",
            "/sys/fs/cgroup/cpu",
            "/sys/fs/cgroup/unified",
        ):
            # os.walk, since groups of other programs come and go meanwhile
            for folder, below, _ in os.walk(top):
                for name in below:
                    if name.startswith(f"stoker-{run}"):
                        raise Wrong(f"control group {folder}/{name} is left")

    def finished(self, run: dict[str, object]) -> dict[str, tuple[str, dict[str, str]]]:
        """What has succeeded, by name: how often it says it began, under which name, and the digests of what it made."""
        if self.kind != "grows":
            steps = run["steps"]
            assert isinstance(steps, dict)
            return {
                name: (name, {k: o["digest"] for k, o in step["outputs"].items()})
                for name, step in steps.items()
                if step["status"] == "succeeded"
            }
        tasks, found = self.tasks(), {}
        with sqlite3.connect(f"file:{self.folder}/.stoker/store.db?mode=ro", uri=True) as db:
            rows = db.execute(
                "SELECT task, data FROM events WHERE kind = 'task_succeeded' ORDER BY id"
            )
            for task, data in rows:
                made = {k: o["digest"] for k, o in json.loads(data)["outputs"].items()}
                found[str(task)] = (tasks[task], made)
        return found

    def tasks(self) -> list[str]:
        """Of a graph that grows: each task as it calls itself in the journal; branches are told by the innermost foreach."""
        names: list[str] = []
        indices: list[str] = []
        with sqlite3.connect(f"file:{self.folder}/.stoker/store.db?mode=ro", uri=True) as db:
            for (data,) in db.execute(
                "SELECT data FROM events WHERE kind = 'task_added' ORDER BY id"
            ):
                added = json.loads(data)
                for i in range(added["n"]):
                    inherits = added["step"] in ("a", "b", "both")
                    index = (
                        indices[added["deps"][0]]
                        if inherits
                        else str(i)
                        if added["step"] == "work"
                        else ""
                    )
                    indices.append(index)
                    names.append(added["step"] + index)
        return names

    def check_grown(self) -> None:
        steps = ["work"] if self.args.wide else ["work", "a", "b", "both"]
        expected = ["start", "gather", "last"] + [
            f"{s}{i}" for s in steps for i in range(self.width)
        ]
        if sorted(self.tasks()) != sorted(expected):
            raise Wrong(
                f"tasks {collections.Counter(self.tasks()) - collections.Counter(expected)} too many"
            )
        lines = self.lines()
        missing = [name for name in expected if lines[f"end {name}"] < 1]
        if missing:
            raise Wrong(f"tasks that never ran to their end: {missing}")
        said = self.finished({})[str(self.tasks().index("gather"))][1]["n"]
        parts = (self.folder / ".stoker/artifacts" / said[:2] / said[2:]).read_text().split()
        if parts != [str(self.width)] * 2:
            raise Wrong(f"of {self.width} parts the join saw {parts[0]}, {parts[1]} different ones")

    def check_end(self, run: dict[str, object]) -> None:
        if self.kind == "grows":
            if run["status"] != "succeeded":
                raise Wrong(f"run {run['status']}: {run['error']}")
            self.check_grown()
            self.check_cgroups(str(run["run"]))
            return
        steps = run["steps"]
        assert isinstance(steps, dict)
        bad = {
            name: s["status"]
            for name, s in steps.items()
            if s["status"] not in ("succeeded", "cached")
        }
        if run["status"] != "succeeded" or bad or len(steps) != self.n_steps:
            raise Wrong(f"run {run['status']}, steps {bad}")
        lines = self.lines()
        missing = [i for i in range(self.n_steps) if lines[f"end s{i}"] < 1]
        if missing:
            raise Wrong(f"steps that never ran to their end: {missing}")
        self.check_cgroups(str(run["run"]))

    def play(self) -> None:
        by_failpoint = self.random.random() < 0.5
        process = self.kill_at_failpoint() if by_failpoint else self.kill_at_instant()
        self.wait(process)
        self.check_no_orphans()
        for _ in range(6):
            before = self.show()
            lines = self.lines()
            kept = self.finished(before) if before is not None else {}
            if before is not None and before["status"] == "succeeded":
                break
            if before is not None and before["status"] == "running":
                raise Wrong("the run says 'running' although its engine is gone")
            process = (
                self.begin()
                if before is None
                else self.start(["resume", "latest", "--python", str(self.args.python)])
            )
            self.wait(process)
            self.check_no_orphans()
            if before is not None:
                self.check_kept(kept, lines)
        final = self.show()
        if final is None:
            raise Wrong("there is no run in the end")
        self.check_end(final)
        self.check_leases()
        verify = subprocess.run(
            [str(self.args.stoker), "store", "verify"],
            cwd=self.folder,
            env=self.env,
            capture_output=True,
            check=False,
        )
        if verify.returncode != 0:
            raise Wrong(f"store verify: {verify.stdout.decode()}{verify.stderr.decode()}")

    def check_kept(
        self, old: dict[str, tuple[str, dict[str, str]]], lines: collections.Counter[str]
    ) -> None:
        """What had finished before the resume has the same result after it, and did not run again."""
        after = self.show()
        if after is None:
            raise Wrong("the run is gone after resume")
        now = self.lines()
        new = self.finished(after)
        for key, (name, made) in old.items():
            if key not in new or new[key][1] != made:
                raise Wrong(f"step {name}: its result changed on resume: {made}, {new.get(key)}")
            if now[f"begin {name}"] != lines[f"begin {name}"]:
                raise Wrong(f"step {name} had finished and ran again")


def count_passes(args: argparse.Namespace) -> int:
    """How many failpoints a whole run passes."""
    game = Round(args, 1)
    process = game.begin(STOKER_FAILPOINTS="*:1+:log")
    if game.wait(process) != 0:
        raise SystemExit(
            f"crash: an undisturbed run failed: {(game.folder / 'log').read_text()[-2000:]}"
        )
    text = (game.folder / "log").read_text()
    shutil.rmtree(game.folder, ignore_errors=True)
    return max(1, sum("failpoint" in line for line in text.split("\n")))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rounds", type=int, default=60)
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
    parser.add_argument("--verbose", "-v", action="store_true")
    args = parser.parse_args()
    args.stoker = Path(os.path.abspath(args.stoker))
    args.python = Path(os.path.abspath(args.python))
    args.passes = count_passes(args)
    passed, failed = 0, 0
    began = time.monotonic()
    for number in range(args.first, args.first + args.rounds):
        game = Round(args, number)
        try:
            game.play()
            passed += 1
            shutil.rmtree(game.folder, ignore_errors=True)
        except Wrong as wrong:
            failed += 1
            print(f"round {number} ({game.kind}, {game.what}): {wrong}")
            print(
                f"  repeat: {sys.argv[0]} --seed {args.seed} --first {number} --rounds 1{f' --wide {args.wide}' if args.wide else ''}    folder: {game.folder}",
                flush=True,
            )
            for pid in game.processes():
                os.kill(pid, signal.SIGKILL)
        else:
            if args.verbose:
                print(f"round {number}: {game.what}: ok", flush=True)
    print(
        f"crash: {args.rounds} rounds, {args.passes} failpoint passes a run, {time.monotonic() - began:.0f} s"
    )
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main())
