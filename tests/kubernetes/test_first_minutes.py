"""The first five minutes of docs/kubernetes.md, typed word by word: its files are written, its commands run in their
order, and what they print is what the page shows, but for numbers, ids and this machine's addresses."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from front_tools import cannot
from kube import Cluster
from kube.nodes import FIVE
from kube_client import Client
from kube_driver import ROOT
from share_tools import REGION, Moto
from shops import Shop
from stoker_binary import find_binary

PAGE = (ROOT / "docs/kubernetes.md").read_text()
SECTION = PAGE.split("\n## The first five minutes\n")[1].split("\n## ")[0]
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.M | re.S)
TYPED = [text for kind, text in FENCE.findall(SECTION) if kind == "console"]
FILES = {
    text.splitlines()[0].split()[1].rstrip(","): text
    for kind, text in FENCE.findall(SECTION)
    if kind == "yaml"
}
STOKER = find_binary()


def commands(block: str) -> list[tuple[str, list[str]]]:
    """(command, the lines that it prints) of a sample."""
    found: list[tuple[str, list[str]]] = []
    for line in block.splitlines():
        if line.startswith("$ "):
            found.append((re.split(r"\s{2,}#", line[2:])[0].strip(), []))
        else:
            found[-1][1].append(line)
    return found


def plain(text: str, own: dict[str, str]) -> list[str]:
    """Lines without what differs from machine to machine and from run to run."""
    for theirs, ours in own.items():
        text = text.replace(theirs, ours)
    for pattern, word in (
        (r" from here; other machines can't reach http://127[^\n]*", ""),  # the test's S3
        (r"\x1b\[[0-9;]*m", ""),
        (r"sha256:[0-9a-f]+…?", "DIGEST"),
        (r"\b(?:amd64|arm64)\b", "ARCH"),
        (r"https?://\S+", "URL"),
        (r"\b\d{8}-\d{6}-[0-9a-f]{6}\b", "RUN"),
        (r"\bs-[0-9a-f]+-(\w+)-0-1-\w+", r"POD \1"),
        (r"(?:\b[0-9.]+ ?(?:ms|µs|s|min|h)\b ?)+", "TIME "),
        (r"\b[0-9.]+ ?(?:[kMGT]i?)?B\b", "SIZE"),
        (r"\d+(?:\.\d+)*", "0"),
        (r"^note .*\n", ""),  # a busy machine: what a Job waits for
        (r" +(?:–|0 CPU, SIZE|0 CPU|SIZE)$", " USED"),  # too short to be measured
    ):
        text = re.sub(pattern, word, text, flags=re.M)
    return [" ".join(line.split()) for line in text.splitlines() if line.strip()]


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    if shutil.which("docker-registry") is None:
        cannot("no docker-registry here; `make deps-test-all` installs it")
    made = Shop(tmp_path, {})
    yield made
    made.close()


@pytest.fixture
def bucket(tmp_path: Path) -> Iterator[Moto]:
    server = Moto(tmp_path / "moto.log")
    server.start()
    server.client().create_bucket(
        Bucket="bucket", CreateBucketConfiguration={"LocationConstraint": REGION}
    )
    yield server
    server.stop()


def test_typed(
    shop: Shop, bucket: Moto, make_cluster: Callable[..., Cluster], tmp_path: Path
) -> None:
    """A reader's machine: kubectl's configuration, AWS's keys, a registry; no container engine."""
    home, folder, carried = tmp_path / "home", tmp_path / "project", tmp_path / "unpacked"
    for one in (home / ".kube", folder, carried):
        one.mkdir(parents=True)
    runner = f"{shop.address}/me/stoker:1"
    cluster = make_cluster(
        nodes=[dict(n) for n in FIVE[:2]],
        namespaces=["default", "ml"],
        holds={runner: {"/stoker": str(carried / "stoker")}},
    )
    config = cluster.kubeconfig(home / ".kube/config", namespace="ml")
    config.write_text(re.sub(r"(name|context|cluster|user): fake", r"\1: lab", config.read_text()))
    drop = ("STOKER_", "KUBE", "DOCKER_", "AWS_", "XDG_", "METAFLOW_", "GITHUB_")
    env = {k: v for k, v in os.environ.items() if not k.startswith(drop)} | {
        "HOME": str(home),
        "PATH": f"{STOKER.parent}:{os.environ['PATH']}",
        "DOCKER_HOST": f"unix://{tmp_path}/none.sock",
        "AWS_ENDPOINT_URL": bucket.url,
        "AWS_REGION": REGION,
        "AWS_ACCESS_KEY_ID": bucket.keys[0][0],
        "AWS_SECRET_ACCESS_KEY": bucket.keys[0][1],
        "STOKER_ACCEL": "none",
    }
    own = {f"{shop.address}/me/python": "python", shop.address: "ghcr.io", str(home): "/home/me"}

    def here(text: str) -> str:
        """The page's registry is the test's, which also has the image of the steps."""
        text = text.replace("python:3.12-slim", f"{shop.address}/me/python:3.12-slim")
        return text.replace("ghcr.io", shop.address)

    steps = here("python:3.12-slim")  # the cluster knows images by name only; the registry has it
    subprocess.run([STOKER, "carry", "--by", "registry", "--image", steps], env=env, check=True)
    assert set(FILES) == {"stoker.yaml", "p.yaml"}
    for name, text in FILES.items():
        (folder / name).write_text(here(text))
    typed = [pair for block in TYPED for pair in commands(block)]
    assert [words.split()[1] for words, _ in typed[:4]] == ["carry", "stack", "plan", "run"]
    wrong = []
    for words, shown in typed:
        done = subprocess.run(
            ["sh", "-c", here(words)], cwd=folder, env=env, text=True, timeout=200,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip
        print(f"$ {words} → {done.returncode}\n{done.stdout}")
        assert done.returncode == 0, words
        if words.startswith("stoker carry"):
            shop.unpack("me/stoker", "1", carried)
        if shown and plain(done.stdout, own) != plain("\n".join(shown), {}):
            wrong.append((words, plain(done.stdout, own), plain("\n".join(shown), {})))
    assert wrong == []
    Client(cluster).until("/apis/batch/v1/namespaces/ml/jobs", lambda o: o["items"] == [])
