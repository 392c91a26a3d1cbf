"""Ranks by the real fork server (python/stoker/_worker/server.py): the launcher's side of the protocol."""

from __future__ import annotations

import json
import subprocess
import uuid
from pathlib import Path
from typing import Any

from launch_tools import ENV, PYTHON, ROOT, binary, processes_with, wait_for

# What a step's worker does: leave a fork server behind, become the launcher.
BECOME = """
import os, socket, sys
from stoker._worker import fitness, server
stoker, folder, unfit = sys.argv[1:4]
facts = fitness.prepare()
ours, theirs = socket.socketpair()
if os.fork() == 0:
    ours.close()
    if unfit == "dies":
        os._exit(0)
    if unfit == "unfit":
        import threading, time
        threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
    import mod
    from stoker._definition.entry import Entry
    entry = Entry(mod.fn, [], [], importable=("mod", "fn"))
    server.serve(theirs, {"s": entry}, None, facts=fitness.prepare())
theirs.close()
os.set_inheritable(ours.fileno(), True)
fallback = [sys.executable, "-m", "stoker._worker", folder]
os.execv(stoker, [stoker, "launch", "--gang", folder + "/task.json", "--forkserver-fd", str(ours.fileno()), "--", *fallback])
"""


class Done:
    def __init__(self, folder: Path, code: int, out: str, err: str) -> None:
        self.folder, self.code, self.out, self.err = folder, code, out, err
        print(f"→ {code}\n{out[-3000:]}{err[-3000:]}")

    def json(self, name: str) -> Any:
        return json.loads((self.folder / name).read_text())


def attempt(
    tmp_path: Path, code: str, ranks: int = 2, how: str = "fit", **gang: Any
) -> tuple[list[str | Path], Path, dict[str, str]]:
    """Words, attempt directory and environment of a Python step that runs as ranks."""
    (tmp_path / "mod.py").write_text("import os, sys, time\ndef fn() -> None:\n" + code)
    folder = tmp_path / "s/0/1"
    folder.mkdir(parents=True)
    task = {
        **{"stoker": 1, "run": "r", "pipeline": "p", "step": "s", "task": 0, "attempt": 1},
        **{"last_attempt": True, "store": str(tmp_path), "kind": "python", "entry": "mod:fn"},
        **{"isolation": "fork", "inputs": {}, "outputs": [], "asked": {}, "rank": 0, "world": 1},
        "granted": {"devices": []},
        "gang": {
            **{"ranks": ranks, "min_ranks": ranks, "restarts": 0, "port": None, "hang_ms": 0},
            **{"grace_ms": 2000, "devices_per_rank": 0, **gang},
        },
    }
    (folder / "task.json").write_text(json.dumps(task))
    env = ENV | {
        "PYTHONPATH": f"{ROOT / 'python'}:{tmp_path}",
        "STOKER_TASK_DIR": str(folder),
    }
    return [PYTHON, "-c", BECOME, str(binary()), str(folder), how], folder, env


def run(tmp_path: Path, code: str, ranks: int = 2, how: str = "fit", **gang: Any) -> Done:
    words, folder, env = attempt(tmp_path, code, ranks, how, **gang)
    done = subprocess.run(words, env=env, capture_output=True, text=True, timeout=60, cwd=tmp_path)
    return Done(folder, done.returncode, done.stdout, done.stderr)


def test_ranks_are_forks(tmp_path: Path) -> None:
    done = run(
        tmp_path, "    print(os.environ['RANK'], os.environ['WORLD_SIZE'], os.getppid())\n", ranks=3
    )
    assert done.code == 0
    lines = sorted(done.out.splitlines())
    assert [line.split()[:3] for line in lines] == [[f"[{k}]", str(k), "3"] for k in range(3)]
    assert len({line.split()[3] for line in lines}) == 1, "one parent: the fork server"
    gang = done.json("gang.json")
    assert gang["status"] == "ok" and "fresh" not in done.err
    assert (done.folder / "rank-1/stdout.log").read_text().startswith("1 3 ")


def test_first_failing_rank(tmp_path: Path) -> None:
    # sleeps: for the other rank to begin
    code = "    if os.environ['RANK'] == '1': time.sleep(0.3); os._exit(3)\n    time.sleep(60)\n"
    done = run(tmp_path, code)
    assert done.code == 3
    sentence = "rank 1 failed: exit status 3; 1 other rank was ended because of it"
    assert sentence in done.err
    assert done.json("result.json")["error"]["message"] == sentence
    members = done.json("gang.json")["attempts"][0]["members"]
    assert members[1]["exit_status"] == 3 and members[0]["text"] == "ended because of rank 1"


def test_killed_and_restarted(tmp_path: Path) -> None:
    code = (
        "    if os.environ['TORCHELASTIC_RESTART_COUNT'] == '0':\n"
        "        if os.environ['RANK'] == '0': os.kill(os.getpid(), 9)\n"
        "        time.sleep(60)\n"
        "    print('again', os.environ['RANK'])\n"
    )
    done = run(tmp_path, code, restarts=1)
    assert done.code == 0
    assert "rank 0 failed: killed by signal 9 (SIGKILL)" in done.err
    assert sorted(done.out.splitlines()) == ["[0] again 0", "[1] again 1"]


def test_unfit_server_means_fresh_interpreters(tmp_path: Path) -> None:
    done = run(tmp_path, "    print(os.environ['RANK'])\n", how="unfit")
    assert done.code == 0 and "ranks run in fresh interpreters: " in done.err
    assert sorted(done.out.splitlines()) == ["[0] 0", "[1] 1"]


def test_server_that_dies(tmp_path: Path) -> None:
    done = run(tmp_path, "    pass\n", how="dies")
    assert done.code != 0 and "fork server" in done.err


def test_launcher_killed_leaves_nobody(tmp_path: Path) -> None:
    mark = uuid.uuid4().hex
    words, _, env = attempt(tmp_path, "    os.system('sleep 300 & sleep 300')\n")
    p = subprocess.Popen(words, env=env | {"MARK": mark}, cwd=tmp_path)
    n = 1 + 1 + 2 + 2 * 4  # launcher, server, guardians, families
    wait_for(lambda: len(processes_with(mark)) >= n)
    p.kill()
    p.wait()
    wait_for(lambda: not processes_with(mark))
