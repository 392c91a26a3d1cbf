"""Steps in images on Slurm: whatever of apptainer, singularity, pyxis and enroot a node has runs them. The programs are
stand-ins (container_programs.py); Slurm is real."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path

import pytest
from container_programs import PROGRAMS, install
from slurm_cluster import Project
from waiting import wait_for

Equip = Callable[..., None]
IMAGE = "127.0.0.1:1/team/train:1.2"  # no registry answers there, so it isn't pinned
NAMES = {"apptainer": IMAGE, "singularity": IMAGE, "pyxis": IMAGE.replace("1/", "1#", 1), "enroot": IMAGE.replace("1/", "1#", 1)}  # fmt: skip


@pytest.fixture
def equip(project: Project, tmp_path: Path) -> Equip:
    """Equips the nodes with programs of these kinds."""

    def put(*kinds: str) -> None:
        install(tmp_path / "programs", *kinds)
        project.env["PATH"] = f"{tmp_path}/programs:{project.env['PATH']}"

    return put


@pytest.mark.parametrize("kind", PROGRAMS)
def test_steps(project: Project, tmp_path: Path, equip: Equip, kind: str) -> None:
    """Found out on the node: code and values reach a step in its image, and what it makes gets out."""
    equip(kind)
    (project.folder / "words.txt").write_text("of the project\n")
    look = "cat /in-image words.txt; [ ! -e /root ] && echo alone; pwd"
    steps = {
        "a": {"run": f"{look}; echo 42 > $STOKER_OUTPUT/x", "outputs": ["x"], "docker": {"parent_image": IMAGE}},
        "b": {"run": "cat /in-image $STOKER_INPUT_x", "inputs": {"x": {"from": "a.x"}}, "backend": {"slurm": {"image": IMAGE}}},
        "plain": {"run": "[ -e /in-image ] || echo on the node"},
    }  # fmt: skip
    done = project.run(steps)
    logs = project.logs()
    assert done.returncode == 0, done.stderr + logs
    for line in (f"a | {NAMES[kind]}", "a | of the project", "a | alone", f"a | {project.folder}", f"b | {NAMES[kind]}", "b | 42", "plain | on the node"):  # fmt: skip
        assert line in logs, (line, logs)
    assert project.show()["steps"]["a"]["granted"]["image"]["name"] == IMAGE
    assert not list((tmp_path / "programs").glob("boxes/*")), "a container is left on the node"
    wait_for(lambda: not project.cluster.jobs("s-", "RUNNING,COMPLETING"))


@pytest.mark.parametrize("kind", PROGRAMS)
def test_secrets(project: Project, tmp_path: Path, equip: Equip, kind: str) -> None:
    """A key of several lines reaches a step in its image, also on two nodes, and no argument, file or log."""
    equip(kind)
    project.env["TMPDIR"] = "/mnt"  # pyxis takes the same paths on all nodes
    key = '--- KEY ---\nit\'s "mine", $HOME `x` = 1\tend\n--- END ---'
    project.env["STOKER_SECRET_KEY"] = key
    look = 'printf %s "$KEY" | md5sum; echo "$KEY"; ! grep -lz \'[m]ine\' /proc/[0-9]*/cmdline 2>&-'
    step = {"run": look, "secrets": ["KEY"], "docker": {"parent_image": IMAGE}}
    steps = {"a": step, "two": {**step, "gang": {"ranks": 1, "nodes": 2}}}
    done = project.run(steps)
    logs = project.logs()
    assert done.returncode == 0, done.stderr + logs
    assert logs.count(hashlib.md5(key.encode()).hexdigest()) == 3 and "mine" not in logs, logs
    files = [p for p in tmp_path.rglob("*") if p.is_file() and "p.json" not in p.name]
    assert [p for p in files if b"mine" in p.read_bytes() and b"END ---" in p.read_bytes()] == []


@pytest.mark.parametrize("kind", PROGRAMS)
def test_cancel(project: Project, tmp_path: Path, equip: Equip, kind: str) -> None:
    """The program in the image gets SIGTERM and its grace."""
    equip(kind)
    run = "trap 'echo told; exit 3' TERM; echo begun; while :; do sleep 0.1; done"
    steps = {"a": {"run": run, "docker": {"parent_image": IMAGE}}}
    engine = project.begin("run", project.document(steps), "--with", "lab")
    wait_for(lambda: "begun" in project.logs(), why=project.cluster.jobs)
    assert project("cancel", "latest").returncode == 0
    engine.communicate(timeout=100)
    assert "told" in project.logs()
    wait_for(lambda: not project.cluster.jobs("-a-0-1", "RUNNING,COMPLETING"))


@pytest.mark.parametrize("kind", ["apptainer", "pyxis"])
def test_two_nodes(project: Project, equip: Equip, kind: str) -> None:
    equip(kind)
    project.say(default_image=IMAGE)
    project.env["TMPDIR"] = "/mnt"  # pyxis takes the same paths on all nodes
    run = "echo rank $RANK of $WORLD_SIZE in $(cat /in-image)"
    done = project.run({"g": {"run": run, "gang": {"ranks": 1, "nodes": 2}}})
    logs = project.logs()
    assert done.returncode == 0, done.stderr + logs
    for rank in range(2):
        assert f"rank {rank} of 2 in {NAMES[kind]}" in logs, logs


def test_no_room_for_our_program(project: Project, tmp_path: Path, equip: Equip) -> None:
    """pyxis: where one node can't take our program, nothing of it stays on the others."""
    equip("pyxis")
    (tmp_path / "nodes").mkdir()
    project.env["TMPDIR"] = str(tmp_path / "nodes")  # one folder for both, which only one can have
    step = {"run": "true", "docker": {"parent_image": IMAGE}, "gang": {"ranks": 1, "nodes": 2}}
    done = project.run({"g": step})
    assert done.returncode != 0 and "exit status 74" in done.stdout + done.stderr
    assert list((tmp_path / "nodes").iterdir()) == []


