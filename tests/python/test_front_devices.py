"""Devices in the Python front: requests and their spec, profiles, freeing memory."""

from __future__ import annotations

import json
import struct
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from front_tools import engine, environment, needs_engine, run_python

from stoker import (
    OnOOM,
    ResourceSettings,
    SettingsError,
    StokerWarning,
    cleanup_gpu_memory,
    cleanup_memory,
    gpu_profile,
    pipeline,
    step,
)
from stoker._definition.settings import settings_layer
from stoker._worker import frameworks
from stoker._worker.profile import profile_of, read_samples


def spec_of(made: Any, **options: Any) -> dict[str, Any]:
    """The spec of a step in a pipeline of its own."""

    @pipeline(name="tested", **options)
    def tested() -> None:
        made()

    return tested.spec()


def step_of(made: Any, **options: Any) -> dict[str, Any]:
    (found,) = spec_of(made, **options)["steps"].values()
    return found


@step
def bare() -> int:
    return 1


# ---------------------------------------------------------------------------- settings


@pytest.mark.parametrize(
    "given,spec",
    [
        ({"gpu_memory": "10GB"}, {"gpu_memory": 10**10}),
        ({"gpu_memory": 1 << 30}, {"gpu_memory": 1 << 30}),
        ({"gpu_memory": "AUTO"}, {"gpu_memory": "auto"}),
        ({"gpu_count": 1, "gpu_class": "mig"}, {"gpu_count": 1, "gpu_class": "mig"}),
        (
            {"gpu_count": 1, "any_of": ["H100", ResourceSettings(gpu_class="A100", gpu_count=2)]},
            {
                "gpu_count": 1,
                "any_of": [{"gpu_class": "H100"}, {"gpu_class": "A100", "gpu_count": 2}],
            },
        ),
        (
            {"any_of": [{"gpu_memory": "1GiB"}, {"gpu_memory": "auto", "gpu_vendor": "amd"}]},
            {"any_of": [{"gpu_memory": 1 << 30}, {"gpu_memory": "auto", "gpu_vendor": "amd"}]},
        ),
    ],
)
def test_resources(given: dict[str, Any], spec: dict[str, Any]) -> None:
    assert ResourceSettings(**given).as_spec() == (spec, {})
    assert step_of(bare.with_options(settings={"resources": given}))["resources"] == spec


@pytest.mark.parametrize(
    "given,sentence",
    [
        ({"gpu_memory": "much"}, "gpu_memory 'much' is not a memory size"),
        ({"gpu_memory": 0}, "gpu_memory 0 must be above 0"),
        (
            {"gpu_memory": 10},
            "gpu_memory 10 is less than 1 MiB; write a number and a unit, such as '10GB'",
        ),
        ({"gpu_memroy": "1GB"}, "unknown field 'gpu_memroy'; did you mean 'gpu_memory'?"),
        ({"any_of": "A100"}, "any_of must be a list of alternatives, not 'A100'"),
        ({"any_of": []}, "any_of has 0 alternatives; give between 1 and 8"),
        ({"any_of": ["A100"] * 9}, "any_of has 9 alternatives"),
        (
            {"any_of": [{"gpu_clas": "A100"}]},
            "any_of[0]: ResourceSettings: unknown field 'gpu_clas'; did",
        ),
        (
            {"any_of": ["A100", {"memory": "8GB"}]},
            "any_of[1]: memory can't differ between alternatives",
        ),
        ({"any_of": [7]}, "any_of[0] must be a ResourceSettings or a mapping, not int"),
    ],
)
def test_resources_refused(given: dict[str, Any], sentence: str) -> None:
    with pytest.raises(SettingsError) as caught:
        ResourceSettings(**given)
    assert sentence in str(caught.value)


@pytest.mark.parametrize(
    "given,spec",
    [
        (True, {"memory": 2, "gpu_memory": 2, "max_retries": 1}),
        (OnOOM(), {"memory": 2, "gpu_memory": 2, "max_retries": 1}),
        (OnOOM(gpu_memory=1.5, max_retries=3), {"gpu_memory": 1.5, "max_retries": 3}),
        ({"memory": "x2"}, {"memory": 2, "max_retries": 1}),
        (
            {"memory": "1.5x", "gpu_memory": "×4"},
            {"memory": 1.5, "gpu_memory": 4, "max_retries": 1},
        ),
    ],
)
def test_on_oom(given: Any, spec: dict[str, Any]) -> None:
    assert step_of(bare.with_options(on_oom=given))["on_oom"] == spec
    assert settings_layer({"on_oom": given}, "here")["on_oom"] == spec


