"""The configuration of a run or step, from the spec that each run keeps with its record."""

from __future__ import annotations

from typing import Any, Dict, List, Mapping, Optional

from .._definition.docker import DockerSettings
from .._definition.layers import merge
from .._definition.settings import ResourceSettings, StepRetryConfig
from ..materializers import _artifact


class RunConfiguration:
    """The configuration of a run, or of a step with the pipeline's settings for all steps.

    Attributes:
        name: of the pipeline or step.
        parameters: by name, as Python values.
        settings: ``"resources"`` and ``"docker"`` as settings objects, and the other kept ones.
        enable_cache: None: not given (steps are cached then).
        retry, environment, secrets, tags, timeout, on_oom, xid, sample, gpu_profile: as given.
        extra, model, substitutions: as given; None or empty if not given.
        execution_mode, policy: of the run.
    """

    def __init__(
        self,
        body: Mapping[str, Any],
        spec: Optional[Mapping[str, Any]] = None,
        own: Optional[Mapping[str, Any]] = None,
    ) -> None:
        top = {k: v for k, v in (spec or {}).items() if k not in ("steps", "parameters", "origin")}
        self._said: Dict[str, Any] = top if own is None else merge(top, own)
        given: Mapping[str, Any] = body.get("parameters") or {}
        self.name: Optional[str] = body.get("name")
        self.parameters = {k: _artifact.load({"value": v}) for k, v in given.items()}
        self.tags: List[str] = list(body.get("tags") or self._said.get("tags") or ())
        self.execution_mode: Optional[str] = body.get("mode") or self._said.get("mode")
        self.policy: Optional[str] = body.get("policy")
        self.extra: Dict[str, Any] = dict(self._said.get("extra") or {})
        self._zenml: Mapping[str, Any] = self.extra.pop("zenml", None) or {}
        self._kept: Mapping[str, Any] = self.extra.pop("settings", None) or {}
        self.extra.pop("gpu_profile", None)
        self.model: Optional[Mapping[str, Any]] = self.extra.pop("model", None)

    @property
    def settings(self) -> Dict[str, Any]:
        """Settings by key."""
        found: Dict[str, Any] = dict(self._kept)
        resources = {**(self._said.get("resources") or {}), **(found.pop("resources", None) or {})}
        if resources:
            found["resources"] = ResourceSettings(**resources)
        if self._said.get("docker"):
            found["docker"] = DockerSettings(**self._said["docker"])
        return found

    @property
    def retry(self) -> Optional[StepRetryConfig]:
        """How often and when to retry a failed step, or None."""
        given = self._said.get("retry")
        return StepRetryConfig(**given) if given else None

    @property
    def enable_cache(self) -> Optional[bool]:
        """Whether results are reused; None: not given."""
        cache = self._said.get("cache")
        if isinstance(cache, dict):
            cache = cache.get("reuse", True) and cache.get("enabled")
        return None if cache is None else bool(cache)

    @property
    def substitutions(self) -> Dict[str, str]:
        """Placeholders of names."""
        return dict(self._zenml.get("substitutions") or {})

    def __getattr__(self, name: str) -> Any:
        if name in _GIVEN:
            return self._said.get(name)
        if name in (
            "enable_step_logs",
            "enable_artifact_metadata",
            "enable_artifact_visualization",
        ):
            return self._zenml.get(name)
        raise AttributeError(f"a run's configuration has no {name!r}")


_GIVEN = (
    *("environment", "secrets", "timeout", "grace", "isolation", "on_oom", "xid", "sample"),
    *("timeout_notice", "keep_checkpoints", "gpu_profile", "description", "hooks", "backend"),
)
