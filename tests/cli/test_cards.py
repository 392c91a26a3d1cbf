"""What the pages of runs and tasks show: values, links, attempts, use; and how they look."""

from __future__ import annotations

import json
import re
import textwrap
from pathlib import Path

import pytest
from cli_tools import Cli, Run, wait_for
from front_tools import cannot
from pages import browser

VALUES = """
    import io
    import matplotlib
    matplotlib.use("Agg")
    import matplotlib.pyplot
    import numpy
    import pandas
    import plotly.graph_objects
    from PIL import Image
    from pathlib import Path
    from sklearn.linear_model import LogisticRegression
    from stoker import pipeline, step

    @step
    def frame() -> pandas.DataFrame:
        return pandas.DataFrame({"lr": [i / 8 for i in range(200)], "<b>": "x&y", "ok": True})

    @step
    def series() -> pandas.Series:
        return pandas.Series([1.5, 2.5], name="losses")

    @step
    def array() -> numpy.ndarray:
        return numpy.arange(900.0).reshape(300, 3)

    @step
    def figure():
        made, axes = matplotlib.pyplot.subplots()
        axes.plot([1, 3, 2])
        return made

    @step
    def picture():
        return Image.new("RGB", (1200, 300), (200, 30, 60))

    @step
    def chart():
        return plotly.graph_objects.Figure([
            plotly.graph_objects.Scatter(x=[1, 2, 3], y=[2, 1, 3], name="loss"),
            plotly.graph_objects.Bar(x=[1, 2, 3], y=[1, 2, 1], name="count")])

    @step
    def png() -> bytes:
        out = io.BytesIO()
        Image.new("RGB", (80, 30), (20, 130, 60)).save(out, "PNG")
        return out.getvalue()

    @step
    def file() -> Path:
        Path("notes.txt").write_text("first note\\nsecond note\\n")
        return Path("notes.txt")

    @step
    def words() -> str:
        return "one line\\n" * 100 + "<script>no</script>"

    @step
    def settings() -> dict:
        return {"optimizer": {"name": "adamw", "betas": [0.9, 0.999]}, "layers": [64] * 20}

    @step
    def accuracy() -> float:
        return 0.98765432

    @step
    def model():
        return LogisticRegression(C=0.5)

    @pipeline
    def values():
        frame(), series(), array(), figure(), picture(), chart(), png(), file(), words()
        settings(), accuracy(), model()

    if __name__ == "__main__":
        values()
"""

SEEN = {
    "frame": ("lr", "float64", "0.125", "&lt;b&gt;", "x&amp;y", "200 rows × 3 columns"),
    "series": ("losses", "1.5", "2 rows × 1 column"),
    "array": ("float64, 300 × 3", "899"),
    "figure": ('src="data:image/png;base64,',),
    "picture": ('src="data:image/png;base64,', "RGB, 1200 × 300 pixels"),
    "chart": ('src="data:image/svg+xml;base64,',),
    "png": ('src="data:image/png;base64,',),
    "file": ("first note\nsecond note",),
    "words": ("one line\none line", "…"),
    "settings": ("adamw", "0.999"),
    "accuracy": ("0.987654",),
    "model": ("LogisticRegression(C=0.5)",),
}


SWEEP = """
    from stoker import pipeline, step

    @step
    def fit(learning_rate: float, depth: int = 2) -> dict:
        assert depth != 7, "depth 7 is too deep"
        return {"loss": 1 / learning_rate, "depth": depth}

    @step
    def best(results: list) -> float:
        return min(one["loss"] for one in results)

    @pipeline
    def sweep():
        best([fit(learning_rate=i / 100, depth=i % 9) for i in range(1, 21)])

    if __name__ == "__main__":
        sweep()
"""


def program(cli: Cli, source: str, **env: str) -> Run:
    cli.write("prog.py", textwrap.dedent(source))
    return cli("run", "prog.py", **env)


def cells(html: str) -> dict[str, str]:
    """The rows of each artifact in the table, by its step."""
    table = re.search(r'<table class="artifacts">.*?</section>', html, re.S)
    assert table is not None
    parts = re.split(r"<tr><td><b>(\w+)\.?[\w]*</b>", table.group())
    return dict(zip(parts[1::2], parts[2::2]))


def card(cli: Cli, *args: str) -> str:
    done = cli("card", *args)
    assert done.code == 0, done.err
    return Path(done.out.strip()).read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def values(tmp_path_factory: pytest.TempPathFactory) -> Cli:
    for name in ("matplotlib", "plotly", "PIL", "pandas", "sklearn", "vl_convert"):
        try:
            __import__(name)
        except ImportError:
            cannot(f"{name} isn't installed (make deps-test)")
    cli = Cli(tmp_path_factory.mktemp("values"))
    done = program(cli, VALUES)
    assert done.code == 0, done.err
    return cli


