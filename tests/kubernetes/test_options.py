"""Options that bound a run and choose its image, through each door: they count, and none is silent."""

# ruff: noqa: F401, F811 - the fixtures of the other files
from __future__ import annotations

import json

import pytest
from test_pipelines import Object, Project, carried, project

DOORS = ("step", "stack", "pool", "command line")


def run(project: Project, door: str, options: Object, steps: Object, rc: int = 0) -> str:
    """Runs the steps with the options, said through this door."""
    path = project.folder / "stoker.yaml"
    file = json.loads(path.read_text())
    stack, words = file["stacks"]["kubernetes"], "kubernetes"
    if door == "step":
        steps = {name: {**one, "backend": {"kubernetes": options}} for name, one in steps.items()}
    elif door == "stack":
        stack["options"].update(options)
    elif door == "pool":
        stack["pools"] = {"big": {"holds": {"cpu_count": 99, "gpu_count": 99}, "options": options}}
    else:
        words += ":" + ",".join(f"{name}={value}" for name, value in options.items())
    path.write_text(json.dumps(file))
    return project("run", "--with", words, project.document(steps), rc=rc)


@pytest.mark.parametrize("name", ["max_jobs", "max_parallelism"])
@pytest.mark.parametrize("door", DOORS)
def test_so_many_at_once(project: Project, door: str, name: str) -> None:
    run(project, door, {name: 1}, {step: {"run": "true"} for step in "abc"})
    ran = sorted((one["started_ms"], one["ended_ms"]) for one in map(project.step, "abc"))
    assert all(before[1] <= after[0] for before, after in zip(ran, ran[1:])), ran


@pytest.mark.parametrize("name", ["pending_seconds", "pod_startup_timeout"])
@pytest.mark.parametrize("door", DOORS)
def test_so_long_waits_a_job(project: Project, door: str, name: str) -> None:
    """Not the stack's 300 s, after which this test would have been stopped."""
    steps: Object = {"a": {"run": "true", "resources": {"gpu_count": 64}}}
    assert "it didn't start within 2 s" in run(project, door, {name: 2}, steps, rc=1)


@pytest.mark.parametrize("door", DOORS)
def test_image(project: Project, door: str) -> None:
    run(project, door, {"image": "localhost/other:1"}, {"a": {"run": "true"}})
    assert project.step("a")["granted"]["image"]["name"] == "localhost/other:1"


def test_what_is_no_option(project: Project) -> None:
    """A key that has its place elsewhere is told where."""
    for name, where in (("gpu_class", "under `resources`"), ("default_image", "beside `options`")):
        said = run(project, "command line", {name: "x"}, {"a": {"run": "true"}}, rc=2)
        assert f"no option '{name}'" in said and where in said, said


def test_no_python_there(project: Project) -> None:
    (project.folder / "code.py").write_text("def f() -> int:\n    return 1\n")
    steps: Object = {"a": {"python": "code:f", "outputs": ["output"]}}
    said = run(project, "command line", {"executable": "python3.1"}, steps, rc=1)
    assert "cannot start 'python3.1'" in said and "by the option `executable`" in said, said