def test_python_and_gpu(project: Project, equip: Equip) -> None:
    """A Python step takes the image's interpreter and our package; --nv comes with GPUs alone."""
    equip("apptainer")
    project.say(default_image=IMAGE)
    (project.folder / "p.py").write_text(
        "import os\nfrom stoker import ResourceSettings, pipeline, step\n"
        "@step(settings={'resources': ResourceSettings(gpu_count=1)})\n"
        "def one() -> int:\n    print('gpu', os.environ.get('BOX_GPU'), open('/in-image').read())\n    return 20\n"
        "@step\ndef two(x: int) -> None:\n    print('two', x + 1, os.environ.get('BOX_GPU'))\n"
        "@pipeline\ndef both():\n    two(one())\n"
        "if __name__ == '__main__':\n    both()\n"
    )
    done = project("run", "p.py", "--with", "lab")
    logs = project.logs()
    assert done.returncode == 0, done.stderr + logs
    assert "gpu --nv" in logs and IMAGE in logs and "two 21 None" in logs


def test_named(project: Project, equip: Equip) -> None:
    """`container` decides where there are several."""
    equip("apptainer", "enroot")
    steps = {"a": {"run": "cat /in-image", "docker": {"parent_image": IMAGE}, "backend": {"slurm": {"container": "enroot"}}}}  # fmt: skip
    done = project.run(steps)
    assert done.returncode == 0 and NAMES["enroot"] in project.logs(), done.stderr + project.logs()
    steps["a"]["backend"]["slurm"]["container"] = "podman"
    wrong = project.run(steps)
    assert wrong.returncode != 0 and "apptainer, singularity, pyxis or enroot" in wrong.stderr


def test_none(project: Project) -> None:
    """A node without any says so, and what to do."""
    done = project.run({"a": {"run": "true", "docker": {"parent_image": IMAGE}}})
    assert done.returncode == 1
    text = project.show()["steps"]["a"]["error"]["text"]
    assert "has no apptainer, singularity, enroot or pyxis" in text, text
    assert project.show()["steps"]["a"]["attempts"] == 1


def test_refused(project: Project) -> None:
    """Settings that say nothing of an image, and an image that would have to be built."""
    none = project.run({"a": {"run": "true", "docker": {"environment": {"A": "1"}}}})
    assert none.returncode != 0 and "add `parent_image`" in none.stderr
    built = project.run({"a": {"run": "true", "docker": {"parent_image": IMAGE, "requirements": ["x"]}}})  # fmt: skip
    assert built.returncode != 0 and "registry" in built.stderr


def test_array(project: Project, equip: Equip) -> None:
    """Children of an array run in their step's image."""
    equip("apptainer")
    project.say(default_image=IMAGE, options={**project.stack["options"], "array_min": 2})
    (project.folder / "p.py").write_text(
        "from stoker.flow import FlowSpec, step\n"
        "class F(FlowSpec):\n"
        "    @step\n    def start(self):\n        self.todo = [1, 2, 3]; self.next(self.work, foreach='todo')\n"
        "    @step\n    def work(self):\n        self.out = self.input ** 2, open('/in-image').read(); self.next(self.join)\n"
        "    @step\n    def join(self, inputs):\n        self.all = sorted(i.out for i in inputs); self.next(self.end)\n"
        "    @step\n    def end(self):\n        print('sum', sum(x for x, _ in self.all), {y for _, y in self.all})\n"
        "if __name__ == '__main__':\n    F()\n"
    )
    done = project("run", "p.py", "--with", "lab")
    logs = project.logs()
    assert done.returncode == 0, done.stderr + logs
    assert "sum 14" in logs and IMAGE in logs, logs
    ids = project.cluster.ask("squeue", "-h", "--states=all", "-o", "%i %j").splitlines()
    run = next(project.share.glob("runs/*/arrays/*.json")).stem
    assert len([line for line in ids if run in line]) == 3
