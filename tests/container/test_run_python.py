"""Python steps in containers: the worker is mounted into images without Stoker."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time

from run_tools import WAIT_S, Project

PYTHON = sys.executable


def python(project: Project, *words: str, ok: bool = True) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [PYTHON, *words],
        cwd=project.folder,
        env=project.env,
        capture_output=True,
        text=True,
        timeout=WAIT_S,
    )
    assert (done.returncode == 0) == ok, done.stderr + done.stdout
    return done


def test_no_interpreter(project: Project, scratch: str) -> None:
    """The sentence names the option that names another one; that is then tried."""
    for option, named in (("", "'python3'"), ('"python": "/opt/py"', "'/opt/py'")):
        settings = f'{{"docker": {{"parent_image": "{scratch}"}}, "step_operator.local_docker": {{{option}}}}}'
        write_flow(project, f'step_operator="docker", settings={settings}')
        said = python(project, "flow.py", ok=False).stderr
        assert f"has no program {named}" in said and "option `python`" in said, said


FLOW = """
import os, sys
import helper
from stoker import pipeline, step

@step
def make(n: int) -> dict:
    return {{"n": n, "where": os.environ.get("IMAGE_SAYS", "outside"), "pid": os.getpid()}}

@step({options})
def train(data: dict) -> dict:
    print("training in", os.getcwd())
    return {{"twice": helper.twice(data["n"]), "where": os.environ.get("IMAGE_SAYS", "outside"),
             "main": sys.modules["__main__"].__file__, "argv": sys.argv[1:]}}

@step
def report(result: dict) -> str:
    return f"{{result['twice']}} {{result['where']}} {{os.environ.get('IMAGE_SAYS', 'outside')}}"

@pipeline{pipeline}
def flow():
    report(train(make({n})))

if __name__ == "__main__":
    run = flow()
    for name in ("make", "train", "report"):
        print(name, run.steps[name].output.load())
"""


def write_flow(project: Project, options: str, pipeline: str = "", n: int = 3) -> None:
    project.write("helper.py", "def twice(x):\n    return 2 * x\n")
    project.write("flow.py", FLOW.format(options=options, pipeline=pipeline, n=n))
    age = (
        time.time() - 60
    )  # a module that changes while it is imported counts by more than its file
    for name in ("helper.py", "flow.py"):
        os.utime(project.folder / name, (age, age))


def image(reference: str) -> str:
    return f'settings={{"docker": {{"parent_image": "{reference}"}}}}'


def test_one_step_inside(project: Project, debian: str) -> None:
    """step_operator="docker": only that step is inside; values pass in both directions; its modules
    exist."""
    write_flow(project, f'step_operator="docker", {image(debian)}')
    out = python(project, "flow.py", "--fast").stdout.replace("training in ", "")
    assert "'where': 'outside'" in out.split("train")[0]
    assert "'twice': 6" in out and "'where': 'hello'" in out and "'argv': ['--fast']" in out
    assert f"'main': '{project.folder}/flow.py'" in out
    assert "report 6 hello outside" in out
    shown = project.show()
    assert project.log(shown["steps"]["train"]) == f"training in {project.folder}\n"
    assert [s for s in shown["steps"] if "image" in shown["steps"][s]["granted"]] == ["train"]
    owner = {p.stat().st_uid for p in (project.folder / ".stoker").rglob("*")}
    assert owner == {os.getuid()}
    python(project, "flow.py", "--fast")
    steps = project.show()["steps"]
    assert all(s["cached"] for s in steps.values()), [s["miss"] for s in steps.values()]


def test_cache_sees_the_helper(project: Project, debian: str) -> None:
    """Files of the project that the step loaded count as usual; the image counts by its id."""
    write_flow(project, f'step_operator="docker", {image(debian)}')
    python(project, "flow.py")
    project.write("helper.py", "def twice(x):\n    return x + x + 0\n")
    python(project, "flow.py")
    steps = project.show()["steps"]
    assert steps["make"]["cached"] and not steps["train"]["cached"]


def test_whole_pipeline_inside(project: Project, debian: str) -> None:
    """`stoker run file.py --with docker`; the image is the pipeline's setting."""
    write_flow(project, "", f"({image(debian)})")
    done = project.stoker("run", "--with", "docker", "--python", PYTHON, "flow.py")
    assert "report 6 hello hello" in done.stdout
    assert all("image" in s["granted"] for s in project.show()["steps"].values())


def test_orchestrator_settings(project: Project, debian: str) -> None:
    settings = f'{{"docker": {{"parent_image": "{debian}", "runtime_environment": {{"IMAGE_SAYS": "ours"}}}},'
    settings += '"orchestrator.local_docker": {"run_args": {"shm_size": "32m"}}}'
    write_flow(project, f"settings={settings}")
    assert "'where': 'ours'" in python(project, "flow.py").stdout
    task = next((project.folder / ".stoker" / "runs").glob("*/train/0/1/task.json"))
    assert json.loads(task.read_text())["container"]["shm_bytes"] == 32 << 20


