"""Every way of asking for devices × every place × every option of its backend: honoured, refused with a sentence that
names the step, or reported. What must come of a cell is in requests_table.py.

Places elsewhere are judged by what would be submitted (`stoker plan --manifest`), this machine by `stoker plan` and by
runs on simulated devices.
"""

from __future__ import annotations

import json
import re
import sys
from dataclasses import replace
from typing import Any, Callable, Iterable, Optional

import pytest
from crossing_tools import (
    PLAIN,
    ROOT,
    STACKS,
    Place,
    asking,
    cells,
    device_options,
    due_elsewhere,
    due_here,
    silent,
)
from requests_table import (
    BATCH_OF_STACK,
    CLUSTERS,
    FLOWS,
    FORMS,
    KUBERNETES_FORM,
    MACHINES,
    OPTIONS,
    SHARED,
    SLURM_OF_STACK,
    SPELT,
    SPLIT,
    SSH_OF_STACK,
    WAYS,
    Ask,
    Form,
    Machine,
    Object,
    Option,
    Way,
)

# --- what comes of it, elsewhere ---


def of_pod(document: Object) -> Any:
    job = document["spec"]
    if document["kind"] == "JobSet":
        job = job["replicatedJobs"][0]["template"]["spec"]
    spec = job["template"]["spec"]
    container = spec["containers"][0]
    limits = container.get("resources", {}).get("limits", {})
    asked = {k: int(v) for k, v in limits.items() if "/" in k and not k.startswith(("vpc.", "example.com/"))}  # fmt: skip
    told = [e["value"] for e in container.get("env", []) if e["name"] == "STOKER_ASKED_DEVICES"]
    if not asked:
        return None if not told else f"nothing asked for, and the agent told {told}"
    (resource, n) = next(iter(asked.items()))
    words, labels = set(), set()
    selector = spec.get("nodeSelector", {})
    for label in ("nvidia.com/gpu.product", "pool"):
        words |= {selector[label]} if label in selector else set()
    if "cloud.google.com/gke-tpu-accelerator" in selector:
        words.add({"tpu-v5-lite-podslice": "v5e"}[selector["cloud.google.com/gke-tpu-accelerator"]])
    terms = spec.get("affinity", {}).get("nodeAffinity", {}).get("requiredDuringSchedulingIgnoredDuringExecution", {})  # fmt: skip
    for term in terms.get("nodeSelectorTerms", []):
        for rule in term["matchExpressions"]:
            if rule["operator"] == "In" and rule["key"] == "pool":
                words |= set(rule["values"])
            elif rule["operator"] == "In":
                labels |= set(rule["values"])
            elif rule["operator"] == "NotIn":  # nodes of all other models are left out
                out = {re.sub(r"\..*", "", one) for one in rule["values"]}
                words |= {name for name, rest in NOT_OF.items() if rest == out}
    for name, spelt in SPELT.items():
        if spelt <= labels:
            words.add(name)
            labels -= spelt
    return resource, n, frozenset(words | labels), told, len(asked) == 1


NOT_OF = {
    "Trainium": {"trn2", "trn2u", "inf1", "inf2"},
    "Inferentia2": {"trn1", "trn1n", "trn2", "trn2u", "inf1"},
    "any Trainium": {"inf1", "inf2"},
    "any Inferentia": {"trn1", "trn1n", "trn2", "trn2u"},
}


def of_batch(documents: list[Object]) -> Any:
    definition, submit = documents[0], documents[1]
    container = definition.get("containerProperties")
    overrides = submit.get("containerOverrides")
    if container is None:
        container = definition["nodeProperties"]["nodeRangeProperties"][0]["container"]
        overrides = submit["nodeOverrides"]["nodePropertyOverrides"][0]["containerOverrides"]
    gpus = [int(r["value"]) for r in container["resourceRequirements"] if r["type"] == "GPU"]
    neurons = [d for d in container["linuxParameters"].get("devices", []) if d["hostPath"].startswith("/dev/neuron")]  # fmt: skip
    told = [e["value"] for e in overrides["environment"] if e["name"] == "STOKER_ASKED_DEVICES"]
    if not gpus and not neurons:
        return None if not told else f"nothing asked for, and the agent told {told}"
    n = gpus[0] if gpus else len(neurons)
    return "GPU" if gpus else "/dev/neuron", n, frozenset(), told, not (gpus and neurons)


