"""The digits example with its training step in a container: same results, one cache."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from run_tools import ROOT, Project

PACKAGES = ("numpy", "scipy", "sklearn", "joblib", "threadpoolctl", "narwhals", "cloudpickle")
LIBRARIES = [
    "libstdc++.so.6",
    "libgcc_s.so.1",
    "libgomp.so.1",
    "libm.so.6",
    "libz.so.1",
    "libpthread.so.0",
    "libdl.so.2",
    "librt.so.1",
]
ALONE = '@step(settings={"resources": ResourceSettings(cpu_count=2, gpu_count=1, memory="4GB")})'


def places() -> list[Path]:
    """The packages of scikit-learn as this environment has them, with their libraries and metadata."""
    spec = importlib.util.find_spec("sklearn")
    if spec is None or spec.origin is None:
        pytest.skip("scikit-learn isn't installed here")
    site = Path(spec.origin).parents[1]
    return [p for name in PACKAGES for p in sorted(site.glob(f"{name}*"))] + sorted(
        site.glob("scikit_learn*")
    )


@pytest.fixture(scope="session")
def science(podman: Any, debian: str, tmp_path_factory: pytest.TempPathFactory) -> str:
    """`debian` with this environment's scikit-learn, where its Python is the same one."""
    asked = subprocess.run(
        ["/usr/bin/python3", "-c", "import sys; print(sys.version_info[:2])"],
        capture_output=True,
        text=True,
    )
    if asked.stdout.strip() != str(sys.version_info[:2]):
        pytest.skip("the system's Python isn't of this environment's version")
    reference = f"localhost/stoker-test-science:{debian.rpartition(':')[2]}-{len(LIBRARIES) + len(PACKAGES)}"
    if not podman.has_image(reference):
        folder = tmp_path_factory.mktemp("science")
        (folder / "site").mkdir()
        for path in places():
            subprocess.run(["cp", "-a", str(path), str(folder / "site")], check=True)
        libraries = folder / "lib"
        libraries.mkdir()
        for name in LIBRARIES:
            for found in Path("/usr/lib/x86_64-linux-gnu").glob(name):
                subprocess.run(["cp", "-L", str(found), str(libraries / name)], check=True)
        (folder / "Dockerfile").write_text(
            f"FROM {debian}\nCOPY site /opt/site\nCOPY lib /usr/lib/x86_64-linux-gnu\nENV PYTHONPATH=/opt/site\n"
        )
        podman("build", "-q", "-t", reference, str(folder))
    return reference


def test_digits(tmp_path: Path, podman: Any, science: str) -> None:
    folder = tmp_path / "proj"
    folder.mkdir()
    project = Project(folder, podman)
    text = (ROOT / "examples" / "digits" / "train.py").read_text()
    assert text.count(ALONE) == 1
    text = text.replace(
        '"torch" if importlib.util.find_spec("torch") else "scikit-learn"', '"scikit-learn"'
    )
    inside = ALONE.replace(
        "settings={",
        f'step_operator="docker", settings={{"docker": {{"parent_image": "{science}"}}, ',
    )
    said = []
    for name, code in (("outside", text), ("inside", text.replace(ALONE, inside))):
        path = project.write("train.py", code)
        os.utime(path, (time.time() - 60,) * 2)
        done = subprocess.run(
            [sys.executable, "train.py"],
            cwd=folder,
            env=project.env,
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, f"{name}: {done.stderr}"
        said.append(done.stdout)
    shown = project.show()
    steps = shown["steps"]
    assert steps["load"]["cached"] and steps["split"]["cached"]
    assert not steps["train"]["cached"] and steps["train"]["granted"]["image"]["name"] == science
    assert "test accuracy 0.9" in said[1]
    assert said[0] == said[1]
    assert steps["train"]["used"]["peak_memory_bytes"] > 30 << 20
