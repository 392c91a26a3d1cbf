"""`stoker gpus` on simulated machines (--simulate) and on devices that a file describes; plans and
runs on simulated ones."""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import subprocess
from typing import Any

import pytest
from cli_tools import PYTHON, ROOT, WAIT_S, Cli, wait_for

UUID = "GPU-6f1c2d34-0000-4000-8000-00000000000a"
FULL: dict[str, Any] = {
    "uuid": UUID,
    "model": 'NVIDIA "H100"\\80',
    "pci": "00000000:0F:00.0",
    "node": "/dev/nvidia3",
    "index": 3,
    "numa": 1,
    "cpus": "16-31",
    "cc": "9.0",
    "memory_bytes": 80 << 30,
    "memory_used": 6 << 30,
    "busy_percent": 37,
    "memory_busy_percent": 12,
    "temperature_c": 41,
    "power_mw": 120_500,
    "power_limit_mw": 700_000,
    "energy_mj": 987654321,
    "sm_mhz": 1980,
    "memory_mhz": 2619,
    "throttle": 4 | 64,
    "pcie_gen": 5,
    "pcie_width": 16,
    "pcie_tx_bytes_s": 1_500_000,
    "ecc": 1,
    "ecc_uncorrected": 2,
    "remap_pending": 0,
    "links": ["same", "fabric:18"],
    "processes": {},
}


def describe(cli: Cli, *devices: dict[str, Any]) -> None:
    cli.write(
        "devices.json",
        json.dumps({"driver": "580.65.06", "cuda_version": 13000, "devices": devices}),
    )
    cli.env["STOKER_ACCEL"] = f"fake:{cli.folder / 'devices.json'}"


