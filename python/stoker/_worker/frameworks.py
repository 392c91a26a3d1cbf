"""How the frameworks in a task can use its devices, and did: torch, TensorFlow, JAX, CuPy.

This module reads only modules that are loaded already: it imports none, and opens no device. It
makes the report in ``result.json`` (``accelerator.frameworks``, docs/formats/task-directory.md),
refuses a framework without device support in a step that was granted devices, and tells "out of
device memory" from other errors. Works on Python 3.7, like all modules of the worker.
"""

from __future__ import annotations

import os
import re
import sys

from .._base.after_import import when_imported

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, Iterable, List, Mapping, Optional, Sequence, Tuple

NAMES = ("torch", "tensorflow", "jax", "cupy")
ALLOW = "STOKER_ALLOW_CPU_BUILD"

# Package → the framework on whose tensors it works: code that imports the package uses the
# framework.
BUILT_ON = {
    **dict.fromkeys(
        ("accelerate", "diffusers", "fastai", "lightning", "peft", "pytorch_lightning", "timm"),
        "torch",
    ),
    **dict.fromkeys(
        (
            "sentence_transformers",
            "torchaudio",
            "torchmetrics",
            "torchvision",
            "transformers",
            "trl",
        ),
        "torch",
    ),
    **dict.fromkeys(("equinox", "flax", "haiku", "optax"), "jax"),
}
# Libraries that use devices without these frameworks. If one is loaded, a framework may serve
# another purpose: a CPU-only torch its data loaders, for instance.
_OTHER_USERS = (
    *("catboost", "cudf", "cuml", "cuda", "lightgbm", "numba.cuda", "onnxruntime", "paddle"),
    *("pycuda", "pyopencl", "tensorrt", "torch_neuronx", "torch_xla", "warp", "xgboost"),
)

_kept: Dict[str, Any] = {}  # refused modules: Python drops a module whose import raised
_peaks: Dict[int, int] = {}  # device index → torch's peak before it was reset


class DeviceUnusable(BaseException):
    """The step was granted devices that its framework can't use; the sentence has the remedy.

    Not an ``Exception``: libraries that try imports with ``except Exception`` must not take this
    for a framework that isn't installed, and train on.
    """


# ---------------------------------------------------------------------------- the report


def report(granted: Sequence[Any] = (), failed_by: str = "") -> List[Dict[str, Any]]:
    """One entry for each loaded framework; without granted devices, only for those that opened one.

    ``failed_by`` is the message of the exception that ended the step: only there a framework that
    couldn't start its devices says why. Keys with unknown values are left out.
    """
    found = []
    for name in NAMES:
        module = sys.modules.get(name) or _kept.get(name)
        if module is None:
            continue
        entry: Dict[str, Any] = {"name": name}
        try:
            version = getattr(module, "__version__", None)
            entry["version"] = str(version) if version else None
            if granted or _READERS[name](module, {"build": None}, True):
                entry["build"] = build_of(name, module)
                _READERS[name](module, entry, False)
                if not entry.get("initialized") and any(one in failed_by for one in _NO_START):
                    entry.update({"available": False, "reason": _one_line(failed_by)})
            else:
                continue
        except Exception as exc:  # an unknown version of the framework
            entry["reason"] = _one_line(f"{type(exc).__name__}: {exc}")
        found.append({key: value for key, value in entry.items() if value is not None})
    return found


def build_of(name: str, module: Any) -> Optional[str]:
    """``"cuda 12.8"``, ``"rocm 6.2"``, ``"xpu 2025.1"``, ``"cpu"``, or None if unknown."""
    if name == "torch":
        return _torch_build(module)
    if name == "tensorflow":
        return _tensorflow_build()
    if name == "jax":
        return _jax_build()
    return _cupy_build(module)


_NO_START = (
    "NVIDIA driver",
    "CUDA initialization",
    "CUDA driver version is insufficient",
    "No CUDA GPUs are available",
    "No HIP GPUs are available",
    "no CUDA-capable device",
    "CUDA unknown error",
)


def _one_line(text: str) -> str:
    return " ".join(text.split())[:500]


def _torch_build(torch: Any) -> Optional[str]:
    version = getattr(torch, "version", None)
    if version is None:
        return None
    for attribute, word in (("cuda", "cuda"), ("hip", "rocm"), ("xpu", "xpu")):
        number = getattr(version, attribute, None)
        if number:
            return f"{word} {'.'.join(str(number).split('.')[:2])}"
    return next((word for name, word in _TORCH_PLUGINS if name in sys.modules), "cpu")


