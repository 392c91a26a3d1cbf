"""Schedules, named snapshots and run templates of ZenML's programs: kept, started, changed, removed."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from front_tools import WAIT_S, engine, environment, needs_engine
from waiting import open_gate, wait_for

from stoker._deployed import DeployError, units

HOUR, DAY = 3600, 86400
START = 1_900_000_000.0  # 2030-03-17 17:46:40 UTC

PROGRAM = """
import sys
from helper import factor
from zenml import pipeline, step
from zenml.client import Client
from zenml.config.schedule import Schedule

@step(enable_cache=False)
def times(n: int, by: int = 1) -> int:
    return n * by * factor

def told(text: str = "failed") -> None:
    print(text)

@pipeline(on_failure=told)
def small(n: int = 1):
    times(n)

@pipeline(dynamic=True)
def moving(n: int = 1):
    times(times(n).load())

def hidden():
    @pipeline
    def inside():
        times(1)
    return inside

def results(runs):
    return [[step.output.load() for step in run.steps.values()] for run in runs]

client = Client()
if __name__ == "__main__":
    exec(sys.argv[1])
"""

INNER = """
@pipeline
def deep():
    times(5)
"""


class Place:
    """A folder with the program, its store and its units."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.units = folder / "config" / "systemd" / "user"
        (folder / "program.py").write_text(PROGRAM)
        (folder / "helper.py").write_text("factor = 10\n")
        self.env = environment(folder / ".stoker", XDG_CONFIG_HOME=str(folder / "config"))

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [str(engine()), "compat", "--", *words],
            cwd=self.folder,
            env=self.env,
            capture_output=True,
            text=True,
            timeout=WAIT_S,
        )

    def tell(self, code: str) -> list[str]:
        """The lines that the program prints."""
        done = self.run(sys.executable, "program.py", code)
        assert done.returncode == 0, done.stderr
        return done.stdout.splitlines()

    def deployed(self) -> Path:
        (folder,) = (self.folder / ".stoker" / "deployments").glob("[!.]*")
        return folder

    def fire(self) -> str:
        """What crontab's line does; what it writes in the log."""
        line = (self.deployed() / "cron").read_text().splitlines()[-1]
        subprocess.run(
            ["sh", "-c", line.split(" ", 5)[5]], env={"PATH": os.environ["PATH"]}, check=True
        )
        return (self.deployed() / "log").read_text()

    def ran(self, n: int) -> None:
        """Wait for n succeeded runs."""
        logs = self.folder.glob(".stoker/deployments/*/log")
        code = "print([r.status.value for r in client.list_pipeline_runs()].count('completed'))"
        wait_for(lambda: self.tell(code) == [str(n)], why=lambda: [p.read_text() for p in logs])


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


@needs_engine
def test_a_schedule_starts_the_code_as_it_was(place: Place) -> None:
    """It isn't run at once; timer and crontab start it with its arguments and configuration."""
    steps = "{'times': {'parameters': {'by': 2}}}"
    code = f"small.with_options(steps={steps}, schedule=Schedule(name='Each night', "
    code += "cron_expression='30 3 * * MON'))(n=7)"
    done = place.run(sys.executable, "program.py", f"print({code})")
    assert done.stdout == "None\n", done.stderr
    assert "pipeline 'small' doesn't run at once: it has the schedule 'Each night'" in done.stderr
    name = place.deployed().name
    timer, service = (place.units / f"stoker-{name}.{one}" for one in ("timer", "service"))
    assert "OnCalendar=Mon *-*-* 03:30:00\n" in timer.read_text()
    if shutil.which("systemd-analyze"):
        env = {**os.environ, "XDG_RUNTIME_DIR": str(place.folder)}
        words = ["systemd-analyze", "--user", "verify", str(timer), str(service)]
        subprocess.run(words, env=env, check=True, capture_output=True)
    (place.folder / "helper.py").write_text("factor = 1000\n")
    place.fire()
    place.ran(1)
    told = place.tell(
        "one = client.list_schedules()[0]; run = client.get_pipeline('small').last_run\n"
        "print(results([run]), run.schedule == one, one.pipeline_id == run.pipeline.id)\n"
        "print(client.list_pipeline_runs(schedule_id=one.id).total, one.cron_expression)"
    )
    assert told == ["[[140]] True True", "1 30 3 * * MON"]
    again = place.run(sys.executable, "program.py", code)
    assert "a schedule 'Each night' exists already" in again.stderr


