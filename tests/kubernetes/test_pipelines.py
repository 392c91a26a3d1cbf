"""Whole pipelines on the fake cluster, from the command line: `stoker run --with kubernetes`."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import front_tools
import pytest
from kube import Cluster
from kube_client import JOBS, PODS, Client
from kube_driver import ROOT
from stoker_binary import find_binary

STOKER = find_binary()
LEFT = [JOBS, PODS] + [f"/api/v1/namespaces/default/{p}" for p in ("secrets", "services")]
Object = dict[str, Any]


@pytest.fixture(scope="session")
def carried(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return front_tools.carried(tmp_path_factory.mktemp("carried") / "stoker", STOKER)


class Project:
    """A folder with a stoker.yaml whose stack `kubernetes` is the fake cluster; ``shared`` is seen by pods, too."""

    def __init__(self, cluster: Cluster, tmp_path: Path, carried: Path) -> None:
        self.cluster, self.api = cluster, Client(cluster)
        self.folder, self.shared = tmp_path / "project", tmp_path / "shared"
        self.folder.mkdir()
        self.shared.mkdir()
        stack = {
            "backend": "kubernetes",
            "store": str(tmp_path / "store"),
            "default_image": "localhost/bb:1",
            "carry": "volume",
            "carry_volume": str(carried),
            "pending": "300s",
            "options": {
                "volumes": [{"name": "shared", "hostPath": {"path": str(self.shared)}}],
                "volume_mounts": [{"name": "shared", "mountPath": str(self.shared)}],
                "node_lost_seconds": 1,
            },
        }
        (tmp_path / "store").mkdir()
        (self.folder / "stoker.yaml").write_text(json.dumps({"stacks": {"kubernetes": stack}}))
        config = cluster.kubeconfig(tmp_path / "kubeconfig")
        self.env = {**os.environ, "KUBECONFIG": str(config), "STOKER_HOME": str(tmp_path / "home")}

    def document(self, steps: Object, **more: Any) -> Path:
        path = self.folder / "p.yaml"
        path.write_text(json.dumps({"stoker": 1, "name": "p", "steps": steps, **more}))
        return path

    def begin(self, *words: str | Path) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [STOKER, *words],
            cwd=self.folder,
            env=self.env,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )

    def __call__(self, *words: str | Path, rc: int = 0) -> str:
        process = self.begin(*words)
        text, _ = process.communicate(timeout=200)
        assert process.returncode == rc, text
        return text

    def run(self, steps: Object, rc: int = 0, **more: Any) -> str:
        return self("run", "--with", "kubernetes", self.document(steps, **more), rc=rc)

    def step(self, name: str) -> Object:
        found: Object = json.loads(self("show", "latest", "--json"))["steps"][name]
        return found

    def nothing_left(self) -> None:
        for path in LEFT:
            self.api.until(path, lambda o: not [i for i in o["items"] if "stoker" in json.dumps(i)])

    def pod(self, step: str) -> str:
        path = f"{PODS}?labelSelector=stoker.step%3D{step}"
        listed = self.api.until(
            path, lambda o: [i for i in o["items"] if i["status"].get("phase") == "Running"]
        )
        return str(listed["items"][-1]["metadata"]["name"])

    def wait(self, name: str, test: Callable[[str], bool] = bool) -> str:
        """Until ``shared``/``name`` passes the test; its text."""
        end = time.monotonic() + 60
        path = self.shared / name
        while not (path.exists() and test(path.read_text())):
            assert time.monotonic() < end, name
            time.sleep(0.02)
        return path.read_text()


@pytest.fixture
def project(cluster: Cluster, tmp_path: Path, carried: Path) -> Iterator[Project]:
    yield Project(cluster, tmp_path, carried)


@pytest.mark.tsan
def test_there_and_back(project: Project) -> None:
    steps = {
        "a": {"run": "echo 42 > $STOKER_OUTPUT/n; echo on $(hostname)", "outputs": ["n"]},
        "b": {"run": "cat $STOKER_INPUT_n", "inputs": {"n": {"from": "a.n"}}},
        "c": {"run": "cat $STOKER_INPUT_n", "inputs": {"n": {"from": "a.n"}}, "backend": "local"},
    }
    project.run(steps)
    assert project.step("a")["granted"]["backend"] == "kubernetes"
    for name in ("b", "c"):
        assert Path(project.step(name)["logs"]["stdout"]).read_text() == "42\n"
    assert "on s-" in Path(project.step("a")["logs"]["stdout"]).read_text()
    project.nothing_left()


def test_python(project: Project) -> None:
    """A flow with a foreach: branches are pods, and their values reach the join."""
    (project.folder / "flow.py").write_text(
        "from stoker.flow import FlowSpec, step\n"
        "class Squares(FlowSpec):\n"
        "    @step\n"
        "    def start(self):\n"
        "        self.numbers = list(range(12))\n"
        "        self.next(self.square, foreach='numbers')\n"
        "    @step\n"
        "    def square(self):\n"
        "        self.result = self.input ** 2\n"
        "        self.next(self.join)\n"
        "    @step\n"
        "    def join(self, inputs):\n"
        "        self.total = sum(i.result for i in inputs)\n"
        "        self.next(self.end)\n"
        "    @step\n"
        "    def end(self):\n"
        "        print('total', self.total)\n"
        "if __name__ == '__main__':\n"
        "    Squares()\n"
    )
    env = {**project.env, "PYTHONPATH": str(ROOT / "python"), "STOKER_BIN": str(STOKER)}
    done = subprocess.run(
        [sys.executable, "flow.py", "run", "--with", "kubernetes"],
        cwd=project.folder,
        env=env,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    assert done.returncode == 0, done.stdout
    assert "total 506" in done.stdout
    project.nothing_left()


def test_packages_of_its_own(project: Project) -> None:
    """An environment of ``@pypi`` is on this machine only, so its step is refused before any begins."""
    (project.folder / "flow.py").write_text(
        "from stoker.flow import FlowSpec, kubernetes, pypi, step\n"
        "class Own(FlowSpec):\n"
        "    @pypi(disabled=True)\n"
        "    @step\n"
        "    def start(self):\n"
        "        print('it began')\n"
        "        self.next(self.there)\n"
        "    @kubernetes\n"
        "    @pypi(packages={})\n"
        "    @step\n"
        "    def there(self):\n"
        "        self.next(self.end)\n"
        "    @step\n"
        "    def end(self):\n"
        "        pass\n"
        "if __name__ == '__main__':\n"
        "    Own()\n"
    )
    env = {**project.env, "PYTHONPATH": str(ROOT / "python"), "STOKER_BIN": str(STOKER)}
    done = subprocess.run(
        [sys.executable, "flow.py", "--environment=pypi", "run"],
        cwd=project.folder,
        env={**env, "XDG_CACHE_HOME": str(project.folder / "cache")},
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    assert done.returncode != 0, done.stdout
    made = f"{project.folder}/cache/stoker/environments/"
    told = f"step 'there' has packages of its own ({made}"
    assert told in done.stdout and "which only this machine has" in done.stdout, done.stdout
    assert "name an image that has the packages" in done.stdout, done.stdout
    assert "it began" not in done.stdout
    project.nothing_left()


def test_many_at_once(project: Project) -> None:
    n = int(os.environ.get("STOKER_KUBE_PODS", "60"))
    project.run({f"s{i}": {"run": f"echo {i} >> {project.shared}/ran"} for i in range(n)})
    ran = (project.shared / "ran").read_text().split()
    assert sorted(map(int, ran)) == list(range(n))  # each once
    project.nothing_left()


@pytest.mark.parametrize(
    "faults",
    [
        [{"match": ".", "status": 503, "chance": 0.2, "times": 200}],
        [{"match": "^(POST|DELETE)", "cut": "before", "after": True, "chance": 0.4, "times": 40}],
        [{"match": "watch=true", "watch": {"drop": 0.2, "double": 0.3, "cut_after": 20}}],
    ],
    ids=["storm", "answers lost", "events lost and doubled"],
)
def test_faults(project: Project, faults: list[Object]) -> None:
    for fault in faults:
        project.cluster.call(lambda f=fault: project.cluster.faults.add(**f))
    n = 20
    project.run({f"s{i}": {"run": f"echo {i} >> {project.shared}/ran"} for i in range(n)})
    project.cluster.call(project.cluster.faults.clear)
    assert sorted(map(int, (project.shared / "ran").read_text().split())) == list(range(n))
    project.nothing_left()


@pytest.mark.tsan
def test_ctrl_c_leaves_nothing(project: Project) -> None:
    steps = {f"s{i}": {"run": f"echo up >> {project.shared}/up; sleep 600"} for i in range(5)}
    engine = project.begin("run", "--with", "kubernetes", project.document(steps))
    project.wait("up", lambda text: len(text.split()) == 5)
    engine.send_signal(signal.SIGINT)
    text, _ = engine.communicate(timeout=100)
    assert engine.returncode == 130, text
    project.nothing_left()


def test_engine_killed_and_resumed(project: Project) -> None:
    """Its tasks continue without it, and the next engine finds them: nothing runs twice."""
    run = f"echo up >> {project.shared}/up; until [ -e {project.shared}/go ]; do sleep 0.1; done; echo done >> {project.shared}/ends"
    steps = {
        **{f"s{i}": {"run": run} for i in range(4)},
        "last": {"run": "true", "after": [f"s{i}" for i in range(4)]},
    }
    engine = project.begin("run", "--with", "kubernetes", project.document(steps))
    project.wait("up", lambda text: len(text.split()) == 4)
    engine.kill()
    engine.wait()
    (project.shared / "go").touch()
    project.wait("ends")
    project("resume", "latest")
    assert len((project.shared / "up").read_text().split()) == 4
    assert len((project.shared / "ends").read_text().split()) == 4
    assert project.step("last")["status"] == "succeeded"
    assert project.step("s0")["attempts"] == 1
    project.nothing_left()


def test_engine_killed_and_cancelled(project: Project) -> None:
    """One Job runs, the other waits for a node: both are gone before the run is recorded as cancelled."""
    steps = {
        "runs": {"run": f"echo up >> {project.shared}/up; sleep 600"},
        "waits": {"run": "true", "resources": {"gpu_count": 64}},
    }
    engine = project.begin("run", "--with", "kubernetes", project.document(steps))
    project.wait("up")
    project.api.until(JOBS, lambda o: len(o["items"]) == 2)
    engine.kill()
    engine.wait()
    assert ": cancelled" in project("cancel", "latest")
    assert {project.step(name)["status"] for name in steps} == {"cancelled"}
    project.nothing_left()


def test_what_a_dead_engine_left(project: Project) -> None:
    """Jobs whose ends are on record, and that nobody removed: the next run's end does, and nobody else's."""
    project.cluster.call(project.cluster.control.do_jobset)
    steps = {"a": {"run": "true"}, "g": {"run": "true", "gang": {"ranks": 1, "nodes": 2}}}
    kept = {"k": {"run": "true", "backend": {"kubernetes": {"keep": True}}}}
    project.cluster.call(lambda: project.cluster.faults.add(match="^DELETE", status=403))
    project.run({**steps, **kept})
    project.cluster.call(project.cluster.faults.clear)

    def names() -> set[str]:
        items = project.api.ask("GET", JOBS).json["items"]
        return {i["metadata"]["name"].split("-", 2)[2] for i in items}

    assert names() == {"a-0-1", "g-0-1-n-0", "k-0-1"}
    other = project.api.ask("GET", JOBS).json["items"][0]
    meta = {k: other["metadata"][k] for k in ("labels", "annotations")}
    meta["labels"] = {"app.kubernetes.io/managed-by": "stoker", "stoker.run": "r-of-another"}
    spec = {"template": {"spec": other["spec"]["template"]["spec"]}}
    body = {"metadata": {**meta, "name": "s-x-other-0-1"}, "spec": spec}
    assert (
        project.api.ask("POST", JOBS, {"apiVersion": "batch/v1", "kind": "Job", **body}).status
        == 201
    )
    stumbles = {"match": "labelSelector=app|^DELETE", "status": 503, "times": 2}
    project.cluster.call(lambda: project.cluster.faults.add(**stumbles))
    project.run({"b": {"run": "true"}})
    project.api.until(JOBS, lambda o: len(o["items"]) == 2)
    assert names() == {"k-0-1", "other-0-1"}


# --- what goes wrong with one step, and what is said


def attempt_twice(project: Project) -> str:
    """A step that waits in its first attempt, and succeeds in the second."""
    up = project.shared / "up"
    return f"echo up >> {up}; [ $(wc -l < {up}) -gt 1 ] && exit 0; sleep 600"


def test_preempted_is_not_charged(project: Project) -> None:
    engine = project.begin(
        "run", "--with", "kubernetes", project.document({"a": {"run": attempt_twice(project)}})
    )
    project.wait("up")
    project.cluster.call(project.cluster.control.do_preempt, project.pod("a"))
    text, _ = engine.communicate(timeout=100)
    assert engine.returncode == 0, text
    assert "preempted" in text
    assert project.step("a")["attempts"] == 2
    project.nothing_left()


def test_node_lost(project: Project) -> None:
    engine = project.begin(
        "run", "--with", "kubernetes", project.document({"a": {"run": attempt_twice(project)}})
    )
    project.wait("up")
    pod = project.api.ask("GET", f"{PODS}/{project.pod('a')}").json
    project.cluster.call(project.cluster.nodes.lose, pod["spec"]["nodeName"])
    text, _ = engine.communicate(timeout=180)
    assert engine.returncode == 0, text
    assert f"node {pod['spec']['nodeName']} is lost" in text
    assert project.step("a")["attempts"] == 2


def failure(project: Project, step: Object) -> Object:
    stacks = project.folder / "stoker.yaml"
    stacks.write_text(stacks.read_text().replace("300s", "5s"))
    project.run({"a": step}, rc=1)
    found: Object = project.step("a")
    project.nothing_left()
    return found


def test_image_that_cant_be_pulled(project: Project) -> None:
    k8s = {"kubernetes": {"image": "registry.invalid/x:1"}}
    found = failure(project, {"run": "true", "backend": k8s})
    assert found["error"]["class"] == "start"
    assert "can't pull its image" in found["error"]["text"]


def test_no_node_for_it(project: Project) -> None:
    found = failure(project, {"run": "true", "resources": {"gpu_count": 64}})
    assert found["error"]["class"] == "resources"
    assert "Insufficient nvidia.com/gpu" in found["error"]["text"]


def test_claim_of_the_store_that_is_not_there(project: Project) -> None:
    """The option is named, by the step's failure and by the check."""
    stacks = project.folder / "stoker.yaml"
    stacks.write_text(stacks.read_text().replace('"carry"', '"store_volume": "pvc:no", "carry"', 1))
    found = failure(project, {"run": "true"})
    assert 'persistentvolumeclaim "no" not found' in found["error"]["text"]
    assert "store_volume" in found["error"]["text"]
    told = project("stack", "check", "kubernetes", rc=3)
    assert "PersistentVolumeClaim 'no' doesn't exist (store_volume)" in told


