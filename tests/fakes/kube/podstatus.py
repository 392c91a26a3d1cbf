"""A pod's status as its kubelet keeps it: conditions with times, and container states."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Optional

from .containers import End, Log
from .store import Clock

Object = dict[str, Any]
ORDER = ("PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled")
MAX_MESSAGE = 4096
FALLBACK_BYTES, FALLBACK_LINES = 2048, 80
EPOCH = "1970-01-01T00:00:00Z"


class StatusBuilder:
    """``build`` returns the status; the other methods report what happened to the pod."""

    def __init__(self, pod: Object, clock: Clock) -> None:
        self.clock = clock
        self.spec = pod["spec"]
        self.inits = [c["name"] for c in self.spec.get("initContainers") or []]
        self.mains = [c["name"] for c in self.spec["containers"]]
        self.phase = "Pending"
        self.reason: Optional[tuple[str, str]] = None
        self.start_time = clock.now()
        self.began = clock.time()
        self.ip = ""
        self.conditions: dict[str, Object] = {}
        self.containers: dict[str, Object] = {}
        self.started_at: dict[str, str] = {}
        self.messages: dict[str, Path] = {}
        for kind in ("initContainers", "containers"):
            for c in self.spec.get(kind) or []:
                self.containers[c["name"]] = {
                    "name": c["name"],
                    "state": {},
                    "lastState": {},
                    "ready": False,
                    "restartCount": 0,
                    "image": c["image"],
                    "imageID": "",
                    "started": False,
                }

    def _set(self, kind: str, value: bool, reason: str = "", message: str = "") -> None:
        old = self.conditions.get(kind)
        text = "True" if value else "False"
        since = old["lastTransitionTime"] if old and old["status"] == text else self.clock.now()
        new: Object = {
            "type": kind,
            "status": text,
            "lastProbeTime": None,
            "lastTransitionTime": since,
        }
        if reason:
            new["reason"] = reason
        if message:
            new["message"] = message
        self.conditions[kind] = new

    def _not_ready(self, reason: str) -> None:
        names = " ".join(self.mains)
        message = (
            f"containers with unready status: [{names}]" if reason == "ContainersNotReady" else ""
        )
        self._set("Ready", False, reason, message)
        self._set("ContainersReady", False, reason, message)

    def creating(self, node: str) -> None:
        """The kubelet has received the pod."""
        self.began = self.clock.time()
        self.start_time = self.clock.now()
        self._set("PodReadyToStartContainers", False)
        if self.inits:
            names = " ".join(self.inits)
            self._set(
                "Initialized",
                False,
                "ContainersNotInitialized",
                f"containers with incomplete status: [{names}]",
            )
        else:
            self._set("Initialized", True)
        self._not_ready("ContainersNotReady")
        self._set("PodScheduled", True)
        reason = "PodInitializing" if self.inits else "ContainerCreating"
        for c in self.containers.values():
            c["state"] = {"waiting": {"reason": reason}}

    def sandbox_ready(self) -> None:
        self._set("PodReadyToStartContainers", True)

    def waiting(self, name: str, reason: str, message: str) -> None:
        c = self.containers[name]
        if "terminated" in c["state"]:
            c["lastState"] = c["state"]
        c["state"] = {"waiting": {"reason": reason, "message": message}}

    def message_file(self, name: str, path: Path) -> None:
        self.messages[name] = path

    def running(self, name: str, number: str, ip: str) -> None:
        c = self.containers[name]
        if "terminated" in c["state"]:
            c["lastState"] = c["state"]
        if c["lastState"]:
            c["restartCount"] += 1
        now = self.started_at[name] = self.clock.now()
        c["state"] = {"running": {"startedAt": now}}
        c["ready"] = name in self.mains
        c["started"] = True
        c["imageID"] = "sha256:" + "0" * 64
        c["containerID"] = f"process://{number}"
        if ip:
            self.ip = ip
        if name in self.mains and self.all_running():
            self.phase = "Running"
            self._set("Ready", True)
            self._set("ContainersReady", True)

    def all_running(self) -> bool:
        """Whether every main container has started (or failed to)."""
        return all(set(self.containers[n]["state"]) & {"running", "terminated"} for n in self.mains)

    def restarts(self, name: str) -> int:
        count: int = self.containers[name]["restartCount"]
        return count

    def terminated(
        self, spec: Object, end: End, number: str, log: Log, init: bool, again: bool
    ) -> None:
        """Note that a container has ended; ``again``: it will be restarted."""
        name = spec["name"]
        c = self.containers[name]
        if end.failed:
            if c["state"].get("terminated"):
                c["lastState"], c["restartCount"] = c["state"], c["restartCount"] + 1
            state: Object = {
                "exitCode": 128,
                "reason": "StartError",
                "message": end.failed,
                "startedAt": EPOCH,
            }
        else:
            reason = "OOMKilled" if end.oom else "Completed" if end.code == 0 else "Error"
            state = {"exitCode": end.code, "reason": reason}
            message = self._message(spec, end, log)
            if message:
                state["message"] = message
            state["startedAt"] = self.started_at.get(name, self.clock.now())
        state["finishedAt"] = self.clock.now()
        state["containerID"] = c["containerID"] = f"process://{number}"
        c["state"] = {"terminated": state}
        c["ready"] = init and end.code == 0
        c["started"] = False
        if init:
            if all(self.containers[n]["ready"] for n in self.inits):
                self._set("Initialized", True)
            return
        if again:
            self._not_ready("ContainersNotReady")
        elif self._all_ended():
            good = all(
                self.containers[n]["state"]["terminated"]["exitCode"] == 0 for n in self.mains
            )
            if good:
                self._set("Initialized", True, "PodCompleted")
            self._not_ready("PodCompleted" if good else "PodFailed")
            self.phase = "Running" if self.phase == "Running" or end.failed is None else self.phase
        else:
            self._not_ready("ContainersNotReady")

    def _all_ended(self) -> bool:
        return all("terminated" in self.containers[n]["state"] for n in self.mains)

    def _message(self, spec: Object, end: End, log: Log) -> str:
        path = self.messages.get(spec["name"])
        said = (
            path.read_bytes()[:MAX_MESSAGE].decode(errors="replace")
            if path and path.exists()
            else ""
        )
        if (
            not said
            and end.code != 0
            and spec.get("terminationMessagePolicy") == "FallbackToLogsOnError"
        ):
            return log.tail(FALLBACK_BYTES, FALLBACK_LINES)
        return said

    def failed_init(self) -> None:
        self._not_ready("PodFailed")

    def failing(self) -> None:
        self._not_ready("PodFailed")

    def final(self, deadline: bool) -> None:
        """Set the final phase: nothing runs any more."""
        ended = [self.containers[n]["state"].get("terminated") for n in self.mains]
        good = all(t is not None and t["exitCode"] == 0 for t in ended) and not deadline
        begun = any(ended) or any("terminated" in self.containers[n]["state"] for n in self.inits)
        if not begun and not deadline:
            return  # deleted before anything ran: the phase stays Pending
        self.phase = "Succeeded" if good else "Failed"
        if deadline:
            self.reason = (
                "DeadlineExceeded",
                "Pod was active on the node longer than the specified deadline",
            )
        self._set("PodReadyToStartContainers", False)
        if good:
            self._set("Initialized", True, "PodCompleted")
        self._not_ready("PodCompleted" if good else "PodFailed")

    def build(self, pod: Object) -> Object:
        """Return the status for the API; conditions that others wrote (DisruptionTarget) stay."""
        generation = pod["metadata"].get("generation", 1)
        others = [c for c in pod["status"].get("conditions") or [] if c["type"] not in ORDER]
        mine = [
            {**self.conditions[k], "observedGeneration": generation}
            for k in ORDER
            if k in self.conditions
        ]
        status: Object = {
            "observedGeneration": generation,
            "phase": self.phase,
            "conditions": [*others, *mine],
        }
        if self.reason:
            status["reason"], status["message"] = self.reason
        status["hostIP"] = "127.0.0.1"
        status["hostIPs"] = [{"ip": "127.0.0.1"}]
        if self.ip:
            status["podIP"] = self.ip
            status["podIPs"] = [{"ip": self.ip}]
        status["startTime"] = self.start_time
        if self.inits:
            status["initContainerStatuses"] = [dict(self.containers[n]) for n in self.inits]
        status["containerStatuses"] = [dict(self.containers[n]) for n in self.mains]
        status["qosClass"] = pod["status"].get("qosClass", "BestEffort")
        return status
