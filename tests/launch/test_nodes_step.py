"""Gangs on nodes that the launcher starts itself, from a list: in a shell, as a step's command, as a Python step."""

from __future__ import annotations

import json
import os
import re
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from launch_tools import PYTHON, ROOT, WAIT_S, binary, processes_with, python, shell, wait_for
from node_tools import Nodes, ends, skip_without

pytestmark = skip_without


@pytest.fixture
def two(tmp_path: Path) -> Iterator[Nodes]:
    nodes = Nodes(2)
    yield nodes
    nodes.close()


def listed(nodes: Nodes, folder: Path) -> dict[str, str]:
    """The variable that names a list of these nodes, seen from node 0."""
    lines = [f"{nodes.address(0)}   # this machine"]
    lines += [f"ws{k} ip netns exec {name}" for k, name in enumerate(nodes.names) if k > 0]
    (folder / "nodes").write_text("\n".join(lines) + "\n")
    return {"STOKER_NODES": str(folder / "nodes")}


# --- from a shell ---


def test_the_others_are_started_from_a_list(two: Nodes, tmp_path: Path) -> None:
    words = ("--nnodes", "2", "-n", "2", *shell('echo "$RANK $NODE_RANK $A$STOKER_GANG_KEY"; pwd'))
    odd = 'it\'s "odd"\nand long'  # what a shell's script must not trip over
    p = two.start(0, binary(), "launch", *words, **(listed(two, tmp_path) | {"A": odd}))
    (done,) = ends([p])
    assert done.code == 0 and done.err == ""
    said = [f"[{k}] {k} {k // 2} {odd.splitlines()[0]}" for k in range(4)]
    assert sorted(line for line in done.out.splitlines() if "odd" in line) == said
    assert sum(line.endswith(os.getcwd()) for line in done.out.splitlines()) == 4


def test_nodes_by_something_like_ssh(two: Nodes, tmp_path: Path) -> None:
    """It passes on no variables and no signals; and the leader is killed."""
    path = os.environ["PATH"]
    (tmp_path / "nodes").write_text(
        f"10.123.0.1\nws1 env -i PATH={path} setsid -w ip netns exec {two.names[1]}\n"
    )
    words = ("--nnodes", "2", "-n", "1", *shell("echo up $A; sleep 300 & sleep 300"))
    env = {"STOKER_NODES": str(tmp_path / "nodes"), "A": "there"}
    p = two.start(0, binary(), "launch", *words, **env)
    assert p.stdout is not None
    assert sorted(p.stdout.readline() for _ in range(2)) == ["[0] up there\n", "[1] up there\n"]
    p.kill()
    wait_for(lambda: not processes_with(two.mark))


def test_a_failure_there_is_told_once(two: Nodes, tmp_path: Path) -> None:
    code = "[ $RANK = 1 ] && sleep 0.3 && exit 7; exec sleep 3000"
    words = ("--nnodes", "2", "-n", "1", *shell(code))
    (done,) = ends([two.start(0, binary(), "launch", *words, **listed(two, tmp_path))])
    assert done.code == 7
    assert done.err.count("rank 1 on node 1 (10.123.0.2") == 1
    assert done.sentence.endswith("failed: exit status 7; 1 other rank was ended because of it")


def test_what_cannot_be_started_is_named(two: Nodes, tmp_path: Path) -> None:
    (tmp_path / "nodes").write_text("10.123.0.1\nws1 ip netns exec no-such-place\n")
    words = ("--nnodes", "2", "-n", "1", *shell("echo never"))
    env = {"STOKER_NODES": str(tmp_path / "nodes")}
    began = time.monotonic()
    (done,) = ends([two.start(0, binary(), "launch", *words, **env)])
    assert done.code == 3 and done.out == "" and time.monotonic() - began < 100
    assert "node 1 (ws1) could not be started: its program ended with exit status" in done.err
    assert "no-such-place" in done.err  # its own words


def test_no_list_is_said(two: Nodes, tmp_path: Path) -> None:
    words = ("--nnodes", "2", "-n", "1", *shell("echo never"))
    p = two.start(0, binary(), "launch", *words, STOKER_NODES=str(tmp_path / "none"))
    (done,) = ends([p])
    assert done.code == 3
    assert (
        f"2 nodes are requested, but {tmp_path}/none names only 0 besides this machine" in done.err
    )


