"""What a test can do to the cluster: faults on the way, lost nodes, expired tokens and versions, restarts."""

from __future__ import annotations

import http.client
import json
import time
from collections.abc import Callable

import pytest
from kube import Cluster
from kube_client import JOBS, PODS, Client, condition, ended, job, pods_of


def test_refusals_count_down(api: Client) -> None:
    api.cluster.faults.add(match=r"^POST .*/jobs", status=503, times=2)
    codes = [api.ask("POST", JOBS, job("a")).status for _ in range(3)]
    assert codes == [503, 503, 201]
    api.cluster.faults.add(match=r"^GET .*/jobs", status=429, times=1)
    busy = api.ask("GET", JOBS)
    assert (busy.status, busy.headers["retry-after"], busy.json) == (429, "1", None)


def test_an_answer_that_is_lost_after_the_deed(api: Client) -> None:
    api.cluster.faults.add(match=r"^POST .*/jobs", cut="before", after=True, times=1)
    with pytest.raises((http.client.RemoteDisconnected, ConnectionResetError)):
        api.ask("POST", JOBS, job("once"))
    assert api.ask("POST", JOBS, job("once")).json["reason"] == "AlreadyExists"


def test_half_an_answer_and_a_slow_one(api: Client) -> None:
    api.cluster.faults.add(match=r"^GET .*/jobs$", cut="half", after=True, times=1)
    with pytest.raises(http.client.IncompleteRead):
        api.ask("GET", JOBS)
    api.cluster.faults.add(match=r"^GET .*/jobs$", delay_s=0.3, times=1)
    begun = time.monotonic()
    assert api.ask("GET", JOBS).status == 200
    assert time.monotonic() - begun >= 0.3


def test_watches_that_double_drop_and_break(api: Client) -> None:
    rv = api.ask("GET", JOBS).json["metadata"]["resourceVersion"]
    body = job("w")
    body["spec"]["suspend"] = True
    api.ask("POST", JOBS, body)
    api.until(f"{JOBS}/w", lambda o: condition(o, "Suspended"))
    path = f"{JOBS}?watch=true&resourceVersion={rv}&timeoutSeconds=1"
    assert [e["type"] for e in api.watch(path)] == ["ADDED", "MODIFIED"]
    api.cluster.faults.add(match="watch=true", watch={"double": 1.0}, times=1)
    assert [e["type"] for e in api.watch(path)] == ["ADDED", "ADDED", "MODIFIED", "MODIFIED"]
    api.cluster.faults.add(match="watch=true", watch={"drop": 1.0}, times=1)
    assert list(api.watch(path)) == []
    api.cluster.faults.add(match="watch=true", watch={"cut_after": 2, "half": True}, times=1)
    with pytest.raises((http.client.IncompleteRead, json.JSONDecodeError, ConnectionError)):
        list(api.watch(path))


def test_compaction_expires_old_versions(api: Client) -> None:
    rv = api.ask("GET", JOBS).json["metadata"]["resourceVersion"]
    api.ask("POST", JOBS, job("x"))
    api.until(f"{JOBS}/x", ended)
    assert api.ask("POST", "/_test/compact").status == 200
    (event,) = api.watch(f"{JOBS}?watch=true&resourceVersion={rv}&timeoutSeconds=5")
    assert (event["type"], event["object"]["code"], event["object"]["reason"]) == (
        "ERROR",
        410,
        "Expired",
    )


def test_expired_token_and_clock(api: Client) -> None:
    api.ask("POST", "/_test/expire", {"token": "alice-token"})
    assert Client(api.cluster, "alice-token").ask("GET", JOBS).status == 401
    api.ask("POST", "/_test/skew", {"seconds": 3600})
    made = api.ask("POST", JOBS, job("late")).json["metadata"]["creationTimestamp"]
    assert time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + 3500)) < made


