"""Records the answers of NVIDIA's NVML on this machine, which src/host/accel/testdata/fake_nvml.c
replays.

    record_nvml.py [--library libnvidia-ml.so.1] [--anonymous] > machine.nvml

Needs nothing but the driver's library, changes nothing. --anonymous replaces UUIDs by made-up ones and leaves out
processes. The form is explained at the head of fake_nvml.c.
"""

from __future__ import annotations

import argparse
import ctypes as c
import re
import sys

LINKS, SLICES, CAUSES = 36, 16, 2
ERROR_NOT_SUPPORTED, ERROR_INSUFFICIENT_SIZE = 3, 7
LACKING = {ERROR_NOT_SUPPORTED, 13}  # also if the library has it, but the driver doesn't

# Functions that return one number, and those that take a kind.
NUMBERS = [
    "MinorNumber",
    "PowerUsage",
    "EnforcedPowerLimit",
    "FanSpeed",
    "CurrPcieLinkGeneration",
    "MaxPcieLinkGeneration",
    "CurrPcieLinkWidth",
    "MaxPcieLinkWidth",
    "RetiredPagesPendingStatus",
    "PersistenceMode",
    "ComputeMode",
    "MaxMigDeviceCount",
]
NUMBERS_OF = {"Temperature": 1, "ClockInfo": 4, "MaxClockInfo": 4, "PcieThroughput": 2}
PAIRS = ["UtilizationRates", "EccMode", "MigMode"]
FIELDS = {83: 0, 138: 0xFFFFFFFF, 139: 0xFFFFFFFF, 197: 0, 198: 0, 202: 0xFFFFFFFF, 204: 0xFFFFFFFF}


class Memory(c.Structure):
    _fields_ = [
        ("version", c.c_uint),
        *((n, c.c_ulonglong) for n in ("total", "reserved", "free", "used")),
    ]


class Pci(c.Structure):
    _fields_ = [("legacy", c.c_char * 16), ("numbers", c.c_uint * 5), ("bus_id", c.c_char * 32)]


class Process(c.Structure):
    _fields_ = [("pid", c.c_uint), ("memory", c.c_ulonglong), ("instances", c.c_uint * 2)]


class Attributes(c.Structure):
    _fields_ = [
        ("counts", c.c_uint * 6),
        ("gpu", c.c_uint),
        ("compute", c.c_uint),
        ("mb", c.c_ulonglong),
    ]


class Field(c.Structure):
    _fields_ = [
        ("field", c.c_uint),
        ("scope", c.c_uint),
        ("time", c.c_longlong),
        ("latency", c.c_longlong),
        ("type", c.c_uint),
        ("code", c.c_int),
        ("value", c.c_ulonglong),
    ]


