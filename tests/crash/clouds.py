"""Rounds whose steps run on the fakes of Kubernetes (tests/fakes/kube) and of AWS Batch (tests/fakes/fake_batch.py,
with moto's server for the other services); one of each serves all rounds of a process."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from elsewhere import ElsewhereRound, carried, children, is_agent
from rounds import ROOT, Wrong

sys.path[:0] = [str(ROOT / "tests" / name) for name in ("support", "fakes", "batch")]
OBJECTS = [("batch/v1", "jobs"), ("v1", "pods"), ("v1", "secrets"), ("v1", "services")]


@contextmanager
def kubernetes(folder: Path, args: Any) -> Iterator[Any]:
    """The cluster."""
    from front_tools import cannot
    from kube import Cluster, Options

    if os.geteuid() != 0:
        cannot("pods are processes in namespaces of their own: that needs root")
    cluster = Cluster(Options()).start()
    cluster.carry = carried(folder, args.stoker)  # type: ignore[attr-defined]
    try:
        yield cluster
    finally:
        cluster.stop()
    if cluster.failures:
        raise Wrong(f"the fake cluster itself failed: {cluster.failures[0]}")


class KubernetesRound(ElsewhereRound):
    """Its jobs are in a namespace of its own."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        name = f"round-{self.base.name[-8:].replace('_', '0').lower()}"
        self.place.call(self.place.add_namespace, name)
        shared = str(self.journal.parent)
        self.write_stack(
            backend="kubernetes",
            carry="volume",
            carry_volume=str(self.place.carry),
            pending="300s",
            options={
                "volumes": [{"name": "shared", "hostPath": {"path": shared}}],
                "volume_mounts": [{"name": "shared", "mountPath": shared}],
                "node_lost_seconds": 1,
            },
        )
        config = self.place.kubeconfig(self.base / "kubeconfig", namespace=name)
        self.env |= {"KUBECONFIG": str(config), "STOKER_HOME": str(self.base / "home")}
        self.namespace = name

    def agents(self) -> list[int]:
        known = self.place.call(lambda: [c.pid for c in self.place.containers.known.values() if not c.ended.done()])  # fmt: skip
        return [pid for pid in known if pid > 0 and is_agent(pid)]

    def objects(self) -> list[str]:
        from kube_client import Client

        api, found = Client(self.place), []
        for version, kind in OBJECTS:
            path = (
                f"/api{'' if version == 'v1' else 's'}/{version}/namespaces/{self.namespace}/{kind}"
            )
            found += [i["metadata"]["name"] for i in api.ask("GET", path).json["items"]]
        return found

    def check_left(self, run: str) -> None:
        """The next engine removes what a killed one couldn't."""
        if self.objects():
            (self.folder / "last.yaml").write_text(
                json.dumps({"stoker": 1, "name": "last", "steps": {"last": {"run": "true"}}})
            )
            self.wait(self.start(["run", "--with", "prod", "--no-cache", "last.yaml"]))
        super().check_left(run)

    def living(self) -> list[str]:
        return self.objects()


@contextmanager
def batch(folder: Path, args: Any) -> Iterator[Any]:
    """The fake, with moto behind it."""
    import importlib.util

    from front_tools import cannot

    carried(folder, args.stoker)  # whether this machine has namespaces
    if importlib.util.find_spec("moto") is None:
        cannot("moto is not installed (tools/requirements-test.txt)")
    from batch_tools import Moto
    from fake_batch import FakeBatch

    moto = Moto(folder / "moto.log")
    try:
        moto.config(batch={"use_docker": False})
        fake = FakeBatch(moto.url, namespaces=True)
        fake.env = {**moto.env, "AWS_ENDPOINT_URL": fake.url}  # type: ignore[attr-defined]
        yield fake
        fake.close()
    finally:
        moto.close()
    if fake.failures:
        raise Wrong(f"the fake of AWS Batch itself failed: {fake.failures[0]}")


class BatchRound(ElsewhereRound):
    """The fake has only the jobs of this round."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        with self.place.lock:
            self.place.jobs.clear()
        self.write_stack(backend="batch", options={"queue": "q", "poll": 0.05})
        self.env |= {k: v for k, v in self.place.env.items() if k.startswith("AWS_")}

    def agents(self) -> list[int]:
        with self.place.lock:
            nodes = [node for job in self.place.ran() for node in job.nodes]
        live = [n.process.pid for n in nodes if n.process is not None and n.process.poll() is None]
        return [pid for pid in live if is_agent(pid)]

    def kill(self, pid: int) -> None:
        """All processes of a container end with its first one."""
        others = children(pid) if pid in self.agents() else []
        super().kill(pid)
        for other in others:
            try:
                os.kill(other, signal.SIGKILL)
            except ProcessLookupError:
                pass

    def living(self) -> list[str]:
        return [job.name for job in self.place.live()]

    def made(self) -> list[str]:
        return [job.name for job in self.place.ran()]

    def close(self) -> None:
        super().close()
        for job in self.place.live():
            self.place._end(job, "the round is over", exit_code=None)