def of_slurm(script: str) -> Any:
    flags = dict(re.findall(r'^#SBATCH --([\w-]+)="(.*)"$', script, re.M))
    told = re.findall(r"^export STOKER_ASKED_DEVICES=(.*)$", script, re.M)
    gpus = [part.split(":") for part in flags.get("gres", "").split(",") if part.startswith("gpu")]
    if not gpus:
        return None
    (_, *types, n) = gpus[0]
    is_slice = bool(types) and re.match(r"\dg\.", types[0])
    words = frozenset() if is_slice else frozenset(types)
    return f"gpu:{types[0]}" if is_slice else "gpu", int(n), words, told, len(gpus) == 1


def of_ssh(order: Any) -> Any:
    """The alternatives that hosts are asked for: (vendor, how many, class, GB of each)."""
    said = dict(order["resources"])
    others = said.pop("any_of", None) or [{}]
    base = {k: v for k, v in said.items() if k.startswith("gpu_")}
    if base.get("gpu_count") == 0 or not (base or any(others) or "any_of" in order["resources"]):
        return None
    asks = [{**base, **one} for one in others]
    return [(a.get("gpu_vendor"), a.get("gpu_count", 1), a.get("gpu_class"), int(a.get("gpu_memory", "0B").replace("auto", "0B")[:-1]) / 1e9) for a in asks]  # fmt: skip


def asked_by(documents: list[Any]) -> Any:
    if isinstance(documents[0], dict) and "hosts" in documents[0]:
        return of_ssh(documents[0])
    if isinstance(documents[0], str):
        return of_slurm(documents[0])
    return of_batch(documents) if "jobDefinitionName" in documents[0] else of_pod(documents[0])


def is_due(cluster: str, due: Any, got: Any) -> bool:
    if due in (None, "refused") or got in (None, "refused") or isinstance(got, str):
        return bool(due == got)
    if cluster == "ssh":
        return len(due) == len(got) and all(
            (count, word, share) == (said[1], said[2], said[3]) and said[0] in (vendor, None)
            for (vendor, count, word, share), said in zip(due, got)
        )
    vendor, resource, n, models = due
    whole = not any(part in resource for part in ("mig-", ".shared", "neuroncore"))
    agent = [f"{vendor} {n if whole else 1}"]
    found: frozenset[str] = got[2]
    if cluster == "slurm":  # the order tells the agent (test_orders.py)
        agent = []
        models = frozenset(one if one in found else one.lower() for one in models)
    if cluster == "batch":
        models = found  # the queue's: looked for when it is submitted, and in the container
    elif vendor == "aws" and models:
        models = models | {f"any {one}" for one in models if f"any {one}" in NOT_OF}
        found = models if found & models else found
    return bool((resource, n, models, agent, True) == (got[0], got[1], found, got[3], got[4]))


def documents_of(out: str) -> dict[str, list[Any]]:
    """The output of `plan --manifest`, by step."""
    made: dict[str, list[Any]] = {}
    decoder = json.JSONDecoder()
    for part in re.split(r"^# step '", out, flags=re.M)[1:]:
        name, _, rest = part.partition("'")
        texts = re.split(r"^---\n", rest, flags=re.M)[1:]
        made[name] = [t if t.startswith("#!") else decoder.decode(t) for t in texts]
    return made


def come_of(place: Place, steps: Object, **more: Any) -> dict[str, Any]:
    """By step: what its manifest asks for, or the sentence that refuses it."""
    code, out, err = place("plan", "--json", place.document(steps, **more))
    assert code == 0, err or out
    told: dict[str, Any] = {}
    for note in json.loads(out)["notes"]:
        match = re.match(r"refused: (?:\S+ )?step '([^']*)'", note)
        if match:
            told[match[1]] = note
    honoured = {k: v for k, v in steps.items() if k not in told}
    if "foreach" in next(
        iter(steps.values())
    ):  # what grows stays whole: a refused one asks for nothing
        honoured = {k: v if k not in told else {"resources": {"gpu_count": 0}, **{x: v[x] for x in ("run", "next", "backend")}} for k, v in steps.items()}  # fmt: skip
        honoured = {k: {**v, "backend": "batch"} if k in told else v for k, v in honoured.items()}
    if any(name for name in steps if name not in told):
        code, out, err = place("plan", "--manifest", place.document(honoured, **more))
        assert code == 0, err
        for name, documents in documents_of(out).items():
            if name not in told:
                told[name] = asked_by(documents)
    return told


