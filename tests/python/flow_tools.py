"""A store with runs of flows, written by hand, and a ``stoker`` that tells of them in the contract's words."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any, Optional

FAKE = """\
#!{python}
import json, os, sys
words = [w for w in sys.argv[1:] if w not in ("--json", "--refs")]
with open({calls!r}, "a") as file:
    file.write(" ".join(words) + "\\n")
answers = json.load(open({answers!r}))
if words[0] == "tag":
    run = answers["show " + words[1]]
    for verb, tag in zip(words[2::2], words[3::2]):
        if verb == "--add":
            run["tags"].append(tag)
        else:
            run["tags"].remove(tag)
    json.dump(answers, open({answers!r}, "w"))
    sys.exit(0)
key = " ".join(words[:2])
if words[0] == "runs":
    flow = None if words[1].startswith("--") else words[1]
    print(json.dumps([r for r in answers["runs"] if flow in (None, r["pipeline"])]))
elif "--refs" in sys.argv and key in answers:
    refs = []
    for task in answers[key]["tasks"]:
        for one in (task, *task.get("ranks", [])):
            first = len(refs)
            refs += one["artifacts"].values()
            one["artifacts"] = {{n: first + i for i, n in enumerate(one["artifacts"])}}
    print(json.dumps({{**answers[key], "refs": refs}}))
elif key in answers:
    print(json.dumps(answers[key]))
else:
    sys.exit("stoker: no " + key)
"""


class FakeStore:
    """Runs are added by :meth:`add`; ``binary`` tells of them, ``calls`` counts how often it was asked."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / ".stoker"
        self.path.mkdir()
        self.binary = folder / "fake-stoker"
        self._calls = folder / "calls"
        self._answers = folder / "answers.json"
        text = FAKE.format(
            python=sys.executable, calls=str(self._calls), answers=str(self._answers)
        )
        self.binary.write_text(text)
        self.binary.chmod(0o755)
        self.answers: dict[str, Any] = {"runs": []}
        self.save()

    def save(self) -> None:
        self._answers.write_text(json.dumps(self.answers))
        self._calls.write_text("")

    @property
    def calls(self) -> list[str]:
        return self._calls.read_text().splitlines()

    def add(
        self, run: str, tasks: list[dict[str, Any]], status: str = "succeeded", **more: Any
    ) -> None:
        """A run of flow F: start → work (foreach xs) → join → end; a task is {"id", "step", …, "artifacts"}."""
        flow = more.pop("flow", "F")
        steps = {
            "start": {"next": ["work"], "foreach": "xs"},
            "work": {"next": ["join"], "fallback": True},
            "join": {"next": ["end"], "join": True},
            "end": {},
        }
        system = ["user:ann", "runtime:dev", "python_version:3.11.7"]
        mark = {"flow": {"name": flow, "system_tags": system, "file": "/x/flow.py"}}
        given = {"alpha": {"type": "float", "default": 0.5}}
        spec = {
            "name": flow,
            "parameters": given,
            "steps": steps,
            "extra": mark,
            "tags": [*system, "mine"],
        }
        spec.update(more)
        folder = self.path / "runs" / run
        folder.mkdir(parents=True)
        (folder / "spec.json").write_text(json.dumps(spec))
        created = 1_795_300_000_000 + len(self.answers["runs"])
        row = {"run": run, "pipeline": flow, "status": status, "created_ms": created}
        self.answers["runs"].insert(0, row)
        briefs = [self._brief(run, task) for task in tasks]
        body = {**row, "tags": list(spec["tags"]), "grows": True, "tasks": briefs, "host": {}}
        self.answers[f"show {run}"] = {**body, "store": str(self.path)}
        for step in steps:
            own = [self._full(b, t) for b, t in zip(briefs, tasks) if t["step"] == step]
            self.answers[f"show {run}/{step}"] = {"run": run, "step": step, "tasks": own}
        self.save()

    def _brief(self, run: str, task: dict[str, Any]) -> dict[str, Any]:
        folder = self.path / "runs" / run / task["step"] / str(task["id"]) / "1"
        folder.mkdir(parents=True)
        for name in ("stdout", "stderr"):
            (folder / f"{name}.log").write_text(task.get(name, ""))
        known = {
            "status": "succeeded",
            "cached": False,
            "from_run": None,
            "from_task": None,
            "attempts": 1,
            "started_ms": 1_795_300_001_000,
            "ended_ms": 1_795_300_002_000 + task["id"],
            "parents": [],
            "foreach": [],
            "ranks": 0,
            "error": None,
            "dir": str(folder),
            "logs": {s: str(folder / f"{s}.log") for s in ("stdout", "stderr")},
        }
        inside = ("artifacts", "stdout", "stderr", "rank_artifacts", "metadata")
        return {**known, **{k: v for k, v in task.items() if k not in inside}}

    def _full(self, brief: dict[str, Any], task: dict[str, Any]) -> dict[str, Any]:
        refs = self._refs(task.get("artifacts"))
        ranks = [{"artifacts": self._refs(a)} for a in task.get("rank_artifacts", [])]
        facts = {"metadata": task.get("metadata", {}), "cards": [], "ranks": ranks}
        return {**brief, "artifacts": refs, **facts}

    def _refs(self, values: Optional[dict[str, Any]]) -> dict[str, Any]:
        found = {}
        for i, (name, value) in enumerate((values or {}).items()):
            path = self.path / f"{name}-{i}-{abs(hash(repr(value)))}.json"
            path.write_text(json.dumps(value))
            kind = f"builtins.{type(value).__name__}"
            found[name] = {
                "digest": f"{i:064x}",
                "path": str(path),
                "size": path.stat().st_size,
                "format": "json",
                "type": kind,
                "meta": {},
            }
        return found


def whole(n: int = 3) -> list[dict[str, Any]]:
    """Tasks of a run that went well: start 1, work 2 …, join, end."""
    xs = list(range(n))
    tasks = [{"id": 1, "step": "start", "artifacts": {"xs": xs, "_hidden": 1}, "stdout": "hi\n"}]
    for i in xs:
        frames = [["start", i, n]]
        tasks.append(
            {
                "id": 2 + i,
                "step": "work",
                "parents": [1],
                "foreach": frames,
                "artifacts": {"xs": xs, "y": i * 2.5},
                "stderr": f"item {i}\nlast",
                "metadata": {"seen": i},
            }
        )
    ids = [2 + i for i in xs]
    tasks.append({"id": n + 2, "step": "join", "parents": ids, "artifacts": {"total": 7.5}})
    tasks.append({"id": n + 3, "step": "end", "parents": [n + 2], "artifacts": {"total": 7.5}})
    return tasks
