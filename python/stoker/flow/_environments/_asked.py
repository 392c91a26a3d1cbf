"""Names and versions of packages, as pip, uv and conda write them."""

from __future__ import annotations

import os
import re
from typing import Dict, List

from ..exception import InvalidEnvironmentException
from ._want import Want

# The few packages of conda whose name on PyPI differs.
_ON_PYPI: Dict[str, str] = {
    "pytorch": "torch",
    "pytorch-gpu": "torch",
    "tensorflow-gpu": "tensorflow",
    "opencv": "opencv-python",
    "matplotlib-base": "matplotlib",
    "py-xgboost": "xgboost",
    "msgpack-python": "msgpack",
}
# Programs, libraries and variants that PyPI lacks.
_ONLY_CONDA = (
    "cudatoolkit",
    "cuda",
    "pytorch-cuda",
    "cudnn",
    "gcc",
    "gxx",
    "mkl",
    "nccl",
    "r-base",
)


def requirements(want: Want) -> List[str]:
    """The packages as pip and uv take them.

    Raises:
        InvalidEnvironmentException: a package of conda has no counterpart on PyPI.
    """
    return [
        _requirement(*(_from_conda(n, v) if want.kind == "conda" else (n, v)))
        for n, v in want.packages
    ]


def _requirement(name: str, version: str) -> str:
    version = version.strip()
    if version.startswith("@"):
        return f"{name} {version}"
    if not version or version[0] in "<>!~=":
        return f"{name}{version}"
    return f"{name}=={version}"


def _from_conda(name: str, version: str) -> List[str]:
    channel, _, plain = name.rpartition("::")
    if channel not in ("", "conda-forge", "defaults") or plain in _ONLY_CONDA:
        raise InvalidEnvironmentException(
            f"@conda asks for '{name}', which isn't on PyPI: install micromamba or py-rattler, for "
            "conda's channels"
        )
    if "=" in version.strip().lstrip("<>!~="):
        raise InvalidEnvironmentException(
            f"@conda asks for '{name}' in the build '{version}', which PyPI doesn't have: install micromamba or "
            "py-rattler, for conda's channels, or name the version alone"
        )
    return [_ON_PYPI.get(plain, plain), version]


def matches(want: Want) -> List[str]:
    """The packages as conda takes them."""
    said = []
    for name, version in want.packages:
        version = version.strip()
        if not version or version[0] in "<>=!~":
            said.append(f"{name}{version}")
        else:
            said.append(f"{name}=={version}")
    return said


# Where conda and micromamba have a user's settings.
_SETTINGS = (
    "$CONDARC",
    "~/.condarc",
    "~/.conda/.condarc",
    "~/.config/conda/.condarc",
    "/etc/conda/.condarc",
)


def channels() -> List[str]:
    """The channels of conda: those of ``CONDA_CHANNELS``, else of the user's settings, else conda-forge."""
    found = [one.strip() for one in os.environ.get("CONDA_CHANNELS", "").split(",") if one.strip()]
    for path in _SETTINGS:
        found = found or _channels_in(os.path.expanduser(os.path.expandvars(path)))
    return found or ["conda-forge"]


def _channels_in(path: str) -> List[str]:
    try:
        with open(path, encoding="utf-8") as file:
            text = re.sub(r"(^|\s)#.*", "", file.read())
    except OSError:
        return []
    said = re.search(r"^channels:\s*(\[[^]]*\]|(?:\s*- .*)+)", text, re.MULTILINE)
    return re.findall(r"[^\s\[\],'\"]{2,}", said[1]) if said else []