def in_foreachs(steps: Object) -> Object:
    """Each as the work step of a foreach, in sequence."""
    made: Object = {}
    last = {"run": "true", "backend": "local", "resources": {"gpu_count": 0}}
    here = {**last, "outputs": ["todo"], "foreach": "todo"}
    names = list(steps)
    for i, name in enumerate(names):
        made[f"split{i}"] = {**here, "next": name, **({"join": True} if i else {})}
        made[name] = {**steps[name], "next": f"split{i + 1}"}
    made[f"split{len(names)}"] = {**last, "join": True}
    return made


def check(
    place: Place,
    wanted: Iterable[tuple[str, Form, Way, Object, Optional[str], Option]],
    **more: Any,
) -> list[str]:
    """The cells of one document: (name, form, meaning, the step's resources, option). `more`: of the document; the
    options are the pipeline's where its `backend` is there.
    """
    wrong: list[str] = []
    wanted = list(wanted)
    for foreach in (False, True):
        mine = [(f"s{i}", *cell) for i, cell in enumerate(wanted) if cell[1].foreach is foreach]
        steps = {s: asking(form, resources, *((None, PLAIN) if "backend" in more else (name, option))) for s, _, form, _, resources, name, option in mine}  # fmt: skip
        if not steps:
            continue
        told = come_of(place, in_foreachs(steps) if foreach else steps, **more)
        for s, what, form, way, resources, name, option in mine:
            due = due_elsewhere(form, way, option)
            got = told.get(s, "nothing at all")
            sentence = got if isinstance(got, str) and got.startswith("refused: ") else None
            got = "refused" if sentence else got
            if not is_due(form.cluster, due, got):
                wrong.append(silent(what, due, sentence or got))
            elif sentence and not names_object(sentence, s, {**resources, **more.get("resources", {})}, name, option):  # fmt: skip
                wrong.append(silent(what, "a sentence that names what is asked for", sentence))
            cells["refused" if sentence else "none asked for" if got is None else "honoured"] += 1
    return wrong


def names_object(sentence: str, step: str, resources: Object, name: Optional[str], option: Option) -> bool:  # fmt: skip
    words = [*words_of(resources), name or "", str(option.value)]
    if option.no_devices:
        words.append("Fargate")
    if option.with_other:
        words += list(option.with_other)
    return f"step '{step}'" in sentence and any(word and word in sentence for word in words)


def words_of(resources: Any) -> list[str]:
    """All keys and strings of a request."""
    if isinstance(resources, dict):
        return [*resources, *(word for one in resources.values() for word in words_of(one))]
    if isinstance(resources, list):
        return [word for one in resources for word in words_of(one)]
    return [resources] if isinstance(resources, str) else []


def table_of(cluster: str) -> dict[str, str]:
    """Options by name, and how each is taken, as the program's own list has them."""
    text = (ROOT / "src/tbl" / f"{cluster}_options.def").read_text()
    if cluster == "kubernetes":
        found = re.findall(r'^X\("(\w+)", "\w*", \w+, "\w+", (\w+),', text, re.M)
    else:
        found = re.findall(r"^X\((\w+), \w+, (\w+),", text, re.M)
    return dict(found)


@pytest.mark.parametrize("cluster", sorted(CLUSTERS))
def test_the_table_has_every_option(cluster: str) -> None:
    known = table_of(cluster)
    elsewhere = {
        "kubernetes": KUBERNETES_FORM,
        "batch": BATCH_OF_STACK,
        "slurm": SLURM_OF_STACK,
        "ssh": SSH_OF_STACK,
    }[cluster]
    assert set(OPTIONS[cluster]) | elsewhere == set(known)
    assert len(known) > {"ssh": 15}.get(cluster, 20)
    for name, option in OPTIONS[cluster].items():
        assert known[name] != "REFUSED" or option.refused, name


