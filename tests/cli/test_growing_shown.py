"""How growing graphs are shown: show, logs, why, artifacts, the card, the client."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from cli_tools import PYTHON, Cli
from test_growing import RANKS, WIDE


@pytest.fixture
def wide(cli: Cli) -> Cli:
    """A run of `WIDE`: start/1, work/2 … work/4, gather/5, good/6, end/7."""
    assert cli.run(WIDE, parameters={"x": 3}).code == 0
    return cli


def tasks(cli: Cli, target: str) -> list[dict[str, Any]]:
    return cli.json("show", target)["tasks"]


def test_show_run(wide: Cli) -> None:
    shown = wide.json("show", "latest")
    assert shown["grows"] is True and shown["status"] == "succeeded"
    steps = shown["steps"]
    assert list(steps) == list(WIDE)
    assert (
        steps["work"]["tasks"] == {"n": 3, "succeeded": 3}
        and steps["work"]["status"] == "succeeded"
    )
    assert steps["bad"]["tasks"] == {"n": 0} and steps["bad"]["status"] == "waiting"
    assert set(steps["start"]["outputs"]) == {"todo"} and steps["start"]["tasks"]["n"] == 1
    listed = [(t["step"], t["id"], t["parents"], t["foreach"], t["split"]) for t in shown["tasks"]]
    assert listed == [
        ("start", 1, [], [], None),
        ("work", 2, [1], [["start", 0, 3]], 1),
        ("work", 3, [1], [["start", 1, 3]], 1),
        ("work", 4, [1], [["start", 2, 3]], 1),
        ("gather", 5, [2, 3, 4], [], None),
        ("good", 6, [5], [], None),
        ("end", 7, [6], [], None),
    ]
    for task in shown["tasks"]:
        assert Path(task["logs"]["stdout"]).is_file() and task["attempts"] == 1
        assert task["error"] is None and task["ranks"] == 0 and task["from_run"] is None


def test_show_step_and_task(wide: Cli) -> None:
    found = tasks(wide, "latest/work")
    assert [t["id"] for t in found] == [2, 3, 4]
    assert [Path(t["artifacts"]["part"]["path"]).read_text() for t in found] == [
        "0\n",
        "1\n",
        "2\n",
    ]
    assert {name for t in found for name in t["artifacts"]} == {"part", "todo"}
    assert found[0]["granted"] and found[0]["used"]["cpu_s"] >= 0 and found[0]["ranks"] == []
    assert [set(t["artifacts"]) for t in tasks(wide, "latest/gather/5")] == [{"verdict"}]
    assert [set(t["artifacts"]) for t in tasks(wide, "latest/end")] == [{"verdict"}]
    assert tasks(wide, "latest/bad") == []
    assert "work/3 (item 1 of start)" in wide("show", "latest/work").out
    assert "inherits   todo (start/1)" in wide("show", "latest/work/3").out
    for wrong in (
        "latest/work/9",
        "latest/work/1",
        "latest/work/x",
        "latest/wrk",
        "latest/end/7_node_0",
    ):
        run = wide("show", wrong)
        assert run.code == 2 and wrong.split("/")[1] in run.err, run.err


def test_artifacts_by_number(wide: Cli) -> None:
    """`--refs` lists the same, each artifact once."""
    plain = wide.json("show", "latest/work")
    short = wide.json("show", "latest/work", "--refs")
    refs = short.pop("refs")
    for task in short["tasks"]:
        for one in (task, *task["ranks"]):
            one["artifacts"] = {name: refs[i] for name, i in one["artifacts"].items()}
    assert short == plain
    assert len(refs) == 4  # todo, and the part of each of three


def test_logs_why_and_artifacts(wide: Cli) -> None:
    assert wide("logs", "latest/work/3", "--stdout").out == '"b c"|b c|1|3'
    all_of_it = wide("logs", "latest/work", "--stdout")
    lines = all_of_it.out.splitlines()
    assert all_of_it.err == "" and wide("logs", "latest/end").err == ""
    assert "no task of that step" in wide("logs", "latest/bad").err
    assert lines == ["work/2 | 10|10|0|2", 'work/3 | "b c"|b c|1|3', 'work/4 | {"d":1}|{"d":1}|2|4']
    assert [entry["id"] for entry in wide.json("logs", "latest/work")] == [2, 3, 4]
    why = wide("why", "latest/work/3").out
    assert "step 'work/3 (item 1 of start)' ran: caching is off for steps of flows" in why
    assert "'cache: true'" in why
    assert "no task of step 'bad' was added" in wide("why", "latest/bad").out
    assert Path(wide.json("artifact", "get", "latest/work/4.part")["path"]).read_text() == "2\n"
    assert wide.json("artifact", "get", "latest/work/4.todo")["step"] == "work/4"
    assert "has 3 tasks; name one" in wide("artifact", "get", "latest/work.part").err
    assert "no artifact 'nix'" in wide("artifact", "get", "latest/end.nix").err


def test_clone(wide: Cli) -> None:
    """A clone shows its origin, and has the logs of the origin."""
    first = wide.json("show", "latest")["run"]
    run = wide("run", "--clone", "latest", "p.json", "--echo")
    assert run.code == 0 and f"Cloned from {first}/work/3." in run.out
    again = wide("run", "--clone", "latest", "p.json")
    assert again.code == 0
    shown = wide.json("show", "latest")
    assert {t["status"] for t in shown["tasks"]} == {"cached"}
    assert [t["from_task"] for t in shown["tasks"]] == [t["id"] for t in shown["tasks"]]
    assert wide("logs", "latest/work/3", "--stdout").out == '"b c"|b c|1|3'  # a clone of a clone
    assert "was cloned from" in wide("why", "latest/work/3").out
    assert set(tasks(wide, "latest/work/3")[0]["artifacts"]) == {"part", "todo"}


def test_ranks(cli: Cli) -> None:
    assert cli.run(RANKS).code == 0
    task = tasks(cli, "latest/train")[0]
    assert [set(rank["artifacts"]) for rank in task["ranks"]] == [{"n", "w"}] * 3
    assert len({rank["artifacts"]["w"]["digest"] for rank in task["ranks"]}) == 3
    assert cli.json("show", "latest")["tasks"][1]["ranks"] == 3
    for rank in range(3):
        assert cli("logs", f"latest/train/2_node_{rank}").code == 0
    assert cli("logs", "latest/train/2_node_3").code == 2


def test_failure_names_the_item(cli: Cli) -> None:
    steps = json.loads(json.dumps(WIDE))
    steps["work"]["run"] = (
        "test $STOKER_INDEX != 1 || { echo oh >&2; exit 4; }; touch $STOKER_OUTPUT/part"
    )
    run = cli.run(steps, parameters={"x": 1})
    assert run.code == 1 and "work/3 (item 1 of start) failed: exit status 4" in run.err
    shown = cli.json("show", "latest")
    assert shown["steps"]["work"]["status"] == "failed"
    assert shown["steps"]["work"]["error"]["text"] == "step 'work/3' failed: exit status 4"
    assert "work/3 (item 1 of start)" in cli("why").out
    card = Path(json.loads(cli("card", "--json").out)["path"]).read_text()
    assert "work/3 (item 1 of start)" in card and "not reached" in card


def test_client(wide: Cli) -> None:
    """The client of pipelines can read such a run."""
    program = (
        "from stoker import Client\n"
        "run = Client().get_pipeline_run('latest')\n"
        "for s in run.steps.values():\n"
        "    print(s.name, s.status, sorted(s.outputs), s.error, s.run_metadata, s.config.name, len(s.logs))\n"
        "    list(s.inputs.values()), s.resources, s.verdict, s.start_time, s.end_time\n"
        "print(len(run.artifact_versions), run.tags, run.steps['start'].outputs['todo'].load())\n"
    )
    done = subprocess.run(
        [PYTHON, "-c", program],
        cwd=wide.folder,
        env={**wide.env, "STOKER_BIN": str(wide.binary)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1].startswith("3 [] [10, 'b c', ") or "todo" in done.stdout


def test_plan(cli: Cli) -> None:
    """Where the tasks of each step come from, before and after a run; their number is unknown
    before."""
    steps = {
        **WIDE,
        "end": {"run": "true", "next": "train", "num_parallel": 3},
        "train": {"run": "true", "next": "over", "resources": {"gpu_count": 2}},
        "over": {"run": "true", "join": True},
    }
    document = cli.document(steps, parameters={"x": 3})
    before = cli("plan", document)
    assert before.code == 0
    said = {line.split()[0]: " ".join(line.split()[1:]) for line in before.out.splitlines()[1:]}
    assert said["start"].endswith(" first")
    assert said["work"].endswith("one for each item of 'todo' of start")
    assert said["gather"].endswith("joins work")
    assert "where 'verdict' of gather is" in said["good"] and "after good" in said["end"]
    assert "3 times 1 CPU" in said["train"] and before.out.count("3 at once, after end") == 1
    assert "never ran" not in before.out and "cache" not in before.out
    assert cli.run(steps, parameters={"x": 3}).code == 0
    assert cli("plan", document).out == before.out
    machine = cli("plan", "--simulate", "4xA100", document).out
    assert (
        "note: step 'train': its 3 ranks together ask for 6 devices, but the simulated" in machine
    )
    train = next(s for s in cli.json("plan", document)["steps"] if s["step"] == "train")
    assert train["from"] == [{"step": "end", "grows": "parallel", "on": None, "n": 3}]
    assert train["miss"] is None and not train["join"]
