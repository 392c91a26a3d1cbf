"""Metaflow's settings, as programs read them from ``metaflow.metaflow_config``.

A setting is ``METAFLOW_<NAME>`` in the environment, else in ``config.json`` of ``METAFLOW_HOME``
(``~/.metaflowconfig``; ``config_<METAFLOW_PROFILE>.json``), else its default. Reading one has no
effect: which of them Stoker itself honours stands in the documents of the places.
"""

from __future__ import annotations

import functools
import json
import os
from typing import Any, Dict, List, Mapping, Optional

from .exception import MetaflowException

_UNSET = """
    AIRFLOW_KUBERNETES_CONN_ID AIRFLOW_KUBERNETES_KUBECONFIG_CONTEXT
    AIRFLOW_KUBERNETES_KUBECONFIG_FILE ARGO_EVENTS_EVENT ARGO_EVENTS_EVENT_SOURCE
    ARGO_EVENTS_INTERNAL_WEBHOOK_URL ARGO_EVENTS_SERVICE_ACCOUNT ARGO_EVENTS_WEBHOOK_URL
    ARGO_WORKFLOWS_UI_URL AWS_SANDBOX_API_KEY AWS_SANDBOX_INTERNAL_SERVICE_URL AWS_SANDBOX_REGION
    AWS_SECRETS_MANAGER_DEFAULT_REGION AWS_SECRETS_MANAGER_DEFAULT_ROLE AZURE_KEY_VAULT_PREFIX
    AZURE_STORAGE_BLOB_SERVICE_ENDPOINT BATCH_CONTAINER_IMAGE BATCH_CONTAINER_REGISTRY
    BATCH_JOB_QUEUE DATASTORE_SYSROOT_AZURE DATASTORE_SYSROOT_GS DATASTORE_SYSROOT_LOCAL
    DATASTORE_SYSROOT_S3 DATASTORE_SYSROOT_SPIN DEFAULT_CONTAINER_IMAGE DEFAULT_CONTAINER_REGISTRY
    DEFAULT_SECRETS_BACKEND_TYPE DEFAULT_SECRETS_ROLE ECS_FARGATE_EXECUTION_ROLE
    ECS_S3_ACCESS_IAM_ROLE EVENTS_SFN_ACCESS_IAM_ROLE GCP_SECRET_MANAGER_PREFIX
    KUBERNETES_CONTAINER_IMAGE KUBERNETES_CONTAINER_REGISTRY KUBERNETES_CPU KUBERNETES_DISK
    KUBERNETES_IMAGE_PULL_POLICY KUBERNETES_MEMORY KUBERNETES_PORT KUBERNETES_SANDBOX_INIT_SCRIPT
    KUBERNETES_SERVICE_ACCOUNT KUBERNETES_SHARED_MEMORY OTEL_ENDPOINT S3_ENDPOINT_URL
    S3_SERVER_SIDE_ENCRYPTION S3_VERIFY_CERTIFICATE SERVICE_AUTH_KEY SERVICE_INTERNAL_URL
    SERVICE_URL SFN_DYNAMO_DB_TABLE SFN_EXECUTION_LOG_GROUP_ARN SFN_IAM_ROLE
    SFN_STATE_MACHINE_PREFIX UI_URL USER ZIPKIN_ENDPOINT
"""
_EMPTY = """
    DEFAULT_DECOSPECS KUBERNETES_ANNOTATIONS KUBERNETES_IMAGE_PULL_SECRETS KUBERNETES_LABELS
    KUBERNETES_NODE_SELECTOR KUBERNETES_PERSISTENT_VOLUME_CLAIMS KUBERNETES_SECRETS
    KUBERNETES_TOLERATIONS
"""
_DEFAULTS: Dict[str, Any] = {
    **dict.fromkeys(_UNSET.split()),
    **dict.fromkeys(_EMPTY.split(), ""),
    "ARGO_EVENTS_EVENT_BUS": "default",
    "ARGO_EVENTS_WEBHOOK_AUTH": "none",
    "AZURE_STORAGE_WORKLOAD_TYPE": "general",
    "BATCH_DEFAULT_TAGS": {},
    "BATCH_EMIT_TAGS": False,
    "CARD_NO_WARNING": False,
    "CLIENT_CACHE_MAX_SIZE": 10000,
    "CLIENT_CACHE_PATH": "/tmp/metaflow_client",
    "CONDA_DEPENDENCY_RESOLVER": "conda",
    "DATATOOLS_CLIENT_PARAMS": {},
    "DATATOOLS_SESSION_VARS": {},
    "DATATOOLS_SUFFIX": "data",
    "DEFAULT_AWS_CLIENT_PROVIDER": "boto3",
    "DEFAULT_AZURE_CLIENT_PROVIDER": "azure-default",
    "DEFAULT_DATASTORE": "local",
    "DEFAULT_ENVIRONMENT": "local",
    "DEFAULT_EVENT_LOGGER": "nullSidecarLogger",
    "DEFAULT_GCP_CLIENT_PROVIDER": "gcp-default",
    "DEFAULT_METADATA": "local",
    "DEFAULT_MONITOR": "nullSidecarMonitor",
    "DEFAULT_PACKAGE_SUFFIXES": ".py,.R,.RDS",
    "DEFAULT_RUNTIME_LIMIT": 432000,
    "GS_STORAGE_WORKLOAD_TYPE": "general",
    "INCLUDE_FOREACH_STACK": True,
    "KUBERNETES_FETCH_EC2_METADATA": False,
    "KUBERNETES_GPU_VENDOR": "nvidia",
    "KUBERNETES_NAMESPACE": "default",
    "KUBERNETES_QOS": "burstable",
    "MAXIMUM_FOREACH_VALUE_CHARS": 30,
    "NAMESPACED_EVENTS_PREFIX": "mfns",
    "RUNTIME_CARD_RENDER_INTERVAL": 60,
    "S3_CLIENT_RETRY_CONFIG": {"max_attempts": 10, "mode": "adaptive"},
    "S3_LOG_TRANSIENT_RETRIES": False,
    "S3_RETRY_COUNT": 7,
    "S3_TRANSIENT_RETRY_COUNT": 20,
    "S3_WORKER_COUNT": 64,
    "SERVICE_HEADERS": {},
    "SERVICE_RETRY_COUNT": 5,
    "SERVICE_VERSION_CHECK": True,
    "TEMPDIR": ".",
}
# Setting → the root and the suffix of which it is made, if it isn't given.
_MADE = {
    f"{kind}_{place}ROOT": (f"DATASTORE_SYSROOT_{place}", suffix)
    for kind, suffix in (
        ("DATATOOLS", None),
        ("CARD", "mf.cards"),
    )
    for place in ("S3", "AZURE", "GS", "LOCAL")
}
given: Dict[str, Any] = {}  # what a task gives to extensions, where the user gives nothing
_FIXED: Dict[str, Any] = {
    "CARD_SUFFIX": "mf.cards",
    "DATASTORE_LOCAL_DIR": ".metaflow",
    "LOCAL_CONFIG_FILE": "config.json",
    "MAX_ATTEMPTS": 6,
}


