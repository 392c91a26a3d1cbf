"""MLflow: a run in the experiment that has the pipeline's name, by MLflow's own client.

``MLFLOW_TRACKING_URI``, ``MLFLOW_EXPERIMENT_NAME`` and the like mean what they mean to MLflow.
"""

from __future__ import annotations

import os
import re

from .files import Named
from .tracker import ARTIFACT_BYTES, Artifact, Tracker, missing

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, List, Optional

    from .tracker import Value

_BATCH = 1000  # metrics of one request, MLflow's limit
_PARAM_BYTES = 6000
_TAG_BYTES = 5000
_ENDS = {"succeeded": "FINISHED", "failed": "FAILED"}
_UNKNOWN = re.compile(r"[^\w\-. :/]")


def name_of(*parts: Any) -> str:
    """A key as MLflow allows it."""
    return _UNKNOWN.sub("_", "/".join(str(part) for part in parts))[:250]


def metric_of(value: Value) -> str:
    """``train/loss``, of ranks above 0 ``train/rank-1/loss``."""
    middle = [f"rank-{value.rank}"] if value.rank else []
    return name_of(value.task, *middle, value.name)


class MlflowTracker(Tracker):
    """Logs to MLflow 3."""

    title, package = "MLflow", "mlflow"

    def __init__(self) -> None:
        # One that is down is left alone after some seconds instead of minutes.
        os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "2")
        os.environ.setdefault("MLFLOW_HTTP_REQUEST_TIMEOUT", "20")
        try:
            from mlflow import MlflowClient
        except ImportError as error:
            if error.name and error.name.partition(".")[0] != "mlflow":
                raise
            raise missing(self.title, self.package) from None
        self._client: Any = MlflowClient()
        self._run = ""

    def _experiment(self, pipeline: str) -> str:
        number = os.environ.get("MLFLOW_EXPERIMENT_ID")
        if number:
            return number
        name = os.environ.get("MLFLOW_EXPERIMENT_NAME") or pipeline
        found = self._client.get_experiment_by_name(name)
        return str(found.experiment_id if found else self._client.create_experiment(name))

    def begin(self, run: Dict[str, Any]) -> None:
        experiment = self._experiment(run["pipeline"])
        if run["resumed"]:
            query = f"tags.`stoker.run` = '{run['run']}'"
            for known in self._client.search_runs([experiment], query, max_results=1):
                self._run = known.info.run_id
                self._client.update_run(self._run, status="RUNNING")
                return
        tags = {
            "stoker.run": run["run"],
            "stoker.pipeline": run["pipeline"],
            "stoker.store": run["store"],
            "mlflow.source.name": run["pipeline"],
            "mlflow.source.type": "PROJECT",
        }
        if run["tags"]:
            tags["stoker.tags"] = ", ".join(map(str, run["tags"]))[:_TAG_BYTES]
        made = self._client.create_run(experiment, run_name=run["name"], tags=tags)
        self._run = made.info.run_id
        for name, value in run["parameters"].items():
            self._client.log_param(self._run, name_of(name), _text(value)[:_PARAM_BYTES])

    def metrics(self, values: List[Value]) -> None:
        from mlflow.entities import Metric

        for at in range(0, len(values), _BATCH):
            batch = [
                Metric(metric_of(v), v.value, int(v.time_s * 1000), v.step or 0)
                for v in values[at : at + _BATCH]
            ]
            self._client.log_batch(self._run, metrics=batch)

    def artifact(self, artifact: Artifact) -> None:
        folder = name_of(artifact.task)
        if artifact.size > ARTIFACT_BYTES:
            key = name_of("stoker.artifact", artifact.task, artifact.name)
            self._client.set_tag(self._run, key, artifact.path[:_TAG_BYTES])
            return
        with Named(artifact) as path:
            if os.path.isdir(path):
                self._client.log_artifacts(self._run, path, f"{folder}/{artifact.name}")
            else:
                self._client.log_artifact(self._run, path, folder)

    def end(self, status: Optional[str], error: Optional[str]) -> None:
        if error:
            self._client.set_tag(self._run, "stoker.error", error[:_TAG_BYTES])
        self._client.set_terminated(self._run, _ENDS.get(status or "", "KILLED"))


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    import json

    return json.dumps(value, ensure_ascii=False)
