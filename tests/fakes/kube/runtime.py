"""Starts containers: a small separate process that forks one child per container.

The server runs it as ``python -I -S runtime.py FD``. It exchanges JSON lines with the server's
kubelets over the socket FD: it receives ``start`` (with the log's pipe as a passed descriptor) and
``signal``, and sends ``started``, ``failed`` and ``exit``. Each container has its own mount, PID,
UTS and IPC namespaces. Its first process is PID 1 there, so all its processes end with that one,
and all containers end with this process. A container's root is a tmpfs with read-only binds of the
host's system folders; the pod's volumes are bound at their mountPath. A memory limit uses a control
group; where none can be made, it isn't enforced.
"""

# mypy: ignore-errors
import array
import ctypes
import errno
import gc
import json
import os
import select
import signal
import socket
import stat
import sys

libc = ctypes.CDLL(None, use_errno=True)
NEWNS, NEWUTS, NEWIPC, NEWPID = 0x20000, 0x4000000, 0x8000000, 0x20000000
MS_RDONLY, MS_REMOUNT, MS_BIND, MS_REC, MS_PRIVATE, MS_NOSUID = 1, 32, 4096, 16384, 1 << 18, 2
PR_SET_PDEATHSIG = 1
SYSTEM = ("usr", "bin", "sbin", "lib", "lib32", "lib64", "libx32", "etc", "opt")
DEVICES = ("null", "zero", "full", "random", "urandom", "tty")


def check(result, what):
    if result != 0:
        code = ctypes.get_errno()
        raise OSError(code, f"{what}: {os.strerror(code)}")


def mount(source, target, kind, flags=0, data=""):
    done = libc.mount(
        source.encode(), target.encode(), kind.encode(), ctypes.c_ulong(flags), data.encode()
    )
    check(done, f"mount {source} at {target}")


def bind(source, target, read_only):
    """Bind a file or a folder; a missing target is created, but only in the container's tmpfs."""
    if not os.path.lexists(target):
        if os.path.isdir(source):
            os.makedirs(target)
        else:
            os.makedirs(os.path.dirname(target), exist_ok=True)
            os.close(os.open(target, os.O_CREAT | os.O_WRONLY, 0o644))
    mount(source, target, "", MS_BIND | MS_REC)
    if read_only:
        mount("none", target, "", MS_REMOUNT | MS_BIND | MS_RDONLY)


def build_root(root, spec):
    """Build the container's file system below ``root``, in its own mount namespace."""
    mount("none", "/", "", MS_REC | MS_PRIVATE)
    mount("tmpfs", root, "tmpfs", MS_NOSUID, "mode=755,size=1g")
    for name in SYSTEM:
        host = "/" + name
        if os.path.islink(host):
            os.symlink(os.readlink(host), root + host)
        elif os.path.isdir(host):
            bind(host, root + host, True)
    for name, mode in (
        ("tmp", 0o1777),
        ("run", 0o755),
        ("var", 0o755),
        ("root", 0o700),
        ("home", 0o755),
    ):
        os.mkdir(f"{root}/{name}")
        os.chmod(f"{root}/{name}", mode)
    for name in ("tmp", "log", "lib"):
        os.mkdir(f"{root}/var/{name}")
    os.symlink("../run", f"{root}/var/run")  # an absolute link would lead to the host's /run
    os.mkdir(root + "/proc")
    mount("proc", root + "/proc", "proc")
    if os.path.isdir("/sys"):
        os.mkdir(root + "/sys")
        mount("/sys", root + "/sys", "", MS_BIND | MS_REC)
    os.mkdir(root + "/dev")
    for name in DEVICES:
        if os.path.exists("/dev/" + name):
            bind("/dev/" + name, f"{root}/dev/{name}", False)
    os.mkdir(root + "/dev/shm")
    mount("tmpfs", root + "/dev/shm", "tmpfs", MS_NOSUID, "mode=1777,size=64m")
    for i, name in enumerate(("stdin", "stdout", "stderr")):
        os.symlink(f"/proc/self/fd/{i}", f"{root}/dev/{name}")
    os.symlink("/proc/self/fd", root + "/dev/fd")
    for source, target, read_only in spec["show"]:
        if not os.path.exists(root + target):
            bind(source, root + target, read_only)
    for m in spec["mounts"]:
        target = root + os.path.normpath(m["target"])
        if m.get("tmpfs"):
            os.makedirs(target, exist_ok=True)
            mount("tmpfs", target, "tmpfs", MS_NOSUID, m["tmpfs"])
        else:
            bind(m["source"], target, m.get("read_only", False))


