"""Deployed flows: times as units and crontab, events that start runs, ``Deployer`` and ``current.trigger``."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest
from compat_tools import SHIM, run_shimmed
from front_tools import PACKAGE, WAIT_S, environment, needs_engine
from waiting import open_gate, wait_for

from stoker import _deployed
from stoker._deployed import DeployError, units

FIRST = """
from metaflow import Config, FlowSpec, Parameter, current, schedule, step, trigger
import helper

@schedule(cron="*/15 9-17 ? * MON-FRI *", timezone="Europe/Berlin")
@trigger(event={"name": "data", "parameters": {"alpha": "size"}})
class First(FlowSpec):
    alpha = Parameter("alpha", default=1)
    made = Config("made", default="made.json")
    @step
    def start(self):
        self.told = [(e.name, e.type) for e in current.trigger or ()]
        self.seen = (helper.x, self.made.y)
        self.next(self.end)
    @step
    def end(self): pass

if __name__ == "__main__": First()
"""
SECOND = """
from metaflow import FlowSpec, current, step, trigger_on_finish

@trigger_on_finish(flow="First")
class Second(FlowSpec):
    @step
    def start(self):
        self.by = current.trigger and current.trigger.run.pathspec
        self.alpha = current.trigger and current.trigger["First"].data.alpha
        self.next(self.end)
    @step
    def end(self): pass

if __name__ == "__main__": Second()
"""
SLOW = """
from metaflow import FlowSpec, schedule, step

@schedule(daily=True)
class Slow(FlowSpec):
    @step
    def start(self):
        open("gate").read()
        self.next(self.end)
    @step
    def end(self):
        import helper
        print("helper", helper.x)

if __name__ == "__main__": Slow()
"""
SENDER = """
from metaflow import FlowSpec, step
from metaflow.integrations import ArgoEvent

class Sender(FlowSpec):
    @step
    def start(self):
        self.none = ArgoEvent("data").safe_publish()
        self.id = ArgoEvent("data").add_to_payload("size", 77).publish(ignore_errors=False)
        self.next(self.end)
    @step
    def end(self): pass

if __name__ == "__main__": Sender()
"""


class Place:
    """A folder with flows, its own store and its own units."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.units = folder / "config" / "systemd" / "user"
        for name, text in (
            ("first", FIRST),
            ("second", SECOND),
            ("sender", SENDER),
            ("slow", SLOW),
        ):
            (folder / f"{name}.py").write_text(text)
        (folder / "helper.py").write_text("x = 5\n")
        (folder / "made.json").write_text('{"y": 6}')
        self.env = environment(
            folder / ".stoker",
            PYTHONPATH=f"{SHIM}:{PACKAGE}",
            XDG_CONFIG_HOME=str(folder / "config"),
            METAFLOW_USER="tester",
        )

    def flow(self, file: str, *words: str, ok: bool = True) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [sys.executable, file, *words],
            cwd=self.folder,
            env=self.env,
            capture_output=True,
            text=True,
            timeout=WAIT_S,
        )
        assert not ok or done.returncode == 0, done.stdout + done.stderr
        return done

    def ran(self, file: str, n: int = 1) -> list[str]:
        """Ids of n succeeded runs of a deployed flow, the newest first."""

        def look() -> list[str]:
            rows = self.flow(file, "deploy", "list-runs").stdout.splitlines()
            found = [row.split()[0] for row in rows if row.endswith(" succeeded")]
            return found if len(found) >= n else []

        logs = self.folder.glob(".stoker/deployments/*/log")
        return wait_for(look, why=lambda: [p.read_text() for p in logs])  # type: ignore[no-any-return]


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


CALENDARS: list[tuple[str, list[str]]] = [
    ("0 0 * * *", ["*-*-* 00:00:00"]),
    ("0 0 ? * SUN *", ["Sun *-*-* 00:00:00"]),
    ("*/15 9-17 ? * MON-FRI *", ["Mon,Tue,Wed,Thu,Fri *-*-* 09..17:00,15,30,45:00"]),
    ("5 4 1,15 jan-mar *", ["*-01..03-01,15 04:05:00"]),
    ("0 12 13 * 5", ["*-*-13 12:00:00", "Fri *-*-* 12:00:00"]),  # the 13th, and each Friday
    ("0 0 * * 6-7", ["Sat,Sun *-*-* 00:00:00"]),
    (
        "0 0 */2 * 1-5/2",
        ["Mon,Wed,Fri *-*-01,03,05,07,09,11,13,15,17,19,21,23,25,27,29,31 00:00:00"],
    ),
    ("0 0 1 * */6", ["Sun,Sat *-*-01 00:00:00"]),
    ("3/20 * * * *", ["*-*-* *:03,23,43:00"]),
]


