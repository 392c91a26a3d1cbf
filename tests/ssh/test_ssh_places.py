"""Machines over SSH, from end to end: stores that aren't a host's folder, the stack's options, shares of a GPU, and a way
through another host."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from typing import Any

import pytest
from front_tools import cannot
from ssh_hosts import NETWORK, Lab
from ssh_project import Project
from test_ssh_runs import idle
from waiting import wait_for

FOREACH = int(os.environ.get("STOKER_SSH_FOREACH", "40"))
PAIR = {
    "a": {"run": "echo at $(hostname); echo 42 > $STOKER_OUTPUT/x", "outputs": ["x"], "backend": {"ssh": {"host": "gpu1"}}},
    "b": {"run": "hostname; cat $STOKER_INPUT_x", "inputs": {"x": {"from": "a.x"}}, "backend": {"ssh": {"host": "gpu2"}}},
}  # fmt: skip


def check_pair(project: Project) -> None:
    done = project.run(PAIR)
    logs = project.logs()
    assert done.returncode == 0, done.stderr + logs
    for line in ("a | at gpu1", "b | gpu2", "b | 42"):
        assert line in logs, logs
    idle(project)


# --- stores ---


def test_shared_folder(project: Project) -> None:
    """Hosts read and write the store themselves; none has a copy."""
    project.share()
    check_pair(project)
    assert list((project.lab.shared / "store/artifacts").iterdir())
    for host in project.lab.hosts.values():
        assert not host.path("/home/ann/.local/share/stoker").exists()


def test_s3(project: Project) -> None:
    """Every machine reaches the bucket, with the keys that the submitting one passes on; no file of a host has them."""
    if importlib.util.find_spec("moto") is None:
        cannot("moto is not installed (tools/requirements-test.txt)")
    inside = ["nsenter", f"--net=/proc/{project.lab.switch.pid}/ns/net"]
    url, log = f"http://{NETWORK}.1:5000", project.lab.folder / "moto.log"
    words = [*inside, sys.executable, "-m", "moto.server", "-H", f"{NETWORK}.1", "-p", "5000"]
    ask = "import sys, urllib.request as u; u.urlopen(u.Request(sys.argv[1], method=sys.argv[2], data=b'')).read()"  # fmt: skip

    def asked(path: str, method: str) -> bool:
        done = subprocess.run([*inside, sys.executable, "-c", ask, url + path, method], capture_output=True)  # fmt: skip
        return done.returncode == 0

    with log.open("wb") as out, subprocess.Popen(words, stdout=out, stderr=out) as moto:
        try:
            wait_for(lambda: asked("/bucket", "PUT"), why=log.read_text)
            project.say(store="s3://bucket/lab")
            project.prefix = inside
            project.env |= {
                "AWS_ENDPOINT_URL": url,
                "AWS_ACCESS_KEY_ID": "key-of-mine",
                "AWS_SECRET_ACCESS_KEY": "hush-hush-456",
                "AWS_REGION": "eu-west-1",
            }
            check_pair(project)
        finally:
            moto.kill()


# --- options of the stack ---


def test_pending(project: Project) -> None:
    """A job that no host takes for so long fails, and says whom it waited for."""
    project.say(hosts=["gpu1"], pending="2s")
    with project.lab["gpu1"].leased("GPU-sim-0", "GPU-sim-1"):
        done = project.run({"a": {"run": "true", "resources": {"gpu_count": 1}}})
    assert done.returncode == 1, done.stderr
    error = project.show()["steps"]["a"]["error"]
    assert error["class"] == "resources" and "waited for a host for " in error["text"], error
    assert "gpu1" in error["text"] and "user ben" in error["text"], error


@pytest.mark.parametrize("slots", [1, 2])
def test_slots(project: Project, slots: int) -> None:
    """So many jobs at once, and no more, where CPUs for more are asked for by nobody."""
    shared = project.lab.shared
    project.say(hosts=["gpu1"], options={"poll": 0.2, "slots": slots})
    run = (
        f"mkdir {shared}/in-$STOKER_STEP; ls -d {shared}/in-* | wc -l >> {shared}/seen; "
        f"i=0; while [ $i -lt 20 ] && [ $(ls -d {shared}/in-* | wc -l) -lt {slots} ]; do sleep 0.1; i=$((i+1)); done; "
        f"ls -d {shared}/in-* | wc -l >> {shared}/seen; rmdir {shared}/in-$STOKER_STEP"
    )
    steps = {f"s{i}": {"run": f"STOKER_STEP=s{i}; {run}", "resources": {"cpu_count": 0.1}} for i in range(4)}  # fmt: skip
    done = project.run(steps)
    assert done.returncode == 0, done.stderr
    assert max(int(n) for n in (shared / "seen").read_text().split()) == slots


def test_address(project: Project) -> None:
    """The hosts of a gang meet where the stack says."""
    other = f"{NETWORK}.99"
    words = ("ip", "address", "{}", f"{other}/24", "dev", "eth0")
    host = project.lab["gpu1"]
    host._in_holder(*(w.format("add") for w in words))
    try:
        project.say(hosts=["gpu1", "gpu2"], options={"poll": 0.2, "address": [f"gpu1={other}"]})
        run = "echo rank $RANK meets at $MASTER_ADDR"
        done = project.run({"g": {"run": run, "gang": {"ranks": 1, "nodes": 2}}})
    finally:
        host._in_holder(*(w.format("del") for w in words))
    logs = project.logs()
    assert done.returncode == 0, done.stderr + logs
    for rank in (0, 1):
        assert f"rank {rank} meets at {other}\n" in logs, logs


# --- shares of a GPU ---


def test_shares(project: Project) -> None:
    """Two steps have parts of one GPU's memory at the same time; what doesn't fit beside them waits."""
    shared = project.lab.shared
    project.say(hosts=["gpu1"])
    project.lab["gpu1"].equip("sim:1xA100")
    small = f"[ ! -e {shared}/big ] || touch {shared}/wrong; touch {shared}/{{0}}; until [ -e {shared}/{{1}} ]; do sleep 0.1; done"  # fmt: skip
    parts = {"gpu_count": 1, "gpu_memory": "30GiB", "cpu_count": 0.1}
    big = f"touch {shared}/big; [ ! -e {shared}/s0 ] && [ ! -e {shared}/s1 ] || touch {shared}/wrong; sleep 0.5; rm {shared}/big"
    steps: dict[str, Any] = {
        "s0": {"run": small.format("s0", "s1"), "resources": parts},
        "s1": {"run": small.format("s1", "s0"), "resources": parts},
        "clean": {"run": f"rm {shared}/s0 {shared}/s1", "after": ["s0", "s1"]},
        "big": {"run": big, "resources": {**parts, "gpu_memory": "60GiB"}, "after": ["clean"]},
    }
    done = project.run(steps)
    assert done.returncode == 0, done.stderr + project.logs()
    assert not (shared / "wrong").exists()
    for step, gib in (("s0", 30), ("s1", 30), ("big", 60)):
        (device,) = project.show()["steps"][step]["granted"]["devices"]
        assert device["share_bytes"] == gib << 30, device


# --- the way there ---


def test_proxy_jump(project: Project, lab: Lab) -> None:
    """A host that only another one reaches, as ~/.ssh/config says."""
    far = ("ip", "route", "{}", "unreachable", f"{lab['gpu3'].address}/32")
    project.say(hosts=["gpu3"])
    lab.in_switch(*(w.format("add") for w in far))
    try:
        alone = project("stack", "check", "lab")
        assert alone.returncode == 3 and "gpu3" in alone.stdout, alone.stdout
        config = lab.user.config
        config.write_text("Host gpu3\n  ProxyJump gpu1\n" + config.read_text())
        done = project.run({"a": {"run": "echo at $(hostname)"}})
    finally:
        lab.in_switch(*(w.format("del") for w in far))
    assert done.returncode == 0, done.stderr
    assert "a | at gpu3" in project.logs()


# --- many ---


def test_foreach(project: Project) -> None:
    """None is lost or doubled. STOKER_SSH_FOREACH=1000 runs as many as the issue names."""
    project.share()
    ran = project.lab.shared / "ran"
    ran.touch()
    ran.chmod(0o666)
    (project.folder / "p.py").write_text(
        "from socket import gethostname\nfrom stoker.flow import FlowSpec, step\n"
        "class F(FlowSpec):\n"
        f"    @step\n    def start(self):\n        self.todo = list(range({FOREACH})); self.next(self.work, foreach='todo')\n"
        "    @step\n    def work(self):\n"
        f"        open('{ran}', 'a').write('%d %s\\n' % (self.input, gethostname())); self.out = self.input; self.next(self.join)\n"
        "    @step\n    def join(self, inputs):\n        self.all = sorted(i.out for i in inputs); self.next(self.end)\n"
        "    @step\n    def end(self):\n        print('sum', sum(self.all), 'of', len(self.all))\n"
        "if __name__ == '__main__':\n    F()\n"
    )
    engine = project.begin(
        "run", "--with", "lab", "p.py", "--quiet", "run", "--max-num-splits", str(FOREACH)
    )
    out, err = engine.communicate(timeout=3600)
    assert engine.returncode == 0, out + err
    assert f"sum {sum(range(FOREACH))} of {FOREACH}" in project.logs()
    lines = [line.split() for line in ran.read_text().splitlines()]
    assert sorted(int(number) for number, _ in lines) == list(range(FOREACH))
    assert {host for _, host in lines} <= set(project.lab.hosts)
    idle(project)


# --- doors ---

ASKED = {"host": "gpu2", "gpu": 2, "keep": ["/opt/tools"]}


def check_order(done: subprocess.CompletedProcess[str]) -> None:
    assert done.returncode == 0, done.stdout + done.stderr
    order = json.loads(done.stdout[done.stdout.index("\n{") :].split("\n---")[0].split("\n# ")[0])
    assert order["hosts"] == ["gpu2"] and order["keep"] == ["/opt/tools"], order
    assert order["resources"]["gpu_count"] == 2, order


FLOW = """
from stoker.flow import FlowSpec, step
class F(FlowSpec):
    @step
    def start(self):
        self.next(self.end)
    @step
    def end(self):
        import socket
        print("at", socket.gethostname())
