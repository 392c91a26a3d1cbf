"""The remote backend and the agent, without an engine."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import time
from pathlib import Path
from typing import Any

import pytest
from conftest import Drive
from waiting import wait_for


def test_a_task_end_to_end(drive: Drive) -> None:
    script = "echo hello; sleep 0.3; echo oops >&2; echo 5 > $STOKER_OUTPUT/model; pwd"
    end = drive.end(drive.task(script, outputs=["model"]))
    assert end["ok"] and end["exit_status"] == 0, end
    assert (drive.dir() / "stdout.log").read_text().startswith("hello\n")
    assert (drive.dir() / "stderr.log").read_text() == "oops\n"
    result = json.loads((drive.dir() / "result.json").read_text())
    digest = result["outputs"]["model"]["digest"]
    assert result["outputs"]["model"] == {"path": "out/model", "digest": digest, "size": 2}
    assert (drive.dir() / "samples.bin").exists()
    granted = json.loads((drive.dir() / "granted.json").read_text())
    assert granted["cpu_count"] >= 1 and granted["devices"] == []
    assert granted["checkpoints"] == {"n": 0, "saved": False}
    # its bytes are in the share, not here
    assert not (drive.store / "artifacts" / digest[:2] / digest[2:]).exists()
    assert (drive.share / "artifacts" / digest[:2]).exists()
    assert len(drive.cluster.history) == 1
    wait_for(lambda: drive.cluster.forgotten == drive.cluster.history)  # nothing is left behind


@pytest.mark.parametrize(
    ("script", "failure", "status", "number"),
    [
        ("exit 3", "exit", 3, 0),
        ("kill -9 $$", "signal", -1, 9),
        ("nonsense-command", "exit", 127, 0),
    ],
)
def test_how_it_ended(drive: Drive, script: str, failure: str, status: int, number: int) -> None:
    end = drive.end(drive.task(f"echo words; {script}"))
    assert not end["ok"]
    assert (end["failure"], end["exit_status"] or -1, end["signal"]) == (failure, status, number)
    assert (drive.dir() / "stdout.log").read_text() == "words\n"
    name = drive.cluster.history[0]
    expected = 128 + number if number else status
    assert drive.cluster.done[name]["exit_status"] == expected, (
        "the container ends as the program did"
    )


def test_inputs_links_and_folders(drive: Drive, tmp_path: Path) -> None:
    made = drive.end(
        drive.task(
            "mkdir -p $STOKER_OUTPUT/d/e; echo a > $STOKER_OUTPUT/d/e/f; echo b > $STOKER_OUTPUT/x",
            "make",
            ["d", "x"],
        )
    )
    assert made["ok"]
    outputs = json.loads((drive.dir("make") / "result.json").read_text())["outputs"]
    assert outputs["d"]["format"] == "dir"
    inputs, links = {}, drive.dir("use") / "in"
    links.mkdir(parents=True)
    for name in ("d", "x"):
        digest = outputs[name]["digest"]
        path = drive.store / "artifacts" / digest[:2] / digest[2:]
        inputs[name] = {
            "path": str(path),
            "digest": digest,
            "format": "file",
            "type": "file",
            "meta": {},
        }
        (links / name).symlink_to(path)
    (links / "list").mkdir()
    (links / "list" / "0").symlink_to(inputs["x"]["path"])
    end = drive.end(
        drive.task("cd $STOKER_TASK_DIR/in && cat d/e/f x list/0", "use", inputs=inputs)
    )
    assert end["ok"], end
    assert (drive.dir("use") / "stdout.log").read_text() == "a\nb\nb\n"


def test_time_limit_and_notice(drive: Drive) -> None:
    script = "trap 'echo told; exit 4' TERM; while :; do sleep 0.05; done"
    end = drive.end(drive.task(script, timeout_ms=1500, notice_ms=700))
    assert end["failure"] == "timeout", end
    assert "told" in (drive.dir() / "stdout.log").read_text()


def test_stop(drive: Drive) -> None:
    end = drive.end(
        drive.task("trap 'echo told; exit 4' TERM; while :; do sleep 0.05; done"),
        stop=[{"id": 0, "after_ms": 2000}],
    )
    assert end["failure"] == "cancelled", end
    assert "told" in (drive.dir() / "stdout.log").read_text()
    wait_for(lambda: drive.cluster.forgotten == drive.cluster.history)


def test_stop_before_it_has_a_pod(drive: Drive) -> None:
    drive.cluster.pending["train"] = "0/3 nodes are available: 3 Insufficient nvidia.com/gpu."
    reports = drive(drive.task("true"), stop=[{"id": 0, "after_ms": 1000}])
    notes = [r["text"] for r in reports if r["kind"] == "note"]
    assert notes == ["step 'train': waits: 0/3 nodes are available: 3 Insufficient nvidia.com/gpu."]
    assert reports[-1]["failure"] == "cancelled"
    assert drive.cluster.history == []


SAVER = """
trap 'cp -r $STOKER_CHECKPOINT_DIR/.new $STOKER_CHECKPOINT_DIR/last; exit 75' TERM
mkdir -p $STOKER_CHECKPOINT_DIR/.new; ls $STOKER_CHECKPOINT_DIR; date > $STOKER_CHECKPOINT_DIR/.new/state
echo first > $STOKER_CHECKPOINT_DIR/early
echo ready; while :; do sleep 0.05; done
"""


def test_preempted_with_a_checkpoint(drive: Drive) -> None:
    process = drive.begin(drive.task(SAVER))
    pod = drive.cluster.pod("train")
    wait_for(lambda: "ready" in pod.log.read_text())
    pod.signal(signal.SIGTERM)
    end = drive.finish(process)[-1]
    assert end["failure"] == "preempted", end
    assert drive.cluster.done[drive.cluster.history[0]]["exit_status"] == 75
    granted = json.loads((drive.dir() / "granted.json").read_text())
    assert granted["checkpoints"] == {"n": 2, "saved": True}
    known = json.loads((drive.key().parent / "checkpoints.json").read_text())
    assert list(known) == ["early", "last"] and known["last"]["attempt"] == 1
    kept = drive.key().parent / "checkpoints"
    assert {p.name for p in kept.iterdir()} == {one["digest"] for one in known.values()}
    # its next attempt, on another node, has them: writable, and its own end says that nothing is newer
    again = "cat $STOKER_CHECKPOINT_DIR/early; test -s $STOKER_CHECKPOINT_DIR/last/state; echo x >> $STOKER_CHECKPOINT_DIR/last/state"
    end = drive.end(drive.task(again, attempt=2))
    assert end["ok"], end
    assert (drive.dir(attempt=2) / "stdout.log").read_text() == "first\n"


def test_checkpoints_that_are_replaced(drive: Drive) -> None:
    """The store has the checkpoints of the task and no others; other objects don't matter."""
    script = """
d=$STOKER_CHECKPOINT_DIR; mkdir -p $d
for i in 1 2 3; do
    mkdir $d/.new; echo $i > $d/.new/state; echo same > $d/.new/same; mv $d/.new $d/last.$i
    until grep -q last.$i $LIST; do sleep 0.05; done
    rm -rf $d/last.$((i - 1))
done
until ! grep -q last.2 $LIST; do sleep 0.05; done
sleep 0.3; exit 75
"""
    listed = drive.key().parent / "checkpoints.json"
    drive.cluster.keep.append(str(drive.share))
    end = drive.end(drive.task(script, env=[f"LIST={listed}"]))
    assert not end["ok"], end
    known = json.loads(listed.read_text())
    assert list(known) == ["last.3"]
    kept = drive.key().parent / "checkpoints"
    assert [p.name for p in kept.iterdir()] == [known["last.3"]["digest"]]
    # one that isn't there any more is no reason to fail
    listed.write_text(json.dumps({"gone": {"digest": "0" * 64, "attempt": 1}, **known}))
    again = "ls $STOKER_CHECKPOINT_DIR; cat $STOKER_CHECKPOINT_DIR/last.3/state"
    end = drive.end(drive.task(again, attempt=2))
    assert end["ok"] and (drive.dir(attempt=2) / "stdout.log").read_text() == "last.3\n3\n", end


