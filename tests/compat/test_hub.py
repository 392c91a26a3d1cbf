"""``@huggingface_hub``: repositories of a hub on this machine, downloaded once and kept."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from compat_tools import SHIM
from environment_tools import run
from front_tools import PACKAGE, engine, environment, needed, needs_engine
from hub import Hub

pytestmark = needs_engine

NET = {"config.json": "{}", "deep/weights.bin": "w1", "notes.md": "notes"}
REPOS = {
    ("model", "org/net"): {"main": NET, "v2": {**NET, "deep/weights.bin": "w2"}},
    ("dataset", "org/data"): {"main": {"rows.csv": "a,b"}},
}


@pytest.fixture
def hub() -> Iterator[Hub]:
    needed("huggingface_hub")
    with Hub(REPOS) as one:
        yield one


@pytest.fixture
def env(tmp_path: Path, hub: Hub) -> dict[str, str]:
    return environment(
        tmp_path / ".stoker",
        PYTHONPATH=f"{SHIM}:{PACKAGE}",
        HOME=str(tmp_path / "home"),
        XDG_CACHE_HOME=str(tmp_path / "cache"),
        HF_ENDPOINT=hub.url,
        HF_HOME=str(tmp_path / "hf"),
        HF_TOKEN="hush-hush",
    )


HEAD = """
    import os
    from metaflow import *

    def files(folder):
        return sorted(os.path.relpath(os.path.join(at, one), folder) for at, _, ones in os.walk(folder) for one in ones)

    def text(*path):
        with open(os.path.join(*path)) as file:
            return file.read()
"""
TAIL = """
    if __name__ == "__main__":
        F()
"""


def play(folder: Path, env: dict[str, str], flow: str, *words: str, **more: str) -> Any:
    return run(folder, env, HEAD + flow + TAIL, *(words or ("run",)), **more)


LOADS = """
    class F(FlowSpec):
        @huggingface_hub(load=[
            "org/net",
            ({"repo_id": "org/data", "repo_type": "dataset"}, "there"),
        ])
        @step
        def start(self):
            hub = current.huggingface_hub
            print("LOADED", "org/net" in hub.loaded, files(hub.loaded["org/net"]), files(hub.loaded["org/data"]))
            print("INFO", hub.loaded.info["org/data"]["metadata"]["repo_type"], hub.loaded["org/data"])
            with hub.load("org/net", revision="v2") as folder:
                print("V2", text(folder, "deep", "weights.bin"))
            print("GONE", os.path.exists(folder))
            with hub.load(repo_id="org/net", path="mine", allow_patterns=["*.json"]) as folder:
                print("SOME", folder, files("mine"))
            self.net = hub.snapshot_download(repo_id="org/net", allow_patterns=["*.json"])
            print("REF", self.net["metadata"]["repo_id"], self.net["type"])
            self.next(self.end)

        @model(load=["net"])
        @step
        def end(self):
            print("MODEL", files(current.model.loaded["net"]))
"""
SAID = [
    "LOADED True ['config.json', 'deep/weights.bin', 'notes.md'] ['rows.csv']",
    "INFO dataset there",
    "V2 w2",
    "GONE False",
    "SOME mine ['config.json']",
    "REF org/net checkpoint",
    "MODEL ['config.json']",
]


def test_loads(tmp_path: Path, env: dict[str, str], hub: Hub) -> None:
    """Each set of files is downloaded once, whatever way it is asked for, in this run and later ones."""
    for _ in range(2):
        done = play(tmp_path, env, LOADS)
        assert done.returncode == 0, done.stderr
        assert [one for one in SAID if one in done.stdout] == SAID, done.stdout + done.stderr
    # of main all, of v2 all, and config.json alone
    assert hub.got == {
        "org/net/config.json": 3,
        "org/net/deep/weights.bin": 2,
        "org/net/notes.md": 2,
        "org/data/rows.csv": 1,
    }
    assert "Bearer hush-hush" in hub.tokens
    stored = [one for one in (tmp_path / ".stoker").rglob("*") if one.is_file()]
    assert stored and not any(b"hush-hush" in one.read_bytes() for one in stored)


SCOPES = """
    class F(FlowSpec):
        @huggingface_hub(cache_scope="SCOPE")
        @step
        def start(self):
            current.huggingface_hub.snapshot_download(repo_id="org/net", token="hush-hush")
            self.items = [1, 2, 3]
            self.next(self.many, foreach="items")

        @huggingface_hub(cache_scope="SCOPE")
        @step
        def many(self):
            with current.huggingface_hub.load("org/net") as folder:
                assert text(folder, "deep/weights.bin") == "w1"
            self.next(self.end_many)

        @step
        def end_many(self, inputs):
            self.next(self.end)

        @step
        def end(self):
            pass
