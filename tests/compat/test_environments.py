"""``@pypi``, ``@conda`` and ``--environment``: real environments, made by uv and pip from wheels that
the tests write."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
import time
from importlib import metadata
from pathlib import Path

import pytest
from compat_tools import SHIM, metaflow_python
from environment_tools import run, start, wheel, without_conda
from front_tools import PACKAGE, engine, environment, needs_engine
from waiting import wait_for

pytestmark = needs_engine


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    """Variables of a program whose packages come from the folder ``wheels``; a cache of its own."""
    wheels = tmp_path / "wheels"
    for version in ("1.0", "2.0"):
        wheel(wheels, "tiny", version, {"tiny.py": f"VERSION = '{version}'\n"})
    for version, cuda in (("9.0+cpu", None), ("9.0+cu124", "12.4")):
        text = f"__version__ = '{version}'\ncuda: Optional[str] = {cuda!r}\n"
        wheel(wheels, "torch", version, {"torch/version.py": text, "torch/__init__.py": ""})
    plain = environment(
        tmp_path / ".stoker",
        PYTHONPATH=f"{SHIM}:{PACKAGE}",
        METAFLOW_HOME=str(tmp_path / "metaflow"),
        XDG_CACHE_HOME=str(tmp_path / "cache"),
        PIP_FIND_LINKS=str(wheels),
        PIP_NO_INDEX="1",
        UV_FIND_LINKS=str(wheels),
        UV_NO_INDEX="1",
    )
    return without_conda(plain, tmp_path)


FLOW = """
    import sys
    from metaflow import FlowSpec, current, parallel, pypi, pypi_base, step

    @pypi_base(packages={"tiny": "1.0"})
    class Own(FlowSpec):
        @step
        def start(self):
            import tiny
            self.seen = [tiny.VERSION]
            self.next(self.newer)

        @pypi(packages={"tiny": ">=2"})
        @step
        def newer(self):
            import tiny
            self.seen.append(tiny.VERSION)
            self.next(self.gang, num_parallel=2)

        @parallel
        @step
        def gang(self):
            import tiny
            self.both = (tiny.VERSION, current.parallel.node_index)
            self.next(self.join)

        @step
        def join(self, inputs):
            self.seen = [*inputs[0].seen, *(i.both for i in inputs)]
            self.next(self.here)

        @pypi(disabled=True)
        @step
        def here(self):
            try:
                import tiny
            except ImportError:
                self.seen.append("none")
            self.own = sys.prefix
            self.next(self.end)

        @step
        def end(self):
            print("SEEN", self.seen, self.own)

    if __name__ == "__main__":
        Own()
