"""The cluster of the tests itself: Jobs from their POST to their end, pods as processes."""

from __future__ import annotations

import pytest
from kube_client import JOBS, PODS, Client, condition, ended, job, pods_of


def run(api: Client, body: dict) -> dict:
    made = api.ask("POST", f"{JOBS}?fieldValidation=Strict", body)
    assert made.status == 201, made.text
    return api.until(f"{JOBS}/{body['metadata']['name']}", ended)


def test_job_that_succeeds(api: Client) -> None:
    script = "echo out; echo err >&2; hostname; echo '{\"loss\":1}' > /dev/termination-log"
    done = run(api, job("fine", script))
    assert [c["type"] for c in done["status"]["conditions"]] == ["SuccessCriteriaMet", "Complete"]
    (pod,) = pods_of(api, "fine")
    state = pod["status"]["containerStatuses"][0]["state"]["terminated"]
    assert (pod["status"]["phase"], state["exitCode"], state["reason"]) == (
        "Succeeded",
        0,
        "Completed",
    )
    assert state["message"] == '{"loss":1}\n'
    log = api.ask("GET", f"{PODS}/{pod['metadata']['name']}/log")
    assert log.text == f"out\nerr\n{pod['metadata']['name']}\n"
    assert log.headers["content-type"] == "text/plain"


@pytest.mark.parametrize(
    ("script", "code", "reason"),
    [
        ("exit 3", 3, "Error"),
        ("kill -9 $$$$; sleep 1", 0, "Completed"),
        ("sh -c 'kill -9 $$$$'; exit $?", 137, "Error"),
    ],
)
def test_exit_codes(api: Client, script: str, code: int, reason: str) -> None:
    run(api, job("ends", script))  # the kubelet makes $ of $$; PID 1 can't kill itself
    (pod,) = pods_of(api, "ends")
    state = pod["status"]["containerStatuses"][0]["state"]["terminated"]
    assert (state["exitCode"], state["reason"]) == (code, reason)


def test_watch_tells_the_way_of_a_job(api: Client) -> None:
    rv = api.ask("GET", JOBS).json["metadata"]["resourceVersion"]
    run(api, job("seen"))
    kinds: list[tuple[str, str]] = []
    for event in api.watch(
        f"{JOBS}?watch=true&resourceVersion={rv}&timeoutSeconds=1&allowWatchBookmarks=true"
    ):
        last = (event["object"].get("status", {}).get("conditions") or [{"type": ""}])[-1]["type"]
        kinds.append((event["type"], last))
    assert kinds[0] == ("ADDED", "")
    assert kinds[-1][0] == "BOOKMARK"
    assert [k for k in kinds if k[1]] == [
        ("MODIFIED", "SuccessCriteriaMet"),
        ("MODIFIED", "Complete"),
    ]


def test_retry_makes_a_new_pod(api: Client) -> None:
    done = run(api, job("again", "exit 4", {"backoffLimit": 1}))
    assert done["status"]["failed"] == 2
    assert condition(done, "Failed")["reason"] == "BackoffLimitExceeded"
    assert len({p["metadata"]["name"] for p in pods_of(api, "again")}) == 2


def test_delete_while_running(api: Client) -> None:
    script = "trap 'echo got TERM; exit 143' TERM; echo up; while :; do sleep 0.05; done"
    api.ask("POST", JOBS, job("going", script))
    listed = api.until(PODS, lambda o: o["items"] and o["items"][0]["status"]["phase"] == "Running")
    name = listed["items"][0]["metadata"]["name"]
    gone = api.ask(
        "DELETE", f"{JOBS}/going", {"kind": "DeleteOptions", "propagationPolicy": "Background"}
    )
    assert (gone.status, gone.json["status"]) == (200, "Success")
    assert api.ask("GET", f"{JOBS}/going").status == 404
    api.until(PODS, lambda o: not o["items"])
    assert api.ask("GET", f"{PODS}/{name}/log").status == 404
    assert api.cluster.call(api.cluster.control.do, "state", {})["containers"] == 0


def test_delete_without_policy_leaves_the_pod(api: Client) -> None:
    api.ask("POST", JOBS, job("lonely", "sleep 30"))
    api.until(PODS, lambda o: o["items"] and o["items"][0]["status"]["phase"] == "Running")
    gone = api.ask("DELETE", f"{JOBS}/lonely")
    assert gone.json["metadata"]["finalizers"] == ["orphan"]
    assert "child pods are preserved by default" in gone.headers["warning"]
    api.until(JOBS, lambda o: not o["items"])
    (pod,) = pods_of(api, "lonely")
    assert "ownerReferences" not in pod["metadata"] and pod["status"]["phase"] == "Running"


def test_init_container_fills_a_volume_that_main_mounts(api: Client) -> None:
    mounts = [{"name": "runner", "mountPath": "/runner"}]
    init = {
        "name": "inject",
        "image": "localhost/bb:1",
        "command": ["sh", "-c", "cp /bin/echo /runner/say"],
    }
    body = job(
        "inject",
        pod={
            "volumes": [{"name": "runner", "emptyDir": {}}],
            "initContainers": [{**init, "volumeMounts": mounts}],
        },
        volumeMounts=mounts,
    )
    body["spec"]["template"]["spec"]["containers"][0]["command"] = [
        "/runner/say",
        "run by $(WHO), $$(WHO)",
    ]
    body["spec"]["template"]["spec"]["containers"][0]["env"] = [{"name": "WHO", "value": "me"}]
    run(api, body)
    (pod,) = pods_of(api, "inject")
    assert api.ask("GET", f"{PODS}/{pod['metadata']['name']}/log").text == "run by me, $(WHO)\n"
