"""Packages of PyPI and of conda that tests write, and programs that ask for them."""

from __future__ import annotations

import hashlib
import io
import json
import os
import subprocess
import sys
import tarfile
import textwrap
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from front_tools import WAIT_S

SUBDIRS = ("noarch", "linux-64")
PYTHON = ".".join(str(n) for n in sys.version_info[:3])
_CONDAS = ("micromamba", "mamba", "conda")
_OF_CONDA = (
    "CONDARC",
    "MAMBARC",
    "CONDA_PREFIX",
    "MAMBA_ROOT_PREFIX",
    "METAFLOW_PATH_TO_MICROMAMBA",
)
SITE = "lib/python" + ".".join(str(n) for n in sys.version_info[:2]) + "/site-packages"


def wheel(folder: Path, name: str, version: str, files: dict[str, str]) -> None:
    """A wheel of these files."""
    info = f"{name}-{version}.dist-info"
    meta = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
    every = {
        **files,
        f"{info}/METADATA": meta,
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: t\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = "".join(f"{one},,\n" for one in [*every, f"{info}/RECORD"])
    folder.mkdir(exist_ok=True)
    with zipfile.ZipFile(folder / f"{name}-{version}-py3-none-any.whl", "w") as archive:
        for path, text in {**every, f"{info}/RECORD": record}.items():
            archive.writestr(path, text)


def conda_package(
    channel: Path,
    name: str,
    version: str,
    files: Mapping[str, str],
    build: str = "0",
    depends: Sequence[str] = (),
    noarch: str = "",
    links: Mapping[str, str] | None = None,
) -> None:
    """A package of these files and symbolic links in a channel, which is made where it isn't there."""
    subdir = "noarch" if noarch else "linux-64"
    index: dict[str, Any] = {"name": name, "version": version, "build": build}
    index["build_number"] = int(build.rpartition("_")[2])
    index |= {"depends": list(depends), "subdir": subdir, **({"noarch": noarch} if noarch else {})}
    packed = io.BytesIO()
    paths = []
    with tarfile.open(fileobj=packed, mode="w:bz2") as archive:

        def add(path: str, text: str) -> None:
            entry = tarfile.TarInfo(path)
            entry.size, entry.mode = len(text.encode()), 0o755
            archive.addfile(entry, io.BytesIO(text.encode()))

        for path, text in files.items():
            add(path, text)
            paths.append({"_path": path, "path_type": "hardlink", **_sums(text.encode())})
        for path, target in (links or {}).items():
            entry = tarfile.TarInfo(path)
            entry.type, entry.linkname = tarfile.SYMTYPE, target
            archive.addfile(entry)
            paths.append({"_path": path, "path_type": "softlink", **_sums(b"")})
        add("info/index.json", json.dumps(index))
        add("info/paths.json", json.dumps({"paths": paths, "paths_version": 1}))
        add("info/files", "\n".join(str(one["_path"]) for one in paths))
        link = {"noarch": {"type": "python"}, "package_metadata_version": 1}
        if noarch == "python":
            add("info/link.json", json.dumps(link))
    data = packed.getvalue()
    file = f"{name}-{version}-{build}.tar.bz2"
    for one in SUBDIRS:
        (channel / one).mkdir(parents=True, exist_ok=True)
        repodata = channel / one / "repodata.json"
        if not repodata.exists():
            repodata.write_text(json.dumps({"info": {"subdir": one}, "packages": {}}))
    (channel / subdir / file).write_bytes(data)
    repodata = channel / subdir / "repodata.json"
    known = json.loads(repodata.read_text())
    sums = {"sha256": hashlib.sha256(data).hexdigest(), "size": len(data)}
    known["packages"][file] = {**index, **sums}
    repodata.write_text(json.dumps(known))


def _sums(data: bytes) -> dict[str, Any]:
    return {"sha256": hashlib.sha256(data).hexdigest(), "size_in_bytes": len(data)}


def without_conda(env: Mapping[str, str], folder: Path) -> dict[str, str]:
    """The variables as if no conda were installed: what lies beside one is linked in ``folder``."""
    kept = {k: v for k, v in env.items() if k not in _OF_CONDA}
    places = kept["PATH"].split(os.pathsep)
    for i, place in enumerate(places):
        if any(os.path.exists(os.path.join(place, one)) for one in _CONDAS):
            beside = folder / f"beside-conda-{i}"
            beside.mkdir()
            for one in set(os.listdir(place)).difference(_CONDAS):
                (beside / one).symlink_to(os.path.join(os.path.abspath(place), one))
            places[i] = str(beside)
    return {**kept, "PATH": os.pathsep.join(places)}


def conda_python(channel: Path, version: str = PYTHON) -> None:
    """A package ``python`` that is the interpreter of the tests, whatever version it says."""
    real = os.path.realpath(sys.executable)
    files = {"pyvenv.cfg": f"home = {os.path.dirname(real)}\n", f"{SITE}/README": ""}
    links = {"bin/python": real, "bin/python3": "python"}
    conda_package(channel, "python", version, files, links=links)


def start(folder: Path, env: dict[str, str], source: str, *words: str, **more: str) -> Any:
    program = folder / "prog.py"
    text = textwrap.dedent(source)
    if not program.exists() or program.read_text() != text:  # one that begins may read it just now
        program.write_text(text)
    return subprocess.Popen(
        [sys.executable, "prog.py", *words],
        cwd=folder,
        env={**env, **more},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def run(folder: Path, env: dict[str, str], source: str, *words: str, **more: str) -> Any:
    process = start(folder, env, source, *words, **more)
    out, err = process.communicate(timeout=5 * WAIT_S)  # it may make several environments
    return subprocess.CompletedProcess(words, process.returncode, out, err)
