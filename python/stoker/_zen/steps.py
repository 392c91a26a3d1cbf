"""Steps of runs as ZenML's client shows them."""

from __future__ import annotations

import datetime
import json
import os
import uuid
from typing import Any, Dict, List, Mapping, Optional

from .._base import registry
from .._definition.types import ExecutionStatus
from .._engine.client import Names
from .._engine.stored import stored_spec
from . import records, whole
from .artifacts import ArtifactVersionResponse
from .configuration import (
    ExceptionInfo,
    InputSpec,
    LogsResponse,
    StepConfiguration,
    StepSpec,
)
from .enums import StepRunInputArtifactType
from .responses import Response, moment, with_numbers


class StepRunInputResponse(ArtifactVersionResponse):
    """An artifact that a step took."""

    index: Optional[int] = None
    chunk_index: Optional[int] = None
    chunk_size: Optional[int] = None

    def __init__(
        self, version: ArtifactVersionResponse, input_type: StepRunInputArtifactType
    ) -> None:
        super().__init__(version.row)
        self.input_type = input_type


class StepRunResponse(Response):
    """A step of a run."""

    _absent = (
        *("type", "heartbeat_threshold", "latest_heartbeat"),
        *("resource_request", "resource_request_id", "code_hash"),
    )

    _own = ("error", "verdict", "title", "is_cached", "_repr_html_")

    def __init__(self, name: str, run: Any, versions: List[ArtifactVersionResponse]) -> None:
        self.run, self._versions = run, versions
        self.native = run.native.steps[name]
        self._place = name
        self._kept = dict(self.native.config._zenml)
        self.name = str(self._kept.get("shown") or name)
        self.id: uuid.UUID = records.id_of("step", f"{run.native.id}/{name}")
        self.pipeline_run_id = run.id
        self.created = self.start_time
        self.updated = self.end_time
        self.version = int(self.native.body.get("attempts") or 1)

    @property
    def status(self) -> ExecutionStatus:
        """Its status."""
        return ExecutionStatus.CACHED if self.native.is_cached else self.native.status

    def earlier(self) -> List[EarlierAttempt]:
        """Its attempts before the last."""
        return [EarlierAttempt(self, number) for number in range(1, self.version)]

    @property
    def is_retriable(self) -> bool:
        """Whether another attempt would follow if it failed."""
        retry = self.native.config.retry
        return retry is not None and self.version <= retry.max_retries

    @property
    def log_collection(self) -> List[LogsResponse]:
        """What it printed; nothing of a cached step, or without ``enable_step_logs``."""
        logs = LogsResponse(self, "step", None, self.id)
        said = [c.enable_step_logs for c in (self.config, self.run.config)]
        kept = next((one for one in said if one is not None), True)
        return [logs] if kept and not self.native.is_cached else []

    @property
    def snapshot_id(self) -> uuid.UUID:
        """The id of what the run was started with."""
        return records.id_of("snapshot", self.run.native.id)

    @property
    def _maker(self) -> str:
        """The run of the engine that really ran it."""
        return str(self.native.body.get("cached_from") or self._part)

    @property
    def _part(self) -> str:
        """The run of the engine: the run itself, or a part of a dynamic one."""
        return str(self.native.run.id)

    @property
    def original_step_run_id(self) -> Optional[uuid.UUID]:
        """The step whose outputs it reuses, or None."""
        if self._maker == self._part:
            return None
        return records.id_of("step", f"{whole.head_of(self._maker)}/{self._place}")

    def _row(self, output: str, body: Mapping[str, Any]) -> ArtifactVersionResponse:
        """The named version that this output is; one that was named by no run is itself a row."""
        place = (self._maker, self._place, output)
        for one in self._versions:
            row = one.row
            if (row.get("run"), row.get("step"), row.get("output")) == place:
                return one
        fits = [o for o in self._versions if o.artifact_digest == body.get("digest")]
        if self._maker != self._part and fits:
            return fits[0]
        name = f"{self.run.pipeline.name}::{self.name}::{output}"
        made = {"name": name, "version": "1", "run": self._part, "step": self._place}
        return ArtifactVersionResponse(
            {**body, **made, "output": output, "store": self.run.native.store}
        )

    @property
    def outputs(self) -> Names[List[ArtifactVersionResponse]]:
        """Output name → its versions: what the step returned, and what it saved."""
        found: Dict[str, List[ArtifactVersionResponse]] = {}
        for name, body in (self.native.body.get("outputs") or {}).items():
            found[self._shown(name)] = [self._row(name, body)]
        for one in self._versions:
            row = one.row
            saved = row.get("run") == self._maker and row.get("step") == self._place
            if saved and not row.get("output"):
                found.setdefault(one.name, []).append(one)
        return Names(f"output of step '{self.name}'", found)

    def _shown(self, output: str) -> str:
        """An output's name, as its template gave it in the run that ran the step."""
        spec = stored_spec(self.run.native.store, self._maker)
        step = (spec.get("steps") or {}).get(self._place) or {}
        names = ((step.get("extra") or {}).get("zenml") or {}).get("names") or {}
        return str(names.get(output) or output)

    @property
    def regular_outputs(self) -> Names[ArtifactVersionResponse]:
        """What the step returned."""
        given = self.native.body.get("outputs") or {}
        some = {self._shown(k): self._row(k, v) for k, v in given.items()}
        return Names(f"output of step '{self.name}'", some)

    @property
    def output(self) -> ArtifactVersionResponse:
        """Its only output.

        Raises:
            ValueError: it has none, or several.
        """
        found = list(self.regular_outputs.values())
        if len(found) != 1:
            raise ValueError(
                f"step '{self.name}' has {len(found)} outputs; choose one by outputs[NAME]"
            )
        return found[0]

    @property
    def inputs(self) -> Names[List[StepRunInputResponse]]:
        """Input name → the artifacts; parameters are ``config.parameters``."""
        found: Dict[str, List[ArtifactVersionResponse]] = {}
        types: Dict[str, StepRunInputArtifactType] = {}
        came = self._kept.get("came") or {}
        for name, body in (self.native.body.get("inputs") or {}).items():
            origins = body.get("from")
            if name in came:
                found[name] = [self._came(place) for place in came[name]]
            elif origins is not None:
                texts = [origins] if isinstance(origins, str) else origins
                found[name] = [self._origin(text) for text in texts if "." in text]
            elif registry.late.keys() & _keys(body.get("value")):
                given = next(iter(body["value"].values()))
                if "metadata" in given:
                    continue  # neither an input nor a parameter
                found[name] = self._late(given)
                types[name] = StepRunInputArtifactType.LAZY_LOADED
            elif "digest" in body:
                types[name] = StepRunInputArtifactType.EXTERNAL
                digest = body["digest"]
                some = [one for one in self._versions if one.artifact_digest == digest]
                found[name] = some[-1:]
        usual = StepRunInputArtifactType.STEP_OUTPUT
        told = {
            k: [StepRunInputResponse(one, types.get(k, usual)) for one in v]
            for k, v in found.items()
        }
        return Names(f"input of step '{self.name}'", told)

    def _came(self, place: List[str]) -> ArtifactVersionResponse:
        """An output of an earlier part of a dynamic run, by run, step and output."""
        run, step, output = place
        for one in self._versions:
            if [one.row.get("run"), one.row.get("step"), one.row.get("output")] == place:
                return one
        other = StepRunResponse(step, type(self.run)(whole.native_of(run)), self._versions)
        return other.regular_outputs[other._shown(output)]

    def _late(self, given: Mapping[str, Any]) -> List[ArtifactVersionResponse]:
        """What was the latest version when the step started, of an artifact that it named, or of one
        of a model."""
        name, version = given.get("name"), given.get("version")
        some = [one for one in self._versions if one.name == (name or given["artifact"])]
        if name is None:
            version = given.get("artifact_version")
            ids = {one.id for of in _versions_named(given) for one in of._links()}
            some = [one for one in some if one.id in ids]
        if version is not None:
            return [one for one in some if one.version == str(version)]
        begun = self.native.body.get("started_ms") or 0
        return [one for one in some if one.row.get("created_ms", 0) <= begun][-1:]

    def _origin(self, reference: str) -> ArtifactVersionResponse:
        step, _, output = reference.partition(".")
        other = StepRunResponse(step, self.run, self._versions)
        return other.regular_outputs[other._shown(output)]

    @property
    def regular_inputs(self) -> Names[List[StepRunInputResponse]]:
        """Its inputs: what it loads by itself isn't among them."""
        return self.inputs

    @property
    def input(self) -> ArtifactVersionResponse:
        """Its only input; raises as :attr:`output`."""
        found = [one for some in self.inputs.values() for one in some]
        if len(found) != 1:
            raise ValueError(
                f"step '{self.name}' has {len(found)} inputs; choose one by inputs[NAME]"
            )
        return found[0]

    @property
    def config(self) -> StepConfiguration:
        """Its configuration."""
        body = self.run.native.body
        began = body.get("started_ms") or body.get("created_ms")
        native, outer = self.native.config, self.run.config.extra
        made = StepConfiguration(native, self.name, outer, began)
        made.stored = lambda output: (self.regular_outputs[self._shown(output)].materializer,)
        spec = stored_spec(self.run.native.store, self._part)
        own = (spec.get("steps") or {}).get(self._place) or {}
        if not (own.get("extra") or {}).get("model"):
            made.model = None  # the pipeline's is the run's
        return made

    @property
    def spec(self) -> StepSpec:
        """Where its code is, and which steps come before it."""
        given: Mapping[str, Any] = self.native.config._said
        places: Dict[str, List[InputSpec]] = {}
        for name, body in (self.native.body.get("inputs") or {}).items():
            origins = body.get("from") or ()
            for text in [origins] if isinstance(origins, str) else origins:
                step, dot, output = text.partition(".")
                if dot:
                    places.setdefault(name, []).append(InputSpec(step, output))
        for name, some in self._kept.get("came", {}).items():
            places[name] = [InputSpec(self._name_of(place[1]), place[2]) for place in some]
        before = {one.step_name for some in places.values() for one in some}
        before.update(given.get("after") or (), self._kept.get("before") or ())
        source = str(given.get("python") or self.name)
        return StepSpec(source, sorted(before), self._place, places)

    def _name_of(self, place: str) -> str:
        """What a step is called that the engine calls ``place``; itself if the run hasn't it."""
        native = self.run.native.steps.get(place)
        return str((native.config._zenml if native else {}).get("shown") or place)

    @property
    def parent_step_ids(self) -> List[uuid.UUID]:
        """The steps before it."""
        return [self.run.steps[name].id for name in self.spec.upstream_steps]

    @property
    def source_code(self) -> Optional[str]:
        """Its function's source, if the file is still there."""
        return _source_of(str(self.native.body.get("source") or ""), self.run.native.body)

    @property
    def docstring(self) -> Optional[str]:
        """Its function's docstring, if the file is still there."""
        import ast
        import textwrap

        if "doc" in self._kept:
            return str(self._kept["doc"])
        text = self.source_code
        if text is None:
            return None
        try:
            made = ast.parse(textwrap.dedent(text)).body[0]
        except (SyntaxError, IndexError):
            return None
        return ast.get_docstring(made) if isinstance(made, ast.FunctionDef) else None

    @property
    def run_metadata(self) -> Dict[str, Any]:
        """Its metadata."""
        place = f"{self.run.native.id}/{self._place}"
        later = records.later_metadata(place) if self.run.in_progress else {}
        return dict(with_numbers({**self.native.run_metadata, **later}))

    @property
    def start_time(self) -> Optional[datetime.datetime]:
        """When it began."""
        return moment(self.native.body.get("started_ms"))

    @property
    def end_time(self) -> Optional[datetime.datetime]:
        """When it ended."""
        return moment(self.native.body.get("ended_ms"))

    @property
    def duration(self) -> Optional[datetime.timedelta]:
        """How long it took."""
        if self.start_time is None or self.end_time is None:
            return None
        return self.end_time - self.start_time

    @property
    def exception_info(self) -> Optional[ExceptionInfo]:
        """Why it failed, or None."""
        error = self.native.body.get("error") or None
        return None if error is None else ExceptionInfo(error)

    @property
    def substitutions(self) -> Dict[str, str]:
        """Placeholders of names."""
        return dict(self.config.substitutions)

    @property
    def cache_key(self) -> str:
        """What its key is made of, as one digest."""
        return records.id_of("key", f"{self._maker}/{self._place}").hex

    @property
    def cache_expires_at(self) -> Optional[datetime.datetime]:
        """When its result is no longer reused, or None."""
        after = (self.native.config._said.get("cache") or {}).get("expires")
        ended = self.native.body.get("ended_ms")
        return moment(ended + after * 1000) if after is not None and ended else None

    @property
    def model_version(self) -> Any:
        """The version of its model, or None."""
        from .models import version_of_run

        return version_of_run(self.run.native.id, self._place)

    @property
    def model_version_id(self) -> Any:
        """Its id, or None."""
        return getattr(self.model_version, "id", None)

    @property
    def logs(self) -> str:
        """What it printed."""
        return str(self.native.logs)


