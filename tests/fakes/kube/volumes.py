"""A container's file system and environment: volumes, Secrets, downward API."""

from __future__ import annotations

import base64
import math
import os
import re
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any, Optional

from .selectors import at_path, quantity

if TYPE_CHECKING:
    from .cluster import Cluster

Object = dict[str, Any]
SUBSCRIPT = re.compile(r"^metadata\.(labels|annotations)\['(.*)'\]$")
REFERENCE = re.compile(r"\$(\$|\([A-Za-z_.-][A-Za-z0-9_.-]*\))")


class MountError(Exception):
    """A volume can't be set up (yet); has the text of the FailedMount event."""


class ConfigError(Exception):
    """A container's environment can't be built (yet): CreateContainerConfigError."""


def field_value(pod: Object, path: str) -> str:
    """Return a field as the downward API does."""
    found = SUBSCRIPT.match(path)
    if found:
        return str((pod["metadata"].get(found[1]) or {}).get(found[2], ""))
    if path in ("metadata.labels", "metadata.annotations"):
        table = pod["metadata"].get(path.split(".")[1]) or {}
        return "".join(f'{k}="{v}"\n' for k, v in sorted(table.items())).rstrip("\n")
    return at_path(pod, path)


def resource_value(pod: Object, container: Object, ref: Object) -> str:
    """Return the value of a ``resourceFieldRef`` such as limits.cpu, rounded up to the divisor."""
    for c in pod["spec"]["containers"] if ref.get("containerName") else []:
        if c["name"] == ref["containerName"]:
            container = c
    kind, _, name = ref["resource"].partition(".")
    value = (container["resources"].get(kind) or {}).get(name, "0")
    divisor = quantity(ref.get("divisor") or "1") or quantity("1")
    return str(math.ceil(quantity(value) / divisor))


def expand(text: str, env: dict[str, str]) -> str:
    """Replace ``$(VAR)`` for known variables, and ``$$`` with ``$``."""

    def one(m: re.Match[str]) -> str:
        if m[1] == "$":
            return "$"
        return env.get(m[1][1:-1], m[0])

    return REFERENCE.sub(one, text)


def environment(cluster: Cluster, pod: Object, container: Object) -> dict[str, str]:
    """Return a container's variables. ConfigError if a Secret, ConfigMap or key is missing."""
    env = {
        "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        "HOSTNAME": pod["spec"].get("hostname") or pod["metadata"]["name"],
        "HOME": "/root",
        "KUBERNETES_SERVICE_HOST": cluster.host,
        "KUBERNETES_SERVICE_PORT": str(cluster.port),
        **cluster.options.environment,
    }
    namespace = pod["metadata"]["namespace"]
    for source in container.get("envFrom") or []:
        for kind, shelf in (("configMapRef", "configmaps"), ("secretRef", "secrets")):
            if kind in source:
                data = _data(cluster, shelf, namespace, source[kind])
                for key, value in (data or {}).items():
                    env[source.get("prefix", "") + key] = value.decode(errors="replace")
    for e in container.get("env") or []:
        if "valueFrom" not in e:
            env[e["name"]] = expand(e.get("value") or "", env)
            continue
        given = _from(cluster, pod, container, e["valueFrom"])
        if given is not None:
            env[e["name"]] = given
    return env


def _from(cluster: Cluster, pod: Object, container: Object, source: Object) -> Optional[str]:
    if "fieldRef" in source:
        return field_value(pod, source["fieldRef"]["fieldPath"])
    if "resourceFieldRef" in source:
        return resource_value(pod, container, source["resourceFieldRef"])
    for kind, shelf, word in (
        ("secretKeyRef", "secrets", "Secret"),
        ("configMapKeyRef", "configmaps", "ConfigMap"),
    ):
        if kind in source:
            ref, namespace = source[kind], pod["metadata"]["namespace"]
            data = _data(cluster, shelf, namespace, ref)
            if data is None:
                return None
            if ref["key"] in data:
                return data[ref["key"]].decode(errors="replace")
            if ref.get("optional"):
                return None
            raise ConfigError(f"couldn't find key {ref['key']} in {word} {namespace}/{ref['name']}")
    return None


def data_of(obj: Object) -> dict[str, bytes]:
    """Return the content of a ConfigMap or a Secret."""
    coded = obj.get("data") if obj["kind"] == "Secret" else obj.get("binaryData")
    out = {k: base64.b64decode(v) for k, v in (coded or {}).items()}
    if obj["kind"] == "ConfigMap":
        out.update({k: v.encode() for k, v in (obj.get("data") or {}).items()})
    return out


def _data(cluster: Cluster, shelf: str, namespace: str, ref: Object) -> Optional[dict[str, bytes]]:
    found = cluster.store.get(shelf, namespace, ref["name"])
    if found is not None:
        return data_of(found)
    if ref.get("optional"):
        return None
    raise ConfigError(f'{shelf[:-1]} "{ref["name"]}" not found')


