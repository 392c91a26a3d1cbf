"""The context of a running step: facts about it, and data that it adds besides its outputs.

The worker enters a context before it calls the user's function, and writes the added data to
``result.json``. A context belongs to the process, not to a thread, so the step's threads see it
too.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, Iterable, List, Optional, Union

    from .._definition.entry import Entry

_current: Optional[StepContext] = None
_may_start_runs = False


class Named:
    """An object with ``id`` and ``name``: the run, the pipeline or the step."""

    def __init__(self, id: str, name: str, **more: Any) -> None:
        self.id = id
        self.name = name
        self.__dict__.update(more)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{k}={v!r}' for k, v in vars(self).items())})"

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any: ...


class Run(Named):
    """The run: ``id``, ``name``, ``pipeline``."""


class StepRun(Named):
    """One attempt of a step: ``id``, ``name``, ``attempt`` (from 1), ``last_attempt``, ``task``."""


class Resources(Named):
    """``asked`` and ``granted`` as mappings; the keys end with the unit (``memory_bytes``)."""

    def __init__(self, asked: Dict[str, Any], granted: Dict[str, Any]) -> None:
        self.asked = asked
        self.granted = granted


class StepContext:
    """The running step.

    Attributes:
        step_name: name of the step in its pipeline.
        run_id: id of the run.
        parameters: inputs that are literals or parameters, by name.
        inputs: all inputs of the function by name (None until they are loaded).
        resources: the requested and the granted resources.
        attempt, last_attempt: the attempt's number from 1, and whether it is the last one.
        directory: the attempt directory.
        rank, world: this process's rank and the number of ranks in a distributed step.
    """

    def __init__(self, task: Dict[str, Any], directory: str) -> None:
        self.directory = directory
        self.step_name: str = task.get("step", "")
        self.run_id: str = task.get("run", "")
        self.rank: int = task.get("rank", 0)
        self.world: int = task.get("world", 1)
        self.extra: Dict[str, Any] = task.get("extra") or {}
        self.parameters: Dict[str, Any] = {}
        self.inputs: Dict[str, Any] = {}
        self.pipeline_state: Any = None
        self._task = task
        self._outputs: List[str] = list(task.get("outputs") or ())
        self._materializers: Dict[str, Any] = {}
        self._metadata: Dict[str, Any] = {}
        self._output_metadata: Dict[str, Dict[str, Any]] = {}
        self._output_tags: Dict[str, List[str]] = {}

    @property
    def pipeline(self) -> Named:
        """The pipeline: ``id`` and ``name``."""
        name = self._task.get("pipeline", "")
        return Named(name, name)

    @property
    def pipeline_run(self) -> Run:
        """The run: ``id``, ``name``, ``pipeline``."""
        name = self._task.get("run_name") or self.run_id
        return Run(self.run_id, name, pipeline=self._task.get("pipeline", ""))

    @property
    def step_run(self) -> StepRun:
        """The attempt: ``id``, ``name``, ``attempt`` (from 1), ``last_attempt``, ``task``,
        ``config``."""
        task, attempt = self._task.get("task", 0), self._task.get("attempt", 1)
        return StepRun(
            f"{self.run_id}/{self.step_name}/{task}/{attempt}",
            self.step_name,
            attempt=attempt,
            last_attempt=self._task.get("last_attempt", True),
            task=task,
            config=Named("", self.step_name, parameters=self.parameters),
        )

    @property
    def model(self) -> Any:
        """The declared model with its fields as attributes (None: not given); None without a
        model."""
        given = self.extra.get("model")
        if not isinstance(given, dict):
            return given
        fields: Dict[str, Any] = {"name": "", "version": None, "description": None, "tags": None}
        return Named(**{"id": given.get("name"), **fields, **given})

    @property
    def resources(self) -> Resources:
        """The requested and the granted resources."""
        return Resources(self._task.get("asked") or {}, self._task.get("granted") or {})

    @property
    def attempt(self) -> int:
        """The attempt's number, from 1; useful for a smaller batch after "out of memory", say."""
        return int(self._task.get("attempt", 1))

    @property
    def last_attempt(self) -> bool:
        """Whether no other attempt follows if this one fails."""
        return bool(self._task.get("last_attempt", True))

    @property
    def granted(self) -> Dict[str, Any]:
        """The granted resources: ``cpus``, ``memory_bytes``, ``devices`` …; ``on_oom`` raises
        them."""
        return self.resources.granted

    @property
    def devices(self) -> List[Any]:
        """The devices granted to this step, with the engine's names; empty on the CPU."""
        return list(self.resources.granted.get("devices") or ())

    def get_output_artifact_uri(self, output_name: Optional[str] = None) -> str:
        """Path where the output will be stored. A step may write the output there and return its
        ``Path``.

        Raises:
            ValueError: the step has no such output, or several and none is named.
        """
        return os.path.join(self.directory, "out", self._output(output_name))

    def get_output_materializer(self, output_name: Optional[str] = None) -> Any:
        """The materializer class that the step declares for the output, or None for the usual
        one."""
        name = self._output(output_name)
        return self._materializers.get(name, self._materializers.get("*"))

    def add_output_metadata(
        self, metadata: Dict[str, Any], output_name: Optional[str] = None
    ) -> None:
        """Attach metadata to an output.

        Raises:
            ValueError: as :meth:`get_output_artifact_uri`.
            TypeError: a value has no JSON form.
        """
        known = self._output_metadata.setdefault(self._output(output_name), {})
        known.update(plain_metadata(metadata, "add_output_metadata"))

    def _describe_output(self, name: str, facts: Dict[str, Any], tells: bool) -> None:
        """Add what a materializer tells of an output, below what the step attached; without
        ``tells`` the output has no metadata."""
        if not tells:
            self._output_metadata.pop(name, None)
        elif facts:
            own = self._output_metadata.get(name) or {}
            self.add_output_metadata({**facts, **own}, name)

    def add_output_tags(
        self, tags: Union[str, Iterable[str]], output_name: Optional[str] = None
    ) -> None:
        """Attach tags to an output; raises as :meth:`get_output_artifact_uri`."""
        known = self._output_tags.setdefault(self._output(output_name), [])
        known += [tag for tag in _tags(tags) if tag not in known]

    def remove_output_tags(
        self, tags: Union[str, Iterable[str]], output_name: Optional[str] = None
    ) -> None:
        """Remove tags that this attempt attached; raises as :meth:`get_output_artifact_uri`."""
        name = self._output(output_name)
        gone = set(_tags(tags))
        self._output_tags[name] = [
            tag for tag in self._output_tags.get(name, []) if tag not in gone
        ]

    def _output(self, name: Optional[str]) -> str:
        known = ", ".join(self._outputs) or "none"
        if name is None:
            if len(self._outputs) != 1:
                raise ValueError(
                    f"step '{self.step_name}' has {len(self._outputs)} outputs ({known}): "
                    "choose one by output_name="
                )
            return self._outputs[0]
        if name not in self._outputs:
            raise ValueError(
                f"step '{self.step_name}' has no output '{name}'; its outputs: {known}"
            )
        return name

    def _declare(self, entry: Entry) -> None:
        """Add the metadata and tags that the code declares for the outputs."""
        self._materializers = dict(entry.materializers)
        for name, config in entry.output_configs.items():
            if name not in self._outputs:
                continue
            if config.get("run_metadata"):
                self.add_output_metadata(config["run_metadata"], name)
            if config.get("tags"):
                self.add_output_tags(config["tags"], name)

    def _said(self) -> Dict[str, Any]:
        """The collected parts of ``result.json`` that aren't empty."""
        said = {
            "metadata": self._metadata,
            "output_metadata": self._output_metadata,
            "output_tags": self._output_tags,
        }
        return {key: value for key, value in said.items() if value}


