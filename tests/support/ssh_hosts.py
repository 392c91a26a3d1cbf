"""Machines with a real sshd, on this one: each host has its own network, mounts, processes, users and boot.

A `Lab` is hosts (gpu1, gpu2, …) behind one switch, and submitting machines (`Lab.client`) with an `ssh` of their own. On a
host /home, /tmp and /run are its own, and the checkout is hidden except .venv: what runs there was brought there. Its users
are `ann` and `ben`. Nothing of the machine's own network is touched. Every process of a lab ends when its test process does,
however that ends, and with the processes go the networks and mounts.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from front_tools import cannot
from waiting import wait_for

ROOT = Path(__file__).resolve().parents[2]
LEASES = "/run/lock/stoker"
PROGRAMS = ("sshd", "ssh", "ssh-keygen", "ip", "unshare", "nsenter", "setpriv", "mount")
SYSTEM = "/usr/sbin:/usr/bin:/sbin:/bin"
NETWORK = "10.77.0"  # only the lab's own network namespaces know it
USERS = {"ann": 2001, "ben": 2002}
DISK = 2 << 30  # of a host's /home, in memory: only what is used costs any
NAMES = ("gpu1", "gpu2", "gpu3")

SWITCH = f"""
ip link set lo up
ip link add name lab type bridge
ip address add {NETWORK}.1/24 dev lab
ip link set lab up
echo ready
exec cat
"""

# What lasts while the host is down: its network card, its disk, what is written in /etc. $1: the host's folder, $2: a folder
# that all machines share, $3: the checkout, $4: the host's name, $5: the size of /home, $6: the Python of .venv
HOLD = """
mount -t tmpfs -o mode=755 mnt /mnt
mkdir /mnt/host /mnt/shared /mnt/venv /mnt/python
mount --bind "$1" /mnt/host
mount --bind "$2" /mnt/shared
if [ -d "$3/.venv" ]; then mount --bind "$3/.venv" /mnt/venv; fi
mount --bind "$6" /mnt/python
for file in passwd group shadow hosts; do mount --bind "/mnt/host/etc/$file" "/etc/$file"; done
mount -t tmpfs -o "mode=755,size=$5" home /home
mount -t tmpfs -o mode=1777 tmp /tmp
mount -t tmpfs -o mode=755 root /root
mkdir -p "$2" "$3"
mount -t tmpfs -o mode=755 checkout "$3"
mkdir -p "$3/.venv" "$6"
mount --bind /mnt/python "$6"
mount --bind /mnt/venv "$3/.venv"
mount --bind /mnt/shared "$2"
hostname "$4"
ip link set lo up
echo ready
exec cat
"""

# Its first process is sshd, which also reaps what lost its parent.
BOOT = """
mount --bind /mnt/host/boot_id /proc/sys/kernel/random/boot_id
mount -t tmpfs -o mode=755 run /run
mount -t tmpfs -o mode=1777 shm /dev/shm
mkdir -m 755 /run/sshd
mkdir -m 1777 /run/lock
exec "$1" -D -e -f /mnt/host/sshd_config
"""

# What another Stoker does that leases whole devices there (docs/formats/leases.md). $1: the folder of lease files, $2: who
# says to have them, and their names. Until its stdin ends.
LEASE = """
import fcntl, os, struct, sys
folder, label, *names = sys.argv[1:]
os.umask(0)
os.makedirs(folder, 0o777, exist_ok=True)
for name in names:
    path = f"{folder}/{name}"
    fd = os.open(path, os.O_RDWR | (0 if os.path.exists(path) else os.O_CREAT), 0o666)
    os.pwrite(fd, label.encode().ljust(512, bytes(1)), 0)
    for start, n in ((0, 1 << 23), (1 << 23, 2)):
        fcntl.fcntl(fd, fcntl.F_OFD_SETLKW, struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, start, n, 0))
