"""GPUs of a run in containers: only the leased ones are visible; their use, samples, the card.

The devices are fakes: nodes by a CDI specification, the driver a file or a stand-in for its library, and the test
plays what the driver says about the processes in the container.
"""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path
from typing import Any, Callable

import pytest
from run_tools import ROOT, WAIT_S, Project, wait_for
from test_contain_refused import fake_gpus  # noqa: F401

NVML = ROOT / "build" / "src" / "host" / "accel" / "libnvidia-ml-fake.so"
LOOK = "for n in 0 1; do [ -e /dev/nvidia$n ] && echo nvidia$n; done; echo $CUDA_VISIBLE_DEVICES"


@pytest.fixture
def project(tmp_path: Path, podman: Any) -> Project:
    folder = tmp_path / "proj"
    folder.mkdir()
    (folder / "stoker.yaml").write_text("")
    made = Project(folder, podman)
    made.env["STOKER_LEASE_DIR"] = str(tmp_path / "leases")
    return made


def tell(path: Path, text: str) -> None:
    path.with_suffix(".new").write_text(text)
    path.with_suffix(".new").rename(path)


def devices(path: Path, uuids: list[str], **first: Any) -> None:
    """A file of fake devices; `first` is what the first one is in the midst of."""
    common = {"model": "NVIDIA H100 80GB HBM3", "cc": "9.0", "memory_bytes": 1 << 33}
    listed = [{"uuid": u, **common, "processes": {}, "busy_percent": 0} for u in uuids]
    listed[0].update(first)
    doc = {"driver": "580.65.06", "cuda_version": 13000, "devices": listed}
    tell(path, json.dumps(doc))


def recording(path: Path, uuids: list[str], **first: str) -> None:
    """The same as the stand-in library reads it; `first`: answers by function."""
    text = (
        "[system]\nnvmlSystemGetDriverVersion = 580.65.06\nnvmlSystemGetCudaDriverVersion = 13000\n"
    )
    for i, one in enumerate(uuids):
        text += (
            f"[device {i}]\nnvmlDeviceGetUUID = {one}\nnvmlDeviceGetName = NVIDIA H100 80GB HBM3\n"
        )
        text += (
            f"nvmlDeviceGetPciInfo = 00000000:{15 + i:02X}:00.0\nnvmlDeviceGetMinorNumber = {i}\n"
        )
        text += "nvmlDeviceGetMemoryInfo = 85899345920 84825604096 1073741824 0\n"
        text += "nvmlDeviceGetCudaComputeCapability = 9 0\n"
        said = {
            "ComputeRunningProcesses": "",
            "GraphicsRunningProcesses": "",
            "UtilizationRates": "0 0",
        }
        said |= first if i == 0 else {}
        text += "".join(f"nvmlDeviceGet{name} = {value}\n" for name, value in said.items())
    tell(path, text)


def document(project: Project, image: str, run: str, n: int, more: str = "") -> None:
    project.write(
        "p.yaml",
        f"""
        stoker: 1
        name: p
        docker: {{parent_image: {image}}}
        steps:
          train: {{run: "{run}", resources: {{gpu_count: {n}}}{more}}}
        """,
    )


def play(project: Project, use: Callable[[int], None]) -> dict[str, Any]:
    """A run whose step waits until the driver reports that the container's shell uses a device."""
    engine = project.start("--with", "docker", "p.yaml")
    try:
        state = wait_for(
            lambda: next(project.folder.glob(".stoker/runs/*/train/0/1/container.json"), None)
        )
        log = state.parent / "stdout.log"
        wait_for(lambda: "up" in log.read_text())
        runner = json.loads(state.read_text())["pid"]
        children = Path(f"/proc/{runner}/task/{runner}/children").read_text().split()
        use(int(children[0]))
        out, _ = engine.communicate(timeout=WAIT_S)
    finally:
        engine.kill()
    assert engine.returncode == 0, out
    return project.show()


def test_the_leased_devices_and_no_other(
    project: Project,
    debian: str,
    fake_gpus: list[str],  # noqa: F811
) -> None:
    path = project.folder / "devices.json"
    devices(path, fake_gpus)
    project.env["STOKER_ACCEL"] = f"fake:{path}"
    project.write(
        "p.yaml",
        f"""
        stoker: 1
        name: p
        docker: {{parent_image: {debian}}}
        steps:
          none: {{run: "{LOOK}"}}
          one: {{run: "{LOOK}", resources: {{gpu_count: 1}}}}
          two: {{run: "{LOOK}", resources: {{gpu_count: 2}}}}
        """,
    )
    steps = project.run("--with", "docker")["steps"]
    assert project.log(steps["none"]).split() == []
    assert project.log(steps["two"]).split() == ["nvidia0", "nvidia1", ",".join(fake_gpus)]
    node, mask = project.log(steps["one"]).split()
    assert mask == fake_gpus[int(node[-1])] == steps["one"]["granted"]["devices"][0]["uuid"]


