"""The cluster's clock is an hour ahead of ours or an hour behind: no decision compares the two."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from kube import Cluster
from kube_driver import Driver
from test_pipelines import Object, Project, carried, project  # noqa: F401

HOUR = 3600


@pytest.mark.parametrize("skew_s", [-HOUR, HOUR])
def test_pipeline(project: Project, skew_s: int) -> None:  # noqa: F811
    """Results, retries, a gang, why one waits, how long each took."""
    project.cluster.call(project.cluster.control.do_skew, skew_s)
    once = f"[ -e {project.shared}/tried ] || {{ touch {project.shared}/tried; exit 3; }}"
    steps: Object = {
        "a": {"run": "echo 42 > $STOKER_OUTPUT/n; sleep 0.3; echo here", "outputs": ["n"]},
        "b": {"run": "cat $STOKER_INPUT_n", "inputs": {"n": {"from": "a.n"}}},
        "again": {"run": once, "retry": {"max_retries": 1, "delay": "100ms"}},
        "gang": {"run": "sleep 0.2", "gang": {"ranks": 1, "nodes": 2}},
    }
    began = time.monotonic()
    project.run(steps)
    took = time.monotonic() - began
    shown = json.loads(project("show", "latest", "--json"))
    for name in steps:
        step = shown["steps"][name]
        assert 0 <= step["used"]["wall_s"] <= took, step
        assert 0 <= step["ended_ms"] - step["started_ms"] <= took * 1000 + 1000, step
    assert Path(shown["steps"]["a"]["logs"]["stdout"]).read_text() == "here\n"
    assert shown["steps"]["again"]["attempts"] == 2
    project.nothing_left()


@pytest.mark.parametrize("skew_s", [-HOUR, HOUR])
def test_what_waits(cluster: Cluster, tmp_path: Path, skew_s: int) -> None:
    """It is given up after its time limit for waiting, neither at once nor an hour later."""
    cluster.call(cluster.control.do_skew, skew_s)
    d = Driver(cluster.kubeconfig(tmp_path / "config"), pending_ms=1500)
    began = time.monotonic()
    d.submit(1, resources={"gpu_count": 16})
    assert "Insufficient nvidia.com/gpu" in d.end(1)["text"]
    assert 1.4 < time.monotonic() - began < 30
    d.submit(2, "sleep 0.5; exit 3", options={"active_deadline_seconds": 60})
    assert d.end(2)["exit_status"] == 3
    d.close()


@pytest.mark.parametrize(("skew_s", "zone_h"), [(HOUR, 0), (-HOUR, 2), (0, 2), (0, -7)])
def test_log_that_is_cut(cluster: Cluster, tmp_path: Path, skew_s: int, zone_h: int) -> None:
    """It continues by the node's time stamps, in whatever zone they are."""
    cluster.call(cluster.control.do_skew, skew_s, zone_h)
    cluster.call(lambda: cluster.faults.add(match="/log", cut="half", after=True, times=1))
    d = Driver(cluster.kubeconfig(tmp_path / "config"))
    d.submit(1, "for i in 1 2 3 4 5 6 7 8; do echo $i; sleep 0.2; done; exit 3")
    d.until(lambda r: r["state"] == "log")
    cluster.restart(0.05)
    assert d.end(1)["exit_status"] == 3
    assert d.log(1) == "".join(f"{i}\n" for i in range(1, 9))
    d.close()


def test_clock_of_a_node_that_is_set(cluster: Cluster, tmp_path: Path) -> None:
    """Time stamps go back by an hour within a log: no line is taken for an earlier one."""
    d = Driver(cluster.kubeconfig(tmp_path / "config"))
    d.submit(
        1,
        f"echo 1; until [ -e {tmp_path}/go ]; do sleep 0.05; done; echo 2; echo 3",
        **hold(tmp_path),
    )
    d.until(lambda r: r["state"] == "log")
    cluster.call(cluster.control.do_skew, -HOUR)
    (tmp_path / "go").touch()
    assert d.end(1)["exit_status"] == 0
    assert d.log(1) == "1\n2\n3\n"
    d.close()


def hold(folder: Path) -> Object:
    volume = {"name": "v", "hostPath": {"path": str(folder)}}
    return {
        "options": {"volumes": [volume], "volume_mounts": [{"name": "v", "mountPath": str(folder)}]}
    }


@pytest.mark.parametrize(("skew_s", "words"), [(HOUR, "behind"), (-HOUR, "ahead of"), (60, "")])
def test_token_that_isnt_taken(
    make_cluster: Callable[..., Cluster], tmp_path: Path, skew_s: int, words: str
) -> None:
    """Our clock may be the reason: if it is wrong, the error says so."""
    cluster = make_cluster(nodes=[])
    cluster.call(cluster.control.do_skew, skew_s)
    d = Driver(cluster.kubeconfig(tmp_path / "config", token="wrong"))
    d.submit(1)
    text = d.until(lambda r: r["state"] == "error")["text"]
    assert "Unauthorized" in text
    assert ("clock" in text) == bool(words)
    assert re.search(
        rf"this machine's clock is (59|60) minutes {words} the server's" if words else "", text
    )
