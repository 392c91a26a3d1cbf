"""A flow's command line (python/stoker/flow/_cli.py, _commands/): its output and exit statuses."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

import front_tools
import pytest
from flow_tools import FakeStore, whole

FLOW = '''\
from stoker.flow import FlowSpec, step, Parameter, JSONType

class F(FlowSpec):
    """About F."""
    alpha = Parameter("alpha", help="learning rate", default=0.5)
    n = Parameter("n_items", type=int, required=True)
    shape = Parameter("shape", type=JSONType, default="[1]")

    @step
    def start(self):
        """The start."""
        self.xs = list(range(self.n))
        self.next(self.work, foreach="xs")

    @step
    def work(self):
        self.next(self.join)

    @step
    def join(self, inputs):
        self.next(self.choose)

    @step
    def choose(self):
        self.v = "b"
        self.next({"b": self.end, "a": self.again}, condition="v")

    @step
    def again(self):
        self.next(self.end)

    @step
    def end(self):
        pass

if __name__ == "__main__":
    F()
'''


class Program:
    """A flow's file beside a store that is written by hand."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.store = FakeStore(folder)
        (folder / "flow.py").write_text(FLOW)

    def __call__(self, *words: str, text: str = "flow.py", **env: str) -> Any:
        kept = front_tools.environment(self.store.path, METAFLOW_USER="ann", **env)
        kept["STOKER_BIN"] = str(self.store.binary)
        return subprocess.run(
            [sys.executable, text, *words],
            cwd=self.folder,
            env=kept,
            capture_output=True,
            text=True,
            timeout=front_tools.WAIT_S,
        )


@pytest.fixture
def flow(tmp_path: Path) -> Program:
    return Program(tmp_path)


# --- what is told of the flow itself


def test_without_a_command_the_flow_is_checked(flow: Program) -> None:
    for words in ((), ("check",)):
        done = flow(*words)
        assert (done.returncode, done.stdout) == (0, "")
        assert "executing F for user:ann" in done.stderr and "The graph looks good!" in done.stderr
        assert "'flow.py run' runs the flow locally." in done.stderr
    assert flow("--quiet", "check").stderr == ""


def test_show_has_the_steps_on_stdout(flow: Program) -> None:
    done = flow("show")
    assert "About F." in done.stderr
    assert done.stdout.startswith("Step start\n    The start.\n    => work\nStep work\n    ?\n")
    assert "    => end, again\n" in done.stdout and done.stdout.endswith("Step end\n    ?\n")


def test_output_dot_is_what_metaflow_writes(flow: Program) -> None:
    lines = flow("output-dot").stdout.splitlines()
    # Metaflow 2.19.39's own lines of the same graph.
    for line in (
        "digraph F {",
        '"start"[ label = <<b>start</b> | <font point-size="10">foreach</font>>   fontname = "Helvetica"   shape = "record" ];',
        "start -> work;",
        'choose -> again [label="a" color="blue" fontcolor="blue"];',
    ):
        assert line in lines
    assert lines[-1] == "}"


def test_output_raw_as_json(flow: Program) -> None:
    found = json.loads(flow("output-raw", "--json").stdout)
    assert set(found["graph"]) == {"start", "work", "join", "choose", "again", "end"}
    assert found["graph"]["start"]["type"] == "split-foreach"
    assert found["graph_structure"][0] == "start"


def test_output_raw_has_values_of_configurations(flow: Program) -> None:
    text = FLOW.replace("step, Parameter", "step, retry, Config, Parameter")
    text = text.replace(
        "    alpha =", "    cfg = Config('cfg', default_value={'n': 3})\n    alpha ="
    )
    (flow.folder / "flow.py").write_text(
        text.replace("    @step\n    def work", "    @retry(times=cfg.n)\n    @step\n    def work")
    )
    found = json.loads(flow("--config-value", "cfg", '{"n": 2}', "output-raw", "--json").stdout)
    assert found["graph"]["work"]["decorators"][0]["attributes"]["times"] == 2


