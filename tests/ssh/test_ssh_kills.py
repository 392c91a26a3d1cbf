"""Steps on hosts over SSH while links, hosts, disks and engines fail: no task is lost or doubled, and nothing is left running.

Steps write into a journal in a folder that all machines share: what really ran, whatever the records say."""

from __future__ import annotations

import collections
import json
import os
import random
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
from ssh_hosts import Host, Lab
from ssh_project import Project
from waiting import wait_for

KILLS = int(os.environ.get("STOKER_SSH_KILLS", "6"))
DEAD_S = 20  # after which ssh takes a silent link for dead


class Journal:
    """What the steps of a lab have written."""

    def __init__(self, lab: Lab) -> None:
        self.lab = lab
        self.path = lab.shared / "journal"
        self.path.touch()
        self.path.chmod(0o666)
        self.go = lab.shared / "go"

    def lines(self) -> list[str]:
        return self.path.read_text().splitlines()

    def count(self, line: str) -> int:
        return sum(one.startswith(line) for one in self.lines())

    def host_of(self, step: str) -> Host:
        """Where its first attempt has begun; waits for that."""
        line = wait_for(lambda: next((x for x in self.lines() if x.startswith(f"begin {step} ")), ""), why=self.lines)  # fmt: skip
        return self.lab[line.split()[3]]

    def step(self, name: str, then: str = "true", **more: Any) -> dict[str, Any]:
        said = f"{name} $STOKER_ATTEMPT $(hostname)"
        run = f"echo begin {said} >> {self.path}; {then} && echo end {said} >> {self.path}"
        return {"run": run, **more}

    def waits(self, name: str, **more: Any) -> dict[str, Any]:
        """Until the file `go` is there; its output is 7."""
        then = f"until [ -e {self.go} ]; do sleep 0.1; done; echo 7 > $STOKER_OUTPUT/{name}_out"
        return self.step(name, then, outputs=[f"{name}_out"], **more)


@pytest.fixture
def journal(lab: Lab) -> Journal:
    return Journal(lab)


def ended(engine: subprocess.Popen[str]) -> str:
    out, err = engine.communicate(timeout=280)
    assert engine.returncode == 0, out + err
    return out + err


def none_left(lab: Lab) -> None:
    for host in lab.hosts.values():
        wait_for(lambda host=host: not host.processes(), why=host.processes)


def begin(project: Project, steps: dict[str, Any], **more: Any) -> subprocess.Popen[str]:
    return project.begin("run", project.document(steps, **more), "--with", "lab")


# --- links ---


def test_link_cut_and_back(project: Project, lab: Lab, journal: Journal) -> None:
    """The job ends while nobody can ask for it; its end and its output come later."""
    after = journal.step("b", "test $(cat $STOKER_INPUT_a_out) = 7", inputs={"a_out": {"from": "a.a_out"}})  # fmt: skip
    engine = begin(project, {"a": journal.waits("a"), "b": after})
    host = journal.host_of("a")
    host.cut()
    journal.go.touch()
    wait_for(lambda: journal.count("end a "), why=journal.lines)
    time.sleep(DEAD_S)  # sleeps: as long as ssh believes in a silent link
    assert engine.poll() is None
    host.mend()
    ended(engine)
    assert (journal.count("begin a "), journal.count("begin b ")) == (1, 1)
    assert project.show()["steps"]["a"]["attempts"] == 1
    none_left(lab)


def test_link_flaps(project: Project, lab: Lab, journal: Journal) -> None:
    """Cut for a second, many times, while many steps run."""
    project.say(hosts=["gpu1"])
    steps = {f"s{i}": journal.step(f"s{i}", "sleep 0.3") for i in range(12)}
    engine = begin(project, steps)
    while engine.poll() is None:
        for act in (lab["gpu1"].cut, lab["gpu1"].mend):
            act()
            time.sleep(1)  # sleeps: the link's own rhythm
    ended(engine)
    for name in steps:
        assert (journal.count(f"begin {name} "), journal.count(f"end {name} ")) == (1, 1)
    none_left(lab)


def test_away_at_first_contact(project: Project, lab: Lab, journal: Journal) -> None:
    """The others are used, and it is said which one is away."""
    lab["gpu1"].halt()
    project.share()
    text = ended(begin(project, {"a": journal.step("a")}))
    assert journal.host_of("a").name in ("gpu2", "gpu3")
    assert "gpu1" in text and "refused" in text


