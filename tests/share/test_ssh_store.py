"""`stoker share` on a folder of a host that only ssh reaches: a real sshd, links that are cut, disks that fill up."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Iterator

import pytest
from share_tools import MIB, Tool, write_random
from ssh_hosts import USERS, Host, Lab
from waiting import wait_for

URL = "ssh://gpu1/~/store"
STORE = "/home/ann/store"
LARGE = 256 * MIB
WINDOW = 8 * MIB  # what may be on its way at once (share_ssh_files.c)


@pytest.fixture
def tool(tmp_path: Path, lab: Lab) -> Tool:
    return Tool(tmp_path, lab.user.env(STOKER_SYNC="0"))


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_random(tmp_path_factory.mktemp("large") / "file", LARGE)


@pytest.fixture
def stopped(lab: Lab) -> Iterator[None]:
    yield
    lab["gpu1"].mend()


def children(pid: int) -> list[int]:
    return [int(p) for t in Path(f"/proc/{pid}/task").iterdir() for p in (t / "children").read_text().split()]  # fmt: skip


def sent(lab: Lab, host: Host, way: str) -> int:
    """Bytes that came out of the switch to the host ("tx"), or in from it ("rx")."""
    card = json.loads(lab.in_switch("ip", "-j", "-s", "link", "show", "dev", host.card))[0]
    return int(card["stats64"][way]["bytes"])


def arrived(host: Host) -> int:
    """How far the largest file is that is being written there."""
    folder = host.path(f"{STORE}/.tmp")
    return max((p.stat().st_size for p in folder.iterdir()), default=0) if folder.is_dir() else 0


# --- what it does ---


def test_objects_and_artifacts(tool: Tool, lab: Lab) -> None:
    assert "can be written" in tool("share", "check", URL)
    folder = tool.folder / "in"
    folder.mkdir()
    write_random(folder / "large", 17 * MIB + 1)
    (folder / "run").write_text("#!")
    (folder / "run").chmod(0o755)
    for i in range(50):
        (folder / f"small{i}").write_text(f"{i}")
    digest = tool.add(tool.folder / "here", folder)
    tool("share", "push", URL, digest, STOKER_STORE=str(tool.folder / "here"))
    tool("share", "pull", URL, digest, STOKER_STORE=str(tool.folder / "there"))
    back = tool.content(tool.folder / "there", digest)
    assert subprocess.run(["diff", "-r", folder, back]).returncode == 0
    assert os.access(back / "run", os.X_OK)
    there = lab["gpu1"].path(STORE)
    assert len(list((there / "artifacts").rglob("*.tree"))) == 1
    assert not list((there / ".tmp").iterdir())
    assert {p.stat().st_uid for p in there.rglob("*")} == {USERS["ann"]}
    assert tool("share", "ls", URL, "artifacts/").count("\n") == 53
    assert "its objects have no URL" in tool.fails("share", "link", URL, "k")
    tool("share", "rm", URL, "artifacts/")
    assert tool("share", "ls", URL) == ""


def test_looked_at(tool: Tool, lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> None:
    """`stoker runs` and `stoker ui` show what the host has of runs, also what comes meanwhile."""
    share = tmp_path_factory.mktemp("shared") / "share"
    stack = {"backend": "kubernetes", "store": str(share), "default_image": "127.0.0.1:1/img:1"}
    steps = {
        "here": {"run": "exit 3", "backend": "local"},
        "away": {"run": "true", "after": ["here"]},
    }
    (tool.folder / "stoker.yaml").write_text(json.dumps({"stacks": {"prod": stack}}))
    (tool.folder / "p.json").write_text(json.dumps({"stoker": 1, "name": "p", "steps": steps}))

    def run() -> str:
        done = tool.run("run", "--stack", "prod", "p.json", STOKER_REMOTE_FAKE=str(tool.folder))
        assert done.returncode == 1, done.stderr
        newest = str(max(path.name for path in (share / "runs").iterdir()))
        for file in (share / "runs" / newest).rglob("*"):
            if file.is_file():
                tool("share", "put", URL, str(file.relative_to(share)), str(file))
        return newest

    first = run()
    (listed,) = json.loads(tool("runs", "--store", URL, "--json"))
    assert (listed["run"], listed["status"]) == (first, "failed")
    server = tool.start("ui", "--json", "--store", URL)
    try:
        assert server.stdout is not None
        base, token = json.loads(server.stdout.readline())["url"].split("?token=")

        def shows(text: str) -> bool:
            ask = urllib.request.Request(
                base + "runs", headers={"Authorization": f"Bearer {token}"}
            )
            with urllib.request.urlopen(ask) as answer:
                return text in answer.read().decode()

        wait_for(lambda: shows(first) and shows(f"A copy of <code>{URL}"), why="it isn't shown")
        second = run()
        wait_for(lambda: shows(second), why="it isn't followed")
    finally:
        server.terminate()
        server.communicate(timeout=60)


def test_an_absolute_folder_with_a_port_and_a_user(tool: Tool, lab: Lab) -> None:
    url = "ssh://ben@gpu1:22/home/ben/a store"
    (tool.folder / "in").write_text("x")
    tool("share", "put", url, "a/k", "in")
    assert (lab["gpu1"].path("/home/ben/a store") / "a/k").read_text() == "x"


def test_one_of_many_creates(tool: Tool, lab: Lab) -> None:
    tool("share", "check", URL)
    for i in range(6):
        (tool.folder / f"in{i}").write_text(f"of {i}")
    for k in range(3):
        with ThreadPoolExecutor(6) as pool:
            put = ("share", "put", "--new", URL, f"log/{k}")
            done = list(pool.map(lambda i, put=put: tool.run(*put, f"in{i}"), range(6)))
        won = [i for i, d in enumerate(done) if d.returncode == 0]
        assert len(won) == 1, done
        assert (lab["gpu1"].path(STORE) / f"log/{k}").read_text() == f"of {won[0]}"
        assert all("already" in d.stderr for i, d in enumerate(done) if i != won[0])


def test_the_first_contacts_at_once(tool: Tool, lab: Lab) -> None:
    """All bring the program, and none is in another's way."""
    with ThreadPoolExecutor(6) as pool:
        done = list(pool.map(lambda i: tool.run("share", "check", URL), range(6)))
    assert all(d.returncode == 0 for d in done), done
    far = lab["gpu1"].path("/home/ann/.cache/stoker/far")
    assert len(list(far.iterdir())) == 1
    assert sorted(p.name for p in next(far.iterdir()).iterdir()) == ["bin", "ca.pem", "python"]


