"""Steps of many processes: ``@run_with_accelerate``, ``@torchrun``, and what a rank does in its process.

A decorator sets the step's ``gang`` setting and keeps its options with the step (docs/decisions/0006-ranks.md).
The process that the engine starts for such a step becomes the launcher: it puts accelerate's environment in place,
leaves a fork server behind that has everything imported, and ``exec``s ``stoker launch``. The ranks are forks of
that server, or fresh interpreters where forking is unfit. Each loads the step's inputs and calls its function;
what rank 0 returns are the step's outputs. Works on Python 3.7, as all that a worker needs.
"""

from __future__ import annotations

import json
import os
import sys

from . import line

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, List, Mapping, NoReturn, Optional

    from .entry import Entry

_MARK = "STOKER_RANK_DIR"  # <attempt directory>/rank-K, set by the launcher
NOTES = "STOKER_GANG_NOTES"  # lines that rank 0 hands on as warnings of the run
_MAX_RANKS, _MAX_RESTARTS = 1024, 1000  # the engine's limits
_GPU_WAYS = ("multi_gpu", "use_deepspeed", "use_fsdp", "use_megatron_lm")
_TORCHRUN = (
    *("nproc_per_node", "nnodes", "master_port", "max_restarts"),
    *("entrypoint", "entrypoint_args"),
)


# ---------------------------------------------------------------------------- the decorators


def kind_name(kind: str) -> str:
    """Name of the decorator of this kind."""
    return "torchrun" if kind == "torchrun" else "run_with_accelerate"


class Launch:
    """How a step's processes are started: by whose rules (``accelerate`` or ``torchrun``), with which options."""

    def __init__(self, kind: str, options: Mapping[str, Any], all_ranks: bool) -> None:
        self.kind = kind
        self.options = dict(options)
        self.all_ranks = all_ranks

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Launch) and vars(self) == vars(other)

    __hash__ = None  # type: ignore[assignment]

    def code(self) -> Dict[str, str]:
        """What of it counts in the step's cache key."""
        import hashlib

        text = json.dumps([self.options, self.all_ranks], sort_keys=True, default=repr)
        for name in ("config_file", "entrypoint"):
            if self.options.get(name):
                with open(self.options[name], encoding="utf-8") as stream:
                    text += stream.read()
        return {f"options of {self.decorator}": hashlib.sha256(text.encode()).hexdigest()[:32]}

    @property
    def decorator(self) -> str:
        """The decorator's name."""
        return kind_name(self.kind)

    @property
    def uses(self) -> List[str]:
        """Frameworks that every rank loads, whatever its function imports."""
        return ["torch"] if self.kind == "accelerate" else []

    def check(self, where: str) -> None:
        """Have accelerate's own parser look at the options, where accelerate can be imported.

        Raises:
            SettingsError: an unknown option or a wrong value (in the shim it is dropped with a warning).
        """
        if self.kind == "accelerate" and self.options:
            from . import accelerate

            if accelerate.available():
                self.options = accelerate.checked(f"{where}: run_with_accelerate", self.options)

    def gpus(self) -> int:
        """GPUs of each machine that the options ask for by themselves; 0 where they don't."""
        options = self.options
        if options.get("cpu") or not any(options.get(one) for one in _GPU_WAYS):
            return 0
        return int(options.get("num_processes") or 0) // int(options.get("num_machines") or 1)


def run_with_accelerate(_step: Any = None, *, all_ranks: bool = False, **options: Any) -> Any:
    """Run a step on many processes, as ``accelerate launch`` would: put it above ``@step``, bare or with options.

    Args:
        options: those of ``accelerate launch``, checked by the installed accelerate's own parser:
            ``num_processes`` (default: as many as the step was granted GPUs, else one), ``cpu``, ``multi_gpu``,
            ``mixed_precision``, ``config_file`` … The user's default config file never counts.
        all_ranks: each output is a list of what all ranks returned, in order of rank; else it is rank 0's.

    Every rank gets the step's arguments and runs its function. Metadata is that of rank 0. A rank that fails
    fails the step by its own error. ``multi_gpu`` and its kin with ``num_processes`` ask for as many GPUs, unless
    the step's resources say how many; where there are none the ranks run on CPUs (policy ``fit``).
    ``num_machines`` runs it on as many, ``num_processes`` counting the ranks of all (as with accelerate) and
    resources those of each; which machine this is, and where they meet, is Stoker's to say.

    Raises:
        RuntimeError: used on something that is no step, twice, or inside of a pipeline's function.
        SettingsError: an option or value that accelerate doesn't know (a warning in the compatibility shim).
    """
    return _decorator(_step, "accelerate", options, all_ranks)


