"""Whole runs on a real Slurm, from the command line: steps are batch jobs, which get program, inputs
and code only from the shared folder."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from pathlib import Path

from slurm_cluster import ROOT, Cluster, Project
from stack_project import check_how_it_failed, check_python, check_two_steps
from waiting import wait_for


def test_two_steps(project: Project) -> None:
    """And a second run is cached."""
    check_two_steps(project, "$SLURM_JOB_ID", cpu_count=2)
    jobs = project.cluster.jobs("s-")
    a = project.cluster.jobs("-a-0-1")[0]
    told = project.cluster.ask("scontrol", "show", "job", "-o", a["id"])
    assert "NumCPUs=2" in told and "MinMemoryNode=300M" in told and "step a" in told
    again = project("run", "p.json", "--with", "lab")
    assert again.returncode == 0 and len(project.cluster.jobs("s-")) == len(jobs)


def test_python(project: Project) -> None:
    check_python(project)
    assert len({job["name"] for job in project.cluster.jobs("-two-")}) >= 1


def test_gpus(project: Project) -> None:
    """The environment has as many GPUs as the step asks for, on a node that has them."""
    seen = "echo gpus=$CUDA_VISIBLE_DEVICES; echo slurm=$SLURM_JOB_GPUS; echo node=$SLURMD_NODENAME"
    steps = {
        "two": {"run": seen, "resources": {"gpu_count": 2, "gpu_class": "A100"}},
        "none": {"run": "echo gpus=$CUDA_VISIBLE_DEVICES."},
    }
    done = project.run(steps)
    logs = project.logs()
    assert done.returncode == 0, done.stderr + logs
    assert "slurm=0,1" in logs and "node=n1" in logs and "gpus=." in logs, logs
    two = project.show()["steps"]["two"]
    assert len(two["granted"]["devices"]) == 2


def test_how_it_failed(project: Project) -> None:
    check_how_it_failed(project)


def test_what_no_node_has(project: Project) -> None:
    """Slurm refuses it, or lets it wait, for no longer than the stack says."""
    project.say(pending="1s")
    steps = {
        "big": {"run": "true", "resources": {"cpu_count": 1000}},
        "odd": {"run": "true", "resources": {"gpu_count": 1, "gpu_class": "H100"}},
    }
    done = project("run", project.document(steps, mode="continue_on_failure"), "--with", "lab")
    assert done.returncode == 1
    told = project.show()["steps"]
    for step, word in (("big", "PartitionConfig"), ("odd", "sbatch")):
        assert told[step]["error"]["class"] == "resources" and word in told[step]["error"]["text"]
        assert told[step]["attempts"] == 1
    project.cluster.wait_for_job("-big-0-1", "CANCELLED")


def test_cancel(project: Project, tmp_path: Path) -> None:
    """The program gets SIGTERM and its grace, and nothing is left running."""
    begun, told = tmp_path / "begun", tmp_path / "told"
    run = f"trap 'touch {told}; exit 3' TERM; touch {begun}; while :; do sleep 0.1; done"
    engine = project.begin("run", project.document({"a": {"run": run}}), "--with", "lab")
    wait_for(begun.exists, why=project.cluster.jobs)
    assert project("cancel", "latest").returncode == 0
    engine.communicate(timeout=100)
    assert engine.returncode != 0 and told.exists()
    project.cluster.wait_for_job("-a-0-1", "FAILED", "CANCELLED", "COMPLETED")


def test_engine_killed(project: Project, tmp_path: Path) -> None:
    """`resume` finds the job that goes on, and submits no other."""
    go = tmp_path / "go"
    run = f"echo once >> {tmp_path}/times; until [ -e {go} ]; do sleep 0.1; done; echo x > $STOKER_OUTPUT/x"
    steps = {"long": {"run": run, "outputs": ["x"]}}
    engine = project.begin("run", project.document(steps), "--with", "lab")
    wait_for((tmp_path / "times").exists, why=project.cluster.jobs)
    engine.send_signal(signal.SIGKILL)
    engine.communicate(timeout=60)
    resumed = project.begin("resume", "latest", "--with", "lab")
    go.touch()
    out, err = resumed.communicate(timeout=200)
    assert resumed.returncode == 0, out + err
    assert (tmp_path / "times").read_text() == "once\n"
    jobs = [j for j in project.cluster.jobs("-long-0-") if j["name"].endswith("-1")]
    assert project.show()["steps"]["long"]["attempts"] == 1 and len(jobs) == 1


def test_killed_between_sbatch_and_its_word(project: Project, tmp_path: Path) -> None:
    """Slurm has the job, and the engine never heard its number: `resume` knows it by its name."""
    project.env["STOKER_FAILPOINTS"] = "slurm.submit.after:1:kill"
    run = f"echo once >> {tmp_path}/times"
    engine = project("run", project.document({"only": {"run": run}}), "--with", "lab")
    assert engine.returncode == -signal.SIGKILL, engine.stderr
    del project.env["STOKER_FAILPOINTS"]
    resumed = project("resume", "latest", "--with", "lab")
    assert resumed.returncode == 0, resumed.stderr
    assert (tmp_path / "times").read_text() == "once\n"
    assert len(project.cluster.jobs("-only-0-1")) == 1


def test_node_fails(project: Project, tmp_path: Path) -> None:
    """Another attempt runs on another node, and costs the step nothing."""
    begun = tmp_path / "begun"
    run = f"[ $STOKER_ATTEMPT -gt 1 ] || {{ echo $SLURMD_NODENAME > {begun}; sleep 300; }}"
    engine = project.begin("run", project.document({"a": {"run": run}}), "--with", "lab")
    wait_for(lambda: begun.exists() and begun.read_text().strip(), why=project.cluster.jobs)
    node = begun.read_text().strip()
    project.cluster.ask("scontrol", "update", f"NodeName={node}", "State=DOWN", "Reason=test")
    out, err = engine.communicate(timeout=200)
    project.cluster.ask("scontrol", "update", f"NodeName={node}", "State=RESUME")
    assert engine.returncode == 0, out + err
    assert project.show()["steps"]["a"]["attempts"] == 2
    assert "one of its nodes failed" in err + out + project("why", "latest", "a").stdout


def test_preempted(project: Project, tmp_path: Path) -> None:
    """A job of another partition takes the nodes: the attempt isn't charged and keeps its checkpoint."""
    begun = tmp_path / "begun"
    run = (
        f"[ $STOKER_ATTEMPT -gt 1 ] || {{ mkdir -p $STOKER_CHECKPOINT_DIR; echo 7 > $STOKER_CHECKPOINT_DIR/epoch; touch {begun}; exec sleep 300; }}; "
        "echo resumed at $(cat $STOKER_CHECKPOINT_DIR/epoch)"
    )
    steps = {"a": {"run": run, "resources": {"cpu_count": 8}, "backend": {"slurm": {"flags": ["--nodelist=n3"]}}}}  # fmt: skip
    engine = project.begin("run", project.document(steps), "--with", "lab")
    wait_for(begun.exists, why=project.cluster.jobs)
    wait_for(lambda: list(project.share.glob("runs/*/a/0/checkpoints.json")))
    urgent = ["sbatch", "--partition=urgent", "--nodelist=n3", "--exclusive", "--output=/dev/null", "--wrap=true"]  # fmt: skip
    project.cluster.ask(*urgent)
    out, err = engine.communicate(timeout=200)
    assert engine.returncode == 0, out + err
    assert project.show()["steps"]["a"]["attempts"] == 2 and "resumed at 7" in project.logs()


