"""Main uses: the digits example with its training in a pod, real torch over two pods, a thousand
pods, an engine killed at any moment."""

from __future__ import annotations

import importlib.util
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from kube import Cluster
from kube_driver import ROOT
from test_pipelines import STOKER, Project, carried  # noqa: F401

KILLS = int(os.environ.get("STOKER_KUBE_KILLS", "8"))
STEPS = int(os.environ.get("STOKER_KUBE_STEPS", "10"))
PODS_AT_ONCE = int(os.environ.get("STOKER_KUBE_PODS", "1000"))
VENV = Path(sys.prefix)
has_torch = pytest.mark.skipif(
    importlib.util.find_spec("torch") is None, reason="torch is not installed"
)


@pytest.fixture
def project(
    make_cluster: Callable[..., Cluster],
    tmp_path: Path,
    carried: Path,  # noqa: F811
) -> Iterator[Project]:
    """As test_pipelines' own, but that images hold this interpreter and its packages."""
    shown = [str(VENV), str(Path(sys.executable).resolve().parents[1])]
    made = Project(
        make_cluster(show=[p for p in shown if not p.startswith("/usr")]), tmp_path, carried
    )
    made.env |= {"PYTHONPATH": str(ROOT / "python"), "STOKER_BIN": str(STOKER)}
    made.env["STOKER_ACCEL"] = "none"
    yield made


def python(project: Project, *words: str, rc: int = 0) -> str:
    done = subprocess.run(
        [sys.executable, *words],
        cwd=project.folder,
        env=project.env,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=200,
    )
    assert done.returncode == rc, done.stdout
    return done.stdout


def digits(project: Project, resources: str) -> None:
    """The example, except for where its training runs and what that asks for."""
    text = (ROOT / "examples/digits/train.py").read_text()
    old = '@step(settings={"resources": ResourceSettings(cpu_count=2, gpu_count=1, memory="4GB")})'
    assert old in text
    new = (
        '@step(step_operator="kubernetes", settings={"resources": ResourceSettings(%s), '
        '"step_operator.kubernetes": {"executable": %r}})' % (resources, sys.executable)
    )
    text = text.replace(old, new).replace('FRAMEWORK = "torch"', 'FRAMEWORK = "scikit-learn"')
    (project.folder / "train.py").write_text(text)


@pytest.mark.slow
def test_digits(project: Project) -> None:
    digits(project, 'cpu_count=1, memory="2GB"')
    python(project, "train.py")
    train, load = project.step("train"), project.step("load")
    assert train["granted"]["backend"] == "kubernetes" and "backend" not in load["granted"]
    assert train["used"]["cpu_s"] > 0 and train["used"]["peak_memory_bytes"] > 10_000_000
    assert project.step("evaluate")["status"] == "succeeded"
    again = python(project, "train.py")
    assert project.step("train")["cached"], again
    project.nothing_left()


@pytest.mark.slow
def test_never_a_silent_run_on_the_cpu(project: Project) -> None:
    """The node grants a GPU, but the container has no device: the step doesn't start."""
    digits(project, "cpu_count=1, gpu_count=1")
    python(project, "train.py", rc=1)
    error = project.step("train")["error"]
    assert error["class"] == "resources" and "GPU" in error["text"], error
    project.nothing_left()


@has_torch
@pytest.mark.slow
@pytest.mark.torch
def test_torch_on_two_nodes(project: Project) -> None:
    """An Indexed Job of two pods: gloo adds up what the ranks have."""
    (project.folder / "add.py").write_text(
        "import torch, torch.distributed as dist\n"
        "dist.init_process_group('gloo')\n"
        "x = torch.ones(3) * (dist.get_rank() + 1)\n"
        "dist.all_reduce(x)\n"
        f"open('{project.shared}/sum-%d' % dist.get_rank(), 'w').write(str(x.tolist()))\n"
        "dist.destroy_process_group()\n"
    )
    run = f"{sys.executable} {project.folder}/add.py"
    project.run({"a": {"run": run, "gang": {"ranks": 1, "nodes": 2}, "timeout": 150}})
    for rank in range(2):
        assert (project.shared / f"sum-{rank}").read_text() == "[3.0, 3.0, 3.0]"
    project.nothing_left()


