"""What calls in a dynamic pipeline's body return: artifacts, and futures of them."""

from __future__ import annotations

import uuid
from typing import Any, Dict, Iterator, List, Mapping, Optional, Set, Tuple, Union

from .._base import registry
from .._base.errors import did_you_mean
from .._engine.client import ArtifactVersion
from .artifacts import ArtifactVersionResponse, versions_of

KEY = "stoker.zenml.outputs"  # of the literal that stands for items or lists of outputs


def _come(given: Dict[str, Any]) -> Any:
    """The argument that the literal stands for, when the step starts."""
    if "list" in given:
        return [_come(one) for one in given["list"]]
    value = ArtifactVersion("", given["artifact"]).load()
    return value if given.get("item") is None else item_of(value, given["item"])


registry.late[KEY] = _come


def count_of(value: Any) -> Optional[int]:
    """How many items a value has that steps can be mapped over; None: it is one thing."""
    if isinstance(value, (list, tuple)) or _is_array(value):
        return len(value)
    return None


def item_of(value: Any, index: int) -> Any:
    """An item of it."""
    return value.iloc[index] if hasattr(value, "iloc") else value[index]


def _is_array(value: Any) -> bool:
    kind = type(value)
    whole = f"{kind.__module__.partition('.')[0]}.{kind.__name__}"
    return whole in ("numpy.ndarray", "pandas.DataFrame", "pandas.Series") and value.ndim > 0


class OutputArtifact(ArtifactVersionResponse):
    """An output of a finished step; the client's view of it is read when it is asked for.

    Attributes:
        output_name, step_name: where it comes from.
        chunk_index, chunk_size: which item it stands for, or None.
    """

    def __init__(self, step: str, output: str, place: Tuple[str, str, str], body: Any) -> None:
        self.step_name, self.output_name = step, output
        self.place = place  # run of the engine, its name of the step, its name of the output
        self.chunk_index: Optional[int] = None
        self.chunk_size: Optional[int] = None
        self._stored: Mapping[str, Any] = body
        self._shown: Optional[ArtifactVersionResponse] = None
        self._value: Any = None

    @property
    def _view(self) -> ArtifactVersionResponse:
        if self._shown is None:
            for one in versions_of():
                row = one.row
                if (row.get("run"), row.get("step"), row.get("output")) == self.place:
                    self._shown = one
                    break
            else:
                self._shown = self._unnamed()
        return self._shown

    def _unnamed(self) -> ArtifactVersionResponse:
        """Of a step from the cache, whose output has the name that its first run gave it."""
        from .runs import run_of

        run = run_of(self.place[0])
        return run.steps[self.step_name].regular_outputs[self.output_name]

    @property
    def row(self) -> Any:  # type: ignore[override]
        """Its row in the store."""
        return self._view.row

    @property
    def id(self) -> uuid.UUID:  # type: ignore[override]
        """Its id."""
        return self._view.id

    @property
    def name(self) -> str:  # type: ignore[override]
        """The artifact's name."""
        return self._view.name

    @property
    def version(self) -> str:  # type: ignore[override]
        """Its version."""
        return self._view.version

    @property
    def created(self) -> Any:  # type: ignore[override]
        """When it was made."""
        return self._view.created

    updated = created

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ArtifactVersionResponse) and other.id == self.id

    def __hash__(self) -> int:
        return hash(self.id)

    def load(self, *_: Any, **__: Any) -> Any:
        """Its value."""
        value = ArtifactVersion(self.output_name, self._stored).load()
        return value if self.chunk_index is None else item_of(value, self.chunk_index)

    read = load

    @property
    def item_count(self) -> Optional[int]:
        """How many items it has; None: it can't be taken apart."""
        return count_of(ArtifactVersion(self.output_name, self._stored).load())

    def chunk(self, index: int) -> OutputArtifact:
        """One of its items.

        Raises:
            ValueError: it has no items, not this one, or it is itself another item.
        """
        count = self.item_count
        if not count:
            raise ValueError(f"output '{self.output_name}' of step '{self.step_name}' has no items")
        if not 0 <= index < count:
            raise ValueError(
                f"output '{self.output_name}' of step '{self.step_name}' has {count} items, "
                f"so there is none with index {index}"
            )
        if self.chunk_index not in (None, index):
            raise ValueError(
                f"output '{self.output_name}' of step '{self.step_name}' is already its item "
                f"{self.chunk_index}"
            )
        made = OutputArtifact(self.step_name, self.output_name, self.place, self._stored)
        made._shown, made.chunk_index, made.chunk_size = self._shown, index, 1
        return made

    @property
    def plain(self) -> Dict[str, Any]:
        """The part of a document that names its content."""
        keys = ("digest", "format", "type", "meta")
        body = {key: self._stored[key] for key in keys if self._stored.get(key)}
        return {"artifact": body, "item": self.chunk_index}

    def late_literal(self) -> Dict[str, Any]:
        """What stands for it in a document."""
        return {KEY: self.plain}


