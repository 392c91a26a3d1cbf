"""docker-py's `run_args` and the same options of `backend: docker`: what they ask for is so inside, and what has no
effect is told. By Docker's API, and by Podman's own, which a device of CDI needs."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
from run_tools import ROOT, STOKER, Project, project_in
from test_contain_refused import fake_gpus  # noqa: F401

ROWS = re.findall(r'^X\((\w+), "(\w+)", (\w+),', (ROOT / "src/tbl/run_args.def").read_text(), re.M)


# the image has no grep
GREP = 'grep() { while read -r l; do case "$l" in *"$1"*) echo "$l";; esac; done < "$2"; }; '


@pytest.fixture
def either(engine: Any, tmp_path: Path) -> Project:
    return project_in(tmp_path, engine)


@pytest.fixture(params=["docker_api", "own_api"])
def more(request: pytest.FixtureRequest, either: Project) -> dict[str, Any]:
    """Options that choose the API: a device by its CDI name is asked for by Podman's own."""
    if request.param == "docker_api":
        return {}
    if not either.podman.is_podman:
        pytest.skip("Docker has one API")
    return {"devices": [f"nvidia.com/gpu={request.getfixturevalue('fake_gpus')[0]}"]}


def run(project: Project, debian: str, command: str, **docker: Any) -> tuple[dict[str, Any], str]:
    """The record of a run of one step by `sh`, and what it printed; GREP FILE WORD prints lines."""
    step = {"run": ["sh", "-c", GREP + command], "backend": {"docker": docker}}
    step |= {"outputs": ["y"]} if "OUTPUT" in command else {}
    text = {"stoker": 1, "name": "p", "docker": {"parent_image": debian}, "steps": {"a": step}}
    project.write("p.yaml", json.dumps(text))
    shown = project.run()
    return shown, project.log(shown["steps"]["a"])


@pytest.fixture
def debian_of(either: Project) -> str:
    _, images = either.podman.api("GET", "/images/json")
    tags = [tag for one in images for tag in one["RepoTags"] or []]
    return next(tag for tag in tags if "stoker-test-debian:" in tag)


def test_volumes(either: Project, debian_of: str, more: Any, tmp_path: Path) -> None:
    """Folders of the machine, read-only and writable, a volume of the engine, a tmpfs: each form."""
    data, out = tmp_path / "data", tmp_path / "out"
    data.mkdir()
    out.mkdir()
    (data / "x").write_text("from outside\n")
    command = (
        "cat /data/x; touch /data/y 2>/dev/null || echo data is read-only; echo made > /out/z;"
        "touch /kept/a && echo kept; cat /m/x; grep ' /scratch tmpfs' /proc/mounts;"
        "grep ' /small tmpfs' /proc/mounts"
    )
    volumes = [f"{data}:/data:ro", f"{out}:/out", "stoker-test-kept:/kept"]
    mounts = [
        {"Target": "/m", "Source": str(data), "Type": "bind", "ReadOnly": True},
        {"target": "/scratch", "type": "tmpfs"},
    ]
    tmpfs = {"/small": "size=1m"}
    _, said = run(either, debian_of, command, volumes=volumes, mounts=mounts, tmpfs=tmpfs, **more)
    *lines, scratch, small = said.splitlines()
    assert lines == ["from outside", "data is read-only", "kept", "from outside"]
    assert "tmpfs" in scratch and "size=1024k" in small
    assert (out / "z").read_text() == "made\n"
    either.podman.api("DELETE", "/volumes/stoker-test-kept?force=true")


def test_docker_pys_volumes(either: Project, debian_of: str, tmp_path: Path) -> None:
    """As ZenML's users write them: {path: {bind, mode}}; the step's user doesn't take them over."""
    (tmp_path / "data").mkdir()
    before = (tmp_path / "data").stat()
    volumes = {str(tmp_path / "data"): {"bind": "/data", "mode": "rw"}}
    _, said = run(
        either, debian_of, "touch /data/x; echo $?", user="user", run_args={"volumes": volumes}
    )
    assert said == "1\n" and (tmp_path / "data").stat().st_uid == before.st_uid


def test_read_only(either: Project, debian_of: str, more: Any) -> None:
    """The image's files can't be changed; what every step may write to can."""
    command = (
        "touch /srv/x 2>/dev/null || echo read-only; touch /tmp/x && echo tmp;"
        "echo y > $STOKER_OUTPUT/y && echo output"
    )
    _, said = run(either, debian_of, command, read_only=True, **more)
    assert said.split() == ["read-only", "tmp", "output"]


