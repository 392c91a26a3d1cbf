"""A small AWS Batch for what moto leaves out: states on the way, exit codes, reasons, multi-node jobs, throttling,
lost answers, logs while a job runs. Requests are checked against AWS's own model of the services (botocore's); jobs
run as processes of this machine.

Written from AWS's API reference of Batch and CloudWatch Logs, the Batch User Guide ("Job states", "Array jobs",
"Multi-node parallel jobs", "Environment variables", "Jobs stuck in a RUNNABLE status", "Automated job retries") and the ECS Developer Guide
("Stopped tasks error messages"). It refuses operations that it doesn't know; requests for other services go on to moto.
"""

from __future__ import annotations

import calendar
import http.client
import http.server
import itertools
import json
import os
import re
import shlex
import signal
import subprocess
import threading
import time
import urllib.parse
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Optional

from waiting import wait_for

ACCOUNT = "123456789012"
REGION = "eu-west-1"
ARN = f"arn:aws:batch:{REGION}:{ACCOUNT}"
LIVE = ("SUBMITTED", "PENDING", "RUNNABLE", "STARTING", "RUNNING")
PATHS = {
    "/v1/registerjobdefinition": "RegisterJobDefinition",
    "/v1/describejobdefinitions": "DescribeJobDefinitions",
    "/v1/describejobqueues": "DescribeJobQueues",
    "/v1/describecomputeenvironments": "DescribeComputeEnvironments",
    "/v1/submitjob": "SubmitJob",
    "/v1/describejobs": "DescribeJobs",
    "/v1/listjobs": "ListJobs",
    "/v1/terminatejob": "TerminateJob",
    "/v1/canceljob": "CancelJob",
}


class Refused(Exception):
    def __init__(self, code: str, text: str, status: int = 400) -> None:
        super().__init__(text)
        self.code, self.text, self.status = code, text, status


@dataclass
class Node:
    """One container of a job."""

    index: int
    stream: str
    process: subprocess.Popen[bytes] | None = None
    exit_code: int | None = None
    reason: str | None = None
    status: str = "SUBMITTED"
    lines: list[str] = field(default_factory=list)


@dataclass
class Job:
    id: str
    request: dict[str, Any]
    definition: dict[str, Any]
    nodes: list[Node]
    status: str = "SUBMITTED"
    reason: str | None = None
    created: float = field(default_factory=time.time)
    is_terminated: bool = False
    is_cancelled: bool = False
    ended: float | None = None
    parent: Job | None = None
    index: int | None = None  # of a child
    children: list[Job] = field(default_factory=list)  # of an array, from PENDING on

    @property
    def name(self) -> str:
        return str(self.request["jobName"])

    @property
    def size(self) -> int:
        """The number of children; 0: not an array, or a child."""
        return self.request.get("arrayProperties", {}).get("size", 0) if self.index is None else 0


