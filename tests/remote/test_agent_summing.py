"""The agent answers signals whatever it does with files: it computes digests and copies in threads,
and an interrupted transfer leaves nothing incomplete in the share."""

from __future__ import annotations

import hashlib
import json
import signal
from pathlib import Path

import pytest
from cluster import Pod
from conftest import Drive
from waiting import wait_for

pytestmark = pytest.mark.tsan

CHUNK = 16 << 20
LARGE = "head -c 3000000 /dev/zero | tr '\\0' x"
SAVES = (
    f"mkdir -p $STOKER_CHECKPOINT_DIR/.a; {LARGE} > $STOKER_CHECKPOINT_DIR/.a/large;"
    " mv $STOKER_CHECKPOINT_DIR/.a $STOKER_CHECKPOINT_DIR/a"
)


class Held:
    """Nothing passes `point` in an agent while `file` is there."""

    def __init__(self, drive: Drive, point: str) -> None:
        self.file = drive.share.parent / "hold"
        self.file.touch()
        self.reached = self.file.with_name("hold.reached")
        drive.cluster.env |= {
            "STOKER_FAILPOINTS": f"{point}:1:hold",
            "STOKER_FAILPOINT_HOLD": str(self.file),
        }

    def wait(self) -> None:
        wait_for(self.reached.exists)


def objects(drive: Drive, below: str) -> list[Path]:
    return [p for p in (drive.share / below).rglob("*") if p.is_file()]


def pushed_input(drive: Drive) -> dict[str, object]:
    """An input that only the share has: the digest of its one chunk's digest."""
    data = b"y" * 3_000_000
    digest = hashlib.sha256(hashlib.sha256(data).digest()).hexdigest()
    path = drive.share / "artifacts" / digest[:2] / digest[2:]
    path.parent.mkdir(parents=True)
    path.write_bytes(data)
    return {"x": {"digest": digest, "path": f"{drive.store}/artifacts/{digest[:2]}/{digest[2:]}"}}


OUTPUTS = "stopped before its outputs were saved"
INPUTS = "stopped before its program started"
# what the agent does, the failpoint that its thread is held at, signals, what the end says
KINDS = {
    "sums an output": ("store.sum.mid", f"{LARGE} > $STOKER_OUTPUT/x; echo > DONE", OUTPUTS),
    "copies an output": ("store.copy.mid", f"{LARGE} > $STOKER_OUTPUT/x; echo > DONE", OUTPUTS),
    "sums an input": ("store.sum.mid", None, INPUTS),
    "copies an input": ("store.copy.mid", None, INPUTS),
}


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=["term", "int"])
@pytest.mark.parametrize("kind", KINDS)
def test_told_while_it(drive: Drive, kind: str, number: signal.Signals) -> None:
    point, script, said = KINDS[kind]
    held = Held(drive, point)
    more: dict[str, object] = {"outputs": ["x"]} if script else {"inputs": pushed_input(drive)}
    before = objects(drive, "artifacts")
    process = drive.begin(drive.task((script or "exit 3").replace("DONE", "/dev/null"), **more))
    pod = drive.cluster.pod("train")
    held.wait()
    pod.signal(number)
    end = drive.finish(process)[-1]
    assert held.file.exists()  # nobody let it go on
    assert not end["ok"] and end["failure"] == "preempted" and said in end["text"], end
    assert objects(drive, "artifacts") == before and objects(drive, ".tmp") == []
    name = drive.cluster.history[0]
    assert drive.cluster.done[name]["exit_status"] == 75


def test_told_while_it_saves_the_last_checkpoint(drive: Drive) -> None:
    """The program succeeded; its checkpoint can't be saved in time, but its end can."""
    held = Held(drive, "store.copy.mid")
    process = drive.begin(drive.task(SAVES))
    pod = drive.cluster.pod("train")
    held.wait()
    wait_for(lambda: not children(pod))
    pod.signal(signal.SIGTERM)
    end = drive.finish(process)[-1]
    assert held.file.exists()
    assert end["ok"], end
    assert objects(drive, ".tmp") == [] and not (drive.key().parent / "checkpoints").exists()


def children(pod: Pod) -> list[str]:
    """Of the agent, but for its guardians."""
    first = pod.first()
    try:
        pids = Path(f"/proc/{first}/task/{first}/children").read_text().split()
        names = [Path(f"/proc/{pid}/comm").read_text().strip() for pid in pids]
    except OSError:
        return ["?"]
    return [name for name in names if "guard" not in name]


def test_a_second_signal_is_at_once(drive: Drive) -> None:
    """The first one leaves unfinished transfers a moment."""
    held = Held(drive, "store.sum.mid")
    process = drive.begin(drive.task(f"{LARGE} > $STOKER_OUTPUT/x", outputs=["x"]))
    pod = drive.cluster.pod("train")
    held.wait()
    pod.signal(signal.SIGTERM)
    held.file.unlink()  # so it can be done in time
    end = drive.finish(process)[-1]
    assert end["ok"], end
    assert len(objects(drive, "artifacts")) == 1


def test_a_sparse_output_costs_what_it_holds(drive: Drive) -> None:
    size = 300_000_000_000
    script = f"printf data > $STOKER_OUTPUT/x; truncate -s {size} $STOKER_OUTPUT/x || exit 7"
    end = drive.end(drive.task(script, outputs=["x"]))
    if end["exit_status"] == 7:
        pytest.skip("this file system has no such files")
    assert end["ok"], end
    zeros = hashlib.sha256(bytes(CHUNK)).digest()
    chunks = [hashlib.sha256(b"data" + bytes(CHUNK - 4)).digest(), *[zeros] * (size // CHUNK - 1)]
    chunks.append(hashlib.sha256(bytes(size % CHUNK)).digest())
    expected = hashlib.sha256(b"".join(chunks)).hexdigest()
    result = json.loads((drive.dir() / "result.json").read_text())
    assert result["outputs"]["x"]["digest"] == expected
    (there,) = objects(drive, "artifacts")
    assert there.stat().st_size == size and there.stat().st_blocks * 512 < 1 << 20
    # and as the input of another one
    about = {"digest": expected, "path": f"{drive.store}/artifacts/{expected[:2]}/{expected[2:]}"}
    reads = f"stat -c %s {about['path']}; head -c 4 {about['path']}"
    end = drive.end(drive.task(reads, task=1, id=1, inputs={"x": about}))
    assert end["ok"], end
    assert (drive.dir(task=1) / "stdout.log").read_text() == f"{size}\ndata"
