"""``current``: facts about the run, for a running step."""

from __future__ import annotations

import os
from typing import Any, Dict, NamedTuple, Optional, Set


class Parallel(NamedTuple):
    """A step's place among the nodes of ``num_parallel``."""

    main_ip: str
    num_nodes: int
    node_index: int
    control_task_id: Optional[str]


def username() -> str:
    """The user's name, from the environment's variables."""
    for name in ("METAFLOW_USER", "SUDO_USER", "USERNAME", "USER"):
        value = os.environ.get(name)
        if value and value != "root":
            return value
    return os.environ.get("USER") or "root"


class Current:
    """The object ``current``; outside a step its facts are None.

    Decorators add facts by :meth:`_add` (``current.parallel``, ``current.card`` …); test with
    ``"card" in current``.
    """

    def __init__(self) -> None:
        self._task: Dict[str, Any] = {}
        self._cls: Any = None
        self._more: Dict[str, Any] = {}

    def _enter(self, cls: Any, task: Dict[str, Any]) -> None:
        self._cls, self._task, self._more = cls, task, {}
        self._more.update(self._said("facts") or {})

    def _add(self, **facts: Any) -> None:
        self._more.update(facts)

    def _update_env(self, env: Dict[str, Any]) -> None:
        """The name by which Metaflow's extensions add facts."""
        self._more.update(env)

    def _said(self, key: str) -> Any:
        """A fact that the front gave to every task of the run."""
        return ((self._task.get("extra") or {}).get("flow") or {}).get(key)

    def __getattr__(self, name: str) -> Any:
        more = self.__dict__.get("_more") or {}
        if name in more:
            return more[name]
        raise AttributeError(f"current has no '{name}' in this step")

    def __contains__(self, key: str) -> bool:
        return getattr(self, key, None) is not None

    def get(self, key: str, default: Any = None) -> Any:
        """A fact, or ``default`` if it doesn't exist."""
        return getattr(self, key, default)

    @property
    def is_running_flow(self) -> bool:
        """Whether a step of a flow runs in this process."""
        return bool(self._task)

    @property
    def flow_name(self) -> Optional[str]:
        """Name of the flow's class."""
        return self._cls.__name__ if self._cls is not None else None

    @property
    def run_id(self) -> Optional[str]:
        """The run's id."""
        return self._task.get("run")

    @property
    def step_name(self) -> Optional[str]:
        """The step's name."""
        return self._task.get("step")

    @property
    def task_id(self) -> Optional[str]:
        """The task's id; ``ID_node_K`` in node K > 0 of ``num_parallel``."""
        number = self._task.get("task")
        if number is None:
            return None
        rank = int(os.environ.get("MF_PARALLEL_NODE_INDEX") or 0) if self.is_parallel else 0
        return f"{number}_node_{rank}" if rank else str(number)

    @property
    def retry_count(self) -> int:
        """Number of earlier attempts of this task."""
        return int(self._task.get("attempt") or 1) - 1

    @property
    def origin_run_id(self) -> Optional[str]:
        """The run that this one was resumed from, or None."""
        return (self._task.get("flow") or {}).get("origin_run")

    @property
    def pathspec(self) -> Optional[str]:
        """FLOW/RUN/STEP/TASK."""
        if not self._task:
            return None
        return f"{self.flow_name}/{self.run_id}/{self.step_name}/{self.task_id}"

    @property
    def task(self) -> Any:
        """The task as the client's object."""
        if not self._task:
            return None
        from .client import Task

        return Task(self.pathspec, _namespace_check=False)

    @property
    def run(self) -> Any:
        """The run as the client's object."""
        if not self._task:
            return None
        from .client import Run

        return Run(f"{self.flow_name}/{self.run_id}", _namespace_check=False)

    @property
    def namespace(self) -> Optional[str]:
        """The user's own namespace, whichever the client uses."""
        return f"user:{self.username}" if self._task else None

    @property
    def username(self) -> Optional[str]:
        """Who started the run."""
        return self._said("user") or username() if self._task else None

    @property
    def tags(self) -> Set[str]:
        """The run's tags at its start."""
        return set(self._said("tags") or ())

    @property
    def tempdir(self) -> Optional[str]:
        """The folder for temporary files."""
        return os.environ.get("METAFLOW_TEMPDIR") or os.environ.get("TMPDIR") or "."

    @property
    def graph(self) -> Dict[str, Any]:
        """The flow's graph as plain data.

        Raises:
            RuntimeError: no step is running.
        """
        if self._cls is None:
            raise RuntimeError("current.graph exists only while a step runs")
        from ._compile import graph_info

        return graph_info(self._cls)

    @property
    def trigger(self) -> Any:
        """The events that started the run (:class:`stoker.flow.events.Trigger`), or None."""
        events = self._said("trigger")
        if not events:
            return None
        from ._trigger import Trigger
        from .client import Run

        return Trigger(events, lambda pathspec: Run(pathspec, _namespace_check=False))

    @property
    def is_parallel(self) -> bool:
        """Whether the step is one of the nodes of ``num_parallel``."""
        return "parallel" in self._more or bool((self._task.get("flow") or {}).get("ranks"))

    @property
    def parallel(self) -> Parallel:
        """The step's place among its nodes; any other step of a flow with @parallel is its only node.

        Raises:
            AttributeError: the flow has no @parallel step.
        """
        known: Optional[Parallel] = self._more.get("parallel")
        if known is None and self._cls and any(n.parallel_step for n in self._cls._graph):
            known = Parallel("127.0.0.1", 1, 0, None)
        if known is None:
            raise AttributeError("parallel")  # __getattr__ says it
        return known


current = Current()
