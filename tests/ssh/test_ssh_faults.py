"""Machines over SSH when something breaks: hosts that are away, start anew or lose their connection; engines that die;
gangs; and homes that other machines don't have."""

from __future__ import annotations

import importlib.util
import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from ssh_hosts import Lab
from ssh_project import Project
from test_ssh_runs import idle
from waiting import wait_for


def test_two_nodes(project: Project) -> None:
    """A gang gets all of its hosts or none, and its ranks find each other."""
    run = "echo rank $RANK of $WORLD_SIZE at $MASTER_ADDR:$MASTER_PORT on $(hostname)"
    done = project.run({"g": {"run": run, "gang": {"ranks": 1, "nodes": 2}}})
    logs = project.logs()
    assert done.returncode == 0, done.stderr + logs
    assert "rank 0 of 2" in logs and "rank 1 of 2" in logs, logs
    told = [line.split(" at ")[1].split(" on ") for line in logs.splitlines() if " at " in line]
    assert len({at for at, _ in told}) == 1 and len({host for _, host in told}) == 2, logs
    idle(project)


@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed")
@pytest.mark.slow
@pytest.mark.torch
def test_torch_on_two_hosts(project: Project) -> None:
    """gloo adds up what the ranks of both hosts have, over their network."""
    shared = project.lab.shared
    (project.folder / "add.py").write_text(
        "import socket, torch, torch.distributed as dist\n"
        "dist.init_process_group('gloo')\n"
        "x = torch.ones(3) * (dist.get_rank() + 1)\n"
        "dist.all_reduce(x)\n"
        f"open('{shared}/sum-%d' % dist.get_rank(), 'w').write(f'{{x.tolist()}} {{socket.gethostname()}}')\n"
        "dist.destroy_process_group()\n"
    )
    gang = {"ranks": 2, "nodes": 2}
    done = project.run({"a": {"run": f"{sys.executable} add.py", "gang": gang, "timeout": 200}})
    assert done.returncode == 0, done.stderr + project.logs()
    told = [(shared / f"sum-{rank}").read_text().rsplit(" ", 1) for rank in range(4)]
    assert [text for text, _ in told] == ["[10.0, 10.0, 10.0]"] * 4
    assert len({host for _, host in told}) == 2


def test_two_gangs(project: Project) -> None:
    """Each wants both hosts whole: one after the other, and none waits for ever."""
    project.say(hosts=["gpu1", "gpu2"])
    gang = {"gang": {"ranks": 1, "nodes": 2}, "resources": {"gpu_count": 2}}
    steps = {name: {"run": "echo ran $(hostname)", **gang} for name in ("a", "b")}
    done = project.run(steps)
    logs = project.logs()
    assert done.returncode == 0, done.stderr + logs
    assert logs.count("| ran gpu1") + logs.count("ran gpu1") >= 2, logs
    idle(project)


def test_more_nodes_than_hosts(project: Project) -> None:
    done = project.run({"g": {"run": "true", "gang": {"ranks": 1, "nodes": 4}}})
    assert done.returncode == 2 and "4" in done.stderr and "3 hosts" in done.stderr, done.stderr


def test_a_host_is_away(project: Project) -> None:
    """It is left out, with a note."""
    project.lab["gpu1"].halt()
    project.say(store="ssh://gpu2/~/store")
    done = project.run({"a": {"run": "hostname"}})
    assert done.returncode == 0, done.stderr
    assert "a | gpu2" in project.logs() or "a | gpu3" in project.logs()
    assert "gpu1 is away" in done.stderr, done.stderr


def test_cut_and_mended(project: Project) -> None:
    """The job goes on while nobody hears of it, and its end is told once the cable is back."""
    shared = project.lab.shared
    run = f"touch {shared}/begun; until [ -e {shared}/go ]; do sleep 0.1; done; echo x > $STOKER_OUTPUT/x"
    steps = {"a": {"run": run, "outputs": ["x"], "backend": {"ssh": {"host": "gpu1"}}}}
    engine = project.begin("run", project.document(steps), "--with", "lab")
    wait_for((shared / "begun").exists)
    project.lab["gpu1"].cut()
    wait_for(lambda: "is away" in project("show", "latest").stdout)
    (shared / "go").touch()
    project.lab["gpu1"].mend()
    out, err = engine.communicate(timeout=250)
    assert engine.returncode == 0, out + err
    assert project.show()["steps"]["a"]["attempts"] == 1
    idle(project)