# Plugins by which a CPU-only torch uses other devices. Only they know what they opened.
_TORCH_PLUGINS = (
    *(("torch_neuronx", "neuron"), ("torch_xla", "xla"), ("habana_frameworks", "hpu")),
    *(("torch_npu", "npu"), ("intel_extension_for_pytorch", "xpu")),
)


def _torch(torch: Any, entry: Dict[str, Any], only_initialized: bool) -> bool:
    """Fill the entry; returns whether torch opened a device."""
    build = entry["build"] or _torch_build(torch)
    if build in dict(_TORCH_PLUGINS).values():
        return False
    api = getattr(torch, "xpu" if build and build.startswith("xpu") else "cuda", None)
    opened = bool(api is not None and build != "cpu" and api.is_initialized())
    if only_initialized:
        return opened
    entry["initialized"] = opened
    if build == "cpu" or api is None:
        entry.update({"available": False, "device_count": 0})
        return opened
    count, entry["reason"] = _torch_count(torch, api)
    entry.update({"available": count > 0, "device_count": count})
    if opened:
        peaks = (max(int(api.max_memory_allocated(i)), _peaks.get(i, 0)) for i in range(count))
        entry["peak_bytes"] = list(peaks)
    return opened


def _torch_count(torch: Any, api: Any) -> Tuple[int, Optional[str]]:
    """Number of devices that torch sees, and its message if it sees none. Uses NVML if it can,
    which opens no device."""
    import warnings

    before = os.environ.get("PYTORCH_NVML_BASED_CUDA_CHECK")
    os.environ["PYTORCH_NVML_BASED_CUDA_CHECK"] = "1"
    try:
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            count = int(api.device_count())
    finally:
        if before is None:
            del os.environ["PYTORCH_NVML_BASED_CUDA_CHECK"]
        else:
            os.environ["PYTORCH_NVML_BASED_CUDA_CHECK"] = before
    reason = next((str(one.message) for one in said), None)
    start = getattr(torch._C, "_cuda_init", None)
    if (
        count == 0
        and reason is None
        and start is not None
        and os.environ.get("CUDA_VISIBLE_DEVICES")
    ):
        try:  # torch has warned before; without a device this only fails, with the reason
            start()
        except Exception as exc:
            reason = str(exc)
    return count, None if reason is None else _one_line(reason)


def _tensorflow_build() -> Optional[str]:
    info: Any = getattr(
        sys.modules.get("tensorflow.python.platform.build_info"), "build_info", None
    )
    if info is None:
        return None
    if info.get("is_rocm_build"):
        return f"rocm {info.get('rocm_version') or ''}".strip()
    if info.get("is_cuda_build"):
        return f"cuda {info.get('cuda_version') or ''}".strip()
    return "cpu"


def _tensorflow(tf: Any, entry: Dict[str, Any], only_initialized: bool) -> bool:
    """Fill the entry from TensorFlow's context. Must not make the context, because that opens all
    devices."""
    context: Any = getattr(sys.modules.get("tensorflow.python.eager.context"), "_context", None)
    made = bool(context is not None and getattr(context, "_initialized", False))
    gpus = context.list_logical_devices("GPU") if made else []
    if only_initialized:
        return bool(gpus)
    entry["initialized"] = bool(gpus)
    if made or entry["build"] == "cpu":
        entry.update({"available": bool(gpus), "device_count": len(gpus)})
    if gpus:
        entry["peak_bytes"] = [
            int(context.get_memory_info(f"GPU:{i}")["peak"]) for i in range(len(gpus))
        ]
    return bool(gpus)


_JAX_PLUGIN = r"jax_(cuda|rocm)(\d*)_plugin"


def _jax_build() -> Optional[str]:
    """The build by the packages beside jaxlib, which contain its device support; before 0.4.30
    jaxlib had CUDA's."""
    path = getattr(sys.modules.get("jaxlib"), "__file__", None)
    if not path:
        return None
    folder = os.path.dirname(os.path.abspath(path))
    beside = sorted(os.listdir(os.path.dirname(folder)))
    for name in beside:
        match = re.fullmatch(_JAX_PLUGIN, name)
        if match is not None:
            return " ".join(part for part in match.groups() if part)
    inside = [word for word in ("cuda", "rocm") if os.path.isdir(os.path.join(folder, word))]
    return inside[0] if inside else "tpu" if "libtpu" in beside else "cpu"


