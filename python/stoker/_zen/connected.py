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
from . import own, records, registering, stacks
from .errors import EntityExistsError, IllegalOperationError, StackValidationError

_KIND = "component"
# Type and flavor → the class.
_CLASSES = {
    ("experiment_tracker", "mlflow"): "mlflow_tracker:MLFlowExperimentTracker",
    ("model_registry", "mlflow"): "mlflow_registry:MLFlowModelRegistry",
    ("model_deployer", "mlflow"): "mlflow_services:MLFlowModelDeployer",
}


# Of what stacks are made, besides: type → what its configuration must have, by flavor.
_NEEDS: Dict[str, Dict[str, str]] = {
    "orchestrator": {"ssh": "hosts"},
    "step_operator": {"ssh": "hosts"},
    "artifact_store": {"s3": "path"},
    "container_registry": dict.fromkeys(stacks.KNOWN["container_registry"], "uri"),
    "image_builder": {},
}
_HERE = ("local", "local_docker")


def _make(kind: str, flavor: str, name: str, config: Mapping[str, Any]) -> stacks.Component:
    if own.is_own(kind, flavor):
        return own.make(kind, flavor, name, config)
    if kind in _NEEDS:
        needed = _NEEDS[kind].get(flavor)
        if needed and not config.get(needed):
            raise ValueError(f"{_shown(kind)} '{name}' of flavor '{flavor}' needs --{needed}")
        if kind == "artifact_store" and flavor == "local" and config:
            raise ValueError("a local artifact store takes nothing: it is the folder .stoker")
        made_of = stacks.Component(kind, flavor, name, config)
        made_of.is_remote = flavor not in _HERE and kind != "image_builder"
        made_of.config = stacks.Config({**config, "is_remote": made_of.is_remote})
        return made_of
    module, _, attribute = _CLASSES[kind, flavor].partition(":")
    home = importlib.import_module(f"{__package__}.{module}")
    made: stacks.Component = getattr(home, attribute)(name, config)
    return made


def _checked(kind: str, flavor: str, name: str, config: Mapping[str, Any]) -> stacks.Component:
    """A component; raises ValueError for a configuration that it can't have."""
    if kind in _NEEDS and not own.is_own(kind, flavor):
        registering.check(kind, name, config)
    return _make(kind, flavor, name, config)


def _uses_mlflow() -> bool:
    used = "mlflow" in sys.modules or any(
        n.startswith("zenml.integrations.mlflow") for n in sys.modules
    )
    return used and importlib.util.find_spec("mlflow") is not None


def prepare() -> None:
    """Be ready to start servers for steps, if the program imports what starts them."""
    served = tuple(f"zenml.integrations.mlflow.{part}" for part in ("model_deployers", "services"))
    steps = f"{__package__}.mlflow_deploy_steps"
    if steps in sys.modules or any(name.startswith(served) for name in sys.modules):
        from . import daemons

        daemons.keep()


def _default(kind: str) -> Dict[str, Any]:
    """The configuration of a component that nobody registered: what the environment says."""
    uri = os.environ.get("MLFLOW_TRACKING_URI")
    return {"tracking_uri": uri} if uri and kind == "experiment_tracker" else {}


def components(made_of: Mapping[str, Any]) -> Dict[str, List[stacks.Component]]:
    """Type → components, the one that was registered last first; of the program's own classes, those
    that the stack is made of."""
    found: Dict[str, List[stacks.Component]] = {}
    for record in reversed(records.listed(_KIND)):
        body = record.body
        if own.is_own(body["type"], body["flavor"]):
            if body["name"] not in made_of.get(body["type"], ()):
                continue
        elif body["type"] in _NEEDS:
            continue
        part = _make(body["type"], body["flavor"], body["name"], _config(record.name, body))
        found.setdefault(body["type"], []).append(part)
    if _uses_mlflow():
        for kind, flavor in _CLASSES:
            if kind not in found:
                found[kind] = [_make(kind, flavor, "mlflow", _default(kind))]
    return found


def places() -> List[stacks.Component]:
    """The registered components of which stacks are made."""
    known = records.listed(_KIND)
    some = [
        r for r in known if r.body["type"] in _NEEDS or own.is_own(r.body["type"], r.body["flavor"])
    ]
    return [_make(b["type"], b["flavor"], b["name"], _config(key, b)) for key, *_, b in some]


def _config(key: str, body: Mapping[str, Any]) -> Dict[str, Any]:
    """A configuration, which may have passwords, so the engine has sealed it for this name."""
    if "sealed" not in body:
        return {}
    config: Dict[str, Any] = json.loads(
        output_of(["record", "open", _KIND, key], text=body["sealed"])
    )
    return config


_TAKEN = (*_NEEDS, *(kind for kind, _ in _CLASSES))


