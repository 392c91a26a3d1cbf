#!/usr/bin/env python3
"""Measures Stoker against the other side, both in this run, and writes docs/benchmarks.md.

    python bench/bench.py [--stoker .venv/bin/stoker] [--python .venv/bin/python] [--quick] [--only NAME] [--peers PYTHON]
    python bench/bench.py --beside TREE   # this tree beside another built one, both in turn

Every figure is a ratio (or a difference) between two things measured in turn on this machine; the median of several pairs
counts. CPU is user + system time of the command and everything it started. --peers names a Python in which
ZenML and Metaflow are installed (`make bench-peers` makes one); without it their rows are left out.

ext4 is slow to make files for minutes after many were deleted; TMPDIR on a file system of its own keeps that out.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import random
import re
import resource
import shutil
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BESIDE = "## Beside an earlier commit"
ROUNDS = 2


@dataclass
class Cost:
    wall: float
    cpu: float


def cpu_of(pid: int) -> float:
    """Seconds that a process has computed so far, to the nanosecond."""
    threads = Path(f"/proc/{pid}/task").glob("*/schedstat")
    return sum(int(thread.read_text().split()[0]) for thread in threads) / 1e9


@dataclass
class Row:
    name: str
    what: str
    stoker: str
    other: str
    ratio: str
    target: str
    ok: bool
    value: float
    unit: str


def measure(words: list[str], cwd: Path, env: dict[str, str]) -> Cost:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    start = time.perf_counter()
    done = subprocess.run(
        words,
        cwd=cwd,
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        check=False,
    )
    wall = time.perf_counter() - start
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode != 0:
        raise SystemExit(
            f"bench: {' '.join(words)} failed ({done.returncode}): {done.stderr.decode()[-2000:]}"
        )
    return Cost(wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)


def graph(n: int) -> list[list[int]]:
    """A random graph: every step needs up to three of the fifty before it."""
    rng = random.Random(7)
    return [
        sorted({rng.randrange(max(0, i - 50), i) for _ in range(rng.randint(0, 3))}) if i else []
        for i in range(n)
    ]


def yaml_of(needs: list[list[int]], command: str) -> str:
    """Every step has a command of its own (``$out`` is its name): equal ones would be each other's cache hits."""
    lines = ["stoker: 1", "name: bench", "steps:"]
    for i, before in enumerate(needs):
        after = f", after: [{', '.join(f's{k}' for k in before)}]" if before else ""
        lines.append(f"  s{i}: {{run: {json.dumps(command.replace('$out', f's{i}'))}{after}}}")
    return "\n".join(lines) + "\n"


def ninja_of(needs: list[list[int]], command: str) -> str:
    lines = ["rule r", f"  command = {command}"]
    lines += [
        f"build s{i}: r {' '.join(f's{k}' for k in before)}" for i, before in enumerate(needs)
    ]
    return "\n".join(lines) + "\n"


def find_ninja() -> str:
    """The program itself: a version manager's or a wheel's wrapper costs more than it."""
    found = next((p for p in ("/usr/bin/samu", "/usr/bin/ninja") if os.access(p, os.X_OK)), None)
    found = found or shutil.which("ninja")
    if found is None:
        raise SystemExit("bench: neither samu nor ninja is installed")
    return found