def test_what_the_kernel_shows(either: Project, debian_of: str, more: Any) -> None:
    """Capabilities, privileges, limits, names, variables."""
    command = (
        "grep CapEff /proc/self/status; grep NoNewPrivs /proc/self/status; cat /proc/sys/kernel/hostname;"
        "grep far.example /etc/hosts; echo $COLOUR $IMAGE_SAYS; cat /proc/self/oom_score_adj;"
        "cat /proc/sys/kernel/msgmax; ulimit -n"
    )
    asked = {
        "cap_add": ["SYS_PTRACE"], "cap_drop": ["CHOWN"], "hostname": "trainer",
        "security_opt": ["no-new-privileges"], "extra_hosts": {"far.example": "10.0.0.1"},
        "environment": {"COLOUR": "red"}, "oom_score_adj": 500, "sysctls": {"kernel.msgmax": 4096},
        "ulimits": {"nofile": 512, "nproc": 100},
    }  # fmt: skip
    _, said = run(either, debian_of, command, run_args=asked, **more)
    caps, privs, *rest = said.splitlines()
    assert int(caps.split()[1], 16) & (1 << 19) and not int(caps.split()[1], 16) & 1
    assert privs.split()[1] == "1"
    assert rest.pop(1).split() == ["10.0.0.1", "far.example"]
    assert rest == ["trainer", "red hello", "500", "4096", "512"]


def test_privileged(either: Project, debian_of: str, more: Any) -> None:
    mine = int(re.findall(r"CapEff:\s*(\w+)", Path("/proc/self/status").read_text())[0], 16)
    if not either.podman.is_podman and mine & (1 << 24) == 0:
        pytest.skip("Docker gives all capabilities, and this machine's root lacks some")
    _, said = run(either, debian_of, "grep CapEff /proc/self/status", privileged=True, **more)
    assert int(said.split()[1], 16) & (1 << 21)  # CAP_SYS_ADMIN


def limits(project: Project, debian: str, settings: dict[str, Any], **docker: Any) -> Any:
    """`container` of the task.json of a step with these resources."""
    step = {"run": ["sh", "-c", "true"], "backend": {"docker": docker}, **settings}
    text = {"stoker": 1, "name": "p", "docker": {"parent_image": debian}, "steps": {"a": step}}
    project.write("p.yaml", json.dumps(text))
    project.run("--no-cache")
    path = sorted(project.folder.glob(".stoker/runs/*/a/0/1/task.json"))[-1]
    return json.loads(path.read_text())["container"]


@pytest.mark.parametrize("names", [("name", "soft", "hard"), ("Name", "Soft", "Hard")])
def test_limits_as_docker_py_has_them(
    either: Project, debian_of: str, more: Any, names: tuple[str, ...]
) -> None:
    """A list, whose items have a soft and a hard limit; -1 is no limit."""
    asked = [
        dict(zip(names, ("nofile", 300, 400))),
        dict(zip(names, ("core", -1, -1))),
        {"name": "nproc", "hard": 100},
    ]
    command = "ulimit -Sn; ulimit -Hn; ulimit -c"
    _, said = run(either, debian_of, command, run_args={"ulimits": asked}, **more)
    assert said.split() == ["300", "400", "unlimited"]
    _, said = run(
        either, debian_of, "ulimit -c", ulimits={"core": -1, "nproc": 100, "nofile": 300}, **more
    )
    assert said == "unlimited\n"


@pytest.mark.parametrize("memory, asked, is_so", [
    (None, "64m", 64 << 20), ("128MiB", "64m", 64 << 20), ("64MiB", "1g", 64 << 20),
])  # fmt: skip
def test_the_smaller_limit(
    project: Project, debian: str, memory: str | None, asked: str, is_so: int
) -> None:
    resources = {"resources": {"memory": memory}} if memory else {}
    told = limits(project, debian, resources, mem_limit=asked, nano_cpus=500_000_000)
    assert told["memory_bytes"] == is_so and told["cpu_milli"] == 500


def test_memory_is_limited(either: Project, debian_of: str, more: Any) -> None:
    group = "cat /sys/fs/cgroup/memory/memory.limit_in_bytes 2>/dev/null || cat /sys/fs/cgroup/memory.max"
    _, said = run(either, debian_of, group, mem_limit="64m", pids_limit=99, **more)
    assert said.split() == [str(64 << 20)]


def test_a_device_of_the_machine(either: Project, debian_of: str, more: Any) -> None:
    devices = ["/dev/full:/dev/always-full:rw", *more.get("devices", [])]
    _, said = run(either, debian_of, "ls /dev/always-full", devices=devices)
    assert said == "/dev/always-full\n"