def test_an_attempt_that_was_given_up(drive: Drive) -> None:
    """The engine lost its node, and it continues: it can't touch the next attempt's checkpoints."""
    script = """
d=$STOKER_CHECKPOINT_DIR; mkdir -p $d; echo 1 > $d/one; echo saved
until [ -e $GO ]; do sleep 0.05; done
rm $d/one; echo 2 > $d/two; sleep 3; exit 75
"""
    go = drive.share / "go"
    drive.cluster.keep.append(str(drive.share))
    process = drive.begin(drive.task(script, env=[f"GO={go}"]))
    listed = drive.key().parent / "checkpoints.json"
    wait_for(lambda: listed.exists())
    before = listed.read_text()
    drive.key(attempt=2).mkdir()
    (drive.key(attempt=2) / "job.json").write_text("{}")
    go.touch()
    process.communicate(timeout=60)
    assert listed.read_text() == before
    assert (drive.key().parent / "checkpoints" / json.loads(before)["one"]["digest"]).exists()


def test_told_before_it_listens(drive: Drive) -> None:
    """It ends as soon as it listens: nothing is fetched, which would fail here."""
    made = drive.end(drive.task("echo b > $STOKER_OUTPUT/x", "make", ["x"]))
    digest = json.loads((drive.dir("make") / "result.json").read_text())["outputs"]["x"]["digest"]
    path = str(drive.store / "artifacts" / digest[:2] / digest[2:])
    x = {"path": path, "digest": digest, "format": "file", "type": "file", "meta": {}}
    drive.cluster.wrap = ["sh", "-c", '"$@"; exit $?', "sh"]  # PID 1 can't be stopped
    drive.cluster.env["STOKER_FAILPOINTS"] = "agent.begin:1:stop"
    process = drive.begin(drive.task("echo ran", inputs={"x": x}))
    pod = drive.cluster.pod("train")
    wait_for(lambda: pod.stopped() is not None)
    agent = pod.stopped()
    shutil.rmtree(drive.share / "artifacts")
    os.kill(agent, signal.SIGTERM)
    os.kill(agent, signal.SIGCONT)
    end = drive.finish(process)[-1]
    assert made["ok"] and end["failure"] == "preempted", end
    assert end["text"] == "stopped before its program started"
    assert drive.cluster.done[drive.cluster.history[1]]["exit_status"] == 75


