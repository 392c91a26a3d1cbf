"""Who gets an answer from `stoker ui`, and who doesn't."""

from __future__ import annotations

import signal
import socket
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from cli_tools import Cli
from ui_server import Answer, Ui
from waiting import wait_for

Start = Callable[..., Ui]
PAGES = (
    "",
    "runs",
    "run?run=latest",
    "now",
    "names",
    "metrics",
    "change?of=now",
    "ui.css",
    "ui.js",
)


@pytest.fixture
def one(cli: Cli, ui: Start) -> Ui:
    assert cli.run({"a": {"run": "echo hello"}}).code == 0
    return ui()


@pytest.mark.parametrize("page", PAGES)
def test_token(one: Ui, page: str) -> None:
    """Every page needs it; a wrong one is refused even beside a right cookie."""
    wrong = "x" * len(one.token)
    sign = "&" if "?" in page else "?"
    assert one.get(page).status == 200
    assert one.ask("GET", page).status == 403
    assert one.ask("GET", page, Cookie=f"stoker-ui-{one.port}={wrong}").status == 403
    assert one.ask("GET", page, Cookie=f"stoker-ui-{one.port}={one.token[:-1]}").status == 403
    assert one.ask("GET", f"{page}{sign}token={wrong}", Cookie=one.cookie).status == 403
    assert one.ask("GET", page, Authorization=f"Bearer {one.token}").status == 200
    assert one.token not in one.get(page).text


def test_first_request(one: Ui) -> None:
    """The address that was printed gives a cookie, and leaves the token out from then on."""
    first = one.ask("GET", f"run?run=latest&token={one.token}")
    assert first.status == 303
    assert first.headers["location"] == "./run?run=latest"
    cookie = first.headers["set-cookie"]
    assert cookie.startswith(one.cookie) and "HttpOnly" in cookie and "SameSite=Lax" in cookie


@pytest.mark.parametrize(
    "host", ["evil.example", "127.0.0.1.evil.example", "localhost.evil:8467", ""]
)
def test_host(one: Ui, host: str) -> None:
    """A name that leads to us by DNS isn't ours."""
    assert one.ask("GET", "runs", Cookie=one.cookie, Host=host).status in (400, 403)


def test_hosts(one: Ui, ui: Start) -> None:
    for host in ("localhost:1234", "[::1]:99", "127.0.0.1"):
        assert one.ask("GET", "runs", Cookie=one.cookie, Host=host).status == 200
    proxied = ui("--host", "hub.example")
    for host, status in (("hub.example", 200), ("other.example", 403)):
        assert proxied.ask("GET", "runs", Cookie=proxied.cookie, Host=host).status == status
    whole = f"GET http://localhost:{one.port}/runs HTTP/1.1\r\nHost: localhost\r\n\r\n"
    assert one.send(whole.encode()).status == 403


def test_prefix(cli: Cli, ui: Start) -> None:
    """Links are relative, so pages work below a path, whether or not a proxy removes it."""
    cli.run({"a": {"run": "true"}})
    server = ui("--prefix", "/user/me/")
    assert server.base == "/user/me/"
    page = server.get("runs")
    assert page.status == 200 and 'href="/' not in page.text
    bare = f"GET /runs HTTP/1.1\r\nHost: localhost\r\nCookie: {server.cookie}\r\n\r\n"
    assert server.send(bare.encode()).status == 200
    first = server.ask("GET", f"?token={server.token}")
    assert "Path=/user/me/" in first.headers["set-cookie"]


@pytest.mark.parametrize("method", ["PUT", "DELETE", "OPTIONS", "TRACE", "CONNECT", "BREW"])
def test_methods(one: Ui, method: str) -> None:
    assert one.ask(method, "runs", Cookie=one.cookie).status in (0, 400, 405, 501)


def test_sizes(one: Ui) -> None:
    """A huge head or body is refused, and the server goes on."""
    assert one.ask("GET", "runs?a=" + "x" * (1 << 20), Cookie=one.cookie).status in (
        0,
        400,
        413,
        414,
    )
    assert one.ask("GET", "runs", Cookie=one.cookie, X="y" * (1 << 20)).status in (0, 400, 413)
    large = f"POST /act HTTP/1.1\r\nHost: localhost\r\nContent-Length: {1 << 40}\r\n\r\n"
    assert one.send(large.encode()).status in (0, 400, 413)
    assert one.get("runs").status == 200


