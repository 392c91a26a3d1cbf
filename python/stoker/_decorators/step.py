"""Steps: ``@step`` and what it makes of a function."""

from __future__ import annotations

import functools
import inspect
import os
import re
from typing import (
    TYPE_CHECKING,
    Any,
    Callable,
    Dict,
    Mapping,
    NoReturn,
    Optional,
    Tuple,
    Union,
    overload,
)

from .._base.errors import NotYetError, SettingsError, StepInterfaceError, did_you_mean
from .._definition.graph import StepArtifact, StepOutputs, active_graph
from .._definition.layers import STEP_KEYS, checked_options, make_layer, merge
from .._definition.outputs import Output, interface_of
from .._worker.entry import Entry
from .._worker.profile import marked_profile

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from .._definition.layers import StepOptions
    from .._worker.ranks import Launch

__all__ = ["Step", "StepArtifact", "StepOutputs", "entry_of", "step"]


class Step:
    """A function that is run as a task of its own.

    In a pipeline's body a call adds the step to the graph; inside of another step it is a plain call;
    elsewhere it runs a pipeline of this one step and returns its value.
    """

    __name__: str
    __qualname__: str
    __wrapped__: Callable[..., Any]

    def __init__(self, func: Callable[..., Any], options: Mapping[str, Any]) -> None:
        if not callable(func) or isinstance(func, type):
            raise StepInterfaceError(f"@step decorates a function, not {func!r}")
        name = options.get("name") or getattr(func, "__name__", type(func).__name__)
        where = f"step '{name}'"
        functools.update_wrapper(self, func, updated=())
        self.entrypoint = func
        self.name: str = str(name)
        interface = interface_of(func, self.name)
        self.signature: inspect.Signature = interface.signature
        self.annotations: Dict[str, Any] = interface.annotations
        self.outputs: Dict[str, Output] = interface.outputs
        self.checked = False  # the names above; by the first call in a pipeline
        self.parameters: Dict[str, Any] = {}
        self.materializers: Dict[str, Any] = {}
        self.layer: Dict[str, Any] = {}
        self.launch: Optional[Launch] = None
        marked = marked_profile(func)
        if marked is not None:
            self.layer["gpu_profile"] = marked
        self._apply(checked_options(where, options, STEP_KEYS), merging=True)

    def _apply(self, options: Mapping[str, Any], merging: bool) -> None:
        where = f"step '{self.name}'"
        if options.get("name"):
            self.name = str(options["name"])
        made = make_layer(where, options)
        self.layer = merge(self.layer, made) if merging else {**self.layer, **made}
        parameters = options.get("parameters")
        if parameters is not None:
            self._check_parameters(where, parameters)
            self.parameters = {**(self.parameters if merging else {}), **parameters}
        materializers = options.get("output_materializers")
        if materializers is not None:
            named = self._materializers(where, materializers)
            self.materializers = {**(self.materializers if merging else {}), **named}

    def _check_parameters(self, where: str, parameters: Mapping[str, Any]) -> None:
        for key in parameters:
            if key not in self.signature.parameters:
                hint = did_you_mean(key, self.signature.parameters)
                raise StepInterfaceError(f"{where}: it has no parameter '{key}'{hint}")

    def _materializers(self, where: str, value: Any) -> Dict[str, Any]:
        if not isinstance(value, Mapping):
            return {"*": _materializer(where, value)}
        for key in value:
            if key not in self.outputs:
                hint = did_you_mean(key, self.outputs)
                raise StepInterfaceError(
                    f"{where}: output_materializers names '{key}', no output{hint}"
                )
        return {key: _materializer(where, item) for key, item in value.items()}

    def __call__(
        self,
        *args: Any,
        id: Optional[str] = None,
        after: Any = None,
        start_after: Any = None,
        **kwargs: Any,
    ) -> Any:
        """Call the step (see the class).

        Args:
            id: name of this call in the pipeline; else ``name``, ``name_2`` …
            after: steps to wait for without using what they give: names, outputs, or lists of them.
        """
        graph = active_graph()
        if graph is not None:
            return graph.add(self, args, kwargs, id, [after, start_after])
        from .._worker.context import in_task

        if in_task() or _plain_calls():
            return self.entrypoint(*args, **kwargs)
        from .pipeline import run_single_step

        return run_single_step(self, args, kwargs)

    def copy(self) -> Step:
        """An independent copy."""
        made = Step.__new__(Step)
        made.__dict__.update(self.__dict__)
        made.parameters = dict(self.parameters)
        made.materializers = dict(self.materializers)
        made.layer = merge(self.layer, {})
        return made

    def configure(self, merge: bool = True, **options: Unpack[StepOptions]) -> Step:
        """Change this step in place; with ``merge=False`` the given options replace what was said before."""
        self._apply(checked_options(f"step '{self.name}'", options, STEP_KEYS), merging=merge)
        return self

    def with_options(self, **options: Unpack[StepOptions]) -> Step:
        """A copy with other options."""
        return self.copy().configure(**options)

    def entry(self, hooks: Optional[Mapping[str, Any]] = None) -> Entry:
        """What a process needs to execute this step; ``hooks`` are those of all layers."""
        chosen = self.layer.get("hooks") or {} if hooks is None else hooks
        return Entry(
            func=self.entrypoint,
            output_names=list(self.outputs),
            output_types=[o.type for o in self.outputs.values()],
            materializers=dict(self.materializers),
            hooks={k: v for k, v in chosen.items() if callable(v)},
            importable=self._importable(),
            annotations=dict(self.annotations),
            is_async=inspect.iscoroutinefunction(self.entrypoint),
            output_configs={k: o.config for k, o in self.outputs.items() if o.config},
            launch=self.launch,
        )

    def reference(self) -> str:
        """``module:qualname``, as it stands in the spec."""
        return f"{self.__module__}:{self.__qualname__}"

    def _importable(self) -> Any:
        """(module, qualname) if a fresh import of the module gives this step's function back."""
        import sys

        module = sys.modules.get(self.__module__)
        if self.__module__ == "__main__" and self._guarded():
            return None
        if module is None or "<" in self.__qualname__ or not getattr(module, "__file__", None):
            return None
        found: Any = module
        for part in self.__qualname__.split("."):
            found = getattr(found, part, None)
        if not isinstance(found, Step):
            plain = found is self.entrypoint and self.launch is None
            return (self.__module__, self.__qualname__) if plain else None
        same = found.entrypoint is self.entrypoint and found.materializers == self.materializers
        same = same and found.launch == self.launch
        return (self.__module__, self.__qualname__) if same else None

    def _guarded(self) -> bool:
        """Is it defined under ``if __name__ == "__main__":``, where a fresh import never comes?"""
        import inspect

        code = getattr(inspect.unwrap(self.entrypoint), "__code__", None)
        return code is not None and any(
            first <= code.co_firstlineno <= last for first, last in guarded_lines(code.co_filename)
        )

    def submit(self, *_: Any, **__: Any) -> NoReturn:
        """Only in dynamic pipelines."""
        raise RuntimeError("Submitting a step is only possible within a dynamic pipeline.")

    def map(self, *_: Any, **__: Any) -> NoReturn:
        """Only in dynamic pipelines."""
        raise RuntimeError("Mapping over step inputs is only possible within a dynamic pipeline.")

    product = map

    def replay(self, *_: Any, **__: Any) -> NoReturn:
        """Not there yet."""
        raise NotYetError(
            f"step '{self.name}': replay comes with a later version of Stoker; run the pipeline again, "
            "finished steps are reused"
        )

    def __reduce__(self) -> str:
        return self.__qualname__  # pickled by reference, as a function is

    def __repr__(self) -> str:
        return f"<step '{self.name}' of {self.reference()}>"


