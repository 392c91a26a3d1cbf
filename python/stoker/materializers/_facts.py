"""What ZenML's materializers tell of a value: its shape, its type of numbers, how many items it has.

The keys and values are those of ZenML 0.98. A value is asked only by libraries that it has loaded.
"""

from __future__ import annotations

import json
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, Tuple

# Parts of the names of pandas' types that are not a library's own.
_STANDARD = (
    "int",
    "float",
    "bool",
    "datetime",
    "timedelta",
    "object",
    "category",
    "string",
    "complex",
)


def facts_of(value: Any, hide: Callable[[str], str] = str) -> Dict[str, Any]:
    """The facts, as JSON; none if the value's type has none.

    Never raises: a fact never fails a step.

    Args:
        value: a step's output.
        hide: masks the step's secrets in a text.
    """
    try:
        for matches, facts in _FORMS:
            if matches(value):
                found: Dict[str, Any] = facts(value)
                return json.loads(hide(json.dumps(found))) if found else {}
    except Exception:  # whatever a library raises: an array without items has no smallest one
        pass
    return {}


def model_kind(value: Any) -> str:
    """The materializer of ZenML's that stands for a model of Keras or PyTorch, also of the user's
    own class; "" for any other value."""
    if _is_keras(value):
        return "keras_materializer.KerasMaterializer"
    return "pytorch_module_materializer.PyTorchModuleMaterializer" if _is_module(value) else ""


def _is(module: str, *names: str) -> Callable[[Any], bool]:
    """Whether a value is of one of the classes of a module, if that is loaded."""

    def matches(value: Any) -> bool:
        loaded = sys.modules.get(module)
        kinds = tuple(kind for kind in (getattr(loaded, n, None) for n in names) if kind)
        return bool(kinds) and isinstance(value, kinds)

    return matches


def _text(value: Any) -> Dict[str, Any]:
    return {"string_representation": str(value)}


def _array(value: Any) -> Dict[str, Any]:
    numpy: Any = sys.modules["numpy"]
    known: Dict[str, Any] = {"shape": list(value.shape), "dtype": str(value.dtype.type)}
    if numpy.issubdtype(value.dtype, numpy.number):
        for name in ("mean", "std", "min", "max"):
            known[name] = getattr(numpy, name)(value).item()
        return known
    if not (numpy.issubdtype(value.dtype, numpy.str_) or value.dtype == object):
        return {}
    from collections import Counter

    counts = Counter(" ".join(str(item) for item in value.flat).split())
    known["unique_words"], known["total_words"] = len(counts), sum(counts.values())
    known["most_common_word"], known["most_common_count"] = counts.most_common(1)[0]
    return known


def _frame(value: Any) -> Dict[str, Any]:
    own: Dict[str, str] = {}
    kinds = {"series": value.dtype} if not hasattr(value, "columns") else dict(value.dtypes)
    for name, kind in kinds.items():
        if not any(part in str(kind).lower() for part in _STANDARD):
            own.update({str(name): str(kind), f"{name}_module": kind.type.__module__})
    known: Dict[str, Any] = {"shape": list(value.shape), **({"custom_types": own} if own else {})}
    if not hasattr(value, "columns"):
        known["dtype"] = str(value.dtype.type)
        stats = {name: float(getattr(value, name)()) for name in ("mean", "std", "min", "max")}
        return {**known, **stats}
    known["dtype"] = {str(name): str(kind.type) for name, kind in kinds.items()}
    for name in ("mean", "std", "min", "max"):
        found = getattr(value, name)(numeric_only=True).to_dict()
        known[name] = {str(key): float(one) for key, one in found.items()}
    return known


def _picture(value: Any) -> Dict[str, Any]:
    known: Dict[str, Any] = {"width": value.width, "height": value.height, "mode": str(value.mode)}
    return {
        **known,
        **({"original_filename": str(value.filename)} if hasattr(value, "filename") else {}),
    }


def _sparse(value: Any) -> Dict[str, Any]:
    return {"shape": list(value.shape), "dtype": str(value.dtype), "nnz": int(value.nnz)}


def _keras(value: Any) -> Dict[str, Any]:
    def size(weights: Any) -> int:
        total = 0
        for weight in weights:
            n = 1
            for length in weight.shape:
                n *= int(length)
            total += n
        return total

    return {
        "num_layers": len(value.layers),
        "num_params": size(value.weights),
        "num_trainable_params": size(value.trainable_weights),
    }


_is_keras = _is("keras", "Model")


def _is_module(value: Any) -> bool:
    torch: Any = sys.modules.get("torch")
    return hasattr(torch, "nn") and isinstance(value, torch.nn.Module)


def _module(value: Any) -> Dict[str, Any]:
    sizes = [(one.numel(), one.requires_grad) for one in value.parameters()]
    trained = sum(size for size, is_trained in sizes if is_trained)
    return {"num_params": sum(size for size, _ in sizes), "num_trainable_params": trained}


def _is_modelled(value: Any) -> bool:
    kind = type(value)
    return hasattr(kind, "model_json_schema") or hasattr(kind, "__dataclass_fields__")


def _schema(value: Any) -> Dict[str, Any]:
    if hasattr(type(value), "model_json_schema"):
        return {"schema": value.model_json_schema()}
    pydantic: Any = sys.modules.get("pydantic")
    return {"schema": pydantic.TypeAdapter(type(value)).json_schema()} if pydantic else {}


_FORMS: Tuple[Tuple[Callable[[Any], bool], Callable[[Any], Dict[str, Any]]], ...] = (
    (lambda value: isinstance(value, (bool, int, float)), _text),
    (lambda value: isinstance(value, (dict, list, set, tuple)), lambda v: {"length": len(v)}),
    (_is("uuid", "UUID"), _text),
    (_is("numpy", "ndarray"), _array),
    (_is("pandas", "DataFrame", "Series"), _frame),
    (_is("PIL.Image", "Image"), _picture),
    (_is("scipy.sparse", "spmatrix"), _sparse),
    (_is_keras, _keras),  # before torch's modules: with torch as its backend it is one
    (_is_module, _module),
    (_is_modelled, _schema),
)
