"""The driver against the fake cluster: jobs from submission to removal."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from kube import Cluster
from kube_client import JOBS, PODS, Client
from kube_driver import Driver, shell

SECRETS = "/api/v1/namespaces/default/secrets"
SERVICES = "/api/v1/namespaces/default/services"
JOBSETS = "/apis/jobset.x-k8s.io/v1alpha2/namespaces/default/jobsets"
FOREVER = "trap 'echo got TERM; exit 143' TERM; echo up; while :; do sleep 0.05; done"
Start = Callable[..., Driver]


@pytest.fixture
def start(cluster: Cluster, tmp_path: Path) -> Iterator[Start]:
    """Starts drivers of ``cluster`` with ``Driver``'s arguments; all are closed at the end."""
    made: list[Driver] = []

    def begin(*args: Any, **more: Any) -> Driver:
        made.append(Driver(cluster.kubeconfig(tmp_path / "config"), *args, **more))
        return made[-1]

    yield begin
    for driver in made:
        driver.close()


def names(api: Client, path: str) -> list[str]:
    return [o["metadata"]["name"] for o in api.ask("GET", path).json["items"]]


def nothing_left(api: Client) -> None:
    for path in (JOBS, PODS, SECRETS, SERVICES):
        api.until(
            path, lambda o: not [i for i in o["items"] if i["metadata"]["name"] != "kubernetes"]
        )


def test_job_to_its_end(api: Client, start: Start) -> None:
    d = start()
    d.submit(
        1,
        'echo "$HOME|$X|$KEY"; echo err >&2; touch /data/x/here; sleep 0.2; printf "no newline"; exit 3',
        env=["X=a$(HOME)$$b"],
        secret=["KEY=s=1"],
        folders=["/data/x"],
        resources={"cpu_milli": 250, "memory_bytes": 64 << 20},
    )
    end = d.end(1)
    assert (end["state"], end["exit_status"], end["failure"]) == ("ended", 3, "none")
    assert [r["text"] for r in d.reports if r["state"] == "running"] == ["node cpu-a"]
    assert sorted(d.log(1).split("\n")) == ["/root|a$(HOME)$$b|s=1", "err", "no newline"]
    (made,) = api.ask("GET", JOBS).json["items"]
    assert made["metadata"]["labels"]["stoker.step"] == "train"
    assert made["spec"]["backoffLimit"] == 0
    d.do("forget", id=1)
    nothing_left(api)


def test_forgotten_at_the_close(api: Client, start: Start) -> None:
    d = start()
    for i in range(1, 9):
        d.submit(i)
    for _ in range(8):
        d.until(lambda r: r["state"] == "ended")
    for i in range(1, 9):
        d.do("forget", id=i)
    d.close()
    assert names(api, JOBS) == []


def test_kept(api: Client, start: Start) -> None:
    d = start()
    d.submit(1, options={"keep": True, "ttl_seconds_after_finished": 3600})
    d.end(1)
    d.do("forget", id=1)
    d.close()
    assert names(api, JOBS) == ["s-r1-train-1-1"]


def test_stop(api: Client, start: Start) -> None:
    d = start()
    d.submit(1, FOREVER, secret=["A=b"], grace_ms=10000)
    d.until(lambda r: r["state"] == "log")
    d.do("stop", id=1, grace_ms=10000)
    end = d.end(1)
    assert (end["state"], end["failure"]) == ("failed", "cancelled")
    assert "got TERM" in d.log(1)
    nothing_left(api)  # the Secret goes with the Job


def test_stop_at_once(api: Client, start: Start) -> None:
    d = start()
    d.submit(1, "trap '' TERM; echo up; while :; do sleep 0.05; done", grace_ms=3600000)
    d.until(lambda r: r["state"] == "log")
    began = time.monotonic()
    d.do("stop", id=1, grace_ms=0)
    assert d.end(1)["failure"] == "cancelled"
    assert time.monotonic() - began < 30  # not the hour that its pod may take
    nothing_left(api)


def test_stop_before_it_is_sent(api: Client, start: Start) -> None:
    d = start()
    d.submit(1, FOREVER)
    d.do("stop", id=1)
    assert d.end(1)["failure"] == "cancelled"
    nothing_left(api)