@pytest.mark.slow
def test_a_thousand_pods(project: Project) -> None:
    """A foreach of 1,000 pods: each once, all values in the join, nothing left."""
    flow = (
        "from stoker.flow import FlowSpec, step, kubernetes\n"
        "class Wide(FlowSpec):\n"
        "    @step\n"
        "    def start(self):\n"
        f"        self.items = list(range({PODS_AT_ONCE}))\n"
        "        self.next(self.work, foreach='items')\n"
        "    @kubernetes(cpu=0.01, memory=16)\n"
        "    @step\n"
        "    def work(self):\n"
        "        self.y = self.input + 1\n"
        f"        open('{project.shared}/ran', 'a').write('%d\\n' % self.input)\n"
        "        self.next(self.join)\n"
        "    @step\n"
        "    def join(self, inputs):\n"
        "        self.total = sum(i.y for i in inputs)\n"
        "        self.next(self.end)\n"
        "    @step\n"
        "    def end(self):\n"
        "        print('total', self.total)\n"
        "if __name__ == '__main__':\n"
        "    Wide()\n"
    )
    (project.folder / "wide.py").write_text(flow)
    stack = (project.folder / "stoker.yaml").read_text()
    (project.folder / "stoker.yaml").write_text(stack.replace('"5s"', '"600s"'))
    done = subprocess.run(
        [
            sys.executable,
            "wide.py",
            "run",
            "--max-workers",
            "16",
            "--max-num-splits",
            str(PODS_AT_ONCE),
        ],
        cwd=project.folder,
        env=project.env,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=800,
    )
    n = PODS_AT_ONCE
    assert done.returncode == 0, done.stdout[-3000:]
    assert f"total {n * (n + 1) // 2}" in done.stdout
    assert sorted(map(int, (project.shared / "ran").read_text().split())) == list(range(n))
    project.nothing_left()


def mixed(project: Project, n: int) -> dict[str, dict[str, object]]:
    """Steps in two chains: pods, gangs as JobSet and as Indexed Job, and local steps. Each writes
    its number once."""
    steps: dict[str, dict[str, object]] = {}
    for i in range(n):
        steps[f"s{i}"] = {
            "run": f"[ ${{RANK:-0}} = 0 ] || exit 0; echo {i} >> {project.shared}/ran; echo {i} > $STOKER_OUTPUT/n",
            "outputs": ["n"],
            "after": [f"s{i - 2}"] if i >= 2 else [],
            "backend": "local" if i % 5 == 4 else "kubernetes",
        }
        if i % 10 in (2, 6):  # one after the other: pods share this machine's ports
            gang = {"ranks": 1, "nodes": 2}
            steps[f"s{i}"] |= {"gang": gang, "backend": {"kubernetes": {"jobset": i % 10 == 2}}}
    return steps


@pytest.mark.slow
@pytest.mark.parametrize("trouble", [False, True], ids=["", "with a server in trouble"])
def test_killed_at_any_moment(project: Project, trouble: bool) -> None:
    """The engine is killed repeatedly while steps run; each runs once.

    In trouble: watches lose and double events and are cut, the API server is restarted, its versions begin anew.
    """
    seed = int(os.environ.get("STOKER_SEED", time.time_ns() % 100000))
    print("STOKER_SEED", seed)
    draw = random.Random(seed)
    steps = mixed(project, STEPS)
    cluster = project.cluster
    cluster.call(cluster.control.do_jobset)
    if trouble:
        watch = {"drop": 0.1, "double": 0.3, "cut_after": 15}
        cluster.call(lambda: cluster.faults.add(match="watch=true", watch=watch))
    engine = project.begin("run", "--with", "kubernetes", project.document(steps))
    kills = 0
    while True:
        time.sleep(draw.uniform(0.05, 1.0))
        if trouble and draw.random() < 0.3:
            cluster.restart(draw.uniform(0.0, 0.2), anew=draw.random() < 0.5)
        if kills < KILLS and engine.poll() is None:
            engine.kill()
            kills += 1
        text, _ = engine.communicate(timeout=200)
        over = engine.returncode == 0 or "has succeeded" in text  # before the kill
        anew = "no runs yet" in text  # it died before it had begun
        if over or not (anew or engine.returncode == -signal.SIGKILL):
            break
        if anew:
            engine = project.begin("run", "--with", "kubernetes", project.folder / "p.yaml")
        else:
            engine = project.begin("resume", "latest")
    print("kills", kills)
    assert over, text
    cluster.call(cluster.faults.clear)
    ran = [int(word) for word in (project.shared / "ran").read_text().split()]
    away = [i for i in ran if i % 5 != 4]
    assert sorted(away) == [i for i in range(STEPS) if i % 5 != 4], (seed, ran)  # each once
    assert set(ran) == set(range(STEPS))
    assert all(project.step(name)["status"] == "succeeded" for name in steps)
    project.run({"last": {"run": "true"}})  # removes what the killed ones couldn't
    project.nothing_left()