if __name__ == "__main__":
    F()
"""
PYTHON = """
from stoker import pipeline, step
@step
def a() -> int:
    import socket
    print("at", socket.gethostname())
    return 1
@pipeline
def p():
    a()
if __name__ == "__main__":
    p()
"""


@pytest.mark.parametrize("stack", ["lab", "ssh"])
@pytest.mark.parametrize("door", ["document", "python", "flow"])
def test_options_behind_with(project: Project, door: str, stack: str) -> None:
    """--with NAME:OPTION=VALUE, before FILE, after it, and on a flow's own command line; `ssh` is the project's only such stack."""
    said = f'{stack}:host=gpu2,gpu=2,keep=["/opt/tools"]'
    file = project.document({"a": {"run": "true"}}) if door == "document" else "p.py"
    if door != "document":
        (project.folder / file).write_text(FLOW if door == "flow" else PYTHON)
    check_order(project("plan", "--manifest", "--with", said, file))
    check_order(project("plan", "--manifest", file, "--with", said))
    if door == "flow":
        check_order(project("plan", "--manifest", file, "run", "--with", said))
        check_order(project("plan", "--manifest", file, "--with", said, "run"))
    wrong = project("plan", "--manifest", file, "--with", f"{stack}:hots=gpu2")
    assert wrong.returncode != 0 and "did you mean 'host" in wrong.stderr, wrong.stderr


@pytest.mark.parametrize(
    "words",
    [
        ("flow.py", "run", "--with", "ssh:host=gpu2"),
        ("flow.py", "--with", "lab:host=gpu2", "run"),
        ("-m", "stoker", "run", "--with", "lab:host=gpu2", "flow.py"),
        ("-m", "stoker", "run", "pipe.py", "--with", "ssh:host=gpu2"),
    ],
    ids=" ".join,
)
def test_runs_with_options(project: Project, words: tuple[str, ...]) -> None:
    """The host that is named there runs it, and runs the rest of it after the engine's end."""
    (project.folder / "flow.py").write_text(FLOW)
    (project.folder / "pipe.py").write_text(PYTHON)
    env = {**project.env, "STOKER_FAILPOINTS": "exec.settle.after:1:kill"}
    command = [*project.prefix, sys.executable, *words]
    options: dict[str, Any] = {"cwd": project.folder, "capture_output": True, "text": True, "timeout": 250}  # fmt: skip
    killed = subprocess.run(command, env=env, **options)
    assert "failpoint" not in killed.stderr and killed.returncode != 0, killed.stderr
    resumed = project("resume", "latest")
    assert resumed.returncode == 0, resumed.stdout + resumed.stderr
    assert "at gpu2\n" in project.logs(), project.logs()


