"""A whole cluster: store, API, controllers and kubelets on one event loop in its own thread."""

from __future__ import annotations

import asyncio
import base64
import dataclasses
import email.utils
import ssl
import threading
import time
import traceback
from collections.abc import Callable, Hashable
from pathlib import Path
from typing import Any, Optional, TypeVar

from . import tls
from .api import Api
from .containers import Containers
from .control import Control
from .faults import Faults
from .garbage import Garbage
from .http import Request, Response, Server
from .jobs import Jobs
from .jobsets import JobSets
from .kubelet import Kubelets
from .nodes import DEFAULT, Nodes
from .quota import Quota
from .resources import Catalogue
from .scheduler import Scheduler
from .services import Services
from .store import Clock, Store, micro

Object = dict[str, Any]
T = TypeVar("T")


@dataclasses.dataclass
class Options:
    """The configuration of a cluster. Times are in seconds.

    ``time_scale`` multiplies the control plane's own waits (retry backoff 10 s, batching of pod
    changes 1 s, node grace 40 s, image pull backoff …), ``user_time_scale`` those that a manifest
    sets (deadlines, grace periods, TTL).
    """

    host: str = "127.0.0.1"
    port: int = 0  # 0: any free port
    tls: bool = True
    nodes: list[Object] = dataclasses.field(default_factory=lambda: [dict(n) for n in DEFAULT])
    namespaces: list[str] = dataclasses.field(default_factory=lambda: ["default", "kube-system"])
    images: list[str] = dataclasses.field(
        default_factory=lambda: ["*"]
    )  # patterns of the images that nodes have
    absent: list[str] = dataclasses.field(default_factory=lambda: ["*absent*", "*.invalid/*"])
    pulls: dict[str, str] = dataclasses.field(
        default_factory=dict
    )  # pattern of names → the registry's answer (images.ANSWERS)
    entrypoint: list[str] = dataclasses.field(default_factory=lambda: ["sh"])  # of every image
    environment: dict[str, str] = dataclasses.field(default_factory=dict)  # of every image
    show: list[str] = dataclasses.field(default_factory=list)  # host paths that every image has
    holds: dict[str, dict[str, str]] = dataclasses.field(
        default_factory=dict
    )  # image: {path in the image: host path}
    time_scale: float = 0.01
    user_time_scale: float = 1.0
    start_lag_s: float = 0.0  # from "ContainerCreating" to the start, as on a busy node
    status_lag_s: float = 0.0  # from a container's end to its pod's status; the log ends at once
    watch_s: float = 1800.0  # default timeout of a watch
    bookmark_s: float = 1.0
    jobset: bool = False
    dns: bool = True  # False: pods can resolve only their own name
    seed: int = 0