def test_submitted_twice_is_once(api: Client, start: Start) -> None:
    """Its engine dies, and another one submits the same job again: the one Job continues."""
    first = start()
    first.submit(1, "echo one; sleep 1; echo two; exit 5")
    first.until(lambda r: r["state"] == "log")
    first.kill()
    for attach in (False, True):
        d = start()
        d.submit(1, "exit 9", attach=attach)
        assert d.end(1)["exit_status"] == 5
        assert d.log(1) == "one\ntwo\n"
        d.close()
    assert names(api, JOBS) == ["s-r1-train-1-1"]
    d = start()
    d.submit(1, attach=True)
    d.end(1)
    d.do("forget", id=1)
    nothing_left(api)
    d.submit(2, attach=True, name="s-r1-train-1-1")
    end = d.end(2)
    assert (end["failure"], end["state"]) == ("lost", "failed")
    assert "its Job s-r1-train-1-1 no longer exists" in end["text"]


def test_somebody_elses_job(api: Client, start: Start) -> None:
    other = start(run="r2")
    other.submit(1, FOREVER, name="s-same", run="r2")
    other.until(lambda r: r["state"] == "running")
    d = start()
    d.submit(1, name="s-same")
    end = d.end(1)
    assert end["failure"] == "start" and "of another run" in end["text"]
    other.do("stop", id=1)
    other.end(1)


def test_gang(api: Client, start: Start) -> None:
    d = start()
    d.submit(
        1,
        'echo "$JOB_COMPLETION_INDEX of $STOKER_GANG_RDZV"; sleep 0.5',
        nodes=2,
        resources={"gpu_count": 2},
    )
    end = d.end(1)
    assert (end["state"], end["exit_status"]) == ("ended", 0)
    for node in (0, 1):
        assert d.log(1, node) == f"{node} of s-r1-train-1-1-0.s-r1-train-1-1:29400\n"
    assert sorted(r["node"] for r in d.reports if r["state"] == "running") == [0, 1]
    d.do("forget", id=1)
    nothing_left(api)


def test_rank_that_fails(api: Client, start: Start) -> None:
    d = start()
    d.submit(1, '[ "$JOB_COMPLETION_INDEX" = 1 ] && sleep 0.3 && exit 7; ' + FOREVER, nodes=2)
    end = d.end(1)
    assert (end["state"], end["exit_status"], end["node"]) == ("ended", 7, 1)


# --- a gang as a JobSet


def is_set(api: Client) -> bool:
    """Whether the one gang that is there is a JobSet; else it is an Indexed Job with a Service."""
    (job,) = api.until(JOBS, lambda o: o["items"])["items"]
    owned = "ownerReferences" in job["metadata"]
    sets = api.ask("GET", JOBSETS)
    assert (owned and len(names(api, JOBSETS)) == 1) or (
        not owned and (sets.status == 404 or not sets.json["items"])
    )
    return owned


def gang_to_its_end(api: Client, d: Driver, **more: Any) -> bool:
    """Two pods that meet by the first's name, and nothing left of them; as a JobSet?"""
    d.submit(1, "echo $JOB_COMPLETION_INDEX of $STOKER_GANG_RDZV; sleep 0.5", nodes=2, **more)
    as_set = is_set(api)
    assert d.end(1)["exit_status"] == 0
    name = more.get("name", "s-r1-train-1-1")
    first = f"{name}-n-0-0" if as_set else f"{name}-0"
    assert [d.log(1, n) for n in (0, 1)] == [f"{n} of {first}.{name}:29400\n" for n in (0, 1)]
    d.do("forget", id=1)
    if as_set:
        api.until(JOBSETS, lambda o: not o["items"])
    nothing_left(api)
    return as_set


@pytest.fixture
def has_sets(cluster: Cluster) -> None:
    cluster.call(cluster.control.do_jobset)


@pytest.mark.parametrize(
    ("options", "as_set"), [({}, True), ({"jobset": True}, True), ({"jobset": False}, False)]
)
def test_jobset(
    has_sets: None, api: Client, start: Start, options: dict[str, Any], as_set: bool
) -> None:
    longest = "s-" + 46 * "x"  # as long as names get
    assert gang_to_its_end(api, start(), options=options, name=longest) is as_set