class Volumes:
    """The volumes of one pod, as folders in the pod's own folder."""

    def __init__(self, cluster: Cluster, pod: Object, folder: Path) -> None:
        self.cluster = cluster
        self.pod = pod
        self.folder = folder
        self.sources: dict[str, Object] = {}  # volume's name → {source} or {tmpfs}
        self.shared: list[Path] = []

    def set_up(self) -> None:
        """Set up all volumes. MountError if one isn't available yet."""
        for v in self.pod["spec"].get("volumes") or []:
            if v["name"] not in self.sources:
                try:
                    self.sources[v["name"]] = self._one(v)
                except ConfigError as e:
                    raise MountError(f'MountVolume.SetUp failed for volume "{v["name"]}" : {e}')

    def tear_down(self) -> None:
        for path in (self.folder, *self.shared):
            shutil.rmtree(path, ignore_errors=True)

    def _one(self, v: Object) -> Object:
        name, home = v["name"], self.folder / "volumes" / v["name"]
        namespace = self.pod["metadata"]["namespace"]
        if "emptyDir" in v:
            return self._empty(v, home)
        if "hostPath" in v:
            return {"source": self._host(v)}
        if "persistentVolumeClaim" in v:
            claim = (
                self.cluster.containers.folder
                / "claims"
                / namespace
                / v["persistentVolumeClaim"]["claimName"]
            )
            claim.mkdir(parents=True, exist_ok=True)
            return {"source": str(claim)}
        files: dict[str, bytes] = {}
        mode = 0o644
        for kind in ("configMap", "secret", "downwardAPI"):
            if kind in v:
                files.update(self._files(kind, v[kind]))
                mode = v[kind].get("defaultMode", mode)
        if "projected" in v:
            mode = v["projected"].get("defaultMode", mode)
            for source in v["projected"].get("sources") or []:
                for kind, inner in source.items():
                    files.update(self._files(kind, inner))
        elif not set(v) & {"configMap", "secret", "downwardAPI"}:
            raise ConfigError(
                f"volume {name}: this cluster has no {', '.join(k for k in v if k != 'name')}"
            )
        _lay_out(home, files, mode)
        return {"source": str(home), "read_only": True}

    def _empty(self, v: Object, home: Path) -> Object:
        if v["emptyDir"].get("medium") != "Memory":
            home.mkdir(parents=True)
            home.chmod(0o777)
            return {"source": str(home)}
        spec = self.pod["spec"]
        users = [
            c
            for c in (spec.get("initContainers") or []) + spec["containers"]
            if any(m["name"] == v["name"] for m in c.get("volumeMounts") or [])
        ]
        limit = v["emptyDir"].get("sizeLimit")
        if len(users) > 1:  # each container would otherwise get its own tmpfs
            path = (
                Path("/dev/shm")
                / f"{self.cluster.containers.folder.name}-{self.pod['metadata']['uid']}-{v['name']}"
            )
            path.mkdir(mode=0o777)
            self.shared.append(path)
            return {"source": str(path)}
        return {"tmpfs": "mode=1777" + (f",size={int(quantity(limit))}" if limit else "")}

    def _host(self, v: Object) -> str:
        path, kind = v["hostPath"]["path"], v["hostPath"].get("type") or ""
        if kind in ("DirectoryOrCreate", "") and not os.path.exists(path):
            os.makedirs(path)
        good = (
            os.path.isfile(path)
            if kind == "File"
            else os.path.isdir(path)
            if kind == "Directory"
            else os.path.exists(path)
        )
        if not good:
            what = "file" if kind == "File" else "directory"
            raise MountError(
                f'MountVolume.SetUp failed for volume "{v["name"]}" : hostPath type check failed: {path} is not a {what}'
            )
        return str(path)

    def _files(self, kind: str, source: Object) -> dict[str, bytes]:
        namespace = self.pod["metadata"]["namespace"]
        if kind == "serviceAccountToken":
            user = f"system:serviceaccount:{namespace}:{self.pod['spec'].get('serviceAccountName', 'default')}"
            return {source["path"]: self.cluster.token_of(user).encode()}
        if kind == "downwardAPI":
            out = {}
            for item in source.get("items") or []:
                ref = item.get("fieldRef")
                value = (
                    field_value(self.pod, ref["fieldPath"])
                    if ref
                    else resource_value(
                        self.pod, self.pod["spec"]["containers"][0], item["resourceFieldRef"]
                    )
                )
                out[item["path"]] = value.encode()
            return out
        name = source.get("name") or source.get("secretName")
        if kind == "configMap" and name == "kube-root-ca.crt":
            return {"ca.crt": self.cluster.ca_pem.encode()}
        shelf = "secrets" if kind == "secret" else "configmaps"
        data = _data(
            self.cluster, shelf, namespace, {"name": name, "optional": source.get("optional")}
        )
        if not source.get("items") or data is None:
            return data or {}
        picked: dict[str, bytes] = {}
        for item in source["items"]:
            if item["key"] not in data and not source.get("optional"):
                raise ConfigError(f"references non-existent {shelf[:-1]} key: {item['key']}")
            if item["key"] in data:
                picked[item["path"]] = data[item["key"]]
        return picked

    def mounts(self, container: Object, env: dict[str, str]) -> list[Object]:
        """Return a container's mounts for runtime.py, outer ones first."""
        out: list[Object] = []
        for m in container.get("volumeMounts") or []:
            found = dict(self.sources[m["name"]])
            sub = m.get("subPath") or expand(m.get("subPathExpr") or "", env)
            if sub and "source" in found:
                found["source"] = os.path.join(found["source"], sub)
                if not os.path.exists(found["source"]):
                    os.makedirs(found["source"])
            found["read_only"] = bool(found.get("read_only") or m.get("readOnly"))
            out.append({**found, "target": m["mountPath"]})
        return sorted(out, key=lambda m: len(m["target"]))


def _lay_out(home: Path, files: dict[str, bytes], mode: int) -> None:
    """Write files behind the link ``..data``, as the kubelet does."""
    real = home / "..2026_01_01_00_00_00.1"
    real.mkdir(parents=True)
    (home / "..data").symlink_to(real.name)
    for path, data in files.items():
        target = real / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(data)
        target.chmod(mode)
        top = path.split("/")[0]
        if not (home / top).is_symlink():
            (home / top).symlink_to(f"..data/{top}")
