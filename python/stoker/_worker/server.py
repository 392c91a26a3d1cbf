"""The fork server: starts each Python step as a fork of a process that has everything imported.

The front forks it from the user's process (``prepare`` before, ``serve`` in the child). A *clean*
one is ``python -m stoker._worker.server --fd N [--main FILE]``, a fresh interpreter that imports
the user's file. The protocol is docs/formats/server-protocol.md. It has one thread and one poll
loop, and forks once for each task: it sends ``started`` with the task's pidfd, reaps the task and
sends ``ended``. Before the first task it checks whether forking is safe (an OpenMP pool, an open
device, other threads); see :mod:`stoker._worker.fitness`.

A task's cost is mostly pages: the kernel copies each page that the child writes to, even for a
reference count. So the child touches as few objects as it can before the user's function: it uses C
functions instead of Python wrappers and raw descriptors instead of objects, and leaves all possible
work to the server.
"""

from __future__ import annotations

import _signal  # signal.signal converts its results to enumeration members
import gc
import json
import os
import select
import signal
import socket
import struct
import sys
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple

from .._definition.entry import Entry
from . import attempt, fitness, line, reads, seeds, seen, stacks

_VERSION = 1
_MAX_MESSAGE = 64 << 20
_MAX_FDS = 250  # the kernel passes at most 253 in one message
_IGNORED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
_ENGINE_DIED = signal.SIGUSR1
_RESET = tuple(  # plain numbers, cheap for the child
    int(one) for one in (*_IGNORED, signal.SIGCHLD, _ENGINE_DIED) if one != signal.SIGINT
)
_PR_SET_PDEATHSIG = 1
_PR_SET_NO_NEW_PRIVS = 38
_SYS_PIDFD_OPEN = 434  # the same on all architectures with Python on Linux
_decode = json.JSONDecoder().raw_decode

prepare = fitness.prepare


def serve(
    sock: socket.socket,
    registry: Mapping[str, Entry],
    main_file: Optional[str],
    *,
    facts: Optional[Dict[str, Any]] = None,
    clean: bool = False,
    main_error: Optional[BaseException] = None,
) -> None:
    """Serve until the engine's end of ``sock`` closes; never returns.

    Args:
        registry: step name → entry; other steps are found by ``entry`` in ``task.json``.
        main_file: the user's file, reported to the engine.
        facts: the result of :func:`prepare` in the parent process.
        clean: this is a fresh interpreter. If forking is unsafe even here (the import of the user's
            file opens a device), each task gets an interpreter of its own.
        main_error: the exception from the import of the user's file; steps fail with it.
    """
    status = 1
    try:
        server = _Server(sock, registry, main_file, facts or {}, clean, main_error)
        server.run()
        status = 0
    except ConnectionError:
        pass  # the engine ended before its first request
    except BaseException as exc:
        sys.stderr.write(f"stoker: the fork server failed: {type(exc).__name__}: {exc}\n")
    finally:
        os._exit(status)


attempt.serve = serve


