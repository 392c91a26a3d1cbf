"""Every option of Kubernetes and AWS Batch × every door it can be said through × every place where
the step may run: it stands in what would be submitted, or a sentence names it.

What an option of Kubernetes must become is in kube_options.py. An option of Batch must change the
request, and the same way through each door.
"""

from __future__ import annotations

import json
import re
import sys
from typing import Any, Callable, Optional

import pytest
from crossing_tools import STACKS, Place, cells, silent
from kube_options import BESIDE
from kube_options import OPTIONS as IN_PODS
from requests_table import OPTIONS, Object, Option
from test_requests import documents_of

JOB = "spec.template.spec."
# option: (value, where in the document, what is there)
KUBERNETES: dict[str, tuple[Any, str, Any]] = {
    **{name: (value, JOB + where, due) for name, (value, where, due) in IN_PODS.items()},
    "labels": ({"team": "x"}, "metadata.labels", {"team": "x"}),
    "annotations": ({"team": "x"}, "metadata.annotations", {"team": "x"}),
    "namespace": ("ml", "metadata.namespace", "ml"),
    "kubernetes_namespace": ("ml", "metadata.namespace", "ml"),
    "active_deadline_seconds": (99, "spec.activeDeadlineSeconds", 99),
    "ttl_seconds_after_finished": (99, "spec.ttlSecondsAfterFinished", 99),
    "kueue_queue": ("q", "metadata.labels", {"kueue.x-k8s.io/queue-name": "q"}),
    "kueue_priority_class": ("p", "metadata.labels", {"kueue.x-k8s.io/priority-class": "p"}),
    "compute_pool": ("fast", JOB + "nodeSelector", {"pool": "fast"}),
    "compute_pool_label": ("pool", JOB + "nodeSelector", {"pool": "fast"}),
    "efa": (1, JOB + "containers.0.resources.limits", {"vpc.amazonaws.com/efa": "1"}),
    "qos": ("Burstable", JOB + "containers.0.resources", {"requests": {"cpu": "2"}}),
}  # fmt: skip
NEEDS: dict[str, Object] = {
    **BESIDE,
    "compute_pool": {"compute_pool_label": "pool"},
    "compute_pool_label": {"compute_pool": "fast"},
    "qos": {"cpu": 2},
}
del KUBERNETES["hostname_resolution_timeout"]  # of a gang: tests/kubernetes/test_manifest.py
del KUBERNETES["tmpfs_tempdir"]  # what it leaves out is no part of a document: there, too
# Of the connection, of the place's choice, or of devices, which test_requests.py crosses.
OTHERS = {
    *("kubeconfig", "context", "kubernetes_context", "incluster", "keep", "image", "executable"),
    *("max_jobs", "max_parallelism", "pending_seconds", "pod_startup_timeout"),
    *("hostname_resolution_timeout", "tmpfs_tempdir"),
}
BATCH_OTHERS = {"image", "array_min", "secret_prefix", "assign_public_ip", "arch", "log_driver", "tmpfs_tempdir", "disk"}  # fmt: skip
BATCH_NEEDS: dict[str, Object] = {"tmpfs_path": {"use_tmpfs": True}}
FLOW = {
    *("memory", "disk", "gpu", "image_pull_policy", "image_pull_secrets", "service_account"),
    *("secrets", "node_selector", "namespace", "tolerations", "labels", "annotations"),
    *("use_tmpfs", "tmpfs_size", "tmpfs_path", "shared_memory", "port", "qos", "efa"),
    *("persistent_volume_claims", "extended_resources", "security_context"),
}


def of_devices(option: Option) -> bool:
    asks = option.adds or option.vendor or option.default or option.instead or option.chips
    return bool(asks or option.has_label or option.no_devices)


def is_there(node: Any, way: list[str], due: Any) -> bool:
    """Whether this stands at the end of the way; an index of a list means any of its items, but
    for the program's container, which is the first."""
    if not way:
        if isinstance(due, dict):
            return isinstance(node, dict) and all(is_there(node.get(k), [], v) for k, v in due.items())  # fmt: skip
        return all(one in node for one in due) if isinstance(due, list) and node else node == due
    key, rest = way[0], way[1:]
    if isinstance(node, list):
        return any(is_there(one, rest, due) for one in node)
    return isinstance(node, dict) and is_there(node.get(key), rest, due)


def written(name: str) -> Object:
    return {name: KUBERNETES[name][0], **NEEDS.get(name, {})}


def groups() -> list[list[str]]:
    """All options, so that none of a group says the same as another of it."""
    made: list[list[str]] = []
    for name in KUBERNETES:
        for group in made:
            ways = {KUBERNETES[one][1] for one in group}
            beside = {key for one in group for key in written(one)}
            if KUBERNETES[name][1] not in ways and not beside & set(written(name)):
                group.append(name)
                break
        else:
            made.append([name])
    return made