def test_killed_keeps_what_it_had_saved(drive: Drive) -> None:
    process = drive.begin(drive.task(SAVER))
    pod = drive.cluster.pod("train")
    wait_for(lambda: (drive.key().parent / "checkpoints.json").exists())
    pod.signal(signal.SIGKILL)
    end = drive.finish(process)[-1]
    assert end["failure"] == "lost" and "killed" in end["text"], end
    granted = json.loads((drive.dir() / "granted.json").read_text())
    assert granted["checkpoints"] == {"n": 1, "saved": True}
    assert "ready" in (drive.dir() / "stdout.log").read_text(), "what it had written until then"


def test_the_engines_word_on_memory(drive: Drive) -> None:
    process = drive.begin(drive.task("echo ready; sleep 60"))
    pod = drive.cluster.pod("train")
    wait_for(lambda: pod.log.exists() and "ready" in pod.log.read_text())
    drive.cluster.finish(
        drive.cluster.history[0],
        phase="ended",
        exit_status=137,
        oom=True,
        text="OOMKilled: limit 1 GB",
    )
    end = drive.finish(process)[-1]
    assert end["failure"] == "host_oom"
    assert end["text"].startswith("host OOM (OOMKilled: limit 1 GB); ")


def test_a_second_pod_touches_nothing(drive: Drive) -> None:
    """Kubernetes created the pod again on another node, because the first seemed lost."""
    process = drive.begin(drive.task("echo once >> $STOKER_OUTPUT/x; sleep 2", outputs=["x"]))
    pod = drive.cluster.pod("train")
    wait_for(lambda: (drive.key() / "claim").exists())
    second = type(pod)(drive.cluster, pod.job, 0)
    assert second.process.wait(30) == 73
    assert "this attempt already runs elsewhere (pod s-" in pod.log.read_text()
    end = drive.finish(process)[-1]
    assert end["ok"], end


@pytest.mark.parametrize("claim", ["pod old-pod, 1.1", ""])
def test_claimed_by_a_pod_that_is_gone(drive: Drive, claim: str) -> None:
    drive.key().mkdir(parents=True)
    (drive.key() / "claim").write_text(claim)
    end = drive.end(drive.task("true"))
    assert end["failure"] == "lost" and "another pod started this attempt" in end["text"], end


