"""``zenml.integrations.mlflow``: the model deployer, and the servers of models that it starts.

A server is ``mlflow models serve`` on the loopback interface. It goes on when the run ends; its
log and its process are told by its record in the store.
"""

from __future__ import annotations

import importlib
import json
import os
import shutil
import socket
import sys
import time
import uuid
from typing import TYPE_CHECKING, Any, Dict, Iterator, List, Mapping, Optional

from ..materializers import BaseMaterializer
from . import daemons, models, services, stacks
from .enums import ServiceState
from .stacks import Component

START_STOP_S = 60
_HERE = "127.0.0.1"
_CLASS = "zenml.integrations.mlflow.services.mlflow_deployment"


def _open(asked: Any, timeout: float) -> Any:
    """Ask a server of this machine, by no proxy."""
    from urllib.request import ProxyHandler, build_opener

    return build_opener(ProxyHandler({})).open(asked, timeout=timeout)


class ServiceConfig:
    """The configuration of a service; names that it doesn't have are left out, as in ZenML."""

    _defaults: Dict[str, Any] = {
        **dict.fromkeys(("name", "description", "pipeline_name", "pipeline_step_name"), ""),
        **dict.fromkeys(("model_name", "model_version", "service_name"), ""),
    }

    def __init__(self, **fields: Any) -> None:
        self.__dict__.update({k: fields.get(k, v) for k, v in self._defaults.items()})
        for key, usual in self._defaults.items():
            if usual == "" and getattr(self, key) is None:
                setattr(self, key, "")
        name = self.name or self.model_name
        if not name:
            raise ValueError("a service needs 'name' or 'model_name'")
        if not self.service_name:
            self.__dict__["service_name"] = f"zenml-{name}"

    def model_dump(self, **_: Any) -> Dict[str, Any]:
        """The fields."""
        return {key: getattr(self, key) for key in self._defaults}

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any: ...
        def __setattr__(self, name: str, value: Any) -> None: ...


class MLFlowDeploymentConfig(ServiceConfig):
    """What is served and how; raises ValueError without ``model_uri`` and ``model_name``."""

    _defaults = {
        **ServiceConfig._defaults,
        "root_runtime_path": None,
        **dict.fromkeys(("silent_daemon", "singleton", "blocking", "mlserver"), False),
        "model_uri": "",
        **dict.fromkeys(("registry_model_name", "registry_model_version"), None),
        "registry_model_stage": None,
        "workers": 1,
        "timeout": START_STOP_S,
    }

    def __init__(self, **fields: Any) -> None:
        for needed in ("model_uri", "model_name"):
            if needed not in fields:
                raise ValueError(f"MLFlowDeploymentConfig needs '{needed}'")
        super().__init__(**fields)
        self.mlserver = False  # MLflow has it no more


class _Status:
    """A service's state as it was last asked for."""

    def __init__(self, service: MLFlowDeploymentService) -> None:
        self._service = service
        self.state, self.last_state = ServiceState.INACTIVE, ServiceState.INACTIVE
        self.last_error = ""

    @property
    def runtime_path(self) -> str:
        """The folder of its log."""
        return self._service._folder

    @property
    def log_file(self) -> str:
        """What it printed."""
        return os.path.join(self.runtime_path, "service.log")

    @property
    def pid(self) -> Optional[int]:
        """Its process; None: it doesn't run."""
        daemon = self._service._daemon()
        return daemon.pid if daemon is not None and daemon.is_alive() else None

    def set(self, state: ServiceState, error: str) -> None:
        """Take in another state."""
        if state != self.state:
            self.last_state, self.state = self.state, state
        self.last_error = error or self.last_error

    def model_dump(self, **_: Any) -> Dict[str, Any]:
        """The fields."""
        states = {"state": self.state.value, "last_state": self.last_state.value}
        return {**states, "last_error": self.last_error, "runtime_path": self.runtime_path}


class _EndpointStatus:
    protocol, hostname = "http", _HERE

    def __init__(self, port: Optional[int]) -> None:
        self.port = port

    @property
    def uri(self) -> Optional[str]:
        """Its address."""
        return None if self.port is None else f"http://{self.hostname}:{self.port}"