def test_all_away_for_a_while(project: Project, lab: Lab, journal: Journal) -> None:
    for host in lab.hosts.values():
        host.halt()
    project.share()
    engine = begin(project, {"a": journal.step("a")})
    time.sleep(3)  # sleeps: for as long as they are away
    assert engine.poll() is None, engine.communicate()
    for host in lab.hosts.values():
        host.boot()
    ended(engine)
    assert journal.count("begin a ") == 1


# --- who may in ---


def test_changed_host_key(project: Project, lab: Lab, journal: Journal) -> None:
    """A host that might be another machine gets nothing."""
    lab["gpu1"].change_key()
    project.share()
    text = ended(begin(project, {"a": journal.step("a")}))
    assert journal.host_of("a").name != "gpu1" and "gpu1" in text and "key" in text
    assert not lab["gpu1"].path("/home/ann/.cache").exists()
    project.say(hosts=["gpu1"], pending="5s")
    done = project.run({"b": journal.step("b")})
    assert done.returncode != 0 and "host key" in done.stdout + done.stderr
    assert journal.count("begin b ") == 0


def test_no_key(tmp_path: Path, lab: Lab, journal: Journal) -> None:
    stranger = Project(tmp_path / "stranger", lab, lab.client("stranger", key=False), pending="5s")
    done = stranger.run({"a": journal.step("a")})
    said = done.stdout + done.stderr
    assert done.returncode != 0 and "Permission denied" in said and "gpu1" in said, said
    assert journal.lines() == []


def test_unknown_host_key(tmp_path: Path, lab: Lab, journal: Journal) -> None:
    """Never accepted without the user, who is told what to do."""
    new = Project(tmp_path / "new", lab, lab.client("new", known=False), pending="5s")
    done = new.run({"a": journal.step("a")})
    said = done.stdout + done.stderr
    assert done.returncode != 0 and "host key" in said.lower() and "ssh gpu1" in said, said
    assert journal.lines() == []


# --- hosts ---


def test_gone_for_longer(project: Project, lab: Lab, journal: Journal) -> None:
    """What ran on a host that is off is decided when it is back; other steps go on."""
    project.share()
    on = {name: {"backend": {"ssh": {"host": name}}} for name in ("gpu1", "gpu2")}
    steps = {"a": journal.waits("a", **on["gpu1"]), "b": journal.step("b", "sleep 1", **on["gpu2"])}
    engine = begin(project, steps)
    host = journal.host_of("a")
    host.halt()
    wait_for(lambda: journal.count("end b "), why=journal.lines)
    time.sleep(3)  # sleeps: for as long as it is off
    journal.go.touch()
    host.boot()
    ended(engine)
    assert journal.count("end a ") == 1


def test_full_disk(project: Project, lab: Lab, journal: Journal) -> None:
    """The step says what is full; its end is told when there is room for it, and with room the run goes on."""
    project.say(hosts=["gpu1"])
    assert project.run({"first": journal.step("first")}).returncode == 0
    lab["gpu1"].fill_disk(1 << 20)
    then = "head -c 9000000 /dev/urandom > $STOKER_OUTPUT/x"
    engine = begin(project, {"big": journal.step("big", then, outputs=["x"])})
    journal.host_of("big")
    home = lab["gpu1"].path("/home")
    wait_for(lambda: os.statvfs(home).f_bfree == 0)
    where = (
        "waits on ssh (stack 'lab'): gpu1 has no room at /home/ann/.local/state/stoker/jobs/gpu1"
    )
    wait_for(
        lambda: where in project("why", "big").stdout, why=lambda: project("why", "big").stdout
    )
    assert "gpu1 has no room at" in project("show", "latest").stdout
    assert engine.poll() is None
    lab["gpu1"].empty_disk()
    out, err = engine.communicate(timeout=200)
    assert engine.returncode != 0 and "No space left" in err, out + err
    assert project.show()["steps"]["big"]["error"]["class"] == "disk_full"
    ended(project.begin("resume", "latest", "--with", "lab"))
    assert journal.count("end big ") == 1
    none_left(lab)