class Cluster:
    """A cluster to ``start``, use and ``stop``.

    Clients need its ``address`` or ``kubeconfig``; ``call`` runs a function inside the cluster.
    """

    ADMIN = "token-admin"
    ADMIN_TOKEN = "admin-token"

    def __init__(self, options: Optional[Options] = None) -> None:
        self.options = options or Options()
        self.failures: list[str] = []
        self.asked: list[str] = []  # "METHOD TARGET" of every request, in order of arrival
        self.tokens = {self.ADMIN_TOKEN: self.ADMIN, "alice-token": "alice"}
        self.grants: set[tuple[str, str]] = set()
        self.denied: set[tuple[str, str]] = set()
        self.webhooks: dict[str, tuple[str, int]] = {}  # resource: its webhook's message and status
        self.timers: dict[Hashable, asyncio.TimerHandle] = {}
        self.store = Store(Clock(), self.options.seed)
        self.catalogue = Catalogue(self.options.jobset)
        self.faults = Faults()
        self.control = Control(self)
        self.garbage = Garbage(self)
        self.quota = Quota(self)
        self.nodes = Nodes(self)
        self.scheduler = Scheduler(self)
        self.services = Services(self)
        self.jobs = Jobs(self)
        self.jobsets = JobSets(self)
        self.api = Api(self)
        self.ca_pem = ""
        self._events: dict[tuple[Any, ...], tuple[str, str]] = {}
        self._thread: Optional[threading.Thread] = None
        self._ready = threading.Event()

    # --- start and stop

    def start(self) -> Cluster:
        """Serve from a thread. Raises OSError where this machine can't run pods."""
        self._thread = threading.Thread(target=self._main, name="kube", daemon=True)
        self._thread.start()
        self._ready.wait(60)
        if self.failures:
            raise OSError(self.failures[0])
        return self

    def stop(self) -> None:
        if self._thread and self._thread.is_alive():
            self.loop.call_soon_threadsafe(self._over.set)
            self._thread.join(60)

    def __enter__(self) -> Cluster:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _main(self) -> None:
        try:
            asyncio.run(self.serve())
        except Exception as e:
            self.failed(e)
        finally:
            self._ready.set()

    async def serve(self) -> None:
        """Serve until ``stop``, on the running event loop."""
        self.loop = asyncio.get_running_loop()
        self._over = asyncio.Event()
        self.containers = Containers(self.store.clock.time)
        self.kubelets = Kubelets(self)
        context: Optional[ssl.SSLContext] = None
        try:
            self.containers.start_runtime()
            if self.options.tls:
                self.pki = tls.pki(self.options.host, self.ADMIN)
                self.ca_pem, context = self.pki.ca_pem, self.pki.context()
            self.server = Server(self._handle, self.options.host, self.options.port, context)
            await self.server.start()
            for name in self.options.namespaces:
                self.add_namespace(name)
            for node in self.options.nodes:
                self.nodes.add(node)
            self._ready.set()
            await self._over.wait()
            await self.server.stop()
        finally:
            for handle in self.timers.values():
                handle.cancel()
            await self.kubelets.stop()
            self.containers.stop_runtime()

    async def _handle(self, request: Request) -> Response:
        self.asked.append(f"{request.method} {request.target}")
        try:
            return await self.api.handle(request)
        except (asyncio.CancelledError, ConnectionError):
            raise
        except Exception as e:
            self.failed(e)
            return Response(500, repr(e).encode(), "text/plain")

    def failed(self, e: BaseException) -> None:
        """Keep an error of this server (not of the program under test) for tests to report."""
        self.failures.append("".join(traceback.format_exception(type(e), e, e.__traceback__)))

    def begin_restart(self, down_s: float, anew: bool = False) -> None:
        async def restart() -> None:
            await self.server.stop()
            if anew:
                self.store.begin_anew()
            await asyncio.sleep(down_s)
            await self.server.start()

        self._restarting = asyncio.ensure_future(restart())

    def restart(self, down_s: float = 0.1, anew: bool = False) -> None:
        """Cut every connection, refuse new ones for ``down_s``, then serve again.

        The state stays; with ``anew`` the objects get other versions.
        """
        self.call(self.begin_restart, down_s, anew)
        end = time.monotonic() + down_s + 60
        while not self.call(lambda: self._restarting.done()):
            if time.monotonic() > end:
                raise TimeoutError("the cluster doesn't come back")
            time.sleep(0.01)

    # --- addresses

    @property
    def host(self) -> str:
        return self.options.host

    @property
    def port(self) -> int:
        return self.server.port

    @property
    def address(self) -> str:
        return f"{self.host}:{self.port}"

    @property
    def url(self) -> str:
        return f"{'https' if self.options.tls else 'http'}://{self.address}"

    def kubeconfig(
        self,
        path: Path,
        namespace: str = "default",
        token: Optional[str] = None,
        certificate: bool = False,
    ) -> Path:
        """Write a kubeconfig for the admin or the owner of ``token``.

        It has a client certificate if the caller asks for one, which needs TLS.
        """
        lines = [
            "apiVersion: v1",
            "kind: Config",
            "current-context: fake",
            "clusters:",
            "- name: fake",
            "  cluster:",
        ]
        lines.append(f"    server: {self.url}")
        if self.ca_pem:
            lines.append(
                f"    certificate-authority-data: {base64.b64encode(self.ca_pem.encode()).decode()}"
            )
        lines += [
            "contexts:",
            "- name: fake",
            f"  context: {{cluster: fake, user: fake, namespace: {namespace}}}",
        ]
        lines += ["users:", "- name: fake", "  user:"]
        if certificate:
            for key, file in (
                ("client-certificate-data", "client.crt"),
                ("client-key-data", "client.key"),
            ):
                lines.append(
                    f"    {key}: {base64.b64encode((self.pki.folder / file).read_bytes()).decode()}"
                )
        else:
            lines.append(f"    token: {token or self.ADMIN_TOKEN}")
        path.write_text("\n".join(lines) + "\n")
        return path

    # --- used by the other modules

    def call(self, function: Callable[..., T], *args: Any) -> T:
        """Run a function on the cluster's loop and return its result (from another thread)."""

        async def inside() -> T:
            return function(*args)

        return asyncio.run_coroutine_threadsafe(inside(), self.loop).result(60)

    def soon(self, key: Hashable, function: Callable[..., None], *args: Any) -> None:
        """Run a function after this turn of the loop; several calls with one key run it once."""
        self.later(0.0, key, function, *args)

    def later(
        self, seconds: float, key: Hashable, function: Callable[..., None], *args: Any
    ) -> None:
        """Do the same after some seconds; of several calls with one key, the earliest counts."""
        old = self.timers.get(key)
        due = self.loop.time() + seconds
        if old is not None:
            if old.when() <= due:
                return
            old.cancel()

        def run() -> None:
            self.timers.pop(key, None)
            try:
                function(*args)
            except Exception as e:
                self.failed(e)

        self.timers[key] = self.loop.call_at(due, run)

    def scaled(self, seconds: float) -> float:
        return seconds * self.options.time_scale

    def http_date(self) -> str:
        return email.utils.formatdate(self.store.clock.time(), usegmt=True)

    def add_namespace(self, name: str) -> None:
        from . import writes

        writes.insert(
            self,
            "namespaces",
            {
                "kind": "Namespace",
                "apiVersion": "v1",
                "metadata": {"name": name, "labels": {"kubernetes.io/metadata.name": name}},
            },
        )

    def token_of(self, user: str) -> str:
        """Return a user's token, which is made on the first call."""
        for token, who in self.tokens.items():
            if who == user:
                return token
        token = f"token-{self.store.suffix(24)}"
        self.tokens[token] = user
        return token

    def allowed(
        self, user: str, verb: str, group: str, plural: str, sub: str, namespace: str
    ) -> bool:
        """Whether a user may do something.

        The admin may do everything, others everything in namespaces granted to them; ``denied``
        overrides both.
        """
        del group
        if (verb, f"{plural}/{sub}" if sub else plural) in self.denied:
            return False
        return user == self.ADMIN or (bool(namespace) and (user, namespace) in self.grants)

    def event(
        self,
        obj: Object,
        kind: str,
        reason: str,
        message: str,
        component: str,
        host: str = "",
        path: Optional[str] = None,
        action: str = "",
    ) -> None:
        """Record an event about an object; repeating it only raises its count."""
        meta, now = obj["metadata"], self.store.clock.time()
        namespace = meta.get("namespace", "default")
        key = (meta["uid"], reason, message, path)
        if key in self._events:
            old = self.store.get("events", *self._events[key])
            if old is not None:
                stamp = self.store.clock.now()
                self.store.update(
                    "events", {**old, "count": old.get("count", 1) + 1, "lastTimestamp": stamp}
                )
                return
        name = f"{meta['name']}.{int(now * 1e9):x}{len(self._events) % 16:x}"
        target = {
            "kind": obj["kind"],
            "namespace": namespace,
            "name": meta["name"],
            "uid": meta["uid"],
            "apiVersion": obj["apiVersion"],
            "resourceVersion": meta.get("resourceVersion", ""),
        }
        if path:
            target["fieldPath"] = path
        stamp = self.store.clock.now()
        event: Object = {
            "kind": "Event",
            "apiVersion": "v1",
            "metadata": {
                "name": name,
                "namespace": namespace,
                "uid": self.store.uid(),
                "creationTimestamp": stamp,
            },
            "involvedObject": target,
            "reason": reason,
            "message": message,
        }
        if action:  # the scheduler's events have the new form
            event.update(
                {"source": {}, "firstTimestamp": None, "lastTimestamp": None, "type": kind}
            )
            event.update({"eventTime": micro(now), "action": action})
        else:
            source = {"component": component, **({"host": host} if host else {})}
            event.update(
                {"source": source, "firstTimestamp": stamp, "lastTimestamp": stamp, "count": 1}
            )
            event.update({"type": kind, "eventTime": None})
        event["reportingComponent"] = component
        event["reportingInstance"] = host if not action else f"{component}-host"
        self.store.create("events", event)
        self._events[key] = (namespace, name)