class MLFlowDeploymentEndpoint:
    """Where a server answers."""

    def __init__(self, port: Optional[int]) -> None:
        self.status = _EndpointStatus(port)

    def _below(self, path: str) -> Optional[str]:
        return None if self.status.uri is None else f"{self.status.uri}/{path}"

    @property
    def prediction_url(self) -> Optional[str]:
        """Where it takes requests."""
        return self._below("invocations")

    @property
    def healthcheck_url(self) -> Optional[str]:
        """Where it says that it is there."""
        return self._below("ping")

    def is_active(self) -> bool:
        """Whether it answers."""
        try:
            with _open(self.healthcheck_url or "", timeout=5) as answer:
                return bool(answer.status == 200)
        except (OSError, ValueError):
            return False

    def is_inactive(self) -> bool:
        """Whether it doesn't."""
        return not self.is_active()

    def model_dump(self, **_: Any) -> Dict[str, Any]:
        """The fields."""
        return {"port": self.status.port, "hostname": self.status.hostname, "protocol": "http"}


class MLFlowDeploymentService:
    """A server of one of MLflow's models on this machine.

    Its process is known by the store, so any program can stop it.
    """

    SERVICE_TYPE = services.ServiceType(
        type="model-serving",
        flavor="mlflow",
        name="mlflow-deployment",
        description="MLflow prediction service",
    )

    def __init__(self, uuid: uuid.UUID, config: Any, admin_state: Any = None) -> None:
        given = config.model_dump() if hasattr(config, "model_dump") else config
        self.uuid = uuid
        self.config = MLFlowDeploymentConfig(**given)
        self.config.name = self.config.name or type(self).__name__
        self.admin_state = admin_state or ServiceState.INACTIVE
        self.status = _Status(self)

    @classmethod
    def from_model(cls, found: services.ServiceResponse) -> MLFlowDeploymentService:
        """The service that the client lists."""
        return cls(found.id, found.config, found.admin_state)

    # ------------------------------------------------------------------ its process

    @property
    def _folder(self) -> str:
        top = self.config.root_runtime_path or os.path.join(_store_files(), "services")
        return os.path.join(top, str(self.uuid))

    def _kept(self) -> Dict[str, Any]:
        """What its record says of its process; {} before it is registered."""
        try:
            return dict(services.get(self.uuid).body_.get("process") or {})
        except KeyError:
            return {}

    def _daemon(self) -> Optional[daemons.Daemon]:
        kept = self._kept()
        return daemons.Daemon(kept["pid"], kept["began"]) if kept else None

    @property
    def endpoint(self) -> MLFlowDeploymentEndpoint:
        """Where it answers."""
        return MLFlowDeploymentEndpoint(self._kept().get("port"))

    def start(self, timeout: int = 0) -> None:
        """Start it unless it runs, and wait for at most ``timeout`` seconds until it answers.

        Raises:
            RuntimeError: its process ended; has what it printed last.
        """
        self.admin_state = ServiceState.ACTIVE
        if self.status.pid is None:
            self._launch()
        self.status.set(ServiceState.PENDING_STARTUP, "")
        until = time.monotonic() + timeout
        while not self.is_running and time.monotonic() < until:
            if self.status.pid is None:
                self.status.set(ServiceState.ERROR, "its process ended")
                self._tell()
                last = "\n".join(list(self.get_logs(tail=10)))
                raise RuntimeError(
                    f"the server of model '{self.config.model_name}' ended before it answered; "
                    f"{self.status.log_file} has what it printed, at last:\n{last}"
                )
            time.sleep(0.1)
        self._tell()

    def _launch(self) -> None:
        importlib.import_module("mlflow")  # so the stack has its tracker
        tracker = stacks.active().experiment_tracker
        if tracker is None:
            raise ValueError("serving a model of MLflow needs an MLflow experiment tracker")
        tracker.configure_mlflow()
        os.makedirs(self._folder, exist_ok=True)
        port = _free_port(self._kept().get("port"))
        command = [
            *(sys.executable, "-m", "mlflow", "models", "serve"),
            *("--model-uri", self.config.model_uri, "--workers", str(self.config.workers)),
            *("--host", _HERE, "--port", str(port), "--env-manager", "local"),
        ]
        env = {k: v for k, v in os.environ.items() if k.startswith("MLFLOW_")}
        env["PATH"] = os.pathsep.join([os.path.dirname(sys.executable), os.environ["PATH"]])
        made = daemons.start(command, env, self.status.log_file)
        process = {**made._asdict(), "port": port}
        try:
            services.update(self.uuid, {"process": process})
        except BaseException:  # nobody would find it
            made.end(0, True)
            raise

    def _drop(self) -> None:
        """Kill it, whatever it answers."""
        daemon = self._daemon()
        if daemon is not None:
            daemon.end(0, True)

    def stop(self, timeout: int = 0, force: bool = False) -> None:
        """End it, and wait for at most ``timeout`` seconds until it has ended; then it is killed."""
        self.admin_state = ServiceState.INACTIVE
        daemon = self._daemon()
        if daemon is not None:
            daemon.end(timeout, force)
        self.update_status()
        self._tell()

    def _tell(self) -> None:
        """Let its record say its state."""
        try:
            services.update(self.uuid, self.told())
        except KeyError:  # it isn't registered, or was deleted
            pass

    def told(self) -> Dict[str, Any]:
        """What its record says of its state."""
        return {
            "service_source": f"{_CLASS}.{type(self).__name__}",
            "admin_state": self.admin_state,
            "status": self.status.model_dump(),
            "endpoint": self.endpoint.model_dump(),
            "prediction_url": self.endpoint.prediction_url,
            "health_check_url": self.endpoint.healthcheck_url,
        }

    # ------------------------------------------------------------------ its state

    def update_status(self) -> None:
        """Look whether its process runs and answers."""
        if self.status.pid is not None:
            answers = self.endpoint.is_active()
            state = ServiceState.ACTIVE if answers else ServiceState.PENDING_STARTUP
            self.status.set(state, "")
        elif self.status.state is not ServiceState.ERROR:
            self.status.set(ServiceState.INACTIVE, "")

    @property
    def is_running(self) -> bool:
        """Whether it answers."""
        self.update_status()
        return self.status.state is ServiceState.ACTIVE

    @property
    def is_stopped(self) -> bool:
        """Whether it was stopped, or never started."""
        self.update_status()
        return self.status.state is ServiceState.INACTIVE

    @property
    def is_failed(self) -> bool:
        """Whether it ended when it should have started."""
        self.update_status()
        return self.status.state is ServiceState.ERROR

    @property
    def prediction_url(self) -> Optional[str]:
        """Where it takes requests; None: it doesn't run."""
        return self.endpoint.prediction_url if self.is_running else None

    def get_prediction_url(self) -> Optional[str]:
        """As :attr:`prediction_url`."""
        return self.prediction_url or self.endpoint.status.uri

    def get_healthcheck_url(self) -> Optional[str]:
        """Where it says that it is there."""
        return self.endpoint.healthcheck_url

    def get_service_status_message(self) -> str:
        """Its state in words."""
        return (
            f"  Administrative state: `{self.admin_state.value}`\n"
            f"  Operational state: `{self.status.state.value}`\n"
            f"  Last status message: '{self.status.last_error}'\n"
        )

    def get_logs(self, follow: bool = False, tail: Optional[int] = None) -> Iterator[str]:
        """The lines that it printed, or the last ``tail`` of them; ``follow`` waits for more while
        it runs."""
        try:
            stream = open(self.status.log_file, encoding="utf-8", errors="replace")
        except FileNotFoundError:
            return
        with stream:
            lines = stream.readlines()
            for line in lines[-tail:] if tail else lines:
                yield line.rstrip("\n")
            while follow and self.status.pid is not None:
                line = stream.readline()
                if line:
                    yield line.rstrip("\n")
                else:
                    time.sleep(0.2)

    def predict(self, request: Any) -> Any:
        """The model's answer to an array or a DataFrame, as an array.

        Raises:
            RuntimeError: it doesn't run, or refuses the request.
        """
        from urllib.error import HTTPError
        from urllib.request import Request

        import numpy

        url = self.prediction_url
        if url is None:
            raise RuntimeError(
                f"the server of model '{self.config.model_name}' isn't running: start it first"
            )
        rows = request.to_dict("records") if hasattr(request, "to_dict") else request.tolist()
        data = json.dumps({"instances": rows}).encode()
        asked = Request(url, data, {"Content-Type": "application/json"})
        try:
            with _open(asked, timeout=300) as answer:
                return numpy.array(json.load(answer)["predictions"])
        except HTTPError as bad:
            text = bad.read().decode("utf-8", "replace")[:2000]
            raise RuntimeError(
                f"the server of model '{self.config.model_name}' refuses the request: {text}"
            ) from None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, MLFlowDeploymentService) and other.uuid == self.uuid

    def __hash__(self) -> int:
        return hash(self.uuid)

    def __repr__(self) -> str:
        return f"MLFlowDeploymentService(uuid={self.uuid}, model_name={self.config.model_name!r})"


