"""Any Python object: a pickle skeleton, with the large parts beside it in a safetensors file.

Storages of torch tensors and the out-of-band buffers of pickle protocol 5 (numpy, pandas,
scikit-learn) become entries of ``tensors.safetensors``; the rest is ``skeleton.pkl``. Tensors that
share a storage share it again after loading. Loading maps both files, so a large model needs no
copy. An object without large parts is one plain pickle file.
"""

from __future__ import annotations

import io
import os
import pickle
import sys

from .._base.errors import lenient
from ._errors import LoadError, SerializeError
from ._files import write_parts
from ._json import need
from ._safetensors import ALIGN, Reader, Tensor, write

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, List, Optional, Tuple

SKELETON = "skeleton.pkl"
TENSORS = "tensors.safetensors"
_PROTOCOL = min(5, pickle.HIGHEST_PROTOCOL)
_IN_BAND = 1024  # smaller buffers stay in the pickle
_MAX_TRIALS = 5000


class _Parts:
    """The parts that the pickler leaves out, in order."""

    def __init__(self, names: Dict[Any, Tuple[str, List[int]]]) -> None:
        self.tensors: List[Tensor] = []
        self.n_buffers = 0
        self.devices: List[str] = []
        self._names = names
        self._known: Dict[int, Tuple[Any, ...]] = {}
        self._kept: List[Any] = []  # keeps the objects alive, so that no address is reused

    def take_buffer(self, buffer: Any) -> bool:
        raw = buffer.raw()
        if raw.nbytes < _IN_BAND:
            return True
        name = f"buffer.{self.n_buffers}"
        self.n_buffers += 1
        self.tensors.append(Tensor(name, "U8", [raw.nbytes], raw, ALIGN))
        return False

    def take_storage(self, storage: Any) -> Tuple[Any, ...]:
        """The persistent id ``("storage", entry, dtype or "", device, n_bytes)`` of a torch
        storage."""
        from . import _torch

        untyped = getattr(storage, "_untyped_storage", storage)
        dtype = "" if untyped is storage else str(storage.dtype).replace("torch.", "")
        known = self._known.get(untyped._cdata)
        if known is None:
            name, shape = self._names.get(untyped._cdata, (f"storage.{len(self._known)}", []))
            data, keep = _torch.storage_bytes(untyped)
            code, itemsize = _torch.safetensors_dtype(dtype)
            if not shape:
                whole = untyped.nbytes() % itemsize == 0
                code, itemsize = (code, itemsize) if whole else ("U8", 1)
                shape = [untyped.nbytes() // itemsize]
            self.tensors.append(Tensor(name, code, shape, data, itemsize))
            self._kept.extend((untyped, keep))
            device = str(untyped.device)
            if device != "cpu" and device not in self.devices:
                self.devices.append(device)
            known = ("storage", name, device, untyped.nbytes())
            self._known[untyped._cdata] = known
        return (*known, dtype)


class _TorchPickler(pickle.Pickler):
    """Used only if torch is loaded, because a hook for every object costs time."""

    def __init__(self, stream: Any, parts: _Parts, **options: Any) -> None:
        super().__init__(stream, _PROTOCOL, **options)
        storage = sys.modules["torch"].storage
        self._parts = parts
        self._kinds = (storage.TypedStorage, storage.UntypedStorage)

    def persistent_id(self, obj: Any) -> Any:
        return self._parts.take_storage(obj) if isinstance(obj, self._kinds) else None


def _pickler(stream: Any, parts: _Parts) -> pickle.Pickler:
    options: Dict[str, Any] = {"buffer_callback": parts.take_buffer} if _PROTOCOL >= 5 else {}
    if hasattr(sys.modules.get("torch"), "storage"):
        return _TorchPickler(stream, parts, **options)
    return pickle.Pickler(stream, _PROTOCOL, **options)


def _by_value(value: Any) -> Optional[bytes]:
    """What no pickle can name (a lambda, a local class), as cloudpickle writes it for programs of
    ZenML; None: it can't either, or isn't installed."""
    if not lenient():
        return None
    try:
        import cloudpickle

        data: bytes = cloudpickle.dumps(value, _PROTOCOL)
    except Exception:
        return None
    return data


def save(value: Any, path: str) -> Tuple[str, Dict[str, Any]]:
    """Write ``value`` at ``path``: a file, or a directory if it has large parts.

    Returns:
        Format (``pickle`` or ``safetensors+pickle``), meta.

    Raises:
        SerializeError: it can't be pickled; names the path of attributes to the cause.
    """
    names: Dict[Any, Tuple[str, List[int]]] = {}
    if hasattr(sys.modules.get("torch"), "storage"):
        from . import _torch

        names = _torch.storage_names(value)
    parts = _Parts(names)
    stream = io.BytesIO()
    try:
        _pickler(stream, parts).dump(value)
    except Exception as exc:
        data = _by_value(value)
        if data is None:
            raise SerializeError(explain(value, exc)) from exc
        write_parts(path, [data])
        return "pickle", {}
    if not parts.tensors:
        write_parts(path, [stream.getbuffer()])
        return "pickle", {}
    os.mkdir(path)
    write_parts(os.path.join(path, SKELETON), [stream.getbuffer()])
    write(os.path.join(path, TENSORS), parts.tensors)
    meta: Dict[str, Any] = {"n_buffers": parts.n_buffers}
    if parts.devices:
        meta["devices"] = parts.devices
    return "safetensors+pickle", meta


class _Unpickler(pickle.Unpickler):
    def __init__(self, stream: Any, reader: Optional[Reader], **options: Any) -> None:
        super().__init__(stream, **options)
        self._reader = reader
        self._storages: Dict[str, Any] = {}

    def persistent_load(self, pid: Any) -> Any:
        if self._reader is None or not isinstance(pid, tuple) or pid[0] != "storage":
            raise LoadError(f"the pickle names {pid!r}, which is not beside it")
        need("torch")
        from . import _torch

        _, name, device, n_bytes, dtype = pid
        if name not in self._storages:
            self._storages[name] = _torch.storage_from(self._reader.data(name), n_bytes, device)
        return _torch.typed(self._storages[name], dtype)

    def find_class(self, module: str, name: str) -> Any:
        if module in (
            "__mp_main__",
            "__main__",
        ):  # one file with two names, see _worker.import_main
            main = sys.modules["__main__"]
            module = "__main__" if hasattr(main, name.split(".")[0]) else module
        return super().find_class(module, name)


def load(path: str, meta: Dict[str, Any]) -> Any:
    """Read what :func:`save` wrote.

    Raises:
        LoadError: a class or library it needs can't be imported here, or the file is damaged.
    """
    reader = None
    options: Dict[str, Any] = {}
    skeleton = path
    if os.path.isdir(path):
        reader = Reader(os.path.join(path, TENSORS))
        skeleton = os.path.join(path, SKELETON)
        n_buffers = meta.get("n_buffers", 0)
        if n_buffers:
            options["buffers"] = [reader.data(f"buffer.{i}") for i in range(n_buffers)]
    with open(skeleton, "rb") as stream:
        try:
            return _Unpickler(stream, reader, **options).load()
        except ModuleNotFoundError as exc:
            raise LoadError(f"it needs '{exc.name}', which isn't installed here") from exc
        except (AttributeError, ImportError) as exc:
            raise LoadError(f"{exc}; import the file that defines it, then load again") from exc
        except (pickle.UnpicklingError, EOFError) as exc:
            raise LoadError(f"'{skeleton}' is damaged: {exc}") from exc


def explain(value: Any, exc: BaseException) -> str:
    """One sentence: the type, the path to the part that can't be pickled, the reason, the
    remedy."""
    kind = type(value)
    trail, culprit, reason = _find_culprit(value, exc)
    what = f"a {kind.__module__}.{kind.__qualname__} can't be pickled"
    if isinstance(reason, RecursionError):
        return (
            f"{what}: it is nested too deeply, or each part of it refers to the next; return it as a flat list, "
            "or give its type a materializer (stoker.materializers.register)"
        )
    if trail:
        inner = type(culprit)
        if len(trail) > 200:
            trail = f"{trail[:100]}…{trail[-100:]}"
        what += f": its part '{trail}' is a {inner.__module__}.{inner.__qualname__}"
    return (
        f"{what} ({type(reason).__name__}: {reason}); return something that can be stored, "
        "or give its type a materializer (stoker.materializers.register)"
    )


def _find_culprit(value: Any, exc: BaseException) -> Tuple[str, Any, BaseException]:
    """Find the smallest part that can't be pickled by itself."""
    trail, reason = "", exc
    seen = {id(value)}
    n_trials = 0
    while True:
        for step, part in _children(value):
            if id(part) in seen or n_trials >= _MAX_TRIALS:
                continue
            seen.add(id(part))
            n_trials += 1
            failure = _fails(part)
            if failure is not None:
                trail, value, reason = trail + step, part, failure
                break
        else:
            return trail, value, reason


def _fails(value: Any) -> Optional[BaseException]:
    if isinstance(value, (int, float, str, bytes, type(None))):
        return None
    try:
        _pickler(io.BytesIO(), _Parts({})).dump(value)
    except Exception as exc:
        return exc
    return None


def _children(value: Any) -> List[Tuple[str, Any]]:
    if isinstance(value, dict):
        return [(f"[{key!r}]", item) for key, item in list(value.items())]
    if isinstance(value, (list, tuple, set, frozenset)):
        return [(f"[{i}]", item) for i, item in enumerate(value)]
    found = []
    for name in ("func", "args", "keywords"):  # functools.partial
        if type(value).__name__ == "partial":
            found.append((f".{name}", getattr(value, name)))
    if hasattr(value, "__func__") and hasattr(value, "__self__"):
        found.append((".__self__", value.__self__))
    if hasattr(value, "__code__") or isinstance(value, (type, type(sys))):
        return found  # pickled by its name, so its attributes aren't the cause
    found += [(f".{name}", item) for name, item in list(getattr(value, "__dict__", {}).items())]
    for kind in type(value).__mro__:
        slots = kind.__dict__.get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            if name not in ("__dict__", "__weakref__") and hasattr(value, name):
                found.append((f".{name}", getattr(value, name)))
    return found
