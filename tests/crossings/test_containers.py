"""Every way of asking × a container of this machine: the devices that the container's engine is asked for, which a
stand-in for it writes down, and the `container` of task.json. Devices are described by a file, as no container gets
those that `sim:` makes up.
"""

from __future__ import annotations

import json
import re
import socketserver
import threading
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any, Iterator

import pytest
from crossing_tools import Place, cells, due_here, silent
from requests_table import CONTAINED, MACHINES, SPLIT, WAYS, Machine, Object, Way

KFD = Path("/dev/kfd")
IMAGE = "127.0.0.1:1/i:1"
CONFIG = {"Cmd": ["true"], "Env": [], "WorkingDir": "/", "User": ""}


class Server(socketserver.ThreadingUnixStreamServer):
    daemon_threads = True
    request_queue_size = 100


class Engine:
    """Has every image, creates every container and starts none; `made` has the requests by step."""

    def __init__(self, path: Path) -> None:
        self.made: dict[str, Object] = {}
        made = self.made

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def answer(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                status, told = Engine.answer(made, self.command, self.path.split("?")[0], body)
                data = told if isinstance(told, bytes) else json.dumps(told).encode()
                self.send_response(status)
                self.send_header("Api-Version", "1.41")
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            do_GET = do_POST = do_DELETE = answer

            def log_message(self, *_: object) -> None:
                pass

            def address_string(self) -> str:
                return "unix"

        self.server = Server(str(path), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    @staticmethod
    def answer(made: dict[str, Object], method: str, path: str, body: bytes) -> tuple[int, Any]:
        word = path.rsplit("/", 1)[1]
        if word == "create":
            asked = json.loads(body)
            step = asked["Labels"].get("stoker.step")
            if step is None:
                return 201, {"Id": "look", "Warnings": []}  # which looks into the image
            made[step] = asked
            return 201, {"Id": f"made-{step}", "Warnings": []}
        if word == "start" and "/look/" not in path:
            return 500, {"message": "this engine only writes down"}
        if "/images/" in path:
            return 200, {"Id": "sha256:" + "a" * 64, "Architecture": "amd64", "Os": "linux", "Size": 1, "Config": CONFIG, "RepoDigests": []}  # fmt: skip
        if word == "info":
            return 200, {"Architecture": "x86_64", "MemoryLimit": True, "Runtimes": {"nvidia": {}}, "DockerRootDir": "/", "OSType": "linux"}  # fmt: skip
        if word == "logs" and "/look/" in path:
            return 200, b"\x01\0\0\0\0\0\0\x02{}"  # no framework is in it
        if word == "wait":
            return 200, {"StatusCode": 0}
        return 200, [] if "containers/json" in path else {}

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()


@pytest.fixture
def engine(place: Place) -> Iterator[Engine]:
    path = place.folder / "engine.sock"
    made = Engine(path)
    place.env["DOCKER_HOST"] = f"unix://{path}"
    yield made
    made.close()


def describe(place: Place, machine: Machine) -> dict[str, tuple[str, str]]:
    """The machine's devices as a file; their kinds by what a container has of them: uuid of NVIDIA's, node of others."""
    listed: list[Object] = []
    kinds: dict[str, tuple[str, str]] = {}
    for vendor, model, n, gigabytes, profile in machine.devices:
        one = {"vendor": vendor, "model": model, "memory_bytes": int(gigabytes * 10**9)}
        if profile is not None:
            listed.append({**one, "uuid": f"GPU-{model}"})
            one |= {"profile": profile, "parent": len(listed) - 1}
        for i in range(n):
            node = place.folder / f"{vendor}{model}{i}"
            node.write_text("")
            uuid = f"GPU-{vendor}-{model}-{i}"
            kinds[uuid if vendor == "nvidia" else str(node)] = (vendor, model)
            listed.append({**one, "uuid": uuid, "node": str(node), "index": i})
    (place.folder / "devices.json").write_text(json.dumps(listed))
    place.env["STOKER_ACCEL"] = f"fake:{place.folder}/devices.json"
    return kinds


def of_create(asked: Object) -> list[str]:
    """Uuids and nodes that the engine is asked for."""
    host = asked["HostConfig"]
    by_uuid = [one for request in host.get("DeviceRequests", []) for one in request["DeviceIDs"]]
    return [*by_uuid, *(one["PathOnHost"] for one in host["Devices"])]


def of_task(container: Object) -> list[str]:
    return [*container["gpus"], *container["devices"]]


def is_due(due: Any, given: list[str], kinds: dict[str, tuple[str, str]]) -> bool:
    """All devices of AMD also need `/dev/kfd`."""
    mine = [one for one in given if one != "/dev/kfd"]
    if due in (None, "reported"):
        return given == []
    allowed, count, _ = due
    of_amd = any(kinds[one][0] == "amd" for one in mine if one in kinds)
    return (
        len(mine) == count == len(set(mine))
        and all(one in kinds and kinds[one] in allowed for one in mine)
        and (len({kinds[one][0] for one in mine}) == 1)
        and ("/dev/kfd" in given) == of_amd
    )


def run(place: Place, engine: Engine, due: dict[str, tuple[str, Any]], steps: Object, kinds: dict[str, tuple[str, str]], **more: Any) -> list[str]:  # fmt: skip
    """The cells of one run, without those that must be refused."""
    engine.made.clear()
    document = place.document(
        steps, docker={"parent_image": IMAGE}, mode="continue_on_failure", **more
    )
    words = ("--quiet", "--policy", "fit", "--with", "docker", "--max-workers", "1")
    _, _, errors = place("run", *words, document)
    code, out, err = place("show", "latest", "--json")
    assert code == 0, errors + err
    told = json.loads(out)
    wrong = []
    for s, (what, expected) in due.items():
        asked, shown = engine.made.get(s), told["steps"].get(s, told)
        task = Path(shown["logs"]["stdout"]).with_name("task.json")
        said = [of_task(json.loads(task.read_text())["container"])]
        if asked is not None:
            said.append(of_create(asked))
            env = [one for one in asked["Env"] if one.startswith("NVIDIA_VISIBLE_DEVICES=")]
            is_nvidia = any(kinds.get(one, [""])[0] == "nvidia" for one in said[0])
            if env != ([] if is_nvidia else ["NVIDIA_VISIBLE_DEVICES=void"]):
                wrong.append(silent(what, "an image that wants all gets what is granted", env))
        elif "/dev/kfd" not in said[0] or KFD.exists():  # which no machine without AMD's driver has
            wrong.append(silent(what, expected, shown.get("error")))
        if not all(is_due(expected, one, kinds) for one in said):
            wrong.append(silent(what, expected, said))
        cells[expected if expected == "reported" else "none asked for" if expected is None else "honoured"] += 1  # fmt: skip
    reported = sum(expected == "reported" for _, expected in due.values())
    if n_reported(told["notes"]) != reported:
        wrong.append(silent(f"{reported} that run on the CPU", "a note of each", told["notes"]))
    return wrong


def n_reported(notes: list[str]) -> int:
    """How many steps these say to run without a device: those that are named, "and 4 more"."""
    about = [one.partition(" asked for ")[0] for one in notes if " on the CPU" in one]
    return sum(len(re.findall("'[^']+'", one)) for one in about) + sum(
        int(n) for one in about for n in re.findall(r"and (\d+) more", one)
    )


@pytest.mark.parametrize("name", MACHINES)
def test_containers_have_what_their_steps_asked_for(
    place: Place, engine: Engine, name: str
) -> None:
    """Said by the step, also of ranks; by the pipeline; and by both."""
    machine = MACHINES[name]
    kinds = describe(place, machine)
    wrong: list[str] = []
    documents: list[tuple[str, Object, list[tuple[str, Way, Object, Object]]]] = [
        ("", {}, [(f"{way}, {how}", meant, meant.resources, keys) for way, meant in WAYS.items() for how, keys in CONTAINED.items()]),
        *((f"{above} above", above, [(f"{below} below", WAYS[way], below, {})]) for above, below, way in SPLIT.values()),
    ]  # fmt: skip
    for what, above, wanted in documents:
        due: dict[str, tuple[str, Any]] = {}
        steps: Object = {}
        for i, (how, meant, below, keys) in enumerate(wanted):
            expected = due_here(machine, "fit", meant.means)
            if expected != "refused":
                due[f"s{i}"] = (f"{name}, a container, {what} {how}", expected)
                steps[f"s{i}"] = {"run": "true", "cache": False, "resources": below, **keys}
        if steps:
            wrong += run(place, engine, due, steps, kinds, **({"resources": above} if above else {}))  # fmt: skip
    assert not wrong, f"{len(wrong)} cells: " + "\n".join(wrong[:25])