def test_let_go_and_attached(drive: Drive) -> None:
    task = drive.task("sleep 2; echo done")
    drive.finish(drive.begin(task, leave_ms=1000))
    assert not drive.cluster.done
    end = drive.end(task | {"attach": True})
    assert end["ok"], end
    assert (drive.dir() / "stdout.log").read_text() == "done\n"
    assert len(drive.cluster.history) == 1, "it ran once"


def test_attached_after_its_end(drive: Drive) -> None:
    task = drive.task("echo done")
    process = drive.begin(task, leave_ms=300)
    drive.finish(process)
    wait_for(lambda: (drive.key() / "end.json").exists() or not drive.cluster.history)
    for path in drive.cluster.folder.glob("s-*"):  # its engine has cleaned up, too
        path.unlink(missing_ok=True)
    end = drive.end(task | {"attach": True})
    assert end["ok"], end


def test_attached_though_it_never_began(drive: Drive) -> None:
    end = drive.end(drive.task("echo done", attach=True))
    assert end["ok"], end


def test_attached_but_gone(drive: Drive) -> None:
    drive.key().mkdir(parents=True)
    (drive.key() / "claim").write_text("pod old-pod, 1.1")
    end = drive.end(drive.task("true", attach=True))
    assert end["failure"] == "lost" and end["text"] == "its pod disappeared", end


def test_secrets_are_in_no_object(drive: Drive) -> None:
    secret = "hunter2-and-more"
    script = 'echo "it is $TOKEN"; echo "$TOKEN" >&2; test "$TOKEN" = hunter2-and-"more"'
    task = drive.task(script, secrets=["TOKEN"])
    task["env"].append(f"TOKEN={secret}")
    end = drive.end(task)
    assert end["ok"], end
    assert (drive.dir() / "stdout.log").read_text() == "it is " + "*" * len(secret) + "\n"
    for path in drive.share.rglob("*"):
        assert not path.is_file() or secret.encode() not in path.read_bytes(), path
    for path in drive.dir().rglob("*"):
        assert not path.is_file() or secret.encode() not in path.read_bytes(), path


def test_secrets_are_hidden_while_it_runs(drive: Drive, tmp_path: Path) -> None:
    """In the container's own output, which anybody may read who may look at the cluster, and in the share."""
    secret, go = "hunter2-and-more", tmp_path / "go"
    script = f'echo "it is $TOKEN"; printf hunter2-; while [ ! -e {go} ]; do sleep 0.02; done; echo and-more'
    script += """; echo '{"stoker":1,"status":"failed","error":{"message":"bad '$TOKEN'"},"metadata":{"a":"'$TOKEN'"}}' > $STOKER_TASK_DIR/result.json; exit 3"""
    task = drive.task(script, secrets=["TOKEN"])
    task["env"].append(f"TOKEN={secret}")
    process = drive.begin(task)
    wait_for(lambda: drive.cluster.history)
    log = drive.cluster.folder / f"{drive.cluster.history[0]}.log"
    wait_for(lambda: log.exists() and b"it is " + b"*" * len(secret) in log.read_bytes())
    assert secret.encode() not in log.read_bytes()
    kept = log.read_bytes
    go.touch()
    drive.finish(process)
    assert (drive.dir() / "stdout.log").read_text() == f"it is {'*' * 16}\n{'*' * 16}\n"
    said = json.loads((drive.dir() / "result.json").read_text())
    assert said["error"]["message"] == f"bad {'*' * 16}", (
        "an error is shown, and others read the share"
    )
    assert said["metadata"] == {"a": secret}, "data is data"
    assert not log.exists() or secret.encode() not in kept()


CLAIM = json.dumps({"path": "out/x", "digest": "ab" * 32, "size": 7})


def test_a_claimed_digest_is_not_believed(drive: Drive) -> None:
    result = f'{{"stoker":1,"status":"ok","outputs":{{"x":{CLAIM}}}}}'
    script = f"echo hello > $STOKER_OUTPUT/x; echo '{result}' > $STOKER_TASK_DIR/result.json"
    end = drive.end(drive.task(script, outputs=["x"]))
    assert end["failure"] == "output", end
    assert "gives digest abababababab…" in end["text"] and "its content has" in end["text"]
    assert not (drive.share / "artifacts" / "ab" / ("ab" * 31)).exists()


