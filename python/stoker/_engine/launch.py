"""From a compiled pipeline to a finished run.

The calling process forks a child; the child makes the socket pair, forks the fork server and
becomes the engine by ``exec`` (docs/formats/server-protocol.md). So the engine is the fork server's
parent, and this process manages neither: it only reads the engine's messages from the front pipe.
"""

from __future__ import annotations

import atexit
import json
import os
import select
import signal
import socket
import sys
import warnings
from contextlib import contextmanager
from typing import (
    Any,
    Callable,
    Dict,
    Iterator,
    List,
    Mapping,
    NamedTuple,
    NoReturn,
    Optional,
    Sequence,
    Tuple,
)

from .._base.binary import find, json_of, output_of, run_options
from .._base.errors import (
    EngineError,
    SettingsError,
    did_you_mean,
    say,
)
from .._definition.graph import stored_input
from .._worker import fitness, server
from ..materializers import _artifact
from .client import Client, PipelineRun
from .compiled import Compiled, External, main_file, with_seeds
from .failures import PipelineCancelled, PipelineFailed

_PATIENCE = 3  # the engine handles this many Ctrl-Cs; the next one ends it
_PASS_ON_MS = 300  # within this time the engine reports a Ctrl-C that the terminal sent it

# STOKER_RUN_OPTIONS key → option of `stoker run`; None: handled here.
_OPTIONS: Dict[str, Optional[str]] = {
    "policy": "--policy",
    "max_workers": "--max-workers",
    "with": "--with",
    "mode": "--mode",
    "no_cache": "--no-cache",
    "quiet": "--quiet",
    "json": "--json",
    "echo": "--echo",
    "run_name": "--run-name",
    "python": "--python",
    "params": None,
    "resume": None,
    "use_new_code": None,
    "plan": None,
    "to": None,
}
_to_resume: Optional[Dict[str, Any]] = None  # record of the run that `stoker resume` names
_resumed = False  # a call of this process has resumed it


def engine_arguments(compiled: Compiled, options: Dict[str, Any]) -> List[str]:
    """Options of ``stoker run`` for a pipeline call; the code's settings win over the command
    line's.

    Raises:
        SettingsError: an unknown key in STOKER_RUN_OPTIONS.
    """
    arguments: List[str] = []
    for key, value in options.items():
        if key not in _OPTIONS:
            raise SettingsError(
                f"STOKER_RUN_OPTIONS: unknown key '{key}'{did_you_mean(key, _OPTIONS)}"
            )
        flag = _OPTIONS[key]
        if flag is None or value in (None, False) or (key == "run_name" and compiled.run_name):
            continue
        if key == "mode" and "mode" in compiled.spec:
            continue
        arguments += [flag] if value is True else [flag, str(value)]
    if compiled.run_name:
        arguments += ["--run-name", compiled.run_name]
    return arguments


def resume_arguments(compiled: Compiled) -> List[str]:
    """``--resume RUN`` for the first call with the run's pipeline and parameters, else []."""
    global _resumed
    shown = resuming(compiled.spec["name"])
    given = {k: v["default"] for k, v in (compiled.spec.get("parameters") or {}).items()}
    if shown is None or (shown.get("parameters") or {}) != given:
        return []
    _resumed = True
    new_code = ["--use-new-code"] if run_options().get("use_new_code") else []
    return ["--resume", str(shown["run"]), *new_code]


def resuming(pipeline: str) -> Optional[Mapping[str, Any]]:
    """The record of the run that ``stoker resume`` names if it is a run of this pipeline, else
    None."""
    global _to_resume
    wanted = run_options().get("resume")
    if not wanted or _resumed:
        return None
    if _to_resume is None:
        _to_resume = json_of(["show", str(wanted)])
        atexit.register(_say_not_resumed)
    return _to_resume if _to_resume.get("pipeline") == pipeline else None


def _say_not_resumed() -> None:
    if not _resumed and _to_resume is not None:
        say(
            f"run {_to_resume['run']} was not resumed: the file doesn't call pipeline "
            f"'{_to_resume.get('pipeline')}' with its parameters "
            f"{_to_resume.get('parameters') or {}} any more"
        )