@pytest.mark.parametrize("cron,calendar", CALENDARS)
def test_times(cron: str, calendar: list[str]) -> None:
    """And systemd understands them, where its program is installed."""
    found = units.calendar_of(cron)
    assert found == calendar
    if shutil.which("systemd-analyze"):
        for one in found:
            subprocess.run(["systemd-analyze", "calendar", one], check=True, capture_output=True)


WRONG = ["* * * *", "60 * * * *", "* * 0 * *", "* * * * FRY", "5-2 * * * *", "*/0 * * * *"]
WRONG += ["0 0 1 1 ? 2027", "0 0 12 * * ?", "² * * * *", "٣ * * * *", "*/² * * * *"]


@pytest.mark.parametrize("cron", WRONG)
def test_wrong_times(cron: str) -> None:
    with pytest.raises(DeployError, match="cron is"):
        units.calendar_of(cron)


@needs_engine
def test_a_schedule_is_written(place: Place) -> None:
    """The units say what crontab's line says, and both start a run of the code as it was."""
    said = place.flow("first.py", "deploy", "create").stderr
    (timer, service) = (place.units / f"stoker-first.{one}" for one in ("timer", "service"))
    assert (
        "OnCalendar=Mon,Tue,Wed,Thu,Fri *-*-* 09..17:00,15,30,45:00 Europe/Berlin"
        in timer.read_text()
    )
    assert "event 'data' starts it" in said
    if shutil.which("systemd-analyze"):
        env = {**os.environ, "XDG_RUNTIME_DIR": str(place.folder)}
        words = ["systemd-analyze", "--user", "verify", str(timer), str(service)]
        done = subprocess.run(words, env=env, capture_output=True, text=True, check=True)
        assert not done.stdout + done.stderr
    (place.folder / "helper.py").write_text("x = 50\n")
    (place.folder / "made.json").write_text('{"y": 60}')
    words = next(r for r in service.read_text().splitlines() if r.startswith("ExecStart="))
    env = {"HOME": str(place.folder), "PATH": os.environ["PATH"]}
    for row in service.read_text().splitlines():
        if row.startswith("Environment="):
            key, _, value = shlex.split(row.partition("=")[2])[0].partition("=")
            env[key] = value
    subprocess.run(shlex.split(words.partition("=")[2]), env=env, check=True, capture_output=True)
    cron = (place.folder / ".stoker/deployments/first/cron").read_text().splitlines()
    assert cron[:2] == [
        f"# stoker: {place.folder}/.stoker/deployments/first",
        "CRON_TZ=Europe/Berlin",
    ]
    assert cron[2].startswith("*/15 9-17 * * MON-FRI env STOKER_STORE=")
    subprocess.run(
        ["sh", "-c", cron[2].split(" ", 5)[5]], env={"PATH": os.environ["PATH"]}, check=True
    )
    place.ran("first.py", 2)
    told = run_shimmed(
        place.folder,
        "from metaflow import *; namespace(None)\n"
        "print([(r.data.seen, r.data.told, r.trigger) for r in Flow('First')])",
    )
    assert told.stdout.strip() == str([((5, 6), [], None)] * 2)
    place.flow("first.py", "deploy", "delete")
    assert not list(place.units.iterdir()) and not place.flow("first.py", "deploy", "list").stdout


