"""The base classes of decorators that extensions define: Metaflow's hooks, called by ours.

Called are ``init``, ``step_init`` and ``flow_init`` before the run, ``flow_init``,
``task_pre_step``, ``task_decorate``, ``task_post_step``, ``task_exception`` and ``task_finished``
in the task. Hooks of Metaflow's scheduler (``runtime_…``) have no place here: one that a class
defines is an error that names it, but for those that only look.
"""

from __future__ import annotations

import sys
from typing import Any, Callable, Dict, List, Optional

from ..exception import MetaflowException
from ._base import FlowDecorator, StepDecorator
from ._storage import Datastore

_ELSEWHERE = ("runtime_step_cli",)
UBF_CONTROL, UBF_TASK = "ubf_control", "ubf_task"  # node 0, and the others, of num_parallel


def local_multinode_step(
    flow: Any, env_to_use: Any, step_func: Callable[..., Any], retry_count: int, *_: Any
) -> None:
    """Run node 0's step; the engine has started the other nodes already."""
    step_func()


def _logger(text: Any = "", *_: Any, **__: Any) -> None:
    print(text, file=sys.stderr)


class PeerStepDecorator(StepDecorator):
    """``metaflow.decorators.StepDecorator``."""

    def __init__(
        self,
        attributes: Optional[Dict[str, Any]] = None,
        statically_defined: bool = False,
        inserted_by: Optional[List[str]] = None,
    ) -> None:
        super().__init__(attributes, statically_defined)
        self.inserted_by = inserted_by
        self._attributes = {**self.defaults, **self.said}

    @property
    def attributes(self) -> Dict[str, Any]:
        """All attributes; the class may change them."""
        return self.__dict__.get("_attributes") or {**self.defaults, **self.said}

    @attributes.setter
    def attributes(self, values: Dict[str, Any]) -> None:
        self._attributes = values

    # ------------------------------------------------------------------ what classes define

    def step_init(
        self,
        flow: Any,
        graph: Any,
        step_name: str,
        decorators: List[Any],
        environment: Any,
        flow_datastore: Any,
        logger: Any,
    ) -> None:
        """Called when all decorators are known."""

    def task_pre_step(
        self,
        step_name: str,
        task_datastore: Any,
        metadata: Any,
        run_id: Any,
        task_id: Any,
        flow: Any,
        graph: Any,
        retry_count: int,
        max_user_code_retries: int,
        ubf_context: Any,
        inputs: Any,
    ) -> None:
        """Called before the step."""

    def task_post_step(
        self,
        step_name: str,
        flow: Any,
        graph: Any,
        retry_count: int,
        max_user_code_retries: int,
    ) -> None:
        """Called after the step, if it succeeded."""

    def task_exception(
        self,
        exception: Exception,
        step_name: str,
        flow: Any,
        graph: Any,
        retry_count: int,
        max_user_code_retries: int,
    ) -> Optional[bool]:
        """Called after an exception; True: it is handled."""
        return False

    def task_finished(
        self,
        step_name: str,
        flow: Any,
        graph: Any,
        is_task_ok: bool,
        retry_count: int,
        max_user_code_retries: int,
    ) -> None:
        """Called at the end."""

    # ------------------------------------------------------------------ what calls them

    def check(self, node: Any, graph: Any) -> None:
        for hook in _ELSEWHERE:
            if hasattr(type(self), hook):
                raise MetaflowException(
                    f"step '{node.name}': @{self.name} of {type(self).__module__} starts tasks in a way of its "
                    f"own ({hook}), which Stoker doesn't have: remove it, or send the step elsewhere by a "
                    "stack of stoker.yaml"
                )
        self.environment = None
        self.input_paths: List[str] = []
        self.step_init(None, graph, node.name, node.decorators, None, Datastore(self), _logger)

    def _context(self, running: Any) -> Optional[str]:
        """Which node of ``num_parallel`` this is; None: it is none."""
        rank = running.attempt.rank
        if rank is None or not running.declared.get("ranks"):
            return None
        return UBF_TASK if rank.number else UBF_CONTROL

    def _facts(self, running: Any) -> Any:
        task = running.task
        left = 0 if running.last_attempt else 1
        count = int(task.get("attempt") or 1) - 1
        return running.step, running.flow, running.cls._graph, count, count + left

    def task_begin(self, running: Any) -> None:
        from .._current import current

        step, flow, graph, count, most = self._facts(running)
        self.task_pre_step(
            step,
            Datastore(self, running),
            None,
            current.run_id,
            current.task_id,
            flow,
            graph,
            count,
            most,
            self._context(running),
            running.inputs,
        )

    def decorate_as(self, func: Callable[..., Any], running: Any) -> Callable[..., Any]:
        """The method to call instead. Classes define ``task_decorate`` with Metaflow's arguments,
        the method bound to the flow."""
        own: Any = type(self).task_decorate
        if own is StepDecorator.task_decorate:
            return func
        _, flow, graph, count, most = self._facts(running)
        context = self._context(running)
        bound = own(self, lambda *inputs: func(flow, *inputs), flow, graph, count, most, context)
        return lambda flow, *inputs: bound(*inputs)

    def task_end(self, running: Any) -> None:
        step, flow, graph, count, most = self._facts(running)
        self.task_post_step(step, flow, graph, count, most)
        self.task_finished(step, flow, graph, True, count, most)

    def task_failed(self, running: Any, error: Exception) -> bool:
        step, flow, graph, count, most = self._facts(running)
        handled = bool(self.task_exception(error, step, flow, graph, count, most))
        self.task_finished(step, flow, graph, handled, count, most)
        return handled


