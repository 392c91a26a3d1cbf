"""Stacks: those of ``stoker.yaml`` and this machine, as ZenML's stacks and components show them.

``default`` is this machine with its store. Its step operators are the project's stacks for other
machines, because a step names one by ``step_operator="NAME"``. Each stack of ``stoker.yaml`` is a
stack too: with it active, all steps of a run go there, as with ``stoker run --with NAME``.
"""

from __future__ import annotations

import os
from typing import Any, Callable, Dict, List, Mapping, Optional

from .._base.binary import json_of
from . import records
from .artifacts import store_folder
from .enums import StackComponentType
from .page import Page, page_of
from .responses import Response, found_by, moment

ROLES = (
    *("orchestrator", "artifact_store", "container_registry", "step_operator", "feature_store"),
    *("model_deployer", "experiment_tracker", "alerter", "annotator", "data_validator"),
    *("image_builder", "model_registry", "deployer", "log_store", "sandbox"),
)
# Functions of what a stack is made of that add components by type: what the program has connected
# (connected.py).
joined: List[Callable[[Mapping[str, Any]], Mapping[str, List[Any]]]] = []
# Functions that give registered components that only stacks made of them have.
apart: List[Callable[[], List[Any]]] = []
# Functions that give the flavors that programs registered.
more_flavors: List[Callable[[], List[Any]]] = []
_SEVERAL = {"step_operators", "experiment_trackers", "alerters", "sandboxes"}
_FLAVORS = {"docker": "local_docker", "batch": "aws_batch"}  # of a backend, where it isn't its word
_DEFAULT = "default"
EPOCH = moment(1577836800000)  # 2020: the time of what no one has made


class FlavorResponse(Response):
    """A kind of component."""

    _absent = (
        *("logo_url", "docs_url", "sdk_docs_url", "connector_type", "connector_resource_type"),
        *("connector_resource_id_attr", "connector_requirements"),
    )
    is_custom = False
    source = ""
    user = user_id = None  # type: ignore[assignment]

    def __init__(self, kind: str, name: str) -> None:
        self.type = StackComponentType(kind)
        self.name = name
        self.display_name = name.replace("_", " ").title()
        self.integration = "built-in"
        self.id = records.id_of("flavor", f"{kind}/{name}")
        self.config_schema: Dict[str, Any] = {}
        self.created = self.updated = EPOCH


class ComponentResponse(Response):
    """A component as the client lists it."""

    _absent = ("connector", "connector_resource_id", "logo_url")
    user = user_id = None  # type: ignore[assignment]

    def __init__(self, part: Component) -> None:
        self.part, self.type, self.name, self.id = part, part.type, part.name, part.id
        self.flavor_name = part.flavor
        self.flavor = FlavorResponse(part.type.value, part.flavor)
        self.configuration, self.labels = part.configuration, part.labels
        self.environment: Dict[str, str] = {}
        self.secrets: List[Any] = []
        self.integration = "built-in"
        self.created, self.updated = part.created, part.updated

    def __getattr__(self, name: str) -> Any:
        if name in type(self)._absent or name.startswith("_"):
            return super().__getattr__(name)
        return getattr(self.__dict__["part"], name)