@pytest.mark.parametrize("cpus", [0.1, 0.5])
def test_part_of_a_cpu(project: Project, cpus: float) -> None:
    """What was granted is told, not the CPUs of the node."""
    project.run({"a": {"run": "true", "resources": {"cpu_count": cpus}}})
    assert project.step("a")["granted"]["cpu_count"] == cpus


def test_its_own_failure(project: Project) -> None:
    found = failure(project, {"run": "echo no >&2; exit 3"})
    assert (found["error"]["class"], found["attempts"]) == ("exit", 1)


def test_gang_on_two_nodes(project: Project) -> None:
    """Two pods, each with a launcher and its rank, meet by the name of the first."""
    run = (
        f"echo rank $RANK of $WORLD_SIZE node $NODE_RANK at $MASTER_ADDR >> {project.shared}/ranks"
    )
    project.run({"a": {"run": run, "gang": {"ranks": 1, "nodes": 2}}})
    lines = sorted((project.shared / "ranks").read_text().splitlines())
    assert [line.rsplit(" ", 2)[0] for line in lines] == [
        "rank 0 of 2 node 0",
        "rank 1 of 2 node 1",
    ]
    project.nothing_left()


def test_gang_without_cluster_dns(
    make_cluster: Callable[..., Cluster], tmp_path: Path, carried: Path
) -> None:
    """Its failure names the name that nobody can resolve, not the node that is missing because of it."""
    project = Project(make_cluster(dns=False), tmp_path, carried)
    wait = {"kubernetes": {"hostname_resolution_timeout": 2}}
    project.run({"a": {"run": "true", "gang": {"ranks": 1, "nodes": 2}, "backend": wait}}, rc=1)
    for said in (project.step("a")["error"]["text"], project("why", "latest/a")):
        assert "-a-0-1-0.s-" in said and "can't be resolved" in said and "cluster DNS" in said
        assert "--node-rank" not in said and "is missing" not in said
    project.nothing_left()