@pytest.mark.parametrize("form", FORMS)
def test_steps_on_other_machines(place: Place, form: str) -> None:
    """All ways of asking, with all options of the backend."""
    one = FORMS[form]
    options: dict[Optional[str], Option] = {None: PLAIN, **OPTIONS[one.cluster]}
    wanted = [
        (f"{form}, {way}, option {name}", one, meant, meant.resources, name, option)
        for way, meant in WAYS.items()
        for name, option in options.items()
    ]
    wrong = check(place, wanted)
    assert not wrong, f"{len(wrong)} cells: " + "\n".join(wrong[:25])


def test_what_the_pipeline_says_for_other_machines(place: Place) -> None:
    wrong = []
    documents: list[tuple[Object, Object, str]] = [
        *((meant.resources, {}, way) for way, meant in WAYS.items()),
        *SPLIT.values(),
    ]
    for above, below, way in documents:
        wanted = [
            (f"{form}, {above} above {below}, option {name}", one, WAYS[way], below, name, option)
            for form, one in FORMS.items()
            for name, option in {None: PLAIN, **said_above(form)}.items()
        ]
        wrong += check(place, wanted, resources=above)
    assert not wrong, f"{len(wrong)} cells: " + "\n".join(wrong[:25])


@pytest.mark.parametrize("form", FORMS)
def test_options_that_the_pipeline_says(place: Place, form: str) -> None:
    """Each option in the document, with every way of asking in a step."""
    one = FORMS[form]
    wrong = []
    for name, option in said_above(form).items():
        above = {**(option.with_other or {}), name: option.value}
        wanted = [
            (f"{form}, {way} below option {name}", one, meant, meant.resources, name, option)
            for way, meant in WAYS.items()
        ]
        wrong += check(place, wanted, backend={one.cluster: above, "stack": one.cluster})
    assert not wrong, f"{len(wrong)} cells: " + "\n".join(wrong[:25])


@pytest.mark.parametrize("cluster", sorted(CLUSTERS))
def test_options_that_the_stack_says(place: Place, cluster: str) -> None:
    """Options that ask for devices, set in stoker.yaml for all steps of that stack."""
    wrong = []
    one = Form(cluster)
    for name, option in device_options(cluster).items():
        if name is None:
            continue
        above = {**(option.with_other or {}), name: option.value}
        mine = STACKS[cluster]
        place.stacks({cluster: {**mine, "options": {**mine.get("options", {}), **above}}})
        wanted = [
            (f"{cluster}, {way} below option {name} of the stack", one, meant, meant.resources, name, option)
            for way, meant in WAYS.items()
        ]  # fmt: skip
        wrong += check(place, wanted, backend={cluster: {}, "stack": cluster})
    assert not wrong, f"{len(wrong)} cells: " + "\n".join(wrong[:25])


def said_above(form: str) -> dict[str, Option]:
    """Those that ask for devices in every form, each other in the first one of its backend."""
    cluster = FORMS[form].cluster
    is_first = form == next(name for name, one in FORMS.items() if one.cluster == cluster)
    chosen = OPTIONS[cluster] if is_first else device_options(cluster)
    return {name: option for name, option in chosen.items() if name is not None}


# --- what comes of it, here ---

HERE: dict[str, Object] = {
    "itself": {},
    "a container": {"backend": "docker", "docker": {"parent_image": "127.0.0.1:1/i:1"}},
    "ranks": {"gang": {"ranks": 2}},
    "nodes": {"gang": {"ranks": 1, "nodes": 2}},
}


def kinds_of(machine: Machine, indices: Iterable[int]) -> frozenset[tuple[str, str]]:
    """Which of the machine's devices these are, as the simulation counts them."""
    kinds = [d[:2] for d in machine.devices for _ in range(d[2])]
    split = machine.devices[0][4] is not None if machine.devices else False
    return frozenset(kinds[i - 1 if split else i] for i in indices)  # the split device is 0 itself


def is_due_here(due: Any, got: Any) -> bool:
    if due in (None, "refused", "reported") or got in (None, "refused", "reported"):
        return bool(due == got)
    kinds, count, share_gb = due
    share = share_gb * 10**9 if all(kind[0] in SHARED for kind in kinds) else 0
    return bool(got[0] and got[0] <= kinds and got[1] == count and abs((got[2] or 0) - share) < 1 << 20)  # fmt: skip


def seen(machine: Machine, step: Object, notes: list[str]) -> Any:
    """A step of `plan --json`: what it would be given."""
    note = [one for one in notes if f"'{step['step']}'" in one and "runs on the CPU" in one]
    if not step["asks"]:
        return "reported" if note else None
    first = step["asks"][0]
    return kinds_of(machine, first["of"]), first["count"], first["share_bytes"]


