"""What can be asked for, and what each place can give: the only source of expectations of
test_requests.py.

Nothing here is read from the program. A way of asking is written down with what it means, a place with what it has
words for; a new option of a backend must be named here, or the test fails.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Optional

Object = dict[str, Any]


@dataclass(frozen=True)
class Ask:
    """One alternative: number, vendor and model of devices, or a slice or share of one."""

    count: int = 1
    vendor: Optional[str] = None
    model: Optional[str] = None
    slice: Optional[str] = None
    share_gb: float = 0
    auto: bool = False
    impossible: bool = False  # its parts contradict each other
    counted: bool = False  # the number was given
    word: str = ""  # the value of a label that the user names


@dataclass(frozen=True)
class Way:
    """A way of asking: keys of `resources`, and their meaning."""

    resources: Object
    means: list[Ask]
    none: bool = False  # a count of 0: none, whatever else is said


def named(model: str, vendor: str, **more: Any) -> Ask:
    return Ask(vendor=vendor, model=model, word=model, **more)


A100 = named("A100", "nvidia")
H100 = named("H100", "nvidia")
TWO = {"gpu_count": 2}
EITHER = [{"gpu_class": "A100"}, {"gpu_class": "H100"}]
GB = 10**9

WAYS: dict[str, Way] = {
    "nothing": Way({}, []),
    "count 1": Way({"gpu_count": 1}, [Ask(counted=True)]),
    "count 2": Way(TWO, [Ask(2, counted=True)]),
    "count 0": Way({"gpu_count": 0}, [], none=True),
    "count 0 of a class": Way({"gpu_count": 0, "gpu_class": "A100"}, [], none=True),
    "count 0 of a share": Way({"gpu_count": 0, "gpu_memory": "10GB"}, [], none=True),
    "count 0 of any_of": Way({"gpu_count": 0, "any_of": EITHER}, [], none=True),
    "memory": Way({"gpu_memory": "10GB"}, [Ask(share_gb=10)]),
    "memory of 2": Way({**TWO, "gpu_memory": "10GB"}, [Ask(2, share_gb=10, counted=True)]),
    "memory of a class": Way({"gpu_class": "A100", "gpu_memory": "10GB"}, [replace(A100, share_gb=10)]),
    "memory of a vendor": Way({"gpu_vendor": "aws", "gpu_memory": "10GB"}, [Ask(vendor="aws", share_gb=10)]),
    "auto": Way({"gpu_memory": "auto"}, [Ask(auto=True)]),
    "auto of a class": Way({"gpu_memory": "auto", "gpu_class": "A100"}, [replace(A100, auto=True)]),
    "class A100": Way({"gpu_class": "A100"}, [A100]),
    "class H100": Way({"gpu_class": "H100"}, [H100]),
    "class in a cloud's words": Way({"gpu_class": "NVIDIA_TESLA_A100"}, [replace(A100, word="NVIDIA_TESLA_A100")]),
    "class of AMD": Way({"gpu_class": "MI300X"}, [named("MI300X", "amd")]),
    "class of Intel": Way({"gpu_class": "Max-1550"}, [named("Max-1550", "intel")]),
    "class of AWS": Way({"gpu_class": "Trainium"}, [named("Trainium", "aws")]),
    "class of AWS, the other": Way({"gpu_class": "Inferentia2"}, [named("Inferentia2", "aws")]),
    "class of Google": Way({"gpu_class": "v5e"}, [named("v5e", "google")]),
    "class of Habana": Way({"gpu_class": "Gaudi2"}, [named("Gaudi2", "habana")]),
    "class and count": Way({**TWO, "gpu_class": "A100"}, [replace(A100, count=2, counted=True)]),
    "class and its vendor": Way({"gpu_class": "A100", "gpu_vendor": "cuda"}, [A100]),
    "class and another vendor": Way(
        {"gpu_class": "A100", "gpu_vendor": "amd"},
        [replace(A100, vendor="amd", impossible=True)],
    ),
    "vendor nvidia": Way({"gpu_vendor": "nvidia"}, [Ask(vendor="nvidia")]),
    "vendor amd": Way({"gpu_vendor": "rocm"}, [Ask(vendor="amd")]),
    "vendor intel": Way({"gpu_vendor": "xpu"}, [Ask(vendor="intel")]),
    "vendor aws": Way({"gpu_vendor": "trainium"}, [Ask(vendor="aws")]),
    "vendor google": Way({"gpu_vendor": "tpu"}, [Ask(vendor="google")]),
    "vendor habana": Way({"gpu_vendor": "gaudi"}, [Ask(vendor="habana")]),
    "vendor and count": Way({**TWO, "gpu_vendor": "amd"}, [Ask(2, vendor="amd", counted=True)]),
    "slice": Way({"gpu_class": "1g.10gb"}, [Ask(vendor="nvidia", slice="1g.10gb")]),
    "slices": Way({**TWO, "gpu_class": "1g.10gb"}, [Ask(2, vendor="nvidia", slice="1g.10gb", counted=True)]),
    "any slice": Way({"gpu_class": "mig"}, [Ask(vendor="nvidia", slice="mig")]),
    "any_of models": Way({"any_of": EITHER}, [A100, H100]),
    "any_of models, 2": Way(
        {**TWO, "any_of": EITHER},
        [replace(A100, count=2, counted=True), replace(H100, count=2, counted=True)],
    ),
    "any_of vendors": Way(
        {"any_of": [{"gpu_vendor": "amd"}, {"gpu_vendor": "nvidia"}]},
        [Ask(vendor="amd"), Ask(vendor="nvidia")],
    ),
    "any_of kinds": Way(
        {"any_of": [{"gpu_class": "Trainium"}, {"gpu_class": "A100", "gpu_count": 2}]},
        [named("Trainium", "aws"), replace(A100, count=2, counted=True)],
    ),
    "any_of counts": Way(
        {"gpu_class": "A100", "any_of": [{"gpu_count": 4}, {"gpu_count": 2}]},
        [replace(A100, count=4, counted=True), replace(A100, count=2, counted=True)],
    ),
    "any_of shares": Way(
        {"any_of": [{"gpu_memory": "90GB"}, {"gpu_memory": "10GB"}]},
        [Ask(share_gb=90), Ask(share_gb=10)],
    ),
    "any_of one": Way({"any_of": [{}]}, [Ask()]),
    "any_of none": Way({"any_of": []}, []),
}  # fmt: skip

# Said by the pipeline, or by both: what a step then has is this way's.
SPLIT: dict[str, tuple[Object, Object, str]] = {
    "class above, count below": ({"gpu_class": "A100"}, TWO, "class and count"),
    "count above, class below": (TWO, {"gpu_class": "A100"}, "class and count"),
    "class above, none below": ({"gpu_class": "A100"}, {"gpu_count": 0}, "count 0 of a class"),
    "memory above, class below": ({"gpu_memory": "10GB"}, {"gpu_class": "A100"}, "memory of a class"),
    "any_of above, class below": ({"any_of": EITHER}, {"gpu_class": "H100"}, "class H100"),
    "any_of above, vendor below": ({"any_of": EITHER}, {"gpu_vendor": "amd"}, "vendor amd"),
    "any_of above, count below": ({"any_of": EITHER}, TWO, "any_of models, 2"),
    "any_of above, none below": ({"any_of": EITHER}, {"gpu_count": 0}, "count 0 of any_of"),
    "class above, any_of below": ({"gpu_class": "T4"}, {"any_of": EITHER}, "any_of models"),
    "vendor above, vendor below": ({"gpu_vendor": "amd"}, {"gpu_vendor": "aws"}, "vendor aws"),
}  # fmt: skip


# --- machines ---


@dataclass(frozen=True)
class Machine:
    """Devices of one simulated host: (vendor, model, how many, GB of each, profile of a slice)."""

    spec: Optional[str]
    devices: list[tuple[str, str, int, float, Optional[str]]]


MACHINES: dict[str, Machine] = {
    "no devices": Machine(None, []),
    "A100s": Machine("2xA100", [("nvidia", "A100", 2, 80, None)]),
    "A100s and AMD": Machine("4xA100+2xMI300X", [("nvidia", "A100", 4, 80, None), ("amd", "MI300X", 2, 190, None)]),
    "H100 in slices": Machine("1xH100,mig=1g.10gb*2", [("nvidia", "H100", 2, 10, "1g.10gb")]),
    "Trainium": Machine("4xTrainium", [("aws", "Trainium", 4, 32, None)]),
    "TPUs": Machine("v5e-8", [("google", "v5e", 8, 16, None)]),
    "Intel": Machine("2xMax-1550", [("intel", "Max-1550", 2, 128, None)]),
    "Gaudi": Machine("8xGaudi2", [("habana", "Gaudi2", 8, 96, None)]),
}  # fmt: skip
KIND = {"nvidia": "GPU", "amd": "GPU", "intel": "GPU", "aws": "Neuron", "google": "TPU", "habana": "Gaudi"}  # fmt: skip
SHARED = {"nvidia", "amd", "intel"}  # several programs can share their memory


# --- clusters ---


@dataclass(frozen=True)
class Cluster:
    """What an engine of other machines can be asked for."""

    resources: dict[str, str]  # vendor → what is asked for
    labels: frozenset[str]  # whose models it tells apart
    slices: Optional[str]  # how a profile is asked for; None: it isn't
    either: str  # of alternatives: "models" that differ in nothing else, the "first", or only "one"


CLUSTERS: dict[str, Cluster] = {
    "kubernetes": Cluster(
        {
            "nvidia": "nvidia.com/gpu",
            "amd": "amd.com/gpu",
            "intel": "gpu.intel.com/i915",
            "aws": "aws.amazon.com/neuron",
            "google": "google.com/tpu",
        },
        frozenset(["nvidia", "amd", "intel", "aws", "google"]),
        "nvidia.com/mig-{}",
        "models",
    ),
    "batch": Cluster(
        {"nvidia": "GPU", "aws": "/dev/neuron"}, frozenset(["nvidia", "aws"]), None, "first"
    ),
    "slurm": Cluster(
        {"nvidia": "gpu", "amd": "gpu", "intel": "gpu"},
        frozenset(["nvidia", "amd", "intel"]),
        "gpu:{}",
        "one",
    ),
    "ssh": Cluster(dict.fromkeys(KIND, "device"), frozenset(KIND), "{}", "all"),
}


@dataclass(frozen=True)
class Form:
    """A form of a job: the number of nodes, and the step's settings for it."""

    cluster: str
    nodes: int = 1
    options: Optional[Object] = None
    foreach: bool = False


