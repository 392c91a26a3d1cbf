"""What another user can do by files: nothing, unless this user trusts the folder. Needs root to run
as other users."""

from __future__ import annotations

import json
import os
import shutil
import socket
import stat
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from cli_tools import PYTHON, ROOT
from stoker_binary import find_binary

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can be several users")

ME, OTHER, LAB = 41001, 41002, 41500  # no accounts: each has a group of the same number
PIPELINE = 'stoker: 1\nname: p\nsteps:\n  one: {run: id -u > "$WHO"; echo one}\n'
STACKS = "stacks:\n  far: {backend: docker, default_image: 'x:1'}\n"
READS = (
    ["resume"],
    ["show"],
    ["runs"],
    ["logs", "latest", "one"],
    ["why", "latest/one"],
    ["tag", "latest", "--add", "x"],
    ["artifact", "list"],
    ["store", "path"],
    ["store", "verify"],
    ["store", "gc"],
    ["run", "pipeline.yaml"],
    ["plan", "pipeline.yaml"],
)


class Place:
    """A folder that every user can enter, with a copy of the engine in it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.binary = root / "stoker"
        shutil.copy(find_binary(), self.binary)

    def folder(self, name: str, uid: int = ME, mode: int = 0o755, gid: int | None = None) -> Path:
        path = self.root / name
        path.mkdir(parents=True)
        os.chown(path, uid, uid if gid is None else gid)
        path.chmod(mode)
        return path

    def file(self, path: Path, text: str, uid: int = ME, mode: int = 0o644) -> Path:
        path.write_text(text)
        os.chown(path, uid, uid)
        path.chmod(mode)
        return path

    def call(
        self,
        cwd: Path,
        *args: str,
        uid: int = ME,
        program: str | None = None,
        umask: int = 0o022,
        **env: str,
    ) -> subprocess.CompletedProcess[str]:
        """`stoker` as a user; a hang is a failure."""
        home = self.root / f"home-{uid}"
        if not home.exists():
            self.folder(home.name, uid)
        done = subprocess.run(
            [program or str(self.binary), *args],
            cwd=cwd,
            env={
                "PATH": os.environ["PATH"],
                "HOME": str(home),
                "WHO": str(self.root / f"who-{uid}"),
                "STOKER_ACCEL": "none",
                "STOKER_LEASE_DIR": str(home),
                **env,
            },
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=60,
            user=uid,
            group=uid,
            extra_groups=[LAB] if uid in (ME, OTHER) else [],
            umask=umask,
        )
        print(f"{uid}: {args} → {done.returncode}\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
        return done

    def project(self, name: str, uid: int = ME) -> Path:
        """A user's project, with a run in its store."""
        path = self.folder(name, uid)
        self.file(path / "pipeline.yaml", PIPELINE, uid)
        assert self.call(path, "run", "pipeline.yaml", uid=uid).returncode == 0
        return path


@pytest.fixture
def place() -> Iterator[Place]:
    root = Path(tempfile.mkdtemp(prefix="stoker-trust-"))
    root.chmod(0o755)
    yield Place(root)
    shutil.rmtree(root)


def refused(done: subprocess.CompletedProcess[str], *words: str) -> bool:
    assert done.returncode == 3, done.stderr
    for word in words:
        assert word in done.stderr
    return "not used" in done.stderr


@pytest.mark.parametrize("args", READS, ids=lambda a: " ".join(a))
@pytest.mark.parametrize("uid", [0, ME])
def test_the_store_of_another_user(place: Place, args: list[str], uid: int) -> None:
    project = place.project("p", OTHER)
    if uid == 0:  # root could read and write all of it
        (project / "pipeline.yaml").chmod(0o600)
        os.chown(project / "pipeline.yaml", 0, 0)
    before = {p: p.stat().st_mtime_ns for p in project.rglob("*")}
    assert refused(place.call(project, *args, uid=uid), f"belongs to user {OTHER}", "stoker trust")
    assert {p: p.stat().st_mtime_ns for p in project.rglob("*")} == before
    assert not (place.root / f"who-{uid}").exists()