@needs_engine
def test_a_run_keeps_its_code_and_its_log(place: Place) -> None:
    """Also when its flow is deployed again, and removed, meanwhile."""
    os.mkfifo(place.folder / "gate")
    folder = place.folder / ".stoker/deployments/slow"
    place.flow("slow.py", "deploy", "create")
    (code,) = folder.glob("code-*")
    place.flow("slow.py", "deploy", "trigger")
    (place.folder / "helper.py").write_text("x = 50\n")
    place.flow("slow.py", "deploy", "create")
    (again,) = (one for one in folder.glob("code-*") if one != code)
    assert (again / "helper.py").read_text() == "x = 50\n"
    place.flow("slow.py", "deploy", "delete")
    assert not again.exists() and not place.flow("slow.py", "deploy", "list").stdout
    open_gate(place.folder / "gate")
    wait_for(lambda: not _deployed._in_use(str(code)), why=(folder / "log").read_text)
    assert "helper 5\n" in (folder / "log").read_text()
    place.flow("second.py", "deploy", "create")
    assert not folder.exists()


@needs_engine
def test_a_timer_is_that_of_one_store(place: Place) -> None:
    place.flow("slow.py", "deploy", "create")
    service = place.units / "stoker-slow.service"
    written = service.read_text()
    mine, place.env["STOKER_STORE"] = place.env["STOKER_STORE"], str(place.folder / "other")
    done = place.flow("slow.py", "deploy", "create", ok=False)
    assert done.returncode == 1 and f"a timer already, for {mine}/deployments/slow" in done.stderr
    (place.folder / "slow.py").write_text(SLOW.replace("@schedule(daily=True)", ""))
    place.flow("slow.py", "deploy", "create")
    asked = place.flow("-m", "stoker._deployed", "run", "slow")
    assert asked.stdout == "'slow' doesn't start: it has no schedule\n"
    place.flow("slow.py", "deploy", "delete")
    assert service.read_text() == written


CRONTAB = """#!/bin/sh
if [ "$1" = -l ]; then cat "$0.lines"; else cat >"$0.new"; mv "$0.new" "$0.lines"; fi
"""