def find_program(name, env):
    """Return a program's path inside the container. Raises OSError with runc's message."""
    if "/" in name:
        try:
            found = os.stat(name)
        except OSError as e:
            raise OSError(0, f'exec: "{name}": stat {name}: {os.strerror(e.errno).lower()}')
        if stat.S_ISDIR(found.st_mode):
            raise OSError(0, f'exec: "{name}": is a directory')
        if not os.access(name, os.X_OK):
            raise OSError(0, f'exec: "{name}": permission denied')
        return name
    for folder in env.get(
        "PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
    ).split(":"):
        path = os.path.join(folder, name)
        if os.path.isfile(path) and os.access(path, os.X_OK):
            return path
    raise OSError(0, f'exec: "{name}": executable file not found in $PATH')


def child(spec, log, report):
    """In the new process, PID 1 of its namespace: set up the container, then exec the program."""
    try:
        os.setsid()
        libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        for group in spec.get("cgroups", []):
            with open(group + "/cgroup.procs", "w") as f:
                f.write("0")
        check(libc.unshare(NEWNS | NEWUTS | NEWIPC), "unshare")
        host = spec["hostname"].encode()
        check(libc.sethostname(host, len(host)), "sethostname")
        build_root(spec["root"], spec)
        os.chroot(spec["root"])
        os.makedirs(spec["cwd"], exist_ok=True)
        os.chdir(spec["cwd"])
        null = os.open("/dev/null", os.O_RDONLY)
        os.dup2(null, 0)
        os.dup2(log, 1)
        os.dup2(log, 2)
        if spec.get("gid") is not None:
            os.setgroups(spec.get("groups") or [])
            os.setgid(spec["gid"])
        if spec.get("uid") is not None:
            os.setuid(spec["uid"])
        path = find_program(spec["argv"][0], spec["env"])
        for number in (signal.SIGPIPE, signal.SIGINT, signal.SIGTERM, signal.SIGCHLD):
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, [])
        try:
            os.execve(path, spec["argv"], spec["env"])
        except OSError as e:
            if e.errno == errno.E2BIG:  # too late to report it as a failed start
                os.write(2, f"exec {path}: argument list too long\n".encode())
                os._exit(1)
            raise OSError(0, f'exec: "{path}": {os.strerror(e.errno).lower()}')
    except OSError as e:
        os.write(report, (e.strerror if e.errno == 0 else str(e)).encode()[:2000])
    except Exception as e:
        os.write(report, repr(e).encode()[:2000])
    finally:
        os._exit(128)


