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
from stack_project import ROOT, STOKER, StackProject
from waiting import wait_for

__all__ = ["ROOT", "STOKER", "Cluster", "Project"]
PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "squeue", "scontrol", "scancel", "sinfo", "srun")  # fmt: skip
SYSTEM = "/usr/sbin:/usr/bin:/sbin:/bin"
CPUS, NODES = 8, 3
GPUS = {
    "n1": ("a100", "NVIDIA A100-SXM4-80GB", 80, 4),
    "n2": ("l4", "NVIDIA L4", 24, 2),
}  # type, model, GB, count

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
DefMemPerCPU=1000
SchedulerParameters=batch_sched_delay=0,sched_interval=1,sched_min_interval=0,bf_interval=1
GresTypes=gpu
Licenses=matlab:1
MpiDefault=none
ReturnToService=2
KillWait=2
OverTimeLimit=0
JobAcctGatherType=jobacct_gather/linux
JobAcctGatherParams=OverMemoryKill
JobAcctGatherFrequency=task=1
JobRequeue=1
SlurmdTimeout=300
TaskProlog={folder}/prolog.sh
JobCompType=jobcomp/none
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP PriorityTier=1 PreemptMode=CANCEL
PartitionName=spare Nodes=ALL Default=NO MaxTime=INFINITE State=UP PriorityTier=1 PreemptMode=REQUEUE
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


DBD_CONF = """
AuthType=auth/munge
AuthInfo=socket={folder}/munge/socket
DbdHost=localhost
DbdPort={port}
SlurmUser=root
StorageType=accounting_storage/mysql
StorageHost=127.0.0.1
StoragePort={database}
StorageUser=slurm
StoragePass=none
StorageLoc=slurm
PidFile={folder}/slurmdbd.pid
"""
SQL = "CREATE USER slurm@'127.0.0.1' IDENTIFIED BY 'none'; GRANT ALL ON slurm.* TO slurm@'127.0.0.1';\n"
ACCOUNTING = ("slurmdbd", "mariadbd", "mariadb", "mariadb-install-db", "sacct", "sacctmgr")


