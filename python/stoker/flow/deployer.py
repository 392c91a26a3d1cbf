"""Deploys flows from programs: ``Deployer("flow.py").machine().create()``.

A deployed flow runs on this machine by itself (``_deploy/``). ``argo_workflows()`` and
``step_functions()`` deploy it here, too: there is no cluster.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import time
import weakref
from typing import Any, Dict, Iterator, List, Mapping, Optional

from .._base.binary import output_of
from ._cell import cell_source
from ._deploy import find, listed, remove, runs_of, start
from .exception import MetaflowException, MetaflowNotFound
from .runner import Runner, _text

__all__ = ["DeployedFlow", "Deployer", "NBDeployer", "TriggeredRun"]


class Deployer:
    """Deploys a flow's file. The arguments are those of :class:`stoker.flow.Runner`."""

    def __init__(
        self,
        flow_file: str,
        show_output: bool = True,
        profile: Optional[str] = None,
        env: Optional[Dict[str, str]] = None,
        cwd: Optional[str] = None,
        file_read_timeout: float = 3600,
        **kwargs: Any,
    ) -> None:
        self.flow_file = os.path.abspath(flow_file)
        self.show_output, self.profile, self.env, self.cwd = show_output, profile, env, cwd
        self.file_read_timeout = file_read_timeout
        self.top_level_kwargs = kwargs

    def machine(self, name: Optional[str] = None) -> DeployerImpl:
        """Deploy on this machine; ``name``: the deployed flow's."""
        return DeployerImpl(self, name)

    def argo_workflows(self, name: Optional[str] = None) -> DeployerImpl:
        """The same, for Metaflow's programs."""
        return DeployerImpl(self, name)

    def step_functions(self, name: Optional[str] = None) -> DeployerImpl:
        """The same, for Metaflow's programs."""
        return DeployerImpl(self, name)


class DeployerImpl:
    """A place where the flow can be deployed: this machine."""

    def __init__(self, deployer: Deployer, name: Optional[str]) -> None:
        self.deployer = deployer
        self.name = name
        self.flow_name: Optional[str] = None
        self.metadata: Optional[str] = None

    def create(self, **kwargs: Any) -> DeployedFlow:
        """Deploy it, in place of the one of its name; ``kwargs``: options of ``deploy create``
        (``tags=[…]``, ``max_workers=…``).

        Raises:
            RuntimeError: the flow can't be deployed; the text says why.
        """
        said = self.deployer
        more = {"name": self.name, **{_OPTIONS.get(k, k): v for k, v in kwargs.items()}}
        with Runner(
            said.flow_file,
            said.show_output,
            said.profile,
            said.env,
            said.cwd,
            said.file_read_timeout,
            **said.top_level_kwargs,
        ) as runner:
            facts = runner._deploy(more)
        self.name, self.flow_name, self.metadata = (
            facts[key] for key in ("name", "flow_name", "metadata")
        )
        return DeployedFlow(find(str(self.name), _store_of(str(self.metadata))))


_OPTIONS = {"tag": "tags", "user_namespace": "namespace", "with": "decospecs"}


def _store_of(metadata: str) -> str:
    return metadata.partition("@")[2]


class DeployedFlow:
    """A deployed flow.

    Attributes:
        name: its name. flow_name: that of the class. metadata: where its runs are on record.
    """

    TYPE = "machine"
    production_token = None
    workflow_template = None

    def __init__(self, record: Mapping[str, Any]) -> None:
        self._record = record
        self.deployer = self
        self.name = str(record["name"])
        self.flow_name = str(record["flow"])
        store = os.path.dirname(os.path.dirname(record["folder"]))
        self.metadata = f"local@{store}"

    def trigger(self, **kwargs: Any) -> TriggeredRun:
        """Start a run, which outlives this program; ``kwargs`` are its parameters.

        Raises:
            RuntimeError: no run began; the text says why.
        """
        words = [f"--{key}={_text(value)}" for key, value in kwargs.items() if value is not None]
        started = start(self._record, words)
        facts = started.wait()
        return TriggeredRun(self, f"{facts['flow_name']}/{facts['run_id']}")

    def runs(self, states: Optional[List[str]] = None) -> List[TriggeredRun]:
        """Its runs, the newest first; ``states``: only those with such a ``status``."""
        found = [
            TriggeredRun(self, one.pathspec) for one in runs_of(self.name, _store_of(self.metadata))
        ]
        return [one for one in found if states is None or one.status in states]

    def delete(self, **_: Any) -> bool:
        """Remove it; its runs stay."""
        remove(self.name, _store_of(self.metadata))
        return True

    @classmethod
    def from_deployment(
        cls, identifier: str, metadata: Optional[str] = None, impl: Optional[str] = None
    ) -> DeployedFlow:
        """A deployed flow by its name; ``metadata``: ``local@STORE``.

        Raises:
            MetaflowException: there is none.
        """
        return cls(find(identifier, _store_of(metadata) if metadata else None))

    @classmethod
    def list_deployed_flows(
        cls, flow_name: Optional[str] = None, impl: Optional[str] = None
    ) -> Iterator[DeployedFlow]:
        """All deployed flows, or those of one flow."""
        return (cls(record) for record in listed(flow_name))

    @classmethod
    def get_triggered_run(
        cls,
        identifier: str,
        run_id: str,
        metadata: Optional[str] = None,
        impl: Optional[str] = None,
    ) -> TriggeredRun:
        """A run of a deployed flow."""
        flow = cls.from_deployment(identifier, metadata)
        return TriggeredRun(flow, f"{flow.flow_name}/{run_id}")

    from_machine = from_argo_workflows = from_step_functions = from_deployment
    list_machine = list_argo_workflows = list_step_functions = list_deployed_flows
    get_triggered_machine_run = get_triggered_argo_workflows_run = get_triggered_run
    get_triggered_step_functions_run = get_triggered_run


