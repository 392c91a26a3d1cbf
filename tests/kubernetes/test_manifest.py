"""Documents for a cluster: each is strictly valid by the API's schema, with each option in its
place."""

from __future__ import annotations

import re
from typing import Any, Optional

import kubernetes_validate
import pytest
from kube_driver import ROOT, manifest
from kube_options import BESIDE, OPTIONS, at, both

Object = dict[str, Any]
TABLE = ROOT / "src" / "tbl" / "kubernetes_options.def"


def strict(doc: Object) -> None:
    if doc["kind"] == "JobSet":
        (replicated,) = doc["spec"]["replicatedJobs"]
        doc = {"apiVersion": "batch/v1", "kind": "Job", **replicated["template"]}
    kubernetes_validate.validate(doc, "1.36", strict=True)


def documents(
    options: Optional[Object] = None, config: Optional[Object] = None, **job: Any
) -> list[Object]:
    job = {"image": "x:1", "argv": ["true"], "options": options or {}, **job}
    found = manifest(job, **(config or {}))
    for doc in found:
        assert doc.get("state") != "error", doc
        strict(doc)
    return found


def pod(options: Optional[Object] = None, **more: Any) -> Object:
    spec: Object = documents(options, **more)[0]["spec"]["template"]["spec"]
    return spec


def main(options: Optional[Object] = None, **more: Any) -> Object:
    container: Object = pod(options, **more)["containers"][0]
    return container


def refused(options: Optional[Object] = None, config: Optional[Object] = None, **job: Any) -> str:
    (line,) = manifest({"image": "x:1", "options": options or {}, **job}, **(config or {}))
    assert line["state"] == "error", line
    return str(line["text"])


def test_plain_job() -> None:
    (doc,) = documents(
        step="_odd step", pipeline="p", id=7, attempt=2, name="s-abc", env=["A=$(B) $C", "D="]
    )
    spec = doc["spec"]
    assert doc["metadata"]["labels"] == {
        "app.kubernetes.io/managed-by": "stoker",
        "stoker.run": "r1",
        "stoker.pipeline": "p",
        "stoker.step": "odd-step",
        "stoker.task": "7",
        "stoker.attempt": "2",
        "stoker.job": "s-abc",
    }
    assert doc["metadata"]["annotations"] == {"stoker.step": "_odd step", "stoker.id": "7"}
    inside = spec["template"]["metadata"]["labels"]
    assert inside == {**doc["metadata"]["labels"], "sidecar.istio.io/inject": "false"}
    assert (spec["backoffLimit"], spec["ttlSecondsAfterFinished"]) == (0, 86400)
    assert spec["podFailurePolicy"]["rules"][0]["action"] == "FailJob"
    inner = spec["template"]["spec"]
    assert inner["restartPolicy"] == "Never" and inner["terminationGracePeriodSeconds"] == 16
    container = inner["containers"][0]
    assert container["env"] == [
        {"name": "A", "value": "$$(B) $$C"},
        {"name": "D", "value": ""},
    ]
    assert "resources" not in container and "activeDeadlineSeconds" not in inner


def test_shell_text_is_left_alone() -> None:
    assert main(argv=["/bin/sh", "-c", "echo $HOME $$ $(id)"])["command"] == [
        "/bin/sh",
        "-c",
        "echo $$HOME $$$$ $$(id)",
    ]


