"""Rows of bench.py about steps elsewhere: 1,000 trivial ones on the tests' Kubernetes and on moto's AWS Batch, whose jobs are
played (stand_in.py), beside `kubectl create` and boto3's submit_job of as many on the same server, and beside the same
steps on this machine. The engine's CPU is its own alone; the servers are Python, and limit all rates."""

from __future__ import annotations

import atexit
import json
import os
import shutil
import signal
import socket
import statistics
import subprocess
import time
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bench import Bench

ROUNDS = 3
KUBECTL = ["kubectl", "create", "--validate=false", "-o", "name"]
BOTO = """
import boto3, json, sys, time
[definition, queue, n] = sys.argv[1:]
batch = boto3.client("batch")
start = time.monotonic()
for i in range(int(n)):
    batch.submit_job(jobName=f"played-{i}", jobQueue=queue, jobDefinition=definition)
print(time.monotonic() - start)
"""
QUEUE = """
import boto3
batch = boto3.client("batch")
policy = '{"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Principal": {"Service": "ecs.amazonaws.com"}, "Action": "sts:AssumeRole"}]}'
role = boto3.client("iam").create_role(RoleName="bench", AssumeRolePolicyDocument=policy)["Role"]["Arn"]
made = batch.create_compute_environment(computeEnvironmentName="bench", type="UNMANAGED", state="ENABLED", serviceRole=role)
order = [{"order": 1, "computeEnvironment": made["computeEnvironmentArn"]}]
batch.create_job_queue(jobQueueName="bench", state="ENABLED", priority=1, computeEnvironmentOrder=order)
"""


@dataclass
class Used:
    wall: float
    cpu: float  # of the process, and of what it waited for
    memory: int  # bytes, the most at a time
    out: str


def used(bench: Bench, folder: Path, *words: str) -> Used:
    """What a program of its own took."""
    with (folder / "out").open("wb") as out, (folder / "err").open("wb") as err:
        start = time.monotonic()
        process = subprocess.Popen(words, cwd=folder, env=bench.env, stdout=out, stderr=err)
        _, status, took = os.wait4(process.pid, 0)
        wall = time.monotonic() - start
    process.returncode = os.waitstatus_to_exitcode(status)
    text = (folder / "out").read_text()
    if process.returncode != 0:
        said = text[-1500:] + (folder / "err").read_text()[-1500:]
        raise SystemExit(f"bench: {' '.join(words[:4])} failed ({process.returncode}): {said}")
    return Used(wall, took.ru_utime + took.ru_stime, took.ru_maxrss << 10, text)


def document(folder: Path, n: int) -> None:
    steps = {f"s{i}": {"run": "true"} for i in range(n)}
    (folder / "p.json").write_text(json.dumps({"stoker": 1, "name": "bench", "steps": steps}))


def foreach(folder: Path, n: int) -> None:
    """The same as tasks of one step, as Kubernetes gets them and as Batch makes array jobs of them."""
    here = {"backend": "local"}
    todo = f"seq {n} | paste -sd, | sed 's/.*/[&]/' > $STOKER_OUTPUT/todo"
    steps = {
        "start": {"run": todo, "outputs": ["todo"], "foreach": "todo", "next": "work", **here},
        "work": {"run": "true", "next": "end"},
        "end": {"run": "true", "join": True, **here},
    }
    (folder / "p.json").write_text(json.dumps({"stoker": 1, "name": "bench", "steps": steps}))


def run(bench: Bench, folder: Path, *words: str) -> Used:
    command = [str(bench.args.stoker), "run", "--quiet", "--no-cache", *words, "p.json"]
    return used(bench, folder, *command)


class Server:
    """A stand-in of an engine, started and stopped; what was asked of it."""

    def __init__(self, bench: Bench, folder: Path, *words: str) -> None:
        stand_in = Path(__file__).with_name("stand_in.py")
        command = [str(bench.args.python), str(stand_in), *words]
        with (folder / "log").open("wb") as log:
            self.process = subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=log, env=bench.env
            )
        atexit.register(self.process.kill)  # should a round fail
        assert self.process.stdout
        if not self.process.stdout.readline():
            raise SystemExit(f"bench: no stand-in: {(folder / 'log').read_text()[-1500:]}")

    def stop(self) -> None:
        self.process.send_signal(signal.SIGTERM)
        self.process.wait()


def submitted(seen: dict[str, Any]) -> float:
    """Jobs a second, from the first submission to the last."""
    first, last, n = seen["submitted"]
    return float((n - 1) / max(last - first, 1e-9))


def add_rows(
    bench: Bench, name: str, n: int, ours: list[tuple[Used, dict[str, Any]]], peer: str,
    theirs: list[tuple[Used, dict[str, Any]]], local: Used,
) -> None:  # fmt: skip
    rates = [statistics.median(submitted(seen) for _, seen in side) for side in (ours, theirs)]
    cpu, their_cpu = (statistics.median(u.cpu for u, _ in side) for side in (ours, theirs))
    asked, their_asked = (
        statistics.median(sum(seen["requests"].values()) for _, seen in side) / n
        for side in (ours, theirs)
    )
    wall, their_wall = (statistics.median(u.wall for u, _ in side) for side in (ours, theirs))
    memory = max(u.memory for u, _ in ours) >> 20
    bench.add(
        "elsewhere",
        f"{n:,} steps to {name}: submissions a second, while their ends are heard and recorded",
        f"{rates[0]:.0f}/s",
        f"{peer}, which only submits, {rates[1]:.0f}/s",
        rates[1] / rates[0],
        3.0,
    )
    bench.add(
        "elsewhere",
        f"CPU of the engine for the same ({memory} MiB at most)",
        f"{cpu / n * 1e3:.2f} ms a step",
        f"{peer} {their_cpu / n * 1e3:.2f} ms",
        cpu / their_cpu,
        2.0,
    )
    bench.add(
        "elsewhere",
        f"requests to {name} for the same",
        f"{asked:.2f} a step",
        f"{peer} {their_asked:.2f}",
        asked / their_asked,
        4.0,
    )
    bench.add(
        "elsewhere",
        f"time of the whole run on {name}",
        f"{wall:.1f} s",
        f"{peer}, which waits for no end, {their_wall:.1f} s",
        wall / their_wall,
        4.0,
    )
    bench.add(
        "elsewhere",
        f"CPU of the engine on {name}, beside the same steps here (the engine and their processes)",
        f"{cpu / n * 1e3:.2f} ms a step",
        f"here {local.cpu / n * 1e3:.2f} ms",
        cpu / local.cpu,
        3.0,
    )