"""
SEEN = f"SEEN ['1.0', '2.0', ('1.0', 0), ('1.0', 1), 'none'] {sys.prefix}"


@pytest.mark.parametrize("tool", ["uv", "pip"])
def test_each_step_has_what_it_asks_for(tmp_path: Path, env: dict[str, str], tool: str) -> None:
    done = run(tmp_path, env, FLOW, "--environment=pypi", "run", STOKER_INSTALLER=tool)
    assert done.returncode == 0, done.stderr
    assert SEEN in done.stdout
    assert done.stderr.count(f", by {tool}") == 2
    again = run(tmp_path, env, FLOW, "--environment=conda", "run", STOKER_INSTALLER=tool)
    assert SEEN in again.stdout and "making an environment" not in again.stderr
    spun = run(tmp_path, env, FLOW, "--environment=pypi", "spin", "newer", STOKER_INSTALLER=tool)
    assert spun.returncode == 0, spun.stderr
    anew = [*("--environment=pypi", "--force-rebuild-environments"), "resume", "end"]
    anew_run = run(tmp_path, env, FLOW, *anew, STOKER_INSTALLER=tool)
    assert SEEN in anew_run.stdout and anew_run.stderr.count("making an environment") == 2


@pytest.mark.parametrize(
    ("pip", "has_its_own"), [("", True), ("22.2.1", True), ("22.3", False), ("26.1.dev0", False)]
)
def test_pip_reaches_into_an_environment(
    monkeypatch: pytest.MonkeyPatch, pip: str, has_its_own: bool
) -> None:
    """Which needs none of its own then: to install one takes longer than all the rest."""
    from stoker.flow._environments import _tools, _want

    def version(name: str) -> str:
        if not pip:
            raise metadata.PackageNotFoundError
        return pip

    said: list[list[str]] = []
    monkeypatch.setattr(metadata, "version", version)
    monkeypatch.setattr(_tools.Maker, "_call", lambda self, want, words: said.append(words))
    want = _want.Want("pypi", (("tiny", "1.0"),), "", False)
    _tools.Maker("pip", ("pip",), "pip").make(want, "/x")
    made, installed = said
    assert ("--without-pip" in made) == (not has_its_own)
    by = ["/x/bin/python", "-m", "pip"]
    if not has_its_own:
        by = [sys.executable, "-m", "pip", "--python", by[0]]
    assert installed[: len(by) + 1] == [*by, "install"]


def test_made_once_by_many(tmp_path: Path, env: dict[str, str]) -> None:
    many = [start(tmp_path, env, FLOW, "--environment=pypi", "run") for _ in range(3)]
    said = [one.communicate() for one in many]
    assert all(SEEN in out for out, _ in said), said
    assert sum(err.count("making an environment") for _, err in said) == 2


def test_asked_for_without_environment(tmp_path: Path, env: dict[str, str]) -> None:
    done = run(tmp_path, env, FLOW, "run")
    assert done.returncode == 1
    assert "@pypi_base needs --environment=pypi (or conda), as in `python prog.py" in done.stderr
    local = run(
        tmp_path, env, FLOW.replace("import tiny", "import _no_such"), "--environment=local", "run"
    )
    assert "@pypi_base has no effect with --environment=local" in local.stderr
    wrong = run(tmp_path, env, FLOW, "--environment=pypy", "run")
    assert "--environment=pypy: there is no such environment; did you mean 'pypi'?" in wrong.stderr


@pytest.mark.slow
def test_metaflow_refuses_it_too(tmp_path: Path, env: dict[str, str]) -> None:
    (tmp_path / "prog.py").write_text(textwrap.dedent(FLOW))
    words = [metaflow_python(), "prog.py", "run"]
    plain = {k: v for k, v in env.items() if k != "PYTHONPATH"} | {"USERNAME": "t"}
    done = subprocess.run(words, cwd=tmp_path, env=plain, capture_output=True, text=True)
    assert done.returncode == 1 and "requires --environment=" in done.stderr


@pytest.mark.parametrize("tool", ["uv", "pip"])
def test_cannot_be_resolved(tmp_path: Path, env: dict[str, str], tool: str) -> None:
    bad = FLOW.replace('">=2"', '"7.0"')
    done = run(tmp_path, env, bad, "--environment=pypi", "run", STOKER_INSTALLER=tool)
    assert done.returncode == 1
    (said,) = [one for one in done.stderr.splitlines() if one.startswith("Incompatible")]
    assert f"step 'newer': {tool} can't make an environment with tiny 7.0: " in said
    assert "tiny==7.0" in said
    assert not (tmp_path / ".stoker" / "runs").exists()  # nothing began
    assert run(tmp_path, env, FLOW, "--environment=pypi", "run").returncode == 0


def test_python_that_is_not_there(tmp_path: Path, env: dict[str, str]) -> None:
    bad = FLOW.replace('packages={"tiny": ">=2"}', 'python="3.6.1"')
    done = run(tmp_path, env, bad, "--environment=pypi", "run", STOKER_INSTALLER="pip")
    assert "it asks for Python 3.6.1, but this machine has none: install uv" in done.stderr
    mine = ".".join(str(n) for n in sys.version_info[:2])
    good = FLOW.replace('packages={"tiny": ">=2"}', f'packages={{"tiny": "2.0"}}, python="{mine}"')
    assert SEEN in run(tmp_path, env, good, "--environment=pypi", "run").stdout


def test_packages_are_part_of_the_cache_key(tmp_path: Path, env: dict[str, str]) -> None:
    one = FLOW.replace('">=2"', '"1.0"')
    assert run(tmp_path, env, one, "--environment=pypi", "run", "--cache").returncode == 0
    same = run(tmp_path, env, one, "--environment=pypi", "run", "--cache")
    other = run(tmp_path, env, FLOW, "--environment=pypi", "run", "--cache")
    assert "SEEN" not in same.stdout  # all steps were taken from the cache
    assert SEEN in other.stdout


CONDA = FLOW.replace("pypi", "conda")


def test_conda_without_conda(tmp_path: Path, env: dict[str, str]) -> None:
    (tmp_path / "sitecustomize.py").write_text("import sys\nsys.modules['rattler'] = None\n")
    env = {**env, "PYTHONPATH": f"{tmp_path}:{env['PYTHONPATH']}"}
    done = run(tmp_path, env, CONDA, "--environment=conda", "run")
    assert done.returncode == 1
    assert "@conda asks for tiny 1.0, but no micromamba, mamba or conda is on PATH" in done.stderr
    done = run(tmp_path, env, CONDA, "--environment=conda", "run", STOKER_CONDA="pypi")
    assert SEEN in done.stdout
    built = CONDA.replace('">=2"', '"2.0=py3_cuda12"')
    done = run(tmp_path, env, built, "--environment=conda", "run", STOKER_CONDA="pypi")
    assert "@conda asks for 'tiny' in the build '2.0=py3_cuda12', which PyPI" in done.stderr
    only = CONDA.replace('"tiny": ">=2"', '"cudatoolkit": "11.8"')
    done = run(tmp_path, env, only, "--environment=conda", "run", STOKER_CONDA="pypi")
    assert "@conda asks for 'cudatoolkit', which isn't on PyPI" in done.stderr


def test_both_kinds_at_once(tmp_path: Path, env: dict[str, str]) -> None:
    mixed = '@parallel\n        @conda(packages={"x": "1"})'
    both = FLOW.replace("current,", "conda, current,").replace("@parallel", mixed)
    done = run(tmp_path, env, both, "--environment=pypi", "run")
    assert (
        "step 'gang' asks for packages of PyPI (tiny) and of conda (x): use only one" in done.stderr
    )


@pytest.mark.parametrize("build", ["cpu", "cu124"])
def test_build_for_the_cpu_is_not_for_a_gpu(
    tmp_path: Path, env: dict[str, str], build: str
) -> None:
    asks = FLOW.replace("@pypi(packages", "@resources(gpu=1)\n        @pypi(packages")
    asks = asks.replace("pypi_base, step", "pypi_base, resources, step")
    asks = asks.replace('"tiny": ">=2"', f'"tiny": "2.0", "torch": "9.0+{build}"')
    done = run(tmp_path, env, asks, "--environment=pypi", "run", STOKER_ACCEL="sim:2xH100")
    if build == "cpu":
        assert done.returncode == 1
        assert "step 'newer' asks for a GPU, but the torch of its environment" in done.stderr
    else:
        assert SEEN in done.stdout, done.stderr


def test_container_refuses(tmp_path: Path, env: dict[str, str]) -> None:
    (tmp_path / "m.py").write_text("def f():\n    return 1\n")
    (tmp_path / "p.yaml").write_text(
        "stoker: 1\nname: p\nsteps:\n  a: {python: 'm:f', interpreter: /x/python,\n"
        "      docker: {parent_image: i}, backend: docker}\n"
    )
    done = subprocess.run(
        [str(engine()), "run", "p.yaml"], cwd=tmp_path, env=env, capture_output=True, text=True
    )
    assert done.returncode != 0
    assert (
        "step 'a' has packages of its own (/x/python), which only this machine has" in done.stderr
    )


def test_datastore_elsewhere(tmp_path: Path, env: dict[str, str]) -> None:
    done = run(tmp_path, env, FLOW, "--datastore=s3", "run")
    assert done.returncode == 2
    assert "--datastore: s3: a run keeps its artifacts in the store of this machine" in done.stderr
    assert run(tmp_path, env, FLOW, "--datastore=local", "show").returncode == 0


WAITING = """
    import os, time
    from metaflow import FlowSpec, pypi, step

    class Waiting(FlowSpec):
        @pypi(packages={"tiny": "1.0"})
        @step
        def start(self):
            open("began", "w").close()
            while not os.path.exists("go"):
                time.sleep(0.05)
            self.next(self.end)

        @pypi(packages={"tiny": "2.0"})
        @step
        def end(self):
            pass

    if __name__ == "__main__":
        Waiting()