def test_the_package_is_what_a_deployment_keeps(flow: Program) -> None:
    (flow.folder / "inner").mkdir()
    (flow.folder / "inner" / "helper.py").touch()
    (flow.folder / "query.sql").touch()
    here = flow.folder.resolve()
    code = [str(here / "flow.py"), str(here / "inner" / "helper.py")]
    assert flow("package", "list").stdout.splitlines() == code
    sql = str(here / "query.sql")
    assert flow("--package-suffixes", ".sql", "package", "list").stdout.splitlines() == [*code, sql]
    assert "Number of files: 2\n" in flow("package", "info").stderr
    assert flow("package", "save", "code.tgz").returncode == 0
    with tarfile.open(flow.folder / "code.tgz") as archive:
        assert archive.getnames() == ["flow.py", "inner/helper.py"]
    done = flow("package", "save", "none/code.tgz")
    assert (done.returncode, "'none/code.tgz' can't be written" in done.stderr) == (1, True)


def test_version_and_help(flow: Program) -> None:
    assert flow("--quiet", "version").stderr.strip() == __import__("stoker").__version__
    for words in (("help",), ("--help",)):
        done = flow(*words)
        assert done.returncode == 0 and done.stdout.startswith("Usage: flow.py [OPTIONS] COMMAND")
        for command in [
            "check",
            "dump",
            "help",
            "logs",
            "output-dot",
            "resume",
            "run",
            "show",
            "spin",
            "tag",
            "card",
            "version",
        ]:
            assert f"\n  {command} " in done.stdout
    assert flow("--help").stderr == ""


def test_run_help_has_the_parameters(flow: Program) -> None:
    done = flow("run", "--help")
    assert done.returncode == 0
    text = " ".join(done.stdout.split())
    assert "--alpha FLOAT learning rate [default: 0.5]" in text
    assert "--n_items INTEGER [required]" in text and "--shape JSON [default: [1]]" in text
    for option in [
        "--tag",
        "--max-workers",
        "--max-num-splits",
        "--max-log-size",
        "--with",
        "--run-id-file",
        "--runner-attribute-file",
        "--namespace",
    ]:
        assert option in done.stdout


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("rn",), "no such command: rn; did you mean 'run'?"),
        (("--quite", "run"), "no such option: --quite; did you mean '--quiet'?"),
        (
            ("run", "--alpah", "3", "--n_items", "1"),
            "no such option: --alpah; did you mean '--alpha'?",
        ),
        (("run", "--alpha", "x", "--n_items", "1"), "--alpha: 'x' is not of type float"),
        (("run",), "--n_items is missing: give --n_items INTEGER, or set METAFLOW_RUN_N_ITEMS"),
        (("run", "--n_items", "1", "--shape", "{"), "--shape: '{' is not of type JSON"),
        (("run", "--n_items"), "--n_items needs a value"),
        (("run", "--n_items", "1", "--max-workers", "many"), "'many' is not a whole number"),
        (("run", "--n_items", "1", "more"), "too many words: more"),
        (("dump",), "INPUT_PATH is missing"),
        (("--config", "c"), "--config needs 2 values"),
        (("show", "--x=1"), "no such option: --x"),
        (("tag",), "a command is missing"),
        (("airflow", "create"), "flows can't be deployed to Airflow"),
        (("kubernetes", "list"), "steps go there by a stack of stoker.yaml (docs/kubernetes.md)"),
        (("tag", "ad", "x"), "no such command: ad; did you mean 'add'?"),
        (("run", "--no-pylint"), "no such option"),
        (("logs", "--both=1", "a/b"), "--both is a switch"),
    ],
)
def test_wrong_usage_is_one_sentence_and_status_2(flow: Program, words: Any, said: str) -> None:
    done = flow(*words)
    assert (done.returncode, done.stdout) == (2, "")
    assert said in done.stderr and len(done.stderr.strip().splitlines()) == 1


