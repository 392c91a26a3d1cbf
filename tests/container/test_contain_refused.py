"""A container that never ran gives one sentence why; without the requested devices it doesn't
start."""

from __future__ import annotations

import contextlib
import json
import os
import stat
import struct
import uuid
from pathlib import Path

import pytest
from contain import Contained, wait_for


@pytest.fixture
def run(engine, tmp_path):
    """run(image, *argv, **container) gives a container that has ended."""
    ran = []

    def run(image, *argv, **more):
        ran.append(Contained(engine, tmp_path / f"step{len(ran)}", image, *argv, **more))
        ran[-1].end()
        return ran[-1]

    yield run
    for one in ran:
        wait_for(one.is_gone)


def refused(task, status, *words):
    assert task.process.returncode == status, task.err
    assert task.err.startswith("stoker contain: ") and task.err.count("\n") == 1
    for word in words:
        assert word in task.err
    assert task.err[len("stoker contain: ") :].startswith(task.state["failed"].split("\n")[0])
    assert sorted(p.name for p in task.folder.iterdir()) == ["container.json", "stderr.log", "stdout.log", "task.json"]  # fmt: skip


def test_no_such_image(run, engine):
    task = run("localhost/never-made:1", "/probe", name="my/own:1")
    refused(task, 125, "image 'my/own:1' isn't on this host", f"{engine.name} pull my/own:1")


def test_no_such_program(run, scratch):
    refused(run(scratch, "python3", "-c", "1"), 127, "has no program 'python3'", "PATH")
    refused(run(scratch, "/bin/sh"), 127, "has no program '/bin/sh'")


def test_not_executable(run, debian):
    refused(run(debian, "/etc/passwd"), 126, "'/etc/passwd'", "Permission denied")


@pytest.mark.parametrize("engine", ["podman"], indirect=True)
def test_a_ulimit_above_the_engines_own(run, scratch):
    """Podman sets defaults of other ulimits, too: the one that fails is named."""
    task = run(scratch, "/probe", ulimits={"nofile": 1 << 40, "nproc": 100})
    refused(
        task, 125, "can't set the container's ulimit nofile, because it is above the engine's own"
    )


def test_no_such_folder(run, scratch):
    refused(run(scratch, "/probe", cwd="/nowhere"), 126, "folder /nowhere can't be entered")


def test_mount_that_is_missing(run, scratch, tmp_path):
    task = run(scratch, "/probe", mounts=[{"from": f"{tmp_path}/nothing", "to": "/data"}])
    refused(task, 125, f"mounting {tmp_path}/nothing at /data", "No such file")


def test_another_architecture(run, engine, tmp_path):
    """An ELF file for another architecture."""
    foreign = 0xB7 if os.uname().machine == "x86_64" else 0x3E
    head = b"\x7fELF\x02\x01\x01" + bytes(9) + struct.pack("<HHIQQQIHHHHHH", 2, foreign, 1, 0, 64, 0, 0, 64, 56, 0, 64, 0, 0)  # fmt: skip
    tree = tmp_path / "tree"
    tree.mkdir()
    (tree / "prog").write_bytes(head + bytes(64))
    (tree / "prog").chmod(0o755)
    engine.load("localhost/stoker-test-foreign:1", tree, "ENV A=b")
    task = run("localhost/stoker-test-foreign:1", "/prog")
    refused(task, 126, "exec format error", "the image is for ")


def test_no_engine(podman, tmp_path, scratch):
    task = Contained(podman, tmp_path / "s", scratch, "/probe", socket=f"{tmp_path}/none.sock")
    task.end()
    refused(task, 125, "no container engine answers", f"{tmp_path}/none.sock (as named): isn't there", "DOCKER_HOST")  # fmt: skip


def test_a_socket_that_is_no_engine(podman, tmp_path, scratch):
    """Found by a docker context, as docker's client does."""
    import hashlib

    config = tmp_path / "docker"
    meta = config / "contexts" / "meta" / hashlib.sha256(b"here").hexdigest()
    meta.mkdir(parents=True)
    (config / "config.json").write_text(json.dumps({"currentContext": "here"}))
    host = {"Endpoints": {"docker": {"Host": f"unix://{podman.socket}"}}}
    (meta / "meta.json").write_text(json.dumps(host))
    environ = {"DOCKER_CONFIG": str(config), "DOCKER_HOST": ""}
    task = Contained(
        podman, tmp_path / "s", scratch, "/probe", "say", "found", environ=environ, socket=""
    )
    assert task.end() == 0, task.err
    assert task.out == "found\n"


