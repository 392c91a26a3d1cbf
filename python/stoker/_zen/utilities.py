"""The functions of ``zenml.utils``, ``zenml.constants`` and ``zenml.environment`` that programs
use."""

from __future__ import annotations

import base64
import datetime
import fnmatch
import hashlib
import importlib
import json
import os
import platform
import secrets
import string
import sys
import uuid
from pathlib import Path
from typing import Any, Dict, Iterator, List, Optional, Union

from .._dialect import copy
from .enums import StrEnum as StrEnum
from .errors import SourceValidationException
from .responses import Source, load

# ---------------------------------------------------------------------------- files

_AWAY = ("gs://", "hdfs://", "s3://", "az://", "abfs://")


def is_remote(path: str) -> bool:
    """Whether a path is one of a service."""
    return path.startswith(_AWAY)


def is_root(path: str) -> bool:
    """Whether a path has nothing above it."""
    return Path(path).parent == Path(path)


def write_file_contents_as_string(file_path: str, content: str) -> None:
    """Write a text; raises ValueError for anything else."""
    if not isinstance(content, str):
        raise ValueError(f"the content must be a str, not {type(content).__name__}")
    Path(file_path).write_text(content, encoding="utf-8")


def read_file_contents_as_string(file_path: str) -> str:
    """A file's text; raises FileNotFoundError."""
    return Path(file_path).read_text(encoding="utf-8")


def copy_dir(source_dir: str, destination_dir: str, overwrite: bool = False) -> None:
    """Copy what is in a folder; raises FileExistsError unless ``overwrite``."""
    for one in find_files(source_dir, "*"):
        target = os.path.join(destination_dir, os.path.relpath(one, source_dir))
        create_dir_recursive_if_not_exists(os.path.dirname(target))
        copy(one, target, overwrite)


def find_files(dir_path: Any, pattern: str) -> Iterator[str]:
    """The files below a folder whose names fit a pattern, found before the first one is given."""
    walked = list(os.walk(dir_path))
    for folder, _, names in walked:
        yield from (os.path.join(folder, name) for name in fnmatch.filter(names, pattern))


def create_file_if_not_exists(file_path: str, file_contents: str = "{}") -> None:
    """Make a file, and its folder, unless it is there."""
    if not os.path.exists(file_path):
        create_dir_recursive_if_not_exists(os.path.dirname(os.path.abspath(file_path)))
        write_file_contents_as_string(file_path, file_contents)


def create_dir_if_not_exists(dir_path: str) -> None:
    """Make a folder unless it is there."""
    if not os.path.isdir(dir_path):
        os.mkdir(dir_path)


def create_dir_recursive_if_not_exists(dir_path: str) -> None:
    """Make a folder, and those above it, unless it is there."""
    os.makedirs(dir_path, exist_ok=True)


def resolve_relative_path(path: str) -> str:
    """The whole path."""
    return path if is_remote(path) else str(Path(path).resolve())


def is_path_within_directory(path: str, directory: str) -> bool:
    """Whether a path, seen from a folder, is in it."""
    above = os.path.abspath(directory)
    return os.path.commonpath([above, os.path.abspath(os.path.join(above, path))]) == above


def move(source: str, destination: str, overwrite: bool = False) -> None:
    """Rename a file; raises FileExistsError unless ``overwrite``."""
    if os.path.exists(destination) and not overwrite:
        raise FileExistsError(f"'{destination}' exists; pass overwrite=True to replace it")
    os.replace(source, destination)


def get_parent(dir_path: str) -> str:
    """The name of the folder above; raises ValueError where the path isn't there."""
    if not os.path.exists(dir_path):
        raise ValueError(f"there is no '{dir_path}'")
    return Path(dir_path).parent.stem


def get_grandparent(dir_path: str) -> str:
    """The name of the second folder above; raises as :func:`get_parent`."""
    get_parent(dir_path)
    return Path(dir_path).parent.parent.stem


def get_global_config_directory() -> str:
    """Where ZenML would have its configuration; Stoker keeps nothing there."""
    from .client import Client

    return str(Client().config_directory or os.path.abspath(".stoker"))


# ---------------------------------------------------------------------------- YAML and JSON


def _yaml() -> Any:
    try:
        return importlib.import_module("yaml")
    except ImportError:
        raise ImportError("zenml.utils.yaml_utils needs PyYAML: install it") from None


def _folder_of(file_path: str) -> None:
    folder = os.path.dirname(os.path.abspath(file_path))
    if not os.path.isdir(folder):
        raise FileNotFoundError(f"there is no folder '{folder}'")


