"""What `make release` has put into dist/release (`make test-release`): both wheels, the sdist, the SBOM, the sums."""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))
import make_release  # noqa: E402
import make_wheel  # noqa: E402

RELEASE = Path(os.environ.get("STOKER_RELEASE", ROOT / "dist" / "release"))
QEMU = ROOT / "build" / "qemu"
ABOUT = make_wheel.project()
BASE = f"{ABOUT['name']}-{ABOUT['version']}"
MACHINES = {"x86_64": "X86-64", "aarch64": "AArch64"}
PIPELINE = """
stoker: 1
name: tiny
steps:
  make: {run: 'echo 42 > $STOKER_OUTPUT/answer', outputs: [answer]}
  read: {run: 'grep -q 42 $STOKER_INPUT_answer', inputs: {answer: {from: make.answer}}}
"""
FLOW = """
from stoker import pipeline, step

@step
def make() -> int:
    return 42

@step
def double(x: int) -> int:
    return 2 * x

@pipeline
def tiny():
    double(make())

if __name__ == "__main__":
    print("answer", tiny().steps["double"].output.load())
"""


def wheel_of(arch: str, folder: Path = RELEASE) -> Path:
    (path,) = folder.glob(f"*_{arch}.whl")
    return path


def inside(path: Path, ending: str) -> dict[str, bytes]:
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist() if ending in name}


@pytest.fixture(params=MACHINES)
def arch(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def binary(arch: str, tmp_path: Path) -> Path:
    (data,) = inside(wheel_of(arch), ".data/scripts/stoker").values()
    path = tmp_path / "stoker"
    path.write_bytes(data)
    path.chmod(0o755)
    return path


def readelf(option: str, path: Path) -> str:
    return subprocess.run(
        ["readelf", "-W", option, path], capture_output=True, text=True, check=True
    ).stdout


def clean(home: Path) -> dict[str, str]:
    home.mkdir(exist_ok=True)
    return {
        "PATH": "/usr/bin:/bin",
        "HOME": str(home),
        "STOKER_LEASE_DIR": str(home),
        "LANG": "C.UTF-8",
    }


def test_what_is_there() -> None:
    names = {path.name for path in RELEASE.iterdir()}
    wheels = {name for name in names if name.endswith(".whl")}
    assert names - wheels == {"SHA256SUMS", f"{BASE}.cdx.json", f"{BASE}.tar.gz"}
    tags = {name.removeprefix(f"{BASE}-py3-none-").removesuffix(".whl") for name in wheels}
    assert len(tags) == len(MACHINES)
    for tag in tags:
        found = re.fullmatch(r"manylinux_2_(\d+)_(x86_64|aarch64)", tag)
        assert found and int(found[1]) <= 28
    lines = dict(
        reversed(line.split("  ")) for line in (RELEASE / "SHA256SUMS").read_text().splitlines()
    )
    assert lines.keys() == names - {"SHA256SUMS"}
    for name, digest in lines.items():
        assert hashlib.sha256((RELEASE / name).read_bytes()).hexdigest() == digest


def test_the_program(arch: str, binary: Path) -> None:
    """For that machine, asks for glibc alone and none newer than 2.28, and gives its RPATH to libraries."""
    assert MACHINES[arch] in readelf("-h", binary)
    assert "DYN" in readelf("-h", binary)
    listing = readelf("-d", binary)
    needed = {line.split("[")[1].rstrip("]") for line in listing.splitlines() if "(NEEDED)" in line}
    glibc = {"libc.so.6", "libm.so.6", "libdl.so.2", "libpthread.so.0"}
    assert needed <= glibc | {"ld-linux-x86-64.so.2", "ld-linux-aarch64.so.1"}
    assert "(RPATH)" in listing and "(RUNPATH)" not in listing
    assert (2, 17) <= make_release.needed_glibc(binary) <= (2, 28)
    assert str(ROOT).encode() not in binary.read_bytes()


def test_the_bill_of_materials() -> None:
    """Each part has the version of the source it was built from; its licence travels in the wheels."""
    text = (RELEASE / f"{BASE}.cdx.json").read_bytes()
    bill = json.loads(text)
    assert (bill["bomFormat"], bill["specVersion"]) == ("CycloneDX", "1.5")
    parts = {part["name"]: part for part in bill["components"]}
    assert parts.keys() == {*make_release.LICENCES, "ziglang"}
    for name in make_release.LICENCES:
        (file,) = parts[name]["components"]
        dsc = (ROOT / "build" / "sources" / file["name"]).read_bytes()
        assert file["hashes"] == [{"alg": "SHA-256", "content": hashlib.sha256(dsc).hexdigest()}]
        assert f"\nVersion: {parts[name]['version']}\n" in dsc.decode()
    assert bill["dependencies"][0]["dependsOn"] == [part["bom-ref"] for part in bill["components"]]
    for machine in MACHINES:
        assert list(inside(wheel_of(machine), "dist-info/sboms/").values()) == [text]
        given = inside(wheel_of(machine), "dist-info/licenses/")
        assert {Path(name).stem for name in given} == parts.keys() and all(given.values())


def test_what_is_linked_is_in_the_bill() -> None:
    """The archives that the build linked are those of the bill's parts."""
    made = {path.name for path in (ROOT / "build" / "release" / "aarch64" / "lib").glob("*.a")}
    parts = {
        "sqlite3": {"libsqlite3.a"},
        "libyaml": {"libyaml.a"},
        "openssl": {"libcrypto.a"},
        "cmark-gfm": {"libcmark-gfm.a", "libcmark-gfm-extensions.a"},
        "libevent": {"libevent.a"},
    }
    assert parts.keys() == make_release.LICENCES.keys()
    assert made == set().union(*parts.values())
    meson = (ROOT / "meson.build").read_text()
    assert meson.count("static: true") == len(made)


def test_x86_64_runs(tmp_path: Path) -> None:
    folder, home = tmp_path / "env", tmp_path / "home"
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    pip = [folder / "bin" / "pip", "-q", "install", "--no-index", "--no-deps"]
    subprocess.run([*pip, wheel_of("x86_64")], check=True)
    env = {**clean(home), "PATH": f"{folder}/bin:/usr/bin:/bin"}
    (tmp_path / "pipeline.yaml").write_text(PIPELINE)
    (tmp_path / "flow.py").write_text(FLOW)
    for name, words in (("pipeline.yaml", "succeeded"), ("flow.py", "answer 84")):
        done = subprocess.run(
            ["stoker", "run", name], cwd=tmp_path, env=env, capture_output=True, text=True
        )
        assert done.returncode == 0 and words in done.stdout + done.stderr, done.stderr


@pytest.fixture
def aarch64(tmp_path: Path) -> Iterator[list[str]]:
    """The words before the aarch64 program's arguments."""
    (data,) = inside(wheel_of("aarch64"), ".data/scripts/stoker").values()
    path = tmp_path / "stoker-aarch64"
    path.write_bytes(data)
    path.chmod(0o755)
    qemu = QEMU / "usr/bin/qemu-aarch64-static"
    assert qemu.is_file(), "`make test-release` unpacks it"
    yield [str(qemu), "-L", str(QEMU / "usr/aarch64-linux-gnu"), str(path)]


def test_aarch64_runs(aarch64: list[str], tmp_path: Path) -> None:
    """Under QEMU: the version, a document's steps from the first to the last, the cache, a failure."""
    env = clean(tmp_path / "home")

    def stoker(*words: str) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [*aarch64, *words], cwd=tmp_path, env=env, capture_output=True, text=True, timeout=300
        )
        print(done.stdout, done.stderr)
        return done

    assert ABOUT["version"] in stoker("--version").stdout
    (tmp_path / "pipeline.yaml").write_text(PIPELINE)
    assert stoker("run", "pipeline.yaml").returncode == 0
    shown = json.loads(stoker("show", "latest", "--json").stdout)
    assert {step["status"] for step in shown["steps"].values()} == {"succeeded"}
    assert stoker("run", "pipeline.yaml").returncode == 0
    shown = json.loads(stoker("show", "latest", "--json").stdout)
    assert all(step["cached"] for step in shown["steps"].values())
    (tmp_path / "bad.yaml").write_text("stoker: 1\nname: bad\nsteps:\n  a: {run: 'exit 3'}\n")
    assert stoker("run", "bad.yaml").returncode != 0
    assert stoker("store", "verify").returncode == 0