class Cluster:
    """`more`: further lines of slurm.conf."""

    def __init__(self, folder: Path, more: str = "", has_accounting: bool = False) -> None:
        self.folder = folder
        self.conf = folder / "slurm.conf"
        self.env = {**os.environ, "PATH": SYSTEM, "SLURM_CONF": str(self.conf)}
        self.daemons: dict[str, subprocess.Popen[bytes]] = {}
        self.last_before = 0  # the last job of the tests before
        host = socket.gethostname().split(".")[0]
        (folder / "munge").mkdir()
        (folder / "munge" / "key").write_bytes(os.urandom(128))
        (folder / "munge" / "key").chmod(0o600)
        (
            leases := folder / "leases"
        ).mkdir()  # images have it, too; each device has its own name in it
        leases.chmod(0o1777)
        for node in GPUS:
            self._make_gpus(node)
        nodes = "".join(
            f"NodeName=n{i} NodeHostname={host} NodeAddr=127.0.0.1 Port={free_port()} CPUs={CPUS} RealMemory=8000"
            + (" Gres=gpu:{0}:{3}\n".format(*GPUS[f"n{i}"]) if f"n{i}" in GPUS else "\n")
            for i in range(1, NODES + 1)
        )
        if has_accounting:
            self.dbd_port = free_port()
            more += f"AccountingStorageType=accounting_storage/slurmdbd\nAccountingStorageHost=127.0.0.1\nAccountingStoragePort={self.dbd_port}\nAccountingStoragePass={folder}/munge/socket\n"
        self.conf.write_text(CONF.format(host=host, folder=folder, port=free_port()) + more + nodes)
        (folder / "gres.conf").write_text("".join(
            f"NodeName={node} Name=gpu Type={kind} File={folder}/gpus-{node}/nvidia[0-{n - 1}]\n"
            for node, (kind, _, _, n) in GPUS.items()
        ))  # fmt: skip
        prolog = folder / "prolog.sh"  # what the node's devices are, for the agent
        prolog.write_text(f"#!/bin/sh\necho export STOKER_LEASE_DIR={folder}/leases\n"
                          f"at={folder}/leases/$SLURMD_NODENAME.json\ntest -e $at && at=fake:$at || at=none\n"
                          "echo export STOKER_ACCEL=$at\n")  # fmt: skip
        prolog.chmod(0o755)
        try:
            self._begin(has_accounting)
        except BaseException:
            self._end()
            raise

    def _make_gpus(self, node: str) -> None:
        """Device files for Slurm, and what our program finds in the place of a driver's library."""
        n = GPUS[node][3]
        (files := self.folder / f"gpus-{node}").mkdir()
        for i in range(n):
            os.mknod(files / f"nvidia{i}", 0o20666, os.makedev(240, i))
        self.devices(node, *({} for _ in range(n)))

    def devices(self, node: str, *more: dict[str, Any]) -> None:
        """What is to be known of each GPU of a node besides its kind."""
        _, model, gigabytes, _ = GPUS[node]
        listed = [
            {"vendor": "nvidia", "index": i, "uuid": f"GPU-{node}-{i}", "model": model, "memory_bytes": gigabytes * 10**9, **one}
            for i, one in enumerate(more)
        ]  # fmt: skip
        path = self.folder / f"leases/{node}.json"
        (new := path.with_suffix(".new")).write_text(json.dumps(listed))
        new.rename(path)

    def _begin(self, has_accounting: bool) -> None:
        folder = self.folder
        self._start("munged", "-F", f"--key-file={folder}/munge/key", f"--socket={folder}/munge/socket", "--force",
                    f"--pid-file={folder}/munge/pid", f"--log-file={folder}/munge/log", f"--seed-file={folder}/munge/seed")  # fmt: skip
        wait_for((folder / "munge" / "socket").exists, why=self.log)
        if has_accounting:
            self._start_accounting()
        self.start_controller()
        for i in range(1, NODES + 1):
            self.start_node(f"n{i}")
        self._await_nodes()

    def _start(self, program: str, *words: str, name: str = "") -> None:
        log = (self.folder / f"{name or program}.out").open("ab")
        path = shutil.which(program, path=SYSTEM)
        assert path is not None
        self.daemons[name or program] = subprocess.Popen(
            [path, *words], env=self.env, stdin=subprocess.DEVNULL, stdout=log, stderr=log
        )
        log.close()

    def _start_accounting(self) -> None:
        """A MariaDB with nothing but Slurm's tables, and slurmdbd."""
        data, socket, port = self.folder / "database", self.folder / "database.sock", free_port()
        self.ask("mariadb-install-db", "--no-defaults", f"--datadir={data}", "--user=root", "--auth-root-authentication-method=normal")  # fmt: skip
        self._start("mariadbd", "--no-defaults", f"--datadir={data}", f"--socket={socket}", f"--port={port}",
                    "--bind-address=127.0.0.1", "--user=root", "--skip-name-resolve", f"--pid-file={self.folder}/database.pid")  # fmt: skip
        client = ("mariadb", "--no-defaults", f"--socket={socket}", "--user=root")
        wait_for(lambda: "1" in self.ask(*client, "-N", "-e", "SELECT 1").splitlines(), why=self.log)  # fmt: skip
        said = self.ask(*client, "-e", SQL)
        assert said == "", said
        conf = self.folder / "slurmdbd.conf"
        conf.write_text(DBD_CONF.format(folder=self.folder, port=self.dbd_port, database=port))
        conf.chmod(0o600)
        self._start("slurmdbd", "-D")
        wait_for(lambda: "Added" in self.ask("sacctmgr", "-i", "add", "cluster", "test") or "test" in self.ask("sacctmgr", "-n", "list", "cluster"),
                 why=self.log)  # fmt: skip

    def start_node(self, name: str) -> None:
        """/mnt is each node's own, as a disk of its own would be."""
        words = 'mount -t tmpfs node /mnt && chmod 1777 /mnt && exec slurmd -D -N "$0" -f "$1"'
        self._start("unshare", "--mount", "--propagation", "slave", "sh", "-c", words, name, str(self.conf), name=name)  # fmt: skip

    def restart_nodes(self) -> None:
        """They see what has been mounted or unmounted since."""
        for i in range(1, NODES + 1):
            self.stop(f"n{i}")
            self.start_node(f"n{i}")
        self._await_nodes()

    def _await_nodes(self) -> None:
        wait_for(lambda: self.ask("sinfo", "-h", "-t", "idle", "-o", "%D").strip() == str(NODES), why=self.log)  # fmt: skip

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
        """This test's jobs whose names contain `part`, the youngest first."""
        lines = self.ask("squeue", "-h", f"--states={state}", "-o", "%A|%T|%N|%j").splitlines()
        found = [dict(zip(("id", "state", "nodes", "name"), line.split("|", 3))) for line in lines]
        found.sort(key=lambda job: -int(job["id"]))
        return [job for job in found if part in job["name"] and int(job["id"]) > self.last_before]

    def wait_for_job(self, part: str, *states: str) -> dict[str, str]:
        found: list[dict[str, str]] = wait_for(
            lambda: [j for j in self.jobs(part) if j["state"] in states], why=self.jobs
        )
        return found[0]

    def clear(self) -> None:
        """Ends what a test left, and starts the controller if it left none."""
        if "slurmctld" not in self.daemons:
            self.start_controller()
        open_ones = "PENDING,RUNNING,COMPLETING,SUSPENDED,CONFIGURING"
        if self.jobs(state=open_ones):
            self.ask("scancel", "--user=root")
            wait_for(lambda: not self.jobs(state=open_ones), why=self.jobs)
        self.last_before = max((int(job["id"]) for job in self.jobs()), default=self.last_before)

    def close(self) -> None:
        if "slurmctld" in self.daemons:
            self.clear()
        self._end()

    def _end(self) -> None:
        last = ("slurmdbd", "mariadbd", "munged")
        for name in sorted(self.daemons, key=lambda n: last.index(n) if n in last else -1):
            self.stop(name)


class Project(StackProject):
    """A user's folder with a stack for the cluster."""

    def __init__(self, folder: Path, cluster: Cluster, share: Path, **stack: Any) -> None:
        self.cluster, self.share = cluster, share
        options = {"poll": 0.1, **stack.pop("options", {})}
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("STOKER_", "SBATCH_", "SLURM_"))}  # fmt: skip
        super().__init__(
            folder,
            {"backend": "slurm", "store": str(share), "options": options, **stack},
            {**kept, "SLURM_CONF": str(cluster.conf)},
        )