class _Server:
    def __init__(
        self,
        sock: socket.socket,
        registry: Mapping[str, Entry],
        main_file: Optional[str],
        facts: Dict[str, Any],
        clean: bool,
        main_error: Optional[BaseException],
    ) -> None:
        self.sock = sock
        self.registry = registry
        self.main_file = main_file
        self.clean = clean
        self.main_error = main_error
        self.fitness = fitness.Fitness(facts)
        self.libraries: Optional[fitness.ThreadedLibraries] = None
        self.tasks: Dict[int, int] = {}  # pid → id of the spawn
        self.folders: Dict[int, str] = {}  # pid → its attempt directory
        self.changed: Dict[str, Optional[str]] = {}  # variable set for tasks → its value before
        self.pid = os.getpid()
        libc = fitness.libc()
        self.prctl, self.fflush = libc.prctl, libc.fflush
        self.sock_fd = sock.fileno()

    # ------------------------------------------------------------------ start and loop

    def run(self) -> None:
        self._become_server()
        self.send(
            {
                "op": "hello",
                "pid": self.pid,
                "python": sys.version.split()[0],
                "main": self.main_file,
                "version": _VERSION,
            }
        )
        try:
            self._loop()
        except (BrokenPipeError, ConnectionResetError):
            pass  # the engine has ended, as at end of file
        finally:
            self._end_all()

    def _loop(self) -> None:
        poll = select.poll()
        poll.register(self.sock, select.POLLIN)
        poll.register(self.wake_r, select.POLLIN)
        while True:
            for fd, _ in poll.poll():
                if fd != self.wake_r:
                    if not self._serve_one():
                        return
                    continue
                os.read(self.wake_r, 4096)
                if os.getppid() != self.engine_pid:
                    return
                self._reap()

    def _become_server(self) -> None:
        """Set up signals, standard streams, and everything else that each child would have to
        do."""
        for number in range(1, signal.NSIG):
            if callable(signal.getsignal(number)):
                signal.signal(number, signal.SIG_DFL)
        for number in _IGNORED:
            signal.signal(number, signal.SIG_IGN)
        self.wake_r, self.wake_w = os.pipe()
        os.set_blocking(self.wake_w, False)
        for number in (signal.SIGCHLD, _ENGINE_DIED):
            signal.signal(number, _ignore)
        signal.set_wakeup_fd(self.wake_w, warn_on_full_buffer=False)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        stacks.write_at_crashes()
        # Not SIGKILL: the server must live long enough to kill the processes of its tasks.
        self.prctl(_PR_SET_PDEATHSIG, _ENGINE_DIED, 0, 0, 0)
        self.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)  # children inherit it
        peer = self.sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
        self.engine_pid = struct.unpack("3i", peer)[0]
        if os.getppid() != self.engine_pid:
            raise ConnectionAbortedError(
                f"the engine (process {self.engine_pid}) ended before the server began"
            )
        self.null = os.open(os.devnull, os.O_RDONLY)
        self.old_streams = (sys.stdout, sys.stderr, sys.__stdout__, sys.__stderr__, sys.stdin)
        sys.stdout = sys.__stdout__ = _stream(1)  # type: ignore[misc]
        sys.stderr = sys.__stderr__ = _stream(2)  # type: ignore[misc]
        sys.stdin = sys.__stdin__ = _stream(0, "r")  # type: ignore[misc]
        sys.modules.setdefault("__mp_main__", sys.modules["__main__"])
        self.fflush(None)
        import atexit
        import resource

        if any(name in sys.modules for name in ("numpy", "pandas", "torch")):
            # Steps of such a program pass large values: load the modules for this once, not in each
            # step.
            import mmap  # noqa: F401

            from ..materializers import (
                _arrays,  # noqa: F401
                _files,  # noqa: F401
                _plain,  # noqa: F401
                _spend,  # noqa: F401
            )

        atexit._clear()  # the functions registered so far belong to the user's process
        self.run_exit_functions = atexit._run_exitfuncs
        self.atexit_count = atexit._ncallbacks
        self.resource = resource
        # ranks have one from before accelerate's import
        reads.prepare()
        reads.forget_results()
        attempt.baseline = attempt.baseline or seen.Baseline()
        gc.freeze()

    # ------------------------------------------------------------------ messages

    def send(self, message: Dict[str, Any]) -> None:
        self.send_text(json.dumps(message))

    def send_text(self, text: str, fds: Tuple[int, ...] = ()) -> None:
        raw = text.encode("ascii")
        raw = len(raw).to_bytes(4, "little") + raw
        passed = (
            [(socket.SOL_SOCKET, socket.SCM_RIGHTS, struct.pack(f"{len(fds)}i", *fds))]
            if fds
            else []
        )
        sent = self.sock.sendmsg([raw], passed)
        if sent < len(raw):
            self.sock.sendall(raw[sent:])

    def receive(self) -> Tuple[Optional[Dict[str, Any]], List[int]]:
        """The next message and its descriptors; None at end of file.

        Reads the header by itself: descriptors arrive with a message's first byte, so those that
        arrive with these four bytes belong to this message.
        """
        fds: List[int] = []
        head = b""
        while len(head) < 4:
            part, ancillary, _, _ = self.sock.recvmsg(
                4 - len(head), socket.CMSG_SPACE(_MAX_FDS * 4)
            )
            for level, kind, data in ancillary:
                if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                    fds += struct.unpack(f"{len(data) // 4}i", data[: len(data) // 4 * 4])
            if not part:
                return None, fds
            head += part
        length = int.from_bytes(head, "little")
        if length > _MAX_MESSAGE:
            raise RuntimeError(f"a message of {length} bytes is above the limit of {_MAX_MESSAGE}")
        body = b""
        while len(body) < length:
            part = self.sock.recv(length - len(body))
            if not part:
                return None, fds
            body += part
        message = _decode(body.decode("utf-8"))[0]
        return (message if isinstance(message, dict) else {}), fds

    def _serve_one(self) -> bool:
        try:
            message, fds = self.receive()
        except (ConnectionError, OSError):
            return False
        try:
            if message is None or message.get("op") == "quit":
                return False
            if message.get("op") == "spawn":
                self._spawn(message, fds)
            else:
                self.send({"op": "failed", "id": message.get("id"), "error": "unknown op"})
        except (BrokenPipeError, ConnectionResetError):
            return False
        finally:
            for fd in fds:
                os.close(fd)
        return True

    # ------------------------------------------------------------------ tasks

    def _spawn(self, message: Dict[str, Any], fds: List[int]) -> None:
        task_id = message.get("id")
        if len(fds) < 2 or not isinstance(message.get("dir"), str):
            error = "a spawn needs a directory and the descriptors of its stdout and stderr"
            self.send({"op": "failed", "id": task_id, "error": error})
            return
        entry = self._entry_of(message)
        threads = message.get("threads")
        why = self.fitness.why_unfit()
        if why and entry is not None and entry.importable is not None:
            self.send({"op": "unfit", "id": task_id, "why": why})
            return
        if why:
            note = self.fitness.note(why, self.clean)
            if self.fitness.one_thread and not self.clean:
                threads = 1
            if note:
                self.send({"op": "note", "id": task_id, "text": note})
        if threads and self.libraries is None:
            self.libraries = fitness.ThreadedLibraries()
        self._set_environment(message.get("env") or {}, message.get("unset") or ())
        try:
            pid = os.fork()
        except OSError as exc:
            self.send({"op": "failed", "id": task_id, "error": f"fork: {exc.strerror}"})
            return
        if pid == 0:
            self._child(message, fds, entry, threads, fresh=bool(why) and self.clean)
        self.tasks[pid] = task_id if isinstance(task_id, int) else -1
        self.folders[pid] = str(message["dir"])
        pidfd = _pidfd_open(pid)
        try:
            text = f'{{"op":"started","id":{self.tasks[pid]},"pid":{pid}}}'
            self.send_text(text, (pidfd,) if pidfd >= 0 else ())
        finally:
            if pidfd >= 0:
                os.close(pidfd)

    def _set_environment(self, given: Dict[str, str], unset: Sequence[str]) -> None:
        """Set the next task's environment. The server does it, because most of it equals the last
        task's."""
        changed = [name for name in self.changed if name not in given and name not in unset]
        for name in changed:
            before = self.changed.pop(name)
            if before is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = before
        for name in unset:
            if name in os.environ:
                self.changed.setdefault(name, os.environ.pop(name))
        for name, value in given.items():
            before = os.environ.get(name)
            if before != value:
                self.changed.setdefault(name, before)
                os.environ[name] = value

    def _entry_of(self, message: Dict[str, Any]) -> Optional[Entry]:
        """The registered entry of the message's step (the directory is ``…/STEP/TASK/ATTEMPT``)."""
        if not self.registry:
            return None
        parts = message["dir"].rstrip("/").split("/")
        name = message.get("step") or (parts[-3] if len(parts) > 3 else "")
        return self.registry.get(name)

    def _reap(self) -> None:
        while self.tasks:
            try:
                which = self._end_group()
                if which == 0:
                    return
                pid, status, used = os.wait4(which, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            task_id = self.tasks.pop(pid, None)
            folder = self.folders.pop(pid, None)
            if task_id is None:
                continue
            if folder and os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGSEGV:
                _tell_of_crash(folder)
            self.send_text(
                f'{{"op":"ended","id":{task_id},"status":{status},"utime_us":{used.ru_utime * 1e6:.0f},'
                f'"stime_us":{used.ru_stime * 1e6:.0f},"maxrss_kb":{used.ru_maxrss}}}'
            )

    def _end_group(self) -> int:
        """Return the pid of a task that has ended; 0: none has.

        Kills the rest of its process group before the task is reaped: until then no other process
        gets its number.
        """
        ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        if ended is None:
            return 0
        try:
            if ended.si_pid in self.tasks:
                os.killpg(ended.si_pid, signal.SIGKILL)
        except ProcessLookupError:
            pass  # it ended before it had its own group
        return ended.si_pid

    def _end_all(self) -> None:
        """Kill every task's session, because the engine has ended or asks for it."""
        leaders = set(self.tasks)
        for pid in leaders:
            os.kill(pid, signal.SIGKILL)
        for _ in range(10):  # a member may fork while this reads the list
            members = _sessions_members(leaders)
            if not members:
                break
            for pid in members:
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass
        for pid in leaders:
            try:
                os.waitpid(pid, 0)
            except ChildProcessError:
                pass

    # ------------------------------------------------------------------ in the child

    def _child(
        self,
        message: Dict[str, Any],
        fds: List[int],
        entry: Optional[Entry],
        threads: Any,
        fresh: bool,
    ) -> None:
        """Become the task, in the order of docs/formats/server-protocol.md; never returns."""
        status = 1
        try:
            try:
                self._become_task(message, fds, threads)
            except Exception as exc:
                error = f"{type(exc).__name__}: {exc}"
                self.send({"op": "failed", "id": message.get("id"), "error": error})
                os._exit(127)
            os.close(self.sock_fd)  # closes only the descriptor; the object isn't used again
            if fresh:
                self._exec_worker(message)
            hook, error = message.get("hook"), message.get("error") or ""
            ended = attempt.run_attempt(
                message["dir"], entry, hook, error, self.main_error, self.main_file
            )
            self._end_task()
            status = ended
        except BaseException as exc:  # from us or an exit function: write it to the log
            try:
                sys.stderr.write(f"stoker: {type(exc).__name__}: {exc}\n")
            except BaseException:
                pass
        finally:
            os._exit(status)

    def _become_task(self, message: Dict[str, Any], fds: List[int], threads: Any) -> None:
        os.setsid()
        self.prctl(_PR_SET_PDEATHSIG, _signal.SIGKILL, 0, 0, 0)
        if os.getppid() != self.pid:
            os._exit(1)
        _signal.set_wakeup_fd(-1)
        for number in _RESET:
            _signal.signal(number, _signal.SIG_DFL)
        _signal.signal(_signal.SIGINT, _signal.default_int_handler)
        for path in message.get("cgroup_procs") or ():
            fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
            os.write(fd, b"0")
            os.close(fd)
        cpus = message.get("cpus")
        if cpus:
            os.sched_setaffinity(0, cpus)
        for name, value in (message.get("rlimits") or {}).items():
            limits = value if isinstance(value, list) else (value, value)
            self.resource.setrlimit(getattr(self.resource, f"RLIMIT_{name.upper()}"), tuple(limits))
        os.dup2(self.null, 0)
        os.dup2(fds[0], 1)
        os.dup2(fds[1], 2)
        os.close(fds[0])
        os.close(fds[1])
        os.close(self.null)
        os.close(self.wake_r)
        os.close(self.wake_w)
        if line.VARIABLE in (message.get("env") or ()):  # the launcher's descriptor numbers
            os.environ[line.VARIABLE] = ",".join(map(str, fds[2:]))
        if threads:
            attempt.set_thread_variables(threads, message.get("env") or {})
            if self.libraries is not None:
                self.libraries.set_threads(threads)
        seeds.refresh()
        if message.get("cwd"):
            os.chdir(message["cwd"])

    def _exec_worker(self, message: Dict[str, Any]) -> None:
        """Become a fresh interpreter; the task stays the same process."""
        if message.get("hook"):
            os.environ["STOKER_HOOK"] = message["hook"]
            os.environ["STOKER_ERROR"] = message.get("error") or ""
        command = [sys.executable, "-m", "stoker._worker", message["dir"]]
        if self.main_file is not None:
            command += ["--main", self.main_file]
        os.execv(sys.executable, command)

    def _end_task(self) -> None:
        """Do the parts of the interpreter's end that the step needs."""
        threading: Any = sys.modules.get("threading")  # not loaded means no threads
        if threading is not None and threading.active_count() > 1:
            from . import lingering

            lingering.tell_of_threads()
            threading._shutdown()
        if self.atexit_count():
            self.run_exit_functions()
        for stream in (sys.stdout, sys.stderr, *self.old_streams[:4]):
            try:
                if stream is not None:
                    stream.flush()
            except (OSError, ValueError, AttributeError):
                pass
        self.fflush(None)


def _ignore(number: int, frame: Any) -> None:
    """A handler for signals that only wake the loop."""


def _stream(fd: int, mode: str = "w") -> Any:
    """A text stream on a descriptor whose file changes later; writes whole lines, for readers that
    follow the log."""
    return open(fd, mode, buffering=1, encoding="utf-8", errors="backslashreplace", closefd=False)


def _tell_of_crash(folder: str) -> None:
    """Say in a task's log what it can't say itself."""
    try:
        log = os.open(os.path.join(folder, "stderr.log"), os.O_WRONLY | os.O_APPEND)
    except OSError:  # its ranks have logs of their own
        return
    with os.fdopen(log, "wb", 0) as file:
        file.write(b"Task failed with a segmentation fault.\n")


def _pidfd_open(pid: int) -> int:
    """A descriptor of the process, or -1 if the kernel lacks pidfds (before 5.3)."""
    opener = getattr(os, "pidfd_open", None)  # some builds of Python lack it
    if opener is None:
        return int(fitness.libc().syscall(_SYS_PIDFD_OPEN, pid, 0))
    try:
        return int(opener(pid))
    except OSError:
        return -1


def _sessions_members(leaders: Any) -> List[int]:
    """Living processes of the sessions that these processes lead."""
    members = []
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            with open(f"/proc/{name}/stat", "rb") as stream:
                fields = stream.read().rpartition(b")")[2].split()
        except OSError:
            continue
        if int(fields[3]) in leaders and fields[0] not in (b"Z", b"X"):
            members.append(int(name))
    return members


def _main(argv: List[str]) -> None:
    import argparse

    parser = argparse.ArgumentParser(
        prog="python -m stoker._worker.server",
        description="the clean fork server; the engine starts it",
    )
    parser.add_argument("--fd", type=int, required=True, help="socket to the engine")
    parser.add_argument("--main", help="the user's file, imported as __mp_main__")
    options = parser.parse_args(argv)
    sock = socket.socket(fileno=options.fd)
    sock.set_inheritable(False)
    main_file = os.path.abspath(options.main) if options.main else None
    error = attempt.import_main(main_file) if main_file else None
    serve(sock, {}, main_file, facts=prepare(), clean=True, main_error=error)


if __name__ == "__main__":
    # Under -m this file is `__main__`, which will become the user's module: use the imported module
    # instead.
    from stoker._worker import server

    server._main(sys.argv[1:])
