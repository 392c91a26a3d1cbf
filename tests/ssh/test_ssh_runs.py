"""Whole runs on machines over SSH, from the command line: hosts with a real sshd get program, inputs and code by their
connection only."""

from __future__ import annotations

import json
import signal

import pytest
from ssh_project import Project
from stack_project import check_how_it_failed, check_python, check_two_steps
from waiting import wait_for


def test_two_steps(project: Project) -> None:
    """And a second run is cached."""
    assert "a | at gpu" in check_two_steps(project, "$(hostname)", cpu_count=1)
    again = project("run", "p.json", "--with", "lab")
    assert again.returncode == 0 and "cached" in again.stderr + again.stdout
    idle(project)


def idle(project: Project) -> None:
    """Nothing of ours is left on a host but the far end of a connection, and that ends, too."""
    for host in project.lab.hosts.values():
        wait_for(lambda host=host: not host.processes(), why=host.processes)
        jobs = host.path("/home/ann/.local/state/stoker/jobs")
        left = [job.name for node in jobs.glob("*") for job in node.iterdir()]
        assert left == [], f"{host.name}: {left}"


def far_ended(project: Project) -> None:
    """A far end goes with its connection, although it waits for news of a job that goes on."""
    for host in project.lab.hosts.values():
        wait_for(lambda host=host: not [line for line in host.processes().values() if line.endswith(" far")],
                 15, why=host.processes)  # fmt: skip


def test_python(project: Project) -> None:
    check_python(project)


def test_other_hosts(project: Project) -> None:
    """Hosts that haven't the store get what a step reads, and what it makes comes back."""
    steps = {
        "a": {
            "run": "hostname; mkdir $STOKER_OUTPUT/x; echo 42 > $STOKER_OUTPUT/x/n; head -c 3000000 /dev/zero > $STOKER_OUTPUT/x/big",
            "outputs": ["x"],
            "backend": {"ssh": {"host": "gpu2"}},
        },
        "b": {
            "run": "hostname; cat $STOKER_INPUT_x/n; wc -c < $STOKER_INPUT_x/big; echo done > $STOKER_OUTPUT/y",
            "inputs": {"x": {"from": "a.x"}},
            "outputs": ["y"],
            "backend": {"ssh": {"host": "gpu3"}},
        },
        "c": {"run": "hostname; cat $STOKER_INPUT_y", "inputs": {"y": {"from": "b.y"}}},
    }
    done = project.run(steps)
    logs = project.logs()
    assert done.returncode == 0, done.stderr + logs
    for line in ("a | gpu2", "b | gpu3", "b | 42", "b | 3000000", "c | done"):
        assert line in logs, logs
    idle(project)


def test_gpus(project: Project) -> None:
    """Each host gives two, by leases: what others hold there isn't taken, and nobody shares."""
    there = f"{project.lab.shared}/there"
    all_there = f"echo >> {there}; until [ $(wc -l < {there}) -eq 5 ]; do sleep 0.1; done"
    seen = f"echo $(hostname) $CUDA_VISIBLE_DEVICES; {all_there}"
    steps = {f"s{i}": {"run": seen, "resources": {"gpu_count": 1}} for i in range(5)}
    steps["none"] = {"run": "echo gpus=$CUDA_VISIBLE_DEVICES."}
    with project.lab["gpu1"].leased("GPU-sim-0"):
        done = project.run(steps)
    logs = project.logs()
    assert done.returncode == 0, done.stderr + logs
    assert "gpus=." in logs and "gpu1 GPU-sim-0" not in logs, logs
    for host in ("gpu1", "gpu2", "gpu3"):
        assert f"| {host} " in logs, logs
    two = project.show()["steps"]["s0"]
    assert len(two["granted"]["devices"]) == 1


NOBODY_HAS = {
    "gpu_count": ({"gpu_count": 9}, "gpu_count 9 is more than {host}'s 2"),
    "gpu_class": ({"gpu_count": 1, "gpu_class": "H100"}, "{host} has 2 × NVIDIA A100-SXM4-80GB"),
    "gpu_memory": ({"gpu_count": 1, "gpu_memory": "100GiB"}, "any GPU of {host} has; the largest"),
    "cpu_count": ({"cpu_count": 4000}, "cpu_count 4000 is more than {host}'s"),
}


@pytest.mark.parametrize("resources, words", NOBODY_HAS.values(), ids=NOBODY_HAS.keys())
def test_what_no_host_has(project: Project, resources: dict[str, object], words: str) -> None:
    """It is refused before the run, with what each host has; a plan says it."""
    file = project.document(
        {"big": {"run": "true", "resources": resources}, "small": {"run": "true"}}
    )
    plan = project("plan", "--with", "lab", file)
    done = project("run", file, "--with", "lab")
    assert (plan.returncode, done.returncode) == (0, 2)
    assert "note: refused: step 'big': no host can hold it: " in plan.stdout
    for said in (plan.stdout, done.stderr):
        assert "'small'" not in said and len(said.splitlines()[-1]) < 900, said
        for host in ("gpu1", "gpu2", "gpu3"):
            assert words.format(host=host) in said, said
    assert "no run" in project("show", "latest").stderr


