"""Steps on other machines in `stoker plan`, and what is refused before anything starts. Nothing is
contacted."""

from __future__ import annotations

import json
from typing import Any

import pytest
from cli_tools import Cli

# nothing listens there, so a registry fails at once
IMAGE = "127.0.0.1:1/team/img:1"
HUGE = {"cpu_count": 9000, "memory": "900TB", "gpu_count": 8}


def stacks(cli: Cli, **more: Any) -> None:
    stack = {"backend": "kubernetes", "store": str(cli.folder / "share"), "default_image": IMAGE}
    doc = {"stacks": {"prod": {**stack, **more}}}
    (cli.folder / "stoker.yaml").write_text(json.dumps(doc))


def test_takes_nothing_here(cli: Cli) -> None:
    stacks(cli)
    doc = cli.document(
        {"here": {"run": "true", "backend": "local"}, "big": {"run": "x", "resources": HUGE}}
    )
    done = cli("plan", "--stack", "prod", doc)
    assert done.code == 0, done.err
    assert "9000 CPUs, 900 TB, 8 devices, on kubernetes (stack 'prod'), in " + IMAGE in done.out
    assert "1 step on other machines, 1 step on this machine" in done.out
    assert "this machine has" not in done.out  # neither fewer CPUs nor no GPUs
    told = json.loads(cli("plan", "--with", "prod", "--json", doc).out)["steps"]
    steps = {s["step"]: s for s in told}
    assert (steps["here"]["backend"], steps["big"]["backend"]) == ("local", "kubernetes")
    assert steps["big"]["stack"] == "prod" and steps["big"]["image"] == IMAGE
    assert steps["big"]["gpu_count"] == 8 and not steps["big"]["clamped"]


def test_one_step_by_its_backend(cli: Cli) -> None:
    """Without --with, a step that names a backend runs on its only stack."""
    stacks(cli)
    steps = {"a": {"run": "true"}, "b": {"run": "true", "backend": "kubernetes"}}
    done = cli("plan", cli.document(steps))
    lines = {line.split()[0]: line for line in done.out.splitlines() if line.strip()}
    assert "on kubernetes (stack 'prod')" in lines["b"] and "kubernetes" not in lines["a"]


def test_image_map(cli: Cli) -> None:
    stacks(cli, image_map={"nvcr.io/": "127.0.0.1:1/nvcr/"})
    steps = {"a": {"run": "true", "docker": {"parent_image": "nvcr.io/nvidia/x:1"}}}
    assert (
        "in 127.0.0.1:1/nvcr/nvidia/x:1" in cli("plan", "--with", "prod", cli.document(steps)).out
    )


def test_unknown_option(cli: Cli) -> None:
    """`plan` shows it with the nearest name; `run` refuses it before the first step."""
    stacks(cli, carry="volume", carry_volume="/opt/stoker")
    steps = {
        "a": {"run": "true", "backend": "local"},
        "b": {"run": "true", "after": ["a"], "backend": {"kubernetes": {"gpu_typ": "T4"}}},
    }
    sentence = "step 'b': Kubernetes has no option 'gpu_typ'; did you mean 'gpu_type'?"
    planned = cli("plan", "--with", "prod", cli.document(steps))
    assert planned.code == 0 and f"note: refused: {sentence}" in planned.out
    done = cli("run", "--with", "prod", cli.document(steps))
    assert done.code != 0 and sentence in done.err
    assert not any((cli.folder / ".stoker/runs").iterdir())


@pytest.mark.parametrize(
    ("stack", "step", "words"),
    [
        (
            {"default_image": None},
            {},
            [
                "step 'a' runs on kubernetes (stack 'prod'), but names no image",
                "parent_image",
                "default_image",
            ],
        ),
        ({"store": None}, {}, ["no store that its machines share", "STOKER_SHARE"]),
        (
            {},
            {
                "docker": {"parent_image": "pytorch/pytorch:2.9.1-cpu"},
                "resources": {"gpu_count": 1},
            },
            [
                "step 'a' asks for 1 device on kubernetes",
                "is made for CPUs",
                "take pytorch/pytorch:",
            ],
        ),
        (
            {},
            {"docker": {"requirements": ["numpy"]}},
            ["needs a built image, but stack 'prod' names no registry", "registry: HOST"],
        ),
    ],
)
@pytest.mark.parametrize("command", ["plan", "run"])
def test_refused(
    cli: Cli, command: str, stack: dict[str, Any], step: dict[str, Any], words: list[str]
) -> None:
    kept = {key: value for key, value in stack.items() if value is not None}
    stacks(cli, **kept)
    doc = json.loads((cli.folder / "stoker.yaml").read_text())
    for key in stack:
        doc["stacks"]["prod"].pop(key)
    (cli.folder / "stoker.yaml").write_text(json.dumps(doc))
    done = cli(command, "--with", "prod", cli.document({"a": {"run": "true", **step}}))
    assert done.code != 0
    for word in words:
        assert word in done.err, done.err
    assert not (cli.folder / ".stoker" / "runs").exists() or not any(
        (cli.folder / ".stoker/runs").iterdir()
    )


def test_costs_nothing_here(cli: Cli) -> None:
    """A run without steps elsewhere loads nothing and starts no thread for them, whatever stacks
    exist."""
    stacks(cli)
    run = "grep -c libcurl /proc/$PPID/maps; ls /proc/$PPID/task | wc -l"
    done = cli.run({"a": {"run": run}})
    assert done.text("a").split() == ["0", "1"]