def _jax(jax: Any, entry: Dict[str, Any], only_initialized: bool) -> bool:
    bridge: Any = sys.modules.get("jax._src.xla_bridge")
    backends = dict(getattr(bridge, "_backends", None) or {})
    real = [client for name, client in backends.items() if name not in ("cpu", "interpreter")]
    if only_initialized:
        return bool(real)
    entry["initialized"] = bool(real)
    if not backends:
        return False
    devices = list({id(one): one for client in real for one in client.local_devices()}.values())
    entry.update({"available": bool(devices), "device_count": len(devices)})
    errors = getattr(bridge, "_backend_errors", None) or {}
    word = (entry["build"] or "").partition(" ")[0]
    if not devices and errors.get(word):  # only the error of the installed kind
        entry["reason"] = _one_line(str(errors[word]))
    platforms = os.environ.get("JAX_PLATFORMS")
    if not devices and platforms and "reason" not in entry:
        entry["reason"] = f"JAX_PLATFORMS is '{platforms}'"
    stats = [device.memory_stats() or {} for device in devices]
    if stats:
        entry["peak_bytes"] = [one.get("peak_bytes_in_use") for one in stats]
    return bool(real)


def _cupy_build(cupy: Any) -> Optional[str]:
    runtime = cupy.cuda.runtime
    if getattr(runtime, "is_hip", False):
        return "rocm"
    number = int(runtime.runtimeGetVersion())  # 12080 means 12.8
    return f"cuda {number // 1000}.{number % 1000 // 10}"


def _cupy(cupy: Any, entry: Dict[str, Any], only_initialized: bool) -> bool:
    try:
        opened = bool(cupy.cuda.driver.ctxGetCurrent())
    except Exception:  # the driver was never initialized
        opened = False
    if only_initialized:
        return opened
    entry["initialized"] = opened
    try:
        count = int(cupy.cuda.runtime.getDeviceCount())
        entry.update({"available": count > 0, "device_count": count})
    except Exception as exc:
        entry.update({"available": False, "device_count": 0, "reason": _one_line(str(exc))})
    return opened


_READERS: Dict[str, Callable[[Any, Dict[str, Any], bool], bool]] = {
    "torch": _torch,
    "tensorflow": _tensorflow,
    "jax": _jax,
    "cupy": _cupy,
}


def keep_peaks(torch: Any) -> None:
    """Call this before a reset of torch's peaks, because the report is about the whole task."""
    for i in range(int(torch.cuda.device_count())):
        _peaks[i] = max(_peaks.get(i, 0), int(torch.cuda.max_memory_allocated(i)))


# ---------------------------------------------------------------------------- what is visible

_MASKS = (
    *("CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ZE_AFFINITY_MASK"),
    *("NEURON_RT_VISIBLE_CORES", "TPU_VISIBLE_CHIPS"),
)


def masks() -> Dict[str, Optional[str]]:
    """The current values of the variables that name the visible devices."""
    return {name: os.environ.get(name) for name in _MASKS}


def masks_changed(before: Mapping[str, Optional[str]]) -> Dict[str, Optional[str]]:
    """The variables that have changed, with their current values. Only the process itself sees such
    a change."""
    return {name: now for name, now in masks().items() if now != before.get(name)}


# ---------------------------------------------------------------------------- the refusal


def guard(granted: Sequence[Mapping[str, Any]], uses: Optional[Iterable[str]]) -> None:
    """Refuse frameworks without device support in a step that was granted devices.

    Checks the loaded frameworks, and later ones right after their import.

    Args:
        granted: the devices, from ``task.json``.
        uses: the frameworks that the step's code imports; None: unknown. A loaded framework that
            isn't among them belongs to another step of the file.

    Raises:
        DeviceUnusable: a build for CPUs only, or for devices of another vendor.
    """
    if not any(device.get("vendor") in _WANTS for device in granted):
        return
    if os.environ.get(ALLOW, "").lower() in ("1", "true", "yes", "on"):
        return
    used = None if uses is None else set(uses)
    for name in _GUARDED:
        module = sys.modules.get(name)
        if module is not None and (used is None or name in used):
            _check(name, module, granted, used or ())
    for name in _GUARDED:
        if name not in sys.modules:
            _check_when_imported(name, granted, used or ())


