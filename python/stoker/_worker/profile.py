"""The artifacts of ``@gpu_profile``: the step's devices over time.

The worker reads ``samples.bin`` (src/host/runner/runner_samples.h) at the step's end and stores the
curves in the shape of Metaflow's decorator. Works on Python 3.7, like all modules of the worker.
"""

from __future__ import annotations

import os
import struct
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import (
        Any,
        Dict,
        List,
        Mapping,
        NamedTuple,
        Optional,
        Sequence,
        Tuple,
    )

    class Sample(NamedTuple):
        """Seconds since the start, bytes, seconds of CPU time; devices: (memory bytes, busy
        percent); sizes of stdout and stderr."""

        time_s: float
        rss_bytes: int
        cpu_s: float
        devices: Sequence[Tuple[int, int]]
        log_bytes: Tuple[int, int]

else:
    from collections import namedtuple

    Sample = namedtuple("Sample", "time_s rss_bytes cpu_s devices log_bytes")

PROFILE_TAG = "gpu_profile"


# ---------------------------------------------------------------------------- names of the outputs


def names_of(task: Mapping[str, Any]) -> List[str]:
    """Names of a running task's profile outputs, from its ``extra``."""
    declared = task.get("outputs") or ()
    return [n for n in output_names((task.get("extra") or {}).get("gpu_profile")) if n in declared]


def output_names(setting: Any) -> List[str]:
    """Names of the outputs that a step's ``gpu_profile`` setting adds."""
    if not isinstance(setting, dict) or not setting.get("include_artifacts", True):
        return []
    prefix = setting.get("artifact_prefix", "gpu_profile_")
    return [f"{prefix}{what}" for what in ("data", "num_gpus")]


# ---------------------------------------------------------------------------- what they hold


def profile_of(directory: str, granted: Sequence[Mapping[str, Any]]) -> Tuple[Dict[str, Any], int]:
    """(``data``, ``num_gpus``) of a running attempt; see :func:`gpu_profile`."""
    data: Dict[str, Any] = {"error": None, "cuda_version": None, "driver_version": _driver()}
    if not granted:
        data.update({"error": "this step was granted no device", "devices": [], "profile": {}})
        return data, 0
    start_ms, uuids, samples = read_samples(os.path.join(directory, "samples.bin"))
    totals = _totals(granted)
    data["devices"] = [
        {"device_id": d.get("uuid"), "name": d.get("model"), "memory": total}
        for d, total in zip(granted, totals)
    ]
    of = dict(zip((d.get("uuid") for d in granted), totals))
    if not samples:
        data["error"] = "the step ended before its devices were sampled"
    data["profile"] = {
        uuid: _curves(i, start_ms, samples, of.get(uuid)) for i, uuid in enumerate(uuids)
    }
    return data, len(granted)


def _curves(
    i_device: int, start_ms: int, samples: Sequence[Sample], total_mb: Optional[int]
) -> Dict[str, List[Any]]:
    ram_total = _ram_mb()
    found: Dict[str, List[Any]] = {name: [] for name in _CURVES}
    before: Optional[Sample] = None
    for sample in samples:
        memory, busy = sample.devices[i_device]
        moment = time.localtime(start_ms / 1000 + sample.time_s)
        row = (
            time.strftime("%Y/%m/%d %H:%M:%S", moment),
            round(sample.time_s, 3),
            None if busy < 0 else busy,
            None if memory < 0 else memory >> 20,
            total_mb,
            _cpu_percent(before, sample),
            None if sample.rss_bytes < 0 else sample.rss_bytes >> 20,
            ram_total,
        )
        for name, value in zip(_CURVES, row):
            found[name].append(value)
        before = sample
    return found


_CURVES = (
    *("timestamp", "time_s", "gpu_utilization", "gpu_memory_used", "gpu_memory_total"),
    *("cpu_utilization", "ram_used", "ram_total"),
)


def _cpu_percent(before: Optional[Sample], now: Sample) -> Optional[float]:
    passed = now.time_s - (before.time_s if before is not None else 0)
    used = now.cpu_s - (before.cpu_s if before is not None else 0)
    if passed <= 0 or now.cpu_s < 0 or (before is not None and before.cpu_s < 0):
        return None
    return round(100 * used / passed, 1)


def _totals(granted: Sequence[Mapping[str, Any]]) -> List[Optional[int]]:
    """Memory of each granted device or share, in MB; None: unknown."""
    found = []
    for device in granted:
        size = device.get("share_bytes") or device.get("memory_bytes")
        found.append(None if not size else int(size) >> 20)
    return found


def _driver() -> Optional[str]:
    try:
        with open("/sys/module/nvidia/version", encoding="ascii") as stream:
            return stream.read().strip()
    except OSError:
        return None


def _ram_mb() -> Optional[int]:
    try:
        return int(os.sysconf("SC_PHYS_PAGES")) * int(os.sysconf("SC_PAGE_SIZE")) >> 20
    except (OSError, ValueError):
        return None


# ---------------------------------------------------------------------------- samples.bin

_HEADER = struct.Struct("<8sIIq")
# version → (start of a record, up to the number of devices; start of a device; whether there is a
# count)
_RECORDS = {
    b"STKSMP1\n": (struct.Struct("<qqq"), struct.Struct("<qi"), False),
    b"STKSMP2\n": (struct.Struct("<qqqqqII"), struct.Struct("<qi"), True),
    b"STKSMP3\n": (struct.Struct("<qqqqqqqII"), struct.Struct("<qi"), True),
}


def read_samples(path: str) -> Tuple[int, List[str], List[Sample]]:
    """(start in Unix milliseconds, uuids of the devices, samples) of a ``samples.bin`` that may
    still grow.

    Before the first sample there are no uuids and no samples. A negative number means unknown.

    Raises:
        ValueError: the file is of another kind.
    """
    try:
        with open(path, "rb") as stream:
            raw = stream.read()
    except OSError:
        return 0, [], []
    if len(raw) < _HEADER.size:
        return 0, [], []
    magic, n_devices, size, start_ms = _HEADER.unpack_from(raw)
    if magic not in _RECORDS:
        raise ValueError(f"'{path}' is not a file of samples that this Stoker can read")
    head, device, counted = _RECORDS[magic]
    at = _HEADER.size + 64 * n_devices
    uuids = [
        raw[_HEADER.size + 64 * i : _HEADER.size + 64 * (i + 1)]
        .rstrip(b"\0")
        .decode("utf-8", "replace")
        for i in range(n_devices)
    ]
    device_size = size if counted else (size - head.size) // n_devices if n_devices else 0
    samples: List[Sample] = []
    last: Sequence[Tuple[int, int]] = [(-1, -1)] * n_devices
    while at + head.size <= len(raw):
        fields = head.unpack_from(raw, at)
        n = fields[-2] if counted else n_devices
        if at + head.size + n * device_size > len(raw):
            break  # the last record is incomplete
        if n:
            places = (at + head.size + i * device_size for i in range(n))
            last = [device.unpack_from(raw, place) for place in places]
        cpu_s = fields[2] / 1e6 if fields[2] >= 0 else -1.0
        logs = fields[5:7] if len(fields) > 7 else (-1, -1)
        samples.append(Sample(fields[0] / 1000, fields[1], cpu_s, last, logs))
        at += head.size + n * device_size
    return start_ms, uuids, samples
