"""torch, if the user has loaded it: storages as bytes, and back."""

from __future__ import annotations

import sys

from ._json import need

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, List, Tuple

_CODES = {
    "float64": ("F64", 8),
    "float32": ("F32", 4),
    "float16": ("F16", 2),
    "bfloat16": ("BF16", 2),
    "int64": ("I64", 8),
    "int32": ("I32", 4),
    "int16": ("I16", 2),
    "int8": ("I8", 1),
    "uint8": ("U8", 1),
    "uint16": ("U16", 2),
    "uint32": ("U32", 4),
    "uint64": ("U64", 8),
    "bool": ("BOOL", 1),
    "float8_e4m3fn": ("F8_E4M3", 1),
    "float8_e5m2": ("F8_E5M2", 1),
}


def safetensors_dtype(name: str) -> Tuple[str, int]:
    """The format's code and the size in bytes; types it lacks are stored as bytes."""
    return _CODES.get(name, ("U8", 1))


def storage_bytes(untyped: Any) -> Tuple[Any, Any]:
    """The storage's bytes in host memory, and an object that must stay alive meanwhile."""
    host = untyped if untyped.device.type == "cpu" else untyped.cpu()
    if host.nbytes() == 0:
        return b"", host
    import ctypes

    return (ctypes.c_char * host.nbytes()).from_address(host.data_ptr()), host


def storage_names(value: Any) -> Dict[Any, Tuple[str, List[int]]]:
    """Storage → (parameter name, shape) for tensors that use their whole storage.

    With these names the file has a module's tensors like any other file of weights.
    """
    torch: Any = sys.modules["torch"]
    named: Dict[str, Any] = {}
    if isinstance(value, torch.Tensor):
        named = {"tensor": value}
    elif hasattr(torch, "nn") and isinstance(value, torch.nn.Module):
        for name, one in list(value.named_parameters()) + list(value.named_buffers()):
            named[name] = one
    elif isinstance(value, dict):
        named = {
            k: v for k, v in value.items() if isinstance(k, str) and isinstance(v, torch.Tensor)
        }
    names: Dict[Any, Tuple[str, List[int]]] = {}
    for name, one in named.items():
        if one.layout != torch.strided or not one.is_contiguous() or one.is_quantized:
            continue
        try:
            untyped = one.untyped_storage()
            whole = untyped.nbytes() == one.numel() * one.element_size()
        except (RuntimeError, NotImplementedError):  # meta, functional tensors
            continue
        dtype = str(one.dtype).replace("torch.", "")
        if whole and one.numel() and dtype in _CODES and not name.startswith(("__", "storage.")):
            names.setdefault(untyped._cdata, (name, list(one.shape)))
    return names


def storage_from(data: memoryview, n_bytes: int, device: str) -> Any:
    """A storage over mapped bytes, on its original device if this process has one."""
    torch = need("torch")
    if n_bytes == 0:
        storage = torch.UntypedStorage(0)
    else:
        storage = torch.frombuffer(data, dtype=torch.uint8).untyped_storage()
    target = _device(torch, device)
    return storage if target == "cpu" else storage.to(device=torch.device(target))


def _device(torch: Any, device: str) -> str:
    """``map_location``: the same device, else the first of its kind, else the CPU."""
    kind, _, index = device.partition(":")
    if kind == "cpu":
        return "cpu"
    module = getattr(torch, kind, None)
    if module is None or not hasattr(module, "is_available") or not module.is_available():
        return "cpu"
    count = module.device_count() if hasattr(module, "device_count") else 1
    return device if not index or int(index) < count else f"{kind}:0"


def typed(untyped: Any, dtype: str) -> Any:
    """The storage as torch's rebuilding functions expect it (bytes if it was pickled untyped)."""
    torch = need("torch")
    return torch.storage.TypedStorage(
        wrap_storage=untyped, dtype=getattr(torch, dtype or "uint8"), _internal=True
    )