OPTIONS_REFUSED = [
    ({"on_oom": {"memory": 1}}, "OnOOM: memory 1 must be a factor above 1 and at most 1000"),
    ({"on_oom": {"memory": "double"}}, "memory 'double' must be a factor"),
    ({"on_oom": {"max_retries": -1}}, "max_retries -1 must be a whole number"),
    ({"on_oom": {"gpu": 2}}, "OnOOM: unknown field 'gpu'"),
    ({"on_oom": 2}, "on_oom must be an OnOOM or a mapping, not int"),
    ({"xid": {"109": "restrat"}}, "xid 109: 'restrat' is none of"),
    ({"xid": {"109": "restrat"}}, "did you mean 'restart'?"),
    ({"xid": {"x": "restart"}}, "xid 'x' is not an Xid"),
    ({"xid": [109]}, "xid must be a mapping, not list"),
    ({"sample": 0.001}, "sample 0.001 must be between 0.01 and 3600 seconds"),
    ({"sample": "often"}, "sample 'often' must be between"),
    ({"gpu_profile": {"intervall": 1}}, "unknown field 'intervall'; did you mean 'interval'?"),
    ({"gpu_profile": {"artifact_prefix": "a/b"}}, "artifact_prefix 'a/b' must be the beginning"),
    ({"on_omm": True}, "unknown option 'on_omm'; did you mean 'on_oom'?"),
]


@pytest.mark.parametrize("options,sentence", OPTIONS_REFUSED)
def test_options_refused(options: dict[str, Any], sentence: str) -> None:
    for refuse in (
        lambda: step(**options)(lambda: None),
        lambda: pipeline(name="p", **options)(lambda: None),
        lambda: bare.with_options(**options),
    ):
        with pytest.raises(SettingsError) as caught:
            refuse()
        assert sentence in str(caught.value) and "'" in str(caught.value)


def test_levels() -> None:
    """Per key: the step wins over the pipeline, and a run configuration's step over both."""
    spec = spec_of(
        bare.with_options(xid={13: "ignore"}),
        on_oom={"memory": 4},
        sample="100ms",
        xid={"109": "restart"},
    )
    assert (spec["on_oom"], spec["sample"]) == ({"memory": 4, "max_retries": 1}, 0.1)
    assert spec["xid"] == {"109": "restart"}
    assert spec["steps"]["bare"]["xid"] == {"13": "ignore"}

    @pipeline
    def configured() -> None:
        bare()

    made = configured.with_options(steps={"bare": {"sample": 1, "on_oom": OnOOM(memory=3)}})
    assert made.spec()["steps"]["bare"]["sample"] == 1.0
    assert made.spec()["steps"]["bare"]["on_oom"] == {"memory": 3, "max_retries": 1}


@needs_engine
def test_the_engine_takes_all_of_it(tmp_path: Path) -> None:
    import subprocess

    made = bare.with_options(
        settings={"resources": {"gpu_count": 1, "any_of": ["H100", {"gpu_memory": "auto"}]}},
        on_oom=True,
        xid={109: "quarantine"},
        sample=0.05,
        gpu_profile=True,
    )
    spec = spec_of(made, on_oom={"memory": "x3"}, gpu_profile=False)
    spec["steps"]["bare"]["uses"] = ["torch"]
    (tmp_path / "spec.json").write_text(json.dumps(spec))
    command = [str(engine()), "spec", "check", "--json", str(tmp_path / "spec.json")]
    done = subprocess.run(command, capture_output=True, text=True, env=environment(tmp_path))
    assert done.returncode == 0, done.stdout


# ---------------------------------------------------------------------------- uses

PROJECT = {
    "helper.py": "import torch\n\ndef f(x):\n    return torch.ones(x)\n",
    "far.py": "from helper import f\n",
    "plain.py": "import json\n",
    "vision.py": "from torchvision import models\n",
    "nets.py": "import flax.linen as nn\n",
}


