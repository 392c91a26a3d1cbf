"""The time left in the line below a run: by how long its steps took before, and only then."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
from cli_tools import Cli
from terminal import Terminal

LEFT = re.compile(r"about (\d+) s left")


def step(name: str, seconds: float, *after: str) -> dict[str, Any]:
    """Takes so long the first time, and from then on until the test lets it go on."""
    wait = f"sleep {seconds}; test ! -e again || while ! test -e {name}.go; do sleep 0.02; done"
    return {"run": wait, "after": list(after), "resources": {"cpu_count": 0.1}, "cache": False}


@pytest.fixture
def runs(cli: Cli) -> Iterator[list[Terminal]]:
    made: list[Terminal] = []
    yield made
    for one in made:
        one.close()


def start(cli: Cli, runs: list[Terminal], document: str) -> Terminal:
    env = {**cli.env, "TERM": "xterm", "LC_ALL": "C.UTF-8"}
    runs.append(Terminal([str(cli.binary), "run", document], 110, 30, cwd=cli.folder, env=env))
    return runs[-1]


def seconds(text: str) -> int | None:
    found = LEFT.search(text)
    return int(found[1]) if found else None


def test_time_left(cli: Cli, runs: list[Terminal]) -> None:
    """The longest way through the graph, less what has run; nothing once it takes longer than ever."""
    steps = {"a": step("a", 4), "b": step("b", 3, "a"), "c": step("c", 3, "a"), "d": step("d", 0)}
    steps["d"] |= {"after": ["b", "c"]}
    document = cli.document(steps)
    first = start(cli, runs, document)
    first.until("d  ", "the end of the first run")
    assert first.end() == 0
    assert b"left" not in first.raw, "nothing was known"
    (cli.folder / "again").touch()
    second = start(cli, runs, document)
    second.until(LEFT.search)
    told = [int(n) for n in re.findall(rb"about (\d+) s left", second.raw)]
    assert told[0] in (5, 10), "2 of 7 s have gone"  # shown by 5 s
    second.until(lambda t: seconds(t) == 5)
    for name in "abcd":
        (cli.folder / f"{name}.go").touch()
    assert second.end() == 0


def test_longer_than_ever(cli: Cli, runs: list[Terminal]) -> None:
    document = cli.document({"a": step("a", 3)})
    assert cli("run", document).code == 0
    (cli.folder / "again").touch()
    run = start(cli, runs, document)
    run.until(LEFT.search)
    run.until(lambda t: "0/1" in t and not LEFT.search(t), "no time left, as it takes longer")
    (cli.folder / "a.go").touch()
    assert run.end() == 0


def test_a_new_step_is_unknown(cli: Cli, runs: list[Terminal]) -> None:
    """Its time may be anything, so the run's may."""
    assert cli("run", cli.document({"a": step("a", 0)})).code == 0
    (cli.folder / "again").touch()
    run = start(cli, runs, cli.document({"a": step("a", 0), "new": step("new", 0, "a")}))
    run.until(lambda t: re.search(r"0/2 .* [3-9]\.\d", t), "the run after three seconds")
    assert b"left" not in run.raw
    for name in ("a", "new"):
        (cli.folder / f"{name}.go").touch()
    assert run.end() == 0


def test_cached_steps_take_no_time(cli: Cli, runs: list[Terminal]) -> None:
    """What the cache has is over at once; what runs again takes what it took."""
    slow: dict[str, Any] = {"run": "sleep 8", "resources": {"cpu_count": 0.1}}
    steps = {"slow": slow, "b": step("b", 4)}
    document = cli.document(steps)
    assert cli("run", document).code == 0
    (cli.folder / "again").touch()
    run = start(cli, runs, document)
    assert seconds(run.until(LEFT.search)) == 5
    (cli.folder / "b.go").touch()
    assert run.end() == 0 and b"cached" in run.raw
