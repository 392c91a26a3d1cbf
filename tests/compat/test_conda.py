"""``@conda``: real environments, made by py-rattler from channels that the tests write."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from compat_tools import SHIM, metaflow_python
from environment_tools import (
    PYTHON,
    SITE,
    conda_package,
    conda_python,
    run,
    start,
    wheel,
    without_conda,
)
from front_tools import PACKAGE, engine, environment, needed, needs_engine
from waiting import held, wait_for

needed("rattler")
pytestmark = needs_engine


def tiny(channel: Path, version: str, says: str = "", **more: str) -> None:
    text = f"VERSION = '{says or version}'\n"
    depends = ["python", "words >=3"]
    conda_package(
        channel,
        "tiny",
        version,
        {"site-packages/tiny.py": text},
        depends=depends,
        noarch="python",
        **more,
    )


@pytest.fixture
def channel(tmp_path: Path) -> Path:
    """Python itself; ``tiny`` in two versions, which needs ``words``, which has no Python in it."""
    folder = tmp_path / "channel"
    conda_python(folder)
    for version in ("2.0", "3.0"):
        conda_package(
            folder, "words", version, {"share/words": f"words {version}"}, noarch="generic"
        )
    for version in ("1.0", "2.0"):
        tiny(folder, version)
    return folder


@pytest.fixture
def env(tmp_path: Path, channel: Path) -> dict[str, str]:
    """Variables of a program whose packages come from the channel, and caches of its own."""
    wheel(tmp_path / "wheels", "small", "5.0", {"small.py": "VERSION = '5.0'\n"})
    plain = environment(
        tmp_path / ".stoker",
        PYTHONPATH=f"{SHIM}:{PACKAGE}",
        HOME=str(tmp_path / "home"),
        XDG_CACHE_HOME=str(tmp_path / "cache"),
        CONDA_CHANNELS=str(channel),
        UV_FIND_LINKS=str(tmp_path / "wheels"),
        UV_NO_INDEX="1",
    )
    return without_conda(plain, tmp_path)


FLOW = f"""
    import os, sys
    from metaflow import FlowSpec, conda, pypi, resources, step

    class Own(FlowSpec):
        @conda(packages={{"tiny": "1.0"}}, python="{PYTHON}")
        @step
        def start(self):
            import tiny
            self.words = open(os.path.join(sys.prefix, "share", "words")).read()
            self.seen = [tiny.VERSION]
            self.next(self.newer)

        @conda(packages={{"tiny": ">=2"}})
        @step
        def newer(self):
            import tiny
            self.seen.append(tiny.VERSION)
            self.next(self.plain)

        @pypi(packages={{"small": "5.0"}})
        @step
        def plain(self):
            import small
            self.seen.append(small.VERSION)
            try:
                import tiny
            except ImportError:
                self.seen.append("none")
            self.next(self.end)

        @conda(disabled=True)
        @step
        def end(self):
            print("SEEN", self.seen, self.words)

    if __name__ == "__main__":
        Own()