def torchrun(
    _step: Any = None,
    *,
    nproc_per_node: Any = None,
    entrypoint: Any = None,
    entrypoint_args: Any = None,
    all_ranks: bool = False,
    **options: Any,
) -> Any:
    """Run a step on many processes with the environment that ``torchrun`` makes; put it above ``@step``.

    Args:
        nproc_per_node: number of ranks; ``"gpu"``, ``"auto"`` or None: as many as the step was granted GPUs, else one.
        all_ranks: as in :func:`run_with_accelerate`.
        entrypoint: a Python script that every rank runs as ``__main__``. When all have, they call the step's
            function, which makes the step's outputs of what the script left. It is looked for beside the step's
            file, then in the working directory; it can ask ``get_step_context().inputs`` for the step's arguments, its content
            counts in the cache key, and its exit status other than 0 fails the rank.
        entrypoint_args: its words, or a mapping: ``{"lr": 0.1, "amp": True}`` is ``--lr 0.1 --amp`` (None and False are
            left out, a list is several words).
        options: ``nnodes`` (machines, each with ``nproc_per_node`` ranks), ``master_port``, ``max_restarts``.

    Raises:
        RuntimeError: used on something that is no step, twice, or inside of a pipeline's function.
        SettingsError: an unknown option, a value out of range, or a script that isn't there.
    """
    options = {"entrypoint": entrypoint, "entrypoint_args": entrypoint_args, **options}
    return _decorator(_step, "torchrun", {"nproc_per_node": nproc_per_node, **options}, all_ranks)


def _decorator(step: Any, kind: str, options: Mapping[str, Any], all_ranks: bool) -> Any:
    if step is None:
        return lambda given: _decorate(given, kind, options, all_ranks)
    return _decorate(step, kind, options, all_ranks)


def _decorate(step: Any, kind: str, options: Mapping[str, Any], all_ranks: bool) -> Any:
    from .._decorators.step import Step
    from .._definition.graph import active_graph
    from .._definition.layers import merge

    if getattr(step, "is_step", False) and not isinstance(step, Step):  # of a flow
        from ..flow._decorators import attach_to_step

        said = {**options, "all_ranks": all_ranks or None}
        return attach_to_step(
            kind_name(kind), step, {k: v for k, v in said.items() if v is not None}
        )
    launch = Launch(kind, {k: v for k, v in options.items() if v is not None}, all_ranks)
    name = launch.decorator
    example = f"write\n\n    @{name}(...)\n    @step\n    def training_step(...): ..."
    if not isinstance(step, Step):
        what = f"'{step.__name__}'" if callable(step) and hasattr(step, "__name__") else repr(step)
        raise RuntimeError(
            f"`{name}` belongs directly above @step, but {what} is no step: {example}"
        )
    if active_graph() is not None:
        raise RuntimeError(
            f"`{name}` can't be used as a function inside of a pipeline; decorate step '{step.name}' where it is "
            f"defined: {example}"
        )
    if step.launch is not None:
        raise RuntimeError(
            f"step '{step.name}' is launched by `{step.launch.decorator}` already; give all options there: {example}"
        )
    where = f"step '{step.name}': {name}"
    if all_ranks and step.materializers:
        from .._base.errors import SettingsError

        raise SettingsError(
            f"{where}: all_ranks makes each output a list, which output_materializers know nothing of; "
            "leave one of them out"
        )
    if kind == "torchrun":
        _find_script(where, step.entrypoint, launch.options)
        gang = _torchrun_gang(where, launch.options)
    else:
        gang = accelerate_gang(where, launch.options)
    step.launch = launch
    step.layer = merge(step.layer, {"gang": gang})
    return step


def accelerate_gang(where: str, options: Dict[str, Any]) -> Dict[str, Any]:
    """The ``gang`` setting; the parser checks the other options later, where it is."""
    from . import accelerate

    said = dict(options)
    if options.get("config_file") is not None:
        options["config_file"] = os.path.abspath(str(options["config_file"]))
        said = {**accelerate.from_config_file(where, options["config_file"]), **said}
    machines = _machines(where, "num_machines", said.get("num_machines"))
    ranks = said.get("num_processes")
    if machines > 1 and isinstance(ranks, int) and not isinstance(ranks, bool):
        if ranks % machines or ranks < machines:
            from .._base.errors import SettingsError

            raise SettingsError(
                f"{where}: num_processes is {ranks}, which num_machines {machines} can't share equally; it counts "
                f"the processes of all machines: make it a multiple of {machines}"
            )
        said["num_processes"] = ranks // machines
    return _gang_of(where, said, "num_processes", "main_process_port", machines)