# The values of nodes' labels that a model has on Kubernetes: of device plugins, GKE and EC2.
SPELT: dict[str, frozenset[str]] = {
    "A100": frozenset(
        [
            "NVIDIA-A100-SXM4-80GB",
            "NVIDIA-A100-SXM4-40GB",
            "NVIDIA-A100-80GB-PCIe",
            "nvidia-a100-80gb",
            "nvidia-tesla-a100",
            "p4d.24xlarge",
            "p4de.24xlarge",
        ]
    ),
    "H100": frozenset(
        [
            "NVIDIA-H100-80GB-HBM3",
            "NVIDIA-H100-PCIe",
            "NVIDIA-H100-NVL",
            "nvidia-h100-80gb",
            "nvidia-h100-mega-80gb",
            "p5.4xlarge",
            "p5.48xlarge",
        ]
    ),
    "MI300X": frozenset(["AMD_Instinct_MI300X", "AMD_Instinct_MI300X_OAM"]),
    "Max-1550": frozenset(["Max_1550"]),
}

FORMS: dict[str, Form] = {
    "Kubernetes, a Job": Form("kubernetes"),
    "Kubernetes, an Indexed Job": Form("kubernetes", 2, {"jobset": False}),
    "Kubernetes, a JobSet": Form("kubernetes", 2, {"jobset": True}),
    "Batch, a job": Form("batch"),
    "Batch, an array": Form("batch", foreach=True),
    "Batch, several nodes": Form("batch", 2),
    "Slurm, a job": Form("slurm"),
    "Slurm, an array": Form("slurm", foreach=True),
    "Slurm, several nodes": Form("slurm", 2),
    "SSH, a job": Form("ssh"),
    "SSH, several hosts": Form("ssh", 2),
}


