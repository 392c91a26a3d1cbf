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
# Other spellings: the option, as written, where the request has it, what is due there.
LIMITS = [{"Name": "nofile", "Soft": 512, "Hard": 1024}]
SPELLINGS: dict[str, tuple[str, Any, str, Any]] = {
    "ulimits-list": ("ulimits", [{"name": "nofile", "soft": 512, "hard": 1024}], "HostConfig.Ulimits", LIMITS),
    "ulimits-of-the-engine": ("ulimits", LIMITS, "HostConfig.Ulimits", LIMITS),
    "ulimits-hard": ("ulimits", [{"name": "memlock", "hard": -1}], "HostConfig.Ulimits", [{"Name": "memlock", "Soft": -1, "Hard": -1}]),
    "environment-list": ("environment", ["COLOUR=red"], "env", {"COLOUR": "red"}),
    "extra-hosts-list": ("extra_hosts", ["far:10.0.0.1"], "HostConfig.ExtraHosts", ["far:10.0.0.1"]),
    "volumes-map": ("volumes", {"kept": {"bind": "/kept", "mode": "ro"}}, "HostConfig.Mounts", [{"Type": "volume", "Source": "kept", "Target": "/kept", "ReadOnly": True}]),
    "tmpfs-list": ("tmpfs", ["/scratch"], "HostConfig.Tmpfs", {"/scratch": ""}),
}  # fmt: skip
CELLS = {**{name: (name, *rest) for name, rest in OPTIONS.items()}, **SPELLINGS}
# What an option needs beside it to mean anything.
BESIDE = {"cpu_period": {"cpu_quota": 25000}, "memswap_limit": {"mem_limit": "1g"}}


def said(cell: str) -> Object:
    name, value, _, _ = CELLS[cell]
    return {name: value, **BESIDE.get(name, {})}


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


PIPELINE = """
from stoker import pipeline, step

@step(enable_cache=False)
def s() -> None:
    pass

@pipeline(settings={{"docker": {{"parent_image": {image!r}}}, "step_operator.local_docker": {asked!r}}})
def p():
    s()

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
        _, _, where, due = CELLS[name]
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
    cell_of = {f"s_{name}".replace("-", "_"): name for name in CELLS}
    asked = {step: said(name) for step, name in cell_of.items()}
    (place.folder / "flow.py").write_text(FLOW.format(asked=asked, image=IMAGE, wrap=wrap))
    place.env["PYTHONPATH"] = str(ROOT / "python")
    words = ("run", "--quiet", "--python", sys.executable, "--mode", "continue_on_failure")
    place(*words, "flow.py")
    wrong = check(place, engine, f"Python, {wrap}", cell_of)
    assert not wrong, f"{len(wrong)} cells: " + "\n".join(wrong)


def groups() -> list[list[str]]:
    """All cells, so that none of a group says or means the same as another of it."""
    made: list[list[str]] = []
    for cell, (_, _, where, _) in CELLS.items():
        for group in made:
            keys = {key for one in group for key in said(one)}
            keys |= {"shm_size"} if "ipc_mode" in keys else set()  # the machine's has its own size
            if where not in {CELLS[one][2] for one in group} and not keys & set(said(cell)):
                group.append(cell)
                break
        else:
            made.append([cell])
    return made


@pytest.mark.parametrize("level", ["the document", "the stack's image", "Python"])
def test_what_the_pipeline_says(place: Place, engine: Engine, level: str) -> None:  # noqa: F811
    """Options of all steps, of which one group is tried at a time."""
    wrong = []
    if level == "the stack's image":
        place.stacks({"box": {"backend": "docker", "default_image": IMAGE}})
    for group in groups():
        asked = {key: value for cell in group for key, value in said(cell).items()}
        engine.made.clear()
        docker = {} if level == "the stack's image" else {"docker": {"parent_image": IMAGE}}
        if level == "Python":
            text = PIPELINE.format(asked=asked, image=IMAGE)
            (place.folder / "flow.py").write_text(text)
            place.env["PYTHONPATH"] = str(ROOT / "python")
            place("run", "--quiet", "--python", sys.executable, "flow.py")
        else:
            steps = {"s": {"run": "true", "cache": False}}
            document = place.document(steps, backend={"docker": asked}, **docker)
            where = "box" if level == "the stack's image" else "docker"
            place("run", "--quiet", "--with", where, document)
        for cell in group:
            wrong += check(place, engine, level, {"s": cell})
    assert not wrong, f"{len(wrong)} cells: " + "\n".join(wrong)


# --- what has no effect ---

IDLE = [(name, how) for how, name in ROWS if how in ("NONE", "SAME")]


def idle(name: str, how: str) -> Object:
    return {name: False if how == "SAME" else "x"}


@pytest.mark.parametrize("door", ["step", "pipeline", "Python"])
def test_what_has_no_effect_is_told(place: Place, door: str) -> None:
    """In one note for each step, also where a container does it anyway and is asked not to."""
    every = {key: value for name, how in IDLE for key, value in idle(name, how).items()}
    backend: Object = {"docker": {"run_args": every}}
    words = ["--with", "docker"]
    if door == "Python":
        (place.folder / "flow.py").write_text(PIPELINE.format(asked={"run_args": every}, image=IMAGE))  # fmt: skip
        place.env["PYTHONPATH"] = str(ROOT / "python")
        words += ["--python", sys.executable, "flow.py"]
    elif door == "step":
        words.append(place.document({"s": {"run": "true", "backend": backend, "docker": {"parent_image": IMAGE}}}))  # fmt: skip
    else:
        words.append(place.document({"s": {"run": "true"}}, backend=backend, docker={"parent_image": IMAGE}))  # fmt: skip
    code, out, err = place("plan", "--json", *words)
    assert code == 0, err
    notes = json.loads(out.splitlines()[-1])["notes"]
    (note,) = [one for one in notes if "run_args: " in one]
    wrong = [silent(f"{name}, {door}", "a note", note) for name, _ in IDLE if f"'{name}'" not in note]  # fmt: skip
    cells["reported"] += len(IDLE)
    assert not wrong, "\n".join(wrong)


def test_they_are_no_options_of_ours(place: Place) -> None:
    """Outside of `run_args`, which are docker-py's."""
    for name, how in IDLE:
        backend = {"docker": idle(name, how)}
        document = place.document({"s": {"run": "true", "backend": backend}})
        code, _, err = place("plan", "--json", document)
        assert code != 0 and f"'{name}'" in err, silent(name, "refused", err)
        cells["refused"] += 1
