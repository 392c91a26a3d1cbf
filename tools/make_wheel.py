"""Builds the self-contained wheel: the pure-Python front, and the engine as a script beside it.

As a PEP 517 backend (pyproject.toml) for `pip install .`, and as a program:

    make_wheel.py DIR        the wheel in DIR, its platform tag decided by auditwheel

The binary is linked statically but for glibc, so the tag says only which glibc it needs: that of the machine it was
built on, or older. Same sources, same bytes out: entries are sorted and dated by SOURCE_DATE_EPOCH.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import io
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import zipfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
# Debian packages whose code is in the binary; the wheel has their licences.
LINKED = (
    "libsqlite3-dev",
    "zlib1g-dev",
    "libyaml-dev",
    "libssl-dev",
    "libcmark-gfm-dev",
    "libcmark-gfm-extensions-dev",
    "libevent-dev",
)
TAG = re.compile(r'platform tag:\s*"([a-z0-9_]+)"')


def project() -> dict[str, str]:
    """Name, version and the other fields of [project] that the metadata repeats."""
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    section = text.split("[project]", 1)[1].split("\n[", 1)[0]
    return dict(re.findall(r'^([a-z-]+) = "(.*)"$', section, re.M))


def classifiers() -> list[str]:
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    return re.findall('"(.*)"', text.split("\nclassifiers = [", 1)[1].split("\n]", 1)[0])


def licences() -> dict[str, bytes]:
    """Debian's copyright file of each linked library: name → text."""
    return {name: Path("/usr/share/doc", name, "copyright").read_bytes() for name in LINKED}


def build_binary() -> Path:
    """The engine: a release build in a separate folder, stripped."""
    if sys.platform != "linux":
        sys.exit("Stoker runs on Linux only: build it there, under WSL2 or in a container")
    meson = "/usr/bin/meson" if os.path.exists("/usr/bin/meson") else "meson"
    folder = ROOT / "build-release"
    if not (folder / "build.ninja").exists():
        options = ["-Dbuildtype=release", "-Dwerror_ours=false"]
        subprocess.run(
            [meson, "setup", str(folder), str(ROOT), *options], check=True, stdout=sys.stderr
        )
    ninja = "/usr/bin/ninja" if os.path.exists("/usr/bin/ninja") else "ninja"
    subprocess.run([ninja, "-C", str(folder), "src/cli/stoker"], check=True, stdout=sys.stderr)
    stripped = folder / "stoker"
    shutil.copy(folder / "src" / "cli" / "stoker", stripped)
    subprocess.run(["strip", str(stripped)], check=True)
    return stripped


def sdist_files() -> list[Path]:
    """What the repository holds: an sdist can't be made of an unpacked one."""
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, stdout=subprocess.PIPE, check=True, text=True
    )
    return [ROOT / name for name in sorted(listed.stdout.split("\0")) if (ROOT / name).is_file()]


def metadata() -> bytes:
    about = project()
    head = [
        "Metadata-Version: 2.1",
        f"Name: {about['name']}",
        f"Version: {about['version']}",
        f"Summary: {about['description']}",
        f"Requires-Python: {about['requires-python']}",
        "License: Apache-2.0",
        *(f"Classifier: {each}" for each in classifiers()),
        "Description-Content-Type: text/markdown",
    ]
    readme = ROOT / "README.md"
    body = readme.read_text(encoding="utf-8") if readme.exists() else ""
    return ("\n".join(head) + "\n\n" + body).encode()


def pages() -> dict[str, list[str]]:
    """Manual pages and shell completion below share/, each with the arguments that make stoker
    print it."""
    table = (ROOT / "src" / "tbl" / "commands.def").read_text(encoding="utf-8")
    found = {"man/man1/stoker.1": ["help", "--man"]}
    for word in re.findall(r"^X\(\w+, (\w+)\)", table, re.M):
        found[f"man/man1/stoker-{word}.1"] = ["help", "--man", word]
    found["bash-completion/completions/stoker"] = ["completion", "bash"]
    found["zsh/site-functions/_stoker"] = ["completion", "zsh"]
    found["fish/vendor_completions.d/stoker.fish"] = ["completion", "fish"]
    return found


