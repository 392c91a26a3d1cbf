"""What the worker says of the frameworks in a task, and when it refuses one: by stand-ins here, by the real
torch and TensorFlow where they are installed (`make test-all`)."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from play_engine import ROOT, WAIT_S, make_attempt, result_of
from test_worker_attempt import attempt

from stoker._worker import context, frameworks

GPU = {"vendor": "nvidia", "index": 0, "uuid": "GPU-1", "model": "H100"}
TPU = {"vendor": "google", "index": 0, "uuid": "TPU-0", "model": "v5e"}
GRANTED = {"granted": {"devices": [GPU]}}


@pytest.fixture(autouse=True)
def forget(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a fresh process: no framework is loaded, no finder of an earlier task is left."""
    for name in (*frameworks.NAMES, *frameworks._OTHER_USERS, "jaxlib", "jax._src.xla_bridge"):
        monkeypatch.setitem(sys.modules, name, None)  # so that its end takes out what a test adds
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    monkeypatch.setattr(frameworks, "_kept", {})
    monkeypatch.setattr(frameworks, "_peaks", {})
    monkeypatch.delenv(frameworks.ALLOW, raising=False)
    monkeypatch.delenv("JAX_PLATFORMS", raising=False)


def torch_of(
    build: str | None, *, opened: bool = False, count: int = 0, words: str = "", **cuda: Any
) -> Any:
    """A stand-in for torch: its version, and as much of torch.cuda as is asked."""
    word, _, number = (build or "").partition(" ")
    torch: Any = ModuleType("torch")
    torch.__version__ = "2.13.0"
    torch.version = SimpleNamespace(
        cuda=number if word == "cuda" else None,
        hip=number if word == "rocm" else None,
        xpu=number if word == "xpu" else None,
    )

    def device_count() -> int:
        assert os.environ["PYTORCH_NVML_BASED_CUDA_CHECK"] == "1"  # else it would open the device
        return count

    def start() -> None:
        raise RuntimeError(words)

    api = SimpleNamespace(is_initialized=lambda: opened, device_count=device_count, **cuda)
    torch.cuda = torch.xpu = api
    torch._C = SimpleNamespace(_cuda_init=start)
    return torch


def tensorflow_of(monkeypatch: pytest.MonkeyPatch, gpus: int | None, **info: Any) -> None:
    """A stand-in for TensorFlow; ``gpus`` is None where its context wasn't made."""
    tf: Any = ModuleType("tensorflow")
    tf.__version__ = "2.21.0"
    build: Any = ModuleType("tensorflow.python.platform.build_info")
    build.build_info = info
    context: Any = ModuleType("tensorflow.python.eager.context")

    def devices(kind: str) -> list[str]:
        assert gpus is not None, "asking makes the context, which opens every device"
        return [kind] * gpus

    context._context = SimpleNamespace(
        _initialized=gpus is not None,
        list_logical_devices=devices,
        get_memory_info=lambda name: {"current": 1, "peak": 700 + int(name[-1])},
    )
    for module in (tf, build, context):
        monkeypatch.setitem(sys.modules, module.__name__, module)


def jax_of(
    monkeypatch: pytest.MonkeyPatch,
    folder: Path,
    plugin: str = "",
    backends: Any = None,
    **more: Any,
) -> None:
    """A stand-in for JAX with its installation folder and its bridge to XLA."""
    (folder / "jaxlib").mkdir(parents=True)
    if plugin:
        (folder / plugin).mkdir()
    jax: Any = ModuleType("jax")
    jax.__version__ = "0.9.0"
    jaxlib: Any = ModuleType("jaxlib")
    jaxlib.__file__ = str(folder / "jaxlib" / "__init__.py")
    bridge: Any = ModuleType("jax._src.xla_bridge")
    bridge._backends = backends or {}
    bridge.__dict__.update(more)
    for module in (jax, jaxlib, bridge):
        monkeypatch.setitem(sys.modules, module.__name__, module)


