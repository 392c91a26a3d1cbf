"""Names of runs, steps and versions as ``bulk_log_metadata`` takes them, and objects by id and
type."""

from __future__ import annotations

from typing import Any


class Identifier:
    """An object by its ``id``, or by its name and what else makes it unique."""

    def __init__(
        self,
        id: Any = None,
        name: Any = None,
        version: Any = None,
        prefix: Any = None,
        run: Any = None,
    ) -> None:
        if id is not None and name is not None:
            raise ValueError(f"{type(self).__name__}: give either id or name, not both")
        self.id, self.name, self.version = id, name, version
        self.prefix, self.run = prefix, run

    @property
    def value(self) -> Any:
        """The one that is given: id, name or prefix."""
        return self.id or self.name or self.prefix


class PipelineRunIdentifier(Identifier):
    """A run by ``id``, ``name`` or ``prefix``."""


class StepRunIdentifier(Identifier):
    """A step by ``id``, or by ``name`` and ``run``."""


class ArtifactVersionIdentifier(Identifier):
    """A version of an artifact by ``id``, or by ``name`` and ``version``."""


class ModelVersionIdentifier(Identifier):
    """A version of a model by ``id``, or by ``name`` and ``version``."""


class Resource:
    """An object by its ``id`` and ``type``."""

    def __init__(self, id: Any, type: Any) -> None:
        self.id, self.type = id, type


class RunMetadataResource(Resource):
    """What metadata is attached to."""


class TagResource(Resource):
    """What has a tag."""
