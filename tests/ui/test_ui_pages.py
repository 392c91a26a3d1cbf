"""The pages of `stoker ui`, as text and in a real Chromium."""

from __future__ import annotations

import html
import json
import re
import socket
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import axe_playwright_python
import pytest
from cli_tools import PYTHON, WAIT_S, Cli
from pages import Browser, browser
from stoker_binary import ROOT
from ui_server import Ui
from waiting import wait_for

AXE = (Path(axe_playwright_python.__file__).parent / "axe.min.js").read_text()
Start = Callable[..., Ui]
EVIL = "<script>document.title='owned'</script><img src=x onerror=\"document.title='owned'\">"


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    with browser() as one:
        yield one


def run_id(cli: Cli) -> str:
    return cli.json("show", "latest")["run"]


def test_runs(cli: Cli, ui: Start) -> None:
    """Filter, sort, columns, tags; the same expressions as `stoker runs --where`."""
    for lr in (0.1, 0.2, 0.3):
        steps = {"fit": {"run": f'echo \'{{"loss": {1 - lr}}}\' >> "$STOKER_METRICS"'}}
        assert cli.run(steps, parameters={"lr": {"type": "float", "default": lr}}).code == 0
    server = ui()
    page = server.get("runs").text
    assert page.count('type="checkbox" name="run"') == 3
    assert ">lr</a>" in page and ">fit.loss</a>" in page
    some = server.get("runs?where=lr%3E0.15+and+loss%3C0.75").text
    assert some.count('type="checkbox" name="run"') == 1
    assert cli.json("runs", "--where", "lr>0.15", "--where", "loss<0.75")[0]["run"] in some
    down = server.get("runs?sort=-lr").text
    assert down.index(">0.3<") < down.index(">0.2<") < down.index(">0.1<")
    assert 'aria-sort="descending"' in down
    assert ">fit.loss</a>" not in server.get("runs?col=lr").text
    wrong = server.get("runs?where=nonsense")
    assert wrong.status == 200 and "isn’t NAME" in wrong.text.replace("&#39;", "’")
    assert server.get("runs?pipeline=other").text.count('name="run"') == 0


@pytest.mark.slow
def test_long_metrics(cli: Cli, ui: Start) -> None:
    """A condition on more than is read at once is answered for what has been read, says what is left, and
    holds for all in the end."""
    lines = 'for i in $(seq 90000); do echo "{\\"loss\\": $i}"; done >> "$STOKER_METRICS"'
    parameters = {"lr": {"type": "float", "default": 0.1}}
    assert cli.run({"fit": {"run": lines}}, parameters=parameters).code == 0
    sys.path.insert(0, str(ROOT / "bench"))
    import many_runs

    many_runs.copy_runs(cli.store, 59)
    server = ui()
    while True:
        page = server.get("runs?where=fit.loss%3D90000").text
        found, left = (
            page.count('type="checkbox" name="run"'),
            re.search(r"(\d+) runs are still", page),
        )
        assert found + int(left[1] if left else 0) == 60
        if left is None:
            return


@pytest.mark.slow
def test_many_runs_compared(cli: Cli, ui: Start) -> None:
    """A comparison of runs that aren't known yet reads some at each visit, says what is left, and has all in
    the end."""
    sys.path.insert(0, str(ROOT / "bench"))
    import many_runs

    steps = {f"s{i}": {"run": "true", "resources": {"cpu_count": 0.01}} for i in range(100)}
    assert cli.run(steps).code == 0
    many_runs.copy_runs(cli.store, 599)
    server = ui()
    first = server.get("compare").text
    left = re.search(r"values of (\d+) runs are still to be read", first)
    assert left is not None and 0 < int(left[1]) <= 580 and "600 runs" in first
    wait_for(lambda: "still to be read" not in server.get("compare").text)


def test_curves_of_runs(cli: Cli, ui: Start) -> None:
    """Each metric that was logged over time is a small curve in its run's row, between its own extremes."""
    logged = {"flat": [5, 5, 5], "falls": [8, 4, 0], "broken": ['"nan"', 1, 3, 2], "once": [7]}
    lines = [f'{{"{name}": {one}}}' for name, values in logged.items() for one in values]
    words = "\n".join(f"echo '{line}' >> \"$STOKER_METRICS\"" for line in lines)
    assert cli.run({"fit": {"run": words}}).code == 0
    page = ui().get("runs").text
    assert re.findall(r'class="spark"[^>]*><path d="([^"]*)"', page) == [
        "M0 2L60 20L120 38",
        "M0 38L60 2L120 20",
    ]