def test_exception_inside(project: Project, debian: str) -> None:
    """The traceback names the user's lines, with the paths of the host."""
    write_flow(project, f'step_operator="docker", {image(debian)}', n=3)
    project.write("helper.py", "def twice(x):\n    raise ValueError('no twice')\n")
    done = python(project, "flow.py", ok=False)
    error = project.show()["steps"]["train"]["error"]
    assert error["class"] == "exception" and "ValueError: no twice" in error["text"]
    assert f'File "{project.folder}/helper.py", line 2' in error["traceback"]
    assert "no twice" in done.stderr


def test_closure_is_refused(project: Project, debian: str) -> None:
    """Before anything starts."""
    project.write(
        "flow.py",
        f"""
        from stoker import pipeline, step

        def make():
            @step(step_operator="docker", {image(debian)})
            def inner() -> int:
                return 1
            return inner

        one = make()

        @pipeline
        def flow():
            one()

        if __name__ == "__main__":
            flow()
        """,
    )
    done = python(project, "flow.py", ok=False)
    assert "can't run in a container" in done.stderr and "inside another function" in done.stderr
    assert "top level" in done.stderr
    assert not list((project.folder / ".stoker" / "runs").glob("*/inner"))


def test_hooks(project: Project, debian: str) -> None:
    """Hooks of a Python step run where it runs; those of a command run on this machine."""
    project.write(
        "helper.py",
        "import os\ndef twice(x):\n    return 2 * x\ndef hook():\n    print('hook', os.environ.get('IMAGE_SAYS'))\n",
    )
    project.write(
        "flow.py",
        FLOW.format(
            options=f'step_operator="docker", on_success=helper.hook, {image(debian)}',
            pipeline="",
            n=3,
        ),
    )
    python(project, "flow.py")
    assert "hook hello" in project.log(project.show()["steps"]["train"])
    project.write(
        "p.yaml",
        f"""
        stoker: 1
        name: p
        docker: {{parent_image: {debian}}}
        steps:
          a: {{run: echo hi, hooks: {{on_success: {{run: 'echo "hook ${{IMAGE_SAYS:-outside}}"'}}}}}}
        """,
    )
    shown = project.run("--with", "docker")
    assert "hook outside" in project.log(shown["steps"]["a"])


def test_document_with_python(project: Project, debian: str) -> None:
    """python: of a YAML document, its module from the document's folder."""
    project.write(
        "code.py",
        "import os\ndef f(n: int) -> str:\n    return f\"{n} {os.environ['IMAGE_SAYS']}\"\n",
    )
    project.write(
        "p.yaml",
        f"""
        stoker: 1
        name: p
        docker: {{parent_image: {debian}}}
        steps:
          a: {{python: "code:f", inputs: {{n: 5}}, outputs: [out]}}
        """,
    )
    shown = project.run("--with", "docker")
    assert shown["steps"]["a"]["outputs"]["out"]["value"] == "5 hello"


def test_ranks(project: Project, debian: str) -> None:
    """A Python step of two processes, all inside of one container."""
    project.write(
        "flow.py",
        f"""
        import os
        from stoker import pipeline, step

        @step(step_operator="docker", gang=2, {image(debian)})
        def train() -> dict:
            print("rank", os.environ["RANK"], os.environ["IMAGE_SAYS"])
            return {{"world": int(os.environ["WORLD_SIZE"]), "rank": int(os.environ["RANK"])}}

        @pipeline
        def flow():
            train()

        if __name__ == "__main__":
            print(flow().steps["train"].output.load())
        """,
    )
    done = python(project, "flow.py")
    assert "{'world': 2, 'rank': 0}" in done.stdout
    log = project.log(project.show()["steps"]["train"])
    assert sorted(log.splitlines()) == ["[0] rank 0 hello", "[1] rank 1 hello"]


def test_missing_module(project: Project, debian: str) -> None:
    write_flow(project, f'step_operator="docker", {image(debian)}')
    project.write("helper.py", "def twice(x):\n    import numpy\n    return 2 * x\n")
    python(project, "flow.py", ok=False)
    error = project.show()["steps"]["train"]["error"]
    assert error["class"] == "import"
    assert f"module 'numpy' is neither in image '{debian}' nor" in error["text"]


SEEDED = """
import random
from stoker import pipeline, step

@step(enable_cache=False)
def here() -> float:
    return random.random()

@step(enable_cache=False, step_operator="docker", {image})
def inside() -> float:
    return random.random()

@pipeline
def one():
    here()
    inside()

if __name__ == "__main__":
    random.seed(1)
    run = one()
    print(*(run.steps[name].output.load() for name in ("here", "inside")))
"""


def test_a_seeded_program_draws_the_same_inside(project: Project, debian: str) -> None:
    project.write("seeded.py", SEEDED.replace("{image}", image(debian)))
    drawn = [python(project, "seeded.py").stdout.splitlines()[-1] for _ in range(2)]
    assert drawn[0] == drawn[1]
    assert len(set(drawn[0].split())) == 2
