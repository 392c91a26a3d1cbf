"""Wrong documents: one sentence with file and line, exit status 2, and nothing starts."""

from __future__ import annotations

import json

import pytest
from cli_tools import Cli

HEAD = "stoker: 1\nname: p\n"
STEPS = "steps:\n  a: {run: 'true'}\n"
DEEP = "{a: " * 100 + "1" + "}" * 100
BOMB = "".join(
    f"  l{i}: &l{i} [{', '.join([f'*l{i - 1}'] * 10) if i else '1'}]\n" for i in range(12)
)

# name: (text, line of the mistake or None for the whole file, words of the sentence)
CASES: dict[str, tuple[str | bytes, int | None, list[str]]] = {
    "empty": ("", None, ["empty"]),
    "only a comment": ("# nothing\n", None, ["empty"]),
    "a list": ("- stoker: 1\n- name: p\n", 1, ["mapping"]),
    "a scalar": ("just words\n", 1, ["mapping"]),
    "no version": ("name: p\n" + STEPS, None, ["stoker"]),
    "a newer version": ("stoker: 2\nname: p\n" + STEPS, 1, ["2"]),
    "no name": ("stoker: 1\n" + STEPS, None, ["name"]),
    "a bad name": ("stoker: 1\nname: a/b\n" + STEPS, 2, ["a/b"]),
    "no steps": (HEAD, None, ["steps"]),
    "steps as a list": (HEAD + "steps:\n  - run: true\n", 4, ["steps"]),
    "an unknown key": (HEAD + "moed: fail_fast\n" + STEPS, 3, ["'moed'", "did you mean 'mode'"]),
    "an unknown step key": (
        HEAD + "steps:\n  a:\n    rum: 'true'\n",
        5,
        ["'rum'", "did you mean 'run'"],
    ),
    "neither run nor python": (HEAD + "steps:\n  a: {tags: [x]}\n", 4, ["'a'", "run", "python"]),
    "both run and python": (
        HEAD + "steps:\n  a: {run: 'true', python: 'm:f'}\n",
        4,
        ["'a'", "run", "python"],
    ),
    "run is a number": (HEAD + "steps:\n  a: {run: 3}\n", 4, ["run"]),
    "run is true": (HEAD + "steps:\n  a: {run: true}\n", 4, ["run"]),
    "an empty command": (HEAD + "steps:\n  a: {run: []}\n", 4, ["run"]),
    "a wrong mode": (HEAD + "mode: fast\n" + STEPS, 3, ["fast"]),
    "a wrong memory": (
        HEAD + "steps:\n  a:\n    run: 'true'\n    resources: {memory: lots}\n",
        6,
        ["memory", "lots"],
    ),
    "negative CPUs": (HEAD + "resources: {cpu_count: -1}\n" + STEPS, 3, ["cpu_count", "-1"]),
    "a huge number": (
        HEAD + "retry: {max_retries: 99999999999999999999}\n" + STEPS,
        3,
        ["max_retries"],
    ),
    "too many retries": (HEAD + "retry: {max_retries: 1001}\n" + STEPS, 3, ["max_retries", "1001"]),
    "a wrong timeout": (HEAD + "timeout: soon\n" + STEPS, 3, ["timeout", "soon"]),
    "an unknown step": (
        HEAD + "steps:\n  abc: {run: 'true'}\n  b: {run: 'true', after: [abd]}\n",
        5,
        ["'abd'", "'abc'"],
    ),
    "an unknown output": (
        HEAD
        + "steps:\n  a: {run: 'true', outputs: [xyz]}\n  b: {run: 'true', inputs: {i: {from: a.xyy}}}\n",
        5,
        ["'xyy'", "'xyz'"],
    ),
    "an unknown parameter": (
        HEAD + "steps:\n  a: {run: 'true', inputs: {i: {param: n}}}\n",
        4,
        ["'n'"],
    ),
    "what comes later": (HEAD + "steps:\n  a: {run: 'true', foreach: x}\n", 4, ["foreach"]),
    "a duplicate key": (HEAD + "steps:\n  a: {run: 'true'}\n  a: {run: 'false'}\n", 5, ["'a'"]),
    "a tab": (HEAD + "steps:\n\ta: {run: 'true'}\n", 4, ["tab"]),
    "an open quote": (HEAD + "steps:\n  a: {run: 'true}\n", None, []),
    "a bad indent": (HEAD + "steps:\n  a:\n    run: 'true'\n   tags: [x]\n", 6, []),
    "too deep": (HEAD + f"extra: {DEEP}\n" + STEPS, 3, ["64"]),
    "an alias bomb": (HEAD + "extra:\n" + BOMB + STEPS, None, []),
    "an unknown alias": (HEAD + "extra: *nowhere\n" + STEPS, 3, ["nowhere"]),
    "not UTF-8": (
        b"stoker: 1\nname: p\ndescription: \xff\xfe\nsteps: {a: {run: 'true'}}\n",
        None,
        ["UTF-8"],
    ),
    "a zero byte": (
        b"stoker: 1\nname: p\ndescription: a\0b\nsteps: {a: {run: 'true'}}\n",
        None,
        [],
    ),
    "two documents": (HEAD + STEPS + "---\n" + HEAD + STEPS, None, ["document"]),
    "a foreign tag": (HEAD + "extra: !!python/object:os.system x\n" + STEPS, 3, []),
}


