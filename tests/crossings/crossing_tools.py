"""Shared parts of the crossing tests: a project with stacks, the expected result of a cell, and the
count of cells."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any, Optional

from requests_table import CLUSTERS, KIND, OPTIONS, Ask, Form, Machine, Object, Option, Way
from stoker_binary import find_binary

ROOT = Path(__file__).resolve().parents[2]
STOKER = str(find_binary())
OTHER = {"store": "s3://b/p", "default_image": "127.0.0.1:1/i:1", "carry_volume": "/opt/stoker"}
STACKS: dict[str, Object] = {
    "kubernetes": {**OTHER, "backend": "kubernetes", "max_jobs": 100},
    "batch": {**OTHER, "backend": "batch", "carry": "volume", "options": {"queue": "q"}},
    "slurm": {"backend": "slurm", "store": "/shared/stoker", "carry_volume": "/opt/stoker"},
    "ssh": {"backend": "ssh", "store": "/shared/stoker", "hosts": ["gpu1", "gpu2"]},
}
cells: Counter[str] = Counter()  # by their results


def silent(what: str, expected: object, got: object) -> str:
    cells["silent"] += 1
    return f"{what}: {expected} is due, and what comes of it is {got}"


class Place:
    """A project's folder with the stacks and the program."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.stacks(STACKS)
        self.env = {
            **{k: v for k, v in os.environ.items() if not k.startswith(("STOKER_", "METAFLOW_"))},
            "HOME": str(folder),
            "AWS_REGION": "eu-west-1",
            "AWS_ACCESS_KEY_ID": "a",
            "AWS_SECRET_ACCESS_KEY": "b",
            "STOKER_STORE": str(folder / "store"),
            "STOKER_LEASE_DIR": str(folder / "leases"),
        }
        self.n = itertools.count()

    def __call__(self, *words: str, machine: Optional[str] = None) -> tuple[int, str, str]:
        """Exit status and both streams. `machine`: what is simulated; None: no devices at all."""
        env = {"STOKER_ACCEL": "sim:" + machine if machine else "none", **self.env}
        done = subprocess.run(
            [STOKER, *words], cwd=self.folder, env=env, capture_output=True, text=True, timeout=300
        )
        return done.returncode, done.stdout, done.stderr

    def stacks(self, stacks: Object) -> None:
        (self.folder / "stoker.yaml").write_text(json.dumps({"stacks": stacks}))

    def document(self, steps: Object, **more: Any) -> str:
        path = self.folder / f"p{next(self.n)}.json"
        path.write_text(json.dumps({"stoker": 1, "name": "p", **more, "steps": steps}))
        return str(path)


# --- what is due ---


def laid_over(asks: list[Ask], option: Option, only_first: bool) -> Optional[list[Ask]]:
    """The request with what an option asks for; None: they contradict each other (the first of them, if only that
    counts).
    """
    if not option.adds and not option.vendor and not option.chips:
        return asks
    made = []
    for i, ask in enumerate(asks or [Ask()]):
        if option.vendor and ask.vendor not in (None, option.vendor):
            if i > 0 and only_first:
                continue
            return None
        if option.instead and ask.counted:
            return None  # parts of devices, and a number of devices
        counts = bool(option.adds) and not option.word and not option.instead
        count = max(ask.count, option.adds) if counts else ask.count
        made.append(
            replace(
                ask, count=count, vendor=ask.vendor or option.vendor, counted=ask.counted or counts
            )
        )
    return made  # fmt: skip


