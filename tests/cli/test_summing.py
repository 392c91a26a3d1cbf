"""The engine answers signals and other tasks while it computes digests; sparse files cost
nothing."""

from __future__ import annotations

import hashlib
import os
import signal
from pathlib import Path
from typing import Any

import pytest
from cli_tools import WAIT_S, Cli, wait_for

pytestmark = pytest.mark.tsan

CHUNK = 16 << 20
LARGE = "head -c 3000000 /dev/zero | tr '\\0' x"
OUT = {"out": None}


def digest_of(chunks: list[bytes]) -> str:
    return hashlib.sha256(b"".join(chunks)).hexdigest()


@pytest.fixture
def held(cli: Cli) -> Path:
    """While this file exists, digests of large files don't advance."""
    hold = cli.write("hold", "")
    cli.env["STOKER_FAILPOINTS"] = "store.sum.mid:1:hold"
    cli.env["STOKER_FAILPOINT_HOLD"] = str(hold)
    return hold


def status(cli: Cli, step: str) -> str:
    shown = cli("show", "latest", "--json", STOKER_FAILPOINTS="")
    return "" if shown.code else cli_step(shown.out, step)


def cli_step(text: str, step: str) -> str:
    import json

    return str(json.loads(text)["steps"][step]["status"])


def output_step(command: str) -> dict[str, Any]:
    return {"run": ["sh", "-c", command], "outputs": ["out"]}


def test_a_neighbour_ends_while_an_output_is_summed(cli: Cli, held: Path) -> None:
    name = cli.document(
        {
            "large": output_step(f"{LARGE} > $STOKER_OUTPUT/out; echo > large.done"),
            "first": {"run": ["sh", "-c", "while [ ! -e large.done ]; do sleep 0.01; done"]},
            "second": {"run": ["true"], "after": ["first"]},
        }
    )
    run = cli.start("run", name)
    wait_for(lambda: status(cli, "second") == "succeeded", 60)
    assert status(cli, "large") == "running"
    held.unlink()
    assert run.wait(WAIT_S) == 0
    steps = cli("show", "latest", "--json", STOKER_FAILPOINTS="")
    assert cli_step(steps.out, "large") == "succeeded"


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_summing_of_an_output(cli: Cli, held: Path, how: signal.Signals) -> None:
    name = cli.document({"large": output_step(f"{LARGE} > $STOKER_OUTPUT/out; echo > done")})
    run = cli.start("run", name)
    cli.until("done")
    wait_for(lambda: status(cli, "large") == "running", 60)
    run.send_signal(how)
    assert run.wait(WAIT_S) in (130, 143)
    assert held.exists()
    assert status(cli, "large") == "cancelled"


@pytest.mark.parametrize("where", ["input", "cache"])
def test_a_signal_ends_the_summing_of_a_file(cli: Cli, held: Path, where: str) -> None:
    cli.write("data", "x" * 3_000_000)
    step: dict[str, Any] = {"run": ["true"]}
    step |= (
        {"inputs": {"x": {"file": "data"}}} if where == "input" else {"cache": {"files": ["data"]}}
    )
    name = cli.document({"reads": step, "neighbour": {"run": ["sh", "-c", "echo > done"]}})
    run = cli.start("run", name)
    cli.until("done")
    wait_for(lambda: status(cli, "neighbour") == "succeeded", 60)
    run.send_signal(signal.SIGINT)
    assert run.wait(WAIT_S) == 130
    assert held.exists()


def test_a_file_is_summed_once_and_then_used(cli: Cli) -> None:
    cli.write("data", "x" * 3_000_000)
    step = {"run": ["sh", "-c", "wc -c < $STOKER_INPUT_x"], "inputs": {"x": {"file": "data"}}}
    run = cli.run({"a": step, "b": step})
    assert run.statuses == {"a": "succeeded", "b": "succeeded"}
    assert run.text("a").strip() == "3000000"
    again = cli.run({"a": step, "b": step})
    assert again.statuses == {"a": "cached", "b": "cached"}


