"""``Client()`` and the views of runs, steps and artifacts, read from ``stoker show/runs/artifact
--json``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Dict, Iterator, List, Mapping, Optional, TypeVar, Union

from .._base.binary import json_of, output_of
from .._base.errors import EngineError, did_you_mean, lenient
from .._definition.names import plain_name
from .._definition.types import ExecutionStatus
from .._worker.profile import PROFILE_TAG
from ..materializers import _artifact
from . import curves
from .config import RunConfiguration
from .curves import Metric
from .stored import stored, stored_spec

if TYPE_CHECKING:
    import datetime

    import pandas

_T = TypeVar("_T")


class Page(List[_T]):
    """A list of results, with the attributes of the dialect's pages."""

    @property
    def items(self) -> List[_T]:
        """The results themselves."""
        return list(self)

    @property
    def total(self) -> int:
        """Number of results."""
        return len(self)


class Names(Dict[str, _T]):
    """A mapping whose KeyError lists the existing keys."""

    def __init__(self, what: str, items: Mapping[str, _T]) -> None:
        super().__init__(items)
        self._what = what

    def __missing__(self, key: str) -> _T:
        if lenient() and plain_name(key) in self:
            return self[plain_name(key)]
        have = ", ".join(self) or "none"
        raise KeyError(f"no {self._what} '{key}' (there is: {have}){did_you_mean(key, self)}")


class ArtifactVersion:
    """One stored artifact. Pass it to a step to use it as an input, or ``load()`` its value."""

    def __init__(self, name: str, body: Mapping[str, Any], store: Optional[str] = None) -> None:
        self.body = body
        self.output_name = name
        self.store = store

    @property
    def artifact_digest(self) -> str:
        """The digest of its content, which identifies it."""
        return str(self.body["digest"])

    id = artifact_digest

    @property
    def name(self) -> str:
        """Its name: the given one, else its output's."""
        return str(self.body.get("name") or self.output_name)

    @property
    def version(self) -> Optional[str]:
        """Its version, if one was given."""
        value = self.body.get("version")
        return None if value is None else str(value)

    @property
    def uri(self) -> str:
        """Path of its file or folder."""
        path = stored(self.body.get("path"), self.artifact_digest, self.store)
        self.body = {**self.body, "path": path}
        return path

    @property
    def size(self) -> int:
        """Its size in bytes."""
        return int(self.body.get("size") or 0)

    @property
    def data_type(self) -> str:
        """Name of its Python type."""
        return str(self.body.get("type") or "")

    @property
    def tags(self) -> List[str]:
        """Its tags."""
        return list(self.body.get("tags") or ())

    @property
    def run_metadata(self) -> Dict[str, Any]:
        """Metadata that the step attached to it."""
        return dict(self.body.get("metadata") or {})

    def load(self, *_: Any) -> Any:
        """Its value.

        Raises:
            LoadError: it can't be read.
        """
        if self.body.get("format") is None:
            raise _artifact.LoadError(
                f"artifact {self.artifact_digest[:12]}: its format is unknown; get it as "
                "RUN/STEP.OUTPUT, or by the name under which it was saved"
            )
        entry = {"path": self.uri, "format": self.body.get("format"), "type": self.data_type}
        return _artifact.load({**entry, "meta": dict(self.body.get("meta") or {})})

    read = load

    def __repr__(self) -> str:
        return f"<artifact '{self.name}' {self.data_type} {self.artifact_digest[:12]}>"

    def _repr_html_(self) -> str:
        from . import notebook

        return notebook.artifact(self)


class Versions(List[ArtifactVersion]):
    """The artifacts of one output; ``load()`` loads the latest."""

    def load(self) -> Any:
        """The value of the latest artifact."""
        return self[-1].load()