"""


LITERAL = """
    class F(FlowSpec):
        @huggingface_hub(load=[{"repo_id": "org/net", "token": "swordfish"}])
        @step
        def start(self):
            current.huggingface_hub.snapshot_download(repo_id="org/net", token="swordfish", revision="v2")
            self.next(self.end)

        @card
        @step
        def end(self):
            pass
"""


def test_a_literal_token_is_not_kept(tmp_path: Path, env: dict[str, str], hub: Hub) -> None:
    done = play(tmp_path, env, LITERAL)
    assert done.returncode == 0 and "Bearer swordfish" in hub.tokens, done.stderr
    for one in (tmp_path / ".stoker").rglob("*"):
        assert not one.is_file() or b"swordfish" not in one.read_bytes(), one


@pytest.mark.parametrize(
    ("scope", "one_run", "other_flow"), [("checkpoint", 2, 4), ("flow", 1, 2), ("global", 1, 1)]
)
def test_scopes(
    tmp_path: Path, env: dict[str, str], hub: Hub, scope: str, one_run: int, other_flow: int
) -> None:
    """Tasks that want it at the same time wait for the one that downloads."""
    flow = SCOPES.replace("SCOPE", scope)
    assert play(tmp_path, env, flow).returncode == 0
    assert hub.got["org/net/notes.md"] == one_run
    assert play(tmp_path, env, flow).returncode == 0
    assert hub.got["org/net/notes.md"] == one_run
    assert (
        play(tmp_path, env, flow.replace("F(FlowSpec)", "G(FlowSpec)") + "\n    F = G").returncode
        == 0
    )
    assert hub.got["org/net/notes.md"] == other_flow


RETRIED = """
    class F(FlowSpec):
        @retry(times=1)
        @checkpoint
        @huggingface_hub(load=[("org/net", "here")])
        @step
        def start(self):
            print("LIST", current.checkpoint.list(), current.checkpoint.is_loaded, files("here"))
            if current.retry_count == 0:
                raise ValueError("once")
            kept = current.huggingface_hub.snapshot_download(repo_id="org/net", force_download=True)
            self.key = kept["key"]
            self.next(self.end)

        @step
        def end(self):
            load_model(self.key, "outside")
            print("OUTSIDE", files("outside"))
"""


def test_retried(tmp_path: Path, env: dict[str, str], hub: Hub) -> None:
    """No checkpoint; the next attempt finds what the first one has downloaded, and its folder."""
    done = play(tmp_path, env, RETRIED)
    names = "['config.json', 'deep/weights.bin', 'notes.md']"
    assert done.stdout.count(f"LIST [] False {names}") == 2, done.stdout + done.stderr
    assert f"OUTSIDE {names}" in done.stdout
    assert hub.got["org/net/notes.md"] == 2  # forced


GANG = """
    class F(FlowSpec):
        @step
        def start(self):
            self.next(self.work, num_parallel=2)

        @huggingface_hub(load=["org/net"])
        @parallel
        @step
        def work(self):
            self.seen = text(current.huggingface_hub.loaded["org/net"], "deep/weights.bin")
            self.next(self.join)

        @step
        def join(self, inputs):
            print("SEEN", [one.seen for one in inputs])
            self.next(self.end)

        @step
        def end(self):
            pass