def write_yaml(file_path: str, contents: Any, sort_keys: bool = True) -> None:
    """Write YAML; raises FileNotFoundError where its folder isn't."""
    _folder_of(file_path)
    write_file_contents_as_string(file_path, _yaml().dump(contents, sort_keys=sort_keys))


def append_yaml(file_path: str, contents: Dict[Any, Any]) -> None:
    """Add keys to a file of YAML; raises FileNotFoundError."""
    write_yaml(file_path, {**(read_yaml(file_path) or {}), **contents})


def read_yaml(file_path: str) -> Any:
    """What a file of YAML holds; raises FileNotFoundError."""
    return _yaml().safe_load(read_file_contents_as_string(file_path))


def is_yaml(file_path: str) -> bool:
    """Whether the file's name is one of YAML."""
    return os.path.splitext(file_path)[1].lower() in (".yaml", ".yml")


def write_json(file_path: str, contents: Any, encoder: Any = None, **how: Any) -> None:
    """Write JSON; raises FileNotFoundError where its folder isn't."""
    _folder_of(file_path)
    write_file_contents_as_string(file_path, json.dumps(contents, cls=encoder, **how))


def read_json(file_path: str) -> Any:
    """What a file of JSON holds; raises FileNotFoundError."""
    return json.loads(read_file_contents_as_string(file_path))


class UUIDEncoder(json.JSONEncoder):
    """JSON with UUIDs as their 32 digits."""

    def default(self, obj: Any) -> Any:
        """The digits of a UUID."""
        return obj.hex if isinstance(obj, uuid.UUID) else super().default(obj)


# ---------------------------------------------------------------------------- texts and values


