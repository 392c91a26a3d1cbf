"""Tests of control groups v2 on a machine that has them: a real Debian with systemd, under QEMU.

    vm.py [--suite bookworm] [--slow | --tcg] [WORDS OF A SITUATION]

Makes the machine's disk from Debian's packages once (build/vm/, a minute), hands it this tree's binary, Python front and
tests as a second disk (a tar file, no file system needed), boots, and shows what tests/vm/guest.py says of itself on the
machine's second serial port. The disk is never written to. Ends in `N passed, N failed`. Where KVM can't boot it the tests
are skipped, or with --slow (`make test-vm`) QEMU plays the CPU, which takes ten minutes instead of one.
"""

from __future__ import annotations

import argparse
import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import tarfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PLACE = ROOT / "build" / "vm"
PACKAGES = [
    *("linux-image-cloud-amd64", "systemd-sysv", "dbus", "dbus-user-session", "libpam-systemd"),
    *("python3-pytest", "procps", "util-linux", "libcmocka0"),
]
TREE = ("python", "tests", "schema", "pyproject.toml", "src")  # src: only the C tests' data
PROGRAMS = ("proc_test", "file_test", "backend_local_test")
LIMIT_S = {"kvm": 400, "tcg": 3600}
SILENT_S = 30  # longer than any machine takes until its kernel prints something
KVM_GET_API_VERSION = 0xAE00

UNIT = """[Unit]
After=multi-user.target systemd-user-sessions.service dbus.service user@1000.service
[Service]
Type=oneshot
ExecStart=/bin/sh -c 'tar xf /dev/vdb -C /srv && exec python3 -u /srv/tests/vm/guest.py'
ExecStopPost=/usr/bin/systemctl poweroff --force
StandardOutput=file:/dev/ttyS1
StandardError=inherit
Environment=HOME=/root LC_ALL=C.UTF-8
"""
# Shell commands that prepare the new system ($1). The user's manager starts with the machine ("linger").
HOOKS = (
    'for u in ann bob; do chroot "$1" useradd --create-home --shell /bin/bash $u; done',
    'mkdir -p "$1/var/lib/systemd/linger" && touch "$1/var/lib/systemd/linger/ann"',
    f'printf \'%s\' "{UNIT}" > "$1/etc/systemd/system/guest.service"',
    'mkdir -p "$1/etc/systemd/system/default.target.wants" && '
    'ln -s /etc/systemd/system/guest.service "$1/etc/systemd/system/default.target.wants/"',
    "printf '/dev/vda / ext4 defaults 0 0\\ntmpfs /srv tmpfs size=60%% 0 0\\ntmpfs /tmp tmpfs size=40%% 0 0\\n' "
    '> "$1/etc/fstab"',
)


def why_no_kvm() -> str | None:
    """The reason why virtual machines would be slow here, or None."""
    try:
        with open("/dev/kvm", "r+b", buffering=0) as kvm:
            fcntl.ioctl(kvm, KVM_GET_API_VERSION, 0)
    except OSError as error:
        return f"/dev/kvm: {error.strerror}"
    return None


def run(*command: str | Path) -> None:
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"{command[0]} ended with {done.returncode}:\n{done.stdout}{done.stderr}"[-6000:])


def make_disk(suite: str) -> Path:
    """The folder with `disk`, `vmlinuz` and `initrd`, made if the recipe is new."""
    recipe = hashlib.sha256(repr((suite, PACKAGES, HOOKS)).encode()).hexdigest()[:12]
    done = PLACE / f"{suite}-{recipe}"
    if not done.is_dir():
        print(f"vm: making a Debian {suite} from its packages (about 100 MB)", flush=True)
        new = PLACE / f"new-{os.getpid()}"
        new.mkdir(parents=True)
        run(
            *("mmdebstrap", "--variant=minbase", f"--include={','.join(PACKAGES)}"),
            *('--aptopt=Acquire::Languages "none"', "--dpkgopt=path-exclude=/usr/share/doc/*"),
            *(f"--customize-hook={hook}" for hook in HOOKS),
            *(f"--customize-hook=copy-out /boot {new}", "--format=ext2", suite, new / "disk"),
        )
        for name, pattern in (("vmlinuz", "vmlinuz-*"), ("initrd", "initrd.img-*")):
            next((new / "boot").glob(pattern)).rename(new / name)
        shutil.rmtree(new / "boot")
        for old in PLACE.glob(f"{suite}-*"):
            shutil.rmtree(old)
        new.rename(done)
    return done


