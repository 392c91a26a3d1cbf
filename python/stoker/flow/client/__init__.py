"""What was run and what came of it: ``Metaflow, Flow, Run, Step, Task, DataArtifact``.

Objects are named by pathspecs (``Flow/run/step/task/artifact``), iterate over what they hold (the newest first) and
give it by name. The namespace, by default ``user:NAME``, says whose runs are seen; ``namespace(None)`` sees all.
Objects pickle: only the pathspec and the store's place are written.
"""

from __future__ import annotations

from ._object import DataArtifact, MetaflowData, MetaflowObject
from ._place import (
    default_metadata,
    default_namespace,
    get_metadata,
    get_namespace,
    inspect_spin,
    metadata,
    namespace,
)
from ._run import Flow, Metaflow, Run, Step
from ._task import Task, TaskFailure

KINDS = (Flow, Run, Step, Task, DataArtifact)  # by how many names a pathspec has, from one

__all__ = [
    "DataArtifact",
    "Flow",
    "Metaflow",
    "MetaflowData",
    "MetaflowObject",
    "Run",
    "Step",
    "Task",
    "TaskFailure",
    "default_metadata",
    "default_namespace",
    "get_metadata",
    "get_namespace",
    "inspect_spin",
    "metadata",
    "namespace",
]
