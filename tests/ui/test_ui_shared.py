"""Stores that machines share, beside others in one page: by S3 (moto, behind a proxy that fails as it is told) and as a
folder. `tests/remote/test_remote_pages.py` has what runs on other machines."""

from __future__ import annotations

import fcntl
import html
import json
import os
import shutil
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from cli_tools import Cli
from pages import browser
from share_tools import REGION, Fault, Moto, Proxy
from ui_server import Ui
from waiting import WAIT_S, wait_for

Start = Callable[..., Ui]
EVIL = "<script>document.title='owned'</script>"


@pytest.fixture(scope="module")
def moto(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Moto]:
    server = Moto(tmp_path_factory.mktemp("moto") / "log")
    server.start()
    yield server
    server.stop()


@pytest.fixture
def proxy(moto: Moto) -> Iterator[Proxy]:
    between = Proxy(moto.url)
    yield between
    between.stop()


@pytest.fixture
def url(moto: Moto) -> str:
    bucket = f"b-{uuid.uuid4().hex[:12]}"
    place = {"LocationConstraint": REGION}
    moto.client().create_bucket(Bucket=bucket, CreateBucketConfiguration=place)
    return f"s3://{bucket}/team"


@pytest.fixture
def by_s3(cli: Cli, moto: Moto, proxy: Proxy) -> Cli:
    """A machine with credentials of the S3."""
    home = cli.folder / "home"
    home.mkdir()
    cli.env = {name: value for name, value in cli.env.items() if not name.startswith("AWS_")}
    cli.env |= {
        "HOME": str(home),
        "XDG_CACHE_HOME": str(home / ".cache"),
        "AWS_ACCESS_KEY_ID": moto.keys[0][0],
        "AWS_SECRET_ACCESS_KEY": moto.keys[0][1],
        "AWS_REGION": REGION,
        "AWS_ENDPOINT_URL": proxy.url,
        "AWS_EC2_METADATA_DISABLED": "true",
        "AWS_MAX_ATTEMPTS": "1",
        "STOKER_SYNC": "0",
    }
    return cli


def run_shared(cli: Cli, url: str, lr: float = 0.1) -> str:
    """A run that is recorded in the share, by a store of its own; its id. Its steps run beside the engine, but for one
    that would run elsewhere, and is skipped."""
    stack = {"backend": "kubernetes", "store": url, "default_image": "127.0.0.1:1/img:1"}
    cli.write("stoker.yaml", json.dumps({"stacks": {"prod": stack}}))
    here = {"backend": "local"}
    steps: dict[str, Any] = {
        "fit": {
            "run": f"echo made with {lr} > $STOKER_OUTPUT/words.txt; echo printed",
            "outputs": ["words.txt"],
            **here,
        },
        "use": {"run": "exit 3", "inputs": {"w": {"from": "fit.words.txt"}}, **here},
        "away": {"run": "true", "after": ["use"]},
    }
    document = cli.document(steps, parameters={"lr": {"type": "float", "default": lr}})
    far = {"STOKER_STORE": str(cli.folder / "far"), "STOKER_REMOTE_FAKE": str(cli.folder)}
    done = cli("run", "--stack", "prod", document, **far)
    assert done.code == 1 and "exit status 3" in done.err + done.out, done.err
    return str(json.loads(cli("show", "latest", "--json", **far).out)["run"])


def wait_for_text(server: Ui, page: str, text: str) -> str:
    return wait_for(
        lambda: (answer := server.get(page)).status == 200 and text in answer.text and answer.text,
        why=f"{page} doesn't show {text!r}",
    )