@pytest.mark.parametrize(
    ("resources", "options", "expected"),
    [
        ({"cpu_milli": 250, "memory_bytes": 64 << 20}, {}, {"cpu": "250m", "memory": "64Mi"}),
        ({"cpu_milli": 2000, "memory_bytes": 1000}, {}, {"cpu": "2", "memory": "1000"}),
        ({"cpu_milli": 500}, {"cpu": "4", "memory": 4096}, {"cpu": "4", "memory": "4096Mi"}),
        ({}, {"disk": "10GiB"}, {"ephemeral-storage": "10240Mi"}),
        ({"gpu_count": 2}, {}, {"nvidia.com/gpu": "2"}),
        ({"gpu_count": 0}, {}, None),
        ({}, {"gpu": 0}, None),
        ({"gpu_count": 4}, {"gpu": 0}, {"nvidia.com/gpu": "4"}),
        ({"gpu_count": 1}, {"gpu": 2}, {"nvidia.com/gpu": "2"}),
        ({}, {"gpu": "1", "gpu_vendor": "amd"}, {"amd.com/gpu": "1"}),
        ({"gpu_count": 1, "gpu_vendor": "intel"}, {}, {"gpu.intel.com/i915": "1"}),
        (
            {"gpu_count": 1, "gpu_vendor": "intel", "gpu_class": "xe"},
            {},
            {"gpu.intel.com/xe": "1"},
        ),
        ({"gpu_count": 2}, {"gpu_vendor": "amd.com/cpx_nps4"}, {"amd.com/cpx_nps4": "2"}),
        ({"gpu_count": 3, "gpu_class": "1g.10gb"}, {}, {"nvidia.com/mig-1g.10gb": "3"}),
        ({"gpu_class": "mig-7g.80gb"}, {}, {"nvidia.com/mig-7g.80gb": "1"}),
        (
            {"gpu_count": 1, "gpu_memory_bytes": 10**10},
            {"gpu_resource": "nvidia.com/gpu.shared"},
            {"nvidia.com/gpu.shared": "1"},
        ),
        (
            {},
            {"trainium": 16, "efa": 8},
            {"aws.amazon.com/neuron": "16", "vpc.amazonaws.com/efa": "8"},
        ),
        ({}, {"inferentia": 1}, {"aws.amazon.com/neuron": "1"}),
        # as a flow's @kubernetes(trainium=16) says it
        (
            {"gpu_count": 16, "gpu_vendor": "aws", "gpu_class": "Trainium"},
            {"trainium": 16},
            {"aws.amazon.com/neuron": "16"},
        ),
        ({"gpu_count": 2, "gpu_class": "Trainium"}, {}, {"aws.amazon.com/neuron": "2"}),
        ({"gpu_class": "Trainium"}, {"gpu_vendor": "nvidia"}, {"aws.amazon.com/neuron": "1"}),
        ({"gpu_count": 4, "gpu_class": "v5e"}, {}, {"google.com/tpu": "4"}),
        ({"gpu_vendor": "amd"}, {}, {"amd.com/gpu": "1"}),
        ({"any_of": [{"gpu_class": "A100"}, {"gpu_class": "H100"}]}, {}, {"nvidia.com/gpu": "1"}),
        ({"gpu_count": 0}, {"gpu": 1, "trainium": 0}, None),
        ({"gpu_count": 0, "gpu_class": "A100", "gpu_memory_bytes": 10**10}, {}, None),
        ({"gpu_vendor": "aws"}, {"neuroncores": 4}, {"aws.amazon.com/neuroncore": "4"}),
        ({}, {"neuroncores": 4}, {"aws.amazon.com/neuroncore": "4"}),
        ({}, {"tpu": 4, "tpu_accelerator": "v5p"}, {"google.com/tpu": "4"}),
        ({"gpu_count": 4, "gpu_vendor": "google"}, {}, {"google.com/tpu": "4"}),
        ({}, {"extended_resources": {"example.com/fpga": "1"}}, {"example.com/fpga": "1"}),
    ],
)
def test_resources(resources: Object, options: Object, expected: Optional[Object]) -> None:
    found = main(options, resources=resources).get("resources")
    assert found == (None if expected is None else {"requests": expected, "limits": expected})


