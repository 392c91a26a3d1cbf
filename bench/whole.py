"""Rows of bench.py about whole programs beside real ZenML and Metaflow: the programs of tests/compat/zenml, which
train, promote, search and compare, and episodes 02 and 03 of Metaflow's tutorials, from its own package."""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bench import Bench

ROUNDS = 3
ZENML = Path(__file__).resolve().parents[1] / "tests" / "compat" / "zenml"
PROGRAMS = {
    "zenml": (
        "ZenML",
        {
            "training, promotion and batch inference of a model": ["whole_promotion.py"],
            "a search over hyper-parameters, and the drift of data": ["whole_search.py"],
        },
    ),
    "metaflow": (
        "Metaflow",
        {
            "statistics of films in a foreach (tutorial 02)": ["02-statistics/stats.py", "run"],
            "a playlist from the statistics' run (tutorial 03)": [
                "03-playlist-redux/playlist.py",
                "run",
            ],
        },
    ),
}


class Side:
    """Where one of the two runs the programs: a folder and an environment of its own, and its start done."""

    def __init__(self, bench: Bench, peer: str, python: str, sources: Path, is_ours: bool) -> None:
        self.folder, self.python = bench.fresh(f"whole-{peer}"), python
        shutil.copytree(sources, self.folder, dirs_exist_ok=True)
        front = bench.args.tree / "python"
        shim = os.pathsep.join([str(front / "stoker" / "_compat"), str(front)])
        self.env = {
            **{k: v for k, v in bench.env.items() if k != "PYTHONPATH"},
            **({"PYTHONPATH": shim} if is_ours else {}),
            "HOME": str(self.folder),
            "USERNAME": "bench",
            "METAFLOW_USER": "bench",
            "METAFLOW_DEFAULT_DATASTORE": "local",
            "ZENML_CONFIG_PATH": str(self.folder / ".zenml"),
            "ZENML_ANALYTICS_OPT_IN": "false",
            "AUTO_OPEN_DASHBOARD": "false",
        }
        (self.folder / ".zenml").mkdir()
        if peer == "zenml":  # it makes its database, which isn't counted
            ask = "from zenml.client import Client\nClient().active_stack\n"
            (self.folder / "start.py").write_text(ask)
            self.run(["start.py"])

    def run(self, words: list[str]) -> float:
        from bench import measure

        return measure([self.python, *words], self.folder, self.env).wall


def rows(bench: Bench) -> None:
    if not bench.args.peers:
        print("whole programs: no peers here (`make bench-peers`): their rows are left out")
        return
    for peer, (name, programs) in PROGRAMS.items():
        ask = f"import importlib.metadata as m, {peer}; print(m.version('{peer}')); print({peer}.__path__[0])"
        done = subprocess.run([bench.args.peers, "-c", ask], capture_output=True, text=True, check=True)  # fmt: skip
        version, package = done.stdout.split("\n")[:2]
        sources = ZENML if peer == "zenml" else Path(package) / "tutorials"
        sides = [
            Side(bench, peer, str(bench.args.python), sources, True),
            Side(bench, peer, bench.args.peers, sources, False),
        ]
        for what, words in programs.items():
            walls: tuple[list[float], list[float]] = ([], [])
            for _ in range(1 if bench.args.quick else ROUNDS):
                for side, wall in zip(sides, walls, strict=True):
                    wall.append(side.run(words))
            ours, theirs = (statistics.median(wall) for wall in walls)
            bench.add(
                f"whole {peer}",
                f"a whole program: {what}",
                f"{ours:.2f} s",
                f"{name} {version} {theirs:.2f} s",
                ours / theirs,
                0.5,
            )
