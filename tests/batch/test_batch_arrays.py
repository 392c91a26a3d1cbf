"""Array jobs, with the driver by hand: which tasks become an array, what is requested for it, and
that each child is watched, stopped, found again and explained like a single job."""

from __future__ import annotations

import json
import re
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from batch_tools import Drive
from fake_batch import FakeBatch

Start = Callable[..., Drive]


@pytest.fixture
def start(drive: Callable[..., Drive], fake_env: dict[str, str], tmp_path: Path) -> Start:
    def begin(env: dict[str, str] | None = None, **words: Any) -> Drive:
        options = {"queue": "q", **words.pop("options", {})}
        config = {"carry": "volume", "carry_volume": "/opt", "share_url": str(tmp_path / "share")}
        return drive({**fake_env, **(env or {})}, options, **{**config, **words})

    return begin


def lists(tmp_path: Path) -> list[dict[str, Any]]:
    found = sorted((tmp_path / "share/runs/r1/arrays").glob("*.json"))
    return [json.loads(one.read_text()) for one in found]


def submit(d: Drive, ids: range, text: str = "exit 0", step: str = "a", **words: Any) -> None:
    """Tasks of one step. The program's $0 is the key, or the list's."""
    for i in ids:
        argv = ["/bin/sh", "-c", text, f"runs/r1/{step}/{i}/1"]
        d.submit(i, step=step, argv=argv, key=argv[-1], **words)


def test_one_array(start: Start, fake: FakeBatch, tmp_path: Path) -> None:
    """300 tasks that are ready together make one SubmitJob and one list; each end belongs to its
    task."""
    d = start()
    submit(d, range(300), "echo over; exit $((AWS_BATCH_JOB_ARRAY_INDEX % 7))")
    ends = d.ends_of(set(range(300)))
    arrays = fake.arrays()
    assert fake.calls["SubmitJob"] == len(arrays) <= 3, fake.calls
    assert sum(a.size for a in arrays) == 300 and len(fake.ran()) == 300
    where = {}
    for one in lists(tmp_path):
        assert (one["stoker"], one["at"]) == (1, "runs/r1/a")
        where |= {int(key.split("/")[0]): i for i, key in enumerate(one["keys"])}
    assert {i: end["exit_status"] for i, end in ends.items()} == {
        i: where[i] % 7 for i in range(300)
    }
    tags = arrays[0].request["tags"]
    assert tags["stoker.step"] == "a" and "stoker.task" not in tags
    assert re.fullmatch(r"s-r1-a-array-[0-9a-f]{32}", arrays[0].name)
    assert fake.calls["DescribeJobs"] < 4 * 20, "as many as of 300 jobs: three a look"


@pytest.mark.parametrize(
    ("options", "n", "arrays"),
    [({}, 7, 0), ({}, 8, 1), ({"array_min": 0}, 9, 0), ({"array_min": 2}, 2, 1)],
)
def test_from_which_on(
    start: Start, fake: FakeBatch, options: dict[str, Any], n: int, arrays: int
) -> None:
    d = start(options=options)
    submit(d, range(n))
    d.ends_of(set(range(n)))
    assert len(fake.arrays()) == arrays
    assert len(fake.ran()) == n


@pytest.mark.slow
def test_what_is_not_alike(start: Start, fake: FakeBatch) -> None:
    """Tasks with different steps, deadlines, variables or gangs aren't children of one array."""
    d = start()
    submit(d, range(10))
    submit(d, range(10, 20), step="b")
    submit(d, range(20, 30), timeout_ms=60000)
    submit(d, range(30, 40), env=["A=b"])
    submit(d, range(40, 42), nodes=2)
    ends = d.ends_of(set(range(42)))
    assert {end["exit_status"] for end in ends.values()} == {0}
    assert sorted(a.size for a in fake.arrays()) == [10, 10, 10, 10]
    assert sum(len(job.nodes) == 2 for job in fake.ran()) == 2


def until(folder: Path) -> str:
    """A shell command that waits until the test makes `go` in the folder."""
    return f"until [ -e {folder}/go ]; do sleep 0.05; done"


@pytest.mark.slow
def test_children_end_for_reasons_of_their_own(
    start: Start, fake: FakeBatch, tmp_path: Path
) -> None:
    """One is reclaimed, one runs out of memory, one is terminated from outside, one fails: the
    others continue."""
    d = start()
    submit(d, range(9), f"echo $AWS_BATCH_JOB_ARRAY_INDEX is here; {until(tmp_path)}; exit 5")
    d.wait(lambda r: r["state"] == "log")
    [array] = fake.arrays()
    fake.wait_until(lambda: all(child.status == "RUNNING" for child in array.children))
    fake.reclaim(array.children[0])
    fake.run_out_of_memory(array.children[1])
    fake._TerminateJob({"jobId": array.children[2].id, "reason": "not needed"})
    (tmp_path / "go").touch()
    ends = d.ends_of(set(range(9)))
    told = sorted(e["failure"] for e in ends.values())
    assert told == ["cancelled", "host_oom"] + ["none"] * 6 + ["preempted"], ends
    assert [e["exit_status"] for e in ends.values() if e["failure"] == "none"] == [5] * 6
    assert array.status == "FAILED"
    logs = {d.log_of(i) for i in range(9)}
    assert logs == {f"{i} is here\n" for i in range(9)}, "each log is its own child's"


