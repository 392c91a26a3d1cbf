"""What a step does with granted devices and with others: real processes, fake devices.

A step simulates the driver: it writes into the file of fake devices which process uses which
device.
"""

from __future__ import annotations

import importlib.util
import json
import os
import struct
import subprocess
from pathlib import Path
from typing import Any

import pytest
from cli_tools import LOOKED_AT, PYTHON, Cli

MIB = 1 << 20  # shares are rounded down to this
USE = (
    LOOKED_AT
    + """
import json, sys
path, rest = os.environ["FAKE"], json.loads(sys.argv[1])
devices = json.load(open(path))
for i, change in rest.items():
    if "mine" in change:
        change["processes"] = {str(os.getpid()): change.pop("mine")}
    devices[int(i)].update(change)
with open(path + ".new", "w") as f:
    json.dump(devices, f)
with open("used-by", "w") as f:
    f.write(str(os.getpid()))
os.rename(path + ".new", path)
look_at_me()
time.sleep(float(sys.argv[2]))  # sleeps: 600 of what is ended, else 0
"""
)


def use(cli: Cli, changes: dict[int, dict[str, Any]], seconds: float = 0) -> dict[str, Any]:
    """A command step that changes devices of the fake file ("mine": bytes that it has there), until that was seen and `seconds`."""
    cli.write("use.py", USE)
    return {
        "run": [PYTHON, str(cli.folder / "use.py"), json.dumps(changes), str(seconds)],
        "environment": {"FAKE": str(cli.folder / "devices.json")},
    }


def two(**more: Any) -> dict[str, Any]:
    return {"resources": {"gpu_count": 2}, **more}


def test_one_of_two_was_used(cli: Cli) -> None:
    cli.devices("GPU-a", "GPU-b", memory_used=1000, energy_mj=5000)
    step = use(
        cli,
        {
            0: {"mine": 3 << 30, "busy_percent": 50, "temperature_c": 60, "energy_mj": 9000},
            1: {"processes": {}},
        },
    )
    run = cli.run({"train": two(**step)})
    assert run.code == 0
    used = run.steps["train"]["used"]
    verdict = used["verdict"]
    assert (verdict["granted"], verdict["used"], verdict["cause"]) == (2, 1, "unknown")
    text = "granted 2 GPUs, used 1: GPU-b (index 1) never had a context; the reason is unknown"
    assert verdict["text"] == text
    assert f"step 'train': {text}" in run.shown["notes"]
    assert text in cli("show", "latest").out.replace("\n", " ").replace("  ", " ")
    a, b = used["devices"]
    assert (a["uuid"], a["context"], b["uuid"], b["context"]) == ("GPU-a", True, "GPU-b", False)
    assert a["peak_memory_bytes"] == 3 << 30 and a["peak_temperature_c"] == 60
    assert a["energy_j"] == 4.0 and 0 < a["busy_s"] < used["wall_s"]
    assert "peak_temperature_c" not in b and "busy_percent_mean" not in b  # unknown, not zero
    assert used["gpu_held_s"] == pytest.approx(2 * used["wall_s"], abs=0.01)
    assert used["gpu_busy_s"] == a["busy_s"]


def test_all_that_was_given_was_used(cli: Cli) -> None:
    cli.devices("GPU-a")
    run = cli.run({"train": {"resources": {"gpu_count": 1}, **use(cli, {0: {"mine": 5}})}})
    assert run.steps["train"]["used"]["verdict"] == {
        "granted": 1,
        "used": 1,
        "cause": "used",
        "text": "granted 1 GPU, used 1",
    }
    assert not any("granted" in note for note in run.shown["notes"])


def test_a_changed_mask_is_named(cli: Cli) -> None:
    cli.devices("GPU-a")
    step = use(cli, {0: {"processes": {}}})
    step["run"] = ["sh", "-c", 'CUDA_VISIBLE_DEVICES=7 "$@"', "sh", *step["run"]]
    run = cli.run({"train": {"resources": {"gpu_count": 1}, **step}})
    assert run.steps["train"]["used"]["verdict"]["cause"] == "wrong_mask"


