"""A share that is unreachable, full or read-only for a while: what waits, for how long, and the
notes."""

from __future__ import annotations

import contextlib
import http.server
import json
import os
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from cluster import Cluster
from conftest import Drive
from front_tools import cannot
from test_engine import Project, project
from waiting import wait_for

__all__ = ["project"]


def is_stopped(process: subprocess.Popen) -> bool:
    state = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[0]
    return state == "T"


def begin_and_stop_at_collecting(drive: Drive, *jobs: dict, **more: object) -> subprocess.Popen:
    process = drive.begin(
        *jobs, env={"STOKER_FAILPOINTS": "remote.collect.before:1:stop", "STOKER_SHARE_WAIT": "90"}, **more
    )  # fmt: skip
    wait_for(lambda: is_stopped(process), why="nothing was collected")
    return process


def test_a_share_that_comes_back_has_the_result(drive: Drive) -> None:
    """Away for longer than any four tries: what it has is brought all the same, and said once."""
    process = begin_and_stop_at_collecting(
        drive, drive.task("echo 5 > $STOKER_OUTPUT/x", outputs=["x"])
    )
    away = drive.share.with_name("away")
    drive.share.rename(away)
    process.send_signal(signal.SIGCONT)
    # sleeps: waits are a tenth of the usual: 20 s of it, and the first look's
    time.sleep(20 * 0.1 + 0.5)
    assert process.poll() is None
    away.rename(drive.share)
    reports = drive.finish(process)
    notes = [r["text"] for r in reports if r["kind"] == "note"]
    assert len(notes) == 1 and "can't be fetched from the share yet" in notes[0], notes
    assert "is it mounted?" in notes[0] and "retrying for 1 m 30 s" in notes[0], notes
    assert reports[-1]["ok"], reports


def test_a_share_that_stays_away(drive: Drive) -> None:
    process = drive.begin(
        drive.task("true"),
        env={"STOKER_FAILPOINTS": "remote.collect.before:1:stop", "STOKER_SHARE_WAIT": "1"},
    )
    wait_for(lambda: is_stopped(process), why="nothing was collected")
    drive.share.rename(drive.share.with_name("away"))
    process.send_signal(signal.SIGCONT)
    end = drive.finish(process)[-1]
    assert end["failure"] == "lost" and "fetch" in end["text"], end


def test_cancel_waits_for_no_share(drive: Drive, tmp_path: Path) -> None:
    process = begin_and_stop_at_collecting(
        drive, drive.task("true"), stop=[{"id": 0, "when": str(tmp_path / "now")}]
    )
    drive.share.rename(drive.share.with_name("away"))
    (tmp_path / "now").touch()
    begin = time.monotonic()
    process.send_signal(signal.SIGCONT)
    end = drive.finish(process)[-1]
    assert end["failure"] == "cancelled", end
    assert time.monotonic() - begin < 15


def test_a_store_that_never_answers(drive: Drive) -> None:
    """It takes connections and is silent: what waits for it is cancelled at once, and so is the end."""
    with socket.create_server(("127.0.0.1", 0), backlog=100) as silent:
        env = {
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{silent.getsockname()[1]}",
            "AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b", "AWS_REGION": "us-east-1",
        }  # fmt: skip
        begin = time.monotonic()
        reports = drive(
            *[drive.task("true", id=i, task=i) for i in range(60)],
            share="s3://bucket/prefix", env=env,
            stop=[{"id": i, "after_ms": 1000} for i in range(60)],
        )  # fmt: skip
        assert time.monotonic() - begin < 20
    assert [r["failure"] for r in reports if r["kind"] == "ended"] == ["cancelled"] * 60
    assert drive.cluster.history == []


class HoldsClaims(http.server.BaseHTTPRequestHandler):
    """A bucket without objects, which answers who asks for a claim only when it is told to."""

    protocol_version = "HTTP/1.1"
    asked: threading.Event
    released: threading.Event
    meanwhile: list[str]

    def do_GET(self) -> None:
        if self.path.endswith("/claim") and not self.asked.is_set():
            self.asked.set()
            self.released.wait(120)
        elif self.asked.is_set() and not self.released.is_set():
            self.meanwhile.append(self.path)
        body = b"<Error><Code>NoSuchKey</Code></Error>"
        with contextlib.suppress(OSError):
            self.send_response(404)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


