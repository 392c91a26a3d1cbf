"""The wheel: its contents, its tag, and that it works in a fresh environment without anything else."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))
import make_wheel  # noqa: E402

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
    run = tiny()
    print("answer", run.steps["double"].output.load())
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    assert make_wheel.main(str(folder)) == 0
    (path,) = folder.glob("*.whl")
    return path


@pytest.fixture(scope="module")
def environment(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A fresh virtual environment that knows no package index and has only the wheel."""
    folder = tmp_path_factory.mktemp("env")
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    subprocess.run(
        [folder / "bin" / "pip", "install", "-q", "--no-index", "--no-deps", wheel], check=True
    )
    return folder


def clean(environment: Path, home: Path) -> dict[str, str]:
    leases = home / "leases"
    leases.mkdir(exist_ok=True)
    path = f"{environment}/bin:/usr/bin:/bin"
    return {"PATH": path, "HOME": str(home), "STOKER_LEASE_DIR": str(leases), "LANG": "C.UTF-8"}


def test_contents_and_tag(wheel: Path) -> None:
    assert wheel.name.startswith("stoker-") and "-py3-none-manylinux_" in wheel.name
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        binary = next(n for n in names if n.endswith(".data/scripts/stoker"))
        for program in (binary, "stoker/_programs/zenml"):
            assert archive.getinfo(program).external_attr >> 16 & 0o777 == 0o755
        assert "stoker/__init__.py" in names and "stoker/py.typed" in names
        assert "stoker/_compat/zenml/__init__.py" in names
        assert "stoker/_compat/metaflow/__init__.py" in names
        shared = {n.split(".data/data/share/")[-1]: n for n in names if ".data/data/share/" in n}
        assert {"man/man1/stoker.1", "man/man1/stoker-run.1"} <= shared.keys()
        script = archive.read(shared["bash-completion/completions/stoker"]).decode()
        assert "complete -o filenames -F _stoker stoker" in script
        assert not [n for n in names if "__pycache__" in n or n.endswith(".pyc")]