def test_metrics_of_a_cached_step(cli: Cli, ui: Start) -> None:
    """They are the earlier run's, in the table, its filters and the command, until that run is gone."""
    word = 'echo \'{"loss": 4}\' >> "$STOKER_METRICS"; echo \'{"loss": 2}\' >> "$STOKER_METRICS"'
    for _ in range(2):
        assert cli.run({"fit": {"run": word}}).code == 0
    second, first = [one["run"] for one in cli.json("runs")]
    assert cli.json("show", second)["steps"]["fit"]["cached"] is True
    server = ui()
    rows = server.get("runs").text.split("<tr")
    for run, earlier in ((first, 0), (second, 1)):
        [row] = [one for one in rows if f"run={run}" in one]
        assert row.count("of an earlier run") == earlier and 'class="spark"' in row and ">2" in row
    assert [one["run"] for one in cli.json("runs", "--where", "loss<3")] == [second, first]
    assert cli("rm", first).code == 0 and cli("runs", "--where", "loss<3").code != 0


def test_cost(cli: Cli, ui: Start) -> None:
    """A column that sorts and filters, where there are prices; it follows a change of the file."""
    for name, cpus in (("a", 2), ("b", 0.5)):
        assert cli.run({name: {"run": "sleep 0.5", "resources": {"cpu_count": cpus}}}).code == 0
    server = ui()
    assert ">cost<" not in server.get("runs").text
    cli.write("stoker.yaml", "prices: {currency: EUR, cpu_hour: 3600}\n")
    wait_for(lambda: ">cost<" in server.get("runs").text)
    less, more = (f"{run['cost']:.2f} EUR" for run in cli.json("runs"))
    page = server.get("runs?sort=-cost").text
    assert 0 < page.index(more) < page.index(less)
    middle = sum(run["cost"] for run in cli.json("runs")) / 2
    some = server.get(f"runs?where=cost%3E{middle}").text
    assert more in some and less not in some
    first = cli.json("runs")[1]["run"]
    assert more in server.get(f"run?run={first}").text
    assert (
        less in server.get("compare?" + "&".join(f"run={r['run']}" for r in cli.json("runs"))).text
    )
    cli.write("stoker.yaml", "prices: {cpu_hour: much}\n")
    wait_for(lambda: "No cost is shown" in server.get("runs").text)


def test_across(cli: Cli, ui: Start) -> None:
    """Marked runs side by side, all that a filter leaves, a step over its runs, hours of devices."""
    for lr in (0.1, 0.2, 0.3):
        steps = {"fit": {"run": f'echo \'{{"loss": {1 - lr}}}\' >> "$STOKER_METRICS"'}}
        assert cli.run(steps, parameters={"lr": {"type": "float", "default": lr}}).code == 0
    runs = [one["run"] for one in cli.json("runs")]
    server = ui()
    two = server.get(f"compare?run={runs[0]}&run={runs[1]}").text
    assert (
        runs[0] in two and runs[1] in two and runs[2] not in two and "0.7" in two and "0.8" in two
    )
    some = server.get("compare?where=lr%3C0.25").text
    assert runs[1] in some and runs[2] in some and runs[0] not in some
    assert "compare?where=lr%3C0.25" in server.get("runs?where=lr%3C0.25").text
    one = server.get(f"compare?run={runs[0]}")
    assert one.status == 400 and "two runs" in one.text
    assert server.get(f"compare?run={runs[0]}&run=nope").status == 404
    step = server.get("steps?step=fit").text
    assert all(run in step for run in runs) and "newest first" in step
    assert "steps?step=fit" in server.get("task?run=latest&task=fit").text
    assert "steps?step=fit" in server.get("steps").text
    assert server.get("steps?step=nope").status == 404
    assert "No task has held a device" in server.get("devices?days=2").text


def test_log(cli: Cli, ui: Start) -> None:
    """The end of a long one, earlier parts, the lines with a text."""
    cli.run({"loud": {"run": "seq 1 100000; echo '<b>bold</b>'"}})
    server = ui()
    page = server.get("log?run=latest&task=loud").text
    assert "100000" in page and "&lt;b&gt;bold" in page and "earlier" in page
    assert "\n1\n" not in page
    found = server.get("log?run=latest&task=loud&q=9999").text
    assert found.count("<tr>") == 19 and "19 lines" in found
    text = server.get("text?run=latest&task=loud&at=0").text
    assert text.split("\n")[1] == "1" and text.split("\n")[0].endswith(" 0")