@pytest.mark.parametrize(
    "source,uses",
    [
        ("def f():\n    return 1", []),
        ("def f():\n    import torch\n    return torch", ["torch"]),
        ("def f():\n    from torch.nn import functional\n    return functional", ["torch"]),
        ("def f():\n    from tensorflow import keras\n    import jax.numpy", ["tensorflow", "jax"]),
        ("import helper\ndef f():\n    return helper.f(1)", ["torch"]),
        ("from helper import f as g\ndef f():\n    return g(1)", ["torch"]),
        ("def f():\n    import far", ["torch"]),
        ("import plain\ndef f():\n    return plain.json", []),
        (
            "import helper\ndef f():\n    return 1",
            [],
        ),  # the file imports it, the step doesn't use it
        ("def g():\n    import cupy\ndef f():\n    return g()", ["cupy"]),
        ("def f():\n    import vision", ["torch"]),
        ("import nets\ndef f():\n    return nets.nn", ["jax"]),
    ],
)
def test_uses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str, uses: list[str]
) -> None:
    """Whether they are installed or not: what counts is the Python that will run the step."""
    for name, text in PROJECT.items():
        (tmp_path / name).write_text(text)
    for name in ("torch", "flax", "flax.linen", "torchvision", "torchvision.models"):
        module: Any = ModuleType(name)
        module.linen = module.models = module.ones = None
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.syspath_prepend(str(tmp_path))
    for name in ("main_of_test", *(n[:-3] for n in PROJECT)):
        monkeypatch.delitem(sys.modules, name, raising=False)
    (tmp_path / "main_of_test.py").write_text(source)
    import importlib

    function = importlib.import_module("main_of_test").f
    made = step_of(step(function))
    assert made.get("uses", []) == uses
    asking = step_of(step(settings={"resources": {"gpu_memory": "1GB"}})(function))
    assert asking["uses"] == uses  # that nothing is used is told only where it matters
    assert ("uses" in made) is bool(uses)
    for name in PROJECT:
        sys.modules.pop(name[:-3], None)


# ---------------------------------------------------------------------------- @gpu_profile


def test_gpu_profile_above_and_below() -> None:
    @gpu_profile(interval=0.1, artifact_prefix="p_", with_card=False)
    @step
    def above() -> int:
        return 1

    @step(sample=2)
    @gpu_profile
    def below() -> int:
        return 1

    made = step_of(above)
    assert made["gpu_profile"] == {
        "with_card": False,
        "include_artifacts": True,
        "artifact_prefix": "p_",
        "interval": 0.1,
    }
    assert list(made["outputs"]) == ["output", "p_data", "p_num_gpus"]
    made = step_of(below)
    assert made["gpu_profile"]["interval"] == 1 and made["sample"] == 2.0
    assert list(made["outputs"]) == ["output", "gpu_profile_data", "gpu_profile_num_gpus"]
    plain = step_of(step(gpu_profile(include_artifacts=False)(lambda: None), name="plain"))
    assert "outputs" not in plain and plain["gpu_profile"]["with_card"] is True


def test_gpu_profile_doesnt_change_the_code() -> None:
    def body() -> int:
        return 1

    code = step_of(step(body))["code"]
    assert step_of(step(gpu_profile(interval=5)(body)))["code"] == code


def test_gpu_profile_by_settings_keeps_the_rest() -> None:
    made = gpu_profile(artifact_prefix="p_")(bare.copy())
    quick = step_of(made.with_options(gpu_profile={"interval": 0.02}))["gpu_profile"]
    assert (quick["interval"], quick["artifact_prefix"]) == (0.02, "p_")
    assert step_of(made.with_options(gpu_profile=False))["outputs"] == ["output"]
    assert list(step_of(bare, gpu_profile=True)["outputs"])[1:] == [
        "gpu_profile_data",
        "gpu_profile_num_gpus",
    ]


def test_gpu_profile_refuses_an_output_of_the_same_name() -> None:
    from typing import Annotated

    @gpu_profile
    @step
    def taken() -> Annotated[int, "gpu_profile_data"]:
        return 1

    with pytest.raises(SettingsError, match="has an output 'gpu_profile_data'"):
        step_of(taken)


