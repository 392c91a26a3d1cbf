"""``log_metrics``: numbers over time from steps, commands and ranks, read by the command and the client."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from pathlib import Path

import pytest
from front_tools import WAIT_S, engine, environment, needed, needs_engine, run_python
from waiting import held

pytestmark = needs_engine

LOGS = """
import json, math
from stoker import Client, StepRetryConfig, checkpoint, log_metrics, pipeline, step

@step
def train(n: int) -> float:
    for i in range(n):
        log_metrics({"loss": 1 / (i + 1), "ok": True}, step=i)
    log_metrics({"rate": float("nan")})
    return 1.0

@pipeline
def fit(n: int = 5):
    train(n)

if __name__ == "__main__":
    run = fit()
"""


def play(folder: Path, body: str, program: str = LOGS) -> list[str]:
    lines = "".join(f"    {line}\n" for line in body.strip().splitlines())
    done = run_python(folder, program + lines, STOKER_ACCEL="none")
    return done.stdout.splitlines()


def stoker(folder: Path, *words: str, status: int = 0) -> str:
    done = subprocess.run(
        [str(engine()), *words],
        cwd=folder,
        env=environment(folder / ".stoker", STOKER_ACCEL="none"),
        capture_output=True,
        text=True,
        timeout=WAIT_S,
    )
    assert done.returncode == status, done.stderr
    return done.stdout + done.stderr


def test_client_and_command(tmp_path: Path) -> None:
    body = """
loss = run.steps["train"].metrics["loss"]
print(json.dumps([loss.values, [p.step for p in loss.points], loss.last, loss.min, loss.max]))
print(json.dumps([m.name for m in run.metrics]))
print(math.isnan(run.steps["train"].metrics["rate"].last))
try:
    run.steps["train"].metrics["los"]
except KeyError as error:
    print(error)
"""
    loss, names, is_nan, wrong = play(tmp_path, body)[-4:]
    values = [1 / (i + 1) for i in range(5)]
    assert json.loads(loss) == [values, list(range(5)), 0.2, 0.2, 1.0]
    assert json.loads(names) == ["loss", "ok", "rate"]
    assert is_nan == "True"
    assert "loss" in wrong
    table = stoker(tmp_path, "metrics", "train")
    assert "loss" in table and "0.2" in table and "nan" in table
    csv = stoker(tmp_path, "metrics", "--csv", "--metric", "loss").splitlines()
    assert csv[0] == "step,task,rank,metric,position,time,value"
    assert [float(line.rsplit(",", 1)[1]) for line in csv[1:]] == values
    found = json.loads(stoker(tmp_path, "runs", "--where", "loss<0.3", "--json"))
    assert len(found) == 1 and not json.loads(
        stoker(tmp_path, "runs", "--where", "loss<0.1", "--json")
    )
    assert "it has 'loss'" in stoker(tmp_path, "metrics", "-m", "los", status=2)


def test_cached_step_has_them(tmp_path: Path) -> None:
    play(tmp_path, "pass")
    lines = play(tmp_path, 'print(run.steps["train"].is_cached, len(run.metrics))')
    assert lines[-1] == "True 3"


def test_data_frame(tmp_path: Path) -> None:
    needed("pandas")
    body = """
frame = run.metrics_dataframe()
print(list(frame.columns), len(frame), frame[frame.metric == "loss"].value.min())
"""
    columns = "['step', 'task', 'rank', 'metric', 'position', 'time', 'value']"
    assert play(tmp_path, body)[-1] == f"{columns} 11 0.2"


WRONG = [
    ('{"loss": "low"}', "", "TypeError", "'loss' is a str"),
    ('{"loss": [1, 2]}', "", "TypeError", "'loss' is a list"),
    ('{"step": 1}', "", "ValueError", "'step' can't be the name"),
    ('{"loss": 1}', ", step=-1", "ValueError", "below 0"),
    ('{"loss": 1}', ", step=1.5", "TypeError", "step is a float"),
]


@pytest.mark.parametrize("metrics, more, kind, words", WRONG)
def test_wrong(
    metrics: str, more: str, kind: str, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from stoker import log_metrics

    monkeypatch.setenv("STOKER_METRICS", str(tmp_path / "metrics.jsonl"))
    with pytest.raises((TypeError, ValueError)) as raised:
        eval(f"log_metrics({metrics}{more})", {"log_metrics": log_metrics})
    assert type(raised.value).__name__ == kind and words in str(raised.value)
    assert not (tmp_path / "metrics.jsonl").exists()


def test_outside_of_a_step(monkeypatch: pytest.MonkeyPatch) -> None:
    from stoker import log_metrics

    monkeypatch.delenv("STOKER_METRICS", raising=False)
    with pytest.raises(RuntimeError, match="no step is running"):
        log_metrics({"loss": 1})


def test_numbers_of_numpy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    numpy = needed("numpy")
    from stoker import log_metrics

    monkeypatch.setenv("STOKER_METRICS", str(path := tmp_path / "metrics.jsonl"))
    log_metrics({"a": numpy.float32(0.5), "b": numpy.array(2), "c": math.inf}, step=numpy.int64(3))
    line = json.loads(path.read_text())
    assert (line["a"], line["b"], line["c"], line["step"]) == (0.5, 2, "inf", 3)


COMMANDS = """
stoker: 1
name: shell
steps:
  train:
    run: 'for i in 1 2 3; do echo "{\\"step\\":$i,\\"loss\\":0.$i}" >> $STOKER_METRICS; done; echo nonsense >> $STOKER_METRICS'
  quiet:
    run: 'true'
  python:
    run: '%s -c "import stoker; stoker.log_metrics({\\"acc\\": 0.9}, step=1)"'