GROUPS = groups()


def together(group: list[str]) -> Object:
    return {key: value for name in group for key, value in written(name).items()}


def manifests(place: Place, *words: str) -> dict[str, list[Object]]:
    code, out, err = place("plan", "--manifest", *words)
    assert code == 0, err
    return documents_of(out)


def check(made: list[Object], names: list[str], door: str) -> list[str]:
    wrong = []
    for name in names:
        _, where, due = KUBERNETES[name]
        if not is_there(made[0], where.split("."), due):
            wrong.append(silent(f"{name}, {door}", due, json.dumps(made[0])[:300]))
        cells["honoured"] += 1
    return wrong


def test_the_table_is_whole() -> None:
    plain = {n for n, one in OPTIONS["kubernetes"].items() if not of_devices(one) and not one.refused}  # fmt: skip
    assert plain == (set(KUBERNETES) - {"gpu"}) | OTHERS


def of_step(place: Place, asked: Object) -> list[Object]:
    step = {"run": "true", "backend": {"kubernetes": asked, "stack": "kubernetes"}}
    return manifests(place, place.document({"s": step}))["s"]


def of_pipeline(place: Place, asked: Object) -> list[Object]:
    above = {"kubernetes": asked, "stack": "kubernetes"}
    return manifests(place, place.document({"s": {"run": "true"}}, backend=above))["s"]


def of_stack(place: Place, asked: Object) -> list[Object]:
    place.stacks({"kubernetes": {**STACKS["kubernetes"], "options": asked}})
    return manifests(place, "--with", "kubernetes", place.document({"s": {"run": "true"}}))["s"]


def of_pool(place: Place, asked: Object) -> list[Object]:
    holds = {"cpu_count": 64, "memory": "256GB", "gpu_count": 8, "gpu_vendor": "nvidia"}
    pool = {"holds": holds, "options": asked}
    place.stacks({"kubernetes": {**STACKS["kubernetes"], "pools": {"p": pool}}})
    return manifests(place, "--with", "kubernetes", place.document({"s": {"run": "true"}}))["s"]


DOORS: dict[str, Callable[[Place, Object], list[Object]]] = {
    "step": of_step,
    "pipeline": of_pipeline,
    "stack": of_stack,
    "pool": of_pool,
}


@pytest.mark.parametrize("door", DOORS)
def test_documents(place: Place, door: str) -> None:
    wrong: list[str] = []
    for group in GROUPS:
        wrong += check(DOORS[door](place, together(group)), group, door)
    assert not wrong, f"{len(wrong)} cells: " + "\n".join(wrong[:25])


PYTHON = """
from stoker import pipeline, step

ASKED = {asked!r}
made = []
for i, asked in enumerate(ASKED):
    def one() -> None:
        pass
    one.__name__ = one.__qualname__ = f"s{{i}}"
    globals()[one.__name__] = step(one, enable_cache=False, settings={step})
    made.append(globals()[one.__name__])

@pipeline(settings={pipeline})
def p():
    for one in made:
        one()

if __name__ == "__main__":
    p()
"""
KEYS = ["orchestrator.kubernetes", "step_operator.kubernetes"]


@pytest.mark.parametrize("key", KEYS)
def test_steps_of_python(place: Place, key: str) -> None:
    asked = [together(group) for group in GROUPS]
    (place.folder / "file.py").write_text(PYTHON.format(asked=asked, step=f"{{{key!r}: asked}}", pipeline={}))  # fmt: skip
    made = manifests(place, "--with", "kubernetes", "--python", sys.executable, "file.py")
    wrong = [line for i, group in enumerate(GROUPS) for line in check(made[f"s{i}"], group, f"Python, {key}")]  # fmt: skip
    assert not wrong, f"{len(wrong)} cells: " + "\n".join(wrong[:25])


def test_pipelines_of_python(place: Place) -> None:
    wrong = []
    for group in GROUPS:
        said = {"orchestrator.kubernetes": together(group)}
        (place.folder / "file.py").write_text(PYTHON.format(asked=[0], step={}, pipeline=said))
        made = manifests(place, "--with", "kubernetes", "--python", sys.executable, "file.py")
        wrong += check(made["s0"], group, "Python, the pipeline")
    assert not wrong, f"{len(wrong)} cells: " + "\n".join(wrong[:25])


