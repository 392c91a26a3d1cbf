"""``POST /_test/NAME`` with a JSON object: changes to the cluster from outside the API.

fault    {match, status?, cut?, delay_s?, after?, times?, chance?, watch?}   see faults.Fault
clear                            removes all faults
lose     {node, kill?}           the node's kubelet falls silent (kill false: processes go on)
recover  {node}                  the kubelet is back
node     {name, capacity, labels?, taints?}   adds a node
oom      {namespace?, pod}       kills the pod's containers for lack of memory
preempt  {namespace?, pod}       as the scheduler does for a pod of higher priority
evict    {namespace?, pod}       as the eviction API does
compact                          from now on old resourceVersions are too old
expire   {token}                 the token is no longer valid; {token, user} makes it valid again
grant    {user, namespace}       grants all rights in a namespace
deny     {verb, resource}        denies everyone, as in {"verb": "list", "resource": "pods"};
                                 {verb, resource, again} allows it again
webhook  {resource, text?, code?}   a policy's webhook refuses new objects with this text;
                                 without text: no webhook any more
skew     {seconds, zone_h?}      the server's clock is wrong; the nodes' time zone isn't UTC
scale    {time_scale?, user_time_scale?}
jobset   {there?}                installs the add-on, or removes it (there: false)
restart  {down_s?, anew?}        cuts every connection, refuses new ones for a while, then serves
                                 again (anew: with lower resourceVersions)
state                            → counts, the server's own failures, requests answered
"""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

from . import writes
from .errors import ApiError
from .http import Request, Response
from .resources import Catalogue
from .store import dump

if TYPE_CHECKING:
    from .cluster import Cluster

Object = dict[str, Any]


class Control:
    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster

    async def handle(self, request: Request) -> Response:
        name = request.path[len("/_test/") :]
        try:
            given = json.loads(request.body) if request.body else {}
            return Response(200, dump(self.do(name, given) or {}))
        except ApiError as e:
            return Response(e.code, dump(e.status()))
        except (KeyError, TypeError, ValueError) as e:
            return Response(400, dump({"error": f"_test/{name}: {e!r}"}))

    def do(self, name: str, given: Object) -> Any:
        """Call a function of the table above. KeyError for an unknown name or a missing key."""
        return (
            getattr(self, f"do_{name}")(**given)
            if hasattr(self, f"do_{name}")
            else self._unknown(name)
        )

    def _unknown(self, name: str) -> Any:
        raise KeyError(f"no such control: {name}")

    def _pod(self, namespace: str, pod: str) -> Object:
        return self.cluster.store.need("pods", namespace, pod)

    def do_fault(self, **given: Any) -> None:
        self.cluster.faults.add(**given)

    def do_clear(self) -> None:
        self.cluster.faults.clear()

    def do_lose(self, node: str, kill: bool = True) -> None:
        self.cluster.nodes.lose(node, kill)

    def do_recover(self, node: str) -> None:
        self.cluster.nodes.recover(node)

    def do_node(self, **given: Any) -> None:
        self.cluster.nodes.add(given)

    def do_oom(self, pod: str, namespace: str = "default") -> Object:
        return {"killed": self.cluster.kubelets.oom(namespace, pod)}

    def do_preempt(self, pod: str, namespace: str = "default") -> None:
        said = "default-scheduler: preempting to accommodate a higher priority pod"
        marked = writes.disrupt(
            self.cluster, self._pod(namespace, pod), "PreemptionByScheduler", said
        )
        self.cluster.garbage.delete("pods", marked, "Background")

    def do_evict(self, pod: str, namespace: str = "default") -> None:
        writes.evict(self.cluster, namespace, pod, {})

    def do_compact(self) -> None:
        self.cluster.store.compact()

    def do_expire(self, token: str, user: str = "") -> None:
        if user:
            self.cluster.tokens[token] = user
        else:
            self.cluster.tokens.pop(token, None)

    def do_grant(self, user: str, namespace: str) -> None:
        self.cluster.grants.add((user, namespace))

    def do_deny(self, verb: str, resource: str, again: bool = False) -> None:
        (self.cluster.denied.discard if again else self.cluster.denied.add)((verb, resource))

    def do_webhook(self, resource: str, text: str = "", code: int = 403) -> None:
        self.cluster.webhooks[resource] = (text, code)

    def do_skew(self, seconds: float, zone_h: int = 0) -> None:
        self.cluster.store.clock.skew_s = seconds
        self.cluster.store.clock.zone_h = zone_h

    def do_jobset(self, there: bool = True) -> None:
        self.cluster.catalogue = Catalogue(there)

    def do_scale(self, **given: float) -> None:
        for key, value in given.items():
            if key not in ("time_scale", "user_time_scale"):
                raise KeyError(key)
            setattr(self.cluster.options, key, value)

    def do_restart(self, down_s: float = 0.1, anew: bool = False) -> None:
        asyncio.get_running_loop().call_later(0.02, self.cluster.begin_restart, down_s, anew)

    def do_state(self) -> Object:
        store = self.cluster.store
        return {
            "counts": {shelf: len(objects) for shelf, objects in store.shelves.items() if objects},
            "resourceVersion": store.rv,
            "failures": self.cluster.failures,
            "requests": len(self.cluster.asked),
            "containers": sum(
                1 for c in self.cluster.containers.known.values() if c.pid and not c.ended.done()
            ),
        }