"""
SEEN = "SEEN ['1.0', '2.0', '5.0', 'none'] words 3.0"
RUN = ("--environment=conda", "run")


def environments(tmp_path: Path) -> dict[str, Path]:
    """What was asked for → the file with its facts."""
    found = (tmp_path / "cache" / "stoker" / "environments").glob("*/stoker.json")
    return {json.loads(one.read_text())["asked"]: one for one in found}


def test_each_step_has_what_it_asks_for(tmp_path: Path, env: dict[str, str]) -> None:
    done = run(tmp_path, env, FLOW, *RUN)
    assert SEEN in done.stdout, done.stderr
    assert done.stderr.count(", by py-rattler") == 2 and done.stderr.count(", by uv") == 1
    facts = json.loads(environments(tmp_path)[f"tiny 1.0, Python {PYTHON}"].read_text())
    assert facts["packages"]["words"] == "3.0=0"
    again = run(tmp_path, env, FLOW, *RUN, CONDA_DEFAULT_ENV="other")
    assert SEEN in again.stdout and "making an environment" not in again.stderr
    spun = run(tmp_path, env, FLOW, "--environment=conda", "spin", "newer")
    assert spun.returncode == 0, spun.stderr
    anew = run(
        tmp_path, env, FLOW, "--environment=conda", "--force-rebuild-environments", "resume", "end"
    )
    assert SEEN in anew.stdout and anew.stderr.count("making an environment") == 3


def test_made_once_by_many(tmp_path: Path, env: dict[str, str]) -> None:
    many = [start(tmp_path, env, FLOW, *RUN) for _ in range(3)]
    said = [one.communicate() for one in many]
    assert all(SEEN in out for out, _ in said), said
    assert sum(err.count(", by py-rattler") for _, err in said) == 2


def test_builds_are_part_of_the_cache_key(
    tmp_path: Path, env: dict[str, str], channel: Path
) -> None:
    words = (*RUN, "--cache")
    assert SEEN in run(tmp_path, env, FLOW, *words).stdout
    assert "SEEN" not in run(tmp_path, env, FLOW, *words).stdout
    conda_package(channel, "words", "3.1", {"share/words": "words 3.1"}, noarch="generic")
    anew = ("--environment=conda", "--force-rebuild-environments", "run", "--cache")
    assert SEEN.replace("3.0", "3.1") in run(tmp_path, env, FLOW, *anew).stdout


@pytest.mark.parametrize("said", ["variable", "list", "commented", "brackets", "qualified"])
def test_channels(tmp_path: Path, env: dict[str, str], channel: Path, said: str) -> None:
    """The first channel that has a package counts, wherever the channels are written."""
    mine = tmp_path / "mine"
    tiny(mine, "1.0", "mine")
    both = {
        "variable": f"{mine},{channel}",
        "list": f"# my own\nchannels:\n  - {mine}  # first\n  - {channel}\nssl_verify: true\n",
        "commented": f"channels:\n\n# mine\n- {mine}\n\n  # others\n- {channel}\nssl_verify: true\n",
        "brackets": f"channels: [{mine}, '{channel}']\n",
    }
    flow = FLOW.replace(">=2", "1.0")
    if said == "variable":
        env["CONDA_CHANNELS"] = both[said]
    elif said == "qualified":
        env["CONDA_CHANNELS"] = f"{channel},{mine}"
        flow = flow.replace('"tiny"', f'"file://{mine}::tiny"')
    else:
        del env["CONDA_CHANNELS"]
        (tmp_path / "home").mkdir()
        (tmp_path / "home" / ".condarc").write_text(both[said])
    done = run(tmp_path, env, flow, *RUN)
    assert "SEEN ['mine', 'mine', '5.0', 'none'] words 3.0" in done.stdout, done.stderr


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ('">=2"', '"7.0"', "with tiny 7.0: Cannot solve the request because of: "),
        ('"tiny": ">=2"', '"nothing": ""', "No candidates were found for nothing *."),
        ('">=2"}', '">=2"}, python="3.6.1"', "No candidates were found for python ==3.6.1."),
        ('"tiny": ">=2"', '"tiny": "2.0", "words": "2.0"', "tiny ==2.0 cannot be installed"),
    ],
)
def test_cannot_be_solved(
    tmp_path: Path, env: dict[str, str], old: str, new: str, why: str
) -> None:
    done = run(tmp_path, env, FLOW.replace(old, new), *RUN)
    assert done.returncode == 1
    (said,) = [one for one in done.stderr.splitlines() if one.startswith("Incompatible")]
    assert "step 'newer': py-rattler can't make an environment with " in said
    assert why in said
    assert not (tmp_path / ".stoker" / "runs").exists()  # nothing began
    assert len(environments(tmp_path)) == 1
    folders = [one for one in (tmp_path / "cache/stoker/environments").iterdir() if one.is_dir()]
    assert len([one for one in folders if not one.name.startswith("front-")]) == 1


def test_a_channel_that_is_not_there(tmp_path: Path, env: dict[str, str]) -> None:
    done = run(tmp_path, env, FLOW, *RUN, CONDA_CHANNELS=str(tmp_path / "none"))
    assert done.returncode == 1
    assert "step 'start': py-rattler can't make an environment with" in done.stderr
    assert f"{tmp_path}/none" in done.stderr


GPU = {
    "step": "@resources(gpu=1)\n        @conda",
    "torch": '"pytorch": "9.0"',
    "pinned": '"pytorch": "9.0=*cuda*"',
    "torch for the CPU": '"pytorch": "9.0=cpu*"',
    "other": '"trees": "4.0"',
    "other for the CPU": '"trees": "4.0=cpu*"',
}


@pytest.mark.parametrize(
    ("asked", "driver", "why"),
    [
        ("torch", "", "the pytorch of its environment"),
        ("torch", "12.4", None),
        ("pinned", "", "No candidates|__cuda"),
        ("pinned", "12.4", None),
        ("torch for the CPU", "12.4", None),
        ("other", "", "the trees of its environment"),
        ("other", "12.4", None),
        ("other for the CPU", "12.4", None),
    ],
)
def test_build_for_the_cpu_is_not_for_a_gpu(
    tmp_path: Path, env: dict[str, str], channel: Path, asked: str, driver: str, why: str | None
) -> None:
    """The solver takes the build for the CPU where the machine has no driver."""
    for name, version in (("pytorch", "9.0"), ("trees", "4.0")):
        files = {f"{SITE}/{'torch' if name == 'pytorch' else name}/version.py": "cuda = None\n"}
        conda_package(channel, name, version, files, build="cpu_generic_h1_0")
        conda_package(
            channel,
            name,
            version,
            {f"share/{name}": "cuda"},
            build="cuda126_py311_h1_1",
            depends=["__cuda >=12"],
        )
    flow = FLOW.replace('@conda(packages={"tiny": ">=2"', GPU["step"] + '(packages={"tiny": ">=2"')
    flow = flow.replace('"tiny": ">=2"', f'"tiny": ">=2", {GPU[asked]}')
    env = {**env, "STOKER_ACCEL": "sim:2xH100", "CONDA_OVERRIDE_CUDA": driver}
    done = run(tmp_path, env, flow, *RUN)
    if why is None:
        assert SEEN in done.stdout, done.stderr
    else:
        assert done.returncode == 1 and any(one in done.stderr for one in why.split("|"))
        assert not (tmp_path / ".stoker" / "runs").exists()


def slow(channel: Path, fifo: Path) -> None:
    """``tiny`` needs a package that isn't installed before somebody writes to a pipe."""
    os.mkfifo(fifo)
    wait = f"if [ ! -e {fifo}.read ]; then read line < {fifo}; touch {fifo}.read; fi"
    script = f"#!/bin/sh\necho begin >> {fifo}.log\n{wait}\necho end >> {fifo}.log\n"
    conda_package(channel, "slow", "1.0", {"bin/.slow-post-link.sh": script}, noarch="generic")
    text = {"site-packages/tiny.py": "VERSION = '1.0'\n"}
    conda_package(
        channel, "tiny", "1.0", text, depends=["python", "slow", "words"], noarch="python"
    )