@pytest.mark.parametrize(
    ("resources", "options", "asked"),
    [
        ({"gpu_count": 2}, {}, "nvidia 2"),
        ({"gpu_count": 2}, {"gpu": 1}, "nvidia 2"),
        ({}, {"gpu": 0}, None),
        ({}, {"gpu": 1, "gpu_vendor": "amd"}, "amd 1"),
        ({"gpu_class": "H100"}, {}, "nvidia 1"),
        ({"gpu_count": 3, "gpu_class": "1g.10gb"}, {}, "nvidia 1"),
        ({}, {"gpu": 4, "gpu_resource": "nvidia.com/gpu.shared"}, "nvidia 1"),
        ({}, {"trainium": 16}, "aws 16"),
        ({}, {"neuroncores": 4}, "aws 1"),
        ({}, {"tpu": 4, "tpu_accelerator": "v5p"}, "google 4"),
        ({}, {"extended_resources": {"gpu.intel.com/xe": "2"}}, "intel 2"),
        ({}, {"extended_resources": {"example.com/fpga": "1"}}, None),
        ({}, {"resources": {"limits": {"nvidia.com/gpu": 1}}}, "nvidia 1"),
        ({}, {"cpu": 1}, None),
    ],
)
def test_the_agent_is_told_of_devices(
    resources: Object, options: Object, asked: Optional[str]
) -> None:
    """However they were asked for, it looks whether they are in the container."""
    env = {one["name"]: one["value"] for one in main(options, resources=resources).get("env", [])}
    assert env.get("STOKER_ASKED_DEVICES") == asked


def test_burstable() -> None:
    asked = {"cpu_milli": 1000, "memory_bytes": 1 << 30}
    assert main({"qos": "Burstable"}, resources=asked)["resources"] == {
        "requests": {"cpu": "1", "memory": "1024Mi"},
        "limits": {"memory": "1024Mi"},
    }


NEURON = [
    *("trn1.2xlarge", "trn1.32xlarge", "trn1n.32xlarge"),
    *("trn2.3xlarge", "trn2.48xlarge", "trn2u.48xlarge"),
    *("inf1.xlarge", "inf1.2xlarge", "inf1.6xlarge", "inf1.24xlarge"),
    *("inf2.xlarge", "inf2.8xlarge", "inf2.24xlarge", "inf2.48xlarge"),
]


@pytest.mark.parametrize(
    ("options", "resources", "begins"),
    [
        ({"trainium": 1}, {}, ("trn",)),
        ({"inferentia": 1}, {}, ("inf",)),
        ({"trainium": 1}, {"gpu_count": 1, "gpu_vendor": "aws", "gpu_class": "Trainium"}, ("trn",)),
        ({}, {"gpu_class": "Trainium"}, ("trn1",)),
        ({}, {"gpu_class": "Trainium2"}, ("trn2",)),
        ({}, {"any_of": [{"gpu_class": "Trainium"}, {"gpu_class": "Trainium2"}]}, ("trn",)),
        ({}, {"gpu_vendor": "aws"}, ("trn", "inf")),
        ({}, {"gpu_class": "neuron", "gpu_count": 2}, ("trn", "inf")),
    ],
)
def test_neuron_models_are_told_apart_by_the_nodes_instances(
    options: Object, resources: Object, begins: tuple[str, ...]
) -> None:
    """Nodes of another model are excluded; a node with an unknown type, or without one, is
    allowed."""
    spec = pod(options, resources=resources)
    assert "nodeSelector" not in spec
    others = [one for one in NEURON if not one.startswith(begins)]
    if not others:
        assert "affinity" not in spec
        return
    (term,) = spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"][
        "nodeSelectorTerms"
    ]
    assert term["matchExpressions"] == [
        {"key": "node.kubernetes.io/instance-type", "operator": "NotIn", "values": others}
    ]


def test_a_label_of_the_clusters_own_tells_neuron_models_apart() -> None:
    spec = pod({"gpu_type_label": "pool"}, resources={"gpu_class": "Trainium"})
    assert spec["nodeSelector"] == {"pool": "Trainium"} and "affinity" not in spec


def test_a_class_is_the_tpus_accelerator() -> None:
    spec = pod({}, resources={"gpu_class": "v5e", "gpu_count": 4})
    assert spec["nodeSelector"] == {"cloud.google.com/gke-tpu-accelerator": "tpu-v5-lite-podslice"}
    assert "nodeSelector" not in pod({}, resources={"gpu_vendor": "google"})