class FakeBatch:
    """``url`` is for AWS_ENDPOINT_URL. Knobs may be turned at any time.

    step_s: seconds in each state before RUNNING. slots: jobs that run at once. hold: a statusReason with which jobs
    stay RUNNABLE. submit_rate: SubmitJob requests a second, more are throttled. cut_submits: that many submits are
    carried out and their answers are lost. skew_s: how far its clock is ahead. expired: access keys that have expired.
    faults: that many requests, every second one, are answered 500. calls: requests by operation.
    """

    def __init__(self, moto: str | None = None, namespaces: bool = False) -> None:
        from botocore.session import get_session
        from botocore.validate import ParamValidator

        session = get_session()
        self._models = {name: session.get_service_model(name) for name in ("batch", "logs")}
        self._validator = ParamValidator()
        self._moto = moto
        self._namespaces = namespaces
        self.lock = threading.RLock()
        self.definitions: dict[str, list[dict[str, Any]]] = {}
        self.jobs: dict[str, Job] = {}
        self.calls: dict[str, int] = {}
        self.queues: dict[str, dict[str, Any]] = {}
        self.environments: dict[str, dict[str, Any]] = {}
        self.step_s = 0.02
        self.slots = 64
        self.instead: Callable[[dict[str, str]], None] | None = (
            None  # called with the environment, in place of running the job
        )
        self.hold: str | None = None
        self.pull_error: str | None = None
        self.submit_rate: float | None = None
        self.cut_submits = 0
        self.skew_s = 0.0
        self.expired: set[str] = set()
        self.faults = 0
        self.log_lag_s = 0.0
        self.failures: list[str] = []
        self._tokens, self._filled = 1.0, time.monotonic()
        self._revision = itertools.count(1)
        self._roles = itertools.count(1)
        self._running = 0
        self._due: list[tuple[float, Job]] = []
        self._stop = threading.Event()
        self.add_queue("q")
        fake = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True

            def log_message(self, *_: Any) -> None:
                pass

            def date_time_string(self, timestamp: float | None = None) -> str:
                return super().date_time_string(time.time() + fake.skew_s)

            def handle_any(self) -> None:
                fake._handle(self)

            do_GET = do_POST = do_PUT = do_DELETE = do_HEAD = handle_any

        class Server(http.server.ThreadingHTTPServer):
            daemon_threads = True
            request_queue_size = 128

            def handle_error(self, *_: Any) -> None:
                pass  # clients that were killed

        self._server = Server(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        threading.Thread(target=self._schedule, daemon=True).start()

    # --- set-up and what tests do ---

    def add_queue(self, name: str, state: str = "ENABLED", **resources: Any) -> None:
        resources = {"type": "EC2", "maxvCpus": 256, "instanceTypes": ["optimal"], **resources}
        environment = f"{ARN}:compute-environment/{name}-env"
        self.environments[environment] = {
            "computeEnvironmentName": f"{name}-env",
            "computeEnvironmentArn": environment,
            "type": "MANAGED",
            "state": "ENABLED",
            "status": "VALID",
            "statusReason": "ComputeEnvironment Healthy",
            "computeResources": resources,
        }
        self.queues[name] = {
            "jobQueueName": name,
            "jobQueueArn": f"{ARN}:job-queue/{name}",
            "state": state,
            "status": "VALID",
            "statusReason": "JobQueue Healthy",
            "priority": 1,
            "computeEnvironmentOrder": [{"order": 1, "computeEnvironment": environment}],
        }

    def named(self, name: str) -> list[Job]:
        with self.lock:
            return [j for j in self.jobs.values() if j.name == name and j.parent is None]

    def live(self) -> list[Job]:
        with self.lock:
            return [job for job in self.jobs.values() if job.status in LIVE]

    def arrays(self) -> list[Job]:
        with self.lock:
            return [job for job in self.jobs.values() if job.size]

    def ran(self) -> list[Job]:
        """Jobs that have or may have a container: children, and jobs that aren't arrays."""
        with self.lock:
            return [job for job in self.jobs.values() if not job.size]

    def wait_for(self, name: str, status: str) -> Job:
        def found() -> Optional[Job]:
            return next((job for job in self.named(name) if job.status == status), None)

        return wait_for(found, why=lambda: f"{name} isn't {status}: {self.named(name)}")

    def wait_for_step(self, step: str, status: str) -> Job:
        def jobs() -> list[Job]:
            with self.lock:
                return [j for j in self.ran() if j.request["tags"]["stoker.step"] == step]

        def found() -> Optional[Job]:
            return next((job for job in jobs() if job.status == status), None)

        return wait_for(found, why=lambda: f"{step} isn't {status}: {jobs()}")

    def wait_until(self, what: Callable[[], Any]) -> None:
        wait_for(what, why=lambda: f"{what}: {self.jobs}")

    def reclaim(self, job: Job) -> None:
        """The spot instance is taken back, without a notice that the job would have to look for."""
        self._end(job, "Host EC2 (instance i-0a1b2c3d4e5f67890) terminated.", exit_code=None)

    def run_out_of_memory(self, job: Job) -> None:
        job.nodes[0].reason = "OutOfMemoryError: Container killed due to memory usage"
        self._end(job, "Essential container in task exited", exit_code=137)

    def close(self) -> None:
        self._stop.set()
        for job in self.live():
            self._end(job, "the test is over", exit_code=None)
        self._server.shutdown()
        self._server.server_close()

    # --- HTTP ---

    def _handle(self, request: Any) -> None:
        length = int(request.headers.get("Content-Length") or 0)
        body = request.rfile.read(length)
        if len(body) < length:  # a request that was cut off
            request.close_connection = True
            return
        target = request.headers.get("X-Amz-Target", "")
        if request.path == "/role-credentials":
            until = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + 3600))
            keys = {
                "AccessKeyId": f"ROLE{next(self._roles)}",
                "SecretAccessKey": "role",
                "Token": "t",
                "Expiration": until,
            }
            self._answer(request, 200, keys)
            return
        operation = PATHS.get(urllib.parse.urlsplit(request.path).path)
        if operation is None and not target.endswith(".GetLogEvents"):
            self._forward(request, body)
            return
        operation = operation or target.split(".")[1]
        try:
            self._check(request, operation, body)
            answer = getattr(self, "_" + operation, self._unknown)(json.loads(body))
        except Refused as refused:
            self._answer(
                request,
                refused.status,
                {"message": refused.text, "__type": refused.code},
                refused.code,
            )
            return
        except Exception as wrong:  # a fault in this file: the test must see it
            self.failures.append(f"{operation}: {wrong!r}")
            self._answer(request, 400, {"message": repr(wrong)}, "FakeBatchFailed")
            return
        if operation == "SubmitJob" and self._take("cut_submits"):
            request.close_connection = True
            request.connection.shutdown(2)
            return
        self._answer(request, 200, answer)

    def _take(self, knob: str) -> bool:
        with self.lock:
            left = getattr(self, knob)
            setattr(self, knob, max(0, left - 1))
            return bool(left > 0)

    def _check(self, request: Any, operation: str, body: bytes) -> None:
        with self.lock:
            self.calls[operation] = self.calls.get(operation, 0) + 1
        if "Signature=" not in request.headers.get("Authorization", ""):
            raise Refused(
                "MissingAuthenticationTokenException", "Missing Authentication Token", 403
            )
        signed = time.strptime(request.headers["X-Amz-Date"], "%Y%m%dT%H%M%SZ")
        if abs(calendar.timegm(signed) - time.time() - self.skew_s) > 300:
            text = "Signature expired: it is now earlier than this server's time - 5 min."
            raise Refused("InvalidSignatureException", text, 403)
        if any(f"Credential={key}/" in request.headers["Authorization"] for key in self.expired):
            text = "The security token included in the request is expired"
            raise Refused("ExpiredTokenException", text, 403)
        if sum(self.calls.values()) % 2 == 0 and self._take("faults"):
            raise Refused("ServerException", "Something went wrong on our side", 500)
        if operation == "SubmitJob" and self.submit_rate is not None:
            with self.lock:
                now = time.monotonic()
                self._tokens = min(
                    self.submit_rate, self._tokens + (now - self._filled) * self.submit_rate
                )
                self._filled = now
                if self._tokens < 1:
                    raise Refused("TooManyRequestsException", "Too Many Requests", 429)
                self._tokens -= 1
        model = self._models["logs" if operation == "GetLogEvents" else "batch"]
        shape = model.operation_model(operation).input_shape
        report = self._validator.validate(json.loads(body), shape)
        if report.has_errors():
            self.failures.append(f"{operation}: {report.generate_report()}")
            raise Refused("ClientException", report.generate_report())

    def _answer(self, request: Any, status: int, answer: Any, code: str = "") -> None:
        data = json.dumps(answer).encode()
        request.send_response(status)
        request.send_header("Content-Type", "application/json")
        request.send_header("Content-Length", str(len(data)))
        if code:
            request.send_header("x-amzn-ErrorType", code)
        request.end_headers()
        request.wfile.write(data)

    def _forward(self, request: Any, body: bytes) -> None:
        if self._moto is None:
            self._answer(request, 404, {"message": "no moto behind"}, "UnknownOperationException")
            return
        there = http.client.HTTPConnection(urllib.parse.urlsplit(self._moto).netloc, timeout=60)
        headers = {
            k: v for k, v in request.headers.items() if k.lower() not in ("connection", "expect")
        }
        there.request(request.command, request.path, body, headers)
        answer = there.getresponse()
        data = answer.read()
        request.send_response(answer.status)
        for name, value in answer.getheaders():
            if name.lower() not in (
                "connection",
                "transfer-encoding",
                "content-length",
                "server",
                "date",
            ):
                request.send_header(name, value)
        length = answer.getheader("Content-Length") if request.command == "HEAD" else str(len(data))
        request.send_header("Content-Length", length or "0")
        request.end_headers()
        if request.command != "HEAD":
            request.wfile.write(data)
        there.close()

    def _unknown(self, asked: Any) -> Any:
        raise Refused("UnknownOperationException", "this Batch can't do that")

    # --- operations ---

    def _RegisterJobDefinition(self, asked: dict[str, Any]) -> Any:
        with self.lock:
            name, revision = asked["jobDefinitionName"], next(self._revision)
            arn = f"{ARN}:job-definition/{name}:{revision}"
            made = {**asked, "jobDefinitionArn": arn, "revision": revision, "status": "ACTIVE"}
            self.definitions.setdefault(name, []).append(made)
        return {"jobDefinitionName": name, "jobDefinitionArn": arn, "revision": revision}

    def _DescribeJobDefinitions(self, asked: dict[str, Any]) -> Any:
        with self.lock:
            found = list(self.definitions.get(asked["jobDefinitionName"], []))
        return {
            "jobDefinitions": [d for d in found if d["status"] == asked.get("status", d["status"])]
        }

    def _DescribeJobQueues(self, asked: dict[str, Any]) -> Any:
        wanted = [name.split("/")[-1] for name in asked["jobQueues"]]
        return {"jobQueues": [self.queues[name] for name in wanted if name in self.queues]}

    def _DescribeComputeEnvironments(self, asked: dict[str, Any]) -> Any:
        wanted = asked["computeEnvironments"]
        return {
            "computeEnvironments": [self.environments[n] for n in wanted if n in self.environments]
        }

    def _SubmitJob(self, asked: dict[str, Any]) -> Any:
        queue = self.queues.get(asked["jobQueue"].split("/")[-1])
        definition = next(
            (
                d
                for list_ in self.definitions.values()
                for d in list_
                if asked["jobDefinition"] in (d["jobDefinitionArn"], d["jobDefinitionName"])
            ),
            None,
        )
        if queue is None or definition is None:
            raise Refused("ClientException", "JobQueue or JobDefinition does not exist.")
        if queue["state"] != "ENABLED":
            raise Refused("ClientException", f"JobQueue {queue['jobQueueName']} is DISABLED")
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_-]{0,127}", asked["jobName"]):
            raise Refused("ClientException", "jobName should match valid pattern")
        n = definition.get("nodeProperties", {}).get("numNodes", 1)
        id = str(uuid.uuid4())
        job = Job(id, asked, definition, self._nodes(definition, n))
        if "arrayProperties" in asked and (n > 1 or not 2 <= job.size <= 10000):
            raise Refused("ClientException", "Array size must be between 2 and 10000, of one node.")
        with self.lock:
            self.jobs[id] = job
            self._due.append((time.monotonic() + self.step_s, job))
        return {"jobName": job.name, "jobId": id, "jobArn": f"{ARN}:job/{id}"}

    def _nodes(self, definition: dict[str, Any], n: int) -> list[Node]:
        return [
            Node(k, f"{definition['jobDefinitionName']}/default/{uuid.uuid4().hex}")
            for k in range(n)
        ]

    def _array_properties(self, job: Job) -> dict[str, Any]:
        if job.index is not None:
            return {"index": job.index}
        words = ("SUBMITTED", "PENDING", "RUNNABLE", "STARTING", "RUNNING", "SUCCEEDED", "FAILED")
        counts = {word: sum(c.status == word for c in job.children) for word in words}
        return {"size": job.size, "statusSummary": counts}

    def _container(self, job: Job, node: Node) -> dict[str, Any]:
        container: dict[str, Any] = {}
        if job.status not in ("SUBMITTED", "PENDING", "RUNNABLE"):
            container["taskArn"] = f"arn:aws:ecs:{REGION}:{ACCOUNT}:task/env_Batch/{job.id}"
            container["containerInstanceArn"] = (
                f"arn:aws:ecs:{REGION}:{ACCOUNT}:container-instance/c/i1"
            )
        if node.process is not None:
            container["logStreamName"] = node.stream
        if node.exit_code is not None:
            container["exitCode"] = node.exit_code
        if node.reason is not None:
            container["reason"] = node.reason
        return container

    def _DescribeJobs(self, asked: dict[str, Any]) -> Any:
        if len(asked["jobs"]) > 100:
            raise Refused("ClientException", "at most 100 jobs")
        told = []
        with self.lock:
            for id in asked["jobs"]:
                parent, _, index = id.partition("#")
                job = self.jobs.get(parent)
                if job is None:
                    continue
                node = job.nodes[int(index or 0)]
                one = {
                    "jobId": id,
                    "jobName": job.name,
                    "jobQueue": job.request["jobQueue"],
                    "status": node.status if index else job.status,
                    "createdAt": int(job.created * 1000),
                    "isTerminated": job.is_terminated,
                    "isCancelled": job.is_cancelled,
                }
                if job.reason is not None:
                    one["statusReason"] = job.reason
                if job.size or job.index is not None:
                    one["arrayProperties"] = self._array_properties(job)
                if index or len(job.nodes) == 1:
                    one["container"] = self._container(job, node)
                told.append(one)
        return {"jobs": told}

    def _ListJobs(self, asked: dict[str, Any]) -> Any:
        if "arrayJobId" in asked:
            wanted = asked.get("jobStatus", "RUNNING")
            children = self.jobs[asked["arrayJobId"]].children
            return {
                "jobSummaryList": [
                    {"jobId": c.id, "jobName": c.name, "status": c.status}
                    for c in children
                    if c.status == wanted
                ]
            }
        [only] = asked["filters"]
        assert only["name"] == "JOB_NAME"
        [name] = only["values"]
        name, at = name.lower(), int(asked.get("nextToken", "0"))
        with self.lock:
            jobs = [j for j in self.jobs.values() if j.parent is None]
        found = [
            {"jobId": job.id, "jobName": job.name, "status": job.status}
            for job in jobs
            if job.name.lower() == name
            or (name.endswith("*") and job.name.lower().startswith(name[:-1]))
        ]
        more = {"nextToken": str(at + 100)} if at + 100 < len(found) else {}
        return {"jobSummaryList": found[at : at + 100], **more}

    def _TerminateJob(self, asked: dict[str, Any]) -> Any:
        with self.lock:
            job = self.jobs.get(asked["jobId"])
            if job is not None and job.size and job.status in LIVE:
                job.is_terminated = True
                for child in job.children:
                    self._terminate(child, asked["reason"])
                if not job.children:  # not yet made
                    self._end(job, asked["reason"], exit_code=None)
            elif job is not None:
                self._terminate(job, asked["reason"])
        return {}

    def _terminate(self, job: Job, reason: str) -> None:
        if job.status not in LIVE:
            return
        began = job.status in ("STARTING", "RUNNING")
        job.is_terminated, job.is_cancelled = began, not began
        if job.status == "RUNNING":
            job.reason = reason
            self._signal(job, signal.SIGTERM)
            threading.Timer(10.0, self._signal, (job, signal.SIGKILL)).start()
        else:
            self._end(job, reason, exit_code=None)

    def _GetLogEvents(self, asked: dict[str, Any]) -> Any:
        token = int(asked.get("nextToken", "f/0").split("/")[1])
        with self.lock:
            for job in self.jobs.values():
                for node in job.nodes:
                    if node.stream == asked["logStreamName"] and node.lines:
                        lines = node.lines[token : token + 1000]
                        next_ = f"f/{token + len(lines)}"
                        events = [
                            {"timestamp": 0, "message": line, "ingestionTime": 0} for line in lines
                        ]
                        return {
                            "events": events,
                            "nextForwardToken": next_,
                            "nextBackwardToken": "b/0",
                        }
        raise Refused("ResourceNotFoundException", "The specified log stream does not exist.")

    # --- jobs ---

    def _schedule(self) -> None:
        """Moves jobs from state to state, and starts them."""
        while not self._stop.wait(0.005):
            now = time.monotonic()
            with self.lock:
                due = [job for at, job in self._due if at <= now]
                self._due = [(at, job) for at, job in self._due if at > now]
                for job in due:
                    self._move(job, now)

    def _spawn(self, parent: Job, now: float) -> None:
        """An array is PENDING until its children, which are jobs too, have ended."""
        parent.status = "PENDING"
        for i in range(parent.size):
            nodes = self._nodes(parent.definition, 1)
            child = Job(
                f"{parent.id}:{i}", parent.request, parent.definition, nodes, parent=parent, index=i
            )
            parent.children.append(child)
            self.jobs[child.id] = child
            self._due.append((now + self.step_s, child))

    def _move(self, job: Job, now: float) -> None:
        if job.status == "SUBMITTED" and job.size:
            self._spawn(job, now)
            return
        if job.status == "SUBMITTED":
            job.status = "RUNNABLE"
        elif job.status == "RUNNABLE":
            job.reason = self.hold
            if self.hold is None and self._running < self.slots:
                job.status = "STARTING"
                self._running += 1
        elif job.status == "STARTING":
            if self.pull_error is not None:
                job.nodes[0].reason = self.pull_error
                self._end(job, "Task failed to start", exit_code=None)
            else:
                self._start(job)
            return
        else:
            return
        self._due.append((now + self.step_s, job))

    def _command(self, job: Job, node: Node) -> tuple[list[str], dict[str, str]]:
        request, definition = job.request, job.definition
        if len(job.nodes) == 1:
            properties, overrides = (
                definition["containerProperties"],
                request.get("containerOverrides", {}),
            )
        else:
            properties = definition["nodeProperties"]["nodeRangeProperties"][0]["container"]
            overrides = request["nodeOverrides"]["nodePropertyOverrides"][0]["containerOverrides"]
        env = {"PATH": os.environ["PATH"], "HOME": "/root"}
        env.update(self._given_by_ecs(properties))
        for one in (*properties.get("environment", []), *overrides.get("environment", [])):
            env[one["name"]] = one["value"]
        env.update(AWS_BATCH_JOB_ID=job.id, AWS_BATCH_JOB_ATTEMPT="1")
        if job.parent is not None:
            env.update(
                AWS_BATCH_JOB_ARRAY_INDEX=str(job.index),
                AWS_BATCH_JOB_ARRAY_SIZE=str(job.parent.size),
            )
        if len(job.nodes) > 1:
            env.update(
                AWS_BATCH_JOB_ID=f"{job.id}#{node.index}",
                AWS_BATCH_JOB_NUM_NODES=str(len(job.nodes)),
                AWS_BATCH_JOB_NODE_INDEX=str(node.index),
                AWS_BATCH_JOB_MAIN_NODE_INDEX="0",
            )
            if node.index > 0:
                env["AWS_BATCH_JOB_MAIN_NODE_PRIVATE_IPV4_ADDRESS"] = "127.0.0.1"
        command = overrides.get("command") or properties["command"]
        return (self._inside(env) if self._namespaces else []) + command, env

    def _given_by_ecs(self, properties: dict[str, Any]) -> dict[str, str]:
        """Variables of secrets and of the job role's credentials."""
        env = {}
        if properties.get("jobRoleArn"):
            env["AWS_CONTAINER_CREDENTIALS_FULL_URI"] = f"{self.url}/role-credentials"
        for secret in properties.get("secrets", []):
            import boto3

            keys = {"aws_access_key_id": "ecs", "aws_secret_access_key": "ecs"}
            ssm = boto3.client("ssm", region_name=REGION, endpoint_url=self._moto, **keys)
            found = ssm.get_parameter(Name=secret["valueFrom"], WithDecryption=True)
            env[secret["name"]] = found["Parameter"]["Value"]
        return env

    def _inside(self, env: dict[str, str]) -> list[str]:
        """Hides what another machine wouldn't have: empty folders over ours, in a mount namespace."""
        hidden = [
            env.get("STOKER_CARRY_AT", "/stoker"),
            *shlex.split(env.get("STOKER_FOLDERS", "")),
        ]
        mounts = " && ".join(
            f"mkdir -p {shlex.quote(d)} && mount -t tmpfs tmpfs {shlex.quote(d)}" for d in hidden
        )
        return [
            "unshare",
            "-m",
            "--propagation",
            "private",
            "sh",
            "-c",
            mounts + ' && exec "$@"',
            "sh",
        ]

    def _start(self, job: Job) -> None:
        job.status, job.reason = "RUNNING", None
        if self.instead is not None:
            threading.Thread(target=self._play, args=(job,), daemon=True).start()
            return
        for node in job.nodes:
            command, env = self._command(job, node)
            try:
                node.process = subprocess.Popen(
                    command,
                    env=env,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                    cwd="/",
                )
            except OSError as wrong:
                node.reason = f"CannotStartContainerError: Error response from daemon: {wrong}"
                self._end(job, "Task failed to start", exit_code=None)
                return
            node.status = "RUNNING"
            threading.Thread(target=self._follow, args=(job, node), daemon=True).start()

    def _play(self, job: Job) -> None:
        assert self.instead is not None
        self.instead(self._command(job, job.nodes[0])[1])
        self._end(job, "Essential container in task exited", exit_code=0)

    def _follow(self, job: Job, node: Node) -> None:
        assert node.process is not None and node.process.stdout is not None
        for line in node.process.stdout:
            text = line.decode(errors="replace").rstrip("\n")
            if self.log_lag_s:
                threading.Timer(self.log_lag_s, node.lines.append, (text,)).start()
            else:
                node.lines.append(text)
        code = node.process.wait()
        with self.lock:
            node.exit_code = 128 - code if code < 0 else code
            node.status = "SUCCEEDED" if code == 0 else "FAILED"
        if node.index == 0:
            reason = job.reason if job.is_terminated else "Essential container in task exited"
            self._end(job, reason, exit_code=node.exit_code)

    def _signal(self, job: Job, number: int) -> None:
        for node in job.nodes:
            if node.process is not None and node.process.poll() is None:
                try:
                    os.killpg(node.process.pid, number)
                except ProcessLookupError:
                    pass

    def _end(self, job: Job, reason: str | None, exit_code: int | None) -> None:
        with self.lock:
            if job.status not in LIVE:
                return
            self._running -= job.status in ("STARTING", "RUNNING")
            job.status = "SUCCEEDED" if exit_code == 0 and not job.is_terminated else "FAILED"
            job.reason, job.ended = reason, time.time()
            job.nodes[0].exit_code = exit_code
            parent = job.parent
            if parent is not None and all(c.status not in LIVE for c in parent.children):
                failed = any(c.status == "FAILED" for c in parent.children)
                parent.status, parent.ended = "FAILED" if failed else "SUCCEEDED", time.time()
        self._signal(job, signal.SIGKILL)


if __name__ == "__main__":  # python fake_batch.py MOTO-URL: until stdin ends
    import sys

    one = FakeBatch(sys.argv[1] if len(sys.argv) > 1 else None, namespaces=os.geteuid() == 0)
    print(one.url, flush=True)
    sys.stdin.read()
    one.close()