def test_sudo_serves_a_user(place: Place) -> None:
    project = place.project("p", OTHER)
    assert place.call(project, "show", uid=0, SUDO_UID=str(OTHER)).returncode == 0
    assert refused(place.call(project, "show", uid=0, SUDO_UID=str(ME)))
    assert refused(place.call(project, "show", uid=0, SUDO_UID=f"{OTHER}x"))
    # anyone can claim that
    assert refused(place.call(project, "show", uid=ME, SUDO_UID=str(OTHER)))


def test_trust_and_its_end(place: Place) -> None:
    project = place.project("p", OTHER)
    assert refused(place.call(project, "show", uid=0), f"stoker trust {project}")
    assert "is trusted" in place.call(project, "trust", ".", uid=0).stdout
    listed = place.root / "home-0" / ".config" / "stoker" / "trusted"
    assert str(project) in listed.read_text() and stat.S_IMODE(listed.stat().st_mode) == 0o600
    assert not any("trust" in p.name for p in project.rglob("*"))  # nothing in the folder
    assert place.call(project, "show", uid=0).returncode == 0
    assert place.call(project, "show", uid=ME).returncode == 3  # each user's own word
    assert place.call(project, "trust", "--list", uid=0).stdout == f"{project}\n"
    (answer,) = json.loads(place.call(project, "trust", "--list", "--json", uid=0).stdout)
    assert answer == {"folder": str(project), "owner": OTHER, "is_current": True}
    assert place.call(project, "trust", "--remove", ".", uid=0).returncode == 0
    assert refused(place.call(project, "show", uid=0))
    assert place.call(project, "trust", "--remove", ".", uid=0).returncode == 2


def test_another_folder_in_place_of_a_trusted_one(place: Place) -> None:
    above = place.folder("lab", OTHER)
    project, second = place.project("lab/p", OTHER), place.project("lab/q", OTHER)
    assert place.call(above, "trust", "p", uid=ME).returncode == 0
    assert place.call(project, "runs", uid=ME).returncode == 0
    project.rename(above / "away")
    second.rename(project)  # of the same owner: only the inode differs
    assert refused(place.call(project, "runs", uid=ME))
    assert f"{project}  (" in place.call(above, "trust", "--list").stdout


def test_the_list_of_trusted_folders_is_ours(place: Place) -> None:
    project = place.project("p", OTHER)
    config = place.folder("config", OTHER)
    place.call(project, "trust", ".", uid=OTHER, XDG_CONFIG_HOME=str(config))
    (config / "stoker").chmod(0o755)
    (config / "stoker" / "trusted").chmod(0o644)
    assert place.call(project, "show", uid=OTHER, XDG_CONFIG_HOME=str(config)).returncode == 0
    assert refused(place.call(project, "show", uid=ME, XDG_CONFIG_HOME=str(config)))


def test_what_everybody_may_write(place: Place) -> None:
    project = place.project("p")
    for path, sentence in (
        (project / ".stoker", "everybody may write it"),
        (project / ".stoker" / "runs", "everybody may write it"),
        (project / ".stoker" / "store.db", "everybody may write it"),
        (project, f"everybody may write '{project}' above it"),
    ):
        mode = path.stat().st_mode
        path.chmod(0o777)
        assert refused(place.call(project, "show"), sentence, "chmod o-w")
        path.chmod(mode)
        assert place.call(project, "show").returncode == 0
    (project / "pipeline.yaml").chmod(0o666)
    assert refused(place.call(project, "run", "pipeline.yaml"), "pipeline.yaml")
    project.chmod(0o777)
    done = place.call(place.root, "trust", str(project))
    assert done.returncode == 3 and f"can't trust '{project}'" in done.stderr
    project.chmod(0o1777)  # sticky: others can't replace it
    (project / "pipeline.yaml").chmod(0o644)
    assert place.call(project, "run", "pipeline.yaml").returncode == 0


