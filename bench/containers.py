"""Rows of bench.py about `stoker contain`: beside the same engine's bare API and beside its own command line."""

from __future__ import annotations

import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bench import Bench

ROOT = Path(__file__).resolve().parent.parent
ROUNDS = 15


def bare(engine: Any, image: str, folder: Path) -> float:
    """Create, start and wait by the API; seconds until all has been said."""
    body = {
        "Image": image,
        "Entrypoint": ["/probe"],
        "Cmd": ["clock", f"{folder}/clock"],
        "HostConfig": {
            "NetworkMode": "host",
            "Mounts": [{"Type": "bind", "Source": str(folder), "Target": str(folder)}],
        },
    }
    began = time.monotonic()
    name = engine.api("POST", "/containers/create", body)[1]["Id"]
    engine.api("POST", f"/containers/{name}/start")
    engine.api("POST", f"/containers/{name}/wait")
    took = time.monotonic() - began
    engine.api("DELETE", f"/containers/{name}?force=true")
    return took


def contained(stoker: Path, engine: Any, image: str, folder: Path) -> float:
    task = {
        "container": {
            "image": image,
            "argv": ["/probe", "clock", f"{folder}/clock"],
            "socket": str(engine.socket),
            "mounts": [{"from": str(folder), "to": str(folder), "write": True}],
        }
    }
    (folder / "task.json").write_text(json.dumps(task))
    began = time.monotonic()
    subprocess.run([str(stoker), "contain", f"{folder}/task.json"], env=engine.env, check=True)
    return time.monotonic() - began


def command_line(engine: Any, image: str, folder: Path) -> float:
    began = time.monotonic()
    mount = f"{folder}:{folder}"
    words = ["--rm", "--network", "host", "-v", mount, "--entrypoint", "/probe", image]
    engine("run", *words, "clock", f"{folder}/clock")
    return time.monotonic() - began


def image_row(bench: Bench, engine: Any, image: str, folder: Path) -> None:
    """What a run does about an image that is here, beside the two questions to the engine that it takes."""
    spec = folder / "p.yaml"
    docker = {"parent_image": image}
    spec.write_text(
        json.dumps({"stoker": 1, "name": "p", "docker": docker, "steps": {"a": {"run": "/probe"}}})
    )
    env = {**engine.env, "STOKER_ACCEL": "none", "STOKER_STORE": f"{folder}/store"}
    words = [str(bench.args.stoker), "build", str(spec)]

    def ask() -> None:
        for path in ("/_ping", "/info", f"/images/{image}/json"):
            engine.api("GET", path)

    kinds = {
        "stoker": lambda: subprocess.run(words, env=env, check=True, stdout=subprocess.DEVNULL),
        "api": ask,
        "inspect": lambda: engine("image", "inspect", image),
    }
    found: dict[str, list[float]] = {name: [] for name in kinds}
    for _ in range(3 if bench.args.quick else ROUNDS):
        for name, one in kinds.items():
            began = time.monotonic()
            one()
            found[name].append(1e3 * (time.monotonic() - began))
    ours, api, inspect = (statistics.median(found[name]) for name in ("stoker", "api", "inspect"))
    bench.add(
        "containers",
        "an image that is here, checked before a run (`stoker build`)",
        f"{ours:.0f} ms",
        f"the same questions by the bare API {api:.0f} ms; podman image inspect {inspect:.0f} ms",
        statistics.median(a - b for a, b in zip(found["stoker"], found["api"])),
        30,
        "ms more",
    )


def at_once_row(bench: Bench, engine: Any, image: str, folder: Path) -> None:
    """Many steps that wait, all at once, beside as many `podman run` of one shell."""
    n, seconds = (6, "1") if bench.args.quick else (30, "5")
    steps = {f"s{i}": {"run": ["sleep", seconds]} for i in range(n)}
    document = {"stoker": 1, "name": "p", "docker": {"parent_image": image}, "steps": steps}
    (folder / "p.yaml").write_text(json.dumps(document))
    env = {**engine.env, "STOKER_ACCEL": "none", "STOKER_STORE": f"{folder}/store"}
    ours = [
        str(bench.args.stoker),
        "run",
        "--quiet",
        "--no-cache",
        "-j",
        str(n),
        "--with",
        "docker",
        "p.yaml",
    ]
    one = f"podman run --rm --network host --entrypoint sleep {image} {seconds}"
    hand = ["sh", "-c", f"for i in $(seq {n}); do {one} & done; wait"]
    found: dict[str, list[float]] = {"stoker": [], "hand": []}
    for i in range(1 if bench.args.quick else 3):
        for name in sorted(found, reverse=i % 2 == 0):  # neither is always the first
            words = ours if name == "stoker" else hand
            began = time.monotonic()
            subprocess.run(words, cwd=folder, env=env, check=True, stdout=subprocess.DEVNULL)
            found[name].append(time.monotonic() - began)
            time.sleep(2)  # what the engine still cleans up isn't the next one's
    mine, by_hand = (statistics.median(found[name]) for name in ("stoker", "hand"))
    bench.add(
        "containers",
        f"{n} steps `sleep {seconds}` in containers at once (`-j {n}`)",
        f"{mine:.1f} s",
        f"{n} `podman run` at once by a shell loop {by_hand:.1f} s",
        mine / by_hand,
        1.2,
        "×",
    )