class Component(Response):
    """A component of the stack."""

    _absent = ("local_path", "log_file", "post_registration_message", "validator")
    environment: Dict[str, str] = {}

    def __init__(
        self, kind: str = "", flavor: str = "", name: str = "", config: Any = (), **given: Any
    ) -> None:
        """``given``: what ZenML makes a component of the program's own class of, besides."""
        self.type = StackComponentType(given.get("type") or kind)
        self.flavor = self.flavor_name = flavor
        self.name = name
        self.id = given.get("id") or records.id_of("component", f"{kind}/{name}")
        checked = hasattr(config, "model_dump")
        self.configuration = {} if checked else dict(config)
        self._config = config if checked else Config(config)
        self.labels = None
        self.created = self.updated = EPOCH
        self.is_remote = bool(config.is_remote if checked else self.configuration.get("is_remote"))
        self.secrets: List[Any] = []

    @property
    def config(self) -> Any:
        """Its configuration."""
        return self._config

    @config.setter
    def config(self, config: Any) -> None:
        self._config = config

    @property
    def requirements(self) -> List[str]:
        """None: the packages are those of this machine."""
        return []

    @property
    def apt_packages(self) -> List[str]:
        """None."""
        return []

    def prepare_step_run(self, info: Any) -> None:
        """Nothing to do before a step."""

    def get_step_run_metadata(self, info: Any) -> Dict[str, Any]:
        """Nothing to say of a step."""
        return {}

    def get_pipeline_run_metadata(self, run_id: Any) -> Dict[str, Any]:
        """Nothing to say of a run."""
        return {}

    def cleanup_step_run(self, info: Any, step_failed: bool) -> None:
        """Nothing to do after a step."""

    @property
    def is_running(self) -> bool:
        """True: nothing has to be started."""
        return True

    is_provisioned = is_running

    def get_settings(self, *_: Any, **__: Any) -> Any:
        """Its configuration: a step's settings are on the step."""
        return self.config

    def get_connector(self) -> None:
        """None, as :meth:`connector_has_expired` says."""

    def cleanup(self) -> None:
        """Nothing to do."""

    @property
    def settings_class(self) -> Any:
        """None: its settings are those of steps."""

    def connector_has_expired(self) -> bool:
        """Never: it needs no connector."""
        return False


class Config:
    """The configuration of a component, as attributes."""

    def __init__(self, fields: Mapping[str, Any]) -> None:
        self.__dict__.update(fields)

    is_remote = False

    @property
    def is_local(self) -> bool:
        """Whether it is on this machine."""
        return not self.is_remote

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(
            f"this component's configuration has no '{name}'; it has {', '.join(self.__dict__)}"
        )

    def model_dump(self, **_: Any) -> Dict[str, Any]:
        """The fields."""
        return dict(self.__dict__)


class ArtifactStore(Component):
    """The store's folder, with ZenML's functions for files."""

    def __init__(self, shared: Optional[str] = None) -> None:
        path = os.path.join(store_folder() or os.path.abspath(".stoker"), "files")
        more = {} if shared is None else {"shared": shared}
        super().__init__("artifact_store", "local", _DEFAULT, {"path": path, **more})
        self.path = path
        self.custom_cache_key = None

    def exists(self, path: str) -> bool:
        """Whether a file or folder exists; the store's own folder always does."""
        if os.fspath(path) == self.path:
            os.makedirs(self.path, exist_ok=True)
        return os.path.exists(path)

    def open(self, path: str, mode: str = "r") -> Any:
        """Open a file; makes its folder to write it."""
        if any(letter in mode for letter in "wax"):
            os.makedirs(os.path.dirname(os.fspath(path)) or ".", exist_ok=True)
        return open(path, mode, encoding=None if "b" in mode else "utf-8")

    def makedirs(self, path: str) -> None:
        """Make a folder and those above it."""
        os.makedirs(path, exist_ok=True)

    mkdir = makedirs

    def copyfile(self, src: str, dst: str, overwrite: bool = False) -> None:
        """Copy a file."""
        from .._dialect import copy

        copy(src, dst, overwrite)

    def remove(self, path: str) -> None:
        """Remove a file."""
        os.remove(path)

    def rmtree(self, path: str) -> None:
        """Remove a folder."""
        import shutil

        shutil.rmtree(path)

    def rename(self, src: str, dst: str, overwrite: bool = False) -> None:
        """Rename a file."""
        if os.path.exists(dst) and not overwrite:
            raise FileExistsError(f"'{dst}' exists; pass overwrite=True to replace it")
        os.replace(src, dst)

    def listdir(self, path: str) -> List[str]:
        """The names in a folder."""
        return os.listdir(path)

    def glob(self, pattern: str) -> List[str]:
        """The paths that fit a pattern."""
        import glob

        return glob.glob(pattern)

    def isdir(self, path: str) -> bool:
        """Whether it is a folder."""
        return os.path.isdir(path)

    def size(self, path: str) -> int:
        """Size of a file in bytes."""
        return os.path.getsize(path)

    def stat(self, path: str) -> os.stat_result:
        """What the file system says of it."""
        return os.stat(path)

    def walk(self, top: str, topdown: bool = True, onerror: Any = None) -> Any:
        """The folders below one."""
        return os.walk(top, topdown, onerror)


