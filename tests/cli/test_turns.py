"""Signals are answered within a moment, however busy the machine is: between two looks at them the engine does no more
with files than takes some 50 ms. It counts what it does, and ends where that is too much."""

from __future__ import annotations

import signal
from typing import Any

import pytest
from cli_tools import Cli, wait_for

MIB = 1 << 20
LARGE = "head -c 50000000 /dev/zero | tr '\\0' x"
MANY = f"for i in $(seq 60); do {LARGE} | head -c {MIB} > $STOKER_OUTPUT/o$i; done"
FILES = "mkdir $STOKER_OUTPUT/out; cd $STOKER_OUTPUT/out; seq 6000 | split -l 1 -a 4 -"


def makes(command: str, *outputs: str) -> dict[str, Any]:
    return {"run": ["sh", "-c", command], "outputs": list(outputs or ("out",))}


def reads(**inputs: Any) -> dict[str, Any]:
    return {"run": ["true"], "inputs": inputs, "cache": {"files": []}}


@pytest.fixture(autouse=True)
def counted(cli: Cli) -> None:
    cli.env["STOKER_FAILPOINTS"] = "turn.long:1:exit"


KINDS: dict[str, dict[str, Any]] = {
    "a large output": {"a": makes(f"{LARGE} > $STOKER_OUTPUT/out")},
    "a folder of many files": {"a": makes(FILES)},
    "many small outputs": {"a": makes(MANY, *[f"o{i}" for i in range(1, 61)])},
    "many steps at once": {
        f"s{i}": makes(f"{LARGE} | head -c 900000 > $STOKER_OUTPUT/out") for i in range(30)
    },
    "the inputs of a step": {
        "a": makes(MANY, *[f"o{i}" for i in range(1, 61)]),
        "b": reads(**{f"x{i}": {"from": f"a.o{i}"} for i in range(1, 61)}) | {"after": ["a"]},
    },
}


@pytest.mark.parametrize("kind", KINDS)
def test_no_turn_is_long(cli: Cli, kind: str) -> None:
    run = cli.run(KINDS[kind], timeout=120)
    assert run.code == 0, run.err
    again = cli.run(KINDS[kind], timeout=120)
    assert again.code == 0, again.err


def test_no_turn_is_long_with_files_of_the_user(cli: Cli) -> None:
    for i in range(60):
        cli.write(f"small{i}", str(i % 10) * MIB)
    cli.write("large", "x" * 50_000_000)
    inputs = {f"x{i}": {"file": f"small{i}"} for i in range(60)} | {"large": {"file": "large"}}
    steps = {"a": {"run": ["true"], "inputs": inputs}}
    assert cli.run(steps, timeout=120).code == 0
    files = [f"small{i}" for i in range(60)] + ["large"]
    assert cli.run({"a": {"run": ["true"], "cache": {"files": files}}}, timeout=120).code == 0


SAME = "mkdir $STOKER_OUTPUT/out; echo same > $STOKER_OUTPUT/out/file"
HELD = {
    "a removal": (
        "store.remove.mid",
        {
            "a": makes(SAME),
            "b": makes(SAME) | {"after": ["a"]},
            "c": {"run": ["sleep", "1000"], "after": ["b"]},
        },
    ),
    "an output": ("store.sum.mid", {"a": makes(f"{LARGE} > $STOKER_OUTPUT/out")}),
    "an input": ("store.sum.mid", {"a": {"run": ["true"], "inputs": {"x": {"file": "data"}}}}),
    "a cache's file": ("store.sum.mid", {"a": {"run": ["true"], "cache": {"files": ["data"]}}}),
}


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["int", "term"])
@pytest.mark.parametrize("kind", HELD)
def test_the_engine_answers_while_a_thread_is_held(
    cli: Cli, kind: str, number: signal.Signals
) -> None:
    point, steps = HELD[kind]
    hold = cli.write("hold", "")
    cli.write("data", "x" * 3_000_000)
    cli.env |= {
        "STOKER_FAILPOINTS": f"{point}:1:hold,turn.long:1:exit",
        "STOKER_FAILPOINT_HOLD": str(hold),
    }
    engine = cli.start("run", cli.document(steps))
    wait_for((cli.folder / "hold.reached").exists, 120)
    shown = cli("show", "latest", "--json", STOKER_FAILPOINTS="")
    assert shown.code == 0, shown.err
    engine.send_signal(number)
    assert engine.wait(120) in (130, 143)
    assert hold.exists()
