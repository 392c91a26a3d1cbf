"""Devices shared by steps, runs and programs: which one gets which, which one waits, and what
happens if a device fails."""

from __future__ import annotations

import json
import os
import subprocess
from typing import Any

from cli_tools import PYTHON, WAIT_S, Cli, Steps, wait_for

GB = 1 << 30
HOLD = "echo up > up-$STOKER_STEP; while ! test -e go; do sleep 0.02; done"


def gpu(run: str, cpus: float = 0.1, **resources: Any) -> dict[str, Any]:
    return {"run": run, "resources": {"cpu_count": cpus, "gpu_count": 1, **resources}}


def together(n: int) -> str:
    """A command that ends only if n steps with it run at the same time."""
    return (
        f"touch in-$STOKER_STEP; i=0; while test $(ls in-* | wc -l) -lt {n}; do "
        "i=$((i+1)); test $i -lt 6000 || exit 1; sleep 0.02; done"
    )


def granted(steps: Steps, name: str) -> dict[str, Any]:
    (device,) = steps[name]["granted"]["devices"]
    return dict(device)


def change(cli: Cli, i: int, **values: Any) -> None:
    """Changes fake device i."""
    devices = json.loads((cli.folder / "devices.json").read_text())
    devices[i].update(values)
    cli.write("devices.new", json.dumps(devices))
    (cli.folder / "devices.new").rename(cli.folder / "devices.json")


def started(cli: Cli, steps: Steps, name: str, step: str) -> subprocess.Popen[str]:
    process = cli.start("run", "--no-cache", cli.document(steps, name))
    cli.until(f"up-{step}")
    return process


def test_runs_that_race_never_share_a_whole_device(cli: Cli) -> None:
    cli.devices("GPU-a", "GPU-b")
    # sleeps: so that others can come
    text = 'mkdir "m-$CUDA_VISIBLE_DEVICES" && sleep 0.05 && rmdir "m-$CUDA_VISIBLE_DEVICES"'
    steps = {f"s{i}": gpu(text) for i in range(6)}
    runs = [cli.start("run", "--no-cache", cli.document(steps, f"{i}.json")) for i in range(3)]
    for run in runs:
        _, said = run.communicate(timeout=60)
        assert run.returncode == 0, said


def test_alternatives_are_tried_in_their_order(cli: Cli) -> None:
    cli.devices("GPU-a", "GPU-b")
    change(cli, 0, model="NVIDIA A100-SXM4-80GB")
    change(cli, 1, model="Tesla T4")
    step = {
        "run": together(2),
        "resources": {"cpu_count": 0.1, "any_of": [{"gpu_class": "T4"}, {"gpu_class": "A100"}]},
    }
    run = cli.run({"first": step, "second": step})
    assert run.code == 0, run.err
    assert granted(run.steps, "first")["model"] == "Tesla T4"
    assert granted(run.steps, "second")["model"] == "NVIDIA A100-SXM4-80GB"


def test_shares_of_one_device_side_by_side(cli: Cli) -> None:
    cli.devices("GPU-a")  # 8 GiB
    share = {"gpu_memory": "2GiB"}
    steps = {f"s{i}": gpu(together(4), **share) for i in range(4)} | {
        "more": gpu("test -e done-s0 || ls in-* | wc -l", gpu_memory="1GiB")
    }
    run = cli.run(steps)
    assert run.code == 0, run.err
    for name in ("s0", "s1", "s2", "s3"):
        assert granted(run.steps, name)["share_bytes"] == 2 * GB
        assert granted(run.steps, name)["memory_bytes"] == 8 * GB
    ends = [run.steps[f"s{i}"]["ended_ms"] for i in range(4)]
    assert run.steps["more"]["started_ms"] >= min(ends) - 5  # the device was full until then


def test_a_whole_device_waits_for_its_shares(cli: Cli) -> None:
    cli.devices("GPU-a")
    run = cli.run({"a": gpu("sleep 0.3", gpu_memory="1GiB"), "b": gpu("true")})
    assert run.code == 0, run.err
    assert run.steps["b"]["started_ms"] >= run.steps["a"]["ended_ms"] - 5