def test_garbage(one: Ui) -> None:
    for data in (
        b"\0" * 1000,
        b"\r\n\r\n",
        b"GET\r\n\r\n",
        b"GET / HTTP/9.9\r\nHost: a\r\n\r\n",
        b"{}\n",
    ):
        try:
            with socket.create_connection(("127.0.0.1", one.port)) as s:
                s.sendall(data)
        except OSError:
            pass
    for page in ("run", "run?run=no-such", "task?run=latest&task=%00", "../../etc/passwd", "%2e%2e/x",
                 "artifact?digest=../../x", "raw?digest=x", "log?run=latest&task=nope", "text"):  # fmt: skip
        assert one.get(page).status in (400, 404), page
    assert one.get("runs").status == 200


@pytest.mark.slow
def test_slow_requests(one: Ui) -> None:
    """A head that never ends, a byte at a time, is cut; others are answered meanwhile."""
    with socket.create_connection(("127.0.0.1", one.port)) as s:
        s.settimeout(1)
        s.sendall(b"GET /runs HTTP/1.1\r\nX: ")
        n, is_open = 0, True
        while is_open and n < 120:
            assert one.get("runs").status == 200
            try:
                s.sendall(b"x")
                is_open = s.recv(1) != b""
            except TimeoutError:
                n += 1
            except OSError:
                is_open = False
        assert not is_open


def test_slow_reader(cli: Cli, ui: Start) -> None:
    """A complete request has two minutes for its answer, not the ten seconds of an incomplete one."""
    size = 24 << 20  # more than the kernel takes from the server at once
    steps = {"big": {"run": f"yes text | head -c {size} > $STOKER_OUTPUT/x", "outputs": ["x"]}}
    assert cli.run(steps).code == 0
    digest = cli.json("show", "latest")["steps"]["big"]["outputs"]["x"]["digest"]
    server = ui()
    ask = f"GET /raw?digest={digest} HTTP/1.1\r\nHost: localhost\r\nCookie: {server.cookie}\r\n\r\n"
    with socket.socket() as s:
        s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 16)
        s.connect(("127.0.0.1", server.port))
        s.sendall(ask.encode())
        time.sleep(12)  # sleeps: longer than the limit for an incomplete request
        answer = Answer(b"".join(iter(lambda: s.recv(1 << 20), b"")))
    assert answer.status == 200 and len(answer.body) == size


def test_many_silent_connections(one: Ui) -> None:
    """Connections that say nothing are given up for one that asks."""
    silent = [socket.create_connection(("127.0.0.1", one.port)) for _ in range(400)]
    try:
        assert one.get("runs").status == 200
    finally:
        for s in silent:
            s.close()


def test_vanished_readers(one: Ui) -> None:
    """Who asks and never takes the answer, or goes away, holds up nobody."""
    ask = (
        f"GET /run?run=latest HTTP/1.1\r\nHost: localhost\r\nCookie: {one.cookie}\r\n\r\n".encode()
    )
    left = []
    for i in range(50):
        s = socket.create_connection(("127.0.0.1", one.port))
        s.sendall(ask)
        if i % 2 == 0:
            s.close()
        else:
            left.append(s)
    assert one.get("runs").status == 200
    for s in left:
        s.close()
    assert one.child.poll() is None


def test_end(one: Ui) -> None:
    """Ctrl-C ends it quietly."""
    one.child.send_signal(signal.SIGINT)
    out, err = one.child.communicate(timeout=60)
    assert (one.child.returncode, out, err) == (0, "", "")


def test_open(cli: Cli, ui: Start, tmp_path: Path) -> None:
    """$BROWSER gets a file of the user's alone, no token in its words, and the file goes with the server."""
    cli.run({"a": {"run": "true"}})
    shower, seen = tmp_path / "shower", tmp_path / "seen"
    shower.write_text(f'#!/bin/sh\nstat -c %a "$1" > {seen}.new; echo "$@" >> {seen}.new; cat "$1" >> {seen}.new\nmv {seen}.new {seen}\n')  # fmt: skip
    shower.chmod(0o755)
    server = ui("--open", BROWSER=str(shower), TMPDIR=str(tmp_path))
    wait_for(seen.exists)
    mode, words, page = seen.read_text().split("\n", 2)
    assert mode == "600" and server.token not in words and server.url in page
    assert Path(words).parent == tmp_path and Path(words).exists()
    server.child.send_signal(signal.SIGINT)
    assert server.child.wait(60) == 0 and not Path(words).exists()
    lost = ui("--open", BROWSER=str(tmp_path / "nothing"), TMPDIR=str(tmp_path))
    assert lost.get("runs").status == 200
    lost.child.send_signal(signal.SIGINT)
    assert "open the address yourself" in lost.child.communicate(timeout=60)[1]


