"""Steps of several nodes or processes: @parallel, @pytorch_parallel, @torchrun,
@deepspeed; @run_with_accelerate.

``self.next(…, num_parallel=N)`` starts a gang of N ranks; each is a node as
:mod:`stoker.flow._node` defines it. The decorators here only inform the step, or set what a
framework expects.
"""

from __future__ import annotations

import os
from typing import Any, Dict, List, Optional, Tuple

from ..._definition.entry import Launch
from ..._definition.gang import accelerate_gang, check_launch
from .._current import Parallel, current
from ..exception import MetaflowException
from ._base import StepDecorator

_MAX_PORT = 65535


def tell_node() -> None:
    """Set ``current.parallel``."""
    said = os.environ
    current._add(
        parallel=Parallel(
            said.get("MF_PARALLEL_MAIN_IP") or "127.0.0.1",
            int(said.get("MF_PARALLEL_NUM_NODES") or 1),
            int(said.get("MF_PARALLEL_NODE_INDEX") or 0),
            said.get("MF_PARALLEL_CONTROL_TASK_ID"),
        )
    )


class ParallelDecorator(StepDecorator):
    """``@parallel``: ``current.parallel`` has each node's place."""

    name = "parallel"
    defaults: Dict[str, Any] = {}
    IS_PARALLEL = True

    def task_begin(self, running: Any) -> None:
        tell_node()
        self.setup_distributed_env(running.flow)

    def setup_distributed_env(self, flow: Any) -> None:
        """Set up a framework; for derived decorators."""


class _WithPort(ParallelDecorator):
    """A ``master_port`` that the launcher reserves for the nodes."""

    def init(self) -> None:
        port = self.attributes["master_port"]
        if port is None:
            return
        if not str(port).isdigit() or not 0 < int(port) <= _MAX_PORT:
            raise MetaflowException(
                f"@{self.name}: master_port is {port!r}; it must be a number from 1 to {_MAX_PORT}, or left out: then "
                "a free one is found"
            )

    def settings(self, decorators: List[Any]) -> Dict[str, Any]:
        port = self.attributes["master_port"]
        return {} if port is None else {"gang": {"ranks": 1, "port": int(port)}}


class PytorchParallel(_WithPort):
    """``@pytorch_parallel(master_port=None)``: the variables of ``torch.distributed`` for one
    process on each node."""

    name = "pytorch_parallel"
    defaults: Dict[str, Any] = {"master_port": None}

    def setup_distributed_env(self, flow: Any) -> None:
        parallel, said = current.parallel, os.environ
        said["MASTER_ADDR"] = parallel.main_ip
        said["NODE_RANK"] = str(parallel.node_index)
        said["WORLD_SIZE"] = said["NUM_NODES"] = str(parallel.num_nodes)
        if not (current._task.get("granted") or {}).get("devices"):
            # with devices Lightning chooses NCCL itself
            said["PL_TORCH_DISTRIBUTED_BACKEND"] = "gloo"


class Torchrun(_WithPort):
    """``@torchrun(nproc_per_node=1)``: ``current.torch.run(entrypoint=…)`` in each node.

    ``all_nodes_started_timeout``: seconds that the nodes wait for each other in ``run``.
    """

    name = "torchrun"
    defaults: Dict[str, Any] = {
        "master_port": None,
        "all_nodes_started_timeout": 600,
        "nproc_per_node": 1,
    }

    def init(self) -> None:
        super().init()
        from .._torch import processes

        processes("@torchrun", self.attributes["nproc_per_node"], 0)
        seconds = self.attributes["all_nodes_started_timeout"]
        if not isinstance(seconds, (int, float)) or isinstance(seconds, bool) or seconds <= 0:
            raise MetaflowException(
                f"@torchrun: all_nodes_started_timeout is {seconds!r}; it must be seconds, above 0"
            )

    def task_begin(self, running: Any) -> None:
        super().task_begin(running)
        from .._torch import TorchrunExecutor

        current._add(
            torch=TorchrunExecutor(
                *_place(running),
                self.attributes["nproc_per_node"],
                self.attributes["all_nodes_started_timeout"],
            )
        )


def _place(running: Any) -> Tuple[str, str, Parallel, int]:
    """What an executor needs of its node: a name, a folder, the node's place, its devices."""
    rank = running.attempt.rank
    return (
        f"{current.run_id}-{current.step_name}-{running.task['task']}",
        str(rank.own if rank is not None else running.attempt.directory),
        current.parallel,
        len((running.task.get("granted") or {}).get("devices") or ()),
    )


class Deepspeed(ParallelDecorator):
    """``@deepspeed``: ``current.deepspeed.run(entrypoint=…)`` in each node.

    ``all_nodes_started_timeout``: seconds that the nodes wait for each other in ``run``. What is
    about ssh (``worker_polling_freq``, ``use_sudo``) has no effect.
    """

    name = "deepspeed"
    defaults: Dict[str, Any] = {
        "all_nodes_started_timeout": 600,
        "worker_polling_freq": 0.5,
        "use_sudo": False,
    }

    def task_begin(self, running: Any) -> None:
        super().task_begin(running)
        from .._torch import DeepspeedExecutor
        from ._resources import request_of

        name, folder, parallel, devices = _place(running)
        decorators = running.cls._graph[running.step].decorators
        asked = request_of(running.step, decorators).get("cpu_count")
        timeout = self.attributes["all_nodes_started_timeout"]
        current._add(
            deepspeed=DeepspeedExecutor(
                name, folder, parallel, devices, devices or int(asked or 1), timeout
            )
        )


class RunWithAccelerate(StepDecorator):
    """``@run_with_accelerate(num_processes=2, …)``: runs the step's method in several processes of
    one task.

    All ranks run the method; rank 0's artifacts are the task's. See
    :func:`stoker.run_with_accelerate`.
    """

    name = "run_with_accelerate"

    def __init__(
        self, attributes: Optional[Dict[str, Any]] = None, statically_defined: bool = False
    ) -> None:
        self.defaults = dict.fromkeys(attributes or {})  # accelerate's parser checks them
        super().__init__(attributes, statically_defined)

    def check(self, node: Any, graph: Any) -> None:
        if node.parallel_step:
            raise MetaflowException(
                f"step '{node.name}' has both num_parallel and @run_with_accelerate, and each "
                "sets the number of processes: remove one of them, or call accelerate in each "
                "node by current.torch.run"
            )
        if "all_ranks" in self.said:
            raise MetaflowException(
                f"step '{node.name}': @run_with_accelerate: a flow's task keeps only rank 0's "
                "artifacts; for those of all ranks use @parallel and num_parallel"
            )
        check_launch(self.launch(), f"step '{node.name}'")

    def launch(self) -> Launch:
        """How to start the ranks, for the worker."""
        return Launch("accelerate", self.given, False)

    def settings(self, decorators: List[Any]) -> Dict[str, Any]:
        launch = self.launch()
        said: Dict[str, Any] = {"gang": accelerate_gang("run_with_accelerate", launch.options)}
        if launch.gpus():
            said["resources"] = {"gpu_count": launch.gpus()}
        return said