def test_in_one_page(by_s3: Cli, ui: Start, url: str, moto: Moto) -> None:
    """A store of this host beside one in S3: its runs, cards, comparison and artifacts; read-only."""
    cli = by_s3
    assert cli.run({"mine": {"run": "true"}}).code == 0
    first, second = (run_shared(cli, url, lr=lr) for lr in (0.1, 0.2))
    server = ui("--store", str(cli.store), "--store", url)
    page = server.get("runs").text
    assert page.count("<option") == 2 and f">{url}</option>" in page and first not in page
    runs = wait_for_text(server, "s1/runs", second)
    assert first in runs and "A copy of" in runs and url in runs and ">lr</a>" in runs
    some = server.get("s1/runs?where=lr%3E0.15").text
    assert second in some and first not in some
    card = server.get(f"s1/run?run={first}")
    assert card.status == 200 and "fit" in card.text and 'action="act"' not in card.text
    wait_for_text(
        server, f"s1/task?run={first}&task=fit", "made with 0.1"
    )  # a preview of its output
    log = server.get(f"s1/log?run={first}&task=fit").text
    assert "ran beside its engine" in log and "printed" not in log
    both = server.get(f"s1/compare?run={first}&run={second}")
    assert both.status == 200 and "0.2" in both.text
    digest = json.loads(cli("show", first, "--json", STOKER_STORE=str(cli.folder / "far")).out)[
        "steps"
    ]["fit"]["outputs"]["words.txt"]["digest"]
    artifact = wait_for_text(server, f"s1/artifact?digest={digest}", "made with 0.1")
    assert "used by" in artifact and "being brought" not in artifact
    form = server.form("run?run=latest")
    headers = {"Cookie": server.cookie, "Origin": f"http://127.0.0.1:{server.port}"}
    body = f"form={form}&act=delete&run={first}"
    assert server.ask("POST", "s1/act", body, **headers).status == 403
    third = run_shared(cli, url, lr=0.3)  # while it is followed
    wait_for_text(server, "s1/runs", third)
    done = cli("tag", first, "--add", "best", STOKER_STORE=str(cli.folder / "far"))
    assert done.code == 0 and not done.err, done.err
    wait_for_text(server, "s1/runs", "best")
    for page in ("s1/runs", f"s1/run?run={first}", "s1/devices", "s1/steps", "s1/names"):
        text = server.get(page).text
        assert moto.keys[0][0] not in text and moto.keys[0][1] not in text


def test_removed(by_s3: Cli, ui: Start, url: str) -> None:
    cli = by_s3
    first, second = run_shared(cli, url), run_shared(cli, url)
    server = ui("--store", url)
    wait_for_text(server, "runs", second)
    wait_for_text(server, "runs", first)
    assert cli("share", "rm", url, f"runs/{first}/").code == 0
    wait_for(lambda: first not in server.get("runs").text, why="it is still there")
    assert second in server.get("runs").text


def test_few_requests(by_s3: Cli, ui: Start, url: str, proxy: Proxy) -> None:
    """A quiet share is asked a listing and one object a run in a turn; what is here isn't read again."""
    cli = by_s3
    runs = [run_shared(cli, url) for _ in range(3)]
    server = ui("--store", url)
    for run in runs:
        wait_for_text(server, "runs", run)

    def listings() -> list[int]:
        return [r.n for r in list(proxy.seen) if "delimiter=" in r.path]

    seen = len(listings())
    wait_for(lambda: server.get("runs") and len(listings()) >= seen + 3, why="it isn't followed")
    last = listings()[-2:]
    between = [r for r in list(proxy.seen) if last[0] <= r.n < last[1]]
    assert len(between) <= 1 + len(runs), [r.path for r in between]
    assert all("/log/" in r.path for r in between[1:])


def test_away(by_s3: Cli, ui: Start, url: str, proxy: Proxy) -> None:
    """A share that is away or slow: pages answer at once and say how old they are, also a new server's."""
    cli = by_s3
    run = run_shared(cli, url)
    server = ui("--store", url)
    wait_for_text(server, "runs", run)
    slow = Fault(slow_s=30)
    proxy.rule = lambda request: slow
    begin = time.monotonic()
    assert run in server.get("runs").text and server.get(f"run?run={run}").status == 200
    assert time.monotonic() - begin < 10
    assert run in wait_for_text(server, "runs", "hasn’t answered")
    proxy.rule = lambda request: Fault(drop=True)
    other = ui("--store", url)
    for one in (other, server):
        page = wait_for_text(one, "runs", "can’t be read now")
        assert run in page and "What you see" in page
    proxy.rule = lambda request: None
    for one in (other, server):
        wait_for(
            lambda one=one: "A copy of" in one.get("runs").text,  # type: ignore[misc]
            why="it isn't followed again",
        )