def test_interrupted(tmp_path: Path, env: dict[str, str], channel: Path) -> None:
    fifo = tmp_path / "fifo"
    slow(channel, fifo)
    program = start(tmp_path, env, FLOW, *RUN)
    with held(fifo, program):  # it is being installed now
        program.send_signal(signal.SIGINT)
        program.wait()
    assert environments(tmp_path) == {}


def test_killed(tmp_path: Path, env: dict[str, str], channel: Path) -> None:
    """Who comes next waits for what the killed one has begun, and begins anew."""
    fifo = tmp_path / "fifo"
    slow(channel, fifo)
    log = Path(f"{fifo}.log")
    program = start(tmp_path, env, FLOW, *RUN)
    with held(fifo, program):
        program.kill()
        program.communicate()
        (lock,) = (tmp_path / "cache/stoker/environments").glob("*.lock")
        after = start(tmp_path, env, FLOW, *RUN)
        wait_for(lambda: waited_for(lock) or log.read_text().count("begin") > 1)
        waited = log.read_text().count("begin") == 1
        if not waited:
            after.kill()
    out, err = after.communicate()
    assert waited, "two make the same environment at the same time"
    assert SEEN in out, err
    assert log.read_text().split() == ["begin", "end"] * 2


def waited_for(lock: Path) -> bool:
    """Whether a process waits for a lock."""
    lines = Path("/proc/locks").read_text().splitlines()
    return any("->" in one and f":{lock.stat().st_ino} " in one for one in lines)