def test_an_input_that_is_summed_first_is_what_the_step_reads(cli: Cli) -> None:
    """The launch is postponed; files that it has linked are still the artifact."""
    assert cli.run({"make": output_step(f"{LARGE} > $STOKER_OUTPUT/out")}).code == 0
    [large] = [p for p in (cli.store / "artifacts").rglob("*") if p.is_file()]
    os.utime(large, (1, 1))  # its digest is unknown again
    inputs = {"x": {"artifact": large.parent.name + large.name}}
    run = cli.run({"read": {"run": ["sh", "-c", "wc -c < $STOKER_INPUT_x"], "inputs": inputs}})
    assert run.text("read").strip() == "3000000"


def test_a_sparse_output_costs_what_it_holds(cli: Cli) -> None:
    size = 300_000_000_000
    run = cli.run(
        {
            "sparse": output_step(
                f"printf data > $STOKER_OUTPUT/out; truncate -s {size} $STOKER_OUTPUT/out"
            )
        },
        timeout=100,
    )
    assert run.code == 0
    zeros = hashlib.sha256(bytes(CHUNK)).digest()
    first = hashlib.sha256(b"data" + bytes(CHUNK - 4)).digest()
    last = hashlib.sha256(bytes(size % CHUNK)).digest()
    expected = digest_of([first, *[zeros] * (size // CHUNK - 1), last])
    assert run.steps["sparse"]["outputs"]["out"]["digest"] == expected


def test_an_output_with_more_bytes_than_an_artifact_can_have(cli: Cli) -> None:
    run = cli.run({"sparse": output_step("truncate -s 4E $STOKER_OUTPUT/out || exit 7")})
    if "exit status 7" in run.err:
        pytest.skip("this file system has no such files")
    assert run.code == 1
    assert "larger than 1024 TiB" in run.err


def test_holes_are_summed_as_the_zeros_that_they_are(cli: Cli) -> None:
    """The same content with and without holes is one artifact."""
    make = (
        "printf begin > {0}; truncate -s 50000000 {0}; printf end >> {0}; truncate -s 70000001 {0}"
    )
    sparse, full = make.format("$STOKER_OUTPUT/out"), make.format("t")
    run = cli.run(
        {
            "sparse": output_step(sparse),
            "full": output_step(f"{full}; cat t | cat > $STOKER_OUTPUT/out; rm t"),
        },
        timeout=60,
    )
    one, other = (run.steps[s]["outputs"]["out"]["digest"] for s in ("sparse", "full"))
    assert one == other


def test_a_folder_of_many_files_is_no_reason_to_wait(cli: Cli, held: Path) -> None:
    many = "mkdir $STOKER_OUTPUT/out; cd $STOKER_OUTPUT/out; for i in $(seq 300); do echo $i > $i; done"
    name = cli.document(
        {
            "many": output_step(f"d=$PWD; {many}; echo > $d/many.done"),
            "other": {"run": ["sh", "-c", "while [ ! -e many.done ]; do sleep 0.01; done"]},
        }
    )
    run = cli.start("run", name)
    wait_for(lambda: status(cli, "other") == "succeeded", 60)
    assert status(cli, "many") == "running"
    held.unlink()
    assert run.wait(WAIT_S) == 0


def test_what_was_summed_before_the_engine_was_killed_is_taken_at_resume(cli: Cli) -> None:
    cli.write(
        "flow.py",
        """
import stoker, os

@stoker.step
def large() -> bytes:
    with open("ran", "a") as f: f.write("x")
    return b"x" * 3_000_000

@stoker.pipeline
def p():
    large()

if __name__ == "__main__":
    p()
""",
    )
    killed = cli("run", "flow.py", timeout=60, STOKER_FAILPOINTS="exec.settle.before:1:kill")
    assert killed.code != 0
    assert cli("resume", "latest", timeout=60).code == 0
    assert (cli.folder / "ran").read_text() == "x"