def _torchrun_gang(where: str, options: Dict[str, Any]) -> Dict[str, Any]:
    from .._base.errors import refuse_unknown

    refuse_unknown(where, "option", options, _TORCHRUN)
    machines = _machines(where, "nnodes", options.get("nnodes"))
    said = dict(options)
    if said.get("nproc_per_node") in ("gpu", "auto"):
        del said["nproc_per_node"]
    return _gang_of(where, said, "nproc_per_node", "master_port", machines)


def _find_script(where: str, func: Any, options: Dict[str, Any]) -> None:
    """The script's absolute path and its words, in place of what was given."""
    from .._base.errors import SettingsError

    given = options.get("entrypoint")
    words = options.get("entrypoint_args")
    if given is None:
        if words is not None:
            raise SettingsError(
                f"{where}: entrypoint_args are for a script, and there is none; name it by entrypoint, or give the "
                "step's function its arguments in the pipeline"
            )
        return
    if not isinstance(given, (str, os.PathLike)):
        raise SettingsError(
            f"{where}: entrypoint is {given!r}; it must be the path of a script, as the step's own function runs anyway"
        )
    code = getattr(func, "__code__", None)
    folders = [os.path.dirname(os.path.abspath(code.co_filename))] if code is not None else []
    folders.append(os.getcwd())
    paths = [os.path.join(folder, os.fspath(given)) for folder in folders]
    found = next((path for path in paths if os.path.isfile(path)), None)
    if found is None:
        raise SettingsError(
            f"{where}: entrypoint '{os.fspath(given)}' is not there; it was looked for in "
            f"{' and '.join(dict.fromkeys(folders))}"
        )
    options["entrypoint"] = found
    options["entrypoint_args"] = script_words(where, words)


def script_words(where: str, given: Any) -> List[str]:
    """A script's words, of a sequence or of a mapping of options.

    Raises:
        SettingsError: it is neither.
    """
    if given is None:
        return []
    if isinstance(given, (list, tuple)):
        return [str(word) for word in given]
    if not hasattr(given, "items"):
        from .._base.errors import SettingsError

        raise SettingsError(
            f"{where}: entrypoint_args is {given!r}; it must be a list of words or a mapping of options"
        )
    words = []
    for name, value in given.items():
        if value is None or value is False:
            continue
        words.append(f"--{name}")
        if isinstance(value, (list, tuple)):
            words += [str(one) for one in value]
        elif value is not True:
            words.append(str(value))
    return words


def _gang_of(
    where: str, said: Mapping[str, Any], ranks: str, port: str, machines: int
) -> Dict[str, Any]:
    gang: Dict[str, Any] = {"ranks": "gpus"}
    if machines > 1:
        gang["nodes"] = machines
    for key, option, low, high in (
        ("ranks", ranks, 1, _MAX_RANKS),
        ("restarts", "max_restarts", 0, _MAX_RESTARTS),
        ("port", port, 0, 65535),
    ):
        value = said.get(option)
        if value is None:
            continue
        if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
            from .._base.errors import SettingsError

            words = ', "gpu" or "auto"' if option == "nproc_per_node" else ""
            if option == "num_processes" and machines > 1:
                words = f" on each of {machines} machines"
            raise SettingsError(
                f"{where}: {option} is {value!r}; it must be an int from {low} to {high}{words}"
            )
        if key == "ranks" or value:
            gang[key] = value  # port 0 is any, as without it
    return gang


def _machines(where: str, option: str, value: Any) -> int:
    """How many machines; ``"2:2"`` and ``"2"`` are torchrun's and a config file's ways to say 2."""
    from .._base.errors import SettingsError

    if value is None:
        return 1
    low, _, high = str(value).partition(":")
    if isinstance(value, bool) or not low.isdigit() or high not in ("", low) or not int(low):
        raise SettingsError(
            f"{where}: {option} is {value!r}; it must be a number of machines (one that changes while the "
            "step runs isn't possible)"
        )
    return int(low)


def _nodes(task: Mapping[str, Any]) -> int:
    return int((task.get("gang") or {}).get("nodes") or 1)


# ---------------------------------------------------------------------------- becoming the launcher

_threads: Optional[str] = (
    None  # of each rank, where the options say it; ranks are forks of who set it
)


def rank_in(directory: str) -> Optional[Rank]:
    """The rank that this process is of the attempt, or None."""
    own = os.environ.get(_MARK, "")
    if not own or os.path.realpath(os.path.dirname(own)) != os.path.realpath(directory):
        return None
    return Rank(own, int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]))