def test_what_a_failed_result_says_of_contents_is_taken_out(drive: Drive) -> None:
    result = f'{{"stoker":1,"status":"failed","outputs":{{"x":{CLAIM}}}}}'
    script = f"echo '{result}' > $STOKER_TASK_DIR/result.json; exit 1"
    assert drive.end(drive.task(script, outputs=["x"]))["failure"] == "exit"
    said = json.loads((drive.dir() / "result.json").read_text())
    assert said == {"stoker": 1, "status": "failed", "outputs": {"x": {"path": "out/x"}}}


@pytest.mark.parametrize(
    "result", ["[1, 2, 3, 4, 5]", '"a text of more bytes than a node has"', "7", "null"]
)
def test_a_result_that_is_no_object_is_left_to_the_engine(drive: Drive, result: str) -> None:
    end = drive.end(drive.task(f"echo '{result}' > $STOKER_TASK_DIR/result.json"))
    assert end["ok"], end
    assert (drive.dir() / "result.json").read_text() == result + "\n"


def test_a_result_that_names_what_is_not_its_own(drive: Drive) -> None:
    drive.store.mkdir(parents=True, exist_ok=True)
    (drive.store / "private").write_text("not yours")
    said = json.dumps({"path": "../../../../../private", "digest": "ab" * 32, "size": 7})
    result = f'{{"stoker":1,"status":"ok","outputs":{{"x":{said}}}}}'
    drive.end(drive.task(f"echo '{result}' > $STOKER_TASK_DIR/result.json"))
    assert (drive.store / "private").exists()
    kept = json.loads((drive.dir() / "result.json").read_text())["outputs"]["x"]
    assert "digest" not in kept  # and its path is refused when it is read
    assert not any((drive.share / "artifacts").rglob("*")), "nothing of it went to the share"


def test_devices_that_are_not_there(drive: Drive) -> None:
    end = drive.end(drive.task("touch /tmp/never; echo ran", gpu_count=2, gpu_vendor="nvidia"))
    assert end["failure"] == "resources", end
    assert end["text"].startswith(
        "it asked for 2 nvidia devices, but 0 can be used in its container: "
    )
    assert (
        not (drive.dir() / "stdout.log").exists()
        or "ran" not in (drive.dir() / "stdout.log").read_text()
    )


def test_devices_that_only_the_container_asks_for(drive: Drive) -> None:
    """An option of the engine asks for them instead of the step's resources: no silent run on the
    CPU."""
    drive.cluster.env["STOKER_ASKED_DEVICES"] = "nvidia 1"
    end = drive.end(drive.task("touch $STOKER_OUTPUT/never"))
    assert end["failure"] == "resources", end
    assert end["text"].startswith("it asked for 1 nvidia device, but 0 can be used")
    drive.cluster.env["STOKER_ACCEL"] = "sim:2xH100"
    end = drive.end(drive.task("echo $CUDA_VISIBLE_DEVICES", task=1))
    assert end["ok"] and end["n_devices"] == 1, end


@pytest.mark.parametrize(
    ("asked", "has", "words"),
    [
        ({"gpu_class": "H100"}, None, "1 nvidia device of gpu_class H100, but 0 can be used"),
        ({"gpu_class": "H100"}, "sim:2xA100", "of gpu_class H100, but 0 can be used"),
        ({"gpu_class": "H100"}, "sim:2xH100", None),
        ({"gpu_class": "Trainium"}, "sim:2xA100", "1 aws device of gpu_class Trainium"),
        ({"gpu_class": "Trainium"}, "sim:4xTrainium", None),
        ({"gpu_vendor": "amd"}, "sim:2xA100", "1 amd device, but 0 can be used"),
        ({"gpu_class": "the-fast-ones"}, "sim:2xA100", None),  # a word of the cluster's own
        ({"gpu_class": "the-fast-ones"}, None, "1 device of gpu_class the-fast-ones"),
        ({"gpu_count": 0, "gpu_class": "H100"}, None, None),
    ],
)
def test_a_kind_without_a_count_is_one_device(
    drive: Drive, asked: dict[str, Any], has: str | None, words: str | None
) -> None:
    if has is not None:
        drive.cluster.env["STOKER_ACCEL"] = has
    end = drive.end(drive.task("echo ran > $STOKER_OUTPUT/ran", **asked))
    assert (end["failure"] == "resources" and words in end["text"]) if words else end["ok"], end
    assert not end["ok"] or end["n_devices"] == asked.get("gpu_count", 1)


