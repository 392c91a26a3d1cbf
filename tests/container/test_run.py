"""Whole runs with steps in containers: `stoker run --with docker`, and steps that ask for it themselves."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path
from typing import Any

from run_tools import WAIT_S, Project, log_when_up, ours, wait_for

# ---------------------------------------------------------------------------- commands


def test_command_in_scratch(project: Project, scratch: str) -> None:
    """An image without a shell, a libc, or files of Stoker."""
    project.write(
        "p.yaml",
        f"""
        stoker: 1
        name: p
        docker: {{parent_image: {scratch}}}
        steps:
          a: {{run: [/probe, say, hello]}}
        """,
    )
    shown = project.run("--with", "docker")
    step = shown["steps"]["a"]
    assert project.log(step) == "hello\n"
    assert step["granted"]["image"]["name"] == scratch
    assert step["granted"]["image"]["id"].startswith("sha256:")
    assert f"image      {scratch}" in project.stoker("show", "latest/a").stdout
    assert f"in {scratch}" in next(project.folder.glob(".stoker/runs/*/card.html")).read_text()
    wait_for(
        lambda: ours(project.podman, shown["run"]) == []
    )  # the engine removes it when it has ended


def test_command_in_debian(project: Project, debian: str) -> None:
    """Its shell, its variables, the project's files, inputs and outputs in the store, and files
    that belong to us."""
    project.write("tool.sh", "#!/bin/sh\necho from tool\n", 0o755)
    project.write("data/table.csv", "1,2\n")
    project.write(".gitignore", "data/\n.stoker/\n")
    project.write(
        "p.yaml",
        f"""
        stoker: 1
        name: p
        parameters: {{n: 7}}
        steps:
          a:
            run: "echo made outside > $STOKER_OUTPUT/x"
            outputs: [x]
          b:
            run: >-
              ./tool.sh; echo $IMAGE_SAYS $STOKER_PARAM_n $COLOUR; cat $STOKER_INPUT_x $STOKER_INPUT_t;
              pwd; cat in/x 2>/dev/null; cat $STOKER_INPUT/x > $STOKER_OUTPUT/y; touch no 2>&1 || echo read-only
            environment: {{COLOUR: blue}}
            inputs: {{x: {{from: a.x}}, n: {{param: n}}, t: {{file: data/table.csv}}}}
            outputs: [y]
            backend: docker
            docker: {{parent_image: {debian}}}
          c:
            run: cat $STOKER_INPUT_y
            inputs: {{y: {{from: b.y}}}}
        """,
    )
    shown = project.run()
    b = shown["steps"]["b"]
    lines = project.log(b).splitlines()
    assert lines[:5] == ["from tool", "hello 7 blue", "made outside", "1,2", str(project.folder)]
    assert lines[-1] == "read-only"
    assert project.log(shown["steps"]["c"]) == "made outside\n"
    out = Path(b["outputs"]["y"]["path"])
    assert out.stat().st_uid == os.getuid() and out.stat().st_gid == os.getgid()
    assert "image" not in shown["steps"]["a"]["granted"]
    assert not (project.folder / "no").exists()


def test_secrets_stay_out(project: Project, debian: str) -> None:
    """A secret reaches the program, and neither the container's configuration nor a file of ours."""
    project.write(
        "p.yaml",
        f"""
        stoker: 1
        name: p
        steps:
          a:
            run: "[ ${{#TOKEN}} = 7 ] && echo right $TOKEN; sleep 600"
            secrets: [TOKEN]
            timeout: 60
        docker: {{parent_image: {debian}}}
        """,
    )
    project.env["STOKER_SECRET_TOKEN"] = "hunter2"
    engine = project.start("--with", "docker", "p.yaml")
    try:
        state = wait_for(lambda: list(project.folder.glob(".stoker/runs/*/a/0/1/container.json")))[
            0
        ]
        inspected = project.podman("inspect", json.loads(state.read_text())["name"]).stdout
        assert "hunter2" not in inspected and '"stoker.run"' in inspected
        attempt = state.parent
        assert "hunter2" not in (attempt / "task.json").read_text()
        wait_for(lambda: (attempt / "stdout.log").read_text() == "right *******\n")
    finally:
        engine.send_signal(signal.SIGINT)
        engine.wait(WAIT_S)


# ---------------------------------------------------------------------------- the cache


