"""Dynamic pipelines under ``stoker compat``: what Stoker adds to ZenML's behaviour."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

from front_tools import WAIT_S, engine, environment, needs_engine
from waiting import wait_for

pytestmark = needs_engine

HEAD = """
from typing import List
from zenml import pipeline, step, wait, run_hook
from zenml.client import Client

@step
def double(x: int) -> int:
    return 2 * x

@step
def numbers(n: int) -> List[int]:
    return list(range(n))
"""


def started(tmp_path: Path, body: str, *words: str, **more: Any) -> subprocess.CompletedProcess:
    (tmp_path / "program.py").write_text(HEAD + textwrap.dedent(body))
    command = [str(engine()), "compat", "--", *(words or (sys.executable, "program.py"))]
    told = environment(tmp_path / ".stoker", XDG_CONFIG_HOME=str(tmp_path / "config"))
    return subprocess.run(
        command, cwd=tmp_path, env=told, capture_output=True, text=True, timeout=WAIT_S, **more
    )


CALLS = """
@pipeline(dynamic=True)
def calls():
    print("mapped", double.map(numbers(3)).load())

if __name__ == "__main__":
    run = calls()
    print("name", run.name, len(run.steps))
"""


def test_a_second_run_takes_finished_steps_from_the_cache(tmp_path: Path) -> None:
    assert "mapped [0, 2, 4]" in started(tmp_path, CALLS).stdout
    again = started(tmp_path, CALLS + "    print({s.status.value for s in run.steps.values()})\n")
    assert "{'cached'}" in again.stdout, again.stderr


def test_parts_are_listed_by_the_engine_and_one_run_by_the_client(tmp_path: Path) -> None:
    body = CALLS + "    print('client', Client().list_pipeline_runs().total)\n"
    assert "client 1" in started(tmp_path, body).stdout
    told = environment(tmp_path / ".stoker")
    listed = subprocess.run(
        [str(engine()), "runs", "--json"], env=told, capture_output=True, text=True, check=True
    )
    found = json.loads(listed.stdout)
    assert len(found["runs"] if isinstance(found, dict) else found) == 2


def test_steps_of_all_parts_know_the_runs_name(tmp_path: Path) -> None:
    done = started(
        tmp_path,
        """
        from zenml import get_step_context

        @step(enable_cache=False)
        def named(x: int) -> str:
            return get_step_context().pipeline_run.name

        @pipeline(dynamic=True)
        def calls():
            print("in steps", named(1).load(), named(double(2)).load())

        if __name__ == "__main__":
            print("run", calls().name)
        """,
    )
    name = done.stdout.rpartition("run ")[2].strip()
    assert f"in steps {name} {name}\n" in done.stdout, done.stderr
    assert name.startswith("calls-")


def test_deleting_the_run_removes_its_parts(tmp_path: Path) -> None:
    body = CALLS + "    Client().delete_pipeline_run(run.id)\n"
    body += "    print('left', Client().list_pipeline_runs().total)\n"
    assert "left 0" in started(tmp_path, body).stdout
    told = environment(tmp_path / ".stoker")
    listed = subprocess.run(
        [str(engine()), "runs", "--json"], env=told, capture_output=True, text=True, check=True
    )
    found = json.loads(listed.stdout)
    assert not (found["runs"] if isinstance(found, dict) else found)


def test_plan_says_that_there_is_none(tmp_path: Path) -> None:
    done = started(tmp_path, CALLS, str(engine()), "plan", "program.py")
    assert done.returncode != 0
    assert "pipeline 'calls' is dynamic" in done.stderr, done.stderr


def test_resume_says_what_to_do(tmp_path: Path) -> None:
    broken = "@step\ndef broken() -> int:\n    raise ValueError('no')\n"
    body = broken + CALLS.replace("numbers(3)", "broken()")
    assert started(tmp_path, body).returncode != 0
    told = environment(tmp_path / ".stoker")
    listed = subprocess.run(
        [str(engine()), "runs", "--json"], env=told, capture_output=True, text=True, check=True
    )
    found = json.loads(listed.stdout)
    run = (found["runs"] if isinstance(found, dict) else found)[0]["run"]
    done = started(tmp_path, body, str(engine()), "resume", run)
    assert done.returncode != 0
    assert "can't be resumed: start the program again" in done.stderr, done.stderr


def test_a_step_that_fails_raises_its_own_exception_with_its_text(tmp_path: Path) -> None:
    done = started(
        tmp_path,
        """
        @step
        def broken() -> int:
            raise LookupError("nothing: here")

        @pipeline(dynamic=True)
        def fails():
            try:
                broken()
            except LookupError as bad:
                print("caught", bad)

        if __name__ == "__main__":
            print("ends", fails().status.value)
        """,
    )
    assert "caught nothing: here" in done.stdout, done.stderr
    assert "ends completed" in done.stdout, done.stderr


def test_a_run_whose_process_is_killed_has_failed(tmp_path: Path) -> None:
    body = """
        import os, signal

        @pipeline(dynamic=True)
        def killed():
            double(1)
            os.kill(os.getpid(), signal.SIGKILL)

        if __name__ == "__main__":
            killed()
        """
    assert started(tmp_path, body).returncode != 0
    done = started(tmp_path, "print('status', Client().list_pipeline_runs()[0].status.value)")
    assert "status failed" in done.stdout, done.stderr


def test_ctrl_c_ends_what_runs(tmp_path: Path) -> None:
    """The first part stays, the second is cancelled, and nothing is left running."""
    body = """
    @step
    def waits(x: int) -> int:
        open("pid", "w").write(str(os.getpid()))
        os.mkfifo("never")
        return len(open("never").read()) + x

    @pipeline(dynamic=True)
    def ends():
        first = double.submit(1).load()
        waits(first)

    if __name__ == "__main__":
        ends()
    """
    (tmp_path / "program.py").write_text("import os\n" + HEAD + textwrap.dedent(body))
    child = subprocess.Popen(
        [str(engine()), "compat", "--", sys.executable, "program.py"],
        cwd=tmp_path,
        env=environment(tmp_path / ".stoker", XDG_CONFIG_HOME=str(tmp_path / "config")),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    wait_for(lambda: (tmp_path / "never").exists(), why=lambda: str(child.poll()))
    worker = int((tmp_path / "pid").read_text())
    os.killpg(child.pid, signal.SIGINT)
    said, _ = child.communicate(timeout=WAIT_S)
    assert child.returncode != 0 and "Traceback" not in said, said
    assert not Path(f"/proc/{worker}").exists()
    command = [str(engine()), "runs", "--json"]
    told = environment(tmp_path / ".stoker")
    runs = json.loads(subprocess.run(command, env=told, capture_output=True, text=True).stdout)
    assert [run["status"] for run in runs] == ["cancelled", "succeeded"]


def test_a_models_version_is_made_once_for_all_parts(tmp_path: Path) -> None:
    done = started(
        tmp_path,
        """
        from zenml import Model

        @pipeline(dynamic=True, model=Model(name="net"))
        def trains():
            double(double(1))

        if __name__ == "__main__":
            trains()
            found = Client().list_model_versions("net")
            print("versions", found.total, len(found[0].data_artifacts))
        """,
    )
    assert "versions 1 2" in done.stdout, done.stderr


ASKS = """
@pipeline(dynamic=True)
def asks():
    print("got", double(wait(schema=int, question="how many")).load())