def test_a_cpu_only_torch_is_named(cli: Cli) -> None:
    """For a command in any language, the files that its processes map show it."""
    torch = pytest.importorskip("torch")
    if torch.version.cuda or torch.version.hip:
        pytest.skip(f"this torch, {torch.__version__}, is not a CPU-only build")
    cli.devices("GPU-a")
    code = LOOKED_AT + "import torch; torch.ones(3).sum(); look_at_me()"
    step = {"run": [PYTHON, "-c", code], "resources": {"gpu_count": 1}}
    cli.write("devices.json", '[{"uuid": "GPU-a", "memory_bytes": 8000000000, "processes": {}}]')
    run = cli.run({"train": step}, timeout=120)
    assert run.code == 0
    verdict = run.steps["train"]["used"]["verdict"]
    # The driver lists no process and no use of memory; loaded libraries still show whether a device
    # was used.
    assert verdict["cause"] == "cpu_only_build", verdict
    assert "the installed torch is a CPU-only build" in verdict["text"]


TORCH = """
__version__, _C = "2.9.0", object()
class version:
    cuda, hip = "12.8", None
class cuda:
    is_initialized = staticmethod(lambda: INITIALIZED)
    device_count = staticmethod(lambda: 2)
    max_memory_allocated = staticmethod(lambda i: 0)
"""


@pytest.mark.parametrize("used", [0, 1])
def test_tensors_that_were_never_moved(cli: Cli, used: int) -> None:
    """A build for CUDA that reports at the step's end that it saw both devices."""
    cli.devices("GPU-a", "GPU-b", processes={})
    cli.write("torch/__init__.py", TORCH.replace("INITIALIZED", str(used > 0)))
    cli.write(
        "trains.py",
        f"{LOOKED_AT}\nimport json, torch\ndef f():\n"
        "    d = json.load(open('devices.json'))\n"
        f"    d[0]['processes'] = {{str(os.getpid()): 7}} if {used} else {{}}\n"
        "    open('devices.new', 'w').write(json.dumps(d))\n"
        "    os.rename('devices.new', 'devices.json')\n"
        "    look_at_me()\n",
    )
    run = cli.run({"train": {"python": "trains:f", **two()}}, "--python", PYTHON, timeout=60)
    assert run.code == 0
    unused = "GPU-a (index 0) and GPU-b" if used == 0 else "GPU-b"
    assert run.steps["train"]["used"]["verdict"] == {
        "granted": 2,
        "used": used,
        "cause": "not_moved",
        "text": f"granted 2 GPUs, used {used}: {unused} (index 1) never had a context; "
        "torch 2.9.0 saw the device, but no tensor was ever moved to it",
    }


