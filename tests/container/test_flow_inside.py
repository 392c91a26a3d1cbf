"""Steps of flows in containers: the image that the step itself names, artifacts by the store, nodes of a gang."""

from __future__ import annotations

import json
from pathlib import Path

from run_tools import Project
from test_run_python import python

FLOW = """
import os
from stoker.flow import FlowSpec, step, kubernetes, batch, resources, current, parallel, Parameter
import helper

def where():
    return os.environ.get("IMAGE_SAYS", "outside")

class Inside(FlowSpec):
    alpha = Parameter("alpha", default=2)

    @step
    def start(self):
        self.items = list(range(3))
        self.big = b"x" * 100000
        self.next(self.work, foreach="items")

    @resources(cpu=0.5, memory=300)
    @{decorator}(image="{image}", memory=200)
    @step
    def work(self):
        self.said = (self.index, self.input, helper.twice(self.alpha), where(), len(self.big), current.task_id)
        self.next(self.join)

    @step
    def join(self, inputs):
        self.said = [i.said for i in inputs]
        self.next(self.split)

    @step
    def split(self):
        self.next(self.train, num_parallel=2)

    @kubernetes(image="{image}")
    @parallel
    @step
    def train(self):
        self.mine = (current.parallel.node_index, current.parallel.num_nodes, where(), len(self.said))
        self.next(self.gather)

    @step
    def gather(self, inputs):
        print(where(), [i.mine for i in inputs])
        print(inputs[0].said)
        self.next(self.end)

    @step
    def end(self):
        pass

if __name__ == "__main__":
    Inside()
"""


def log(project: Project, step: str) -> str:
    runs = project.folder / ".stoker" / "runs"
    newest = max(runs.iterdir(), key=lambda p: (p / "spec.json").stat().st_mtime_ns)
    (found,) = newest.glob(f"{step}/*/1/stdout.log")
    return found.read_text()


def test_flow_in_the_images_of_its_steps(project: Project, debian: str) -> None:
    """`--with docker`: steps that name an image run in it, the others where their interpreter is; by either way."""
    project.write("helper.py", "def twice(x):\n    return 2 * x\n")
    project.write("flow.py", FLOW.format(image=debian, decorator="kubernetes"))
    python(project, "flow.py", "run", "--with", "docker", "--alpha", "5")
    said = [(k, k, 10, "hello", 100000, str(k + 2)) for k in range(3)]
    nodes = [(k, 2, "hello", 3) for k in range(2)]
    assert log(project, "gather") == f"outside {nodes}\n{said}\n"
    tasks = sorted(Path(project.folder / ".stoker/runs").glob("*/work/*/1/task.json"))
    for one in map(Path.read_text, tasks):
        task = json.loads(one)
        assert task["container"]["name"] == debian and task["asked"]["memory_bytes"] == 300_000_000
        assert task["container"]["memory_bytes"] == 300_000_000
    project.write("flow.py", FLOW.format(image=debian, decorator="batch"))
    project.stoker("run", "--with", "docker", "flow.py")
    assert log(project, "gather").splitlines()[0] == f"outside {nodes}"
    python(project, "flow.py", "run")
    assert "'hello'" not in log(project, "gather")


def test_a_growing_document_inside(project: Project, debian: str) -> None:
    """Commands: items, task ids in paths, an inherited output, checkpoints of a task with an id."""
    inside = {"docker": {"parent_image": debian}, "backend": "docker"}
    steps = {
        "start": {
            "run": 'echo "[3, 4]" > $STOKER_OUTPUT/todo; echo seed > $STOKER_OUTPUT/seed; echo $IMAGE_SAYS > $STOKER_OUTPUT/where',
            "outputs": ["todo", "seed", "where"],
            "next": "work",
            "foreach": "todo",
            **inside,
        },
        "work": {
            "run": "mkdir -p $STOKER_CHECKPOINT_DIR && echo 1 > $STOKER_CHECKPOINT_DIR/one\n"
            "! touch $STOKER_INPUT_seed 2>/dev/null || exit 9\n"
            'echo "\\"$STOKER_ITEM $STOKER_INDEX $STOKER_TASK $(cat $STOKER_INPUT_seed)\\"" > $STOKER_OUTPUT/part',
            "inputs": {"seed": {"from": "start.seed"}},
            "outputs": ["part"],
            "keep_checkpoints": True,
            "next": "gather",
            **inside,
        },
        "gather": {"run": "cat $STOKER_INPUT_parts/*", "inputs": {"parts": {"from": "work.part"}}, "join": True},
    }  # fmt: skip
    project.write("p.yaml", json.dumps({"stoker": 1, "name": "grows", "steps": steps}))
    project.stoker("run", "p.yaml")
    assert log(project, "gather") == '"3 0 2 seed"\n"4 1 3 seed"\n'
    kept = (project.folder / ".stoker/runs").glob("*/work/*/checkpoints/one")
    assert sorted(p.parts[-3] for p in kept) == ["2", "3"]
