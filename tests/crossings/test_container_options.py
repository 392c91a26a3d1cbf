"""Every option of a container × every door it can be said through: what the container's engine is asked for, which a
stand-in writes down. The list of options is src/tbl/run_args.def; what each must become stands here.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest
from crossing_tools import Place, cells, silent
from requests_table import Object
from test_containers import IMAGE, Engine, engine  # noqa: F401

ROOT = Path(__file__).resolve().parents[2]
ROWS = re.findall(r'^X\((\w+), "(\w+)"', (ROOT / "src/tbl/run_args.def").read_text(), re.M)
GIB = 1 << 30

# option: (as written, where the request has it, what is due there; a list: among others)
OPTIONS: dict[str, tuple[Any, str, Any]] = {
    "cap_add": (["SYS_PTRACE"], "HostConfig.CapAdd", ["SYS_PTRACE"]),
    "cap_drop": ("CHOWN", "HostConfig.CapDrop", ["CHOWN"]),
    "cpu_period": (50000, "HostConfig.NanoCpus", 500_000_000),
    "cpu_quota": (50000, "HostConfig.NanoCpus", 500_000_000),
    "cpu_shares": (512, "HostConfig.CpuShares", 512),
    "devices": (["/dev/null:/dev/x:r"], "HostConfig.Devices", [{"PathOnHost": "/dev/null", "PathInContainer": "/dev/x", "CgroupPermissions": "r"}]),
    "dns": (["10.0.0.1"], "HostConfig.Dns", ["10.0.0.1"]),
    "dns_opt": (["ndots:1"], "HostConfig.DnsOptions", ["ndots:1"]),
    "dns_search": (["lab"], "HostConfig.DnsSearch", ["lab"]),
    "environment": ({"COLOUR": "red"}, "env", {"COLOUR": "red"}),
    "extra_hosts": ({"far": "10.0.0.1"}, "HostConfig.ExtraHosts", ["far:10.0.0.1"]),
    "group_add": ([44], "HostConfig.GroupAdd", ["44"]),
    "hostname": ("trainer", "Hostname", "trainer"),
    "ipc_mode": ("host", "HostConfig.IpcMode", "host"),
    "labels": ({"team": "x"}, "Labels", {"team": "x"}),
    "mem_limit": ("1g", "HostConfig.Memory", GIB),
    "mem_reservation": (GIB, "HostConfig.MemoryReservation", GIB),
    "memswap_limit": ("3g", "HostConfig.MemorySwap", 3 * GIB),
    "mounts": ([{"target": "/m", "type": "tmpfs"}], "HostConfig.Tmpfs", {"/m": ""}),
    "nano_cpus": (500_000_000, "HostConfig.NanoCpus", 500_000_000),
    "network": ("none", "HostConfig.NetworkMode", "none"),
    "network_disabled": (True, "HostConfig.NetworkMode", "none"),
    "network_mode": ("bridge", "HostConfig.NetworkMode", "bridge"),
    "oom_score_adj": (500, "HostConfig.OomScoreAdj", 500),
    "pids_limit": (99, "HostConfig.PidsLimit", 99),
    "privileged": (True, "HostConfig.Privileged", True),
    "read_only": (True, "HostConfig.ReadonlyRootfs", True),
    "security_opt": (["no-new-privileges"], "HostConfig.SecurityOpt", ["no-new-privileges"]),
    "shm_size": ("64m", "HostConfig.ShmSize", 64 << 20),
    "sysctls": ({"net.core.somaxconn": 1024}, "HostConfig.Sysctls", {"net.core.somaxconn": "1024"}),
    "tmpfs": ({"/scratch": "size=1m"}, "HostConfig.Tmpfs", {"/scratch": "size=1m"}),
    "ulimits": ({"nofile": 512}, "HostConfig.Ulimits", [{"Name": "nofile", "Soft": 512, "Hard": 512}]),
    "user": ("7:8", "user", "7:8"),
    "volumes": (["kept:/kept:ro"], "HostConfig.Mounts", [{"Type": "volume", "Source": "kept", "Target": "/kept", "ReadOnly": True}]),
}  # fmt: skip
# What an option needs beside it to mean anything.
BESIDE = {"cpu_period": {"cpu_quota": 25000}, "memswap_limit": {"mem_limit": "1g"}}


def said(name: str) -> Object:
    return {name: OPTIONS[name][0], **BESIDE.get(name, {})}


DOORS = {
    "an option of the step": lambda asked: {"backend": {"docker": asked}},
    "run_args of the step": lambda asked: {"backend": {"docker": {"run_args": asked}}},
    "an option over run_args": lambda asked: {
        "backend": {"docker": {**asked, "run_args": {"read_only": None, "user": "1:1"}}}
    },
}

FLOW = """
from stoker import pipeline, step