def test_controller_restarted(project: Project, tmp_path: Path) -> None:
    """Jobs go on without the controller, and the run waits for it."""
    go = tmp_path / "go"
    steps = {
        "a": {"run": f"until [ -e {go} ]; do sleep 0.1; done; echo 1 > $STOKER_OUTPUT/x", "outputs": ["x"]},
        "b": {"run": "cat $STOKER_INPUT_x", "inputs": {"x": {"from": "a.x"}}},
    }  # fmt: skip
    engine = project.begin("run", project.document(steps), "--with", "lab")
    project.cluster.wait_for_job("-a-0-1", "RUNNING")
    project.cluster.stop("slurmctld")
    go.touch()
    wait_for(lambda: list(project.share.glob("runs/*/a/0/1/end.json")))
    project.cluster.start_controller()
    out, err = engine.communicate(timeout=200)
    assert engine.returncode == 0, out + err
    assert project.show()["steps"]["a"]["attempts"] == 1


def test_secrets(project: Project) -> None:
    """A secret reaches the step, and neither the script nor a file of the share has it."""
    project.env["STOKER_SECRET_TOKEN_OF_MINE"] = "very-secret-indeed"
    run = 'test "$(printf %s "$TOKEN_OF_MINE" | rev)" = deedni-terces-yrev'
    done = project.run({"a": {"run": run, "secrets": ["TOKEN_OF_MINE"]}})
    assert done.returncode == 0, done.stderr + project.logs()
    (job,) = project.cluster.jobs("-a-0-1")[:1]
    script = project.cluster.ask("scontrol", "write", "batch_script", job["id"], "-")
    assert "--export" in script and "very-secret" not in script
    found = [p for p in project.share.rglob("*") if p.is_file() and b"very-secret" in p.read_bytes()]  # fmt: skip
    assert found == []


