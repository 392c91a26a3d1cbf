"""What a pod's processes find: names of their gang, volumes, Secrets, their own token; and a thousand of them."""

from __future__ import annotations

import base64
import sys
import time
from collections.abc import Callable
from pathlib import Path

from kube import Cluster
from kube_client import JOBS, PODS, Client, condition, ended, job, pods_of

CORE = "/api/v1/namespaces/default"


def log_of(api: Client, name: str) -> str:
    (pod,) = pods_of(api, name)
    return api.ask("GET", f"{PODS}/{pod['metadata']['name']}/log").text


def test_ranks_of_an_indexed_job_find_each_other(make_cluster: Callable[..., Cluster]) -> None:
    api = Client(make_cluster(show=[sys.prefix, sys.base_prefix]))
    spec = {"clusterIP": "None", "publishNotReadyAddresses": True, "selector": {"job-name": "gang"}}
    made = api.ask(
        "POST",
        f"{CORE}/services",
        {"kind": "Service", "apiVersion": "v1", "metadata": {"name": "gang"}, "spec": spec},
    )
    assert made.status == 201, made.text
    script = """
import os, socket, time
rank, ip = int(os.environ["JOB_COMPLETION_INDEX"]), os.environ["POD_IP"]
assert socket.gethostbyname(socket.gethostname()) == ip, ip
if rank == 0:
    server = socket.create_server((ip, 29511))
    server.accept()[0].sendall(b"hello from rank 0")
else:
    end = time.monotonic() + 50
    while True:
        try:
            with socket.create_connection(("gang-0.gang.default.svc.cluster.local", 29511), 5) as s:
                print(s.recv(100).decode())
                break
        except OSError:
            assert time.monotonic() < end, open("/etc/hosts").read()
            time.sleep(0.05)
"""
    body = job(
        "gang",
        "",
        {"completionMode": "Indexed", "completions": 2, "parallelism": 2},
        {"subdomain": "gang"},
        env=[{"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}],
    )
    body["spec"]["template"]["spec"]["containers"][0]["command"] = [sys.executable, "-c", script]
    api.ask("POST", JOBS, body)
    done = api.until(f"{JOBS}/gang", ended)
    assert condition(done, "Complete"), [
        api.ask("GET", f"{PODS}/{p['metadata']['name']}/log").text for p in pods_of(api, "gang")
    ]
    assert done["status"]["completedIndexes"] == "0,1"
    second = next(p for p in pods_of(api, "gang") if p["metadata"]["name"].startswith("gang-1-"))
    assert api.ask("GET", f"{PODS}/{second['metadata']['name']}/log").text == "hello from rank 0\n"


def test_configuration_reaches_the_container(api: Client, tmp_path: Path) -> None:
    (tmp_path / "from-host").write_text("host file\n")
    api.ask(
        "POST", f"{CORE}/configmaps", {"metadata": {"name": "conf"}, "data": {"task.json": "{}\n"}}
    )
    secret = api.ask(
        "POST", f"{CORE}/secrets", {"metadata": {"name": "keys"}, "stringData": {"KEY": "s3cret"}}
    )
    assert secret.json["data"]["KEY"] == base64.b64encode(b"s3cret").decode()
    volumes = [
        {"name": "conf", "configMap": {"name": "conf"}},
        {"name": "keys", "secret": {"secretName": "keys"}},
        {"name": "host", "hostPath": {"path": str(tmp_path), "type": "Directory"}},
        {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": "16Mi"}},
    ]
    places = {"conf": "/task", "keys": "/keys", "host": "/data/host", "shm": "/dev/shm"}
    mounts = [{"name": n, "mountPath": p} for n, p in places.items()]
    env = [
        {"name": "KEY", "valueFrom": {"secretKeyRef": {"name": "keys", "key": "KEY"}}},
        {"name": "ROLE", "valueFrom": {"fieldRef": {"fieldPath": "metadata.labels['role']"}}},
        {"name": "CPUS", "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu"}}},
    ]
    script = "cat /task/task.json /data/host/from-host /keys/KEY; echo; echo $KEY $ROLE $CPUS; df -k /dev/shm | awk 'NR == 2 {print $2}'; touch /task/no 2>/dev/null || echo read only; echo to host > /data/host/back"
    body = job(
        "conf",
        script,
        pod={"volumes": volumes},
        volumeMounts=mounts,
        env=env,
        resources={"limits": {"cpu": "1500m"}},
    )
    body["spec"]["template"]["metadata"] = {"labels": {"role": "trainer"}}
    api.ask("POST", JOBS, body)
    assert condition(api.until(f"{JOBS}/conf", ended), "Complete")
    assert log_of(api, "conf") == "{}\nhost file\ns3cret\ns3cret trainer 2\n16384\nread only\n"
    assert (tmp_path / "back").read_text() == "to host\n"


def test_a_container_sees_its_own_processes_and_files_only(api: Client) -> None:
    api.ask(
        "POST",
        JOBS,
        job(
            "alone",
            "echo $$$$; ls /proc | grep -c '^[0-9]'; ls /root /tmp /home; ls -d /work 2>/dev/null; id -u",
        ),
    )
    api.until(f"{JOBS}/alone", ended)
    first, count, *rest = log_of(api, "alone").split()
    assert first == "1" and int(count) <= 4
    assert rest == ["/home:", "/root:", "/tmp:", "0"]


def test_the_account_s_token_is_good_for_what_is_granted(api: Client) -> None:
    where = "/var/run/secrets/kubernetes.io/serviceaccount"
    api.ask(
        "POST",
        JOBS,
        job(
            "inside",
            f"cat {where}/token; echo; cat {where}/namespace; echo; echo $KUBERNETES_SERVICE_PORT; cat {where}/ca.crt",
        ),
    )
    api.until(f"{JOBS}/inside", ended)
    token, namespace, port, *ca = log_of(api, "inside").split("\n")
    assert (namespace, int(port)) == ("default", api.cluster.port)
    assert "\n".join(ca).strip() == api.cluster.ca_pem.strip()
    mine = Client(api.cluster, token)
    assert mine.ask("GET", JOBS).status == 403
    api.ask(
        "POST",
        "/_test/grant",
        {"user": "system:serviceaccount:default:default", "namespace": "default"},
    )
    assert mine.ask("GET", JOBS).status == 200


def test_logs_are_followed_and_cut(api: Client) -> None:
    api.ask("POST", JOBS, job("talks", "echo one; echo two; sleep 0.3; echo three"))
    listed = api.until(PODS, lambda o: o["items"] and o["items"][0]["status"]["phase"] == "Running")
    path = f"{PODS}/{listed['items'][0]['metadata']['name']}/log"
    assert api.ask("GET", f"{path}?follow=true").text == "one\ntwo\nthree\n"
    assert api.ask("GET", f"{path}?tailLines=1").text == "three\n"
    assert api.ask("GET", f"{path}?limitBytes=5").text == "one\nt"
    assert api.ask("GET", f"{path}?container=nope").status == 400
    stamped = api.ask("GET", f"{path}?timestamps=true&tailLines=1").text
    assert stamped.endswith("Z three\n") and stamped[:2] == "20"


def test_a_pod_waits_for_its_configuration(api: Client) -> None:
    volumes = [{"name": "conf", "configMap": {"name": "later"}}]
    mounts = [{"name": "conf", "mountPath": "/conf"}]
    api.ask("POST", JOBS, job("late", "cat /conf/a", pod={"volumes": volumes}, volumeMounts=mounts))
    (pod,) = api.until(
        PODS, lambda o: o["items"] and o["items"][0]["status"].get("containerStatuses")
    )["items"]
    name = pod["metadata"]["name"]
    refused = api.ask("GET", f"{PODS}/{name}/log").json
    assert (
        refused["message"]
        == f'container "main" in pod "{name}" is waiting to start: ContainerCreating'
    )
    events = api.until(f"{CORE}/events?fieldSelector=reason%3DFailedMount", lambda o: o["items"])[
        "items"
    ]
    assert (
        events[0]["message"]
        == 'MountVolume.SetUp failed for volume "conf" : configmap "later" not found'
    )
    api.ask("POST", f"{CORE}/configmaps", {"metadata": {"name": "later"}, "data": {"a": "there"}})
    assert condition(api.until(f"{JOBS}/late", ended), "Complete")


def test_a_jobset_makes_its_jobs(make_cluster: Callable[..., Cluster]) -> None:
    api = Client(make_cluster(jobset=True))
    sets = "/apis/jobset.x-k8s.io/v1alpha2/namespaces/default/jobsets"
    template = {
        "spec": job(
            "x",
            "echo $(JOB_COMPLETION_INDEX)",
            {"completionMode": "Indexed", "completions": 2, "parallelism": 2},
        )["spec"]
    }
    spec = {"replicatedJobs": [{"name": "workers", "replicas": 2, "template": template}]}
    made = api.ask(
        "POST",
        sets,
        {
            "apiVersion": "jobset.x-k8s.io/v1alpha2",
            "kind": "JobSet",
            "metadata": {"name": "js"},
            "spec": spec,
        },
    )
    assert made.status == 201, made.text
    done = api.until(f"{sets}/js", lambda o: condition(o, "Completed"))
    assert done["status"]["terminalState"] == "Completed"
    assert [j["metadata"]["name"] for j in api.ask("GET", JOBS).json["items"]] == [
        "js-workers-0",
        "js-workers-1",
    ]
    assert api.ask("GET", f"{CORE}/services/js").status == 200
    api.ask("DELETE", f"{sets}/js", {"propagationPolicy": "Background"})
    api.until(JOBS, lambda o: not o["items"])


def test_without_the_add_on_there_are_no_jobsets(api: Client) -> None:
    absent = api.ask("GET", "/apis/jobset.x-k8s.io/v1alpha2/namespaces/default/jobsets")
    assert (absent.status, absent.text) == (404, "404 page not found\n")


def test_a_client_certificate_is_an_account(api: Client, tmp_path: Path) -> None:
    import subprocess

    files = api.cluster.pki.folder
    done = subprocess.run(
        [
            "curl",
            "-s",
            "--cacert",
            files / "ca.crt",
            "--cert",
            files / "client.crt",
            "--key",
            files / "client.key",
            f"{api.cluster.url}{JOBS}",
        ],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert '"kind":"JobList"' in done.stdout, done.stderr


def test_many_jobs_at_once(make_cluster: Callable[..., Cluster]) -> None:
    """200 Jobs come and go; none lost, none left. (bench/ takes 1,000.)"""
    api = Client(make_cluster(tls=False))
    begun = time.monotonic()
    connection = api.connect()
    import json

    for i in range(200):
        connection.request(
            "POST",
            JOBS,
            json.dumps(job(f"n{i}", pod={"automountServiceAccountToken": False})).encode(),
            api.headers({"Content-Type": "application/json"}),
        )
        answer = connection.getresponse()
        assert answer.status == 201, answer.read()
        answer.read()
    posted = time.monotonic() - begun
    api.until(JOBS, lambda o: sum(bool(condition(j, "Complete")) for j in o["items"]) == 200, 120)
    print(f"200 Jobs posted in {posted:.2f} s, done after {time.monotonic() - begun:.2f} s")
    assert api.cluster.call(api.cluster.control.do, "state", {})["containers"] == 0
