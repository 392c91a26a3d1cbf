#!/usr/bin/env python3
"""The pictures of README.md and docs, from real runs: docs/img/terminal.png, devices.png, and of
examples/lora runs.png, compare.png and lora.png.

.venv/bin/python tools/pictures.py [terminal] [devices] [pages]     (after `make demo-torch`; needs Debian's
chromium)

The run of devices.png is real, its two GPUs are not: a file describes them, and changes while the step runs. What
the step has of PyTorch is an empty file of the name of its library.
"""

from __future__ import annotations

import html
import json
import math
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
COLOURS = {
    "1": "font-weight:600",
    "2": "opacity:.6",
    "31": "color:#ff7b72",
    "32": "color:#7ee787",
    "33": "color:#f2cc60",
    "36": "color:#79c0ff",
}


def spans(text: str) -> str:
    """Terminal text with colour sequences, as HTML."""
    out, depth = [], 0
    for part in re.split(r"(\x1b\[[0-9;]*m)", text):
        code = re.fullmatch(r"\x1b\[([0-9;]*)m", part)
        if code is None:
            out.append(html.escape(part))
            continue
        styles = [COLOURS[c] for c in code[1].split(";") if c in COLOURS]
        if styles:
            out.append(f'<span style="{";".join(styles)}">')
            depth += 1
        else:
            out.append("</span>" * depth)
            depth = 0
    return "".join(out)


def shoot(page: str, picture: Path, size: str) -> None:
    """A picture of the page at this address."""
    subprocess.run(
        [
            "chromium",
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--hide-scrollbars",
            f"--screenshot={picture}",
            f"--window-size={size}",
            page,
        ],
        check=True,
        capture_output=True,
    )


STEP = """import mmap, os, sys, time
open("pid", "w").write(str(os.getpid()))
library = open(os.open("libtorch_cuda.so", os.O_RDWR | os.O_CREAT), "r+b")
library.truncate(4096)
kept = mmap.mmap(library.fileno(), 4096)
time.sleep(9)
"""
PIPELINE = """stoker: 1
name: two-gpus
sample: 0.1
steps:
  train:
    run: PYTHON step.py
    resources: {cpu_count: 1, memory: 2GB, gpu_count: 2}
"""
MEMORY = 85_899_345_920


def watts(busy: float) -> float:
    return 58 + 3.2 * busy


def device(number: int, busy: float, used: int, pid: str, joules: float) -> dict[str, object]:
    """One A100 as src/host/accel/accel_fake.c reads it."""
    return {
        "uuid": f"GPU-{number}a7c1f00-5b1e-4f7d-9d2a-0c4e8f1b22{number}{number}",
        "model": "NVIDIA A100-SXM4-80GB",
        "vendor": "nvidia",
        "noun": "GPU",
        "index": number,
        "memory_bytes": MEMORY,
        "cc": "8.0",
        "busy_percent": round(busy),
        "memory_used": used,
        "power_mw": round(1000 * watts(busy)),
        "energy_mj": round(1000 * joules),
        "processes": {pid: used} if pid and used else {},
    }


def play(folder: Path, over: threading.Event) -> None:
    """Rewrites the machine's file repeatedly: the first GPU works with pauses, the second stays
    idle."""
    began = last = time.monotonic()
    joules = 0.0
    while not over.is_set():
        t = time.monotonic() - began
        pid = (folder / "pid").read_text() if (folder / "pid").exists() else ""
        works = pid != "" and not 4 < t < 6.5
        busy = 70 + 22 * math.sin(2.1 * t) + 6 * math.sin(11 * t) if works else 0.0
        used = round(4e9 + min(t, 4) * 9e9) if pid else 0
        joules += (time.monotonic() - last) * watts(busy)
        last = time.monotonic()
        machine = {
            "driver": "580.65.06",
            "cuda_version": 13000,
            "devices": [device(0, busy, used, pid, joules), device(1, 0.0, 0, "", 58 * t)],
        }
        (folder / "next.json").write_text(json.dumps(machine))
        (folder / "next.json").replace(folder / "machine.json")
        time.sleep(0.05)


