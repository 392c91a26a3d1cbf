"""What clusters in companies have: proxies, Pod Security, quotas, limit ranges, missing objects."""

from __future__ import annotations

import json
import select
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kube import Cluster
from kube_client import JOBS, Client
from kube_driver import Driver, shell

Object = dict[str, Any]
SPACE = "/api/v1/namespaces/default"
RESTRICTED = {
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "runAsNonRoot": True,
    "runAsUser": 1000,
    "seccompProfile": {"type": "RuntimeDefault"},
}


def restrict(cluster: Cluster) -> None:
    def label() -> None:
        space = cluster.store.need("namespaces", "", "default")
        labels = {"pod-security.kubernetes.io/enforce": "restricted"}
        meta = {**space["metadata"], "labels": labels}
        cluster.store.update("namespaces", {**space, "metadata": meta})

    cluster.call(label)


def check(cluster: Cluster, tmp_path: Path, options: Object) -> dict[str, bool]:
    lines = shell("check", json.dumps(options), kubeconfig=cluster.kubeconfig(tmp_path / "config"))
    return {line["text"]: line.get("good", False) for line in lines}


def told(found: dict[str, bool], *words: str) -> bool:
    """Whether the one sentence with these words is good news."""
    (good,) = [good for text, good in found.items() if all(w in text for w in words)]
    return good


def test_pod_security_names_the_option(cluster: Cluster, tmp_path: Path) -> None:
    restrict(cluster)
    assert not told(check(cluster, tmp_path, {}), "restricted", "security_context")
    assert told(check(cluster, tmp_path, {"security_context": RESTRICTED}), "restricted")
    d = Driver(cluster.kubeconfig(tmp_path / "config"))
    d.submit(1)
    end = d.end(1)
    assert "PodSecurity" in end["text"] and "allowPrivilegeEscalation" in end["text"]
    assert "security_context" in end["text"]
    assert (end["failure"], end["is_hopeless"]) == ("start", True)
    d.submit(2, options={"security_context": RESTRICTED})
    assert d.end(2)["state"] == "ended", d.reports
    d.close()


@pytest.mark.parametrize(
    ("resource", "nodes", "code"),
    [("pods", 1, 403), ("pods", 2, 403), ("jobs", 1, 403), ("jobs", 1, 500)],
)
def test_a_webhook_denies(
    api: Client, cluster: Cluster, tmp_path: Path, resource: str, nodes: int, code: int
) -> None:
    """Waiting can't change it, whatever its status: the job ends at once with the policy's own words, and is removed."""
    cluster.call(cluster.control.do_webhook, resource, "label 'team' is missing", code)
    d = Driver(cluster.kubeconfig(tmp_path / "config"))
    d.submit(1, nodes=nodes)
    end = d.end(1)
    assert "'policy.example.com'" in end["text"].replace('"', "'") and "label 'team'" in end["text"]
    assert (end["failure"], end["is_hopeless"]) == ("start", True)
    assert "the needed rights" not in end["text"]
    assert api.ask("GET", JOBS).json["items"] == []
    cluster.call(cluster.control.do_webhook, resource)
    d.submit(2)
    assert d.end(2)["state"] == "ended", d.reports
    d.close()


def test_a_limit_range_refuses_a_quota_waits(api: Client, cluster: Cluster, tmp_path: Path) -> None:
    """What other pods hold is waited for; what no pod may ask for isn't."""
    limits = [{"type": "Container", "max": {"memory": "1Gi"}}]
    for plural, kind, spec in (
        ("resourcequotas", "ResourceQuota", {"hard": {"requests.nvidia.com/gpu": "2"}}),
        ("limitranges", "LimitRange", {"limits": limits}),
    ):
        made = {"apiVersion": "v1", "kind": kind, "metadata": {"name": "small"}, "spec": spec}
        assert api.ask("POST", f"{SPACE}/{plural}", made).status == 201
    d = Driver(cluster.kubeconfig(tmp_path / "config"))
    d.submit(1, resources={"gpu_count": 4})
    d.until(lambda r: r["state"] == "queued" and "exceeded quota" in r["text"])
    d.submit(2, options={"memory": "2GiB"})
    end = d.end(2)
    assert "per Container is 1Gi" in end["text"] and end["is_hopeless"], end
    api.ask("DELETE", f"{SPACE}/resourcequotas/small")
    assert d.end(1)["state"] == "ended", d.reports
    d.close()