@functools.lru_cache(maxsize=8)
def guarded_lines(path: str) -> Tuple[Tuple[int, int], ...]:
    """First and last lines of a file's top-level ``if __name__ == …:`` blocks."""
    try:
        with open(path, encoding="utf-8-sig") as stream:
            text = stream.read()
    except (OSError, UnicodeDecodeError):
        return ()
    found = []
    lines = text.splitlines()
    for i, line in enumerate(lines):
        if not _GUARD.match(line):
            continue
        last = i + 1
        while last < len(lines) and (not lines[last].strip() or lines[last][0] in " \t#)]}"):
            last += 1
        found.append((i + 1, last))
    return tuple(found)


_GUARD = re.compile(r"if\b.*__name__")


def _plain_calls() -> bool:
    names = ("STOKER_RUN_SINGLE_STEPS_WITHOUT_STACK", "ZENML_RUN_SINGLE_STEPS_WITHOUT_STACK")
    return any(os.environ.get(n, "").lower() in ("1", "true", "yes", "y", "on") for n in names)


def _materializer(where: str, value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        if not value:
            raise SettingsError(
                f"{where}: output_materializers is empty; name a materializer class"
            )
        value = value[0]
    if isinstance(value, str):
        from importlib import import_module

        module, _, name = value.replace(":", ".").rpartition(".")
        try:
            value = getattr(import_module(module), name)
        except (ImportError, AttributeError, ValueError) as bad:
            raise SettingsError(f"{where}: materializer {value!r} can't be loaded: {bad}") from None
    if not isinstance(value, type):
        raise SettingsError(f"{where}: a materializer is a class, not {value!r}")
    return value


def entry_of(func: Callable[..., Any]) -> Entry:
    """The entry of a plain function, as if it were decorated with a bare ``@step``."""
    return Step(func, {}).entry()


@overload
def step(_func: Callable[..., Any]) -> Step: ...


@overload
def step(
    _func: None = None, **options: Unpack[StepOptions]
) -> Callable[[Callable[..., Any]], Step]: ...


def step(
    _func: Optional[Callable[..., Any]] = None, **options: Any
) -> Union[Step, Callable[[Callable[..., Any]], Step]]:
    """Make a step of a function; use it bare or with keywords.

    Args:
        name: the step's name; else the function's.
        enable_cache: reuse the outputs of an equal earlier call (default: as the pipeline says, else yes).
        cache_policy: what counts as equal, a :class:`CachePolicy`.
        settings: ``{"resources": ResourceSettings(...), "docker": DockerSettings(...), ...}``.
        retry: a :class:`StepRetryConfig`.
        timeout: seconds, or text such as ``"10m"``, after which an attempt is ended.
        grace: seconds between the request to end and the kill.
        timeout_notice: so long before the timeout the step is told (SIGTERM), for its last checkpoint.
        keep_checkpoints: True: they aren't removed after the step succeeded.
        on_oom: what the next attempt asks for when memory ran out: an :class:`OnOOM`, its fields, or True.
        xid: what an Xid of the driver means for the step and its device: ``{109: "restart"}``.
        sample: seconds between two samples of the step and its devices, 0.01 or more.
        gpu_profile: True, or the arguments of :func:`stoker.gpu_profile`.
        gang: how many processes the step is, as :func:`stoker.torchrun` says it: a number, ``"gpus"``, ``"2:4"`` (4, and a restart may leave out 2), or a mapping
            of ``ranks``, ``restarts``, ``min_ranks``, ``port`` and ``hang``.
        isolation: ``"fork"`` (default) or ``"spawn"``, a fresh interpreter for the step.
        environment: environment variables of the task.
        secrets: names of secrets.
        parameters: values for parameters that the call doesn't give.
        output_materializers: a materializer class, or a mapping from output names.
        on_start, on_success, on_failure, on_end: hooks, functions or ``"module.function"``.
        extra, tags, model, description, substitutions: kept with the run's record.
        experiment_tracker, step_operator, group, runtime, enable_artifact_metadata,
        enable_artifact_visualization, enable_step_logs, heartbeat_healthy_threshold: kept, no effect.

    Raises:
        SettingsError: an unknown keyword or a value out of range.
        StepInterfaceError: a function that can't be a step.
    """
    if _func is not None:
        return Step(_func, options)
    return lambda func: Step(func, options)