def test_values_are_seen(values: Cli) -> None:
    """On the run's card, on the task's, and on those of a later run that took them from the cache."""
    first = json.loads(values("show", "latest", "--json").out)["run"]
    assert program(values, VALUES).code == 0
    shown = values("show", "latest", "--json")
    assert {step["status"] for step in json.loads(shown.out)["steps"].values()} == {"cached"}
    pages = [card(values), card(values, first)]
    pages += [card(values, f"latest/{step}") for step in ("frame", "figure", "words")]
    for page in pages[:2]:
        rows = cells(page)
        assert set(rows) == set(SEEN)
        for step, texts in SEEN.items():
            for text in texts:
                assert text in rows[step], (step, text)
    for step, page in zip(("frame", "figure", "words"), pages[2:]):
        for text in SEEN[step]:
            assert text in page, (step, text)
    assert all("<script" not in page for page in pages)


def test_previews_live_as_long_as_their_run(values: Cli) -> None:
    """The store's clean-up keeps what a run's cards show, and `verify` finds it whole."""
    shown = json.loads(values("show", "latest", "--json").out)
    assert values("store", "gc").code == 0
    assert values("store", "verify").code == 0
    assert "200 rows × 3 columns" in card(values, shown["run"])


def test_links(values: Cli) -> None:
    """From the run to its tasks, logs and the run before, and back; each leads to a file."""
    path = Path(values("card").out.strip())
    html = path.read_text(encoding="utf-8")
    links = re.findall(r'<a href="([^"]*)"', html)
    assert {f"{step}-0.card.html" for step in SEEN} <= set(links)
    assert any(re.fullmatch(r"\.\./[\w-]+/card\.html", link) for link in links)
    for link in links:
        assert (path.parent / link).exists(), link
    back = (path.parent / "frame-0.card.html").read_text(encoding="utf-8")
    assert '<a href="card.html">values</a>' in back
    copy = values.folder / "copy.html"
    assert values("card", "-o", str(copy)).code == 0
    assert "<a href" not in copy.read_text(encoding="utf-8")


def test_links_to_logs(cli: Cli) -> None:
    cli.run({"loud": {"run": "echo out; echo err >&2"}, "still": {"run": "true"}})
    path = Path(cli("card").out.strip())
    links = re.findall(r'<a href="([^"]*\.log)"', path.read_text(encoding="utf-8"))
    assert links == ["loud/0/1/stdout.log", "loud/0/1/stderr.log"]
    assert (path.parent / links[0]).read_text() == "out\n"


SHOWN = """
import os
from stoker import pipeline, step
from stoker.materializers import BaseMaterializer

class Report:
    def __init__(self, kind, text):
        self.kind, self.text = kind, text

class Reports(BaseMaterializer):
    ASSOCIATED_TYPES = (Report,)

    def save(self, data):
        with open(os.path.join(self.uri, "report"), "w") as stream:
            stream.write(data.text)

    def load(self, data_type):
        with open(os.path.join(self.uri, "report")) as stream:
            return Report("", stream.read())

    def save_visualizations(self, data):
        path = os.path.join(self.uri, "shown")
        with open(path, "wb") as stream:
            stream.write(b"\\xff\\xfe" if data.text == "bytes" else data.text.encode())
        return {path: data.kind}

@step(secrets=["TOKEN"])
def report(kind: str, text: str) -> Report:
    return Report(kind, text + (os.environ["TOKEN"] if kind == "markdown" else ""))

@step
def read(report: Report) -> str:
    return report.text

@pipeline
def reports():
    read(report("html", "<script>1</script><b>'bold'</b>"))
    report("markdown", "**token** ")
    report("csv", "name,n\\nalpha,1\\nbeta,2\\n")
    report("json", '{"key": ["deep"]}')
    report("image", "not a picture")
    report("csv", "bytes")
    report("film", "no such kind")

if __name__ == "__main__":
    reports()
"""


def test_visualizations_of_a_materializer(cli: Cli) -> None:
    """A card shows what `save_visualizations` wrote: a page runs nothing, secrets are masked."""
    done = program(cli, SHOWN, STOKER_SECRET_TOKEN="hunter2hunter2")
    assert done.code == 0, done.err
    rows, page = cells(card(cli)), card(cli)
    assert set(rows) >= {"report", "report_2", "report_3", "report_4"}
    assert (
        '<iframe sandbox="" title="a page of the step" srcdoc="&lt;script&gt;1&lt;/script&gt;'
        in rows["report"]
    )
    assert "<strong>token</strong>" in rows["report_2"] and "hunter2hunter2" not in page
    assert "<th>name</th>" in rows["report_3"] and "beta" in rows["report_3"]
    assert "deep" in rows["report_4"]
    assert 'src="data:image/png;base64,bm90IGE' in rows["report_5"]
    assert "<iframe" not in page.replace(rows["report"], "")
    warnings = json.loads(cli("show", "latest", "--json").out)["steps"]["report_7"]["warnings"]
    assert any("of kind 'film', which is left out" in one for one in warnings)