@pytest.mark.parametrize(
    ("options", "kind", "name"),
    [
        ({"service_account": "nobody"}, "ServiceAccount", "nobody"),
        ({"image_pull_secrets": ["pull"]}, "Secret", "pull"),
        ({"secrets": "keys"}, "Secret", "keys"),
        ({"priority_class": "high"}, "PriorityClass", "high"),
        ({"persistent_volume_claims": {"data": "/d"}}, "PersistentVolumeClaim", "data"),
    ],
)
def test_check_sees_what_is_missing(
    cluster: Cluster, tmp_path: Path, options: Object, kind: str, name: str
) -> None:
    (option,) = options
    assert not told(check(cluster, tmp_path, options), kind, f"'{name}'", option)


def test_check_finds_a_secret(api: Client, cluster: Cluster, tmp_path: Path) -> None:
    api.ask(
        "POST",
        f"{SPACE}/secrets",
        {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "pull"}},
    )
    assert told(check(cluster, tmp_path, {"image_pull_secrets": ["pull"]}), "Secret 'pull'")


def test_check_tells_quotas_and_limits(api: Client, cluster: Cluster, tmp_path: Path) -> None:
    hard = {"requests.nvidia.com/gpu": "2", "count/jobs.batch": "0"}
    limits = [{"type": "Container", "max": {"memory": "1Gi"}}]
    for plural, kind, spec in (
        ("resourcequotas", "ResourceQuota", {"hard": hard}),
        ("limitranges", "LimitRange", {"limits": limits}),
    ):
        made = {"apiVersion": "v1", "kind": kind, "metadata": {"name": "small"}, "spec": spec}
        assert api.ask("POST", f"{SPACE}/{plural}", made).status == 201
    api.until(f"{SPACE}/resourcequotas", lambda o: o["items"][0].get("status", {}).get("used"))
    found = check(cluster, tmp_path, {})
    assert told(found, "quota 'small'", "0 of 2 requests.nvidia.com/gpu")
    assert not told(found, "quota 'small'", "0 of 0 count/jobs.batch")
    assert told(found, "limit range 'small'", "memory of each Container is max 1Gi")


class Proxy:
    """A proxy for CONNECT that counts its tunnels."""

    def __init__(self) -> None:
        self.n = 0
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self.listener.getsockname()[1]}"
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self._tunnel, args=(client,), daemon=True).start()

    def _tunnel(self, client: socket.socket) -> None:
        head = b""
        while b"\r\n\r\n" not in head:
            head += client.recv(4096)
        assert head.startswith(b"CONNECT "), head
        host, _, port = head.split()[1].decode().rpartition(":")
        server = socket.create_connection((host, int(port)))
        self.n += 1
        client.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
        with client, server:
            while all(self._passes_on(client, server)):
                pass

    def _passes_on(self, client: socket.socket, server: socket.socket) -> list[bytes]:
        """What came, on either side; an empty one ends the tunnel."""
        came = []
        for one in select.select([client, server], [], [])[0]:
            try:
                came.append(one.recv(65536))
                (server if one is client else client).sendall(came[-1])
            except OSError:
                came.append(b"")
        return came


@pytest.fixture
def proxy() -> Iterator[Proxy]:
    made = Proxy()
    yield made
    made.listener.close()


def test_proxy_url(cluster: Cluster, tmp_path: Path, proxy: Proxy) -> None:
    """As kubectl: of the kubeconfig, whatever no_proxy says."""
    path = cluster.kubeconfig(tmp_path / "config")
    text = path.read_text()
    mark = "server: " if "server: " in text else '"server": '
    assert mark in text, text
    value = (
        f"proxy-url: {proxy.url}\n    " if mark == "server: " else f'"proxy-url": "{proxy.url}", '
    )
    path.write_text(text.replace(mark, value + mark))
    d = Driver(path, env={"no_proxy": "*"})
    d.submit(1, "echo through")
    assert d.end(1)["state"] == "ended" and d.log(1) == "through\n", d.reports
    assert proxy.n > 0
    d.close()


@pytest.mark.parametrize("exempt", [False, True])
def test_proxy_of_the_environment(
    cluster: Cluster, tmp_path: Path, proxy: Proxy, exempt: bool
) -> None:
    path = cluster.kubeconfig(tmp_path / "config")
    env = {"HTTPS_PROXY": proxy.url, "no_proxy": "127.0.0.1" if exempt else "", "NO_PROXY": ""}
    d = Driver(path, env={**env, "https_proxy": proxy.url})
    d.submit(1)
    assert d.end(1)["state"] == "ended"
    assert (proxy.n == 0) is exempt
    d.close()