def client(*peaks: int | None) -> Any:
    """A JAX backend with a device for each peak."""
    stats = [None if peak is None else {"peak_bytes_in_use": peak} for peak in peaks]
    devices = [SimpleNamespace(memory_stats=lambda one=one: one) for one in stats]
    return SimpleNamespace(local_devices=lambda: devices)


def only(entries: list[dict[str, Any]]) -> dict[str, Any]:
    (entry,) = entries
    return entry


# ---------------------------------------------------------------------------- the report


def test_nothing_loaded_nothing_said(tmp_path: Path) -> None:
    assert frameworks.report([GPU]) == []
    result, _ = attempt(tmp_path, lambda: 1, task=GRANTED)
    assert "accelerator" not in result


def test_torch_that_used_its_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    peaks = [10, 0]
    torch = torch_of("cuda 12.8", opened=True, count=2, max_memory_allocated=lambda i: peaks[i])
    monkeypatch.setitem(sys.modules, "torch", torch)
    monkeypatch.setenv("PYTORCH_NVML_BASED_CUDA_CHECK", "0")
    expected = {
        "name": "torch",
        "version": "2.13.0",
        "build": "cuda 12.8",
        "initialized": True,
        "available": True,
        "device_count": 2,
        "peak_bytes": [10, 0],
    }
    assert frameworks.report([GPU]) == [expected]
    assert os.environ["PYTORCH_NVML_BASED_CUDA_CHECK"] == "0"
    assert frameworks.report([]) == [expected]  # it had none, and opened some: worth knowing
    monkeypatch.setenv("PYTORCH_NVML_BASED_CUDA_CHECK", "1")
    frameworks.keep_peaks(torch)
    peaks[:] = [3, 4]
    assert only(frameworks.report([GPU]))["peak_bytes"] == [10, 4]


@pytest.mark.parametrize("build", ["cuda 12.8", "rocm 6.2", "xpu 2025.1", "cpu"])
def test_torch_that_opened_none(monkeypatch: pytest.MonkeyPatch, build: str) -> None:
    count = 0 if build == "cpu" else 1
    monkeypatch.setitem(sys.modules, "torch", torch_of(build, count=count))
    entry = only(frameworks.report([GPU]))
    assert entry["build"] == build and entry["initialized"] is False
    assert entry["available"] is (count > 0) and entry["device_count"] == count
    assert "peak_bytes" not in entry
    assert frameworks.report([]) == []  # it had none and opened none: nothing to say


def test_torch_reaches_other_devices_by_plugins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", torch_of("cpu"))
    monkeypatch.setitem(sys.modules, "torch_xla", ModuleType("torch_xla"))
    entry = only(frameworks.report([TPU]))
    assert entry == {"name": "torch", "version": "2.13.0", "build": "xla"}  # more is not known
    assert frameworks.report([]) == []