def pack_tree(path: Path) -> None:
    def wanted(info: tarfile.TarInfo) -> tarfile.TarInfo | None:
        info.uid = info.gid = 0
        parts = Path(info.name).parts
        if "__pycache__" in parts or (parts[0] == "src" and info.name.endswith((".c", ".h"))):
            return None
        return info

    with tarfile.open(path, "w", format=tarfile.GNU_FORMAT) as tar:
        for name in TREE:
            tar.add(ROOT / name, name, filter=wanted)
        tar.add(ROOT / "build/src/cli/stoker", "build/src/cli/stoker")
        for name in PROGRAMS:
            tar.add(ROOT / "build" / name, f"build/{name}")


def boot(system: Path, tree: Path, out: Path, accel: str, words: str) -> str | None:
    """Runs the machine until it turns itself off and returns what its second serial port printed. None: it never began to boot."""
    console, report = out / "console.log", out / "report.log"
    for log in (console, report):
        log.write_text("")
    command = [
        # Without cx16: a KVM that emulates instructions (a nested one) has neither it nor that register.
        *("-accel", accel, "-cpu", "host,-arch-capabilities,-cx16" if accel == "kvm" else "max"),
        *("-m", "1536", "-smp", "2", "-display", "none", "-nodefaults", "-no-reboot"),
        *("-kernel", system / "vmlinuz", "-initrd", system / "initrd"),
        *("-append", f"root=/dev/vda rw console=ttyS0 earlyprintk=ttyS0 panic=-1 {words}"),
        *("-drive", f"file={system / 'disk'},format=raw,if=virtio,snapshot=on"),
        *("-drive", f"file={tree},format=raw,if=virtio,readonly=on"),
        *("-serial", f"file:{console}", "-serial", f"file:{report}"),
    ]
    with open(out / "qemu.log", "w") as log:
        machine = subprocess.Popen(["qemu-system-x86_64", *map(str, command)], stderr=log)
    began = time.monotonic()
    shown, limit_s = 0, LIMIT_S[accel]
    try:
        while machine.poll() is None and time.monotonic() < began + limit_s:
            time.sleep(0.2)
            text = report.read_text(errors="replace").replace("\r", "")
            print(text[shown:], end="", flush=True)
            shown = len(text)
            if time.monotonic() > began + SILENT_S and b"Linux version" not in console.read_bytes():
                return None
    finally:
        machine.kill()
        machine.wait()
    text = report.read_text(errors="replace").replace("\r", "")
    print(text[shown:], end="", flush=True)
    if not text.rstrip().endswith(" failed"):
        log_ends = [p.read_text(errors="replace")[-3000:] for p in (console, out / "qemu.log")]
        print(
            f"\nvm: the machine broke off (at most {limit_s} s); its console:\n",
            *log_ends,
            sep="\n",
        )
        return "" if b"Linux version" in console.read_bytes() else None
    return text


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--suite", default="bookworm", help="Debian's release")
    parser.add_argument("--slow", action="store_true", help="where KVM doesn't do it, without")
    parser.add_argument("--tcg", action="store_true", help="without KVM at once")
    parser.add_argument(
        "situation", nargs="*", help="only those whose names have all of these words"
    )
    args = parser.parse_args()
    lacking = "not asked for" if args.tcg else why_no_kvm()
    slow = args.slow or args.tcg
    if lacking is None or slow:
        run(ROOT / "tools/bootstrap.sh", "debian", ROOT / "tools/debian-vm.txt")
        out = PLACE / "last"
        out.mkdir(parents=True, exist_ok=True)
        system = make_disk(args.suite)
        pack_tree(out / "tree.tar")
        words = " ".join(f"vm.only={word}" for word in args.situation)
        text = None
        if lacking is None:
            text = boot(system, out / "tree.tar", out, "kvm", words)
            lacking = "its KVM does not boot Debian's kernel" if text is None else None
        if text is None and slow:
            text = boot(system, out / "tree.tar", out, "tcg", f"vm.slow {words}") or ""
        if text is not None:
            if not text.rstrip().endswith(" failed"):
                print("0 passed, 1 failed")
            return 0 if text.rstrip().endswith(" 0 failed") else 1
    print(f"skipped: no virtual machine here ({lacking}); `make test-vm` has QEMU play the CPU")
    print("0 passed, 0 failed")
    return 0


if __name__ == "__main__":
    sys.exit(main())