class Runtime:
    def __init__(self, fd):
        self.socket = socket.socket(fileno=fd)
        self.home = os.open("/proc/self/ns/pid", os.O_RDONLY | os.O_CLOEXEC)
        self.pids = {}  # pid → id
        self.groups = {}  # id → control groups
        self.buffer = b""
        self.fds = []
        self.memory = self.memory_root()

    def memory_root(self):
        """Return (path, version) of a memory controller that allows new groups, or None."""
        try:
            with open("/proc/self/cgroup") as f:
                lines = [line.strip().split(":", 2) for line in f]
        except OSError:
            return None
        for _, names, path in lines:
            for base, wanted, version in (
                ("/sys/fs/cgroup/memory", "memory", 1),
                ("/sys/fs/cgroup", "", 2),
            ):
                folder = base + (path if path != "/" else "")
                knob = folder + (
                    "/memory.limit_in_bytes" if version == 1 else "/cgroup.subtree_control"
                )
                if names == wanted and os.access(knob, os.W_OK):
                    if version == 2 and "memory" not in open(knob).read():
                        continue
                    return folder, version
        return None

    def limit(self, name, size):
        """Create control groups limited to ``size`` bytes; none where that is impossible."""
        if not self.memory or not size:
            return []
        folder, version = self.memory
        path = f"{folder}/kube-{os.getpid()}-{name}"
        try:
            os.mkdir(path)
            knob = "memory.limit_in_bytes" if version == 1 else "memory.max"
            with open(f"{path}/{knob}", "w") as f:
                f.write(str(size))
        except OSError:
            return []
        self.groups[name] = path
        return [path]

    def oom_kills(self, name):
        """Remove a container's group; return how many processes the kernel killed for memory."""
        path = self.groups.pop(name, None)
        if not path:
            return 0
        kills = 0
        for knob in ("memory.oom_control", "memory.events"):
            try:
                for line in open(f"{path}/{knob}"):
                    if line.startswith("oom_kill "):
                        kills = int(line.split()[1])
            except OSError:
                pass
        try:
            os.rmdir(path)
        except OSError:
            pass
        return kills

    def send(self, message):
        self.socket.sendall(json.dumps(message).encode() + b"\n")

    def start(self, spec):
        log = self.fds.pop(0)
        out, report = os.pipe2(os.O_CLOEXEC)
        spec["cgroups"] = self.limit(spec["id"], spec.get("memory"))
        check(libc.unshare(NEWPID), "unshare")
        pid = os.fork()
        if pid == 0:
            child(spec, log, report)
        check(libc.setns(self.home, NEWPID), "setns")
        os.close(report)
        os.close(log)
        said = os.read(out, 4096)
        os.close(out)
        if said:
            os.waitpid(pid, 0)
            self.oom_kills(spec["id"])
            self.send({"id": spec["id"], "failed": said.decode(errors="replace")})
            return
        self.pids[pid] = spec["id"]
        self.send({"id": spec["id"], "started": pid})

    def reap(self):
        while self.pids:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                return
            name = self.pids.pop(pid, None)
            if name is not None:
                code = os.waitstatus_to_exitcode(status)
                code = 128 - code if code < 0 else code
                self.send({"id": name, "exit": code, "oom": self.oom_kills(name)})

    def receive(self):
        data, ancillary, _, _ = self.socket.recvmsg(1 << 20, socket.CMSG_SPACE(64 * 4))
        for level, kind, raw in ancillary:
            if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
                fds = array.array("i")
                fds.frombytes(raw[: len(raw) - len(raw) % fds.itemsize])
                self.fds += list(fds)
        if not data:
            return False
        *lines, self.buffer = (self.buffer + data).split(b"\n")
        for line in lines:
            message = json.loads(line)
            if message["op"] == "start":
                self.start(message)
            else:
                for pid, name in self.pids.items():
                    if name == message["id"]:
                        os.kill(pid, message["signal"])
        return True

    def run(self):
        wake, end = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(end)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        while True:
            ready, _, _ = select.select([self.socket, wake], [], [])
            if wake in ready:
                os.read(wake, 4096)
            if self.socket in ready and not self.receive():
                break
            self.reap()
        for pid in self.pids:
            os.kill(pid, signal.SIGKILL)
        for pid in list(self.pids):
            os.waitpid(pid, 0)
        for name in list(self.groups):
            self.oom_kills(name)


if __name__ == "__main__":
    gc.freeze()
    try:
        Runtime(int(sys.argv[1])).run()
    except (BrokenPipeError, ConnectionError):
        pass