def test_artifact(cli: Cli, ui: Start) -> None:
    """Who made it, who used it, over runs."""
    steps = {
        "make": {"run": "echo data > $STOKER_OUTPUT/x", "outputs": ["x"]},
        "use": {
            "run": "wc $STOKER_INPUT/a > $STOKER_OUTPUT/y",
            "inputs": {"a": {"from": "make.x"}},
            "outputs": ["y"],
        },
    }
    done = cli.run(steps)
    assert done.code == 0, done.err
    digest = done.steps["make"]["outputs"]["x"]["digest"]
    page = ui().get(f"artifact?digest={digest}").text
    assert "made by" in page and "used by" in page and "Made with it" in page


FLOW = """
    from stoker.flow import FlowSpec, retry, step

    class F(FlowSpec):
        @step
        def start(self):
            self.items = ["left", "right"]
            self.unread = "nobody looks at this"
            self.next(self.work, foreach="items")

        @retry(times=1, minutes_between_retries=0)
        @step
        def work(self):
            from stoker.flow import current

            self.made = f"{self.input} by attempt {current.retry_count}"
            if self.input == "left" and current.retry_count == 0:
                self.half = "half of it"
                raise ValueError("not yet")
            self.next(self.join)

        @step
        def join(self, inputs):
            self.both = [one.made for one in inputs]
            self.next(self.end)

        @step
        def end(self):
            self.last = len(self.both)

    if __name__ == "__main__":
        F()
"""


@pytest.fixture
def flow(cli: Cli) -> Cli:
    cli.write("flow.py", textwrap.dedent(FLOW))
    done = cli("run", "-q", "--python", PYTHON, "flow.py")
    assert done.code == 0, done.err
    return cli


def digest_on(page: str, name: str) -> str:
    found = re.search(rf'artifact\?digest=(\w+)">{name}<', page)
    assert found is not None, name
    return found[1]


def test_artifact_of_flow(flow: Cli, ui: Start) -> None:
    """What a step loaded, by its own name or that of a join's input; what it only could see isn't used."""
    server = ui()

    def parts(task: str, name: str) -> list[str]:
        """Who made and used an artifact; what it is made from; what is made with it."""
        digest = digest_on(server.get(f"task?run=latest&task={task}").text, name)
        page = server.get(f"artifact?digest={digest}").text
        found = [page.partition(f"<h2>{title}</h2>")[2].partition("</section>")[0]
                 for title in ("Made and used", "Made from", "Made with it")]  # fmt: skip
        return [re.sub(r"<[^>]*>", " ", one) for one in found]

    used, up, down = parts("work/2", "made")
    assert "made by" in used and re.search(r"used by\s+join/4\s+work/2.made", used), used
    assert "items of start" in up and "both" in down, (up, down)
    used, up, down = parts("join", "both")
    assert re.search(r"used by\s+end/5\s+both", used), used
    assert "work/2.made" in up and "work/3.made" in up and "last" in down, (up, down)
    used, _, down = parts("start", "unread")
    assert "made by" in used and "used by" not in used and down == ""
    used, _, down = parts("start", "items")
    assert used.count("used by") == 2 and "made" in down


def test_earlier_attempts(flow: Cli, ui: Start) -> None:
    """A task shows what its attempts before the last had made, without what they had inherited."""
    server = ui()
    page = server.get("task?run=latest&task=work/2").text
    last, _, first = page.partition("<h2>Artifacts of attempt 1</h2>")
    first = first.partition("</section>")[0]
    assert "left by attempt 1" in last and "half of it" not in last
    assert "left by attempt 0" in first and "half of it" in first and "unread" not in first
    assert "Artifacts of attempt" not in server.get("task?run=latest&task=work/3").text


def links_of(page: str) -> set[str]:
    """Addresses on a page, but for those of other columns and orders of the same table."""
    found = {html.unescape(link) for link in re.findall(r'(?:href|src)="([^"#]+)"', page)}
    return {link for link in found if not link.startswith(("data:", "ui.", "runs?"))}


