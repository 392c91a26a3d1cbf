"""Makes environments in the user's cache, each once, however many ask for it at the same time.

``$XDG_CACHE_HOME/stoker/environments`` has for each environment a folder, named by the digest of
what it is made from, and a lock. The folder's ``stoker.json``, written last, says what is in it; a
folder without it is half-made and begun anew. Nothing is changed in a finished folder, since tasks
may run from it: ``--force-rebuild-environments`` makes another one beside it. ``stoker store gc``
removes what nobody has used for long (``_base/in_use.py``).
"""

from __future__ import annotations

import contextlib
import json
import os
import platform
import re
import shutil
import subprocess
import sys
from typing import Any, Dict, Iterator, Mapping, NamedTuple, Optional

from ..._base import PACKAGE
from ..._base.binary import find
from ..._base.digest import sha256
from ..._base.errors import say
from ..._base.in_use import FACTS, use
from ..exception import InvalidEnvironmentException
from ._asked import channels
from ._tools import Maker, last_words, maker_for
from ._want import Want

# What decides where packages come from: part of an environment's name.
_INDEXES = ("PIP_", "UV_", "CONDA_", "MAMBA_", "RATTLER_")
# … but not which environment of conda's the user has activated.
_ACTIVATED = re.compile("CONDA_(PREFIX|SHLVL|DEFAULT_ENV|PROMPT|EXE|PYTHON_EXE)|MAMBA_(EXE|ROOT)")


class Environment(NamedTuple):
    """An environment that is there.

    Attributes:
        python: its interpreter. lock: digest of the packages that are installed.
        cpu_only: a package that is built for the CPU, of which others are for GPUs; "": there is none.
    """

    python: str
    lock: str
    cpu_only: str

    def variables(self) -> Dict[str, str]:
        """Variables of a task that runs in it."""
        before = [one for one in os.environ.get("PYTHONPATH", "").split(os.pathsep) if one]
        return {
            "PATH": os.pathsep.join([os.path.dirname(self.python), os.environ.get("PATH", "")]),
            "PYTHONPATH": os.pathsep.join(dict.fromkeys([_front(), *before])),
            "PYTHONNOUSERSITE": "1",
            "STOKER_BIN": find(),
        }


def environments(wants: Mapping[str, Optional[Want]], anew: bool) -> Dict[str, Environment]:
    """The environments of steps, made where they aren't there; steps without a want are left out.

    Raises:
        InvalidEnvironmentException: packages or a tool can't be had; the text says of which step.
    """
    made: Dict[Want, Environment] = {}
    found: Dict[str, Environment] = {}
    for step, want in wants.items():
        if want is None:
            continue
        plain = want._replace(gpu=False)
        try:
            if plain not in made:
                made[plain] = _environment(plain, anew)
        except InvalidEnvironmentException as bad:
            raise InvalidEnvironmentException(f"step '{step}': {bad}") from None
        found[step] = made[plain]
        if want.gpu and found[step].cpu_only:
            raise InvalidEnvironmentException(
                f"step '{step}' asks for a GPU, but the {found[step].cpu_only} of its environment ({want}) is built "
                "for the CPU only: "
                'name a build for CUDA, such as "2.5.1+cu124" with PIP_EXTRA_INDEX_URL set to PyTorch\'s index; with '
                "conda on a machine without a driver, set CONDA_OVERRIDE_CUDA"
            )
    return found


def root() -> str:
    """The folder of all environments."""
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return os.path.join(cache, "stoker", "environments")


def _environment(want: Want, anew: bool) -> Environment:
    maker = maker_for(want)
    name = _name(want, maker)
    folder = os.path.join(root(), name)
    known = None if anew else _read(folder)
    if known is not None:
        return known
    try:
        os.makedirs(root(), exist_ok=True)
        with _locked(f"{folder}.lock") as lock:
            known = None if anew else _read(folder)
            return known or _make(want, maker._replace(held=(lock,)), folder)
    except OSError as bad:
        raise InvalidEnvironmentException(
            f"the environment can't be made in {root()}: {bad.strerror or bad}; XDG_CACHE_HOME names another folder"
        ) from None


@contextlib.contextmanager
def _locked(path: str) -> Iterator[int]:
    """The descriptor of a lock; a tool that outlives this process has it too."""
    import fcntl

    with open(path, "w", encoding="utf-8") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield file.fileno()


def _read(folder: str) -> Optional[Environment]:
    """The newest finished environment of a name."""
    try:
        with open(f"{folder}.json", encoding="utf-8") as file:
            folder = os.path.join(root(), json.load(file)["folder"])
        used = use(folder)
        if used is None:
            return None
        with open(used, encoding="utf-8") as file:
            facts = json.load(file)
    except (OSError, ValueError, KeyError):
        return None
    python = os.path.join(folder, "bin", "python")
    if not os.access(python, os.X_OK):  # the interpreter that it was made from is gone
        return None
    return Environment(python, facts["lock"], facts["cpu_only"])