def test_refused(by_s3: Cli, url: str, moto: Moto) -> None:
    """One sentence each, and no secret in it."""
    cli, bucket = by_s3, url.split("/")[2]
    folder = cli.folder / "some"
    folder.mkdir()
    cases: list[tuple[list[str], dict[str, str], str]] = [
        ([url.replace(bucket, "b-of-nobody-at-all")], {}, "b-of-nobody-at-all"),
        ([url], {"AWS_SECRET_ACCESS_KEY": "wrong-secret-key"}, "access key"),
        (["https://example.org/x"], {}, "must be a folder, a bucket of S3"),
        (["s3://AKIAX:verysecret@b/x"], {}, "names no bucket"),
        (["ftp://me:verysecret@b/x"], {}, "must be a folder, a bucket of S3"),
        ([url, url + "/"], {}, "is given twice"),
        ([str(folder)], {}, "has no runs"),
    ]
    for urls, env, text in cases:
        words = [word for one in urls for word in ("--store", one)]
        done = cli("ui", *words, **env)
        lines = done.err.strip().splitlines()
        assert done.code != 0 and text in done.err, (urls, done.out, done.err)
        assert len([line for line in lines if line.startswith("stoker: ")]) == 1, done.err
        for secret in ("verysecret", "wrong-secret-key", moto.keys[0][1]):
            assert secret not in done.err + done.out


def test_empty(by_s3: Cli, ui: Start, url: str) -> None:
    server = ui("--store", url)
    page = wait_for_text(server, "runs", "it has no runs")
    assert "Runs of a stack whose" in page


def test_in_a_browser(by_s3: Cli, ui: Start, moto: Moto, proxy: Proxy) -> None:
    """A page that is open shows a new run by itself; long names stay within it, also beside what is wrong."""
    cli = by_s3
    bucket = f"b-{uuid.uuid4().hex}{uuid.uuid4().hex[:20]}"
    place = {"LocationConstraint": REGION}
    moto.client().create_bucket(Bucket=bucket, CreateBucketConfiguration=place)
    url = f"s3://{bucket}/{'of-a-team-with-a-long-name' * 4}"
    first = run_shared(cli, url)
    server = ui("--store", url)
    with browser() as chromium:
        page = chromium._chromium.new_page(viewport={"width": 390, "height": 900})
        page.goto(server.url)
        page.locator(f'a[href*="{first}"]').first.wait_for(timeout=WAIT_S * 1000)
        second = run_shared(cli, url)
        page.locator(f'a[href*="{second}"]').first.wait_for(timeout=WAIT_S * 1000)
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        proxy.rule = lambda request: Fault(drop=True)
        page.get_by_text("can’t be read now").wait_for(timeout=WAIT_S * 1000)
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_hostile(by_s3: Cli, ui: Start, url: str, moto: Moto) -> None:
    """Whatever somebody puts into the share: other runs are shown, nothing of it is HTML, no file is made elsewhere."""
    cli, s3 = by_s3, moto.client()
    bucket = url.split("/")[2]
    run, good = run_shared(cli, url), run_shared(cli, url)
    pages = s3.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=f"team/runs/{run}/")
    keys = [entry["Key"] for page in pages for entry in page.get("Contents", [])]
    content = {key: s3.get_object(Bucket=bucket, Key=key)["Body"].read() for key in keys}

    def put(key: str, data: bytes) -> None:
        s3.put_object(Bucket=bucket, Key=f"team/{key}", Body=data)

    for i, (name, replaced) in enumerate(
        [("run.json", b"{}"), ("log/000000000000.jsonl", b"\x00\xff{"), ("spec.json", b"[1")], 1
    ):
        damaged = f"{run[:-1]}{'g' if i == 0 else 'abc'[i - 1]}"
        if damaged == run:
            damaged = f"{run[:-1]}d"
        for key, data in content.items():
            below = key.split(f"{run}/")[1]
            text = data.replace(run.encode(), damaged.encode())
            put(f"runs/{damaged}/{below}", replaced if below == name else text)
    evil = f"{run[:-1]}{'e' if run[-1] != 'e' else 'f'}"
    for key, data in content.items():
        text = data.replace(run.encode(), evil.encode())
        if key.endswith("run.json"):
            text = json.dumps({**json.loads(text), "name": EVIL, "pipeline": EVIL}).encode()
        put(f"runs/{evil}/{key.split(f'{run}/')[1]}", text)
    for name in ("..", EVIL.replace("/", "|"), "x" * 300, "not a run", "-1", "%2e%2e"):
        put(f"runs/{name}/run.json", content[f"team/runs/{run}/run.json"])
        put(
            f"runs/{name}/log/000000000000.jsonl",
            content[f"team/runs/{run}/log/000000000000.jsonl"],
        )
    server = ui("--store", url)
    wait_for_text(server, "runs", good)
    page = wait_for_text(server, "runs", evil)
    wait_for_text(server, "runs", "can’t be read")
    assert EVIL not in page and html.escape(EVIL)[:20] in page.replace("&#39;", "&#x27;")
    for where in (f"run?run={evil}", f"task?run={evil}&task=fit", f"log?run={evil}&task=fit"):
        answer = server.get(where)
        assert answer.status == 200 and "<script>document" not in answer.text
    cache = cli.folder / "home/.cache/stoker"
    assert {path.name for path in cache.iterdir()} <= {"shared", "carry"}
    (mirror,) = [path for path in (cache / "shared").iterdir() if path.is_dir()]
    known = {run, good, evil}
    assert known <= {path.name for path in (mirror / "runs").iterdir()}
    assert all(len(path.name) < 40 for path in (mirror / "runs").iterdir())


