"""``S3``: the calls of s3_calls.py as real Metaflow answers them, with a bucket of moto's and with a
folder; and ``S3(run=self)`` in a flow."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Iterator

import pytest
import s3_tools
from compat_tools import SHIM, metaflow_python, run_shimmed
from front_tools import PACKAGE, ROOT, cannot, environment, needs_engine

RECORDED = ROOT / "tests" / "data" / "metaflow" / "s3.txt"
PATHS = f"{SHIM}:{PACKAGE}"


@pytest.fixture(scope="module")
def bucket(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    if importlib.util.find_spec("moto") is None:
        cannot("moto is not installed (tools/requirements-test.txt)")
    with s3_tools.bucket(tmp_path_factory.mktemp("moto")) as env:
        yield env


def ours(folder: Path, root: str, **env: str) -> str:
    more = {"PYTHONPATH": PATHS, **env}
    return s3_tools.calls(sys.executable, root, folder, environment(folder / ".stoker", **more))


@needs_engine
def test_bucket_as_recorded(tmp_path: Path, bucket: dict[str, str]) -> None:
    assert ours(tmp_path, "s3://bkt/p/q", **bucket) == RECORDED.read_text()
    assert not list(tmp_path.glob("metaflow.s3*"))


@needs_engine
def test_folder_as_recorded(tmp_path: Path, bucket: dict[str, str]) -> None:
    root = f"local://{tmp_path}/data"
    assert ours(tmp_path, root, **bucket).replace(root, "s3://bkt/p/q") == RECORDED.read_text()


@pytest.mark.slow
def test_recording_is_true(tmp_path: Path) -> None:
    assert s3_tools.record(metaflow_python(), tmp_path) == RECORDED.read_text()


LARGE = """
    from metaflow import S3
    from metaflow.plugins.datatools.s3 import S3GetObject

    data = bytes(range(256)) * 130_000  # three parts
    with open("large", "wb") as file:
        file.write(data)
    with S3(s3root="s3://bkt/large") as s3:
        s3.put_files([("b", "large")])
        assert s3.get("b").blob == data
        assert s3.get(S3GetObject("b", 1000, 20_000_000)).blob == data[1000:20_001_000]
        assert s3.get(S3GetObject("b", None, -18_000_000)).blob == data[-18_000_000:]
        s3.put_many([(f"n/{i}", str(i)) for i in range(1100)])  # more than one page of a listing
        assert [o.text for o in s3.get_many([f"n/{i}" for i in range(1100)])] == [
            str(i) for i in range(1100)
        ]
        assert len(s3.list_recursive(["n"])) == 1100
    print("ok")
"""


@needs_engine
def test_large_and_many(tmp_path: Path, bucket: dict[str, str]) -> None:
    assert run_shimmed(tmp_path, LARGE, **bucket).stdout == "ok\n"


FLOW = """
    import json
    import sys
    from metaflow import FlowSpec, Flow, S3, step, namespace

    class Keeps(FlowSpec):
        @step
        def start(self):
            with S3(run=self) as s3:
                self.url = s3.put("key", "value", metadata={"a": "b"})
            self.next(self.end)

        @step
        def end(self):
            with S3() as s3:
                self.text = s3.get(self.url).text
            with S3(run=self) as s3:
                self.same = s3.info("key").metadata

    if __name__ == "__main__":
        if sys.argv[1] == "run":
            Keeps()  # ends the program
        namespace(None)
        run = Flow("Keeps").latest_run
        with S3(run=run) as s3:
            print(json.dumps([run.data.text, run.data.same, run.data.url, s3.get("key").text, run.id]))
"""


@needs_engine
@pytest.mark.parametrize("where", ["bucket", "store"])
def test_run_of_flow(tmp_path: Path, bucket: dict[str, str], where: str) -> None:
    root = {"METAFLOW_DATATOOLS_S3ROOT": "s3://bkt/tools"} if where == "bucket" else {}
    file = tmp_path / "prog.py"
    file.write_text(textwrap.dedent(FLOW))
    env = environment(tmp_path / ".stoker", PYTHONPATH=PATHS, **bucket, **root)
    told = subprocess.run(
        [sys.executable, str(file), "run"], cwd=tmp_path, env=env, capture_output=True, text=True
    )
    assert told.returncode == 0, told.stderr
    seen = subprocess.run(
        [sys.executable, str(file), "read"], cwd=tmp_path, env=env, capture_output=True, text=True
    )
    text, meta, url, again, run = json.loads(seen.stdout)
    assert (text, meta, again) == ("value", {"a": "b"}, "value")
    if where == "bucket":
        assert url == f"s3://bkt/tools/Keeps/{run}/key"
    else:
        assert url == f"local://{tmp_path}/.stoker/data/Keeps/{run}/key"
        assert "METAFLOW_DATATOOLS_S3ROOT names no bucket" in told.stderr


WRONG = """
    from metaflow import S3
    for make in (
        lambda: S3(session_vars={"profile_name": "x"}),
        lambda: S3(client_params={"region_name": "x"}),
        lambda: S3(s3root="s3://bkt/x").get("y"),
        lambda: S3(s3root="s3://bkt/x", role="arn:aws:iam::123456789012:role/r").get("y"),
    ):
        try:
            make()
        except Exception as bad:
            print(type(bad).__name__, bad)
"""


@needs_engine
def test_what_fails_says_so(tmp_path: Path, bucket: dict[str, str]) -> None:
    refused = {**bucket, "AWS_ENDPOINT_URL": "http://127.0.0.1:1", "AWS_MAX_ATTEMPTS": "1"}
    refused["METAFLOW_S3_ENDPOINT_URL"] = refused["AWS_ENDPOINT_URL"]
    session, params, far, role = run_shimmed(tmp_path, WRONG, **refused).stdout.splitlines()
    assert session.startswith("MetaflowS3URLException S3(session_vars=…) isn't there: say it in a")
    assert params.startswith("MetaflowS3URLException S3(client_params['region_name']=…) isn't")
    assert far.startswith("MetaflowS3Exception s3://bkt/x/y: ") and "127.0.0.1:1" in far
    assert "can't assume AWS role 'arn:aws:iam::123456789012:role/r'" in role


@needs_engine
def test_a_role(tmp_path: Path, bucket: dict[str, str]) -> None:
    """The role is assumed by STS (that it then signs: tests/share, whose moto checks it)."""
    source = """
    from metaflow import S3
    with S3(s3root="s3://bkt/role", role="arn:aws:iam::123456789012:role/r") as s3:
        s3.put("key", "value")
        print(s3.get("key").text)
    """
    assert run_shimmed(tmp_path, source, **bucket).stdout == "value\n"