def test_devices_are_found_by_their_labels() -> None:
    spec = pod(resources={"gpu_count": 8, "gpu_class": "NVIDIA-H100-80GB-HBM3"})
    assert spec["nodeSelector"] == {"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"}
    assert spec["tolerations"] == [
        {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}
    ]
    own = {
        "gpu": 1,
        "gpu_type": "nvidia-tesla-t4",
        "gpu_type_label": "cloud.google.com/gke-accelerator",
    }
    assert pod(own)["nodeSelector"] == {"cloud.google.com/gke-accelerator": "nvidia-tesla-t4"}
    assert pod(resources={"gpu_class": "the-fast-ones"})["nodeSelector"] == {
        "nvidia.com/gpu.product": "the-fast-ones"
    }


def chosen(spec: Object) -> dict[str, set[str]]:
    """Values by label, of terms that each have one expression."""
    terms = spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    found = [e for t in terms["nodeSelectorTerms"] for e in t["matchExpressions"]]
    assert {e["operator"] for e in found} == {"In"} and len(found) == len(
        terms["nodeSelectorTerms"]
    )
    return {e["key"]: set(e["values"]) for e in found}


PRODUCT, GKE = "nvidia.com/gpu.product", "cloud.google.com/gke-accelerator"
EC2 = "node.kubernetes.io/instance-type"
AMD, INTEL = "amd.com/gpu.product-name", "gpu.intel.com/product"


@pytest.mark.parametrize(
    ("resources", "label", "has", "not_has"),
    [
        ({"gpu_class": "A100-80GB"}, PRODUCT, "NVIDIA-A100-SXM4-80GB", "NVIDIA-A100-SXM4-40GB"),
        ({"gpu_class": "A100-80GB"}, GKE, "nvidia-a100-80gb", "nvidia-tesla-a100"),
        ({"gpu_class": "A100"}, PRODUCT, "NVIDIA-A100-SXM4-40GB", "NVIDIA-A10"),
        ({"gpu_class": "A100-80GB"}, EC2, "p4de.24xlarge", "p4d.24xlarge"),
        ({"gpu_class": "a100"}, GKE, "nvidia-tesla-a100", "nvidia-l4"),
        ({"gpu_class": "H100"}, PRODUCT, "NVIDIA-H100-80GB-HBM3", "NVIDIA-H200"),
        ({"gpu_class": "H100-SXM"}, PRODUCT, "NVIDIA-H100-80GB-HBM3", "NVIDIA-H100-PCIe"),
        ({"gpu_class": "T4"}, PRODUCT, "Tesla-T4", "NVIDIA-A100-SXM4-80GB"),
        ({"gpu_class": "L40"}, PRODUCT, "NVIDIA-L40", "NVIDIA-L40S"),
        ({"gpu_class": "MI300X"}, AMD, "AMD_Instinct_MI300X_OAM", "AMD_Instinct_MI300A"),
        ({"gpu_class": "Max-1550"}, INTEL, "Max_1550", "Max_1100"),
        ({"gpu_class": "Arc B580"}, INTEL, "Arc_B580", "Max_1550"),
        (
            {"any_of": [{"gpu_class": "A100"}, {"gpu_class": "T4"}]},
            PRODUCT,
            "Tesla-T4",
            "NVIDIA-L4",
        ),
    ],
)
def test_a_class_is_the_labels_of_its_models(
    resources: Object, label: str, has: str, not_has: str
) -> None:
    found = chosen(pod(resources=resources))
    assert has in found[label] and not_has not in found[label], found


def test_a_class_and_the_users_affinity_are_both_asked_for() -> None:
    zones = [
        {"matchExpressions": [{"key": "zone", "operator": "In", "values": [z]}]} for z in ("a", "b")
    ]
    terms = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": zones}}
    spec = pod({"affinity": {"nodeAffinity": terms}}, resources={"gpu_class": "A100"})
    made = spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    keys = [
        (t["matchExpressions"][0]["values"][0], t["matchExpressions"][1]["key"])
        for t in made["nodeSelectorTerms"]
    ]
    labels = [PRODUCT, GKE, EC2]
    assert keys == [(zone, label) for zone in ("a", "b") for label in labels]