@pytest.mark.parametrize("number", ["TERM", "KILL"])
def test_the_end_of_the_leader_is_everybodys(two: Nodes, tmp_path: Path, number: str) -> None:
    words = ("--nnodes", "2", "-n", "2", *shell("echo up; sleep 300 & sleep 300"))
    p = two.start(0, binary(), "launch", *words, **listed(two, tmp_path))
    assert p.stdout is not None
    assert sorted(p.stdout.readline() for _ in range(4)) == [f"[{k}] up\n" for k in range(4)]
    subprocess.run(["kill", f"-{number}", str(p.pid)], check=True)
    assert p.wait(WAIT_S) == (143 if number == "TERM" else -9)
    wait_for(lambda: not processes_with(two.mark))


# --- as another backend does it ---


def backends(
    nodes: Nodes, folder: Path, code: str, kind: str = "command", restarts: int = 0, n: int = 2
) -> list[Any]:
    """The job's program on each node, with folders of their own, nothing shared; `n` 1: with one."""
    task = {
        **{"stoker": 1, "run": "20260101-000000-test", "pipeline": "p", "step": "a", "task": 0},
        **{"attempt": 1, "kind": kind, "command": [], "granted": {}},
        "gang": {
            **{"ranks": 2, "min_ranks": 2, "restarts": restarts, "nodes": 2, "port": None},
            **{"hang_ms": 0, "grace_ms": 5000, "notice_ms": 0, "devices_per_rank": 0},
        },
    }
    launchers = []
    for k in (0, 1):
        here = folder / str(k % n)
        here.mkdir(exist_ok=True)
        (here / "task.json").write_text(json.dumps(task))
        variables = {
            "STOKER_GANG_NODE": str(k),
            "STOKER_GANG_RDZV": f"{nodes.address(0)}:29401",
            "STOKER_GANG_KEY": nodes.mark,
        }
        words = ("launch", "--gang", here / "task.json", *shell(code))
        launchers.append(nodes.start(k, binary(), *words, **variables))
    return ends(launchers)


def test_the_contract_of_backends(two: Nodes, tmp_path: Path) -> None:
    """The job's program on each node with three variables, attempt directories of their own, nothing shared."""
    code = "echo $RANK; [ $RANK = 3 ] && echo bad >&2 && exit 9; exec sleep 3000"
    done = backends(two, tmp_path, code)
    assert [d.code for d in done] == [9, 9]
    files = sorted(str(p.relative_to(tmp_path)) for p in tmp_path.glob("*/*"))
    assert files == [
        *("0/gang.json", "0/rank-0", "0/rank-1", "0/result.json", "0/task.json"),
        *("1/rank-2", "1/rank-3", "1/task.json"),
    ]
    error = json.loads((tmp_path / "0/result.json").read_text())["error"]
    assert error["class"] == "exit"
    assert error["message"].startswith("rank 3 on node 1 (10.123.0.2, ")
    everything = "".join(d.out + d.err for d in done) + "".join(
        p.read_text() for p in tmp_path.rglob("*") if p.is_file()
    )
    assert two.mark not in everything  # the key is nowhere


# --- steps ---