def test_full_disk_at_the_start(project: Project, lab: Lab, journal: Journal) -> None:
    """No job is given to a host without room: another gets it, and the only one when it has room again."""
    project.share()
    project.say(hosts=["gpu1", "gpu2"])
    assert project.run({"first": journal.step("first")}).returncode == 0  # the program is brought
    lab["gpu1"].fill_disk()
    ended(begin(project, {"a": journal.step("a")}))
    assert journal.host_of("a").name == "gpu2"
    project.say(hosts=["gpu1"])
    engine = begin(project, {"b": journal.step("b")})
    wait_for(lambda: "No space left" in project("why", "b").stdout, why=engine.poll)
    assert "No space left" in project("show", "latest").stdout
    assert engine.poll() is None and journal.count("begin b ") == 0
    lab["gpu1"].empty_disk()
    ended(engine)
    assert journal.count("end b ") == 1
    none_left(lab)


def test_room_again(project: Project, lab: Lab, journal: Journal) -> None:
    """A step that goes on after its host was full isn't said to wait."""
    project.say(hosts=["gpu1"])
    engine = begin(project, {"a": journal.waits("a")})
    journal.host_of("a")
    lab["gpu1"].fill_disk()
    wait_for(lambda: "has no room" in project("why", "a").stdout, why=engine.poll)
    lab["gpu1"].empty_disk()
    wait_for(lambda: "it runs on ssh" in project("why", "a").stdout, why=engine.poll)
    journal.go.touch()
    ended(engine)
    none_left(lab)


# --- leases of others ---


def test_another_users_leases(project: Project, lab: Lab, journal: Journal) -> None:
    """A host whose devices are free is taken; if there is none, the job waits and says for whom."""
    gpus = {"resources": {"gpu_count": 2}}
    both = ("GPU-sim-0", "GPU-sim-1")
    with lab["gpu1"].leased("GPU-sim-0"), lab["gpu2"].leased(*both):
        ended(begin(project, {"a": journal.step("a", **gpus)}))
        assert journal.host_of("a").name == "gpu3"
        with lab["gpu3"].leased(*both):
            engine = begin(project, {"b": journal.step("b", **gpus)})
            wait_for(lambda: "user ben" in project("show", "latest").stdout)
            assert journal.count("begin b ") == 0
        ended(engine)
    assert journal.host_of("b").name == "gpu3"


def test_two_submitters_share_devices(tmp_path: Path, project: Project, lab: Lab, journal: Journal) -> None:  # fmt: skip
    """Two machines send to the same host: never two steps on one device."""
    other = Project(tmp_path / "other", lab, lab.client("other"))
    seen = "echo $CUDA_VISIBLE_DEVICES $(date +%s.%N) >> {0}/from; sleep 1; echo $CUDA_VISIBLE_DEVICES $(date +%s.%N) >> {0}/to"  # fmt: skip
    for one in (project, other):
        one.say(hosts=["gpu1"])
        one.document({f"s{i}": {"run": seen.format(lab.shared), "resources": {"gpu_count": 1}} for i in range(4)})  # fmt: skip
    engines = [one.begin("run", "p.json", "--with", "lab") for one in (project, other)]
    for engine in engines:
        ended(engine)
    times: dict[str, list[tuple[float, float]]] = collections.defaultdict(list)
    starts = sorted(line.split() for line in (lab.shared / "from").read_text().splitlines())
    ends = sorted(line.split() for line in (lab.shared / "to").read_text().splitlines())
    for (device, start), (same, end) in zip(starts, ends):
        assert device == same
        times[device].append((float(start), float(end)))
    assert sum(map(len, times.values())) == 8
    for spans in times.values():
        assert all(a[1] <= b[0] for a, b in zip(spans, spans[1:])), times


# --- engines ---


def check_journal(journal: Journal, names: list[str]) -> None:
    """Each step has ended once, and no attempt has begun twice."""
    lines = journal.lines()
    doubled = [line for line, n in collections.Counter(x for x in lines).items() if n > 1]
    assert not doubled, doubled
    ends = collections.Counter(line.split()[1] for line in lines if line.startswith("end "))
    assert ends == dict.fromkeys(names, 1), lines


