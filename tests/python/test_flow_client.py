"""The client of flows (python/stoker/flow/client) over a store that is written by hand."""

from __future__ import annotations

import datetime
import json
import pickle
import time
from pathlib import Path
from typing import Any

import front_tools  # noqa: F401 (puts the package on the path)
import pytest
from flow_tools import FakeStore, whole

from stoker.flow import _records, client
from stoker.flow.client import DataArtifact, Flow, Metaflow, Run, Step, Task
from stoker.flow.exception import (
    MetaflowInvalidPathspec,
    MetaflowNamespaceMismatch,
    MetaflowNotFound,
    MetaflowTaggingError,
)


@pytest.fixture
def store(tmp_path: Path, monkeypatch: Any) -> FakeStore:
    made = FakeStore(tmp_path)
    monkeypatch.setenv("STOKER_BIN", str(made.binary))
    monkeypatch.setenv("STOKER_STORE", str(made.path))
    monkeypatch.setenv("METAFLOW_USER", "ann")
    monkeypatch.setattr("stoker.flow.client._place._namespace", client._place._UNSET)
    monkeypatch.setattr("stoker.flow.client._place._metadata", None)
    return made


def test_objects_are_named_by_what_holds_them(store: FakeStore) -> None:
    store.add("r1", whole())
    flow = Metaflow()["F"]
    assert [f.id for f in Metaflow()] == ["F"]
    assert repr(flow) == "Flow('F')" and repr(flow["r1"]) == "Run('F/r1')"
    run = flow.latest_run
    assert [s.id for s in run] == ["end", "join", "work", "start"]
    assert [t.id for t in run["work"]] == ["4", "3", "2"]
    task = run["work"]["3"]
    assert repr(task) == "Task('F/r1/work/3')" and task.path_components == ["F", "r1", "work", "3"]
    assert sorted(a.id for a in task) == ["alpha", "name", "xs", "y"]
    assert repr(task["y"]) == "DataArtifact('F/r1/work/3/y')"
    up = task["y"].parent
    assert (up, up.parent, up.parent.parent, up.parent.parent.parent) == (
        task,
        run["work"],
        run,
        flow,
    )
    assert flow.parent is None
    assert "work" in run and "nope" not in run and "r1" in flow and "r9" not in flow
    assert "y" in task and "z" not in task


def test_artifacts_are_loaded_when_they_are_looked_at(store: FakeStore) -> None:
    store.add("r1", whole())
    task = Task("F/r1/work/3")
    assert task.data.y == 2.5 and task["y"].data == 2.5 and task.artifacts.y.data == 2.5
    assert "y" in task.data and "zz" not in task.data
    assert task["y"].size == len("2.5") and len(task["y"].sha) == 64
    with pytest.raises(AttributeError, match="no artifact 'xy'"):
        task.data.xy  # noqa: B018
    start = Task("F/r1/start/1")
    assert [a.id for a in start] == [
        "alpha",
        "name",
        "xs",
    ]  # what begins with _ is seen by name alone
    assert start["_hidden"].data == 1
    data = Run("F/r1").data
    assert (data.total, data.alpha, data.name) == (7.5, 0.5, "F")  # parameters are every task's
    alpha = task["alpha"]
    assert alpha.size == 3 and len(alpha.sha) == 64


def test_a_step_is_asked_for_once_whatever_its_width(store: FakeStore) -> None:
    store.add("r1", whole(50))
    run = Run("F/r1")
    store.save()
    assert sum(t.data.y for t in run["work"]) == sum(i * 2.5 for i in range(50))
    assert store.calls == ["show r1/work"]


def test_wide_steps_are_looked_through_in_linear_time_and_two_questions(store: FakeStore) -> None:
    took = []
    for n in (250, 2000):
        store.add(f"r{n}", whole(n))
        run = Run(f"F/r{n}")
        store.save()
        began = time.process_time()
        for task in run["work"]:
            assert task.successful and next(task.child_tasks).parent.id == "join"
            assert next(task.parent_tasks).parent.parent.id == run.id
        took.append(time.process_time() - began)
        assert store.calls == [f"show r{n}/work"]
    assert took[1] < 40 * took[0]  # 8 times as many; by the square it would be 64