"""


def test_gang(tmp_path: Path, env: dict[str, str]) -> None:
    done = play(tmp_path, env, GANG)
    assert "SEEN ['w1', 'w1']" in done.stdout, done.stderr


NODE = """
    class F(FlowSpec):
        @step
        def start(self):
            self.next(self.work, num_parallel=2)

        @huggingface_hub
        @parallel
        @step
        def work(self):
            self.kept = None
            if current.parallel.node_index == 1:
                self.kept = current.huggingface_hub.snapshot_download(repo_id="org/net")
            self.next(self.join)

        @huggingface_hub(cache_scope="flow")
        @step
        def join(self, inputs):
            ours = current.huggingface_hub.snapshot_download(repo_id="org/net")
            load_model(inputs[1].kept, "theirs")
            print("KEPT", files("theirs"), ours["key"] != inputs[1].kept["key"])
            self.next(self.end)

        @step
        def end(self):
            pass
"""


def test_what_a_node_downloads_is_kept(tmp_path: Path, env: dict[str, str], hub: Hub) -> None:
    done = play(tmp_path, env, NODE)
    assert "KEPT ['config.json', 'deep/weights.bin', 'notes.md'] True" in done.stdout, done.stderr
    assert hub.got["org/net/notes.md"] == 1


REFERENCE = """
    class F(FlowSpec):
        @huggingface_hub
        @step
        def start(self):
            self.net = current.huggingface_hub.snapshot_download(repo_id="org/net" MORE)
            print("SIZE", os.stat(os.path.join(self.net["url"], "notes.md")).st_nlink)
            self.next(self.end)

        @model(load=["net"])
        @step
        def end(self):
            print("MODEL", text(current.model.loaded["net"], "deep", "weights.bin"))
"""


def test_a_reference_outlasts_the_run_that_downloaded(
    tmp_path: Path, env: dict[str, str], hub: Hub
) -> None:
    """The second run's files are its own: links to those of the first, which is removed."""
    flow = REFERENCE.replace("MORE", "")
    assert "SIZE 1" in play(tmp_path, env, flow).stdout
    assert "SIZE 2" in play(tmp_path, env, flow).stdout
    assert hub.got["org/net/notes.md"] == 1
    (first, second) = sorted(one.name for one in (tmp_path / ".stoker/runs").iterdir())
    for words in (("rm", first), ("store", "gc")):
        subprocess.run([str(engine()), *words], cwd=tmp_path, env=env, check=True)
    assert (
        "MODEL w1" in play(tmp_path, env, flow, "resume", "end", "--origin-run-id", second).stdout
    )


def test_main_is_the_usual_revision(tmp_path: Path, env: dict[str, str], hub: Hub) -> None:
    """And a hub's own repositories are others than those of the same name elsewhere."""
    for more, got in (
        ("", 1),
        (', revision="main"', 1),
        (', endpoint="URL/"', 1),
        (', endpoint="MIRROR"', 2),
    ):
        other = hub.url.replace("127.0.0.1", "localhost")
        flow = REFERENCE.replace("MORE", more.replace("URL", hub.url).replace("MIRROR", other))
        done = play(tmp_path, env, flow)
        assert "MODEL w1" in done.stdout, done.stderr
        assert hub.got["org/net/notes.md"] == got, more


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ('cache_scope="run"', "cache_scope is 'run'; it is one of checkpoint, flow, global"),
        ('load="org/net"', "load is 'org/net'; it is a list of names of repositories"),
        ('load=[{"repo": "org/net"}]', "of mappings with a 'repo_id'"),
        ('load=["org/none"]', "org/none"),
        ('load=[{"repo_id": "org/net", "revision": "v9"}]', "v9"),
    ],
)
def test_wrong(tmp_path: Path, env: dict[str, str], said: str, why: str) -> None:
    flow = GANG.replace('load=["org/net"]', said)
    done = play(tmp_path, env, flow)
    assert done.returncode == 1
    assert why in done.stderr, done.stderr


def test_without_the_package(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(
        "import sys\nsys.modules['huggingface_hub'] = None\n"
    )
    env = environment(
        tmp_path / ".stoker",
        PYTHONPATH=f"{tmp_path}:{SHIM}:{PACKAGE}",
        XDG_CACHE_HOME=str(tmp_path / "cache"),
    )
    done = play(tmp_path, env, GANG)
    assert done.returncode == 1
    assert f"@huggingface_hub needs the package huggingface_hub, which {sys.executable} lacks" in (
        done.stderr.replace("\n", " ")
    )
