"""`--nnodes MIN:MAX`: nodes join and leave, and all ranks start again with those that are there."""

from __future__ import annotations

import re
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from launch_tools import ENV, PYTHON, WAIT_S, binary, launch, wait_for
from ports import free_port

# A rank: appends what it sees to a file, and ends when it may.
RANK = r"""
import os, signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
names = "RANK WORLD_SIZE GROUP_RANK GROUP_WORLD_SIZE LOCAL_RANK TORCHELASTIC_RESTART_COUNT".split()
with open("seen", "a") as out:
    out.write(" ".join(os.environ[name] for name in names) + "\n")
while not os.path.exists("end"):
    if os.path.exists("fail" + os.environ["GROUP_RANK"]):
        os.remove("fail" + os.environ["GROUP_RANK"])
        sys.exit(7)
    if os.path.exists("leave" + os.environ["GROUP_RANK"]):
        sys.exit(0)
    time.sleep(0.01)
"""


class Elastic:
    """Launchers of one gang, all on this host: the first one leads."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.port = folder, free_port()
        self.launchers: list[subprocess.Popen[str]] = []
        (folder / "rank.py").write_text(RANK)

    def start(self, nodes: str, *options: str, ranks: int = 2, call: int = 0) -> Any:
        words = ("--nnodes", nodes, "--rdzv", f"127.0.0.1:{self.port}", "-n", str(ranks))
        conf = ("--rdzv-conf", f"last_call_timeout={call}")
        p = subprocess.Popen(
            [binary(), "launch", *words, *conf, *options, "--no-python", PYTHON, "rank.py"],
            env=ENV,
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.launchers.append(p)
        if len(self.launchers) == 1:
            wait_for(lambda: is_listening(self.port), why="the leader to listen")
        return p

    def attempts(self) -> list[list[list[str]]]:
        """What the ranks of each attempt saw, sorted; an attempt begins when the world changes."""
        path = self.folder / "seen"
        lines = [line.split() for line in path.read_text().splitlines()] if path.exists() else []
        found: list[list[list[str]]] = []
        for line in lines:
            full = not found or len(found[-1]) == int(found[-1][0][1])
            if full:
                found.append([])
            found[-1].append(line)
        return [sorted(one, key=lambda seen: int(seen[0])) for one in found]

    def until(self, *worlds: int) -> None:
        """Waits until attempts of these sizes have started whole."""

        def sizes() -> list[int]:
            return [len(one) for one in self.attempts() if len(one) == int(one[0][1])]

        wait_for(lambda: sizes() == list(worlds), why=f"attempts of {worlds} ranks: {sizes()}")

    def end(self, *launchers: Any) -> list[tuple[int, str]]:
        (self.folder / "end").touch()
        done = []
        for p in launchers:
            out, err = p.communicate(timeout=WAIT_S)
            print(f"→ {p.returncode}\n{out[-2000:]}{err[-2000:]}")
            done.append((p.returncode, err))
        return done

    def close(self) -> None:
        for p in self.launchers:
            if p.poll() is None:
                p.kill()
            p.communicate()


@pytest.fixture
def gang(tmp_path: Path) -> Iterator[Elastic]:
    made = Elastic(tmp_path)
    yield made
    made.close()


def test_nodes_join_and_leave(gang: Elastic) -> None:
    """Joined, killed, told to end: each time the others go on, and no restart is used up."""
    first = gang.start("1:3")
    gang.until(2)
    second = gang.start("1:3")
    gang.until(2, 4)
    third = gang.start("1:3")
    gang.until(2, 4, 6)
    second.kill()
    gang.until(2, 4, 6, 4)
    third.send_signal(signal.SIGTERM)
    gang.until(2, 4, 6, 4, 2)
    again = gang.start("1:3")
    gang.until(2, 4, 6, 4, 2, 4)
    for attempt in gang.attempts():
        n = len(attempt)
        assert attempt == [
            [str(k), str(n), str(k // 2), str(n // 2), str(k % 2), "0"] for k in range(n)
        ]
    [(code, err), (code_again, _)] = gang.end(first, again)
    assert (code, code_again, third.wait()) == (0, 0, 0)
    assert [int(k) for k in re.findall(r"node (\d) \([^)]*\) joined", err)] == [1, 2, 1]
    assert "node 1 (127.0.0.1" in err and "was lost" in err
    assert re.search(r"node 2 \([^)]*\) leaves", err)


def test_fewest_nodes_are_waited_for(gang: Elastic) -> None:
    """Nothing starts before MIN nodes are there; below MIN the others wait for another one."""
    first = gang.start("2:3")
    second = gang.start("2:3", ranks=1)
    gang.until(3)
    second.kill()
    third = gang.start("2:3", ranks=3)
    gang.until(3, 5)
    assert [code for code, _ in gang.end(first, third)] == [0, 0]


def test_too_few_nodes(gang: Elastic) -> None:
    done = gang.start("2:3", "--join", "200ms").communicate(timeout=WAIT_S)[1]
    assert gang.launchers[0].returncode == 3
    assert "1 of at least 2 nodes" in done and f"--nnodes 2:3 --rdzv 127.0.0.1:{gang.port}" in done
    assert gang.attempts() == []


def test_last_call(gang: Elastic) -> None:
    """The first attempt waits for more than the fewest nodes, and starts at once when all are there."""
    first = gang.start("1:2", call=600)
    second = gang.start("1:2", call=600)
    gang.until(4)
    (_, err), _ = gang.end(first, second)
    assert err.count("start again") == 0


def test_full(gang: Elastic) -> None:
    """A node more than MAX is refused; the gang doesn't notice."""
    first, second = gang.start("1:2", call=600), gang.start("1:2", call=600)
    gang.until(4)
    third = gang.start("1:2")
    assert "all 2 nodes are there" in third.communicate(timeout=WAIT_S)[1]
    assert third.returncode != 0
    assert [code for code, _ in gang.end(first, second)] == [0, 0]
    gang.until(4)


