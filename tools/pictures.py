#!/usr/bin/env python3
"""The README's pictures, from a real run: docs/img/terminal.png and docs/img/card.png.

.venv/bin/python tools/pictures.py      (after `make demo`; needs Debian's chromium)
"""

from __future__ import annotations

import html
import os
import re
import subprocess
import tempfile
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
    """Terminal text with colour sequences as HTML."""
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


def shoot(page: Path, picture: Path, size: str) -> None:
    subprocess.run(
        [
            "chromium",
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--hide-scrollbars",
            f"--screenshot={picture}",
            f"--window-size={size}",
            page.as_uri(),
        ],
        check=True,
        capture_output=True,
    )


def main() -> None:
    images = ROOT / "docs" / "img"
    images.mkdir(parents=True, exist_ok=True)
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
        shoot(page, images / "terminal.png", f"1010,{60 + 21 * text.count(chr(10))}")
        found = subprocess.run(
            [str(stoker), "card", "latest"],
            cwd=ROOT,
            env=env,
            capture_output=True,
            text=True,
            check=True,
        )
        shoot(Path(found.stdout.strip()), images / "card.png", "1100,1150")


if __name__ == "__main__":
    main()