@pytest.mark.parametrize(
    ("accelerator", "topology", "asked", "nodes", "chips"),
    [
        ("v5e", "2x4", None, 1, "8"),
        ("v5e", "2x4", 4, 2, "4"),
        ("v5e", "4x4", 16, 4, "4"),
        ("v6e", "1x1", 1, 1, "1"),
        ("v4", "2x2x1", None, 1, "4"),
        ("tpu-v5p-slice", "2x2x4", None, 4, "4"),
    ],
)
def test_tpus(
    accelerator: str, topology: str, asked: Optional[int], nodes: int, chips: str
) -> None:
    options = {"tpu_accelerator": accelerator, "tpu_topology": topology}
    spec = pod({**options, **({"tpu": asked} if asked else {})}, nodes=nodes)
    assert spec["containers"][0]["resources"] == both("google.com/tpu", chips)
    assert spec["nodeSelector"]["cloud.google.com/gke-tpu-topology"] == topology
    name = spec["nodeSelector"]["cloud.google.com/gke-tpu-accelerator"]
    assert name.startswith("tpu-v")


REFUSALS: list[tuple[Object, Object, str, str]] = [
    ({"node_selectr": "a=b"}, {}, "no option 'node_selectr'", "did you mean 'node_selector'?"),
    ({"zebra": 1}, {}, "no option 'zebra'", "additional_pod_spec_args"),
    ({"port": "x"}, {}, "'port' must be a whole number, 0 or more", 'not "x"'),
    ({"tolerations": "x"}, {}, "'tolerations' must be a list of objects", ""),
    ({"labels": "x"}, {}, "'labels' must be a mapping of strings", ""),
    ({"backoff_limit_margin": 1}, {}, "Kubernetes doesn't support", "say the step's `retry`"),
    ({"gpu": 0.5}, {}, "'gpu' must be a whole number", ""),
    ({"compute_pool": "x"}, {}, "needs the name of the label", "compute_pool_label"),
    ({"qos": "Best"}, {}, "qos 'Best' is unknown", "Guaranteed or Burstable"),
    ({"gpu": 1, "tpu": 4}, {}, "a pod can have only one kind of device", "split the step"),
    ({"trainium": 1, "inferentia": 1}, {}, "name the same devices", "one of them"),
    ({"tpu_topology": "4x4"}, {}, "topology 4x4 has 4 hosts of 4 chips", "a gang of 4 nodes"),
    ({"tpu_topology": "4y4"}, {}, "'4y4' isn't a valid topology", "2x2x4"),
    ({"tpu_accelerator": "v9"}, {}, "'v9' is unknown", "use v4, v5e"),
    ({"tpu": 3, "tpu_topology": "2x4"}, {}, "doesn't fit topology 2x4", ""),
    ({}, {"gpu_count": 1, "gpu_memory_bytes": 10**9}, "shares of a GPU", "nvidia.com/gpu.shared"),
    ({}, {"gpu_memory_bytes": 10**9}, "shares of a GPU", "nvidia.com/gpu.shared"),
    ({}, {"gpu_memory_bytes": -2}, "shares of a GPU", "nvidia.com/gpu.shared"),
    ({}, {"gpu_vendor": "aws", "gpu_memory_bytes": 10**9}, "shares of a GPU", ""),
    (
        {},
        {"any_of": [{"gpu_class": "A100", "gpu_memory_bytes": 10**9}]},
        "shares of a GPU",
        "",
    ),
    ({}, {"gpu_count": 1, "gpu_class": "mig"}, "names no profile", "1g.10gb"),
    ({}, {"gpu_class": "H100", "gpu_vendor": "aws"}, "'H100' means devices of nvidia", "one of"),
    ({"gpu_vendor": "amd"}, {"gpu_vendor": "nvidia"}, "gpu_vendor 'amd' means devices of amd", ""),
    (
        {"gpu_vendor": "amd"},
        {"gpu_class": "H100"},
        "the step asks for those of nvidia",
        "one of them",
    ),
    ({"gpu_type": "nvidia-tesla-t4"}, {"gpu_class": "H100"}, "are different models", "one of them"),
    (
        {"gpu_resource": "nvidia.com/gpu.shared"},
        {"gpu_class": "Trainium"},
        "means devices of nvidia",
        "one of them",
    ),
    (
        {"gpu_resource": "nvidia.com/gpu.shared"},
        {"gpu_class": "1g.10gb"},
        "is the resource nvidia.com/mig-1g.10gb",
        "one of them",
    ),
    ({"trainium": 1}, {"gpu_class": "Inferentia2"}, "no known EC2 instance", "Inferentia2"),
    ({"trainium": 1}, {"gpu_vendor": "nvidia"}, "option trainium means devices of aws", ""),
    ({"tpu": 4}, {"gpu_class": "Trainium"}, "option tpu means devices of google", ""),
    ({}, {"gpu_class": "v3"}, "'v3' isn't a known TPU", "tpu_accelerator"),
    ({"tpu": 4, "tpu_accelerator": "v4"}, {"gpu_class": "v5e"}, "are different models", ""),
    (
        {},
        {"any_of": [{"gpu_class": "1g.10gb"}, {"gpu_class": "2g.20gb"}]},
        "one Job can't",
        "",
    ),
    (
        {"resources": {"limits": {"nvidia.com/gpu": 0}}},
        {"gpu_count": 1},
        "asks for 1 of nvidia.com/gpu",
        "set 0",
    ),
    (
        {"extended_resources": {"nvidia.com/gpu": "1"}},
        {"gpu_count": 2},
        "asks for 2 of nvidia.com/gpu",
        "set 1",
    ),
    ({}, {"gpu_count": 1, "gpu_vendor": "arm"}, "'arm' is unknown", "use nvidia"),
    (
        {},
        {"gpu_count": 8, "gpu_vendor": "habana"},
        "Stoker can't count devices of habana.ai/gaudi",
        "extended_resources: {habana.ai/gaudi: 8}",
    ),
    (
        {"gpu": 1, "gpu_vendor": "example.com/card"},
        {},
        "Stoker can't count devices of example.com/card",
        "extended_resources: {example.com/card: 1}",
    ),
    (
        {},
        {"gpu_count": 1, "any_of": [{"gpu_vendor": "amd"}, {"gpu_vendor": "nvidia"}]},
        "one Job can't",
        "differ only in gpu_class",
    ),
    (
        {"service_account": "a", "service_account_name": "b"},
        {},
        "contradict each other",
        "remove one",
    ),
    (
        {"additional_pod_spec_args": {"containers": []}},
        {},
        "can't set 'containers'",
        "one container",
    ),
]