def test_a_trusted_folder_ends_where_everybody_may_write(place: Place) -> None:
    top = place.folder("lab", OTHER)
    scratch = place.folder("lab/scratch", OTHER, 0o1777)
    place.project("lab/scratch/p", OTHER)
    assert place.call(top, "trust", ".", uid=ME).returncode == 0
    assert refused(place.call(scratch / "p", "show", uid=ME), f"belongs to user {OTHER}")


def test_umask_002(place: Place) -> None:
    """A group of only the user counts as the user; a lab's group is trusted by name."""
    project = place.folder("p")
    place.file(project / "pipeline.yaml", PIPELINE, mode=0o664)
    place.file(project / "stoker.yaml", STACKS, mode=0o664)
    for _ in range(2):
        assert place.call(project, "run", "pipeline.yaml", umask=0o002).returncode == 0
    assert stat.S_IMODE((project / ".stoker").stat().st_mode) == 0o775


def test_a_folder_of_a_lab(place: Place) -> None:
    """As on NFS: another owner, the lab's group, setgid, umask 002."""
    shared = place.folder("lab", OTHER, 0o2775, LAB)
    place.file(shared / "pipeline.yaml", PIPELINE)
    assert place.call(shared, "run", "pipeline.yaml", umask=0o002).returncode == 0
    assert stat.S_IMODE((shared / ".stoker").stat().st_mode) & 0o777 == 0o700  # nobody else's
    assert place.call(shared, "show", umask=0o002).returncode == 0
    os.chown(shared / "pipeline.yaml", ME, LAB)
    (shared / "pipeline.yaml").chmod(0o664)
    assert refused(
        place.call(shared, "run", "pipeline.yaml"), f"group {LAB} may write", str(shared)
    )
    assert place.call(shared, "trust", ".").returncode == 0
    assert place.call(shared, "run", "pipeline.yaml").returncode == 0


def test_umask_000(place: Place) -> None:
    project = place.folder("p")
    place.file(project / "pipeline.yaml", PIPELINE)
    for _ in range(2):
        assert place.call(project, "run", "pipeline.yaml", umask=0).returncode == 0
    assert stat.S_IMODE((project / ".stoker").stat().st_mode) == 0o700


def test_code_of_another_user(place: Place) -> None:
    project = place.folder("p")
    program = place.file(project / "prog.py", "open('ran', 'w')\n", OTHER)
    assert refused(place.call(project, "run", "prog.py"), f"belongs to user {OTHER}")
    assert refused(place.call(project, "run", "prog.py:pipe"), f"belongs to user {OTHER}")
    place.file(project / "pipeline.yaml", PIPELINE, OTHER)
    assert refused(place.call(project, "run", "pipeline.yaml"), f"belongs to user {OTHER}")
    os.chown(program, 0, 0)  # root's is fine
    place.call(project, "run", "prog.py", "--python", PYTHON)
    assert not (project / ".stoker").exists()


def test_a_stack_file_of_another_user(place: Place) -> None:
    """Another user's stoker.yaml redefines no place, and one in a public folder affects no other
    user."""
    project = place.project("p")
    place.file(project / "stoker.yaml", "stacks: {local: {backend: docker}}\n", OTHER)
    for args in (
        ["run", "pipeline.yaml"],
        ["plan", "pipeline.yaml"],
        ["stack"],
        ["stack", "show", "local"],
    ):
        assert refused(place.call(project, *args), "stoker.yaml", f"belongs to user {OTHER}")
    (project / "stoker.yaml").unlink()
    open_folder = place.folder("tmp", 0, 0o1777)
    below = place.folder("tmp/mine")
    place.file(below / "pipeline.yaml", PIPELINE)
    place.file(open_folder / "stoker.yaml", "stacks: {local: {backend: docker}}\n", OTHER)
    (open_folder / ".stoker").symlink_to(place.project("bait", OTHER) / ".stoker")
    (open_folder / "pyproject.toml").symlink_to(project / "pipeline.yaml")
    assert place.call(below, "run", "pipeline.yaml").returncode == 0
    assert (below / ".stoker").is_dir()


