"""Hostile and unlucky tasks: what they do to their own folder, to files, to the engine."""

from __future__ import annotations

import json

from cli_tools import Cli


def test_pipe_in_place_of_a_file_does_not_stop_the_engine(cli: Cli) -> None:
    """Opening a named pipe waits for its other end, so the engine opens what a task may have made
    without waiting."""
    run = cli.run(
        {
            "samples": {"run": "mkfifo $STOKER_TASK_DIR/samples.bin; sleep 0.3"},
            "log": {
                "run": "cd $STOKER_TASK_DIR; rm stderr.log stdout.log; mkfifo stderr.log stdout.log; false",
                "hooks": {"on_failure": {"run": "echo no"}},
                "secrets": ["token"],
            },
        },
        env={"STOKER_SECRET_token": "abcdef"},
    )
    assert run.statuses == {"samples": "succeeded", "log": "failed"}
    assert any("a hook of step 'log' could not be started" in note for note in run.shown["notes"])


def test_secret_in_a_log_with_a_hole_is_masked(cli: Cli) -> None:
    """A log may say that it has terabytes, or be cut while it is read."""
    run = cli.run(
        {
            "a": {
                "run": "truncate -s 900G $STOKER_TASK_DIR/stdout.log; echo $token; "
                "head -c 1048570 /dev/zero | tr '\\0' x >&2; echo $token >&2",
                "secrets": ["token"],
            }
        },
        env={"STOKER_SECRET_token": "tell-nobody"},
    )
    assert run.statuses == {"a": "succeeded"}
    assert run.text("a", "stderr").endswith("xx***********\n")
    with open(run.steps["a"]["logs"]["stdout"], "rb") as log:
        log.seek(900 << 30)
        assert log.read() == b"***********\n"


def test_devices_of_the_class_that_was_asked_for(cli: Cli) -> None:
    """Leases are of devices that fit, and who waits for one kind doesn't hold up another."""
    models = {"GPU-a": "NVIDIA A100-SXM4-80GB", "GPU-b": "Tesla T4", "GPU-c": "Tesla T4"}
    cli.devices(*models)
    cli.write("devices.json", json.dumps([{"uuid": u, "model": m} for u, m in models.items()]))
    say = 'echo "$CUDA_VISIBLE_DEVICES"; sleep 0.4'

    def step(name: str) -> dict[str, object]:
        return {"run": say, "resources": {"cpu_count": 0.25, "gpu_count": 1, "gpu_class": name}}

    run = cli.run({"t": step("T4"), "a": step("A100"), "b": step("A100"), "u": step("T4")})
    assert run.code == 0
    assert {run.text(s).strip() for s in ("a", "b")} == {"GPU-a"}
    assert {run.text(s).strip() for s in ("t", "u")} == {"GPU-b", "GPU-c"}
    begun = {name: s["started_ms"] for name, s in run.steps.items()}
    assert max(begun, key=lambda name: begun[name]) == "b"  # alone waited for the one A100