@needs_engine
def test_a_schedule_is_changed_and_removed(place: Place) -> None:
    place.tell("small.with_options(schedule=Schedule(name='s', cron_expression='1 2 * * *'))()")
    (timer,) = place.units.glob("*.timer")
    listed = place.run("zenml", "pipeline", "schedule", "list").stdout.splitlines()
    assert listed[1].split()[1:] == ["s", "small", "1", "2", "*", "*", "*", "True", "False"]
    done = place.run("zenml", "pipeline", "schedule", "update", "s", "-c", "5 6 * * *")
    assert done.returncode == 0 and "OnCalendar=*-*-* 06:05:00" in timer.read_text()
    assert (place.deployed() / "cron").read_text().splitlines()[-1].startswith("5 6 * * * ")
    place.run("zenml", "pipeline", "schedule", "deactivate", "s")
    assert not timer.exists() and place.tell("print(client.get_schedule('s').active)") == ["False"]
    assert "doesn't start: it isn't active" in place.fire()
    place.run("zenml", "pipeline", "schedule", "activate", "s")
    assert timer.exists()
    assert place.run("zenml", "pipeline", "schedule", "update", "s", "-c", "x").returncode == 1
    assert place.run("zenml", "pipeline", "schedule", "delete", "s", "-y").returncode == 0
    assert not timer.exists()
    told = place.tell(
        "print(client.list_schedules().total, client.list_schedules(is_archived=True)[0].name)\n"
        "client.delete_schedule('s', soft=False)\nprint(client.list_schedules(is_archived=None))"
    )
    assert told == ["0 s", "[]"]
    assert place.run("zenml", "pipeline", "schedule", "delete", "s", "-y").returncode == 1


@needs_engine
def test_a_schedule_keeps_its_stack(place: Place) -> None:
    (place.folder / "stoker.yaml").write_text("stacks: {here: {backend: local}}\n")
    (place.folder / "helper.py").write_text(
        "import sys\nfrom zenml.client import Client\nfactor = 1\n"
        "print(Client().active_stack_model.name, file=sys.stderr)\n"
    )
    assert place.run("zenml", "stack", "set", "here").returncode == 0
    code = "small.with_options(schedule=Schedule(name='s', cron_expression='1 2 * * *'))()\n"
    code += "here = client.active_stack_model.components['orchestrator'][0].id\n"
    code += "print(client.list_schedules(orchestrator_id=here).total)"
    assert place.tell(code) == ["1"]
    assert place.run("zenml", "stack", "set", "default").returncode == 0
    place.fire()
    place.ran(1)
    folder = place.deployed()
    assert "here" in (folder / "log").read_text().splitlines()
    code = "small.create_snapshot(name='k')\n"
    code += "client.trigger_pipeline('k', stack_name_or_id='here', synchronous=True)"
    place.tell(code)
    (other,) = (one for one in folder.parent.glob("[!.]*") if one != folder)
    assert '"ZENML_ACTIVE_STACK_NAME": "default"' in (other / "deployment.json").read_text()
    assert "here" in (other / "log").read_text().splitlines()


@needs_engine
def test_a_time_that_has_not_come_or_has_ended_starts_nothing(place: Place) -> None:
    place.tell(
        "small.with_options(schedule=Schedule(name='s', start_time='2099-01-01T00:00', "
        "interval_second=3600))()"
    )
    assert "doesn't start: its time begins later" in place.fire()
    assert place.tell("print(client.list_pipeline_runs().total)") == ["0"]


