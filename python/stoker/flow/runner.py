"""Starts flows from programs and notebooks: ``Runner("flow.py").run(alpha=5)``.

The flow runs as ``python flow.py run --alpha 5`` in a separate process. ``run`` waits for its end,
``async_run`` returns as soon as the run exists.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import weakref
from typing import Any, AsyncIterator, Dict, List, Mapping, Optional, Tuple

from ._cell import cell_source
from .exception import NoRunError

__all__ = [
    "ExecutingProcess",
    "ExecutingRun",
    "ExecutingTask",
    "NBRunner",
    "Runner",
]

_POLL_S = 0.02
_GRACE_S = 20.0  # after SIGTERM the engine needs time to end its tasks


class _Process:
    """A flow's program: its process, and its two logs as files."""

    def __init__(
        self,
        words: List[str],
        env: Mapping[str, str],
        cwd: str,
        show: bool,
        limit_s: float,
        kinds: Optional[Mapping[str, str]] = None,
    ) -> None:
        self.folder = tempfile.mkdtemp(prefix="stoker-runner-")
        option = "--deployer-attribute-file" if "deploy" in words else "--runner-attribute-file"
        self.command = [*words, option, os.path.join(self.folder, "attributes")]
        with open(os.path.join(self.folder, "kinds"), "w", encoding="utf-8") as file:
            json.dump(kinds or {}, file)  # which types the parameters' texts had
        self.limit_s = limit_s
        self.timed_out = False
        self.logs = self.log_files = {s: os.path.join(self.folder, s) for s in ("stdout", "stderr")}
        self._shown = dict.fromkeys(self.logs, 0) if show else {}
        with open(self.logs["stdout"], "wb") as out, open(self.logs["stderr"], "wb") as err:
            # In its own session, so that it gets Ctrl-C only from the waiting method, and once.
            self.process = subprocess.Popen(
                self.command,
                env=dict(env),
                cwd=cwd,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                start_new_session=True,
            )
        weakref.finalize(self, _forget, self.process, self.folder)
        self._began = time.monotonic()

    def show(self) -> None:
        """Print the output since the last call."""
        for name, at in self._shown.items():
            with open(self.logs[name], "rb") as file:
                file.seek(at)
                data = file.read()
            if data:
                stream = getattr(sys, name)
                stream.write(data.decode("utf-8", "replace"))
                stream.flush()
                self._shown[name] = at + len(data)

    def text(self, name: str) -> str:
        """The current content of a log."""
        with open(self.logs[name], encoding="utf-8", errors="replace") as file:
            return file.read()

    def attributes(self) -> Optional[Dict[str, Any]]:
        """The program's report about its run; None: nothing yet.

        Raises:
            ValueError: it has no such option or parameter. TypeError: a value isn't of its type.
            NoRunError: it ended without a run, or didn't start one in time.
        """
        ended = self.process.poll() is not None
        try:
            with open(self.command[-1], encoding="utf-8") as file:
                found: Dict[str, Any] = json.load(file)
        except (OSError, ValueError):
            found = {}
        if found.get("raises"):
            raise {"ValueError": ValueError, "TypeError": TypeError}[found["raises"]](found["text"])
        if found:
            return found
        if ended:
            if self.process.returncode == 0:
                raise NoRunError(
                    f"{self.command[1]} ended well, but without a run: it must define a FlowSpec "
                    "class and call it at its end, if __name__ == '__main__': MyFlow()"
                )
            said = self.text("stderr").strip().splitlines()
            last = f": {said[-1]}" if said else ""
            what = "result" if "spin" in self.command else "run"
            raise NoRunError(
                f"`{' '.join(self.command[1:-2])}` ended with status {self.process.returncode} before it had a "
                f"{what}{last}"
            )
        if time.monotonic() - self._began > self.limit_s:
            self.end()
            raise NoRunError(
                f"`{' '.join(self.command[1:-2])}` had no run after {self.limit_s} s (file_read_timeout)"
            )
        return None

    def wait(self) -> Dict[str, Any]:
        """Wait for its end and print its output; returns its report about the run."""
        try:
            while self.process.poll() is None:
                self.show()
                time.sleep(_POLL_S)
        except KeyboardInterrupt:
            self.signal(signal.SIGINT)
            self.process.wait()
            self.show()
            raise
        self.show()
        found = self.attributes()
        assert found is not None
        return found

    async def begun(self) -> Dict[str, Any]:
        """Wait until its run exists."""
        while True:
            found = self.attributes()
            if found is not None:
                return found
            await asyncio.sleep(_POLL_S)

    def signal(self, number: int) -> None:
        """Send the program a signal; its engine ends the tasks."""
        if self.process.poll() is None:
            try:
                self.process.send_signal(number)
            except ProcessLookupError:
                pass

    def end(self) -> None:
        """End it, gently first."""
        self.signal(signal.SIGTERM)
        try:
            self.process.wait(_GRACE_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def remove(self) -> None:
        """End it and remove its logs."""
        self.end()
        shutil.rmtree(self.folder, ignore_errors=True)


def _forget(process: subprocess.Popen[bytes], folder: str) -> None:
    """Remove the logs that nobody can ask for any more, unless the program still writes them."""
    if process.poll() is not None:
        shutil.rmtree(folder, ignore_errors=True)


class ExecutingProcess:
    """The program of a flow, running or ended. A context manager: its end removes the logs."""

    def __init__(self, runner: Runner, process: _Process) -> None:
        self.runner = runner
        self.command_obj = process

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *_: Any) -> None:
        self.runner.cleanup()

    @property
    def returncode(self) -> Optional[int]:
        """The program's exit status; None: it runs."""
        return self.command_obj.process.poll()

    @property
    def status(self) -> str:
        """``running``, ``successful``, ``failed`` or ``timeout``."""
        if self.command_obj.timed_out:
            return "timeout"
        code = self.returncode
        return "running" if code is None else "failed" if code else "successful"

    @property
    def stdout(self) -> str:
        """Its standard output so far."""
        return self.command_obj.text("stdout")

    @property
    def stderr(self) -> str:
        """Its standard error so far."""
        return self.command_obj.text("stderr")

    async def wait(self, timeout: Optional[float] = None, stream: Optional[str] = None) -> Any:
        """Wait for the end; ends the run after ``timeout`` seconds. Prints ``stream`` meanwhile."""
        own = self.command_obj
        until = None if timeout is None else time.monotonic() + timeout
        at = 0
        while True:
            ended = own.process.poll() is not None
            if stream is not None:
                at = self._print(stream, at)
            if ended:
                return self
            if until is not None and time.monotonic() > until:
                own.timed_out = True
                await asyncio.get_running_loop().run_in_executor(None, own.end)
                return self
            await asyncio.sleep(_POLL_S)

    def _print(self, stream: str, at: int) -> int:
        with open(self.command_obj.logs[stream], "rb") as file:
            file.seek(at)
            data = file.read()
        if data:
            sys.stdout.write(data.decode("utf-8", "replace"))
            sys.stdout.flush()
        return at + len(data)

    async def stream_log(
        self, stream: str, position: Optional[int] = None
    ) -> AsyncIterator[Tuple[int, str]]:
        """Pairs of position and line of ``stdout`` or ``stderr``, until the program's end."""
        if stream not in self.command_obj.logs:
            raise ValueError(f"there are the streams 'stdout' and 'stderr', not {stream!r}")
        with open(self.command_obj.logs[stream], "rb") as file:
            file.seek(position or 0)
            left = b""
            while True:
                ended = self.returncode is not None
                line = file.readline()
                left += line
                if left.endswith(b"\n") or (left and ended and not line):
                    yield file.tell(), left.decode("utf-8", "replace").rstrip("\n")
                    left = b""
                elif not line:
                    if ended:
                        return
                    await asyncio.sleep(_POLL_S)