class Call:
    """One call of a step.

    Attributes:
        name: the engine's name for it; ``shown`` is ZenML's.
        output_names: names of its outputs.
        after, implied: what it was called after, and the last call that had ended, by ``shown``.
    """

    after: Set[str] = set()
    implied: Set[str] = set()

    def __init__(self, name: str, shown: str, step: Any, given: Dict[str, Any]) -> None:
        self.name, self.shown, self.step, self.given = name, shown, step, given
        self.output_names = list(step.outputs)
        self.part: Any = None  # the run of the engine that makes it
        self.outputs: Optional[List[OutputArtifact]] = None
        self.error: Optional[BaseException] = None

    def running(self) -> bool:
        """Whether it hasn't ended."""
        part = self.part
        if part is not None and not part.ended:
            part.body.look()
        return self.outputs is None and self.error is None

    def wait(self) -> List[OutputArtifact]:
        """Its outputs; raises what the step raised."""
        if self.part is not None and self.outputs is None and self.error is None:
            self.part.body.finish(self.part)
        if self.error is not None:
            raise self.error
        assert self.outputs is not None
        return self.outputs


class StepFuture:
    """A step that was submitted."""

    def __init__(self, call: Call) -> None:
        self._call = call

    @property
    def invocation_id(self) -> str:
        """The call's name in the run."""
        return self._call.shown

    @property
    def _keys(self) -> List[str]:
        return self._call.output_names

    def running(self) -> bool:
        """Whether it has not ended yet."""
        return self._call.running()

    def wait(self) -> None:
        """Wait for its end; raises what the step raised."""
        self._call.wait()

    def result(self) -> Any:
        """Its output, a tuple of its outputs, or None; raises what the step raised."""
        found = self._call.wait()
        return found[0] if len(found) == 1 else tuple(found) or None

    artifacts = result

    def load(self, disable_cache: bool = False) -> Any:
        """Its value, a tuple of its values, or None; raises what the step raised."""
        values = tuple(one.load() for one in self._call.wait())
        return values[0] if len(values) == 1 else values or None

    def get_artifact(self, key: str) -> ArtifactFuture:
        """One of its outputs; raises KeyError."""
        if key not in self._keys:
            raise KeyError(
                f"step '{self.invocation_id}' has no output '{key}'{did_you_mean(key, self._keys)}"
            )
        return ArtifactFuture(self._call, self._keys.index(key))

    def __getitem__(self, key: Union[int, slice]) -> Any:
        if isinstance(key, slice):
            return tuple(ArtifactFuture(self._call, i) for i in range(*key.indices(len(self))))
        if not isinstance(key, int):
            raise TypeError(f"outputs have a number or a slice, not {key!r}")
        return ArtifactFuture(self._call, range(len(self))[key])

    def __iter__(self) -> Iterator[ArtifactFuture]:
        if not self._keys:
            raise ValueError(f"step '{self.invocation_id}' has no outputs")
        return (ArtifactFuture(self._call, i) for i in range(len(self)))

    def __len__(self) -> int:
        return len(self._keys)


