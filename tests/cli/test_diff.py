"""`stoker diff`: runs side by side, as text, JSON and a page."""

from __future__ import annotations

import json
import re
import textwrap
from pathlib import Path

import pytest
from cli_tools import PYTHON, Cli
from pages import browser

SWEEP = """
    from stoker import log_metadata, log_metrics, pipeline, step

    @step
    def load(n: int = 3) -> list:
        return list(range(n))

    @step
    def train(data: list, lr: float, kind: str) -> float:
        for i in range(20):
            log_metrics({"loss": (i + 1) ** -lr, "accuracy": lr * i / 100}, step=i)
        log_metadata({"note": "<script>alert(1)</script>"})
        return lr * 2

    @pipeline
    def sweep(lr: float = 0.1, kind: str = "mlp"):
        train(load(), lr, kind)

    if __name__ == "__main__":
        for i in range(14):
            sweep(lr=(i + 1) / 10, kind="<b>tree</b>" if i % 2 else "mlp & co")
"""
COMMAND = """
stoker: 1
name: said
steps:
  hello:
    run: |
      echo one
      echo {word}
      echo three
    environment: {{TOKEN: {token}}}
"""


def ids(cli: Cli, pipeline: str) -> list[str]:
    """Oldest first."""
    return [one["run"] for one in json.loads(cli("runs", pipeline, "--json").out)][::-1]


def rows(document: dict[str, list[dict[str, object]]], part: str) -> dict[str, dict[str, object]]:
    return {str(row["name"]): row for row in document[part]}


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> Cli:
    cli = Cli(tmp_path_factory.mktemp("swept"))
    cli.write("prog.py", textwrap.dedent(SWEEP))
    assert cli("run", "-q", "--python", PYTHON, "prog.py", timeout=240).code == 0
    return cli


def test_two(swept: Cli) -> None:
    first, second = ids(swept, "sweep")[:2]
    document = json.loads(swept("diff", first, second, "--json").out)
    assert document["runs"] == [first, second]
    assert rows(document, "parameters")["lr"]["values"] == [0.1, 0.2]
    loss = rows(document, "metrics")["train.loss"]
    assert loss["max"] == [1.0, 1.0] and loss["values"] == loss["min"]
    assert document["best"]["run"] == second and document["best"]["goal"] == "min"
    steps = rows(document, "steps")
    assert [one["status"] for one in steps["load"]["values"]] == ["succeeded", "cached"]
    assert steps["train"]["values"][0]["seconds"] > 0
    assert rows(document, "inputs")["train.lr"]["values"] == [0.1, 0.2]
    assert rows(document, "outputs")["train.output"]["differs"] is True
    assert "parameter lr changed" in rows(document, "why")["train"]["values"][1]
    assert "load.n" not in rows(document, "inputs") and rows(document, "code")["all steps"]
    both = json.loads(swept("diff", first, second, "--json", "--all").out)
    assert rows(both, "inputs")["load.n"]["values"] == [3, 3]
    text = swept("diff", first, second).out
    assert "+100 %" in text and f"best  {second}: train.loss" in text, text


def test_many(swept: Cli) -> None:
    runs = ids(swept, "sweep")
    head, *lines = swept("diff", "--where", "lr>0.25").out.splitlines()
    assert head.split()[:3] == ["run", "train.loss", "lr"] and len(lines) == 13
    assert runs[-1] in lines[0] and lines[0].endswith("best") and runs[2] in lines[-2]
    for words, best in {("--max", "loss"): runs[0], ("--min", "accuracy"): runs[0],
                        ("--best", "train.accuracy"): runs[-1], ("--best", "loss"): runs[-1]}.items():  # fmt: skip
        document = json.loads(swept("diff", "-p", "sweep", "--json", *words).out)
        assert document["best"]["run"] == best, words
        assert len(document["runs"]) == 14 and document["steps"] == []
    assert len(json.loads(swept("diff", "-p", "sweep", "-n", "3", "--json").out)["runs"]) == 3


def test_mistakes(swept: Cli) -> None:
    run = ids(swept, "sweep")[0]
    for words, part in {
        (): "name two runs",
        (run,): "name two runs",
        (run, "latest", "-w", "lr>0"): "or choose them by",
        (run, run): "named twice",
        (run, "nothing"): "nothing",
        ("-w", "lr>7"): "no run is like that",
        ("-w", "lr>1.35"): "only one run",
        ("-w", "lrr>1"): "did you mean 'lr'?",
        ("-p", "sweep", "--best", "los"): "did you mean 'loss'?",
        ("-p", "sweep", "--best", "note"): "that is a number",
        ("-p", "sweep", "--min", "loss", "--max", "loss"): "only one of",
    }.items():
        wrong = swept("diff", *words)
        assert wrong.code != 0 and part in wrong.err and wrong.out == "", (words, wrong.err)