print("held", flush=True)
sys.stdin.read()
"""

SSHD = """
ListenAddress {address}
HostKey /mnt/host/host_key
PidFile none
UsePAM no
UseDNS no
PasswordAuthentication no
KbdInteractiveAuthentication no
MaxStartups 200
MaxSessions 100
PrintMotd no
SetEnv {env}
"""

CONFIG = """
Host {names}
  User ann
Host *
  IdentityFile {key}
  IdentitiesOnly yes
  IdentityAgent none
  UserKnownHostsFile {known}
  GlobalKnownHostsFile /dev/null
"""


def program(name: str) -> str:
    path = shutil.which(name, path=SYSTEM)
    assert path is not None, f"{name} is not installed (tools/debian-test-all.txt)"
    return path


def lacking() -> str:
    """What hosts need and this machine hasn't; "": nothing."""
    for name in PROGRAMS:
        if shutil.which(name, path=SYSTEM) is None:
            return f"{name} is not installed (tools/debian-test-all.txt)"
    if os.geteuid() != 0:
        return "only root can make namespaces with users and networks of their own"
    link = "mount -t tmpfs t /mnt && ip link add name lab type bridge && ip link add name v1 type veth peer name w"
    words = ["unshare", "-m", "-n", "-u", "-i", "-p", "-f", "--mount-proc", "sh", "-c", link]
    tried = subprocess.run(words, capture_output=True, text=True)
    return f"namespaces can't be made here: {tried.stderr.strip()}" if tried.returncode else ""


