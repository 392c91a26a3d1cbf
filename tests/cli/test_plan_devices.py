"""What `stoker plan` says about requests for devices, on simulated machines and with figures of
earlier runs."""

from __future__ import annotations

import json

import pytest
from cli_tools import LOOKED_AT, Cli

STEPS = {
    "prepare": {"run": "true"},
    "train": {"run": "x", "resources": {"gpu_count": 4}},
    "tune": {"run": "x", "resources": {"gpu_memory": "10GB"}},
    "any": {
        "run": "x",
        "resources": {
            "any_of": [
                {"gpu_class": "H100", "gpu_count": 2},
                {"gpu_vendor": "tpu", "gpu_count": 4},
                {"gpu_class": "trainium"},
            ]
        },
    },
}


@pytest.mark.parametrize(
    ("machine", "words"),
    [
        (
            "8xH100",
            {
                "p:": "8 × NVIDIA H100 80GB HBM3",
                "train": "4 GPUs: 0-3",
                "tune": "10 GB of a GPU: 0",
                "any": "2 GPUs: 0-1",
            },
        ),
        (
            "v5e-8",
            {"p:": "8 × Google TPU v5e", "train": "4 TPU chips: 0-3", "tune": "1 TPU chip: "},
        ),
        ("16xTrainium", {"train": "4 Neuron devices: ", "any": "1 Neuron device: "}),
        ("4xA100+2xH100", {"any": "2 GPUs of 2 × NVIDIA H100 80GB HBM3: 4-5"}),
    ],
)
def test_simulated(cli: Cli, machine: str, words: dict[str, str]) -> None:
    done = cli("plan", "--simulate", machine, cli.document(STEPS))
    assert done.code == 0
    lines = {line.split()[0]: line for line in done.out.splitlines() if line.strip()}
    for step, said in words.items():
        assert said in lines[step], lines[step]


def test_simulated_as_json(cli: Cli) -> None:
    done = cli("plan", "--json", "--simulate", "4xA100+2xH100", cli.document(STEPS))
    steps = {s["step"]: s for s in json.loads(done.out)["steps"]}
    assert steps["prepare"]["asks"] == [] and steps["prepare"]["placed"] is None
    assert steps["any"]["asks"] == [{"count": 2, "share_bytes": None, "of": [4, 5]}]
    assert steps["any"]["placed"] == [4, 5] and steps["any"]["gpu_count"] == 2
    (tune,) = steps["tune"]["asks"]
    assert tune["of"] == [0, 1, 2, 3, 4, 5] and 0 <= 10**10 - tune["share_bytes"] < 1 << 20
    assert not cli.store.exists()


@pytest.mark.parametrize(
    ("machine", "resources", "words"),
    [
        ("7xA100,mig=1g.10gb*7", {"gpu_count": 1}, ["49 ×", "write gpu_class: 1g.10gb"]),
        ("2xA100", {"gpu_memory": "100GB"}, ["gpu_memory 100 GB", "85.9 GB"]),
        ("v5e-8", {"gpu_count": 3}, ["TPU chips come in 1, 2, 4 or 8; write 2 or 4"]),
        ("2xA100", {"gpu_count": 3}, ["gpu_count 3 is more than the simulated machine's 2"]),
    ],
)
def test_refused(cli: Cli, machine: str, resources: dict[str, object], words: list[str]) -> None:
    document = cli.document({"a": {"run": "x", "resources": resources}})
    done = cli("plan", "--simulate", machine, document)
    assert done.code == 2
    for word in words:
        assert word in done.err


USE_MEMORY = (
    LOOKED_AT
    + """
import json
path = os.environ["STOKER_TEST_DEVICES"]
devices = json.load(open(path))
devices[0]["processes"] = {str(os.getpid()): %d}
with open(path + ".new", "w") as f:
    json.dump(devices, f)
os.rename(path + ".new", path)
look_at_me()
"""
)


def test_what_earlier_runs_needed(cli: Cli) -> None:
    """A whole device at first, then what was used plus 15 %; a note names smaller requests."""
    cli.devices("GPU-a")
    cli.env["STOKER_TEST_DEVICES"] = str(cli.folder / "devices.json")
    cli.write("use.py", USE_MEMORY % (2 << 30))
    step = {"run": ["python3", "use.py"], "cache": False, "resources": {"gpu_memory": "auto"}}
    steps = {"a": step}
    first = json.loads(cli("plan", "--json", cli.document(steps)).out)["steps"][0]
    assert first["asks"] == [{"count": 1, "share_bytes": None, "of": [0]}]
    run = cli("run", cli.document(steps))
    assert run.code == 0
    assert run.steps["a"]["used"]["devices"][0]["peak_memory_bytes"] == 2 << 30
    again = cli("plan", "--json", cli.document(steps))
    (ask,) = json.loads(again.out)["steps"][0]["asks"]
    assert ask["share_bytes"] == (2 << 30) * 115 // 100 >> 20 << 20
    steps["a"]["resources"]["gpu_memory"] = "1GB"
    less = cli("plan", cli.document(steps))
    assert "step 'a' asked for 1 GB of GPU memory: earlier runs needed 2.15 GB" in less.out


def test_what_was_asked_reaches_the_task(cli: Cli) -> None:
    cli.devices("GPU-a", model="NVIDIA A100-SXM4-80GB")
    asked = {
        "gpu_memory": "auto",
        "gpu_vendor": "CUDA",
        "any_of": [{"gpu_class": "H100"}, {"gpu_memory": "1GB", "gpu_count": 1}],
    }
    run = cli.run({"a": {"run": "cat $STOKER_TASK_DIR/task.json", "resources": asked}})
    assert run.code == 0
    task = json.loads(run.text("a"))["asked"]
    assert task == {
        "gpu_memory": "auto",
        "gpu_vendor": "nvidia",
        "any_of": [{"gpu_class": "H100"}, {"gpu_count": 1, "gpu_memory_bytes": 10**9}],
    }
    assert run.steps["a"]["asked"] == {**task, "gpu_count": 1}  # without a count it is one