def create(
    name: str, flavor: str, component_type: Any, configuration: Optional[Mapping[str, Any]] = None
) -> stacks.ComponentResponse:
    """Register a component: MLflow's, which every stack then has, or one to make stacks of.

    Raises:
        EntityExistsError: there is one of this type and name.
        NotImplementedError: Stoker has no such component.
        ValueError: its configuration lacks something.
    """
    kind = str(getattr(component_type, "value", component_type))
    mine = own.is_own(kind, flavor) and any(
        one.name == flavor and one.type == kind for one in own.registered()
    )
    if not mine and (flavor not in stacks.KNOWN.get(kind, ()) or kind not in _TAKEN):
        known = "; ".join(f"{_shown(k)}: {', '.join(stacks.KNOWN[k])}" for k in _TAKEN)
        raise NotImplementedError(
            f"Stoker's stacks take no {_shown(kind)} of flavor '{flavor}'; they take {known}"
        )
    made = _checked(kind, flavor, name, configuration or {})
    taken = kind in _NEEDS and stacks.all_components()
    if taken and any(one.type == kind and one.name == name for one in taken):
        raise EntityExistsError(f"{_shown(kind)} '{name}' exists already")
    key = f"{kind}.{name}"
    body = {"name": name, "type": kind, "flavor": flavor}
    if configuration:
        body["sealed"] = _sealed(key, configuration)
    try:
        records.create(_KIND, key, body)
    except EntityExistsError:
        raise EntityExistsError(f"{_shown(kind)} '{name}' exists already") from None
    return stacks.ComponentResponse(made)


def _sealed(key: str, config: Mapping[str, Any]) -> str:
    return output_of(["record", "seal", _KIND, key], text=json.dumps(dict(config))).strip()


def update(
    name_or_id: Any, component_type: Any, name: Optional[str], configuration: Any
) -> stacks.ComponentResponse:
    """Change a registered component's name or configuration (None removes a key), and the lines of
    the stacks that have it.

    Raises:
        KeyError, IllegalOperationError: as :func:`remove`.
        EntityExistsError, ValueError: as :func:`create`.
        StackValidationError: ``stoker.yaml`` can't take it; then all is as it was.
    """
    part = stacks.component(component_type, name_or_id)
    kind, new = part.type.value, name or part.name
    old_key, key = f"{kind}.{part.name}", f"{kind}.{new}"
    record = _registered(kind, part.name)
    config = {**_config(old_key, record.body), **(configuration or {})}
    config = {k: v for k, v in config.items() if v is not None}
    made = _checked(kind, part.flavor_name, new, config)
    body = {"name": new, "type": kind, "flavor": part.flavor_name, "sealed": _sealed(key, config)}
    if key != old_key:
        records.create(_KIND, key, {**body, "id": record.body["id"]})
    else:
        records.change(_KIND, key, lambda known: known.update(body))
    try:
        registering.rewrite(kind, part.name, new)
    except Exception:
        if key != old_key:
            records.remove(_KIND, key)
        else:
            records.change(_KIND, key, lambda known: _put_back(known, record.body))
        raise
    if key != old_key:
        records.remove(_KIND, old_key)
    return stacks.ComponentResponse(made)


def _put_back(known: Dict[str, Any], before: Mapping[str, Any]) -> None:
    known.clear()
    known.update(before)


def _registered(kind: str, name: str) -> records.Record:
    record = records.get(_KIND, f"{kind}.{name}")
    if record is None:
        raise IllegalOperationError(f"{_shown(kind)} '{name}' isn't a registered one, so it stays")
    return record


def remove(name_or_id: Any, component_type: Any) -> str:
    """Remove a registered component; returns its name.

    Raises:
        KeyError: there is none.
        IllegalOperationError: nobody registered it.
    """
    part = stacks.component(component_type, name_or_id)
    key = f"{part.type.value}.{part.name}"
    _registered(part.type.value, part.name)
    some = registering.users(part.type.value, part.name)
    if some:
        raise IllegalOperationError(
            f"{_shown(part.type.value)} '{part.name}' is in stack {some[0]}"
        )
    records.remove(_KIND, key)
    return part.name


def _shown(kind: str) -> str:
    return kind.replace("_", " ")


# ---------------------------------------------------------------------------- around a step


def is_connected() -> bool:
    """Whether an experiment tracker is there."""
    return _uses_mlflow() or any(
        one.body["type"] == "experiment_tracker" for one in records.listed(_KIND)
    )


def check(name: str, step: Mapping[str, Any]) -> None:
    """Refuse a step's experiment tracker that isn't there; where none was registered, any name means
    MLflow's.

    Raises:
        StackValidationError: others were registered, but not this one.
    """
    kind = "experiment_tracker"
    asked = ((step.get("extra") or {}).get("zenml") or {}).get(kind)
    if not isinstance(asked, str):
        return
    known = [r.body["name"] for r in records.listed(_KIND) if r.body["type"] == kind]
    if known and asked not in known:
        raise StackValidationError(
            f"step '{name}' requires experiment tracker '{asked}', which isn't there; "
            f"registered are {', '.join(known)}"
        )


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
        some = components({}).get(kind, [])
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
    kept = (task.get("extra") or {}).get("zenml") or {}
    asked = kept.get("experiment_tracker")
    mine = "experiment_tracker" in kept.get("own", {})  # the program's own does that
    tracker: Any = _tracker(asked) if asked and not mine else None
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
stacks.apart.append(places)


def delete_stack(name_or_id: Any, recursive: bool) -> None:
    """Remove a registered stack, if ``recursive`` with its components that no other has; raises as
    `registering.delete`."""
    for name, kind in registering.delete(name_or_id):
        with contextlib.suppress(IllegalOperationError, KeyError):
            if recursive:
                remove(name, kind)