@pytest.mark.parametrize(
    ("faults", "as_set"),
    [
        ([{"match": "^GET /apis/jobset[^ ]*v1alpha2$", "status": 503, "times": 2}], True),
        ([{"match": "^GET /apis/jobset[^ ]*v1alpha2$", "cut": "before", "times": 2}], True),
        ([{"match": "^GET /apis/jobset[^ ]*v1alpha2$", "status": 403}], False),
        ([{"match": "^POST [^ ]*jobsets", "status": 403}], False),
        ([{"match": "^POST", "cut": "before", "after": True, "times": 1}], True),
    ],
    ids=["server error", "cut", "may not ask", "may not make", "answer lost"],
)
def test_jobset_or_not(
    has_sets: None,
    api: Client,
    cluster: Cluster,
    start: Start,
    faults: list[dict[str, Any]],
    as_set: bool,
) -> None:
    """A server error is no answer; who may make none gets an Indexed Job."""
    for fault in faults:
        cluster.call(lambda f=fault: cluster.faults.add(**f))
    assert gang_to_its_end(api, start()) is as_set
    cluster.call(cluster.faults.clear)


def test_no_jobset(api: Client, start: Start) -> None:
    d = start()
    d.submit(1, nodes=2, options={"jobset": True})
    assert "install JobSet, or remove the option jobset" in d.end(1)["text"]
    assert gang_to_its_end(api, start()) is False


@pytest.mark.parametrize("known", ["attach", "look"])
@pytest.mark.parametrize("before", [False, True], ids=["Job", "JobSet"])
def test_gang_found_again(
    api: Client, cluster: Cluster, start: Start, known: str, before: bool
) -> None:
    """The add-on came between two engines; the gang of the first one is found whatever it is."""
    cluster.call(cluster.control.do_jobset, before)
    first = start()
    first.submit(1, "echo up; sleep 1.5; exit 5", nodes=2)
    for _ in range(2):
        first.until(lambda r: r["state"] == "log")
    assert is_set(api) is before
    first.kill()
    cluster.call(cluster.control.do_jobset, True)
    d = start()
    d.submit(1, "exit 9", nodes=2, **{known: True})
    assert d.end(1)["exit_status"] == 5
    assert is_set(api) is before
    d.do("forget", id=1)
    api.until(JOBSETS, lambda o: not o["items"])
    nothing_left(api)


def test_jobset_whose_rank_fails(has_sets: None, api: Client, start: Start) -> None:
    d = start()
    d.submit(1, '[ "$JOB_COMPLETION_INDEX" = 1 ] && sleep 0.3 && exit 7; ' + FOREVER, nodes=2)
    end = d.end(1)
    assert (end["state"], end["exit_status"], end["node"]) == ("ended", 7, 1)
    failed = api.until(JOBSETS, lambda o: o["items"][0]["status"].get("terminalState"))
    assert failed["items"][0]["status"]["terminalState"] == "Failed"
    d.do("forget", id=1)
    api.until(JOBSETS, lambda o: not o["items"])
    nothing_left(api)


@pytest.mark.parametrize("after_s", [0.0, 0.02, 0.5])
def test_jobset_stopped(has_sets: None, api: Client, start: Start, after_s: float) -> None:
    """However early: its end is told when nothing is left of it."""
    d = start()
    d.submit(1, FOREVER, nodes=2, secret=["A=b"])
    time.sleep(after_s)  # sleeps: early, or later
    d.do("stop", id=1)
    assert d.end(1)["failure"] == "cancelled"
    assert names(api, JOBSETS) == [] and names(api, PODS) == []
    nothing_left(api)


@pytest.mark.parametrize("nodes", [1, 2])
def test_found_again_and_stopped_at_once(
    has_sets: None, api: Client, start: Start, nodes: int
) -> None:
    first = start()
    first.submit(1, FOREVER, nodes=nodes)
    first.until(lambda r: r["state"] == "log")
    first.kill()
    d = start()
    d.submit(1, FOREVER, nodes=nodes, attach=True)
    d.do("stop", id=1)
    assert d.end(1)["failure"] == "cancelled"
    assert names(api, PODS) == []
    nothing_left(api)


# --- why it waits


