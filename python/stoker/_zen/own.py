"""Flavors of the program's own: registering them, and making components of them."""

from __future__ import annotations

from typing import Any, List, Mapping

from . import records, stacks
from .enums import StackComponentType
from .responses import load

KINDS = (
    *("alerter", "annotator", "data_validator", "experiment_tracker", "feature_store"),
    *("model_registry", "step_operator"),
)
_KIND = "flavor"


def _load(source: str, kind: str) -> Any:
    """A flavor; raises ValueError where it can't be imported, TypeError where it is none."""
    from . import flavors

    try:
        found = load(source)
    except (ValueError, AttributeError, ImportError) as bad:
        raise ValueError(f"the flavor '{source}' can't be imported: {bad}") from bad
    if not (isinstance(found, type) and issubclass(found, flavors.Flavor)):
        raise TypeError(f"'{source}' is no subclass of zenml.stack.Flavor")
    made = found()
    if made.type != kind:
        raise TypeError(f"'{source}' is a flavor of {made.type.value}, not of {kind}")
    return made


def register(source: str, component_type: Any) -> stacks.FlavorResponse:
    """Register the flavor ``MODULE.CLASS``.

    Raises:
        ValueError, TypeError: it can't be imported, or is no flavor of this kind.
        NotImplementedError: Stoker's stacks take no such component of a program's own.
        EntityExistsError: there is a flavor of this name.
    """
    kind = StackComponentType(component_type).value
    made = _load(source, kind)
    if kind not in KINDS:
        raise NotImplementedError(
            f"Stoker's stacks take no {_shown(kind)} of the program's own, as '{source}' is: the "
            f"engine does that part; they take {', '.join(map(_shown, KINDS))}"
        )
    if not issubclass(made.implementation_class, stacks.Component):
        raise TypeError(f"'{source}' has a class that is no subclass of zenml.stack.StackComponent")
    body = {"name": made.name, "type": kind, "source": source, "schema": made.config_schema}
    records.create(_KIND, f"{kind}.{made.name}", body)
    return stacks.get_flavor(made.name, kind)


def unregister(name_or_id: Any) -> None:
    """Remove a registered flavor.

    Raises:
        KeyError: there is none.
    """
    for body in (one.body for one in records.listed(_KIND)):
        if str(name_or_id) in (body["name"], str(_response(body).id)):
            return records.remove(_KIND, f"{body['type']}.{body['name']}")
    raise KeyError(f"there is no registered flavor '{name_or_id}'")


def _response(body: Mapping[str, Any]) -> stacks.FlavorResponse:
    made = stacks.FlavorResponse(body["type"], body["name"])
    made.is_custom, made.integration = True, "custom"
    made.source, made.config_schema = body["source"], body["schema"]
    return made


def registered() -> List[stacks.FlavorResponse]:
    """The flavors that programs registered."""
    return [_response(one.body) for one in records.listed(_KIND)]


def is_own(kind: str, flavor: str) -> bool:
    """Whether a component's flavor is none of Stoker's."""
    return kind in KINDS and flavor not in stacks.KNOWN.get(kind, ())


def make(kind: str, flavor: str, name: str, config: Mapping[str, Any]) -> stacks.Component:
    """A component of the program's own class.

    Raises:
        KeyError: its flavor isn't registered.
        ValueError: its configuration isn't right, or its flavor can't be imported.
    """
    record = records.get(_KIND, f"{kind}.{flavor}")
    if record is None:
        raise KeyError(f"there is no flavor '{flavor}' of {_shown(kind)}: register it first")
    known = _load(record.body["source"], kind)
    extra = sorted(set(config) - set(known.config_class.model_fields))
    if extra:
        raise ValueError(f"{_shown(kind)} '{name}' of flavor '{flavor}' takes no '{extra[0]}'")
    given = known.config_class(**config)
    if not given.is_valid:
        raise ValueError(f"the configuration of {_shown(kind)} '{name}' isn't valid")
    made: stacks.Component = known.implementation_class(
        name=name,
        id=records.id_of("component", f"{kind}/{name}"),
        config=given,
        flavor=flavor,
        type=StackComponentType(kind),
        user=None,
        created=stacks.EPOCH,
        updated=stacks.EPOCH,
    )
    made.configuration = dict(config)
    return made


def _shown(kind: str) -> str:
    return kind.replace("_", " ")


stacks.more_flavors.append(registered)