def test_stores_of_the_host(cli: Cli, ui: Start) -> None:
    """Without a store in this folder, there are those in which something ran."""
    for name in ("one", "two"):
        document = cli.write(
            "p.json", json.dumps({"stoker": 1, "name": name, "steps": {"a": {"run": "true"}}})
        )
        assert cli("run", document.name, STOKER_STORE=str(cli.folder / name)).code == 0
    page = ui().get("runs").text
    assert str(cli.folder / "one") in page and str(cli.folder / "two") in page


def test_several_stores(cli: Cli, ui: Start) -> None:
    """Whatever a page of a store leads to is of that store; changes, too."""
    stores = [cli.store, cli.folder / "second"]
    for i, store in enumerate(stores):
        steps = {
            "make": {"run": f"echo made in {i} | tee $STOKER_OUTPUT/x", "outputs": ["x"]},
            "use": {"run": "true", "inputs": {"p": {"from": "make.x"}}},
        }
        document = cli.write(
            f"pipe{i}.json", json.dumps({"stoker": 1, "name": f"pipe{i}", "steps": steps})
        )
        assert cli("run", document.name, STOKER_STORE=str(store)).code == 0
    server = ui("--store", str(stores[0]), "--store", str(stores[1]))
    assert server.get("runs").text.count("<option") == 2
    moved = server.get("runs?store=1")
    assert moved.status == 303 and moved.headers["location"] == "./s1/runs"
    assert server.get("s1/runs?store=0").headers["location"] == "./../runs"
    assert server.get("s2/runs").status == 404 and server.get("s2/").status == 404
    for i, root in enumerate(["", "s1/"]):
        (run,) = json.loads(cli("runs", "--json", STOKER_STORE=str(stores[i])).out)
        seen: set[str] = set()
        todo = ["runs", "names", "steps"]
        while todo:
            page = todo.pop()
            answer = server.get(root + page)
            assert answer.status in (200, 303) or page == "compare", (root, page)
            assert f">pipe{1 - i}<" not in answer.text, (root, page)
            new = {link for link in links_of(answer.text) if not link.startswith("/")} - seen
            seen |= new
            todo += sorted(new)
        assert any(link.startswith("run?") and run["run"] in link for link in seen)
        for kind in ("task?", "log?", "artifact?", "steps?"):
            assert any(link.startswith(kind) for link in seen), (kind, seen)
        assert f"made in {i}" in server.get(f"{root}log?run=latest&task=make").text
        assert f"made in {i}" in server.get(f"{root}text?run=latest&task=make&at=0").text
        form = re.search(r'name="form" value="(\w+)"', server.get(f"{root}run?run=latest").text)
        assert form is not None
        headers = {"Cookie": server.cookie, "Origin": f"http://127.0.0.1:{server.port}"}
        body = f"form={form[1]}&act=tag&run={run['run']}&text=of{i}"
        assert server.ask("POST", f"{root}act", body, **headers).status == 303
        told = cli("tag", run["run"], STOKER_STORE=str(stores[i])).out
        assert f"of{i}" in told


def test_lanes_of_before(cli: Cli, ui: Start) -> None:
    """At its first look *Now* has who held a device before, and what the task did with it."""
    cli.devices("GPU-a", "GPU-b", busy_percent=75)
    step = {"run": "sleep 3", "resources": {"gpu_count": 1}}  # sleeps: a lane needs a length
    assert cli.run({"train": step}).code == 0
    page = ui().get("now").text
    (lane,) = re.findall(r'<rect class="held h\d" [^>]*width="([\d.]+)"[^>]*><title>([^<]*)', page)
    assert lane[1] == f"run {run_id(cli)} step train" and float(lane[0]) > 5
    curves = re.findall(r'<path class="line gpu" d="([^"]*)"', page)
    assert sum(len(curve.split("L")) > 2 for curve in curves) == 1


def test_prometheus(cli: Cli, ui: Start) -> None:
    cli.devices("GPU-a", "GPU-b")
    cli.run({"a": {"run": "true"}})
    server = ui()
    scraped = server.ask("GET", f"metrics?token={server.token}")
    assert scraped.status == 200 and scraped.headers["content-type"].startswith("text/plain")
    assert 'DCGM_FI_DEV_FB_TOTAL{gpu="0",UUID="GPU-a"' in scraped.text


# --- in a browser ---