def test_failures_count(gang: Elastic) -> None:
    """A rank that fails uses up a restart; a node that joins doesn't."""
    first = gang.start("1:2", "--max-restarts", "1")
    gang.until(2)
    second = gang.start("1:2", "--max-restarts", "1")
    gang.until(2, 4)
    (gang.folder / "fail1").touch()
    gang.until(2, 4, 4)
    assert {seen[5] for seen in gang.attempts()[-1]} == {"1"}
    (gang.folder / "fail0").touch()
    for p in (first, second):
        assert p.wait(WAIT_S) == 7


def test_late(gang: Elastic) -> None:
    """A node that comes when the leader's ranks have ended waits, and ends with the gang."""
    first, second = gang.start("1:3", call=600), gang.start("1:3", call=600)
    third = gang.start("1:3", call=600)
    gang.until(6)
    second.kill()
    gang.until(6, 4)
    (gang.folder / "leave0").touch()
    wait_for(lambda: not ranks_of(first.pid), why="the leader's ranks to end")
    late = gang.start("1:3")
    wait_for(lambda: "ESTAB" in connections(gang.port, late.pid), why="the late node to connect")
    assert [code for code, _ in gang.end(first, third, late)] == [0, 0, 0]
    gang.until(6, 4)


def ranks_of(pid: int) -> list[str]:
    done = subprocess.run(["ps", "--ppid", str(pid), "-o", "args="], capture_output=True, text=True)
    return [line for line in done.stdout.splitlines() if "rank.py" in line]


def is_listening(port: int) -> bool:
    done = subprocess.run(["ss", "-Hltn", f"sport = :{port}"], capture_output=True, text=True)
    return done.stdout != ""


def connections(port: int, pid: int) -> str:
    done = subprocess.run(["ss", "-tnp", f"dport = :{port}"], capture_output=True, text=True)
    return "\n".join(line for line in done.stdout.splitlines() if f"pid={pid}," in line)


@pytest.mark.parametrize(
    ("words", "part"),
    [
        ("--nnodes 1:2", "--rdzv"),
        ("--nnodes 2:1 --rdzv 127.0.0.1:1", "MIN:MAX"),
        ("--nnodes 0:2 --rdzv 127.0.0.1:1", "MIN:MAX"),
        ("--nnodes 1:2000 --rdzv 127.0.0.1:1", "1 to 1024"),
        ("--nnodes 1:2 --standalone", "--standalone"),
        ("--nnodes 1:2 --rdzv 127.0.0.1:1 --rdzv-conf last_call_timeout=x", "last_call_timeout"),
    ],
)
def test_words(words: str, part: str) -> None:
    done = launch(*words.split(), "--no-python", "--", "true")
    assert done.code == 2 and part in done.err


TRAIN = """
import os, sys, time
import torch, torch.distributed as dist
dist.init_process_group("gloo")
while True:
    ones = torch.ones(1)
    dist.all_reduce(ones)
    if dist.get_rank() == 0:
        with open("sums", "a") as out:
            out.write(f"{int(ones)} of {dist.get_world_size()}\\n")
    stop = torch.tensor(float(os.path.exists("end")))
    dist.all_reduce(stop, op=dist.ReduceOp.MAX)
    if stop:
        break
    time.sleep(0.05)
dist.barrier()
dist.destroy_process_group()
"""


@pytest.mark.torch
def test_torch_goes_on(gang: Elastic) -> None:
    """Real collectives over the nodes that are there: 2 ranks, 4, and 2 again after a kill."""
    (gang.folder / "rank.py").write_text(TRAIN)

    def sums() -> set[str]:
        path = gang.folder / "sums"
        return set(path.read_text().splitlines()[-1:]) if path.exists() else set()

    first = gang.start("1:2")
    wait_for(lambda: sums() == {"2 of 2"}, why="two ranks to reduce")
    second = gang.start("1:2")
    wait_for(lambda: sums() == {"4 of 4"}, why="four ranks to reduce")
    second.kill()
    wait_for(lambda: sums() == {"2 of 2"}, why="two ranks to reduce again")
    [(code, err)] = gang.end(first)
    assert code == 0 and "was lost" in err