def test_crontab_has_one_line_of_a_schedule(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the user is told to do replaces the line, and removes it."""
    programs, lines = tmp_path / "bin", tmp_path / "bin" / "crontab.lines"
    programs.mkdir()
    for name, text in (("crontab", CRONTAB), ("systemctl", "#!/bin/sh\nexit 1\n")):
        (programs / name).write_text(text)
        (programs / name).chmod(0o755)
    lines.write_text("1 1 * * * before\n")
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    folder = tmp_path / "st.[o]r,e*" / "deployments" / "a.b"
    folder.mkdir(parents=True)

    def told(line: str) -> list[str]:
        subprocess.run(["sh", "-c", line.split("`")[-2]], check=True)
        return [one.split(" env ")[0] for one in lines.read_text().splitlines()]

    record = {"name": "a.b", "folder": str(folder), "python": sys.executable, "env": {}}
    for hour, zone in ((2, "Europe/Berlin"), (3, None), (4, "UTC")):
        record["schedule"] = {"cron": f"0 {hour} * * *", "timezone": zone}
        (line,) = units.write(record)
        zones = [f"CRON_TZ={zone}"] if zone else []
        mark = f"# stoker: {folder}"
        assert told(line) == ["1 1 * * * before", mark, *zones, f"0 {hour} * * *"]
    (line,) = units.remove(str(folder))
    assert told(line) == ["1 1 * * * before"]
    assert not units.remove(str(folder))


def test_what_is_no_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The store and environments; and what can't be copied leaves nothing."""
    monkeypatch.setenv("STOKER_STORE", str(tmp_path / "store"))
    for name in ("a.py", "in/b.py", "store/c.py", "conda/conda-meta/d.py", "conda/e.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    assert sorted(_deployed.sources(str(tmp_path))) == ["a.py", "in/b.py"]
    (tmp_path / "in" / "q.sql").touch()
    (tmp_path / "in" / "up").symlink_to(tmp_path)
    (tmp_path / "shared").symlink_to(tmp_path / "in")
    found = sorted(_deployed.sources(str(tmp_path), ".sql"))
    assert found == ["a.py", "in/b.py", "in/q.sql", "shared/b.py", "shared/q.sql"]
    record = {"name": "f", "flow": "F", "python": "", "env": {}, "cwd": "", "schedule": None}
    with pytest.raises(FileNotFoundError):
        _deployed.write(record, {"a.py": str(tmp_path / "none.py")})
    home = tmp_path / "store" / "deployments"
    assert [one.name for one in home.iterdir()] == [".lock"]
    _deployed.write(record, {"a.py": str(tmp_path / "a.py")})
    (home / "g").mkdir()
    (home / "g" / "deployment.json").write_text("{")
    assert [one["name"] for one in _deployed.listed("flow")] == ["f"]
    with pytest.raises(_deployed.NoDeployment, match="nothing is deployed as 'g' in "):
        _deployed.find("g")
    _deployed.remove("f")
    assert sorted(one.name for one in home.iterdir()) == [".lock", "g"]


@needs_engine
def test_other_tools_hear_of_deployed_runs(place: Place) -> None:
    place.env |= {
        "STOKER_OPENLINEAGE": "lineage.jsonl",
        "MLFLOW_TRACKING_URI": "http://ann:s3cret@lab:5000",
    }
    place.flow("second.py", "deploy", "create")
    del place.env["STOKER_OPENLINEAGE"], place.env["MLFLOW_TRACKING_URI"]
    place.flow("second.py", "deploy", "trigger")
    place.ran("second.py")
    told = (place.folder / "lineage.jsonl").read_text().splitlines()
    assert [json.loads(line)["job"]["name"] for line in (told[0], told[-1])] == ["Second"] * 2
    assert b"s3cret" not in b"".join(p.read_bytes() for p in place.folder.rglob("*") if p.is_file())


@needs_engine
def test_events_start_flows(place: Place) -> None:
    """A step publishes; a flow starts with the event's field; its end starts another flow."""
    for file in ("first.py", "second.py"):
        place.flow(file, "--quiet", "deploy", "create")
    place.flow("sender.py", "run")
    (first,) = place.ran("first.py")
    (second,) = place.ran("second.py")
    assert not list(place.folder.glob(".stoker/deployments/*/.run-*"))
    program = f"""
        from metaflow import *
        namespace(None)
        first, second = Run("First/{first}"), Run("Second/{second}")
        sent = Flow("Sender").latest_run.data
        print(first.data.alpha, first.data.told, first.trigger.event.id == sent.id, sent.none)
        print(second.data.by == second.trigger.run.pathspec == first.pathspec, second.data.alpha)
        print(second.trigger.event.name, second.trigger.event.id == first.end_task.pathspec)
        print("First" in second.trigger, "Second" in second.trigger, second.trigger["First"] == first)
    """
    assert run_shimmed(place.folder, program).stdout.splitlines() == [
        "77 [('data', 'event')] True None",
        "True 77",
        "metaflow.First.end True",
        "True False True",
    ]
    place.flow("first.py", "run")  # no run of a deployed flow: its end starts nothing
    run_shimmed(
        place.folder, "from metaflow.integrations import ArgoEvent; ArgoEvent('other').publish()"
    )
    assert len(place.ran("second.py")) == 1


@needs_engine
def test_all_events_must_come(place: Place) -> None:
    text = SECOND.replace(
        'trigger_on_finish(flow="First")', "trigger(events=['a', namespaced_event_name('b')])"
    )
    text = text.replace("trigger_on_finish", "trigger, namespaced_event_name")
    (place.folder / "second.py").write_text(
        text.replace("current.trigger.run.pathspec", "[e.name for e in current.trigger]").replace(
            'current.trigger["First"].data.alpha', '"b" in current.trigger'
        )
    )
    place.flow("second.py", "--quiet", "deploy", "create")
    words = [sys.executable, "-m", "stoker.flow._deploy", "publish"]
    for event in ("a", "a", "b", "mfns.b"):
        assert not place.flow("second.py", "deploy", "list-runs").stdout
        subprocess.run([*words, event, "k=v"], cwd=place.folder, env=place.env, check=True)
    (run,) = place.ran("second.py")
    told = run_shimmed(
        place.folder, f"from metaflow import *; namespace(None); print(Run('Second/{run}').data.by)"
    )
    assert told.stdout.strip() == "['mfns.b', 'a']"


@needs_engine
def test_no_runs_while_the_first_makes_the_store(place: Place) -> None:
    place.flow("first.py", "--quiet", "deploy", "create")
    (place.folder / ".stoker" / "store.db").touch()
    assert not place.flow("first.py", "deploy", "list-runs").stdout


@needs_engine
def test_deployer(place: Place) -> None:
    program = """
        from metaflow import Deployer, DeployedFlow, Run, namespace
        made = Deployer("first.py", show_output=False).argo_workflows(name="mine").create(
            tags=["a", "b c"], max_workers=3)
        print(made.name, made.flow_name, made.production_token)
        run = made.trigger(alpha=11)
        found = run.wait_for_run(timeout=60)
        run.wait_for_completion(check_interval=0.05, timeout=60)
        print(run.status, found.data.alpha, sorted(found.user_tags), run.terminate())
        print([one.pathspec for one in made.runs()] == [run.pathspec], made.runs(["Failed"]))
        print([one.name for one in DeployedFlow.list_deployed_flows(flow_name="First")])
        again = DeployedFlow.from_deployment("mine")
        print(again.get_triggered_run("mine", run.name).run == found)
        try:
            again.trigger(beta=1)
        except RuntimeError as bad:
            print(bad)
        print(again.delete(), list(DeployedFlow.list_deployed_flows()))
        try:
            DeployedFlow.from_deployment("mine")
        except Exception as bad:
            print(bad)
    """
    told = run_shimmed(place.folder, program, XDG_CONFIG_HOME=place.env["XDG_CONFIG_HOME"])
    rows = told.stdout.splitlines()
    assert rows[:5] == [
        "mine First None",
        "Succeeded 11 ['a', 'b c'] False",
        "True []",
        "['mine']",
        "True",
    ]
    assert "before it had a run: Error: first.py: run: no such option: --beta" in rows[5]
    assert rows[6] == "True []" and rows[7].startswith("nothing is deployed as 'mine' in ")


@needs_engine
@pytest.mark.parametrize(
    "line,sentence",
    [
        ("@trigger()", "No event(s) specified in *@trigger* decorator."),
        ("@trigger(event='a', events=['b'])", "Specify only one of *event* or *events*"),
        ("@trigger(events=['a', 'a'])", "@trigger names an event twice: a, a"),
        (
            "@trigger(event={'name': 'a', 'parameters': ['no']})",
            "@trigger sets no, but flow F has no such parameter",
        ),
        ("@trigger(event={'name': 'a', 'parameters': [3]})", "@trigger: parameters are [3]"),
        ("@trigger_on_finish(flow='a.b')", "@trigger_on_finish: 'a.b' is no flow"),
        ("@schedule(cron='x')", "@schedule: cron is 'x'; it has five fields"),
        ("@schedule()", "nobody gives needed when flow F starts by itself"),
    ],
)
def test_what_cannot_be_deployed(place: Place, line: str, sentence: str) -> None:
    body = """
        from metaflow import FlowSpec, Parameter, schedule, step, trigger, trigger_on_finish
        LINE
        class F(FlowSpec):
            needed = Parameter("needed", required=True, type=str)
            @step
            def start(self): self.next(self.end)
            @step
            def end(self): pass
        if __name__ == "__main__": F()
    """
    (place.folder / "flow.py").write_text(textwrap.dedent(body).replace("LINE", line))
    done = place.flow("flow.py", "deploy", "create", ok=False)
    assert done.returncode == 1 and sentence in done.stderr.splitlines()[-1]


@needs_engine
def test_a_run_triggered_by_hand(place: Place) -> None:
    """``--trigger FLOW/RUN``: as if the end of that run had started this one."""
    place.flow("first.py", "run", "--alpha", "4", "--run-id-file", "id")
    run = (place.folder / "id").read_text()
    place.flow("second.py", "--trigger", f"First/{run}", "run")
    told = run_shimmed(
        place.folder,
        "from metaflow import *; namespace(None); print(vars(Flow('Second').latest_run.data).keys(), Flow('Second').latest_run.data.alpha)",
    )
    assert told.stdout.strip().endswith(" 4")
    refused = place.flow("second.py", "--trigger", "First", "run", ok=False)
    assert "'First' is no run; name it by FLOW/RUN" in refused.stderr


@needs_engine
def test_the_record_without_deploying(place: Place) -> None:
    record: dict[str, Any] = json.loads(
        place.flow("first.py", "argo-workflows", "create", "--only-json").stdout
    )
    assert record["triggers"] == [{"event": "data", "parameters": {"alpha": "size"}}]
    assert record["schedule"] == {"cron": "*/15 9-17 ? * MON-FRI *", "timezone": "Europe/Berlin"}
    assert not (place.folder / ".stoker" / "deployments").exists()