if __name__ == "__main__":
    asks()
"""


def test_wait_asks_at_the_terminal_until_the_answer_fits(tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    os.write(ours, b"many\n21\n")
    done = started(tmp_path, ASKS, stdin=theirs)
    os.close(ours)
    os.close(theirs)
    assert "got 42" in done.stdout, done.stderr
    assert "that is no answer: it takes int, not 'many'" in done.stdout


def test_wait_without_a_terminal_says_what_to_do(tmp_path: Path) -> None:
    done = started(tmp_path, ASKS, stdin=subprocess.DEVNULL)
    assert done.returncode != 0
    assert "nobody can answer 'how many'" in done.stderr


def test_hooks_run_in_the_body_and_around_it(tmp_path: Path) -> None:
    done = started(
        tmp_path,
        """
        def told(word: str = "end") -> str:
            print("hook", word)
            return word

        @pipeline(dynamic=True, on_init=told, on_init_kwargs={"word": "init"}, on_cleanup=told)
        def hooked():
            print("returned", run_hook(told, "middle", name="in-between"))
            double(1)

        if __name__ == "__main__":
            hooked()
        """,
    )
    words = [line.split()[1] for line in done.stdout.splitlines() if line.startswith("hook")]
    assert words == ["init", "middle", "end"], done.stderr
    assert "returned middle" in done.stdout


def test_a_static_pipeline_refuses_a_dynamic_one(tmp_path: Path) -> None:
    done = started(
        tmp_path,
        """
        @pipeline(dynamic=True)
        def inner():
            double(1)

        @pipeline
        def outer():
            inner()

        if __name__ == "__main__":
            outer()
        """,
    )
    assert done.returncode != 0
    assert "pipeline 'inner' is dynamic" in done.stderr
