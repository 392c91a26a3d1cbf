"""Resources that steps get: admission, refusals, policy fit, devices, CPUs."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from cli_tools import PYTHON, WAIT_S, Cli, Run, wait_for

N_CPUS = len(os.sched_getaffinity(0))
# sleeps: for others to come meanwhile
INTERVAL = "date +%s.%N; sleep 0.15; date +%s.%N"


def most_at_once(run: Run) -> int:
    """The highest number of steps that ran together, from their output."""
    edges: list[tuple[float, int]] = []
    for name in run.steps:
        began, ended = map(float, run.text(name).split()[:2])
        edges += [(began, 1), (ended, -1)]
    now = most = 0
    for _, change in sorted(edges):
        now += change
        most = max(most, now)
    return most


# --- admission ---


def test_cpus_are_shared_out(cli: Cli) -> None:
    steps = {f"s{i}": {"run": INTERVAL, "resources": {"cpu_count": N_CPUS}} for i in range(3)}
    run = cli.run(steps)
    assert run.code == 0 and most_at_once(run) == 1


def test_memory_is_shared_out(cli: Cli) -> None:
    whole = cli.run({"a": {"run": "true"}}).shown["host"]["memory_bytes"]
    ask = {"cpu_count": 0.1, "memory": f"{whole // 1000000 * 6 // 10}MB"}
    run = cli.run({f"s{i}": {"run": INTERVAL, "resources": ask} for i in range(3)})
    assert run.code == 0 and most_at_once(run) == 1


def test_parts_of_cpus(cli: Cli) -> None:
    steps = {f"s{i}": {"run": INTERVAL, "resources": {"cpu_count": 0.25}} for i in range(4)}
    run = cli.run(steps)
    assert run.code == 0 and most_at_once(run) >= 2


def test_devices_are_shared_out(cli: Cli) -> None:
    cli.devices("GPU-a", "GPU-b")
    ask = {"cpu_count": 0.1, "gpu_count": 1}
    run = cli.run(
        {
            f"s{i}": {"run": f"{INTERVAL}; echo $CUDA_VISIBLE_DEVICES", "resources": ask}
            for i in range(5)
        }
    )
    assert run.code == 0 and most_at_once(run) <= 2
    assert {run.text(s).split()[2] for s in run.steps} == {"GPU-a", "GPU-b"}


def test_small_work_passes_by_what_does_not_fit(cli: Cli) -> None:
    steps = {
        "long": {
            "run": "while ! test -e small.ran; do sleep 0.01; done",
            "resources": {"cpu_count": N_CPUS - 0.5},
        },
        "big": {"run": "true", "resources": {"cpu_count": N_CPUS}},
        "small": {"run": "touch small.ran", "resources": {"cpu_count": 0.5}},
    }
    assert cli.run(steps).code == 0


# --- refusals ---


@pytest.mark.parametrize(
    "devices, resources, policy, parts",
    [
        ([], {"gpu_count": 1}, "strict", ["gpu_count 1", "no GPU", "--policy fit"]),
        (["GPU-a"], {"gpu_count": 2}, "strict", ["gpu_count 2", "more than", "1", "lower it"]),
        (["GPU-a"], {"gpu_count": 2}, "fit", ["gpu_count 2", "more than", "1", "lower it"]),
        (["GPU-a"], {"gpu_count": 1, "gpu_class": "H100"}, "fit", ["gpu_class H100", "Fake GPU"]),
        ([], {"cpu_count": 100_000}, "strict", ["cpu_count 100000", f"{N_CPUS}", "lower it"]),
        ([], {"memory": "500TB"}, "strict", ["memory 500 TB", "lower it"]),
    ],
)
def test_what_can_not_be_given_is_refused_before_anything_starts(
    cli: Cli, devices: list[str], resources: dict, policy: str, parts: list[str]
) -> None:
    if devices:
        cli.devices(*devices)
    steps = {
        "first": {"run": "touch ran"},
        "big": {"run": "true", "resources": resources, "after": ["first"]},
    }
    run = cli.run(steps, "--policy", policy)
    assert run.code == 2 and not (cli.folder / "ran").exists() and not cli.store.exists()
    assert "step 'big'" in run.err and all(part in run.err for part in parts), run.err
    assert cli("plan", "--policy", policy, "p.json").code == 2


def test_broken_devices_are_an_error_even_when_fitting(cli: Cli) -> None:
    cli.devices("GPU-a", usable=False, trouble="it is on fire")
    run = cli.run({"a": {"run": "true", "resources": {"gpu_count": 1}}})
    assert run.code == 2 and "it is on fire" in run.err


# --- fitting ---


def test_fit_runs_without_and_says_so(cli: Cli) -> None:
    steps = {
        "train": {"run": "echo [$CUDA_VISIBLE_DEVICES]", "resources": {"gpu_count": 1}},
        "wide": {"run": "true", "resources": {"cpu_count": 100_000}},
        "large": {"run": "true", "resources": {"memory": "500TB"}},
    }
    run = cli.run(steps)
    assert run.code == 0 and run.text("train") == "[]\n"
    notes = "\n".join(run.shown["notes"])
    assert (
        "step 'train' asked for 1 GPU: this machine has none, so it runs on the CPU (policy fit)"
        in notes
    )
    assert "'wide' asked for 100000 CPUs" in notes and "'large' asked for 500 TB of memory" in notes
    assert all(note in run.err for note in run.shown["notes"])
    assert run.shown["policy"] == "fit"
    train, wide = run.steps["train"], run.steps["wide"]
    assert train["asked"]["gpu_count"] == 1 and train["granted"]["devices"] == []
    assert wide["asked"]["cpu_count"] == 100_000 and wide["granted"]["cpu_count"] == N_CPUS

    again = cli.run({**steps, "other": {"run": "true", "resources": {"gpu_count": 1}}})
    notes = "\n".join(again.shown["notes"])  # nothing runs of the three: it would not be true
    assert again.steps["train"]["cached"] and "'wide'" not in notes
    assert (
        "asked for 1 GPU: this machine has none, so it runs on the CPU"
        not in notes.split("'other'")[0]
    )
    assert "step 'other' asked for 1 GPU" in notes


CACHED_DOORS = {
    "document": {"train": {"run": "true", "resources": {"gpu_count": 1}}},
    "python": """
