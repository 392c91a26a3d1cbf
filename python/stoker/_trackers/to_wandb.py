"""W&B: a run in the project that has the pipeline's name.

``WANDB_MODE=offline``, ``WANDB_PROJECT`` and the like mean what they mean to W&B.
"""

from __future__ import annotations

import os
import re

from .files import Named
from .to_mlflow import metric_of
from .tracker import ARTIFACT_BYTES, Artifact, Tracker, missing

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, List, Optional

    from .tracker import Value

_UNKNOWN = re.compile(r"[^\w\-.]")


class WandbTracker(Tracker):
    """Logs to Weights & Biases."""

    title, package = "W&B", "wandb"

    def __init__(self) -> None:
        os.environ.setdefault("WANDB_ERROR_REPORTING", "false")
        os.environ.setdefault("WANDB_SILENT", "true")
        try:
            import wandb
        except ImportError as error:
            if error.name and error.name.partition(".")[0] != "wandb":
                raise
            raise missing(self.title, self.package) from None
        if not hasattr(wandb, "init"):  # only its folder of runs
            raise missing(self.title, self.package)
        self._wandb: Any = wandb
        self._run: Any = None
        self._tasks: set[str] = set()

    def begin(self, run: Dict[str, Any]) -> None:
        settings = self._wandb.Settings(
            console="off", x_disable_stats=True, disable_code=True, init_timeout=30
        )
        self._run = self._wandb.init(
            project=os.environ.get("WANDB_PROJECT") or _UNKNOWN.sub("_", run["pipeline"]),
            id=run["run"],
            name=run["name"],
            config=dict(run["parameters"]),
            tags=[str(tag)[:64] for tag in run["tags"]],
            resume="allow",
            settings=settings,
        )

    def _prepare(self, task: str) -> None:
        """Steps of one task say nothing of another's: each has an axis of its own."""
        if task not in self._tasks:
            self._tasks.add(task)
            self._run.define_metric(f"{task}/step")
            self._run.define_metric(f"{task}/*", step_metric=f"{task}/step")

    def metrics(self, values: List[Value]) -> None:
        rows: Dict[Any, Dict[str, Any]] = {}
        for value in values:
            self._prepare(value.task)
            row = rows.setdefault((value.task, value.rank, value.step, value.time_s), {})
            row[metric_of(value)] = value.value
            if value.step is not None:
                row[f"{value.task}/step"] = value.step
        for row in rows.values():
            self._run.log(row)

    def artifact(self, artifact: Artifact) -> None:
        name = _UNKNOWN.sub("_", f"{artifact.task}.{artifact.name}")[:128]
        made = self._wandb.Artifact(name, type="output", metadata={"stoker": artifact.digest})
        if artifact.size > ARTIFACT_BYTES:
            made.add_reference(f"file://{artifact.path}", checksum=False)
            self._run.log_artifact(made)
            return
        with Named(artifact) as path:
            if os.path.isdir(path):
                made.add_dir(path)
            else:
                made.add_file(path, name=os.path.basename(path))
            self._run.log_artifact(made)

    def end(self, status: Optional[str], error: Optional[str]) -> None:
        if error:
            self._run.summary["error"] = error
        self._run.finish(exit_code=0 if status == "succeeded" else 1)