class StepRun:
    """A step of a run."""

    def __init__(self, name: str, body: Mapping[str, Any], run: PipelineRun) -> None:
        self.name = name
        self.body = body
        self.run = run

    @property
    def id(self) -> str:
        """``RUN/STEP``."""
        return f"{self.run.id}/{self.name}"

    @property
    def title(self) -> str:
        """Its name; of several calls of one step what differs between them: ``fit[lr=0.1]``."""
        return str(self.body.get("title") or self.name)

    @property
    def status(self) -> ExecutionStatus:
        """Its status."""
        return ExecutionStatus.of(str(self.body["status"]))

    @property
    def is_cached(self) -> bool:
        """Whether its outputs come from an earlier run."""
        return bool(self.body.get("cached")) or self.status is ExecutionStatus.CACHED

    @property
    def outputs(self) -> Names[Versions]:
        """Output name → its artifacts."""
        pairs = (self.body.get("outputs") or {}).items()
        found = {k: Versions([ArtifactVersion(k, v, self.run.store)]) for k, v in pairs}
        return Names(f"output of step '{self.name}'", found)

    @property
    def regular_outputs(self) -> Names[ArtifactVersion]:
        """Output name → its latest artifact."""
        latest = {k: v[-1] for k, v in self.outputs.items()}
        return Names(f"output of step '{self.name}'", latest)

    @property
    def output(self) -> ArtifactVersion:
        """Its only output, not counting those of ``@gpu_profile``.

        Raises:
            ValueError: it has none, or several.
        """
        outputs = {k: v for k, v in self.outputs.items() if PROFILE_TAG not in v[-1].tags}
        if len(outputs) != 1:
            names = ", ".join(outputs) or "none"
            raise ValueError(
                f"step '{self.name}' has {len(outputs)} outputs ({names}); choose one by .outputs[name]"
            )
        return next(iter(outputs.values()))[-1]

    @property
    def inputs(self) -> Names[StepInput]:
        """Input name → its source: ``{"from", "digest"}`` or ``{"value"}``; ``load()`` returns its
        value."""
        given = (self.body.get("inputs") or {}).items()
        found = {k: StepInput(v, self.run) for k, v in given}
        return Names(f"input of step '{self.name}'", found)

    @property
    def config(self) -> RunConfiguration:
        """Its configuration; the literal inputs are the ``parameters``."""
        given = {k: v["value"] for k, v in self.inputs.items() if "value" in v}
        spec = stored_spec(self.run.store, self.run.id)
        own = (spec.get("steps") or {}).get(self.name)
        return RunConfiguration({"name": self.name, "parameters": given}, spec, own or {})

    @property
    def run_metadata(self) -> Dict[str, Any]:
        """Metadata that the step logged."""
        return dict(self.body.get("metadata") or {})

    @property
    def metrics(self) -> Names[Metric]:
        """Metric name → its values over time, as ``log_metrics`` logged them (rank 0's)."""
        found = {m.name: m for m in curves.metrics_of(self.id, self.run.store) if m.rank == 0}
        return Names(f"metric of step '{self.name}'", found)

    @property
    def start_time(self) -> Optional[datetime.datetime]:
        """When it began (UTC)."""
        return _time(self.body.get("started_ms"))

    @property
    def end_time(self) -> Optional[datetime.datetime]:
        """When it ended (UTC)."""
        return _time(self.body.get("ended_ms"))

    @property
    def error(self) -> Optional[str]:
        """Why it failed, in one sentence."""
        text = (self.body.get("error") or {}).get("text")
        return None if text is None else str(text)

    @property
    def resources(self) -> Dict[str, Any]:
        """The resources that it requested, was granted and used."""
        return {k: dict(self.body.get(k) or {}) for k in ("asked", "granted", "used")}

    @property
    def verdict(self) -> Optional[Dict[str, Any]]:
        """Whether it used its granted devices: ``granted``, ``used`` (missing: unknown), ``cause``
        and ``text``, a sentence. None: no device was granted."""
        found = (self.body.get("used") or {}).get("verdict")
        return None if found is None else dict(found)

    @property
    def logs(self) -> str:
        """Its output, as text."""
        return output_of(["logs", self.id], self.run.store)

    def __repr__(self) -> str:
        return f"<step '{self.name}' of run {self.run.id}: {self.status}>"

    def _repr_html_(self) -> str:
        from . import notebook

        return notebook.card(self.id, self.run.store)


class _Steps(Names[StepRun]):
    def __missing__(self, key: str) -> StepRun:
        for step in self.values():
            if step.title == key:
                return step
        return super().__missing__(key)


class StepInput(Dict[str, Any]):
    """One input of a step, from the record."""

    def __init__(self, body: Mapping[str, Any], run: PipelineRun) -> None:
        super().__init__(body)
        self._run = run

    def __missing__(self, key: Any) -> Any:
        if key in (0, -1):  # in the dialect this is a list
            return self
        raise KeyError(key)

    def load(self) -> Any:
        """Its value; for a list of outputs, the list of their values."""
        origin = self.get("from")
        if isinstance(origin, list):
            return [self._output(one).load() for one in origin]
        if origin is not None:
            return self._output(origin).load()
        if "value" in self:
            return _artifact.load({"value": self["value"]})
        body = json_of(["artifact", "get", str(self["digest"])], self._run.store)
        return ArtifactVersion(str(self["digest"]), body, self._run.store).load()

    def _output(self, reference: str) -> ArtifactVersion:
        step, _, output = reference.partition(".")
        return self._run.steps[step].outputs[output][-1]