def test_a_full_dev_shm_is_why(cli: Cli) -> None:
    """If /dev/shm is full, a DataLoader dies of SIGBUS."""
    small = ["unshare", "-m", "sh", "-c", 'mount -t tmpfs -o size=1m tmpfs /dev/shm && "$@"', "sh"]
    if subprocess.run([*small, "true"], capture_output=True).returncode != 0:
        pytest.skip("no mount namespace of our own to be had here")
    code = (
        "import mmap, os; f = open('/dev/shm/x', 'w+b'); f.truncate(8 << 20); "
        "m = mmap.mmap(f.fileno(), 8 << 20); m[:] = bytes(8 << 20)"
    )
    cli.write(
        "p.json",
        json.dumps({"stoker": 1, "name": "p", "steps": {"a": {"run": [PYTHON, "-c", code]}}}),
    )
    done = subprocess.run(
        [*small, str(cli.binary), "run", "p.json"],
        cwd=cli.folder,
        env=cli.env,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 1
    error = cli.json("show", "latest")["steps"]["a"]["error"]
    assert error["class"] == "shm_full"
    assert error["cause"].startswith(
        "killed by signal 7 (SIGBUS): /dev/shm was full (0 B left of 1.05 MB); make it larger"
    )


def test_a_tensorflow_without_a_device_is_named(cli: Cli) -> None:
    if importlib.util.find_spec("tensorflow") is None:
        pytest.skip("no TensorFlow in this Python")
    cli.devices("GPU-a")
    cli.write("devices.json", '[{"uuid": "GPU-a", "memory_bytes": 8000000000, "processes": {}}]')
    code = LOOKED_AT + "import tensorflow; print(tensorflow.constant([1.0]) * 2); look_at_me()"
    step = {"run": [PYTHON, "-c", code], "resources": {"gpu_count": 1}}
    run = cli.run({"train": step}, timeout=180)
    assert run.code == 0
    verdict = run.steps["train"]["used"]["verdict"]
    assert verdict["cause"] == "not_seen" and "tensorflow saw no device" in verdict["text"]


@pytest.mark.parametrize("policy", ["fit", "strict"])
def test_a_device_outside_the_lease(cli: Cli, policy: str) -> None:
    cli.devices("GPU-a", "GPU-b")
    step = use(cli, {1: {"mine": 7 << 20}}, 2.5)
    run = cli.run(
        {"stray": {"resources": {"gpu_count": 1}, **step}, "calm": {"run": "sleep 0.1"}},
        "--policy",
        policy,
    )
    notes = [n for n in run.shown["notes"] if "which it was not granted" in n]
    assert len(notes) == 1 and "step 'stray' uses GPU GPU-b (index 1)" in notes[0]
    stray = run.steps["stray"]
    assert run.statuses["calm"] == "succeeded"
    assert stray["used"]["verdict"]["cause"] == "other_device"
    assert "GPU-b" in stray["used"]["verdict"]["text"]
    if policy == "fit":
        assert run.code == 0
    else:
        assert run.code == 1 and stray["error"]["class"] == "other_device"
        assert run.cause("stray").startswith(
            "used GPU-b, which it was not granted (policy strict);"
        )


def test_nodes_of_other_devices_are_closed(cli: Cli) -> None:
    """Harmless device nodes stand in for devices: the control group forbids opening those not
    granted."""
    if "its own accelerators" not in cli("doctor").out.replace("\n", " "):
        pytest.skip("devices can't be closed here: no v1 device controller that is ours to write")
    devices = [{"uuid": "GPU-a", "node": "/dev/full"}, {"uuid": "GPU-b", "node": "/dev/zero"}]
    cli.devices()
    cli.write("devices.json", json.dumps(devices))
    see = 'for n in full zero null; do (: < /dev/$n) 2> /dev/null && echo $n; done > "$STOKER_OUTPUT/seen"'
    run = cli.run(
        {
            "one": {"run": see, "outputs": ["seen"], "resources": {"gpu_count": 1}},
            "both": {"run": see + " # both", "outputs": ["seen"], **two()},
            "none": {"run": see + " # none", "outputs": ["seen"]},
        }
    )
    assert run.code == 0
    assert run.output("one", "seen").split() == ["full", "null"]
    assert run.output("both", "seen").split() == ["full", "zero", "null"]
    assert run.output("none", "seen").split() == ["null"]


SAYS = {
    "device_oom": "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 GiB",
    "ecc": "RuntimeError: CUDA error: uncorrectable ECC error encountered",
    "device_lost": "CUDA_ERROR_DEVICE_UNAVAILABLE: all CUDA-capable devices are busy",
    "driver_gone": "Failed to initialize NVML: Driver/library version mismatch",
    "shm_full": "RuntimeError: unable to allocate shared memory(shm) for file </torch_1>",
}


@pytest.mark.parametrize("front", ["command", "python"])
@pytest.mark.parametrize("word", SAYS)
def test_failures_are_told_apart_by_their_words(cli: Cli, word: str, front: str) -> None:
    cli.devices("GPU-a")
    cli.write("fails.py", f"def f():\n    raise RuntimeError({SAYS[word]!r})\n")
    body = (
        {"run": f"echo '{SAYS[word]}' >&2; echo bye >&2; exit 3"}
        if front == "command"
        else {"python": "fails:f"}
    )
    run = cli.run({"a": {**body, "resources": {"gpu_count": 1}}}, "--python", PYTHON, timeout=60)
    assert run.code == 1
    assert run.steps["a"]["error"]["class"] == word
    cause = run.cause("a")
    assert SAYS[word] in cause and "; " in cause[cause.index(SAYS[word]) :]  # and the remedy


def test_a_lost_device_is_why_and_another_is_tried(cli: Cli) -> None:
    cli.devices("GPU-a", "GPU-b")
    step = use(cli, {0: {"lost": "GPU is lost"}}, 0.1)
    step["run"] = ["sh", "-c", '[ $STOKER_ATTEMPT = 2 ] || { "$@"; exit 1; }', "sh", *step["run"]]
    run = cli.run({"a": {"resources": {"gpu_count": 1}, **step}})
    assert run.code == 0
    a = run.steps["a"]
    assert a["attempts"] == 2 and a["granted"]["devices"][0]["uuid"] == "GPU-b"
    assert "GPU is lost" in run.err.replace("\n", " ")


def share(of: str, step: dict[str, Any]) -> dict[str, Any]:
    return {"resources": {"gpu_memory": of}, **step}


def test_who_goes_over_its_share_is_ended_alone(cli: Cli) -> None:
    cli.devices("GPU-a")
    calm = {
        "run": "until [ -s used-by ]; do sleep 0.05; done; while [ -d /proc/$(cat used-by) ]; do sleep 0.05; done"
    }
    greedy = use(cli, {0: {"mine": 4 * 10**9}}, 600)
    run = cli.run({"calm": share("2GB", calm), "greedy": share("3GB", greedy)})
    assert run.code == 1 and run.statuses == {"calm": "succeeded", "greedy": "failed"}
    error, used = run.steps["greedy"]["error"], run.steps["greedy"]["used"]
    assert error["class"] == "gpu_share"
    assert run.cause("greedy").startswith("used 4 GB of its 3 GB of GPU memory (GPU-a); ")
    device = used["devices"][0]
    assert 3 * 10**9 - device["share_bytes"] < MIB and device["peak_memory_bytes"] == 4 * 10**9
    # on a shared device it is unknown whose
    assert "energy_j" not in device and "busy_s" not in device
    part = device["share_bytes"] / (1 << 33)
    assert used["gpu_held_s"] == pytest.approx(part * used["wall_s"], abs=0.01)


def test_on_oom_gives_the_next_attempt_a_larger_share(cli: Cli) -> None:
    cli.devices("GPU-a")
    greedy = use(cli, {0: {"mine": 4 * 10**9}})
    step = share("3GB", greedy) | {"on_oom": {"gpu_memory": 2}}
    run = cli.run({"greedy": step})
    assert run.code == 0
    greedy = run.steps["greedy"]
    assert greedy["attempts"] == 2
    assert 6 * 10**9 - greedy["used"]["devices"][0]["share_bytes"] < 2 * MIB
    assert greedy["used"]["verdict"]["cause"] == "used"


def test_the_period_is_the_users(cli: Cli) -> None:
    many = (
        "until [ $(wc -c < $STOKER_TASK_DIR/samples.bin) -gt 2000 ]; do sleep 0.05; done; touch a"
    )
    steps = {
        "a": {"run": many, "sample": 0.02},
        "b": {"run": "until [ -e a ]; do sleep 0.05; done", "sample": 3600},
    }
    run = cli.run(steps)
    folder = Path(run.steps["a"]["dir"])
    data = (folder / "samples.bin").read_bytes()
    magic, n_devices, _, _ = struct.unpack_from("<8sIIq", data)
    assert magic == b"STKSMP3\n" and n_devices == 0
    times = [struct.unpack_from("<q", data, at)[0] for at in range(24, len(data) - 63, 64)]
    gaps = [b - a for a, b in zip(times, times[1:])]
    assert len(gaps) > 20 and 10 <= min(gaps) < 60, gaps  # of a busy machine some are longer
    assert not os.path.exists(Path(run.steps["b"]["dir"]) / "samples.bin")
