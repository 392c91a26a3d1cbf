"""A plan lists the project's private files that stay on this machine, wherever its code goes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from cli_tools import Cli

KEY = "-----BEGIN OPENSSH PRIVATE KEY-----\n"
PRIVATE = [".env", ".ssh/id_rsa", "mine.txt", "keys/server.pem", ".aws/credentials"]
NOTE = (
    "left out of the project's code as private: .aws/, .env, .ssh/, keys/server.pem, mine.txt; "
    "to include one, add a line with '!' and its name to .stokerignore"
)
IMAGE = "127.0.0.1:1/i:1"
STACKS = {
    "docker": {"backend": "docker", "default_image": IMAGE},
    "kubernetes": {"backend": "kubernetes", "store": "s3://b/p", "default_image": IMAGE},
    "batch": {
        "backend": "batch",
        "store": "s3://b/p",
        "default_image": IMAGE,
        "carry": "volume",
        "carry_volume": "/opt/stoker",
        "options": {"queue": "q"},
    },
}
STEPS = {"a": {"run": "true"}, "b": {"run": "true", "after": ["a"]}}


@pytest.fixture
def project(cli: Cli) -> Cli:
    cli.folder.chmod(0o755)
    cli.write("stoker.yaml", json.dumps({"stacks": STACKS}))
    cli.write("code.py", "x = 1\n")
    for name in PRIVATE:
        path = cli.write(name, KEY)
        path.chmod(0o600)
        path.parent.chmod(0o755)
    cli.env |= {"AWS_REGION": "eu-west-1", "AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b"}
    cli.env |= {"HOME": str(cli.folder.parent), "DOCKER_HOST": "unix:///nowhere/engine.sock"}
    return cli


def notes_of(cli: Cli, *words: str | Path) -> list[str]:
    done = cli("plan", "--json", *words, timeout=120)
    assert done.code == 0, done.err
    told: Any = json.loads(done.out.splitlines()[-1])["notes"]
    return [one for one in told if "private" in one]


@pytest.mark.parametrize("stack", STACKS)
def test_on_each_place(project: Cli, stack: str) -> None:
    name = project.document(STEPS)
    assert notes_of(project, "--with", stack, name) == [NOTE]
    text = project("plan", "--with", stack, name, timeout=120)
    assert text.out.count(f"note: {NOTE}\n") == 1
    assert not list(project.store.rglob("*")), "a plan writes nothing"


def test_code_that_stays_here(project: Cli) -> None:
    assert notes_of(project, project.document(STEPS)) == []


def test_one_step_of_many(project: Cli) -> None:
    steps = {**STEPS, "c": {"run": "true", "backend": "kubernetes"}}
    assert notes_of(project, project.document(steps)) == [NOTE]


def test_what_is_named_is_taken_along(project: Cli) -> None:
    project.write(".stokerignore", "!.env\n!.ssh\n!.aws\n")
    (note,) = notes_of(project, "--with", "kubernetes", project.document(STEPS))
    assert ".env" not in note and ".ssh" not in note and "mine.txt" in note


def test_nothing_is_private(project: Cli) -> None:
    project.write(".stokerignore", ".env\n.ssh/\n.aws/\nmine.txt\n*.pem\n")
    assert notes_of(project, "--with", "batch", project.document(STEPS)) == []


def test_a_python_file(project: Cli) -> None:
    project.write(
        "flow.py",
        "from stoker import pipeline, step\n@step\ndef one() -> int:\n    return 1\n"
        "@pipeline\ndef p():\n    one()\nif __name__ == '__main__':\n    p()\n",
    )
    assert notes_of(project, "--with", "kubernetes", "flow.py") == [NOTE]