def test_rebooted(project: Project) -> None:
    """What ran there is gone, so another attempt runs, and costs the step nothing."""
    shared = project.lab.shared
    run = f"[ $STOKER_ATTEMPT -gt 1 ] || {{ touch {shared}/begun; sleep 300; }}"
    steps = {"a": {"run": run, "backend": {"ssh": {"host": "gpu2"}}}}
    engine = project.begin("run", project.document(steps), "--with", "lab")
    wait_for((shared / "begun").exists)
    project.lab["gpu2"].reboot()
    out, err = engine.communicate(timeout=250)
    assert engine.returncode == 0, out + err
    assert project.show()["steps"]["a"]["attempts"] == 2
    assert "started again" in out + err
    idle(project)


def test_taken_over(project: Project, tmp_path: Path) -> None:
    """Another machine goes on with the run of one that died."""
    shared = project.lab.shared
    run = f"echo once >> {shared}/times; until [ -e {shared}/go ]; do sleep 0.1; done; echo x > $STOKER_OUTPUT/x"
    steps = {"long": {"run": run, "outputs": ["x"]}, "b": {"run": "cat $STOKER_INPUT_x", "inputs": {"x": {"from": "long.x"}}}}  # fmt: skip
    engine = project.begin("run", project.document(steps), "--with", "lab")
    wait_for((shared / "times").exists)
    engine.send_signal(signal.SIGKILL)
    engine.communicate(timeout=60)
    other = Project(tmp_path / "project", project.lab, project.lab.client("other"))
    other.env["STOKER_STORE"] = str(tmp_path / "other-store")
    resumed = other.begin("resume", "latest", "--stack", "lab")
    (shared / "go").touch()
    out, err = resumed.communicate(timeout=250)
    assert resumed.returncode == 0, out + err
    assert (shared / "times").read_text() == "once\n"
    idle(project)


def test_cancelled_without_an_engine(project: Project) -> None:
    shared = project.lab.shared
    engine = project.begin("run", project.document({"a": {"run": f"touch {shared}/begun; sleep 300"}}), "--with", "lab")  # fmt: skip
    wait_for((shared / "begun").exists)
    engine.send_signal(signal.SIGKILL)
    engine.communicate(timeout=60)
    assert project("cancel", "latest").returncode == 0
    idle(project)


