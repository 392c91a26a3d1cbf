"""Transfers when the network, S3 or this process fails in the middle."""

from __future__ import annotations

import os
import shutil
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from share_tools import (
    CHUNK,
    MIB,
    SLOW_DOWN,
    Fault,
    Giver,
    Moto,
    Plain,
    Proxy,
    Request,
    Tool,
    error,
    peak_kib,
    write_random,
)

N_PARTS = 5


@pytest.fixture
def large(tool: Tool) -> Path:
    return write_random(tool.folder / "large", (N_PARTS - 1) * CHUNK + 4321)


def once_each(fault: Fault):
    """The first try of each request fails this way."""
    tried = set()

    def rule(request: Request):
        what = (request.method, request.path, request.headers.get("range", "-").split("-")[1])
        if what in tried:
            return None
        tried.add(what)
        return fault

    return rule


FAULTS = {
    "throttled": SLOW_DOWN,
    "unavailable": Fault(status=503),
    "internal": error("InternalError", 500),
    "gateway": Fault(status=502, body="<html>bad gateway</html>"),
    "timeout": error("RequestTimeout", 400),
    "dropped": Fault(drop=True),
    "lost": Fault(lose=True),
    "cut": Fault(cut=0.4),
    "short": Fault(keep=0.4),
}


# One of each kind always, its like in `make test-all`.
ALIKE = {"unavailable", "internal", "gateway", "timeout", "dropped"}


@pytest.mark.parametrize(
    "what", [pytest.param(w, marks=[pytest.mark.slow] if w in ALIKE else []) for w in FAULTS]
)
def test_everything_fails_once(tool: Tool, url: str, proxy: Proxy, large: Path, what: str) -> None:
    """Push and pull of a folder and a large file, where the first try of each request fails."""
    proxy.rule = once_each(FAULTS[what])
    if what == "short":  # of data only: a short XML is no XML
        inner = proxy.rule
        proxy.rule = lambda r: inner(r) if r.is_data() and r.headers.get("range") else None
    folder = tool.folder / "in"
    folder.mkdir()
    os.link(large, folder / "large")
    for i in range(3):
        (folder / f"f{i}").write_text(str(i))
    digest = tool.add(tool.folder / "here", folder)
    tool("share", "push", url, digest, STOKER_STORE=str(tool.folder / "here"))
    tool("share", "pull", url, digest, STOKER_STORE=str(tool.folder / "there"))
    back = tool.content(tool.folder / "there", digest)
    assert (back / "large").read_bytes() == large.read_bytes()
    assert (back / "f2").read_text() == "2"


def test_retry_after(tool: Tool, url: str, proxy: Proxy) -> None:
    proxy.rule = lambda r: error("SlowDown", 503, **{"Retry-After": "2"}) if r.n == 1 else None
    began = time.monotonic()
    tool("share", "ls", url)
    assert time.monotonic() - began >= 2


def test_a_storm_without_end(tool: Tool, url: str, proxy: Proxy) -> None:
    proxy.rule = lambda r: SLOW_DOWN
    text = tool.fails("share", "check", url, AWS_MAX_ATTEMPTS="3")
    assert "can't be written" in text and "SlowDown: said by the proxy" in text
    assert len(proxy.seen) == 3


@pytest.mark.parametrize(
    "fault", [error("XMinioStorageFull", 507), error("QuotaExceeded", 403), Fault(status=507)]
)
def test_full(tool: Tool, url: str, proxy: Proxy, fault: Fault) -> None:
    """Somebody's disk, or quota: told as that, with what it was for, and not asked again and again."""
    proxy.rule = lambda r: fault if r.method in ("PUT", "POST") else None
    small = write_random(tool.folder / "small", 1500)
    text = tool.fails("share", "put", url, "key", str(small))
    assert f"store '{url}' is full: " in text and "('key' needs 1.5 KB)" in text, text
    assert len([r for r in proxy.seen if r.method == "PUT"]) == 1


def test_a_download_goes_on_where_it_was_cut(
    tool: Tool, url: str, proxy: Proxy, large: Path
) -> None:
    """However often: as long as bytes come, no try is counted."""
    tool("share", "put", url, "k", str(large))
    proxy.seen.clear()
    proxy.rule = lambda r: Fault(cut=0.2) if r.is_data() and r.n % 4 else None
    tool("share", "get", url, "k", "out", AWS_MAX_ATTEMPTS="2")
    assert (tool.folder / "out").read_bytes() == large.read_bytes()
    starts = {r.headers["range"].split("=")[1].split("-")[0] for r in proxy.seen if r.is_data()}
    assert len(starts) > 2 * N_PARTS and all(
        r.headers["if-match"] for r in proxy.seen if r.is_data()
    )