def read_seconds(words: list[str], **more: Any) -> float:
    """What dd itself says that its reading took: no start, no end of a container is in it."""
    said = subprocess.run(words, check=True, stderr=subprocess.PIPE, text=True, **more).stderr
    found = re.search(r" copied, ([0-9.e-]+) s", said)
    if found is None:
        raise RuntimeError(said)
    return float(found.group(1))


def forget(path: Path) -> None:
    """Out of the page cache."""
    with open(path, "rb") as file:
        os.fdatasync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def artifact_rows(bench: Bench, engine: Any, image: str, folder: Path) -> None:
    """A large file read inside through its mount, and by the same program here: from the page cache and from the disk."""
    mib = 64 if bench.args.quick else 1024
    artifact = folder / "artifact"
    block = os.urandom(1 << 20)
    with open(artifact, "wb") as file:
        for _ in range(mib):
            file.write(block)
    words = ["dd", f"if={artifact}", "of=/dev/null", "bs=1M"]
    task = {
        "image": image,
        "argv": words,
        "socket": str(engine.socket),
        "env": {"LC_ALL": "C"},
        "mounts": [{"from": str(folder), "to": str(folder)}],
    }
    (folder / "task.json").write_text(json.dumps({"container": task}))
    inside = [str(bench.args.stoker), "contain", f"{folder}/task.json"]
    sides = {"inside": (inside, engine.env), "here": (words, {**os.environ, "LC_ALL": "C"})}
    for kind in ("from the page cache", "from the disk"):
        found: dict[str, list[float]] = {name: [] for name in sides}
        for i in range(3 if bench.args.quick else 9):
            for name in sorted(sides, reverse=i % 2 == 0):  # neither is always the first
                command, env = sides[name]
                if kind == "from the disk":
                    forget(artifact)
                found[name].append(read_seconds(command, env=env))
                time.sleep(0.5)  # what the engine still cleans up isn't the next one's
        ours, here = (statistics.median(found[name]) for name in ("inside", "here"))
        bench.add(
            "containers",
            f"{mib} MiB artifact read in a container through its mount, {kind}",
            f"{ours:.2f} s",
            f"by the same program on the machine itself {here:.2f} s",
            ours / here,
            1.2,
            "×",
        )
    artifact.unlink()


def rows(bench: Bench) -> None:
    """Two rows: until the program's first instruction, and until its end is known; one about images, two about large files, one
    about many at once."""
    sys.path[:0] = [str(ROOT / "tests" / name) for name in ("support", "container")]
    try:
        import conftest as engines
    except ImportError as error:
        print(f"containers: {error}, left out", file=sys.stderr)
        return
    if engines.shutil.which("podman") is None:
        print("containers: no podman here, left out", file=sys.stderr)
        return
    found: dict[str, list[tuple[float, float]]] = {"bare": [], "contain": [], "run": []}
    with engines.running_podman() as engine, tempfile.TemporaryDirectory() as tmp:
        image = engines.make_scratch(engine, Path(tmp) / "tree")
        folder = Path(tmp)
        kinds = {
            "bare": lambda: bare(engine, image, folder),
            "contain": lambda: contained(bench.args.stoker, engine, image, folder),
            "run": lambda: command_line(engine, image, folder),
        }
        for _ in range(3 if bench.args.quick else ROUNDS):
            for name, one in kinds.items():
                began = time.monotonic()
                took = one()
                ran = float((folder / "clock").read_text()) - began
                found[name].append((1e3 * ran, 1e3 * took))
                time.sleep(0.5)  # what the engine still cleans up isn't the next one's
        image_row(bench, engine, image, folder)
        debian = engines._debian(engine, folder / "debian")
        artifact_rows(bench, engine, debian, folder)
        at_once_row(bench, engine, debian, folder)
    over = [c[0] - b[0] for b, c in zip(found["bare"], found["contain"])]
    for i, what in enumerate(["until its first instruction", "until its end is known"]):
        ours, api, run = (
            statistics.median(p[i] for p in found[k]) for k in ("contain", "bare", "run")
        )
        bench.add(
            "containers",
            f"a static program in a container, {what}",
            f"{ours:.0f} ms",
            f"the engine's bare API {api:.0f} ms; podman run {run:.0f} ms",
            statistics.median(over) if i == 0 else ours - api,
            10,
            "ms more",
        )