def test_cache_knows_the_image(project: Project, debian: str, scratch: str) -> None:
    """A second run is a hit; another image under the same name is a miss with its reason."""
    tag = "localhost/moving:1"
    project.podman("tag", debian, tag)
    project.write(
        "p.yaml",
        f"""
        stoker: 1
        name: p
        docker: {{parent_image: {tag}}}
        steps:
          a: {{run: echo hi}}
        """,
    )
    first = project.run("--with", "docker")
    assert not first["steps"]["a"]["cached"]
    assert project.run("--with", "docker")["steps"]["a"]["cached"]
    plan = json.loads(project.stoker("plan", "--json", "--with", "docker", "p.yaml").stdout)
    assert (
        plan["steps"][0] | {"backend": "docker", "image": tag, "cached": True} == plan["steps"][0]
    )
    assert plan["steps"][0]["image_id"] == first["steps"]["a"]["granted"]["image"]["id"]
    changed = project.folder.parent / "changed"
    changed.mkdir()
    (changed / "Dockerfile").write_text(f"FROM {debian}\nENV MORE=1\n")
    project.podman("build", "-q", "-t", tag, str(changed))
    text = project.stoker("plan", "--with", "docker", "p.yaml").stdout
    assert f"in {tag}" in text and "image changed" in text
    again = project.run("--with", "docker")["steps"]["a"]
    assert not again["cached"] and again["miss"] == "image changed"


def test_cache_knows_how_a_container_runs(project: Project, debian: str) -> None:
    """The key has what the program sees besides the image: variables and user of the container."""
    text = """
        stoker: 1
        name: p
        docker: {parent_image: %s, %s}
        steps:
          a: {run: "echo $WORD > $STOKER_OUTPUT/x", outputs: [x]}
        """
    for said, cached in (
        ("runtime_environment: {WORD: one}", False),
        ("runtime_environment: {WORD: one}", True),
        ("runtime_environment: {WORD: two}", False),
        ("runtime_environment: {WORD: two}, user: '0:0'", False),
        ("skip_build: true, environment: {WORD: three}", False),
        ("skip_build: true, environment: {WORD: four}", False),
    ):
        project.write("p.yaml", text % (debian, said))
        step = project.run("--with", "docker")["steps"]["a"]
        assert step["cached"] == cached, said
        assert step["miss"] in (None, "never ran before", "configuration of its container changed")


# ---------------------------------------------------------------------------- how it ends


def failing(project: Project, image: str, step: str) -> dict[str, Any]:
    project.write(
        "p.yaml",
        f"""
        stoker: 1
        name: p
        docker: {{parent_image: {image}}}
        steps:
          a: {{{step}}}
        """,
    )
    shown = project.run("--with", "docker", ok=False)
    wait_for(
        lambda: ours(project.podman, shown["run"]) == []
    )  # the engine removes it when it has ended
    return dict(shown["steps"]["a"])


def test_exit_status(project: Project, debian: str) -> None:
    error = failing(project, debian, "run: 'echo no >&2; exit 3'")["error"]
    assert error["class"] == "exit" and "exit status 3" in error["text"]


def test_retries(project: Project, debian: str) -> None:
    step = failing(project, debian, "run: 'exit 1', retry: {max_retries: 2, delay: 0}")
    assert step["attempts"] == 3


def test_timeout(project: Project, debian: str) -> None:
    begin = time.monotonic()
    error = failing(project, debian, "run: sleep 600, timeout: 1, grace: 0.5")["error"]
    assert error["class"] == "timeout" and time.monotonic() - begin < WAIT_S / 2


def test_out_of_memory(project: Project, debian: str) -> None:
    hog = "head -c 300000000 /dev/zero | python3 -c 'import sys; sys.stdin.read()'"
    error = failing(project, debian, f'run: "{hog}", resources: {{memory: 60MB}}')["error"]
    assert error["class"] == "host_oom", error
    assert "of its 60 MB" in error["text"]


def test_no_such_program(project: Project, scratch: str) -> None:
    error = failing(project, scratch, "run: [/nothing]")["error"]
    assert (
        error["class"] == "start"
        and f"image '{scratch}' has no program '/nothing'" in error["text"]
    )


def test_python_step_needs_python(project: Project, scratch: str) -> None:
    project.write("code.py", "def f():\n    pass\n")
    error = failing(project, scratch, "python: 'code:f'")["error"]
    assert error["class"] == "start" and "has no program 'python3'" in error["text"]