def test_own_secret_comes_later(api: Client, cluster: Cluster, start: Start) -> None:
    """The pod exists before the Secret that we create for it: that isn't reported as a reason."""
    cluster.call(lambda: cluster.faults.add(match="^POST [^ ]*secrets", status=503, times=3))
    d = start()
    d.submit(1, 'echo "$KEY"', secret=["KEY=v"])
    waits = "CreateContainerConfigError"
    api.until(PODS, lambda o: waits in json.dumps(o["items"]))
    assert d.end(1)["exit_status"] == 0 and d.log(1) == "v\n"
    assert [t for t in d.texts("queued") if t] == []
    d.submit(2, options={"secrets": ["nowhere"]})
    told = d.until(lambda r: r["id"] == 2 and r["state"] == "queued" and r["text"])
    assert 'secret "nowhere" not found' in told["text"]
    d.do("stop", id=2)
    d.end(2)


def test_no_node_and_then_given_up(api: Client, start: Start) -> None:
    d = start(pending_ms=1500)
    d.submit(1, resources={"gpu_count": 16})
    waits = d.until(lambda r: r["state"] == "queued" and r["text"])
    assert "Insufficient nvidia.com/gpu" in waits["text"] and "ask for less" in waits["text"]
    end = d.end(1)
    assert end["failure"] == "resources"
    assert end["text"].startswith("it didn't start within 1 s: no node accepts it: 0/3 nodes")
    nothing_left(api)


@pytest.mark.parametrize(
    ("image", "options", "text"),
    [
        ("localhost/absent:1", {"image_pull_policy": "Never"}, "the pull policy is Never"),
        ("Not A Name", {}, "its image has an invalid name"),
    ],
)
def test_image_that_will_never_be(
    api: Client, start: Start, image: str, options: dict[str, Any], text: str
) -> None:
    d = start()
    d.submit(1, image=image, options=options)
    end = d.end(1)
    assert end["failure"] == "start" and text in end["text"]
    nothing_left(api)


def test_image_that_cant_be_pulled(api: Client, start: Start) -> None:
    d = start(pending_ms=3000)
    d.submit(1, image="registry.invalid/team/train:1")
    d.until(lambda r: r["state"] == "queued" and "can't pull its image" in r["text"])
    end = d.end(1)
    assert end["failure"] == "start" and "image_map" in end["text"]


@pytest.mark.parametrize(
    ("says", "text"), [("missing", "doesn't have it"), ("platform", "architecture of node")]
)
def test_registry_that_knows_no_such_image(
    make_cluster: Callable[..., Cluster], tmp_path: Path, says: str, text: str
) -> None:
    """A definite answer ends the wait at once: the patience is 10 minutes here."""
    cluster = make_cluster(pulls={"r.test/*": says})
    d = Driver(cluster.kubeconfig(tmp_path / "config"), pending_ms=600_000)
    d.submit(1, image="r.test/team/train:1")
    end = d.end(1)
    d.close()
    assert end["failure"] == "start" and text in end["text"], end
    nothing_left(Client(cluster))


@pytest.mark.parametrize(
    ("says", "text"),
    [
        ("denied", "refuses this cluster"),
        ("limited", "limits how often"),
        ("untrusted", "don't trust"),
        ("down", "503"),
    ],
)
def test_registry_that_may_give_it_later(
    make_cluster: Callable[..., Cluster], tmp_path: Path, says: str, text: str
) -> None:
    cluster = make_cluster(pulls={"r.test/*": says})
    d = Driver(cluster.kubeconfig(tmp_path / "config"), pending_ms=600_000)
    d.submit(1, image="r.test/team/train:1")
    d.until(lambda r: r["state"] == "queued" and text in r["text"])
    cluster.options.pulls.clear()
    assert (d.end(1)["state"], d.texts("failed")) == ("ended", [])
    d.close()


def test_quota(api: Client, start: Start) -> None:
    hard = {"count/jobs.batch": "1", "requests.nvidia.com/gpu": "2"}
    quota = {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "small"},
        "spec": {"hard": hard},
    }
    path = "/api/v1/namespaces/default/resourcequotas"
    assert api.ask("POST", path, quota).status == 201
    d = start()
    d.submit(1, resources={"gpu_count": 4})
    waits = d.until(lambda r: r["state"] == "queued" and r["text"])
    assert "exceeded quota: small, requested: requests.nvidia.com/gpu=4" in waits["text"]
    d.submit(2)
    waits = d.until(lambda r: r["id"] == 2 and r["state"] == "queued" and r["text"])
    assert "the namespace's quota is used up" in waits["text"]
    d.do("stop", id=1)
    assert d.end(1)["failure"] == "cancelled"
    assert d.end(2)["exit_status"] == 0  # once there is room