def test_beside_a_local_run(project: Project) -> None:
    """Two runs and a `stoker run` of the host's own never share a GPU."""
    shared = project.lab.shared
    project.say(hosts=["gpu1"])
    text = (
        f'd={shared}/busy-$CUDA_VISIBLE_DEVICES; mkdir "$d" || echo shared >> {shared}/wrong; sleep 0.5; rmdir "$d"; '
        f"echo $CUDA_VISIBLE_DEVICES >> {shared}/ran"
    )
    steps = {f"s{i}": {"run": text, "resources": {"gpu_count": 1}} for i in range(3)}
    engines = [project.begin("run", project.document(steps), "--with", "lab") for _ in range(2)]
    carried = project.lab["gpu1"].path("/home/ann/.cache/stoker/far")
    far = wait_for(lambda: next((p for p in carried.glob("*/bin/stoker") if "new" not in p.parts[-3]), None))  # fmt: skip
    own = shared / "own.json"
    own.write_text(json.dumps({"stoker": 1, "name": "own", "steps": steps}))
    program = f"/home/ann/.cache/stoker/far/{far.parts[-3]}"
    words = [f"{program}/bin/ld.so", "--library-path", f"{program}/bin/lib", f"{program}/bin/stoker", "run", str(own)]  # fmt: skip
    local = project.lab["gpu1"].words(
        *words, HOME="/home/ann", STOKER_SYNC="0", STOKER_STORE="/home/ann/own"
    )
    done = subprocess.run(local, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stdout + done.stderr
    for engine in engines:
        out, err = engine.communicate(timeout=250)
        assert engine.returncode == 0, out + err
    assert not (shared / "wrong").exists() and len((shared / "ran").read_text().split()) == 9


def test_a_home_that_the_host_lacks(tmp_path: Path, lab: Lab) -> None:
    """The project's folder can't be made there, so the job sees its own in place of the one above it."""
    for host in lab.hosts.values():
        host.path(str(tmp_path.parent)).mkdir(parents=True)  # root's, which ann can't write
        (host.path(str(tmp_path.parent)) / "there").write_text("a file of the host\n")
    project = Project(tmp_path / "project", lab)
    (project.folder / "words.txt").write_text("from the project\n")
    done = project.run({"a": {"run": "cat words.txt ../../there; pwd"}})
    logs = project.logs()
    assert done.returncode == 0, done.stderr + logs
    for line in ("from the project", "a file of the host", str(project.folder)):
        assert f"a | {line}" in logs, logs


def test_check_and_order(project: Project) -> None:
    """`stack check` tries each host, `plan --manifest` asks none."""
    good = project("stack", "check", "lab")
    assert good.returncode == 0, good.stdout + good.stderr
    for word in (
        "gpu1: reached",
        "gpu2: reached",
        "gpu3: Python: 3",
        "gpu1: 2 simulated GPUs",
        "free where its store is",
    ):
        assert word in good.stdout, good.stdout
    project.lab["gpu3"].halt()
    bad = project("stack", "check", "lab")
    assert bad.returncode == 3 and "gpu3: " in bad.stdout, bad.stdout
    for host in ("gpu1", "gpu2"):
        project.lab[host].halt()
    steps = {"a": {"run": "true", "secrets": ["TOKEN"], "backend": {"ssh": {"host": "gpu2"}}}}
    project.env["STOKER_SECRET_TOKEN"] = "hush-hush"
    made = project("plan", "--with", "lab", "--manifest", project.document(steps))
    assert made.returncode == 0, made.stderr
    order = json.loads(made.stdout[made.stdout.index("\n{") :])
    assert order["hosts"] == ["gpu2"] and order["secrets"] == ["TOKEN"]
    assert "hush" not in made.stdout


def test_options_in_every_front(project: Project) -> None:
    """The same option, the same host; and FILE run by Python itself."""
    (project.folder / "p.yaml").write_text(
        "stoker: 1\nname: p\nsteps:\n  a: {run: hostname, backend: {ssh: {host: gpu2}}}\n"
    )
    (project.folder / "p.py").write_text(
        "import socket\nfrom stoker import pipeline, step\n"
        "@step(settings={'step_operator.ssh': {'host': 'gpu2'}})\ndef a() -> str:\n    print(socket.gethostname())\n    return ''\n"
        "@pipeline\ndef p():\n    a()\nif __name__ == '__main__':\n    p()\n"
    )
    for file in ("p.yaml", "p.py"):
        done = project("run", file, "--with", "lab")
        assert done.returncode == 0, done.stdout + done.stderr
        assert "gpu2" in project.logs(), (file, project.logs())
    done = subprocess.run([sys.executable, "p.py"], cwd=project.folder, capture_output=True, text=True, timeout=200,
                          env={**project.env, "STOKER_RUN_OPTIONS": json.dumps({"with": "lab"})})  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"backend": {"ssh": {"image": "i:1"}}}, "prepare an environment there"),
        ({"backend": {"ssh": {"pyhton": "python3"}}}, "did you mean 'python'?"),
        ({"backend": {"ssh": {"host": "gpu9"}}}, "isn't a host of stack 'lab'"),
        ({"backend": {"ssh": {"port": 22}}}, "ssh://gpu1:2222"),
        ({"docker": {"parent_image": "i:1"}}, "without a container"),
    ],
)
def test_refused(project: Project, settings: dict[str, object], words: str) -> None:
    done = project.run({"a": {"run": "true", **settings}})
    assert done.returncode == 2 and words in done.stderr, done.stderr