def test_cancel(project: Project, debian: str) -> None:
    project.write(
        "p.yaml",
        f"""
        stoker: 1
        name: p
        docker: {{parent_image: {debian}}}
        steps:
          a: {{run: "trap 'echo told; exit 1' TERM; echo up; sleep 600 & wait", grace: 20}}
        """,
    )
    engine = project.start("--with", "docker", "p.yaml")
    log = log_when_up(project, "a")
    top = json.loads(project.stoker("top", "--json").stdout)
    assert [s["step"] for s in top["steps"] if s["dir"] == str(log.parent)] == ["a"]
    assert "up" in project.stoker("logs", "latest/a").stdout
    project.stoker("cancel", "latest", ok=None)
    engine.wait(WAIT_S)
    shown = project.show()
    assert shown["status"] == "cancelled" and "told" in log.read_text()
    wait_for(
        lambda: ours(project.podman, shown["run"]) == []
    )  # the engine removes it when it has ended


def test_engine_killed(project: Project, debian: str) -> None:
    """SIGKILL of the engine ends the container; resume goes on."""
    flag = project.folder.parent / "go"
    project.write(
        "p.yaml",
        f"""
        stoker: 1
        name: p
        docker: {{parent_image: {debian}}}
        steps:
          a: {{run: "echo first > $STOKER_OUTPUT/x", outputs: [x]}}
          b:
            run: "if [ -e $FLAG ]; then echo done; else echo up; sleep 600; fi"
            inputs: {{x: {{from: a.x}}, where: {{file: {flag}}}}}
            environment: {{FLAG: {flag}/now}}
        """,
    )
    flag.mkdir()
    engine = project.start("--with", "docker", "p.yaml")
    log = log_when_up(project, "b")
    run = log.parts[-5]
    assert len(ours(project.podman, run)) == 1
    engine.kill()
    engine.wait()
    wait_for(lambda: ours(project.podman, run) == [])
    (flag / "now").write_text("")
    project.stoker("resume", "latest")
    shown = project.show()
    assert shown["run"] == run and shown["status"] == "succeeded"
    assert shown["steps"]["b"]["attempts"] == 2 and "image" in shown["steps"]["b"]["granted"]
    assert project.log(shown["steps"]["b"]) == "done\n"


def test_container_killed(project: Project, debian: str) -> None:
    """From outside: the step fails with a sentence, nothing hangs."""
    project.write(
        "p.yaml",
        f"""
        stoker: 1
        name: p
        docker: {{parent_image: {debian}}}
        steps:
          a: {{run: "echo up; sleep 600"}}
        """,
    )
    engine = project.start("--with", "docker", "p.yaml")
    log = log_when_up(project, "a")
    (name,) = ours(project.podman, log.parts[-5])
    project.podman("kill", name)
    assert engine.wait(WAIT_S) == 1
    error = project.show()["steps"]["a"]["error"]
    assert error["class"] == "signal", error
    assert f"container {name} was stopped by another client of Podman" in error["text"], error


# ---------------------------------------------------------------------------- what is measured


def test_used(project: Project, debian: str) -> None:
    """CPU and memory are those of the container, not of our process."""
    code = "b = bytearray(150 << 20); import time; t = time.process_time()\\nwhile time.process_time() - t < 1.5: pass"
    project.write("busy.py", code.replace("\\n", "\n"))
    project.write(
        "p.yaml",
        f"""
        stoker: 1
        name: p
        docker: {{parent_image: {debian}}}
        steps:
          a: {{run: python3 busy.py, resources: {{cpu_count: 1, memory: 400MB}}}}
        """,
    )
    used = project.run("--with", "docker")["steps"]["a"]["used"]
    assert 1.0 < used["cpu_s"] < 30
    assert 150 << 20 < used["peak_memory_bytes"] < 400e6


# ---------------------------------------------------------------------------- refusals


def test_without_image_it_runs_here(project: Project, podman: Any) -> None:
    project.write("p.yaml", "stoker: 1\nname: p\nsteps:\n  a: {run: echo hi}\n")
    shown = project.run("--with", "docker")
    assert "image" not in shown["steps"]["a"]["granted"]
    assert any("names no image" in note for note in shown["notes"])
    project.write(
        "p.yaml",
        "stoker: 1\nname: p\nsteps:\n" + "".join(f"  a{i}: {{run: echo hi}}\n" for i in range(5)),
    )
    notes = [n for n in project.run("--with", "docker")["notes"] if "no image" in n]
    assert len(notes) == 1 and notes[0].startswith("steps 'a0', 'a1' and 3 more name no image")


