"""A real Slurm of this machine's own: munged, slurmctld and several slurmd (nodes n1, n2, …) in the
foreground, with everything in one folder. Nodes have fake GPUs, device files made by mknod.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
from pathlib import Path
from typing import Any

from ports import free_port
from stoker_binary import find_binary
from waiting import wait_for

ROOT = Path(__file__).resolve().parents[2]
STOKER = find_binary()
PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "squeue", "scontrol", "scancel", "sinfo", "srun")  # fmt: skip
SYSTEM = "/usr/sbin:/usr/bin:/sbin:/bin"
CPUS, GPUS, NODES = 8, 2, 3

CONF = """
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={port}
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge/socket
CredType=cred/munge
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/%n.pid
SlurmdParameters=config_overrides
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
SchedulerParameters=batch_sched_delay=0,sched_interval=1,sched_min_interval=0,bf_interval=1
GresTypes=gpu
Licenses=matlab:1
MpiDefault=none
ReturnToService=2
KillWait=30
SlurmdTimeout=300
TaskProlog={folder}/prolog.sh
JobCompType=jobcomp/none
PreemptType=preempt/partition_prio
PreemptMode=CANCEL
PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP PriorityTier=1
PartitionName=urgent Nodes=ALL Default=NO MaxTime=INFINITE State=UP PriorityTier=9
"""


def lacking() -> str:
    """What a real Slurm needs and this machine hasn't; "": nothing."""
    for name in PROGRAMS:
        if shutil.which(name, path=SYSTEM) is None:
            return f"{name} is not installed (tools/debian-test-all.txt)"
    if os.geteuid() != 0:
        return "only root can make device files and start slurmd"
    return ""


class Cluster:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.conf = folder / "slurm.conf"
        self.env = {**os.environ, "PATH": SYSTEM, "SLURM_CONF": str(self.conf)}
        self.daemons: dict[str, subprocess.Popen[bytes]] = {}
        host = socket.gethostname().split(".")[0]
        (folder / "munge").mkdir()
        (folder / "munge" / "key").write_bytes(os.urandom(128))
        (folder / "munge" / "key").chmod(0o600)
        for i in range(GPUS):
            os.mknod(folder / f"nvidia{i}", 0o20666, os.makedev(240, i))
        nodes = "".join(
            f"NodeName=n{i} NodeHostname={host} NodeAddr=127.0.0.1 Port={free_port()} CPUs={CPUS} RealMemory=8000"
            + (f" Gres=gpu:a100:{GPUS}\n" if i == 1 else "\n")
            for i in range(1, NODES + 1)
        )
        self.conf.write_text(CONF.format(host=host, folder=folder, port=free_port()) + nodes)
        (folder / "gres.conf").write_text(
            f"NodeName=n1 Name=gpu Type=a100 File={folder}/nvidia[0-{GPUS - 1}]\n"
        )
        prolog = folder / "prolog.sh"  # what the node's devices are, for the agent
        prolog.write_text(f"#!/bin/sh\necho export STOKER_ACCEL=sim:{GPUS}xA100\n"
                          f"echo export STOKER_LEASE_DIR={folder}/leases\n")  # fmt: skip
        prolog.chmod(0o755)
        self._start("munged", "-F", f"--key-file={folder}/munge/key", f"--socket={folder}/munge/socket", "--force",
                    f"--pid-file={folder}/munge/pid", f"--log-file={folder}/munge/log", f"--seed-file={folder}/munge/seed")  # fmt: skip
        wait_for((folder / "munge" / "socket").exists, why=self.log)
        self.start_controller()
        for i in range(1, NODES + 1):
            self._start("slurmd", "-D", "-N", f"n{i}", "-f", str(self.conf), name=f"n{i}")
        wait_for(lambda: self.ask("sinfo", "-h", "-t", "idle", "-o", "%D").strip() == str(NODES), why=self.log)  # fmt: skip

    def _start(self, program: str, *words: str, name: str = "") -> None:
        log = (self.folder / f"{name or program}.out").open("ab")
        path = shutil.which(program, path=SYSTEM)
        assert path is not None
        self.daemons[name or program] = subprocess.Popen(
            [path, *words], env=self.env, stdin=subprocess.DEVNULL, stdout=log, stderr=log
        )
        log.close()

    def start_controller(self) -> None:
        self._start("slurmctld", "-D", "-f", str(self.conf))
        wait_for(lambda: "UP" in self.ask("scontrol", "ping"), why=self.log)

    def stop(self, name: str) -> None:
        process = self.daemons.pop(name)
        process.terminate()
        process.wait(60)

    def log(self) -> str:
        return "\n".join(f"{p.name}: {p.read_text()[-1500:]}" for p in self.folder.glob("*.out"))

    def ask(self, *words: str, **more: Any) -> str:
        done = subprocess.run(
            words, env=self.env, capture_output=True, text=True, timeout=60, **more
        )
        return done.stdout + done.stderr

    def jobs(self, part: str = "", state: str = "all") -> list[dict[str, str]]:
        """The jobs whose names contain `part`, the youngest first."""
        lines = self.ask("squeue", "-h", f"--states={state}", "-o", "%A|%T|%N|%j").splitlines()
        found = [dict(zip(("id", "state", "nodes", "name"), line.split("|", 3))) for line in lines]
        found.sort(key=lambda job: -int(job["id"]))
        return [job for job in found if part in job["name"]]

    def wait_for_job(self, part: str, *states: str) -> dict[str, str]:
        found: list[dict[str, str]] = wait_for(
            lambda: [j for j in self.jobs(part) if j["state"] in states], why=self.jobs
        )
        return found[0]

    def clear(self) -> None:
        """Ends what a test left."""
        open_ones = "PENDING,RUNNING,COMPLETING,SUSPENDED,CONFIGURING"
        if self.jobs(state=open_ones):
            self.ask("scancel", "--user=root")
            wait_for(lambda: not self.jobs(state=open_ones), why=self.jobs)

    def close(self) -> None:
        if "slurmctld" in self.daemons:
            self.clear()
        for name in [*(n for n in self.daemons if n != "munged"), "munged"]:
            self.stop(name)