# --- options of the backends ---


@dataclass(frozen=True)
class Option:
    """A value to try, and its meaning for devices.

    `adds`: so many of `vendor` (any: GPUs). `default`: whose GPUs they are where nobody says. `instead`: this
    resource in place of the vendor's. `word`: the label's value for the model. `refused`: whatever is asked for.
    """

    value: Any
    adds: int = 0
    vendor: Optional[str] = None
    default: Optional[str] = None
    instead: Optional[str] = None
    word: Optional[str] = None
    model: Optional[str] = None
    has_label: bool = False
    family: Optional[str] = None
    chips: int = 0
    refused: bool = False
    with_other: Optional[Object] = None  # what it means nothing without
    no_devices: bool = False  # machines that have none
    pilot: int = 0  # tasks that run in one job, at most
    pilot_gpus: int = 0  # of that job, at most
    here: Optional[Ask] = None  # what it asks for on this machine, where the step names no kind


def says_nothing(*values: tuple[str, Any]) -> dict[str, Option]:
    return {name: Option(value) for name, value in values}


KUBERNETES: dict[str, Option] = {
    "gpu": Option(2, adds=2, here=Ask(2)),
    "gpu_vendor": Option("amd", default="amd"),
    "gpu_type": Option("NVIDIA-A100-SXM4-80GB", adds=1, vendor="nvidia", word="NVIDIA-A100-SXM4-80GB", here=Ask()),
    "gpu_type_label": Option("pool", has_label=True),
    "gpu_resource": Option("nvidia.com/gpu.shared", instead="nvidia.com/gpu.shared"),
    "tpu": Option(4, adds=4, vendor="google", here=Ask(4, vendor="google")),
    "tpu_accelerator": Option("v5e", vendor="google", with_other={"tpu": 4}, adds=4, model="v5e", here=Ask(4, vendor="google")),
    "tpu_topology": Option("2x2", vendor="google", chips=4, here=Ask(vendor="google")),
    "trainium": Option(2, adds=2, vendor="aws", family="Trainium", here=Ask(2, vendor="aws")),
    "inferentia": Option(2, adds=2, vendor="aws", family="Inferentia", here=Ask(2, vendor="aws")),
    "neuroncores": Option(4, vendor="aws", instead="aws.amazon.com/neuroncore", adds=4, here=Ask(vendor="aws")),
    **says_nothing(
        ("kubeconfig", "/nowhere"), ("context", "c"), ("kubernetes_context", "c"), ("incluster", False), ("namespace", "n"),
        ("kubernetes_namespace", "n"), ("cpu", 2), ("memory", 4096), ("disk", 1024), ("efa", 1), ("extended_resources", {"example.com/card": "1"}),
        ("resources", {"limits": {"cpu": "8"}}), ("qos", "Burstable"), ("image", "127.0.0.1:1/other:1"), ("image_pull_policy", "Always"),
        ("image_pull_secrets", "a,b"), ("service_account", "r"), ("service_account_name", "r"), ("step_pod_service_account_name", "r"),
        ("secrets", ["s"]), ("node_selector", {"a": "b"}), ("node_selectors", {"a": "b"}), ("compute_pool_label", "l"),
        ("affinity", {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{"matchExpressions": [{"key": "k", "operator": "Exists"}]}]}}}),
        ("tolerations", [{"key": "k", "operator": "Exists"}]), ("labels", {"a": "b"}), ("annotations", {"a": "b"}), ("use_tmpfs", True),
        ("tmpfs_tempdir", False), ("tmpfs_size", 100), ("tmpfs_path", "/fast"), ("persistent_volume_claims", {"c": "/c"}), ("shared_memory", 64),
        ("shm_size", "64MiB"), ("port", 8080), ("hostname_resolution_timeout", 60), ("security_context", {"runAsUser": 1}),
        ("container_security_context", {"runAsUser": 1}), ("pod_security_context", {"fsGroup": 1}), ("privileged", True),
        ("volumes", [{"name": "v", "emptyDir": {}}]), ("volume_mounts", [{"name": "v", "mountPath": "/v"}]), ("host_ipc", True), ("host_network", True),
        ("scheduler_name", "s"), ("priority_class", "p"), ("runtime_class", "r"), ("env", [{"name": "A", "value": "b"}]), ("env_from", []),
        ("additional_pod_spec_args", {"hostPID": True}), ("pod_settings", {"labels": {"a": "b"}}), ("executable", "python3"), ("active_deadline_seconds", 100),
        ("ttl_seconds_after_finished", 100), ("keep", True), ("node_lost_seconds", 60), ("kueue_queue", "q"), ("kueue_priority_class", "p"),
        ("max_jobs", 5), ("max_parallelism", 5), ("pending_seconds", 60), ("pod_startup_timeout", 60),
    ),
    "compute_pool": Option("p", with_other={"compute_pool_label": "l"}),
}  # fmt: skip
KUBERNETES_REFUSED = {
    "synchronous": True, "timeout": 10, "client_qps": 1, "client_burst": 1, "orchestrator_pod_settings": {}, "job_name_prefix": "p",
    "backoff_limit_margin": 1, "backoff_limit": 1, "restart_policy": "Never", "pod_failure_max_retries": 1, "pod_failure_retry_delay": 1,
    "pod_failure_backoff": 1, "pass_zenml_token_as_secret": True, "successful_jobs_history_limit": 1, "failed_jobs_history_limit": 1,
    "prevent_orchestrator_pod_caching": True, "always_build_pipeline_image": True,
}  # fmt: skip
KUBERNETES.update({name: Option(value, refused=True) for name, value in KUBERNETES_REFUSED.items()})
KUBERNETES_FORM = {"jobset"}  # it says which form it is: tried as that