def test_flows(place: Place) -> None:
    """One decorator with all the words that Metaflow has for it, per group."""
    mine = [[name for name in group if name in FLOW] for group in GROUPS]
    mine = [group for group in mine if group]
    lines = ["from stoker.flow import FlowSpec, kubernetes, step", "class F(FlowSpec):"]
    names = ["start", *(f"s{i}" for i in range(len(mine))), "end"]
    for name, following in zip(names, [*names[1:], ""]):
        if name.startswith("s") and name != "start":
            asked = together(mine[int(name[1:])])
            other = {"extended_resources": {"a.b/c": "1"}, "memory": 8192}  # no texts for Metaflow
            asked.update({name: value for name, value in other.items() if name in asked})
            lines.append(f"    @kubernetes(**{asked!r})")
        body = f"self.next(self.{following})" if following else "pass"
        lines += ["    @step", f"    def {name}(self):", f"        {body}"]
    (place.folder / "file.py").write_text("\n".join([*lines, "F()", ""]))
    made = manifests(place, "--with", "kubernetes", "--python", sys.executable, "file.py")
    wrong = [line for i, group in enumerate(mine) for line in check(made[f"s{i}"], group, "flow")]
    assert {name for group in mine for name in group} == FLOW
    assert not wrong, f"{len(wrong)} cells: " + "\n".join(wrong[:25])


# --- Batch ---


def batch_doors(place: Place, asked: Object) -> dict[str, Any]:
    plain = STACKS["batch"]
    step = {"run": "true", "backend": {"batch": asked, "stack": "batch"}}
    document = place.document({"s": step})
    below = place.document({"s": {"run": "true"}}, backend={"batch": asked, "stack": "batch"})
    of_it = {"step": manifests(place, document)["s"], "pipeline": manifests(place, below)["s"]}
    bare = place.document({"s": {"run": "true"}})
    place.stacks({"batch": {**plain, "options": {**plain["options"], **asked}}})
    of_it["stack"] = manifests(place, "--with", "batch", bare)["s"]
    holds = {"cpu_count": 64, "memory": "256GB"}
    place.stacks({"batch": {**plain, "pools": {"p": {"holds": holds, "options": asked}}}})
    of_it["pool"] = manifests(place, "--with", "batch", bare)["s"]
    place.stacks(STACKS)
    # the project's own name in job and folders
    return {door: re.sub(r"p\d+(?=\.json)", "p", json.dumps(made)) for door, made in of_it.items()}


def test_batch(place: Place) -> None:
    mine = {n: one for n, one in OPTIONS["batch"].items() if not of_devices(one) and not one.refused}  # fmt: skip
    mine["memory"] = Option(8192)  # not the default
    steps = {"plain": {"run": "true", "backend": {"batch": {}, "stack": "batch"}}}
    steps |= {
        f"s-{name}".replace("_", "-"): {
            "run": "true",
            "backend": {
                "batch": {**(one.with_other or {}), **BATCH_NEEDS.get(name, {}), name: one.value},
                "stack": "batch",
            },
        }
        for name, one in mine.items()
    }
    made = manifests(place, place.document(steps))

    def text(step: str) -> str:
        bare = re.sub(r'"[^"]*(runs/|s-[0-9a-f]{8}-)[^"]*"', '"-"', json.dumps(made[step]))
        return bare.replace(f'"{step}"', '"-"')

    wrong = []
    for name in mine:
        step = f"s-{name}".replace("_", "-")
        if name not in BATCH_OTHERS and text(step) == text("plain"):
            wrong.append(silent(f"Batch, {name}", "part of the request", text(step)[:300]))
        cells["honoured"] += 1
    everything = {name: one.value for name, one in mine.items() if name not in ("arch", "assign_public_ip", "image")}  # fmt: skip
    doors = batch_doors(place, everything)
    for door, told in doors.items():
        if told != doors["step"]:
            wrong.append(silent(f"Batch, all options, {door}", doors["step"], told))
        cells["honoured"] += len(everything)
    assert not wrong, f"{len(wrong)} cells: " + "\n".join(wrong[:25])


# --- Slurm ---

FLOW_OF_ONE = """
from stoker.flow import FlowSpec, step
class F(FlowSpec):
    @step
    def start(self):
        self.next(self.end)
    @step
    def end(self):
        pass
if __name__ == "__main__":
    F()
"""