def launch(
    compiled: Compiled,
    on_run: Optional[Callable[[str], None]] = None,
    more: Sequence[str] = (),
) -> PipelineRun:
    """Run to the end and return the run.

    Args:
        on_run: called with the run's id as soon as it is known.
        more: further options of ``stoker run``.

    Raises:
        PipelineFailed: the run failed; has the engine's sentence and the step's exception.
        EngineError: the binary is missing, or it ended without reporting.
        KeyboardInterrupt: the user cancelled the run.
        SystemExit: SIGTERM arrived; the run was interrupted, its steps had their grace (status
            143).
    """
    options = dict(run_options())
    arguments = [*engine_arguments(compiled, options), *resume_arguments(compiled), *more]
    given = dict(zip(more, more[1:]))  # an active stack is where a plan is made for, too
    place = options.get("with") or given.get("--with")
    end = run_engine(compiled, arguments, on_run, plan={**options, "with": place})
    if end.told:
        raise SystemExit(128 + signal.SIGTERM)
    return end.watch.result(end.status)


class End(NamedTuple):
    """How an engine's run ended, as far as the engine reported it.

    Attributes:
        status: the engine's exit status; None if other code reaped it.
        told: this process got SIGTERM.
    """

    watch: Watch
    status: Optional[int]
    told: bool

    @property
    def run(self) -> Optional[str]:
        """The run's id, or None."""
        return self.watch.run

    @property
    def word(self) -> Optional[str]:
        """``succeeded``, ``failed``, ``cancelled``, ``interrupted``; None: not reported."""
        return self.watch.end.get("status")

    @property
    def error(self) -> Optional[str]:
        """The engine's sentence."""
        return self.watch.end.get("error")

    @property
    def interrupts(self) -> int:
        """How often the user pressed Ctrl-C."""
        return self.watch.interrupts


def run_engine(
    compiled: Compiled,
    arguments: List[str],
    on_run: Optional[Callable[[str], None]] = None,
    plan: Optional[Mapping[str, Any]] = None,
) -> End:
    """Run a document in an engine with a fork server of this process.

    Args:
        arguments: further arguments of ``stoker run``.
        on_run: called with the run's id as soon as it is known.
        plan: if it has ``plan``, only print the plan and end the program.

    Raises:
        EngineError: the binary is missing.
        SerializeError: an external artifact can't be stored.
    """
    binary = find()
    compiled = _with_caller(with_seeds(compiled))
    store_externals(compiled.externals)
    if plan and plan.get("plan"):
        show_plan(binary, compiled, dict(plan))
    watch = Watch(on_run)
    reader, pid = _start(binary, arguments, compiled)
    with _passing_on_sigterm(pid) as told:
        try:
            watch.read(reader, pid)
        finally:
            os.close(reader)
            status = _reap(pid)
    return End(watch, status, bool(told))


def _with_caller(compiled: Compiled) -> Compiled:
    """A run that a step starts has a tag that names the step's task."""
    words = [os.environ.get(f"STOKER_{name}") for name in ("RUN", "STEP", "TASK")]
    if not all(words) or not os.environ.get("STOKER_TASK_DIR"):
        return compiled
    known = list(compiled.spec.get("tags") or ())
    tag = f"called-by:{'/'.join(map(str, words))}"
    return compiled._replace(spec={**compiled.spec, "tags": [*known, tag]})


