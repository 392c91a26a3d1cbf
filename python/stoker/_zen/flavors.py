"""Base classes of the components that a program writes itself, and of their configurations and
flavors.

A flavor names a component's class and its configuration's class; `own` registers it.
"""

from __future__ import annotations

import re
import time
from abc import ABC, abstractmethod
from typing import Any, Callable, Collection, Dict, List, Optional, Tuple, Type

from pydantic import BaseModel, ConfigDict

from . import errors, secrets, stacks
from .enums import ExecutionStatus, StackComponentType
from .mlflow_tracker import BaseExperimentTracker

_SECRET = re.compile(r"\{\{\s*([^\s.{}]+)\.([^\s{}]+)\s*\}\}\Z")
_MOST_S = 16  # between two questions how a submitted step is


class BaseSettings(BaseModel):
    """Settings of a component on a step or pipeline."""

    model_config = ConfigDict(frozen=True, extra="allow")


class StackComponentConfig(BaseModel):
    """The configuration of a component. A value ``{{SECRET.KEY}}`` is read as what the secret has."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    @property
    def is_remote(self) -> bool:
        """Whether the component runs elsewhere: no, unless a subclass says so."""
        return False

    @property
    def is_local(self) -> bool:
        """Whether the component runs only here: no, unless a subclass says so."""
        return False

    @property
    def is_valid(self) -> bool:
        """Whether the values fit each other: yes, unless a subclass says otherwise."""
        return True

    def __getattribute__(self, name: str) -> Any:
        value = super().__getattribute__(name)
        named = _SECRET.match(value) if isinstance(value, str) else None
        if named is None or name not in type(self).model_fields:
            return value
        return secrets.get(named[1]).secret_values[named[2]]


class StackValidator:
    """What a component asks of the stack that it is in.

    Args:
        required_components: kinds that the stack must have.
        custom_validation_function: says of a stack whether it is right, and else why not.
    """

    def __init__(
        self,
        required_components: Optional[Collection[StackComponentType]] = None,
        custom_validation_function: Optional[Callable[[Any], Tuple[bool, str]]] = None,
    ) -> None:
        self._required = set(required_components or ())
        self._ask = custom_validation_function

    def validate(self, stack: stacks.Stack) -> None:
        """Raises StackValidationError if the stack isn't right."""
        missing = self._required - set(stack.components)
        if missing:
            words = ", ".join(sorted(one.value for one in missing))
            raise errors.StackValidationError(f"stack '{stack.name}' lacks: {words}")
        right, why = self._ask(stack) if self._ask is not None else (True, "")
        if not right:
            raise errors.StackValidationError(f"stack '{stack.name}' isn't right: {why}")


class Flavor(ABC):
    """A kind of component."""

    docs_url = sdk_docs_url = logo_url = service_connector_requirements = None

    @property
    @abstractmethod
    def name(self) -> str:
        """Its name."""

    @property
    def display_name(self) -> str:
        """Its name in words."""
        return self.name.replace("_", " ").title()

    @property
    @abstractmethod
    def type(self) -> StackComponentType:
        """The kind of component."""

    @property
    @abstractmethod
    def implementation_class(self) -> Type[stacks.Component]:
        """The component's class."""

    @property
    @abstractmethod
    def config_class(self) -> Type[StackComponentConfig]:
        """The class of its configuration."""

    @property
    def config_schema(self) -> Dict[str, Any]:
        """The JSON schema of its configuration."""
        return self.config_class.model_json_schema()


class BaseAlerterStepParameters(BaseModel):
    """Parameters of a message."""


class BaseAlerter(stacks.Component):
    """Base of alerters."""

    def post(self, message: str, params: Optional[BaseAlerterStepParameters] = None) -> bool:
        """Post a message; whether that went well."""
        return True

    def ask(self, question: str, params: Optional[BaseAlerterStepParameters] = None) -> bool:
        """Ask a question; whether the answer was yes."""
        return True


class BaseStepOperator(stacks.Component):
    """Base of step operators: a subclass has ``launch``, or ``submit`` with ``get_status``."""

    supports_resource_pool_allocation = False

    def submit(self, info: Any, entrypoint_command: List[str], environment: Dict[str, str]) -> None:
        """Start the command that runs a step, and don't wait."""
        raise NotImplementedError(f"{type(self).__name__} has neither launch nor submit")

    def get_status(self, step_run: Any) -> ExecutionStatus:
        """How a submitted step is."""
        raise NotImplementedError(f"{type(self).__name__} has no get_status")

    def wait(self, step_run: Any) -> ExecutionStatus:
        """Wait until a submitted step has ended; its status."""
        pause = 1
        while True:
            status = self.get_status(step_run)
            if status.is_finished:
                return status
            time.sleep(pause)
            pause = min(2 * pause, _MOST_S)

    def cancel(self, step_run: Any) -> None:
        """End a submitted step."""
        raise NotImplementedError(f"{type(self).__name__} has no cancel")

    def cleanup_step_submission(self, step_run: Any) -> None:
        """Clean up after a step that has ended."""


class BaseDataValidator(stacks.Component):
    """Base of data validators."""

    NAME = "custom"

    @classmethod
    def get_active_data_validator(cls) -> Any:
        """The active stack's; raises TypeError if it has none of this class."""
        found = stacks.active().data_validator
        if not isinstance(found, cls):
            raise TypeError(f"the active stack has no {cls.NAME} data validator")
        return found

    def data_profiling(self, dataset: Any, *_: Any, **__: Any) -> Any:
        """Describe data."""
        raise NotImplementedError(f"{type(self).__name__} has no data_profiling")

    def data_validation(self, dataset: Any, *_: Any, **__: Any) -> Any:
        """Check data."""
        raise NotImplementedError(f"{type(self).__name__} has no data_validation")

    def model_validation(self, dataset: Any, model: Any, *_: Any, **__: Any) -> Any:
        """Check a model."""
        raise NotImplementedError(f"{type(self).__name__} has no model_validation")


_BASES: Dict[str, Any] = {
    "alerter": BaseAlerter,
    "step_operator": BaseStepOperator,
    "data_validator": BaseDataValidator,
    "experiment_tracker": BaseExperimentTracker,
}


def _make(kind: str) -> None:
    """Define ``BaseKIND`` if it isn't yet, ``BaseKINDConfig`` and ``BaseKINDFlavor``."""
    word = "Base" + kind.title().replace("_", "")
    base = _BASES.get(kind) or type(word, (stacks.Component,), {"__doc__": f"Base of {kind}s."})
    config = type(f"{word}Config", (StackComponentConfig,), {"__module__": __name__})
    members = {
        "__module__": __name__,
        "type": property(lambda _: StackComponentType(kind)),
        "config_class": property(lambda _: config),
    }
    if kind in ("alerter", "data_validator"):
        members["implementation_class"] = property(lambda _: base)
    made = {word: base, f"{word}Config": config}
    globals().update({**made, f"{word}Flavor": type(f"{word}Flavor", (Flavor,), members)})


for _kind in stacks.ROLES:
    _make(_kind)