def get_human_readable_time(seconds: float) -> str:
    """``1h2m3s``; less than a minute has milliseconds."""
    minutes, rest = divmod(int(abs(seconds)), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    sign = "-" if seconds < 0 else ""
    if not (days or hours or minutes):
        return f"{sign}{abs(seconds):.3f}s"
    return sign + "".join(
        f"{number}{unit}"
        for number, unit, shown in (
            (days, "d", days),
            (hours, "h", days or hours),
            (minutes, "m", True),
            (rest, "s", True),
        )
        if shown
    )


def get_human_readable_filesize(bytes_: int) -> str:
    """``1.50 MiB``."""
    size, units = abs(float(bytes_)), ["B", "KiB", "MiB", "GiB"]
    while size >= 1024 and len(units) > 1:
        size /= 1024
        units.pop(0)
    return f"{size:.2f} {units[0]}"


def b64_encode(input_: str) -> str:
    """A text in base 64."""
    return base64.b64encode(input_.encode()).decode()


def b64_decode(input_: str) -> str:
    """The text that base 64 holds."""
    return base64.b64decode(input_.encode()).decode()


def random_str(length: int) -> str:
    """A text of random letters and digits."""
    return "".join(secrets.choice(string.ascii_letters + string.digits) for _ in range(length))


def recursive_update(
    original: Dict[str, Any], update: Dict[str, Any], ignore_none: bool = False
) -> Dict[str, Any]:
    """Lay a dict over another, in place and with the dicts inside; returns it."""
    for key, value in update.items():
        below = original.get(key) or {}
        if isinstance(value, dict) and isinstance(below, dict):
            original[key] = recursive_update(below, value, ignore_none)
        elif value is not None or not ignore_none:
            original[key] = value
    return original


def remove_none_values(dict_: Dict[str, Any], recursive: bool = False) -> Dict[str, Any]:
    """A dict without what is None."""
    return {
        key: remove_none_values(value, True) if recursive and isinstance(value, dict) else value
        for key, value in dict_.items()
        if value is not None
    }


def is_valid_uuid(value: Any, version: int = 4) -> bool:
    """Whether it is a UUID, or the text of one."""
    if isinstance(value, str):
        try:
            value = uuid.UUID(value, version=version)
        except ValueError:
            return False
    return isinstance(value, uuid.UUID)


def to_uuid(value: Union[str, uuid.UUID]) -> uuid.UUID:
    """The UUID; raises ValueError."""
    return value if isinstance(value, uuid.UUID) else uuid.UUID(value)


def parse_name_or_uuid(name_or_id: Optional[str]) -> Any:
    """The UUID that a text is, or the text."""
    return uuid.UUID(name_or_id) if name_or_id and is_valid_uuid(name_or_id) else name_or_id


def generate_uuid_from_string(value: str) -> uuid.UUID:
    """The UUID that always belongs to a text."""
    digest = hashlib.md5(value.encode()).hexdigest()
    return uuid.UUID(hex=digest, version=4)


# ---------------------------------------------------------------------------- times


def utc_now(tz_aware: Union[bool, datetime.datetime] = False) -> datetime.datetime:
    """The time in UTC, with its zone if asked for, or if the given time has one."""
    with_zone = tz_aware.tzinfo is not None if isinstance(tz_aware, datetime.datetime) else tz_aware
    now = datetime.datetime.now(datetime.timezone.utc)
    return now if with_zone else now.replace(tzinfo=None)


def utc_now_tz_aware() -> datetime.datetime:
    """The time in UTC with its zone."""
    return utc_now(tz_aware=True)


def to_utc_timezone(dt: datetime.datetime) -> datetime.datetime:
    """A time in UTC; one without a zone is in UTC already."""
    zone = datetime.timezone.utc
    return dt.replace(tzinfo=zone) if dt.tzinfo is None else dt.astimezone(zone)


def to_local_tz(dt: datetime.datetime) -> datetime.datetime:
    """A time in this machine's zone; one without a zone is in UTC."""
    return to_utc_timezone(dt).astimezone()


def seconds_to_human_readable(time_seconds: int) -> str:
    """``1d2h3m4s`` without the parts that are 0."""
    parts = ((86400, None, "d"), (3600, 24, "h"), (60, 60, "m"), (1, 60, "s"))
    numbers = ((time_seconds // size % (most or sys.maxsize), unit) for size, most, unit in parts)
    return "".join(f"{number}{unit}" for number, unit in numbers if number)


def expires_in(
    expires_at: datetime.datetime, expired_str: str, skew_tolerance: Optional[int] = None
) -> str:
    """How long it is until a time, or ``expired_str``."""
    left = expires_at - utc_now(expires_at) - datetime.timedelta(seconds=skew_tolerance or 0)
    seconds = left.total_seconds()
    return expired_str if seconds < 0 else seconds_to_human_readable(int(seconds))


# ---------------------------------------------------------------------------- sources


def resolve(obj: Any, *_: Any, **__: Any) -> Source:
    """Where a class, function or module is."""
    module = getattr(obj, "__module__", None) or obj.__name__
    if module == "__main__":
        module = Path(getattr(sys.modules["__main__"], "__file__", None) or module).stem
    return Source(f"{module}.{getattr(obj, '__name__', type(obj).__name__)}")


def get_source_root() -> str:
    """The folder from which the program's modules are imported."""
    from .._engine.compiled import main_file

    file = main_file()
    return os.getcwd() if file is None else os.path.dirname(file)


get_implicit_source_root = get_source_root


def load_and_validate_class(source: Union[Source, str], expected_class: Any) -> Any:
    """The class that a source names; raises TypeError if it is none of that kind."""
    found = load(source)
    if not (isinstance(found, type) and issubclass(found, expected_class)):
        raise TypeError(f"'{source}' is {found!r}, not a {expected_class.__name__}")
    return found


def validate_source_class(source: Union[Source, str], expected_class: Any) -> None:
    """Raises SourceValidationException if a source can't be loaded, or is none of that class."""
    try:
        load_and_validate_class(source, expected_class)
    except Exception as bad:
        raise SourceValidationException(str(bad)) from bad


# ---------------------------------------------------------------------------- the dashboard


def no_page(*_: Any, **__: Any) -> None:
    """None: an object has no page, as in ZenML without a server."""


# ---------------------------------------------------------------------------- the environment


def is_true_string_value(value: Any) -> bool:
    """Whether a text means yes."""
    return value in ("1", "y", "yes", "True", "true")


def is_false_string_value(value: Any) -> bool:
    """Whether a text means no."""
    return value in ("0", "n", "no", "False", "false")


def handle_bool_env_var(var: str, default: bool = False) -> bool:
    """A variable that says yes or no."""
    value = os.environ.get(var)
    return is_true_string_value(value) or (default and not is_false_string_value(value))


def handle_int_env_var(var: str, default: int = 0) -> int:
    """A variable that is a whole number."""
    try:
        return int(os.environ[var])
    except (KeyError, ValueError):
        return default


def handle_float_env_var(var: str, default: float = 0.0) -> float:
    """A variable that is a number."""
    try:
        return float(os.environ[var])
    except (KeyError, ValueError):
        return default


DEFAULT_SERVICE_START_STOP_TIMEOUT = 60
ENV_ZENML_ACTIVE_PROJECT_ID = "ZENML_ACTIVE_PROJECT_ID"
ENV_ZENML_ACTIVE_STACK_ID = "ZENML_ACTIVE_STACK_ID"
ENV_ZENML_ANALYTICS_OPT_IN = "ZENML_ANALYTICS_OPT_IN"
ENV_ZENML_CONFIG_PATH = "ZENML_CONFIG_PATH"
ENV_ZENML_LOCAL_STORES_PATH = "ZENML_LOCAL_STORES_PATH"
ENV_ZENML_REPOSITORY_PATH = "ZENML_REPOSITORY_PATH"
ENV_ZENML_SERVER = "ZENML_SERVER"
ENV_ZENML_DEBUG = "ZENML_DEBUG"
ENV_ZENML_LOGGING_VERBOSITY = "ZENML_LOGGING_VERBOSITY"
METADATA_EXPERIMENT_TRACKER_URL = "experiment_tracker_url"
PAGE_SIZE_DEFAULT = 20
PAGE_SIZE_MAXIMUM = 10000


# ---------------------------------------------------------------------------- pages


def depaginate_stream(list_method: Any, **kwargs: Any) -> Iterator[Any]:
    """The items of all pages of a function that returns pages."""
    page = list_method(**kwargs)
    yield from page.items
    while page.index < page.total_pages:
        page = list_method(**{**kwargs, "page": page.index + 1})
        yield from page.items


def depaginate(list_method: Any, **kwargs: Any) -> List[Any]:
    """The items of all pages as a list."""
    return list(depaginate_stream(list_method, **kwargs))


# ---------------------------------------------------------------------------- where it runs


def get_environment() -> str:
    """The kind of place where the program runs."""
    return str(get_run_environment_dict()["environment"])


def get_run_environment_dict() -> Dict[str, Any]:
    """What is known of this machine, as a run's ``client_environment`` has it."""
    from .runs import machine

    return machine()


class Environment:
    """What is known of where the program runs."""

    @staticmethod
    def get_system_info() -> Dict[str, str]:
        """The operating system."""
        from .runs import _release

        release = _release()
        return {
            "os": "linux",
            "linux_distro": release.get("ID", ""),
            "linux_distro_like": release.get("ID_LIKE", ""),
            "linux_distro_version": release.get("VERSION_ID", ""),
        }

    @staticmethod
    def python_version() -> str:
        """Python's version."""
        return platform.python_version()

    @staticmethod
    def in_docker() -> bool:
        """Whether it is a container of Docker."""
        return os.path.exists("/.dockerenv")

    @staticmethod
    def in_kubernetes() -> bool:
        """Whether it is a pod."""
        return "KUBERNETES_SERVICE_HOST" in os.environ

    @staticmethod
    def in_container() -> bool:
        """Whether it is a container."""
        return Environment.in_docker() or Environment.in_kubernetes()

    @staticmethod
    def in_notebook() -> bool:
        """Whether it is a notebook."""
        shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
        return type(shell).__name__ == "ZMQInteractiveShell"

    @staticmethod
    def in_google_colab() -> bool:
        """Whether it is a notebook of Colab."""
        return "google.colab" in sys.modules

    @staticmethod
    def in_github_actions() -> bool:
        """Whether it is a job of GitHub."""
        return "GITHUB_ACTIONS" in os.environ

    @staticmethod
    def in_ci() -> bool:
        """Whether it is a job of a CI."""
        return "CI" in os.environ


class GlobalConfiguration:
    """What ZenML keeps for a user; here the store has it."""

    _one: Optional[GlobalConfiguration] = None

    def __new__(cls) -> GlobalConfiguration:
        if cls._one is None:
            cls._one = super().__new__(cls)
        return cls._one

    @property
    def _client(self) -> Any:
        from .client import Client

        return Client()

    @classmethod
    def get_instance(cls) -> GlobalConfiguration:
        """The only one."""
        return cls()

    @property
    def user_id(self) -> uuid.UUID:
        """The only user's id."""
        found: uuid.UUID = self._client.active_user.id
        return found

    @property
    def config_directory(self) -> str:
        """The store's folder."""
        return get_global_config_directory()

    local_stores_path = config_directory

    @property
    def zen_store(self) -> Any:
        """The store."""
        return self._client.zen_store

    @property
    def version(self) -> str:
        """The version of ZenML's interface."""
        from .configuration import VERSION

        return VERSION

    analytics_opt_in = False
    uses_local_store = uses_sql_store = is_initialized = True

    def get_active_stack_id(self) -> uuid.UUID:
        """The active stack's id."""
        found: uuid.UUID = self._client.active_stack_model.id
        return found

    active_stack_id = property(get_active_stack_id)

    def set_active_stack(self, stack: Any) -> None:
        """Make a stack the active one; raises KeyError."""
        self._client.activate_stack(stack)

    def get_active_project(self) -> Any:
        """The only project."""
        return self._client.active_project

    def get_active_project_id(self) -> uuid.UUID:
        """Its id."""
        found: uuid.UUID = self._client.active_project.id
        return found