BATCH: dict[str, Option] = {
    "gpu": Option(2, adds=2, vendor="nvidia", here=Ask(2)),
    "trainium": Option(2, adds=2, vendor="aws", family="Trainium", here=Ask(2, vendor="aws")),
    "inferentia": Option(2, adds=2, vendor="aws", family="Inferentia", here=Ask(2, vendor="aws")),
    "platform": Option("fargate", no_devices=True, with_other={"execution_role": "arn:aws:iam::1:role/b"}),
    **says_nothing(
        ("queue", "other"), ("cpu", 2), ("memory", 4096), ("efa", 1), ("image", "127.0.0.1:1/other:1"), ("executable", "python3"),
        ("iam_role", "arn:aws:iam::1:role/a"), ("execution_role", "arn:aws:iam::1:role/b"), ("shared_memory", 64), ("max_swap", 100),
        ("use_tmpfs", True), ("tmpfs_tempdir", False), ("tmpfs_size", 100), ("tmpfs_path", "/fast"), ("host_volumes", ["/data"]),
        ("efs_volumes", ["fs-1:/work"]), ("disk", 100), ("log_driver", "awslogs"), ("log_options", {"awslogs-group": "mine"}),
        ("aws_batch_tags", {"team": "ml"}), ("privileged", True), ("user", "1000"), ("init_process", True), ("ulimits", {"memlock": -1}),
        ("secrets", {"T": "arn:aws:ssm:eu-west-1:1:parameter/t"}), ("secret_prefix", "ssm:/p"), ("arch", "x86_64"), ("assign_public_ip", True),
        ("share_identifier", "ml"), ("priority", 5), ("array_min", 2),
    ),
    "swappiness": Option(60, with_other={"max_swap": 100}),
    "ephemeral_storage": Option(30, refused=True),  # Fargate's
}  # fmt: skip
BATCH_REFUSED = {
    "vcpus": 1, "gpu_type": "A100", "tpu": 1, "node_selector": {"a": "b"}, "tolerations": ["t"], "depends_on": ["x"], "job_definition": "d",
    "timeout": 10, "attempts": 2,
}  # fmt: skip
BATCH.update({name: Option(value, refused=True) for name, value in BATCH_REFUSED.items()})
BATCH_OF_STACK = {"poll"}  # of the connection, no step's