_STATES = {
    "succeeded": "Succeeded",
    "running": "Running",
    "failed": "Failed",
    "cancelled": "Failed",
}


class TriggeredRun:
    """A started run of a deployed flow.

    Attributes:
        pathspec: ``FLOW/RUN``. name: the run's id.
    """

    def __init__(self, deployer: DeployedFlow, pathspec: str) -> None:
        self.deployer = deployer
        self.pathspec = pathspec
        self.name = pathspec.rpartition("/")[2]
        self.metadata_for_flow = deployer.metadata

    @property
    def run(self) -> Any:
        """The client's object, or None."""
        from .client import Run

        try:
            return Run(
                self.pathspec, _namespace_check=False, _current_metadata=self.metadata_for_flow
            )
        except MetaflowNotFound:
            return None

    def wait_for_run(self, check_interval: float = 5, timeout: Optional[float] = None) -> Any:
        """The client's object.

        Raises:
            TimeoutError: it isn't there after ``timeout`` seconds.
        """
        self._wait(lambda: self.run is not None, check_interval, timeout)
        return self.run

    def wait_for_completion(
        self, check_interval: float = 5, timeout: Optional[float] = None
    ) -> None:
        """Wait for its end.

        Raises:
            TimeoutError: it still runs after ``timeout`` seconds.
        """
        self._wait(lambda: not self.is_running, check_interval, timeout)

    def _wait(self, done: Any, interval: float, timeout: Optional[float]) -> None:
        began = time.monotonic()
        while not done():
            if timeout is not None and time.monotonic() - began > timeout:
                raise TimeoutError(f"run {self.pathspec}: waited {timeout} s")
            time.sleep(interval)

    @property
    def status(self) -> Optional[str]:
        """``Running``, ``Succeeded`` or ``Failed``; None: there is no such run."""
        run = self.run
        return None if run is None else _STATES.get(run.status, "Failed")

    @property
    def is_running(self) -> bool:
        """Whether it still runs."""
        return self.status == "Running"

    def terminate(self, **_: Any) -> bool:
        """Cancel it; False: it had ended."""
        if not self.is_running:
            return False
        output_of(["cancel", self.name], _store_of(self.metadata_for_flow))
        return True

    def suspend(self, **_: Any) -> bool:
        """Always raises: a run here can't be suspended."""
        raise MetaflowException(
            "a run on this machine can't be suspended: terminate() ends it, `stoker resume` goes on"
        )

    unsuspend = suspend


class NBDeployer(Deployer):
    """Deploys a flow that is defined in a notebook's cell.

    Args:
        flow: the flow's class. The other arguments are those of :class:`Deployer`; ``base_dir`` is
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
        **kwargs: Any,
    ) -> None:
        # Alone in its folder, so that the deployed flow has no other code of that place.
        self._folder = tempfile.mkdtemp(prefix="stoker-notebook-")
        self._forget = weakref.finalize(self, shutil.rmtree, self._folder, ignore_errors=True)
        path = os.path.join(self._folder, f"{flow.__name__}.py")
        with open(path, "w", encoding="utf-8") as file:
            file.write(cell_source(flow, type(self).__name__))
        env = {**(env or {}), "JPY_PARENT_PID": ""}  # the program isn't a kernel
        super().__init__(
            path, show_output, profile, env, base_dir or os.getcwd(), file_read_timeout, **kwargs
        )

    def cleanup(self) -> None:
        """Remove the file; a deployed flow has its own copy."""
        self._forget()