def test_gang_is_a_jobset(project: Project) -> None:
    """Where the cluster has that; what is planned is what is submitted."""
    steps: Object = {"a": {"run": "true", "gang": {"ranks": 1, "nodes": 2}}}
    doc = project.document(steps)
    plan = ["plan", "--with", "kubernetes", "--manifest"]
    text = project(*plan, doc)
    assert (
        "# step 'a' is an Indexed Job: https://127.0.0.1" in text and "doesn't have JobSet" in text
    )
    assert '"kind": "Service"' in text and '"kind": "JobSet"' not in text
    project.cluster.call(project.cluster.control.do_jobset)
    text = project(*plan, doc)
    assert "# step 'a' is a JobSet: https://127.0.0.1" in text
    assert '"kind": "JobSet"' in text and '"kind": "Service"' not in text
    project("run", "--with", "kubernetes", doc)
    made = [s for s in project.cluster.store.changes if s.type == "ADDED"]
    assert [s.obj["kind"] for s in made if s.shelf.startswith("jobset")] == ["JobSet"]
    project.nothing_left()
    project.env["KUBECONFIG"] = str(project.folder / "none")
    text = project(*plan, doc)
    assert "if the cluster has that, else an Indexed Job; the cluster doesn't answer: " in text
    assert '"kind": "Service"' in text