def test_expired_where_nothing_can_be_said(tool: Tool, url: str, proxy: Proxy, moto: Moto) -> None:
    """A HEAD whose credentials expired is answered with 400 and no word."""
    giver = Giver(moto.keys)
    tool.env.update(
        AWS_ACCESS_KEY_ID="", AWS_CONTAINER_CREDENTIALS_FULL_URI=giver.url + "/container"
    )
    giver.token = None  # type: ignore[assignment]
    proxy.rule = lambda r: (
        error("ExpiredToken", 400)
        if f"Credential={moto.keys[0][0]}/" in r.headers["authorization"]
        else None
    )
    digest = tool.add(tool.folder / "here", write_random(tool.folder / "in", 100))
    try:
        tool("share", "push", url, digest, STOKER_STORE=str(tool.folder / "here"))
    finally:
        giver.stop()
    assert giver.keys == moto.keys[1:]


def test_replaced_while_it_is_read(
    tool: Tool, url: str, proxy: Proxy, moto: Moto, bucket: str, large: Path
) -> None:
    """Never half of the old and half of the new content."""
    tool("share", "put", url, "k", str(large))
    other = write_random(tool.folder / "other", large.stat().st_size)
    done = []

    def rule(request: Request):
        if request.is_data() and proxy.count(Request.is_data) == 3 and not done:
            done.append(1)
            moto.client().upload_file(str(other), bucket, "some/where/k")
        return None

    proxy.rule = rule
    tool("share", "get", url, "k", "out")
    assert (tool.folder / "out").read_bytes() == other.read_bytes()


def test_damaged_on_its_way(tool: Tool, url: str, proxy: Proxy, large: Path) -> None:
    """The digest doesn't match: nothing reaches the store, and the next pull is complete."""
    digest = tool.add(tool.folder / "here", large)
    tool("share", "push", url, digest, STOKER_STORE=str(tool.folder / "here"))
    flipped = []

    def rule(request: Request):
        if request.is_data() and not flipped:
            flipped.append(1)
            return Fault(flip=True)
        return None

    proxy.rule = rule
    there = tool.folder / "there"
    assert "was changed" in tool.fails("share", "pull", url, digest, STOKER_STORE=str(there))
    assert tool.run("artifact", "path", digest, STOKER_STORE=str(there)).returncode != 0
    tool("share", "pull", url, digest, STOKER_STORE=str(there))
    assert tool.content(there, digest).read_bytes() == large.read_bytes()


def kill_when(process, happened) -> None:
    end = time.monotonic() + 60
    while not happened():
        assert process.poll() is None and time.monotonic() < end
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.communicate()


def test_a_killed_upload_goes_on(tool: Tool, url: str, proxy: Proxy, large: Path) -> None:
    digest = tool.add(tool.folder / "here", large)
    env = {"STOKER_STORE": str(tool.folder / "here")}
    proxy.rule = lambda r: (
        Fault(slow_s=20) if r.is_part() and proxy.count(Request.is_part) > 3 else None
    )
    process = tool.start("share", "push", url, digest, **env)
    kill_when(process, lambda: proxy.count(Request.is_part) > 4)
    time.sleep(0.5)  # sleeps: those under way arrive
    proxy.seen.clear()
    proxy.rule = lambda r: None
    tool("share", "push", url, digest, **env)
    assert 1 <= proxy.count(Request.is_part) <= N_PARTS - 3
    assert proxy.count(lambda r: r.method == "POST" and r.path.endswith("?uploads=")) == 0
    tool("share", "pull", url, digest, STOKER_STORE=str(tool.folder / "there"))


def test_a_killed_download_goes_on(tool: Tool, url: str, proxy: Proxy, large: Path) -> None:
    digest = tool.add(tool.folder / "here", large)
    tool("share", "push", url, digest, STOKER_STORE=str(tool.folder / "here"))
    env = {"STOKER_STORE": str(tool.folder / "there")}
    proxy.rule = lambda r: (
        Fault(slow_s=20) if r.is_data() and proxy.count(Request.is_data) > 3 else None
    )
    process = tool.start("share", "pull", url, digest, **env)
    notes = tool.folder / "there/tmp" / f"pull-{digest}" / "data.done"
    kill_when(process, lambda: notes.exists() and notes.stat().st_size >= 3 * 48)
    proxy.seen.clear()
    proxy.rule = lambda r: None
    tool("share", "pull", url, digest, **env)
    assert proxy.count(Request.is_data) == N_PARTS - 3
    assert tool.content(tool.folder / "there", digest).read_bytes() == large.read_bytes()


