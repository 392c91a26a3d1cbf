"""Rows of bench.py about S3: beside `aws s3 cp`, both to the same server (moto's), in turn."""

from __future__ import annotations

import os
import shutil
import socket
import statistics
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bench import Bench, Cost

ROUNDS = 3
MIB = 1 << 20


def python_with_moto(bench: Bench) -> str | None:
    for python in (str(bench.args.python), bench.args.peers):
        if (
            python
            and not subprocess.run(
                [python, "-c", "import moto.server"], capture_output=True
            ).returncode
        ):
            return python
    return None


def find_aws(bench: Bench) -> str | None:
    for python in (bench.args.peers, str(bench.args.python)):
        beside = Path(python).parent / "aws" if python else None
        if beside and beside.exists():
            return str(beside)
    return shutil.which("aws")


def start_server(python: str, log: Path) -> tuple[subprocess.Popen[bytes], str]:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    words = [python, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    process = subprocess.Popen(words, stdout=log.open("wb"), stderr=subprocess.STDOUT)
    end = time.monotonic() + 60
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return process, f"http://127.0.0.1:{port}"
        except OSError:
            if time.monotonic() > end or process.poll() is not None:
                raise SystemExit(f"bench: moto doesn't start: {log.read_text()[-1000:]}") from None
            time.sleep(0.05)


def both_ways(bench: Bench, ours: list[list[str]], theirs: list[list[str]], folder: Path) -> None:
    from bench import measure

    def total(commands: list[list[str]]) -> Cost:
        costs = [measure(words, folder, bench.env) for words in commands]
        return type(costs[0])(sum(c.wall for c in costs), sum(c.cpu for c in costs))

    pairs = [(total(ours), total(theirs)) for _ in range(ROUNDS)]
    wall = [statistics.median(p[i].wall for p in pairs) for i in (0, 1)]
    cpu = [statistics.median(p[i].cpu for p in pairs) for i in (0, 1)]
    size = (folder / "in").stat().st_size // MIB
    bench.add(
        "s3",
        f"{size} MiB to S3 and back, checked, on one server (moto's, which is what limits both)",
        f"{wall[0]:.2f} s ({2 * size / wall[0]:.0f} MiB/s)",
        f"aws s3 cp {wall[1]:.2f} s",
        statistics.median(p[0].wall / p[1].wall for p in pairs),
        1.0,
    )
    bench.add(
        "s3",
        "CPU of the same",
        f"{cpu[0]:.2f} s",
        f"aws s3 cp {cpu[1]:.2f} s",
        statistics.median(p[0].cpu / p[1].cpu for p in pairs),
        0.5,
    )


def rows(bench: Bench) -> None:
    python = python_with_moto(bench)
    aws = find_aws(bench)
    if python is None or aws is None:
        print(f"s3: left out, there is no {'moto' if python is None else 'aws'} (make bench-peers)")
        return
    folder = bench.fresh("s3")
    process, url = start_server(python, folder / "log")
    kept = dict(bench.env)
    for name in [n for n in bench.env if n.startswith("AWS_")]:
        del bench.env[name]
    bench.env.update(
        AWS_ACCESS_KEY_ID="bench",
        AWS_SECRET_ACCESS_KEY="bench",
        AWS_REGION="us-east-1",
        AWS_ENDPOINT_URL=url,
        HOME=str(folder),
    )
    try:
        subprocess.run(
            [aws, "s3", "mb", "s3://bench"], env=bench.env, check=True, capture_output=True
        )
        block = os.urandom(MIB)
        with (folder / "in").open("wb") as file:
            for i in range(64 if bench.args.quick else 256):
                file.write(i.to_bytes(8, "little") + block[8:])
        stoker = str(bench.args.stoker)
        both_ways(
            bench,
            [
                [stoker, "share", "put", "s3://bench/ours", "k", "in"],
                [stoker, "share", "get", "s3://bench/ours", "k", "back"],
            ],
            [
                [aws, "s3", "cp", "--quiet", "in", "s3://bench/theirs/k"],
                [aws, "s3", "cp", "--quiet", "s3://bench/theirs/k", "back"],
            ],
            folder,
        )
    finally:
        process.terminate()
        process.wait()
        bench.env = kept