def project(folder: Path, n: int, stack: dict[str, Any]) -> Path:
    """A user's folder, beside its stack's."""
    share, own = folder / "share", folder / "project"
    for one in (share, own, folder / "carry"):
        one.mkdir()
    common = {"store": str(share), "carry_volume": str(folder / "carry"), "default_image": "played"}
    (own / "stoker.yaml").write_text(json.dumps({"stacks": {"away": {**common, **stack}}}))
    document(own, n)
    return own


def kubernetes(bench: Bench, n: int, local: Used) -> None:
    if not shutil.which("kubectl"):
        print("elsewhere: Kubernetes left out, there is no kubectl")
        return
    ours, theirs = [], []
    for _ in range(ROUNDS):
        for side in (ours, theirs):
            folder = bench.fresh("kubernetes")
            own = project(folder, n, {"backend": "kubernetes"})
            bench.env["KUBECONFIG"] = str(folder / "kubeconfig")
            plan = [str(bench.args.stoker), "plan", "--with", "away", "--manifest", "p.json", "s0"]
            manifest = used(bench, own, *plan).out.split("\n---\n")[1]
            server = Server(bench, folder, "kube", str(folder / "kubeconfig"))
            if side is ours:
                foreach(own, n)
                took = run(bench, own, "--with", "away")
            else:
                job = json.loads(manifest)
                names = [f"played-{i}" for i in range(n)]
                items = [{**job, "metadata": {**job["metadata"], "name": name}} for name in names]
                many = {"apiVersion": "v1", "kind": "List", "items": items}
                (folder / "many.json").write_text(json.dumps(many))
                took = used(bench, folder, *KUBECTL, "-f", "many.json")
            server.stop()
            side.append((took, json.loads((folder / "kubeconfig.seen").read_text())))
    add_rows(bench, "Kubernetes as a foreach", n, ours, "kubectl create", theirs, local)


def batch(bench: Bench, n: int, local: Used, arrays: bool) -> None:
    if subprocess.run([str(bench.args.python), "-c", "import moto.server, boto3"]).returncode:
        print("elsewhere: AWS Batch left out, there is no moto (make .venv/.stamps/test)")
        return
    ours, theirs = [], []
    for _ in range(ROUNDS):
        for side in (ours, theirs):
            folder = bench.fresh("batch")
            own = project(folder, n, {"backend": "batch", "options": {"queue": "bench"}})
            with socket.socket() as s:
                s.bind(("127.0.0.1", 0))
                port = s.getsockname()[1]
            url = f"http://127.0.0.1:{port}"
            bench.env.update(AWS_ENDPOINT_URL=url, AWS_REGION="us-east-1", AWS_DEFAULT_REGION="us-east-1",
                             AWS_ACCESS_KEY_ID="bench", AWS_SECRET_ACCESS_KEY="bench")  # fmt: skip
            server = Server(bench, folder, "batch", str(port))
            python = str(bench.args.python)
            while socket.socket().connect_ex(("127.0.0.1", port)):
                time.sleep(0.05)
            used(bench, folder, python, "-c", QUEUE)
            if side is ours:
                if arrays:
                    foreach(own, n)
                before = json.load(urllib.request.urlopen(f"{url}/_seen"))["requests"]
                took = run(bench, own, "--with", "away")
            else:
                document(own, 1)
                run(bench, own, "--with", "away")  # leaves a definition
                name = used(bench, folder, python, "-c", FIND).out.strip()
                before = {}
                took = used(bench, folder, python, "-c", BOTO, name, "bench", str(n))
            seen = json.load(urllib.request.urlopen(f"{url}/_seen"))
            seen["requests"] = {k: v - before.get(k, 0) for k, v in seen["requests"].items()}
            server.stop()
            side.append((took, seen))
    add_rows(
        bench,
        "AWS Batch as array jobs"
        if arrays
        else "AWS Batch (of which AWS takes 50 a second, and so do we)",
        n,
        ours,
        "boto3",
        theirs,
        local,
    )


FIND = """
import boto3
print(boto3.client("batch").describe_job_definitions()["jobDefinitions"][0]["jobDefinitionArn"])
"""


def rows(bench: Bench) -> None:
    """All of the figures."""
    n = 100 if bench.args.quick else 1000
    kept = dict(bench.env)
    for name in [n for n in bench.env if n.startswith(("AWS_", "KUBE"))]:
        del bench.env[name]
    folder = bench.fresh("here")
    document(folder, n)
    local = min((run(bench, folder) for _ in range(ROUNDS)), key=lambda u: u.cpu)
    try:
        kubernetes(bench, n, local)
        for arrays in (False, True):
            batch(bench, n, local, arrays)
    finally:
        bench.env = kept