def test_quota_of_a_jobset(has_sets: None, api: Client, start: Start) -> None:
    hard = {"requests.nvidia.com/gpu": "2"}
    quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "small"}}
    path = "/api/v1/namespaces/default/resourcequotas"
    assert api.ask("POST", path, {**quota, "spec": {"hard": hard}}).status == 201
    d = start()
    d.submit(1, nodes=2, resources={"gpu_count": 4})
    waits = d.until(lambda r: r["state"] == "queued" and r["text"])
    assert "exceeded quota: small, requested: requests.nvidia.com/gpu=4" in waits["text"]
    d.do("stop", id=1)
    assert d.end(1)["failure"] == "cancelled"


def test_options_that_cant_be(start: Start) -> None:
    d = start()
    d.submit(1, options={"node_selektor": "a=b"})
    text = d.end(1)["text"]
    assert "no option 'node_selektor'" in text and "did you mean 'node_selector'?" in text
    d.submit(2, options={"namespace": "nowhere"})
    assert "namespace 'nowhere' doesn't exist" in d.end(2)["text"]


@pytest.mark.parametrize(
    ("job", "text"),
    [
        ({"options": {"labels": {"a": "not valid!"}}}, "a valid label must be an empty string"),
        (
            {"options": {"additional_pod_spec_args": {"nope": 1}}},
            'unknown field "spec.template.spec.nope"',
        ),
        ({"options": {"resources": {"limits": {"memory": "1MB"}}}}, "quantities must match"),
        ({"image": ""}, "image: Required value"),
        (
            {"env": [f"V{i}=" + "x" * 130000 for i in range(30)]},
            "its Job is too large for the API server",
        ),
    ],
    ids=["422", "400 strict", "400", "422 required", "413"],
)
def test_refused_by_the_server(start: Start, job: dict[str, Any], text: str) -> None:
    """The user gets the server's sentence; nothing is retried."""
    d = start()
    d.submit(1, **job)
    end = d.end(1)
    assert end["failure"] == "start" and text in end["text"]


# --- how it ended


def pod_of(api: Client, id: int = 1) -> str:
    listed = api.until(PODS + f"?labelSelector=stoker.task%3D{id}", lambda o: o["items"])
    return str(listed["items"][0]["metadata"]["name"])


def test_out_of_memory(api: Client, cluster: Cluster, start: Start) -> None:
    d = start()
    d.submit(1, FOREVER, resources={"memory_bytes": 64 << 20})
    d.until(lambda r: r["state"] == "log")
    cluster.call(cluster.control.do_oom, pod_of(api))
    end = d.end(1)
    assert (end["state"], end["oom"], end["signal"]) == ("ended", True, 9)


def test_preempted(api: Client, cluster: Cluster, start: Start) -> None:
    d = start()
    d.submit(1, FOREVER)
    d.until(lambda r: r["state"] == "log")
    cluster.call(cluster.control.do_preempt, pod_of(api))
    end = d.end(1)
    assert (end["state"], end["failure"]) == ("failed", "preempted")
    assert end["text"].startswith("preempted on node cpu-a")


def test_evicted(api: Client, cluster: Cluster, start: Start) -> None:
    d = start()
    d.submit(1, FOREVER)
    d.until(lambda r: r["state"] == "log")
    cluster.call(cluster.control.do_evict, pod_of(api))
    end = d.end(1)
    assert end["failure"] == "preempted" and "evicted from node cpu-a" in end["text"]
    assert "got TERM" in d.log(1)


def test_node_lost(api: Client, cluster: Cluster, start: Start) -> None:
    d = start()
    d.submit(1, FOREVER, options={"node_lost_seconds": 1}, grace_ms=0)
    d.until(lambda r: r["state"] == "log")
    cluster.call(cluster.nodes.lose, "cpu-a")
    end = d.end(1, 100)
    assert end["failure"] == "lost" and "node cpu-a is lost" in end["text"]


@pytest.mark.parametrize(("options", "seconds"), [({"node_lost_seconds": 3700}, 3700), ({}, 300)])
def test_node_is_silent(cluster: Cluster, start: Start, options: dict, seconds: int) -> None:
    """A note says how long Kubernetes waits for it: the option's time, or the cluster's own."""
    cluster.call(lambda: cluster.control.do_scale(time_scale=0.1))
    d = start()
    d.submit(1, FOREVER, options=options, grace_ms=0)
    d.until(lambda r: r["state"] == "log")
    cluster.call(cluster.nodes.lose, "cpu-a")
    told = d.until(lambda r: r["state"] == "note" and "node cpu-a" in r["text"])
    assert f" {seconds} s " in told["text"] and "node_lost_seconds" in told["text"]