def check_here(place: Place, what: str, machine: Machine, policy: str, how: Object, wanted: list[tuple[str, Way, Object]], **more: Any) -> list[str]:  # fmt: skip
    """Those that are due to be planned in one document, each other in one of its own."""
    wrong: list[str] = []
    nodes = how.get("gang", {}).get("nodes", 1)
    due = {f"s{i}": due_here(machine, policy, way.means, nodes) for i, (_, way, _) in enumerate(wanted)}  # fmt: skip
    steps = {f"s{i}": {"run": "true", **how, **({"resources": own} if own else {})} for i, (_, _, own) in enumerate(wanted)}  # fmt: skip
    words = ("plan", "--json", "--policy", policy)
    planned = {s: step for s, step in steps.items() if due[s] not in ("refused", "reported")}
    got: Object = {}
    notes: list[str] = []

    def plan(document: Object) -> tuple[int, str]:
        code, out, err = place(*words, place.document(document, **more), machine=machine.spec)
        if code == 0:
            told = json.loads(out)
            notes.extend(told["notes"])
            got.update({one["step"]: one for one in told["steps"]})
        return code, err or out

    if planned and plan(planned)[0] != 0:  # some are refused that shouldn't be
        for s, step in planned.items():
            plan({s: step})
    for i, (name, _, _) in enumerate(wanted):
        s = f"s{i}"
        sentence = ""
        if due[s] in ("refused", "reported"):
            _, sentence = plan({s: steps[s]})
        found = seen(machine, got[s], notes) if s in got else "refused"
        here = f"{what}, {policy}, {name}"
        if not is_due_here(due[s], found):
            wrong.append(silent(here, due[s], sentence or found))
        elif due[s] == "refused" and f"step '{s}'" not in sentence:
            wrong.append(silent(here, "a sentence that names the step", sentence))
        cells[{"refused": "refused", "reported": "reported", None: "none asked for"}.get(found if not isinstance(found, tuple) else "", "honoured")] += 1  # fmt: skip
    return wrong


@pytest.mark.parametrize("name", MACHINES)
def test_steps_of_this_machine(place: Place, name: str) -> None:
    """Every way of asking, in the step, the pipeline or both, on each simulated machine."""
    machine = MACHINES[name]
    alone = [(way, meant, meant.resources) for way, meant in WAYS.items()]
    both: list[tuple[Object, list[tuple[str, Way, Object]]]] = [
        *((meant.resources, [(f"{way} of the pipeline", meant, {})]) for way, meant in WAYS.items()),
        *((above, [(how, WAYS[way], below)]) for how, (above, below, way) in SPLIT.items()),
    ]  # fmt: skip
    jobs: list[Callable[[], list[str]]] = []
    for policy in ("strict", "fit"):
        for how, keys in HERE.items():
            jobs.append(
                lambda p=policy, h=how, k=keys: check_here(  # type: ignore[misc]
                    place, f"{name}, {h}", machine, p, k, alone
                )
            )
        for above, cells_of in both:
            jobs.append(
                lambda p=policy, a=above, c=cells_of: check_here(  # type: ignore[misc]
                    place, name, machine, p, {}, c, resources=a
                )
            )
    wrong = [line for job in jobs for line in job()]
    assert not wrong, f"{len(wrong)} cells: " + "\n".join(wrong[:25])


def here_too(way: Way, here: Ask) -> Way:
    """What a backend's option adds to a request at home: the larger number; a kind, where none is named."""
    if way.none:
        return way
    asks = way.means or [Ask()]
    named = any(a.vendor or a.model or a.slice for a in asks)
    return Way(way.resources, [replace(a, count=max(a.count, here.count), vendor=a.vendor or (None if named else here.vendor)) for a in asks])  # fmt: skip


