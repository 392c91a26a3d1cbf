"""A plain client of the cluster under test: requests, watches, waiting. Nothing that retries."""

from __future__ import annotations

import http.client
import json
import ssl
import time
from collections.abc import Callable, Iterator
from typing import Any, Optional

from kube import Cluster

Object = dict[str, Any]
WAIT_S = 120


class Answer:
    """Status, headers (lower-case names) and body of an answer; ``json`` where it is that."""

    def __init__(self, raw: http.client.HTTPResponse) -> None:
        self.status = raw.status
        self.headers = {k.lower(): v for k, v in raw.getheaders()}
        self.text = raw.read().decode()
        kind = self.headers.get("content-type", "")
        self.json: Any = json.loads(self.text) if kind == "application/json" and self.text else None


class Client:
    """One user's requests; a connection for each."""

    def __init__(self, cluster: Cluster, token: Optional[str] = None) -> None:
        self.cluster = cluster
        self.token = token if token is not None else cluster.ADMIN_TOKEN

    def connect(self, timeout: float = WAIT_S) -> http.client.HTTPConnection:
        host, port = self.cluster.host, self.cluster.port
        if not self.cluster.options.tls:
            return http.client.HTTPConnection(host, port, timeout=timeout)
        context = ssl.create_default_context(cadata=self.cluster.ca_pem)
        return http.client.HTTPSConnection(host, port, context=context, timeout=timeout)

    def headers(self, more: Optional[dict[str, str]] = None) -> dict[str, str]:
        mine = {"Authorization": f"Bearer {self.token}"} if self.token else {}
        return {**mine, "Accept": "application/json", **(more or {})}

    def ask(
        self, method: str, path: str, body: Any = None, headers: Optional[dict[str, str]] = None
    ) -> Answer:
        """One request. A body other than bytes is sent as JSON."""
        connection = self.connect()
        try:
            sent = self.headers(headers)
            if body is not None and not isinstance(body, bytes):
                body = json.dumps(body).encode()
                sent.setdefault("Content-Type", "application/json")
            connection.request(method, path, body, sent)
            return Answer(connection.getresponse())
        finally:
            connection.close()

    def watch(self, path: str) -> Iterator[Object]:
        """Events of a watch until the server ends it."""
        connection = self.connect()
        try:
            connection.request("GET", path, headers=self.headers())
            answer = connection.getresponse()
            assert answer.status == 200, answer.read()
            for line in answer:
                yield json.loads(line)
        finally:
            connection.close()

    def until(self, path: str, test: Callable[[Any], Any], wait_s: float = WAIT_S) -> Any:
        """Repeat the request until the JSON passes the test; returns the JSON."""
        end = time.monotonic() + wait_s
        while True:
            answer = self.ask("GET", path)
            if answer.json is not None and test(answer.json):
                return answer.json
            assert time.monotonic() < end, (path, answer.status, answer.text[:3000])
            time.sleep(0.02)


JOBS = "/apis/batch/v1/namespaces/default/jobs"
PODS = "/api/v1/namespaces/default/pods"


def job(
    name: str,
    script: str = "true",
    spec: Optional[Object] = None,
    pod: Optional[Object] = None,
    **container: Any,
) -> Object:
    """A Job of one shell script; ``spec`` and ``pod`` add to the specs, the rest to the container."""
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name},
        "spec": {
            "backoffLimit": 0,
            "template": {
                "spec": {
                    "restartPolicy": "Never",
                    "terminationGracePeriodSeconds": 2,
                    "containers": [
                        {
                            "name": "main",
                            "image": "localhost/bb:1",
                            "command": ["sh", "-c", script],
                            **container,
                        }
                    ],
                    **(pod or {}),
                }
            },
            **(spec or {}),
        },
    }


def condition(obj: Object, kind: str) -> Optional[Object]:
    """The condition of this type with status True, None without."""
    for c in (obj.get("status") or {}).get("conditions") or []:
        if c["type"] == kind and c["status"] == "True":
            found: Object = c
            return found
    return None


def ended(obj: Object) -> bool:
    return bool(condition(obj, "Complete") or condition(obj, "Failed"))


def pods_of(api: Client, name: str) -> list[Object]:
    found: list[Object] = api.ask(
        "GET", f"{PODS}?labelSelector=batch.kubernetes.io%2Fjob-name%3D{name}"
    ).json["items"]
    return found