class PipelineRun:
    """A run. Reads its record at the first use, and again with :meth:`refresh`.

    Example::

        run = digits()
        print(run.status, run.steps["train"].outputs)
    """

    def __init__(
        self, run: str, store: Optional[str] = None, body: Optional[Mapping[str, Any]] = None
    ) -> None:
        self.id = run
        self.store = store
        self._body: Optional[Mapping[str, Any]] = body

    @property
    def body(self) -> Mapping[str, Any]:
        """The record, as ``stoker show --json`` prints it."""
        if self._body is None or "steps" not in self._body:
            self._body = json_of(["show", self.id], self.store)
            self.store = self._body.get("store") or self.store
        return self._body

    def refresh(self) -> PipelineRun:
        """Read the record again."""
        self._body = None
        return self

    @property
    def name(self) -> str:
        """Its name."""
        return str(self.body.get("name") or self.id)

    @property
    def pipeline(self) -> PipelineView:
        """Its pipeline."""
        return PipelineView(str(self.body["pipeline"]), self.store)

    @property
    def status(self) -> ExecutionStatus:
        """Its status."""
        return ExecutionStatus.of(str(self.body["status"]))

    @property
    def steps(self) -> Names[StepRun]:
        """Step name → step; ``steps["fit[lr=0.1]"]`` finds a step by its title."""
        steps = self.body.get("steps") or {}
        return _Steps(f"step in run {self.id}", {k: StepRun(k, v, self) for k, v in steps.items()})

    @property
    def config(self) -> RunConfiguration:
        """Its configuration: parameters, settings, tags, execution mode …"""
        body = {**self.body, "name": self.body.get("pipeline")}
        return RunConfiguration(body, stored_spec(self.store, self.id))

    @property
    def tags(self) -> List[str]:
        """Its tags."""
        return list(self.body.get("tags") or ())

    @property
    def run_metadata(self) -> Dict[str, Any]:
        """Metadata that was logged for the run itself."""
        return dict(self.body.get("metadata") or {})

    @property
    def metrics(self) -> List[Metric]:
        """What its steps measured over time: a metric for each task and rank that logged it."""
        return curves.metrics_of(self.id, self.store)

    def metrics_dataframe(self) -> pandas.DataFrame:
        """The same as a DataFrame with a row for each value: ``step``, ``task``, ``rank``,
        ``metric``, ``position`` (``log_metrics``'s ``step``), ``time`` (UTC) and ``value``.

        Raises:
            ImportError: pandas isn't installed.
        """
        return curves.frame_of(self.metrics)

    @property
    def notes(self) -> List[str]:
        """The engine's notes about it, such as requests that it could not meet."""
        return list(self.body.get("notes") or ())

    @property
    def start_time(self) -> Optional[datetime.datetime]:
        """When it began (UTC)."""
        return _time(self.body.get("started_ms"))

    @property
    def end_time(self) -> Optional[datetime.datetime]:
        """When it ended (UTC)."""
        return _time(self.body.get("ended_ms"))

    @property
    def logs(self) -> str:
        """The output of its steps, as text."""
        return output_of(["logs", self.id], self.store)

    @property
    def artifact_versions(self) -> List[ArtifactVersion]:
        """All artifacts of its steps."""
        return [a for s in self.steps.values() for v in s.outputs.values() for a in v]

    def __repr__(self) -> str:
        return f"<run {self.id}>"

    def _repr_html_(self) -> str:
        from . import notebook

        return notebook.card(self.id, self.store)


class PipelineView:
    """A pipeline, by its runs."""

    def __init__(self, name: str, store: Optional[str] = None) -> None:
        self.name = name
        self.id = name
        self.store = store

    @property
    def runs(self) -> Page[PipelineRun]:
        """Its runs, latest first."""
        return Page(r for r in _runs(self.store) if (r._body or {}).get("pipeline") == self.name)

    @property
    def last_run(self) -> PipelineRun:
        """Its latest run.

        Raises:
            RuntimeError: it has none.
        """
        for run in self.runs:
            return run
        raise RuntimeError(f"pipeline '{self.name}' has no runs")

    @property
    def last_successful_run(self) -> PipelineRun:
        """Its latest run that succeeded.

        Raises:
            RuntimeError: it has none.
        """
        for run in self.runs:
            if (run._body or {}).get("status") == "succeeded":
                return run
        raise RuntimeError(f"pipeline '{self.name}' has no successful runs")

    def __repr__(self) -> str:
        return f"<pipeline '{self.name}'>"


