"""Past and current runs: ``Metaflow, Flow, Run, Step, Task, DataArtifact``.

Pathspecs name objects (``Flow/run/step/task/artifact``). An object iterates over its children, the
newest first, and returns one by name. The namespace, by default ``user:NAME``, selects the visible
runs; ``namespace(None)`` shows all. Objects can be pickled: only the pathspec and the store's
folder are written.
"""

from __future__ import annotations

from ._object import DataArtifact, MetaflowData, MetaflowObject
from ._place import (
    default_metadata,
    default_namespace,
    get_metadata,
    get_namespace,
    metadata,
    namespace,
)
from ._run import Flow, Metaflow, Run, Step
from ._task import Task, TaskFailure

KINDS = (Flow, Run, Step, Task, DataArtifact)  # by the number of names in the pathspec, from one

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
    "metadata",
    "namespace",
]