"""


def test_gc_removes_old_environments(tmp_path: Path, env: dict[str, str]) -> None:
    """Not one in which a step runs, nor one that was used within the time."""

    def gc(*words: str) -> int:
        line = [str(engine()), "store", "gc", "--json", *words]
        done = subprocess.run(line, cwd=tmp_path, env=env, capture_output=True, check=True)
        return int(json.loads(done.stdout)["environments_removed"])

    def age(path: Path) -> None:
        os.utime(path, (time.time() - 100 * 86400,) * 2)

    def made() -> dict[str, Path]:
        """Packages → the file whose time says when the environment was used."""
        found = (tmp_path / "cache" / "stoker" / "environments").glob("*/stoker.json")
        return {json.loads(one.read_text())["asked"]: one for one in found}

    words = ("--environment=pypi", "run")
    program = start(tmp_path, env, WAITING, *words)
    wait_for((tmp_path / "began").exists)
    both = made()
    assert sorted(both) == ["tiny 1.0", "tiny 2.0"]
    for path in both.values():
        age(path)
    half = both["tiny 1.0"].parents[1] / ("0" * 32)
    half.mkdir()
    half.with_suffix(".lock").touch()
    left = half.with_name(f"removed-{half.name}")
    left.mkdir()
    assert gc("--dry-run") == 1  # that of the step which doesn't run yet
    assert gc("--keep-environments", "200d") == 0
    assert half.exists() and not left.exists()
    (tmp_path / "go").touch()
    assert program.wait() == 0, program.communicate()
    age(both["tiny 1.0"])
    age(half.with_suffix(".lock"))
    assert gc() == 2
    assert list(made()) == ["tiny 2.0"] and not half.exists()
    again = run(tmp_path, env, WAITING, *words)
    assert again.returncode == 0 and again.stderr.count("making an environment") == 1, again.stderr