def devices(images: Path) -> None:
    """The device part of a card: two GPUs granted, one used. Prints the run's summary."""
    with tempfile.TemporaryDirectory() as name:
        folder, over = Path(name), threading.Event()
        (folder / "step.py").write_text(STEP)
        (folder / "two.yaml").write_text(PIPELINE.replace("PYTHON", sys.executable))
        env = {
            **os.environ,
            "STOKER_STORE": str(folder / ".stoker"),
            "STOKER_LEASE_DIR": str(folder / "leases"),
            "STOKER_ACCEL": f"fake:{folder / 'machine.json'}",
        }
        player = threading.Thread(target=play, args=(folder, over))
        player.start()
        while not (folder / "machine.json").exists():
            time.sleep(0.01)
        stoker = [str(ROOT / ".venv/bin/stoker")]
        subprocess.run([*stoker, "run", "two.yaml"], cwd=folder, env=env, check=True)
        over.set()
        player.join()
        found = subprocess.run(
            [*stoker, "card", "latest"],
            cwd=folder,
            env=env,
            capture_output=True,
            text=True,
            check=True,
        )
        card = Path(found.stdout.strip()).read_text(encoding="utf-8")
        part = re.search(r'<section class="panel"><h2>Used over time.*?</section>', card, re.DOTALL)
        style = re.search(r"<style>.*?</style>", card, re.DOTALL)
        if part is None or style is None:
            raise SystemExit("the card has no part 'Used over time'")
        page = folder / "part.html"
        page.write_text(
            f'<meta charset="utf-8">{style[0]}<body style="padding:14px;margin:0">{part[0]}',
            encoding="utf-8",
        )
        shoot(page.as_uri(), images / "devices.png", "1000,785")


def pages(images: Path) -> None:
    """examples/lora with six configurations: the table of runs in `stoker ui`, one run's card, and `stoker diff`."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        shutil.copytree(ROOT / "examples/lora", folder / "lora")
        env = {**os.environ, "STOKER_STORE": str(folder / ".stoker"), "STOKER_ACCEL": "none"}
        stoker = [str(ROOT / ".venv/bin/stoker")]
        for rank in (2, 8):
            for lr in (0.003, 0.01, 0.03):
                words = ["run", "-q", "lora/train.py:lora", "-p", f"rank={rank}", "-p", f"lr={lr}"]
                subprocess.run([*stoker, *words], cwd=folder, env=env, check=True)
        words = ["diff", "-p", "lora", "--min", "finetune.unseen"]
        page = folder / "compare.html"
        subprocess.run([*stoker, *words, "--html", str(page)], cwd=folder, env=env, check=True)
        shoot(page.as_uri(), images / "compare.png", "1320,1400")
        words = ["card", "latest"]
        found = subprocess.run(
            [*stoker, *words], cwd=folder, env=env, capture_output=True, text=True, check=True
        )
        shoot(Path(found.stdout.strip()).as_uri(), images / "lora.png", "1100,1745")
        with subprocess.Popen(
            [*stoker, "ui"], cwd=folder, env=env, stdout=subprocess.PIPE, text=True
        ) as server:
            assert server.stdout is not None
            try:
                shoot(server.stdout.readline().strip(), images / "runs.png", "1320,680")
            finally:
                server.terminate()


def main() -> None:
    images = ROOT / "docs" / "img"
    images.mkdir(parents=True, exist_ok=True)
    wanted = set(sys.argv[1:]) or {"terminal", "devices", "pages"}
    if "devices" in wanted:
        devices(images)
    if "pages" in wanted:
        pages(images)
    if "terminal" in wanted:
        main_job(images)


def main_job(images: Path) -> None:
    with tempfile.TemporaryDirectory() as folder:
        env = {
            **os.environ,
            "CLICOLOR_FORCE": "1",
            "TERM": "xterm-256color",
            "LANG": "C.UTF-8",
            "COLUMNS": "100",
        }
        env.pop("NO_COLOR", None)
        env["STOKER_STORE"] = str(Path(folder) / ".stoker")
        stoker = ROOT / ".venv/bin/stoker"
        words = [
            str(stoker),
            "run",
            "--python",
            str(ROOT / ".venv/bin/python"),
            "examples/digits/train.py",
        ]
        run = subprocess.run(words, cwd=ROOT, env=env, capture_output=True, text=True, check=True)
        page = Path(folder) / "terminal.html"
        text = "$ stoker run examples/digits/train.py\n" + run.stderr + run.stdout
        page.write_text(
            '<meta charset="utf-8"><body style="margin:0;background:#0d1117;color:#e6edf3"><pre style="margin:0;padding:24px;'
            f'font:14px/1.45 DejaVu Sans Mono,monospace">{spans(text)}</pre>',
            encoding="utf-8",
        )
        shoot(page.as_uri(), images / "terminal.png", f"1010,{60 + 21 * text.count(chr(10))}")


if __name__ == "__main__":
    main()