def test_network_mode(project: Project, debian: str) -> None:
    """By either name; `labels` never replace ours."""
    asked = {"network_mode": "none", "labels": {"team": "x", "stoker.run": "mine"}}
    told = limits(project, debian, {}, run_args=asked)
    assert told["network"] == "none" and told["labels"]["team"] == "x"
    assert told["labels"]["stoker.run"] != "mine"
    assert limits(project, debian, {}, network_disabled=True)["network"] == "none"


def test_another_environment_is_another_key(project: Project, debian: str) -> None:
    for colour, cached in (("red", False), ("red", True), ("blue", False)):
        step = {"run": ["sh", "-c", "echo $COLOUR > $STOKER_OUTPUT/y"], "outputs": ["y"]}
        step["backend"] = {"docker": {"environment": [f"COLOUR={colour}"]}}
        text = {"stoker": 1, "name": "p", "docker": {"parent_image": debian}, "steps": {"a": step}}
        project.write("p.yaml", json.dumps(text))
        assert project.run()["steps"]["a"]["cached"] == cached


def test_all_without_effect_are_told(project: Project, debian: str) -> None:
    """All of them in one note, by the list; what is so anyway, and empty values, aren't."""
    none = [name for how, name, _ in ROWS if how == "NONE"]
    assert "pid_mode" in none and len(none) > 20
    asked = {name: "x" for name in none} | {"auto_remove": True, "detach": True, "tty": False}
    shown, _ = run(project, debian, "true", run_args=asked | {"links": {}, "working_dir": ""})
    expected = [name for name in none if name not in ("tty", "links", "working_dir")]
    (note,) = shown["notes"]
    assert re.findall(r"'(\w+)'", note)[1:] == expected, note


WRONG = {
    "TEXT_S": 5, "WORD": "x", "PAIRS": "x", "HOSTS": ["x"], "DEVICES": ["x"], "NUMBER": "x", "BYTES": "x", "SWAP": -2,
    "TRUTH": "x", "VALUES": [1], "MOUNTED": 5, "WORDS": "x", "TEXT": 5, "ULIMITS": 5,
}  # fmt: skip


@pytest.mark.parametrize("how, name, kind", [row for row in ROWS if row[0] in ("ENGINE", "GIVEN")])
def test_a_wrong_value_is_refused(tmp_path: Path, how: str, name: str, kind: str) -> None:
    """Of each that is honoured, as an option and among run_args, when the document is read."""
    for docker in ({name: WRONG[kind]}, {"run_args": {name: WRONG[kind]}}):
        step = {"run": "x", "backend": {"docker": docker}}
        (tmp_path / "p.yaml").write_text(
            json.dumps({"stoker": 1, "name": "p", "steps": {"a": step}})
        )
        done = subprocess.run(
            [STOKER, "plan", "p.yaml"], cwd=tmp_path, capture_output=True, text=True
        )
        assert done.returncode == 2 and f"'{name}'" in done.stderr, done.stderr


def refused(project: Project, debian: str, *words: str, **step: Any) -> None:
    """Before the run begins: no record of one."""
    all_of = {"run": ["sh", "-c", "true"], **step}
    text = {"stoker": 1, "name": "p", "docker": {"parent_image": debian}, "steps": {"a": all_of}}
    project.write("p.yaml", json.dumps(text))
    done = project.stoker("run", "--with", "docker", "p.yaml", ok=False)
    assert done.returncode == 2 and "step 'a'" in done.stderr, done.stderr
    assert all(word in done.stderr for word in words), done.stderr
    assert not list(project.folder.glob(".stoker/runs/*/a"))
    planned = project.stoker("plan", "--json", "--with", "docker", "p.yaml").stdout
    assert any(words[0] in note for note in json.loads(planned)["notes"]), planned


def test_a_missing_device_is_refused(project: Project, debian: str) -> None:
    """A name of CDI that nobody specifies, a node, a folder: before anything starts."""
    for docker, word in (
        ({"devices": ["nvidia.com/gpu=nobody"]}, "nvidia.com/gpu=nobody"),
        ({"run_args": {"devices": ["/dev/nobody"]}}, "/dev/nobody"),
        ({"volumes": ["/nowhere/data:/data"]}, "/nowhere/data"),
    ):
        refused(project, debian, word, backend={"docker": docker})


def test_a_gpu_without_a_specification_is_refused(project: Project, debian: str) -> None:
    listed = [{"uuid": "GPU-of-nobody", "model": "NVIDIA H100 80GB HBM3", "memory_bytes": 1 << 33}]
    project.write("devices.json", json.dumps({"driver": "580.65.06", "devices": listed}))
    project.env["STOKER_ACCEL"] = f"fake:{project.folder}/devices.json"
    refused(project, debian, "GPU-of-nobody", "nvidia-ctk", resources={"gpu_count": 1})
