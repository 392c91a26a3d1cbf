"""What a step in a container logs reaches a tracker while the step runs."""

from __future__ import annotations

import sys

from run_tools import Project
from tensorboard.backend.event_processing.event_multiplexer import EventMultiplexer


def test_tensorboard(project: Project, debian: str) -> None:
    log = 'echo \'{"step":3,"loss":0.5}\' >> $STOKER_METRICS'
    wait = "while ! ls .stoker/tensorboard/*/train/* > /dev/null 2>&1; do sleep 0.1; done"
    project.write(
        "p.yaml",
        f"""
        stoker: 1
        name: p
        steps:
          train:
            run: |
              {log}
              while test ! -e /seen/go; do sleep 0.1; done
            docker: {{parent_image: '{debian}'}}
            backend: {{docker: {{volumes: ['{project.folder}/seen:/seen']}}}}
          see:
            run: "{wait}; touch seen/go"
            backend: local
        """,
    )
    (project.folder / "seen").mkdir()
    run = project.run(
        "--with", "docker", STOKER_TRACKERS="tensorboard", STOKER_PYTHON=sys.executable
    )
    assert {s["status"] for s in run["steps"].values()} == {"succeeded"}
    many = EventMultiplexer().AddRunsFromDirectory(str(project.folder / ".stoker/tensorboard"))
    scalars = many.Reload().Scalars(f"{run['run']}/train", "loss")
    assert [(e.step, e.value) for e in scalars] == [(3, 0.5)]
