"""The tools that make environments: uv or pip, micromamba, mamba, conda or py-rattler."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from importlib import util
from typing import List, NamedTuple, Optional, Tuple

from ..exception import InvalidEnvironmentException
from ._asked import channels, matches, requirements
from ._want import Want


class Maker(NamedTuple):
    """A tool that makes environments.

    Attributes:
        kind: ``uv``, ``pip`` or ``conda``. program: its words. name: as messages name it.
        held: descriptors that it holds, with their locks, for as long as it runs.
    """

    kind: str
    program: Tuple[str, ...]
    name: str
    held: Tuple[int, ...] = ()

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
        inside = os.path.join(folder, "bin", "python")
        asked = requirements(want)
        pip = [python, "-m", "pip", "--python", inside] if _pip_reaches(python) else []
        more = ["--without-pip"] if pip or not asked else []
        self._call(want, [python, "-m", "venv", *more, folder])
        if asked:
            words = [*(pip or [inside, "-m", "pip"]), "install", "--quiet"]
            words += ["--disable-pip-version-check", "--no-input", "--", *asked]
            self._call(want, words)

    def _conda(self, want: Want, folder: str) -> None:
        version = want.python or ".".join(str(n) for n in sys.version_info[:3])
        words = [*self.program, "create", "--yes", "--quiet", "--prefix", folder]
        for channel in channels():
            words += ["--channel", channel]
        self._call(want, [*words, *matches(want), f"python=={version}"])

    def _call(self, want: Want, words: List[str]) -> None:
        clean = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "PYTHONHOME")}
        try:
            done = subprocess.run(
                words,
                env=clean,
                pass_fds=self.held,
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
                f"{self.name} can't make an environment with {want}: {last_words(done.stdout)}"
            )


def maker_for(want: Want) -> Maker:
    """The tool for what is asked for.

    Raises:
        InvalidEnvironmentException: it isn't installed.
    """
    if want.kind == "conda":
        found = _conda()
        if found is not None:
            return found
        if (
            want.packages and os.environ.get("STOKER_CONDA") != "pypi"
        ):  # Python alone needs no conda
            raise InvalidEnvironmentException(
                f"@conda asks for {want}, but no micromamba, mamba or conda is on PATH: install micromamba, or "
                "py-rattler (`pip install py-rattler`); or set STOKER_CONDA=pypi, which takes packages of the same "
                "names from PyPI"
            )
    if os.environ.get("STOKER_INSTALLER") == "pip":
        return Maker("pip", ("pip",), "pip")
    beside = os.path.join(os.path.dirname(sys.executable), "uv")
    uv = shutil.which("uv") or (beside if os.access(beside, os.X_OK) else None)
    return Maker("uv", (uv,), "uv") if uv else Maker("pip", ("pip",), "pip")


def _conda() -> Optional[Maker]:
    """micromamba, where Metaflow looks for it, mamba or conda; else py-rattler; None: none is there."""
    home = os.path.expanduser(os.environ.get("METAFLOW_HOME") or "~/.metaflowconfig")
    own = os.path.join(home, "micromamba", "bin", "micromamba")
    for one in (
        os.environ.get("METAFLOW_PATH_TO_MICROMAMBA") or "micromamba",
        own,
        "mamba",
        "conda",
    ):
        tool = shutil.which(one)
        if tool is not None:
            return Maker("conda", (tool,), os.path.basename(tool))
    if util.find_spec("rattler") is None:
        return None
    script = os.path.join(os.path.dirname(os.path.abspath(__file__)), "_rattler.py")
    return Maker("conda", (sys.executable, script), "py-rattler")


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


def _pip_reaches(python: str) -> bool:
    """Whether an interpreter's pip can install into another environment, which then needs none of its own.

    That of another Python may be too old for it, or too new."""
    from importlib import metadata

    try:
        version = metadata.version("pip") if python == sys.executable else "0"
    except metadata.PackageNotFoundError:
        return False
    return tuple(int(n) for n in re.findall(r"\d+", version)[:2]) >= (22, 3)


def last_words(text: str) -> str:
    """A tool's own words on why it failed, in one line."""
    lines = [re.sub(r"^[\s×╰─▶│├·]+", "", one).strip() for one in text.splitlines()]
    lines = [one for one in lines if one]
    wrong = [i for i, one in enumerate(lines) if re.match(r"(ERROR|error)\b", one)]
    chosen = lines[wrong[0] :] if wrong else lines
    said = re.sub("^(ERROR|error): *", "", " ".join(chosen))
    return said if len(said) <= 1000 else f"{said[:1000]}…"