@pytest.mark.parametrize(("options", "resources", "what", "instead"), REFUSALS)
def test_refused(options: Object, resources: Object, what: str, instead: str) -> None:
    text = refused(options, resources=resources)
    assert what in text and instead in text
    assert "step 'train'" in text


def test_too_long_for_an_environment() -> None:
    text = refused(env=["BIG=" + "x" * (128 << 10)])
    assert "the variable BIG has more than 128 KiB" in text and "pass it as a file" in text
    documents(env=["BIG=" + "x" * ((128 << 10) - 5)])


ELSEWHERE = {  # of the Job, of the connection, or tested above by name
    "kubeconfig", "context", "kubernetes_context", "incluster", "namespace", "kubernetes_namespace",
    "gpu_vendor", "gpu_type", "gpu_type_label", "gpu_resource", "tpu", "tpu_accelerator",
    "tpu_topology", "trainium", "inferentia", "neuroncores", "efa", "qos", "compute_pool",
    "compute_pool_label", "labels", "annotations", "active_deadline_seconds",
    "ttl_seconds_after_finished", "keep", "jobset", "kueue_queue", "kueue_priority_class",
}  # fmt: skip


@pytest.mark.parametrize("name", OPTIONS)
def test_option(name: str) -> None:
    value, way, expected = OPTIONS[name]
    options = {name: value, **BESIDE.get(name, {})}
    nodes = 2 if name == "hostname_resolution_timeout" else 1
    assert at(pod(options, nodes=nodes), way) == expected