def test_code_and_environment(cli: Cli) -> None:
    for word, token in (("two", "hunter2"), ("zwei", "hunter3")):
        cli.write("said.yaml", COMMAND.format(word=word, token=token))
        assert cli("run", "-q", "said.yaml").code == 0
    named = ids(cli, "said")
    text = cli("diff", *named).out
    assert "  -echo two\n  +echo zwei\n" in text and "   echo one\n" in text
    assert "$TOKEN" in text and "value 1" in text and "value 2" in text
    assert "hunter" not in text + cli("diff", *named, "--json", "--all").out
    page = cli.folder / "page.html"
    assert cli("diff", *named, "--html", "page.html").out.strip() == str(page)
    html = page.read_text(encoding="utf-8")
    assert '<span class="add">+echo zwei</span>' in html and "hunter" not in html


FLOW = """
    from stoker.flow import FlowSpec, Parameter, step

    class F(FlowSpec):
        n = Parameter("n", default=2, type=int)

        @step
        def start(self):
            self.items = list(range(self.n))
            self.next(self.work, foreach="items")

        @step
        def work(self):
            self.v = self.input
            self.next(self.join)

        @step
        def join(self, inputs):
            self.total = sum(one.v for one in inputs)
            self.next(self.end)

        @step
        def end(self):
            pass

    if __name__ == "__main__":
        F()
"""


def test_tags_and_retries(cli: Cli) -> None:
    steps = {"a": {"run": "[ -e ok ] || { touch ok; exit 1; }", "retry": {"max_retries": 1}}}
    first = cli.run(steps).shown["run"]
    assert cli("tag", first, "--add", "one", "--add", "two").code == 0
    second = cli.run({"a": {"run": "true"}}).shown["run"]
    text = cli("diff", first, second).out
    assert re.search(r"  tags +one, two +–", text) and re.search(r"✓ [^,]+, 1 retry ", text)


def test_flows_of_other_widths(cli: Cli) -> None:
    """The same step has another number in a wider run."""
    cli.write("flow.py", textwrap.dedent(FLOW))
    for n in (2, 4):
        assert cli("run", "-q", "--python", PYTHON, "flow.py", "--n", str(n)).code == 0
    document = json.loads(cli("diff", *ids(cli, "F"), "--json").out)
    assert rows(document, "outputs")["join.total"]["differs"] is True
    assert list(rows(document, "steps")) == ["start", "work", "join", "end"]
    assert "2 tasks" in cli("diff", *ids(cli, "F")).out


def test_open(swept: Cli, tmp_path: Path) -> None:
    seen = tmp_path / "seen"
    shower = tmp_path / "shower"
    shower.write_text(f'#!/bin/sh\ncp "$1" {seen}\n', encoding="utf-8")
    shower.chmod(0o755)
    done = swept("diff", "-p", "sweep", "--open", BROWSER=str(shower), TMPDIR=str(tmp_path))
    assert done.code == 0 and Path(done.out.strip()).parent == tmp_path
    assert "14 runs compared" in seen.read_text(encoding="utf-8")
    wrong = swept("diff", "-p", "sweep", "--open", BROWSER="/bin/false", TMPDIR=str(tmp_path))
    assert wrong.code == 3 and "set BROWSER" in wrong.err


@pytest.mark.parametrize("many", [False, True])
def test_page(swept: Cli, many: bool) -> None:
    chosen = ["-p", "sweep"] if many else [*ids(swept, "sweep")[:3], "--all"]
    path = Path(swept("diff", *chosen, "--html", f"page-{many}.html").out.strip())
    html = path.read_text(encoding="utf-8")
    assert "<script" not in html and "<b>tree" not in html and "&lt;b&gt;tree" in html
    assert html.count('<svg class="plot lines"') == 2
    assert html.count('<svg class="plot scatter"') == (2 if many else 0)
    assert html.count('class="thread') == (14 if many else 0)
    with browser() as chromium:
        assert chromium.faults(path) == {}
        assert chromium.asked == []