def test_why_names_who_has_it(cli: Cli) -> None:
    cli.devices("GPU-a", "GPU-b")
    first = started(cli, {"h": gpu(HOLD)}, "first.json", "h")
    second = started(cli, {"own": gpu(HOLD), "both": gpu("true", gpu_count=2)}, "2.json", "own")
    why = cli("why", "latest/both").out
    runs = json.loads(cli("runs", "--json").out)
    assert "step 'both' has all its inputs and waits for devices:" in why
    assert "GPU 1: step 'own' of this run" in why
    assert f"GPU 0: run {runs[1]['run']} step h (user " in why, why
    cli.write("go", "")
    assert first.wait(WAIT_S) == 0 and second.wait(WAIT_S) == 0
    notes = cli("show", "latest").shown["notes"]
    assert any("step 'both' waits for devices: GPU 0: run " in note for note in notes)


def test_why_tells_cpus_memory_and_workers_apart(cli: Cli) -> None:
    hold = {"run": HOLD, "resources": {"cpu_count": 1}}
    many = {"run": "true", "resources": {"cpu_count": len(os.sched_getaffinity(0))}}
    process = started(cli, {"h": hold, "w": many}, "cpu.json", "h")
    assert "waits for CPUs, which step 'h' of this run holds" in cli("why", "latest/w").out
    cli.write("go", "")
    assert process.wait(WAIT_S) == 0
    (cli.folder / "go").unlink()
    (cli.folder / "up-h").unlink()
    document = cli.document({"h": hold, "w": {"run": "true"}}, "w.json")
    process = cli.start("run", "--no-cache", "--max-workers", "1", document)
    cli.until("up-h")
    assert "waits for a free worker (--max-workers), which step 'h'" in cli("why", "latest/w").out
    cli.write("go", "")
    assert process.wait(WAIT_S) == 0


def test_a_program_outside_is_passed_over_and_named(cli: Cli) -> None:
    cli.devices("GPU-a", "GPU-b")
    program = subprocess.Popen(["sleep", "60"])
    try:
        change(cli, 0, processes={str(program.pid): GB})
        run = cli.run({"one": gpu("true")})
        assert granted(run.steps, "one")["uuid"] == "GPU-b"
        waiter = cli.start("run", "--no-cache", cli.document({"w": gpu("true", gpu_count=2)}))
        wait_for(lambda: "waits for devices" in waiter.stderr.readline())
        assert f"GPU 0: pid {program.pid} (sleep, user " in cli("why", "latest/w").out
        change(cli, 0, processes={})
        assert waiter.wait(WAIT_S) == 0
    finally:
        program.kill()
        program.wait()


OOM = json.dumps(
    {
        "stoker": 1,
        "status": "failed",
        "error": {
            "class": "device_oom",
            "type": "OutOfMemoryError",
            "message": "CUDA out of memory",
        },
    }
)


def test_out_of_device_memory_asks_for_a_larger_share(cli: Cli) -> None:
    cli.devices("GPU-a")  # 8 GiB
    say = f"echo {json.dumps(OOM)} > $STOKER_TASK_DIR/result.json; exit 1"
    step = gpu(f"test $STOKER_ATTEMPT = 3 || {{ {say}; }}", gpu_memory="2GiB")
    run = cli.run({"a": step | {"on_oom": {"gpu_memory": 1.5, "max_retries": 2}}})
    assert run.code == 0, run.err
    assert granted(run.steps, "a")["share_bytes"] == 4608 << 20 and run.steps["a"]["attempts"] == 3
    run = cli.run({"a": gpu(say, gpu_memory="5GiB") | {"on_oom": {"gpu_memory": 2}}})
    assert run.code == 1 and run.steps["a"]["attempts"] == 1
    assert "on_oom would ask for 10.7 GB of device memory next" in run.cause("a"), run.cause("a")