def table() -> list[tuple[str, ...]]:
    """Rows of kubernetes_options.def: name, same as, type, from, how, words."""
    row = re.compile(r'^X\("(\w+)", "(\w*)", (\w+), "(\w+)", (\w+), "(.*)"\)$', re.M)
    text = TABLE.read_text()
    found = row.findall(text)
    assert len(found) == text.count("\nX(")
    return found


def test_every_option_is_tested() -> None:
    honoured = {r[0] for r in table() if r[4] == "HONOURED"}
    assert honoured == set(OPTIONS) | ELSEWHERE
    for name, _, kind, _, how, words in table():
        if how == "REFUSED":
            value: Any = {"BOOL": True, "TEXT": "x", "OBJECT": {}}.get(kind, 1)
            assert words.split(":")[0] in refused({name: value})


def test_every_option_is_documented() -> None:
    text = (ROOT / "docs" / "kubernetes.md").read_text()
    for name, *_, words in table():
        assert re.search(rf"^\| `{name}` \|.*{re.escape(words)}", text, re.M), name


def test_labels_and_the_job() -> None:
    (doc,) = documents(
        {
            "labels": {"team": "x", "stoker.run": "mine"},
            "annotations": "a/b=c",
            "kueue_queue": "q",
            "kueue_priority_class": "high",
            "active_deadline_seconds": 100,
            "ttl_seconds_after_finished": 5,
            "namespace": "ml",
            "compute_pool": "p1",
            "compute_pool_label": "pool",
        },
        timeout_ms=60000,
        grace_ms=5000,
    )
    labels = doc["metadata"]["labels"]
    assert (labels["team"], labels["stoker.run"]) == ("x", "r1")
    assert labels["kueue.x-k8s.io/queue-name"] == "q"
    assert labels["kueue.x-k8s.io/priority-class"] == "high"
    assert doc["metadata"]["annotations"] == {"a/b": "c", "stoker.id": "1"}
    assert doc["metadata"]["namespace"] == "ml"
    assert doc["spec"]["activeDeadlineSeconds"] == 100
    assert doc["spec"]["ttlSecondsAfterFinished"] == 5
    inner = doc["spec"]["template"]["spec"]
    assert inner["nodeSelector"] == {"pool": "p1"}
    assert inner["terminationGracePeriodSeconds"] == 20
    assert inner["activeDeadlineSeconds"] > 60 + 20  # the agent's own deadline comes first


def test_gang() -> None:
    job, service = documents(name="s-g", nodes=4, resources={"gpu_count": 8})
    spec = job["spec"]
    assert (spec["completionMode"], spec["completions"], spec["parallelism"]) == ("Indexed", 4, 4)
    inner = spec["template"]["spec"]
    assert inner["subdomain"] == service["metadata"]["name"] == "s-g"
    assert service["spec"] == {
        "clusterIP": "None",
        "publishNotReadyAddresses": True,
        "selector": {"stoker.job": "s-g"},
    }
    assert service["metadata"]["ownerReferences"][0]["kind"] == "Job"
    assert {"name": "STOKER_GANG_RDZV", "value": "s-g-0.s-g:29400"} in inner["containers"][0]["env"]
    assert inner["volumes"] == [{"name": "shm", "emptyDir": {"medium": "Memory"}}]


def test_jobset() -> None:
    (doc,) = documents({"jobset": True}, name="s-g", nodes=2)
    assert (doc["kind"], doc["apiVersion"]) == ("JobSet", "jobset.x-k8s.io/v1alpha2")
    assert doc["spec"]["failurePolicy"] == {"maxRestarts": 0}
    (replicated,) = doc["spec"]["replicatedJobs"]
    inner = replicated["template"]["spec"]
    assert inner["completions"] == 2 and "ttlSecondsAfterFinished" not in inner
    env = inner["template"]["spec"]["containers"][0]["env"]
    assert {"name": "STOKER_GANG_RDZV", "value": "s-g-n-0-0.s-g:29400"} in env