@needs_engine
def test_a_dynamic_pipeline_has_schedules_and_snapshots_too(place: Place) -> None:
    told = place.tell(
        "print(moving.with_options(schedule=Schedule(name='s', cron_expression='1 2 * * *'))(n=3))"
    )
    assert told == ["None"]
    place.fire()
    place.ran(1)
    code = "moving.create_snapshot(name='m')\n"
    code += "client.trigger_pipeline('m', run_configuration={'parameters': {'n': 4}}, "
    code += "synchronous=True)\nprint(results(client.list_pipeline_runs(sort_by='created')))"
    assert place.tell(code) == ["[[30, 300], [40, 400]]"]


@needs_engine
def test_runs_of_a_template(place: Place) -> None:
    """By its id, by the pipeline's name, with another configuration, of the code as it was."""
    code = "small.prepare(n=2)\nmade = small.create_run_template(name='t', tags=['x'])\n"
    code += "print(made.name, made.tags[0].name, made.runnable, made.latest_run_id)"
    assert place.tell(code) == ["t x True None"]
    (place.folder / "helper.py").write_text("factor = 1000\n")
    (place.folder / "run.yaml").write_text("steps:\n  times:\n    parameters: {by: 3}\n")
    told = place.tell(
        "made = client.get_run_template('t')\n"
        "one = client.trigger_pipeline(template_id=made.id, synchronous=True)\n"
        "two = client.trigger_pipeline(pipeline_name_or_id='small', synchronous=True,\n"
        "    run_configuration={'parameters': {'n': 5}, 'enable_cache': False})\n"
        "three = client.trigger_pipeline('t', config_path='run.yaml', synchronous=True)\n"
        "print(results([one, two, three]), two.template_id == made.id, two.config.enable_cache)\n"
        "print(client.get_run_template('t').latest_run_id == three.id)\n"
        "client.update_run_template('t', name='u', description='d')\n"
        "print([(t.name, t.description) for t in client.list_run_templates()])\n"
        "print(client.create_run_template('v', client.get_snapshot('u').id).source_snapshot.name)\n"
        "client.delete_run_template('v'); print(client.list_run_templates().total)"
    )
    assert told == ["[[20], [50], [60]] True False", "True", "[('u', 'd')]", "v", "0"]


@needs_engine
def test_snapshots_by_the_command(place: Place) -> None:
    words = ("zenml", "pipeline", "snapshot")
    (place.folder / "package").mkdir()
    (place.folder / "package" / "inner.py").write_text("from program import *\n" + INNER)
    for source, name in (("program.small", "x-small"), ("package.inner.deep", "d")):
        assert place.run(*words, "create", source, "--name", name).returncode == 0
    assert place.run(*words, "list").stdout.splitlines()[1].split()[1:] == ["x-small", "small"]
    assert "started run 'small-" in place.run(*words, "run", "x-small").stdout
    assert "started run 'deep-" in place.run(*words, "run", "d").stdout
    place.ran(2)
    assert place.run(*words, "delete", "x-small", "--yes").returncode == 0
    assert place.run(*words, "run", "x-small").returncode == 1


SLOW = """
import sys
from zenml import pipeline, step
from zenml.client import Client

@step(enable_cache=False)
def first() -> int:
    return len(open("gate").read())

@step(enable_cache=False)
def second(n: int) -> int:
    import helper
    return helper.factor

@pipeline
def slow():
    second(first())

if __name__ == "__main__":
    slow.create_snapshot(name="s", replace=True)
    if sys.argv[1:]:
        print(Client().trigger_pipeline("s").name)
"""


@needs_engine
def test_a_run_of_a_replaced_snapshot_keeps_its_code(place: Place) -> None:
    os.mkfifo(place.folder / "gate")
    (place.folder / "slow.py").write_text(SLOW)
    assert place.run(sys.executable, "slow.py", "run").returncode == 0
    (place.folder / "helper.py").write_text("factor = 1000\n")
    assert place.run(sys.executable, "slow.py").returncode == 0
    assert len(list((place.folder / ".stoker" / "deployments").glob("[!.]*"))) == 2
    open_gate(place.folder / "gate")
    place.ran(1)
    code = "print(client.list_snapshots().total, results(client.list_pipeline_runs()))"
    assert place.tell(code) == ["1 [[0, 10]]"]