class ExecutingRun(ExecutingProcess):
    """A started run: ``run`` is the client's object."""

    def __init__(self, runner: Runner, process: _Process, found: Mapping[str, Any]) -> None:
        from .client import Run

        super().__init__(runner, process)
        self.run = Run(
            f"{found['flow_name']}/{found['run_id']}",
            _namespace_check=False,
            _current_metadata=found["metadata"],
        )

    async def wait(self, timeout: Optional[float] = None, stream: Optional[str] = None) -> Any:
        await super().wait(timeout, stream)
        self.run._run.forget()  # a short run may have ended right after the last read of its record
        return self


class ExecutingTask(ExecutingProcess):
    """A spun task: ``task`` has its results."""

    def __init__(self, runner: Runner, process: _Process, found: Mapping[str, Any]) -> None:
        from ._spun import SpunTask

        super().__init__(runner, process)
        self.task = SpunTask(found)


class Runner:
    """Starts a flow's file. A context manager: its end stops running programs and removes the logs.

    Args:
        flow_file: its path.
        show_output: print its output while ``run``, ``resume`` and ``spin`` wait.
        profile: accepted for Metaflow's programs, without effect.
        env: environment variables that override this process's.
        cwd: its working directory; default: the current one.
        file_read_timeout: seconds within which its run must exist.
        more: options before the command, such as ``quiet=True`` or ``config=[("c", "c.json")]``.
    """

    def __init__(
        self,
        flow_file: str,
        show_output: bool = True,
        profile: Optional[str] = None,
        env: Optional[Dict[str, str]] = None,
        cwd: Optional[str] = None,
        file_read_timeout: float = 3600,
        **more: Any,
    ) -> None:
        self.flow_file = os.path.abspath(flow_file)
        if not os.path.isfile(self.flow_file):
            raise FileNotFoundError(f"{flow_file}: no such file")
        self.show_output = show_output
        self.env_vars = {**os.environ, **(env or {})}
        if profile:
            self.env_vars["METAFLOW_PROFILE"] = profile
        self.cwd = cwd or os.getcwd()
        self.file_read_timeout = file_read_timeout
        self.top_level_kwargs = more
        self._processes: List[_Process] = []

    def __enter__(self) -> Runner:
        return self

    def __exit__(self, *_: Any) -> None:
        self.cleanup()

    async def __aenter__(self) -> Runner:
        return self

    async def __aexit__(self, *_: Any) -> None:
        self.cleanup()

    def _start(
        self, command: str, words: List[str], options: Mapping[str, Any], show: bool
    ) -> _Process:
        line = [sys.executable, *self._interpreter(), self.flow_file]
        line += [*_words(self.top_level_kwargs), command, *words, *_words(options)]
        kinds = {key: _kind(value) for key, value in options.items()}
        process = _Process(line, self.env_vars, self.cwd, show, self.file_read_timeout, kinds)
        self._processes.append(process)
        return process

    def _deploy(self, options: Mapping[str, Any]) -> Dict[str, Any]:
        """``deploy create``; what it says of the deployed flow."""
        line = [sys.executable, self.flow_file, *_words(self.top_level_kwargs), "deploy", "create"]
        process = _Process(
            [*line, *_words(options)],
            self.env_vars,
            self.cwd,
            self.show_output,
            self.file_read_timeout,
        )
        self._processes.append(process)
        return process.wait()

    def _interpreter(self) -> List[str]:
        return []

    def run(self, **kwargs: Any) -> ExecutingRun:
        """Run the flow to its end; ``kwargs`` are its parameters and options of ``run``
        (``tags=[…]``).

        Raises:
            ValueError: there is no such option or parameter. TypeError: a value isn't of its type.
            NoRunError: it ended before its run existed; a RuntimeError, too.
        """
        process = self._start("run", [], kwargs, self.show_output)
        return ExecutingRun(self, process, process.wait())

    def resume(self, **kwargs: Any) -> ExecutingRun:
        """Resume a run to its end; ``step_to_rerun``, ``origin_run_id`` …"""
        words, kwargs = _resumed(kwargs)
        process = self._start("resume", words, kwargs, self.show_output)
        return ExecutingRun(self, process, process.wait())

    def spin(self, pathspec: str, **kwargs: Any) -> ExecutingTask:
        """Run one step alone, with the inputs of a past task (``STEP``, or ``RUN/STEP/TASK``).

        Raises:
            NoRunError: the step failed.
        """
        _only_options_of_spin(kwargs)
        process = self._start("spin", [pathspec], kwargs, self.show_output)
        return ExecutingTask(self, process, process.wait())

    async def async_run(self, **kwargs: Any) -> ExecutingRun:
        """Start the flow; returns as soon as its run exists."""
        process = self._start("run", [], kwargs, False)
        return ExecutingRun(self, process, await process.begun())

    async def async_resume(self, **kwargs: Any) -> ExecutingRun:
        """Start to resume a run; returns as soon as the new run exists."""
        words, kwargs = _resumed(kwargs)
        process = self._start("resume", words, kwargs, False)
        return ExecutingRun(self, process, await process.begun())

    async def async_spin(self, pathspec: str, **kwargs: Any) -> ExecutingTask:
        """Start to run one step alone."""
        _only_options_of_spin(kwargs)
        process = self._start("spin", [pathspec], kwargs, False)
        return ExecutingTask(self, process, await process.begun())

    def cleanup(self) -> None:
        """Stop running programs and remove the logs."""
        while self._processes:
            self._processes.pop().remove()


