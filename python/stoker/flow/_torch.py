"""``current.torch`` of ``@torchrun`` and ``current.deepspeed`` of ``@deepspeed``: run a script in
several processes of each node, with ``stoker launch``."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import time
from typing import Any, Dict, List, Optional, Tuple, Type

from ._current import Parallel, current
from .exception import DeepspeedException, MetaflowException, TorchrunException

_WAIT_S = 2.0  # to wait for the file that the leading node's launcher writes at its end


def setup_torch_distributed(master_port: Optional[int] = None) -> None:
    """Set the variables of ``torch.distributed`` for this node of ``num_parallel``; those of the
    gang are kept, but for a given port."""
    node = current.parallel
    given = {
        "MASTER_ADDR": node.main_ip,
        "NODE_RANK": str(node.node_index),
        "WORLD_SIZE": str(node.num_nodes),
        "NUM_NODES": str(node.num_nodes),
    }
    for name, value in given.items():
        os.environ.setdefault(name, value)
    if master_port:
        os.environ["MASTER_PORT"] = str(master_port)


def processes(where: str, said: Any, devices: int) -> int:
    """Number of processes on a node.

    Args:
        said: a number (also as text); ``"gpu"`` or ``"auto"``: one for each device, at least one.

    Raises:
        MetaflowException: it is none of these.
    """
    if said in ("gpu", "auto"):
        return max(1, devices)
    if isinstance(said, bool) or not str(said).isdigit() or not int(said):
        raise MetaflowException(
            f"{where}: nproc_per_node is {said!r}; it must be a number from 1 on, 'gpu' or 'auto'"
        )
    return int(said)


class TorchrunExecutor:
    """The object ``current.torch``; each task has one.

    Args:
        name: of the gang, the same on all nodes. folder: this node's, for the logs.
        parallel: this node's place. devices: number of its devices.
        nproc_per_node: the decorator's value. timeout_s: how long nodes wait for each other.
    """

    call = "current.torch.run"
    error: Type[MetaflowException] = TorchrunException

    def __init__(
        self,
        name: str,
        folder: str,
        parallel: Parallel,
        devices: int,
        nproc_per_node: Any = 1,
        timeout_s: float = 600,
    ) -> None:
        self._name = name
        self._folder = folder
        self._parallel = parallel
        self._devices = devices
        self._nproc_per_node = nproc_per_node
        self._timeout_s = timeout_s
        self._calls = 0

    def run(
        self,
        torchrun_args: Any = None,
        entrypoint: Optional[str] = None,
        entrypoint_args: Any = None,
        nproc_per_node: Any = None,
        push_results_dir_to_cloud: bool = False,
        local_output_dir: Optional[str] = None,
        cloud_output_dir: Optional[str] = None,
    ) -> None:
        """Run a Python script in ``nproc_per_node`` processes of each node, all nodes together.

        Every node of the step must make the same call. If a process fails, those of all nodes are
        ended.

        Args:
            torchrun_args: further options of ``torchrun``, as a mapping or as a list of names and
                values in turn.
            entrypoint: the script, below the working directory or beside the flow's file.
            entrypoint_args: its arguments: a mapping (``{"lr": 0.1}`` is ``--lr 0.1``, None and
                ``""`` only ``--name``), or a list of words.
            nproc_per_node: processes of each node; None: from ``torchrun_args``, else from
                ``@torchrun``.
            push_results_dir_to_cloud: only False: results are artifacts, or files of
                ``@checkpoint``.

        Raises:
            TorchrunException: a process failed (the sentence names it), or the options are wrong.
        """
        self._keeps_results_here(push_results_dir_to_cloud)
        options = self._options(torchrun_args)
        n = self._processes(options, nproc_per_node)
        options = [one for one in options if _plain(one[0]) != "nproc_per_node"]
        script = self._script(entrypoint)
        self._launch(
            n, options, str(entrypoint), [sys.executable, script, *self._words(entrypoint_args)]
        )

    def _keeps_results_here(self, push: bool) -> None:
        if push:
            raise self.error(
                f"{self.call}: push_results_dir_to_cloud needs a datastore in a cloud, but "
                "this run's is a folder: assign results to self, or save them by current.checkpoint"
            )

    def _launch(
        self,
        n: int,
        options: List[Tuple[str, Any]],
        entrypoint: str,
        program: List[str],
        **env: str,
    ) -> None:
        sys.stdout.flush()
        sys.stderr.flush()
        status = subprocess.call(
            [*self._command(n, options), "--", *program], env={**os.environ, **env}
        )
        if status:
            raise self.error(self._sentence(entrypoint, status))

    def _processes(self, options: List[Tuple[str, Any]], said: Any) -> int:
        given = [value for name, value in options if _plain(name) == "nproc_per_node"]
        if given and said is not None:
            raise self.error(
                f"{self.call}: nproc_per_node is given twice, {said!r} and in torchrun_args "
                f"{given[0]!r}; give it once"
            )
        wanted = said if said is not None else given[0] if given else self._nproc_per_node
        return processes(self.call, wanted, self._devices)

    def _command(self, n: int, options: List[Tuple[str, Any]]) -> List[str]:
        from .._base import binary

        self._calls += 1
        here, single = self._parallel, self._parallel.num_nodes == 1
        words = [binary.find(), "launch", "-n", str(n), "--log-dir", self._logs()]
        if n * here.num_nodes == 1:
            words.append("--no-prefix")
        if not single:
            words += ["--nnodes", str(here.num_nodes), "--node-rank", str(here.node_index)]
            words += ["--rdzv", f"{here.main_ip}:{os.environ.get('MASTER_PORT', '29400')}"]
            words += ["--rdzv-id", f"{self._name}-{self._calls}", "--join", f"{self._timeout_s}s"]
        for name, value in options:
            words += [f"--{name}", *([] if value in (None, "") else [_text(value)])]
        return words

    def _logs(self) -> str:
        return os.path.join(self._folder, f"torchrun-{self._calls}")

    def _options(self, given: Any) -> List[Tuple[str, Any]]:
        if given is None:
            return []
        if hasattr(given, "items"):
            return [(str(name).lstrip("-"), value) for name, value in given.items()]
        if isinstance(given, (list, tuple)) and len(given) % 2 == 0:
            return [(str(given[i]).lstrip("-"), given[i + 1]) for i in range(0, len(given), 2)]
        raise self.error(
            f"{self.call}: torchrun_args is {given!r}; it must be a mapping, or a list of name, value, name, value"
        )

    def _words(self, given: Any) -> List[str]:
        if given is None:
            return []
        if hasattr(given, "items"):
            words = []
            for name, value in given.items():
                words += [f"--{name}"] if value in (None, "") else [f"--{name}", _text(value)]
            return words
        if isinstance(given, (list, tuple)):
            return [str(one) for one in given]
        raise self.error(
            f"{self.call}: entrypoint_args is {given!r}; it must be a mapping or a list of words"
        )

    def _script(self, entrypoint: Optional[str]) -> str:
        if not entrypoint:
            raise self.error(f"{self.call}: name the script by entrypoint")
        if os.path.isfile(entrypoint):
            return entrypoint
        module: Any = sys.modules.get(current._cls.__module__) if current._cls is not None else None
        folder = os.path.dirname(os.path.abspath(getattr(module, "__file__", None) or "."))
        beside = os.path.join(folder, entrypoint)
        if os.path.isfile(beside):
            return beside
        raise self.error(
            f"{self.call}: entrypoint '{entrypoint}' was not found in {os.getcwd()} and beside "
            f"the flow's file, in {folder}"
        )

    def _sentence(self, entrypoint: str, status: int) -> str:
        """The launchers' message about the end; node 0's launcher writes it for all."""
        leader = self._logs()
        if self._parallel.node_index:
            leader = os.path.join(os.path.dirname(self._folder), "rank-0", os.path.basename(leader))
        end = time.monotonic() + _WAIT_S
        said = None
        while said is None and time.monotonic() < end:
            try:
                with open(os.path.join(leader, "gang.json"), encoding="utf-8") as stream:
                    said = json.load(stream)["text"]
            except (OSError, ValueError, KeyError):
                time.sleep(0.02)
        return f"'{entrypoint}' failed: {said or f'its launcher ended with status {status}'}"


def _plain(name: str) -> str:
    return name.replace("-", "_")


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value).replace('"', "")


class TorchrunSingleNodeMultiGPU(TorchrunExecutor):
    """``TorchrunSingleNodeMultiGPU().run(entrypoint=…, nproc_per_node=4)`` in a step that is one
    node."""

    def __init__(self) -> None:
        task: Dict[str, Any] = current._task
        devices = len((task.get("granted") or {}).get("devices") or ())
        folder = os.environ.get("STOKER_TASK_DIR") or os.getcwd()
        super().__init__("single", folder, Parallel("127.0.0.1", 1, 0, None), devices)


# Options of the program `deepspeed` that say what each process gets; the rest is about ssh.
_DEEPSPEED = ("num_gpus", "num_nodes", "master_port", "no_local_rank", "module")


class DeepspeedExecutor(TorchrunExecutor):
    """The object ``current.deepspeed``: the processes get what the program ``deepspeed`` gives them,
    so ``deepspeed.init_distributed`` finds its place; neither ssh nor a host file is needed."""

    call = "current.deepspeed.run"
    error = DeepspeedException

    def run(  # type: ignore[override]
        self,
        deepspeed_args: Any = None,
        entrypoint: Optional[str] = None,
        entrypoint_args: Any = None,
        push_results_dir_to_cloud: bool = False,
        local_output_dir: Optional[str] = None,
        cloud_output_dir: Optional[str] = None,
    ) -> None:
        """Run a Python script in a process for each device of each node, or each CPU asked for.

        Every node of the step must make the same call. If a process fails, those of all nodes are
        ended.

        Args:
            deepspeed_args: options of ``deepspeed``: ``num_gpus`` (processes of each node),
                ``num_nodes``, ``master_port``, ``no_local_rank``, ``module``; as a mapping or a
                list of words.
            entrypoint: the script, below the working directory or beside the flow's file. Its
                first argument is ``--local_rank=N``.
            entrypoint_args: its arguments: a mapping (``{"lr": 0.1}`` is ``--lr 0.1``, None and
                ``""`` only ``--name``), or a list of words.
            push_results_dir_to_cloud: only False: results are artifacts, or files of
                ``@checkpoint``.

        Raises:
            DeepspeedException: a process failed (the sentence names it), or the options are wrong.
        """
        self._keeps_results_here(push_results_dir_to_cloud)
        said = self._switches(deepspeed_args)
        here = self._parallel
        if int(said.get("num_nodes") or here.num_nodes) != here.num_nodes:
            raise self.error(
                f"{self.call}: num_nodes is {said['num_nodes']}, but the step has num_parallel={here.num_nodes} nodes"
            )
        n = processes(self.call, said.get("num_gpus") or self._nproc_per_node, self._devices)
        as_module = "module" in said
        script = str(entrypoint) if as_module and entrypoint else self._script(entrypoint)
        words = [sys.executable, "-u", *(["-m"] if as_module else []), script]
        # The shell knows LOCAL_RANK, which each process has of its own; the words are its arguments.
        rank = "" if "no_local_rank" in said else ' --local_rank="$LOCAL_RANK"'
        plain = " ".join(map(shlex.quote, words)) + rank
        program = ["/bin/sh", "-c", f'exec {plain} "$@"', "sh", *self._words(entrypoint_args)]
        env = {"CROSS_RANK": here.node_index, "CROSS_SIZE": here.num_nodes, "LOCAL_SIZE": n}
        if said.get("master_port"):
            os.environ["MASTER_PORT"] = str(said["master_port"])
        self._launch(n, [], str(entrypoint), program, **{k: str(v) for k, v in env.items()})

    def _switches(self, given: Any) -> Dict[str, Any]:
        """The options of ``deepspeed`` that are given; one without a value is a switch."""
        said: Dict[str, Any] = {}
        if hasattr(given, "items"):
            said = {str(name).lstrip("-"): value for name, value in given.items()}
        else:
            name = ""
            for word in map(str, given or ()):
                if word.startswith("--"):
                    name, equals, value = word[2:].partition("=")
                    said[name] = value if equals else None
                else:
                    said[name] = word
        for name in said:
            if _plain(name) not in _DEEPSPEED:
                raise self.error(
                    f"{self.call}: '--{name}' isn't among the options of deepspeed that count here "
                    f"({', '.join(_DEEPSPEED)}): the processes are started by `stoker launch`, without ssh"
                )
        return {_plain(name): value for name, value in said.items()}