PROFILED = """
import time
from stoker import ResourceSettings, gpu_profile, pipeline, step

@gpu_profile(interval=0.02)
@step(settings={"resources": ResourceSettings(gpu_count=1)})
def train() -> int:
    time.sleep(0.5)  # sleeps: for 25 samples, of which one is enough
    return 7

@pipeline(enable_cache=False)
def training():
    train()

if __name__ == "__main__":
    outputs = training().steps["train"].outputs
    import json
    run = training()
    found = run.steps["train"]
    print(json.dumps([found.output.load(), found.outputs["gpu_profile_num_gpus"].load(),
                      found.outputs["gpu_profile_data"].load()]))
"""


@needs_engine
@pytest.mark.parametrize("isolation", ["fork", "spawn"])
def test_gpu_profile_of_a_run(tmp_path: Path, isolation: str) -> None:
    device = {"uuid": "GPU-a", "model": "Fake", "memory_bytes": 1 << 33}
    device |= {"busy_percent": 40, "memory_used": 3 << 20}
    (tmp_path / "devices.json").write_text(json.dumps([device]))
    (tmp_path / "leases").mkdir()
    source = PROFILED.replace("@step(", f"@step(isolation='{isolation}', ")
    env = {"STOKER_ACCEL": f"fake:{tmp_path / 'devices.json'}"}
    env["STOKER_LEASE_DIR"] = str(tmp_path / "leases")
    done = run_python(tmp_path, source, **env)
    value, count, data = json.loads(done.stdout.splitlines()[-1])
    assert (value, count, data["error"]) == (7, 1, None)
    assert data["devices"][0]["device_id"] == "GPU-a" and data["devices"][0]["name"] == "Fake"
    curves = data["profile"]["GPU-a"]
    assert len(curves["time_s"]) >= 2 and curves["time_s"] == sorted(curves["time_s"])
    assert 40 in curves["gpu_utilization"] and 3 in curves["gpu_memory_used"]
    assert all(len(values) == len(curves["time_s"]) for values in curves.values())


@needs_engine
def test_gpu_profile_of_a_host_without_gpus(tmp_path: Path) -> None:
    done = run_python(tmp_path, PROFILED, STOKER_ACCEL="none")
    value, count, data = json.loads(done.stdout.splitlines()[-1])
    assert (value, count) == (7, 0)
    assert data["error"] == "this step was granted no device" and data["profile"] == {}


def write_samples(path: Path, version: int, rows: list[tuple[int, int, int, list[Any]]]) -> None:
    """As the engine writes them (runner_samples.h)."""
    uuids = [b"GPU-a", b"GPU-b"]
    size = 24 + 2 * 16 if version == 1 else 88
    raw = struct.pack("<8sIIq", b"STKSMP%d\n" % version, 2, size, 1_700_000_000_000)
    raw += b"".join(uuid.ljust(64, b"\0") for uuid in uuids)
    for time_ms, rss, cpu_us, devices in rows:
        raw += struct.pack("<qqq", time_ms, rss, cpu_us)
        if version > 1:
            logs = struct.pack("<qq", 10 * time_ms, -1) if version > 2 else b""
            raw += struct.pack("<qq", -1, -1) + logs + struct.pack("<II", len(devices), 0)
        for memory, busy in devices:
            raw += struct.pack("<qii", memory, busy, 0) + bytes(0 if version == 1 else 72)
    path.write_bytes(raw)