@pytest.mark.parametrize("name", MACHINES)
def test_words_of_backends_on_this_machine(place: Place, name: str) -> None:
    """Requests of options of Kubernetes or Batch also count if the step runs here."""
    wrong: list[str] = []
    (place.folder / "stoker.yaml").unlink()  # without a stack of the backend it runs here
    for cluster, options in OPTIONS.items():
        for word, option in options.items():
            if option.here is None:
                continue
            how = {"backend": {cluster: {**(option.with_other or {}), word: option.value}}}
            wanted = [
                (f"{way}, {word} of {cluster}", here_too(WAYS[way], option.here), WAYS[way].resources)
                for way in ("nothing", "count 1", "count 0", "class A100", "vendor aws", "memory")
            ]  # fmt: skip
            for policy in ("strict", "fit"):
                for one in wanted:
                    wrong += check_here(place, name, MACHINES[name], policy, how, [one])
    assert not wrong, f"{len(wrong)} cells: " + "\n".join(wrong[:25])


# --- what tasks are really given ---

MASKS = {
    "nvidia": "CUDA_VISIBLE_DEVICES",
    "amd": "ROCR_VISIBLE_DEVICES",
    "intel": "ZE_AFFINITY_MASK",
    "aws": "NEURON_RT_VISIBLE_CORES",
    "google": "TPU_VISIBLE_CHIPS",
    "habana": "HABANA_VISIBLE_MODULES",
}
NONE_OF = {"nvidia": "", "amd": "", "intel": "9999", "aws": "9999", "google": "", "habana": ""}


def is_given(due: Any, step: Object, env: dict[str, str]) -> bool:
    devices = step["granted"].get("devices", [])
    if due is None:
        return not devices and env.get("CUDA_VISIBLE_DEVICES", "-") == ""
    kinds, count, _ = due
    plain = [d["model"].replace(" ", "").replace("-", "") for d in devices]
    vendors = {d["vendor"] for d in devices}
    fit = all(any(d["vendor"] == v and m.replace("-", "") in model for v, m in kinds) for d, model in zip(devices, plain))  # fmt: skip
    (vendor,) = vendors if len(vendors) == 1 else {""}
    return fit and len(devices) == count and env.get(MASKS.get(vendor, ""), "") not in ("", NONE_OF.get(vendor))  # fmt: skip


@pytest.mark.parametrize("name", MACHINES)
def test_tasks_have_what_their_steps_asked_for(place: Place, name: str) -> None:
    """Runs on the simulated machine: granted devices by the record, and those that the task
    sees."""
    machine = MACHINES[name]
    steps, due = {}, {}
    for i, (way, meant) in enumerate(WAYS.items()):
        for how, keys in HERE.items():
            what = due_here(machine, "strict", meant.means, keys.get("gang", {}).get("nodes", 1))
            if how in ("itself", "ranks") and what != "refused":
                due[f"{how}{i}"] = (f"{name}, {how}, a run, {way}", what)
                run = f"env > {place.folder}/{how}{i}.env; true"
                steps[f"{how}{i}"] = {
                    "run": run,
                    "resources": meant.resources,
                    "cache": False,
                    **keys,
                }
    code, out, err = place("run", "--quiet", "--policy", "strict", "--max-workers", "1", place.document(steps), machine=machine.spec)  # fmt: skip
    assert code == 0, err
    code, out, err = place("show", "latest", "--json")
    told = json.loads(out)["steps"]
    wrong = []
    for s, (what, kinds) in due.items():
        lines = (place.folder / f"{s}.env").read_text().splitlines()
        env = dict(line.split("=", 1) for line in lines if "=" in line)
        if not is_given(kinds, told[s], env):
            wrong.append(silent(what, kinds, told[s]["granted"]))
        cells["none asked for" if kinds is None else "honoured"] += 1
    assert not wrong, "\n".join(wrong[:25])


# --- Python files ---


def of_python(place: Place, cluster: str, write: Callable[[set[str]], str]) -> dict[str, Any]:
    """As come_of, of a file that `write` makes without the steps that it is told of."""
    (place.folder / "file.py").write_text(write(set()))
    code, out, err = place(
        "plan", "--with", cluster, "--python", sys.executable, "--json", "file.py"
    )
    assert code == 0, err
    told: dict[str, Any] = {}
    for note in json.loads(out.splitlines()[-1])["notes"]:
        match = re.match(r"refused: (?:\S+ )?step '([^']*)'", note)
        if match:
            told[match[1]] = note
    (place.folder / "file.py").write_text(write(set(told)))
    code, out, err = place(
        "plan", "--with", cluster, "--python", sys.executable, "--manifest", "file.py"
    )
    assert code == 0, err
    for name, documents in documents_of(out).items():
        told[name] = asked_by(documents)
    return told