from stoker import ResourceSettings, pipeline, step
@step(settings={"resources": ResourceSettings(gpu_count=1)})
def train() -> int:
    return 1
@pipeline
def p():
    train()
if __name__ == "__main__":
    p()
""",
    "flow": """
from stoker.flow import FlowSpec, resources, step
class F(FlowSpec):
    @step
    def start(self):
        self.todo = [1, 2, 3]
        self.next(self.train, foreach="todo")
    @resources(gpu=1)
    @step
    def train(self):
        self.next(self.join)
    @step
    def join(self, inputs):
        self.next(self.end)
    @step
    def end(self):
        pass
if __name__ == "__main__":
    F()
""",
}


@pytest.mark.parametrize("door", CACHED_DOORS)
def test_a_cached_result_made_on_the_cpu_is_named(cli: Cli, door: str) -> None:
    """Once a step, also where there are devices now and none would run without; not when it was made with them."""
    what = CACHED_DOORS[door]
    file = cli.document(what) if isinstance(what, dict) else str(cli.write("p.py", what))
    words = ["--", "run", "--cache"] if door == "flow" else []
    assert cli("run", file, *words).code == 0
    first = cli.json("show", "latest")["run"]
    said = (
        "step 'train' asks for devices: its cached result was made on the CPU, in run "
        f"{first}; --no-cache makes it again"
    )
    for policy in ("fit", "strict"):
        cli.devices("GPU-a")
        again = cli("run", "--policy", policy, file, *words)
        assert again.code == 0 and said in again.err
        notes = cli.json("show", "latest")["notes"]
        assert [note for note in notes if "cached" in note] == [said]
    if door != "flow":  # its graph isn't known before it runs
        assert said in cli("plan", file).out
        assert cli("run", "--no-cache", file).code == 0
        again = cli("run", file)
        assert again.code == 0 and "made on the CPU" not in again.err + cli("plan", file).out


# --- devices ---


def test_a_step_without_request_sees_no_device(cli: Cli) -> None:
    cli.devices("GPU-a", "GPU-b")
    cli.env["CUDA_VISIBLE_DEVICES"] = "0,1"
    cli.write("steps.py", "import os\ndef f(): print(repr(os.environ['CUDA_VISIBLE_DEVICES']))\n")
    see = "echo \"'$CUDA_VISIBLE_DEVICES'\""
    steps = {
        "a": {"run": see},
        "b": {"python": "steps:f"},
        "c": {"run": see, "resources": {"gpu_count": 0}},
    }
    run = cli.run(steps, "--python", PYTHON)
    assert [run.text(s) for s in "abc"] == ["''\n"] * 3


@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize("kind", ["run", "python"])
def test_a_step_sees_what_it_was_granted(cli: Cli, kind: str, count: int) -> None:
    cli.devices("GPU-a", "GPU-b")
    cli.write(
        "steps.py",
        "import os\ndef f(): print(os.environ['CUDA_VISIBLE_DEVICES'], os.environ['CUDA_DEVICE_ORDER'])\n",
    )
    body = {"run": "echo $CUDA_VISIBLE_DEVICES $CUDA_DEVICE_ORDER", "python": "steps:f"}[kind]
    run = cli.run({"a": {kind: body, "resources": {"gpu_count": count}}}, "--python", PYTHON)
    seen, order = run.text("a").split()
    granted = [d["uuid"] for d in run.steps["a"]["granted"]["devices"]]
    assert seen.split(",") == granted and len(set(granted)) == count and order == "PCI_BUS_ID"
    assert set(granted) <= {"GPU-a", "GPU-b"}
    task = json.loads((Path(run.steps["a"]["dir"]) / "task.json").read_text())
    assert [d["uuid"] for d in task["granted"]["devices"]] == granted


def test_two_runs_never_share_a_device(cli: Cli) -> None:
    """Each step holds a lock named after its device while it runs."""
    cli.devices("GPU-a", "GPU-b")
    body = (
        "import fcntl, os, sys, time\n"
        "lock = open(os.environ['CUDA_VISIBLE_DEVICES'], 'w')\n"
        "try: fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)\n"
        "except OSError: sys.exit('two at once on ' + lock.name)\n"
        "time.sleep(0.05)\n"  # sleeps: for others to come meanwhile
    )
    cli.write("body.py", body)
    ask = {"cpu_count": 0.1, "gpu_count": 1}
    steps = {
        f"s{i}": {"run": [PYTHON, "body.py"], "resources": ask, "cache": False} for i in range(6)
    }
    document = cli.document(steps)
    runs = [
        cli.start("run", document, env={"STOKER_STORE": str(cli.folder / f"store{i}")})
        for i in range(2)
    ]
    for run in runs:
        assert run.wait(WAIT_S) == 0, run.stderr.read()


def test_waiting_for_a_device_of_another_run(cli: Cli) -> None:
    cli.devices("GPU-a")
    ask = {"gpu_count": 1}
    first = cli.start(
        "run",
        cli.document(
            {
                "a": {
                    "run": "echo up > up; while ! test -e go; do sleep 0.01; done",
                    "resources": ask,
                }
            }
        ),
    )
    cli.until("up")
    second = cli.start(
        "run",
        cli.document({"b": {"run": "echo $CUDA_VISIBLE_DEVICES", "resources": ask}}, "q.json"),
    )
    wait_for(lambda: len(cli.json("runs")) == 2)
    assert "waits" in cli("why", "latest/b").out
    (cli.folder / "go").touch()
    assert first.wait(WAIT_S) == 0 and second.wait(WAIT_S) == 0


# --- CPUs ---


@pytest.mark.parametrize("kind", ["run", "python"])
def test_granted_cpus_set_affinity_and_threads(cli: Cli, kind: str) -> None:
    look = "import os; print(sorted(os.sched_getaffinity(0)), os.environ.get('OMP_NUM_THREADS'))"
    cli.write("steps.py", f"def f():\n    {look}\n")
    body = {"run": [PYTHON, "-c", look], "python": "steps:f"}[kind]
    steps = {"one": {kind: body, "resources": {"cpu_count": 1}}, "free": {kind: body}}
    run = cli.run(steps, "--python", PYTHON)
    granted = run.steps["one"]["granted"]
    assert run.text("one").strip() == f"{granted['cpus']} 1" and len(granted["cpus"]) == 1
    assert run.text("free").startswith(str(sorted(os.sched_getaffinity(0))))


@pytest.mark.skipif(N_CPUS < 2, reason="one CPU can't be shared out")
def test_two_steps_get_different_cpus(cli: Cli) -> None:
    look = [PYTHON, "-c", "import os; print(os.sched_getaffinity(0))"]
    meet = "touch here.{0}; while ! test -e here.{1}; do sleep 0.01; done; " + " ".join(
        f"'{w}'" for w in look
    )
    one = {"cpu_count": 1}
    run = cli.run(
        {
            "a": {"run": meet.format("a", "b"), "resources": one},
            "b": {"run": meet.format("b", "a"), "resources": one},
        }
    )
    assert run.code == 0 and run.text("a") != run.text("b")


def test_the_step_s_own_thread_count_wins(cli: Cli) -> None:
    step = {
        "run": "echo $OMP_NUM_THREADS",
        "resources": {"cpu_count": 1},
        "environment": {"OMP_NUM_THREADS": 7},
    }
    assert cli.run({"a": step}).text("a") == "7\n"


def test_asked_granted_used_are_shown(cli: Cli) -> None:
    busy = "import time; e = time.process_time() + 0.2\nwhile time.process_time() < e: pass"
    step = {"run": [PYTHON, "-c", busy], "resources": {"cpu_count": 1, "memory": "500MB"}}
    run = cli.run({"a": step})
    a = run.steps["a"]
    assert a["asked"] == {"cpu_count": 1, "memory_bytes": 500_000_000}
    assert a["granted"]["cpu_count"] == 1 and a["granted"]["memory_bytes"] == 500_000_000
    assert 0.2 <= a["used"]["cpu_s"] < 5 and a["used"]["wall_s"] >= 0.2
    assert 1e6 < a["used"]["peak_memory_bytes"] < 500e6