def test_docker_by_name_needs_an_image(project: Project) -> None:
    project.write("p.yaml", "stoker: 1\nname: p\nsteps:\n  a: {run: echo hi, backend: docker}\n")
    done = project.stoker("run", "p.yaml", ok=False)
    assert done.returncode == 2 and "p.yaml:4" in done.stderr and "names no image" in done.stderr
    text = "stoker: 1\nname: p\nsteps:\n  a: {run: echo hi, %s}\n"
    for words, said in (
        ("backend: docker, docker: {parent_imge: x}", "did you mean 'parent_image'"),
        ("docker: {parent_image: x}, backend: {docker: {network: hots}}", "host, bridge or none"),
        (
            "backend: docker, docker: {parent_image: x, entrypoint: kep}",
            "bypass or keep, not 'kep'",
        ),
    ):
        project.write("p.yaml", text % words)
        done = project.stoker("run", "p.yaml", ok=False)
        assert done.returncode == 2 and "p.yaml:4: step 'a'" in done.stderr
        assert said in done.stderr, done.stderr


def test_what_has_no_effect_is_said(project: Project, scratch: str) -> None:
    """ZenML's `run_args` may be anything that docker-py accepts: a note names arguments that aren't
    passed on."""
    text = """
        stoker: 1
        name: p
        docker: {parent_image: %s}
        backend: {docker: {run_args: {shm_size: 32m, cpu_count: 3}}}
        steps:
          a: {run: [/probe, say, hi]}
        """
    project.write("p.yaml", text % scratch)
    notes = project.run()["notes"]
    assert notes == ["step 'a': run_args: 'cpu_count' has no effect here"]


def test_unknown_stack(project: Project) -> None:
    project.write("p.yaml", "stoker: 1\nname: p\nsteps:\n  a: {run: echo hi}\n")
    done = project.stoker("run", "--with", "dokcer", "p.yaml", ok=False)
    assert "unknown stack 'dokcer'" in done.stderr and "'docker'" in done.stderr


def test_stack_of_the_file(project: Project, debian: str) -> None:
    """default_image, image_map and the socket of stoker.yaml; no DOCKER_HOST."""
    project.write(
        "stoker.yaml",
        f"""
        stacks:
          lab:
            backend: docker
            default_image: nvcr.io/lab/base
            image_map: {{nvcr.io/lab/base: {debian}}}
            socket: {project.podman.socket}
        """,
    )
    project.env.pop("DOCKER_HOST")
    project.write("p.yaml", "stoker: 1\nname: p\nsteps:\n  a: {run: echo $IMAGE_SAYS}\n")
    step = project.run("--with", "lab")["steps"]["a"]
    assert project.log(step) == "hello\n"
    assert step["granted"]["image"]["name"] == "nvcr.io/lab/base"


def test_own_dockerfile(project: Project, debian: str) -> None:
    """It is built once, before the first task; its contents are in the key."""
    project.write("Dockerfile", f"FROM {debian}\nENV MADE=here\n")
    project.write(
        "p.yaml",
        """
        stoker: 1
        name: p
        docker: {dockerfile: Dockerfile}
        steps:
          a: {run: echo $MADE $IMAGE_SAYS}
        """,
    )
    step = project.run("--with", "docker")["steps"]["a"]
    assert project.log(step) == "here hello\n"
    assert project.run("--with", "docker")["steps"]["a"]["cached"]
    project.write("Dockerfile", f"FROM {debian}\nENV MADE=anew\n")
    again = project.run("--with", "docker")["steps"]["a"]
    assert again["miss"] == "image changed" and project.log(again) == "anew hello\n"


def test_image_missing(project: Project) -> None:
    """It fails before anything runs; the plan has a note."""
    project.write(
        "p.yaml",
        """
        stoker: 1
        name: p
        docker: {parent_image: localhost/nothing:1}
        steps:
          a: {run: echo hi}
        """,
    )
    done = project.stoker("run", "--with", "docker", "p.yaml", ok=False)
    assert "image 'localhost/nothing:1' isn't here" in done.stderr
    assert not list((project.folder / ".stoker" / "runs").glob("*"))
    plan = project.stoker("plan", "--with", "docker", "p.yaml").stdout
    assert "image 'localhost/nothing:1' isn't on this machine yet" in plan