def test_pod_deleted(api: Client, start: Start) -> None:
    d = start()
    d.submit(1, FOREVER)
    d.until(lambda r: r["state"] == "log")
    api.ask("DELETE", f"{PODS}/{pod_of(api)}")
    end = d.end(1)
    assert end["failure"] == "lost" and "deleted" in end["text"]


def test_job_deleted(api: Client, start: Start) -> None:
    d = start()
    d.submit(1, FOREVER)
    d.until(lambda r: r["state"] == "log")
    api.ask("DELETE", f"{JOBS}/s-r1-train-1-1", {"propagationPolicy": "Background"})
    assert d.end(1)["failure"] == "lost"


def test_program_that_isnt_there(start: Start) -> None:
    d = start()
    d.submit(1, argv=["/nowhere/stoker"])
    end = d.end(1)
    assert end["failure"] == "start" and "/nowhere/stoker" in end["text"]


def test_job_deadline(start: Start) -> None:
    d = start()
    d.submit(1, FOREVER, options={"active_deadline_seconds": 1})
    assert d.end(1)["failure"] == "timeout"


# --- check


def test_check(api: Client, cluster: Cluster, tmp_path: Path) -> None:
    lines = shell("check", "{}", kubeconfig=cluster.kubeconfig(tmp_path / "config"))
    texts = [line["text"] for line in lines]
    assert all(line["good"] for line in lines), lines
    assert "8 nvidia.com/gpu on 1 node" in texts
    assert "all needed rights in namespace 'default'" in texts


@pytest.mark.parametrize(
    ("status", "why"), [(403, "no right to list nodes"), (422, "refused on request")]
)
def test_check_without_nodes(cluster: Cluster, tmp_path: Path, status: int, why: str) -> None:
    """Only a refusal is a missing right; neither keeps jobs from running."""
    cluster.call(lambda: cluster.faults.add(match="/nodes", status=status))
    lines = shell("check", "{}", kubeconfig=cluster.kubeconfig(tmp_path / "config"))
    assert all(line["good"] for line in lines), lines
    [text] = [line["text"] for line in lines if "devices" in line["text"]]
    assert why in text


def test_check_of_jobsets(cluster: Cluster, tmp_path: Path) -> None:
    config = cluster.kubeconfig(tmp_path / "config")
    seen: list[str] = []
    allowed = cluster.allowed

    def look(user: str, verb: str, group: str, plural: str, sub: str, namespace: str) -> bool:
        if plural != "jobsets":
            return allowed(user, verb, group, plural, sub, namespace)
        seen.append(verb)
        return verb != "create"

    cluster.allowed = look  # type: ignore[method-assign]
    shell("check", "{}", kubeconfig=config)
    assert seen == []  # there are none
    lines = shell("check", '{"jobset": true}', kubeconfig=config)
    assert any("JobSet isn't installed" in line["text"] for line in lines if not line["good"])
    cluster.call(cluster.control.do_jobset)
    shell("check", '{"jobset": false}', kubeconfig=config)
    assert seen == []
    lines = shell("check", "{}", kubeconfig=config)
    assert seen == ["create", "get", "delete"]
    assert [line["text"] for line in lines if not line["good"]] == [
        "no right to create jobsets in namespace 'default' (needed for gangs as JobSets)"
    ]


def test_check_without_rights(cluster: Cluster, tmp_path: Path) -> None:
    config = cluster.kubeconfig(tmp_path / "config", token="alice-token")
    lines = shell("check", "{}", kubeconfig=config)
    assert any("no right to create jobs" in line["text"] for line in lines)
    assert lines[-1]["state"] == "error" and "ask for a Role" in lines[-1]["text"]
    lines = shell("check", "{}", kubeconfig=cluster.kubeconfig(config, token="wrong"))
    assert "401 Unauthorized" in lines[-1]["text"]
    lines = shell("check", json.dumps({"namespace": "x"}), kubeconfig=cluster.kubeconfig(config))
    assert "namespace 'x' doesn't exist" in lines[-1]["text"]
