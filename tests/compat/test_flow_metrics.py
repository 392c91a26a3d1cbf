"""``log_metrics`` in a flow's steps: also in an interpreter of the step's own, and in a foreach."""

from __future__ import annotations

import csv
import subprocess
import sys
import textwrap
from pathlib import Path

from compat_tools import SHIM
from front_tools import PACKAGE, engine, environment, needs_engine

FLOW = """
    from metaflow import FlowSpec, pypi, step
    from stoker import log_metrics

    class Logs(FlowSpec):
        @pypi(disabled=True)
        @step
        def start(self):
            self.parts = [1, 2]
            self.next(self.fit, foreach="parts")

        @step
        def fit(self):
            for i in range(3):
                log_metrics({"loss": self.input / (i + 1)}, step=i)
            self.next(self.join)

        @step
        def join(self, inputs):
            log_metrics({"score": 0.5})
            self.next(self.end)

        @step
        def end(self):
            pass

    if __name__ == "__main__":
        Logs()
"""


@needs_engine
def test_metrics_of_steps(tmp_path: Path) -> None:
    (tmp_path / "prog.py").write_text(textwrap.dedent(FLOW))
    env = environment(
        tmp_path / ".stoker",
        PYTHONPATH=f"{SHIM}:{PACKAGE}",
        XDG_CACHE_HOME=str(tmp_path / "cache"),
        STOKER_INSTALLER="pip",
    )
    words = [sys.executable, "prog.py", "--environment=pypi", "run", "--run-id-file", "id"]
    subprocess.run(words, cwd=tmp_path, env=env, check=True)
    run = (tmp_path / "id").read_text()
    asked = [str(engine()), "metrics", run, "--csv"]
    told = subprocess.run(asked, cwd=tmp_path, env=env, capture_output=True, text=True, check=True)
    rows = list(csv.DictReader(told.stdout.splitlines()))
    seen = sorted(
        (r["step"], r["metric"], int(float(r["position"] or 0)), float(r["value"])) for r in rows
    )
    fits = [("fit", "loss", i, part / (i + 1)) for part in (1, 2) for i in range(3)]
    assert seen == sorted([*fits, ("join", "score", 0, 0.5)])
    assert len({r["task"] for r in rows if r["step"] == "fit"}) == 2