def look(chromium: Browser, url: str, **more: Any) -> tuple[Any, list[str], list[str]]:
    """A page, the addresses that it asks elsewhere, and its errors."""
    page = chromium._chromium.new_page(**more)
    asked: list[str] = []
    wrong: list[str] = []
    origin = url.split("/?")[0]
    page.on("request", lambda r: r.url.startswith((origin, "data:")) or asked.append(r.url))
    page.on("console", lambda m: m.type == "error" and wrong.append(m.text))
    page.on("pageerror", lambda e: wrong.append(str(e)))
    page.goto(url)
    return page, asked, wrong


def test_looks(cli: Cli, ui: Start, chromium: Browser) -> None:
    """Each page at three widths, light and dark: nothing sticks out, is asked elsewhere, or fails, and
    axe finds nothing serious."""
    cli.devices("GPU-a", "GPU-b")
    cli.run(
        {
            "train": {
                "run": 'for i in 1 2 3; do echo "{\\"loss\\": 0.$i}" >> $STOKER_METRICS; done; seq 500'
            },
            "test": {"run": "echo no; exit 3"},
        },
        parameters={"learning_rate": {"type": "float", "default": 0.1}},
    )
    cli.run({"train": {"run": "echo '{\"loss\": 1}' >> $STOKER_METRICS"}, "more": {"run": "true"}})
    server = ui()
    for scheme in ("light", "dark"):
        page, asked, wrong = look(chromium, server.url, color_scheme=scheme)
        for name in ("runs", "run?run=latest", "task?run=latest&task=train", "now", "names",
                     "log?run=latest&task=train", "steps", "steps?step=train", "devices", "compare",
                     "run?run=nope"):  # fmt: skip
            page.goto(f"http://127.0.0.1:{server.port}/{name}")
            for width in (390, 768, 1600):
                page.set_viewport_size({"width": width, "height": 900})
                faults = page.evaluate(FAULTS)
                assert not faults, (name, scheme, width, faults)
            page.evaluate(AXE)
            found = page.evaluate("axe.run()")["violations"]
            serious = [one for one in found if one["impact"] in ("serious", "critical")]
            assert not serious, (name, scheme, json.dumps(serious, indent=1)[:3000])
        expected = [text for text in wrong if "404" not in text]
        assert asked == [] and expected == []
        page.close()


def test_runs_use_the_room(cli: Cli, ui: Start, chromium: Browser) -> None:
    """On a wide window no column of many runs must be scrolled to."""
    rates = {name: {"type": "float", "default": 0.125} for name in ("rate", "decay", "dropout")}
    print_it = 'echo \'{"loss": 0.25, "accuracy": 0.5}\' >> $STOKER_METRICS'
    for _ in range(2):
        cli.run({"prepare": {"run": print_it}, "train": {"run": print_it}}, parameters=rates)
    page, _, _ = look(chromium, ui().url)
    for width, fits in ((390, False), (1024, False), (1600, True)):
        page.set_viewport_size({"width": width, "height": 900})
        page.goto(page.url)
        box = page.locator(".scroll:has(.runs)")
        room = box.evaluate("e => [e.scrollWidth - e.clientWidth, e.clientWidth]")
        assert page.evaluate(FAULTS) == [] and room[1] <= width
        assert not fits or (room[0] <= 0 and room[1] > 1400), room
    page.close()


def test_an_empty_log(cli: Cli, ui: Start, chromium: Browser) -> None:
    """It says so instead of an empty box; the first line takes the sentence's place."""
    go = cli.folder / "go"
    wait = f"until test -e {go}; do sleep 0.1; done; echo begun; sleep 0.1"
    cli.run({"still": {"run": "true"}}, name="still.json")
    cli.run({"still": {"run": "true"}}, name="still.json")
    running = cli.start("run", cli.document({"work": {"run": wait}}))
    server = ui()
    page, _, wrong = look(chromium, server.url)
    log, nothing = page.locator("pre.log"), page.locator(".nothing")
    wait_for(lambda: "work" in server.get("now").text)
    page.goto(f"http://127.0.0.1:{server.port}/log?run=latest&task=work")
    assert nothing.text_content() == "work has written nothing to stdout yet."
    assert nothing.is_visible() and not log.is_visible()
    go.touch()
    log.wait_for()
    assert log.text_content() == "begun\n" and not nothing.is_visible()
    assert running.wait(WAIT_S) == 0
    page.goto(f"http://127.0.0.1:{server.port}/log?run=latest&task=work&stream=stderr")
    assert nothing.text_content() == "work has written nothing to stderr."
    runs = [one["run"] for one in cli.json("runs")][1:]
    page.goto(f"http://127.0.0.1:{server.port}/log?run={runs[0]}&task=still")
    assert nothing.text_content() == f"still did not run here: its result is that of run {runs[1]}."
    assert page.evaluate(FAULTS) == [] and wrong == []
    page.close()