def test_mistakes(cli: Cli, ui: Start) -> None:
    done = cli("ui", "--store", ".stoker")
    assert done.code != 0 and "store" in done.err
    cli.run({"a": {"run": "true"}})
    first = ui()
    for options, word in (
        (("--port", str(first.port)), "--port"),
        (("--port", "0"), "--port"),
        (("--prefix", "x y"), "--prefix"),
    ):
        done = cli("ui", *options)
        assert done.code in (2, 3) and word in done.err, done.err
    done = cli("ui", STOKER_UI_TOKEN="short")
    assert done.code == 2 and "STOKER_UI_TOKEN" in done.err and "'short'" not in done.err
    named = ui(STOKER_UI_TOKEN="a-token-of-mine-1234")
    assert named.token == "a-token-of-mine-1234"


# --- changes ---


def test_actions(cli: Cli, ui: Start) -> None:
    """Tag, untag, cancel and delete; each only by POST, with the form's token, from our origin."""
    sleeper = cli.start(
        "run", cli.document({"long": {"run": "echo begun > begun; exec sleep 600"}})
    )
    cli.until("begun")
    run = cli.json("show", "latest")["run"]
    server = ui()
    done = server.post("tag", run, text="good%20one")
    assert done.status == 303 and "said=" in done.headers["location"]
    assert "good one" in cli("tag", run).out
    assert "good one" in server.get("runs?tag=good%20one").text
    assert server.post("untag", run, text="good%20one").status == 303
    assert "good one" not in cli("tag", run).out
    assert 'value="delete"' not in server.get(f"run?run={run}").text
    assert server.post("cancel", run).status == 303
    assert sleeper.wait(60) != 0
    assert server.post("delete", run).status == 303
    assert cli.json("runs") == []


def test_resume(cli: Cli, ui: Start) -> None:
    """The button is there for what hasn't succeeded; the run goes on after the answer."""
    steps = {"a": {"run": "echo once >> a.txt"}, "b": {"run": "test -e ready", "after": ["a"]}}
    assert cli.run(steps).code != 0
    run = cli.json("show", "latest")["run"]
    server = ui()
    assert 'value="resume"' in server.get(f"run?run={run}").text
    (cli.folder / "ready").touch()
    assert server.post("resume", run).status == 303
    wait_for(lambda: cli.json("show", run)["status"] == "succeeded", why="the resumed run")
    assert (cli.folder / "a.txt").read_text() == "once\n"
    page = server.get(f"run?run={run}").text
    assert 'value="resume"' not in page and "succeeded" in page


def test_actions_refused(cli: Cli, ui: Start) -> None:
    cli.run({"a": {"run": "true"}})
    run = cli.json("show", "latest")["run"]
    server = ui()
    form = server.form(f"run?run={run}")
    for headers in (
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Origin": f"http://127.0.0.1:{server.port + 1}"},
        {"Sec_Fetch_Site": "cross-site"},
        {"Cookie": ""},
    ):
        assert server.post("delete", run, headers=headers, form=form).status == 403, headers
    assert server.post("delete", run, form="0" * len(form)).status == 403
    assert server.post("delete", run, form=server.token).status == 403
    assert (
        server.ask("GET", f"act?act=delete&run={run}&form={form}", Cookie=server.cookie).status
        == 400
    )
    assert server.post("explode", run, form=form).status == 400
    assert server.post("tag", run, form=form, text="").status == 400
    assert server.post("tag", "--add=x", form=form, text="y").status == 404
    assert len(cli.json("runs")) == 1
    locked = ui("--read-only")
    assert 'action="act"' not in locked.get(f"run?run={run}").text
    assert len(cli.json("runs")) == 1
