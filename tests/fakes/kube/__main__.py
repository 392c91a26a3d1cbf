"""``PYTHONPATH=tests/fakes python -m kube``: see the package's docstring."""

from __future__ import annotations

import argparse
import asyncio
import json
import signal
import sys
from pathlib import Path

from .cluster import Cluster, Options


async def serve(cluster: Cluster, kubeconfig: Path) -> None:
    serving = asyncio.ensure_future(cluster.serve())
    while not cluster._ready.is_set() and not serving.done():
        await asyncio.sleep(0.01)
    if not serving.done():
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, cluster._over.set)
        cluster.kubeconfig(kubeconfig)
        print(cluster.url, flush=True)
    await serving


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m kube")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--kubeconfig", type=Path, required=True)
    parser.add_argument("--nodes", type=Path, help="JSON list of nodes")
    parser.add_argument(
        "--plain", action="store_true", help="HTTP instead of HTTPS (kubectl then sends no token)"
    )
    parser.add_argument("--jobset", action="store_true", help="with the JobSet add-on")
    parser.add_argument(
        "--show", action="append", default=[], help="a host path that every image holds"
    )
    parser.add_argument("--namespace", action="append", default=[], help="another namespace")
    parser.add_argument(
        "--time-scale", type=float, default=0.01, help="of the control plane's own waits"
    )
    parser.add_argument(
        "--user-time-scale", type=float, default=1.0, help="of the waits that manifests name"
    )
    args = parser.parse_args()
    options = Options(
        host=args.host,
        port=args.port,
        tls=not args.plain,
        jobset=args.jobset,
        show=args.show,
        time_scale=args.time_scale,
        user_time_scale=args.user_time_scale,
    )
    options.namespaces += args.namespace
    if args.nodes:
        options.nodes = json.loads(args.nodes.read_text())
    cluster = Cluster(options)
    asyncio.run(serve(cluster, args.kubeconfig))
    for failure in cluster.failures:
        print(failure, file=sys.stderr)
    sys.exit(bool(cluster.failures))


if __name__ == "__main__":
    main()
