"""``zenml.integrations.mlflow``: the experiment tracker, and its functions, with the MLflow that is
installed.

Each step with ``experiment_tracker=…`` takes up the MLflow run that has the pipeline run's name, in the
experiment that has the pipeline's name.
"""

from __future__ import annotations

import importlib
import os
import re
import sys
from typing import Any, Dict, Mapping, Optional

from .stacks import ArtifactStore, Component

ZENML_TAG_KEY = "zenml"
_FRAMEWORKS = (
    *("tensorflow", "xgboost", "lightgbm", "statsmodels", "spark", "sklearn", "fastai", "pytorch"),
)
_CREDENTIALS = {
    "tracking_username": "MLFLOW_TRACKING_USERNAME",
    "tracking_password": "MLFLOW_TRACKING_PASSWORD",
    "tracking_token": "MLFLOW_TRACKING_TOKEN",
}
_ALL_RUNS = 3  # MLflow's ViewType


class _Fields:
    """Named fields with defaults; an unknown one is an error."""

    _defaults: Dict[str, Any] = {}

    def __init__(self, **fields: Any) -> None:
        unknown = sorted(set(fields) - set(self._defaults))
        if unknown:
            raise ValueError(
                f"{type(self).__name__} has no '{unknown[0]}'; it has {', '.join(self._defaults)}"
            )
        self._given = dict(fields)
        self.__dict__.update({**self._defaults, **fields})

    def model_dump(self, exclude_unset: bool = False, **_: Any) -> Dict[str, Any]:
        """The fields, or those that were given."""
        given = dict(self._given)
        return given if exclude_unset else {**self._defaults, **given}

    def __repr__(self) -> str:
        hidden = {k: "***" for k in _CREDENTIALS if getattr(self, k, None)}
        said = {**self.model_dump(), **hidden}
        return f"{type(self).__name__}({', '.join(f'{k}={v!r}' for k, v in said.items())})"


class MLFlowExperimentTrackerSettings(_Fields):
    """Settings of a step's or a pipeline's tracking.

    Attributes:
        experiment_name: instead of the pipeline's name.
        nested: the step gets a run of its own below the pipeline's.
        tags: of the MLflow run.
    """

    _defaults = {"experiment_name": None, "nested": False, "tags": {}}
    experiment_name: Optional[str]
    nested: bool
    tags: Dict[str, Any]


class MLFlowExperimentTrackerConfig(MLFlowExperimentTrackerSettings):
    """Configuration of the component."""

    _defaults = {
        **MLFlowExperimentTrackerSettings._defaults,
        "tracking_uri": None,
        **dict.fromkeys(_CREDENTIALS),
        "tracking_insecure_tls": False,
    }
    tracking_uri: Optional[str]
    tracking_insecure_tls: bool
    is_remote = False
    is_local = True


class BaseExperimentTracker(Component):
    """Base of experiment trackers."""