def test_secrets_in_previews(cli: Cli) -> None:
    """A preview is masked as a log is; the value itself isn't changed."""
    done = program(
        cli,
        """
        import pandas
        from stoker import pipeline, step

        @step(secrets=["TOKEN"])
        def leaky() -> pandas.DataFrame:
            import os
            return pandas.DataFrame({"token": [os.environ["TOKEN"]], "rest": ["kept"]})

        @pipeline
        def secret():
            leaky()

        if __name__ == "__main__":
            secret()
        """,
        STOKER_SECRET_TOKEN="hunter2hunter2",
    )
    assert done.code == 0, done.err
    html = card(cli)
    assert "kept" in html and "hunter2hunter2" not in html


def test_attempts_stay(cli: Cli) -> None:
    """After a resume the first attempt is in the timeline, and nothing warns."""
    cli.run(
        {
            "train": {"run": f"test -e {cli.folder}/ready"},
            "after": {"run": "true", "after": ["train"]},
        }
    )
    (cli.folder / "ready").touch()
    assert cli("resume").code == 0
    html = card(cli)
    assert len(re.findall(r'<rect class="bar was[^>]*><title>train, attempt 1: ', html)) == 1
    assert '<div class="note"' not in html


def test_asked_is_granted(cli: Cli) -> None:
    cli.run({"half": {"run": "true", "resources": {"cpu_count": 0.5}}})
    step = json.loads(cli("show", "--json").out)["steps"]["half"]
    assert step["asked"]["cpu_count"] == step["granted"]["cpu_count"] == 0.5
    assert re.search(r"half +\d+ \w+ +0\.5 CPU +0\.5 CPU", cli("show", LC_ALL="C").out)


def test_simulated_devices_say_so(cli: Cli) -> None:
    cli.run(
        {"train": {"run": "true", "resources": {"gpu_count": 2}}},
        env={"STOKER_ACCEL": "sim:4xA100"},
    )
    assert "2 simulated GPUs" in card(cli)
    assert "devices are simulated" in card(cli)
    assert "2 simulated GPUs" in cli("show", LC_ALL="C").out


def test_use_while_it_runs(cli: Cli) -> None:
    """A running step's memory and CPU time are those of its last sample."""
    run = cli.start(
        "run", cli.document({"work": {"run": f"while ! test -e {cli.folder}/end; do :; done"}})
    )

    def used() -> float:
        done = cli("show", "latest", "--json")
        steps = json.loads(done.out)["steps"] if done.code == 0 else {}
        return steps.get("work", {}).get("used", {}).get("cpu_s") or 0

    wait_for(lambda: used() > 0.05, why="the first samples")
    assert re.search(r"work .*[KM]B", cli("show", LC_ALL="C").out)
    assert re.search(r"<b>work</b>.*?<td>[^<]*[KM]B", card(cli), re.S)
    (cli.folder / "end").touch()
    assert run.wait() == 0


def test_nothing_is_unknown_by_a_number(cli: Cli) -> None:
    """Of a run that took all from its cache, no figure is made up."""
    steps = {"make": {"run": "echo 1 > $STOKER_OUTPUT/x", "outputs": ["x"]}}
    cli.run(steps), cli.run(steps)
    html = card(cli)
    assert "cached" in html
    assert ">0 ms<" not in html and ">–<" not in html


@pytest.mark.slow
def test_in_a_browser(values: Cli, cli: Cli) -> None:
    """At three widths, light, dark and on paper: nothing sticks out or is cut off, nothing is asked for."""
    long = "a-step-with-a-rather-long-name-that-says-what-it-does"
    cli.run(
        {
            "fails": {"run": "echo " + "x" * 300 + " >&2; exit 3"},
            long: {"run": "true", "resources": {"cpu_count": 1, "memory": "100MB"}},
            **{f"part{i}": {"run": "true", "after": [long]} for i in range(30)},
        }
    )
    sweep = Cli(cli.folder / "sweep")
    sweep.folder.mkdir()
    assert program(sweep, SWEEP).code == 1
    pages = [Path(of("card").out.strip()) for of in (values, cli, sweep)]
    pages += [pages[0].with_name(f"{step}-0.card.html") for step in ("frame", "chart", "words")]
    pages += [pages[1].with_name("fails-0.card.html")]
    with browser() as chromium:
        for page in pages:
            assert chromium.faults(page) == {}, page.name
        assert chromium.asked == []