def test_the_project_s_root(place: Place) -> None:
    """The search goes up from here to the nearest own folder with a mark."""
    top = place.project("top")
    below = place.folder("top/a")
    deep = place.folder("top/a/b")
    place.file(deep / "pipeline.yaml", PIPELINE)
    place.file(top / "stoker.yaml", STACKS)
    assert place.call(deep, "store", "path").stdout == f"{top}/.stoker\n"
    assert "far" in place.call(deep, "stack").stdout
    (below / ".git").mkdir()
    os.chown(below / ".git", OTHER, OTHER)
    assert place.call(deep, "store", "path").stdout == f"{top}/.stoker\n"  # a mark of another user
    os.chown(below / ".git", ME, ME)
    done = place.call(deep, "show")
    assert (
        done.returncode == 2 and f"{top}/.stoker" in done.stderr and "STOKER_STORE" in done.stderr
    )
    done = place.call(deep, "run", "pipeline.yaml", "--with", "far")
    assert done.returncode == 2 and f"{top}/stoker.yaml" in done.stderr
    first = place.call(deep, "run", "pipeline.yaml").stderr.splitlines()
    assert f"{top}/.stoker" in first[0] and "STOKER_STORE" in first[0]
    assert "STOKER_STORE" not in place.call(deep, "run", "pipeline.yaml").stderr  # said once
    shutil.rmtree(deep / ".stoker")
    place.folder("top/a/.stoker")
    assert place.call(deep, "run", "pipeline.yaml").stderr.startswith(
        f"stoker: store {below}/.stoker\n"
    )
    done = place.call(deep, "run", "pipeline.yaml", STOKER_STORE=str(top / ".stoker"))
    assert done.stderr.startswith(f"stoker: store {top}/.stoker\n")
    assert not place.call(top, "run", "pipeline.yaml").stderr.startswith("stoker: store")


def test_stack_looks_where_run_looks(place: Place) -> None:
    project = place.folder("p")
    place.file(project / "pipeline.yaml", PIPELINE)
    place.file(project / "stoker.yaml", STACKS)
    assert "far" not in place.call(place.root, "stack").stdout
    assert "far" in place.call(place.root, "stack", "--file", "p/pipeline.yaml").stdout
    assert (
        place.call(place.root, "stack", "show", "far", "--file", "p/pipeline.yaml").returncode == 0
    )
    done = place.call(place.root, "plan", "p/pipeline.yaml", "--with", "far")
    assert "no stack" not in done.stderr


def fifo(path: Path) -> None:
    os.mkfifo(path)


def unix_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as s:
        s.bind(str(path))


def device(path: Path) -> None:
    os.mknod(path, stat.S_IFCHR | 0o644, os.makedev(1, 5))  # /dev/zero: has no end


def huge(path: Path) -> None:
    with path.open("w") as stream:
        stream.truncate(1 << 40)


@pytest.mark.parametrize("make", [fifo, unix_socket, device, huge])
@pytest.mark.parametrize("name", ["stoker.yaml", "pipeline.yaml"])
def test_no_file(place: Place, make: Callable[[Path], None], name: str) -> None:
    """Opening a pipe without a writer waits for ever, and reading a file without an end takes all
    memory."""
    project = place.folder("p")
    place.file(project / "pipeline.yaml", PIPELINE)
    (project / name).unlink(missing_ok=True)
    try:
        make(project / name)
    except PermissionError:
        pytest.skip("no devices can be made here")
    os.chown(project / name, ME, ME)
    done = place.call(project, "run", "pipeline.yaml")
    assert done.returncode in (2, 3) and name in done.stderr
    assert not (place.root / f"who-{ME}").exists()