def test_a_shell_that_greets(tool: Tool, lab: Lab) -> None:
    bashrc = lab["gpu1"].path("/home/ann/.bashrc")
    bashrc.write_text("seq 3000; echo stoker >&2; printf 'last words: '\n")
    assert "can be written" in tool("share", "check", URL)


# --- cut and gone on with ---


def begin_push(tool: Tool, digest: str) -> subprocess.Popen[bytes]:
    return tool.start("share", "push", URL, digest, STOKER_STORE=str(tool.folder / "here"))


def test_a_killed_push_goes_on(tool: Tool, lab: Lab, large: Path) -> None:
    host = lab["gpu1"]
    tool("share", "check", URL)
    digest = tool.add(tool.folder / "here", large)
    process = begin_push(tool, digest)
    wait_for(lambda: arrived(host) > LARGE // 3)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    had = arrived(host)
    assert LARGE // 3 < had < LARGE
    before = sent(lab, host, "tx")
    tool("share", "push", URL, digest, STOKER_STORE=str(tool.folder / "here"))
    again = sent(lab, host, "tx") - before - (LARGE - had)
    print(f"{had >> 20} of {LARGE >> 20} MiB were there; {again / MIB:.1f} MiB were sent again")
    assert again < WINDOW + 8 * MIB
    key = f"artifacts/{digest[:2]}/{digest[2:]}"
    there = host.path(f"{STORE}/{key}")
    assert subprocess.run(["cmp", large, there]).returncode == 0
    assert not list(host.path(f"{STORE}/.tmp").iterdir())


def test_a_killed_pull_goes_on(tool: Tool, lab: Lab, large: Path) -> None:
    host = lab["gpu1"]
    digest = tool.add(tool.folder / "here", large)
    tool("share", "push", URL, digest, STOKER_STORE=str(tool.folder / "here"))
    there = tool.folder / "there"
    part = there / f"tmp/pull-{digest}/data"
    process = tool.start("share", "pull", URL, digest, STOKER_STORE=str(there))
    wait_for(lambda: part.exists() and part.stat().st_size > LARGE // 3)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    had = part.stat().st_size
    assert LARGE // 3 < had < LARGE
    before = sent(lab, host, "rx")
    tool("share", "pull", URL, digest, STOKER_STORE=str(there))
    again = sent(lab, host, "rx") - before - (LARGE - had)
    print(f"{had >> 20} of {LARGE >> 20} MiB were here; {again / MIB:.1f} MiB were sent again")
    assert again < WINDOW + 8 * MIB
    assert subprocess.run(["cmp", large, tool.content(there, digest)]).returncode == 0


def test_a_cable_that_is_pulled(tool: Tool, lab: Lab, large: Path, stopped: None) -> None:
    """ssh notices, and the push goes on by a new connection, once there is one."""
    host = lab["gpu1"]
    tool("share", "check", URL)
    digest = tool.add(tool.folder / "here", large)
    before = sent(lab, host, "tx")
    process = begin_push(tool, digest)
    wait_for(lambda: arrived(host) > LARGE // 3)
    host.cut()
    first = children(process.pid)
    wait_for(lambda: process.poll() is not None or not set(first) & set(children(process.pid)))
    assert process.poll() is None, process.communicate()
    host.mend()
    _out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    more = sent(lab, host, "tx") - before - LARGE
    print(f"{more / MIB:.1f} MiB more than {LARGE >> 20} were sent")
    assert more < WINDOW + 24 * MIB  # and what was lost with the cable
    key = f"artifacts/{digest[:2]}/{digest[2:]}"
    assert subprocess.run(["cmp", large, host.path(f"{STORE}/{key}")]).returncode == 0


def test_a_host_that_reboots(tool: Tool, lab: Lab, large: Path) -> None:
    """What it has of the file may be rubbish by then: it is summed before it counts."""
    host = lab["gpu1"]
    tool("share", "check", URL)
    digest = tool.add(tool.folder / "here", large)
    process = begin_push(tool, digest)
    wait_for(lambda: arrived(host) > LARGE // 3)
    host.halt()
    (part,) = host.path(f"{STORE}/.tmp").iterdir()
    with part.open("r+b") as file:
        file.write(bytes(MIB))  # the disk hadn't got it yet
    host.boot()
    _out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    key = f"artifacts/{digest[:2]}/{digest[2:]}"
    assert subprocess.run(["cmp", large, host.path(f"{STORE}/{key}")]).returncode == 0


# --- what is wrong there ---


def test_full(tool: Tool, lab: Lab, large: Path) -> None:
    host = lab["gpu1"]
    tool("share", "check", URL)
    digest = tool.add(tool.folder / "here", large)
    host.fill_disk(left=64 * MIB)
    words = ("share", "push", URL, digest)
    said = tool.fails(*words, STOKER_STORE=str(tool.folder / "here"))
    assert re.search(
        rf"store '{URL}' is full: 'artifacts/.*' needs 268 MB, and [1-9].* MB are free", said
    )
    assert not list(host.path(f"{STORE}/.tmp").iterdir())  # it doesn't keep the room
    host.empty_disk()
    tool(*words, STOKER_STORE=str(tool.folder / "here"))


def test_no_room_for_the_program(tool: Tool, lab: Lab) -> None:
    lab["gpu1"].fill_disk(left=4 * MIB)
    said = tool.fails("share", "check", URL)
    assert "'gpu1' has no room for Stoker" in said
    assert not list(lab["gpu1"].path("/home/ann/.cache/stoker/far").iterdir())
    lab["gpu1"].empty_disk()
    tool("share", "check", URL)


def test_folders_that_are_not_ours(tool: Tool, lab: Lab) -> None:
    host = lab["gpu1"]
    tool("share", "check", URL)
    host.run("mkdir", "-m", "700", "private", user="ben")
    for url, why in (
        ("ssh://gpu1/home/ben/private/store", "Permission denied"),
        ("ssh://gpu1/etc/store", "Permission denied"),
        ("ssh://gpu1/proc/store", "No such file|Permission denied"),
    ):
        begin = time.monotonic()
        said = tool.fails("share", "check", url)
        assert f"store '{url}'" in said and re.search(why, said), said
        assert time.monotonic() - begin < 30  # nothing that could pass
    host.run("chmod", "555", STORE, STORE + "/.tmp")
    assert "Permission denied" in tool.fails("share", "check", URL)


def test_read_only(tool: Tool, lab: Lab) -> None:
    host = lab["gpu1"]
    (tool.folder / "in").write_text("x")
    tool("share", "put", URL, "k", "in")
    host._in_holder("mount", "-o", "remount,ro", "/home")
    try:
        assert "Read-only file system" in tool.fails("share", "put", URL, "k2", "in")
        tool("share", "get", URL, "k", "back")
    finally:
        host._in_holder("mount", "-o", "remount,rw", "/home")


def test_keys(tool: Tool, lab: Lab) -> None:
    stranger = lab.client("stranger", known=False)
    tool.env = stranger.env()
    said = tool.fails("share", "check", URL)
    assert "the host key of 'gpu1' isn't known here" in said and "run ssh gpu1 once" in said
    assert stranger.known.read_text() == ""  # nobody accepted it unseen
    tool.env = lab.user.env()
    tool("share", "check", URL)
    lab["gpu1"].change_key()
    said = tool.fails("share", "check", URL)
    assert "the host key of 'gpu1' has changed" in said
    assert f"{lab.user.known}:1" in said and "ask its administrator" in said


def test_checks_that_are_turned_off_are_on(tool: Tool, lab: Lab) -> None:
    stranger = lab.client("stranger", known=False)
    stranger.config.write_text("StrictHostKeyChecking no\n" + stranger.config.read_text())
    tool.env = stranger.env()
    tool("share", "check", URL)  # accepted once …
    assert "gpu1" in stranger.known.read_text() or lab["gpu1"].address in stranger.known.read_text()
    lab["gpu1"].change_key()
    assert "has changed" in tool.fails("share", "check", URL)  # … and never another one


def test_not_let_in(tool: Tool, lab: Lab) -> None:
    tool.env = lab.client("outside", key=False).env()
    said = tool.fails("share", "check", URL)
    assert "'gpu1' doesn't let us in" in said and "Permission denied (publickey)" in said


def test_no_tar(tool: Tool, lab: Lab) -> None:
    host = lab["gpu1"]
    host.run("mkdir", "bin")
    for name in ("sh", "bash", "uname", "head", "mktemp", "mkdir", "rm"):
        host.run("ln", "-s", f"/bin/{name}", f"bin/{name}")
    host.configure(PATH="/home/ann/bin")
    assert "'gpu1' has no 'tar'" in tool.fails("share", "check", URL)


def test_no_way_there(tool: Tool, lab: Lab, stopped: None) -> None:
    why = r"can't reach '10\.77\.0\.99': .*(No route to host|timed out)"
    assert re.search(why, tool.fails("share", "check", "ssh://10.77.0.99/x"))
    lab["gpu1"].cut()
    assert re.search(
        "can't reach 'gpu1': .*(timed out|No route)", tool.fails("share", "check", URL)
    )


def test_an_agent_never_goes_there(tool: Tool) -> None:
    said = tool.fails("agent", URL, "runs/r/s/0/1")
    assert f"an agent doesn't reach store '{URL}' by ssh" in said
