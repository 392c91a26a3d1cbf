"""The part of a pipeline that doesn't run it: its options and run configurations."""

from __future__ import annotations

import functools
import inspect
import re
from typing import TYPE_CHECKING, Any, Callable, Dict, List, Mapping, Optional, Set, Tuple, TypeVar

from .._base.errors import NotYetError, PipelineInterfaceError, SettingsError, lenient
from .layers import (
    PIPELINE_KEYS,
    Layer,
    RunConfig,
    as_patch,
    checked_options,
    load_run_config,
    make_layer,
    merge,
)
from .names import STEP_NAME

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from .layers import PipelineOptions

# The settings that a nested pipeline passes to its steps; the others concern a whole run.
_STEP_DEFAULTS = [
    "resources",
    "retry",
    "timeout",
    "grace",
    "timeout_notice",
    "keep_checkpoints",
    "cache",
    "policy",
    "environment",
    "secrets",
    "docker",
    "backend",
    "isolation",
    "on_oom",
    "xid",
    "sample",
    "gpu_profile",
    "hooks",
]

all_parameters: Set[str] = (
    set()
)  # of all pipelines of this process: --param applies to the one that has it

_P = TypeVar("_P", bound="PipelineDefinition")


class PipelineDefinition:
    """A pipeline for graphs and specs; :class:`stoker.Pipeline` adds the call."""

    __name__: str
    __qualname__: str
    __wrapped__: Callable[..., Any]
    takes_schedules = False

    def __init__(self, func: Callable[..., Any], options: Mapping[str, Any]) -> None:
        if not callable(func) or isinstance(func, type):
            raise PipelineInterfaceError(f"@pipeline decorates a function, not {func!r}")
        functools.update_wrapper(self, func, updated=())  # type: ignore[arg-type]
        self.entrypoint = func
        self.name = _checked_name(options.get("name") or getattr(func, "__name__", "pipeline"))
        self.signature = inspect.signature(func)
        all_parameters.update(self.signature.parameters)
        self.layer: Layer = {}
        self._runs: List[RunConfig] = []
        self._apply(options, merging=True)

    def _apply(self, options: Mapping[str, Any], merging: bool) -> None:
        where = f"pipeline '{self.name}'"
        checked = checked_options(where, options, PIPELINE_KEYS)
        if checked.get("dynamic"):
            raise NotYetError(
                f"{where}: dynamic=True comes with a later version of Stoker; until then the body builds the "
                "graph before the run, so decide inside of steps what depends on their values"
            )
        made = make_layer(where, checked)
        self.layer = merge(self.layer, made) if merging else {**self.layer, **made}

    def copy(self: _P) -> _P:
        """An independent copy."""
        made = type(self).__new__(type(self))
        made.__dict__.update(self.__dict__)
        made.layer = dict(self.layer)
        made._runs = list(self._runs)
        return made

    def configure(self: _P, merge: bool = True, **options: Unpack[PipelineOptions]) -> _P:
        """Change this pipeline in place; with ``merge=False`` the given options replace earlier
        ones."""
        self._apply(options, merging=merge)
        return self

    def with_options(
        self: _P,
        run_name: Optional[str] = None,
        schedule: Any = None,
        build: Any = None,
        step_configurations: Optional[Mapping[str, Any]] = None,
        steps: Optional[Mapping[str, Any]] = None,
        config_path: Optional[str] = None,
        unlisted: bool = False,
        prevent_build_reuse: Optional[bool] = None,
        **options: Unpack[PipelineOptions],
    ) -> _P:
        """A copy with a run configuration.

        Args:
            run_name: name of the run; ``{date}`` and ``{time}`` are filled in.
            step_configurations, steps: step name → its part of a run configuration.
            config_path: a YAML or JSON run configuration; the other arguments win over it.
            schedule: refused but under `stoker compat`, where a :class:`Schedule` is kept.
            build, unlisted, prevent_build_reuse: have no effect on local runs.
        """
        where = f"pipeline '{self.name}'"
        made = self.copy()
        if config_path is not None:
            data = load_run_config(config_path)
            made._runs.append(RunConfig(f"run configuration {config_path}", data))
        given: Dict[str, Any] = {**options, "run_name": run_name, "schedule": schedule}
        patches = {**(steps or {}), **(step_configurations or {})}
        run = RunConfig(where, given)
        run.steps = {k: as_patch(f"{where}: step '{k}'", v) for k, v in patches.items()}
        made._runs.append(run)
        for one in made._runs if not self.takes_schedules else ():
            if not one.schedule:
                continue
            raise SettingsError(
                f"{one.where}: a schedule can't be kept, but under `stoker compat`; "
                "put `stoker run FILE` into cron or a systemd timer"
            )
        if options.get("name"):
            made.name = _checked_name(options["name"])
        if options.get("dynamic"):
            made._apply({"dynamic": True}, merging=True)
        return made

    def step_defaults(self) -> Layer:
        """This pipeline's settings for its steps, for use inside another pipeline."""
        layer, _ = self.folded()
        return {k: layer[k] for k in _STEP_DEFAULTS if k in layer}

    def folded(self) -> Tuple[Layer, RunConfig]:
        """The pipeline's layer with all run configurations, and these merged into one."""
        layer, folded = self.layer, RunConfig(f"pipeline '{self.name}'", {})
        for run in self._runs:
            layer = merge(layer, run.layer)
            folded.run_name = run.run_name or folded.run_name
            folded.schedule = run.schedule or folded.schedule
            folded.parameters.update(run.parameters)
            for name, patch in run.steps.items():
                before = folded.steps.get(name)
                if before is not None:
                    joined = as_patch(name, {})
                    joined.layer = merge(before.layer, patch.layer)
                    joined.parameters = {**before.parameters, **patch.parameters}
                    patch = joined
                folded.steps[name] = patch
        return layer, folded


def _checked_name(name: Any) -> str:
    text = str(name)
    if STEP_NAME.fullmatch(text.replace(".", "_")) and not text.startswith("."):
        return text
    if lenient():
        return re.sub(r"[^A-Za-z0-9_.-]", "_", text).lstrip(".-")[:128] or "pipeline"
    raise PipelineInterfaceError(
        f"pipeline name {text!r} may hold letters, digits, '_', '-' and '.' only (128 at most); "
        "give it another one with @pipeline(name=...)"
    )
