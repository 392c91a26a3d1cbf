"""What all responses have in common, and the small ones: user, project."""

from __future__ import annotations

import datetime
import enum
import importlib
import json
import sys
import uuid
from pathlib import Path
from typing import Any, Dict, List, Optional, Union

from . import fields, records
from .errors import ZenKeyError
from .records import id_of


def moment(milliseconds: Any) -> Optional[datetime.datetime]:
    """A time of the store as ZenML gives it: UTC, without a zone."""
    if not milliseconds:
        return None
    zone = datetime.timezone.utc
    return datetime.datetime.fromtimestamp(milliseconds / 1000, tz=zone).replace(tzinfo=None)


def with_numbers(metadata: Any) -> Any:
    """Metadata with the numbers that JSON has no form for, of which the store has the names."""
    if isinstance(metadata, dict):
        return {key: with_numbers(value) for key, value in metadata.items()}
    if isinstance(metadata, list):
        return [with_numbers(value) for value in metadata]
    is_name = isinstance(metadata, str) and metadata in ("nan", "inf", "-inf")
    return float(metadata) if is_name else metadata


class Response:
    """An object with an ``id``; two of the same class and id are equal.

    Attributes that only ZenML's server keeps are None; those of Stoker's own client are there too.
    """

    id: uuid.UUID
    name: str
    _absent: Any = ()  # what only a server keeps
    _own: Any = ()  # what only Stoker has

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Response) and type(other) is type(self) and other.id == self.id

    def __hash__(self) -> int:
        return hash((type(self), self.id))

    def get_hydrated_version(self) -> Any:
        """Itself: nothing is left to load."""
        return self

    def get_body(self) -> Any:
        """Itself: it has all attributes."""
        return self

    get_metadata = get_resources = get_body

    @property
    def body(self) -> Any:
        """Itself, as ``metadata`` and ``resources`` are."""
        return self

    metadata = resources = body

    @property
    def user(self) -> UserResponse:
        """The only user."""
        return user()

    @property
    def user_id(self) -> uuid.UUID:
        """Its id."""
        return user().id

    @property
    def project(self) -> ProjectResponse:
        """The only project."""
        return project()

    @property
    def project_id(self) -> uuid.UUID:
        """Its id."""
        return project().id

    @property
    def permission_denied(self) -> bool:
        """Never: the store is the user's own."""
        return False

    def yaml(self, **_: Any) -> str:
        """Its id and name as YAML."""
        return f"id: {self.id}\nname: {self.name}\n"

    def model_dump(self, mode: str = "python", **_: Any) -> Dict[str, Any]:
        """Its id and name, and its attributes as body, metadata and resources."""
        found = fields.dump(self)
        return fields.in_json(found) if mode == "json" else found

    def model_dump_json(self, **_: Any) -> str:
        """The same as JSON."""
        return json.dumps(self.model_dump(mode="json"))

    def __getattr__(self, name: str) -> Any:
        if name in type(self)._absent:
            return None
        if name in type(self)._own:
            return getattr(self.__dict__["native"], name)
        raise AttributeError(f"Stoker's {type(self).__name__} has no '{name}'")

    def __repr__(self) -> str:
        return f"{type(self).__name__}(id={self.id}, name={self.name!r})"


class Only(Response):
    """What a store has one of, and what was said of it, which is a record."""

    _kind: str
    _said: Any  # field → its value while nothing was said

    def change(self, fields: Dict[str, Any]) -> None:
        """Say something else; None leaves a field."""
        told = {key: value for key, value in fields.items() if value is not None}
        records.change(self._kind, self.name, lambda body: body.update(told))

    def __getattr__(self, name: str) -> Any:
        if name in type(self)._said:
            kept = records.get(self._kind, self.name)
            return (kept.body if kept else {}).get(name, type(self)._said[name])
        return super().__getattr__(name)


class UserResponse(Only):
    """The only user: a store has no accounts."""

    _kind = "user"
    _said = {"full_name": "", "user_metadata": {}}

    _absent = (
        *("email", "email_opted_in", "external_user_id", "avatar_url", "activation_token"),
        "default_project_id",
    )

    def __init__(self, name: str) -> None:
        self.name = name
        self.id = id_of("user", name)
        self.active = self.is_admin = True
        self.is_service_account = False
        self.created = self.updated = datetime.datetime(2020, 1, 1)
        self.oidc_claims: Dict[str, Any] = {}


