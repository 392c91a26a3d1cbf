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
from typing import Any, Dict, Iterator, List, Mapping, NamedTuple, Optional, Tuple

from ..._base import PACKAGE
from ..._base.binary import find
from ..._base.digest import sha256
from ..._base.errors import say
from ..._base.in_use import FACTS, use
from ..exception import InvalidEnvironmentException
from ._asked import matches, requirements
from ._want import Want

_CONDA = ("micromamba", "mamba", "conda")
# What decides where packages come from: part of an environment's name.
_INDEXES = ("PIP_", "UV_", "CONDA_")


class Environment(NamedTuple):
    """An environment that is there.

    Attributes:
        python: its interpreter. lock: digest of the packages that are installed.
        cuda: what its torch is built for, such as ``cuda 12.4``; "": the CPU; None: no torch.
    """

    python: str
    lock: str
    cuda: Optional[str]

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
        if want.gpu and found[step].cuda == "":
            raise InvalidEnvironmentException(
                f"step '{step}' asks for a GPU, but the torch of its environment ({want}) is built for the CPU only: "
                'name a build for CUDA, such as "2.5.1+cu124" with PIP_EXTRA_INDEX_URL set to PyTorch\'s index; with '
                "conda on a machine without a driver, set CONDA_OVERRIDE_CUDA"
            )
    return found


def root() -> str:
    """The folder of all environments."""
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return os.path.join(cache, "stoker", "environments")


def _environment(want: Want, anew: bool) -> Environment:
    maker = _maker(want)
    name = _name(want, maker)
    folder = os.path.join(root(), name)
    known = None if anew else _read(folder)
    if known is not None:
        return known
    try:
        os.makedirs(root(), exist_ok=True)
        with _locked(f"{folder}.lock"):
            known = None if anew else _read(folder)
            return known or _make(want, maker, folder, anew)
    except OSError as bad:
        raise InvalidEnvironmentException(
            f"the environment can't be made in {root()}: {bad.strerror or bad}; XDG_CACHE_HOME names another folder"
        ) from None


@contextlib.contextmanager
def _locked(path: str) -> Iterator[None]:
    import fcntl

    with open(path, "w", encoding="utf-8") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


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
    return Environment(python, facts["lock"], facts["cuda"])


def _make(want: Want, maker: _Maker, folder: str, anew: bool) -> Environment:
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
    facts = {
        "asked": str(want),
        "python": packages.pop("python", ""),
        "packages": packages,
        "lock": sha256(json.dumps(packages, sort_keys=True).encode()).hexdigest()[:32],
        "cuda": _cuda(place),
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


def _name(want: Want, maker: _Maker) -> str:
    """Digest of everything that decides what is installed."""
    said = {
        "want": want,
        "maker": maker.kind,
        "base": [sys.version, os.path.realpath(sys.base_prefix)],
        "machine": [platform.machine(), platform.libc_ver()],
        "indexes": {k: v for k, v in os.environ.items() if k.startswith(_INDEXES)},
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
        raise InvalidEnvironmentException(f"its interpreter doesn't run: {_last(done.stderr)}")
    found: Dict[str, str] = json.loads(done.stdout)
    return found


def _cuda(folder: str) -> Optional[str]:
    """What its torch is built for; see :class:`Environment`."""
    import glob

    for path in glob.glob(
        os.path.join(glob.escape(folder), "lib", "python*", "site-packages", "torch", "version.py")
    ):
        with open(path, encoding="utf-8") as file:
            text = file.read()
        for name in ("cuda", "hip", "xpu"):
            said = re.search(rf"^{name}(?:: [^=]*)? = ['\"](.+)['\"]", text, re.MULTILINE)
            if said:
                return f"{name} {said[1]}"
        return ""
    return None


# ---------------------------------------------------------------------------- tools


class _Maker(NamedTuple):
    """A tool that makes environments.

    Attributes:
        kind: ``uv``, ``pip`` or ``conda``. program: its words.
    """

    kind: str
    program: Tuple[str, ...]

    @property
    def name(self) -> str:
        """As messages name it."""
        return os.path.basename(self.program[-1])

    def make(self, want: Want, folder: str) -> None:
        """Make the environment in a folder that isn't there."""
        {"uv": self._uv, "pip": self._pip, "conda": self._conda}[self.kind](want, folder)

    def _uv(self, want: Want, folder: str) -> None:
        python = want.python or sys.executable
        self._call(want, [*self.program, "venv", "--quiet", "--python", python, folder])
        asked = requirements(want)
        if asked:
            at = ["--python", os.path.join(folder, "bin", "python")]
            self._call(want, [*self.program, "pip", "install", "--quiet", *at, "--", *asked])

    def _pip(self, want: Want, folder: str) -> None:
        python = _installed(want.python)
        asked = requirements(want)
        more = [] if asked else ["--without-pip"]
        self._call(want, [python, "-m", "venv", *more, folder])
        if asked:
            words = [os.path.join(folder, "bin", "python"), "-m", "pip", "install", "--quiet"]
            words += ["--disable-pip-version-check", "--no-input", "--", *asked]
            self._call(want, words)

    def _conda(self, want: Want, folder: str) -> None:
        channels = os.environ.get("CONDA_CHANNELS", "").split(",")
        version = want.python or ".".join(str(n) for n in sys.version_info[:3])
        words = [*self.program, "create", "--yes", "--quiet", "--prefix", folder]
        for channel in filter(None, channels):
            words += ["--channel", channel.strip()]
        if not any(channels):
            words += ["--channel", "conda-forge"]
        self._call(want, [*words, *matches(want), f"python=={version}"])

    def _call(self, want: Want, words: List[str]) -> None:
        clean = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "PYTHONHOME")}
        try:
            done = subprocess.run(
                words,
                env=clean,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                encoding="utf-8",
                errors="replace",
                check=False,
            )
        except OSError as bad:
            raise InvalidEnvironmentException(
                f"{words[0]} can't be started: {bad.strerror}"
            ) from None
        if done.returncode != 0:
            raise InvalidEnvironmentException(
                f"{self.name} can't make an environment with {want}: {_last(done.stdout)}"
            )