SLURM: dict[str, Option] = {
    "gpu": Option(2, adds=2, here=Ask(2)),
    "gpu_type": Option("A100-80G", adds=1, word="A100-80G", here=Ask()),
    **says_nothing(
        ("partition", "p"), ("account", "a"), ("qos", "q"), ("constraint", "c"), ("reservation", "r"), ("time", "2:00:00"), ("licenses", "l:1"),
        ("exclusive", True), ("gres", "shm:1"), ("flags", ["--nice=1"]), ("python", "python3"), ("keep", ["/opt/kept"]),
        ("array_min", 2), ("image", "127.0.0.1:1/i:1"), ("container", "enroot"),
        ("pilots", 2), ("pilot_idle", 1),
    ),
    "pilot": Option(8, pilot=8),
    "pilot_gpus": Option(2, pilot=8, pilot_gpus=2, with_other={"pilot": 8}),
    "signal": Option(60, with_other={"time": "2:00:00"}),
}  # fmt: skip
SLURM_REFUSED = {
    "cpu": 2, "memory": 4096, "mem": "4G", "nodes": 2, "array": "1-3", "dependency": "afterok:1", "requeue": True,
}  # fmt: skip
SLURM.update({name: Option(value, refused=True) for name, value in SLURM_REFUSED.items()})
SLURM_OF_STACK = {"poll"}