@functools.cache
def _file(home: str, profile: str) -> Mapping[str, Any]:
    path = os.path.join(home, f"config_{profile}.json" if profile else "config.json")
    try:
        with open(path, encoding="utf-8") as file:
            found = json.load(file)
    except FileNotFoundError:
        if profile:
            raise MetaflowException(
                f"METAFLOW_PROFILE is '{profile}', but {path} doesn't exist; make it, or unset the variable"
            ) from None
        return {}
    except ValueError as bad:
        raise MetaflowException(f"{path} is not JSON ({bad}); correct it") from None
    if not isinstance(found, dict):
        raise MetaflowException(f"{path} is not a mapping of settings")
    return found


def init_config() -> Dict[str, Any]:
    """The settings of the file ``config.json`` of ``METAFLOW_HOME``; none where there is no file.

    Raises:
        MetaflowException: ``METAFLOW_PROFILE`` names a file that isn't there, or it isn't JSON.
    """
    return dict(_file(_home(), os.environ.get("METAFLOW_PROFILE") or ""))


def _home() -> str:
    return os.path.expanduser(os.environ.get("METAFLOW_HOME") or "~/.metaflowconfig")


def from_conf(name: str, default: Any = None, validate_fn: Any = None) -> Any:
    """A setting from the environment or the file, of the default's type; else the default.

    Raises:
        ValueError: it isn't of the default's type.
    """
    variable = f"METAFLOW_{name}"
    said = os.environ.get(variable)
    if said is None:
        said = _file(_home(), os.environ.get("METAFLOW_PROFILE") or "").get(variable)
    value = default if said is None else _typed(variable, said, default)
    if validate_fn is not None and value is not None:
        validate_fn(variable, value)
    return value


def _typed(variable: str, said: Any, default: Any) -> Any:
    if default is None or type(said) is type(default):
        return said
    try:
        if isinstance(default, bool):
            return str(said).lower() not in ("0", "false", "")
        value = json.loads(said) if isinstance(default, (list, dict)) else type(default)(said)
    except ValueError:
        value = None
    if type(value) is not type(default):
        raise ValueError(f"{variable} is {said!r}; it must be a {type(default).__name__}")
    return value


def setting(name: str) -> Any:
    """A setting by its name."""
    return __getattr__(name)


def names() -> List[str]:
    """All settings."""
    return sorted([*_DEFAULTS, *_MADE, *_FIXED])


def __getattr__(name: str) -> Any:
    if name in _FIXED:
        return _FIXED[name]
    if name in _DEFAULTS:
        return from_conf(name, given.get(name, _DEFAULTS[name]))
    if name not in _MADE:
        raise AttributeError(name)
    root, suffix = _MADE[name]
    base: Optional[str] = from_conf(root)
    suffix = suffix or str(from_conf("DATATOOLS_SUFFIX", _DEFAULTS["DATATOOLS_SUFFIX"]))
    return from_conf(name) or (os.path.join(base, suffix) if base else None)


__all__ = [*names(), "from_conf"]


_HIDDEN = ("KEY", "TOKEN", "SECRET", "PASSWORD", "HEADERS", "PARAMS", "VARS")


def settings_set() -> List[str]:
    """``NAME=VALUE (where)`` of each setting that is set; values that may be secret are left out."""
    home = os.path.expanduser(os.environ.get("METAFLOW_HOME") or "~/.metaflowconfig")
    profile = os.environ.get("METAFLOW_PROFILE") or ""
    found = {name: (value, "file") for name, value in _file(home, profile).items()}
    for name, value in os.environ.items():
        if name.startswith("METAFLOW_"):
            found[name] = (value, "environment")
    return [
        f"{name}={'(hidden)' if any(one in name for one in _HIDDEN) else value} ({where})"
        for name, (value, where) in sorted(found.items())
    ]