def _store_files() -> str:
    return stacks.ArtifactStore().path


def _free_port(before: Optional[int]) -> int:
    """The port that it had before, if that is free, else another one."""
    for port in (before, 0):
        if port is not None:
            with socket.socket() as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                try:
                    probe.bind((_HERE, port))
                except OSError:
                    continue
                return int(probe.getsockname()[1])
    raise RuntimeError("no free port on the loopback interface")


class ServiceMaterializer(BaseMaterializer):
    """Keeps which service an output is."""

    ASSOCIATED_TYPES = (MLFlowDeploymentService,)
    ASSOCIATED_ARTIFACT_TYPE = "ServiceArtifact"

    def save(self, data: MLFlowDeploymentService) -> None:
        """Write its id."""
        with open(os.path.join(self.uri, "service.json"), "w", encoding="utf-8") as stream:
            stream.write(str(data.uuid))

    def load(self, data_type: Any) -> MLFlowDeploymentService:
        """The service as it is at present; raises KeyError if it was deleted."""
        with open(os.path.join(self.uri, "service.json"), encoding="utf-8") as stream:
            return MLFlowDeploymentService.from_model(services.get(stream.read().strip()))

    def extract_metadata(self, data: MLFlowDeploymentService) -> Dict[str, Any]:
        """Where it answers."""
        url = data.get_prediction_url()
        return {"uri": url} if url else {}