def test_the_sdist(tmp_path: Path) -> None:
    """The repository's files and PKG-INFO; its own tools make metadata of it, and Meson takes it."""
    with tarfile.open(RELEASE / f"{BASE}.tar.gz") as tar:
        names = {name.removeprefix(f"{BASE}/") for name in tar.getnames()}
        assert tar.extractfile(f"{BASE}/PKG-INFO").read() == make_wheel.metadata()  # type: ignore[union-attr]
        tar.extractall(tmp_path)
    listed = {str(path.relative_to(ROOT)) for path in make_wheel.sdist_files()}
    assert names == listed | {"PKG-INFO"}
    setup = (
        ["meson", "setup", "--wipe", "build"]
        if (tmp_path / "build").exists()
        else ["meson", "setup", "build"]
    )
    done = subprocess.run(setup, cwd=tmp_path / BASE, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


def test_same_sources_same_bytes(tmp_path: Path) -> None:
    """All of it built again, in another folder and from nothing but the sources."""
    again = tmp_path / "dist"
    tool = ROOT / "tools" / "make_release.py"
    words = [str(tool), str(again), "--work", str(tmp_path / "elsewhere" / "work")]
    subprocess.run([ROOT / "build/zig/bin/python", *words], check=True)
    assert {p.name: p.read_bytes() for p in again.iterdir()} == {
        p.name: p.read_bytes() for p in RELEASE.iterdir()
    }
