"""`stoker doctor`: its findings, its output and its exit status."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

from stoker_binary import find_binary

ROOT = Path(__file__).resolve().parents[2]
STOKER = find_binary()


def doctor(tmp_path: Path, *args: str, **env: str) -> subprocess.CompletedProcess[str]:
    leases = tmp_path / "leases"
    leases.mkdir(exist_ok=True)
    clean = {
        k: v for k, v in os.environ.items() if k not in ("STOKER_STORE", "CUDA_VISIBLE_DEVICES")
    }
    clean |= {
        "STOKER_LEASE_DIR": str(leases),
        "STOKER_ACCEL": "none",
        "VIRTUAL_ENV": sys.prefix,
        **env,
    }
    return subprocess.run(
        [STOKER, "doctor", *args], cwd=tmp_path, env=clean, capture_output=True, text=True
    )


def findings(tmp_path: Path, topic: str, **env: str) -> list[dict[str, Any]]:
    done = doctor(tmp_path, "--json", **env)
    report = json.loads(done.stdout)
    assert done.returncode == (3 if report["worst"] == "problem" else 0)
    return [f for f in report["findings"] if f["topic"] == topic]


def test_every_topic_is_looked_at(tmp_path: Path) -> None:
    report = json.loads(doctor(tmp_path, "--json").stdout)
    topics = {f["topic"] for f in report["findings"]}
    assert topics == {
        "devices",
        "leases",
        "cpus",
        "memory",
        "shm",
        "limits",
        "ulimit",
        "store",
        "disk",
        "port",
        "python",
    } | {
        f["topic"]
        for f in report["findings"]
        if f["topic"] in ("torch", "tensorflow", "jax", "cupy")
    }
    assert all(f["text"] for f in report["findings"])


def test_text_has_a_line_a_finding_and_its_remedy(tmp_path: Path) -> None:
    done = doctor(tmp_path, STOKER_LEASE_DIR="/proc/nowhere")
    assert done.returncode == 3
    assert "problem  leases     device leases live in /proc/nowhere" in done.stdout
    assert "→ make it" in done.stdout
    assert "\033" not in done.stdout


def test_devices_of_a_fake_host(tmp_path: Path) -> None:
    fake = tmp_path / "devices.json"
    fake.write_text(
        '[{"uuid": "GPU-a", "memory_bytes": 80000000000}, {"usable": false, "trouble": "it is on fire"}]'
    )
    found = findings(tmp_path, "devices", STOKER_ACCEL=f"fake:{fake}")
    assert [f["level"] for f in found] == ["ok", "ok", "problem"]
    assert "GPU-a, free" in found[1]["text"] and "80 GB" in found[1]["text"]
    assert "it is on fire" in found[2]["text"]


def test_a_wrong_provider_is_a_problem(tmp_path: Path) -> None:
    (found,) = findings(tmp_path, "devices", STOKER_ACCEL="abacus")
    assert found["level"] == "problem" and "abacus" in found["text"]


def test_python_that_has_no_stoker(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "python").symlink_to("/usr/bin/python3")
    (found,) = findings(tmp_path, "python", VIRTUAL_ENV=str(tmp_path), PYTHONPATH="")
    assert found["level"] == "warning" and "can't import stoker" in found["text"]


def test_python_that_has_stoker(tmp_path: Path) -> None:
    (found,) = findings(tmp_path, "python", VIRTUAL_ENV=str(ROOT / ".venv"))
    assert found["level"] == "ok" and "imports stoker 0." in found["text"]


def test_python_beside_the_stoker_that_was_called(tmp_path: Path) -> None:
    (found,) = findings(tmp_path, "python", VIRTUAL_ENV="", PATH="/nonexistent")
    assert found["level"] == "ok"
    assert found["text"].count(str(ROOT / ".venv" / "bin" / "python")) == 1


def test_no_python_at_all(tmp_path: Path) -> None:
    outside = tmp_path / "stoker"
    outside.symlink_to(STOKER.resolve())
    env = {"STOKER_ACCEL": "none", "STOKER_LEASE_DIR": str(tmp_path), "PATH": "/nonexistent"}
    done = subprocess.run(
        [outside, "doctor", "--json"], cwd=tmp_path, env=env, capture_output=True, text=True
    )
    (found,) = (f for f in json.loads(done.stdout)["findings"] if f["topic"] == "python")
    assert found["level"] == "warning" and "python3" in found["text"]


def test_a_store_from_the_future_is_a_problem(tmp_path: Path) -> None:
    (tmp_path / "p.yaml").write_text("stoker: 1\nname: p\nsteps: {a: {run: 'true'}}\n")
    subprocess.run([STOKER, "run", "p.yaml"], cwd=tmp_path, check=True, capture_output=True)
    (found,) = findings(tmp_path, "store")
    assert found["level"] == "ok"
    with sqlite3.connect(tmp_path / ".stoker" / "store.db") as db:
        db.execute("PRAGMA user_version = 999")
    (found,) = findings(tmp_path, "store")
    assert found["level"] == "problem" and "newer" in found["text"]


def test_no_store_is_no_problem(tmp_path: Path) -> None:
    (found,) = findings(tmp_path, "store")
    assert found["level"] == "note" and ".stoker" in found["text"]


def host(tmp_path: Path, *devices: dict[str, Any], driver: str = "580.65.06") -> str:
    fake = tmp_path / "host.json"
    fake.write_text(json.dumps({"driver": driver, "cuda_version": 12020, "devices": devices}))
    return f"fake:{fake}"


def environment(tmp_path: Path, version: str) -> Path:
    """A fake virtual environment whose torch has this version.py."""
    torch = tmp_path / "venv/lib/python3.11/site-packages/torch"
    torch.mkdir(parents=True)
    (torch / "__init__.py").write_text("raise SystemExit('imported')")
    (torch / "version.py").write_text(version)
    (tmp_path / "venv/pyvenv.cfg").write_text("version = 3.11.2")
    (tmp_path / "venv/bin").mkdir()
    (tmp_path / "venv/bin/python").symlink_to(sys.executable)
    return tmp_path / "venv/bin/python"


def test_a_torch_that_does_not_fit_the_driver(tmp_path: Path) -> None:
    python = environment(tmp_path, "__version__ = '2.13.0+cu130'\ncuda = '13.0'\n")
    accel = host(tmp_path, {"uuid": "GPU-a", "cc": "9.0"}, driver="535.104")
    report = json.loads(
        doctor(tmp_path, "--json", "--python", str(python), STOKER_ACCEL=accel).stdout
    )
    (found,) = (f for f in report["findings"] if f["topic"] == "torch")
    assert found["level"] == "warning" and "needs driver 580 or newer" in found["text"]
    assert found["subject"].endswith("site-packages/torch") and "CUDA 12.x" in found["remedy"]


def test_the_health_of_devices(tmp_path: Path) -> None:
    accel = host(
        tmp_path,
        {"uuid": "GPU-a", "ecc": 0, "remap_pending": 1},
        {"uuid": "GPU-b", "remap_failed": 1, "throttle": 1 << 6, "temperature_c": 95},
    )
    report = json.loads(doctor(tmp_path, "--json", STOKER_ACCEL=accel).stdout)
    assert report["worst"] == "problem"
    seen = {(f["subject"], f["topic"], f["level"]) for f in report["findings"]}
    assert {
        ("GPU-a", "ecc", "note"),
        ("GPU-a", "remap", "warning"),
        ("GPU-b", "remap", "problem"),
        ("GPU-b", "throttle", "warning"),
    } <= seen
    assert any("95 °C" in f["text"] for f in report["findings"])


def test_simulated_devices_are_no_trouble(tmp_path: Path) -> None:
    done = doctor(tmp_path, STOKER_ACCEL="sim:2xA100")
    assert done.returncode == 0 and "A100" in done.stdout


def test_a_word_too_many(tmp_path: Path) -> None:
    assert doctor(tmp_path, "now").returncode == 2


def test_a_machine_that_is_not_here(tmp_path: Path) -> None:
    done = doctor(tmp_path, "--json", "--simulate", "2xA100")
    texts = [f["text"] for f in json.loads(done.stdout)["findings"] if f["topic"] == "devices"]
    assert texts[0] == "2 simulated GPUs" and len(texts) >= 3, texts
    assert all("A100" in text for text in texts[1:3])