def slurm_doors(place: Place, asked: Object) -> dict[str, tuple[str, ...]]:
    """The words of `plan` of each door; what they say of the options is the same."""
    plain, said = (
        place.document({"s": {"run": "true"}}),
        "slurm:" + ",".join(f"{name}={json.dumps(value)}" for name, value in asked.items()),
    )
    on = {"slurm": asked, "stack": "slurm"}
    of_stack = {"cluster": {**STACKS["slurm"], "options": asked}}
    place.stacks({**STACKS, **of_stack})
    for name, step, pipeline in (("step", asked, {}), ("pipeline", 0, asked), ("bare", 0, {})):
        settings = {"step": f"{{'step_operator.slurm': {step!r}}}" if step else "{}"}
        (place.folder / f"of_{name}.py").write_text(PYTHON.format(
            asked=[0], pipeline={"orchestrator.slurm": pipeline} if pipeline else {}, **settings
        ))  # fmt: skip
    (place.folder / "flow.py").write_text(FLOW_OF_ONE)
    python = ("--python", sys.executable)
    return {
        "step": (place.document({"s": {"run": "true", "backend": on}}),),
        "pipeline": (place.document({"s": {"run": "true"}}, backend=on),),
        "stack": ("--with", "cluster", plain),
        "--with before": ("--with", said, plain),
        "--with after": (plain, "--with", said),
        "Python, step": ("--with", "slurm", *python, "of_step.py"),
        "Python, pipeline": (*python, "of_pipeline.py", "--with", "slurm"),
        "Python, --with before": (*python, "--with", said, "of_bare.py"),
        "Python, --with after": (*python, "of_bare.py", "--with", said),
        "flow, --with before": (*python, "--with", said, "flow.py"),
        "flow, its own --with": (*python, "flow.py", "run", "--with", said),
    }


@pytest.mark.parametrize("pilot", [0, 8])
def test_slurm(place: Place, pilot: int) -> None:
    """Every option in the script, the same through each door."""
    refused = {name for name, one in OPTIONS["slurm"].items() if one.refused}
    alone = {"pilot", "pilots", "pilot_idle", "pilot_gpus", "array_min", "container", "image", "licenses", "gres"}  # fmt: skip
    asked = {n: one.value for n, one in OPTIONS["slurm"].items() if n not in alone | refused}
    asked |= {"pilot": pilot, "pilot_idle": 3} if pilot else {"licenses": "l:1", "gres": "shm:1"}
    wrong, due = [], None
    for door, words in slurm_doors(place, asked).items():
        made = manifests(place, *words)
        script = made[next(name for name in ("s", "s0", "start") if name in made)][0]
        own = re.compile(r"(job-name|comment|output|chdir)=")
        told = {line for line in script.splitlines() if line.startswith("#SBATCH") and not own.search(line)}  # fmt: skip
        told |= {line for line in script.splitlines() if "STOKER_PILOT_" in line}
        due = due or told
        if told != due:
            wrong.append(silent(f"Slurm, all options, {door}", due - told, told - due))
        cells["honoured"] += len(asked)
    for name in ("partition", "account", "qos", "constraint", "reservation"):
        assert f'#SBATCH --{name}="{asked[name]}"' in (due or ()), due
    assert not wrong, f"{len(wrong)} cells: " + "\n".join(wrong[:25])


# --- where it doesn't run ---

# Its image and requests for devices, which test_requests.py crosses.
ANYWHERE = {"image", "gpu_vendor", "gpu_type", "tpu"}


def notes_of(place: Place, *words: str) -> str:
    code, out, err = place("plan", "--json", *words)
    assert code == 0, err
    return "\n".join(json.loads(out)["notes"])


@pytest.mark.parametrize(
    ("cluster", "where"),
    [
        (cluster, where)
        for cluster in ("kubernetes", "batch", "slurm", "ssh", "docker")
        for where in ("local", "docker", "kubernetes", "batch", "slurm", "ssh")
        # options of docker lead into a container
        if where != cluster and (cluster, where) != ("docker", "local")
    ],
)
def test_options_of_another_place_are_told(place: Place, cluster: str, where: str) -> None:
    if cluster == "docker":
        from test_container_options import OPTIONS as CONTAINERS

        values: Object = {name: value for name, (value, _, _) in CONTAINERS.items()}
    else:
        values = {
            name: {**(one.with_other or {}), name: one.value}[name]
            for name, one in OPTIONS[cluster].items()
            if not of_devices(one) and one.here is None
        }
    stacks: Object = {**STACKS, "box": {"backend": "docker", "default_image": "127.0.0.1:1/i:1"}}
    place.stacks(stacks)
    choice: Optional[str] = {"local": "local", "docker": "box"}.get(where)
    wrong = []
    steps = {}
    for name, value in values.items():
        backend: Object = {cluster: {name: value}}
        if choice is None:
            backend["stack"] = where
        steps[f"s-{name}".replace("_", "-")] = {"run": "true", "backend": backend}
    words = ("--with", choice) if choice else ()
    told = notes_of(place, *words, place.document(steps))
    for name in values:
        if name not in ANYWHERE and not re.search(f"'{name}'[^;\n]* of {cluster}", told):
            wrong.append(silent(f"{name} of {cluster}, a step that runs on {where}", "a note", ""))
        cells["reported"] += 1
    assert not wrong, f"{len(wrong)} cells: " + "\n".join(wrong[:25])