SSH: dict[str, Option] = {
    "gpu": Option(2, adds=2, here=Ask(2)),
    **says_nothing(("python", "python3"), ("keep", ["/opt/kept"])),
}
SSH_REFUSED = {
    "image": "i:1", "cpu": 2, "memory": 4096, "nodes": 2, "time": "2:00:00", "user": "ann", "port": 22, "identity_file": "k", "proxy_jump": "j",
}  # fmt: skip
SSH.update({name: Option(value, refused=True) for name, value in SSH_REFUSED.items()})
SSH_OF_STACK = {"hosts", "host", "address", "slots", "poll"}
OPTIONS = {"kubernetes": KUBERNETES, "batch": BATCH, "slurm": SLURM, "ssh": SSH}

# --- flows: Metaflow's words ---

# decorators → where, what they mean there, the family of Neuron devices that they name
FLOWS: dict[str, tuple[str, list[Ask], Optional[str]]] = {
    "@kubernetes": ("kubernetes", [], None),
    "@kubernetes(gpu=0)": ("kubernetes", [], None),
    "@kubernetes(gpu=2)": ("kubernetes", [Ask(2, counted=True)], None),
    "@kubernetes(gpu='2')": ("kubernetes", [Ask(2, counted=True)], None),
    "@kubernetes(gpu=2, gpu_vendor='amd')": ("kubernetes", [Ask(2, vendor="amd", counted=True)], None),
    "@kubernetes(gpu=1, gpu_vendor='intel')": ("kubernetes", [Ask(vendor="intel", counted=True)], None),
    "@kubernetes(trainium=16)": ("kubernetes", [Ask(16, vendor="aws", counted=True)], "Trainium"),
    "@kubernetes(inferentia=1)": ("kubernetes", [Ask(vendor="aws", counted=True)], "Inferentia"),
    "@kubernetes(tpu=4)": ("kubernetes", [Ask(4, vendor="google", counted=True)], None),
    "@resources(gpu=2) @kubernetes": ("kubernetes", [Ask(2, counted=True)], None),
    "@resources(gpu=2) @kubernetes(gpu=1)": ("kubernetes", [Ask(2, counted=True)], None),
    "@resources(gpu=1) @kubernetes(gpu=2)": ("kubernetes", [Ask(2, counted=True)], None),
    "@batch": ("batch", [], None),
    "@batch(gpu=2)": ("batch", [Ask(2, counted=True)], None),
    "@batch(trainium=2)": ("batch", [Ask(2, vendor="aws", counted=True)], "Trainium"),
    "@batch(inferentia=2)": ("batch", [Ask(2, vendor="aws", counted=True)], "Inferentia"),
    "@resources(gpu=2) @batch": ("batch", [Ask(2, counted=True)], None),
    "@resources(gpu=0) @batch": ("batch", [], None),
}  # fmt: skip

# --- containers of this machine ---

CONTAINED: dict[str, Object] = {"a process": {}, "ranks": {"gang": {"ranks": 2}}}
