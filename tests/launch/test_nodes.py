"""A gang on several nodes: `stoker launch --nnodes`, with network namespaces as nodes."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from launch_tools import PYTHON, processes_with, python, shell, wait_for
from node_tools import Nodes, ends, skip_without

pytestmark = skip_without


@pytest.fixture
def two() -> Iterator[Nodes]:
    nodes = Nodes(2)
    yield nodes
    nodes.close()


@pytest.fixture
def three() -> Iterator[Nodes]:
    nodes = Nodes(3)
    yield nodes
    nodes.close()


def both(nodes: Nodes, *words: str | Path) -> list[subprocess.Popen[str]]:
    return [nodes.launch(k, *words) for k in range(len(nodes.names))]


# --- one world ---


def test_ranks_are_counted_over_nodes(three: Nodes) -> None:
    echo = shell("echo $RANK $LOCAL_RANK $WORLD_SIZE $LOCAL_WORLD_SIZE $NODE_RANK $MASTER_ADDR")
    counts = ["1", "3", "2"]  # nodes need not be alike
    done = ends([three.launch(k, "-n", counts[k], *echo) for k in (0, 1, 2)])
    assert [d.code for d in done] == [0, 0, 0]
    lines = sorted(line for d in done for line in d.out.splitlines())
    places = [(0, 0, 0, 1), (1, 0, 1, 3), (2, 1, 1, 3), (3, 2, 1, 3), (4, 0, 2, 2), (5, 1, 2, 2)]
    assert lines == [f"[{r}] {r} {i} 6 {n} {k} 10.123.0.1" for r, i, k, n in places]
    assert [d.err for d in done] == ["", "", ""]


def test_nothing_starts_before_all_are_there(two: Nodes) -> None:
    first = two.launch(0, "-n", "1", *shell("echo up"))
    time.sleep(0.7)  # sleeps: it would have begun by now
    assert len(processes_with(two.mark)) == 1  # the launcher alone
    done = ends([first, two.launch(1, "-n", "1", *shell("echo up"))])
    assert [d.out for d in done] == ["[0] up\n", "[1] up\n"]


def test_a_missing_node_is_named_and_nothing_starts(three: Nodes) -> None:
    words = ("--join", "1s", "-n", "1", *shell("echo never"))
    done = ends([three.launch(k, *words) for k in (0, 1)])
    assert [d.code for d in done] == [3, 3] and done[0].out == done[1].out == ""
    for d in done:  # both say the same
        assert (
            "2 of 3 nodes joined within 1.00 s: node 2 is missing, so nothing was started" in d.err
        )
        assert "stoker launch --nnodes 3 --node-rank 2 --rdzv 10.123.0.1:29400" in d.err


def test_a_leader_that_is_not_there(two: Nodes) -> None:
    (done,) = ends([two.launch(1, "--join", "1s", "-n", "1", *shell("echo never"))])
    assert done.code == 3 and done.out == ""
    assert "node 1 can't reach node 0 at 10.123.0.1:29400: connection refused" in done.err


@pytest.mark.parametrize("nnodes", ["2", "2:3"])
def test_a_name_without_an_address(two: Nodes, nnodes: str) -> None:
    """Both sides name it, not a port or the node that is missing because of it."""
    meets = ("--nnodes", nnodes, "--rdzv", "node-0.invalid:29400", "--rdzv-conf", "join_timeout=1")
    leads = (["is_host=true"], ["is_host=false"]) if ":" in nnodes else ([], [])
    for d in ends(
        two.launch(k, *meets[:-1], ",".join([meets[-1], *leads[k]]), "-n", "1", *shell("true"))
        for k in (0, 1)
    ):
        assert d.code == 3 and "node-0.invalid" in d.err and "can't be resolved" in d.err
        assert "DNS" in d.err and "that port through" not in d.err and "is missing" not in d.err


@pytest.mark.parametrize(
    ("words", "env", "sentence"),
    [
        ((), {"STOKER_GANG_KEY": "other"}, "doesn't know the gang's key"),
        (("--rdzv-id", "other"), {}, "it belongs to gang 'other', but this one is 'none'"),
        (("--nnodes", "3"), {}, "it was started for 3 nodes, but this gang has 2"),
    ],
)
def test_strangers_are_refused(
    two: Nodes, words: tuple[str, ...], env: dict[str, str], sentence: str
) -> None:
    leader = two.launch(0, "--join", "20s", "-n", "1", *shell("echo up"))
    (stranger,) = ends([two.launch(1, *words, "-n", "1", *shell("echo never"), **env)])
    assert stranger.code == 3 and sentence in stranger.err and stranger.out == ""
    done = ends([leader, two.launch(1, "-n", "1", *shell("echo up"))])
    assert [d.out for d in done] == ["[0] up\n", "[1] up\n"]  # the gang itself wasn't hurt
    assert sentence in done[0].err and two.mark not in done[0].err + stranger.err


# --- rank 0's port ---


def test_a_closed_pair_is_named(two: Nodes) -> None:
    two.on(1, *["ip", "rule", "add", "ipproto", "tcp", "dport", "29577", "prohibit"])
    why = "permission denied"
    done = ends(both(two, "-n", "1", "--port", "29577", *shell("echo never")))
    assert [d.code for d in done] == [3, 3]
    for d in done:
        assert d.out == ""
        assert "node 1 (10.123.0.2" in d.err
        assert f"can't reach node 0 at 10.123.0.1:29577: {why}; let that port through" in d.err


def test_packets_that_vanish_are_a_closed_pair_too(two: Nodes) -> None:
    two.on(0, *["ip", "rule", "add", "pref", "10", "lookup", "local"])
    two.on(0, *["ip", "rule", "del", "pref", "0"])
    two.on(
        0,
        *[
            "ip",
            "rule",
            "add",
            "pref",
            "5",
            "iif",
            "eth0",
            "ipproto",
            "tcp",
            "dport",
            "29577",
            "blackhole",
        ],
    )
    done = ends(both(two, "-n", "1", "--port", "29577", *shell("echo never")))
    assert [d.code for d in done] == [3, 3]
    assert "can't reach node 0 at 10.123.0.1:29577: connection timed out;" in done[1].err


# --- the end ---


def test_a_rank_that_fails_on_another_node(two: Nodes) -> None:
    # sleeps: for the other ranks to begin
    code = "time.sleep(0.3)\nif RANK == 3: raise ValueError('boom')\ntime.sleep(3000)"
    started = time.monotonic()
    done = ends(both(two, "-n", "2", "--json", *python(code)))
    assert time.monotonic() - started < 100
    sentence = (
        "rank 3 on node 1 (10.123.0.2, " + os.uname().nodename + ") failed: exit status 1 "
        "(ValueError: boom); 3 other ranks were ended because of it"
    )
    assert [d.code for d in done] == [1, 1]
    assert [d.sentence for d in done] == [sentence, sentence]
    assert "the end of rank 3's stderr:\n    Traceback (most recent call last):" in done[0].err
    gang = done[0].gang
    assert gang["text"] == sentence and gang["attempts"][0]["first"] == 3
    assert [m["rank"] for m in gang["attempts"][0]["members"]] == [0, 1, 2, 3]
    assert [m["text"] for m in gang["attempts"][0]["members"]] == [
        *["ended because of rank 3"] * 3,
        "exit status 1",
    ]
    assert [(n["address"], n["ranks"]) for n in gang["nodes"]] == [
        ("10.123.0.1", 2),
        ("10.123.0.2", 2),
    ]


def test_a_rank_of_node_0_fails(two: Nodes) -> None:
    code = "[ $RANK = 0 ] && sleep 0.3 && exit 7; exec sleep 3000"
    done = ends(both(two, "-n", "1", *shell(code)))
    assert [d.code for d in done] == [7, 7]
    assert done[1].sentence == done[0].sentence
    assert "rank 0 on node 0 (10.123.0.1) failed: exit status 7; 1 other rank was" in done[0].err


def test_all_nodes_start_again(two: Nodes) -> None:
    code = "echo try $TORCHELASTIC_RESTART_COUNT; [ $RANK$TORCHELASTIC_RESTART_COUNT = 10 ] && exit 9; exit 0"
    done = ends(both(two, "-n", "1", "--restarts", "2", "--json", *shell(code)))
    assert [d.code for d in done] == [0, 0]
    attempts = done[0].gang["attempts"]
    assert [a["first"] for a in attempts] == [1, None]
    assert "[0] try 1" in done[0].err and "[1] try 1" in done[1].err


def test_a_program_that_only_one_node_lacks(two: Nodes) -> None:
    there = two.launch(0, "-n", "1", *shell("exec sleep 3000"))
    done = ends([there, two.launch(1, "-n", "1", "--", "no-such-program")])
    assert [d.code for d in done] == [1, 3]
    assert all("cannot start 'no-such-program'" in d.err for d in done)
    assert done[0].sentence.startswith("node 1: cannot start")


@pytest.mark.parametrize("who", [0, 1])
def test_sigterm_to_either_ends_all(two: Nodes, who: int) -> None:
    code = "trap 'echo got; exit 5' TERM; echo up; while :; do sleep 0.05; done"
    launchers = [two.launch(k, "-n", "1", *shell(code)) for k in (0, 1)]
    for p in launchers:
        assert p.stdout is not None and p.stdout.readline().endswith("up\n")
    launchers[who].terminate()
    done = ends(launchers)
    assert [d.code for d in done] == [143, 143]
    assert [d.out for d in done] == ["[0] got\n", "[1] got\n"]
    assert all("ended by signal 15" in d.err for d in done)


def test_a_second_signal_ends_all_at_once(two: Nodes) -> None:
    code = "trap 'echo told' TERM; echo up; while :; do sleep 0.05; done"
    launchers = [two.launch(k, "-n", "1", "--grace", "600", *shell(code)) for k in (0, 1)]
    for p in launchers:
        assert p.stdout is not None and p.stdout.readline().endswith("up\n")
    launchers[0].terminate()
    for p in launchers:
        assert p.stdout is not None and p.stdout.readline().endswith("told\n")
    assert [p.poll() for p in launchers] == [None, None]
    launchers[0].terminate()
    assert [d.code for d in ends(launchers)] == [143, 143]
    wait_for(lambda: not processes_with(two.mark))


def test_those_who_only_hold_a_place_keep_no_node_out(two: Nodes) -> None:
    leader = two.launch(0, "-n", "1", *shell("echo up"))
    code = """