class On:
    """`stoker run` on node 0."""

    def __init__(self, nodes: Nodes, folder: Path) -> None:
        self.nodes, self.folder, self.env = nodes, folder, listed(nodes, folder)
        self.env |= {"STOKER_STORE": str(folder / ".stoker"), "STOKER_BIN": str(binary())}
        self.env |= {"PYTHONPATH": f"{ROOT / 'python'}:{folder}", "HOME": str(folder)}

    def run(self, *words: str | Path) -> tuple[int, dict[str, Any]]:
        p = self.nodes.start(0, *words, **self.env)
        (done,) = ends([p], timeout=120)
        shown = subprocess.run(
            [binary(), "show", "latest", "--json"],
            env=os.environ | self.env,
            capture_output=True,
            text=True,
            check=True,
        )
        answer: dict[str, Any] = json.loads(shown.stdout)["steps"]
        return done.code, answer

    def document(self, steps: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        file = self.folder / "p.json"
        file.write_text(json.dumps({"stoker": 1, "name": "p", "steps": steps}))
        return self.run(binary(), "run", file)


@pytest.fixture
def on(two: Nodes, tmp_path: Path) -> On:
    return On(two, tmp_path)


def test_a_step_on_two_nodes(on: On) -> None:
    code = "echo $RANK of $WORLD_SIZE on $NODE_RANK; [ $RANK = 0 ] && echo hello > $STOKER_OUTPUT/x; true"
    gang = {"nodes": 2, "ranks": 2}
    code_, steps = on.document({"a": {"run": code, "gang": gang, "outputs": ["x"]}})
    assert code_ == 0
    folder = Path(steps["a"]["dir"])
    out = (folder / "stdout.log").read_text().splitlines()
    assert sorted(out) == [f"[{k}] {k} of 4 on {k // 2}" for k in range(4)]
    assert (folder / "rank-3/stdout.log").read_text() == "3 of 4 on 1\n"
    assert Path(steps["a"]["outputs"]["x"]["path"]).read_text() == "hello\n"
    seen = json.loads((folder / "gang.json").read_text())
    assert [n["ranks"] for n in seen["nodes"]] == [2, 2] and len(
        seen["attempts"][0]["members"]
    ) == 4


def test_a_step_names_the_rank_of_the_other_node(on: On) -> None:
    words = python("if RANK == 1: raise ValueError('boom')\ntime.sleep(3000)")[1:]
    code, steps = on.document({"a": {"run": words, "gang": {"nodes": 2, "ranks": 1}}})
    error = steps["a"]["error"]
    assert code == 1 and error["class"] == "exit"
    assert error["cause"].startswith("rank 1 on node 1 (10.123.0.2, ")
    assert "failed: exit status 1 (ValueError: boom); 1 other rank was" in error["cause"]
    assert error["traceback"].endswith("ValueError: boom")


def test_a_lost_node_is_the_steps_error_and_tried_again(on: On) -> None:
    """The first attempt disconnects node 1; failures of class lost have separate retries."""
    cut = f"ip netns exec {on.nodes.hub} ip link set v1 down"
    code = f"[ $STOKER_ATTEMPT = 1 ] || exit 0; [ $RANK = 0 ] || {cut}; exec sleep 3000"
    result: Path | None = None

    def mend() -> None:
        nonlocal result
        result = wait_for(lambda: next(on.folder.glob(".stoker/runs/*/a/0/1/result.json"), None))
        on.nodes.inside(on.nodes.hub, *["ip", "link", "set", "v1", "up"])

    mending = threading.Thread(target=mend)
    mending.start()
    exit_code, steps = on.document({"a": {"run": code, "gang": {"nodes": 2, "ranks": 1}}})
    mending.join()
    assert exit_code == 0 and steps["a"]["attempts"] == 2 and result is not None
    said = json.loads(result.read_text())["error"]
    assert said["class"] == "lost" and "was lost: nothing was heard from it" in said["message"]


def devices(on: On, *uuids: str) -> None:
    listing = [{"uuid": uuid, "memory_bytes": 1 << 33} for uuid in uuids]
    (on.folder / "devices.json").write_text(json.dumps(listing))
    on.env["STOKER_ACCEL"] = f"fake:{on.folder / 'devices.json'}"
    on.env["STOKER_LEASE_DIR"] = str(on.folder / "leases")


def test_each_node_leases_its_own_devices(on: On) -> None:
    """Both nodes are this host, so they must not get the same devices."""
    devices(on, "GPU-a", "GPU-b", "GPU-c", "GPU-d")
    step = {"run": "echo $CUDA_VISIBLE_DEVICES", "resources": {"gpu_count": 2}}
    code, steps = on.document({"a": step | {"gang": {"nodes": 2, "ranks": "gpus"}}})
    lines = sorted((Path(steps["a"]["dir"]) / "stdout.log").read_text().splitlines())
    assert code == 0
    assert lines == ["[0] GPU-a,GPU-b", "[1] GPU-a,GPU-b", "[2] GPU-c,GPU-d", "[3] GPU-c,GPU-d"]


def test_a_node_without_enough_devices(on: On) -> None:
    devices(on, "GPU-a", "GPU-b", "GPU-c")
    step = {"run": "echo never", "resources": {"gpu_count": 2}}
    code, steps = on.document({"a": step | {"gang": {"nodes": 2, "ranks": "gpus"}}})
    error = steps["a"]["error"]
    assert code == 1 and "node 1 (ws1) could not be started" in error["cause"]
    log = (Path(steps["a"]["dir"]) / "stderr.log").read_text()
    assert "2 devices of this machine are requested, but only 1 of its 3 are free" in log
    assert "never" not in (Path(steps["a"]["dir"]) / "stdout.log").read_text()


def test_more_nodes_than_there_are(on: On) -> None:
    file = on.folder / "p.json"
    steps = {"a": {"run": "true", "gang": {"nodes": 3, "ranks": 1}}}
    file.write_text(json.dumps({"stoker": 1, "name": "p", "steps": steps}))
    (done,) = ends([on.nodes.start(0, binary(), "run", file, **on.env)])
    assert done.code != 0
    assert (
        "step 'a': gang.nodes 3 is more than the 2 that the local backend has; lower it" in done.err
    )
    assert str(on.folder / "nodes") in done.err


PROGRAM = """
from stoker import pipeline, step, torchrun
import os

@torchrun(nnodes=2, nproc_per_node=2, all_ranks=True)
@step
def train(base: int) -> list:
    if os.environ.get("FAIL") == os.environ["RANK"]:
        raise ValueError("boom")
    return [base + int(os.environ["RANK"]), os.environ["NODE_RANK"], os.environ.get("STOKER_GANG_KEY")]

@pipeline
def training():
    train(10)

if __name__ == "__main__":
    training()
"""


def test_a_python_step_on_two_nodes(on: On) -> None:
    (on.folder / "prog.py").write_text(PROGRAM)
    code, steps = on.run(PYTHON, on.folder / "prog.py")
    assert code == 0
    value = steps["train"]["outputs"]["output"]["value"]
    assert value == [[10, "0", None], [11, "0", None], [12, "1", None], [13, "1", None]]


def test_a_python_steps_error_on_the_other_node(on: On) -> None:
    (on.folder / "prog.py").write_text(PROGRAM)
    on.env["FAIL"] = "3"
    code, steps = on.run(PYTHON, on.folder / "prog.py")
    error = steps["train"]["error"]
    assert code == 1 and error["class"] == "exception"
    assert re.match(r"ValueError: rank 3 of 4: boom; \d other ranks? w", error["cause"])
    assert "ValueError: boom" in error["traceback"]


def test_a_failure_of_an_earlier_start_is_not_told(two: Nodes, tmp_path: Path) -> None:
    """The rank that raised at the first start is killed at the second: its error isn't the cause."""
    said = '{"status":"failed","error":{"class":"exception","type":"ValueError","message":"once"}}'
    code = (
        "[ $RANK = 3 ] || exec sleep 3000;"
        f" [ $TORCHELASTIC_RESTART_COUNT = 0 ] || kill -9 $$; echo '{said}' >$STOKER_RANK_DIR/result.json;"
        " exit 1"
    )
    backends(two, tmp_path, code, "python", restarts=1)
    error = json.loads((tmp_path / "0/result.json").read_text())["error"]
    assert "once" not in json.dumps(error) and "SIGKILL" in error["message"], error


def test_a_long_report_in_a_shared_folder_is_kept(two: Nodes, tmp_path: Path) -> None:
    """It is longer than what nodes tell each other."""
    said = '{"status":"failed","error":{"class":"exception","type":"ValueError","message":"long"}}'
    code = (
        "[ $RANK = 3 ] || exec sleep 3000;"
        f" {{ echo '{said}'; head -c 2000000 /dev/zero | tr '\\0' ' '; }} >$STOKER_RANK_DIR/result.json;"
        " exit 1"
    )
    backends(two, tmp_path, code, "python", n=1)
    assert (tmp_path / "0/rank-3/result.json").stat().st_size > 2_000_000
    error = json.loads((tmp_path / "0/result.json").read_text())["error"]
    assert error["class"] == "exception" and "long" in error["message"], error