@pytest.mark.slow
def test_stop_all(start: Start, fake: FakeBatch) -> None:
    """One TerminateJob ends all children; to end some of them takes one for each."""
    d = start()
    submit(d, range(40), "sleep 1000")
    submit(d, range(100, 120), "sleep 1000", step="b")
    d.wait(lambda r: r["state"] == "running")
    fake.wait_until(lambda: [j.status for j in fake.ran()].count("RUNNING") == 60)
    d.stop((*range(40), 103, 104))
    stopped = {*range(40), 103, 104}
    ends = d.ends_of(stopped)
    assert {(e["state"], e["failure"]) for e in ends.values()} == {("failed", "cancelled")}
    assert fake.calls["TerminateJob"] == 1 + 2
    assert len(fake.live()) == 18 + 1, "the others of b, and its array"
    d.stop(range(100, 120))
    d.ends_of(set(range(100, 120)) - {103, 104})
    assert fake.calls["TerminateJob"] == 1 + 2 + 1
    assert fake.live() == []


def test_stopped_while_they_gather(start: Start, fake: FakeBatch) -> None:
    d = start()
    submit(d, range(12))
    d.stop(range(4))
    ends = d.ends_of(set(range(12)))
    assert {ends[i]["failure"] for i in range(4)} == {"cancelled"}
    assert [a.size for a in fake.arrays()] == [8]


@pytest.mark.slow
def test_lost_answer(start: Start, fake: FakeBatch) -> None:
    """The answer to the submit of an array is lost: it is found by its name, and exists once."""
    fake.cut_submits = 2
    d = start()
    submit(d, range(20))
    submit(d, range(20, 40), step="b")
    ends = d.ends_of(set(range(40)))
    assert {e["exit_status"] for e in ends.values()} == {0}
    assert sorted(a.size for a in fake.arrays()) == [20, 20]


@pytest.mark.slow
@pytest.mark.parametrize("fault", ["faults", "throttled", "skewed", "expired"])
def test_faults(start: Start, fake: FakeBatch, fault: str) -> None:
    """Calls that answer 500, throttling, a clock that is an hour off and expired credentials while
    arrays are submitted."""
    no_keys = {"AWS_ACCESS_KEY_ID": "", "AWS_SECRET_ACCESS_KEY": ""}
    d = start({**no_keys, "AWS_CONTAINER_CREDENTIALS_FULL_URI": f"{fake.url}/role-credentials"})
    submit(d, range(1))
    d.end_of(0)
    fake.faults = 6 if fault == "faults" else 0
    fake.submit_rate = 1.0 if fault == "throttled" else None
    fake.skew_s = 3600.0 if fault == "skewed" else 0.0
    fake.expired = {"ROLE1"} if fault == "expired" else set()
    submit(d, range(30), step="b")
    submit(d, range(30, 60), step="c")
    ends = d.ends_of(set(range(60)), timeout=100)
    assert {e["exit_status"] for e in ends.values()} == {0}, ends[min(ends)]["text"]
    assert sum(a.size for a in fake.arrays()) == 60 and len(fake.ran()) == 61


@pytest.mark.parametrize("when", ["batch.submit.before", "batch.submit.after"])
def test_killed_around_the_submit(start: Start, fake: FakeBatch, tmp_path: Path, when: str) -> None:
    """The engine is killed between the list and the submit, or between the submit and its answer:
    another one finds what exists."""
    d = start({"STOKER_FAILPOINTS": f"{when}:1:kill"})
    submit(d, range(16), "sleep 1")
    assert d.process.wait(60) == -signal.SIGKILL
    assert len(lists(tmp_path)) == 1
    assert len(fake.arrays()) == (0 if when.endswith("before") else 1)
    d = start()
    submit(d, range(26), look=1)
    ends = d.ends_of(set(range(26)))
    assert {e["exit_status"] for e in ends.values()} == {0}
    assert len(fake.ran()) == 26


def test_attached(start: Start, fake: FakeBatch, tmp_path: Path) -> None:
    """The engine is killed while children run: another one finds them by the lists, and can end a
    whole array."""
    d = start()
    submit(d, range(20), f"{until(tmp_path)}; echo over; exit $AWS_BATCH_JOB_ARRAY_INDEX")
    submit(d, range(20, 40), "sleep 1000", step="b")
    fake.wait_until(lambda: [j.status for j in fake.ran()].count("RUNNING") == 40)
    d.process.kill()
    (tmp_path / "go").touch()
    fake.calls.clear()
    d = start()
    submit(d, range(20), "not again", attach=1, look=1)
    submit(d, range(20, 40), "not again", step="b", attach=1, look=1)
    d.stop(range(20, 40))
    ends = d.ends_of(set(range(40)))
    assert sorted(ends[i]["exit_status"] for i in range(20)) == list(range(20))
    assert {ends[i]["failure"] for i in range(20, 40)} == {"cancelled"}
    assert fake.calls["ListJobs"] == 2, "once an array"
    assert fake.calls["TerminateJob"] == 1
    assert "SubmitJob" not in fake.calls
    assert fake.live() == []


def test_no_share(start: Start, fake: FakeBatch, tmp_path: Path) -> None:
    """The list can't be written: the tasks fail with that sentence, and no job exists."""
    (tmp_path / "share").write_text("a file")
    d = start()
    submit(d, range(10))
    ends = d.ends_of(set(range(10)), timeout=100)
    assert {e["failure"] for e in ends.values()} == {"start"}
    assert "put the list of an array job into the share" in ends[0]["text"]
    assert fake.jobs == {}