import socket, time
held = []
while len(held) < 40:
    try:
        held.append(socket.create_connection(("10.123.0.1", 29400), 5))
    except ConnectionRefusedError:
        time.sleep(0.05)
held[0].sendall(b"GET / HTTP/1.1\\r\\n\\r\\n")
print("held", flush=True)
time.sleep(3000)
"""
    holder = two.start(1, PYTHON, "-c", code)
    assert holder.stdout is not None and holder.stdout.readline() == "held\n"
    done = ends([leader, two.launch(1, "-n", "1", *shell("echo up"))])
    assert [d.out for d in done] == ["[0] up\n", "[1] up\n"]


@pytest.mark.parametrize("who", [0, 1])
def test_a_launcher_is_killed(two: Nodes, who: int) -> None:
    code = "echo up; sleep 300 & sleep 300"
    launchers = [two.launch(k, "-n", "2", *shell(code)) for k in (0, 1)]
    for p in launchers:
        assert p.stdout is not None and p.stdout.readline().endswith("up\n")
    killed = time.monotonic()
    launchers[who].kill()
    (other,) = ends(launchers[1 - who : 2 - who])
    print(f"noticed after {time.monotonic() - killed:.2f} s")
    assert other.code == 1
    lost = "node 1 (10.123.0.2" if who else "node 1 lost its leader, node 0 at 10.123.0.1:29400"
    assert lost in other.err and "its launcher ended" in other.err
    wait_for(lambda: not processes_with(two.mark))  # no orphan in any namespace


def test_the_network_is_cut(two: Nodes, tmp_path: Path) -> None:
    code = "echo up; exec sleep 300"
    launchers = [
        two.launch(k, "-n", "1", "--log-dir", tmp_path / str(k), *shell(code)) for k in (0, 1)
    ]
    for p in launchers:
        assert p.stdout is not None and p.stdout.readline().endswith("up\n")
    cut = time.monotonic()
    two.cut(1)
    done = ends(launchers, timeout=60)
    print(f"noticed after {time.monotonic() - cut:.2f} s")
    assert [d.code for d in done] == [1, 1]
    assert "node 1 (10.123.0.2" in done[0].err and "was lost: nothing was heard" in done[0].err
    assert "node 1 lost its leader, node 0 at 10.123.0.1:29400: nothing was heard" in done[1].err
    told = json.loads((tmp_path / "0/gang.json").read_text())["attempts"][0]["noticed_us"]
    assert 2_500_000 <= told < 20_000_000  # since the last word of it
    wait_for(lambda: not processes_with(two.mark))


def test_a_hang_is_one_of_all_nodes(two: Nodes, tmp_path: Path) -> None:
    """Node 1 sleeps while node 0 works: no hang. Then both sleep: one."""
    code = """
