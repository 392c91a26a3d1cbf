"""What recording a step's reads costs, for bench.py: `reads.py on|off steps N` runs N no-op steps whose results may be
cached; `reads.py on|off files N` has a step open N files and prints the microseconds for each, and for its stat."""

from __future__ import annotations

import os
import sys
import time

from stoker import CachePolicy, pipeline, step

TRACK = sys.argv[1] == "on"
N = int(sys.argv[3])


@step(cache_policy=CachePolicy(track=TRACK))
def nothing(x: int) -> int:
    return x + 1


@step(cache_policy=CachePolicy(track=TRACK))
def files(n: int) -> None:
    names = [f"data/{i}" for i in range(n)]
    start = time.perf_counter()
    for name in names:
        os.close(os.open(name, os.O_RDONLY))
    opened = time.perf_counter() - start
    start = time.perf_counter()
    for name in names:
        os.stat(name)
    stat = time.perf_counter() - start
    print(opened / n * 1e6, stat / n * 1e6)


@pipeline
def steps() -> None:
    x = 0
    for _ in range(N):
        x = nothing(x)


@pipeline
def reads() -> None:
    files(N)


if __name__ == "__main__":
    if sys.argv[2] == "steps":
        steps()
    else:
        os.makedirs("data", exist_ok=True)
        for i in range(N):
            with open(f"data/{i}", "w") as out:
                out.write(str(i))
        reads()
