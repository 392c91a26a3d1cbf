"""What is known of a finished run: configuration and artifacts; and how a program ends under
`stoker run`."""

from __future__ import annotations

import json
import subprocess
import textwrap
from pathlib import Path

import pytest
from front_tools import WAIT_S, engine, environment, needs_engine, run_python

pytestmark = needs_engine

CONFIGURED = """
from typing import Annotated
from stoker import Client, OnOOM, ResourceSettings, StepRetryConfig, ArtifactConfig, pipeline, step

@step(
    settings={"resources": ResourceSettings(cpu_count=1, any_of=["H100", "A100"], min_replicas=1)},
    retry=StepRetryConfig(max_retries=2),
    enable_cache=False,
    on_oom=OnOOM(gpu_memory=2),
)
def make(n: int) -> Annotated[int, ArtifactConfig(name="number")]:
    return n

@pipeline(environment={"A": "1"}, settings={"resources": {"memory": "64MB"}}, tags=["t"], extra={"k": [1]})
def tested(n: int = 3):
    make(n)

if __name__ == "__main__":
    import json
    run = tested()
    tested(n=4)
    config, of_step = run.config, run.steps["make"].config
    resources = of_step.settings["resources"]
    client = Client()
    (artifact,) = client.list_artifacts("number")
    try:
        client.delete_user("ann")
    except AttributeError as bad:
        refused = str(bad)
    print(json.dumps([
        [config.name, config.parameters, config.tags, config.extra, config.environment],
        [config.settings["resources"].memory, config.enable_cache, config.retry, config.execution_mode],
        [of_step.name, of_step.parameters, of_step.enable_cache, of_step.retry.max_retries],
        [resources.memory, resources.cpu_count, [a.gpu_class for a in resources.any_of], resources.min_replicas],
        [of_step.on_oom, of_step.environment, of_step.timeout],
        [artifact.name, [v.load() for v in artifact.versions.values()], client.get_artifact("number").name],
        refused,
    ]))
"""


def test_configuration_and_artifacts(tmp_path: Path) -> None:
    done = run_python(tmp_path, CONFIGURED, STOKER_ACCEL="none")
    of_run, more, of_step, resources, options, artifact, refused = json.loads(
        done.stdout.splitlines()[-1]
    )
    assert of_run == ["tested", {"n": 3}, ["t"], {"k": [1]}, {"A": "1"}]
    assert more == [64_000_000, None, None, "continue_on_failure"]
    assert of_step == ["make", {"n": 3}, False, 2]
    assert resources == [64_000_000, 1, ["H100", "A100"], 1]  # the pipeline's and the step's as one
    assert options == [{"gpu_memory": 2, "max_retries": 1}, {"A": "1"}, None]
    assert artifact[0] == "number" and sorted(artifact[1]) == [3, 4] and artifact[2] == "number"
    assert "stoker store gc" in refused


ENDS = """
import sys
from stoker import ResourceSettings, pipeline, step

@step(settings={"resources": ResourceSettings(gpu_count=3)})
def greedy() -> int:
    return 1

@step
def boom() -> int:
    raise ValueError("no")

@pipeline(enable_cache=False)
def p():
    (greedy if sys.argv[1] == "greedy" else boom)()

if sys.argv[1] == "option":
    step(retrry=1)(boom.entrypoint)
if sys.argv[1] == "own":
    raise LookupError("the program's own")
if __name__ == "__main__":
    p()
"""


@pytest.mark.parametrize(
    "how,status,lines",
    [
        ("greedy", 2, ["stoker: prog.py:5: step 'greedy': gpu_count 3: this machine has no GPU"]),
        ("option", 2, ["stoker: prog.py:18: step 'boom': unknown option 'retrry'; did you"]),
        ("boom", 1, []),
        ("own", 1, ["Traceback", "LookupError: the program's own"]),
    ],
)
def test_a_program_ends_in_one_line(
    tmp_path: Path, how: str, status: int, lines: list[str]
) -> None:
    (tmp_path / "prog.py").write_text(textwrap.dedent(ENDS))
    done = subprocess.run(
        [str(engine()), "run", "--policy", "strict", "prog.py", "--", how],
        cwd=tmp_path,
        env=environment(tmp_path / ".stoker", STOKER_ACCEL="none"),
        capture_output=True,
        text=True,
        timeout=WAIT_S,
    )
    assert done.returncode == status, done.stderr
    for line in lines:
        assert line in done.stderr
    assert ("_launch.py" in done.stderr) is False
    if status == 2:
        assert len(done.stderr.splitlines()) == 1
    if how != "greedy":  # which asks for the policy
        bare = run_python(tmp_path, ENDS, how, ok=False, STOKER_ACCEL="none")
        assert bare.returncode == status and ("_launch.py" in bare.stderr) is False
        assert all(line in bare.stderr for line in lines)
        assert status != 2 or bare.stderr == done.stderr