@contextmanager
def _passing_on_sigterm(pid: int) -> Iterator[List[int]]:
    """Pass SIGTERM on to the engine, because a batch system may know only this program.

    Yields a list that gets each signal. Does nothing if the program has a handler of its own.
    """
    told: List[int] = []

    def pass_on(number: int, frame: Any) -> None:
        told.append(number)
        _signal(pid, number)

    if not fitness.in_main_thread() or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        yield told
        return
    signal.signal(signal.SIGTERM, pass_on)
    try:
        yield told
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def show_plan(binary: str, compiled: Compiled, options: Dict[str, Any]) -> NoReturn:
    """``stoker plan file.py``: print what this call would do, and end the program."""
    spec_fd = _spec_fd(compiled)
    builds = options["plan"] == "build"
    words = [binary, "build" if builds else "plan", "--spec-fd", str(spec_fd)]
    if options["plan"] == "export":
        words[1:2] = ["export", "slurm-script", "--to", str(options["to"])]
    if not builds and options.get("policy"):  # the default depends on where the steps run
        words += ["--policy", str(options["policy"])]
    if options.get("with"):
        words += ["--with", str(options["with"])]
    if options["plan"] in ("json", "dockerfile", "manifest"):
        words.append(f"--{options['plan']}")
    os.set_inheritable(spec_fd, True)
    os.execv(binary, words)


def _spec_fd(compiled: Compiled) -> int:
    return _document_fd("spec", compiled.spec)


def _document_fd(name: str, document: Dict[str, Any]) -> int:
    """A document as an open file without a name."""
    text = json.dumps(document, ensure_ascii=False, allow_nan=False)
    fd = os.memfd_create(f"stoker-{name}")
    with open(fd, "w", encoding="utf-8", errors="surrogateescape", closefd=False) as stream:
        stream.write(text)
    os.lseek(fd, 0, os.SEEK_SET)
    return fd


def _start(binary: str, arguments: List[str], compiled: Compiled) -> Any:
    """Fork the engine; returns (the front pipe's end, its process id)."""
    documents = {"--spec-fd": _spec_fd(compiled)}
    if compiled.code is not None:
        documents["--code-fd"] = _document_fd("code", compiled.code)
    reader, writer = os.pipe()
    facts = server.prepare()
    _flush()  # what the program printed so far comes before what its steps print
    try:
        with warnings.catch_warnings():
            # Python 3.12 warns about forks with threads; the fork server checks this itself.
            warnings.simplefilter("ignore", DeprecationWarning)
            pid = os.fork()
        if pid == 0:
            _become_engine(binary, arguments, compiled, facts, documents, reader, writer)
    except BaseException:
        os.close(reader)
        raise
    finally:
        for fd in (writer, *documents.values()):
            os.close(fd)
    return reader, pid


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError, AttributeError):
            pass


def _become_engine(
    binary: str,
    arguments: List[str],
    compiled: Compiled,
    facts: Dict[str, Any],
    documents: Dict[str, int],
    reader: int,
    writer: int,
) -> NoReturn:
    """In the child: fork the server, then become the engine. Never returns."""
    try:
        os.close(reader)
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        if os.fork() == 0:
            os.environ.pop("STOKER_DETACH_FD", None)  # only the run's engine answers there
            for fd in (writer, *documents.values()):
                os.close(fd)
            ours.close()
            server.serve(theirs, compiled.registry, main_file(), facts=facts)
            os._exit(1)
        theirs.close()
        for fd in (*documents.values(), writer, ours.fileno()):
            os.set_inheritable(fd, True)
        # Python ignores these signals, but programs expect them
        for name in ("SIGPIPE", "SIGXFSZ"):
            signal.signal(getattr(signal, name), signal.SIG_DFL)
        given = {**documents, "--forkserver-fd": ours.fileno(), "--front-fd": writer}
        words = ["run", *(word for option in given.items() for word in option)]
        # for processes that import the file again
        os.environ["STOKER_MAIN_ARGS"] = json.dumps(sys.argv[1:])
        os.execv(binary, [binary, *map(str, words), *arguments])
    except BaseException as bad:
        os.write(2, f"stoker: {binary} can't be started: {bad}\n".encode("utf-8", "replace"))
    finally:
        os._exit(3)


def has_ended(reader: int) -> bool:
    """Whether an engine has closed its end of the front pipe."""
    poll = select.poll()
    poll.register(reader, select.POLLIN)
    return any(event & select.POLLHUP for _, event in poll.poll(0))