def test_a_live_run_isnt_asked_for_more_of_the_time_than_it_is_looked_at(
    store: FakeStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An answer of a live run with thousands of tasks takes a while: it is good for ten times as long."""
    store.add("r1", whole(4), status="running")
    asked = _records.json_of

    def slow(*words: Any) -> Any:
        time.sleep(0.2)  # sleeps: what an answer takes
        return asked(*words)

    monkeypatch.setattr(_records, "json_of", slow)
    run = Run("F/r1")
    store.save()
    for task in run["work"]:
        assert task.data.y is not None
        time.sleep(0.06)  # sleeps: longer than a quick answer is good for
    assert store.calls == ["show r1/work"]


def test_a_run_that_ended_is_read_once_and_a_live_one_again(store: FakeStore) -> None:
    store.add("r1", whole()[:2], status="running")
    run = Run("F/r1")
    assert not run.finished and run.end_task is None and run.data is None
    body = store.answers["show r1"]
    other = FakeStore.__new__(FakeStore)
    other.__dict__.update(store.__dict__)
    store.add("r2", whole())
    body["tasks"] = store.answers["show r2"]["tasks"]
    body["status"] = "succeeded"
    store.save()
    until = time.monotonic() + 120
    while not run.finished and time.monotonic() < until:
        time.sleep(0.05)
    assert run.finished
    assert run.end_task.id == "6" and run.finished_at is not None
    n = len(store.calls)
    assert run.finished and len(run["work"].tasks.__self__._own()) == 3
    assert len(store.calls) == n


def test_tasks_know_their_neighbours(store: FakeStore) -> None:
    store.add("r1", whole())
    run = Run("F/r1")
    join = run["join"].task
    assert [t.pathspec for t in join.parent_tasks] == [f"F/r1/work/{i}" for i in (2, 3, 4)]
    assert list(join.child_task_pathspecs) == ["F/r1/end/6"]
    assert [t.id for t in run["start"].task.child_tasks] == ["2", "3", "4"]
    assert [s.id for s in run["work"].parent_steps] == ["start"]
    assert [s.id for s in run["work"].child_steps] == ["join"]
    assert [t.index for t in run["work"]] == [2, 1, 0] and join.index is None


def test_what_a_task_wrote_and_how_it_ended(store: FakeStore) -> None:
    tasks = whole()
    error = {
        "class": "exception",
        "text": "step 'work/3' failed: ValueError: no",
        "cause": "ValueError: no",
        "traceback": "Traceback …",
    }
    tasks[2].update(status="failed", error=error, attempts=1)
    store.add("r1", tasks, status="failed")
    task = Task("F/r1/work/3")
    assert task.stderr == "item 1\nlast\n" and task.stdout == "" and task.stderr_size == 11
    lines = list(task.loglines("stderr"))
    assert [text for _, text in lines] == ["item 1", "last"]
    assert all(isinstance(when, datetime.datetime) for when, _ in lines)
    assert [t for _, t in task.loglines("stderr", as_unicode=False)] == [b"item 1", b"last"]
    with pytest.raises(ValueError, match="stdin"):
        list(task.loglines("stdin"))
    assert not task.successful and not task.finished and task.finished_at is not None
    assert task.exception.exception == "ValueError: no" and "Traceback" in str(task.exception)
    own = {
        "error": {"type": "ValueError", "message": "no"}
    }  # the step's own words, where it left some
    (Path(store.answers["show r1"]["tasks"][2]["dir"]) / "result.json").write_text(json.dumps(own))
    assert (task.exception.type, task.exception.exception) == ("builtins.ValueError", "no")
    (Path(store.answers["show r1"]["tasks"][2]["dir"]) / "result.json").unlink()
    assert pickle.loads(pickle.dumps(task.exception)).exception == "ValueError: no"
    good = Task("F/r1/work/2")
    assert good.successful and good.finished and good.exception is None
    assert good.finished_at > good.created_at


def test_a_task_that_catch_took_over_finished_without_success(store: FakeStore) -> None:
    tasks = whole()
    caught = {"type": "ValueError", "message": "no", "text": "ValueError: no", "traceback": None}
    tasks[1].update(attempts=2, metadata={"caught": caught})
    store.add("r1", tasks)
    clones = whole()
    clones[1].update(status="cached", from_run="r1", from_task=2)
    clones[2].update(status="cached", from_run="r1", from_task=3)
    store.add("r2", clones)
    for task in (Task("F/r1/work/2"), Task("F/r2/work/2")):
        assert task.finished and not task.successful and task.exception is None
    assert Task("F/r2/work/3").successful


def test_what_a_run_was_given_is_a_task_of_its_own(store: FakeStore) -> None:
    first = {"next": ["work"], "extra": {"flow": {"stored": ["xs", "unset"]}}}
    steps = {"start": first, "work": {"next": ["end"]}, "end": {}}
    store.add("r1", whole(), steps=steps)
    run = Run("F/r1")
    task = run["_parameters"].task
    assert sorted(one.id for one in task) == ["alpha", "name", "xs"]
    assert task.data.alpha == 0.5 and task.successful and task.stdout == ""
    assert task.metadata_dict["start_step"] == "start" and task.metadata_dict["end_step"] == "end"
    assert Task("F/r1/_parameters/0") == task == next(iter(Step("F/r1/_parameters")))
    assert "_parameters" in run and "_parameters" not in [one.id for one in run]
    with pytest.raises(MetaflowNotFound):
        Task("F/r1/_parameters/1")


def test_metadata_has_metaflows_names_and_what_the_step_logged(store: FakeStore) -> None:
    tasks = whole()
    tasks[2].update(cached=True, status="cached", from_run="r0", from_task=9)
    store.add("r1", tasks)
    task = Task("F/r1/work/3")
    facts = task.metadata_dict
    assert facts["attempt"] == "0" and facts["attempt_ok"] == "True" and facts["runtime"] == "dev"
    assert facts["user"] == "ann" and facts["python_version"] == "3.11.7"
    assert facts["foreach-stack"] == ["xs=1"] and facts["seen"] == 1
    assert (facts["origin-run-id"], facts["origin-task-id"]) == ("r0", "9")
    assert facts["script-name"] == "flow.py" and facts["ds-root"] == str(store.path)
    assert {m.name for m in task.metadata} == set(facts) and task.metadata[0].task == task
    assert task.successful  # though r0 is gone
    assert task.origin_pathspec == "F/r0/work/9" and task["y"].origin_pathspec == "F/r0/work/9/y"
    assert Step("F/r1/work").origin_pathspec == "F/r0/work"
    assert Task("F/r1/work/2").origin_pathspec is None


def test_ranks_are_tasks_of_their_own(store: FakeStore) -> None:
    tasks = whole(1)
    tasks[1].update(ranks=3, foreach=[], rank_artifacts=[{"y": k} for k in range(3)])
    store.add("r1", tasks)
    step = Step("F/r1/work")
    assert [t.id for t in step] == ["2_node_2", "2_node_1", "2"]
    assert [t.index for t in step] == [2, 1, 0]
    assert [t.data.y for t in step] == [2, 1, 0.0]
    assert step.control_task.id == "2" == step.task.id
    assert [t.id for t in Task("F/r1/join/3").parent_tasks] == ["2", "2_node_1", "2_node_2"]


def test_namespaces_say_whose_runs_are_seen(store: FakeStore) -> None:
    store.add("r1", whole())
    assert client.get_namespace() == "user:ann" == client.default_namespace()
    client.namespace("user:bob")
    for ask in (
        lambda: Run("F/r1"),
        lambda: Flow("F"),
        lambda: Flow("F", _namespace_check=False)["r1"],
    ):
        with pytest.raises(MetaflowNamespaceMismatch, match=r"'F.*'\) is not in .*user:bob"):
            ask()
    assert Metaflow().flows == []
    client.namespace("mine")
    assert Run("F/r1").id == "r1"
    client.namespace(None)
    assert Flow("F").latest_run.id == "r1" and client.get_namespace() is None


def test_runs_are_filtered_by_tags_and_success(store: FakeStore) -> None:
    store.add("r1", whole())
    store.add("r2", whole()[:3], status="failed", tags=["user:ann", "night"])
    flow = Flow("F")
    assert [r.id for r in flow.runs()] == ["r2", "r1"] == [r.id for r in flow]
    assert [r.id for r in flow.runs("night")] == ["r2"]
    assert [r.id for r in flow.runs("mine", "runtime:dev")] == ["r1"]
    assert flow.latest_run.id == "r2" and flow.latest_successful_run.id == "r1"
    assert not flow.latest_run.successful and not flow.latest_run.finished


def test_pipelines_are_no_flows(store: FakeStore) -> None:
    store.add("p1", [], flow="digits", extra={})
    store.add("r1", whole())
    assert [f.id for f in Metaflow()] == ["F"]
    for ask in (lambda: Flow("digits"), lambda: Run("digits/p1")):
        with pytest.raises(MetaflowNotFound):
            ask()


def test_tags_are_changed_by_people_but_not_those_of_the_system(store: FakeStore) -> None:
    store.add("r1", whole())
    run = Run("F/r1")
    assert run.user_tags == {"mine"} and "user:ann" in run.system_tags
    run.add_tag("a")
    run.add_tags(["b", "user:ann"])  # which it has
    assert run.user_tags == {"mine", "a", "b"}
    run.replace_tag("mine", "yours")
    run.remove_tags(["a", "b"])
    assert run.user_tags == {"yours"} and run["work"].user_tags == {"yours"}
    with pytest.raises(MetaflowTaggingError, match="system tag"):
        run.remove_tag("user:ann")
    with pytest.raises(MetaflowTaggingError, match="isn't empty"):
        run.add_tag("")


@pytest.mark.parametrize(
    ("kind", "path", "error"),
    [
        (Flow, "Nope", MetaflowNotFound),
        (Run, "F/r9", MetaflowNotFound),
        (Run, "F", MetaflowInvalidPathspec),
        (Task, "F/r1", MetaflowInvalidPathspec),
        (Run, "G/r1", MetaflowNotFound),
        (Run, "F/../r1", MetaflowInvalidPathspec),
        (Step, "F/r1/nope", MetaflowNotFound),
        (Task, "F/r1/start/77", MetaflowNotFound),
        (DataArtifact, "F/r1/start/1/zz", MetaflowNotFound),
        (Run, None, MetaflowInvalidPathspec),
    ],
)
def test_names_of_nothing(store: FakeStore, kind: Any, path: Any, error: Any) -> None:
    store.add("r1", whole())
    with pytest.raises(error) as said:
        kind(path)
    assert error is not MetaflowNotFound or ".stoker'" in str(said.value)
    with pytest.raises(MetaflowNotFound):
        Metaflow()["G"]
    with pytest.raises(KeyError):
        Run("F/r1")["nope"]
    with pytest.raises(KeyError):
        Task("F/r1/start/1")["zz"]


def test_objects_pickle_with_the_place_of_their_store(store: FakeStore, monkeypatch: Any) -> None:
    store.add("r1", whole())
    run = Run("F/r1")
    things = (Flow("F"), run, run["work"], run["work"]["3"], run["work"]["3"]["y"])
    texts = [pickle.dumps(one) for one in things]
    monkeypatch.delenv("STOKER_STORE")
    monkeypatch.chdir("/")
    assert [pickle.loads(text) for text in texts] == list(things)
    assert pickle.loads(texts[-1]).data == 2.5


def test_another_store_is_looked_into_by_metadata(store: FakeStore, monkeypatch: Any) -> None:
    store.add("r1", whole())
    monkeypatch.delenv("STOKER_STORE")
    assert client.metadata(f"local@{store.path.parent}") == f"local@{store.path}"
    assert Run("F/r1").id == "r1"
    with pytest.raises(MetaflowNotFound, match="service"):
        client.metadata("service@https://x")
    store.answers["store path"] = {"error": {"class": "not_found", "text": "no store here"}}
    store.save()
    monkeypatch.chdir("/")
    assert client.default_metadata() == "local@/.stoker"
    assert Metaflow().flows == []