@pytest.mark.parametrize("part", ["", "tmp", "runs", "artifacts", "store.db", "lock"])
@pytest.mark.parametrize("uid", [ME, 0])
def test_links_lead_nowhere(place: Place, part: str, uid: int) -> None:
    """Nothing that a link in a store leads to is removed, filled or read."""
    project = place.project("p", uid)
    victim = place.folder("victim", uid)
    for name in ("20200101-000000-abcdef", "deadbeef", "0123456789abcdef", "ab"):
        place.file(place.folder(f"victim/{name}", uid) / "keep", "dear", uid)
    place.file(victim / "file", "dear", uid)
    what = project / ".stoker" / part
    is_file = part in ("store.db", "lock")
    shutil.rmtree(what) if what.is_dir() else what.unlink()
    what.symlink_to(victim / "file" if is_file else victim)
    before = {p: p.stat().st_mtime_ns for p in victim.rglob("*")}
    for args in (["run", "pipeline.yaml"], ["store", "gc"], ["resume"], ["show"]):
        done = place.call(project, *args, uid=uid)
        assert done.returncode == 3 and "store" in done.stderr
    assert {p: p.stat().st_mtime_ns for p in victim.rglob("*")} == before


def test_only_what_the_engine_made_is_removed(place: Place) -> None:
    project = place.project("p")
    store = project / ".stoker"
    victim = place.folder("victim")
    place.file(victim / "keep", "dear")
    for name in ("mine", "checkpoint-abcdef", "0123456789abcde", "0123456789ABCDEF"):
        place.file(place.folder(f"p/.stoker/tmp/{name}") / "keep", "dear")
    (store / "tmp" / "0123456789abcdef").symlink_to(victim)
    left = place.folder("p/.stoker/tmp/fedcba9876543210")  # of a dead engine
    for name in ("mine", "deadbeef", "2020", "20200101-000000"):
        place.file(place.folder(f"p/.stoker/runs/{name}") / "keep", "dear")
    (store / "runs" / "20200101-000000-abcdef").symlink_to(victim)
    gone = place.folder("p/.stoker/runs/20200101-000000-fedcba")  # never begun
    (store / "artifacts" / "00").symlink_to(victim)
    kept = [p for p in store.rglob("keep")]
    assert len(kept) == 8
    done = place.call(project, "store", "gc")
    assert done.returncode == 3 and "artifacts" in done.stderr  # what can't be listed: nothing goes
    (store / "artifacts" / "00").unlink()
    assert place.call(project, "store", "gc").returncode == 0
    assert place.call(project, "run", "pipeline.yaml").returncode == 0
    assert all(p.exists() for p in kept) and (victim / "keep").exists()
    assert not left.exists() and not gone.exists()


def test_python_asks_the_engine(place: Place) -> None:
    project = place.project("p", OTHER)
    code = "from stoker import Client; print(len(Client().list_pipeline_runs()))"
    env = {"PYTHONPATH": str(ROOT / "python"), "STOKER_BIN": str(place.binary)}
    flow = "from stoker.flow import Metaflow; print(Metaflow().flows)"
    for program in (code, flow):
        done = place.call(project, "-c", program, uid=0, program=PYTHON, **env)
        assert done.returncode == 3 and f"belongs to user {OTHER}" in done.stderr
    assert place.call(project, "trust", ".", uid=0).returncode == 0
    for program in (code, flow):
        assert place.call(project, "-c", program, uid=0, program=PYTHON, **env).returncode == 0


def test_a_bind_mount_of_another_user_in_a_namespace(place: Place) -> None:
    """Root inside, as in a container: the folder's owner outside is 'nobody' inside."""
    project = place.project("p", OTHER)
    tool = shutil.which("unshare")
    if tool is None or place.call(place.root, "-Ur", "true", program=tool).returncode != 0:
        pytest.skip("no user namespaces here")
    inside = place.call(project, "-Ur", str(place.binary), "resume", program=tool)
    assert refused(inside, "belongs to user 65534")
    own = place.project("own")
    assert place.call(own, "-Ur", str(place.binary), "show", program=tool).returncode == 0
    assert place.call(project, "-Ur", str(place.binary), "trust", ".", program=tool).returncode == 0
    assert place.call(project, "-Ur", str(place.binary), "show", program=tool).returncode == 0
