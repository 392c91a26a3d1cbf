"""Steps with several processes: the start of the launcher, and the work of a rank.

The process that the engine starts for such a step becomes the launcher: it sets accelerate's
environment, forks a server that has everything imported, and executes ``stoker launch``. The ranks
are forks of that server, or fresh interpreters if forking is unsafe. Each rank loads the step's
inputs and calls its function; rank 0's results are the step's outputs. Works on Python 3.7, like
all modules of the worker.
"""

from __future__ import annotations

import json
import os
import sys

from .._base.binary import find
from .._base.errors import SettingsError
from .._definition.entry import NOTES
from . import line

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, List, Mapping, NoReturn, Optional

    from .._definition.entry import Entry

_MARK = "STOKER_RANK_DIR"  # variable with <attempt directory>/rank-K, set by the launcher


def _nodes(task: Mapping[str, Any]) -> int:
    return int((task.get("gang") or {}).get("nodes") or 1)


# ---------------------------------------------------------------------------- becoming the launcher

_threads: Optional[str] = None  # of each rank, if the options set it; ranks inherit it by fork


_mine: Optional[Rank] = None


def rank_in(directory: str) -> Optional[Rank]:
    """This process's rank in the attempt, or None."""
    own = os.environ.get(_MARK, "")
    if not own or os.path.realpath(os.path.dirname(own)) != os.path.realpath(directory):
        return None
    global _mine
    if _mine is None or _mine.own != own:  # its notes must be taken only once
        _mine = Rank(own, int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]))
    return _mine


def launch(
    directory: str,
    task: Mapping[str, Any],
    entry: Entry,
    main_file: Optional[str],
    serve: Callable[..., Any],
) -> NoReturn:
    """Become ``stoker launch``, the launcher of the attempt's ranks, in the same process.

    Args:
        serve: the fork server's :func:`.server.serve`, for the ranks.

    Raises:
        ImportError, SettingsError, ValueError: accelerate is missing, or refuses its options.
        EngineError: the ``stoker`` binary isn't found.
    """
    global _threads
    from . import fitness

    binary = find()
    how = entry.launch
    if how is not None and how.kind == "accelerate":
        from .._definition import accelerate

        devices = (task.get("granted") or {}).get("devices") or []
        ranks = int(task["gang"]["ranks"])
        node = int(os.environ.get("STOKER_GANG_NODE") or 0)
        made = accelerate.environment(how.options, ranks, len(devices), _nodes(task), node)
        os.environ.update(made)
        _threads = made.get("OMP_NUM_THREADS")
    command = [binary, "launch", "--gang", f"{directory}/task.json"]
    facts = fitness.prepare()
    leads = _nodes(task) > 1 and "STOKER_GANG_RDZV" not in os.environ  # this node starts the others
    if leads and entry.importable is None:
        raise SettingsError(
            f"step '{task['step']}' runs on several machines, which must import its function, but it is a closure or "
            "defined in a notebook; move it to the top of a file"
        )
    forks = entry.importable is None or not fitness.Fitness(facts).why_unfit()
    if forks:
        command += ["--forkserver-fd", str(_fork_server(task, entry, main_file, facts, serve))]
    if leads or not forks:
        command += ["--", sys.executable, "-m", "stoker._worker", directory]
        if main_file is not None:
            command += ["--main", main_file]
    os.execv(binary, command)


def _fork_server(
    task: Mapping[str, Any],
    entry: Entry,
    main_file: Optional[str],
    facts: Dict[str, Any],
    serve: Callable[..., Any],
) -> int:
    """Fork a server of this step's ranks; returns the launcher's end of its socket, inheritable."""
    import socket

    ours, theirs = socket.socketpair()
    if os.fork() == 0:
        ours.close()
        serve(theirs, {str(task["step"]): entry}, main_file, facts=facts)
    theirs.close()
    fd = ours.detach()
    os.set_inheritable(fd, True)
    return fd


# ---------------------------------------------------------------------------- a rank