def test_jax_that_was_told_to_stay_on_the_cpu(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    jax_of(monkeypatch, tmp_path, "jax_cuda12_plugin", {"cpu": client(None)})
    monkeypatch.setenv("JAX_PLATFORMS", "cpu")
    assert only(frameworks.report([GPU]))["reason"] == "JAX_PLATFORMS is 'cpu'"


def test_torch_says_why_it_sees_none(monkeypatch: pytest.MonkeyPatch) -> None:
    words = "Found no NVIDIA driver on your system.\nPlease check …"
    monkeypatch.setitem(sys.modules, "torch", torch_of("cuda 12.8", words=words))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-1")
    reason = "Found no NVIDIA driver on your system. Please check …"
    assert only(frameworks.report([GPU]))["reason"] == reason
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")  # it sees none because it was shown none
    assert "reason" not in only(frameworks.report([GPU]))


def test_a_driver_that_is_too_old_shows_in_the_error_only(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(sys.modules, "torch", torch_of("cuda 13.0", count=1))

    def step() -> None:
        raise RuntimeError("The NVIDIA driver on your system is too old (found version 12020).")

    result, _ = attempt(tmp_path, step, task=GRANTED)
    entry = only(result["accelerator"]["frameworks"])
    assert result["status"] == "failed"
    assert entry["available"] is False and "too old" in entry["reason"]


@pytest.mark.parametrize(
    "gpus,info,expected",
    [
        (None, {"is_cuda_build": False}, ("cpu", False, False, 0, None)),
        (0, {"is_cuda_build": False}, ("cpu", False, False, 0, None)),
        (
            None,
            {"is_cuda_build": True, "cuda_version": "12.5.1"},
            ("cuda 12.5.1", False, *[None] * 3),
        ),
        (
            2,
            {"is_cuda_build": True, "cuda_version": "12.5"},
            ("cuda 12.5", True, True, 2, [700, 701]),
        ),
        (0, {"is_rocm_build": True, "rocm_version": "6.2"}, ("rocm 6.2", False, False, 0, None)),
    ],
)
def test_tensorflow(
    monkeypatch: pytest.MonkeyPatch, gpus: int | None, info: dict[str, Any], expected: Any
) -> None:
    tensorflow_of(monkeypatch, gpus, **info)
    entry = only(frameworks.report([GPU]))
    keys = ("build", "initialized", "available", "device_count", "peak_bytes")
    assert tuple(entry.get(key) for key in keys) == expected


@pytest.mark.parametrize(
    "plugin,backends,more,expected",
    [
        ("", None, {}, ("cpu", False, None, None, None, None)),
        ("jax_cuda12_plugin", None, {}, ("cuda 12", False, None, None, None, None)),
        ("libtpu", None, {}, ("tpu", False, None, None, None, None)),
        (
            "jax_rocm60_plugin",
            {"cpu": client(None)},
            {"_backend_errors": {"tpu": "no libtpu", "rocm": "no\n driver"}},
            ("rocm 60", False, False, 0, None, "no driver"),
        ),
        (
            "jax_cuda13_plugin",
            {"cpu": client(None), "cuda": client(5, None)},
            {},
            ("cuda 13", True, True, 2, [5, None], None),
        ),
    ],
)
def test_jax(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    plugin: str,
    backends: Any,
    more: dict[str, Any],
    expected: Any,
) -> None:
    jax_of(monkeypatch, tmp_path, plugin, backends, **more)
    entry = only(frameworks.report([GPU]))
    keys = ("build", "initialized", "available", "device_count", "peak_bytes", "reason")
    assert tuple(entry.get(key) for key in keys) == expected


@pytest.mark.parametrize("context", [0, 1234])
def test_cupy(monkeypatch: pytest.MonkeyPatch, context: int) -> None:
    cupy: Any = ModuleType("cupy")
    runtime = SimpleNamespace(
        is_hip=False, runtimeGetVersion=lambda: 12080, getDeviceCount=lambda: 1
    )
    cupy.cuda = SimpleNamespace(
        runtime=runtime, driver=SimpleNamespace(ctxGetCurrent=lambda: context)
    )
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    entry = only(frameworks.report([GPU]))
    assert entry["build"] == "cuda 12.8" and entry["initialized"] is (context != 0)


def test_a_framework_of_another_shape_is_told_and_harmless(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(sys.modules, "cupy", ModuleType("cupy"))
    result, _ = attempt(tmp_path, lambda: 1, task=GRANTED)
    assert result["status"] == "ok"
    assert "AttributeError" in only(result["accelerator"]["frameworks"])["reason"]


@pytest.mark.parametrize("value", ["0", None])
def test_a_mask_that_the_step_changed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, value: str | None
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-1")

    def step() -> None:
        if value is None:
            del os.environ["CUDA_VISIBLE_DEVICES"]
        else:
            os.environ["CUDA_VISIBLE_DEVICES"] = value

    result, _ = attempt(tmp_path, step, task=GRANTED)
    assert result["accelerator"] == {"masks": {"CUDA_VISIBLE_DEVICES": value}}
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-1")
    result, _ = attempt(tmp_path / "without", step)
    assert "accelerator" not in result


# ---------------------------------------------------------------------------- the refusal


def test_a_cpu_only_build_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "torch", torch_of("cpu"))
    ran: list[int] = []
    result, _ = attempt(tmp_path, lambda: ran.append(1), task={**GRANTED, "uses": ["torch"]})
    error = result["error"]
    assert error["class"] == "resources" and not ran and "traceback" not in error
    for words in (
        "granted 1 GPU (GPU-1)",
        "torch 2.13.0",
        "CPU-only build",
        "install a build",
        "=1",
    ):
        assert words in error["message"]
    assert error["where"].startswith("tests") or "test_worker_frameworks.py" in error["where"]
    assert only(result["accelerator"]["frameworks"])["build"] == "cpu"


@pytest.mark.parametrize(
    "build,devices,uses,refused",
    [
        ("cpu", [GPU], None, True),
        ("cpu", [GPU], [], False),  # loaded for another step of the file
        ("cpu", [GPU], ["torch", "jax"], False),  # JAX may be what uses the GPU
        ("cpu", [], ["torch"], False),
        ("cpu", [TPU], ["torch"], False),  # torch_xla rides on a CPU-only torch
        ("cuda 12.8", [GPU], ["torch"], False),
        ("rocm 6.2", [GPU], ["torch"], True),
        ("cuda 12.8", [{**GPU, "vendor": "amd"}], ["torch"], True),
        ("rocm 6.2", [{**GPU, "vendor": "amd"}], ["torch"], False),
    ],
)
def test_who_is_refused(
    monkeypatch: pytest.MonkeyPatch, build: str, devices: Any, uses: Any, refused: bool
) -> None:
    monkeypatch.setitem(sys.modules, "torch", torch_of(build))
    if refused:
        with pytest.raises(frameworks.DeviceUnusable):
            frameworks.guard(devices, uses)
        monkeypatch.setenv(frameworks.ALLOW, "1")
    frameworks.guard(devices, uses)


def test_another_library_may_use_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", torch_of("cpu"))
    monkeypatch.setitem(sys.modules, "xgboost", ModuleType("xgboost"))
    frameworks.guard([GPU], ["torch"])


def test_a_framework_that_another_imports_is_not_the_one(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """TensorFlow imports JAX where it is installed: the sentence is about TensorFlow."""
    for name, inner in (("torch", "import jax\n"), ("jax", "")):
        (tmp_path / name).mkdir()
        text = f"{inner}from types import SimpleNamespace\n__version__ = '1'\n"
        (tmp_path / name / "__init__.py").write_text(
            text + "version = SimpleNamespace(cuda=None)\n"
        )
    jax_of(monkeypatch, tmp_path / "site")
    monkeypatch.delitem(sys.modules, "jax")
    monkeypatch.syspath_prepend(str(tmp_path))

    def step() -> None:
        import torch  # noqa: F401

    message = attempt(tmp_path / "store", step, task=GRANTED)[0]["error"]["message"]
    assert "torch 1 in this Python" in message


def fake_torch(folder: Path) -> None:
    """A package torch of a CPU-only build."""
    (folder / "torch").mkdir()
    text = "from types import SimpleNamespace\n__version__ = '2.13.0+cpu'\n"
    text += "version = SimpleNamespace(cuda=None, hip=None)\n"
    (folder / "torch" / "__init__.py").write_text(text)


def test_an_import_within_the_step_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    fake_torch(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    after: list[int] = []

    def step() -> None:
        assert importlib.util.find_spec("torch") is not None  # as libraries ask; not an import yet
        try:
            import torch  # noqa: F401
        except Exception:
            after.append(1)  # a library that does without
        after.append(2)

    result, _ = attempt(tmp_path / "store", step, task=GRANTED)
    assert result["error"]["class"] == "resources" and after == []
    assert "test_worker_frameworks.py" in result["error"]["where"]
    assert only(result["accelerator"]["frameworks"])["version"] == "2.13.0+cpu"


def test_an_import_without_devices_is_left_alone(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    fake_torch(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))

    def step() -> str:
        import torch

        return torch.__version__

    finders = list(sys.meta_path)
    result, _ = attempt(tmp_path / "store", step)
    assert result["outputs"]["output"]["value"] == "2.13.0+cpu"
    assert sys.meta_path == finders


# ---------------------------------------------------------------------------- out of memory


class OutOfMemoryError(RuntimeError):
    """Of torch and CuPy, by its name."""


class ResourceExhaustedError(Exception):
    """TensorFlow's."""


class XlaRuntimeError(RuntimeError):
    """JAX's."""


OOMS = [
    (OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 MiB."), True),
    (
        ResourceExhaustedError(
            "OOM when allocating tensor … on /device:GPU:0 by allocator GPU_0_bfc"
        ),
        True,
    ),
    (
        ResourceExhaustedError("OOM when allocating tensor … on /device:CPU:0 by allocator cpu"),
        False,
    ),
    (ResourceExhaustedError("received message larger than max"), False),
    (XlaRuntimeError("RESOURCE_EXHAUSTED: Out of memory while trying to allocate 8 bytes."), True),
    (RuntimeError("cuDNN error: CUDNN_STATUS_ALLOC_FAILED"), True),
    (RuntimeError("DefaultCPUAllocator: can't allocate memory"), False),
    (MemoryError(), False),
    (ValueError("CUDA out of memory"), False),
]


@pytest.mark.parametrize("exc,is_oom", OOMS)
@pytest.mark.parametrize("wrapped", [False, True])
def test_device_oom(tmp_path: Path, exc: Exception, is_oom: bool, wrapped: bool) -> None:
    def step() -> None:
        if wrapped:
            raise LookupError("the batch failed") from exc
        raise exc

    error = attempt(tmp_path, step)[0]["error"]
    assert error["class"] == ("device_oom" if is_oom else "exception")
    if is_oom:
        assert error["message"] == str(
            exc
        )  # the allocator's own words, whatever they were wrapped in


def test_a_step_knows_its_attempt(tmp_path: Path) -> None:
    seen: list[Any] = []

    def step() -> None:
        here = context.get_step_context()
        seen.extend([here.attempt, here.last_attempt, here.granted["memory_bytes"]])

    granted = {"devices": [], "memory_bytes": 8}
    attempt(tmp_path, step, task={"attempt": 2, "last_attempt": False, "granted": granted})
    assert seen == [2, False, 8]


# ---------------------------------------------------------------------------- the real ones


def run_worker(tmp_path: Path, body: str, **env: str) -> dict[str, Any]:
    """A module of one step, run by a worker of its own as a step with a device."""
    (tmp_path / "real_step.py").write_text(textwrap.dedent(body))
    directory = make_attempt(
        tmp_path, "tested", entry="real_step:main", outputs=["output"], **GRANTED
    )
    path = os.pathsep.join([str(ROOT / "python"), str(tmp_path), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, "-m", "stoker._worker", str(directory)],
        env={**os.environ, "PYTHONPATH": path, "CUDA_VISIBLE_DEVICES": "GPU-1", **env},
        capture_output=True,
        text=True,
        timeout=WAIT_S * 5,
    )
    assert done.returncode == 0, done.stderr
    return result_of(directory)


@pytest.mark.torch
def test_real_torch_of_a_cpu_only_build(tmp_path: Path) -> None:
    if importlib.util.find_spec("torch") is None:
        pytest.skip("PyTorch is not installed")
    body = "def main():\n    import torch\n    return float(torch.ones(3).sum())\n"
    if (
        subprocess.run(
            [sys.executable, "-c", "import torch; exit(torch.version.cuda is None)"]
        ).returncode
        == 0
    ):
        pytest.skip("this torch is built for CUDA")
    (tmp_path / "refused").mkdir()
    refused = run_worker(tmp_path / "refused", body)
    assert refused["error"]["class"] == "resources"
    assert "CPU-only build" in refused["error"]["message"]
    assert refused["error"]["where"].endswith("real_step.py:2")
    (tmp_path / "allowed").mkdir()
    allowed = run_worker(tmp_path / "allowed", body, **{frameworks.ALLOW: "1"})
    assert allowed["outputs"]["output"]["value"] == 3.0
    entry = only(allowed["accelerator"]["frameworks"])
    assert (
        entry["name"] == "torch" and entry["build"] == "cpu" and entry["version"].startswith("2.")
    )
    assert entry["available"] is False and entry["initialized"] is False


@pytest.mark.slow
def test_real_tensorflow_of_a_cpu_only_build(tmp_path: Path) -> None:
    if importlib.util.find_spec("tensorflow") is None:
        pytest.skip("TensorFlow isn't installed (make .venv/.stamps/tensorflow)")
    body = """
    def main():
        import tensorflow as tf

        return float(tf.reduce_sum(tf.ones([3])))
    """
    (tmp_path / "refused").mkdir()
    refused = run_worker(tmp_path / "refused", body)
    assert refused["error"]["class"] == "resources"
    assert "tensorflow[and-cuda]" in refused["error"]["message"]
    (tmp_path / "allowed").mkdir()
    allowed = run_worker(tmp_path / "allowed", body, **{frameworks.ALLOW: "1"})
    assert allowed["outputs"]["output"]["value"] == 3.0
    entries = {one["name"]: one for one in allowed["accelerator"]["frameworks"]}
    entry = entries["tensorflow"]  # which imports JAX where it is installed
    assert "torch" not in entries and entry["build"] == "cpu"
    assert entry["available"] is False and entry["initialized"] is False


@pytest.mark.slow
def test_real_jax_of_a_cpu_only_build(tmp_path: Path) -> None:
    if importlib.util.find_spec("jax") is None:
        pytest.skip("JAX isn't installed (make .venv/.stamps/tensorflow)")
    body = """
    def main():
        import jax.numpy

        return float(jax.numpy.ones(3).sum())
    """
    (tmp_path / "refused").mkdir()
    refused = run_worker(tmp_path / "refused", body)
    assert refused["error"]["class"] == "resources"
    assert "jax[cuda12]" in refused["error"]["message"]
    (tmp_path / "allowed").mkdir()
    allowed = run_worker(tmp_path / "allowed", body, **{frameworks.ALLOW: "1"})
    assert allowed["outputs"]["output"]["value"] == 3.0
    entry = only(allowed["accelerator"]["frameworks"])
    assert entry["name"] == "jax" and entry["build"] == "cpu" and entry["device_count"] == 0
    assert entry["available"] is False and entry["initialized"] is False and "reason" not in entry


def test_looking_is_cheap() -> None:
    """With nothing loaded: far less than a millisecond, so a hundred looks are far less than a second."""
    code = """
    import json, sys, time
    from stoker._worker import frameworks
    before = set(sys.modules)
    start = time.perf_counter()
    for _ in range(100):
        assert frameworks.report([{"vendor": "nvidia", "uuid": "GPU-1"}]) == []
    print(json.dumps([time.perf_counter() - start, sorted(set(sys.modules) - before)]))
    """
    env = {**os.environ, "PYTHONPATH": str(ROOT / "python")}
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], env=env, capture_output=True, timeout=WAIT_S
    )
    seconds, imported = json.loads(done.stdout)
    assert seconds < 1 and imported == []