def test_gang_that_too_few_can_hold(project: Project) -> None:
    for name in ("gpu2", "gpu3"):
        project.lab[name].equip("none")
    gang = {"run": "true", "gang": {"ranks": 1, "nodes": 2}, "resources": {"gpu_count": 1}}
    done = project.run({"g": gang})
    assert done.returncode == 2, done.stderr
    assert "step 'g': it needs 2 hosts, and only 1 can hold it: " in done.stderr, done.stderr
    assert "gpu2" in done.stderr and "gpu1" not in done.stderr, done.stderr


def test_who_does_not_answer_may_hold_it(project: Project) -> None:
    """A host that is away refuses nothing; when it is back, the step fails by what it has."""
    project.share()
    project.say(hosts=["gpu1"])
    project.lab["gpu1"].halt()
    steps = {"big": {"run": "true", "resources": {"gpu_count": 9}}}
    engine = project.begin("run", project.document(steps), "--with", "lab")
    wait_for(lambda: "gpu1 is away" in project("show", "latest").stdout, why=engine.poll)
    project.lab["gpu1"].boot()
    out, err = engine.communicate(timeout=200)
    assert engine.returncode == 1, out + err
    error = project.show()["steps"]["big"]["error"]
    assert error["class"] == "resources", error
    assert error["cause"] == "no host can hold it: gpu_count 9 is more than gpu1's 2", error


def test_what_has_its_result_needs_no_host(project: Project) -> None:
    """A finished step isn't in the way of a resumed run, although its host has become smaller."""
    host, shared = project.lab["gpu1"], project.lab.shared
    project.say(hosts=["gpu1"])
    steps = {
        "a": {"run": "true", "resources": {"gpu_count": 2}},
        "b": {"run": f"test -e {shared}/go", "after": ["a"]},
    }
    host.equip("none")
    assert project.run(steps).returncode == 2
    host.equip(host.first_devices)
    assert project.run(steps).returncode == 1
    host.equip("none")
    (shared / "go").touch()
    done = project("resume", "latest", "--with", "lab")
    assert done.returncode == 0, done.stderr


def test_waits_for_others(project: Project) -> None:
    """The sentence names who holds the devices; when they are free, the step runs."""
    project.say(hosts=["gpu1"])
    with project.lab["gpu1"].leased(
        "GPU-sim-0", "GPU-sim-1", label="run R step train (user ben, pid 7)"
    ):
        run = f"touch {project.lab.shared}/begun; until [ -e {project.lab.shared}/go ]; do sleep 0.1; done"
        steps = {"a": {"run": run, "resources": {"gpu_count": 1}}}
        engine = project.begin("run", project.document(steps), "--with", "lab")
        wait_for(lambda: "run R step train" in project("show", "latest").stdout)
        why = project("why", "a").stdout
        assert why.startswith(
            "step 'a' waits on ssh (stack 'lab'): gpu1 GPU 0: run R step train"
        ), why
        assert "GPU 1: run R step train (user ben, pid 7)" in why, why
    wait_for((project.lab.shared / "begun").exists, why=engine.poll)
    wait_for(
        lambda: "waits on" not in (why := project("why", "a").stdout) and "it runs on ssh" in why
    )
    (project.lab.shared / "go").touch()
    out, err = engine.communicate(timeout=100)
    assert engine.returncode == 0, out + err


def test_how_it_failed(project: Project) -> None:
    check_how_it_failed(project)


def test_memory_limit(project: Project) -> None:
    """It is enforced on the host, as at home."""
    eat = "x = bytearray(400 << 20); print(len(x)); import time; time.sleep(60)"
    steps = {"a": {"run": f"python3 -c '{eat}'", "resources": {"memory": "100MiB"}}}
    done = project.run(steps)
    assert done.returncode == 1
    assert project.show()["steps"]["a"]["error"]["class"] == "host_oom"


def holders(project: Project, word: bytes) -> set[str]:
    """Files of gpu1 that have the word, and command lines, as the host sees them: a job's own folders are among them, its
    view of the machine is mounted for the job alone."""
    host = project.lab["gpu1"]
    found = set()
    for top in ("/home", "/tmp", "/run", "/dev/shm", str(project.lab.shared)):
        root = host.path(top)
        for file in (p for p in root.rglob("*") if p.is_file() and not p.is_symlink()):
            if word in file.read_bytes():
                found.add(f"{top}/{file.relative_to(root)}")
    return found | {line for line in host.processes().values() if word.decode() in line}