class Bench:
    def __init__(self, args: argparse.Namespace) -> None:
        self.args = args
        self.folder = Path(tempfile.mkdtemp(prefix="stoker-bench-"))
        self.rows: list[Row] = []
        self.step_ms: float | None = None
        self.load = os.getloadavg()[1]
        self.n_folders = 0
        # Without bytecode every start would compile what it imports, as no installed program does.
        drop = {"STOKER_STORE", "STOKER_RUN_OPTIONS", "NINJA_STATUS", "PYTHONDONTWRITEBYTECODE"}
        self.env = {k: v for k, v in os.environ.items() if k not in drop}
        self.env["PYTHONPATH"] = str(args.tree / "python")
        self.env["STOKER_BIN"] = str(args.stoker)

    def fresh(self, name: str) -> Path:
        """A new folder. None is removed before the end: ext4 is slow to reuse inodes that were freed a moment ago."""
        self.n_folders += 1
        folder = self.folder / f"{self.n_folders}-{name}"
        folder.mkdir()
        return folder

    def stoker(self, folder: Path, *words: str) -> Cost:
        return measure([str(self.args.stoker), *words], folder, self.env)

    def python(self, folder: Path, *words: str, python: str | None = None) -> Cost:
        return measure([python or str(self.args.python), *words], folder, self.env)

    def add(
        self,
        name: str,
        what: str,
        stoker: str,
        other: str,
        ratio: float,
        limit: float,
        unit: str = "×",
    ) -> None:
        row = Row(
            name,
            what,
            stoker,
            other,
            f"{ratio:.2f} {unit}",
            f"≤ {limit:g} {unit}",
            ratio <= limit,
            ratio,
            unit,
        )
        self.rows.append(row)
        print(
            f"{name}: {stoker} against {other}: {row.ratio} (target {row.target}) {'ok' if row.ok else 'MISSED'}",
            flush=True,
        )

    # --- the figures ---

    def commands(self) -> None:
        n = 1000 if self.args.quick else 10000
        needs = graph(n)
        ninja = find_ninja()
        # What others do on the machine adds to a side's CPU (caches, ext4's search for an inode that
        # wasn't freed just now), and never takes away: the lowest of each side is compared.
        costs: tuple[list[float], list[float]] = ([], [])
        for _ in range(5):
            a, b = self.fresh("commands-a"), self.fresh("commands-b")
            (a / "p.yaml").write_text(yaml_of(needs, "true $out"))
            (b / "build.ninja").write_text(ninja_of(needs, "true $out"))
            costs[0].append(self.stoker(a, "run", "--quiet", "p.yaml").cpu)
            costs[1].append(measure([ninja, f"-j{os.cpu_count()}"], b, self.env).cpu)
        x, y = (min(side) for side in costs)
        self.add(
            "commands",
            f"{n:,} command steps, CPU, history included",
            f"{x / n * 1e3:.2f} ms a step",
            f"{Path(ninja).name} {y / n * 1e3:.2f} ms",
            x / y,
            1.5,
        )

    def cached(self) -> None:
        n = 2000 if self.args.quick else 20000
        folder = self.fresh("cached")
        (folder / "p.yaml").write_text(yaml_of(graph(n), "true $out"))
        (folder / "build.ninja").write_text(ninja_of([[] for _ in range(n)], "touch $out"))
        self.stoker(folder, "run", "--quiet", "p.yaml")
        walls = [self.stoker(folder, "run", "--quiet", "p.yaml").wall for _ in range(5)]
        ninja = find_ninja()
        measure([ninja], folder, self.env)
        noop = [measure([ninja], folder, self.env).wall for _ in range(5)]
        wall = statistics.median(walls)
        self.add(
            "cached",
            f"cached re-run of {n:,} command steps",
            f"{wall:.3f} s",
            f"ninja no-op {statistics.median(noop):.3f} s",
            wall,
            0.3 * n / 20000,
            "s",
        )

    def python_steps(self) -> None:
        n = 200 if self.args.quick else 1000
        file = str(ROOT / "bench" / "python_steps.py")
        costs: dict[str, list[float]] = {"stoker": [], "empty": [], "fork": []}
        for _ in range(3):
            folder = self.fresh("steps")
            costs["stoker"].append(self.python(folder, file, "stoker", str(n)).cpu)
            costs["empty"].append(self.python(self.fresh("steps0"), file, "stoker", "1").cpu)
            costs["fork"].append(
                self.python(folder, file, "fork", str(n)).cpu
                - self.python(folder, file, "fork", "1").cpu
            )
        each = (
            (statistics.median(costs["stoker"]) - statistics.median(costs["empty"])) / (n - 1) * 1e3
        )
        fork = statistics.median(costs["fork"]) / (n - 1) * 1e3
        self.add(
            "python steps",
            f"{n:,} isolated Python steps with numpy imported, CPU each",
            f"{each:.2f} ms",
            f"bare os.fork {fork:.2f} ms",
            each,
            5.0,
            "ms",
        )
        self.step_ms = each

    def prints(self) -> None:
        """A step that prints much, to our stdout as well as to its log."""
        n = 64 if self.args.quick else 1024
        line = "x" * 99
        walls: dict[str, list[float]] = {"on": [], "off": []}
        for _ in range(3):
            for setting, found in walls.items():
                folder = self.fresh("prints")
                run = f"yes {line} | head -c {n << 20}"
                (folder / "p.yaml").write_text(
                    f"stoker: 1\nname: p\nsteps:\n  a: {{run: '{run}'}}\n"
                )
                words = f"STOKER_PRINTS={setting} '{self.args.stoker}' run p.yaml | cat > /dev/null"
                found.append(measure(["sh", "-c", words], folder, self.env).wall)
                shutil.rmtree(folder)
        on, off = statistics.median(walls["on"]), statistics.median(walls["off"])
        what = f"a step that prints {n} MiB, seen through a pipe"
        self.add("prints", what, f"{on:.2f} s", f"to its log only {off:.2f} s", on / off, 1.1)

    def reads(self) -> None:
        """Recording what a step reads, beside not doing so."""
        n = 100 if self.args.quick else 500
        file = str(ROOT / "bench" / "reads.py")
        cpu: dict[str, list[float]] = {"on": [], "off": []}
        opened: dict[str, list[float]] = {"on": [], "off": []}
        stats: list[float] = []
        for _ in range(3):
            for track, found in cpu.items():
                found.append(self.python(self.fresh("reads"), file, track, "steps", str(n)).cpu)
                words = [str(self.args.python), file, track, "files", "4000"]
                done = subprocess.run(
                    words, cwd=self.fresh("files"), env=self.env, capture_output=True, check=True
                )
                each, stat = map(float, done.stdout.split())
                opened[track].append(each)
                stats.append(stat)
        on, off = min(cpu["on"]) / n * 1e3, min(cpu["off"]) / n * 1e3
        what = "CPU of a no-op Python step whose reads are recorded"
        self.add(
            "reads", what, f"{on:.2f} ms", f"not recorded {off:.2f} ms", on - off, 0.2, "ms more"
        )
        more = min(opened["on"]) - min(opened["off"]) - min(stats)
        self.add(
            "reads",
            "recording a file that a step opens, beside a stat of it",
            f"{min(opened['on']):.1f} µs",
            f"open {min(opened['off']):.1f} µs, stat {min(stats):.1f} µs",
            more,
            5.0,
            "µs",
        )

    def metrics(self) -> None:
        """A million values of log_metrics: what one costs the step, and reading all of them."""
        n = 20_000 if self.args.quick else 500_000
        folder = self.fresh("metrics")
        lines = (
            "import os, time, stoker",
            "def cpu(f):",
            f"    t = time.process_time(); [f(i) for i in range({n})]",
            f"    return (time.process_time() - t) / {2 * n} * 1e6",
            "log = cpu(lambda i: stoker.log_metrics({'loss': 1 / (i + 1), 'accuracy': i}, step=i))",
            "fd = os.open('beside', os.O_WRONLY | os.O_CREAT | os.O_APPEND)",
            "print('us', log, cpu(lambda i: os.write(fd, b'x' * 90)))",
        )
        (folder / "log.py").write_text("\n".join(lines))
        (folder / "p.yaml").write_text(
            f"stoker: 1\nname: p\nsteps:\n  a: {{run: '{self.args.python} log.py'}}\n"
        )
        words = [str(self.args.stoker), "run", "p.yaml"]
        done = subprocess.run(words, cwd=folder, env=self.env, capture_output=True, check=True)
        said = next(line for line in done.stdout.decode().splitlines() if line.startswith("us "))
        log, write = map(float, said.split()[1:])
        what = f"CPU of a value that log_metrics logs, of {2 * n:,}"
        self.add("metrics", what, f"{log:.1f} µs", f"a write {write:.1f} µs", log, 20, "µs")
        read = self.stoker(folder, "metrics").cpu
        what = f"reading {2 * n:,} values for their table"
        per = f"{read / (2 * n) * 1e6:.2f} µs a value"
        self.add("metrics", what, f"{read:.2f} s", per, read, 2.0 if n > 100_000 else 0.1, "s")

    def ui(self) -> None:
        """Pages of `stoker ui` for a store of 10,000 runs."""
        import ui_pages

        n = 500 if self.args.quick else 10_000
        ui_pages.measure(self.fresh("ui"), str(self.args.stoker), self.env, n, self.add)

    def peers(self) -> None:
        """A step of ZenML and of Metaflow, and how long a program with two steps takes from nothing to its end."""
        if not self.args.peers:
            return
        file = str(ROOT / "bench" / "python_steps.py")
        if self.step_ms is None:
            self.python_steps()
        n = 12 if self.args.quick else 52
        ours = statistics.median(
            self.python(self.fresh("hello"), file, "stoker", "2").wall for _ in range(5)
        )
        ways = {
            "zenml": ("ZenML", "in the program's own process"),
            "metaflow": ("Metaflow", "isolated"),
        }
        for peer, (name, way) in ways.items():
            ask = f"import importlib.metadata as m; print(m.version('{peer}'))"
            version = subprocess.run(
                [self.args.peers, "-c", ask], capture_output=True, text=True, check=True
            )
            name = f"{name} {version.stdout.strip()}"
            folder = self.fresh(peer)
            home = {
                "HOME": str(folder),
                "USERNAME": "bench",
                "ZENML_CONFIG_PATH": str(folder / "zenml"),
                "METAFLOW_USER": "bench",
            }
            quiet = {
                "ZENML_ANALYTICS_OPT_IN": "false",
                "AUTO_OPEN_DASHBOARD": "false",
                "METAFLOW_DEFAULT_DATASTORE": "local",
            }
            env = {**self.env, **home, **quiet}
            (folder / "zenml").mkdir()

            def run(
                count: int, folder: Path = folder, env: dict[str, str] = env, peer: str = peer
            ) -> Cost:
                return measure([self.args.peers, file, peer, str(count)], folder, env)

            run(2)  # ZenML makes its database; that isn't counted
            two = [run(2) for _ in range(3)]
            cost = (run(n).cpu - statistics.median(one.cpu for one in two)) / (n - 2) * 1e3
            self.add(
                f"against {peer}",
                "CPU of a no-op Python step",
                f"{self.step_ms:.2f} ms, isolated",
                f"{name} {cost:.0f} ms, {way}",
                self.step_ms / cost,
                1.0,
            )
            hello = statistics.median(one.wall for one in two)
            what = "a program with two steps, from its start to its end"
            self.add(
                f"hello {peer}", what, f"{ours:.2f} s", f"{name} {hello:.2f} s", ours / hello, 1.0
            )

    def array(self) -> None:
        mib = 128 if self.args.quick else 1024
        file = str(ROOT / "bench" / "handover.py")
        ratios, ours, theirs = [], [], []
        for _ in range(5):
            folder = self.fresh("array")
            out = subprocess.run(
                [str(self.args.python), file, str(mib)],
                cwd=folder,
                env=self.env,
                capture_output=True,
                text=True,
                check=False,
            )
            if out.returncode != 0:
                raise SystemExit(f"bench: handover.py failed: {out.stderr[-2000:]}")
            figures = json.loads(out.stdout.strip().split("\n")[-1])
            ours.append(figures["stoker_s"])
            theirs.append(figures["numpy_s"])
            ratios.append(figures["stoker_s"] / figures["numpy_s"])
        self.add(
            "array",
            f"{mib} MiB numpy array from step to step",
            f"{statistics.median(ours):.2f} s",
            f"np.save + np.load {statistics.median(theirs):.2f} s",
            statistics.median(ratios),
            1.5,
        )

    def startup(self) -> None:
        folder = self.fresh("startup")

        def gap(a: Callable[[], Cost], b: Callable[[], Cost]) -> float:
            return (
                statistics.median(a().wall - b().wall for _ in range(15 if self.args.quick else 41))
                * 1e3
            )

        version = gap(
            lambda: self.stoker(folder, "--version"),
            lambda: measure(["/bin/true"], folder, self.env),
        )
        self.add(
            "start", "stoker --version over true", f"+{version:.2f} ms", "true", version, 3.0, "ms"
        )
        front = gap(
            lambda: self.python(folder, "-c", "import stoker"),
            lambda: self.python(folder, "-c", "pass"),
        )
        self.add(
            "import",
            "import stoker over python -c pass",
            f"+{front:.1f} ms",
            "python -c pass",
            front,
            30.0,
            "ms",
        )

    def million(self) -> None:
        program = self.args.build / "bench" / "sim_million"
        out = subprocess.run(
            [str(program)] + (["100000"] if self.args.quick else []),
            capture_output=True,
            text=True,
            check=True,
        )
        figures = json.loads(out.stdout)
        self.add(
            "schedule",
            f"schedule {figures['tasks']:,} simulated tasks with retries, graph included",
            f"{figures['seconds']:.2f} s",
            "target",
            figures["seconds"],
            3.0,
            "s",
        )
        self.add(
            "memory",
            "peak memory of the same",
            f"{figures['mb']:.0f} MB",
            "target",
            figures["mb"],
            500,
            "MB",
        )

    def placement(self) -> None:
        """GPUs in use when 130 % of a cluster is asked for, mean of several made-up workloads."""
        nodes, n_seeds = (16, 2) if self.args.quick else (128, 5)
        used: dict[str, list[float]] = {}
        for seed in range(n_seeds):
            words = ["simulate", "--cluster", f"{nodes}*8xH100", "--seed", str(seed), "--json"]
            text = subprocess.run(
                [str(self.args.stoker), *words], check=True, capture_output=True, text=True
            ).stdout
            for policy in json.loads(text)["policies"]:
                used.setdefault(policy["policy"], []).append(policy["in_use_percent"])
        mean = {name: statistics.mean(figures) for name, figures in used.items()}
        for other in ("best-fit", "fragment", "random"):
            self.add(
                "placement",
                f"GPUs in use at 130 % arrivals, {nodes} × 8 GPUs, against {other}",
                f"{mean['stoker']:.2f} %",
                f"{mean[other]:.2f} %",
                mean[other] / mean["stoker"],
                1.01,
                "×",
            )

    def lease(self) -> None:
        program = self.args.build / "bench" / "lease_cost"
        out = subprocess.run([str(program)], capture_output=True, text=True, check=True)
        figures = json.loads(out.stdout)
        slower = max(figures["whole_us"], figures["share_us"])
        self.add(
            "lease",
            "lease a device and give it back: whole, and a share of a shared one (the slower counts)",
            f"{figures['whole_us']:.1f} and {figures['share_us']:.1f} µs",
            "target",
            slower,
            50,
            "µs",
        )
        self.add(
            "pack",
            f"choose 4 of 8 devices (8 of 128: {figures['pack_8_of_128_us']:.0f} µs)",
            f"{figures['pack_4_us']:.2f} µs",
            "target",
            figures["pack_4_us"],
            5,
            "µs",
        )

    def sampling(self) -> None:
        """A look at a running task beside a bare read of its /proc/PID/stat; and a whole engine that looks ten times a second
        beside a program that only wakes as often and reads that file: what waking up costs is the machine's affair (on a
        virtual machine it alone may pass 0.1 % of a CPU), what is done then is ours."""
        program = self.args.build / "bench" / "sample_cost"
        figures = [
            json.loads(subprocess.run([str(program)], capture_output=True, check=True).stdout)
            for _ in range(5)
        ]
        ours, bare = (
            statistics.median(f[name] for f in figures) for name in ("sample_s", "bare_s")
        )
        self.add(
            "sample",
            "CPU of 1,000 looks at a running task, records written",
            f"{ours * 1e3:.1f} ms",
            f"bare reads of /proc/PID/stat {bare * 1e3:.1f} ms",
            ours / bare,
            2.0,
        )
        seconds = 5 if self.args.quick else 20

        folder = self.fresh("sampling")
        text = (
            f"stoker: 1\nname: bench\nsteps:\n  s: {{run: exec sleep {seconds + 5}, sample: 0.1}}\n"
        )
        (folder / "p.yaml").write_text(text)
        engine = [str(self.args.stoker), "run", "--quiet", "--no-cache", "p.yaml"]
        waker = [str(program), "wake", str(seconds + 5), "100"]

        def shares() -> list[float]:
            """Both at once, so that both have the machine's same hour; without their starts and ends."""
            running = [
                subprocess.Popen(words, cwd=folder, env=self.env, stdout=subprocess.DEVNULL)
                for words in (engine, waker)
            ]
            time.sleep(2)
            before, start = [cpu_of(one.pid) for one in running], time.perf_counter()
            time.sleep(seconds)
            after, end = [cpu_of(one.pid) for one in running], time.perf_counter()
            if any(one.wait() for one in running):
                raise SystemExit("bench: sampling failed")
            return [(y - x) / (end - start) * 100 for x, y in zip(before, after)]

        pairs = [shares() for _ in range(3)]
        whole, wakes = (statistics.median(p[k] for p in pairs) for k in (0, 1))
        self.add(
            "sampling",
            "of a CPU, for an engine that looks at a step ten times a second, over a program that only wakes up and reads one file",
            f"{whole:.3f} %",
            f"only waking {wakes:.3f} %",
            statistics.median(a - b for a, b in pairs),
            0.1,
            "% more",
        )

    def launch(self) -> None:
        import launch_ranks

        launch_ranks.rows(self)

    def containers(self) -> None:
        import containers

        containers.rows(self)

    def flows(self) -> None:
        import flows

        flows.rows(self)

    def s3(self) -> None:
        import shared

        shared.rows(self)

    def hosts(self) -> None:
        import hosts

        hosts.rows(self)

    def elsewhere(self) -> None:
        import elsewhere

        elsewhere.rows(self)

    def over_ssh(self) -> None:
        import over_ssh

        over_ssh.rows(self)

    def whole(self) -> None:
        import whole

        whole.rows(self)

    def slurm(self) -> None:
        import slurm

        slurm.rows(self)

    # --- the page ---

    def write(self) -> None:
        lines = [
            "# Benchmarks",
            "",
            f"`make bench` wrote this table on {time.strftime('%Y-%m-%d')}. Each row compares two things",
            "that were measured in turn in one run; the figures are medians. The machine:",
            f"{os.cpu_count()} CPUs, {platform.machine()}, Linux {platform.release()}, "
            f"Python {platform.python_version()};",
            f"its load from other programs at the start was {self.load:.1f}.",
            "",
            "| what | Stoker | other side | figure | target | |",
            "|---|---|---|---|---|---|",
        ]
        lines += [
            f"| {r.what} | {r.stoker} | {r.other} | {r.ratio} | {r.target} | {'✓' if r.ok else 'missed'} |"
            for r in self.rows
        ]
        page = self.args.out.read_text() if self.args.out.exists() else ""
        _, mark, sections = page.partition("\n## ")  # others write them: tests/crash/crash.py
        self.args.out.write_text("\n".join(lines) + "\n" + mark + sections)
        print(f"written to {self.args.out}")