class Recorder:
    """Calls one function after the other, and prints the answers."""

    def __init__(self, library: str, anonymous: bool) -> None:
        self.lib = c.CDLL(library)
        self.anonymous = anonymous

    def call(self, name: str, *args: object) -> int:
        """NVML's return code, of the newest version of the function."""
        short_records = "RunningProcesses" in name  # of its first version
        for version in ("_v3", "_v2") if short_records else ("_v3", "_v2", ""):
            if hasattr(self.lib, name + version):
                return int(getattr(self.lib, name + version)(*args))
        return ERROR_NOT_SUPPORTED

    def say(self, key: str, code: int, answer: str) -> None:
        if code == 0:
            print(f"{key} = {answer}")
        elif code not in LACKING:
            print(f"{key} = !{code}")

    def text(self, name: str, *handle: c.c_void_p) -> None:
        buf = c.create_string_buffer(256)
        code = self.call(name, *handle, buf, c.c_uint(256))
        answer = buf.value.decode("utf-8", "replace")
        if self.anonymous and name.endswith("UUID"):
            self.n_names = getattr(self, "n_names", 0) + 1
            answer = re.sub(
                r"[0-9a-f]{8}-[0-9a-f-]{27}", f"00000000-0000-0000-0000-{self.n_names:012d}", answer
            )
        self.say(name, code, answer)

    def numbers(
        self, key: str, n: int, *args: object, kind: type = c.c_uint, name: str = ""
    ) -> list[int]:
        """A function that writes n numbers to n addresses."""
        out = [kind() for _ in range(n)]
        code = self.call(name or key.split()[0], *args, *(c.byref(o) for o in out))
        self.say(key, code, " ".join(str(o.value) for o in out))
        return [o.value for o in out] if code == 0 else []

    def pair(self, name: str, device: c.c_void_p) -> list[int]:
        if not name.endswith("UtilizationRates"):
            return self.numbers(name, 2, device)
        rates = (c.c_uint * 2)()  # one structure
        self.say(name, self.call(name, device, c.byref(rates)), f"{rates[0]} {rates[1]}")
        return list(rates)

    def memory(self, device: c.c_void_p) -> None:
        m = Memory(version=0x02000028)
        code = self.lib.nvmlDeviceGetMemoryInfo_v2(device, c.byref(m))
        self.say("nvmlDeviceGetMemoryInfo", code, f"{m.total} {m.free} {m.used} {m.reserved}")

    def processes(self, kind: str, device: c.c_void_p) -> None:
        name = f"nvmlDeviceGet{kind}RunningProcesses"
        count, found = c.c_uint(256), (Process * 256)()
        code = self.call(name, device, c.byref(count), found)
        some = [] if self.anonymous or code else found[: count.value]
        unknown = 2**64 - 1
        self.say(
            name,
            code,
            " ".join(f"{p.pid}:{'?' if p.memory == unknown else p.memory}" for p in some),
        )

    def health(self, device: c.c_void_p) -> None:
        for kind, counter in ((0, 0), (1, 0), (0, 1), (1, 1)):
            self.numbers(
                f"nvmlDeviceGetTotalEccErrors {kind} {counter}",
                1,
                device,
                kind,
                counter,
                kind=c.c_ulonglong,
            )
        self.numbers("nvmlDeviceGetRemappedRows", 4, device)
        for cause in range(CAUSES):
            count = c.c_uint(0)
            code = self.call("nvmlDeviceGetRetiredPages", device, cause, c.byref(count), None)
            code = 0 if code == ERROR_INSUFFICIENT_SIZE else code
            self.say(f"nvmlDeviceGetRetiredPages {cause}", code, str(count.value))

    def fields(self, device: c.c_void_p) -> None:
        for number, scope in FIELDS.items():
            f = Field(field=number, scope=scope)
            code = self.call("nvmlDeviceGetFieldValues", device, 1, c.byref(f)) or f.code
            self.say(f"nvmlDeviceGetFieldValues {number}", code, f"{f.type} {f.value} {f.time}")

    def links(self, device: c.c_void_p) -> None:
        for link in range(LINKS):
            if not self.numbers(f"nvmlDeviceGetNvLinkState {link}", 1, device, link):
                return
            self.numbers(f"nvmlDeviceGetNvLinkRemoteDeviceType {link}", 1, device, link)
            pci = Pci()
            code = self.call("nvmlDeviceGetNvLinkRemotePciInfo", device, link, c.byref(pci))
            self.say(f"nvmlDeviceGetNvLinkRemotePciInfo {link}", code, pci.bus_id.decode())

    def part(self, device: c.c_void_p) -> None:
        """Functions for whole devices and for slices."""
        self.text("nvmlDeviceGetUUID", device)
        self.text("nvmlDeviceGetName", device)
        self.memory(device)
        self.processes("Compute", device)
        self.processes("Graphics", device)
        a = Attributes()
        code = self.call("nvmlDeviceGetAttributes", device, c.byref(a))
        self.say("nvmlDeviceGetAttributes", code, f"{a.gpu} {a.compute} {a.mb}")

    def device(self, i: int, others: list[c.c_void_p]) -> None:
        device = others[i]
        print(f"[device {i}]")
        self.part(device)
        pci = Pci()
        code = self.call("nvmlDeviceGetPciInfo", device, c.byref(pci))
        self.say("nvmlDeviceGetPciInfo", code, pci.bus_id.decode())
        self.numbers("nvmlDeviceGetCudaComputeCapability", 2, device, kind=c.c_int)
        for name in NUMBERS:
            self.numbers(f"nvmlDeviceGet{name}", 1, device)
        for name, n in NUMBERS_OF.items():
            for which in range(n):
                self.numbers(f"nvmlDeviceGet{name} {which}", 1, device, which)
        for name in PAIRS:
            self.pair(f"nvmlDeviceGet{name}", device)
        for name in ("TotalEnergyConsumption", "CurrentClocksEventReasons", "SupportedEventTypes"):
            self.numbers(f"nvmlDeviceGet{name}", 1, device, kind=c.c_ulonglong)
        self.health(device)
        self.fields(device)
        self.links(device)
        for k, other in enumerate(others):
            if k != i:
                self.numbers(f"nvmlDeviceGetTopologyCommonAncestor {k}", 1, device, other)
        for k in range(SLICES):
            piece = c.c_void_p()
            if self.call("nvmlDeviceGetMigDeviceHandleByIndex", device, k, c.byref(piece)) == 0:
                print(f"[slice {i}.{k}]")
                self.part(piece)

    def all(self) -> None:
        print("[system]")
        code = self.call("nvmlInit")
        if code:
            self.say("nvmlInit", code, "")
            return
        self.text("nvmlSystemGetDriverVersion")
        self.numbers("nvmlSystemGetCudaDriverVersion", 1, kind=c.c_int)
        count = c.c_uint()
        self.call("nvmlDeviceGetCount", c.byref(count))
        devices = []
        for i in range(count.value):
            devices.append(c.c_void_p())
            self.call("nvmlDeviceGetHandleByIndex", i, c.byref(devices[i]))
        for i in range(len(devices)):
            self.device(i, devices)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--library", default="libnvidia-ml.so.1")
    parser.add_argument("--anonymous", action="store_true")
    options = parser.parse_args()
    try:
        recorder = Recorder(options.library, options.anonymous)
    except OSError as error:
        print(f"record_nvml: {error}", file=sys.stderr)
        return 1
    recorder.all()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
