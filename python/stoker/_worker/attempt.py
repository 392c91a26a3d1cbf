"""Runs one attempt directory (docs/formats/task-directory.md): ``task.json`` in, ``result.json``
out.

The fork server calls :func:`run_attempt` in a forked child; ``python -m stoker._worker DIR [--main
FILE]`` does the same in a fresh interpreter. It never raises: every failure is a ``result.json``
with its class and one sentence. This module works on Python 3.7 and imports little, because it also
runs in images that know nothing of Stoker.
"""

from __future__ import annotations

import json
import os
import sys

from .._base import registry
from .._base.binary import json_of
from .._base.errors import EngineError, InWorkerError, lenient
from ..materializers import _artifact
from . import context, frameworks, profile, ranks, seeds, stacks
from .failures import Stopped, describe, is_preempted, short_path, traceback_of
from .fit import fit, is_wrong
from .resolve import resolve, resolve_callable
from .seen import Baseline, seen_since

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, List, Optional, Tuple

    from .._definition.entry import Entry

# Modules of the standard library that the worker and its imports load for a step, besides those of
# each interpreter's start. An image's Python must have them. A test checks the list.
STANDARD_MODULES = (
    "ast",
    "collections",
    "contextlib",
    "contextvars",
    "copy",
    "dataclasses",
    "dis",
    "faulthandler",
    "genericpath",
    "hashlib",
    "importlib",
    "inspect",
    "linecache",
    "math",
    "opcode",
    "os",
    "pickle",
    "posixpath",
    "stat",
    "struct",
    "token",
    "tokenize",
    "typing",
    "warnings",
    "weakref",
)

_VERSION = 1
_THREAD_VARIABLES = (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "NUMEXPR_NUM_THREADS",
)


_RESULT_MOST = 60 << 20  # bytes; the engine reads at most 64 MiB
_CLIP_FROM = 8 << 10  # characters; longer errors and warnings may be cut
_AGAIN = 75  # a rank's exit status: preempted (EX_TEMPFAIL)
_decode = json.JSONDecoder().raw_decode
_encode = json.JSONEncoder(allow_nan=False).encode

baseline: Optional[Baseline] = None  # set by the fork server
serve: Any = None  # the fork server's function, set by it: ranks are forks of such a server
masks_at_start: Optional[Dict[str, Optional[str]]] = (
    None  # set if the user's file is imported later
)


class UsageError(Exception):
    """The step doesn't fit its declaration; the sentence says how."""


# ---------------------------------------------------------------------------- one attempt


def run_attempt(
    directory: str,
    entry: Optional[Entry] = None,
    hook: Optional[str] = None,
    hook_error: str = "",
    main_error: Optional[BaseException] = None,
    main_file: Optional[str] = None,
) -> int:
    """Run the attempt (or only one of its hooks) and write its result; never raises.

    For a step with several processes, this process becomes their launcher, and each of them calls
    this again.

    Args:
        directory: the attempt directory, absolute.
        entry: the step's code; None: found by ``entry`` in ``task.json``.
        hook: ``on_failure`` …: run only that hook; its result goes to ``hook.json``.
        hook_error: why the step failed, for the hook.
        main_error: the import of the user's file raised this, so the step fails with it.
        main_file: the user's file, for ranks that must import it.

    Returns:
        The exit status: 0; 1 if it was a hook and the hook failed, or a rank and the rank failed;
            75 if a
        rank was preempted.
    """
    result: Dict[str, Any] = {"stoker": _VERSION, "status": "failed"}
    rank = None if hook else ranks.rank_in(directory)
    attempt = _Attempt(directory, result, rank)
    try:
        attempt.open()
        if main_error is not None and entry is None:
            raise main_error
        attempt.resolve(entry)
        if hook:
            attempt.run_hook(hook, RuntimeError(hook_error) if hook_error else None)
        elif rank is None and attempt.task.get("gang"):
            ranks.launch(directory, attempt.task, attempt.entry, main_file, serve)
        elif rank is None and any(
            how(attempt.task, directory, main_file) for how in registry.launch
        ):
            context.leave()
            return 0  # the other process has written the result
        else:
            attempt.run()
        result["status"] = "ok"
    except BaseException as exc:
        attempt.fail(exc)
        if not hook:
            attempt.after_failure(exc)
    if not hook:
        attempt.ask_frameworks()
    attempt.close()
    if rank is not None:
        rank.end(result, _write_result)
        failed = (result.get("error") or {}).get("class")
        return 0 if result["status"] == "ok" else _AGAIN if failed == "preempted" else 1
    _write_result(directory, "hook.json" if hook else "result.json", result)
    return int(bool(hook) and (result["status"] != "ok" or bool(attempt.warnings)))