def test_two_nodes(project: Project) -> None:
    """A gang gets all of its nodes or none, and its ranks find each other."""
    run = "echo rank $RANK of $WORLD_SIZE at $MASTER_ADDR:$MASTER_PORT on $SLURMD_NODENAME; sleep 1"
    done = project.run({"g": {"run": run, "gang": {"ranks": 1, "nodes": 2}}})
    logs = project.logs()
    assert done.returncode == 0, done.stderr + logs
    assert done.stdout.count(" of 2 at ") == 2, done.stdout  # each once, live or at the end
    assert "rank 0 of 2" in logs and "rank 1 of 2" in logs, logs
    at = {line.split(" at ")[1].split(" on ")[0] for line in logs.splitlines() if " at " in line}
    assert len(at) == 1 and not at.pop().startswith(":")


def test_reasons(project: Project, tmp_path: Path) -> None:
    """A job that waits says why, with Slurm's own word."""
    go = tmp_path / "go"
    waits = f"until [ -e {go} ]; do sleep 0.1; done"
    licensed = {"run": waits, "backend": {"slurm": {"licenses": "matlab:1"}}}
    then = {f"after_{name}": {"run": "true", "after": [name]} for name in "ab"}
    document = project.document({"a": licensed, "b": {**licensed, "after": []}, **then})
    engine = project.begin("run", document, "--with", "lab")
    wait_for(lambda: "(Licenses)" in project("why", "latest").stdout + project("show", "latest").stdout)  # fmt: skip
    assert "which waits itself: the licences" in project("why", "latest").stdout
    engine.terminate()
    engine.communicate(timeout=60)
    why = project("why", "latest").stdout
    assert why.count("was under way when the run's engine ended; it runs on slurm") == 2, why
    go.touch()
    done = project("resume", "latest")
    assert done.returncode == 0, done.stderr


def test_foreach(project: Project) -> None:
    """Every task of a foreach is a job, and none is lost or doubled."""
    (project.folder / "p.py").write_text(
        "from stoker.flow import FlowSpec, step\n"
        "class F(FlowSpec):\n"
        "    @step\n    def start(self):\n        self.todo = list(range(3)); self.next(self.work, foreach='todo')\n"
        "    @step\n    def work(self):\n        self.out = self.input ** 2; self.next(self.join)\n"
        "    @step\n    def join(self, inputs):\n        self.all = sorted(i.out for i in inputs); self.next(self.end)\n"
        "    @step\n    def end(self):\n        print('sum', sum(self.all))\n"
        "if __name__ == '__main__':\n    F()\n"
    )
    done = project("run", "p.py", "--with", "lab")
    assert done.returncode == 0, done.stderr + done.stdout
    assert f"sum {sum(i * i for i in range(3))}" in project.logs()
    names = [job["name"] for job in project.cluster.jobs("-work-")]
    assert len(names) == len(set(names)) == 3


def test_another_user(slurm: Cluster) -> None:
    """Who isn't root has a view of the file system by a user namespace."""
    nobody = 65534
    (home := slurm.folder / "home").mkdir()
    (folder := home / "project").mkdir()
    project = Project(folder, slurm, home / "share")
    for path in (home, folder, folder / "stoker.yaml"):
        os.chown(path, nobody, nobody)
    project.env |= {"HOME": str(project.folder), "USER": "nobody", "LOGNAME": "nobody"}
    document = project.document({"a": {"run": "id -u; cat p.json | head -c 1; echo; touch mine"}})
    engine = project.begin("run", document, "--with", "lab", user=nobody, group=nobody)
    out, err = engine.communicate(timeout=200)
    assert engine.returncode == 0, out + err
    logs = subprocess.run([str(project.env["STOKER_BIN"]), "logs", "latest"], cwd=project.folder, env=project.env,
                          user=nobody, group=nobody, capture_output=True, text=True)  # fmt: skip
    assert f"a | {nobody}" in logs.stdout, logs.stdout + logs.stderr
    assert not (project.folder / "mine").exists()


def test_program_in_the_store(project: Project) -> None:
    """Jobs start it there. What a cluster removed of it is laid out again by the next run; a job that finds none unpacks."""
    step = {"run": "echo is $(stat -c %i /stoker/bin/stoker)"}
    assert project.run({"a": step}).returncode == 0
    (laid,) = (path for path in (project.share / "carry").iterdir() if path.is_dir())
    inode = (laid / "bin/stoker").stat().st_ino
    assert f"is {inode}" in project.logs()
    (laid / "python/stoker/_base/binary.py").unlink()
    assert project("run", "p.json", "--with", "lab", "--no-cache").returncode == 0
    assert (laid / "python/stoker/_base/binary.py").exists()
    (laid / "python/stoker/__pycache__").mkdir(exist_ok=True)  # as a job's interpreter does
    inode = (laid / "bin/stoker").stat().st_ino
    assert project("run", "p.json", "--with", "lab", "--no-cache").returncode == 0
    assert f"is {inode}" in project.logs(), "it was laid out anew without need"
    remove = {"run": f"rm -r {laid}", "backend": "local"}
    assert project.run({"first": remove, "b": {**step, "after": ["first"]}}).returncode == 0
    logs = project.logs()
    assert "is " in logs and f"is {inode}" not in logs and not laid.exists()
    (left,) = (project.share / "carry").glob(".*")  # a job of an earlier run might use it
    assert not (left / "old/python/stoker/_base/binary.py").exists() and (left / "old/bin").is_dir()