def test_one_worker_at_a_time(drive: Drive, tmp_path: Path) -> None:
    """What is attached to and cancelled while the share is asked who began it: nobody else takes it."""
    HoldsClaims.asked, HoldsClaims.released = threading.Event(), threading.Event()
    HoldsClaims.meanwhile = []
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), HoldsClaims)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    env = {
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{server.server_port}",
        "AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b", "AWS_REGION": "us-east-1",
    }  # fmt: skip
    try:
        process = drive.begin(
            drive.task("true", attach=True), share="s3://bucket/prefix", env=env,
            stop=[{"id": 0, "when": str(tmp_path / "now")}],
        )  # fmt: skip
        assert HoldsClaims.asked.wait(60)
        (tmp_path / "now").touch()
        end = drive.finish(process)[-1]
        assert end["failure"] == "cancelled", end
        assert HoldsClaims.meanwhile == []
    finally:
        HoldsClaims.released.set()
        server.shutdown()


# What is made of an end.json → what is said of it.
LIES = {
    "cut": (lambda end: json.dumps(end)[:-40], "end.json"),
    "version": (lambda end: json.dumps(end | {"stoker": 2}), "has format 2"),
    "node": (lambda end: json.dumps(end | {"node": 7}), "belongs to node 7"),
    "outside": (lambda end: json.dumps(end | {"files": {"../x": {"text": "y"}}}),
                "'../x' isn't a file of the attempt directory"),
    "foreign": (lambda end: json.dumps(end | {"files": {"x": {"key": "runs/other/job.json", "size": 1}}}),
                "isn't an object of the attempt: runs/other/job.json"),
    "absent": (lambda end: json.dumps(end | {"files": {"x": {"key": "KEY/files/x", "size": 1}}}),
               "files/x' isn't in store"),
    "huge": (lambda end: "", "has more than 268435456 bytes"),
}  # fmt: skip


def test_lies_in_the_share(drive: Drive) -> None:
    """Each is refused with a sentence, and nothing of it is written."""
    tasks = [drive.task("true", step=name, id=i, task=0) for i, name in enumerate(LIES)]
    process = begin_and_stop_at_collecting(drive, *tasks)
    for name, (lie, _) in LIES.items():
        path = drive.key(name) / "end.json"
        wait_for(path.exists, why=f"{name} has no end")
        key = str(drive.key(name).relative_to(drive.share))
        path.write_text(lie(json.loads(path.read_text())).replace("KEY", key))
        if name == "huge":
            os.truncate(path, 300 << 20)
    process.send_signal(signal.SIGCONT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    reports = [json.loads(line) for line in out.splitlines()]
    ends = {r["id"]: r for r in reports if r["kind"] == "ended"}
    for i, (name, (_, said)) in enumerate(LIES.items()):
        assert ends[i]["failure"] == "lost" and said in ends[i]["text"], (name, ends[i])
        assert not list(drive.dir(name).parent.glob("x")) and not (drive.dir(name) / "x").exists()


class Full:
    """A share on a file system of its own, of 4 MiB."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()
        done = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "full", folder])
        if done.returncode != 0:
            cannot("this machine lets nobody mount a file system")

    def fill(self) -> None:
        fd = os.open(self.folder / "ballast", os.O_WRONLY | os.O_CREAT)
        with contextlib.suppress(OSError):
            while True:
                os.write(fd, bytes(4096))
        os.close(fd)

    def make_room(self) -> None:
        (self.folder / "ballast").unlink()

    def close(self) -> None:
        subprocess.run(["umount", "-l", self.folder])


@pytest.fixture
def full(tmp_path: Path, cluster: Cluster) -> Iterator[Full]:
    share = Full(tmp_path / "share")
    yield share
    share.close()


def test_a_read_only_share(drive: Drive, full: Full) -> None:
    """It isn't an outage: nothing waits for a refused request."""
    subprocess.run(["mount", "-o", "remount,ro", full.folder], check=True)
    begin = time.monotonic()
    reports = drive(*[drive.task("true", id=i, task=i) for i in range(30)],
                    env={"STOKER_SHARE_WAIT": "90"})  # fmt: skip
    assert time.monotonic() - begin < 20
    ends = [r for r in reports if r["kind"] == "ended"]
    assert [r["failure"] for r in ends] == ["store"] * 30
    assert all("Read-only file system" in r["text"] for r in ends), ends[0]
    assert drive.cluster.history == [] and not [r for r in reports if r["kind"] == "note"]


class Refuses(http.server.BaseHTTPRequestHandler):
    def do_PUT(self) -> None:
        body = b"<Error><Code>InvalidAccessKeyId</Code><Message>they are no more</Message></Error>"
        self.send_response(403)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    do_GET = do_HEAD = do_POST = do_PUT

    def log_message(self, *_: object) -> None:
        pass


def test_revoked_credentials(drive: Drive) -> None:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Refuses) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        env = {
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{server.server_port}", "STOKER_SHARE_WAIT": "90",
            "AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b", "AWS_REGION": "us-east-1",
        }  # fmt: skip
        begin = time.monotonic()
        end = drive.end(drive.task("true"), share="s3://bucket/prefix", env=env)
        server.shutdown()
    assert time.monotonic() - begin < 20
    assert end["failure"] == "store" and "InvalidAccessKeyId: they are no more" in end["text"], end