def test_running_steps_on_a_phone(cli: Cli, ui: Start, chromium: Browser) -> None:
    """A run's id stays one line beside the other columns."""
    cli.run({"before": {"run": "true"}})
    go = cli.folder / "go"
    document = cli.document({"on_a_phone": {"run": f"until test -e {go}; do sleep 0.1; done"}})
    running = cli.start("run", document)
    server = ui("--store", str(cli.folder))
    page, _, _ = look(chromium, server.url)
    page.set_viewport_size({"width": 390, "height": 900})
    page.goto(f"http://127.0.0.1:{server.port}/now")
    cell = page.locator(".tasks td:first-child", has_text="on_a_phone")
    cell.wait_for()
    lines = cell.evaluate("e => e.clientHeight / parseFloat(getComputedStyle(e).lineHeight)")
    assert lines < 3.5 and page.evaluate(FAULTS) == []
    go.touch()
    assert running.wait(WAIT_S) == 0
    page.close()


def test_long_names(cli: Cli, ui: Start, chromium: Browser) -> None:
    """They go over several lines, and leave the other columns and the page's width as they are."""
    word = "a-word-that-is-long-" * 6
    names = [f"a_step_whose_name_is_quite_long_{i}" for i in range(9)]
    cli.run({name: {"run": "true"} for name in names}, name="p.json", parameters={"note": word})
    document = json.loads((cli.folder / "p.json").read_text())
    cli.write("p.json", json.dumps({**document, "name": word}))
    assert cli("run", "-q", "--no-cache", "p.json").code == 0
    server = ui()
    page, _, wrong = look(chromium, server.url)
    page.set_viewport_size({"width": 1300, "height": 900})
    at = page.evaluate("document.querySelector('.runs .status').getBoundingClientRect().x")
    assert at < 900, "the status is seen"
    page.goto(f"http://127.0.0.1:{server.port}/run?run=latest")
    cut = page.evaluate("""[...document.querySelectorAll('svg.timeline .row')].map(e =>
        e.getBoundingClientRect().left - e.ownerSVGElement.getBoundingClientRect().left)""")
    assert cut and min(cut) >= 0
    page.set_viewport_size({"width": 390, "height": 900})
    assert page.evaluate(FAULTS) == [] and wrong == []


FAULTS = """() => {
  const wrong = [];
  if (document.documentElement.scrollWidth > innerWidth) wrong.push('the page scrolls sideways');
  for (const e of document.querySelectorAll('nav a, main a, button, input'))
    if (e.getBoundingClientRect().width > 0 && e.getBoundingClientRect().height < 12) wrong.push('tiny: ' + e.outerHTML);
  for (const e of document.querySelectorAll('input:not([type=hidden]), iframe, select'))
    if (!e.labels?.length && !e.getAttribute('aria-label') && !e.title) wrong.push('no label: ' + e.outerHTML);
  return wrong;
}"""


def tab_to(page: Any, text: str, key: str = "Enter") -> None:
    """Tab to what has this text or label, and press the key there; what has the focus is seen to have it."""
    for _ in range(80):
        page.keyboard.press("Tab")
        found = page.evaluate(
            "(e => [e.ariaLabel || e.textContent.trim(), e.matches(':focus-visible')])(document.activeElement)"
        )
        if found[0] == text:
            assert found[1], text
            page.keyboard.press(key)
            return
    raise AssertionError(f"Tab never reaches {text!r}")


def test_keyboard(cli: Cli, ui: Start, chromium: Browser) -> None:
    """From the address to a run and its task by Tab and Enter alone."""
    cli.run({"only": {"run": "true"}})
    run = run_id(cli)
    page, _, _ = look(chromium, ui().url)

    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    tab_to(page, run)
    page.wait_for_url("**/run?*")
    tab_to(page, "only")
    page.wait_for_url("**/task?*")
    assert page.inner_text("h1") == "only"
    page.close()