if RANK == 0:
    end = time.monotonic() + 2.5
    while time.monotonic() < end: pass
    print("worked", flush=True)
time.sleep(300)
"""
    launchers = [
        two.launch(k, "-n", "1", "--hang", "1s", "--log-dir", tmp_path / str(k), *python(code))
        for k in (0, 1)
    ]
    done = ends(launchers, timeout=60)
    assert done[0].out == "[0] worked\n"
    assert all("hang: nothing moved" in d.err for d in done)
    assert (tmp_path / "1/rank-1/stack.txt").read_text() != ""
    gang = json.loads((tmp_path / "0/gang.json").read_text())
    assert gang["class"] == "hang"


def test_the_key_is_not_the_ranks(two: Nodes) -> None:
    echo = shell('echo "key=$STOKER_GANG_KEY"')
    assert [d.out for d in ends(both(two, "-n", "1", *echo))] == ["[0] key=\n", "[1] key=\n"]


# --- torch ---


@pytest.mark.torch
def test_all_reduce_over_nodes(two: Nodes) -> None:
    pytest.importorskip("torch")
    code = """
import torch, torch.distributed as dist
dist.init_process_group("gloo")
x = torch.tensor([float(RANK + 1)])
dist.all_reduce(x)
print(dist.get_world_size(), int(x.item()))
dist.destroy_process_group()
"""
    launchers = [two.launch(k, "-n", "2", *python(code)) for k in (0, 1)]
    done = ends(launchers, timeout=120)
    lines = sorted(line for d in done for line in d.out.splitlines())
    assert lines == [f"[{k}] 4 10" for k in range(4)]


DUMP = """
import json, os, sys
text = json.dumps(dict(os.environ))
open(os.path.join(sys.argv[1], os.environ["RANK"]), "w").write(text)
"""


@pytest.mark.torch
def test_variables_are_torchruns(two: Nodes, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    file = tmp_path / "dump.py"
    file.write_text(DUMP)
    (tmp_path / "theirs").mkdir()
    (tmp_path / "ours").mkdir()
    torchrun = Path(PYTHON).with_name("torchrun")
    static = ("--nnodes", "2", "--nproc-per-node", "2", "--master-addr", "10.123.0.1")
    theirs = [
        two.start(
            *(k, torchrun, *static, "--node-rank", str(k), "--master-port", "29577"),
            *(file, tmp_path / "theirs"),
        )
        for k in (0, 1)
    ]
    assert [d.code for d in ends(theirs, timeout=120)] == [0, 0]
    words = ("-n", "2", "--port", "29578", "--log-dir", tmp_path / "logs", "--", PYTHON, file)
    ours = [two.launch(k, *words, tmp_path / "ours") for k in (0, 1)]
    assert [d.code for d in ends(ours, timeout=120)] == [0, 0]
    own = (
        *("STOKER_RANK_DIR", "NODE_RANK", "PYTHONUNBUFFERED", "PYTHONFAULTHANDLER"),
        *("TORCH_FR_DUMP_TEMP_FILE", "TORCH_NCCL_DEBUG_INFO_PIPE_FILE"),
        "GLOO_SOCKET_IFNAME",  # Gloo would take the address of the host's own name, which may be 127.0.1.1
    )
    differ = ("MASTER_PORT", "TORCHELASTIC_ERROR_FILE", "OMP_NUM_THREADS", "TORCHELASTIC_RUN_ID")
    for rank in range(4):
        a = json.loads((tmp_path / f"theirs/{rank}").read_text())
        b = json.loads((tmp_path / f"ours/{rank}").read_text())
        assert a.pop("TORCHELASTIC_USE_AGENT_STORE") == "True"
        assert b["NODE_RANK"] == str(rank // 2)
        for name in own:
            assert name not in a and b.pop(name)
        for name in differ:
            assert a.pop(name) and b.pop(name)
        assert a == b