class StackResponse(Response):
    """A stack as the client lists it."""

    _absent = ("stack_spec_path",)
    user = user_id = None  # type: ignore[assignment]

    def __init__(self, stack: Stack) -> None:
        self.name, self.id = stack.name, stack.id
        hidden = ("image_builder", "log_store")
        self.components = {
            StackComponentType(kind): [ComponentResponse(one) for one in some]
            for kind, some in stack.parts.items()
            if kind not in hidden
        }
        self.description = stack.said
        self.labels: Dict[str, str] = {}
        self.environment: Dict[str, str] = {}
        self.secrets: List[Any] = []
        self.created = self.updated = EPOCH

    @property
    def is_valid(self) -> bool:
        """True: it has an orchestrator and an artifact store."""
        return True

    def to_yaml(self) -> Dict[str, Any]:
        """Its name and its components' names by type."""
        kinds = {kind.value: some[0].name for kind, some in self.components.items()}
        return {"stack_name": self.name, "components": kinds}


class Stack:
    """A stack; ``given`` is what ``stoker stack list`` says of one of ``stoker.yaml``, None for
    this machine."""

    requires_remote_server = False

    def __init__(
        self,
        given: Optional[Mapping[str, Any]] = None,
        others: Any = (),
        made_of: Optional[Mapping[str, Any]] = None,
    ) -> None:
        self.given = given
        self.name = _DEFAULT if given is None else str(given["name"])
        self.id = records.id_of("stack", self.name)
        self.environment: Dict[str, str] = {}
        self.secrets: List[Any] = []
        self.apt_packages: List[str] = []
        told: Mapping[str, Any] = {"backend": "local"} if given is None else given
        backend = str(told["backend"])
        shared = told.get("store")
        where = {**(told.get("options") or {}), "is_remote": backend not in _HERE}
        flavor = _FLAVORS.get(backend, backend)
        self.parts: Dict[str, List[Component]] = {
            "orchestrator": [Component("orchestrator", flavor, self.name, where)],
            "artifact_store": [ArtifactStore(shared)],
            "deployer": [Component("deployer", "local", _DEFAULT, {})],
            "image_builder": [Component("image_builder", "local", _DEFAULT, {})],
            "log_store": [Component("log_store", "artifact", _DEFAULT, {})],
        }
        operators = [one for one in others if one["backend"] not in _HERE]
        if operators:
            self.parts["step_operator"] = [
                Component(
                    "step_operator",
                    _FLAVORS.get(one["backend"], one["backend"]),
                    str(one["name"]),
                    {**(one.get("options") or {}), "is_remote": True},
                )
                for one in operators
            ]
        registries = [str(one["registry"]) for one in (told, *operators) if one.get("registry")]
        if registries:
            self.parts["container_registry"] = [
                Component("container_registry", "default", uri, {"uri": uri, "is_remote": True})
                for uri in dict.fromkeys(registries[:1])
            ]
        for kind, names in (made_of or {}).items():
            for part in self.parts.get(kind, ())[:1]:
                part.name, part.id = names[0], records.id_of("component", f"{kind}/{names[0]}")
        for more in joined:
            for kind, some in more(made_of or {}).items():
                known = self.parts.get(kind, []) if kind == "step_operator" else []
                self.parts[kind] = [*some, *known]

    @property
    def said(self) -> str:
        """What it is, in words."""
        if self.given is None:
            return "this machine and its store"
        return f"'{self.given['backend']}' of {self.given.get('file')}"

    @property
    def _parts(self) -> Dict[str, Component]:
        return {kind: some[0] for kind, some in self.parts.items()}

    @property
    def components(self) -> Dict[Any, Component]:
        """Type → component."""
        return {StackComponentType(kind): part for kind, part in self._parts.items()}

    @property
    def all_components(self) -> List[Component]:
        """All of them."""
        return [one for some in self.parts.values() for one in some]

    @property
    def component_flavor_metadata(self) -> Dict[str, str]:
        """Type → flavor."""
        return {kind: part.flavor for kind, part in self._parts.items()}

    def get_components_by_type(self, kind: Any) -> List[Component]:
        """Those of a type."""
        return list(self.parts.get(str(getattr(kind, "value", kind)), ()))

    @property
    def model(self) -> StackResponse:
        """The stack as the client lists it."""
        return StackResponse(self)

    @property
    def is_running(self) -> bool:
        """True: nothing has to be started."""
        return True

    is_provisioned = is_running

    def provision(self) -> None:
        """Nothing to do."""

    resume = suspend = deprovision = provision

    def validate(self, *_: Any, **__: Any) -> None:
        """Ask the components whether the stack is right; raises StackValidationError."""
        for one in self.all_components:
            if one.validator is not None:
                one.validator.validate(self)

    def validate_image_builder(self, *_: Any, **__: Any) -> None:
        """Nothing to do."""

    validate_log_store = validate_image_builder

    def check_local_paths(self) -> bool:
        """Whether everything is on this machine."""
        return self.given is None or self.given["backend"] in _HERE

    @property
    def required_secrets(self) -> Any:
        """None: credentials are those of the machine."""
        return set()

    @property
    def setting_classes(self) -> Dict[str, Any]:
        """None: settings of components are kept and have no effect."""
        return {}

    def requirements(self, *_: Any, **__: Any) -> Any:
        """None."""
        return set()

    def __getattr__(self, name: str) -> Any:
        if name in ROLES:
            return self._parts.get(name)
        if name in _SEVERAL:
            return {
                one.name: one
                for one in self.parts.get(name[: -2 if name == "sandboxes" else -1], ())
            }
        raise AttributeError(f"Stoker's stack has no '{name}'; it has {', '.join(ROLES)}")


