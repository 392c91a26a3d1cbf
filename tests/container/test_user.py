"""`docker: {user: …}`: the program runs as that user, and its files belong to the user who started
it."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from contain import Contained, wait_for
from run_tools import STOKER, WAIT_S, Project, log_when_up, ours, project_in


@pytest.fixture
def project(tmp_path: Path, engine: Any) -> Project:
    return project_in(tmp_path, engine)


def strangers(folder: Path) -> list[str]:
    """Files that don't belong to us."""
    uid = os.geteuid()
    return [str(p) for p in (folder, *folder.rglob("*")) if p.lstat().st_uid != uid]


def run(project: Project, debian: str, user: str, step: str, ok: bool = True) -> dict[str, Any]:
    project.write(
        "p.yaml",
        f"""
        stoker: 1
        name: p
        cache: false
        docker: {{parent_image: {debian}, user: "{user}"}}
        steps:
          {step}
        """,
    )
    shown = project.run("--with", "docker", ok=ok)
    wait_for(lambda: ours(project.podman, shown["run"]) == [])
    return shown


WRITES = "a: {run: 'id -u; id -g; mkdir -m 700 $STOKER_OUTPUT/d; echo x > $STOKER_OUTPUT/d/x; ls -d code.txt; echo err >&2', outputs: [d]}"


@pytest.mark.parametrize(
    ("user", "ids"),
    [("user", "1000\n1000\n"), ("1234:4321", "1234\n4321\n"), ("root", "0\n0\n"), ("0", "0\n0\n")],
)
def test_commands(project: Project, debian: str, user: str, ids: str) -> None:
    project.write("code.txt", "")
    shown = run(project, debian, user, WRITES)
    assert project.log(shown["steps"]["a"]) == ids + "code.txt\n"
    assert project.log(shown["steps"]["a"], "stderr") == "err\n"
    made = Path(shown["steps"]["a"]["outputs"]["d"]["path"])
    assert (made / "x").read_text() == "x\n"
    assert strangers(project.folder) == []


def test_a_user_that_is_not_there(project: Project, debian: str) -> None:
    shown = run(project, debian, "nosuch", WRITES, ok=False)
    assert "has no user 'nosuch'" in shown["steps"]["a"]["error"]["text"]
    assert strangers(project.folder) == []


def test_python_steps_and_checkpoints(project: Project, debian: str) -> None:
    project.write(
        "flow.py",
        f"""
        import os, sys
        from stoker import checkpoint, pipeline, step

        @step(step_operator="docker", settings={{"docker": {{"parent_image": "{debian}", "user": "user"}}}})
        def first() -> int:
            checkpoint.save({{"n": 1}})
            print("as", os.getuid(), os.environ["HOME"], flush=True)
            print("and here", file=sys.stderr)
            return os.getuid()

        @step(step_operator="docker", settings={{"docker": {{"parent_image": "{debian}", "user": "1234"}}}})
        def second(n: int) -> int:
            raise ValueError(f"{{n}} as {{os.getuid()}}")

        @pipeline(enable_cache=False)
        def flow():
            second(first())

        if __name__ == "__main__":
            flow()
        """,
    )
    done = subprocess.run(
        [sys.executable, "flow.py"],
        cwd=project.folder,
        env=project.env,
        capture_output=True,
        text=True,
    )
    assert done.returncode != 0
    shown = project.show()
    first, second = shown["steps"]["first"], shown["steps"]["second"]
    assert first["status"] == "succeeded", first
    assert project.log(first).startswith("as 1000 ") and "and here" in project.log(first, "stderr")
    assert Path(first["outputs"]["output"]["path"]).read_text() == "1000"
    assert (
        "1000 as 1234" in second["error"]["text"] and "ValueError" in second["error"]["traceback"]
    )
    assert strangers(project.folder) == []


def test_ranks(project: Project, debian: str) -> None:
    step = "a: {run: 'echo $RANK $(id -u)', gang: {ranks: 2}}"
    shown = run(project, debian, "user", step)
    said = project.log(shown["steps"]["a"])
    assert sorted(said.splitlines()) == ["[0] 0 1000", "[1] 1 1000"]
    assert strangers(project.folder) == []


def running(project: Project, debian: str) -> tuple[subprocess.Popen[str], Path]:
    """A run whose step left a folder that only its user can open, and the step's log."""
    project.write(
        "p.yaml",
        f"""
        stoker: 1
        name: p
        docker: {{parent_image: {debian}, user: "user"}}
        steps:
          a: {{run: "mkdir -m 700 $STOKER_TASK_DIR/d; echo up; sleep 600"}}
        """,
    )
    engine = project.start("--with", "docker", "p.yaml")
    log = log_when_up(project, "a")
    return engine, log