def test_a_variable_stands_for_an_option(flow: Program) -> None:
    done = flow("run", METAFLOW_RUN_N_ITEMS="x")
    assert done.returncode == 2 and "(from the variable METAFLOW_RUN_N_ITEMS)" in done.stderr
    flow.store.add("r1", whole())
    assert "size" in flow("dump", "r1/join").stdout
    assert flow("dump", "r1/join", METAFLOW_DUMP_INCLUDE="nothing").stdout == ""


def test_options_without_meaning_here_get_one_note(flow: Program) -> None:
    done = flow("--pylint", "--metadata", "service", "--datastore", "local", "show")
    notes = [line for line in done.stderr.splitlines() if "without effect" in line]
    assert len(notes) == 1 and "--pylint, --metadata:" in notes[0] and "--datastore" not in notes[0]
    assert "without effect" not in flow("--no-pylint", "show").stderr


def test_a_flow_that_cannot_run_says_what_is_wrong(flow: Program) -> None:
    text = FLOW.replace("self.next(self.join)", "self.next(self.jion)")
    (flow.folder / "bad.py").write_text(text)
    done = flow("check", text="bad.py")
    assert done.returncode == 1 and "jion" in done.stderr and "Traceback" not in done.stderr


# --- what tasks left


def test_dump_shows_artifacts_on_stdout(flow: Program) -> None:
    flow.store.add("r1", whole())
    done = flow("dump", "r1/work")
    assert done.returncode == 0
    assert done.stdout.splitlines()[:4] == [
        "alpha [size: 3 type: <class 'float'>] = 0.5",
        "name [size: 3 type: <class 'str'>] = F",
        "xs [size: 9 type: <class 'list'>] = [0, 1, 2]",
        "y [size: 3 type: <class 'float'>] = 0.0",
    ]
    assert "Dumping output of run_id=r1 step=work task_id=2\n" in done.stderr
    assert done.stderr.index("task_id=2") < done.stderr.index("task_id=4")
    one = flow("dump", "r1/start/1", "--private", "--max-value-size", "5")
    assert one.stdout.splitlines() == [
        "_hidden [size: 1 type: <class 'int'>] = 1",
        "alpha [size: 3 type: <class 'float'>] = 0.5",
        "name [size: 3 type: <class 'str'>] = F",
        "xs [size: 9 type: <class 'list'>] = < artifact too large >",
    ]
    assert flow("dump", "F/r1/start/1").stdout == flow("dump", "r1/start").stdout


def test_dump_writes_what_metaflow_writes(flow: Program) -> None:
    flow.store.add("r1", whole())
    done = flow("dump", "r1/start", "--file", "d.pkl", "--include", "xs,alpha")
    assert (done.returncode, done.stdout) == (0, "")
    assert "Artifacts written to d.pkl" in done.stderr
    # Metaflow 2.19.39: {'1795300234611955/start/1': {'alpha': 2.0, 'xs': [0, 1, 2]}}
    assert pickle.loads((flow.folder / "d.pkl").read_bytes()) == {
        "r1/start/1": {"alpha": 0.5, "xs": [0, 1, 2]}
    }


@pytest.mark.parametrize(
    "words", [("dump", "r1/nope"), ("logs", "r9/start"), ("dump", "r1/start/7")]
)
def test_nothing_there_is_status_1(flow: Program, words: Any) -> None:
    flow.store.add("r1", whole())
    done = flow(*words)
    assert done.returncode == 1 and f"no task at {words[1]}" in done.stderr
    assert flow("dump", "r1").returncode == 1


def test_logs_have_both_streams_on_stdout(flow: Program) -> None:
    flow.store.add("r1", whole())
    done = flow("logs", "r1/work")
    assert done.stdout == "".join(f"item {i}\nlast\n" for i in range(3))
    assert "Dumping logs of run_id=r1 step=work task_id=2\nstdout\nstderr\n" in done.stderr
    assert flow("logs", "show", "r1/start/1").stdout == "hi\n"
    assert flow("logs", "r1/start/1", "--stderr").stdout == ""
    assert flow("--quiet", "logs", "r1/work/3", "--stderr").stderr == ""