def test_folder(
    cli: Cli, ui: Start, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """A shared folder is known by what is in it; its copy is removed a month after the last use."""
    share = tmp_path_factory.mktemp("shared") / "share"
    cli.env |= {"XDG_CACHE_HOME": str(tmp_path / "cache"), "STOKER_SYNC": "0"}
    run = run_shared(cli, str(share))
    server = ui("--store", str(share), "--store", str(cli.folder / "far"))
    wait_for_text(server, "runs", run)
    assert str(share) in server.get("runs").text
    assert 'action="act"' not in server.get(f"run?run={run}").text
    assert 'action="act"' in server.get(f"s1/run?run={run}").text
    before = sorted(path for path in share.rglob("*"))
    shutil.copytree(share, tmp_path / "second")
    mirrors = tmp_path / "cache/stoker/shared"
    (used,) = mirrors.glob("*.used")
    assert cli("runs", "--store", f"file://{share}").code == 0
    assert list(mirrors.glob("*.used")) == [used], "a path and its URL are one"
    server.child.terminate()
    server.child.wait(WAIT_S)
    old = time.time() - 40 * 86400
    os.utime(used, (old, old))
    assert cli("runs", "--store", str(tmp_path / "second")).code == 0
    assert not used.exists() and len([p for p in mirrors.iterdir() if p.is_dir()]) == 1
    assert sorted(path for path in share.rglob("*")) == before, "the share is only read"


def test_commands(by_s3: Cli, url: str) -> None:
    """`runs`, `show`, `logs` and `metrics` take the URL, too, without a stack."""
    cli = by_s3
    run = run_shared(cli, url)
    listed: list[dict[str, Any]] = json.loads(cli("runs", "--store", url, "--json").out)
    assert [one["run"] for one in listed] == [run]
    assert json.loads(cli("show", run, "--store", url, "--json").out)["status"] == "failed"
    assert cli("logs", run, "--store", url).code == 0
    assert cli("metrics", run, "--store", url).code == 0
    wrong = cli("runs", "--store", url, "--stack", "prod")
    assert wrong.code != 0 and "only one of --stack and --store" in wrong.err
    assert not cli.store.exists(), "no store is made here"


@pytest.fixture
def folder(cli: Cli, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A shared folder, and a cache of this test."""
    cli.env |= {"XDG_CACHE_HOME": str(tmp_path / "cache"), "STOKER_SYNC": "0"}
    return tmp_path_factory.mktemp("shared") / "share"


def end_elsewhere(share: Path, run: str, step: str, files: dict[str, Any]) -> None:
    """Has the record say that the step ran on another machine, which has sent these files."""
    number = {"fit": 0, "use": 1}[step]
    for log in (share / f"runs/{run}/log").iterdir():
        lines = [json.loads(line) for line in log.read_text().splitlines()]
        for line in lines:
            if line.get("event") == "task_started" and line["task"] == number:
                line["data"].setdefault("granted", {})["stack"] = "prod"
        log.write_text("".join(json.dumps(line) + "\n" for line in lines))
    at = share / f"runs/{run}/{step}/0/1"
    at.mkdir(parents=True, exist_ok=True)
    outcome = {"ok": True, "failure": "none", "text": "", "exit_status": 0}
    (at / "end.json").write_text(
        json.dumps({"stoker": 1, "host": "h", "node": 0, "outcome": outcome, "files": files})
    )


def again(share: Path, run: str, last: str) -> str:
    """The same run once more, by an id that ends so."""
    other = f"{run[:-1]}{last}"
    for path in (share / f"runs/{run}").rglob("*"):
        to = share / f"runs/{other}" / path.relative_to(share / f"runs/{run}")
        to.parent.mkdir(parents=True, exist_ok=True)
        if path.is_file():
            to.write_text(path.read_text().replace(run, other))
    return other


def test_in_the_way(cli: Cli, ui: Start, folder: Path) -> None:
    """What can't be read or kept of one run hides nothing of another, nor its other attempts; it counts once."""
    good = run_shared(cli, str(folder))
    end_elsewhere(folder, good, "use", {"stdout.log": {"text": "from afar\n"}})
    ids = [digit for digit in "abcdef" if digit != good[-1]]
    bad, half, odd = (again(folder, good, digit) for digit in ids[:3])
    (folder / f"runs/{bad}/run.json").unlink()
    (folder / f"runs/{bad}/run.json").symlink_to("run.json")
    end_elsewhere(folder, half, "fit", {"a": {"text": "1"}, "a/b": {"text": "2"}})
    end_elsewhere(folder, odd, "fit", {"n" * 300: {"text": "1"}})
    server = ui("--store", str(folder))
    for run in (good, half, odd):
        wait_for_text(server, "runs", run)
    page = wait_for_text(server, "runs", "3 runs can’t be read")
    assert "are here so far" not in page
    done = cli("runs", "--store", str(folder), "--json")
    assert {one["run"] for one in json.loads(done.out)} == {good, half, odd}
    assert f"leaving out run {bad}" in done.err
    for run in (half, odd):
        done = cli("logs", f"{run}/use", "--store", str(folder))
        assert "from afar" in done.out and f"leaving out an attempt of run {run}" in done.err
    assert "from afar" in cli("logs", f"{good}/use", "--store", str(folder)).out
    assert cli("show", "latest", "--store", str(folder)).code == 0 or bad > odd
    for run in (bad, half, odd):
        shutil.rmtree(folder / f"runs/{run}")
    wait_for(lambda: "can’t be read" not in server.get("runs").text, why="they are gone")


def test_liar(cli: Cli, folder: Path) -> None:
    """A file counts by its size, not by what its end says; no rank is beyond all gangs."""
    run = run_shared(cli, str(folder))
    key = f"runs/{run}/fit/0/1/files-big"
    end_elsewhere(folder, run, "fit", {"big.txt": {"key": key, "size": 10}})
    (folder / key).write_text("x" * (3 << 20))
    (wild,) = [again(folder, run, digit) for digit in "ab" if digit != run[-1]][:1]
    end_elsewhere(folder, wild, "fit", {"rank-99999999/stdout.log": {"text": "1"}})
    done = cli("runs", "--store", str(folder))
    assert done.code == 0 and f"attempt of run {wild}" in done.err and run not in done.err
    (mirror,) = Path(cli.env["XDG_CACHE_HOME"]).rglob(f"shared/*/runs/{run}/fit/0/1")
    assert not (mirror / "big.txt").exists()
    assert cli("logs", run, "--store", str(folder)).code == 0
    assert (mirror / "big.txt").stat().st_size == 3 << 20


def test_places(cli: Cli, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """--store takes a share, a store that isn't one, and neither, also by relative paths; what is gone is gone."""
    first, second = (run_shared(cli, str(folder), lr=lr) for lr in (0.1, 0.2))
    relative = os.path.relpath(folder, cli.folder)
    for place in (str(folder), relative, f"file://{folder}"):
        compared = cli("diff", first, second, "--store", place)
        assert compared.code == 0 and "0.2" in compared.out, compared.err
        assert "exit status 3" in cli("why", f"{first}/use", "--store", place).out
        missing = cli("show", "nothing", "--store", place)
        assert missing.code != 0 and f"no run 'nothing' in {place}" in missing.err
    by_where = cli("diff", "--where", "lr>0", "--store", relative, "--json")
    assert first in by_where.out and second in by_where.out
    for place in ("far", str(cli.folder / "far")):
        own: list[dict[str, Any]] = json.loads(cli("runs", "--store", place, "--json").out)
        assert {one["run"] for one in own} == {first, second}
        assert cli("logs", f"{first}/fit", "--store", place).out == "printed\n"
    wrong = cli("runs", "--store", "nowhere/at/all")
    assert wrong.code != 0 and "'nowhere/at/all' is neither a store nor a folder" in wrong.err
    shutil.rmtree(folder / f"runs/{second}")
    shown = json.loads(cli("show", "latest", "--store", relative, "--json").out)
    assert shown["run"] == first
    shutil.rmtree(folder / f"runs/{first}")
    assert f"no runs in {relative}" in cli("runs", "--store", relative).out


def test_waits_for_another(cli: Cli, folder: Path) -> None:
    """A command says for whom it waits."""
    run = run_shared(cli, str(folder))
    assert cli("runs", "--store", str(folder)).code == 0
    (lock,) = Path(cli.env["XDG_CACHE_HOME"]).rglob("shared/*/mirror.lock")
    with lock.open("r+") as held:
        fcntl.lockf(held, fcntl.LOCK_EX)
        waiting = cli.start("runs", "--store", str(folder), "--json")
        assert waiting.stderr is not None
        line = waiting.stderr.readline()
    out, _ = waiting.communicate(timeout=WAIT_S)
    assert "waiting for process " in line and str(folder) in line and run in out


def test_same_store_twice(cli: Cli, ui: Start, tmp_path: Path) -> None:
    """Of the stores of this host, one that can't be shown leaves the others."""
    state = tmp_path / "state"
    cli.env |= {"XDG_STATE_HOME": str(state)}
    one = {"STOKER_STORE": str(tmp_path / "one")}
    assert cli.run({"mine": {"run": "true"}}, env=one).code == 0
    run = json.loads(cli("show", "--json", **one).out)["run"]
    (tmp_path / "alias").symlink_to(tmp_path / "one")
    (state / "stoker/stores" / ("f" * 32)).symlink_to(tmp_path / "alias")
    server = ui(STOKER_STORE=str(tmp_path / "none"))
    assert run in server.get("runs").text


def test_artifact_that_fails(by_s3: Cli, ui: Start, url: str, proxy: Proxy) -> None:
    """It is asked for while somebody looks at it, not in each turn; the share is followed."""
    cli = by_s3
    cli.env["STOKER_SHARE_WAIT"] = "1"
    run = run_shared(cli, url)
    shown = json.loads(cli("show", run, "--json", STOKER_STORE=str(cli.folder / "far")).out)
    digest = shown["steps"]["fit"]["outputs"]["words.txt"]["digest"]
    server = ui("--store", url)
    wait_for_text(server, "runs", run)
    name = digest[-60:]  # its first letters are a folder's name
    proxy.rule = lambda request: Fault(drop=True) if name in request.path else None

    def asked(word: str) -> int:
        return len([r for r in list(proxy.seen) if word in r.path])

    server.get(f"artifact?digest={digest}")
    wait_for_text(server, "runs", "can’t be read now")
    assert asked(name)
    wait_for(lambda: "can’t be read now" not in server.get("runs").text, why="it isn't followed")
    seen, turns = asked(name), asked("delimiter=")
    wait_for(lambda: server.get("runs") and asked("delimiter=") >= turns + 2, why="no more turns")
    assert asked(name) == seen