def test_secret(project: Project) -> None:
    """It reaches the step, and no file or command line of a host but the file that the step writes."""
    project.say(hosts=["gpu1"])
    project.env["STOKER_SECRET_TOKEN"] = "hush-hush-123"
    shared = project.lab.shared
    look = f'echo ${{#TOKEN}}; printf %s "$TOKEN" > told; touch {shared}/begun; until [ -e {shared}/go ]; do sleep 0.1; done'
    steps = {"a": {"run": look, "secrets": ["TOKEN"]}}
    engine = project.begin("run", project.document(steps), "--with", "lab")
    wait_for((shared / "begun").exists, why=engine.poll)
    (found,) = holders(project, b"hush-hush")
    assert found.startswith("/home/ann/.local/state/stoker/jobs/gpu1/") and found.endswith("/told")
    (shared / "go").touch()
    out, err = engine.communicate(timeout=100)
    assert engine.returncode == 0, out + err
    assert "a | 13\n" in project.logs()
    assert holders(project, b"hush-hush") == set()


def test_cancel(project: Project) -> None:
    """The program gets SIGTERM and its grace, and nothing is left running."""
    shared = project.lab.shared
    run = f"trap 'touch {shared}/told; exit 3' TERM; touch {shared}/begun; while :; do sleep 0.1; done"
    engine = project.begin("run", project.document({"a": {"run": run}}), "--with", "lab")
    wait_for((shared / "begun").exists)
    assert project("cancel", "latest").returncode == 0
    engine.communicate(timeout=100)
    assert engine.returncode != 0 and (shared / "told").exists()
    idle(project)


def test_timeout(project: Project) -> None:
    done = project.run({"a": {"run": "sleep 300", "timeout": 1, "grace": 1}})
    assert done.returncode == 1
    assert project.show()["steps"]["a"]["error"]["class"] == "timeout"
    idle(project)


def test_engine_killed(project: Project) -> None:
    """`resume` finds the job that goes on, and starts no other."""
    shared = project.lab.shared
    run = f"echo once >> {shared}/times; until [ -e {shared}/go ]; do sleep 0.1; done; echo x > $STOKER_OUTPUT/x"
    steps = {"long": {"run": run, "outputs": ["x"], "backend": {"ssh": {"host": "gpu2"}}}}
    engine = project.begin("run", project.document(steps), "--with", "lab")
    wait_for((shared / "times").exists)
    engine.send_signal(signal.SIGKILL)
    engine.communicate(timeout=60)
    far_ended(project)
    resumed = project.begin("resume", "latest", "--with", "lab")
    (shared / "go").touch()
    out, err = resumed.communicate(timeout=200)
    assert resumed.returncode == 0, out + err
    assert (shared / "times").read_text() == "once\n"
    assert project.show()["steps"]["long"]["attempts"] == 1
    idle(project)


def test_metrics_come_while_it_runs(project: Project) -> None:
    """From each host, also one that hasn't the store, and each value once."""
    go = project.lab.shared / "go"
    log = 'log() { echo "{\\"step\\":$1,\\"loss\\":$1}" >> $STOKER_METRICS; }'
    run = f"{log}; log 1; log 2; until [ -e {go} ]; do sleep 0.1; done; log 3"
    on = {host: {"run": run, "backend": {"ssh": {"host": host}}} for host in ("gpu1", "gpu2")}
    engine = project.begin("run", project.document(on), "--with", "lab")

    def points() -> list[list[float]]:
        done = project("metrics", "latest", "--json")
        found = json.loads(done.stdout) if done.returncode == 0 else []
        return [[step, value] for metric in found for step, _, value in metric["points"]]

    wait_for(lambda: points() == [[1, 1], [2, 2]] * 2, why=lambda: f"{points()} {engine.poll()}")
    go.touch()
    out, err = engine.communicate(timeout=200)
    assert engine.returncode == 0, out + err
    assert points() == [[1, 1], [2, 2], [3, 3]] * 2
    idle(project)


@pytest.mark.parametrize("point", ["ssh.start.before", "ssh.start.after"])
def test_killed_around_a_start(project: Project, point: str) -> None:
    """The store knows which host was chosen, so that `resume` asks it again: once is once."""
    times = project.lab.shared / "times"
    project.env["STOKER_FAILPOINTS"] = f"{point}:1:kill"
    steps = {"only": {"run": f"echo once >> {times}"}}
    engine = project("run", project.document(steps), "--with", "lab")
    assert engine.returncode == -signal.SIGKILL, engine.stderr
    del project.env["STOKER_FAILPOINTS"]
    resumed = project("resume", "latest", "--with", "lab")
    assert resumed.returncode == 0, resumed.stderr
    assert times.read_text() == "once\n"
    idle(project)