def test_gc(tmp_path: Path, env: dict[str, str]) -> None:
    assert SEEN in run(tmp_path, env, FLOW, *RUN).stdout
    old = environments(tmp_path)["tiny >=2"]
    os.utime(old, (time.time() - 100 * 86400,) * 2)
    line = [str(engine()), "store", "gc", "--json"]
    done = subprocess.run(line, cwd=tmp_path, env=env, capture_output=True, check=True)
    assert json.loads(done.stdout)["environments_removed"] == 1
    assert not old.parent.exists() and len(environments(tmp_path)) == 2
    assert run(tmp_path, env, FLOW, *RUN).stderr.count("making an environment") == 1


def test_an_installed_conda_changes_no_test(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    for name in ("conda", "other"):
        (tmp_path / "bin" / name).write_text("#!/bin/sh\n")
        (tmp_path / "bin" / name).chmod(0o755)
    told = {"PATH": f"{tmp_path}/bin", "CONDARC": "x", "CONDA_CHANNELS": "c", "CONDA_PREFIX": "x"}
    env = without_conda(told, tmp_path)
    assert shutil.which("conda", path=env.pop("PATH")) is None
    assert env == {"CONDA_CHANNELS": "c"}


@pytest.mark.parametrize("where", ["path", "setting", "metaflow"])
def test_micromamba_counts_where_it_is(tmp_path: Path, env: dict[str, str], where: str) -> None:
    """A program that takes what micromamba's documents say of ``create``, and is made by py-rattler."""
    folder = tmp_path / "home/.metaflowconfig/micromamba/bin"
    folder.mkdir(parents=True)
    program = folder / "micromamba"
    script = Path(PACKAGE) / "stoker/flow/_environments/_rattler.py"
    program.write_text(
        f'#!/bin/sh\necho "$@" >> {tmp_path}/calls\nexec {sys.executable} {script} "$@"\n'
    )
    program.chmod(0o755)
    if where == "path":
        env["PATH"] = f"{folder}:{env.get('PATH', os.environ['PATH'])}"
    elif where == "setting":
        env["METAFLOW_PATH_TO_MICROMAMBA"] = str(program)
    done = run(tmp_path, env, FLOW, *RUN)
    assert SEEN in done.stdout and done.stderr.count(", by micromamba") == 2, done.stderr
    first = (tmp_path / "calls").read_text().splitlines()[0]
    assert first.startswith(f"create --yes --quiet --prefix {tmp_path}/cache/stoker/environments/")
    assert first.endswith(f"--channel {env['CONDA_CHANNELS']} tiny==1.0 python=={PYTHON}")


@pytest.mark.slow
def test_tutorial_04(tmp_path: Path, env: dict[str, str], channel: Path) -> None:
    """As people type it; its Python 3.9.10 is the interpreter of the tests, editdistance a few lines."""
    conda_python(channel, "3.9.10")
    text = (
        "from difflib import SequenceMatcher\n\n"
        "def eval(a, b):\n    return len(a) + len(b) - int(2 * SequenceMatcher(None, a, b).ratio())\n"
    )
    conda_package(
        channel, "editdistance", "0.5.3", {f"{SITE}/editdistance.py": text}, depends=["python"]
    )
    pulled = {k: v for k, v in env.items() if k != "PYTHONPATH"}
    words = [metaflow_python(), "-m", "metaflow.cmd.main_cli", "tutorials", "pull"]
    subprocess.run(words, cwd=tmp_path, env=pulled, capture_output=True, check=True)
    said = []
    for file, *words in (
        ("02-statistics/stats.py", "run"),
        ("04-playlist-plus/playlist.py", *RUN),
    ):
        done = subprocess.run(
            [sys.executable, file, *words],
            cwd=tmp_path / "metaflow-tutorials",
            env={**env, "METAFLOW_USER": "tester"},
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        said.append(done)
    assert said[1].stderr.count(", by py-rattler") == 2
    assert "Pick 5:" in said[1].stdout and "Bonus Pick: '" in said[1].stdout