def checked(*words: str, **more: Any) -> str:
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, **more)
    assert done.returncode == 0, f"{words}: {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def hold(script: str, namespaces: list[str], *words: str) -> subprocess.Popen[bytes]:
    """A process that keeps namespaces until our end of its stdin is closed, by `release` or because we are gone."""
    process = subprocess.Popen(
        ["unshare", *namespaces, "sh", "-eu", "-c", script, "hold", *words],
        env={"PATH": SYSTEM},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == b"ready\n", "its own words are above"
    return process


def release(process: subprocess.Popen[bytes]) -> None:
    assert process.stdin is not None and process.stdout is not None
    process.stdin.close()
    process.wait(60)
    process.stdout.close()


class Host:
    """One machine. `address` is its own on the lab's network."""

    def __init__(self, lab: Lab, name: str, number: int, accel: str) -> None:
        self.lab, self.name, self.address = lab, name, f"{NETWORK}.{10 + number}"
        self.folder = lab.folder / name
        self.env = {"STOKER_ACCEL": accel}
        self.devices = self.first_devices = accel
        self.process: subprocess.Popen[bytes] | None = None
        (self.folder / "etc").mkdir(parents=True)
        self._write_etc()
        self.change_key()
        self.configure()
        words = [str(self.folder), str(lab.shared), str(ROOT), name, str(DISK), sys.base_prefix]
        self.holder = hold(HOLD, ["--mount", "--net", "--uts", "--ipc"], *words)
        self._plug(f"v{number}")
        self.clear_disk()
        self.boot()

    def _write_etc(self) -> None:
        etc = self.folder / "etc"
        for file in ("passwd", "group", "shadow"):
            shutil.copy(f"/etc/{file}", etc / file)
        with (etc / "passwd").open("a") as passwd, (etc / "group").open("a") as group:
            for user, number in USERS.items():
                passwd.write(f"{user}:x:{number}:{number}::/home/{user}:/bin/bash\n")
                group.write(f"{user}:x:{number}:\n")
        with (etc / "shadow").open("a") as shadow:
            shadow.writelines(f"{user}:*:19000:0:99999:7:::\n" for user in USERS)
        (etc / "hosts").write_text("127.0.0.1 localhost\n" + self.lab.table)

    def _plug(self, card: str) -> None:
        words = ["type", "veth", "peer", "name", "eth0", "netns", str(self.holder.pid)]
        self.card = card
        self.lab.in_switch("ip", "link", "add", "name", card, *words)
        self.lab.in_switch("ip", "link", "set", card, "master", "lab", "up")
        self._in_holder("ip", "address", "add", f"{self.address}/24", "dev", "eth0")
        self._in_holder("ip", "link", "set", "eth0", "up")
        self._in_holder("ip", "route", "add", "default", "via", f"{NETWORK}.1")

    def _in_holder(self, *words: str) -> str:
        return checked("nsenter", f"--target={self.holder.pid}", "--mount", "--net", *words)

    # --- power ---

    @property
    def first(self) -> int:
        """The pid of its first process, as this machine counts; 0: it is down."""
        if self.process is None:
            return 0
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
        pids = children.read_text().split() if children.exists() else []
        return int(pids[0]) if pids else 0

    def boot(self) -> None:
        (self.folder / "boot_id").write_text(f"{uuid.uuid4()}\n")
        enter = ["nsenter", f"--target={self.holder.pid}", "--mount", "--net", "--uts", "--ipc"]
        apart = ["unshare", "--pid", "--mount", "--kill-child", "--mount-proc"]
        mortal = [program("setpriv"), "--pdeathsig", "KILL"]
        with (self.folder / "sshd.log").open("ab") as log:
            self.process = subprocess.Popen(
                [*mortal, *enter, *apart, "sh", "-eu", "-c", BOOT, "boot", program("sshd")],
                env={"PATH": SYSTEM},
                cwd="/",
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        wait_for(lambda: self._listens(), why=self.log)

    def _listens(self) -> bool:
        assert self.process is not None and self.process.poll() is None, self.log()
        return ":22 " in self._in_holder("ss", "-Hltn")

    def halt(self) -> None:
        """Without a word to anybody: the power is gone."""
        if self.process is not None:
            wait_for(lambda: self.first)
            os.kill(self.first, 9)
            self.process.wait(60)  # until all that ran there is gone
            self.process = None

    def reboot(self) -> None:
        self.halt()
        self.boot()

    # --- network ---

    def cut(self) -> None:
        """Its cable is pulled: packets are lost, and nobody is told."""
        self.lab.in_switch("ip", "link", "set", self.card, "down")

    def mend(self) -> None:
        self.lab.in_switch("ip", "link", "set", self.card, "up")

    # --- sshd ---

    def configure(self, **env: str) -> None:
        """What sessions find in their environment from the next login on, besides its devices."""
        self.env = {"STOKER_ACCEL": self.devices, **env}
        words = " ".join(f'"{name}={value}"' for name, value in self.env.items())
        (self.folder / "sshd_config").write_text(SSHD.format(address=self.address, env=words))
        self._reload()

    def equip(self, accel: str) -> None:
        """It has these devices from the next login on."""
        self.devices = accel
        self.configure()

    def change_key(self) -> None:
        """It was installed anew, or is another machine. `Lab.client` of before knows the old key."""
        for file in self.folder.glob("host_key*"):
            file.unlink()
        checked(program("ssh-keygen"), "-q", "-t", "ed25519", "-N", "", "-f", str(self.folder / "host_key"))  # fmt: skip
        self._reload()

    def _reload(self) -> None:
        if self.process is None:
            return
        before = self.log().count("Server listening")
        os.kill(self.first, 1)
        wait_for(lambda: self.log().count("Server listening") > before, why=self.log)

    @property
    def known(self) -> str:
        """Its line in known_hosts."""
        kind, key = (self.folder / "host_key.pub").read_text().split()[:2]
        return f"{self.name},{self.address} {kind} {key}\n"

    def log(self) -> str:
        file = self.folder / "sshd.log"
        return file.read_text() if file.exists() else ""

    # --- disk ---

    def path(self, name: str) -> Path:
        """A file there (an absolute path), as this machine reaches it. It follows no absolute links."""
        return Path(f"/proc/{self.first or self.holder.pid}/root{name}")

    def fill_disk(self, left: int = 0) -> None:
        """Of its /home, only `left` bytes are free."""
        home = os.statvfs(self.path("/home"))
        used = (home.f_blocks - home.f_bfree) * home.f_frsize
        self._in_holder("mount", "-o", f"remount,size={max(used + left, 4096)}", "/home")

    def empty_disk(self) -> None:
        """Its disk has the room of before."""
        self._in_holder("mount", "-o", f"remount,size={DISK}", "/home")

    def clear_disk(self) -> None:
        """All homes are as they were at first."""
        self.empty_disk()
        for entry in self.path("/tmp").iterdir():
            if Path("/tmp", entry.name) not in [*ROOT.parents, ROOT, *self.lab.shared.parents]:
                shutil.rmtree(entry) if entry.is_dir() else entry.unlink()
        for user, number in USERS.items():
            shutil.rmtree(self.path(f"/home/{user}"), ignore_errors=True)
            ssh = self.path(f"/home/{user}/.ssh")
            ssh.mkdir(parents=True)
            (ssh / "authorized_keys").write_text(self.lab.key.with_suffix(".pub").read_text())
            for file in (ssh.parent, ssh, ssh / "authorized_keys"):
                os.chown(file, number, number)
            ssh.chmod(0o700)

    # --- processes ---

    def words(self, *words: str, user: str = "ann", **env: str) -> list[str]:
        """A command line that runs `words` there as `user`, without ssh, in the user's home."""
        enter = ["nsenter", f"--target={self.first}", "--mount", "--uts", "--ipc", "--net", "--pid"]
        become = ["setpriv", f"--reuid={user}", f"--regid={user}", "--init-groups", "--reset-env"]
        extra = [f"{name}={value}" for name, value in {**self.env, **env}.items()]
        return [*enter, f"--wd={self.path(f'/home/{user}')}", *become, "env", *extra, *words]

    def run(self, *words: str, user: str = "ann", **env: str) -> str:
        return checked(*self.words(*words, user=user, **env))

    @contextlib.contextmanager
    def leased(self, *devices: str, user: str = "ben", label: str = "") -> Iterator[None]:
        """Another user has these devices (UUIDs of `stoker gpus --json`), by the leases of Stoker."""
        text = label or f"run theirs step train (user {user}, pid 1)"
        names = [f"nvidia-{device}" for device in devices]
        words = self.words("python3", "-c", LEASE, LEASES, text, *names, user=user)
        with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
            assert process.stdout is not None and process.stdout.readline() == b"held\n"
            yield

    def processes(self) -> dict[int, str]:
        """What its users run, pid here → command line; sshd and what it started for a session are not among it."""
        found = {}
        for entry in Path("/proc").iterdir():
            with contextlib.suppress(OSError):
                if not entry.name.isdigit() or not self.first:
                    continue
                same = os.readlink(entry / "ns/pid") == os.readlink(f"/proc/{self.first}/ns/pid")
                text = (
                    (entry / "cmdline")
                    .read_bytes()
                    .replace(b"\0", b" ")
                    .decode("utf-8", "replace")
                    .strip()
                )
                if same and text and not text.startswith(("sshd: ", "/usr/sbin/sshd")):
                    found[int(entry.name)] = text
        return found

    def stopped(self) -> list[int]:
        """Those of its processes that SIGSTOP holds."""
        held = []
        for pid in self.processes():
            with contextlib.suppress(OSError):
                state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
                held += [pid] * (state == "T")
        return held

    def close(self) -> None:
        self.halt()
        release(self.holder)


class Client:
    """A submitting machine: a home, a key, and an `ssh` that knows the hosts by name and is on their network."""

    def __init__(self, lab: Lab, name: str, key: bool, known: bool) -> None:
        self.lab, self.folder = lab, lab.folder / "clients" / name
        (self.folder / "bin").mkdir(parents=True)
        self.known = self.folder / "known_hosts"
        self.known.write_text("".join(host.known for host in lab.hosts.values()) if known else "")
        self.config = self.folder / "config"
        self.config.write_text(
            "".join(f"Host {h.name}\n  HostName {h.address}\n" for h in lab.hosts.values())
            + CONFIG.format(
                names=f"{' '.join(lab.hosts)} {NETWORK}.*",
                key=lab.key if key else "none",
                known=self.known,
            )
        )
        ssh = self.folder / "bin/ssh"
        net = f"/proc/{lab.switch.pid}/ns/net"
        ssh.write_text(f'#!/bin/sh\nexec nsenter --net={net} {program("ssh")} -F {self.config} "$@"\n')  # fmt: skip
        ssh.chmod(0o755)

    def env(self, **more: str) -> dict[str, str]:
        """The environment of its programs: nothing of Stoker's from ours. The cache stays for the next ones."""
        kept = {
            k: v for k, v in os.environ.items() if not k.startswith(("STOKER_", "XDG_", "SSH_"))
        }
        own = {"HOME": str(self.folder), "PATH": f"{self.folder}/bin:{kept['PATH']}"}
        return {**kept, **own, "XDG_CACHE_HOME": str(self.lab.folder / "cache"), **more}

    def ssh(self, *words: str) -> subprocess.CompletedProcess[str]:
        line = ["ssh", "-o", "BatchMode=yes", *words]
        return subprocess.run(line, env=self.env(), stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60)  # fmt: skip


class Lab:
    """Hosts by name, each with the devices that `accel` says (STOKER_ACCEL). `shared` is one folder for all machines, at
    the same path everywhere."""

    def __init__(self, folder: Path, names: tuple[str, ...] = NAMES, accel: str = "sim:2xA100") -> None:  # fmt: skip
        self.folder, self.shared = folder, folder / "shared"
        self.hosts: dict[str, Host] = {}
        self.shared.mkdir()
        self.shared.chmod(0o1777)
        self.key = folder / "id_ed25519"
        checked(program("ssh-keygen"), "-q", "-t", "ed25519", "-N", "", "-f", str(self.key))
        lines = (f"{NETWORK}.{11 + i} {name}\n" for i, name in enumerate(names))
        self.table = f"{NETWORK}.1 submit\n" + "".join(lines)
        self.switch = hold(SWITCH, ["--net"])
        for number, name in enumerate(names, 1):
            self.hosts[name] = Host(self, name, number, accel)
        self.user = self.client()

    def __getitem__(self, name: str) -> Host:
        return self.hosts[name]

    def in_switch(self, *words: str) -> str:
        return checked("nsenter", f"--net=/proc/{self.switch.pid}/ns/net", *words)

    def client(self, name: str = "laptop", key: bool = True, known: bool = True) -> Client:
        """`key` False: the hosts let it in nowhere; `known` False: it has never seen them."""
        shutil.rmtree(self.folder / "clients" / name, ignore_errors=True)
        return Client(self, name, key, known)

    def clear(self) -> None:
        """Hosts are up, reachable, empty and idle again; the clients of before are gone."""
        for host in self.hosts.values():
            host.halt()
            host.mend()
            host.equip(host.first_devices)
            host.clear_disk()
            host.boot()
        for entry in self.shared.iterdir():
            shutil.rmtree(entry) if entry.is_dir() else entry.unlink()
        shutil.rmtree(self.folder / "clients", ignore_errors=True)
        self.user = self.client()

    def close(self) -> None:
        for host in self.hosts.values():
            host.close()
        release(self.switch)


@pytest.fixture(scope="session")
def all_hosts() -> Iterator[Lab]:
    if lacking():
        cannot(lacking())
    folder = Path(tempfile.mkdtemp(prefix="lab-", dir="/tmp"))  # pytest's own are root's alone
    folder.chmod(0o755)
    try:
        lab = Lab(folder)
        yield lab
        lab.close()
    finally:
        shutil.rmtree(folder)


@pytest.fixture
def lab(all_hosts: Lab) -> Iterator[Lab]:
    """The hosts of this session, as at first."""
    yield all_hosts
    all_hosts.clear()