def test_notes_that_lie_are_not_believed(tool: Tool, url: str, proxy: Proxy, large: Path) -> None:
    """After a power cut the notes may exist without the bytes."""
    digest = tool.add(tool.folder / "here", large)
    tool("share", "push", url, digest, STOKER_STORE=str(tool.folder / "here"))
    env = {"STOKER_STORE": str(tool.folder / "there")}
    proxy.rule = lambda r: (
        Fault(slow_s=20) if r.is_data() and proxy.count(Request.is_data) > 4 else None
    )
    process = tool.start("share", "pull", url, digest, **env)
    stage = tool.folder / "there/tmp" / f"pull-{digest}"
    kill_when(
        process,
        lambda: (stage / "data.done").exists() and (stage / "data.done").stat().st_size >= 96,
    )
    with (stage / "data").open("r+b") as file:
        file.write(bytes(2 * CHUNK))
    with (stage / "data.done").open("ab") as file:
        file.write(b"torn")
    proxy.rule = lambda r: None
    tool("share", "pull", url, digest, **env)
    assert tool.content(tool.folder / "there", digest).read_bytes() == large.read_bytes()


def test_two_machines_push_the_same(tool: Tool, url: str, proxy: Proxy, large: Path) -> None:
    digests = {tool.add(tool.folder / name, large) for name in ("one", "two", "three")}
    assert len(digests) == 1
    digest = digests.pop()
    proxy.rule = lambda r: Fault(slow_s=0.05)
    with ThreadPoolExecutor(3) as pool:
        done = list(
            pool.map(
                lambda name: tool.run(
                    "share", "push", url, digest, STOKER_STORE=str(tool.folder / name)
                ),
                ("one", "two", "three"),
            )
        )
    assert [d.returncode for d in done] == [0, 0, 0], [d.stderr for d in done]
    tool("share", "pull", url, digest, STOKER_STORE=str(tool.folder / "there"))


def test_two_who_pull_the_same_into_one_store(
    tool: Tool, url: str, proxy: Proxy, large: Path
) -> None:
    digest = tool.add(tool.folder / "here", large)
    tool("share", "push", url, digest, STOKER_STORE=str(tool.folder / "here"))
    env = {"STOKER_STORE": str(tool.folder / "there")}
    tool("artifact", "add", str(tool.folder / "large"), STOKER_STORE=str(tool.folder / "unused"))
    with ThreadPoolExecutor(3) as pool:
        done = list(pool.map(lambda _: tool.run("share", "pull", url, digest, **env), range(3)))
    assert [d.returncode for d in done] == [0, 0, 0], [d.stderr for d in done]
    assert proxy.count(Request.is_data) == N_PARTS


@pytest.mark.slow
def test_memory_is_flat(tool: Tool, url: str) -> None:
    """STOKER_SHARE_GIB (4) at most: so much is moved both ways; what a process needs doesn't depend on it.

    It takes twice that of the disk. Other tests that run beside need room too.
    """
    peaks = {}
    room = shutil.disk_usage(tool.folder).free // 5
    large = min(int(os.environ.get("STOKER_SHARE_GIB", "4")), room >> 30) << 30
    if large == 0:
        pytest.skip(f"{tool.folder} has no room for what is to be moved")
    for name, size in (("small", 64 * MIB), ("large", large)):
        here, there = tool.folder / f"{name}-here", tool.folder / f"{name}-there"
        server = Plain(tool.folder / f"{name}-s3")
        tool.env["AWS_ENDPOINT_URL"] = server.url
        path = write_random(tool.folder / name, size)
        digest = tool.add(here, path)
        path.unlink()
        push = tool.start("share", "push", url, digest, STOKER_STORE=str(here))
        peaks[name, "push"] = peak_kib(push)
        shutil.rmtree(here)
        pull = tool.start("share", "pull", url, digest, STOKER_STORE=str(there))
        peaks[name, "pull"] = peak_kib(pull)
        assert len(server.parts) == size // CHUNK
        server.stop()
        shutil.rmtree(there)
        shutil.rmtree(tool.folder / f"{name}-s3")
    print(f"peak KiB: {peaks}")
    for way in ("push", "pull"):
        assert peaks["large", way] < peaks["small", way] + 8 * 1024, peaks
        assert peaks["large", way] < 64 * 1024, peaks