_HERE = ("local", "docker")


def _named() -> List[Dict[str, Any]]:
    """The stacks that ``stoker.yaml`` names; none without it."""
    found: List[Dict[str, Any]] = json_of(["stack", "list"])
    return [one for one in found if one.get("file") and one["name"] != _DEFAULT]


def stacks() -> List[Stack]:
    """This machine, and the stacks of ``stoker.yaml``."""
    named = _named()
    made = {one.name: one.body["components"] for one in (records.listed("stack") if named else ())}
    return [Stack(None, named), *(Stack(one, (), made.get(one["name"])) for one in named)]


def backend_of(flavor: str) -> str:
    """The backend of an orchestrator's or a step operator's flavor."""
    return {theirs: ours for ours, theirs in _FLAVORS.items()}.get(flavor, flavor)


def all_components() -> List[Component]:
    """The components of all stacks and of none."""
    found: Dict[Any, Component] = {}  # of those of one name, the registered one, else the first
    for stack in stacks():
        for some in stack.parts.values():
            for one in some:
                found.setdefault(one.id, one)
    found.update((one.id, one) for more in apart for one in more())
    return list(found.values())


def active_name() -> str:
    """The name of the stack that was activated; ``default`` if none was."""
    record = records.get("zenml", "active_stack")
    return str(
        os.environ.get("ZENML_ACTIVE_STACK_NAME") or (record.body["name"] if record else _DEFAULT)
    )


def active() -> Stack:
    """The active stack; this machine if the project has the activated one no more."""
    known, name = stacks(), active_name()
    some = [one for one in known if one.name in (name, name.partition(":")[0])]
    return some[0] if some else known[0]


def of_run(name: str) -> Stack:
    """The stack that was called so, perhaps by another name since; this machine if the project has
    it no more."""
    known = {one.name: one for one in stacks()}
    later = (r.name for r in records.listed("stack") if name in r.body.get("before", ()))
    found = known.get(name) or known.get(next(later, ""))
    return found or Stack()


def activate(name_or_id: Any) -> StackResponse:
    """Make a stack the one on which runs of this project's programs go; ``NAME:OPTION=VALUE,…``
    as ``stoker run --with`` takes it. Raises KeyError."""
    wanted, colon, options = str(getattr(name_or_id, "id", name_or_id)).partition(":")
    chosen = get_stack(wanted)
    if colon and chosen.name == _DEFAULT:
        raise ValueError("the stack 'default' is this machine, which has no options")
    name = f"{chosen.name}{colon}{options}"
    if name != active_name():
        records.change("zenml", "active_stack", lambda body: body.update(name=name))
    return chosen