def test_no_engine(project: Project, debian: str) -> None:
    """The sentence says what was tried, and nothing runs without a container instead."""
    project.write(
        "p.yaml",
        f"stoker: 1\nname: p\ndocker: {{parent_image: {debian}}}\nsteps:\n  a: {{run: touch ran}}\n",
    )
    project.env["DOCKER_HOST"] = "unix:///nowhere/docker.sock"
    done = project.stoker("run", "--with", "docker", "p.yaml", ok=False)
    assert "/nowhere/docker.sock" in done.stderr and not (project.folder / "ran").exists()


def test_ranks_in_scratch(project: Project, scratch: str) -> None:
    """A gang of two: the launcher brings its loader and libraries into an image without any."""
    project.write(
        "p.yaml",
        f"""
        stoker: 1
        name: p
        docker: {{parent_image: {scratch}}}
        steps:
          a: {{run: [/probe, env, RANK, --, env, WORLD_SIZE], gang: {{ranks: 2}}}}
        """,
    )
    shown = project.run("--with", "docker")
    log = project.log(shown["steps"]["a"])
    assert sorted(log.splitlines()) == ["[0] 0", "[0] 2", "[1] 1", "[1] 2"]
    gang = json.loads((Path(shown["steps"]["a"]["dir"]) / "gang.json").read_text())
    assert gang["status"] == "ok" and gang["ranks"] == 2


def test_devices_are_never_left_out(project: Project, debian: str) -> None:
    """A step with a device is refused if its image can't use it: no silent run on the CPU."""
    project.write(
        "p.yaml",
        f"""
        stoker: 1
        name: p
        docker: {{parent_image: {debian}}}
        steps:
          a: {{run: touch ran, resources: {{gpu_count: 1}}, environment: {{STOKER_ALLOW_CPU_BUILD: 1}}}}
        """,
    )
    devices = project.folder.parent / "devices.json"
    devices.write_text('[{"uuid": "GPU-a", "model": "NVIDIA A100", "memory_bytes": 80000000000}]')
    project.env["STOKER_ACCEL"] = f"fake:{devices}"
    project.env["STOKER_LEASE_DIR"] = str(project.folder.parent / "leases")
    done = project.stoker("run", "--with", "docker", "p.yaml", ok=False)
    assert done.returncode == 2 and "step 'a'" in done.stderr and "CDI" in done.stderr, done.stderr
    assert not (project.folder / "ran").exists()


def test_gc_removes_what_a_dead_engine_left(project: Project, scratch: str) -> None:
    """By the labels of a run without an engine; containers of other stores stay."""
    project.write("p.yaml", "stoker: 1\nname: p\nsteps:\n  a: {run: echo hi}\n")
    run = project.run()["run"]
    store = str(project.folder / ".stoker")
    for name, of in (("left", store), ("foreign", "/other/.stoker")):
        labels = [
            "--label",
            f"stoker.run={run if of == store else 'other'}",
            "--label",
            f"stoker.store={of}",
        ]
        project.podman("create", "--name", f"stoker-{name}", *labels, scratch)
    try:
        assert "would remove 1 container" in project.stoker("store", "gc", "--dry-run").stdout
        assert json.loads(project.stoker("store", "gc", "--json").stdout)["containers_removed"] == 1
        assert "stoker-left" not in project.podman.containers()
        assert "stoker-foreign" in project.podman.containers()
    finally:
        project.podman("rm", "-f", "stoker-left", "stoker-foreign")


def test_checkpoints_and_exit_75(project: Project, debian: str) -> None:
    """A task's checkpoints have the same path inside in all attempts."""
    project.write(
        "p.yaml",
        f"""
        stoker: 1
        name: p
        docker: {{parent_image: {debian}}}
        steps:
          a:
            run: "cd $STOKER_CHECKPOINT_DIR; if [ -e one ]; then cat one; else echo saved > one; exit 75; fi"
        """,
    )
    step = project.run("--with", "docker")["steps"]["a"]
    assert step["attempts"] == 2 and project.log(step) == "saved\n"


def test_follow_the_logs(project: Project, debian: str) -> None:
    project.write(
        "p.yaml",
        f"""
        stoker: 1
        name: p
        docker: {{parent_image: {debian}}}
        steps:
          a: {{run: "for i in 1 2 3; do echo line $i; sleep 0.2; done"}}
        """,
    )
    engine = project.start("--with", "docker", "p.yaml")
    wait_for(lambda: list(project.folder.glob(".stoker/runs/*/a/0/1/stdout.log")))
    followed = project.stoker("logs", "-f", "latest")
    assert engine.wait(WAIT_S) == 0
    assert [w for w in followed.stdout.split("\n") if "line 3" in w]