def _maker(want: Want) -> _Maker:
    """The tool for what is asked for.

    Raises:
        InvalidEnvironmentException: it isn't installed.
    """
    if want.kind == "conda":
        tool = next(filter(None, map(shutil.which, _CONDA)), None)
        if tool is not None:
            return _Maker("conda", (tool,))
        if os.environ.get("STOKER_CONDA") != "pypi":
            raise InvalidEnvironmentException(
                f"@conda asks for {want}, but no micromamba, mamba or conda is on PATH: install micromamba; or set "
                "STOKER_CONDA=pypi, which takes packages of the same names from PyPI"
            )
    if os.environ.get("STOKER_INSTALLER") == "pip":
        return _Maker("pip", ("pip",))
    beside = os.path.join(os.path.dirname(sys.executable), "uv")
    uv = shutil.which("uv") or (beside if os.access(beside, os.X_OK) else None)
    return _Maker("uv", (uv,)) if uv else _Maker("pip", ("pip",))


def _installed(version: str) -> str:
    """An installed interpreter of this version.

    Raises:
        InvalidEnvironmentException: there is none.
    """
    own = ".".join(str(n) for n in sys.version_info[:3])
    if f"{own}.".startswith(f"{version}.") or not version:
        return sys.executable
    parts = version.split(".")
    found = shutil.which("python" + ".".join(parts[:2]))
    said = ""
    if found is not None:
        done = subprocess.run([found, "--version"], capture_output=True, text=True, check=False)
        said = done.stdout.strip().rpartition(" ")[2]
        if f"{said}.".startswith(f"{version}."):
            return found
    has = f"{found} is {said}" if said else "this machine has none"  # pyenv has names without one
    raise InvalidEnvironmentException(
        f"it asks for Python {version}, but {has}: install uv, which fetches it (`pip install uv`), or that version "
        "of Python"
    )


def _last(text: str) -> str:
    """A tool's own words on why it failed, in one line."""
    lines = [re.sub(r"^[\s×╰─▶│├·]+", "", one).strip() for one in text.splitlines()]
    lines = [one for one in lines if one]
    wrong = [i for i, one in enumerate(lines) if re.match(r"(ERROR|error)\b", one)]
    chosen = lines[wrong[0] :] if wrong else lines
    said = " ".join(chosen)
    return said if len(said) <= 1000 else f"{said[:1000]}…"
