"""A round of crash.py: one run that is killed and resumed in its own folder, and its checks."""

from __future__ import annotations

import argparse
import collections
import fcntl
import json
import os
import random
import signal
import sqlite3
import struct
import subprocess
import tempfile
import time
import uuid
from pathlib import Path
from typing import Any, Protocol

from documents import command_spec, gang_spec, growing_spec

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
N_STEPS = 50
F_OFD_GETLK = 36


class Wrong(Exception):
    """A promise was broken: `what` is the column of the table that counts it."""

    def __init__(self, text: str, what: str = "other") -> None:
        super().__init__(text)
        self.what = what


def begun(lines: collections.Counter[str], name: str) -> dict[str, int]:
    """How often it has started, by its own record."""
    return {line: n for line, n in lines.items() if line.split()[:2] == ["begin", name]}


class Start(Protocol):
    """Starts `stoker` with more in its environment."""

    def __call__(self, **more: str) -> subprocess.Popen[bytes]: ...


class Round:
    """One run that is killed and resumed, in a folder of its own."""

    n_steps = N_STEPS
    strikes = (1, 3)  # so many of its resumes are killed, from … to
    pace = 2  # how soon engines are killed: of a run's failpoints within the first so-manieth part
    orphans_s = 120.0  # what is ended is gone within
    likes: tuple[str, ...] = ()  # kinds whose runs it has; else its own

    def __init__(self, args: argparse.Namespace, kind: str, number: int, place: Any = None) -> None:
        self.random = random.Random(f"{args.seed}/{kind}/{number}")
        self.args = args
        self.number = number
        self.place = place
        self.kills = self.kills_of_resume = self.resumes = 0
        self.is_resumed = False
        self.base = Path(tempfile.mkdtemp(prefix="stoker-crash-"))
        self.folder = self.base / "project"
        self.folder.mkdir()
        (self.base / "shared").mkdir()
        self.journal = self.base / "shared/journal"
        self.journal.touch()
        self.marker = f"CRASH_ROUND={uuid.uuid4().hex}"
        self.kind = kind
        self.python = kind == "python"
        if kind == "ranks":
            self.n_steps = N_STEPS // 4
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
        (self.folder / "spec.yaml").write_text(self.spec())
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

    def spec(self) -> str:
        if self.kind == "grows":
            return growing_spec(self.journal, self.width, bool(self.args.wide))
        if self.kind == "ranks":
            return gang_spec(self.journal, self.n_steps)
        return command_spec(self.journal, self.n_steps)

    def close(self) -> None:
        """Ends the processes of a failed round."""
        for pid in self.processes():
            self.kill(pid)

    # --- what is there ---

    def start(self, words: list[str], **more: str) -> subprocess.Popen[bytes]:
        log = open(self.base / "log", "ab")
        with log:
            return subprocess.Popen(
                [str(self.args.stoker), *words],
                cwd=self.folder,
                env={**self.env, **more},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def resume(self, **more: str) -> subprocess.Popen[bytes]:
        self.resumes += 1
        self.is_resumed = True
        return self.start(["resume", "latest", "--python", str(self.args.python)], **more)

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
        run: dict[str, object] = json.loads(out.stdout)
        if run["started_ms"] == 0:
            raise Wrong("there is a run without its first events", "lost")
        return run

    def lines(self) -> collections.Counter[str]:
        return collections.Counter(self.journal.read_text().split("\n")[:-1])

    # --- killing ---

    def kill(self, pid: int) -> None:
        try:
            os.kill(pid, signal.SIGKILL)
            self.count_kills(1)
        except ProcessLookupError:
            pass

    def count_kills(self, n: int) -> None:
        self.kills += n
        self.kills_of_resume += n if self.is_resumed else 0

    def kill_at_failpoint(self, start: Start) -> None:
        passes = self.args.passes[self.kind]
        number = self.random.randint(1, max(1, passes // self.pace))
        process = start(STOKER_FAILPOINTS=f"*:{number}:kill")
        self.what += f"kill at pass {number} of the failpoints; "
        status = self.wait(process)
        # the user's Python waits for its engine, and ends in an error of its own
        self.count_kills(status == -signal.SIGKILL or (self.python and status != 0))

    def groups(self) -> list[list[str]]:
        """Processes that are killed together: names of `victims`."""
        return [
            ["engine"],
            ["server"],
            ["task"],
            ["guard"],
            ["engine", "server"],
            ["engine", "guard"],
            ["engine", "task"],
            ["server", "task"],
            ["engine", "server", "task", "guard"],
        ]

    def most_more(self) -> int:
        """The most steps that start before a kill."""
        return (self.width if self.kind == "grows" else self.n_steps) // self.pace

    def wait_for_instant(self, process: subprocess.Popen[bytes]) -> str:
        """Until some more steps have begun, or in the time before; returns when that is."""
        some = self.random.randint(1, max(1, self.most_more()))
        more = self.random.choice([0, some, some, some])
        delay = self.random.uniform(0, 0.05 if more > 0 else 0.2)
        before, until = self.n_begun(), time.monotonic() + self.args.timeout
        while (
            process.poll() is None and self.n_begun() < before + more and time.monotonic() < until
        ):
            time.sleep(0.002)
        time.sleep(delay)  # sleeps: kills come at any moment
        return f"{delay:.3f} s after {more} more had begun"

    def n_begun(self) -> int:
        return sum(n for line, n in self.lines().items() if line.startswith("begin "))

    def kill_at_instant(self, start: Start) -> None:
        chosen = self.random.choice(self.groups())
        process = start()
        when = self.wait_for_instant(process)
        self.what += f"kill {'+'.join(chosen)} {when}; "
        found = self.victims()
        for group in chosen:
            for pid in found[group]:
                self.kill(pid)
        self.wait(process)

    # --- checking ---

    def wait(self, process: subprocess.Popen[bytes]) -> int:
        try:
            return process.wait(timeout=self.args.timeout)
        except subprocess.TimeoutExpired:
            raise Wrong(f"it hangs: {self.processes()}") from None

    def check_no_orphans(self) -> None:
        end = time.monotonic() + self.orphans_s
        while left := self.processes():
            if time.monotonic() > end:
                raise Wrong(f"processes are left: {left}", "left")
            time.sleep(0.02)

    def check_leases(self) -> None:
        folder = self.folder / "leases"
        for path in folder.glob("*") if folder.is_dir() else []:
            with open(path, "r+b") as file:
                ask = struct.pack("hhqqi4x", fcntl.F_WRLCK, 0, 0, 0, 0)
                answer = struct.unpack("hhqqi4x", fcntl.fcntl(file, F_OFD_GETLK, ask))
                if answer[0] != fcntl.F_UNLCK:
                    raise Wrong(f"lease {path.name} is still held", "left")

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
                        raise Wrong(f"control group {folder}/{name} is left", "left")

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
            more = collections.Counter(self.tasks()) - collections.Counter(expected)
            raise Wrong(f"tasks {more} too many", "doubled")
        lines = self.lines()
        missing = [name for name in expected if lines[f"end {name}"] < 1]
        if missing:
            raise Wrong(f"tasks that never ran to their end: {missing}", "lost")
        said = self.finished({})[str(self.tasks().index("gather"))][1]["n"]
        parts = (self.folder / ".stoker/artifacts" / said[:2] / said[2:]).read_text().split()
        if parts != [str(self.width)] * 2:
            raise Wrong(
                f"of {self.width} parts the join saw {parts[0]}, {parts[1]} different ones", "lost"
            )

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
        ended = {" ".join(line.split()[:2]) for line in lines}
        missing = [i for i in range(self.n_steps) if f"end s{i}" not in ended]
        if missing:
            raise Wrong(f"steps that never ran to their end: {missing}", "lost")
        self.check_cgroups(str(run["run"]))

    def strike(self, start: Start) -> None:
        """A start, with its kill."""
        if self.random.random() < 0.5:
            self.kill_at_failpoint(start)
        else:
            self.kill_at_instant(start)
        self.check_no_orphans()

    def go_on(self, before: dict[str, object] | None, is_struck: bool) -> None:
        self.is_resumed = False
        start: Start = self.begin if before is None else self.resume
        if is_struck:
            self.strike(start)
        else:
            self.wait(start())
            self.check_no_orphans()

    def play(self) -> None:
        self.go_on(None, is_struck=True)
        strikes = self.random.randint(*self.strikes)
        before = self.show()
        for number in range(strikes + 6):
            lines = self.lines()
            kept = self.finished(before) if before is not None else {}
            if before is not None and before["status"] == "succeeded":
                break
            if before is not None and before["status"] == "running":
                raise Wrong("the run says 'running' although its engine is gone")
            self.go_on(before, is_struck=number < strikes)
            after = self.show()
            if before is not None:
                self.check_kept(kept, lines, after)
            before = after
        final = before
        if final is None:
            raise Wrong("there is no run in the end", "lost")
        self.check_end(final)
        self.check_leases()
        self.check_left(str(final["run"]))
        verify = subprocess.run(
            [str(self.args.stoker), "store", "verify"],
            cwd=self.folder,
            env=self.env,
            capture_output=True,
            check=False,
        )
        if verify.returncode != 0:
            raise Wrong(f"store verify: {verify.stdout.decode()}{verify.stderr.decode()}")

    def check_left(self, run: str) -> None:
        """Other things that a round of this kind must not leave."""

    def check_kept(
        self,
        old: dict[str, tuple[str, dict[str, str]]],
        lines: collections.Counter[str],
        after: dict[str, object] | None,
    ) -> None:
        """What had finished before the resume has the same result after it, and did not run again."""
        if after is None:
            raise Wrong("the run is gone after resume", "lost")
        now = self.lines()
        new = self.finished(after)
        for key, (name, made) in old.items():
            if key not in new or new[key][1] != made:
                text = f"step {name}: its result changed on resume: {made}, {new.get(key)}"
                raise Wrong(text, "lost")
            if begun(now, name) != begun(lines, name):
                raise Wrong(f"step {name} had finished and ran again", "doubled")


class ResumeRound(Round):
    """Its resumes are killed soon after their start, one after the other."""

    strikes = (6, 12)
    pace = 15
    likes = ("python", "commands", "grows", "ranks")

    def __init__(self, args: argparse.Namespace, kind: str, number: int, place: Any = None) -> None:
        like = self.likes[number % len(self.likes)] if kind == "resume" else kind
        super().__init__(args, like, number, place)

    def groups(self) -> list[list[str]]:
        """Without their engine they don't end well."""
        return [group for group in super().groups() if "engine" in group]