UNGUARDED = """
from zenml import pipeline, step
from zenml.client import Client

@step
def one() -> int:
    return 1

@pipeline
def bare():
    one()

bare.create_snapshot(name="b", replace=True)
print(Client().trigger_pipeline("b", synchronous=True).status.value)
"""


@needs_engine
def test_a_program_without_a_guard_is_not_started_again(place: Place) -> None:
    (place.folder / "bare.py").write_text(UNGUARDED)
    done = place.run(sys.executable, "bare.py")
    assert done.stdout == "completed\n", done.stderr
    assert place.tell("print(client.list_pipeline_runs().total)") == ["1"]


@needs_engine
@pytest.mark.parametrize(
    "code, sentence",
    [
        ("hidden().create_snapshot(name='a')", "pipeline 'inside' is no global of its module"),
        (
            "moving.prepare(object()); moving.create_snapshot(name='a')",
            "the value of 'n' can't be kept",
        ),
        (
            "small.with_options(on_success=told).create_snapshot(name='a')",
            "'small': hooks can't be kept for later runs: give it to the decorator",
        ),
        (
            "small.with_options(schedule=Schedule(start_time='2030-01-01', interval_second=90))()",
            "its schedule can't be kept: an interval of 90 s",
        ),
        (
            "small.with_options(schedule=Schedule(cron_expression='61 * * * *'))()",
            "its schedule can't be kept: cron is '61 * * * *'",
        ),
        (
            "small.with_options(schedule=Schedule(run_once_start_time='2020-01-01'))()",
            "its schedule can't be kept: its time is over",
        ),
        (
            "small.with_options(schedule=Schedule(cron_expression='0 0 * * *', "
            "start_time='2099-01-01', end_time='2098-01-01'))()",
            "its schedule can't be kept: its time is over",
        ),
        (
            "small(); client.create_run_template('a', client.get_pipeline('small').last_run.snapshot.id)",
            "is that of a run, which keeps only the digest of its code",
        ),
        (
            "client.trigger_pipeline(pipeline_name_or_id='small')",
            "pipeline 'small' has no snapshot",
        ),
        (
            "small.create_snapshot(name='a'); client.trigger_pipeline('a', run_configuration="
            "{'parameters': {'m': 1}})",
            "ended with status 2 before it had a run: stoker: Wrong argum",
        ),
    ],
)
def test_what_cannot_be_kept_or_started(place: Place, code: str, sentence: str) -> None:
    done = place.run(sys.executable, "program.py", code)
    assert done.returncode != 0 and sentence in done.stderr


@pytest.fixture
def utc(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


INTERVALS = [
    (15 * 60, "1,16,31,46 * * * *", None),
    (HOUR, "46 0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23 * * *", None),
    (8 * HOUR, "46 1,9,17 * * *", None),
    (DAY, "46 17 * * *", None),
    (7 * DAY, "46 17 * * *", DAY),
    (90 * 60, "16,46 * * * *", HOUR // 2),
    (25 * 60, "1,6,11,16,21,26,31,36,41,46,51,56 * * * *", 5 * 60),
]


@pytest.mark.parametrize("every, cron, step", INTERVALS)
def test_intervals(utc: None, every: int, cron: str, step: int | None) -> None:
    """As cron expressions; where cron's times are more than asked for, some start nothing."""
    made = units.times_of(None, every, START)
    assert (made["cron"], made.get("step")) == (cron, step)
    units.calendar_of(cron)
    for n in range(1, 50):
        assert units.why_not(made, START - START % 60 + n * every) is None
        if step:
            assert units.why_not(made, START - START % 60 + n * every + step) is not None


def test_one_time_and_ends(utc: None) -> None:
    made = units.times_of(None, once=START)
    assert made["cron"] == "46 17 17 3 *"
    assert units.why_not(made, START) is None
    assert units.why_not(made, START + 365 * DAY) == "its time has ended"
    made = units.times_of("0 * * * *", start=START, end=START + DAY)
    asked = [units.why_not(made, START + n * DAY) for n in (-1, 0, 2)]
    assert asked == ["its time begins later", None, "its time has ended"]
    for every in (30, 90, 61.5):
        with pytest.raises(DeployError, match="take a multiple of 60 s"):
            units.times_of(None, every, START)