class ProjectResponse(Only):
    """The only project: the store."""

    _kind = "project"
    _said = {"display_name": "default", "description": "", "project_metadata": {}}

    def __init__(self) -> None:
        self.name = "default"
        self.id = id_of("project", "default")
        self.created = self.updated = datetime.datetime(2020, 1, 1)


def user() -> UserResponse:
    """The only user: a store has no accounts."""
    return UserResponse("default")


def project() -> ProjectResponse:
    """The only project."""
    return ProjectResponse()


class SourceType(enum.Enum):
    """Whose code it is."""

    USER = "user"
    BUILTIN = "builtin"
    INTERNAL = "internal"
    DISTRIBUTION_PACKAGE = "distribution_package"
    CODE_REPOSITORY = "code_repository"
    NOTEBOOK = "notebook"
    UNKNOWN = "unknown"


class Source:
    """Where code is: ``module`` and ``attribute``."""

    is_module_source = False

    def __init__(
        self, path: str = "", module: str = "", attribute: Optional[str] = None, type: Any = None
    ) -> None:
        before, _, last = path.rpartition(".")
        self.module, self.attribute = module or before, attribute or last or None
        self._type = type

    @classmethod
    def from_import_path(cls, import_path: str, is_module_path: bool = False) -> Source:
        """The source that ``module.attribute`` names, or a module."""
        if is_module_path or "." not in import_path:
            return cls(module=import_path, type=SourceType.UNKNOWN)
        return cls(import_path, type=SourceType.UNKNOWN)

    @property
    def is_internal(self) -> bool:
        """Whether it is ZenML's own."""
        return self.module.partition(".")[0] == "zenml"

    @property
    def type(self) -> SourceType:
        """Whose code it is: Python's, ZenML's, or the user's."""
        if self._type is not None:
            return SourceType(self._type)
        root = self.module.partition(".")[0]
        return {"zenml": SourceType.INTERNAL, "builtins": SourceType.BUILTIN}.get(
            root, SourceType.USER
        )

    @property
    def import_path(self) -> str:
        """``module.attribute``."""
        return f"{self.module}.{self.attribute}" if self.attribute else self.module

    def __str__(self) -> str:
        return self.import_path

    def __eq__(self, other: object) -> bool:
        return str(self) == str(other)

    def __hash__(self) -> int:
        return hash(str(self))


def found_by(what: str, text: Any, candidates: List[Any]) -> Any:
    """The object that an id, a name, or a unique beginning of one of these names.

    Raises:
        KeyError: there is none, or several.
    """
    wanted = str(getattr(text, "id", text))
    names = [(c, (str(c.id), c.id.hex), (str(c.name),)) for c in candidates]
    for column in (1, 2):
        some = [row[0] for row in names if wanted in row[column]]
        if some:
            return some[-1]
    begins = [any(text.startswith(wanted) for text in (*ids, *name)) for _, ids, name in names]
    some = [row[0] for row, fits in zip(names, begins) if fits and wanted]
    if len(some) == 1:
        return some[0]
    if some:
        shown = ", ".join(str(c.name) for c in some[:5])
        raise _told(ZenKeyError(f"{len(some)} {what}s begin with '{wanted}': {shown}"))
    raise _told(KeyError(f"there is no {what} '{wanted}'"))


def _told(sentence: KeyError) -> KeyError:
    """The traceback in a step's log ends at the user's line."""
    sentence._stoker_told = True  # type: ignore[attr-defined]
    return sentence


def load(source: Union[Source, str]) -> Any:
    """What ``module.attribute`` names; the program itself isn't run again for it."""
    found = Source.from_import_path(source) if isinstance(source, str) else source
    main = sys.modules["__main__"]
    own = Path(getattr(main, "__file__", None) or "").stem
    module = main if found.module in ("__main__", own) else importlib.import_module(found.module)
    return getattr(module, str(found.attribute))