class BaseModelDeployer(Component):
    """Base of model deployers."""


class MLFlowModelDeployer(BaseModelDeployer):
    """Starts and finds servers of models on this machine."""

    NAME = "MLflow"

    def __init__(self, name: str, config: Mapping[str, Any]) -> None:
        unknown = sorted(set(config) - {"service_path"})
        if unknown:
            raise ValueError(
                f"a model deployer of MLflow has no '{unknown[0]}'; it has service_path"
            )
        super().__init__("model_deployer", "mlflow", name, config)

    @classmethod
    def get_active_model_deployer(cls) -> MLFlowModelDeployer:
        """The active stack's.

        Raises:
            TypeError: it has none.
        """
        found = stacks.active().model_deployer
        if not isinstance(found, cls):
            raise TypeError("the active stack has no model deployer: MLflow isn't installed")
        return found

    @property
    def local_path(self) -> str:
        """The folder of its servers' logs."""
        kept: str = self.configuration.get("service_path") or os.path.join(
            _store_files(), "services"
        )
        os.makedirs(kept, exist_ok=True)
        return kept

    @staticmethod
    def get_model_server_info(service_instance: MLFlowDeploymentService) -> Dict[str, Any]:
        """What there is to know of a server."""
        config, endpoint = service_instance.config, service_instance.endpoint
        return {
            "PREDICTION_URL": endpoint.prediction_url,
            "MODEL_URI": config.model_uri,
            "MODEL_NAME": config.model_name,
            "REGISTRY_MODEL_NAME": config.registry_model_name,
            "REGISTRY_MODEL_VERSION": config.registry_model_version,
            "SERVICE_PATH": service_instance.status.runtime_path,
            "DAEMON_PID": str(service_instance.status.pid),
            "HEALTH_CHECK_URL": endpoint.healthcheck_url,
        }

    def find_model_server(
        self,
        config: Optional[Mapping[str, Any]] = None,
        running: Optional[bool] = None,
        service_uuid: Any = None,
        pipeline_name: Optional[str] = None,
        pipeline_step_name: Optional[str] = None,
        service_name: Optional[str] = None,
        model_name: Optional[str] = None,
        model_version: Optional[str] = None,
        service_type: Optional[services.ServiceType] = None,
        type: Optional[str] = None,
        flavor: Optional[str] = None,
        pipeline_run_id: Any = None,
    ) -> List[MLFlowDeploymentService]:
        """The servers that fit, the last one first; with ``running`` those that answer."""
        given = {
            "id": None if service_uuid is None else str(service_uuid),
            "service_name": service_name,
            "pipeline_name": pipeline_name,
            "pipeline_step_name": pipeline_step_name,
            "model_version_id": _version_id(model_name, model_version),
            "type": service_type.type if service_type else type,
            "flavor": service_type.flavor if service_type else flavor,
            "config": config,
        }
        page = services.listing({**given, "sort_by": "desc:created", "size": 10000})
        found = []
        for one in page:
            service = MLFlowDeploymentService.from_model(one)
            service.update_status()
            if one.status != service.status.model_dump():
                service._tell()
            if running is None or service.is_running == running:
                found.append(service)
        return found

    def _one(self, id: Any) -> MLFlowDeploymentService:
        found = self.find_model_server(service_uuid=id)
        if not found:
            raise RuntimeError(f"there is no model server '{id}'")
        return found[0]

    def deploy_model(
        self,
        config: MLFlowDeploymentConfig,
        service_type: Optional[services.ServiceType] = None,
        replace: bool = False,
        continuous_deployment_mode: bool = False,
        timeout: int = 300,
    ) -> MLFlowDeploymentService:
        """Start a server, or return the one of the same configuration. ``replace`` and
        ``continuous_deployment_mode`` remove the one of the same step and model, or of its name.

        Raises:
            EntityExistsError: there is one of its name.
            RuntimeError: it doesn't start.
        """
        if self.configuration.get("service_path") and not config.root_runtime_path:
            config.root_runtime_path = self.local_path  # its record has it, so others find its log
        same = self.find_model_server(config=config.model_dump())
        if same and not continuous_deployment_mode:
            return same[0]
        if replace or continuous_deployment_mode:
            for one in self.find_model_server():
                keys = ("pipeline_name", "pipeline_step_name", "model_name")
                alike = all(getattr(one.config, k) == getattr(config, k) for k in keys)
                if alike or one.config.service_name == config.service_name:
                    self.delete_model_server(one.uuid, timeout)
        kind = service_type or MLFlowDeploymentService.SERVICE_TYPE
        version = _version_id(config.model_name, config.model_version)
        made = services.create(config, kind, version)
        service = MLFlowDeploymentService(made.id, config)
        try:
            service.start(timeout)
        except BaseException as bad:
            service._drop()
            services.delete(made.id)
            if isinstance(bad, Exception):
                raise RuntimeError(f"model '{config.model_name}' isn't served: {bad}") from bad
            raise
        return service

    def stop_model_server(self, uuid: Any, timeout: int = 300, force: bool = False) -> None:
        """End a server; its record stays. Raises RuntimeError if there is none."""
        self._one(uuid).stop(timeout, force)

    def start_model_server(self, uuid: Any, timeout: int = 300) -> None:
        """Start a server that was stopped; raises RuntimeError as :meth:`deploy_model`."""
        self._one(uuid).start(timeout)

    def delete_model_server(self, uuid: Any, timeout: int = 300, force: bool = False) -> None:
        """End a server and remove it with its log; raises RuntimeError if there is none."""
        service = self._one(uuid)
        service.stop(timeout, force)
        shutil.rmtree(service._folder, ignore_errors=True)
        services.delete(service.uuid)

    def get_model_server_logs(
        self, uuid: Any, follow: bool = False, tail: Optional[int] = None
    ) -> Iterator[str]:
        """The lines that a server printed; raises RuntimeError if there is none."""
        return self._one(uuid).get_logs(follow, tail)

    def load_service(self, service_id: Any) -> MLFlowDeploymentService:
        """A service by its id; raises KeyError."""
        return MLFlowDeploymentService.from_model(services.get(service_id))


def _version_id(model: Optional[str], version: Optional[str]) -> Optional[str]:
    """The id of a model's version, if there is one."""
    if not model:
        return None
    try:
        return str(models.get_model_version(model, version or None).id)
    except KeyError:
        return None
