"""Cards: components, ``current.card``, the page, the client and the command line."""

from __future__ import annotations

import base64
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from front_tools import cannot, environment, needed, needs_engine, run_python

from stoker._worker import hidden
from stoker.flow import cards

WAIT_S = 60
DRAWS = importlib.util.find_spec("vl_convert") is not None

FLOW = """
import os, sys, time
from stoker.flow import FlowSpec, step, card, catch, current, Parameter
from stoker.flow.cards import *

HOSTILE = "<script>alert(1)</script><img src=x onerror=alert(2)>"

class Mine(MetaflowCard):
    type = "mine"
    def __init__(self, options={}, components=[], graph=None):
        self.options, self.graph = options, graph
    def render(self, task):
        names = sorted(a.id for a in task)
        return f"<p>{self.options['title']} {task.data.x} {task['x'].data} {task.pathspec} {names} {sorted(self.graph['steps'])}</p>"

class Slow(MetaflowCard):
    type = "slow"
    def render(self, task):
        time.sleep(600)

class Bad(MetaflowCard):
    type = "bad"
    def render(self, task):
        raise ValueError("no page today")

class Own(MetaflowCardComponent):
    def render(self):
        return {"made": "by me"}

class Broken(MetaflowCardComponent):
    def render(self):
        raise KeyError("lost")

def fib(n):
    return n if n < 2 else fib(n - 1) + fib(n - 2)  # slow
"""
MAIN = """
if __name__ == "__main__":
    F()
"""
ALL = (
    FLOW
    + """
class F(FlowSpec):
    alpha = Parameter("alpha", default=0.5)

    @card(type="mine", id="html", options={"title": "Mine"})
    @card(type="slow", id="slow", timeout=1)
    @card(type="bad", id="bad")
    @card(type="bad", id="silent", save_errors=False)
    @card(type="nosuch", id="nosuch")
    @card(type="blank", id="blank", options={"title": "A blank one"})
    @card
    @step
    def start(self):
        '''Everything that a card can have.'''
        import matplotlib
        matplotlib.use("Agg")
        import pandas
        from matplotlib import pyplot
        self.x = 1
        self.text = HOSTILE
        self.many = list(range(100000))
        c = current.card
        c.append(Markdown('''
            # Report
            *em* | [link](https://example.org) | ![p](http://evil.example/x.png)

            | a | b |
            |---|--:|
            | 1 | 2 |

            ''' + HOSTILE))
        c.append(ValueBox("Accuracy", 0.97, "on the test set", "success", "Up 2 %"))
        c.append(ValueBox("Loss", HOSTILE[:99], theme="warning"))
        c.append(ProgressBar(max=10, label="epochs"), id="bar")
        c.components["bar"].update(7, HOSTILE)
        c.components["nobody"].update(1)
        c.append(Table([[HOSTILE, 1, Markdown("**md**")], ["b", 2.5, Artifact({"k": HOSTILE})]], headers=["x", HOSTILE, "y"]))
        c.append(Table.from_dataframe(pandas.DataFrame({"n": range(100), "s": ["v"] * 100})))
        figure, axes = pyplot.subplots(figsize=(3, 2))
        axes.plot([1, 2, 3])
        c.append(Image.from_matplotlib(figure, "a figure"))
        c.append(Image.from_matplotlib(axes))
        c.append(Image(b"nonsense"))
        c.append(Artifact(HOSTILE, name="hostile"))
        c.append(VegaChart({"title": "Bars", "data": {"values": [{"a": "p", "b": 1}, {"a": HOSTILE, "b": 3}]}, "mark": "bar",
            "encoding": {"x": {"field": "a", "type": "nominal"}, "y": {"field": "b", "type": "quantitative"}}}))
        c.append(VegaChart({"data": {"values": [{"a": 1}]}, "mark": "boxplot"}))
        c.append(PythonCode(fib))
        c.append(PythonCode(code_string="x = '" + HOSTILE + "'"))
        try:
            1 / 0
        except ZeroDivisionError as bad:
            c.append(Error(bad, "It divided"))
        events = EventsTimeline(title="What happened")
        events.update({"action": HOSTILE}, style_theme="error", priority="high", payloads={"more": JSONViewer({"a": HOSTILE})})
        c.append(events)
        c.append(JSONViewer({"a": [1, {"b": HOSTILE}]}, title=HOSTILE))
        c.append(YAMLViewer({"host": "localhost", "ports": [1, 2]}))
        c.append(Own())
        c.append(Broken())
        c.append("no component")
        c["blank"].append(Markdown("only this"))
        print("to stdout")
        self.next(self.end)

    @step
    def end(self):
        self.has = "card" in current
"""
    + MAIN
)


