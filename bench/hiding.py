"""What a step's secrets cost: the same pipelines with and without them, side by side in one run.

    .venv/bin/python bench/hiding.py [STEPS] [MB]

Rows: a chain of STEPS commands that do nothing, one engine (milliseconds a step: what a scribe takes to
start and to end); one command that writes MB megabytes in lines (seconds: what they cost on their way
through it), with one value to hide and with a private key of 40 lines. Each by the clock and in CPU time of all
processes, which a busy machine changes less. The quickest of five, in turns.
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
STOKER = os.environ.get("STOKER_BIN", str(ROOT / "build/src/cli/stoker"))
KEY = "\n".join(
    f"{i:02}" + "MIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcwggSjAgEAAoIBAQDZ1" for i in range(40)
)
ENV = {"STOKER_SECRET_token": "correct-horse-battery-staple", "STOKER_SECRET_key": KEY}


def cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def run(document: dict[str, object], folder: Path) -> tuple[float, float]:
    """Seconds of one engine, from its start to its end; and CPU seconds."""
    path = folder / "p.json"
    path.write_text(json.dumps({"stoker": 1, "name": "p", "cache": False, **document}))
    store = folder / "store"
    env = {**os.environ, **ENV, "STOKER_STORE": str(store), "STOKER_ACCEL": "none"}
    start, used = time.monotonic(), cpu()
    subprocess.run([STOKER, "run", "-q", path], cwd=folder, env=env, check=True)
    took = time.monotonic() - start, cpu() - used
    shutil.rmtree(store)
    return took


def chain(n: int, secrets: list[str]) -> dict[str, object]:
    steps = {}
    for i in range(n):
        steps[f"s{i}"] = {"run": ["/bin/true"], "after": [f"s{i - 1}"] if i else []}
    return {"steps": steps, "secrets": secrets}


def writer(mb: int, secrets: list[str]) -> dict[str, object]:
    line = "epoch 12 loss 0.3217 accuracy 0.9123 lr 0.0003 and a token that is no secret"
    return {
        "steps": {"s": {"run": f"yes '{line}' | head -c {mb}000000"}},
        "secrets": secrets,
    }


def main() -> None:
    n = int(sys.argv[1]) if len(sys.argv) > 1 else 200
    mb = int(sys.argv[2]) if len(sys.argv) > 2 else 100
    kinds: list[tuple[str, list[str]]] = [("none", []), ("one", ["token"]), ("a key", ["key"])]
    times: dict[tuple[str, str], list[tuple[float, float]]] = {}
    with tempfile.TemporaryDirectory(prefix="stoker-bench-") as name:
        for _ in range(5):
            for kind, secrets in kinds:
                times.setdefault(("step", kind), []).append(run(chain(n, secrets), Path(name)))
                times.setdefault(("write", kind), []).append(run(writer(mb, secrets), Path(name)))
    for kind, _ in kinds:
        step = [min(one) / n * 1000 for one in zip(*times["step", kind])]
        write = [min(one) for one in zip(*times["write", kind])]
        print(
            f"secrets: {kind:6}  {step[0]:6.2f} ms a step ({step[1]:.2f} of CPU)"
            f"   {write[0]:6.2f} s for {mb} MB of log ({write[1]:.2f} of CPU)"
        )


if __name__ == "__main__":
    main()
