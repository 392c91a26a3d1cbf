"""``zenml.steps.utils``: what a step's function returns."""

from __future__ import annotations

import typing
from typing import Any, Callable, Dict, NamedTuple, Optional

from .._definition.outputs import interface_of
from .._definition.types import ArtifactConfig
from .helpers import is_union

SINGLE_RETURN_OUT_NAME = "output"


class OutputSignature(NamedTuple):
    """An output: its class, its configuration, and whether it has a name of its own."""

    resolved_annotation: Any = None
    artifact_config: Optional[ArtifactConfig] = None
    has_custom_name: bool = False


def resolve_type_annotation(obj: Any) -> Any:
    """The class of an annotation: of ``List[int]`` it is ``list``; a union stays."""
    if hasattr(obj, "__metadata__"):
        return resolve_type_annotation(obj.__origin__)
    origin = typing.get_origin(obj) or obj
    return obj if is_union(origin) else origin


def parse_return_type_annotations(
    func: Callable[..., Any], enforce_type_annotations: bool = False, *_: Any
) -> Dict[str, OutputSignature]:
    """Name → output, of a function.

    Raises:
        RuntimeError: it has no annotation of what it returns, and that is enforced.
        StepInterfaceError: outputs of the same name, or of unknown number.
    """
    found = interface_of(func, func.__name__)
    if enforce_type_annotations and found.signature.return_annotation is found.signature.empty:
        raise RuntimeError(f"Missing return type annotation for step function '{func.__name__}'.")
    usual = (SINGLE_RETURN_OUT_NAME, *(f"output_{i}" for i in range(len(found.outputs))))
    made = {}
    for name, output in found.outputs.items():
        own = name not in usual
        config = ArtifactConfig(name=name, **_rest(output.config)) if own or output.config else None
        made[name] = OutputSignature(resolve_type_annotation(output.type), config, own)
    return made


def _rest(config: Dict[str, Any]) -> Dict[str, Any]:
    return {key: value for key, value in config.items() if key != "name"}
