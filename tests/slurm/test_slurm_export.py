"""`stoker export slurm-script`: what it writes runs on a real Slurm without an engine."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from slurm_cluster import ROOT, STOKER, Cluster, Project
from waiting import wait_for

OVER = ("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT")


class Exported:
    """A folder of somebody who has Slurm, but no Stoker."""

    def __init__(self, folder: Path, cluster: Cluster) -> None:
        self.folder, self.cluster = folder, cluster

    def submit(self, *words: str, **env: str) -> subprocess.CompletedProcess[str]:
        bare = {
            "PATH": self.cluster.env["PATH"],
            "SLURM_CONF": str(self.cluster.conf),
            "HOME": "/root",
        }
        return subprocess.run(["sh", str(self.folder / "submit.sh"), *words], env={**bare, **env},
                              cwd="/", capture_output=True, text=True, timeout=100)  # fmt: skip

    def wait(self) -> dict[str, str]:
        """How the jobs ended, by step."""
        ids = {p.name: p.read_text().strip() for p in (self.folder / "submitted").iterdir()}
        found: dict[str, str] = {}

        def over() -> bool:
            states = {job["id"]: job["state"] for job in self.cluster.jobs()}
            found.update({step: states[id] for step, id in ids.items()})
            return all(state in OVER for state in found.values())

        wait_for(over, why=lambda: (found, self.logs()))
        return found

    def logs(self) -> str:
        return "\n".join(p.read_text() for p in sorted((self.folder / "logs").glob("*.log")))

    def result(self, path: str) -> str:
        return (self.folder / "results" / path).read_text()


@pytest.fixture(autouse=True)
def nothing_is_left() -> Iterator[None]:
    """Neither where a run was exported nor on the nodes."""
    before = set(Path("/tmp").glob("stoker-export-*"))
    yield
    wait_for(lambda: set(Path("/tmp").glob("stoker-export-*")) <= before)


def export(project: Project, *words: str, moved: bool = True) -> Exported:
    made = project.folder.parent / "made"
    done = project("export", "slurm-script", "--to", str(made), "--with", "lab", *words)
    assert done.returncode == 0, done.stderr + done.stdout
    assert not project.share.exists() and not (project.folder / ".stoker").exists()
    if moved:
        made.rename(made := project.folder.parent / "moved 100%")
        shutil.rmtree(project.folder)
    return Exported(made, project.cluster)


def test_steps(project: Project) -> None:
    """Files and folders reach the later steps, code reaches all, and the folder may be moved."""
    (project.folder / "words.txt").write_text("of the project\n")
    steps = {
        "a": {
            "run": "cat words.txt; echo 42 > $STOKER_OUTPUT/x; mkdir $STOKER_OUTPUT/d; echo deep > $STOKER_OUTPUT/d/f",
            "outputs": ["x", "d"],
        },
        "b": {"run": "cat $STOKER_INPUT_x $STOKER_INPUT_d/f words.txt > $STOKER_OUTPUT/y",
              "inputs": {"x": {"from": "a.x"}, "d": {"from": "a.d"}}, "outputs": ["y"]},
        "c": {"run": "cat $STOKER_INPUT_all/* > $STOKER_OUTPUT/z; echo n=$STOKER_PARAM_n",
              "inputs": {"all": {"from": ["a.x", "b.y"]}, "n": {"param": "n"}}, "outputs": ["z"]},
        "late": {"run": "echo last", "after": ["c"]},
    }  # fmt: skip
    made = export(project, project.document(steps, parameters={"n": 1}), "--param", "n=7")
    done = made.submit()
    assert done.returncode == 0, done.stderr
    assert set(made.wait().values()) == {"COMPLETED"}, made.logs()
    assert made.result("a/x") == "42\n" and made.result("a/d/f") == "deep\n"
    assert made.result("c/z") == "42\n42\ndeep\nof the project\n"
    assert "n=7" in made.logs() and "last" in made.logs()
    twice = made.submit()
    assert twice.returncode == 1 and "--again" in twice.stderr
    assert made.result("c/z"), "a refused submission removed results"
    again = made.submit("--again")
    assert again.returncode == 0, again.stderr
    assert set(made.wait().values()) == {"COMPLETED"} and made.result("a/x") == "42\n"


def test_python(project: Project) -> None:
    """Values of Python steps keep their form on the way."""
    (project.folder / "p.py").write_text(
        "from stoker import pipeline, step\n"
        "@step\ndef one() -> dict:\n    return {'n': 20}\n"
        "@step\ndef two(x: dict, more: int) -> int:\n    print('two', x['n'] + more)\n    return x['n'] + more\n"
        "@pipeline\ndef both():\n    two(one(), 1)\n"
        "if __name__ == '__main__':\n    both()\n"
    )
    made = export(project, "p.py")
    assert made.submit().returncode == 0
    assert set(made.wait().values()) == {"COMPLETED"}, made.logs()
    assert "two 21" in made.logs()
    assert json.loads(made.result("two/output")) == 21


def test_failure(project: Project) -> None:
    """What needs a step that failed never starts, and nothing is left waiting."""
    steps = {"a": {"run": "exit 3", "outputs": ["x"]}, "b": {"run": "true", "inputs": {"x": {"from": "a.x"}}}}  # fmt: skip
    made = export(project, project.document(steps))
    assert made.submit().returncode == 0
    assert made.wait() == {"a": "FAILED", "b": "CANCELLED"}
    assert not (made.folder / "results").exists()


def test_secret(project: Project) -> None:
    """A secret is asked of who submits; without it nothing is submitted."""
    steps = {
        "a": {"run": "true"},
        "b": {"run": 'test "$(printf %s "$TOKEN" | rev)" = enim-fo', "secrets": ["TOKEN"]},
    }
    made = export(project, project.document(steps))
    without = made.submit()
    assert without.returncode != 0 and "step b needs it" in without.stderr
    assert not (made.folder / "submitted").exists()
    assert made.submit(STOKER_SECRET_TOKEN="of-mine").returncode == 0
    assert made.wait()["b"] == "COMPLETED", made.logs()
    found = [p for p in made.folder.rglob("*") if p.is_file() and b"of-mine" in p.read_bytes()]
    assert found == []


def test_two_nodes(project: Project) -> None:
    run = "echo rank $RANK of $WORLD_SIZE on $SLURMD_NODENAME"
    made = export(project, project.document({"g": {"run": run, "gang": {"ranks": 1, "nodes": 2}}}))
    assert made.submit().returncode == 0
    assert made.wait() == {"g": "COMPLETED"}, made.logs()
    logs = "".join(p.read_text() for p in made.folder.glob("runs/*/g/0/1/slurm-*.log"))
    assert "rank 0 of 2" in logs and "rank 1 of 2" in logs, logs


GROWS = {"a": {"run": "true", "next": "b"}, "b": {"run": "true"}}
REFUSED = {
    "grows": (GROWS, "grows while it runs"),
    "hook": ({"a": {"run": "true", "hooks": {"on_end": {"run": "true"}}}}, "hook"),
    "here": ({"a": {"run": "true", "backend": "local"}}, "this machine"),
    "secret": ({"a": {"run": "true", "secrets": ["a.b"]}}, "'a.b'"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(tmp_path: Path, name: str) -> None:
    """Needs no Slurm."""
    steps, word = REFUSED[name]
    (tmp_path / "p.json").write_text(json.dumps({"stoker": 1, "name": "p", "steps": steps}))
    done = subprocess.run([str(STOKER), "export", "slurm-script", "--to", str(tmp_path / "to"), "p.json"],
                          cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(ROOT / "python")},
                          capture_output=True, text=True)  # fmt: skip
    assert done.returncode != 0 and word in done.stderr, done.stderr


def test_folder(tmp_path: Path) -> None:
    (tmp_path / "p.json").write_text(json.dumps({"stoker": 1, "name": "p", "steps": {"a": {"run": "true"}}}))  # fmt: skip
    (full := tmp_path / "full").mkdir()
    (full / "thing").touch()
    for words, word in ((["--to", str(full)], "isn't empty"), ([], "--to"), (["--to", str(tmp_path / "in")], "outside")):  # fmt: skip
        done = subprocess.run([str(STOKER), "export", "slurm-script", *words, "p.json"],
                              cwd=tmp_path, capture_output=True, text=True)  # fmt: skip
        assert done.returncode != 0 and word in done.stderr, done.stderr