def test_a_device_node(run, scratch, tmp_path):
    node = tmp_path / "accel0"
    try:
        os.mknod(node, 0o666 | stat.S_IFCHR, os.makedev(1, 5))
    except PermissionError:
        pytest.skip("this user can't make device nodes")
    task = run(scratch, "/probe", "stat", str(node), "--", "stat", "/dev/kmsg", devices=[str(node)])
    assert task.process.returncode == 0, task.err
    assert task.out == "char 1:5\n(none)\n"
    missing = run(scratch, "/probe", devices=["/dev/no-such-accelerator"])
    refused(missing, 125, "device /dev/no-such-accelerator: No such file")


@pytest.fixture
def fake_gpus():
    """Two GPUs by CDI whose nodes are /dev/zero and /dev/full; named so that no real one is meant."""
    names = [f"GPU-{uuid.uuid4()}" for _ in range(2)]
    devices = [
        {
            "name": name,
            "containerEdits": {
                "deviceNodes": [
                    {"path": f"/dev/nvidia{i}", "type": "c", "major": 1, "minor": (5, 7)[i]}
                ],
                "env": [f"STOKER_FAKE_GPU_{i}=1"],
            },
        }
        for i, name in enumerate(names)
    ]
    folder = Path("/etc/cdi")
    made = not folder.exists()
    path = folder / f"stoker-test-{os.getpid()}.json"
    try:
        folder.mkdir(exist_ok=True)
        text = {
            "cdiVersion": "0.5.0",
            "kind": "nvidia.com/gpu",
            "devices": devices,
            "containerEdits": {},
        }
        path.write_text(json.dumps(text))
    except PermissionError:
        pytest.skip("only root can name devices to this engine")
    yield names
    path.unlink()
    if made:
        with contextlib.suppress(OSError):  # another session has put its own there
            folder.rmdir()


@pytest.mark.parametrize("engine", ["podman", "docker_cdi"], indirect=True)
def test_exactly_the_gpus_that_were_granted(run, scratch, fake_gpus):
    words = [
        "stat",
        "/dev/nvidia0",
        "--",
        "stat",
        "/dev/nvidia1",
        "--",
        "env",
        "NVIDIA_VISIBLE_DEVICES",
    ]
    one = run(
        scratch,
        "/probe",
        *words,
        gpus=[fake_gpus[1]],
        memory_bytes=1 << 28,
        labels={"stoker.run": "x"},
    )
    assert one.process.returncode == 0, one.err
    assert one.out == "(none)\nchar 1:7\nvoid\n"
    both = run(
        scratch,
        "/probe",
        *words,
        gpus=fake_gpus,
        user="7:8",
        shm_bytes=1 << 25,
        ulimits={"nofile": 99, "nproc": 999},
    )
    assert both.err == ""
    assert both.out == "char 1:5\nchar 1:7\nvoid\n"
    named = run(scratch, "/probe", *words, devices=[f"nvidia.com/gpu={fake_gpus[0]}"])
    assert named.out == "char 1:5\n(none)\nvoid\n"
    assert run(scratch, "/probe", *words).out == "(none)\n(none)\nvoid\n"


@pytest.mark.parametrize("engine", ["docker"], indirect=True)
def test_gpus_by_a_device_request(run, engine, scratch):
    """Docker with NVIDIA's runtime, whose hook is a script that keeps what it was told."""
    task = run(scratch, "/probe", gpus=["GPU-11", "GPU-22"])
    assert task.process.returncode == 0, task.err
    said = [
        e
        for e in json.loads((engine.state / "hook.json").read_text())["process"]["env"]
        if "NVIDIA" in e
    ]
    assert (
        "NVIDIA_VISIBLE_DEVICES=GPU-11,GPU-22" in said and "NVIDIA_VISIBLE_DEVICES=void" not in said
    )


@pytest.mark.parametrize("engine", ["docker"], indirect=True)
def test_a_cdi_name_for_an_engine_without(run, scratch, fake_gpus):
    task = run(scratch, "/probe", devices=[f"nvidia.com/gpu={fake_gpus[0]}"])
    refused(task, 125, "doesn't take CDI names like nvidia.com/gpu=")


@pytest.mark.parametrize("engine", ["podman"], indirect=True)
def test_a_gpu_that_the_engine_cannot_give(run, scratch):
    task = run(scratch, "/probe", gpus=["GPU-00000000-0000"])
    refused(task, 125, "GPU GPU-00000000-0000", "CDI", "nvidia-ctk cdi generate")