@pytest.mark.parametrize("door", ["step", "pipeline", "stack", "python", "flow"])
def test_doors(project: Project, door: str) -> None:
    """The options of a step are the same through each door, with the stack named before FILE and after it."""
    file, step = "p.json", {"run": "true"}
    if door == "python":
        (project.folder / "p.py").write_text(
            "from stoker import pipeline, step\n"
            f"@step(settings={{'step_operator.ssh': {ASKED!r}}})\ndef a() -> int:\n    return 1\n"
            "@pipeline\ndef p():\n    a()\nif __name__ == '__main__':\n    p()\n"
        )
        file = "p.py"
    elif door == "flow":
        (project.folder / "p.py").write_text(
            "from stoker.flow import FlowSpec, step\nclass F(FlowSpec):\n"
            "    @step\n    def start(self):\n        self.next(self.end)\n    @step\n    def end(self):\n        pass\n"
            "if __name__ == '__main__':\n    F()\n"
        )
        project.say(options={"poll": 0.2, **ASKED})
        file = "p.py"
    elif door == "step":
        project.document({"a": {**step, "backend": {"ssh": ASKED}}})
    elif door == "pipeline":
        project.document({"a": step}, backend={"ssh": ASKED})
    else:
        project.say(options={"poll": 0.2, **ASKED})
        project.document({"a": step})
    check_order(project("plan", "--manifest", "--with", "lab", file))
    check_order(project("plan", "--manifest", file, "--with", "lab"))