def test_devices_that_are_there(drive: Drive) -> None:
    drive.cluster.env["STOKER_ACCEL"] = "sim:4xH100"
    end = drive.end(drive.task("echo $CUDA_VISIBLE_DEVICES", gpu_count=2, gpu_vendor="nvidia"))
    assert end["ok"] and end["n_devices"] == 2, end
    granted = json.loads((drive.dir() / "granted.json").read_text())
    assert [d["index"] for d in granted["devices"]] == [0, 1]
    assert len((drive.dir() / "stdout.log").read_text().split(",")) == 2


def test_large_files_and_bytes(drive: Drive) -> None:
    script = "head -c 300000 /dev/zero | tr '\\\\0' x; printf '\\\\377\\\\000' > $STOKER_TASK_DIR/raw; mkdir -p $STOKER_TASK_DIR/cards; echo '{}' > $STOKER_TASK_DIR/cards/default.json"
    end = drive.end(drive.task(script.replace("\\\\", "\\")))
    assert end["ok"], end
    assert (drive.dir() / "stdout.log").stat().st_size == 300000
    assert (drive.dir() / "raw").read_bytes() == b"\xff\x00"
    assert (drive.dir() / "cards/default.json").read_text() == "{}\n"


def test_output_that_cannot_be_kept(drive: Drive) -> None:
    end = drive.end(drive.task("ln -s /etc/passwd $STOKER_OUTPUT/x", outputs=["x"]))
    assert (
        end["failure"] == "output"
        and "output 'x'" in end["text"]
        and "symbolic link" in end["text"]
    ), end


def test_share_out_of_reach(drive: Drive) -> None:
    drive.share.write_text("not a folder")
    end = drive.end(drive.task("true"), env={"STOKER_SHARE_WAIT": "1"})
    assert end["failure"] == "store", end
    assert "can't put its inputs into the share" in end["text"]


def test_share_gone_while_it_ends(drive: Drive) -> None:
    """Finished work isn't lost if the store can't be reached for some seconds."""
    process = drive.begin(
        drive.task("echo ready; sleep 1; echo 5 > $STOKER_OUTPUT/x", outputs=["x"])
    )
    pod = drive.cluster.pod("train")
    wait_for(lambda: pod.log.exists() and "ready" in pod.log.read_text())
    aside = drive.share.rename(drive.share.with_name("aside"))
    drive.share.write_text("not a folder")
    time.sleep(4)  # sleeps: it would have given up by now
    assert pod.end() is None, "it tries again"
    drive.share.unlink()
    aside.rename(drive.share)
    end = drive.finish(process)[-1]
    assert end["ok"], end


def test_engine_that_refuses_everything(drive: Drive) -> None:
    process = drive.begin(drive.task("sleep 60"), drive.task("sleep 60", "other", task=1))
    drive.cluster.pod("train")
    (drive.cluster.folder / "engine.broken").write_text(
        "the token of context 'x' has expired; log in again"
    )
    ends = [r for r in drive.finish(process) if r["kind"] == "ended"]
    assert len(ends) == 2
    assert {e["failure"] for e in ends} == {"start"}
    assert all("the token of context 'x' has expired" in e["text"] for e in ends)


def test_pid_1_reaps_and_passes_signals_on(drive: Drive) -> None:
    """Orphans of the task don't stay as zombies, and end with it."""
    script = "for i in 1 2 3; do (sleep 0.1 & ) ; done; (setsid sleep 1000 &); sleep 2.5; ps -eo stat,comm | grep -c '^Z' ; true"
    end = drive.end(drive.task(script))
    assert end["ok"], end
    assert (drive.dir() / "stdout.log").read_text().strip() == "0"


def test_many_jobs_few_threads(drive: Drive) -> None:
    """All wait in the engine's queue: nothing here runs for them but eight threads and the driver's."""
    drive.cluster.pending["s-"] = "no room"
    tasks = [drive.task("true", task=i) for i in range(300)]
    process = drive.begin(*tasks, leave_ms=20000)
    wait_for(lambda: len(list(drive.cluster.folder.glob("s-*.json"))) == 300, why=60)
    status = Path(f"/proc/{process.pid}/status").read_text()
    assert int(re.search(r"Threads:\s+(\d+)", status)[1]) <= 1 + 8 + 1
    process.kill()
    process.wait()
