"""Components of other tools in the active stack, and what they do around a step.

A component is there if the program registered one (``Client().create_stack_component``), or for
MLflow if the program uses it: it imports ``mlflow`` or ZenML's integration, and MLflow is installed.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import json
import os
import sys
from typing import Any, Dict, Iterator, List, Mapping, Optional

from .._base.binary import output_of
from .._worker import context
from . import records, stacks
from .errors import EntityExistsError, IllegalOperationError

_KIND = "component"
# Type and flavor → the class.
_CLASSES = {
    ("experiment_tracker", "mlflow"): "mlflow_tracker:MLFlowExperimentTracker",
    ("model_registry", "mlflow"): "mlflow_registry:MLFlowModelRegistry",
}


def _make(kind: str, flavor: str, name: str, config: Mapping[str, Any]) -> stacks.Component:
    module, _, attribute = _CLASSES[kind, flavor].partition(":")
    home = importlib.import_module(f"{__package__}.{module}")
    made: stacks.Component = getattr(home, attribute)(name, config)
    return made


def _uses_mlflow() -> bool:
    used = "mlflow" in sys.modules or any(
        n.startswith("zenml.integrations.mlflow") for n in sys.modules
    )
    return used and importlib.util.find_spec("mlflow") is not None


def _default(kind: str) -> Dict[str, Any]:
    """The configuration of a component that nobody registered: what the environment says."""
    uri = os.environ.get("MLFLOW_TRACKING_URI")
    return {"tracking_uri": uri} if uri and kind == "experiment_tracker" else {}


def components() -> Dict[str, List[stacks.Component]]:
    """Type → components, the one that was registered last first."""
    found: Dict[str, List[stacks.Component]] = {}
    for record in reversed(records.listed(_KIND)):
        body = record.body
        part = _make(body["type"], body["flavor"], body["name"], _config(record.name, body))
        found.setdefault(body["type"], []).append(part)
    if _uses_mlflow():
        for kind, flavor in _CLASSES:
            if kind not in found:
                found[kind] = [_make(kind, flavor, "mlflow", _default(kind))]
    return found


def _config(key: str, body: Mapping[str, Any]) -> Dict[str, Any]:
    """A configuration, which may have passwords, so the engine has sealed it for this name."""
    if "sealed" not in body:
        return {}
    config: Dict[str, Any] = json.loads(
        output_of(["record", "open", _KIND, key], text=body["sealed"])
    )
    return config


def create(
    name: str, flavor: str, component_type: Any, configuration: Optional[Mapping[str, Any]] = None
) -> stacks.ComponentResponse:
    """Register a component, which every stack then has.

    Raises:
        EntityExistsError: there is one of this type and name.
        NotImplementedError: Stoker has no such component.
    """
    kind = str(getattr(component_type, "value", component_type))
    if (kind, flavor) not in _CLASSES:
        known = " and ".join(f"the {_shown(k)} '{f}'" for k, f in _CLASSES)
        raise NotImplementedError(
            f"Stoker's stack takes no {_shown(kind)} of flavor '{flavor}'; it takes {known}, and "
            "stoker.yaml says where steps run"
        )
    made = _make(kind, flavor, name, configuration or {})  # a wrong configuration is an error here
    key = f"{kind}.{name}"
    body = {"name": name, "type": kind, "flavor": flavor}
    if configuration:
        text = json.dumps(dict(configuration))
        body["sealed"] = output_of(["record", "seal", _KIND, key], text=text).strip()
    try:
        records.create(_KIND, key, body)
    except EntityExistsError:
        raise EntityExistsError(f"{_shown(kind)} '{name}' exists already") from None
    return stacks.ComponentResponse(made)


def remove(name_or_id: Any, component_type: Any) -> str:
    """Remove a registered component; returns its name.

    Raises:
        KeyError: there is none.
        IllegalOperationError: nobody registered it.
    """
    part = stacks.component(component_type, name_or_id)
    key = f"{part.type.value}.{part.name}"
    if records.get(_KIND, key) is None:
        raise IllegalOperationError(
            f"{_shown(part.type.value)} '{part.name}' isn't a registered one, so it stays"
        )
    records.remove(_KIND, key)
    return part.name


def _shown(kind: str) -> str:
    return kind.replace("_", " ")


# ---------------------------------------------------------------------------- around a step


def is_connected() -> bool:
    """Whether an experiment tracker is there."""
    return _uses_mlflow() or bool(records.listed(_KIND))


def _settings(task: Mapping[str, Any]) -> Dict[str, Any]:
    """What the pipeline and the step say to their experiment tracker."""
    said = (task.get("extra") or {}).get("settings") or {}
    merged: Dict[str, Any] = {}
    for key, value in said.items():
        if key.replace(":", ".").partition(".")[0] == "experiment_tracker":
            merged.update(value)
    return merged


def _tracker(asked: Any) -> Optional[stacks.Component]:
    """The tracker that a step asks for; where the store isn't, the one of the environment.

    Raises:
        RuntimeError: the store isn't there, and the environment names none.
    """
    kind = "experiment_tracker"
    try:
        some = components().get(kind, [])
    except RuntimeError as bad:
        said = _default(kind)
        if not said:
            raise RuntimeError(
                f"experiment_tracker={asked!r}: the step runs where the store isn't, so it needs "
                "MLFLOW_TRACKING_URI in its environment"
            ) from bad
        return _make(kind, "mlflow", "mlflow", said)
    return next((one for one in some if one.name == asked), some[0] if some else None)


@contextlib.contextmanager
def tracked(task: Mapping[str, Any]) -> Iterator[None]:
    """A task's function within the run of its experiment tracker, if it asks for one."""
    asked = ((task.get("extra") or {}).get("zenml") or {}).get("experiment_tracker")
    tracker: Any = _tracker(asked) if asked else None
    if tracker is None or int(task.get("rank") or 0):
        yield
        return
    here = context.get_step_context()
    tracker.prepare_step_run(here, _settings(task))
    failed = True
    try:
        yield
        failed = False
    finally:
        here._metadata.update(tracker.get_step_run_metadata())
        tracker.cleanup_step_run(failed)


stacks.joined.append(components)