@pytest.mark.parametrize("version", [1, 2, 3])
def test_read_samples(tmp_path: Path, version: int) -> None:
    path = tmp_path / "samples.bin"
    assert read_samples(str(path)) == (0, [], [])
    two = [(5 << 20, 50), (-1, -1)]
    rows = [(100, 1 << 20, 50_000, two), (200, -1, 150_000, two if version == 1 else [])]
    write_samples(path, version, rows)
    with open(path, "ab") as stream:
        stream.write(b"torn")
    start, uuids, samples = read_samples(str(path))
    assert (start, uuids) == (1_700_000_000_000, ["GPU-a", "GPU-b"])
    assert [s.time_s for s in samples] == [0.1, 0.2]
    assert [s.log_bytes for s in samples] == (
        [(1000, -1), (2000, -1)] if version > 2 else [(-1, -1)] * 2
    )
    assert [list(s.devices) for s in samples] == [two, two]  # the second repeats the first
    granted = [{"uuid": "GPU-a", "model": "A", "share_bytes": 1 << 30}, {"uuid": "GPU-b"}]
    data, count = profile_of(str(tmp_path), granted)
    assert count == 2 and [d["memory"] for d in data["devices"]] == [1024, None]
    curves = data["profile"]["GPU-a"]
    assert curves["gpu_memory_used"] == [5, 5] and curves["cpu_utilization"] == [50.0, 100.0]
    assert curves["ram_used"] == [1, None]
    assert data["profile"]["GPU-b"]["gpu_utilization"] == [None, None]  # unknown, not 0


def test_read_samples_refuses_another_file(tmp_path: Path) -> None:
    (tmp_path / "samples.bin").write_bytes(b"STKSMP9\n" + bytes(100))
    with pytest.raises(ValueError, match="not a file of samples"):
        read_samples(str(tmp_path / "samples.bin"))


# ---------------------------------------------------------------------------- memory given back


class Cuda:
    """As much of torch.cuda as the helpers may touch."""

    def __init__(self, initialized: bool) -> None:
        self.initialized = initialized
        self.reserved = [100, 50]
        self.peaks = [90, 0]
        self.said: list[str] = []

    def is_initialized(self) -> bool:
        return self.initialized

    def device_count(self) -> int:
        assert self.initialized, "asking a device before it is open"
        return 2

    def memory_reserved(self, i: int) -> int:
        return self.reserved[i]

    def max_memory_allocated(self, i: int) -> int:
        return self.peaks[i]

    def empty_cache(self) -> None:
        self.said.append("emptied")
        self.reserved = [20, 50]

    def ipc_collect(self) -> None:
        self.said.append("ipc")

    def reset_peak_memory_stats(self, i: int) -> None:
        self.peaks[i] = 0


def test_cleanup(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    monkeypatch.delitem(sys.modules, "cupy", raising=False)
    monkeypatch.setattr(frameworks, "_peaks", {})
    assert cleanup_memory() == 0
    cold = Cuda(initialized=False)
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=cold))
    assert cleanup_memory() == 0 and cold.said == []
    warm = Cuda(initialized=True)
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=warm))
    with pytest.warns(StokerWarning, match="force=True"):
        assert cleanup_gpu_memory() == 0
    assert warm.said == []
    assert cleanup_gpu_memory(force=True) == 80
    assert warm.said == ["emptied", "ipc"] and warm.peaks == [0, 0]
    assert frameworks._peaks == {0: 90, 1: 0}  # the run's record still says what it took


HIDDEN = """
import importlib
import sys
from stoker import PipelineFailed, pipeline, step

GPU = {"resources": {"gpu_count": 1}}
sys.path.insert(0, sys.argv[1])
environment = dict(word.split("=") for word in sys.argv[2:])

@step(settings=GPU, environment=environment, isolation="ISOLATION")
def train() -> str:
    torch = importlib.import_module("to" + "rch")
    print("training on", torch.__version__)
    return torch.__version__

@step(settings=GPU)
def other() -> None:
    print("without torch")

@pipeline(enable_cache=False)
def training():
    train()
    other()

if __name__ == "__main__":
    try:
        print(training().steps["train"].output.load())
    except PipelineFailed as failed:
        error = failed.run.steps["train"].body["error"]
        print(error["class"], error["text"])
        print(failed.run.steps["train"].logs)
        print(failed.run.steps["other"].status)
"""


