"""ZenML's exceptions: the name, and which of Python's exceptions it also is."""

from __future__ import annotations

from typing import Any, Dict, Type

from .._base.errors import StepInterfaceError as StepInterfaceError
from .._base.errors import StokerError

ZenMLBaseException = StokerError

_ALSO: Dict[str, Type[BaseException]] = {
    "EntityCreationError": RuntimeError,
    "GitNotFoundError": ImportError,
    "SecretsStoreNotConfiguredError": NotImplementedError,
    "BackupSecretsStoreNotConfiguredError": NotImplementedError,
    "OAuthError": ValueError,
}
_PLAIN = [
    "ApiTransactionResultTooLargeError",
    "ArtifactStoreInterfaceError",
    "AuthorizationException",
    "BuildContextTooLargeError",
    "CredentialsNotValid",
    "CustomFlavorImportError",
    "DoesNotExistException",
    "EntityCorruptedError",
    "EntityExistsError",
    "HookExecutionException",
    "HookValidationException",
    "HydrationError",
    "IllegalOperationError",
    "InitializationException",
    "InputResolutionError",
    "IntegrationError",
    "MaterializerInterfaceError",
    "MaxConcurrentTasksError",
    "MethodNotAllowedError",
    "LogStoreError",
    "RunInterruptedException",
    "RunMonitoringError",
    "RunStoppedException",
    "SettingsResolvingError",
    "SourceValidationException",
    "StackComponentDeploymentError",
    "StackComponentInterfaceError",
    "StackValidationError",
    "StepExecutionException",
    "SubscriptionUpgradeRequiredError",
    "TunnelError",
    "WebhookInactiveError",
]

_LOGS = ("LogStoreRateLimitError", "LogStoreUnavailableError")

NAMES = (
    "StepContextError",
    "StepInterfaceError",
    *_LOGS,
    "ZenKeyError",
    "ZenMLBaseException",
    *_ALSO,
    *_PLAIN,
)


class ZenKeyError(StokerError, KeyError):
    """There is no such object."""

    def __str__(self) -> str:
        return str(self.args[0]) if self.args else ""


class EntityExistsError(StokerError):
    """An object of this name exists already."""


class StepContextError(StokerError):
    """The running step doesn't have what is asked of its context."""


class IllegalOperationError(StokerError):
    """The object doesn't allow this."""


def __getattr__(name: str) -> Any:
    if name in globals():  # asked for by a call
        return globals()[name]
    if name not in NAMES:
        raise AttributeError(f"ZenML has no exception '{name}'")
    bases: Any = (StokerError, *((_ALSO[name],) if name in _ALSO else ()))
    if name in _LOGS:
        bases = (__getattr__("LogStoreError"),)
    made = type(name, bases, {"__doc__": "See ZenML's documentation.", "__module__": __name__})
    globals()[name] = made
    return made