class Project:
    """A user's folder with a stack for the cluster."""

    def __init__(self, folder: Path, cluster: Cluster, share: Path, **stack: Any) -> None:
        self.folder, self.cluster, self.share = folder, cluster, share
        options = {"poll": 0.1, **stack.pop("options", {})}
        self.stack = {"backend": "slurm", "store": str(share), "options": options, **stack}
        self.say()
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("STOKER_", "SBATCH_", "SLURM_"))}  # fmt: skip
        self.env = {
            **kept,
            "SLURM_CONF": str(cluster.conf),
            "STOKER_BIN": str(STOKER),
            "STOKER_ACCEL": "none",
            "STOKER_LEASE_DIR": str(folder / "leases"),
            "PYTHONPATH": str(ROOT / "python"),
            "STOKER_SYNC": "0",
        }

    def say(self, **more: Any) -> None:
        """Writes the stack, with what is more."""
        self.stack |= more
        (self.folder / "stoker.yaml").write_text(json.dumps({"stacks": {"lab": self.stack}}))

    def document(self, steps: dict[str, Any], **more: Any) -> str:
        (self.folder / "p.json").write_text(
            json.dumps({"stoker": 1, "name": "p", "steps": steps, **more})
        )
        return "p.json"

    def begin(self, *words: str, **more: Any) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [str(STOKER), *words],
            cwd=self.folder,
            env=self.env,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            **more,
        )

    def __call__(self, *words: str) -> subprocess.CompletedProcess[str]:
        process = self.begin(*words)
        out, err = process.communicate(timeout=280)
        return subprocess.CompletedProcess(words, process.returncode, out, err)

    def run(self, steps: dict[str, Any], **more: Any) -> subprocess.CompletedProcess[str]:
        return self("run", self.document(steps, **more), "--with", "lab")

    def show(self) -> dict[str, Any]:
        shown: dict[str, Any] = json.loads(self("show", "latest", "--json").stdout)
        return shown

    def logs(self) -> str:
        return self("logs", "latest").stdout
