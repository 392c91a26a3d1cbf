"""Grafana's dashboard: each series and label that it asks for is in `/metrics`, on a recorded machine."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

import pytest
from cli_tools import ROOT, Cli
from ui_server import Ui

BOARD = json.loads((ROOT / "examples/grafana/stoker.json").read_text())
SERIES = re.compile(r"\b(?:DCGM|stoker)_\w+")


def queries() -> list[str]:
    asked = [t["expr"] for p in BOARD["panels"] for t in p["targets"]]
    return asked + [v["definition"] for v in BOARD["templating"]["list"] if "definition" in v]


@pytest.fixture
def scraped(cli: Cli, ui: Callable[..., Ui]) -> str:
    library = ROOT / "build/src/host/accel/libnvidia-ml-fake.so"
    assert library.is_file(), "run `ninja -C build` first"
    cli.run({"a": {"run": "true"}})
    cli.env |= {"STOKER_NVML": str(library), "STOKER_ACCEL": "nvml"}
    cli.env["STOKER_FAKE_NVML"] = str(ROOT / "src/host/accel/testdata/3xH100.nvml")
    line = "4,1,5678901,-;NVRM: Xid (PCI:0000:a0:00): 31, pid=77, name=python\n"
    cli.write("root/dev/kmsg", line)
    cli.env["STOKER_SYSROOT"] = str(cli.folder / "root")
    server = ui()
    return server.ask("GET", f"metrics?token={server.token}").text


def test_each_series_is_there(scraped: str) -> None:
    there = set(re.findall(r"^(\w+)\{", scraped, re.M))
    asked = {name for query in queries() for name in SERIES.findall(query)}
    assert len(asked) > 15 and not asked - there


def test_each_label_is_there(scraped: str) -> None:
    there = set(re.findall(r'[{,](\w+)="', scraped))
    asked = {n for q in queries() for n in re.findall(r"[{,](\w+)=~?\"", q)}
    asked |= {n for q in queries() for n in re.findall(r"(?:on|by) \((\w+)\)", q)}
    asked |= set(re.findall(r"\{\{(\w+)\}\}", json.dumps(BOARD["panels"])))
    assert "gpu" in asked and not asked - there


def test_panels_stand_beside_each_other() -> None:
    """No two overlap, none sticks out, and each has a number of its own."""
    taken: set[tuple[int, int]] = set()
    for panel in BOARD["panels"]:
        at: dict[str, Any] = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(at["x"], at["x"] + at["w"])
            for y in range(at["y"], at["y"] + at["h"])
        }
        assert at["x"] + at["w"] <= 24 and not cells & taken, panel["title"]
        taken |= cells
    assert len({p["id"] for p in BOARD["panels"]}) == len(BOARD["panels"])