@pytest.mark.parametrize("name", CASES)
def test_a_wrong_document(cli: Cli, name: str) -> None:
    text, line, words = CASES[name]
    (cli.folder / "p.yaml").write_bytes(text if isinstance(text, bytes) else text.encode())
    run = cli("run", "p.yaml")
    assert run.code == (3 if name == "a newer version" else 2) and run.out == ""
    assert run.err.count("\n") == 1 and "p.yaml" in run.err  # one sentence
    if line is not None:
        assert f"p.yaml:{line}: " in run.err, run.err
    assert all(word in run.err for word in words), run.err
    assert not cli.store.exists()
    error = json.loads(cli("spec", "check", "--json", "p.yaml").out)["error"]
    assert error["class"] in ("spec", "limit", "usage", "version") and error["file"].endswith(
        "p.yaml"
    )
    assert cli("plan", "p.yaml").code == run.code


@pytest.mark.parametrize(
    "text, words",
    [
        ('{"stoker": 1, "name": "p", "steps": {"a": {"run": "true"}}', []),
        ('{"stoker": 1, "name": "p", "name": "q", "steps": {"a": {"run": "true"}}}', ["'name'"]),
        ('{"stoker": 1, "name": "p",\n "steps": {"a": {"rum": "true"}}}', ["p.json:2", "'rum'"]),
        ('{"stoker": 1, "name": "p", "steps": {"a": {"run": "true"}}} x', []),
        ('{"stoker": 1, "name": "\\ud800", "steps": {"a": {"run": "true"}}}', []),
        ("[" * 5000 + "]" * 5000, ["64"]),
        ('{"stoker": 1e400, "name": "p", "steps": {}}', []),
    ],
)
def test_wrong_json(cli: Cli, text: str, words: list[str]) -> None:
    cli.write("p.json", text)
    run = cli("run", "p.json")
    assert run.code == 2 and "p.json" in run.err and all(word in run.err for word in words), run.err
    assert not cli.store.exists()


def test_files_that_are_none(cli: Cli) -> None:
    assert "nowhere.yaml" in (run := cli("run", "nowhere.yaml")).err and run.code == 2
    (cli.folder / "folder.yaml").mkdir()
    run = cli("run", "folder.yaml")
    assert run.code in (2, 3) and "folder.yaml" in run.err
    assert cli("run", "/dev/null/p.yaml").code in (2, 3)


@pytest.mark.parametrize("memory", ["100", "10KB", "6291455", "0.5MB"])
def test_memory_that_starts_nothing(cli: Cli, memory: str) -> None:
    text = f"stoker: 1\nname: p\nsteps:\n  a: {{run: 'true', resources: {{memory: {memory}}}}}\n"
    cli.write("p.yaml", text)
    run = cli("run", "p.yaml")
    assert run.code == 2 and "p.yaml:4: step 'a': 'resources.memory' is " + memory in run.err
    assert "a step needs at least 6 MiB" in run.err


def test_the_least_memory_starts_a_program(cli: Cli) -> None:
    assert cli.run({"a": {"run": "echo hi", "resources": {"memory": "6MiB"}}}).code == 0


BOM = "\ufeff"


@pytest.mark.parametrize("name", ["p.yaml", "p.json"])
def test_a_byte_order_mark(cli: Cli, name: str) -> None:
    yaml = "stoker: 1\nname: p\nsteps:\n  a: {run: 'true'}\n"
    json_text = '{"stoker": 1, "name": "p", "steps": {"a": {"run": "true"}}}'
    cli.write(name, BOM + (yaml if name == "p.yaml" else json_text))
    cli.write("stoker.yaml", BOM + "stacks:\n  here: {backend: local}\n")
    assert cli("run", name, "--with", "here").code == 0
    assert "here" in cli("stack", "list").out


def test_yaml_as_people_write_it(cli: Cli) -> None:
    """Anchors, aliases, block text, comments, quotes; scalars of YAML 1.2, not of 1.1."""
    cli.write(
        "p.yaml",
        """\
# a pipeline
stoker: 1
name: "p"
description: >
  folded
  text
environment: &env {A: yes, B: 010, C: 1e3, D: "~", E: 12:30:00}
steps:
  a:
    environment: *env
    run: |
      echo "$A $B $C $D $E"
""",
    )
    run = cli("run", "p.yaml")
    assert (
        run.code == 0
        and run.text("a").split()[0] == "yes"
        and run.text("a").split()[4] == "12:30:00"
    )