class Rank:
    """One rank and its folder ``rank-K`` of the attempt directory.

    ``rank-K/result.json`` is rank K's result. The attempt's result is rank 0's if no rank fails;
    else the launcher writes it, which knows the rank that failed first.
    """

    def __init__(self, own: str, number: int, world: int) -> None:
        self.own = own
        self.number = number
        self.world = world
        self.directory = os.path.dirname(own)
        self.restart = int(os.environ.get("TORCHELASTIC_RESTART_COUNT") or 0)
        self.local = int(os.environ.get("LOCAL_RANK") or 0)
        self.line = line.Line(self.local)
        self.notes = os.environ.pop(NOTES, "").splitlines()

    def begin(self, task: Mapping[str, Any]) -> None:
        """Prepare for user code: remove files of an earlier round, dump the stack at SIGUSR1, start
        the pulse."""
        import faulthandler
        import signal

        os.makedirs(self.own, exist_ok=True)
        for old in [f"{self.own}/result.json"] + [f"{self.directory}/result.json"] * (
            not self.number
        ):
            try:
                os.unlink(old)
            except FileNotFoundError:
                pass
        if _threads is not None:
            os.environ["OMP_NUM_THREADS"] = _threads
        threads = os.environ.get("OMP_NUM_THREADS", "")
        if "torch" in sys.modules and threads.isdigit():  # loaded before the rank's share was known
            from . import fitness

            fitness.ThreadedLibraries().set_threads(int(threads))
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        stack = os.open(f"{self.own}/stack.txt", flags, 0o644)
        faulthandler.register(signal.SIGUSR1, file=stack, all_threads=True)
        hang_ms = int((task.get("gang") or {}).get("hang_ms") or 0)
        if hang_ms > 0:
            from . import pulse

            pulse.start(self.own, hang_ms)

    def end(
        self, result: Dict[str, Any], write: Callable[[str, str, Dict[str, Any]], None]
    ) -> None:
        """Write this rank's result; rank 0 also writes the step's."""
        if "error" in result:
            error = result["error"]
            error.setdefault("raw", error["message"])
            error["message"] = f"rank {self.number} of {self.world}: {error['message']}"
        write(self.own, "result.json", result)
        if self.number == 0:
            write(self.directory, "result.json", result)
            if "error" not in result:
                # Rank 0 ends last, because PyTorch's store is in its process and the others need
                # it. (With torchrun the store is in the agent, so scripts rely on it.)
                self.line.come(line.ALONE)
                self.line.over(line.ALONE)

    def meet(self) -> None:
        """Wait until the scripts of all ranks have ended."""
        self.line.come(line.SCRIPT)
        self.line.barrier(line.SCRIPT)

    def leave(self, collects: bool = False) -> None:
        """Wait until the functions of all ranks have returned, if others may still need this rank,
        or it needs them.

        If a rank left its process group early, others that still connect to it would fail. If a
        rank dies or hangs, the launcher ends them all.

        Args:
            collects: this rank needs the others' results.
        """
        self.line.come(line.RETURNED)
        if (collects or _joined()) and not self.line.over(line.RETURNED) and collects:
            from .preemption import stop

            stop()

    def share(
        self, entries: Mapping[str, Any], write: Callable[[str, str, Dict[str, Any]], None]
    ) -> None:
        """Write this rank's outputs for rank 0."""
        write(self.own, self._shared, {"outputs": dict(entries)})

    def collect(self, k: int) -> Dict[str, Dict[str, Any]]:
        """The outputs of rank K, which :func:`share` wrote there."""
        path = f"{self.directory}/rank-{k}/{self._shared}"
        with open(path, encoding="utf-8") as stream:
            outputs: Dict[str, Dict[str, Any]] = json.load(stream)["outputs"]
        for entry in outputs.values():
            if "path" in entry:
                entry["path"] = f"{self.directory}/rank-{k}/{entry['path']}"
        return outputs

    @property
    def _shared(self) -> str:
        return f"returned-{self.restart}.json"


def _joined() -> bool:
    """Whether this process is in a process group of PyTorch."""
    distributed: Any = sys.modules.get("torch.distributed")
    try:
        return distributed is not None and bool(distributed.is_initialized())
    except Exception:  # a build without it, or a stand-in for the module
        return False


def run_script(path: str, words: List[str]) -> None:
    """Run a script like ``python PATH WORDS…``, in this process.

    Raises:
        SystemExit: the script called ``sys.exit``.
    """
    import runpy

    before = sys.argv, sys.path[:]
    sys.argv = [path, *words]
    sys.path.insert(0, os.path.dirname(path))
    try:
        runpy.run_path(path, run_name="__main__")
    finally:
        sys.argv, sys.path[:] = before


def gathered(
    rank: Rank, own: Mapping[str, Any], load: Callable[[Dict[str, Any]], Any]
) -> Dict[str, List[Any]]:
    """For each output the values of all ranks, rank 0's first."""
    lists: Dict[str, List[Any]] = {name: [value] for name, value in own.items()}
    for k in range(1, rank.world):
        for name, entry in rank.collect(k).items():
            lists[name].append(load(entry))
    return lists