def test_environment_of_sbatch(project: Project, tmp_path: Path) -> None:
    """It may need its libraries, a token and a ticket. A job gets the ticket, and nothing else that isn't listed."""
    (programs := tmp_path / "programs").mkdir()
    for name in (
        "sbatch",
        "squeue",
        "scontrol",
        "scancel",
        "sinfo",
    ):  # this cluster knows no tokens
        real = shutil.which(name, path=project.env["PATH"])
        note = f"env >{tmp_path}/env" if name == "sbatch" else "true"
        (programs / name).write_text(f'#!/bin/sh\n{note}\nunset SLURM_JWT\nexec {real} "$@"\n')
        (programs / name).chmod(0o755)
    mine = {
        "LD_LIBRARY_PATH": "/opt/slurm/lib",
        "KRB5CCNAME": "FILE:/tmp/ticket",
        "MINE": "1",
        "SLURM_JWT": "ey.token",
    }
    project.env |= {**mine, "PATH": f"{programs}:{project.env['PATH']}"}
    done = project.run({"a": {"run": "env"}})
    assert done.returncode == 0, done.stderr
    asked, logs = (tmp_path / "env").read_text(), project.logs()
    assert "LD_LIBRARY_PATH=/opt/slurm/lib" in asked and "SLURM_JWT=ey.token" in asked
    assert "KRB5CCNAME=FILE:/tmp/ticket" in asked and "KRB5CCNAME=FILE:/tmp/ticket" in logs
    assert "MINE=" not in asked + logs and "LD_LIBRARY_PATH" not in logs


def test_kept_folder(project: Project) -> None:
    """A folder of the nodes stays visible within the project."""
    (venv := project.folder / ".venv").mkdir()
    (venv / "thing").write_text("of the node\n")
    steps = {"a": {"run": "cat .venv/thing", "backend": {"slurm": {"keep": [str(venv)]}}}}
    done = project.run(steps)
    assert done.returncode == 0 and "of the node" in project.logs(), done.stderr


def test_check_of_gpus_and_pilots(project: Project) -> None:
    """It tries what a step that asks for GPUs would submit, and the pilot if the stack has them."""
    for options, words in (
        ({}, ["a job with the stack's", "a job with 1 GPU with"]),
        ({"gpu": 2, "gpu_type": "a100"}, ["a job with 2 GPUs with"]),
        ({"pilot": 2}, ["a pilot of 2 CPUs with", "a pilot of 2 CPUs and 2 GPUs with"]),
        ({"pilot": 2, "pilot_gpus": 1}, ["a pilot of 2 CPUs and 1 GPU with"]),
    ):
        project.say(options=options)
        good = project("stack", "check", "lab")
        assert good.returncode == 0, good.stdout
        assert all(f"Slurm would take {word}" in good.stdout for word in words), good.stdout
    for options, word in (
        ({"gpu": 100}, "a job with 100 GPUs: "),
        ({"gpu_type": "h100"}, "a job with 1 GPU: "),
        ({"pilot": 1000}, "a pilot of 1000 CPUs: "),
    ):
        project.say(options=options)
        bad = project("stack", "check", "lab")
        assert bad.returncode == 3 and word in bad.stdout + bad.stderr, bad
    assert not project.cluster.jobs("s-check")


def test_check(project: Project) -> None:
    good = project("stack", "check", "lab")
    assert good.returncode == 0 and "main*" in good.stdout and "22" in good.stdout, good.stdout
    project.say(options={"partition": "nosuch"})
    bad = project("stack", "check", "lab")
    assert bad.returncode != 0 and "nosuch" in bad.stdout + bad.stderr
    conf = project.env.pop("SLURM_CONF")
    unset = project("stack", "check", "lab")
    assert unset.returncode != 0 and "SLURM_CONF" in unset.stdout, unset
    project.env |= {"SLURM_CONF": conf, "PATH": str(ROOT / "python")}
    none = project("stack", "check", "lab")
    assert none.returncode != 0 and "'sbatch'" in none.stdout + none.stderr
