"""The real kubectl drives the tests' cluster: apply, wait, get, describe, logs, delete."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from kube import Cluster

OLDEST = 27  # of kubectl 1.x; older ones check bodies themselves, by a document that the tests' cluster doesn't serve


@pytest.fixture(scope="module")
def needs_kubectl() -> None:
    if shutil.which("kubectl") is None:
        # Debian 12 has 1.20, which is too old; newer releases' kubernetes-client will do
        pytest.skip("no kubectl on this machine")
    asked = subprocess.run(
        ["kubectl", "version", "--client", "-o", "json"], capture_output=True, text=True, timeout=60
    )
    minor = json.loads(asked.stdout)["clientVersion"]["minor"]
    if int(minor.rstrip("+")) < OLDEST:
        pytest.skip(
            f"this kubectl is 1.{minor}; 1.{OLDEST} is the oldest that leaves checking to the server"
        )


JOB = """
apiVersion: batch/v1
kind: Job
metadata: {name: hello, labels: {app: hello}}
spec:
  backoffLimit: 0
  template:
    spec:
      restartPolicy: Never
      containers:
      - {name: main, image: "localhost/bb:1", command: [sh, -c, "for i in 1 2 3; do echo step $i; sleep 0.2; done"]}
"""


@pytest.fixture
def kubectl(needs_kubectl: None, cluster: Cluster, tmp_path: Path) -> Callable[..., str]:
    config = cluster.kubeconfig(tmp_path / "kubeconfig")
    home = {**os.environ, "KUBECONFIG": str(config), "HOME": str(tmp_path)}

    def run(*args: str, stdin: str = "", ok: bool = True) -> str:
        done = subprocess.run(
            ["kubectl", *args], input=stdin, env=home, capture_output=True, text=True, timeout=120
        )
        assert not ok or done.returncode == 0, done.stderr
        return done.stdout + done.stderr

    return run


def test_a_job_from_apply_to_delete(kubectl: Callable[..., str]) -> None:
    assert "job.batch/hello created" in kubectl("apply", "-f", "-", stdin=JOB)
    kubectl("wait", "--for=jsonpath={.status.ready}=1", "job/hello", "--timeout=30s", ok=False)
    assert "step 1\nstep 2\nstep 3\n" in kubectl(
        "logs", "-f", "job/hello", "--pod-running-timeout=30s"
    )
    assert "condition met" in kubectl(
        "wait", "--for=condition=complete", "job/hello", "--timeout=60s"
    )
    assert "unchanged" in kubectl("apply", "-f", "-", stdin=JOB)
    jobs = kubectl("get", "jobs")
    assert "STATUS" in jobs and "Complete" in jobs and "1/1" in jobs
    assert "Completed" in kubectl("get", "pods", "-l", "app!=x", "-o", "wide")
    assert "SuccessfulCreate" in kubectl("describe", "job", "hello")
    assert "Exit Code:    0" in kubectl("describe", "pods")
    assert kubectl("get", "job", "hello", "-o", "jsonpath={.status.succeeded}") == "1"
    assert 'job.batch "hello" deleted' in kubectl("delete", "job", "hello")
    assert "No resources found" in kubectl("get", "pods")


def test_wrong_manifests_are_refused(kubectl: Callable[..., str]) -> None:
    unknown = JOB.replace("backoffLimit", "backofLimit")
    assert 'unknown field "spec.backofLimit"' in kubectl(
        "apply", "-f", "-", stdin=unknown, ok=False
    )
    always = JOB.replace("restartPolicy: Never", "restartPolicy: Always")
    assert 'valid values: "OnFailure", "Never"' in kubectl(
        "apply", "-f", "-", stdin=always, ok=False
    )


def test_suspend_by_patch_and_namespaces(kubectl: Callable[..., str]) -> None:
    kubectl("create", "namespace", "other", "--dry-run=client", "-o", "yaml")
    space = "apiVersion: v1\nkind: Namespace\nmetadata: {name: other}\n"
    kubectl("create", "-f", "-", stdin=space)
    kubectl(
        "-n",
        "other",
        "create",
        "-f",
        "-",
        stdin=JOB.replace("spec:\n  back", "spec:\n  suspend: true\n  back", 1),
    )
    assert "Suspended" in kubectl("-n", "other", "get", "jobs")
    kubectl("-n", "other", "patch", "job", "hello", "-p", '{"spec":{"suspend":false}}')
    kubectl("-n", "other", "wait", "--for=condition=complete", "job/hello", "--timeout=60s")
    kubectl("delete", "namespace", "other", "--timeout=60s")
    assert "NotFound" in kubectl("get", "namespace", "other", ok=False)
