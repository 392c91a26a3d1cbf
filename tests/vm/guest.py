"""Runs inside the virtual machine, as root: the same tests in every situation in which a user can start Stoker.

STOKER_VM_WANT tells tests/vm/inside what a situation offers, in words of `stoker doctor`'s sentence. The last line
is `N passed, N failed`.
"""

from __future__ import annotations

import os
import pwd
import subprocess
import sys
import time
import xml.etree.ElementTree as ET
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
ANN = pwd.getpwnam("ann")
RUNTIME = f"XDG_RUNTIME_DIR=/run/user/{ANN.pw_uid}"
AS_ANN, AS_BOB = (
    ["setpriv", f"--reuid={n}", f"--regid={n}", "--clear-groups", "env", "HOME=/tmp"]
    for n in (ANN.pw_uid, ANN.pw_uid + 1)
)
UNIT = ["systemd-run", "--quiet", "--wait", "--pipe", "--collect"]
USER_UNIT = [*AS_ANN, RUNTIME, UNIT[0], "--user", *UNIT[1:]]
# Like a batch system: its own groups below a unit.
MAKE_JOB = "cd /sys/fs/cgroup; mkdir -p batch.scope/job; echo +memory > batch.scope/cgroup.subtree_control; "
JOB = ["sh", "-c", MAKE_JOB + 'echo $$ > batch.scope/job/cgroup.procs; cd /; exec "$@"', "sh"]
WHOLE = "memory and CPU limited by control groups v2"
WATCHED = "memory is watched, not limited"

# name: (what starts a shell there, what doctor must print)
SITUATIONS: dict[str, tuple[list[str], str]] = {
    "root, a service": ([], f"{WHOLE} in a scope of the system's service manager"),
    "root, delegated": ([*UNIT, "-p", "Delegate=yes"], f"{WHOLE} in"),
    "root, no group at all": (
        ["sh", "-c", 'echo $$ > /sys/fs/cgroup/cgroup.procs; exec "$@"', "sh"],
        f"{WHOLE} in /sys/fs/cgroup;",
    ),
    "user, a session": (
        ["su", "-l", "ann", "-s", "/bin/sh", "-c", 'exec "$@"', "--", "sh"],
        f"{WHOLE} in a scope of the user's service manager",
    ),
    "user, a service": (USER_UNIT, f"{WHOLE} in a scope of the user's service manager"),
    "user, delegated": ([*USER_UNIT, "-p", "Delegate=yes"], f"{WHOLE} in"),
    "user, by root's service": (AS_ANN, f"{WHOLE} in a scope of the user's service manager"),
    "user, a batch job": ([*JOB, *AS_ANN], WATCHED),
    "user, no manager": (AS_BOB, WATCHED),
    "user, a limited service": (
        [*UNIT, "--uid=ann", "-p", "MemoryMax=900M", "-E", RUNTIME, "-E", "HOME=/home/ann"],
        WATCHED,
    ),
}


def play(name: str, start: list[str], want: str) -> tuple[int, int, int]:
    """Passed, failed, skipped."""
    report = Path(f"/tmp/{name.replace(' ', '-').replace(',', '')}.xml")
    command = [
        *start,
        *("env", f"PYTHONPATH={ROOT}/tests/support", f"STOKER_VM_WANT={want}", "LC_ALL=C.UTF-8"),
        *("PYTHONDONTWRITEBYTECODE=1", "PATH=/usr/bin:/bin:/usr/sbin:/sbin"),
        *(sys.executable, "-m", "pytest", f"--rootdir={ROOT}", "-rs", f"--junitxml={report}"),
        f"{ROOT}/tests/vm/inside",
    ]
    began = time.monotonic()
    try:
        done = subprocess.run(command, cwd="/", capture_output=True, text=True, timeout=600)
        status, output = done.returncode, done.stdout + done.stderr
    except subprocess.TimeoutExpired as late:
        status, output = 124, str(late.stdout)
    counts = {"tests": 0, "failures": 0, "errors": 0, "skipped": 0}
    if report.exists():
        for suite in ET.parse(report).getroot().iter("testsuite"):
            counts = {k: n + int(suite.get(k, 0)) for k, n in counts.items()}
    failed = counts["failures"] + counts["errors"]
    failed = max(failed, 1) if status != 0 else failed
    if failed:
        print(output[-12000:])
    passed = counts["tests"] - counts["failures"] - counts["errors"] - counts["skipped"]
    seconds = time.monotonic() - began
    skipped = f", {counts['skipped']} skipped" if counts["skipped"] else ""
    print(f"{name:<24} {passed} passed, {failed} failed{skipped} in {seconds:.1f} s", flush=True)
    return passed, failed, counts["skipped"]


def main() -> None:
    os.chmod("/tmp", 0o1777)
    for _ in range(100):  # the user's manager starts shortly after the machine
        if Path(f"/run/user/{ANN.pw_uid}/bus").exists():
            break
        time.sleep(0.1)  # sleeps: between two looks
    print(f"{os.uname().release}, {subprocess.getoutput('systemctl --version').splitlines()[0]}")
    asked = Path("/proc/cmdline").read_text().split()
    words = [word.partition("=")[2] for word in asked if word.startswith("vm.only=")]
    passed = failed = 0
    for name, (start, want) in SITUATIONS.items():
        if not all(word in name for word in words):
            continue
        done = play(name, start, want)
        passed, failed = passed + done[0], failed + done[1]
    print(f"{passed} passed, {failed} failed", flush=True)


if __name__ == "__main__":
    main()