ASKED = {asked!r}
steps = []
for name, asked in ASKED.items():
    def one() -> None:
        pass
    one.__name__ = one.__qualname__ = name
    globals()[name] = step(one, step_operator="docker", enable_cache=False, settings={{
        "docker": {{"parent_image": {image!r}}}, "step_operator.local_docker": {wrap}}})

@pipeline
def p():
    for name in ASKED:
        globals()[name]()

if __name__ == "__main__":
    p()
"""


def found(container: Object, request: Object, where: str) -> Any:
    """What the request has there; variables and users go to the program by another way: by task.json."""
    if where in ("env", "user"):
        return container[where]
    for part in where.split("."):
        request = request.get(part, {})
    return request


def is_due(due: Any, got: Any) -> bool:
    if isinstance(due, dict):
        return isinstance(got, dict) and all(got.get(k) == v for k, v in due.items())
    return all(one in got for one in due) if isinstance(due, list) else bool(due == got)


def check(place: Place, engine: Engine, door: str, steps: dict[str, str]) -> list[str]:  # noqa: F811
    """The cells of the latest run: `steps` has the option of each step."""
    told = json.loads(place("show", "latest", "--json")[1])
    wrong = []
    for step, name in steps.items():
        _, where, due = OPTIONS[name]
        request, shown = engine.made.get(step), told["steps"].get(step)
        if request is None or shown is None:
            wrong.append(silent(f"{name}, {door}", due, told.get("error")))
            continue
        task = Path(shown["logs"]["stdout"]).with_name("task.json")
        got = found(json.loads(task.read_text())["container"], request, where)
        if not is_due(due, got):
            wrong.append(silent(f"{name}, {door}", due, got))
        cells["honoured"] += 1
    return wrong


def test_the_table_is_whole() -> None:
    assert set(OPTIONS) == {name for how, name in ROWS if how in ("ENGINE", "GIVEN")}


@pytest.mark.parametrize("door", DOORS)
def test_documents(place: Place, engine: Engine, door: str) -> None:  # noqa: F811
    steps = {f"s-{name}".replace("_", "-"): name for name in OPTIONS}
    docker = {"parent_image": IMAGE}
    document = place.document(
        {s: {"run": "true", "cache": False, **DOORS[door](said(name))} for s, name in steps.items()},
        docker=docker, mode="continue_on_failure",
    )  # fmt: skip
    place("run", "--quiet", "--with", "docker", document)
    wrong = check(place, engine, door, steps)
    assert not wrong, f"{len(wrong)} cells: " + "\n".join(wrong)


@pytest.mark.parametrize("wrap", ["asked", '{"run_args": asked}'])
def test_python(place: Place, engine: Engine, wrap: str) -> None:  # noqa: F811
    asked = {f"s_{name}": said(name) for name in OPTIONS}
    (place.folder / "flow.py").write_text(FLOW.format(asked=asked, image=IMAGE, wrap=wrap))
    place.env["PYTHONPATH"] = str(ROOT / "python")
    words = ("run", "--quiet", "--python", sys.executable, "--mode", "continue_on_failure")
    place(*words, "flow.py")
    wrong = check(place, engine, f"Python, {wrap}", {f"s_{name}": name for name in OPTIONS})
    assert not wrong, f"{len(wrong)} cells: " + "\n".join(wrong)
