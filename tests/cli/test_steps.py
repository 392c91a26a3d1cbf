"""`stoker steps` and `stoker devices`: a step over its runs, and hours of devices."""

from __future__ import annotations

import getpass
import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from cli_tools import LOOKED_AT, PYTHON, Cli
from pages import browser

HOLD = (
    LOOKED_AT
    + """
import sys
held = bytearray(int(sys.argv[1]))
held[::4096] = b"x" * len(held[::4096])
look_at_me()
sys.exit(int(sys.argv[2]))
"""
)


def hold(cli: Cli, n_bytes: int, status: int = 0, **more: Any) -> None:
    """A run of a step that uses so much memory and ends so."""
    cli.write("hold.py", HOLD)
    step = {"run": [PYTHON, str(cli.folder / "hold.py"), str(n_bytes), str(status)], **more}
    document = {"stoker": 1, "name": "held", "steps": {"hold": step}}
    cli.write("held.yaml", json.dumps(document))
    assert cli("run", "-q", "--no-cache", "held.yaml").code == (1 if status else 0)


@pytest.fixture(scope="module")
def held(tmp_path_factory: pytest.TempPathFactory) -> Cli:
    cli = Cli(tmp_path_factory.mktemp("held"))
    cli.devices("GPU-a", "GPU-b", model="<b>H100</b>", busy_percent=50, energy_mj=5000)
    for megabytes in (100, 200, 300):
        hold(cli, megabytes << 20, resources={"gpu_count": 2})
    hold(cli, 1 << 20, status=3)
    return cli


def test_step(held: Cli) -> None:
    (group,) = json.loads(held("steps", "hold", "--json").out)
    assert (group["n"], group["succeeded"], group["failed"]) == (4, 3, 1)
    memory = group["used"]["peak_memory_bytes"]
    values = sorted(one["peak_memory_bytes"] for one in group["tasks"][1:])
    assert memory["n"] == 3 and [memory["median"], memory["p95"], memory["max"]] == [
        values[1], values[2], values[2]]  # fmt: skip
    assert values[2] > 300 << 20 and group["tasks"][0]["class"] == "exit"
    asked = group["ask"]["memory_bytes"]
    assert values[2] * 1.15 <= asked < values[2] * 1.15 * 1.1
    line = re.search(r"memory: (\d+)MB", group["ask"]["yaml"])
    assert line is not None and int(line[1]) * 1000000 == asked
    assert f'memory="{line[1]}MB"' in group["ask"]["python"]
    text = held("steps", "hold").out
    assert "4 tasks, 3 succeeded, 1 failed" in text and group["ask"]["yaml"] in text
    assert group["ask"]["python"] in text
    assert re.search(r"hold +held +4 +1 ", held("steps").out)
    assert json.loads(held("steps", "hold", "-n", "1", "--json").out)[0]["n"] == 1


def test_the_advice_can_be_pasted(held: Cli) -> None:
    (group,) = json.loads(held("steps", "hold", "--json").out)
    held.write(
        "pasted.yaml",
        f"stoker: 1\nname: pasted\nsteps:\n  a:\n    run: 'true'\n    {group['ask']['yaml']}\n",
    )
    assert held("spec", "check", "pasted.yaml").code == 0
    program = f"from stoker import ResourceSettings\nprint({group['ask']['python']}.memory)"
    done = subprocess.run([PYTHON, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() in group["ask"]["yaml"]


def test_mistakes(held: Cli) -> None:
    for words, part in {
        ("steps", "hodl"): "did you mean 'hold'?",
        ("steps", "hold", "-p", "other"): "no run of pipeline other has a step 'hold'",
        ("steps", "-n", "0"): "--limit",
        ("devices", "--since", "yesterday"): "not a time",
        ("devices", "nowhere"): "nowhere",
    }.items():
        wrong = held(*words)
        assert wrong.code != 0 and part in wrong.err and wrong.out == "", (words, wrong.err)


def test_hours(held: Cli) -> None:
    hours = json.loads(held("devices", "--json").out)
    total, sums = hours["total"], [
        json.loads(held("show", run, "--json").out)["steps"]["hold"]["used"].get("gpu_held_s", 0)
        for run in (one["run"] for one in json.loads(held("runs", "--json").out))
    ]  # fmt: skip
    assert total["held_s"] == pytest.approx(sum(sums)) and total["attempts"] == 3
    assert total["busy_s"] + total["wasted_s"] == pytest.approx(total["held_s"])
    for key, name in {"users": getpass.getuser(), "pipelines": "held", "devices": "<b>H100</b>",
                      "stores": str(held.store)}.items():  # fmt: skip
        (one,) = hours[key]
        assert one[key[:-1]] == name and one["held_s"] == total["held_s"], key
    assert sum(day["held_s"] for day in hours["days"]) == pytest.approx(total["held_s"])
    assert json.loads(held("devices", "--json", ".", str(held.store)).out) == hours
    held.write("simulated.json", json.dumps({"stoker": 1, "name": "s", "steps": {"a": {
        "run": "true", "resources": {"gpu_count": 1}}}}))  # fmt: skip
    assert held("run", "-q", "--simulate", "1xH100", "simulated.json").code == 0
    assert json.loads(held("devices", "--json").out) == hours
    assert "held" in held("devices").out


@pytest.mark.parametrize("words", [("steps", "hold"), ("devices",)])
def test_page(held: Cli, words: tuple[str, ...]) -> None:
    path = Path(held(*words, "--html", f"{words[0]}.html").out.strip())
    html = path.read_text(encoding="utf-8")
    assert "<script" not in html and "<b>H100" not in html
    with browser() as chromium:
        assert chromium.faults(path) == {}
        assert chromium.asked == []


def test_all_stores_of_the_host(tmp_path: Path) -> None:
    """Each store in which something ran counts, wherever one asks, until it is gone."""
    state = str(tmp_path / "state")
    ran = [Cli(tmp_path / name) for name in ("one", "two")]
    for cli in ran:
        cli.folder.mkdir()
        cli.devices("GPU-a", model="H100")
        cli.env["XDG_STATE_HOME"] = state
        hold(cli, 1 << 20, resources={"gpu_count": 1})
    (tmp_path / "else").mkdir()
    other = Cli(tmp_path / "else")
    noted = tmp_path / "state/stoker/stores"
    assert len(list(noted.iterdir())) == 2
    (noted / "junk").symlink_to(tmp_path / "nothing")

    def stores() -> list[str]:
        """Those of this test; other tests may run something now, too."""
        asked = other("devices", "--json", XDG_STATE_HOME=state)
        assert asked.code == 0
        found = (one["store"] for one in json.loads(asked.out)["stores"])
        return sorted(one for one in found if one.startswith(str(tmp_path)))

    assert stores() == sorted(str(cli.store) for cli in ran)
    shutil.rmtree(ran[0].folder)
    assert stores() == [str(ran[1].store)] and len(list(noted.iterdir())) == 1
    alone = json.loads(other("devices", "--json", str(ran[1].store)).out)
    assert [one["store"] for one in alone["stores"]] == [str(ran[1].store)]