DDP = """\
import os, sys, torch, torch.distributed as dist
dist.init_process_group("gloo")
x = torch.tensor([float(dist.get_rank() + 1)])
dist.all_reduce(x)
open(sys.argv[1] + "/sum-" + os.environ["RANK"], "w").write(f"{x.item()} of {dist.get_world_size()}")
dist.destroy_process_group()
"""


def test_torch_on_two_nodes(
    make_cluster: Callable[..., Cluster], tmp_path: Path, carried: Path
) -> None:
    """A real process group over an Indexed Job: the ranks of two pods add up what they have."""
    pytest.importorskip("torch", reason="needs torch")
    shown = {str(Path(p).resolve()) for p in (sys.prefix, sys.base_prefix)} | {sys.prefix}
    project = Project(make_cluster(show=sorted(shown)), tmp_path, carried)
    (project.shared / "ddp.py").write_text(DDP)
    run = f"{sys.executable} {project.shared}/ddp.py {project.shared}"
    project.run({"a": {"run": run, "gang": {"ranks": 1, "nodes": 2}}})
    for rank in (0, 1):
        assert (project.shared / f"sum-{rank}").read_text() == "3.0 of 2"
    project.nothing_left()


def test_options_of_a_step(project: Project) -> None:
    """Unsupported options are reported before anything starts."""
    k8s = {"kubernetes": {"node_selektor": "a=b"}}
    text = project.run({"a": {"run": "true", "backend": k8s}}, rc=2)
    assert "did you mean 'node_selector'?" in text
    assert project.api.ask("GET", JOBS).json["items"] == []