class _Attempt:
    """The stages of one attempt; ``doing`` says which one an exception came from."""

    def __init__(
        self, directory: str, result: Dict[str, Any], rank: Optional[ranks.Rank] = None
    ) -> None:
        self.directory = directory
        self.result = result
        self.rank = rank
        self.warnings: List[str] = []
        self.hooks_run: List[str] = []
        self.task: Dict[str, Any] = {}
        self.entry: Any = None
        self.context: Optional[context.StepContext] = None
        self.modules_before: Optional[Baseline] = None
        # parts of a failed step for the result
        self.left: Optional[Callable[[], Dict[str, Any]]] = None
        self.masks: Dict[str, Optional[str]] = {}  # set if devices are granted

    def open(self) -> None:
        """Read ``task.json`` and enter the step's context."""
        path = f"{self.directory}/task.json"
        try:
            task = _decode(_artifact.read(path).decode("utf-8"))[0]
            version = task["stoker"]
        except (OSError, ValueError, KeyError, TypeError) as exc:
            raise UsageError(f"'{path}' can't be read: {type(exc).__name__}: {exc}") from exc
        if version > _VERSION:
            raise UsageError(
                f"'{path}' has version {version}, this worker knows {_VERSION}: "
                "use the same version of Stoker on both sides"
            )
        self.task = task
        if task.get("secrets"):
            from . import hidden

            hidden.begin(task["secrets"])
        if task.get("timeout_ms") and self.rank is None:
            stacks.write_before(task["timeout_ms"] / 1000)
        if self._devices():
            self.masks = masks_at_start or frameworks.masks()
        self.context = context.enter(task, self.directory)
        if self.rank is not None:
            self.rank.begin(task)
            self.warnings += [] if self.rank.number else self.rank.notes

    def resolve(self, entry: Optional[Entry]) -> None:
        """Find the step's code; modules imported from here on count as seen."""
        self.modules_before = baseline or Baseline()
        if os.environ.get("STOKER_READS"):
            from . import reads

            left_out = os.environ.get("STOKER_READS_LEFT_OUT", "")
            reads.begin(
                os.environ["STOKER_READS"], self.rank is None, [x for x in left_out.split(":") if x]
            )
        if entry is None:
            module, _, qualname = str(self.task.get("entry", "")).partition(":")
            try:
                entry = resolve(module, qualname)
            except LookupError as exc:
                if type(exc) is not LookupError:  # a KeyError from the user's module, say
                    raise
                raise UsageError(f"step '{self.task.get('step')}': {exc}") from exc
        self.entry = entry
        if self.context is not None:
            self.context._declare(entry)

    def run(self) -> None:
        """Inputs, hooks, the function, outputs."""
        of_flow = "flow" in self.task and hasattr(self.entry, "flow")
        if of_flow and self.rank is not None and self.task["flow"].get("ranks"):
            self.entry.become_node(self.rank, self.task)
            self.masks = frameworks.masks()
        frameworks.guard(self._devices(), self.task.get("uses"))
        seeds.sow(self.task)
        if of_flow:
            self.entry.run(self)
            if self.rank is not None:
                self.rank.leave()
            self._store_profile()
            return
        arguments = self._load_inputs()
        self.run_hook("on_start", None)
        self._run_script()
        if registry.around:
            value = self._call_within(arguments)
        else:
            value = self._call(arguments)
        _told_to_end(self.warnings, failed=False)
        names = self._output_names()
        if self.rank is None:
            values = dict(zip(names, self._split(value, names)))
            self._check(values)
            value = None  # drops this reference to the step's results
            self._store_outputs(values)
        else:
            self._store_ranks(names, value)
        self._store_profile()
        for name in _hooks_behind("on_success"):
            self.run_hook(name, None)

    def _load_inputs(self) -> Dict[str, Any]:
        inputs = self.task.get("inputs") or {}
        if not inputs:
            return {}
        assert self.context is not None
        arguments = {}
        for name, given in inputs.items():
            annotation = self.entry.annotations.get(name)
            try:
                if hasattr(annotation, "of_input"):
                    arguments[name] = annotation.of_input(name)  # the artifact, which isn't loaded
                elif "value" in given and "path" not in given:
                    arguments[name] = fit(registry.come(_artifact.load(given)), annotation)
                    self.context.parameters[name] = arguments[name]
                else:
                    links = f"{self.directory}/in/{name}"
                    value = _artifact.load(given, annotation, links)
                    ours = "list" in given or "." in str(given.get("type"))
                    if not ours or annotation is float:  # a command's JSON, or an int for a float
                        value = fit(value, annotation)
                    for convert in registry.converted:
                        value = convert(value, annotation)
                    arguments[name] = value
            except _artifact.LoadError as exc:
                raise _artifact.LoadError(f"input '{name}': {exc}") from exc
            except (TypeError, ValueError) as exc:
                raise UsageError(
                    f"input '{name}' doesn't fit its annotation {annotation!r}: {exc}"
                ) from exc
        self.context.inputs = arguments
        return arguments

    def _run_script(self) -> None:
        """Run the script that a rank runs before the step's function
        (``@torchrun(entrypoint=…)``)."""
        options = self.entry.launch.options if self.entry.launch is not None else {}
        if self.rank is None or not options.get("entrypoint"):
            return
        try:
            ranks.run_script(options["entrypoint"], options["entrypoint_args"])
        except SystemExit as exc:
            if exc.code not in (None, 0):
                raise Stopped(
                    f"'{short_path(options['entrypoint'])}' called sys.exit({exc.code!r})"
                ).with_traceback(exc.__traceback__) from None
        self.rank.meet()

    def _call_within(self, arguments: Dict[str, Any]) -> Any:
        """Call the function within what the program's dialect puts around it."""
        from contextlib import ExitStack

        with ExitStack() as within:
            for enter in registry.around:
                within.enter_context(enter(self.task))
            return self._call(arguments)

    def _call(self, arguments: Dict[str, Any]) -> Any:
        try:
            if self.entry.is_async:
                import asyncio

                return asyncio.run(self.entry.func(**arguments))
            return self.entry.func(**arguments)
        except SystemExit as exc:
            if is_preempted(exc):
                raise
            code = exc.code
            if code not in (None, 0):
                raise Stopped(f"the step called sys.exit({code!r})").with_traceback(
                    exc.__traceback__
                ) from None
            if self._output_names():
                raise Stopped(
                    "the step called sys.exit(0) before it returned its outputs"
                ).with_traceback(exc.__traceback__) from None
            return None

    def _output_names(self) -> List[str]:
        declared = self.task.get("outputs")
        if declared is None:
            return list(self.entry.output_names)
        profiled = profile.names_of(self.task)
        return [name for name in declared if name not in profiled]

    def _store_ranks(self, names: List[str], value: Any) -> None:
        """Store the outputs of a gang: rank 0's values, or lists of all ranks' values if the step
        wants these."""
        assert self.rank is not None
        all_ranks = self.entry.launch is not None and self.entry.launch.all_ranks
        if self.rank.number and not all_ranks:
            self.rank.leave()
            return
        values = dict(zip(names, self._split(value, names)))
        if self.rank.number:
            self.rank.share({k: self._store(k, one) for k, one in values.items()}, _write_result)
        self.rank.leave(collects=all_ranks and not self.rank.number)
        if self.rank.number:
            return
        if all_ranks:
            self._store_outputs(ranks.gathered(self.rank, values, _artifact.load))
        else:
            self._store_outputs(values)

    def _store_outputs(self, values: Dict[str, Any]) -> None:
        outputs: Dict[str, Any] = {}
        self.result["outputs"] = outputs
        for name in list(values):
            holder = [values.pop(name)]
            spend = "numpy" in sys.modules and _is_last(holder)
            outputs[name] = self._store(name, holder[0], spend)
        versions = {}
        for name in outputs:
            config = self.entry.output_configs.get(name) or {}
            given = {key: config[key] for key in ("name", "version") if config.get(key) is not None}
            if lenient():
                given = self._zenml_name(name, given)
            if given:
                versions[name] = given
        if versions:
            self.result["output_names"] = versions

    def _zenml_name(self, output: str, given: Dict[str, Any]) -> Dict[str, Any]:
        """ZenML gives every output a name and a version."""
        task = self.task
        head, _, number = output.partition("_")
        is_plain = head == "output" and (output == "output" or number.isdigit())
        kept = (task.get("extra") or {}).get("zenml") or {}
        step = kept.get("shown") or task.get("step")
        usual = f"{task.get('pipeline')}::{step}::{output}" if is_plain else output
        named = (kept.get("names") or {}).get(output)
        given = {**given, "name": named or given.get("name") or usual}
        if "version" in given:
            given["version"] = str(given["version"])
            self._refuse_taken(given)
        return given

    def _refuse_taken(self, given: Dict[str, Any]) -> None:
        """A version that is there already is an error, also with equal content."""
        named = f"{given['name']}:{given['version']}"
        try:
            json_of(["artifact", "get", named])
        except EngineError:
            return  # there is none, or no store here
        raise UsageError(f"artifact '{named}' exists already; give the output another version")

    def _store_profile(self) -> None:
        """Store the outputs of ``@gpu_profile``, from the engine's samples so far."""
        names = profile.names_of(self.task)
        if names and (self.rank is None or self.rank.number == 0):
            values = profile.profile_of(self.directory, self._devices())
            for name, value in zip(names, values):
                self.result["outputs"][name] = self._store(name, value)

    def _split(self, value: Any, names: List[str]) -> Tuple[Any, ...]:
        """The returned value split into its outputs."""
        if len(names) == 1:
            return (value,)
        step = self.task.get("step")
        if not names:
            if value is not None:
                self.warnings.append(
                    f"step '{step}' declares no output, so the {type(value).__name__} that it "
                    "returned is not kept; annotate its return type to keep it"
                )
            return ()
        if isinstance(value, dict) and set(value) == set(names):
            return tuple(value[name] for name in names)
        if not isinstance(value, (tuple, list)) or len(value) != len(names):
            got = (
                f"{len(value)} values"
                if isinstance(value, (tuple, list))
                else f"one {type(value).__name__}"
            )
            raise UsageError(
                f"step '{step}' declares {len(names)} outputs ({', '.join(names)}) "
                f"but returned {got}; return a tuple of {len(names)}"
            )
        return tuple(value)

    def _check(self, values: Dict[str, Any]) -> None:
        """Blame the step that returned a wrong type, not the next one that gets it."""
        for name, annotation in zip(self.entry.output_names, self.entry.output_types):
            if name not in values or not is_wrong(values[name], annotation):
                continue
            value, wanted = values[name], _type_name(annotation)
            if value is None:
                got, fix = (
                    "nothing",
                    f"end it with 'return' and the value, or write '-> Optional[{wanted}]'",
                )
            else:
                kind = type(value).__name__
                text = repr(value)
                got = f"{text if len(text) <= 40 else text[:37] + '...'}, of type {kind}"
                fix = f"return {wanted}({text}) or the like, or write '-> {kind}'"
                if len(text) > 20:
                    fix = f"return a value of type {wanted}, or write '-> {kind}'"
            where = "" if len(values) == 1 else f" for its output '{name}'"
            raise UsageError(
                f"step '{self.task.get('step')}' returned {got}{where}, but its annotation is "
                f"'-> {wanted}': {fix}"
            )

    def _store(self, name: str, value: Any, spend: bool = False) -> Dict[str, Any]:
        folder = self.rank.own if self.rank is not None and self.rank.number else self.directory
        path = f"{folder}/out/{name}"
        chosen = self.entry.materializers.get(name, self.entry.materializers.get("*"))
        said = (self.task.get("extra") or {}).get("zenml") or {}
        visual = said.get("enable_artifact_visualization") is not False
        tells = not (lenient() and said.get("enable_artifact_metadata") is False)
        preview = self._preview(value)  # before an array's memory is given away
        facts = self._facts(value) if lenient() and tells else {}
        try:
            entry, metadata = _artifact.store(
                value, path, chosen, self.warnings, name, spend, visual
            )
        except _artifact.SerializeError as exc:
            self.result.pop("outputs", None)
            error = _artifact.SerializeError(f"output '{name}': {exc}")
            error.output = name  # type: ignore[attr-defined]
            raise error from exc
        if "path" in entry:
            entry["path"] = f"out/{name}"
            preview = preview or self._preview_of_file(path, entry["meta"])
            if preview is not None:
                entry["preview"] = preview
            if lenient():
                _note_model(value, entry["meta"])
        if self.context is not None:
            self.context._describe_output(name, {**facts, **metadata}, tells)
        return entry

    def _facts(self, value: Any) -> Dict[str, Any]:
        """What ZenML's materializer of such a value tells of it."""
        from ..materializers._facts import facts_of

        return facts_of(value, self._hide())

    def _preview(self, value: Any) -> Optional[Dict[str, Any]]:
        """What cards show of a value of a library's type."""
        if type(value).__module__ == "builtins":
            return None
        from ..materializers._preview import preview_of

        return preview_of(value, self._hide())

    def _preview_of_file(self, path: str, meta: Dict[str, Any]) -> Optional[Dict[str, Any]]:
        """The first of the visualizations that a materializer wrote."""
        if not meta.get("visualizations"):
            return None
        from ..materializers._preview import preview_of_file

        file, kind = meta["visualizations"][0]
        return preview_of_file(f"{path}/{file}", kind, self._hide())

    def _hide(self) -> Callable[[str], str]:
        """What masks the step's secrets in a text."""
        if not self.task.get("secrets"):
            return str
        from . import hidden

        return hidden.hide

    def run_hook(self, name: str, error: Optional[BaseException]) -> None:
        """Call one hook (only in rank 0); if it raises, add a warning."""
        if self.rank is not None and self.rank.number:
            return
        hook = self.entry.hooks.get(name) if self.entry is not None else None
        spec = (self.task.get("hooks") or {}).get(name)
        if hook is None and isinstance(spec, dict) and "python" in spec:
            hook = spec["python"]
        if hook is None:
            return
        self.hooks_run.append(name)
        try:
            if isinstance(hook, str):
                module, _, qualname = hook.partition(":")
                hook = resolve_callable(module, qualname)
            wants = name in ("on_failure", "on_end") and _takes_argument(hook)
            self._call_hook(name, hook, *((error,) if wants else ()))
        except BaseException as exc:  # a hook may even call sys.exit
            self.warnings.append(f"hook '{name}' raised {type(exc).__name__}: {exc}")
            _log(traceback_of(exc))

    def _call_hook(self, name: str, hook: Any, *given: Any) -> None:
        if not registry.hooked:
            hook(*given)
            return
        from contextlib import ExitStack

        with ExitStack() as within:
            for enter in registry.hooked:
                within.enter_context(enter(name, hook))
            hook(*given)

    def fail(self, exc: BaseException) -> None:
        """Make the result's error from an exception, and write it to the step's log."""
        told = _told_to_end(self.warnings, failed=True)
        try:
            error = describe(exc, self.entry)
            if told and error["class"] != "preempted":
                error["message"] = f"preempted, and then: {error['type']}: {error['message']}"
                error["class"] = "preempted"
            if self.rank is not None and error["class"] != "preempted":
                if self.entry is not None and self.entry.patience:
                    self.rank.line.last(self.entry.patience)
                self.rank.line.fall()
        except Exception as second:  # an exception whose own __str__ raises
            error = {"class": "exception", "type": type(exc).__name__, "message": repr(second)}
        told_of = error.get("traceback") or error["message"]
        if self.task.get("secrets") or len(told_of) > _CLIP_FROM:
            from . import hidden

            error = hidden.in_error(error)
        self.result["error"] = error
        for key in ("outputs", "dropped", "next"):
            self.result.pop(key, None)
        _log(told_of)  # first: storing may take longer than a rank is given to end
        if self.left is not None and error["class"] != "preempted":
            self.result.update(self.left())

    def after_failure(self, exc: BaseException) -> None:
        """Run the failure hooks after the last attempt (in the shim ``on_end`` after each). For
        ranks the engine runs them, because the gang may restart."""
        preempted = (self.result.get("error") or {}).get("class") == "preempted"
        last = self.task.get("last_attempt", True)
        if self.rank is None and not preempted:
            for name in _hooks_behind("on_failure"):
                if last or (lenient() and name == "on_end"):  # ZenML's runs at each attempt
                    self.run_hook(name, exc)

    def _devices(self) -> List[Dict[str, Any]]:
        return (self.task.get("granted") or {}).get("devices") or []

    def ask_frameworks(self) -> None:
        """Add the loaded frameworks' reports about the devices, whether the step failed or not."""
        said = (self.result.get("error") or {}).get("message") or ""
        devices = self._devices()
        found = {
            "frameworks": frameworks.report(devices, said),
            "masks": frameworks.masks_changed(self.masks) if devices else {},
        }
        found = {key: value for key, value in found.items() if value}
        if found:
            self.result["accelerator"] = found

    def close(self) -> None:
        """Add the context's data, the modules that were seen and the warnings to the result."""
        stacks.write_no_more()
        if os.environ.get("STOKER_READS"):
            from . import reads

            reads.end()
        if self.context is not None:
            self.result.update(self.context._said())
        if self.modules_before is not None:
            try:
                seen = seen_since(self.modules_before)
            except OSError as exc:
                self.warnings.append(f"the step's modules can't be listed: {exc}")
            else:
                if seen:
                    self.result["seen"] = seen
        if registry.looked_up:
            self.result.setdefault("seen", {}).update(registry.looked_up)
        if self.warnings:
            self.result["warnings"] = self.warnings
            if self.task.get("secrets") or max(map(len, self.warnings)) > _CLIP_FROM:
                from . import hidden

                shown = (hidden.hide(one) for one in self.warnings)
                self.result["warnings"] = [hidden.clip(one, 15 << 10) for one in shown]
        if self.hooks_run:
            self.result["hooks_run"] = self.hooks_run
        context.leave()