def beside(args: argparse.Namespace, figures: list[str]) -> None:
    """This tree and another one in turn, figure by figure, ROUNDS times; the lowest of each side counts."""
    other = argparse.Namespace(**vars(args))
    other.tree = args.beside.resolve()
    other.build = other.tree / "build"
    other.stoker = other.build / "src/cli/stoker"
    commits = [
        subprocess.run(
            ["git", "-C", str(tree), "rev-parse", "--short", "HEAD"],
            capture_output=True,
            text=True,
            check=True,
        ).stdout.strip()
        for tree in (args.tree, other.tree)
    ]
    sides = [Bench(args), Bench(other)]
    rows: list[list[Row]] = [[], []]
    try:
        for name in figures:
            for turn in range(ROUNDS):
                for side, bench in enumerate(sides):
                    bench.rows = []
                    getattr(bench, name)()
                    if turn == 0:
                        rows[side] += bench.rows
                        continue
                    first = len(rows[side]) - len(bench.rows)
                    for i, row in enumerate(bench.rows, first):
                        rows[side][i] = min(row, rows[side][i], key=lambda r: r.value)
    finally:
        for bench in sides:
            shutil.rmtree(bench.folder, ignore_errors=True)
    lines = [
        BESIDE,
        "",
        f"`bench.py --beside TREE` measured {commits[0]} and {commits[1]} in turn on {time.strftime('%Y-%m-%d')},",
        f"{ROUNDS} times each row; the lower figure of each counts. The load from other programs at the start",
        f"was {sides[0].load:.1f}.",
        "",
        f"| what | {commits[1]} | {commits[0]} | difference |",
        "|---|---|---|---|",
    ]
    for mine, theirs in zip(*rows):
        change = f"{(mine.value / theirs.value - 1) * 100:+.0f} %" if theirs.value > 0 else ""
        lines.append(f"| {mine.what} | {theirs.ratio} | {mine.ratio} | {change} |")
    print("\n".join(lines))
    if not args.quick and not args.only:
        page = re.sub(rf"\n{BESIDE}\n.*?(?=\n## |\Z)", "", args.out.read_text(), flags=re.S)
        args.out.write_text(page.rstrip("\n") + "\n\n" + "\n".join(lines) + "\n")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--stoker", type=Path, default=ROOT / ".venv/bin/stoker")
    parser.add_argument("--python", type=Path, default=ROOT / ".venv/bin/python")
    parser.add_argument("--build", type=Path, default=ROOT / "build")
    parser.add_argument("--out", type=Path, default=ROOT / "docs/benchmarks.md")
    parser.add_argument("--peers", help="a Python with zenml and metaflow")
    parser.add_argument("--quick", action="store_true", help="small sizes; nothing is written")
    parser.add_argument("--only", action="append", help="a figure's function name")
    parser.add_argument("--beside", type=Path, help="a built checkout of another commit")
    args = parser.parse_args()
    args.tree = ROOT
    args.stoker = Path(os.path.abspath(args.stoker))
    args.python = Path(os.path.abspath(args.python))
    figures = [
        "startup",
        "commands",
        "cached",
        "python_steps",
        "prints",
        "reads",
        "metrics",
        "ui",
        "peers",
        "whole",
        "array",
        "million",
        "placement",
        "lease",
        "sampling",
        "launch",
        "containers",
        "flows",
        "s3",
        "hosts",
        "elsewhere",
        "over_ssh",
        "slurm",
    ]
    figures = [name for name in figures if not args.only or name in args.only]
    if args.beside:
        beside(args, figures)
        return 0
    bench = Bench(args)
    try:
        for name in figures:
            getattr(bench, name)()
    finally:
        shutil.rmtree(bench.folder, ignore_errors=True)
    if not args.quick and not args.only:
        bench.write()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
