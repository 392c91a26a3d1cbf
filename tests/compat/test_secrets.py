"""Secrets of ``Client``: sealed by the engine; those of earlier versions can still be read."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from front_tools import WAIT_S, engine, environment, needs_engine

pytestmark = needs_engine

# {"password": "before"} as the Python front sealed it, with the key 00 01 … 1f
OLD = "JrpOxqbNP/wygeSzoNbd8MiPRLGYMgsLU+pWZAZY1qkgAKZfK+yw2pJ8WYFZeOEcf5i/G+uNc/cEWFcrzfkLd3cWGeniPw=="
READ = """
from zenml.client import Client
print(Client().get_secret("db").secret_values)
Client().update_secret("db", add_or_update_values={"user": "ann"})
print(Client().get_secret("db").secret_values)
"""


def run(tmp_path: Path, *words: str, text: str = "") -> str:
    done = subprocess.run(
        [str(engine()), *words],
        cwd=tmp_path,
        env=environment(tmp_path / ".stoker", XDG_CONFIG_HOME=str(tmp_path / "config")),
        input=text,
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        check=True,
    )
    return done.stdout


def test_an_old_secret_is_read_and_sealed_anew_by_a_change(tmp_path: Path) -> None:
    key = tmp_path / "config" / "stoker" / "secrets.key"
    key.parent.mkdir(parents=True)
    key.touch(mode=0o600)
    key.write_bytes(bytes(range(32)))
    body = {"id": "0c39ccc0-25eb-433a-94ad-0a3ed0a0f5ce", "sealed": OLD, "private": False}
    run(tmp_path, "record", "put", "secret", "db", text=json.dumps(body))
    (tmp_path / "read.py").write_text(READ)
    told = run(tmp_path, "compat", "--", sys.executable, "read.py").splitlines()
    assert told == ["{'password': 'before'}", "{'password': 'before', 'user': 'ann'}"]
    kept = json.loads(run(tmp_path, "record", "list", "secret", "--json"))[0]["body"]["sealed"]
    assert kept.startswith("gcm:")


def test_a_new_secret_is_nowhere_in_the_store(tmp_path: Path) -> None:
    (tmp_path / "make.py").write_text(
        "from zenml.client import Client\n"
        "Client().create_secret('db', {'password': 'never-in-plain'})\n"
    )
    run(tmp_path, "compat", "--", sys.executable, "make.py")
    files = [p for p in (tmp_path / ".stoker").rglob("*") if p.is_file()]
    assert files and all(b"never-in-plain" not in p.read_bytes() for p in files)