def due_elsewhere(form: Form, way: Way, option: Option) -> Any:
    """None: no device; "refused"; else (vendor, resource, number of it, the models' words)."""
    cluster = CLUSTERS[form.cluster]
    if option.refused or (option.no_devices and form.nodes > 1):
        return "refused"
    if way.none:
        return None
    asks = laid_over(way.means, option, cluster.either == "first")
    if asks is None:
        return "refused"
    if not asks:
        return None
    if option.no_devices or asks[0].impossible:
        return "refused"
    if cluster.either == "all":  # each host judges by its own devices
        return [
            (a.vendor, a.count, a.slice or (a.model and (a.word or a.model)), a.share_gb)
            for a in asks
        ]
    default = option.default or "nvidia"
    gpus = ("nvidia", "amd", "intel")
    if option.default and any(a.vendor in gpus and a.vendor != option.default for a in asks):
        return "refused"
    asks = [replace(a, vendor=a.vendor or default) for a in asks]
    flies = option.pilot > 0 and form.nodes == 1
    kinds = {(a.vendor, a.count, a.model, a.slice, flies and a.share_gb) for a in asks}
    if cluster.either == "one" and len(kinds) > 1:
        return "refused"
    alike = [
        a for a in asks
        if (a.vendor, a.count, a.model is None) == (asks[0].vendor, asks[0].count, asks[0].model is None)
    ]  # fmt: skip
    if len(alike) < len(asks) and cluster.either == "models":
        return "refused"
    asks = alike if cluster.either == "first" else asks
    first = asks[0]
    shared = option.instead is not None and option.instead.endswith(".shared")
    if any(a.share_gb or a.auto for a in asks) and not (shared or flies):
        return "refused"
    if first.vendor not in cluster.resources or (shared and first.vendor != "nvidia"):
        return "refused"
    if first.slice and (
        cluster.slices is None or first.slice == "mig" or option.instead or option.word
    ):
        return "refused"  # fmt: skip
    own_words = option.has_label or form.cluster == "slurm"
    models = {a.word if own_words else a.model for a in asks if a.model}
    if option.family and any(a.model and not a.model.startswith(option.family) for a in asks):
        return "refused"
    if option.word:
        if any(a.model for a in asks) and not any(a.model in option.word for a in asks if a.model):
            return "refused"
        models = {option.word}
    models |= {option.model} if option.model else set()
    if models and first.vendor not in cluster.labels and not option.has_label:
        return "refused"
    count = first.count
    if option.chips:
        each = first.count if first.counted and first.count < option.chips else option.chips
        if first.count > option.chips or option.chips % each or option.chips // each != form.nodes:
            return "refused"
        count = each
    if flies and form.foreach and (not first.share_gb or option.pilot_gpus):
        most = option.pilot_gpus - option.pilot_gpus % count
        count = max(min(count * option.pilot, most or count * option.pilot), count)
    resource = cluster.resources[first.vendor]
    if first.slice and cluster.slices:
        resource = cluster.slices.format(first.slice)
    if option.instead:
        resource = option.instead
        count = count if shared else option.adds
    family = {option.family} if option.family and not models else set()
    return first.vendor, resource, count, frozenset(models | family)


def fits(ask: Ask, device: tuple[str, str, int, float, Optional[str]]) -> bool:
    vendor, model, _, gigabytes, profile = device
    wants_slice = ask.slice in ("mig", profile) and profile is not None
    return (
        (ask.vendor in (None, vendor) and ask.model in (None, model) and not ask.impossible)
        and (wants_slice if ask.slice else profile is None or (ask.count == 1 and bool(ask.share_gb)))
        and ask.share_gb <= gigabytes
    )  # fmt: skip


def due_here(machine: Machine, policy: str, asks: list[Ask], nodes: int = 1) -> Any:
    """None: no device; "refused"; "reported": it runs without; else the kinds that may be given, and how many."""
    if nodes > 1:
        return "refused"  # of one machine
    if not asks:
        return None
    for ask in asks:
        by_vendor: Counter[str] = Counter()
        whole = [d for d in machine.devices if fits(ask, d)]
        for vendor, _, n, _, _ in whole:
            by_vendor[vendor] += n
        most = max(by_vendor.values(), default=0)
        chips = any(d[0] == "google" for d in whole)
        if most >= ask.count and not (chips and ask.count not in (1, 2, 4, 8)):
            given = frozenset(d[:2] for d in whole if by_vendor[d[0]] >= ask.count)
            return given, ask.count, ask.share_gb
    here = {KIND[d[0]] for d in machine.devices}
    there = any(KIND[a.vendor] in here if a.vendor else bool(here) for a in asks)
    return "reported" if policy == "fit" and not there else "refused"


# --- steps ---

PLAIN = Option(None)


def asking(form: Form, resources: Object, name: Optional[str], option: Option) -> Object:
    said = {**(form.options or {}), **(option.with_other or {}), **({name: option.value} if name else {})}  # fmt: skip
    step: Object = {"run": "true", "backend": {form.cluster: said, "stack": form.cluster}}
    if resources:
        step["resources"] = resources
    if form.nodes > 1:
        step["gang"] = {"ranks": 1, "nodes": form.nodes}
    return step


def device_options(cluster: str) -> dict[Optional[str], Option]:
    told = {
        name: option
        for name, option in OPTIONS[cluster].items()
        if option.adds or option.vendor or option.default or option.instead or option.has_label or option.no_devices
    }  # fmt: skip
    return {None: PLAIN, **told}