def test_metadata_and_licences(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        about = archive.read(next(n for n in names if n.endswith("/METADATA"))).decode()
        head = about.split("\n\n", 1)[0].splitlines()
        assert "Classifier: Operating System :: POSIX :: Linux" in head
        assert "Classifier: License :: OSI Approved :: Apache Software License" in head
        assert "Requires-Python: >=3.9" in head
        given = {Path(n).stem: archive.read(n) for n in names if ".dist-info/licenses/" in n}
    # The libraries that the architecture's table calls static are those whose licences are due.
    table = (ROOT / "ARCHITECTURE.md").read_text().split("\n## Dependencies", 1)[1]
    rows = [line.split("|")[1] for line in table.splitlines() if "static)" in line]
    due = {word.strip() for row in rows for word in re.sub(r"\(.*\)", "", row).split(",")}
    assert given.keys() == due
    assert b"public-domain" in given["libsqlite3-dev"].lower().replace(b" ", b"-")
    assert all(given.values())


def test_the_binary_needs_only_glibc(wheel: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        name = next(n for n in archive.namelist() if n.endswith("scripts/stoker"))
        binary = archive.extract(name, tmp_path)
    listing = subprocess.run(
        ["readelf", "-d", binary], stdout=subprocess.PIPE, text=True, check=True
    ).stdout
    needed = {line.split("[")[1].rstrip("]") for line in listing.splitlines() if "(NEEDED)" in line}
    assert needed <= {
        "libc.so.6",
        "libm.so.6",
        "libdl.so.2",
        "libpthread.so.0",
        "ld-linux-x86-64.so.2",
    }


def test_same_sources_same_bytes(wheel: Path, tmp_path: Path) -> None:
    tag = wheel.name.split("-")[-1].removesuffix(".whl")
    again = make_wheel.write_wheel(tmp_path, make_wheel.build_binary(), tag)
    assert again.read_bytes() == wheel.read_bytes()


def test_runs_yaml(environment: Path, tmp_path: Path) -> None:
    (tmp_path / "pipeline.yaml").write_text(PIPELINE)
    command = [environment / "bin" / "stoker", "run", "pipeline.yaml"]
    done = subprocess.run(
        command, cwd=tmp_path, env=clean(environment, tmp_path), capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_runs_python(environment: Path, tmp_path: Path) -> None:
    (tmp_path / "flow.py").write_text(FLOW)
    command = [environment / "bin" / "stoker", "run", "flow.py"]
    done = subprocess.run(
        command, cwd=tmp_path, env=clean(environment, tmp_path), capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "answer 84" in done.stdout


def test_compat_finds_its_folder(environment: Path, tmp_path: Path) -> None:
    command = [environment / "bin" / "stoker", "compat", "--path"]
    done = subprocess.run(command, env=clean(environment, tmp_path), capture_output=True, text=True)
    assert done.returncode == 0 and done.stdout.strip().startswith(str(environment.resolve()))


def files_of(folder: Path) -> set[str]:
    found = (p for p in folder.rglob("*") if not p.is_dir() and "__pycache__" not in p.parts)
    return {str(path.relative_to(folder)) for path in found}


def test_uninstall_and_what_remains(wheel: Path, tmp_path: Path) -> None:
    """docs/install.md: pip takes all that the wheel brought; runs stay in the project's .stoker alone."""
    folder, home, project = (tmp_path / name for name in ("env", "home", "project"))
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    home.mkdir()
    project.mkdir()
    before = files_of(folder)
    pip = [folder / "bin" / "pip", "-q", "--no-input"]
    subprocess.run([*pip, "install", "--no-index", "--no-deps", wheel], check=True)
    assert {"bin/stoker", "share/man/man1/stoker.1"} <= files_of(folder) - before
    (project / "flow.py").write_text(FLOW)
    env = {**clean(folder, home), "STOKER_LEASE_DIR": str(tmp_path / "leases")}
    (home / "leases").rmdir()
    subprocess.run([folder / "bin" / "stoker", "run", "flow.py"], cwd=project, env=env, check=True)
    subprocess.run([*pip, "uninstall", "-y", "stoker"], check=True)
    assert files_of(folder) == before
    assert not files_of(home)
    assert {Path(name).parts[0] for name in files_of(project)} == {".stoker", "flow.py"}


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become somebody else")
def test_runs_for_a_user_without_rights(environment: Path, tmp_path: Path) -> None:
    """pytest's folders are private: the user gets an environment of their own under /tmp."""
    import tempfile

    home = Path(tempfile.mkdtemp(prefix="stoker-wheel-"))
    try:
        binary = home / "stoker"
        shutil.copy2(environment / "bin" / "stoker", binary)
        (home / "pipeline.yaml").write_text(PIPELINE)
        for path in (home, *home.iterdir()):
            os.chown(path, 65534, 65534)
        env = {"PATH": "/usr/bin:/bin", "HOME": str(home)}
        done = subprocess.run(
            [binary, "run", "pipeline.yaml"], cwd=home, env=env, user=65534, group=65534, extra_groups=[],
            capture_output=True, text=True,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
    finally:
        shutil.rmtree(home, ignore_errors=True)


def find_python(version: str) -> str | None:
    """An interpreter of that version, from Debian, PATH or pyenv."""
    kept = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    found = shutil.which(f"python{version}")
    places = [*([found] if found else []), *kept.glob(f"{version}.*/bin/python{version}")]
    ask = "import sys, venv; print('%d.%d' % sys.version_info[:2])"
    for place in (f"/usr/bin/python{version}", *map(str, places)):
        try:
            done = subprocess.run([place, "-c", ask], capture_output=True, text=True)
        except FileNotFoundError:
            continue
        if done.stdout.strip() == version:
            return place
    return None


@pytest.mark.parametrize("version", [f"3.{minor}" for minor in range(9, 15)])
def test_each_python(version: str, wheel: Path, tmp_path: Path) -> None:
    """The wheel's front under every version that it is for, as far as this machine has it."""
    python = find_python(version)
    if python is None:
        pytest.skip(f"Python {version} is missing here: the wheel isn't tried with it")
    folder = tmp_path / "env"
    subprocess.run([python, "-m", "venv", "--without-pip", folder], check=True)
    pip = [sys.executable, "-m", "pip", "--python", str(folder / "bin" / "python"), "-q"]
    subprocess.run([*pip, "install", "--no-index", "--no-deps", wheel], check=True)
    more = '    import sys\n    print("python %d.%d" % sys.version_info[:2])\n'
    (tmp_path / "flow.py").write_text(FLOW + more)
    for command in ([folder / "bin" / "stoker", "run"], [folder / "bin" / "python"]):
        done = subprocess.run(
            [*command, "flow.py"],
            cwd=tmp_path, env=clean(folder, tmp_path), capture_output=True, text=True,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        assert "answer 84" in done.stdout and f"python {version}" in done.stdout