def _resumed(options: Mapping[str, Any]) -> Tuple[List[str], Dict[str, Any]]:
    rest = dict(options)
    step = rest.pop("step_to_rerun", None)
    return ([] if step is None else [str(step)]), rest


def _only_options_of_spin(given: Mapping[str, Any]) -> None:
    """Refuse what isn't an option, such as a parameter: a spun step has its past task's.

    Raises:
        ValueError: there is such an argument.
    """
    from ._commands import table

    names = [o.name[2:].replace("-", "_") for o in table([]).commands["spin"].options]
    for one in given:
        if one not in names:
            raise ValueError(f"Unknown argument: '{one}', possible args are: {', '.join(names)}")


_NAMES = {"tags": "tag", "decospecs": "with", "user_namespace": "namespace"}


def _words(given: Mapping[str, Any]) -> List[str]:
    """Keyword arguments as words of a command line.

    Raises:
        TypeError: an option's value isn't of its kind.
    """
    words: List[str] = []
    known = {o.name[2:].replace("-", "_"): o for o in _options()}
    for key, value in given.items():
        name = _NAMES.get(key, key)
        option = known.get(name)
        if value is None:
            continue
        if option is None:  # a parameter: its name keeps its underscores
            words.append(f"--{name}={_text(value)}")
            continue
        _check(key, option, value)
        if option.kind == "flag":
            words.append(option.name if value else option.off)
        elif option.many:
            for one in value:
                words += [option.name, *map(_text, one if option.n > 1 else [one])]
        else:
            words.append(f"{option.name}={_text(value)}")
    return words