def test_a_device_that_breaks_leaves_the_pool(cli: Cli) -> None:
    cli.devices("GPU-a", "GPU-b")
    change(cli, 0, model="NVIDIA A100-SXM4-80GB")
    change(cli, 1, model="Tesla T4")
    wait = f"test $STOKER_ATTEMPT = 2 || {{ {HOLD}; exit 1; }}"
    steps = {
        "breaks": {
            "run": wait,
            "resources": {"cpu_count": 0.1, "any_of": [{"gpu_class": "A100"}, {"gpu_class": "T4"}]},
        },
        "only": {"run": "true", "after": ["breaks"]}
        | {"resources": {"gpu_class": "A100", "gpu_count": 1}},
    }
    process = started(cli, steps, "p.json", "breaks")
    change(cli, 0, events=[{"xid": 79, "text": "Xid 79: GPU has fallen off the bus"}])
    cli.write("go", "")
    assert process.wait(WAIT_S) == 1
    run = cli("show", "latest")
    steps = run.shown["steps"]
    assert steps["breaks"]["status"] == "succeeded" and steps["breaks"]["attempts"] == 2
    assert granted(steps, "breaks")["model"] == "Tesla T4"
    assert "out of the pool" in steps["only"]["error"]["cause"]
    notes = " ".join(run.shown["notes"])
    assert "with step 'breaks' on it: Xid 79" in notes and "GPU 0 is out of the pool" in notes
    again = cli.run({"only": gpu("true", gpu_class="A100")})
    assert again.code == 2  # for every run on this host, until a user clears it


def test_each_user_of_a_device_can_say_what_an_xid_means(cli: Cli) -> None:
    cli.devices("GPU-a")
    step = gpu(f"test $STOKER_ATTEMPT = 2 || {{ {HOLD}; exit 1; }}") | {"xid": {"79": "restart"}}
    process = started(cli, {"a": step}, "p.json", "a")
    change(cli, 0, events=[{"xid": 79, "text": "Xid 79: GPU has fallen off the bus"}])
    cli.write("go", "")
    assert process.wait(WAIT_S) == 0  # retried, on the same device
    assert cli("show", "latest").shown["steps"]["a"]["attempts"] == 2


def test_cpus_near_the_device(cli: Cli) -> None:
    cpus = sorted(os.sched_getaffinity(0))
    cli.devices("GPU-a")
    change(cli, 0, cpus=str(cpus[-1]))
    run = cli.run({"a": gpu("true", cpus=1)})
    assert run.steps["a"]["granted"]["cpus"] == [cpus[-1]]


def test_a_neighbour_is_not_blamed_for_an_xid_of_a_process(cli: Cli) -> None:
    """Two steps share a device; the driver names the process with the illegal access."""
    cli.devices("GPU-a")
    cli.write(
        "faults.py",
        "import json, os\n"
        "devices = json.load(open('devices.json'))\n"
        "devices[0]['events'] = [{'xid': 31, 'pid': os.getpid(), 'text': 'Xid 31: MMU fault'}]\n"
        "json.dump(devices, open('new', 'w'))\n"
        "os.rename('new', 'devices.json')\n"
        "raise SystemExit(1)\n",
    )
    share = {"resources": {"gpu_memory": "2GB", "cpu_count": 0.1}}
    neighbour = "until [ -s seen ]; do sleep 0.1; done; exit 4"
    faults = f"[ $STOKER_ATTEMPT = 1 ] || exit 1; echo x > seen; exec {PYTHON} faults.py"
    run = cli.run({"a": {"run": faults, **share}, "b": {"run": neighbour, **share}})
    assert run.steps["a"]["attempts"] == 2  # an Xid's own retry
    assert run.steps["b"]["attempts"] == 1 and run.steps["b"]["error"]["class"] == "exit"
    assert "GPU 0, with step 'a' on it: Xid 31: MMU fault" in run.shown["notes"]
