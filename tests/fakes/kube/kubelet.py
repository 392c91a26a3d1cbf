"""The nodes' kubelets: they run pods as processes and report the pods' status."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, Optional

from . import images
from .containers import Container, End, Log
from .podstatus import StatusBuilder
from .selectors import quantity
from .store import Change
from .volumes import ConfigError, MountError, Volumes, environment, expand

if TYPE_CHECKING:
    from .cluster import Cluster

Object = dict[str, Any]
Key = tuple[str, str]
TOKEN_PATH = "/var/run/secrets/kubernetes.io/serviceaccount"
MAX_MESSAGE = 4096


class Stopped(Exception):
    """The pod is being deleted or is over its deadline: stop waiting."""


class PodRun:
    """One pod on its node, from binding to end: ``run`` does all of it."""

    def __init__(self, kubelets: Kubelets, pod: Object) -> None:
        self.kubelets = kubelets
        self.cluster = kubelets.cluster
        self.store = self.cluster.store
        self.pod = pod
        self.key: Key = (pod["metadata"]["namespace"], pod["metadata"]["name"])
        self.uid = pod["metadata"]["uid"]
        self.node: str = pod["spec"]["nodeName"]
        self.ip = ""
        self.status = StatusBuilder(pod, self.cluster.store.clock)
        folder = self.cluster.containers.folder / "pods" / self.uid
        self.volumes = Volumes(self.cluster, pod, folder)
        self.folder = folder
        self.running: dict[str, Container] = {}
        self.last: dict[str, Container] = {}  # container's name → its newest start
        self.previous: dict[str, Container] = {}
        self.stop = asyncio.Event()
        self.deadline_over = False

    # --- the life of a pod

    async def run(self) -> None:
        try:
            await self._alive()
            self.status.creating(self.node)
            self.write()
            await self._sleep(self.cluster.options.start_lag_s)
            await self._prepare()
            self.status.sandbox_ready()
            self.write()
            self.kubelets.starting(self)
            if await self._init():
                await self._main()
        except Stopped:
            pass
        await self._finish()

    async def _prepare(self) -> None:
        """Set up the volumes, retrying until all are available."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self.ip = self.cluster.services.take_ip()
        tries = 0
        while True:
            try:
                self.volumes.set_up()
                return
            except MountError as e:
                self.event("Warning", "FailedMount", str(e))
                tries += 1
                await self._sleep(self.cluster.scaled(min(120, 0.5 * 2**tries)))

    async def _init(self) -> bool:
        """Run the init containers, one after the other. Return False if one failed for good."""
        for c in self.pod["spec"].get("initContainers") or []:
            while True:
                await self._start(c, init=True)
                end = await self._ended(c)
                restart = end.code != 0 and self.pod["spec"]["restartPolicy"] != "Never"
                self._note_end(c, end, init=True)
                if end.code == 0:
                    break
                if not restart:
                    self.status.failed_init()
                    self.write()
                    return False
                await self._back_off(c)
        return True

    async def _main(self) -> None:
        """Run all main containers at once, restarting each according to the policy."""
        containers = self.pod["spec"]["containers"]
        for c in containers:
            await self._start(c, init=False)
        self._arm_deadline()
        await self._gather([self._supervise(c) for c in containers])

    async def _gather(self, ways: list[Coroutine[Any, Any, None]]) -> None:
        tasks = [asyncio.ensure_future(w) for w in ways]
        try:
            await asyncio.gather(*tasks)
        finally:
            for t in tasks:
                t.cancel()

    async def _supervise(self, c: Object) -> None:
        while True:
            end = await self._ended(c)
            policy = self.pod["spec"]["restartPolicy"]
            again = policy == "Always" or (policy == "OnFailure" and end.code != 0)
            self._note_end(c, end, init=False, again=again)
            if not again:
                return
            await self._back_off(c)
            await self._start(c, init=False)

    async def _back_off(self, c: Object) -> None:
        """Wait before a restart: 0 s for the first one, then 10 s, 20 s … 5 minutes."""
        n = self.status.restarts(c["name"])
        if n == 0:
            return
        wait = min(300, 10 * 2 ** (n - 1))
        message = (
            f"back-off {wait}s restarting failed container={c['name']} "
            f"pod={self.key[1]}_{self.key[0]}({self.uid})"
        )
        await self._sleep(self.cluster.scaled(0.5))
        self.status.waiting(c["name"], "CrashLoopBackOff", message)
        self.write()
        self.event(
            "Warning",
            "BackOff",
            f"Back-off restarting failed container {c['name']} in pod {self.key[1]}",
            c,
        )
        await self._sleep(self.cluster.scaled(wait))

    # --- one container

    async def _start(self, c: Object, init: bool) -> None:
        """Start a container: image, environment, process.

        Returns when it runs or failed to start, which counts as an end.
        """
        await self._image(c)
        env = await self._environment(c)
        argv = [expand(a, env) for a in self._argv(c)]
        spec = self._spec(c, env, argv)
        self.event("Normal", "Created", "Container created", c)
        container = self.cluster.containers.start(spec)
        if c["name"] in self.last:
            self.previous[c["name"]] = self.last[c["name"]]
        self.last[c["name"]] = container
        failed = await container.started
        if failed:
            words = "failed to create containerd task: failed to create shim task: OCI runtime create failed: runc create failed: unable to start container process: "
            end = End(128, failed=words + failed)
            container.ended = asyncio.get_running_loop().create_future()
            container.ended.set_result(end)
            self.event("Warning", "Failed", f"Error: {end.failed}", c)
            return
        self.event("Normal", "Started", "Container started", c)
        self.running[c["name"]] = container
        self.status.running(c["name"], container.id, self.ip if not init else "")
        if init or self.status.all_running():
            self.write()
        if not init and self.status.all_running():
            self.cluster.services.changed(self.key[0])

    def _argv(self, c: Object) -> list[str]:
        command, args = c.get("command") or [], c.get("args") or []
        if command:
            return [*command, *args]
        return [*self.cluster.options.entrypoint, *args]

    def _spec(self, c: Object, env: dict[str, str], argv: list[str]) -> Object:
        message = self.folder / f"{c['name']}-{self.cluster.containers.count}.message"
        message.touch()
        c["terminationMessagePath"] = c.get("terminationMessagePath") or "/dev/termination-log"
        self.status.message_file(c["name"], message)
        hosts = self.cluster.services.hosts_file(self)
        hostname = self.folder / "hostname"
        hostname.write_text(env["HOSTNAME"] + "\n")
        mounts: list[Object] = [
            {"source": str(hosts), "target": "/etc/hosts"},
            {"source": str(hostname), "target": "/etc/hostname"},
            *self.volumes.mounts(c, env),
            {"source": str(message), "target": c["terminationMessagePath"]},
        ]
        context = {
            **(self.pod["spec"].get("securityContext") or {}),
            **(c.get("securityContext") or {}),
        }
        memory = (c["resources"].get("limits") or {}).get("memory")
        return {
            "argv": argv,
            "env": env,
            "cwd": c.get("workingDir") or "/",
            "hostname": env["HOSTNAME"],
            "mounts": mounts,
            "show": [[p, p, True] for p in self.cluster.options.show]
            + [
                [at, path, True]
                for path, at in self.cluster.options.holds.get(c["image"], {}).items()
            ],
            "memory": int(quantity(memory)) if memory else 0,
            "uid": context.get("runAsUser"),
            "gid": context.get("runAsGroup", context.get("runAsUser") and 0),
        }

    async def _image(self, c: Object) -> None:
        """Wait until the image is available, possibly for ever."""
        image, policy, options = c["image"], c["imagePullPolicy"], self.cluster.options
        bad = images.invalid(image)
        tries = 0
        while (
            bad
            or (says := images.answer(image, options.pulls))
            or not images.there(image, options.images, options.absent)
        ):
            if bad:
                reason, message = "InvalidImageName", bad
                self.event("Warning", "InspectFailed", bad, c)
            elif policy == "Never":
                reason = "ErrImageNeverPull"
                message = f'Container image "{image}" is not present with pull policy of Never'
                self.event("Warning", reason, message, c)
            else:
                reason, message = "ErrImagePull", images.pull_error(image, says)
                self.event("Normal", "Pulling", f'Pulling image "{image}"', c)
                self.event("Warning", "Failed", f'Failed to pull image "{image}": {message}', c)
            self.event("Warning", "Failed", f"Error: {reason}", c)
            self.status.waiting(c["name"], reason, message)
            self.write()
            if reason != "ErrImagePull":
                await self._sleep(self.cluster.scaled(10))
                continue
            wait = self.cluster.scaled(min(300, 10 * 2**tries))
            tries += 1
            await self._sleep(wait)
            back = f'Back-off pulling image "{image}"'
            self.status.waiting(c["name"], "ImagePullBackOff", f"{back}: ErrImagePull: {message}")
            self.write()
            self.event("Normal", "BackOff", back, c)
            self.event("Warning", "Failed", "Error: ImagePullBackOff", c)
            await self._sleep(wait)
        if policy == "Always":
            self.event("Normal", "Pulling", f'Pulling image "{image}"', c)
            self.event(
                "Normal",
                "Pulled",
                f'Successfully pulled image "{image}" in 1ms (1ms including waiting). Image size: 1 bytes.',
                c,
            )
            return
        self.event(
            "Normal",
            "Pulled",
            f'Container image "{image}" already present on machine and can be accessed by the pod',
            c,
        )

    async def _environment(self, c: Object) -> dict[str, str]:
        while True:
            shown = self._with_status()
            try:
                return environment(self.cluster, shown, c)
            except ConfigError as e:
                self.status.waiting(c["name"], "CreateContainerConfigError", str(e))
                self.write()
                self.event("Warning", "Failed", f"Error: {e}", c)
                await self._sleep(self.cluster.scaled(10))

    def _with_status(self) -> Object:
        """Return the pod for the downward API: only the kubelet knows its address yet."""
        status = {**self.pod["status"], "podIP": self.ip, "hostIP": "127.0.0.1"}
        return {**self.pod, "status": status}

    async def _ended(self, c: Object) -> End:
        """Wait for a container's end, then its log's. Raises Stopped if the pod must stop."""
        container = self.last[c["name"]]
        stop = asyncio.ensure_future(self.stop.wait())
        both: set[asyncio.Future[Any]] = {container.ended, stop}
        try:
            await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        finally:
            stop.cancel()
        if self.stop.is_set():
            raise Stopped
        end = container.ended.result()
        await _closed(container.log)
        await self._sleep(self.cluster.options.status_lag_s)
        return end

    def _note_end(self, c: Object, end: End, init: bool, again: bool = False) -> None:
        container = self.running.pop(c["name"], None) or self.last[c["name"]]
        self.status.terminated(c, end, container.id, container.log, init, again)
        self.write()

    # --- the end

    def _arm_deadline(self) -> None:
        seconds = self.pod["spec"].get("activeDeadlineSeconds")
        if seconds is not None:
            left = (
                self.status.began
                + seconds * self.cluster.options.user_time_scale
                - self.store.clock.time()
            )
            self.cluster.later(max(0.0, left), ("pod deadline", self.uid), self._deadline)

    def _deadline(self) -> None:
        if self.kubelets.runs.get(self.key) is self and not self.stop.is_set():
            self.deadline_over = True
            self.event(
                "Normal",
                "DeadlineExceeded",
                "Pod was active on the node longer than the specified deadline",
            )
            self.stop.set()

    async def _finish(self) -> None:
        """End the containers if necessary, then write the last statuses and the final phase."""
        if self.stop.is_set():
            await self._end_containers()
        else:
            await self._pause(self.cluster.scaled(1))
        await self._alive()
        self.status.final(self.deadline_over)
        self.write()
        self.cluster.services.changed(self.key[0])
        while True:
            current = self.current()
            if current is None:
                break
            if "deletionTimestamp" in current["metadata"]:
                await self._pause(self.cluster.scaled(1))
                await self._alive()
                self.cluster.garbage.release(current)
            self.stop.clear()
            if self.current() is None:
                break
            await self.stop.wait()
        self.volumes.tear_down()

    async def _end_containers(self) -> None:
        """Send SIGTERM, wait for the grace period, send SIGKILL."""
        current = self.current() or self.pod
        grace = current["metadata"].get("deletionGracePeriodSeconds")
        if grace is None:
            grace = self.pod["spec"].get("terminationGracePeriodSeconds", 30)
        await self._alive()
        if "deletionTimestamp" in current["metadata"]:
            self.write()
        elif self.deadline_over:
            self.status.failing()
            self.write()
        live = {n: c for n, c in self.last.items() if not c.ended.done()}
        names = {c["name"]: c for c in self._all()}
        for n in live:
            self.event("Normal", "Killing", f"Stopping container {n}", names[n])
            self.cluster.containers.signal(live[n], signal.SIGTERM if grace else signal.SIGKILL)
        if live:
            await asyncio.wait(
                {c.ended for c in live.values()},
                timeout=max(0.0, grace * self.cluster.options.user_time_scale),
            )
        for c in live.values():
            self.cluster.containers.kill(c)
        for name, c in self.last.items():
            end = await c.ended
            await _closed(c.log)
            if name in self.running:
                del self.running[name]
                self.status.terminated(
                    names[name], end, c.id, c.log, name in self.status.inits, False
                )

    def _all(self) -> list[Object]:
        spec = self.pod["spec"]
        found: list[Object] = (spec.get("initContainers") or []) + spec["containers"]
        return found

    # --- the API's side

    def current(self) -> Optional[Object]:
        found = self.store.get("pods", *self.key)
        return found if found is not None and found["metadata"]["uid"] == self.uid else None

    def write(self) -> None:
        """Write the status, unless the node is lost or the pod is gone."""
        current = self.current()
        if current is None or self.node in self.cluster.nodes.lost:
            return
        self.pod = current
        self.store.touch("pods", current, self.status.build(current))

    def event(self, kind: str, reason: str, message: str, c: Optional[Object] = None) -> None:
        if self.node in self.cluster.nodes.lost:
            return
        path = None
        if c is not None:
            kinds = "initContainers" if c["name"] in self.status.inits else "containers"
            path = f"spec.{kinds}{{{c['name']}}}"
        self.cluster.event(self.pod, kind, reason, message, "kubelet", self.node, path)

    async def _alive(self) -> None:
        """Wait while the node is lost: a lost kubelet does nothing."""
        while self.node in self.cluster.nodes.lost:
            await asyncio.sleep(0.02)

    async def _sleep(self, seconds: float) -> None:
        """Wait some seconds. Raises Stopped if the pod must stop."""
        try:
            await asyncio.wait_for(self.stop.wait(), seconds)
        except asyncio.TimeoutError:
            return
        raise Stopped

    async def _pause(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


async def _closed(log: Log) -> None:
    """Wait for the log's pipe to close: it does so soon after the last process ends."""
    for _ in range(200):
        if not log.open:
            return
        changed = log.changed
        try:
            await asyncio.wait_for(changed.wait(), 0.05)
        except asyncio.TimeoutError:
            pass


class Kubelets:
    """All running pods, by name."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.runs: dict[Key, PodRun] = {}
        self.tasks: set[asyncio.Task[None]] = set()
        cluster.store.listen("pods", self._heard)

    def _heard(self, change: Change) -> None:
        meta, spec = change.obj["metadata"], change.obj["spec"]
        key = (meta["namespace"], meta["name"])
        run = self.runs.get(key)
        if run is not None and run.uid == meta["uid"]:
            if change.type == "DELETED":
                run.stop.set()
                for c in run.last.values():
                    self.cluster.containers.kill(c)
            elif "deletionTimestamp" in meta and run.node not in self.cluster.nodes.lost:
                run.stop.set()
        elif (
            change.type != "DELETED"
            and spec.get("nodeName")
            and (run is None or run.uid != meta["uid"])
        ):
            self._begin(key, change.obj)

    def _begin(self, key: Key, pod: Object) -> None:
        run = PodRun(self, pod)
        self.runs[key] = run
        task = asyncio.ensure_future(self._guard(key, run))
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    async def _guard(self, key: Key, run: PodRun) -> None:
        try:
            await run.run()
        except asyncio.CancelledError:
            raise
        except Exception as e:
            self.cluster.failed(e)
        finally:
            if self.runs.get(key) is run:
                del self.runs[key]

    def starting(self, run: PodRun) -> None:
        self.cluster.services.changed(run.key[0])

    def log_of(self, pod: Object, name: str, previous: bool) -> Optional[Log]:
        run = self.runs.get((pod["metadata"]["namespace"], pod["metadata"]["name"]))
        if run is None:
            return None
        found = (run.previous if previous else run.last).get(name)
        return found.log if found else None

    def ready(self, pod: Object) -> bool:
        return any(
            c["type"] == "Ready" and c["status"] == "True"
            for c in pod["status"].get("conditions") or []
        )

    def with_token(self, pod: Object) -> Object:
        """Admission: add the volume with the service account's token, unless the pod opts out."""
        spec = pod["spec"]
        if spec.get("automountServiceAccountToken") is False:
            return pod
        name = f"kube-api-access-{self.cluster.store.suffix()}"
        sources: list[Object] = [
            {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}},
            {
                "configMap": {
                    "name": "kube-root-ca.crt",
                    "items": [{"key": "ca.crt", "path": "ca.crt"}],
                }
            },
            {
                "downwardAPI": {
                    "items": [
                        {
                            "path": "namespace",
                            "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"},
                        }
                    ]
                }
            },
        ]
        spec = {
            **spec,
            "volumes": [
                *(spec.get("volumes") or []),
                {"name": name, "projected": {"sources": sources, "defaultMode": 420}},
            ],
        }
        mount = {"name": name, "readOnly": True, "mountPath": TOKEN_PATH}
        for kind in ("initContainers", "containers"):
            if spec.get(kind):
                spec[kind] = [
                    {**c, "volumeMounts": [*(c.get("volumeMounts") or []), mount]}
                    for c in spec[kind]
                ]
        return {**pod, "spec": spec}

    def oom(self, namespace: str, name: str) -> bool:
        """Kill a pod's containers as the kernel does when memory is short. False if none runs."""
        run = self.runs.get((namespace, name))
        if run is None or not run.running:
            return False
        for c in run.running.values():
            c.forced_oom = True
            self.cluster.containers.kill(c)
        return True

    def kill_node(self, node: str) -> None:
        """End all containers of a node without reporting it."""
        for run in self.runs.values():
            if run.node == node:
                for c in run.last.values():
                    self.cluster.containers.kill(c)

    async def stop(self) -> None:
        for t in list(self.tasks):
            t.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)
        for run in self.runs.values():
            run.volumes.tear_down()