def _make(want: Want, maker: Maker, folder: str) -> Environment:
    place = folder
    if os.path.exists(os.path.join(folder, FACTS)):
        place = f"{folder}-{os.urandom(4).hex()}"
    shutil.rmtree(place, ignore_errors=True)
    say(f"making an environment with {want}, by {maker.name}")
    try:
        maker.make(want, place)
    except BaseException:
        shutil.rmtree(place, ignore_errors=True)
        raise
    packages = _packages(os.path.join(place, "bin", "python"))
    python = packages.pop("python", "")
    builds = _builds(place)
    packages.update(builds)
    facts = {
        "asked": str(want),
        "python": python,
        "packages": packages,
        "lock": sha256(json.dumps(packages, sort_keys=True).encode()).hexdigest()[:32],
        "cpu_only": _cpu_only(want, builds, place),
    }
    _write(os.path.join(place, FACTS), facts)
    _write(f"{folder}.json", {"folder": os.path.basename(place)})
    known = _read(folder)
    if known is None:
        raise InvalidEnvironmentException(f"{maker.name} left no interpreter in {place}")
    return known


def _write(path: str, value: Any) -> None:
    with open(f"{path}.half", "w", encoding="utf-8") as file:
        json.dump(value, file, indent=1, sort_keys=True)
    os.replace(f"{path}.half", path)


def _name(want: Want, maker: Maker) -> str:
    """Digest of everything that decides what is installed."""
    said = {
        "want": want,
        "maker": maker.kind,
        "base": [sys.version, os.path.realpath(sys.base_prefix)],
        "machine": [platform.machine(), platform.libc_ver()],
        "channels": channels() if want.kind == "conda" else [],
        "indexes": {
            k: v
            for k, v in os.environ.items()
            if k.startswith(_INDEXES) and not _ACTIVATED.match(k)
        },
    }
    return sha256(json.dumps(said, sort_keys=True).encode()).hexdigest()[:32]


def _front() -> str:
    """A folder for PYTHONPATH with nothing but this package: beside it there may be others."""
    package = PACKAGE.rstrip(os.sep)
    folder = os.path.join(root(), "front-" + sha256(package.encode()).hexdigest()[:16])
    link = os.path.join(folder, "stoker")
    os.makedirs(folder, exist_ok=True)
    with contextlib.suppress(FileExistsError):
        os.symlink(package, link)
    return folder


def _packages(python: str) -> Dict[str, str]:
    """Name → version of what an interpreter has, itself included."""
    code = (
        "import json, sys\nfrom importlib import metadata\n"
        "found = {d.metadata['Name']: d.version for d in metadata.distributions()}\n"
        "found['python'] = sys.version.split()[0]\nprint(json.dumps(found))"
    )
    clean = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}
    done = subprocess.run(
        [python, "-s", "-c", code], env=clean, capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        raise InvalidEnvironmentException(f"its interpreter doesn't run: {last_words(done.stderr)}")
    found: Dict[str, str] = json.loads(done.stdout)
    return found


def _builds(folder: str) -> Dict[str, str]:
    """Name → ``version=build`` of the packages of conda in an environment."""
    found: Dict[str, str] = {}
    meta = os.path.join(folder, "conda-meta")
    for name in os.listdir(meta) if os.path.isdir(meta) else ():
        if name.endswith(".json"):
            with open(os.path.join(meta, name), encoding="utf-8") as file:
                record = json.load(file)
            found[record["name"]] = f"{record['version']}={record['build']}"
    return found


def _cpu_only(want: Want, builds: Mapping[str, str], folder: str) -> str:
    """See :class:`Environment`; a build for the CPU that is asked for as such isn't one."""
    asked = {name.rpartition("::")[2]: version for name, version in want.packages}
    for name, version in asked.items():
        if re.search("[=_]cpu(_|$)", builds.get(name, "")) and "cpu" not in version:
            return name
    for_cpu = "cpu" in asked.get("pytorch", "")
    return "torch" if not for_cpu and _torch_for(folder) == "" else ""


def _torch_for(folder: str) -> Optional[str]:
    """What its torch is built for, such as ``cuda``; "": the CPU; None: there is no torch."""
    import glob

    for path in glob.glob(
        os.path.join(glob.escape(folder), "lib", "python*", "site-packages", "torch", "version.py")
    ):
        with open(path, encoding="utf-8") as file:
            text = file.read()
        said = re.search(r"^(cuda|hip|xpu)(: [^=]*)? = ['\"].", text, re.MULTILINE)
        return said[1] if said else ""
    return None