class PeerParallelDecorator(PeerStepDecorator):
    """``metaflow.plugins.parallel_decorator.ParallelDecorator``: a step of several nodes."""

    name = "parallel"
    IS_PARALLEL = True

    def task_begin(self, running: Any) -> None:
        from ._parallel import tell_node

        step = running.cls._graph[running.step]
        self.environment = None
        self.input_paths = []
        self.step_init(
            running.flow,
            running.cls._graph,
            step.name,
            step.decorators,
            None,
            Datastore(self, running),
            _logger,
        )
        tell_node()
        super().task_begin(running)

    def setup_distributed_env(self, flow: Any) -> None:
        """Set up a framework; for derived decorators."""

    def task_decorate(  # type: ignore[override]
        self,
        step_func: Callable[..., Any],
        flow: Any,
        graph: Any,
        retry_count: int,
        max_user_code_retries: int,
        ubf_context: Any,
    ) -> Callable[..., Any]:
        """The method to call instead: after :meth:`setup_distributed_env`."""

        def run(*inputs: Any) -> Any:
            self.setup_distributed_env(flow)
            return step_func(*inputs)

        return run


class PeerFlowDecorator(FlowDecorator):
    """``metaflow.decorators.FlowDecorator``.

    Attributes:
        options: option of the command line → its ``default`` and ``help``.
    """

    options: Dict[str, Dict[str, Any]] = {}

    def __init__(
        self, attributes: Optional[Dict[str, Any]] = None, statically_defined: bool = False
    ) -> None:
        super().__init__(attributes, statically_defined)

    def flow_init(
        self,
        flow: Any,
        graph: Any,
        environment: Any,
        flow_datastore: Any,
        metadata: Any,
        logger: Any,
        echo: Any,
        options: Dict[str, Any],
    ) -> None:
        """Called before the run, and in each task."""

    def get_top_level_options(self) -> List[Any]:
        """Options that tasks get; here they get all."""
        return []

    def begin(self, cls: Any, options: Dict[str, Any]) -> None:
        """Call :meth:`flow_init` with the values of its options."""
        own = {key: options.get(key, said.get("default")) for key, said in self.options.items()}
        self.flow_init(cls, cls._graph, None, None, None, _logger, _logger, own)

    def settings(self, flow: Any, options: Dict[str, Any]) -> Dict[str, Any]:
        told = options.get("flow_options") or {}
        given = {k: told.get(k.replace("-", "_")) for k in self.options}
        self.begin(flow, given)
        return {"extra": {"flow": {"options": given}}} if given else {}