def _reap(pid: int) -> Optional[int]:
    """Exit status of the engine; None if other code reaped it."""
    while True:
        try:
            _, status = os.waitpid(pid, 0)
        except ChildProcessError:
            return None
        except KeyboardInterrupt:
            continue
        return -os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)


def _signal(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        pass


class Watch:
    """Reads the engine's messages from the front pipe, and handles the user's Ctrl-C meanwhile."""

    def __init__(self, on_run: Optional[Callable[[str], None]] = None) -> None:
        self.on_run = on_run
        self.run: Optional[str] = None
        self.began = False
        self.store: Optional[str] = None
        self.end: Dict[str, Any] = {}
        self.interrupts = 0
        self._known = 0  # interrupts that the engine has reported
        self._left = b""

    def read(self, reader: int, pid: int) -> None:
        """Read until the engine closes its end."""
        poll = select.poll()
        poll.register(reader, select.POLLIN)
        with self._counting(pid) as woken:
            if woken is not None:
                poll.register(woken, select.POLLIN)
            while True:
                try:
                    if not self._look(poll, reader, woken, pid):
                        return
                except KeyboardInterrupt:
                    self._interrupted(pid)

    def read_until_run(self, reader: int) -> None:
        """Read until the run's id is known, or the engine closes its end."""
        while not self.began:
            data = os.read(reader, 65536)
            *lines, self._left = (self._left + data).split(b"\n")
            for line in lines:
                self._event(line)
            if not data:
                return

    def _look(self, poll: Any, reader: int, woken: Optional[int], pid: int) -> bool:
        """Wait for the next message and handle it; False: the engine has closed its end."""
        late = self.interrupts > self._known
        ready = [fd for fd, _ in poll.poll(_PASS_ON_MS if late else None)]
        if not ready:
            self._known = self.interrupts
            _signal(pid, signal.SIGINT)
        if woken in ready:
            os.read(woken, 64)  # type: ignore[arg-type]
        if reader not in ready:
            return True
        data = os.read(reader, 65536)
        *lines, self._left = (self._left + data).split(b"\n")
        for line in lines:
            self._event(line)
        return bool(data)

    @contextmanager
    def _counting(self, pid: int) -> Iterator[Optional[int]]:
        """Count Ctrl-C instead of raising: an exception could lose data that was just read.

        Yields a descriptor that becomes readable at a Ctrl-C; None if the program has a handler of
        its own, or this isn't the main thread.
        """
        if (
            not fitness.in_main_thread()
            or signal.getsignal(signal.SIGINT) is not signal.default_int_handler
        ):
            yield None
            return
        woken, waker = os.pipe()

        def count(number: int, frame: Any) -> None:
            self._interrupted(pid)
            os.write(waker, b"!")

        signal.signal(signal.SIGINT, count)
        try:
            yield woken
        finally:
            signal.signal(signal.SIGINT, signal.default_int_handler)
            os.close(woken)
            os.close(waker)

    def _interrupted(self, pid: int) -> None:
        """Count a Ctrl-C. The engine gets it from the terminal or from us, and handles it; the
        fourth ends the engine."""
        self.interrupts += 1
        if self.interrupts > _PATIENCE:
            _signal(pid, signal.SIGTERM)

    def _event(self, line: bytes) -> None:
        try:
            event = json.loads(line)
        except ValueError:
            return
        if event.get("event") == "run":
            self.run, self.store = event.get("run"), event.get("store")
            self.began = True
            if self.on_run is not None and self.run is not None:
                self.on_run(self.run)
        elif event.get("event") == "interrupted":
            self._known = max(self._known, event["times"])
        elif event.get("event") == "end":
            self.end = event
            self.run = event.get("run") or self.run

    def cut_short(self, status: Optional[int]) -> str:
        """The error text for an engine that ended without reporting."""
        return (
            f"the engine of run {self.run} ended with {_ending(status)} before the run did; "
            f"`stoker resume {self.run}` continues it"
        )

    def result(self, status: Optional[int]) -> PipelineRun:
        """The run, or an exception that says why there is none or how it failed."""
        if self.run is None or not self.began:
            said = self.end.get("error")
            raise EngineError(
                said or f"the run could not start: stoker ended with {_ending(status)}; see above",
                status,
                self.end.get("class"),
                self.end.get("hint") or "",
            )
        run = PipelineRun(self.run, self.store)
        word = self.end.get("status")
        if word == "succeeded":
            return run
        text = self.end.get("error")
        if word in ("cancelled", "interrupted"):
            if self.interrupts:
                raise KeyboardInterrupt
            raise PipelineCancelled(text or f"run {self.run} was {word}", run)
        if word is None and self.interrupts:
            raise KeyboardInterrupt
        if word is None:
            raise EngineError(self.cut_short(status))
        trace = _traceback(run)
        text = text or f"run {self.run} {word}"
        failed = PipelineFailed(f"{text}\n\n{trace}" if trace else text, run, trace)
        if status == 3:  # the engine itself failed, and printed no summary
            failed.told, failed.exit_status = False, status
        raise failed


def _ending(status: Optional[int]) -> str:
    if status is None:
        return "an unknown status"
    if status < 0:
        return f"signal {signal.Signals(-status).name}"
    return f"status {status}"


def _traceback(run: PipelineRun) -> Optional[str]:
    """The traceback of the first failed step, or None."""
    try:
        steps = [s for s in run.steps.values() if s.status == "failed"]
    except (EngineError, KeyError, ValueError):
        return None
    steps.sort(key=lambda s: s.body.get("ended_ms") or 0)
    for step in steps:
        trace = (step.body.get("error") or {}).get("traceback")
        if trace:
            return str(trace)
    return None


def store_externals(externals: List[External]) -> None:
    """Store the values of external artifacts and write their digests into the spec's inputs.

    Raises:
        SerializeError: a value can't be stored.
        EngineError: the store refused one, or has no such artifact.
    """
    if not externals:
        return
    import tempfile

    done: Dict[int, Any] = {}
    with tempfile.TemporaryDirectory(prefix="stoker-external-") as folder:
        for i, external in enumerate(externals):
            artifact = external.artifact
            if artifact.id is not None or artifact.name is not None:
                external.inputs[external.key] = stored_input(_found(artifact))
                continue
            if id(artifact) not in done:
                said: List[str] = []
                path = os.path.join(folder, str(i))
                entry, _ = _artifact.store(
                    artifact.value, path, artifact.materializer, said, external.key
                )
                for sentence in said:
                    say(sentence)
                done[id(artifact)] = _stored(entry)
            external.inputs[external.key] = done[id(artifact)]


def _stored(entry: Dict[str, Any]) -> Dict[str, Any]:
    if "value" in entry:
        return {"value": entry["value"]}
    return stored_input({**entry, "digest": add_artifact(entry)["digest"]})


def add_artifact(
    entry: Dict[str, Any],
    name: Optional[str] = None,
    version: Any = None,
    maker: Optional[Tuple[str, str]] = None,
) -> Dict[str, Any]:
    """Move a written artifact to the store; returns ``{"digest", "path", "size"}``. ``maker``: the
    run and step that made it."""
    words = ["artifact", "add", entry["path"], "--format", entry["format"], "--type", entry["type"]]
    words += ["--meta", json.dumps(entry.get("meta") or {})]
    if name is not None:
        words += ["--name", name]
    if version is not None:
        words += ["--version", str(version)]
    if maker is not None:
        words += ["--of", "/".join(maker)]
    text = output_of(words)
    try:
        answer = json.loads(text)
    except ValueError:
        raise EngineError(f"`stoker artifact add` printed no JSON: {text[:200]!r}") from None
    if not isinstance(answer, dict) or "digest" not in answer:
        raise EngineError(f"`stoker artifact add` named no digest: {text[:200]!r}")
    return answer


def _found(artifact: Any) -> Any:
    """The record of a stored artifact, by its id or by name and version."""
    return Client().get_artifact_version(artifact.id or artifact.name, artifact.version).body
