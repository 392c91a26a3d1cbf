"""A registry mirror (`image_map`) and a private CA, as companies have them, from `stoker plan` to the pod."""

# ruff: noqa: F401, F811 - the fixtures of the other files
from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from kube import Cluster
from kube.tls import Pki
from kube_driver import Driver
from test_pipelines import Project, carried


def test_registry_mirror(
    make_cluster: Callable[..., Cluster], tmp_path: Path, carried: Path
) -> None:
    """The nodes have the mirror's names only: for the image of the stack and of a step."""
    project = Project(make_cluster(images=["mirror.lab/*"]), tmp_path, carried)
    stacks = project.folder / "stoker.yaml"
    text = stacks.read_text()
    text = text.replace("localhost/bb:1", "docker.io/library/bb:1")
    mirrors = '"image_map": {"docker.io/": "mirror.lab/hub/", "nvcr.io/": "mirror.lab/nvcr/"}, '
    stacks.write_text(text.replace('"default_image"', mirrors + '"default_image"'))
    own = {"kubernetes": {"image": "nvcr.io/nvidia/pytorch:25.01-py3"}}
    project.run({"a": {"run": "true"}, "b": {"run": "true", "backend": own}})
    made = [
        c.obj for c in project.cluster.store.changes if c.type == "ADDED" and c.obj["kind"] == "Pod"
    ]
    images = {c["image"] for pod in made for c in pod["spec"]["containers"]}
    assert images == {"mirror.lab/hub/library/bb:1", "mirror.lab/nvcr/nvidia/pytorch:25.01-py3"}
    project.nothing_left()
    stacks.write_text(text.replace('"pending": "300s"', '"pending": "3s"'))
    said = project.run({"a": {"run": "true"}}, rc=1)
    assert "docker.io/library/bb:1" in said and "can't pull its image" in said


AUTHORITY = re.compile(r"    certificate-authority-data: \S+\n")


def trusting(cluster: Cluster, tmp_path: Path, line: str) -> Path:
    """A kubeconfig with this line about the server's certificate, in place of its own."""
    path = cluster.kubeconfig(tmp_path / "config")
    text, n = AUTHORITY.subn(line, path.read_text())
    assert n == 1
    path.write_text(text)
    return path


@pytest.mark.parametrize("as_file", [False, True])
def test_private_ca(cluster: Cluster, tmp_path: Path, as_file: bool) -> None:
    """In the kubeconfig, or in a file beside it."""
    path = cluster.kubeconfig(tmp_path / "config")
    if as_file:
        (tmp_path / "certs").mkdir()
        (tmp_path / "certs/ca.crt").write_text(cluster.ca_pem)
        path = trusting(cluster, tmp_path, "    certificate-authority: certs/ca.crt\n")
    d = Driver(path)
    d.submit(1, "exit 3")
    assert d.end(1)["exit_status"] == 3
    d.close()


@pytest.mark.parametrize("other", [False, True], ids=["none named", "another one"])
def test_private_ca_that_is_not_trusted(
    cluster: Cluster, tmp_path: Path, carried: Path, other: bool
) -> None:
    """The run ends at once, with the keys of the kubeconfig; `stack check` says the same."""
    project = Project(cluster, tmp_path, carried)
    foreign = Pki(tmp_path / "pki", "127.0.0.1", "somebody")
    line = f"    certificate-authority: {foreign.folder}/ca.crt\n" if other else ""
    project.env["KUBECONFIG"] = str(trusting(cluster, tmp_path, line))
    for said in (
        project.run({"a": {"run": "true", "retry": {"max_retries": 5}}}, rc=1),
        project("stack", "check", "kubernetes", rc=3),
    ):
        assert cluster.url in said and "certificate-authority(-data)" in said, said
        assert "is up" not in said
    assert project.step("a")["attempts"] == 1
    assert cluster.asked == []
