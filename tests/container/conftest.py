"""A private Podman for tests, and images made without any registry.

Fixtures, all of the session:

`podman`   a Podman of its own (storage, state and configuration below build/container and a folder of /tmp, nothing
           of the machine's is touched), its service on a unix socket. Use it as
               podman("ps", "-a")                 the command line; CompletedProcess with text, raises when it fails
               podman.api("GET", "/info")         the service's Docker API: (status, decoded JSON or text)
               podman.containers()                names of all containers, running or not
               podman.env                         environment for programs that shall find this one (DOCKER_HOST …)
               podman.socket                      path of the service's socket
               podman.registry                    "127.0.0.1:PORT", free, which it speaks plain HTTP to
               podman.serve(), podman.stop()      the service goes away and comes back; containers live on
`engine`   `podman`, and then the same of a real Docker (class Docker, below); for tests of what must hold on both. Docker
           is unpacked below build/docker by `make deps-test-all`, nothing of it is installed; without it: skipped.
`docker_cdi`  a newer Docker that takes CDI names, from build/docker-cdi; a parameter of `engine`, too.
`scratch`  reference of an image that holds one static program, /probe (probe.c: what tests ask it to do, its head says
           what), no shell, no Python, no libc, no /tmp.
`debian`   reference of a Debian-like image: /bin/sh, a few tools, /usr/bin/python3 with its standard library, users
           root and user (1000), ENV IMAGE_SAYS=hello, WORKDIR /srv.

The storage is kept, so a second session makes no image again. Where no Podman can run at all the tests are skipped with
the reason; in CI (the variable CI is set) that is a failure. `make deps-test-all` installs the packages.
"""

from __future__ import annotations

import fcntl
import hashlib
import http.client
import json
import os
import resource
import shutil
import signal
import socket
import subprocess
import tarfile
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Callable, Iterator

import pytest
from front_tools import cannot
from ports import free_port

ROOT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).resolve().parent
PACKAGES = ROOT / "tools" / "debian-test-all.txt"
START_S = 60.0
TOOLS = [
    "sh",
    "cat",
    "ls",
    "sleep",
    "id",
    "env",
    "mkdir",
    "chmod",
    "rm",
    "head",
    "dd",
    "true",
    "false",
    "uname",
    "touch",
    "ln",
    "stat",
]


class _UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: Path) -> None:
        super().__init__("localhost", timeout=120)
        self.path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(str(self.path))