def test_logs_are_scrubbed(flow: Program) -> None:
    flow.store.add("r1", whole())
    done = flow("logs", "scrub", "r1/work/3")
    assert done.returncode == 0 and "scrubbed for F/r1/work/3 - attempt 0" in done.stderr
    assert flow("logs", "r1/work").stdout == "item 0\nlast\n[REDACTED]\nitem 2\nlast\n"


# --- tags


def test_tags_are_added_removed_replaced_and_listed(flow: Program) -> None:
    flow.store.add("r1", whole())
    done = flow("tag", "add", "--run-id", "r1", "a", "b")
    assert done.returncode == 0 and "Operation successful. New tags:" in done.stderr
    assert "System tags and tags; only tags can be modified" in done.stdout
    assert flow("tag", "remove", "--run-id", "r1", "a").returncode == 0
    assert flow("tag", "replace", "--run-id", "r1", "--remove", "b", "--add", "c").returncode == 0
    shown = flow("tag", "list", "--hide-system-tags").stdout.split()
    assert shown[-2:] == ["c", "mine"]
    assert sorted(flow("--quiet", "tag", "list", "--run-id", "r1").stdout.strip().split(" ; ")) == [
        "F/r1",
        "c,mine",
        "python_version:3.11.7,runtime:dev,user:ann",
    ]
    flat = flow("tag", "list", "--flat").stderr.splitlines()
    assert {"c", "mine", "user:ann", "runtime:dev"} <= set(flat)


def test_tags_by_group(flow: Program) -> None:
    flow.store.add("r1", whole())
    flow.store.add("r2", whole(), tags=["night"])
    by_tag = flow("tag", "list", "--group-by-tag", "--hide-system-tags").stdout
    assert "For tag mine\nF/r1\n\nFor tag night\nF/r2\n" in by_tag
    by_run = flow("tag", "list", "--group-by-run", "--hide-system-tags").stdout
    assert "For run F/r1\nmine\n\nFor run F/r2\nnight\n" in by_run


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("add", "x"), "--run-id is missing: F's latest run is r1"),
        (("add", "--run-id", "r9", "x"), "no run 'r9' of flow F"),
        (("remove", "--run-id", "r1", "user:ann"), "system tag"),
        (("replace", "--run-id", "r1"), "at least one"),
        (("list", "--all", "--my-runs"), "--all and --my-runs exclude each other"),
        (("add", "--run-id", "r1", "--namespace", "user:bob", "x"), "user:bob"),
    ],
)
def test_tags_that_cannot_be(flow: Program, words: Any, said: str) -> None:
    flow.store.add("r1", whole())
    done = flow("tag", *words)
    assert done.returncode == 1 and said in done.stderr and "Traceback" not in done.stderr


# --- what is known before anything starts


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("resume", "nope"), "no step 'nope'"),
        (("resume",), "there is no run of flow F to be resumed"),
        (("resume", "--origin-run-id", "55"), "there is no run '55' of flow F"),
        (("spin", "wrok"), "no step 'wrok'; did you mean 'work'?"),
        (("spin", "work"), "run the flow once"),
        (("card", "get", "start"), "has no run"),
    ],
)
def test_nothing_to_begin_from(flow: Program, words: Any, said: str) -> None:
    done = flow(*words)
    assert done.returncode == 1 and said in done.stderr and "Traceback" not in done.stderr


def test_import_is_cheap(flow: Program) -> None:
    """Neither help nor show imports what only runs and artifacts need."""
    code = (
        "import sys, runpy; sys.argv = ['flow.py', '--quiet', 'show']\n"
        "try: runpy.run_path('flow.py', run_name='__main__')\n"
        "except SystemExit: pass\n"
        "heavy = {'asyncio', 'subprocess', 'sqlite3', 'numpy', 'stoker.materializers._artifact', "
        "'stoker.flow.client', 'stoker._definition.settings', 'multiprocessing'}\n"
        "print(sorted(heavy & set(sys.modules)), file=sys.stderr)"
    )
    (flow.folder / "probe.py").write_text(code)
    assert flow(text="probe.py").stderr.splitlines()[-1] == "[]"
