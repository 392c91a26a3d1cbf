"""Engines whose jobs are played: bench.py's rows about submitting 1,000 of them measure our engine, not 1,000 containers.

    python bench/stand_in.py kube KUBECONFIG | batch PORT

The tests' fake Kubernetes, or moto's AWS Batch in simple mode, in all but one thing: where a container would run our agent, this
process itself writes the claim and the end.json that the agent of a task of no outputs writes (the share is a folder). A line
on stdout says that it serves. GET /_seen (batch) and the file KUBECONFIG.seen, written at SIGTERM (kube), say what was asked:
``{"requests": {"POST …": n}, "submitted": [seconds of the first, of the last submission, n]}``.
"""

from __future__ import annotations

import asyncio
import json
import re
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests/fakes"), str(ROOT / "tests/support")]


class Seen:
    """What was asked for, by kind."""

    def __init__(self) -> None:
        self.requests: Counter[str] = Counter()
        self.times: list[float] = []

    def note(self, kind: str, is_submission: bool) -> None:
        self.requests[kind] += 1
        if is_submission:
            self.add(1)

    def add(self, n: int) -> None:
        """Jobs that were submitted just now."""
        self.times += [time.monotonic()] * n

    def told(self) -> str:
        times = self.times or [0.0]
        return json.dumps(
            {"requests": self.requests, "submitted": [times[0], times[-1], len(self.times)]}
        )


def play(url: str, key: str) -> None:
    """What the agent leaves of a task that ended well and wrote nothing."""
    folder = Path(url.removeprefix("file://")) / key
    if not (folder / "job.json").exists():
        return  # the other side's, which nobody waits for
    now = int(time.time() * 1000)
    (folder / "claim").write_text("played")
    unknown = ("peak_memory_bytes", "read_bytes", "write_bytes")
    outcome = {"ok": True, "failure": "none", "text": "", "exit_status": 0, "signal": 0}
    outcome |= {"wall_ms": 1, "cpu_us": 1000, **dict.fromkeys(unknown), "libraries": "0"}
    outcome |= {"has_looked": False, "mask_changed": False, "other_device": None, "devices": []}
    files = {"stdout.log": "", "stderr.log": ""}
    files["result.json"] = json.dumps({"stoker": 1, "status": "ok", "outputs": {}})
    end = {"stoker": 1, "host": "played", "node": 0, "started_ms": now, "ended_ms": now}
    end |= {"outcome": outcome, "granted": {"cpu_count": 1, "devices": []}}
    end |= {"files": {name: {"text": text} for name, text in files.items()}}
    (folder / ".end").write_text(json.dumps(end))
    (folder / ".end").rename(folder / "end.json")


def play_argv(argv: list[str]) -> int:
    """Of an array's list all children; how many there are beyond the first."""
    if "agent" not in argv:
        return 0
    i = argv.index("agent")
    url, keys = argv[i + 1], [argv[i + 2]]
    if keys[0].endswith(".json"):
        told = json.loads((Path(url.removeprefix("file://")) / keys[0]).read_text())
        keys = [f"{told['at']}/{key}" for key in told["keys"]]
    for key in keys:
        play(url, key)
    return len(keys) - 1


# --- Kubernetes ---


def kube(kubeconfig: Path) -> None:
    from kube import Cluster, Options
    from kube import cluster as module
    from kube.containers import Container, Containers, End

    class Played(Containers):
        def start_runtime(self) -> None:
            pass

        def start(self, spec: dict[str, Any]) -> Container:
            self.count += 1
            c = self.known[str(self.count)] = Container(self.count)
            play_argv(spec["argv"])
            c.started.set_result(None)
            c.ended.set_result(End(0))
            c.log.close(self.time_of())
            return c

    module.Containers = Played  # type: ignore[misc]
    seen = Seen()
    cluster = Cluster(Options())
    handle = cluster.api.handle

    async def counted(request: Any) -> Any:
        way = re.sub(r"/s-[a-z0-9-]+|/played-[0-9]+", "/NAME", request.path)
        watches = " watch" if "watch" in request.query else ""
        seen.note(
            f"{request.method} {way}{watches}", (request.method, way[-5:]) == ("POST", "/jobs")
        )
        return await handle(request)

    cluster.api.handle = counted  # type: ignore[method-assign]

    async def serve() -> None:
        import signal

        serving = asyncio.ensure_future(cluster.serve())
        while not cluster._ready.is_set() and not serving.done():
            await asyncio.sleep(0.01)
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, cluster._over.set)
        cluster.kubeconfig(kubeconfig)
        print(cluster.url, flush=True)
        await serving

    asyncio.run(serve())
    Path(f"{kubeconfig}.seen").write_text(seen.told())


# --- AWS Batch ---


def batch(port: int) -> None:
    from moto.batch_simple.models import BatchSimpleBackend
    from moto.core.config import default_user_config
    from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
    from werkzeug.serving import WSGIRequestHandler, run_simple

    class Quiet(WSGIRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_request(self, *_: Any) -> None:
            pass

    default_user_config["batch"] = {"use_docker": False}  # type: ignore[typeddict-item]
    submit = BatchSimpleBackend.submit_job

    def played(self: Any, *words: Any, **more: Any) -> Any:
        seen.add(play_argv((more.get("container_overrides") or {}).get("command", [])))
        return submit(self, *words, **more)

    BatchSimpleBackend.submit_job = played  # type: ignore[method-assign]
    moto = DomainDispatcherApplication(create_backend_app)
    seen = Seen()

    def app(environ: Any, start: Any) -> Any:
        way = environ["PATH_INFO"]
        if way == "/_seen":
            start("200 OK", [("Content-Type", "application/json")])
            return [seen.told().encode()]
        seen.note(f"{environ['REQUEST_METHOD']} {way}", way == "/v1/submitjob")
        return moto(environ, start)

    print("serves", flush=True)
    run_simple("127.0.0.1", port, app, threaded=True, request_handler=Quiet)


if __name__ == "__main__":
    if sys.argv[1] == "kube":
        kube(Path(sys.argv[2]))
    else:
        batch(int(sys.argv[2]))