class EarlierAttempt(StepRunResponse):
    """An attempt that failed and was followed by another."""

    status = ExecutionStatus.RETRIED
    is_retriable = True

    def __init__(self, last: StepRunResponse, number: int) -> None:
        whole = str(last.native.body.get("dir") or "")
        self._folder = os.path.join(os.path.dirname(whole), str(number))
        super().__init__(last._place, last.run, last._versions)
        self.id = records.id_of("step", f"{self.run.native.id}/{self._place}/{number}")
        self.version = number

    @property
    def outputs(self) -> Names[List[ArtifactVersionResponse]]:
        """None: it failed."""
        return Names(f"output of step '{self.name}'", {})

    regular_outputs = outputs  # type: ignore[assignment]

    @property
    def start_time(self) -> Optional[datetime.datetime]:
        """When it began, or None where its files aren't here."""
        return _written(os.path.join(self._folder, "task.json"))

    @property
    def end_time(self) -> Optional[datetime.datetime]:
        """When it ended, or None where its files aren't here."""
        return _written(os.path.join(self._folder, "result.json"))

    @property
    def exception_info(self) -> Optional[ExceptionInfo]:
        """Why it failed, or None."""
        text = _text_of(os.path.join(self._folder, "result.json"))
        error = json.loads(text).get("error") if text else None
        return None if error is None else ExceptionInfo(error)

    @property
    def logs(self) -> str:
        """What it printed."""
        names = ("stdout.log", "stderr.log")
        return "".join(_text_of(os.path.join(self._folder, name)) for name in names)


def _written(file: str) -> Optional[datetime.datetime]:
    return moment(os.path.getmtime(file) * 1000) if os.path.exists(file) else None


def _text_of(file: str) -> str:
    if not os.path.exists(file):
        return ""
    with open(file, encoding="utf-8", errors="replace") as stream:
        return stream.read()


def _versions_named(given: Mapping[str, Any]) -> List[Any]:
    """The versions of a model that a step may have meant when it started."""
    from .models import get_model, get_model_version, versions

    try:
        model, version = get_model(given["model"]), given.get("version")
        late = version in (None, "latest")
        return versions(model) if late else [get_model_version(model, version)]
    except KeyError:
        return []  # removed since


def _keys(value: Any) -> Any:
    return value.keys() if isinstance(value, dict) else ()


def _source_of(place: str, body: Mapping[str, Any]) -> Optional[str]:
    """The function that begins at ``FILE:LINE``, below the run's folder."""
    import inspect

    path, _, line = place.rpartition(":")
    try:
        with open(
            os.path.join((body.get("origin") or {}).get("cwd") or "", path), encoding="utf-8"
        ) as stream:
            return "".join(inspect.getblock(stream.readlines()[int(line) - 1 :]))
    except (OSError, ValueError):
        return None