def launch(
    directory: str, task: Mapping[str, Any], entry: Entry, main_file: Optional[str]
) -> NoReturn:
    """Become ``stoker launch``: the same process goes on as the launcher of the attempt's ranks.

    Raises:
        ImportError, SettingsError, ValueError: accelerate isn't there, or refuses its options.
        EngineError: the ``stoker`` binary isn't found.
    """
    global _threads
    from .._base.binary import find
    from . import fitness

    binary = find()
    how = entry.launch
    if how is not None and how.kind == "accelerate":
        from . import accelerate

        devices = (task.get("granted") or {}).get("devices") or []
        ranks = int(task["gang"]["ranks"])
        node = int(os.environ.get("STOKER_GANG_NODE") or 0)
        made = accelerate.environment(how.options, ranks, len(devices), _nodes(task), node)
        os.environ.update(made)
        _threads = made.get("OMP_NUM_THREADS")
    command = [binary, "launch", "--gang", f"{directory}/task.json"]
    facts = fitness.prepare()
    leads = _nodes(task) > 1 and "STOKER_GANG_RDZV" not in os.environ  # it starts the other nodes
    if leads and entry.importable is None:
        from .._base.errors import SettingsError

        raise SettingsError(
            f"step '{task['step']}' runs on several machines, which must import its function, but it is a closure or "
            "defined in a notebook; move it to the top of a file"
        )
    forks = entry.importable is None or not fitness.Fitness(facts).why_unfit()
    if forks:
        command += ["--forkserver-fd", str(_fork_server(task, entry, main_file, facts))]
    if leads or not forks:
        command += ["--", sys.executable, "-m", "stoker._worker", directory]
        if main_file is not None:
            command += ["--main", main_file]
    os.execv(binary, command)


def _fork_server(
    task: Mapping[str, Any], entry: Entry, main_file: Optional[str], facts: Dict[str, Any]
) -> int:
    """Fork a server of this step's ranks; returns the launcher's end of its socket, inheritable."""
    import socket

    ours, theirs = socket.socketpair()
    if os.fork() == 0:
        ours.close()
        from . import server

        server.serve(theirs, {str(task["step"]): entry}, main_file, facts=facts)
    theirs.close()
    fd = ours.detach()
    os.set_inheritable(fd, True)
    return fd


# ---------------------------------------------------------------------------- a rank


class Rank:
    """One rank and its folder ``rank-K`` of the attempt directory.

    ``rank-K/result.json`` is what rank K says. The attempt's is rank 0's where all is well; the launcher, who knows
    which rank failed first, writes it otherwise.
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
        """Before user code: forget an earlier round, answer SIGUSR1 with the stack, tell the watchdog."""
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
        """Write what this rank says; rank 0 speaks for the step."""
        if "error" in result:
            error = result["error"]
            error["message"] = f"rank {self.number} of {self.world}: {error['message']}"
        write(self.own, "result.json", result)
        if self.number == 0:
            write(self.directory, "result.json", result)
            if "error" not in result:
                # It has PyTorch's store in its process, without which the others can't go on: it ends last.
                # (torchrun's own agent has it, so scripts count on that.)
                self.line.come(line.ALONE)
                self.line.over(line.ALONE)

    def meet(self) -> None:
        """Wait until the scripts of all ranks have ended."""
        self.line.come(line.SCRIPT)
        self.line.barrier(line.SCRIPT)

    def leave(self, collects: bool = False) -> None:
        """The function has returned: wait for all ranks' where others may still need this one, or it needs theirs.

        A rank whose process group is gone fails others that still connect to it. One that dies or hangs
        ends all: the launcher sees to it.

        Args:
            collects: this rank needs what the others returned.
        """
        self.line.come(line.RETURNED)
        if (collects or _joined()) and not self.line.over(line.RETURNED) and collects:
            from .preemption import stop

            stop()

    def share(
        self, entries: Mapping[str, Any], write: Callable[[str, str, Dict[str, Any]], None]
    ) -> None:
        """Leave this rank's outputs for rank 0."""
        write(self.own, self._shared, {"outputs": dict(entries)})

    def collect(self, k: int) -> Dict[str, Dict[str, Any]]:
        """The outputs of rank K, as :func:`share` left them before it came to its end."""
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
    """Is this process in a process group of PyTorch's?"""
    distributed: Any = sys.modules.get("torch.distributed")
    try:
        return distributed is not None and bool(distributed.is_initialized())
    except Exception:  # it is built without, or is somebody's stand-in
        return False


def run_script(path: str, words: List[str]) -> None:
    """Run a script as ``python PATH WORDS…`` would, in this process.

    Raises:
        SystemExit: it ended itself.
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
    """For each output the values of all ranks, rank 0's own first."""
    lists: Dict[str, List[Any]] = {name: [value] for name, value in own.items()}
    for k in range(1, rank.world):
        for name, entry in rank.collect(k).items():
            lists[name].append(load(entry))
    return lists
