"""Every way of asking × other machines: the order that crosses to the agent (job.json in the share), which looks for
the devices once more before the task runs. What the container itself asks for reaches it as STOKER_ASKED_DEVICES:
test_requests.py judges that; here it is what the table says.
"""

from __future__ import annotations

import json
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Iterator, Optional

import pytest
from crossing_tools import PLAIN, Place, asking, cells, device_options, due_elsewhere, silent
from requests_table import CLUSTERS, FORMS, SPLIT, WAYS, Form, Object, Option, Way

PARTS = ("mig-", ".shared", "neuroncore")  # of devices: the container is told of one


class Player:
    """The engine of the other machines: keeps the order of each job that it is asked for, and ends it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.orders: dict[str, list[Object]] = {}  # by step
        self.error: Optional[BaseException] = None
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._play, daemon=True)
        self._thread.start()

    def _play(self) -> None:
        seen: set[str] = set()
        try:
            while not self._over.wait(0.01):
                for path in self.folder.glob("s-*.json"):
                    if path.stem not in seen:
                        seen.add(path.stem)
                        self._end(path)
        except BaseException as e:
            self.error = e
            raise

    def _end(self, path: Path) -> None:
        job = json.loads(path.read_text())
        share, key = job["argv"][-2:]
        order = json.loads((Path(share) / key / "job.json").read_text())
        assert order["step"] == job["step"]
        self.orders.setdefault(job["step"], []).append(order)
        state = {"phase": "failed", "failure": "exit", "exit_status": 1, "text": "only written down"}  # fmt: skip
        made = path.with_name(f".{path.stem}.new")
        made.write_text(json.dumps(state))
        made.rename(path.with_suffix(".state"))

    def close(self) -> None:
        self._over.set()
        self._thread.join()
        if self.error is not None:
            raise self.error


@pytest.fixture
def player(place: Place) -> Iterator[Player]:
    folder = place.folder.parent / "engine"
    folder.mkdir()
    place.env |= {"STOKER_REMOTE_FAKE": str(folder), "STOKER_SYNC": "0"}
    stacks = {
        name: {"backend": name, "store": str(place.folder.parent / "share"), "max_jobs": 1000, **({"hosts": ["gpu1", "gpu2"]} if name == "ssh" else {} if name == "slurm" else {"default_image": "127.0.0.1:1/i:1"})}
        for name in CLUSTERS
    }  # fmt: skip
    place.stacks(stacks)
    made = Player(folder)
    yield made
    made.close()


def looked_for(order: Object, due: Any) -> Any:
    """(vendor, how many, of which models) the agent looks for: the larger number; the order's vendor, else the
    container's.
    """
    said = order["asked_devices"]
    told = None
    if due is not None:
        vendor, resource, n, _ = due
        told = vendor, n if not any(part in resource for part in PARTS) else 1
    if said is None:
        return told and (*told, None)
    vendor = said["vendor"] or (told[0] if told else None)
    return vendor, max(said["count"], told[1] if told else 0), said.get("classes")


def is_due(due: Any, way: Way, order: Object) -> bool:
    got = looked_for(order, due)
    if due is None or got is None:
        return due is None and got is None
    vendor, resource, n, _ = due
    if any(part in resource for part in PARTS[1:]):  # what is counted there is no device
        n = way.means[0].count if way.means else 1
    words = {one.word or one.slice for one in way.means}
    classes = words if words and "" not in words and None not in words else None
    return bool((vendor, n, classes) == (*got[:2], set(got[2]) if got[2] else None))


def check(place: Place, player: Player, wanted: list[tuple[str, Form, Way, Object, Optional[str], Option]], prefix: str = "s", **more: Any) -> list[str]:  # fmt: skip
    """One run of those that are due to be honoured, or to have no device."""
    due: dict[str, tuple[str, Way, Any]] = {}
    steps: Object = {}
    for i, (what, form, way, resources, name, option) in enumerate(wanted):
        expected = due_elsewhere(form, way, option)
        if expected != "refused":
            due[f"{prefix}{i}"] = (what, way, expected)
            steps[f"{prefix}{i}"] = {**asking(form, resources, name, option), "cache": False}
    document = place.document(steps, mode="continue_on_failure", **more)
    _, _, err = place("run", "--quiet", "--max-workers", "1000", document)
    wrong = []
    for s, (what, way, expected) in due.items():
        orders = player.orders.get(s, [])
        if not orders:
            wrong.append(silent(what, expected, f"no order: {err[-300:]}"))
        elif not is_due(expected, way, orders[0]):
            wrong.append(silent(what, expected, orders[0]["asked_devices"]))
        cells["none asked for" if expected is None else "honoured"] += 1
    return wrong


# On hosts of SSH the agent leases what the host's own order says (test_requests.py).
BY_ORDER = [name for name in CLUSTERS if name != "ssh"]


@pytest.mark.parametrize(
    "form", [name for name, one in FORMS.items() if not one.foreach and one.cluster in BY_ORDER]
)
def test_the_agent_is_told(place: Place, player: Player, form: str) -> None:
    """All ways of asking, with all options that ask for devices."""
    one = FORMS[form]
    wanted = [
        (f"{form}, an order, {way}, option {name}", one, meant, meant.resources, name, option)
        for way, meant in WAYS.items()
        for name, option in device_options(one.cluster).items()
    ]
    wrong = check(place, player, wanted)
    assert not wrong, f"{len(wrong)} cells: " + "\n".join(wrong[:25])


def test_the_agent_is_told_what_the_pipeline_says(place: Place, player: Player) -> None:
    """Runs in parallel, because they mostly wait."""
    documents = [
        (cluster, f"{cluster[0]}{i}x", *said)
        for cluster in BY_ORDER
        for i, said in enumerate(SPLIT.values())
    ]

    def one(cluster: str, prefix: str, above: Object, below: Object, way: str) -> list[str]:
        what = f"{cluster}, an order, {above} above {below}"
        cell = (what, Form(cluster), WAYS[way], below, None, PLAIN)
        return check(place, player, [cell], prefix, resources=above)

    with ThreadPoolExecutor(8) as pool:
        wrong = [line for lines in pool.map(lambda words: one(*words), documents) for line in lines]
    assert not wrong, f"{len(wrong)} cells: " + "\n".join(wrong[:25])