def _check(key: str, option: Any, value: Any) -> None:
    """Refuse what isn't of the option's kind; texts are made of any value."""
    if option.many:
        fits = isinstance(value, (list, tuple)) and (
            option.n > 1 or all(isinstance(one, str) for one in value)
        )
        kind = "a list" + (f" of {option.n} values each" if option.n > 1 else " of texts")
    elif option.kind == "flag":
        fits, kind = isinstance(value, bool), "True or False"
    else:
        fits = option.kind != "int" or (isinstance(value, int) and not isinstance(value, bool))
        kind = "a whole number"
    if not fits:
        raise TypeError(f"Invalid type for '{key}': it must be {kind}, but found {value!r}")


def _kind(value: Any) -> str:
    """A value's type by the name of the plain one that it is or extends."""
    plain = (bool, int, float, str, list, tuple, dict)
    return next((k for k in plain if isinstance(value, k)), type(value)).__name__


def _text(value: Any) -> str:
    if isinstance(value, bool) or value is None:
        return str(value).lower()
    return json.dumps(value) if isinstance(value, (dict, list, tuple)) else str(value)


def _options() -> List[Any]:
    from ._commands import table

    root = table([])
    own = [root.commands[n] for n in ("run", "resume", "spin")]
    own.append(root.commands["deploy"].commands["create"])
    return [o for c in (root, *own) for o in c.options]


class NBRunner:
    """Runs a flow that is defined in a notebook's cell.

    Args:
        flow: the flow's class. The other arguments are those of :class:`Runner`; ``base_dir`` is
            the working directory.
    """

    def __init__(
        self,
        flow: Any,
        show_output: bool = True,
        profile: Optional[str] = None,
        env: Optional[Dict[str, str]] = None,
        base_dir: Optional[str] = None,
        file_read_timeout: float = 3600,
        **more: Any,
    ) -> None:
        text = cell_source(flow, "NBRunner")
        folder = base_dir or os.getcwd()
        handle, self.path = tempfile.mkstemp(prefix=flow.__name__, suffix=".py", dir=folder)
        with open(handle, "w", encoding="utf-8") as file:
            file.write(text)
        env = {**(env or {}), "JPY_PARENT_PID": ""}  # the program isn't a kernel
        self.runner = Runner(
            self.path, show_output, profile, env, folder, file_read_timeout, **more
        )

    def nbrun(self, **kwargs: Any) -> Any:
        """Run it to its end and clean up; returns the client's ``Run``."""
        try:
            return self.runner.run(**kwargs).run
        finally:
            self.cleanup()

    def nbresume(self, **kwargs: Any) -> Any:
        """Resume a run to its end and clean up; returns the client's ``Run``."""
        try:
            return self.runner.resume(**kwargs).run
        finally:
            self.cleanup()

    def nbspin(self, pathspec: str, **kwargs: Any) -> Any:
        """Run one step alone and clean up; returns its task."""
        try:
            return self.runner.spin(pathspec, **kwargs).task
        finally:
            self.cleanup()

    def __getattr__(self, name: str) -> Any:
        if name in ("run", "resume", "spin", "async_run", "async_resume", "async_spin"):
            return getattr(self.runner, name)
        raise AttributeError(name)

    def cleanup(self) -> None:
        """Stop running programs; remove the file and the logs."""
        self.runner.cleanup()
        if os.path.exists(self.path):
            os.remove(self.path)