class ArtifactFuture:
    """An output of a step that was submitted."""

    def __init__(self, call: Call, index: int) -> None:
        self._call, self._index = call, index

    invocation_id = StepFuture.invocation_id
    running = StepFuture.running
    wait = StepFuture.wait

    def result(self) -> OutputArtifact:
        """The output; raises what the step raised."""
        return self._call.wait()[self._index]

    def load(self, disable_cache: bool = False) -> Any:
        """Its value; raises what the step raised."""
        return self.result().load()

    def chunk(self, index: int) -> OutputArtifact:
        """One of its items; raises as :meth:`OutputArtifact.chunk`."""
        return self.result().chunk(index)


class MapResultsFuture:
    """The calls of a step that ``map`` or ``product`` made."""

    def __init__(
        self, name: str, futures: List[StepFuture], error: Optional[BaseException] = None
    ) -> None:
        self.invocation_id = name
        self._futures, self._error = futures, error

    @property
    def futures(self) -> List[StepFuture]:
        """A future for each call; raises what is wrong with the arguments."""
        if self._error is not None:
            raise self._error
        return self._futures

    def running(self) -> bool:
        """Whether one has not ended yet."""
        return any(one.running() for one in self.futures)

    def wait(self) -> None:
        """Wait for all; raises what a step raised."""
        for one in self.futures:
            one.wait()

    def result(self) -> List[Any]:
        """The outputs of each; raises what a step raised."""
        return [one.result() for one in self.futures]

    def load(self, disable_cache: bool = False) -> List[Any]:
        """The values of each; raises what a step raised."""
        return [one.load() for one in self.futures]

    def unpack(self) -> Tuple[List[ArtifactFuture], ...]:
        """For each output the list of all calls' futures of it."""
        return tuple(map(list, zip(*self.futures)))

    def __getitem__(self, key: Any) -> Any:
        return self.futures[key]

    def __iter__(self) -> Iterator[StepFuture]:
        return iter(self.futures)

    def __len__(self) -> int:
        return len(self.futures)


class PipelineFuture:
    """A dynamic pipeline that was submitted in another one's body. It has run already."""

    def __init__(self, name: str, run: Any, error: Optional[BaseException]) -> None:
        self.invocation_id = name
        self._run, self._error = run, error

    def running(self) -> bool:
        """False: it has run."""
        return False

    def wait(self) -> None:
        """Raises what the pipeline raised."""
        if self._error is not None:
            raise self._error

    def result(self) -> Any:
        """What it returned: an artifact, a tuple of artifacts, or None."""
        self.wait()
        found = tuple(self._run.outputs.values()) if self._run is not None else ()
        return found[0] if len(found) == 1 else found or None

    artifacts = result

    def get_artifact(self, key: str) -> Any:
        """An output by name; raises KeyError."""
        self.wait()
        known = self._run.outputs if self._run is not None else {}
        if key not in known:
            raise KeyError(
                f"pipeline '{self.invocation_id}' has no output '{key}'{did_you_mean(key, known)}"
            )
        return known[key]

    def _all(self) -> Tuple[Any, ...]:
        found = self.result()
        if found is None:
            return ()
        return found if isinstance(found, tuple) else (found,)

    def __getitem__(self, key: Any) -> Any:
        return self._all()[key]

    def __iter__(self) -> Iterator[Any]:
        return iter(self._all())

    def __len__(self) -> int:
        return len(self._all())


class Unmapped:
    """A value that ``map`` passes to every call as it is."""

    def __init__(self, value: Any) -> None:
        self.value = value


def unmapped(value: Any) -> Unmapped:
    """Mark an argument of ``step.map(…)`` that every call gets whole.

    Example::

        add.map(x=numbers(), y=unmapped(table()))
    """
    return Unmapped(value)