def contents(
    binary: Path, platform: str, texts: dict[str, bytes] | None, speaker: Path | None
) -> dict[str, tuple[bytes, int]]:
    """All files of the wheel except RECORD: name → (bytes, mode)."""
    about = project()
    base = f"{about['name']}-{about['version']}"
    wheel = f"Wheel-Version: 1.0\nGenerator: stoker\nRoot-Is-Purelib: false\nTag: py3-none-{platform}\n".encode()
    files = {
        f"{base}.data/scripts/stoker": (binary.read_bytes(), 0o755),
        f"{base}.dist-info/METADATA": (metadata(), 0o644),
        f"{base}.dist-info/WHEEL": (wheel, 0o644),
        f"{base}.dist-info/LICENSE": ((ROOT / "LICENSE").read_bytes(), 0o644),
    }
    for name, text in (licences() if texts is None else texts).items():
        files[f"{base}.dist-info/licenses/{name}.txt"] = (text, 0o644)
    for (
        name,
        words,
    ) in pages().items():  # `man stoker` finds them beside the bin folder that PATH names
        done = subprocess.run([str(speaker or binary), *words], stdout=subprocess.PIPE, check=True)
        files[f"{base}.data/data/share/{name}"] = (done.stdout, 0o644)
    package = ROOT / "python"
    for path in package.rglob("*"):
        if path.is_file() and "__pycache__" not in path.parts and path.suffix != ".pyc":
            mode = 0o755 if os.access(path, os.X_OK) else 0o644
            files[str(path.relative_to(package))] = (path.read_bytes(), mode)
    step_h = ROOT / "include" / "stoker" / "step.h"
    files["stoker/include/stoker/step.h"] = (step_h.read_bytes(), 0o644)
    return files


def write_wheel(
    directory: Path,
    binary: Path,
    platform: str,
    texts: dict[str, bytes] | None = None,
    speaker: Path | None = None,
    more: dict[str, tuple[bytes, int]] | None = None,
) -> Path:
    """Writes the wheel and returns its path.

    `texts`: licences of what is linked in, else those of Debian's packages. `speaker`: the same program for this
    machine, which prints the manual pages. `more`: further files.
    """
    about = project()
    base = f"{about['name']}-{about['version']}"
    files = {**contents(binary, platform, texts, speaker), **(more or {})}
    record = f"{base}.dist-info/RECORD"
    lines = [
        f"{name},sha256={base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b'=').decode()},{len(data)}"
        for name, (data, _) in sorted(files.items())
    ]
    files[record] = ("\n".join([*lines, f"{record},,"]).encode() + b"\n", 0o644)
    date = time.gmtime(int(os.environ.get("SOURCE_DATE_EPOCH", "315532800")))[:6]
    path = directory / f"{base}-py3-none-{platform}.whl"
    directory.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, (data, mode) in sorted(files.items()):
            entry = zipfile.ZipInfo(name, date_time=date)
            entry.external_attr = (0o100000 | mode) << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, data)
    return path


def machine_tag() -> str:
    return f"linux_{os.uname().machine}"


def audited_tag(wheel: Path) -> str:
    """The oldest manylinux tag that auditwheel grants, else the tag of the build machine."""
    done = subprocess.run(
        [sys.executable, "-m", "auditwheel", "show", str(wheel)],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    found = TAG.search(" ".join(done.stdout.split()))
    if found is None:
        sys.exit(f"auditwheel named no platform tag:\n{done.stdout}")
    return found[1]


def build_wheel(
    wheel_directory: str, config_settings: Any = None, metadata_directory: str | None = None
) -> str:
    """PEP 517: built and installed on the same machine, so the plain tag is right."""
    return write_wheel(Path(wheel_directory), build_binary(), machine_tag()).name


def build_sdist(sdist_directory: str, config_settings: Any = None) -> str:
    """PEP 517: the repository's files and PKG-INFO; same files, same bytes."""
    about = project()
    base = f"{about['name']}-{about['version']}"
    date = int(os.environ.get("SOURCE_DATE_EPOCH", "315532800"))
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for name, data, mode in [
            ("PKG-INFO", metadata(), 0o644),
            *(
                (
                    str(path.relative_to(ROOT)),
                    path.read_bytes(),
                    path.stat().st_mode & 0o111 | 0o644,
                )
                for path in sdist_files()
            ),
        ]:
            entry = tarfile.TarInfo(f"{base}/{name}")
            entry.size, entry.mtime, entry.mode = len(data), date, mode
            archive.addfile(entry, io.BytesIO(data))
    packed = gzip.compress(buffer.getvalue(), mtime=0)
    (Path(sdist_directory) / f"{base}.tar.gz").write_bytes(packed)
    return f"{base}.tar.gz"


def main(directory: str) -> int:
    binary = build_binary()
    with tempfile.TemporaryDirectory() as tmp:
        tag = audited_tag(write_wheel(Path(tmp), binary, machine_tag()))
    path = write_wheel(Path(directory), binary, tag)
    print(f"{path} ({path.stat().st_size / 1e6:.1f} MB)")
    return 0


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: make_wheel.py DIR")
    sys.exit(main(sys.argv[1]))