def test_keyboard_across(cli: Cli, ui: Start, chromium: Browser) -> None:
    """By Tab, Space and Enter alone: two runs are marked and compared, and a step is seen over its runs."""
    for lr in (0.1, 0.2, 0.3):
        steps = {"fit": {"run": f'echo \'{{"loss": {1 - lr}}}\' >> "$STOKER_METRICS"'}}
        assert cli.run(steps, parameters={"lr": {"type": "float", "default": lr}}).code == 0
    runs = [one["run"] for one in cli.json("runs")]
    page, _, wrong = look(chromium, ui().url)
    for run in runs[:2]:
        tab_to(page, f"compare run {run}", "Space")
    tab_to(page, "Compare the marked runs")
    page.wait_for_url("**/compare?*")
    shown = page.inner_text("main")
    assert runs[0] in shown and runs[1] in shown and runs[2] not in shown
    tab_to(page, runs[1])
    page.wait_for_url(f"**/run?run={runs[1]}")
    tab_to(page, "fit")
    page.wait_for_url("**/task?*")
    tab_to(page, "this step over its runs")
    page.wait_for_url("**/steps?*")
    assert all(run in page.inner_text("main") for run in runs)
    tab_to(page, runs[2])
    page.wait_for_url(f"**/run?run={runs[2]}")
    assert wrong == []
    page.close()


def test_without_script(cli: Cli, ui: Start, chromium: Browser) -> None:
    """Filter, sort and tag a run without JavaScript."""
    cli.run({"only": {"run": "true"}})
    context = chromium._chromium.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(ui().url)
    page.fill("#where", "status=succeeded")
    page.click(".filter button")
    page.click("td b a")
    page.fill(".actions input[name=text]", "mine")
    page.click("button.act-tag")
    assert "mine" in page.inner_text(".said")
    assert "mine" in cli("tag", "latest").out
    context.close()


def test_live(cli: Cli, ui: Start, chromium: Browser) -> None:
    """A log line, and the end of a run, are on their page within a second. On a busy machine single
    ones may be late, so the best of several counts; none takes long."""
    script = "for i in 0 1 2 3 4; do until test -e go-$i; do sleep 0.01; done; rm go-$i; echo said: $i; done"
    cli("run", cli.document({"quick": {"run": "true"}}))
    server = ui()
    base = f"http://127.0.0.1:{server.port}"
    page, _, wrong = look(chromium, server.url)
    log = chromium._chromium.new_page()
    log.goto(server.url)
    lines, ends = list[float](), list[float]()
    for _ in range(3):
        (cli.folder / "begun").unlink(missing_ok=True)
        child = cli.start(
            "run", cli.document({"slow": {"run": f"echo begun > begun; {script}", "cache": False}})
        )
        cli.until("begun")
        page.goto(f"{base}/run?run=latest")
        wait_for(lambda: page.inner_text("nav .live") == "live")
        log.goto(f"{base}/log?run=latest&task=slow")
        wait_for(lambda: log.inner_text("nav .live") == "live")
        for i in range(5):
            (cli.folder / f"go-{i}").touch()
            lines.append(seconds_until(log, "pre.log", f"said: {i}"))
        assert child.wait(60) == 0
        ends.append(seconds_until(page, ".pill", "succeeded"))
    assert wrong == []
    print(json.dumps({"log_s": lines, "run_s": ends}))
    assert min(lines) < 1 and min(ends) < 1, (lines, ends)
    assert max(lines + ends) < 10, (lines, ends)
    page.close()
    log.close()


def seconds_until(page: Any, selector: str, text: str) -> float:
    """How long it takes from now until an element has the text, which the browser itself notices."""
    begun = time.monotonic()
    page.wait_for_function(
        "([selector, text]) => document.querySelector(selector)?.innerText.includes(text)",
        arg=[selector, text],
        polling="raf",
    )
    return time.monotonic() - begun


def come_to(server: socket.socket) -> list[bytes]:
    """What each connection has sent to a server that never answers."""
    found = []
    while True:
        try:
            one = server.accept()[0]
        except BlockingIOError:
            return found
        one.settimeout(5)
        try:
            found.append(one.recv(200))
        except TimeoutError:
            found.append(b"")
        one.close()