def test_restart_keeps_the_state_and_the_pods(api: Client) -> None:
    api.ask("POST", JOBS, job("through", "sleep 0.5; echo done"))
    api.until(PODS, lambda o: o["items"] and o["items"][0]["status"]["phase"] == "Running")
    api.cluster.restart(0.1)
    assert condition(api.until(f"{JOBS}/through", ended), "Complete")


def test_a_lost_node_is_told_and_survived(make_cluster: Callable[..., Cluster]) -> None:
    cpu = {"cpu": "4", "memory": "4Gi"}
    cluster = make_cluster(
        nodes=[{"name": "a", "capacity": cpu}, {"name": "b", "capacity": cpu}], time_scale=0.005
    )
    api = Client(cluster)
    ignore = {"rules": [{"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget"}]}]}
    api.ask(
        "POST",
        JOBS,
        job(
            "moves",
            "[ $(hostname) ] && sleep $WAIT",
            {"podFailurePolicy": ignore},
            env=[{"name": "WAIT", "value": "60"}],
        ),
    )
    listed = api.until(PODS, lambda o: o["items"] and o["items"][0]["status"]["phase"] == "Running")
    node = listed["items"][0]["spec"]["nodeName"]
    api.ask("POST", "/_test/lose", {"node": node})
    (pod,) = api.until(PODS, lambda o: "deletionTimestamp" in o["items"][0]["metadata"])["items"]
    assert condition(pod, "DisruptionTarget")["reason"] == "DeletionByTaintManager"
    assert pod["status"]["phase"] == "Running"
    assert api.ask("GET", f"{PODS}/{pod['metadata']['name']}/log").status == 500
    assert api.ask("DELETE", f"/api/v1/nodes/{node}").status == 200
    (other,) = api.until(
        PODS, lambda o: o["items"] and o["items"][0]["spec"].get("nodeName") not in (node, None)
    )["items"]
    assert other["metadata"]["name"] != pod["metadata"]["name"]
    assert not ended(api.ask("GET", f"{JOBS}/moves").json)


def test_out_of_memory_on_request(api: Client) -> None:
    api.ask("POST", JOBS, job("eats", "sleep 30"))
    listed = api.until(PODS, lambda o: o["items"] and o["items"][0]["status"]["phase"] == "Running")
    name = listed["items"][0]["metadata"]["name"]
    assert api.ask("POST", "/_test/oom", {"pod": name}).json == {"killed": True}
    api.until(f"{JOBS}/eats", ended)
    (pod,) = pods_of(api, "eats")
    state = pod["status"]["containerStatuses"][0]["state"]["terminated"]
    assert (state["reason"], state["exitCode"]) == ("OOMKilled", 137)


@pytest.mark.parametrize(
    ("name", "reason"), [("preempt", "PreemptionByScheduler"), ("evict", "EvictionByEvictionAPI")]
)
def test_disruptions(api: Client, name: str, reason: str) -> None:
    api.ask("POST", JOBS, job("pushed", "trap 'exit 143' TERM; while :; do sleep 0.05; done"))
    listed = api.until(PODS, lambda o: o["items"] and o["items"][0]["status"]["phase"] == "Running")
    pod, rv = listed["items"][0]["metadata"]["name"], listed["metadata"]["resourceVersion"]
    assert api.ask("POST", f"/_test/{name}", {"pod": pod}).status == 200
    done = api.until(f"{JOBS}/pushed", ended)
    assert condition(done, "Failed")["reason"] == "BackoffLimitExceeded"
    seen = [
        condition(e["object"], "DisruptionTarget")
        for e in api.watch(f"{PODS}?watch=true&resourceVersion={rv}&timeoutSeconds=1")
    ]
    assert [c["reason"] for c in seen if c][:1] == [reason]


def test_unknown_controls_are_refused(api: Client) -> None:
    assert api.ask("POST", "/_test/nonsense", {}).status == 400
    assert api.ask("POST", "/_test/oom", {}).status == 400