def flow(
    folder: Path, source: str, *args: str, ok: bool = True
) -> subprocess.CompletedProcess[str]:
    """Run a command of the flow in ``source``."""
    return run_python(folder, source, *(args or ("run",)), name="flow.py", ok=ok)


def stoker(folder: Path, *words: str) -> str:
    env = environment(folder / ".stoker")
    done = subprocess.run(
        [env["STOKER_BIN"], *words], cwd=folder, env=env, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def page(folder: Path, *words: str) -> str:
    path = folder / "page.html"
    stoker(folder, "card", *words, "-o", str(path))
    return path.read_text()


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which the flow with all components has run."""
    folder = tmp_path_factory.mktemp("cards")
    told = flow(folder, ALL)
    (folder / "told").write_text(told.stdout + told.stderr)
    return folder


# ---------------------------------------------------------------------------- components alone


def test_what_components_write() -> None:
    import numpy

    assert cards.Markdown("\n    # a\n    b").written()["text"] == "\n# a\nb"
    cells = cards.Table([[numpy.float32(0.5), numpy.int64(3), float("nan"), None, 2**70, [1]]])
    assert cells.written()["rows"] == [[0.5, 3, "nan", None, "1180591620717411303424", "[1]"]]
    assert cards.Table([1, "ab", (2, 3)]).written()["rows"] == [[1], ["ab"], [2, 3]]
    assert cards.Image(b"\x89PNG\r\n\x1a\nx").written()["src"].startswith("data:image/png;base64,")
    assert cards.Image("http://e/x.png").written()["kind"] == "error"
    assert cards.Image(7).written()["kind"] == "error"
    bars = chart((numpy.int64(1), float("inf")))
    assert bars.written()["spec"]["data"]["values"] == [{"a": 1, "b": None}]
    assert cards.PythonCode().written()["kind"] == "error"
    assert cards.JSONViewer('{"a":1}').written()["text"] == '{\n  "a": 1\n}'
    assert cards.Error(ValueError("x"), "t").written() == {
        "kind": "error",
        "title": "t",
        "text": "ValueError('x')",
    }


def chart(*values: Any, **more: Any) -> cards.VegaChart:
    """Bars of ``values``."""
    encoding = {
        "x": {"field": "a", "type": "nominal"},
        "y": {"field": "b", "type": "quantitative"},
    }
    data = {"values": [{"a": a, "b": b} for a, b in values]}
    return cards.VegaChart({"mark": "bar", "data": data, "encoding": encoding, **more})


def svg_of(written: Any) -> str:
    """The picture that a chart wrote."""
    start = "data:image/svg+xml;base64,"
    assert written["src"].startswith(start), written
    return base64.b64decode(written["src"][len(start) :]).decode()


@pytest.mark.skipif(not DRAWS, reason="vl-convert-python is not installed")
def test_a_chart_is_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """As a picture with the data's words in it, anew when the chart is another one; no secret."""
    bars = chart(("apples", 1), ("<pears>", 3))
    svg = svg_of(bars.written())
    assert svg.startswith("<svg") and "apples" in svg and "&lt;pears&gt;" in svg
    bars.update({**bars.written()["spec"], "title": "Fruit"})
    assert "Fruit" in svg_of(bars.written())
    monkeypatch.setattr(hidden, "_values", ["hunter2"])
    svg = svg_of(chart(("hunter2", 1)).written())
    assert "hunter2" not in svg and "*******" in svg


@pytest.mark.skipif(not DRAWS, reason="vl-convert-python is not installed")
def test_a_chart_that_cannot_be_drawn_says_why() -> None:
    """Nothing is fetched for it, either."""
    far = chart(data={"url": "http://127.0.0.1:9/x.csv"}).written()
    assert "src" not in far and "not allowed" in far["why"]
    assert "Invalid specification" in cards.VegaChart({}).written()["why"]


def test_a_chart_without_vl_convert(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "vl_convert", None)
    written = chart(("p", 1)).written()
    assert written["why"] == "vl-convert-python is not installed" and "src" not in written
    assert written["spec"]["data"]["values"] == [{"a": "p", "b": 1}]


def test_a_card_has_stars_and_an_artifact_has_not(tmp_path: Path) -> None:
    """Shown text has no secret, also while it is written; artifacts of the step keep it."""
    source = """
import os
from stoker.flow import FlowSpec, card, current, secrets, step
from stoker.flow.cards import Markdown
class F(FlowSpec):
    @secrets(sources=["TOKEN"])
    @card
    @step
    def start(self):
        current.card.append(Markdown("it is " + os.environ["TOKEN"]))
        current.card.refresh(force=True)
        for path in os.listdir(os.environ["STOKER_TASK_DIR"] + "/cards"):
            text = open(os.environ["STOKER_TASK_DIR"] + "/cards/" + path).read()
            assert "it is *****" in text and os.environ["TOKEN"] not in text
        self.todo = [os.environ["TOKEN"], "b"]
        self.next(self.work, foreach="todo")
    @step
    def work(self):
        self.got = self.input
        self.next(self.end_all)
    @step
    def end_all(self, inputs):
        self.all = sorted(i.got for i in inputs)
        assert len(self.all[1]) == 15 and "*" not in self.all[1]
        self.next(self.end)
    @step
    def end(self):
        pass
if __name__ == "__main__":
    F()
"""
    done = run_python(
        tmp_path, source, "run", name="flow.py", STOKER_SECRET_TOKEN="hunter2-hunter2"
    )
    assert "hunter2" not in done.stdout + done.stderr
    (shown,) = tmp_path.glob(".stoker/runs/*/start/1/1/cards/*.json")
    assert "it is ***************" in shown.read_text() and "hunter2" not in shown.read_text()
    assert any(
        b"hunter2-hunter2" in path.read_bytes()
        for path in tmp_path.glob(".stoker/artifacts/*/*")
        if path.is_file()
    )


def test_yaml_reads_back() -> None:
    yaml = needed("yaml")
    data = {
        "a": [1, {"b": "x: y", "c": []}, [2, [3]]],
        "true": "no",
        "e": {},
        "n": None,
        "t": "two\nlines #",
    }
    assert yaml.safe_load(cards.YAMLViewer(data).written()["text"]) == data


def test_an_artifact_that_fights_back() -> None:
    class Rude:
        def __repr__(self) -> str:
            raise RuntimeError("no")

    assert (
        "whose repr() raises" in cards.Artifact([Rude()]).written()["text"]
        or "Rude" in (cards.Artifact([Rude()]).written()["text"])
    )
    assert len(cards.Artifact("x" * 10**6).written()["text"]) <= 2000


@pytest.mark.parametrize(
    ("said", "error"),
    [
        ({"title": "t" * 201, "value": 1}, ValueError),
        ({"title": 3, "value": 1}, TypeError),
        ({"value": None}, ValueError),
        ({"value": " "}, ValueError),
        ({"value": 1e16}, ValueError),
        ({"value": [1]}, TypeError),
        ({"value": 1, "theme": "a b"}, ValueError),
        ({"value": 1, "subtitle": "s" * 301}, ValueError),
        ({"value": 1, "change_indicator": " "}, ValueError),
    ],
)
def test_value_box_checks(said: dict[str, Any], error: type[Exception]) -> None:
    with pytest.raises(error):
        cards.ValueBox(**said)


def test_events() -> None:
    events = cards.EventsTimeline(max_events=2)
    for i in range(3):
        events.update({"i": i})
    assert [e["data"]["i"] for e in events.written()["events"]] == [2, 1]
    assert events.get_stats()["total_events"] == 3
    with pytest.raises(ValueError, match="priority"):
        events.update({}, priority="urgent")
    with pytest.raises(TypeError, match="VegaChart"):
        events.update({}, payloads={"c": cards.VegaChart({})})


# ---------------------------------------------------------------------------- the page


@needs_engine
def test_the_default_card(done: Path) -> None:
    html = page(done, "latest/start/1")
    assert "<script" not in html
    assert "onerror=" not in html.replace("onerror=alert(2)&gt;", "").replace(
        "onerror=alert(2)&amp;gt;", ""
    )
    assert 'src="http' not in html
    assert "default-src 'none'" in html
    for words in (
        "<h1>Report</h1>",
        ">link</a>",
        "0.97",
        "width:70.0%",
        "data:image/png;base64,",
        "a figure",
        "Image could not be shown",
        "10 of 100 rows",
        'src="data:image/svg+xml;base64,' if DRAWS else "<th>a</th>",
        "This chart is not drawn (",
        "It divided",
        "ZeroDivisionError",
        "What happened",
        "host: localhost",
        "by me",
        "Broken could not be shown",
        "<h2>Parameters</h2>",
        "[0, 1, 2, 3,",
        "<h2>Graph</h2>",
        "Everything that a card can have.",
        "Resources: asked, granted, used",
        "to stdout",
    ):
        assert words in html, words


@needs_engine
def test_a_blank_card_and_one_of_its_own(done: Path) -> None:
    blank = page(done, "latest/start/1", "--id", "blank")
    assert "A blank one" in blank
    assert "only this" in blank
    assert "<h2>Graph</h2>" not in blank
    html = page(done, "latest/start/1", "--id", "html")
    assert html.startswith("<p>Mine 1 1 F/")
    assert "['alpha', 'many', 'text', 'x'] ['end', 'start']</p>" in html


@needs_engine
def test_a_card_that_fails_fails_nothing(done: Path) -> None:
    """… and is reported: in its place the card says why."""
    told = (done / "told").read_text()
    for words in ("card 'slow' could not be made: TimeoutError", "no page today", "type 'nosuch'"):
        assert words in told
    listed = {
        c["name"]: c for c in json.loads(stoker(done, "card", "latest/start/1", "--list", "--json"))
    }
    assert sorted(listed) == ["bad", "blank", "default", "html", "nosuch", "slow"]
    assert listed["default"]["id"] is None
    assert (listed["html"]["type"], listed["html"]["id"]) == ("mine", "html")
    assert "no page today" in page(done, "latest/start/1", "--id", "bad")
    assert "it took more than 1 s" in page(done, "latest/start/1", "--id", "slow")
    result = json.loads(next(done.glob(".stoker/runs/*/start/1/1/result.json")).read_text())
    assert {"type": "default", "id": None, "path": "cards/default.json"} in result["cards"]
    assert len(result["cards"]) == 6


@needs_engine
def test_a_task_without_a_card_has_a_page(done: Path) -> None:
    html = page(done, "latest/end")
    assert "<h2>Artifacts</h2>" in html
    assert "Report of the step" not in html
    env = environment(done / ".stoker")
    for words, text in (
        (("latest/end", "--id", "x"), "has no card 'x'"),
        (("latest", "--list"), "RUN/STEP/ID"),
        (("latest/end", "--reload", "x"), "--reload"),
        (("--file", "none.json"), "--file needs --output"),
        (("--file", "none.json", "-o", "x.html"), "'none.json' is not a card"),
    ):
        bad = subprocess.run(
            [env["STOKER_BIN"], "card", *words], cwd=done, env=env, capture_output=True, text=True
        )
        assert bad.returncode != 0
        assert text in bad.stderr


@needs_engine
@pytest.mark.slow
def test_in_a_browser(done: Path, tmp_path: Path) -> None:
    """Light and dark are what they say; no part of the page is wider than the window, and nothing was asked for."""
    from PIL import Image

    if not shutil.which("chromium"):
        cannot("Debian's chromium isn't installed (make deps-test-all)")

    page(done, "latest/start/1")
    brightness = {}
    for name, scheme in (("light", "1"), ("dark", "0")):
        picture = tmp_path / f"{name}.png"
        subprocess.run(
            [
                "chromium",
                "--headless",
                "--no-sandbox",
                "--disable-gpu",
                "--hide-scrollbars",
                f"--user-data-dir={tmp_path / 'profile'}",
                f"--blink-settings=preferredColorScheme={scheme}",
                "--window-size=1000,5000",
                f"--screenshot={picture}",
                f"file://{done / 'page.html'}",
            ],
            check=True,
            capture_output=True,
            timeout=2 * WAIT_S,
        )
        grey = Image.open(picture).convert("L").resize((50, 250))
        brightness[name] = sum(grey.tobytes()) / (50 * 250)
        # Below and beside all panels is the page's ground: nothing sticks out.
        edge = Image.open(picture).convert("L").crop((990, 0, 1000, 4000))
        assert max(edge.tobytes()) - min(edge.tobytes()) <= 4
    assert brightness["light"] > 200
    assert brightness["dark"] < 80


# ---------------------------------------------------------------------------- afterwards


@needs_engine
def test_get_cards(done: Path) -> None:
    source = """
        from stoker.flow import Flow, namespace
        from stoker.flow.cards import get_cards
        namespace(None)
        run = Flow("F").latest_run
        task = run["start"].task
        found = get_cards(task)
        print(sorted((c.type, c.id) for c in found if c.id), len(found))
        print([c.type for c in get_cards(task.pathspec, id="blank")], len(get_cards(task, type="none")))
        one = get_cards(task, id="blank")[0]
        print("only this" in one.html, "only this" in one.get(), len(one.hash), "srcdoc=" in one._repr_html_())
        try:
            get_cards(run["end"].task)
        except Exception as bad:
            print(type(bad).__name__)
    """
    lines = run_python(done, source).stdout.splitlines()
    assert lines[0].endswith("('nosuch', 'nosuch'), ('slow', 'slow')] 6")
    assert lines[1:] == ["['blank'] 0", "True True 40 True", "CardNotPresentException"]


@needs_engine
def test_the_command_line(done: Path, tmp_path: Path) -> None:
    listed = json.loads(flow(done, ALL, "card", "list", "start", "--as-json").stdout)
    assert {c["type"] for c in listed["cards"]} == {
        "default",
        "blank",
        "mine",
        "slow",
        "bad",
        "nosuch",
    }
    assert "only this" in flow(done, ALL, "card", "get", "start", "--id", "blank").stdout
    path = tmp_path / "got.html"
    flow(done, ALL, "card", "get", "start", str(path), "--type", "default")
    assert "<h1>Report</h1>" in path.read_text()
    several = flow(done, ALL, "card", "get", "start", ok=False)
    assert "has 6 cards, choose one" in several.stderr
    none = flow(done, ALL, "card", "get", "end", ok=False)
    assert none.returncode != 0
    digest = next(c["hash"] for c in listed["cards"] if c["id"] == "blank")
    assert "only this" in flow(done, ALL, "card", "get", "start", "--hash", digest[:7]).stdout


@needs_engine
def test_the_server(done: Path) -> None:
    env = environment(done / ".stoker", PYTHONUNBUFFERED="1")
    serving = subprocess.Popen(
        [sys.executable, "flow.py", "card", "server", "--port", "0"],
        cwd=done,
        env=env,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert serving.stdout is not None
        url = next(line.strip() for line in serving.stdout if line.startswith("http://127.0.0.1:"))
        index = urllib.request.urlopen(url, timeout=WAIT_S).read().decode()
        assert index.count("<li>") == 6
        number = next(i for i, line in enumerate(index.split("<li>")[1:]) if "</a> default" in line)
        html = urllib.request.urlopen(f"{url}{number}", timeout=WAIT_S).read().decode()
        assert "<h1>Report</h1>" in html
        for request in (f"{url}99", urllib.request.Request(url, headers={"Host": "evil.example"})):
            with pytest.raises(urllib.error.HTTPError):
                urllib.request.urlopen(request, timeout=WAIT_S)
    finally:
        serving.terminate()
        serving.wait()


# ---------------------------------------------------------------------------- while it runs


LIVE = (
    FLOW
    + """
class F(FlowSpec):
    @card(refresh_interval=0)
    @card(id="seldom", refresh_interval=3600)
    @step
    def start(self):
        bar = ProgressBar(max=100, label="so far")
        current.card.append(bar)
        current.card["seldom"].append(Markdown("first"))
        for i in range(1, 51):
            bar.update(i)
            current.card.refresh()
            current.card["seldom"].refresh()
            current.card["seldom"].append(Markdown(f"later {i}"))
        open("at", "w").close()
        while not os.path.exists("go"):
            time.sleep(0.01)
        bar.update(100)
        self.next(self.end)

    @step
    def end(self):
        pass
"""
    + MAIN
)


@needs_engine
def test_refresh(tmp_path: Path) -> None:
    """What is refreshed is seen while the step runs, at most each interval; at the end it is all there."""
    running = threading.Thread(target=flow, args=(tmp_path, LIVE))
    running.start()
    deadline = time.monotonic() + WAIT_S
    while not (tmp_path / "at").exists():
        assert time.monotonic() < deadline
        time.sleep(0.01)
    try:
        live = page(tmp_path, "latest/start/1", "--reload", "3")
        seldom = page(tmp_path, "latest/start/1", "--id", "seldom")
    finally:
        (tmp_path / "go").touch()
        running.join()
    assert "width:50.0%" in live
    assert '<meta http-equiv="refresh" content="3"/>' in live
    assert "<p>first" in seldom
    assert "<p>later" not in seldom
    ended = page(tmp_path, "latest/start/1", "--reload", "3")
    assert "width:100.0%" in ended
    assert 'http-equiv="refresh"' not in ended
    assert "<p>later 50" in page(tmp_path, "latest/start/1", "--id", "seldom")
    assert not list(tmp_path.glob(".stoker/runs/*/start/1/1/cards/.*"))


SPUN = (
    FLOW
    + """
class F(FlowSpec):
    @card(type="mine", id="own", options={"title": "Mine"})
    @card(type="blank", id="blank")
    @card
    @step
    def start(self):
        self.x = 41
        current.card.append(Markdown("**bold** " + HOSTILE))
        current.card["blank"].append(Markdown("# Blank"))
        self.next(self.end)

    @step
    def end(self):
        pass
"""
    + MAIN
)
READS = """
from metaflow import Runner, Task, inspect_spin
from metaflow.cards import get_cards
with Runner("flow.py", show_output=False).spin("start", persist=True) as spun:
    task = spun.task
    cards = get_cards(task)
    print([(one.type, one.id) for one in cards], len(get_cards(task, type="blank")))
    for one in cards:
        open(f"{one.type}.html", "w").write(one.get())
    inspect_spin(".")
    print([one.hash for one in get_cards(Task(task.pathspec))] == [one.hash for one in cards])
"""


@needs_engine
def test_cards_of_a_spun_task(tmp_path: Path) -> None:
    flow(tmp_path, SPUN)
    (tmp_path / "reads.py").write_text(READS)
    done = stoker(tmp_path, "compat", "--", sys.executable, "reads.py")
    told = done.splitlines()
    assert told == ["[('blank', 'blank'), ('default', None), ('mine', 'own')] 1", "True"]
    default = (tmp_path / "default.html").read_text()
    assert "<strong>bold</strong>" in default and "41" in default and "<script" not in default
    blank = (tmp_path / "blank.html").read_text()
    assert "<h1>Blank</h1>" in blank and "41" not in blank.partition("<main>")[2]
    assert "<p>Mine 41 41 F/spin-" in (tmp_path / "mine.html").read_text()
    for words, said in (
        (("list",), "mine id own"),
        (("get", "start", "--id", "blank"), "<h1>Blank</h1>"),
        (("list", "end"), "no cards"),
    ):
        assert said in flow(tmp_path, SPUN, "--mode", "spin", "card", *words).stdout


FAILS = (
    FLOW
    + """
class F(FlowSpec):
    @step
    def start(self):
        self.xs = [1, 2]
        self.next(self.work, foreach="xs")

    @catch(var="why")
    @card
    @step
    def work(self):
        current.card.append(Markdown(f"item {self.input}"))
        if self.input == 2:
            raise ValueError("two is too much")
        self.next(self.join)

    @step
    def join(self, inputs):
        self.next(self.end)

    @step
    def end(self):
        raise RuntimeError("at the end")
"""
    + MAIN
)


@needs_engine
def test_a_failed_step_has_its_card(tmp_path: Path) -> None:
    flow(tmp_path, FAILS, "run", "--with", "card:type=blank,id=all", ok=False)
    names = sorted(
        p.parent.parent.parent.parent.name
        for p in tmp_path.glob(".stoker/runs/*/*/*/1/cards/all.json")
    )
    assert names == ["end", "join", "start", "work", "work"]
    assert "item 2" in page(tmp_path, "latest/work/3", "--id", "default")
    end = page(tmp_path, "latest/end")
    assert "RuntimeError" in end
    assert "at the end" in end


GANG = (
    FLOW
    + """
from stoker.flow import parallel
class F(FlowSpec):
    @step
    def start(self):
        self.next(self.train, num_parallel=2)

    @card
    @parallel
    @step
    def train(self):
        current.card.append(Markdown(f"node {current.parallel.node_index}"))
        self.next(self.join)

    @step
    def join(self, inputs):
        self.next(self.end)

    @step
    def end(self):
        pass
"""
    + MAIN
)


@needs_engine
def test_each_node_has_its_card(tmp_path: Path) -> None:
    flow(tmp_path, GANG)
    assert "node 0" in page(tmp_path, "latest/train/2")
    assert "node 1" in page(tmp_path, "latest/train/2_node_1")


@needs_engine
def test_current_card(tmp_path: Path) -> None:
    """Which card is meant, and the error if there is none."""
    source = (
        FLOW
        + """
class F(FlowSpec):
    @card(id="a")
    @card(id="b", customize=True)
    @step
    def start(self):
        c = current.card
        c.append(Markdown("in b"))
        c["a"].extend([Markdown("in a"), Markdown("more")])
        c["none"]
        c["b"].components["x"] = Markdown("x")
        try:
            c["b"].components["x"] = Markdown("y")
        except ValueError as bad:
            print("refused:", "update it" in str(bad))
        del c["b"].components["x"]
        print(len(c["a"]), len(c.components), [type(x).__name__ for x in c.get("default")])
        c["a"] = [Markdown("instead")]
        print(len(c["a"]), current.get("card") is c)
        self.next(self.end)

    @card(id="a")
    @card(id="b")
    @step
    def end(self):
        current.card.append(Markdown("whose?"))
        current.card.append(Markdown("whose?"))
"""
        + MAIN
    )
    told = flow(tmp_path, source)
    assert "refused: True" in told.stdout
    assert "2 1 ['OneCard', 'OneCard']" in told.stdout
    assert "1 True" in told.stdout
    both = told.stdout + told.stderr
    assert both.count("this step has no card 'none'") == 1
    assert both.count("the step has several cards: choose one") == 1
    assert "instead" in page(tmp_path, "latest/start/1", "--id", "a")
    assert "in b" in page(tmp_path, "latest/start/1", "--id", "b")


@needs_engine
def test_of_a_resumed_run(tmp_path: Path) -> None:
    """A task taken over from a run has the card of the original."""
    source = FAILS.replace('raise RuntimeError("at the end")', "assert os.path.exists('ok')")
    flow(tmp_path, source, "run", ok=False)
    (tmp_path / "ok").touch()
    flow(tmp_path, source, "resume")
    got = flow(tmp_path, source, "card", "list", "work", "--as-json").stdout
    assert len(json.loads(got)) == 2
    assert os.path.exists(tmp_path / "ok")