def _type_name(annotation: Any) -> str:
    if isinstance(annotation, type) and not hasattr(annotation, "__origin__"):
        return annotation.__name__
    return str(annotation).replace("typing.", "")


def _note_model(value: Any, meta: Dict[str, Any]) -> None:
    """Note that an artifact is a model, also of the user's own class, with ZenML's materializer."""
    from ..materializers._facts import model_kind

    kind = model_kind(value)
    if kind and "materializer" not in meta:
        meta["zenml"] = {"materializer": kind}


def _is_last(holder: List[Any]) -> bool:
    from ..materializers import _spend

    return _spend.is_last(holder)


def _hooks_behind(outcome: str) -> Tuple[str, str]:
    """The hooks after a step's function, in their order: in ZenML ``on_end`` comes first."""
    return ("on_end", outcome) if lenient() else (outcome, "on_end")


def _takes_argument(hook: Callable[..., Any]) -> bool:
    code = getattr(hook, "__code__", None)
    if code is not None:
        return bool(code.co_argcount or code.co_flags & 0x04)  # CO_VARARGS
    import inspect

    try:
        return bool(inspect.signature(hook).parameters)
    except (TypeError, ValueError):
        return False


def _write_result(directory: str, name: str, result: Dict[str, Any]) -> None:
    """Write the result with an atomic rename, so that readers see all of it or nothing."""
    path = f"{directory}/{name}"
    try:
        text = _encode(result)
    except (TypeError, ValueError) as exc:
        result = {"stoker": _VERSION, "status": "failed"}
        result["error"] = {"class": "usage", "message": f"the step's result is not JSON: {exc}"}
        text = _encode(result)
    if len(text) > _RESULT_MOST:
        said = f"its result.json would have {len(text)} bytes, but the limit is {_RESULT_MOST}"
        what = result.get("error") or {"class": "usage", "message": said}
        result = {"stoker": _VERSION, "status": "failed", "error": what}
        text = _encode(result)
    raw = text.encode("ascii")
    try:
        fd = os.open(path + ".tmp", os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
        try:
            while raw:
                raw = raw[os.write(fd, raw) :]
        finally:
            os.close(fd)
        os.rename(path + ".tmp", path)
    except OSError as exc:  # the engine finds no result, and the step's log says why
        _log(f"stoker: '{path}' can't be written: {exc}")


def _log(text: str) -> None:
    """Write to the step's log, even if the step has closed or replaced ``sys.stderr``."""
    try:
        sys.stdout.flush()
        print(text, file=sys.stderr, flush=True)
    except Exception:
        os.write(2, (text + "\n").encode("utf-8", "backslashreplace"))


def _told_to_end(warnings: List[str], failed: bool) -> bool:
    """Whether the step was told to end, after its function has ended; always False for a step
    without checkpoints."""
    preemption: Any = sys.modules.get("stoker._worker.preemption")
    try:
        return preemption is not None and bool(preemption.ended(failed))
    except BaseException as exc:  # from a hook
        warnings.append(f"a preemption hook raised {type(exc).__name__}: {exc}")
        _log(traceback_of(exc))
        return True


# ---------------------------------------------------------------------------- the user's file


def import_main(path: str) -> Optional[BaseException]:
    """Run the user's file as ``__mp_main__``, so that its guarded part doesn't run.

    The module is also ``__main__``, so that objects pickled there can be loaded. A file that calls
    its pipeline without a guard runs up to that call; the functions defined so far can run.

    Returns:
        The exception that it raised, or None.
    """
    import types

    path = os.path.abspath(path)
    module = types.ModuleType("__mp_main__")
    module.__file__ = path
    module.__dict__["__builtins__"] = __builtins__
    sys.modules["__mp_main__"] = sys.modules["__main__"] = module
    sys.path.insert(0, os.path.dirname(path))
    # as the user gave them
    sys.argv = [path, *json.loads(os.environ.get("STOKER_MAIN_ARGS") or "[]")]
    try:
        with open(path, "rb") as stream:
            code = compile(stream.read(), path, "exec")
        exec(code, module.__dict__)
    except BaseException as exc:
        if isinstance(exc, InWorkerError):
            return None
        return exc
    return None


def set_thread_variables(n_threads: int, given: Dict[str, str]) -> None:
    """Set the thread counts of libraries that will be loaded later; the user's settings win."""
    for name in _THREAD_VARIABLES:
        if name not in given:
            os.environ[name] = str(n_threads)