def test_users_html(cli: Cli, ui: Start, chromium: Browser) -> None:
    """The page of a card class, and an artifact that is a page: shown, in a frame that runs nothing, asks
    for nothing, and reaches neither the page around it nor the server's forms; also when it is opened
    alone."""
    bad = (
        "<!DOCTYPE html><title>mine</title><p id=shown>shown</p>"
        "<script>top.document.title = parent.document.title = document.title = 'owned';"
        "fetch('/runs'); fetch('https://evil.example/'); new Image().src = 'https://evil.example/i'</script>"
        "<img src=https://evil.example/x.png onerror=\"document.title='owned'\">"
        "<link rel=stylesheet href=https://evil.example/x.css><iframe src=https://evil.example/f></iframe>"
        "<iframe src=/runs></iframe><object data=/runs></object><meta http-equiv=refresh content='0;url=https://evil.example/'>"
        "<form action=/act method=post><button id=go>go</button></form><base href=https://evil.example/>"
        "<style>@import 'https://evil.example/y.css'; #shown { background: url(https://evil.example/b) }</style>"
    )
    elsewhere = socket.create_server(("127.0.0.1", 0))
    elsewhere.setblocking(False)
    bad = bad.replace("https://evil.example", f"http://127.0.0.1:{elsewhere.getsockname()[1]}")
    card = {"stoker": 1, "type": "mine", "id": "one", "title": "Mine", "html": "one.html"}
    cli.write("bad.html", bad)
    cli.write("card.json", json.dumps(card))
    steps = {
        "make": {
            "run": f"cp '{cli.folder}/bad.html' $STOKER_OUTPUT/page; mkdir -p \"$STOKER_TASK_DIR/cards\";"
            f" cp '{cli.folder}/bad.html' \"$STOKER_TASK_DIR/cards/one.html\";"
            f" cp '{cli.folder}/card.json' \"$STOKER_TASK_DIR/cards/one.json\"",
            "outputs": ["page"],
        }
    }
    done = cli.run(steps)
    assert done.code == 0, done.err
    digest = done.steps["make"]["outputs"]["page"]["digest"]
    server = ui()
    page, _, _ = look(chromium, server.url)
    base = f"http://127.0.0.1:{server.port}"
    served = list[str]()
    page.on("response", lambda r: served.append(r.url.removeprefix(base)))
    for name, alone in (("task?run=latest&task=make", "card?run=latest&task=make&id=one"), (f"artifact?digest={digest}", f"raw?digest={digest}")):  # fmt: skip
        if name.startswith("task"):
            page.goto(f"{base}/{name}")
            frame = page.frame_locator("iframe.frame")
            assert frame.locator("#shown").inner_text() == "shown"
            assert page.title() != "owned" and "owned" not in page.frames[1].title()
            assert page.locator("iframe.frame").get_attribute("sandbox") == ""
            frame.locator("#go").click()
        page.goto(f"{base}/{alone}")
        assert page.inner_text("#shown") == "shown" and page.title() == "mine"
        page.locator("#go").click()
        page.wait_for_timeout(300)  # sleeps: a request that must not come has no event
    assert served and [one for one in served if one.startswith(("/act", "/runs"))] == []
    with elsewhere:
        assert not any(come_to(elsewhere))  # Chromium connects for a frame that it then refuses
    page.close()


def test_hostile(cli: Cli, ui: Start, chromium: Browser) -> None:
    """Names, parameters, logs, tags and pages of HTML that a step wrote: none of it runs."""
    cli.run(
        {"evil": {"run": f"cat <<'EOF'\n{EVIL}\nEOF\ncat <<'EOF' >&2\n{EVIL}\nEOF\nexit 1"}},
        parameters={"p": {"type": "str", "default": EVIL}},
    )
    cli.run({"evil": {"run": "true"}}, parameters={"p": {"type": "str", "default": EVIL + "2"}})
    assert cli("tag", "latest", "--add", EVIL).code == 0
    server = ui()
    page, asked, _ = look(chromium, server.url)
    for name in ("runs", "run?run=latest", "task?run=latest&task=evil", "log?run=latest&task=evil",
                 "log?run=latest&task=evil&q=script", "runs?where=%3Cscript%3E1%3C/script%3E",
                 "run?run=%3Cscript%3Ealert(1)%3C/script%3E", "compare", "steps",
                 f"steps?step={quote(EVIL)}"):  # fmt: skip
        page.goto(f"http://127.0.0.1:{server.port}/{name}")
        assert page.title() != "owned", name
        assert (
            page.evaluate("document.querySelectorAll('main script, main img[src=x]').length") == 0
        )
    assert asked == []
    headers = server.get("runs").headers
    policy = headers["content-security-policy"]
    assert "default-src 'none'" in policy and "'unsafe-inline'" not in policy.split("style-src")[0]
    assert headers["x-content-type-options"] == "nosniff"
    page.close()