class MLFlowExperimentTracker(BaseExperimentTracker):
    """The stack's experiment tracker."""

    def __init__(self, name: str, config: Mapping[str, Any]) -> None:
        shown = {key: value for key, value in config.items() if key not in _CREDENTIALS}
        super().__init__("experiment_tracker", "mlflow", name, shown)
        self.config: Any = MLFlowExperimentTrackerConfig(**config)
        uri = self.config.tracking_uri
        schemes = ("http:", "https:", "file:", "sqlite:", "postgresql", "mysql", "mssql")
        if uri and not uri.startswith(schemes):
            raise ValueError(f"MLflow's tracking URI '{uri}' starts with none of {schemes}")

    @property
    def settings_class(self) -> Any:
        """Settings of steps."""
        return MLFlowExperimentTrackerSettings

    def _local_artifacts(self) -> str:
        path = os.path.join(ArtifactStore().path, "mlflow_artifacts")
        os.makedirs(path, exist_ok=True)
        return path

    @property
    def local_path(self) -> Optional[str]:
        """The folder of its artifacts; None: elsewhere."""
        uri = self.get_tracking_uri()
        if uri.startswith("file:"):
            return uri[5:]
        return None if self.config.tracking_uri else self._local_artifacts()

    def get_tracking_uri(self, as_plain_text: bool = True) -> str:
        """The configured URI, else a database in the store."""
        if self.config.tracking_uri:
            return str(self.config.tracking_uri)
        folder = ArtifactStore().path
        os.makedirs(folder, exist_ok=True)
        return f"sqlite:///{os.path.join(folder, 'mlflow.db')}"

    def configure_mlflow(self) -> None:
        """Let MLflow in this process use the tracker."""
        import mlflow

        uri = self.get_tracking_uri()
        mlflow.set_tracking_uri(uri)
        os.environ["MLFLOW_TRACKING_URI"] = uri
        for field, variable in _CREDENTIALS.items():
            if getattr(self.config, field):
                os.environ[variable] = getattr(self.config, field)
        insecure = "true" if self.config.tracking_insecure_tls else "false"
        os.environ["MLFLOW_TRACKING_INSECURE_TLS"] = insecure

    def get_run_id(self, experiment_name: str, run_name: str) -> Optional[str]:
        """The id of the MLflow run of that name that a step began; None: there is none."""
        self.configure_mlflow()
        import mlflow

        found: Any = mlflow.search_runs(
            experiment_names=[experiment_name],
            filter_string=f'tags.mlflow.runName = "{run_name}"',
            run_view_type=_ALL_RUNS,
            output_format="list",
        )
        return str(found[0].info.run_id) if found and is_zenml_run(found[0]) else None

    def _experiment(self, name: str) -> Any:
        import mlflow

        if mlflow.get_experiment_by_name(name) is None:
            local = None if self.config.tracking_uri else f"file:{self._local_artifacts()}"
            try:
                mlflow.MlflowClient().create_experiment(name, artifact_location=local)
            except mlflow.exceptions.MlflowException:
                if mlflow.get_experiment_by_name(name) is None:  # not another step's
                    raise
        return mlflow.set_experiment(experiment_name=name)

    def prepare_step_run(self, step: Any, settings: Mapping[str, Any]) -> None:  # type: ignore[override]
        """Begin or take up the MLflow run of this pipeline run."""
        import mlflow

        asked = {**self.config.model_dump(exclude_unset=True), **settings}
        known = MLFlowExperimentTrackerSettings._defaults
        said = MLFlowExperimentTrackerSettings(**{k: v for k, v in asked.items() if k in known})
        self.configure_mlflow()
        run = step.pipeline_run.name
        experiment = self._experiment(said.experiment_name or step.pipeline.name)
        number = self.get_run_id(experiment.name, run)
        if number is not None and mlflow.get_run(number).info.lifecycle_stage == "deleted":
            number = None
        if number is None:
            for name in ("MLFLOW_RUN_ID", "MLFLOW_EXPERIMENT_ID", "MLFLOW_EXPERIMENT_NAME"):
                os.environ.pop(name, None)
        zenml = sys.modules.get("zenml")
        tags = {**said.tags, ZENML_TAG_KEY: str(getattr(zenml, "__version__", "stoker"))}
        mlflow.start_run(
            run_id=number, run_name=run, experiment_id=experiment.experiment_id, tags=tags
        )
        if said.nested:
            mlflow.start_run(run_name=step.step_name, nested=True, tags=tags)

    def get_step_run_metadata(self) -> Dict[str, Any]:  # type: ignore[override]
        """What the step's metadata says of its MLflow run."""
        import mlflow

        without_user = re.sub(r"(\w+://)[^/\s@]*@", r"\1", self.get_tracking_uri())
        found: Dict[str, Any] = {"experiment_tracker_url": without_user}
        run = mlflow.active_run()
        if run is not None:
            found["mlflow_run_id"] = run.info.run_id
            found["mlflow_experiment_id"] = run.info.experiment_id
        return found

    def disable_autologging(self) -> None:
        """Turn off what ``mlflow.autolog`` turned on in this process."""
        for name in _FRAMEWORKS:
            if name in sys.modules or f"mlflow.{name}" in sys.modules:
                try:
                    importlib.import_module(f"mlflow.{name}").autolog(disable=True)
                except Exception:  # the library isn't whole
                    continue

    def cleanup_step_run(self, step_failed: bool) -> None:  # type: ignore[override]
        """End the step's MLflow runs."""
        import mlflow

        self.disable_autologging()
        stop_zenml_mlflow_runs("FAILED" if step_failed else "FINISHED")
        mlflow.set_tracking_uri("")


def _stack() -> Any:
    return importlib.import_module(f"{__package__}.stacks").active()


def get_missing_mlflow_experiment_tracker_error() -> ValueError:
    """The error for a stack without MLflow."""
    return ValueError(
        "the active stack has no MLflow experiment tracker: install mlflow, and import it or "
        "zenml.integrations.mlflow in the program"
    )


def get_tracking_uri() -> str:
    """The tracking URI of the active stack's experiment tracker.

    Raises:
        ValueError: the stack has no such tracker.
    """
    tracker = _stack().experiment_tracker
    if not isinstance(tracker, MLFlowExperimentTracker):
        raise get_missing_mlflow_experiment_tracker_error()
    return tracker.get_tracking_uri()


def is_zenml_run(run: Any) -> bool:
    """Whether a step began this MLflow run."""
    return ZENML_TAG_KEY in run.data.tags


def stop_zenml_mlflow_runs(status: str) -> None:
    """End this process's active MLflow runs, up to one that no step began."""
    import mlflow

    run = mlflow.active_run()
    while run is not None and is_zenml_run(run):
        mlflow.end_run(status=status)
        run = mlflow.active_run()


def is_mlflow_3x() -> bool:
    """Whether MLflow's version is 3 or above."""
    import mlflow

    return int(mlflow.__version__.partition(".")[0]) >= 3


def build_runs_uri(run_id: str, artifact_path: str) -> str:
    """``runs:/ID/PATH``."""
    return f"runs:/{run_id}/{artifact_path}"


def get_model_uri_from_version(mlflow_model_version: Any) -> str:
    """The URI by which MLflow loads a version of a model."""
    source = str(mlflow_model_version.source or "")
    if is_mlflow_3x() and mlflow_model_version.run_id and "/artifacts/" in source:
        path = source.rpartition("/artifacts/")[2]
        return build_runs_uri(mlflow_model_version.run_id, path)
    return source