def test_killed(project: Project, debian: str) -> None:
    """However it ends: no file of that user is left once its container is gone."""
    engine, log = running(project, debian)
    assert (log.parent / "d").stat().st_uid == 1000
    for pid in subprocess.run(
        ["pgrep", "-f", f"contain {log.parent}"], capture_output=True, text=True
    ).stdout.split():
        os.kill(int(pid), signal.SIGKILL)
    engine.wait(WAIT_S)
    wait_for(lambda: strangers(project.folder) == [])


def test_the_runner_itself_is_killed(project: Project, debian: str) -> None:
    """Then no process inside can give the files back: another container of that image does."""
    engine, log = running(project, debian)
    run = log.parts[-5]
    project.podman("kill", *ours(project.podman, run))
    engine.wait(WAIT_S)
    assert strangers(project.folder) == []
    wait_for(lambda: ours(project.podman, run) == [])


@pytest.fixture
def others(engine: Any, scratch: str) -> Any:
    """start(*argv, **container): by an unprivileged user to whom root's engine listens, as the group docker's."""
    uid = 42425
    with tempfile.TemporaryDirectory(dir="/tmp", prefix="stoker-other-") as tmp:
        home = Path(tmp)
        (home / "run").mkdir()
        shutil.copy(STOKER, home / "stoker")
        for path in (home, *home.iterdir()):
            os.chown(path, uid, uid)
        door = socket.socket(socket.AF_UNIX)
        door.bind(str(home / "engine.sock"))
        os.chmod(home / "engine.sock", 0o666)
        door.listen(20)
        threading.Thread(target=_relay, args=(door, str(engine.socket)), daemon=True).start()
        face = SimpleNamespace(
            socket=home / "engine.sock",
            env={**engine.env, "HOME": tmp, "TMPDIR": tmp},
            as_user={"user": uid, "group": uid, "extra_groups": []},
            containers=engine.containers,
        )

        def start(*argv: str, **container: Any) -> Contained:
            folder = home / "run" / "step"
            folder.mkdir()
            os.chown(folder, uid, uid)
            os.chmod(folder, 0o700)
            argv = tuple(word.format(folder=folder) for word in argv)
            mounts = [{"from": str(folder), "to": str(folder), "write": True}]
            return Contained(
                face, folder, scratch, *argv, mounts=mounts, stoker=home / "stoker",
                owner=f"{uid}:{uid}", **container,
            )  # fmt: skip

        start.uid = uid  # type: ignore[attr-defined]
        yield start
        door.close()


def _relay(door: socket.socket, to: str) -> None:
    def pump(a: socket.socket, b: socket.socket) -> None:
        try:
            while data := a.recv(65536):
                b.sendall(data)
            b.shutdown(socket.SHUT_WR)
        except OSError:
            pass

    while True:
        try:
            one, _ = door.accept()
        except OSError:
            return
        other = socket.socket(socket.AF_UNIX)
        other.connect(to)
        for pair in ((one, other), (other, one)):
            threading.Thread(target=pump, args=pair, daemon=True).start()


@pytest.mark.parametrize(("user", "ids"), [("root", "0:0"), ("1234:99", "1234:99")])
@pytest.mark.parametrize("ends", ["itself", "killed"])
def test_an_unprivileged_users_files(
    others: Any, engine: Any, user: str, ids: str, ends: str
) -> None:
    """The user can remove all files, and can read the log while it runs."""
    task = others(
        "/probe",
        "id",
        "--",
        "write",
        "{folder}/made",
        "x",
        "--",
        "say",
        "up",
        *(["--", "sleep", "600"] if ends == "killed" else []),
        user=user,
    )
    if ends == "killed":
        task.says("up")
        task.started()
        engine("kill", task.name)
        assert task.end() == -signal.SIGKILL
    else:
        assert task.end() == 0, task.err
    assert task.out == f"{ids}\nup\n"
    left = {path.lstat().st_uid for path in (task.folder, *task.folder.rglob("*"))}
    assert left == {others.uid}, task.err
    assert "may keep that owner" not in task.err
    wait_for(lambda: task.name not in engine.containers())


def test_with_secrets(project: Project, debian: str) -> None:
    """Whose logs go through a pipe, which a program may open again by its name."""
    project.write(
        "p.yaml",
        f"""
        stoker: 1
        name: p
        cache: false
        docker: {{parent_image: {debian}, user: user}}
        steps:
          a: {{run: 'id -u; echo $TOKEN$STOKER_SECRET_TOKEN > /dev/stdout; echo x > $STOKER_OUTPUT/x', secrets: [TOKEN], outputs: [x]}}
        """,
    )
    shown = project.run("--with", "docker", STOKER_SECRET_TOKEN="tops3cret-value")
    said = project.log(shown["steps"]["a"])
    assert said.startswith("1000\n") and "tops3cret-value" not in said and "*" in said, said
    folder = Path(shown["steps"]["a"]["dir"])
    assert folder.stat().st_mode & 0o077 == 0 or folder.parent.stat().st_mode & 0o077 == 0
    assert strangers(project.folder) == []
