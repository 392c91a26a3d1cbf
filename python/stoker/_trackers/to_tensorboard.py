"""TensorBoard: ``tensorboard/RUN/TASK`` in the store, a folder of event files for each task, and the
parameters for its page of hyperparameters."""

from __future__ import annotations

import os
import time

from .tracker import Tracker, missing

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, List, Optional

    from .tracker import Value

_START, _END = "_hparams_/session_start_info", "_hparams_/session_end_info"
_SUCCESS, _FAILURE = 1, 2  # of TensorBoard's Status


class TensorboardTracker(Tracker):
    """Writes event files by TensorBoard's own writer."""

    title, package = "TensorBoard", "tensorboard"

    def __init__(self) -> None:
        try:
            from tensorboard.compat.proto import event_pb2, summary_pb2
            from tensorboard.plugins.hparams import metadata, plugin_data_pb2
            from tensorboard.summary.writer.event_file_writer import EventFileWriter
        except ImportError as error:
            if error.name and error.name.partition(".")[0] != "tensorboard":
                raise
            raise missing(self.title, self.package) from None
        self._event, self._summary = event_pb2.Event, summary_pb2.Summary
        self._plugin, self._metadata = plugin_data_pb2, metadata
        self._writer = EventFileWriter
        self._writers: Dict[str, Any] = {}
        self._folder = ""

    def _to(self, *parts: str) -> Any:
        folder = os.path.join(self._folder, *parts)
        if folder not in self._writers:
            self._writers[folder] = self._writer(folder)
        return self._writers[folder]

    def _parameters(self, tag: str, data: Any) -> None:
        value = self._summary.Value(tag=tag, metadata=self._metadata.create_summary_metadata(data))
        event = self._event(wall_time=time.time(), summary=self._summary(value=[value]))
        self._to().add_event(event)

    def begin(self, run: Dict[str, Any]) -> None:
        self._folder = os.path.join(run["store"], "tensorboard", run["run"])
        info = self._plugin.SessionStartInfo(start_time_secs=time.time(), group_name=run["run"])
        for name, value in run["parameters"].items():
            place = info.hparams[name]
            if isinstance(value, bool):
                place.bool_value = value
            elif isinstance(value, (int, float)):
                place.number_value = value
            else:
                place.string_value = str(value)
        if run["parameters"]:
            self._parameters(_START, self._plugin.HParamsPluginData(session_start_info=info))

    def metrics(self, values: List[Value]) -> None:
        for value in values:
            parts = [value.task.replace("..", "_")]
            if value.rank:
                parts.append(f"rank-{value.rank}")
            scalar = self._summary.Value(tag=value.name, simple_value=value.value)
            event = self._event(
                wall_time=value.time_s,
                step=value.step or 0,
                summary=self._summary(value=[scalar]),
            )
            self._to(*parts).add_event(event)
        for writer in self._writers.values():
            writer.flush()

    def end(self, status: Optional[str], error: Optional[str]) -> None:
        if self._writers:
            code = _SUCCESS if status == "succeeded" else _FAILURE
            info = self._plugin.SessionEndInfo(status=code, end_time_secs=time.time())
            self._parameters(_END, self._plugin.HParamsPluginData(session_end_info=info))
        for writer in self._writers.values():
            writer.close()