@pytest.mark.parametrize("store", ["ssh", "shared"])
def test_killed_at_random(project: Project, lab: Lab, journal: Journal, store: str) -> None:
    """Engine after engine is killed, in a run of three layers of steps on two hosts."""
    rng = random.Random(int(os.environ.get("STOKER_SSH_SEED", "1")))
    project.say(hosts=["gpu1", "gpu2"])
    if store == "shared":
        project.share()
    kills = n = 0
    while kills < (KILLS + 1) // 2:
        n += 1
        journal.path.write_text("")
        steps: dict[str, Any] = {}
        for layer in range(3):
            for i in range(4):
                needs = {"inputs": {"x": {"from": f"s{layer - 1}{i}.x"}}} if layer else {}
                then = f"sleep {rng.random():.2f}; echo {layer} > $STOKER_OUTPUT/x"
                steps[f"s{layer}{i}"] = journal.step(f"s{layer}{i}", then, outputs=["x"], **needs)
        words = [
            "run",
            project.document(steps),
            "--with",
            "lab",
            "--no-cache",
            "--run-name",
            f"r{n}",
        ]
        for _ in range(rng.randint(1, 4)):
            engine = project.begin(*words)
            try:
                engine.wait(timeout=rng.uniform(0.2, 6))
            except subprocess.TimeoutExpired:
                engine.send_signal(signal.SIGKILL)
                kills += 1
            out, err = engine.communicate(timeout=60)
            if engine.returncode not in (0, -signal.SIGKILL):
                raise AssertionError(f"{words}: {engine.returncode} {out}{err}")
            if engine.returncode == 0:
                break
            shown = project("show", f"r{n}", "--json")
            known = shown.returncode == 0
            if known and json.loads(shown.stdout)["status"] == "succeeded":
                break  # killed after the run's last record
            words = ["resume", f"r{n}", "--with", "lab"] if known else words
        else:
            ended(project.begin(*words))
        check_journal(journal, list(steps))
        none_left(lab)


# --- killed at named points ---


@pytest.mark.parametrize("point", ["ssh.far.start", "ssh.keep.agent", "ssh.keep.end"])
def test_killed_on_the_host(project: Project, lab: Lab, journal: Journal, point: str) -> None:
    """The far end, or a keeper, stops at that point and is killed. So is the next that the engine asks for, and the engine.
    Without the point the run is resumed: no task is lost or doubled, and nothing is left."""
    host = lab["gpu1"]
    project.say(hosts=["gpu1"])
    host.configure(STOKER_FAILPOINTS=f"{point}:1:stop")
    # a keeper that dies takes its step along, which hasn't ended by then
    steps = {
        "a": journal.step("a", "sleep 1; echo 5 > $STOKER_OUTPUT/x", outputs=["x"]),
        "b": journal.step("b", "test $(cat $STOKER_INPUT_x) = 5", inputs={"x": {"from": "a.x"}}),
    }
    engine = begin(project, steps)
    for pid in wait_for(host.stopped, why=host.processes):
        os.kill(pid, signal.SIGKILL)
    again = wait_for(host.stopped, why=host.processes)
    engine.kill()
    engine.communicate(timeout=60)
    for pid in again:
        os.kill(pid, signal.SIGKILL)
    jobs = host.path("/home/ann/.local/state/stoker/jobs/gpu1")
    assert not any(jobs.glob("*/end"))
    assert any(jobs.glob("*/begun")) == (point != "ssh.far.start")
    host.configure()
    ended(project.begin("resume", "latest", "--with", "lab"))
    check_journal(journal, ["a", "b"])
    none_left(lab)


def test_killed_while_results_come(project: Project, lab: Lab, journal: Journal) -> None:
    """The engine is killed when some of what a job made on a host without the store is in the store."""
    on_gpu2 = {"backend": {"ssh": {"host": "gpu2"}}}
    steps = {
        "a": journal.step("a", "echo 5 > $STOKER_OUTPUT/x", outputs=["x"], **on_gpu2),
        "b": journal.step("b", "test $(cat $STOKER_INPUT_x) = 5", inputs={"x": {"from": "a.x"}}),
    }
    project.env["STOKER_FAILPOINTS"] = "ssh.mirror.mid:1:kill"
    engine = begin(project, steps)
    engine.communicate(timeout=200)
    assert engine.returncode == -signal.SIGKILL
    del project.env["STOKER_FAILPOINTS"]
    ended(project.begin("resume", "latest", "--with", "lab"))
    check_journal(journal, ["a", "b"])
    none_left(lab)