BIG = "head -c 8000000 /dev/urandom > $STOKER_OUTPUT/big"


def test_an_output_that_does_not_fit(drive: Drive, full: Full) -> None:
    """Neither the step's fault nor its output's; the sentence says how much is missing where."""
    drive.cluster.env["STOKER_SHARE_WAIT"] = "1"
    end = drive.end(drive.task(BIG, outputs=["big"]))
    assert end["failure"] == "store", end
    result = json.loads((drive.dir() / "result.json").read_text()) if (drive.dir() / "result.json").exists() else None  # fmt: skip
    text = result["error"]["message"] if result else end["text"]
    assert f"store '{drive.share}' is full: 'artifacts/" in text, text
    assert "needs 8 MB, and" in text and "are free; free space there" in text, text


def test_a_full_share_and_room_again(drive: Drive, full: Full) -> None:
    """A task that can't be staged waits, and starts once there is room."""
    full.fill()
    process = drive.begin(*[drive.task("true", id=i, task=i) for i in range(12)],
                          env={"STOKER_SHARE_WAIT": "90"})  # fmt: skip
    first = json.loads(process.stdout.readline())  # it tries, and says so
    assert first["kind"] == "note", first
    full.make_room()
    reports = [first, *drive.finish(process)]
    notes = [r["text"] for r in reports if r["kind"] == "note"]
    assert len(notes) == 1 and "can't put its inputs into the share yet: store" in notes[0], notes
    assert "is full" in notes[0] and "are free" in notes[0], notes
    assert [r["id"] for r in reports if r["kind"] == "waits no more"] == [first["id"]]
    assert [r["ok"] for r in reports if r["kind"] == "ended"] == [True] * 12


def test_sigterm_with_a_full_share(project: Project, tmp_path: Path) -> None:
    """It ends promptly; a task that never started isn't reported as running."""
    share = Full(tmp_path / "share")
    try:
        process = project.begin("run", "--stack", "prod", project.document({"a": {"run": "true"}}))
        wait_for(lambda: (share.folder / "runs").exists(), why="no run began")
        share.fill()
        wait_for(
            lambda: list(project.folder.glob(".stoker/runs/*/a/0/1/task.json")), why="no step began"
        )
        time.sleep(0.5)  # sleeps: it tries to begin it
        if project.cluster.history:
            pytest.skip("it was quicker than the file system was filled")
        begin = time.monotonic()
        process.send_signal(signal.SIGTERM)
        _, err = process.communicate(timeout=60)
        took = time.monotonic() - begin
        assert process.returncode == 143, err
        assert took < 10, took
        notes = project.show()["notes"]
        assert not any("goes on running" in note for note in notes), notes
        assert any("step 'a' was not started on kubernetes" in note for note in notes), notes
        share.make_room()
        done = project("resume", "latest")
        assert done.returncode == 0, done.stderr
        assert len(project.cluster.history) == 1
        assert any("step 'a' is picked up again on" in note for note in project.show()["notes"])
    finally:
        share.close()


# What is made of a job.json → what its agent says.
GARBLED = {
    "cut": (lambda order: json.dumps(order)[:-40], "not valid JSON"),
    "version": (lambda order: json.dumps(order | {"stoker": 2}), "has format 2"),
    "links": (lambda order: json.dumps(order | {"links": {"in/../../../x": "/etc"}}), "'links' is missing"),
    "other": (lambda order: json.dumps(order | {"dir": order["dir"][:-1] + "7"}), "belongs to another attempt"),
    "code": (lambda order: json.dumps(order | {"code": {"digest": "ab" * 32, "root": "/x"}}),
             "artifact abababababab isn't in store"),
}  # fmt: skip


def test_what_an_agent_is_told(drive: Drive) -> None:
    """It doesn't start and costs no retry: the end names the fault."""
    drive.cluster.pending = {"": "not yet"}
    process = drive.begin(
        *[drive.task("true", step=name, id=i, task=0) for i, name in enumerate(GARBLED)]
    )
    wait_for(
        lambda: len(list(drive.cluster.folder.glob("s-*.json"))) == len(GARBLED),
        why="not submitted",
    )
    for name, (garble, _) in GARBLED.items():
        path = drive.key(name) / "job.json"
        path.write_text(garble(json.loads(path.read_text())))
    drive.cluster.pending = {}
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    ends = {r["id"]: r for r in map(json.loads, out.splitlines()) if r["kind"] == "ended"}
    for i, (name, (_, said)) in enumerate(GARBLED.items()):
        class_ = "store" if name == "code" else "lost"
        assert ends[i]["failure"] == class_ and said in ends[i]["text"], (name, ends[i])