_GUARDED = ("torch", "tensorflow", "jax")
_WANTS = {"nvidia": ("cuda", "CUDA"), "amd": ("rocm", "ROCm")}
_INSTALL = {
    "torch": "install a build for {api} (pytorch.org/get-started names the index to install it from)",
    "tensorflow": "install tensorflow[and-cuda] in place of tensorflow-cpu",
    "jax": "install jax[cuda12] or jax[cuda13]",
}


def _check_when_imported(
    name: str, granted: Sequence[Mapping[str, Any]], used: Iterable[str]
) -> None:
    when_imported(name, lambda module: _check(name, module, granted, used))


def _check(
    name: str, module: Any, granted: Sequence[Mapping[str, Any]], used: Iterable[str]
) -> None:
    vendor = next(d["vendor"] for d in granted if d.get("vendor") in _WANTS)
    word, api = _WANTS[vendor]
    build = build_of(name, module)
    if build is None or build.split()[0] == word or _somebody_else(name, used):
        return
    _kept[name] = module
    version = getattr(module, "__version__", "")
    kind = "a CPU-only build" if build == "cpu" else f"built for {build}"
    devices = ", ".join(str(device.get("uuid")) for device in granted)
    noun = str(granted[0].get("noun") or "GPU")
    count = f"1 {noun}" if len(granted) == 1 else f"{len(granted)} {noun}s"
    remedy = (
        _INSTALL[name] if vendor == "nvidia" or name == "torch" else "install a build for {api}"
    )
    raise DeviceUnusable(
        f"the step was granted {count} ({devices}), but {name} {version} in this Python is {kind} and "
        f"can't use {'it' if len(granted) == 1 else 'them'}; {remedy.format(api=api)}, ask for no {noun}, or "
        f"set {ALLOW}=1 in the step's environment to run it anyway"
    )


def _somebody_else(name: str, used: Iterable[str]) -> bool:
    """Whether another library may use the device, or this import is part of another framework's
    import."""
    if any(other in sys.modules for other in _OTHER_USERS):
        return True
    for other in NAMES:
        if other == name or (other not in used and other not in sys.modules):
            continue
        module = sys.modules.get(other)
        unfinished = getattr(getattr(module, "__spec__", None), "_initializing", False)
        if module is None or unfinished or build_of(other, module) != "cpu":
            return True  # a framework whose import isn't finished is checked after it
    return False


# ---------------------------------------------------------------------------- out of memory

_OOM_TYPES = ("OutOfMemoryError", "CudaOutOfMemoryError")
_OOM_TEXTS = (
    "CUDA out of memory",
    "HIP out of memory",
    "XPU out of memory",
    "CUDA error: out of memory",
    "CUDA_ERROR_OUT_OF_MEMORY",
    "cudaErrorMemoryAllocation",
    "CUBLAS_STATUS_ALLOC_FAILED",
    "CUDNN_STATUS_ALLOC_FAILED",
    "RESOURCE_EXHAUSTED: Out of memory",
)
_ON_HOST = ("device:CPU", "allocator cpu", "DefaultCPUAllocator")


def text_of(exc: BaseException) -> str:
    """``str(exc)``, even if that raises."""
    try:
        return str(exc)
    except Exception as bad:
        return f"(it has no message: its __str__ raised {type(bad).__name__})"


def device_oom_of(exc: Optional[BaseException]) -> Optional[BaseException]:
    """The exception that reports a device's memory as full: this one or one of its causes; else
    None.

    Compares names and texts; imports nothing.
    """
    for _ in range(20):
        if exc is None or _is_device_oom(exc):
            return exc
        exc = exc.__cause__
    return None


def _is_device_oom(exc: BaseException) -> bool:
    text = text_of(exc)
    if any(word in text for word in _ON_HOST):
        return False
    kinds = [kind.__name__ for kind in type(exc).__mro__]
    # TensorFlow uses it for any limit, even of a message's size
    if "ResourceExhaustedError" in kinds:
        return "OOM" in text or "memory" in text.lower()
    if any(kind in _OOM_TYPES for kind in kinds):
        return True
    if not isinstance(exc, RuntimeError) and "Cuda" not in type(exc).__name__:
        return False
    return any(one in text for one in _OOM_TEXTS)
