"""What each option of Kubernetes must become in a pod's spec, for the tests of
manifests and those of crossings."""

from __future__ import annotations

from typing import Any


def both(name: str, amount: str) -> dict[str, Any]:
    return {"requests": {name: amount}, "limits": {name: amount}}


OPTIONS: dict[str, tuple[Any, str, Any]] = {
    # option: (value, where in the pod's spec, what is there)
    "image_pull_policy": ("Always", "containers.0.imagePullPolicy", "Always"),
    "image_pull_secrets": ("a,b", "imagePullSecrets", [{"name": "a"}, {"name": "b"}]),
    "service_account": ("robot", "serviceAccountName", "robot"),
    "service_account_name": ("robot", "serviceAccountName", "robot"),
    "step_pod_service_account_name": ("robot", "serviceAccountName", "robot"),
    "secrets": (["s"], "containers.0.envFrom", [{"secretRef": {"name": "s"}}]),
    "node_selector": ("a=b,c/d=e", "nodeSelector", {"a": "b", "c/d": "e"}),
    "node_selectors": ({"a": "b"}, "nodeSelector", {"a": "b"}),
    "tolerations": (
        [{"key": "k", "operator": "Exists", "toleration_seconds": 3, "effect": "NoExecute"}],
        "tolerations.0.tolerationSeconds",
        3,
    ),
    "affinity": (
        {"node_affinity": {"required_during_scheduling_ignored_during_execution": {
            "node_selector_terms": [{"match_expressions": [{"key": "a_b", "operator": "Exists"}]}]}}},
        "affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms.0"
        ".matchExpressions.0.key",
        "a_b",
    ),
    "use_tmpfs": (True, "containers.0.volumeMounts.0.mountPath", "/metaflow_temp"),
    "tmpfs_size": (512, "volumes.0.emptyDir", {"medium": "Memory", "sizeLimit": "512Mi"}),
    "tmpfs_path": ("/fast", "containers.0.volumeMounts.0.mountPath", "/fast"),
    "tmpfs_tempdir": (False, "containers.0.env", None),
    "persistent_volume_claims": (
        {"data": "/mnt/data"}, "volumes.0.persistentVolumeClaim.claimName", "data"),
    "shared_memory": (2048, "volumes.0.emptyDir.sizeLimit", "2048Mi"),
    "shm_size": ("2GiB", "volumes.0.emptyDir.sizeLimit", "2048Mi"),
    "port": (8080, "containers.0.ports", [{"containerPort": 8080}]),
    "security_context": (
        {"run_as_user": 1000}, "containers.0.securityContext", {"runAsUser": 1000}),
    "container_security_context": (
        {"capabilities": {"add": ["SYS_PTRACE"]}},
        "containers.0.securityContext.capabilities.add.0", "SYS_PTRACE"),
    "pod_security_context": ({"fs_group": 5}, "securityContext", {"fsGroup": 5}),
    "privileged": (True, "containers.0.securityContext", {"privileged": True}),
    "volumes": (
        [{"name": "v", "host_path": {"path": "/v"}}], "volumes.0.hostPath.path", "/v"),
    "volume_mounts": (
        [{"name": "v", "mount_path": "/v"}], "containers.0.volumeMounts.0.mountPath", "/v"),
    "host_ipc": (True, "hostIPC", True),
    "host_network": (True, "hostNetwork", True),
    "scheduler_name": ("volcano", "schedulerName", "volcano"),
    "priority_class": ("low", "priorityClassName", "low"),
    "runtime_class": ("gvisor", "runtimeClassName", "gvisor"),
    "env": (
        [{"name": "A", "value_from": {"field_ref": {"field_path": "spec.nodeName"}}}],
        "containers.0.env.0.valueFrom.fieldRef.fieldPath", "spec.nodeName"),
    "env_from": (
        [{"config_map_ref": {"name": "c"}}], "containers.0.envFrom.0.configMapRef.name", "c"),
    "additional_pod_spec_args": (
        {"dns_policy": "None", "dns_config": {"nameservers": ["1.1.1.1"]}}, "dnsPolicy", "None"),
    "pod_settings": ({"node_selectors": {"a": "b"}}, "nodeSelector", {"a": "b"}),
    "resources": (
        {"limits": {"a.b/c": "1"}, "requests": {"a.b/c": "1"}},
        "containers.0.resources", both("a.b/c", "1")),
    "extended_resources": ("a.b/c=1", "containers.0.resources", both("a.b/c", "1")),
    "node_lost_seconds": (60, "tolerations.1.tolerationSeconds", 60),
    "hostname_resolution_timeout": (
        9, "containers.0.env.1", {"name": "STOKER_GANG_JOIN", "value": "9s"}),
    "cpu": (1.5, "containers.0.resources", both("cpu", "1500m")),
    "memory": ("8GiB", "containers.0.resources", both("memory", "8192Mi")),
    "disk": (1024, "containers.0.resources", both("ephemeral-storage", "1024Mi")),
    "gpu": (1, "containers.0.resources", both("nvidia.com/gpu", "1")),
}  # fmt: skip
# What an option needs beside it to mean anything.
BESIDE: dict[str, dict[str, Any]] = {
    "volume_mounts": {"volumes": [{"name": "v", "hostPath": {"path": "/v"}}]},
    "tmpfs_tempdir": {"use_tmpfs": True},
}


def at(node: Any, way: str) -> Any:
    for key in way.split("."):
        node = node[int(key)] if key.isdigit() else node.get(key)
    return node