"""


def test_commands(tmp_path: Path) -> None:
    (tmp_path / "shell.yaml").write_text(COMMANDS % sys.executable)
    stoker(tmp_path, "run", "shell.yaml")
    found = json.loads(stoker(tmp_path, "metrics", "--json"))
    assert [(m["step"], m["metric"], [p[2] for p in m["points"]]) for m in found] == [
        ("train", "loss", [0.1, 0.2, 0.3]),
        ("python", "acc", [0.9]),
    ]
    assert "1 line is left out: line 4 of" in stoker(tmp_path, "metrics", "train")
    assert "log_metrics" in stoker(tmp_path, "metrics", "quiet")


RETRIED = LOGS.replace("@step\n", "@step(retry=StepRetryConfig(max_retries=1))\n").replace(
    "    for i in range(n):\n",
    "    begin = checkpoint.load(default=0)\n    for i in range(begin, n):\n"
    "        if i == 3 and begin == 0:\n            raise RuntimeError('once')\n"
    "        if i == 2:\n            checkpoint.save(2)\n",
)


def test_attempts_are_one_curve(tmp_path: Path) -> None:
    """The second attempt goes on at step 2, which the first one logged as well."""
    body = 'print([p.step for p in run.steps["train"].metrics["loss"].points])'
    assert play(tmp_path, body, RETRIED)[-1] == "[0, 1, 2, 3, 4]"


def test_ranks(tmp_path: Path) -> None:
    """Rank 0 logs for all, unless each is asked to."""
    (tmp_path / "ranks.yaml").write_text(f"""
stoker: 1
name: ranks
steps:
  train:
    gang: {{ranks: 2}}
    run: '{sys.executable} -c "import os, stoker; r = int(os.environ[\\"RANK\\"]); stoker.log_metrics({{\\"loss\\": r}}); stoker.log_metrics({{\\"mine\\": r}}, all_ranks=True)"'
""")
    stoker(tmp_path, "run", "ranks.yaml")
    found = json.loads(stoker(tmp_path, "metrics", "--json"))
    assert [(m["metric"], m["rank"], m["last"]) for m in found] == [
        ("loss", 0, 0.0),
        ("mine", 0, 0.0),
        ("mine", 1, 1.0),
    ]


def test_live(tmp_path: Path) -> None:
    """What a step has logged is read while it runs."""
    fifo = tmp_path / "go"
    os.mkfifo(fifo)
    (tmp_path / "live.yaml").write_text(
        'stoker: 1\nname: live\nsteps:\n  train:\n    run: \'echo "{\\"loss\\":1}" >> '
        f"$STOKER_METRICS; echo there; read x < {fifo}'\n"
    )
    with subprocess.Popen(
        [str(engine()), "run", "live.yaml"],
        cwd=tmp_path,
        env=environment(tmp_path / ".stoker", STOKER_ACCEL="none"),
        stdout=subprocess.PIPE,
        text=True,
    ) as run:
        assert run.stdout is not None
        assert any("there" in line for line in run.stdout)  # it has logged
        try:
            assert json.loads(stoker(tmp_path, "metrics", "--json"))[0]["last"] == 1
        finally:
            with held(fifo, run) as gate:
                gate.write("go\n")
    assert run.returncode == 0


def test_cards(tmp_path: Path) -> None:
    """The run's card and the task's draw each metric, whatever its name."""
    name = "<script>alert(1)</script>"
    play(tmp_path, "pass", LOGS.replace('"rate"', f'"{name}"'))
    (run,) = (tmp_path / ".stoker" / "runs").iterdir()
    for card in (run / "card.html", *run.glob("**/card*.html")):
        page = card.read_text()
        assert "Metrics over time" in page and "last 0.2, from 0.2 to 1" in page
        assert name not in page and "&lt;script&gt;" in page