def _tags(tags: Union[str, Iterable[str]]) -> List[str]:
    return [tags] if isinstance(tags, str) else [str(tag) for tag in tags]


def allow_runs() -> None:
    """From now on this task's code may call a pipeline, as a run of its own: a flow's step does."""
    global _may_start_runs
    _may_start_runs = True


def may_start_runs() -> bool:
    """Whether a pipeline that is called in this process would be a run."""
    return _current is None or _may_start_runs


def enter(task: Dict[str, Any], directory: str) -> StepContext:
    """Make the context of this process's task; the worker calls this."""
    global _current, _may_start_runs
    _current, _may_start_runs = StepContext(task, directory), False
    return _current


def leave() -> None:
    """Remove the context at the task's end."""
    global _current
    _current = None


def in_task() -> bool:
    """Whether this process runs a step."""
    return _current is not None


def get_step_context() -> StepContext:
    """The running step's context.

    Raises:
        RuntimeError: no step is running in this process.

    Example::

        @step
        def train() -> float:
            print(get_step_context().step_name)
            return fit()
    """
    if _current is None:
        raise RuntimeError(
            "The step context is only available inside a running step: "
            "call get_step_context() within the function of a step"
        )
    return _current


def plain_metadata(metadata: Any, caller: str) -> Dict[str, Any]:
    if not isinstance(metadata, dict):
        raise TypeError(f"{caller}: metadata is a {type(metadata).__name__}, not a dictionary")
    return {str(key): _plain_value(value, f"{caller}: '{key}'") for key, value in metadata.items()}


def _plain_value(value: Any, where: str) -> Any:
    """The value as JSON for any reader: a number that isn't finite becomes its name."""
    if value is None or isinstance(value, (bool, str)):
        return value if value is None or isinstance(value, bool) else str(value)
    if isinstance(value, int):
        return int(value) if -(1 << 63) <= value < 1 << 63 else str(int(value))
    if isinstance(value, float):
        return float(value) if value - value == 0.0 else repr(float(value))
    if isinstance(value, dict):
        return {str(key): _plain_value(item, f"{where}.{key}") for key, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [_plain_value(item, f"{where}[{i}]") for i, item in enumerate(value)]
    if getattr(value, "shape", None) == () and hasattr(value, "item"):
        return _plain_value(value.item(), where)
    if hasattr(value, "tolist") and getattr(value, "size", 1 << 20) <= 1024:
        return _plain_value(value.tolist(), where)
    if hasattr(value, "__fspath__"):
        return os.fspath(value)
    if hasattr(value, "isoformat"):
        return str(value.isoformat())
    raise TypeError(
        f"{where} is a {type(value).__module__}.{type(value).__qualname__}, which has no JSON form; "
        "log numbers, texts, lists or dictionaries, or make it an output of the step"
    )