class ArtifactView:
    """The versions of one named artifact."""

    def __init__(self, name: str, versions: List[ArtifactVersion]) -> None:
        self.name = name
        self.id = name
        self._versions = versions

    @property
    def versions(self) -> Names[ArtifactVersion]:
        """Version → artifact, the latest first; those without a version are named by their
        digest."""
        found = {a.version or a.artifact_digest: a for a in self._versions}
        return Names(f"version of artifact '{self.name}'", found)

    @property
    def latest_version_name(self) -> Optional[str]:
        """The latest version's name."""
        return self._versions[0].version

    @property
    def tags(self) -> List[str]:
        """Tags of the latest version."""
        return self._versions[0].tags

    def __repr__(self) -> str:
        return f"<artifact '{self.name}', versions: {len(self._versions)}>"


class Client:
    """Reads the store of the working directory, or that of ``STOKER_STORE``.

    Example::

        run = Client().get_pipeline_run("latest")
        loss = run.steps["train"].output.load()
    """

    def get_pipeline_run(self, name_id_or_prefix: str, **_: Any) -> PipelineRun:
        """A run by id, unique prefix of one, name, or ``"latest"``.

        Raises:
            KeyError: there is no such run, or several.
        """
        try:
            body = json_of(["show", str(name_id_or_prefix)])
        except EngineError as bad:
            raise KeyError(str(bad)) from None
        return PipelineRun(str(body["run"]), body.get("store"), body)

    def list_pipeline_runs(
        self,
        pipeline: Optional[str] = None,
        status: Optional[str] = None,
        size: Optional[int] = None,
        pipeline_id: Optional[str] = None,
        pipeline_name: Optional[str] = None,
        **_: Any,
    ) -> Page[PipelineRun]:
        """Runs, latest first: optionally of one pipeline or status, at most ``size``."""
        found = Page[PipelineRun]()
        pipeline = pipeline or pipeline_id or pipeline_name
        for run in _runs(None):
            body = run._body or {}
            if pipeline is not None and body.get("pipeline") != getattr(pipeline, "name", pipeline):
                continue
            if status is not None and ExecutionStatus.of(str(body.get("status"))) != status:
                continue
            found.append(run)
            if size is not None and len(found) >= size:
                break
        return found

    def get_pipeline(self, name: str, **_: Any) -> PipelineView:
        """A pipeline that has been run.

        Raises:
            KeyError: it never has been.
        """
        names = [p.name for p in self.list_pipelines()]
        if name not in names:
            raise KeyError(f"no pipeline '{name}' has been run here{did_you_mean(name, names)}")
        return PipelineView(name)

    def list_pipelines(self, name: Optional[str] = None, **_: Any) -> Page[PipelineView]:
        """Pipelines that have been run, the latest first; optionally of one name."""
        names = dict.fromkeys(str((r._body or {}).get("pipeline")) for r in _runs(None))
        return Page(PipelineView(n) for n in names if name in (None, n))

    def get_run_step(self, step_run_id: str, **_: Any) -> StepRun:
        """A step by its id, ``RUN/STEP``."""
        run, _slash, step = str(step_run_id).partition("/")
        return self.get_pipeline_run(run).steps[step]

    def get_artifact_version(
        self, name_id_or_prefix: str, version: Union[str, int, None] = None, **_: Any
    ) -> ArtifactVersion:
        """An artifact by name (the latest, or the given version), digest, or ``RUN/STEP.OUTPUT``.

        Raises:
            KeyError: there is none.
        """
        reference = str(name_id_or_prefix) if version is None else f"{name_id_or_prefix}:{version}"
        try:
            body = json_of(["artifact", "get", reference])
        except EngineError as bad:
            raise KeyError(str(bad)) from None
        return ArtifactVersion(
            str(body.get("output") or name_id_or_prefix), body, body.get("store")
        )

    def list_artifact_versions(
        self, name: Optional[str] = None, artifact: Optional[str] = None, **_: Any
    ) -> Page[ArtifactVersion]:
        """Stored artifacts, the latest first; optionally of one name."""
        name = name or artifact
        bodies: List[Dict[str, Any]] = _listed(json_of(["artifact", "list"]), "artifacts")
        found = (ArtifactVersion(str(b.get("name") or b.get("output") or ""), b) for b in bodies)
        return Page(a for a in found if name is None or a.name == name)

    def list_artifacts(self, name: Optional[str] = None, **_: Any) -> Page[ArtifactView]:
        """Stored artifacts by name, those with the latest version first; optionally of one name."""
        found: Dict[str, List[ArtifactVersion]] = {}
        for one in self.list_artifact_versions(name):
            found.setdefault(one.name, []).append(one)
        return Page(ArtifactView(k, v) for k, v in found.items())

    def get_artifact(self, name: str, **_: Any) -> ArtifactView:
        """The versions of an artifact.

        Raises:
            KeyError: there is none of that name.
        """
        for found in self.list_artifacts(name):
            return found
        names = [a.name for a in self.list_artifacts()]
        raise KeyError(f"no artifact '{name}' is stored here{did_you_mean(name, names)}")

    def delete_pipeline_run(self, name_id_or_prefix: Any, **_: Any) -> None:
        """Remove an ended run, with everything that only it refers to. Later runs can't reuse its
        steps.

        Raises:
            KeyError: there is no such run, or several.
            EngineError: it is still running.
        """
        run = self.get_pipeline_run(getattr(name_id_or_prefix, "id", name_id_or_prefix))
        output_of(["store", "rm", run.id], run.store)

    def delete_pipeline(self, name_id_or_prefix: Any, **_: Any) -> None:
        """Remove all runs of a pipeline, or none of them if one can't be removed.

        Raises:
            KeyError: it has never been run.
            EngineError: one of its runs is still running.
        """
        name = str(getattr(name_id_or_prefix, "name", name_id_or_prefix))
        output_of(["store", "rm", *(run.id for run in self.get_pipeline(name).runs)])

    def delete_artifact_version(
        self, name_id_or_prefix: Any, version: Union[str, int, None] = None, **_: Any
    ) -> None:
        """Remove a version of a named artifact (default: the latest). ``stoker store gc`` removes
        its content once no run refers to it.

        Raises:
            KeyError: there is none, or it has no name (it belongs only to its run).
        """
        given = name_id_or_prefix
        if not isinstance(given, ArtifactVersion):
            given = self._version_of(str(given), version)
        if given.version is None:
            raise KeyError(
                f"artifact {given.id[:12]} has no name: it is removed with its run (delete_pipeline_run)"
            )
        _remove_named(f"{given.name}:{given.version}")

    def delete_artifact(self, name_id_or_prefix: Any, **_: Any) -> None:
        """Remove all versions of a named artifact; see :meth:`delete_artifact_version`.

        Raises:
            KeyError: there is none.
        """
        _remove_named(str(getattr(name_id_or_prefix, "name", name_id_or_prefix)), "--all")

    def _version_of(self, text: str, version: Union[str, int, None]) -> ArtifactVersion:
        for one in self.list_artifact_versions() if version is None else ():
            if one.id == text:
                return one
        return self.get_artifact_version(text, version)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        if name.startswith(("delete_", "prune_")):
            raise AttributeError(
                f"Stoker's Client has no {name!r}: old runs and what only they refer to are removed by "
                "`stoker store gc` (--keep TIME, --keep-runs N, --dry-run)"
            )
        known = [n for n in dir(type(self)) if not n.startswith("_")]
        raise AttributeError(
            f"Stoker's Client has no {name!r}: there is no server or stack behind it"
            f"{did_you_mean(name, known)} It has {', '.join(known)}"
        )


def _remove_named(name: str, *options: str) -> None:
    try:
        output_of(["artifact", "rm", name, *options])
    except EngineError as bad:
        raise KeyError(str(bad)) from None


def _runs(store: Optional[str]) -> Iterator[PipelineRun]:
    for body in _listed(json_of(["runs", "--no-values", "--limit", "1000000"], store), "runs"):
        yield PipelineRun(str(body["run"]), body.get("store") or store, body)


def _listed(answer: Any, key: str) -> List[Dict[str, Any]]:
    found = answer.get(key) if isinstance(answer, dict) else answer
    return list(found or ())


def _time(milliseconds: Any) -> Optional[datetime.datetime]:
    if not milliseconds:
        return None
    import datetime

    return datetime.datetime.fromtimestamp(milliseconds / 1000, tz=datetime.timezone.utc)
