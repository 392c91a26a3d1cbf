"""``int(run.id)``, and a run found by that number; the names of a run's first and last step."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
from pathlib import Path

from compat_tools import SHIM, run_shimmed
from front_tools import PACKAGE, environment, needs_engine

FLOW = """
    from metaflow import FlowSpec, step

    class Ends(FlowSpec):
        @step(start=True)
        def first(self):
            self.x = 1
            self.next(self.last)

        @step(end=True)
        def last(self):
            pass

    Ends()
"""
READ = """
    import json
    import pickle
    from metaflow import Flow, Run, Task, namespace

    namespace(None)
    new, old = Flow("Ends")
    number = int(new.id)
    print(json.dumps([
        number > int(old.id) and int(old.id) >> 24 > 1e9,  # above 24 bits: seconds
        abs((number >> 24) + (number >> 14 & 1023) / 1000 - new.created_at.timestamp()) < 60,
        number < 2**63,
        Run(f"Ends/{number}").pathspec == new.pathspec,
        Flow("Ends")[number].id == Flow("Ends")[str(number)].id == new.id,
        number in Flow("Ends") and number + 1 not in Flow("Ends"),
        Task(f"Ends/{number}/first/1").data.x,
        type(pickle.loads(pickle.dumps(new.id))).__name__,
        isinstance(new.id, str) and f"{new.id}" == new.pathspec.split("/")[1],
        new._graph_endpoints,
        new.end_task.pathspec == f"{new.pathspec}/last/2",
    ]))
"""


@needs_engine
def test_numbers_of_runs(tmp_path: Path) -> None:
    (tmp_path / "flow.py").write_text(textwrap.dedent(FLOW))
    env = environment(tmp_path / ".stoker", PYTHONPATH=f"{SHIM}:{PACKAGE}")
    for _ in range(2):
        subprocess.run([sys.executable, "flow.py", "run"], cwd=tmp_path, env=env, check=True)
    told = json.loads(run_shimmed(tmp_path, READ).stdout)
    assert told == [True, True, True, True, True, True, 1, "str", True, ["first", "last"], True]
