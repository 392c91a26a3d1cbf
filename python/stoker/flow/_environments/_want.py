"""What a step asks for."""

from __future__ import annotations

from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Tuple

from ..exception import InvalidEnvironmentException

STEP = ("pypi", "conda")


class Want(NamedTuple):
    """What a step asks for.

    Attributes:
        kind: ``pypi`` or ``conda``: who has the packages.
        packages: name → version, a range of versions, or "".
        python: version of Python; "": that of the interpreter which starts the flow.
        gpu: whether the step asks for a GPU.
    """

    kind: str
    packages: Tuple[Tuple[str, str], ...]
    python: str
    gpu: bool

    def __str__(self) -> str:
        said = [f"{name} {version}".strip() for name, version in self.packages]
        said += [f"Python {self.python}"] if self.python else []
        return ", ".join(said) or "no packages"


def want_of(step: str, decorators: List[Any], base: List[Any]) -> Optional[Want]:
    """What a step asks for; None: ``disabled=True``.

    Args:
        decorators: the step's. base: those of the flow.

    Raises:
        InvalidEnvironmentException: it asks for packages of both kinds, or of a wrong form.
    """
    from .._decorators._resources import request_of

    packages: Dict[str, Dict[str, str]] = {}
    python: Dict[str, str] = {}
    for kind in STEP:
        said: Dict[str, Any] = {"packages": {}, "python": None, "disabled": None}
        for one in [*(b for b in base if b.name == f"{kind}_base"), *decorators]:
            if one.name not in (kind, f"{kind}_base"):
                continue
            attributes = one.attributes
            said["packages"] = {**said["packages"], **_packages_of(step, one)}
            for key in ("python", "disabled"):
                if attributes[key] is not None:
                    said[key] = attributes[key]
        if str(said["disabled"]).lower() == "true":
            return None
        packages[kind] = said["packages"]
        python[kind] = str(said["python"] or "")
    if packages["pypi"] and packages["conda"]:
        raise InvalidEnvironmentException(
            f"step '{step}' asks for packages of PyPI ({', '.join(packages['pypi'])}) and of conda "
            f"({', '.join(packages['conda'])}): use only one of @pypi and @conda for a step"
        )
    python_by_conda = python["conda"] and not python["pypi"] and not packages["pypi"]
    kind = "conda" if packages["conda"] or python_by_conda else "pypi"
    gpu = bool(request_of(step, decorators).get("gpu_count"))
    return Want(kind, tuple(sorted(packages[kind].items())), python["pypi"] or python["conda"], gpu)


def _packages_of(step: str, decorator: Any) -> Dict[str, str]:
    attributes = decorator.attributes
    found: Dict[str, str] = {}
    for said in (attributes.get("libraries"), attributes["packages"]):
        if said is not None and not isinstance(said, Mapping):
            raise InvalidEnvironmentException(
                f"step '{step}': @{decorator.name}: packages is a {type(said).__name__}; it maps names to versions, "
                'as in {"numpy": "1.26.4"}'
            )
        found.update({str(k): str("" if v is None else v) for k, v in (said or {}).items()})
    return found