def test_secret() -> None:
    job, secret = documents(name="s-1", secret=["KEY=a=b", "OTHER=é"])
    assert secret["stringData"] == {"KEY": "a=b", "OTHER": "é"}
    assert secret["metadata"]["ownerReferences"][0]["name"] == "s-1"
    container = job["spec"]["template"]["spec"]["containers"][0]
    assert container["envFrom"] == [{"secretRef": {"name": "s-1"}}]
    assert "KEY" not in str(job)


def test_folders_are_not_over_what_is_mounted() -> None:
    claims = {"persistent_volume_claims": {"c": "/store"}}
    container = main(claims, folders=["/store", "/project"])
    assert [v["mountPath"] for v in container["volumeMounts"]] == ["/store", "/project"]
    assert [v["name"] for v in container["volumeMounts"]] == ["claim-0", "folder-1"]


def test_carried_by_an_image() -> None:
    carry = {"carry": "image", "runner_image": "reg/runner:1"}
    spec = pod(config=carry, resources={"cpu_milli": 1000, "memory_bytes": 1 << 30})
    (init,) = spec["initContainers"]
    assert (init["image"], init["command"][1:]) == ("reg/runner:1", ["carry", "/carried"])
    assert init["resources"] == spec["containers"][0]["resources"]
    assert spec["containers"][0]["volumeMounts"] == [{"name": "stoker", "mountPath": "/stoker"}]
    assert "stoker carry --image" in refused(config={"carry": "image"})


@pytest.mark.parametrize(
    ("volume", "source", "path"),
    [
        (
            "pvc:tools/a/b",
            {"persistentVolumeClaim": {"claimName": "tools", "readOnly": True}},
            "a/b",
        ),
        ("/opt/x", {"hostPath": {"path": "/opt/x", "type": "Directory"}}, None),
    ],
)
def test_carried_by_a_volume(volume: str, source: Object, path: Optional[str]) -> None:
    spec = pod(config={"carry": "volume", "carry_volume": volume})
    assert spec["volumes"] == [{"name": "stoker", **source}]
    (mounted,) = spec["containers"][0]["volumeMounts"]
    assert mounted["readOnly"] and mounted.get("subPath") == path


def test_carried_otherwise() -> None:
    assert "must be pvc:" in refused(config={"carry": "volume", "carry_volume": "x"})
    assert "carry: image or carry: volume" in refused(config={"carry": "store"})


MESH = "sidecar.istio.io/inject"


def test_no_service_mesh_keeps_a_job_alive() -> None:
    """A sidecar doesn't end with the step. Istio reads the label, older ones the annotation."""
    meta = documents()[0]["spec"]["template"]["metadata"]
    assert meta["labels"][MESH] == "false"
    assert meta["annotations"][MESH] == "false"
    assert meta["annotations"]["linkerd.io/inject"] == "disabled"
    own = documents({"labels": {MESH: "true"}, "annotations": {"linkerd.io/inject": "enabled"}})
    meta = own[0]["spec"]["template"]["metadata"]
    assert meta["labels"][MESH] == "true" and MESH not in meta["annotations"]
    assert meta["annotations"]["linkerd.io/inject"] == "enabled"
    (gang, *_) = documents({"jobset": True}, nodes=2)
    job = gang["spec"]["replicatedJobs"][0]["template"]["spec"]
    assert job["template"]["metadata"]["labels"][MESH] == "false"


def test_pod_security_judges_all_containers() -> None:
    context = {"allowPrivilegeEscalation": False, "runAsNonRoot": True}
    config = {"carry": "image", "runner_image": "r:1"}
    spec = pod({"security_context": context}, config=config)
    every = [*spec["initContainers"], *spec["containers"]]
    assert len(every) == 2 and [c["securityContext"] for c in every] == [context, context]