def devices_of(cli: Cli, *options: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = cli.json("gpus", *options)["devices"]
    return found


def test_nothing_here(cli: Cli) -> None:
    assert cli("gpus").out == "no GPU\n"
    assert cli.json("gpus")["devices"] == []
    assert cli("gpus", "--prometheus").out == ""


def test_table(cli: Cli) -> None:
    describe(cli, FULL, {"uuid": "GPU-b", "usable": False, "trouble": "it is on fire"})
    out = cli("gpus", "--topology", LC_ALL="C.UTF-8").out
    assert "driver 580.65.06" in out and "CUDA up to 13.0" in out
    row = next(line for line in out.splitlines() if line.lstrip().startswith("3 "))
    for word in ("H100", "6.44 GB / 85.9 GB", "37%", "41 °C", "121 / 700 W", "free"):
        assert word in row, row
    assert "unusable" in out and "it is on fire" in out
    assert "18xL" in out and "16-31" in out
    assert "- / -" in out  # unknown is a dash, never a zero


def test_json_has_null_for_unknown(cli: Cli) -> None:
    describe(cli, FULL, {"uuid": "GPU-b"})
    shown = cli.json("gpus")
    first, second = shown["devices"]
    assert shown["driver"] == "580.65.06" and shown["cuda"] == "13.0" and not shown["simulated"]
    for key, value in FULL.items():
        if key in first and key not in ("throttle", "ecc", "remap_pending", "links", "processes"):
            assert first[key] == value, key
    assert first["throttle"] == ["power_cap", "hw_thermal"]
    assert first["ecc"] is True and first["remap_pending"] is False
    assert first["compute_capability"] == "9.0"
    assert first["links"][1] == {"link": "fabric", "n": 18}
    assert first["status"] == "free" and first["usable"] is True
    for key in ("busy_percent", "memory_used", "power_mw", "ecc", "throttle", "pci", "numa", "xid"):
        assert second[key] is None, key
    assert set(first) == set(second)


def test_who_has_it(cli: Cli) -> None:
    describe(cli, {"uuid": "GPU-a", "memory_bytes": 1 << 33})
    doc = cli.document({"train": {"run": "echo on > on; sleep 600", "resources": {"gpu_count": 1}}})
    cli.start("run", doc)
    cli.until("on")
    (device,) = devices_of(cli)
    assert device["status"] == "leased" and "step train" in device["holder"]
    assert "leased by run" in cli("gpus").out
    assert re.search(r"^stoker_device_leased{.*} 1$", cli("gpus", "--prometheus").out, re.M)


def test_a_program_outside_stoker(cli: Cli) -> None:
    pid = os.getpid()
    describe(cli, {"uuid": "GPU-a", "memory_bytes": 1 << 33, "processes": {str(pid): 3 << 30}})
    (device,) = devices_of(cli)
    (process,) = device["processes"]
    assert process["pid"] == pid and process["memory_bytes"] == 3 << 30 and process["name"]
    assert device["status"] == "in use" and str(pid) in device["outside"]
    assert f"pid {pid}" in cli("gpus").out


# --- Prometheus ---

METRIC = re.compile(
    r'([a-zA-Z_:][a-zA-Z0-9_:]*)\{((?:[a-zA-Z_]\w*="(?:[^"\\\n]|\\[\\"n])*",?)*)\} (-?[0-9.]+)'
)


def parse(text: str) -> dict[tuple[str, str], float]:
    """Parses Prometheus text into (name, labels) → value, and checks the format."""
    found: dict[tuple[str, str], float] = {}
    types: dict[str, str] = {}
    last = None
    assert text == "" or text.endswith("\n")
    for line in text.splitlines():
        if line.startswith("# "):
            _, kind, name, rest = line.split(" ", 3)
            assert kind in ("HELP", "TYPE") and rest
            if kind == "TYPE":
                assert name not in types and rest in ("gauge", "counter")
                types[name] = rest
            last = name
            continue
        match = METRIC.fullmatch(line)
        assert match, line
        assert match[1] == last and match[1] in types, f"{match[1]} stands apart from its TYPE"
        assert (match[1], match[2]) not in found, f"twice: {line}"
        found[match[1], match[2]] = float(match[3])
    return found


def test_prometheus(cli: Cli) -> None:
    describe(cli, FULL, {"uuid": "GPU-b"})
    found = parse(cli("gpus", "--prometheus").out)
    mine = {name: value for (name, labels), value in found.items() if UUID in labels}
    assert mine == {
        "DCGM_FI_DEV_SM_CLOCK": 1980,
        "DCGM_FI_DEV_MEM_CLOCK": 2619,
        "DCGM_FI_DEV_GPU_TEMP": 41,
        "DCGM_FI_DEV_POWER_USAGE": 120.5,
        "DCGM_FI_DEV_POWER_MGMT_LIMIT": 700,
        "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION": 987654321,
        "DCGM_FI_DEV_GPU_UTIL": 37,
        "DCGM_FI_DEV_MEM_COPY_UTIL": 12,
        "DCGM_FI_DEV_FB_TOTAL": 81920,
        "DCGM_FI_DEV_FB_FREE": 81920 - 6144,
        "DCGM_FI_DEV_FB_USED": 6144,
        "DCGM_FI_DEV_CLOCK_THROTTLE_REASONS": 68,
        "DCGM_FI_DEV_PCIE_LINK_GEN": 5,
        "DCGM_FI_DEV_PCIE_LINK_WIDTH": 16,
        "DCGM_FI_DEV_PCIE_TX_THROUGHPUT": 1500,
        "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL": 2,
        "DCGM_FI_DEV_ROW_REMAP_PENDING": 0,
        "stoker_device_usable": 1,
        "stoker_device_leased": 0,
    }
    labels = next(labels for name, labels in found if UUID in labels)
    assert labels.startswith(
        f'gpu="3",UUID="{UUID}",pci_bus_id="00000000:0F:00.0",device="nvidia3"'
    )
    assert r'modelName="NVIDIA \"H100\"\\80"' in labels
    assert f'Hostname="{os.uname().nodename}",DCGM_FI_DRIVER_VERSION="580.65.06"' in labels
    others = {name for name, labels in found if "GPU-b" in labels}
    assert others == {"stoker_device_usable", "stoker_device_leased"}


def test_prometheus_of_slices(cli: Cli) -> None:
    found = parse(cli("gpus", "--prometheus", "--simulate", "2xA100,mig=1g.10gb*7").out)
    slices = [
        labels for name, labels in found if name == "DCGM_FI_DEV_FB_TOTAL" and "GPU_I" in labels
    ]
    assert len(slices) == len(set(slices)) == 14
    assert 'GPU_I_PROFILE="1g.10gb",GPU_I_ID="6"' in slices[-1]


def test_an_xid_of_this_boot(cli: Cli) -> None:
    """The kernel log names the device by its PCI address, and its last line counts."""
    line = "4,{},5678901,-;NVRM: Xid (PCI:0000:0f:00): {}, pid=77, name=python\n"
    cli.write("root/dev/kmsg", line.format(1, 94) + line.format(2, 31))
    library = ROOT / "build/src/host/accel/libnvidia-ml-fake.so"
    assert library.is_file(), "run `ninja -C build` first"
    cli.env |= {
        "STOKER_SYSROOT": str(cli.folder / "root"),
        "STOKER_NVML": str(library),
        "STOKER_ACCEL": "nvml",
    }
    found = parse(cli("gpus", "--prometheus").out)
    xids = {labels: value for (name, labels), value in found.items() if name.endswith("XID_ERRORS")}
    ((labels, value),) = xids.items()
    assert value == 31 and 'pci_bus_id="00000000:0F:00.0"' in labels
    assert [d["xid"] for d in devices_of(cli)] == [31, None]


# --- machines that aren't here ---


@pytest.mark.parametrize(
    "spec, n, first",
    [
        ("8xH100", 8, {"vendor": "nvidia", "uuid": "GPU-sim-0", "numa": 0}),
        ("2xA100,mig=1g.10gb*7", 16, {"status": "split", "slices": 7, "usable": False}),
        ("4xMI300X", 4, {"vendor": "amd", "model": "AMD Instinct MI300X"}),
        ("16xTrainium", 16, {"vendor": "aws", "kind": "Neuron device", "cores": 2}),
        ("v5e-8", 8, {"vendor": "google", "kind": "TPU chip"}),
        ("1xH100,busy=30+v5e-4", 5, {"busy_percent": 30}),
    ],
)
def test_simulated(cli: Cli, spec: str, n: int, first: dict[str, Any]) -> None:
    shown = cli.json("gpus", "--simulate", spec)
    assert shown["simulated"] is True and len(shown["devices"]) == n
    assert {key: shown["devices"][0][key] for key in first} == first
    assert cli("gpus", "--topology", "--simulate", spec).code == 0


@pytest.mark.parametrize(
    "args, words",
    [
        (["--simulate", "8xH10"], ["'H10'", "did you mean H100?"]),
        (["--simulate", ""], ["name one", "8xH100"]),
        (["--simulate", "A100,mig=1g.10gb*8"], ["room for 7"]),
        (["--simulate"], ["--simulate needs a value"]),
        (["now"], ["'now' is one argument too many"]),
        (["--watch", "0"], ["'0'", "0.1 to 86400"]),
        (["--watch", "soon"], ["'soon'"]),
        (["--watch", "nan"], ["'nan'"]),
        (["--watch", "1", "2"], ["'2' is one argument too many"]),
        (["--prometheus", "--watch"], ["leave out --watch"]),
        (["--prometheus", "--json"], ["leave out --json"]),
        (["--clear"], ["--clear needs a value"]),
        (["--topologie"], ["did you mean '--topology'"]),
    ],
)
def test_wrong_words(cli: Cli, args: list[str], words: list[str]) -> None:
    run = cli("gpus", *args)
    assert run.code == 2 and all(word in run.err + run.out for word in words), run.err


def test_unreadable_file(cli: Cli) -> None:
    run = cli("gpus", STOKER_ACCEL="fake:nothing.json")
    assert run.code == 3 and "nothing.json" in run.err


def test_plan_on_another_machine(cli: Cli) -> None:
    doc = cli.document({"train": {"run": "true", "resources": {"gpu_count": 4}}})
    assert "4 GPUs" in cli("plan", "--simulate", "8xH100", doc).out
    few = cli("plan", "--simulate", "2xH100", doc)
    assert few.code != 0 and "gpu_count 4" in few.err, few.err
    assert cli("plan", "--simulate", "2xH1000", doc).code == 2


def test_run_on_another_machine(cli: Cli) -> None:
    """Variables are set and leases taken, but no device is used, and one line says so."""
    say = 'echo "$CUDA_VISIBLE_DEVICES/$ROCR_VISIBLE_DEVICES/$HIP_VISIBLE_DEVICES"'
    steps = {
        "train": {"run": say, "resources": {"gpu_count": 2}},
        "report": {"run": say, "after": ["train"]},
    }
    run = cli.run(steps, "--simulate", "4xMI300X")
    assert run.code == 0
    assert "stoker: 4 simulated GPUs: " in run.err
    assert re.fullmatch(r"/GPU-sim-\d,GPU-sim-\d/0,1\n", run.text("train"))
    assert run.text("report") == "//-1\n"
    assert "simulated" not in cli.run(steps, "--quiet", "--simulate", "4xMI300X", "--no-cache").err


def test_python_file_on_another_machine(cli: Cli) -> None:
    cli.write(
        "p.py",
        """
import os
from stoker import ResourceSettings, pipeline, step

@step(settings={"resources": ResourceSettings(gpu_count=2)})
def train() -> str:
    print(os.environ["CUDA_VISIBLE_DEVICES"])
    return "x"

@pipeline
def p() -> None:
    train()

p()
""",
    )
    run = cli("run", "--python", PYTHON, "--simulate", "4xH100", "p.py", timeout=60)
    assert run.code == 0, run.err
    assert re.fullmatch(r"GPU-sim-\d,GPU-sim-\d\n", run.text("train"))


# --- watching, quarantine ---


def line_of(child: subprocess.Popen[str]) -> str:
    assert child.stdout is not None
    return child.stdout.readline()


def test_watch_prints_lines(cli: Cli) -> None:
    describe(cli, FULL)
    child = cli.start("gpus", "--watch", "0.1")
    lines = [line_of(child) for _ in range(3)]
    assert all(re.match(r"\d{4}-\d\d-\d\dT[\d:]+Z  GPU 3  GPU-6f1c", line) for line in lines)
    describe(cli, {**FULL, "busy_percent": 93})
    wait_for(lambda: "busy 93%" in line_of(child), why="a new look at the device")
    child.send_signal(signal.SIGINT)
    assert child.wait(WAIT_S) == 0


def test_watch_json_is_a_line_a_look(cli: Cli) -> None:
    child = cli.start("gpus", "--watch", "0.1", "--json", "--simulate", "v5e-4")
    looks = [json.loads(line_of(child)) for _ in range(2)]
    assert len(looks[1]["devices"]) == 4 and looks[0]["time_ms"] < looks[1]["time_ms"]


def test_watch_sees_an_xid(cli: Cli) -> None:
    describe(cli, FULL)
    child = cli.start("gpus", "--watch", "0.1", "--json")
    assert json.loads(line_of(child))["devices"][0]["xid"] is None
    describe(cli, {**FULL, "events": [{"xid": 31, "text": "Xid 31"}]})
    wait_for(lambda: json.loads(line_of(child))["devices"][0]["xid"] == 31)
    assert json.loads(line_of(child))["devices"][0]["xid"] == 31  # the last one stays


def test_watch_redraws_a_terminal(cli: Cli) -> None:
    main, side = pty.openpty()
    cli.start("gpus", "--watch", "0.1", "--simulate", "2xL4", stdout=side)
    os.close(side)
    text = b""
    while text.count(b"\033[1;1H") < 3:
        text += os.read(main, 4096)
    assert b"L4" in text
    os.close(main)


def test_quarantine_is_lifted(cli: Cli) -> None:
    describe(cli, {"uuid": "GPU-aa-1"}, {"uuid": "GPU-aa-2"})
    devices_of(cli)
    leases = cli.folder / "leases"
    leases.mkdir(exist_ok=True)
    (leases / "nvidia-GPU-aa-1.quarantine").write_text("Xid 79: GPU has fallen off the bus\n")
    assert [d["status"] for d in devices_of(cli)] == ["unusable", "free"]
    assert "fallen off the bus" in cli("gpus").out
    assert "several devices" in cli("gpus", "--clear", "GPU-aa").err
    assert "no device 'GPU-c'" in cli("gpus", "--clear", "GPU-c").err
    done = cli("gpus", "--clear", "GPU-aa-1")
    assert done.code == 0 and "in the pool again" in done.out
    assert [d["status"] for d in devices_of(cli)] == ["free", "free"]
    again = cli("gpus", "--clear", "GPU-aa-1")
    assert again.code != 0 and "quarantine" in again.err


def test_wsl2(cli: Cli) -> None:
    """Windows' driver shows no /dev/nvidia0: its node is /dev/dxg, its NVML in a folder of WSL's."""
    built = ROOT / "build/src/host/accel/libnvidia-ml-fake.so"
    assert built.is_file(), "run `ninja -C build` first"
    library = cli.write("root/usr/lib/wsl/lib/libnvidia-ml.so.1", "")
    library.write_bytes(built.read_bytes())
    cli.env |= {"STOKER_SYSROOT": str(cli.folder / "root"), "STOKER_ACCEL": "nvml"}
    assert devices_of(cli) == []  # a Linux that merely has the folder
    cli.write("root/dev/dxg", "")
    found = devices_of(cli)
    assert [d["vendor"] for d in found] == ["nvidia", "nvidia"]
    assert all(d["uuid"].startswith("GPU-") for d in found)