def test_used_by_the_container(project: Project, debian: str, fake_gpus: list[str]) -> None:  # noqa: F811
    """Processes inside have the pids of the host; one of two granted devices stays idle."""
    path = project.folder / "devices.json"
    devices(path, fake_gpus)
    project.env["STOKER_ACCEL"] = f"fake:{path}"
    document(project, debian, "echo up; sleep 3; true", 2)
    shown = play(
        project,
        lambda pid: devices(path, fake_gpus, processes={str(pid): 3 << 30}, busy_percent=70),
    )
    used = shown["steps"]["train"]["used"]
    assert (used["verdict"]["granted"], used["verdict"]["used"]) == (2, 1)
    assert f"granted 2 GPUs, used 1: {fake_gpus[1]}" in used["verdict"]["text"]
    first, second = used["devices"]
    assert first["peak_memory_bytes"] == 3 << 30 and first["busy_s"] > 0.5
    assert not second["context"]


def test_sampled_by_the_drivers_library(
    project: Project,
    debian: str,
    fake_gpus: list[str],  # noqa: F811
) -> None:
    """NVML outside sees utilisation and memory of the container, and the card shows them."""
    path = project.folder / "machine.nvml"
    recording(path, fake_gpus)
    project.env |= {"STOKER_NVML": str(NVML), "STOKER_FAKE_NVML": str(path), "STOKER_ACCEL": "auto"}
    document(project, debian, f"{LOOK}; echo up; sleep 3; true", 1)
    shown = play(
        project,
        lambda pid: recording(
            path,
            fake_gpus,
            ComputeRunningProcesses=f"{pid}:5368709120",
            UtilizationRates="64 30",
            PowerUsage="350000",
        ),
    )
    step = shown["steps"]["train"]
    (device,) = step["used"]["devices"]
    assert device["uuid"] == fake_gpus[0] and device["context"]
    assert device["peak_memory_bytes"] == 5 << 30
    assert step["used"]["verdict"]["cause"] == "used"
    assert project.log(step).split()[:2] == ["nvidia0", fake_gpus[0]]
    card = project.stoker("card", "latest", "-o", "card.html")
    text = (project.folder / "card.html").read_text()
    assert card.returncode == 0 and fake_gpus[0] in text and f"in {debian}" in text
    assert f"image      {debian}" in project.stoker("show", "latest/train").stdout


def test_a_rank_sees_its_own(project: Project, debian: str, fake_gpus: list[str]) -> None:  # noqa: F811
    path = project.folder / "devices.json"
    devices(path, fake_gpus)
    project.env["STOKER_ACCEL"] = f"fake:{path}"
    document(project, debian, "echo $LOCAL_RANK of $WORLD_SIZE", 2, ", gang: {ranks: gpus}")
    step = project.run("--with", "docker")["steps"]["train"]
    assert sorted(project.log(step).splitlines()) == ["[0] 0 of 2", "[1] 1 of 2"]


def test_other_vendors_by_their_nodes(project: Project, debian: str) -> None:
    """Two devices of another vendor, one granted: only its node is inside, at the same path."""
    nodes = [project.folder.parent / f"renderD12{i}" for i in range(2)]
    try:
        for node in nodes:
            os.mknod(node, 0o666 | stat.S_IFCHR, os.makedev(1, 5))
    except PermissionError:
        pytest.skip("this user can't make device nodes")
    common = {"vendor": "intel", "model": "Data Center GPU Max 1550", "memory_bytes": 1 << 33}
    listed = [{"uuid": f"intel-{i}", "node": str(n), **common} for i, n in enumerate(nodes)]
    tell(project.folder / "devices.json", json.dumps(listed))
    project.env["STOKER_ACCEL"] = f"fake:{project.folder}/devices.json"
    look = " ".join(f"[ -c {n} ] && echo {n.name};" for n in nodes)
    document(project, debian, look + " true", 1)
    step = project.run("--with", "docker")["steps"]["train"]
    granted = step["granted"]["devices"][0]["uuid"]
    assert project.log(step).split() == [nodes[int(granted[-1])].name]