def active_is_here() -> bool:
    """Whether the active stack's steps run in this machine's processes."""
    given = active().given
    return given is None or given["backend"] == "local"


def chosen_place() -> List[str]:
    """The engine's option for the active stack; none for this machine."""
    name = active_name()
    return [] if name == _DEFAULT else ["--with", name]


def component(kind: Any, name_or_id: Any = None) -> ComponentResponse:
    """A component by type, and by name or id; without a name the active stack's. Raises
    KeyError."""
    word = str(getattr(kind, "value", kind))
    if name_or_id is None:
        some = active().parts.get(word, [])[:1]
        if some:
            return ComponentResponse(some[0])
        raise KeyError(f"the active stack has no {word.replace('_', ' ')}")
    parts = [one for one in all_components() if one.type == word]
    chosen: Component = found_by(word.replace("_", " "), name_or_id, parts)
    return ComponentResponse(chosen)


def list_stacks(given: Mapping[str, Any]) -> Page[StackResponse]:
    """The page of stacks."""
    asked = {
        **_FILTERS,
        "description": lambda s: s.description,
        "component_id": lambda s: [one.id for some in s.components.values() for one in some],
        "component": lambda s: [
            word for some in s.components.values() for one in some for word in (one.name, one.id)
        ],
    }
    return page_of("stacks", [one.model for one in stacks()], given, asked)


def list_components(given: Mapping[str, Any]) -> Page[ComponentResponse]:
    """The page of components that the arguments ask for."""
    given = dict(given)
    if given.get("type") is None and given.get("component_type") is not None:
        given["type"] = given.pop("component_type")
    asked = {**_FILTERS, "type": lambda c: c.type, "flavor": lambda c: c.flavor_name}
    hidden = ("image_builder", "log_store")
    parts = [ComponentResponse(p) for p in all_components() if p.type not in hidden]
    return page_of("stack_components", parts, given, asked)


_FILTERS = {
    "id": lambda s: s.id,
    "name": lambda s: s.name,
    "created": lambda s: s.created,
    "updated": lambda s: s.updated,
}


def get_stack(name_or_id: Any = None, allow_name_prefix_match: bool = True) -> StackResponse:
    """A stack by name, id or prefix, without one the active; raises KeyError."""
    if name_or_id is None:
        return active().model
    found: StackResponse = found_by("stack", name_or_id, [one.model for one in stacks()])
    return found


# ---------------------------------------------------------------------------- flavors

KNOWN = {
    "orchestrator": ("local", "local_docker", "kubernetes", "ssh", "aws_batch", "slurm"),
    "artifact_store": ("local", "s3"),
    "container_registry": ("default", "aws", "azure", "dockerhub", "gcp", "github"),
    "step_operator": ("kubernetes", "ssh", "aws_batch", "slurm"),
    "deployer": ("local",),
    "image_builder": ("local",),
    "log_store": ("artifact",),
    "experiment_tracker": ("mlflow",),
    "model_registry": ("mlflow",),
    "model_deployer": ("mlflow",),
}


def flavors() -> List[FlavorResponse]:
    """The kinds of components that stacks are made of."""
    known = [FlavorResponse(kind, name) for kind, names in KNOWN.items() for name in names]
    return [*known, *(one for more in more_flavors for one in more())]


def list_flavors(given: Mapping[str, Any]) -> Page[FlavorResponse]:
    """The page of flavors that the arguments ask for."""
    asked = {
        **_FILTERS,
        "type": lambda f: f.type,
        "display_name": lambda f: f.display_name,
        "integration": lambda f: f.integration,
    }
    return page_of("flavors", flavors(), given, asked)


def get_flavor(name_or_id: Any, kind: Any = None) -> FlavorResponse:
    """A flavor by name, id or prefix, of a type if one is given; raises KeyError."""
    some = flavors()
    if kind is not None:
        some = [one for one in some if one.type == StackComponentType(kind)]
        for one in some:
            if one.name == name_or_id:
                return one
        raise KeyError(
            f"there is no flavor '{name_or_id}' of the type '{StackComponentType(kind).value}'"
        )
    found: FlavorResponse = found_by("flavor", name_or_id, some)
    return found
