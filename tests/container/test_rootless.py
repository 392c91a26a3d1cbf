"""A rootless Podman, found where its client finds it: root in the container is the user outside."""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
from pathlib import Path

import conftest
import pytest
from contain import STOKER, Contained, wait_for

USER = 42424


@pytest.fixture(scope="module")
def rootless():
    if os.geteuid() != 0 or shutil.which("podman") is None:
        pytest.skip("needs podman, and root to become another user")
    with tempfile.TemporaryDirectory(
        prefix="stoker-rootless-",
        dir="/tmp",
        ignore_cleanup_errors=True,  # a short way: of sockets
    ) as tmp:
        home = Path(tmp)
        for name in ("storage", "state", "run", "run/podman", "steps"):
            (home / name).mkdir(mode=0o700)
        engine = conftest.Podman(home / "storage", home / "state")
        conf = engine.state / "storage.conf"
        conf.write_text(conf.read_text().replace('"overlay"', '"vfs"'))
        engine.env.update(HOME=tmp, XDG_RUNTIME_DIR=str(home / "run"), USER="")
        engine.env.pop("DOCKER_HOST")
        engine.env.pop("TMPDIR", None)  # root's
        engine.socket = home / "run" / "podman" / "podman.sock"
        engine.as_user = {"user": USER, "group": USER, "extra_groups": []}
        shutil.copy(STOKER, home / "stoker")
        for path in [home, *home.rglob("*")]:
            os.chown(path, USER, USER)
        try:
            engine.serve()
        except RuntimeError as error:
            pytest.skip(f"rootless podman can't run here: {error}")
        try:
            yield engine
        finally:
            engine("system", "migrate")  # ends what keeps the user's namespace
            engine.close()


@pytest.fixture
def start(rootless):
    home = rootless.storage.parent
    image = "localhost/stoker-test-rootless:1"
    if not rootless.has_image(image):
        tree = home / "tree"
        tree.mkdir()
        conftest.static_program(conftest.HERE / "probe.c", tree / "probe")
        rootless.load(image, tree)
    ran = []

    def start(*argv, **more):
        folder = home / "steps" / f"step{len(list((home / 'steps').iterdir()))}"
        folder.mkdir()
        os.chown(folder, USER, USER)
        argv = [word.format(folder=folder) for word in argv]
        mounts = [{"from": str(folder), "to": str(folder), "write": True}]
        more = {"socket": "", "mounts": mounts, "stoker": home / "stoker", **more}
        ran.append(Contained(rootless, folder, image, *argv, **more))
        return ran[-1]

    yield start
    for task in ran:
        task.process.kill()
        task.process.wait()
        wait_for(task.is_gone)


def test_files_are_the_users(start):
    task = start("/probe", "id", "--", "write", "{folder}/made", "x")
    assert task.end() == 0, task.err
    assert task.out == "0:0\n"
    assert (task.folder / "made").stat().st_uid == USER


def test_killed_from_behind(start):
    task = start("/probe", "say", "up", "--", "sleep", "600")
    task.says("up")
    pid = task.started()
    task.kill(signal.SIGKILL)
    wait_for(
        lambda: (
            not Path(f"/proc/{pid}").exists()
            or "Z" in Path(f"/proc/{pid}/stat").read_text().split()[2]
        ),
        1.0,
    )


def test_a_group_that_is_not_the_containers_own_says_nothing(start):
    """Without delegated groups the container is in the group of the user's session, whose peak
    belongs to other programs."""
    task = start("/probe", "eat", "5")
    assert task.end() == 0, task.err
    group = task.state["cgroup"]
    assert group is None or task.state["id"] in group
    assert 1 << 20 < task.state["peak_bytes"] < 40 << 20


def owners(task):
    """Owners of files other than the test's user."""
    ours = {"task.json", "stdout.log", "stderr.log"}
    paths = (task.folder, *task.folder.rglob("*"))
    return {path.lstat().st_uid for path in paths if path.name not in ours}


def test_root_inside_leaves_nothing_of_roots(start):
    task = start("/probe", "id", "--", "write", "{folder}/made", "x", user="root", owner="0:0")
    assert task.end() == 0, task.err
    assert task.out == "0:0\n"
    assert owners(task) == {USER}


def test_a_user_that_the_engine_has_not(start):
    """Without a range in /etc/subuid an engine has only its user's number."""
    task = start("/probe", "id", user="1234", owner="0:0")
    code = task.end()
    assert owners(task) == {USER}
    if code == 0:  # there is such a range
        assert task.out == "1234:0\n"
    else:
        assert "user '1234' of image" in task.err and "/etc/subuid" in task.err, task.err