class Podman:
    """See the head of this file."""

    def __init__(self, storage: Path, state: Path) -> None:
        self.name = "podman"
        self.is_podman = True
        self.as_user: dict[str, Any] = {}  # user, group …: whose engine it is, as Popen takes it
        self.storage, self.state = storage, state
        self.socket = state / "podman.sock"
        self.registry = f"127.0.0.1:{free_port()}"
        self.env = {
            **os.environ,
            "CONTAINERS_CONF": str(state / "containers.conf"),
            "CONTAINERS_STORAGE_CONF": str(state / "storage.conf"),
            "CONTAINERS_REGISTRIES_CONF": str(state / "registries.conf"),
            "DOCKER_HOST": f"unix://{self.socket}",
        }
        for name in ("CONTAINER_HOST", "DOCKER_CONTEXT", "XDG_RUNTIME_DIR"):
            self.env.pop(name, None)
        self._service: subprocess.Popen[bytes] | None = None
        self._configure()

    def _configure(self) -> None:
        """Its own locks and state: Podman's default is one pool for all of the machine's."""
        n_files = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        n_files = 1048576 if n_files == resource.RLIM_INFINITY else min(n_files, 1048576)
        n_procs = resource.getrlimit(resource.RLIMIT_NPROC)[1]
        n_procs = 32768 if n_procs == resource.RLIM_INFINITY else min(n_procs, 32768)
        runtime = 'runtime = "runc"' if shutil.which("runc") else ""
        (self.state / "containers.conf").write_text(f"""
[containers]
default_ulimits = ["nofile={n_files}:{n_files}", "nproc={n_procs}:{n_procs}"]
log_driver = "k8s-file"
[engine]
{runtime}
cgroup_manager = "cgroupfs"
events_logger = "file"
lock_type = "file"
tmp_dir = "{self.state}/libpod"
[network]
network_config_dir = "{self.state}/networks"
""")
        (self.state / "storage.conf").write_text(f"""
[storage]
driver = "overlay"
graphroot = "{self.storage}/graph"
runroot = "{self.state}/run"
""")
        (self.state / "registries.conf").write_text(
            f'[[registry]]\nlocation = "{self.registry}"\ninsecure = true\n'
        )

    def __call__(self, *words: str, **more: Any) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [self.name, *words],
            env=self.env,
            capture_output=True,
            text=True,
            timeout=300,
            **self.as_user,
            **more,
        )
        if done.returncode != 0:
            raise RuntimeError(f"{self.name} {' '.join(words)}: {done.returncode}\n{done.stderr}")
        return done

    def api(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        connection = _UnixConnection(self.socket)
        data = None if body is None else json.dumps(body)
        connection.request(method, "/v1.41" + path, data, {"Content-Type": "application/json"})
        answer = connection.getresponse()
        text = answer.read().decode("utf-8", "replace")
        connection.close()
        try:
            return answer.status, json.loads(text)
        except ValueError:
            return answer.status, text

    def containers(self) -> list[str]:
        """Podman fails to list if one goes away meanwhile."""
        for _ in range(20):
            status, answer = self.api("GET", "/containers/json?all=true")
            if status == 200:
                return [name.lstrip("/") for one in answer for name in one["Names"]]
        raise AssertionError(f"{status}: {answer}")

    def serve(self) -> None:
        """Starts the service and waits until it answers."""
        self.socket.unlink(missing_ok=True)
        log = open(self.state / "service.log", "ab")
        self._service = subprocess.Popen(
            ["podman", "system", "service", "--time=0", f"unix://{self.socket}"],
            **self.as_user,
            env=self.env,
            cwd=self.state,  # its monitors leave a file `oom` where they run
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
        log.close()
        self._wait(self._service, self._answers)

    def _answers(self) -> bool:
        try:
            return bool(self.api("GET", "/_ping")[0] == 200)
        except OSError:
            return False

    def _wait(self, process: subprocess.Popen[bytes], ready: Callable[[], bool]) -> None:
        until = time.monotonic() + START_S
        while time.monotonic() < until and process.poll() is None:
            if ready():
                return
            time.sleep(0.05)
        raise RuntimeError((self.state / "service.log").read_text(errors="replace")[-2000:])

    def close(self) -> None:
        """Nothing is left: no container, no service."""
        try:
            self("rm", "-fa", "-t", "0")
        finally:
            self.stop()

    def stop(self) -> None:
        """Ends the service as a crash would; containers go on."""
        if self._service is not None:
            os.killpg(self._service.pid, signal.SIGKILL)  # rootless: two processes
            self._service.wait()
            self._service = None

    def has_image(self, reference: str) -> bool:
        return self.api("GET", f"/images/{reference}/json")[0] == 200

    def load(self, reference: str, tree: Path, *changes: str) -> None:
        """An image of everything below `tree`, with Dockerfile lines as `changes`; files belong to root."""
        with _tar_of(tree) as file:
            words = [word for change in changes for word in ("--change", change)]
            self("import", "-q", *words, file.name, reference)


class Docker(Podman):
    """A private dockerd and containerd, with the same face."""

    def __init__(self, storage: Path, state: Path, *unpacked: Path) -> None:
        super().__init__(storage, state)
        self.name = "docker"
        self.is_podman = False
        self.socket = state / "docker.sock"
        self.env["DOCKER_HOST"] = f"unix://{self.socket}"
        folders = [f"{one}/usr/{kind}" for one in unpacked for kind in ("bin", "sbin")]
        self.env["PATH"] = ":".join([*folders, self.env["PATH"]])
        self.features = {"cdi": True} if len(unpacked) > 1 else {}
        self.env["DOCKER_CONFIG"] = str(state / "config")
        self._containerd: subprocess.Popen[bytes] | None = None
        self._make_hook()

    def _make_hook(self) -> None:
        """In the place of NVIDIA's: keeps the configuration of the last container that asked for GPUs."""
        folder = self.state / "bin"
        folder.mkdir(exist_ok=True)
        hook = folder / "nvidia-container-runtime-hook"
        hook.write_text(
            '#!/bin/sh\nbundle=$(sed \'s/.*"bundle":"\\([^"]*\\)".*/\\1/\')\n'
            f'cp "$bundle/config.json" {self.state}/hook.json\n'
        )
        hook.chmod(0o755)
        self.env["PATH"] = f"{folder}:{self.env['PATH']}"

    def _spawn(self, *words: str) -> subprocess.Popen[bytes]:
        with open(self.state / "service.log", "ab") as log:
            return subprocess.Popen(
                words,
                env=self.env,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def serve(self) -> None:
        self.socket.unlink(missing_ok=True)
        (self.state / "docker.pid").unlink(missing_ok=True)
        address = self.state / "containerd.sock"
        if self._containerd is None:
            (self.state / "containerd.toml").write_text(
                f'version = 2\nroot = "{self.storage}/containerd"\nstate = "{self.state}/containerd"\n'
                f'disabled_plugins = ["io.containerd.grpc.v1.cri"]\n[grpc]\naddress = "{address}"\n'
            )
            self._containerd = self._spawn("containerd", "-c", str(self.state / "containerd.toml"))
            self._wait(self._containerd, address.exists)
        config = self.state / "daemon.json"
        config.write_text(json.dumps({"features": self.features}))
        self._service = self._spawn(
            "dockerd", "--config-file", str(config), "-H", f"unix://{self.socket}", "--containerd", str(address), "--live-restore",
            "--data-root", f"{self.storage}/data", "--exec-root", f"{self.state}/exec",
            "--pidfile", f"{self.state}/docker.pid", "--bridge=none", "--iptables=false",
            "--add-runtime", f"nvidia={shutil.which('runc')}",
        )  # fmt: skip
        self._wait(self._service, self._answers)

    def close(self) -> None:
        try:
            self._remove_all()
        finally:
            for process in (self._service, self._containerd):
                if process is not None:
                    process.terminate()
                    process.wait()

    def _remove_all(self) -> None:
        until = time.monotonic() + START_S
        while self._service is not None and (names := self.containers()):
            try:
                self("rm", "-f", *names)
            except RuntimeError:  # the engine is about to remove it itself
                if time.monotonic() > until:
                    raise

    def load(self, reference: str, tree: Path, *changes: str) -> None:
        with _tar_of(tree) as file:
            words = [word for change in changes for word in ("--change", change)]
            self("import", *words, file.name, reference)


@contextmanager
def _tar_of(tree: Path) -> Iterator[Any]:
    with tempfile.NamedTemporaryFile(suffix=".tar") as file:
        with tarfile.open(file.name, "w") as tar:
            tar.add(tree, arcname=".", filter=_owned_by_root)
        os.chmod(file.name, 0o644)  # the engine may be another user's
        yield file


def _owned_by_root(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = "root"
    return entry


@contextmanager
def _running(name: str, make: Callable[[Path, Path], Podman]) -> Iterator[Podman]:
    """An engine with its storage below build/container, for one session at a time."""
    storage = ROOT / "build" / "container" / name
    storage.mkdir(parents=True, exist_ok=True)
    # Podman's database remembers both folders: the same ones each time.
    state = Path(f"/tmp/stoker-{name}-{hashlib.sha256(bytes(ROOT)).hexdigest()[:8]}")
    state.mkdir(mode=0o700, exist_ok=True)
    with open(storage / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        engine = make(storage, state)
        try:
            engine.serve()
        except (RuntimeError, OSError) as error:
            cannot(f"{name} can't run here: {error}")
        try:
            yield engine
        finally:
            engine.close()
            _unmount(storage, state)


def _unmount(*folders: Path) -> None:
    """What engines mount for themselves and leave: `make clean` couldn't remove it."""
    for line in Path("/proc/self/mounts").read_text().splitlines():
        point = Path(line.split()[1])
        if any(point.is_relative_to(folder) for folder in folders):
            subprocess.run(["umount", "-l", str(point)], check=False)


def running_podman() -> Any:
    """A context manager; bench/ uses it too."""
    return _running("podman", Podman)


@pytest.fixture(scope="session")
def podman() -> Iterator[Podman]:
    if shutil.which("podman") is None:
        cannot(f"no podman here; `make deps-test-all` installs {PACKAGES.name}")
    with running_podman() as engine:
        yield engine


@pytest.fixture(scope="session")
def docker() -> Iterator[Docker]:
    unpacked = ROOT / "build" / "docker"
    if not (unpacked / "usr" / "sbin" / "dockerd").exists() or os.geteuid() != 0:
        pytest.skip("a private Docker needs root and build/docker (make deps-test-all)")
    with _running("docker", lambda a, b: Docker(a, b, unpacked)) as engine:
        yield engine


@pytest.fixture(scope="session")
def docker_cdi() -> Iterator[Docker]:
    first, second = ROOT / "build" / "docker-cdi", ROOT / "build" / "docker"
    there = all((one / "usr" / "sbin" / "dockerd").exists() for one in (first, second))
    if not there or os.geteuid() != 0:
        pytest.skip("a Docker that knows CDI needs root and build/docker-cdi (make deps-test-all)")
    with _running("docker-cdi", lambda a, b: Docker(a, b, first, second)) as engine:
        yield engine


def _tag(name: str, *sources: Path) -> str:
    """A reference that changes with what the image is made by."""
    digest = hashlib.sha256(b"".join(s.read_bytes() for s in sources)).hexdigest()
    return f"localhost/stoker-test-{name}:{digest[:12]}"


def static_program(source: Path, program: Path) -> None:
    """Compiles one C file into a static program, by musl where it is installed."""
    compiler = shutil.which("musl-gcc") or "cc"
    subprocess.run([compiler, "-static", "-O2", "-o", str(program), str(source)], check=True)


def make_scratch(engine: Podman, tree: Path) -> str:
    reference = _tag("scratch", HERE / "probe.c", Path(__file__))
    if not engine.has_image(reference):
        tree.mkdir(exist_ok=True)
        static_program(HERE / "probe.c", tree / "probe")
        engine.load(reference, tree, 'ENTRYPOINT ["/probe", "say", "entrypoint"]')
    return reference


@pytest.fixture(scope="session")
def scratch(podman: Podman, tmp_path_factory: pytest.TempPathFactory) -> str:
    return make_scratch(podman, tmp_path_factory.mktemp("scratch"))


def _copy(tree: Path, path: Path) -> None:
    """A file of the host to the same place in the tree, links followed."""
    target = tree / path.relative_to("/")
    target.parent.mkdir(parents=True, exist_ok=True)
    if not target.exists():
        shutil.copy2(path, target)


def _libraries(paths: list[Path]) -> set[Path]:
    text = subprocess.run(["ldd", *map(str, paths)], stdout=subprocess.PIPE, text=True).stdout
    words = {word for line in text.splitlines() for word in line.split() if word.startswith("/")}
    return {Path(word) for word in words if not word.endswith(":")}


def _debian_tree(tree: Path) -> None:
    ask = "import sysconfig, os, sys; print(os.path.realpath(sys.executable)); print(sysconfig.get_path('stdlib'))"
    said = subprocess.run(
        ["/usr/bin/python3", "-I", "-c", ask], stdout=subprocess.PIPE, text=True, check=True
    ).stdout.split()
    python, stdlib = Path(said[0]), Path(said[1])
    for folder in ("tmp", "etc", "srv", "root", "home/user", "usr/bin", "usr/lib", "usr/lib64"):
        (tree / folder).mkdir(parents=True, exist_ok=True)
    (tree / "tmp").chmod(0o1777)
    for folder in ("bin", "lib", "lib64"):
        (tree / folder).symlink_to(f"usr/{folder}")
    (tree / "etc" / "passwd").write_text(
        "root:x:0:0:root:/root:/bin/sh\nuser:x:1000:1000::/home/user:/bin/sh\n"
    )
    (tree / "etc" / "group").write_text("root:x:0:\nuser:x:1000:\n")
    (tree / "etc" / "os-release").write_text('ID=debian\nPRETTY_NAME="Debian of the tests"\n')
    unneeded = shutil.ignore_patterns(
        "test", "tests", "idlelib", "tkinter", "ensurepip", "lib2to3", "config-*", "pydoc_data",
        "*-packages", "turtledemo",
    )  # fmt: skip
    shutil.copytree(stdlib, tree / stdlib.relative_to("/"), ignore=unneeded, symlinks=False)
    programs = [Path(found) for t in TOOLS if (found := shutil.which(t, path="/usr/bin:/bin"))]
    for path in (*programs, python):
        _copy(tree, Path("/usr/bin") / path.name)
    (tree / "usr" / "bin" / "python3").symlink_to(python.name)
    for path in _libraries([*programs, python, *stdlib.glob("lib-dynload/*.so")]):
        _copy(tree, path if path.is_relative_to("/usr") else Path("/usr") / path.relative_to("/"))


def _debian(engine: Podman, tree: Path) -> str:
    reference = _tag("debian", Path(__file__), Path("/usr/bin/python3"))
    if not engine.has_image(reference):
        _debian_tree(tree)
        engine.load(
            reference,
            tree,
            "ENV PATH=/usr/local/bin:/usr/bin:/bin",
            "ENV IMAGE_SAYS=hello",
            "WORKDIR /srv",
            'ENTRYPOINT ["/bin/sh", "-c", "echo entrypoint; exec \\"$@\\"", "sh"]',
            'CMD ["sleep", "1000"]',
        )
    return reference


@pytest.fixture(scope="session")
def debian(podman: Podman, tmp_path_factory: pytest.TempPathFactory) -> str:
    return _debian(podman, tmp_path_factory.mktemp("debian"))


@pytest.fixture(scope="session", params=["podman", "docker"])
def engine(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Podman:
    """It holds the images `scratch` and `debian`, under the same names in both."""
    engine = request.getfixturevalue(request.param)
    make_scratch(engine, tmp_path_factory.mktemp("scratch"))
    _debian(engine, tmp_path_factory.mktemp("debian"))
    return engine


@pytest.fixture
def project(tmp_path: Path, podman: Any) -> Any:
    """A run_tools.Project with Podman."""
    from run_tools import project_in

    return project_in(tmp_path, podman)
