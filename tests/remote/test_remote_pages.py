"""`stoker ui` of a share, on a machine that has nothing else of its runs: what a step on another machine prints and
measures is seen while it runs."""

# ruff: noqa: F401, F811 - the fixture of test_engine
from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest
from cli_tools import Cli
from cluster import Cluster
from test_agent_s3_failpoints import DriveS3, on_s3
from test_engine import IMAGE, Project, project
from ui_server import Ui
from waiting import wait_for

TALKS = """
wait_for() {{ while [ ! -e {go}-$1 ]; do sleep 0.05; done; }}
echo first; echo '{{"step":1,"loss":0.25}}' >> $STOKER_METRICS; wait_for 1
echo second; echo '{{"step":2,"loss":0.125}}' >> $STOKER_METRICS; wait_for 2
echo third; echo aside >&2; seq 300000
"""


class Viewer:
    """A teammate's machine, whose only way to the run is the share."""

    def __init__(self, folder: Path, share: str, env: dict[str, str]) -> None:
        folder.mkdir()
        self.cli = Cli(folder)
        self.cli.env |= {"XDG_CACHE_HOME": str(folder / "cache"), "STOKER_SYNC": "0", **env}
        self.share = share
        self.ui = Ui(self.cli, "--store", share)

    def close(self) -> None:
        self.cli.close()

    def wait_for_text(self, page: str, text: str) -> str:
        return wait_for(
            lambda: (found := self.ui.get(page).text) and text in found and found,
            why=f"{page} doesn't show {text!r}",
        )


def watch(project: Project, share: str, env: dict[str, str]) -> None:
    go = project.folder.parent / "go"
    document = project.document({"talk": {"run": TALKS.format(go=go)}})
    engine = project.begin("run", "--with", "prod", document)
    viewer = Viewer(project.folder.parent / "viewer", share, env)
    try:
        run = wait_for(
            lambda: project("show", "latest", "--json").returncode == 0 and project.show()["run"]
        )
        viewer.wait_for_text("runs", run)
        log = f"log?run={run}&task=talk"
        text = viewer.wait_for_text(log, "first")
        assert "second" not in text
        assert viewer.ui.get(f"text?run={run}&task=talk&at=0").text.splitlines() == ["6 1", "first"]
        viewer.wait_for_text("runs", "0.25")
        followed = viewer.cli.start("logs", "-f", f"{run}/talk", "--store", share, "--stdout")
        Path(f"{go}-1").touch()
        viewer.wait_for_text(log, "second")
        viewer.wait_for_text("runs", "0.125")
        assert "third" not in viewer.ui.get(log).text
        Path(f"{go}-2").touch()
        _, err = engine.communicate(timeout=120)
        assert engine.returncode == 0, err
        viewer.wait_for_text(f"run?run={run}", "succeeded")
        whole = viewer.wait_for_text(
            log, "300000"
        )  # of more than a MiB: brought because it is asked for
        assert "first" not in whole and "earlier" in whole
        wait_for(
            lambda: viewer.ui.get(f"text?run={run}&task=talk&at=0").text.startswith(
                "131072 0\nfirst"
            ),
            why="the log doesn't end",
        )
        viewer.wait_for_text(f"log?run={run}&task=talk&stream=stderr", "aside")
        out, err = followed.communicate(timeout=120)
        assert followed.returncode == 0, err
        assert out.splitlines()[:3] == ["first", "second", "third"] and out.endswith("300000\n")
        points = json.loads(viewer.cli("metrics", run, "--store", share, "--json").out)
        assert [[step, value] for step, _, value in points[0]["points"]] == [[1, 0.25], [2, 0.125]]
    finally:
        viewer.close()


def test_by_folder(project: Project) -> None:
    share = project.folder.parent / "share"
    watch(project, f"file://{share}", {})
    assert [p for p in share.glob("runs/*/live/**/*") if p.is_file()] == []


def test_by_s3(project: Project, on_s3: DriveS3) -> None:
    stack = {"backend": "kubernetes", "store": on_s3.share, "default_image": IMAGE}
    project.write("stoker.yaml", json.dumps({"stacks": {"prod": stack}}))
    project.env |= {**on_s3.env, "AWS_MAX_ATTEMPTS": "3"}
    watch(project, str(on_s3.share), {**on_s3.env, "AWS_MAX_ATTEMPTS": "3"})
    assert not any("/live/" in key for key in on_s3.objects("runs/"))


def test_of_a_lost_pod(project: Project, cluster: Cluster) -> None:
    """What it had printed stays, and the page says that the share has no more of it."""
    go, share = project.folder.parent / "go", project.folder.parent / "share"
    document = project.document({"talk": {"run": TALKS.format(go=go)}})
    engine = project.begin("run", "--with", "prod", document)
    viewer = Viewer(project.folder.parent / "viewer", f"file://{share}", {})
    try:
        run = wait_for(
            lambda: project("show", "latest", "--json").returncode == 0 and project.show()["run"]
        )
        viewer.wait_for_text("runs", run)
        viewer.wait_for_text(f"log?run={run}&task=talk", "first")
        cluster.pod("-talk-").signal(signal.SIGKILL)
        Path(f"{go}-1").touch()
        Path(f"{go}-2").touch()
        engine.communicate(timeout=120)
        lost = wait_for(lambda: viewer.ui.get(f"task?run={run}&task=talk").text, why="no page")
        assert "talk" in lost
        viewer.wait_for_text(f"log?run={run}&task=talk", "300000")  # the second attempt
    finally:
        viewer.close()