@pytest.mark.parametrize("cluster", sorted(CLUSTERS))
@pytest.mark.parametrize("level", ["step", "run configuration"])
def test_pipelines_of_python(place: Place, cluster: str, level: str) -> None:
    """ResourceSettings, as ZenML has them, of a step; and over others of it, by a run configuration."""
    ways = {f"s{i}": way for i, way in enumerate(WAYS) if way != "any_of none"}
    below = {"any_of": [{"gpu_class": "T4"}]} if level != "step" else {}

    def write(without: set[str]) -> str:
        own = {s: WAYS[way].resources for s, way in ways.items() if s not in without}
        lines = ["from stoker import ResourceSettings, pipeline, step", "made = []"]
        for s, resources in own.items():
            said = resources if level == "step" else below
            settings = f"settings={{'resources': ResourceSettings(**{said!r})}}" if said else ""
            lines += [
                f"@step({settings})",
                f"def {s}() -> int:",
                "    return 1",
                f"made.append({s})",
            ]
        lines += ["@pipeline", "def p():", "    for one in made:", "        one()"]
        if level != "step":
            (place.folder / "config.json").write_text(json.dumps({"steps": {s: {"settings": {"resources": r}} for s, r in own.items() if r}}))  # fmt: skip
            lines += ["p = p.with_options(config_path='config.json')"]
        return "\n".join([*lines, "if __name__ == '__main__':", "    p()", ""])

    told = of_python(place, cluster, write)
    form = Form(cluster)
    wrong = []
    for s, way in ways.items():
        meant = WAYS[way]
        if level != "step" and (
            not meant.resources or "gpu_class" not in meant.resources or "any_of" in meant.resources
        ):
            continue  # what is said only below, or beside it, is said of the alternatives
        due = due_elsewhere(form, meant, PLAIN)
        got = told.get(s, "nothing at all")
        sentence = got if isinstance(got, str) and got.startswith("refused: ") else None
        if not is_due(cluster, due, "refused" if sentence else got):
            wrong.append(silent(f"Python, {level}, {cluster}, {way}", due, got))
        cells["refused" if sentence else "none asked for" if got is None else "honoured"] += 1
    assert not wrong, "\n".join(wrong[:25])


@pytest.mark.parametrize("cluster", sorted({cluster for cluster, _, _ in FLOWS.values()}))
def test_flows(place: Place, cluster: str) -> None:
    """Metaflow's decorators."""
    mine = {
        f"s{i}": (text, *rest) for i, (text, rest) in enumerate(FLOWS.items()) if rest[0] == cluster
    }

    def write(without: set[str]) -> str:
        names = [s for s in mine if s not in without]
        lines = [
            "from stoker.flow import FlowSpec, batch, kubernetes, resources, step",
            "class F(FlowSpec):",
        ]
        for s, following in zip(["start", *names], [*names, "end"]):
            lines += (
                [f"    {one}" for one in re.findall(r"@\w+(?:\([^)]*\))?", mine[s][0])]
                if s in mine
                else []
            )
            lines += ["    @step", f"    def {s}(self):", f"        self.next(self.{following})"]
        return "\n".join([*lines, "    @step", "    def end(self):", "        pass", "F()", ""])

    told = of_python(place, cluster, write)
    wrong = []
    for s, (text, _, means, family) in mine.items():
        due = due_elsewhere(Form(cluster), Way({}, means), Option(None, family=family))
        got = told.get(s, "nothing at all")
        if not is_due(cluster, due, got):
            wrong.append(silent(f"flow, {text}", due, got))
        cells["none asked for" if got is None else "honoured"] += 1
    assert mine and not wrong, "\n".join(wrong[:25])


def test_all_of_it(record_testsuite_property: Callable[[str, object], None]) -> None:
    """The last test: the number of cells. A cell without a result has failed its test."""
    n_silent = cells.pop("silent", 0)
    n = sum(cells.values())
    if n == 0:
        pytest.skip("none of the others ran")
    parts = ", ".join(
        f"{cells[word]} {word}" for word in ("honoured", "refused", "reported", "none asked for")
    )
    record_testsuite_property(
        "said", f"{n} cells of requests and places: {parts}; {n_silent} silent"
    )
    assert n_silent == 0