@needs_engine
@pytest.mark.parametrize("isolation", ["fork", "spawn"])
def test_a_cpu_only_torch_that_nobody_could_see_before(tmp_path: Path, isolation: str) -> None:
    """What is checked before a run can't know what a step finds while it runs: it ends at that import."""
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "__init__.py").write_text(
        "from types import SimpleNamespace\n__version__ = '2.13.0+cpu'\n"
        "version = SimpleNamespace(cuda=None, hip=None)\n"
    )
    (tmp_path / "devices.json").write_text('[{"uuid": "GPU-a"}]')
    (tmp_path / "leases").mkdir()
    env = {"STOKER_ACCEL": f"fake:{tmp_path / 'devices.json'}"}
    env["STOKER_LEASE_DIR"] = str(tmp_path / "leases")
    source = HIDDEN.replace("ISOLATION", isolation)
    done = run_python(tmp_path, source, str(tmp_path), **env)
    assert "resources step 'train'" in done.stdout and "CPU-only build" in done.stdout
    assert "training on" not in done.stdout
    assert done.stdout.rstrip().endswith("completed")
    done = run_python(tmp_path, source, str(tmp_path), "STOKER_ALLOW_CPU_BUILD=1", **env)
    assert done.stdout.rstrip().endswith("2.13.0+cpu")


OOM = """
import json
from stoker import OnOOM, ResourceSettings, get_step_context, pipeline, step

class OutOfMemoryError(RuntimeError):
    pass

@step(
    settings={"resources": ResourceSettings(gpu_memory="1GiB")},
    on_oom=OnOOM(gpu_memory="x2", max_retries=2),
)
def train() -> list:
    context = get_step_context()
    share = context.granted["devices"][0]["share_bytes"]
    if share < 4 << 30:
        raise LookupError("the batch failed") from OutOfMemoryError("CUDA out of memory. Tried …")
    return [context.attempt, share]

@pipeline(enable_cache=False)
def training():
    train()

if __name__ == "__main__":
    run = training()
    print(json.dumps([run.steps["train"].output.load(), run.steps["train"].config.on_oom]))
"""


@needs_engine
def test_the_next_attempt_asks_for_more(tmp_path: Path) -> None:
    """Also without `retry`: out of memory has its own budget."""
    device = {"uuid": "GPU-a", "memory_bytes": 8 << 30, "memory_used": 0}
    (tmp_path / "devices.json").write_text(json.dumps([device]))
    (tmp_path / "leases").mkdir()
    env = {"STOKER_ACCEL": f"fake:{tmp_path / 'devices.json'}"}
    env["STOKER_LEASE_DIR"] = str(tmp_path / "leases")
    done = run_python(tmp_path, OOM, **env)
    (attempt, share), on_oom = json.loads(done.stdout.splitlines()[-1])
    assert attempt == 3 and share == 4 << 30
    assert on_oom == {"gpu_memory": 2, "max_retries": 2}


MASKED = """
import json, os, time
from stoker import pipeline, step

@step(settings={"resources": {"gpu_count": 2}})
def train() -> int:
    os.environ["CUDA_VISIBLE_DEVICES"] = "0"
    import importlib
    torch = importlib.import_module("to" + "rch")
    time.sleep(0.6)  # sleeps: for 6 samples, of which one is enough
    return torch.cuda.device_count()

@pipeline(enable_cache=False)
def training():
    train()

if __name__ == "__main__":
    print(json.dumps(training().steps["train"].verdict))
"""


@needs_engine
def test_a_step_that_changes_its_mask_is_told_so(tmp_path: Path) -> None:
    """The change can't be seen from outside, so the worker reports it."""
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "__init__.py").write_text(
        "from types import SimpleNamespace as N\n__version__ = '2.13.0'\n"
        "version = N(cuda='12.8', hip=None)\n_C = N()\n"
        "cuda = N(is_initialized=lambda: False, device_count=lambda: 1)\n"
    )
    devices = [
        {"uuid": uuid, "memory_bytes": 8 << 30, "processes": {}} for uuid in ("GPU-a", "GPU-b")
    ]
    (tmp_path / "devices.json").write_text(json.dumps(devices))
    (tmp_path / "leases").mkdir()
    env = {"STOKER_ACCEL": f"fake:{tmp_path / 'devices.json'}"}
    env["STOKER_LEASE_DIR"] = str(tmp_path / "leases")
    done = run_python(tmp_path, MASKED, **env)
    verdict = json.loads(done.stdout.splitlines()[-1])
    assert (verdict["granted"], verdict["used"], verdict["cause"]) == (2, 0, "wrong_mask")
    assert "changed the variable that names its devices" in verdict["text"]
