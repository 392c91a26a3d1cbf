"""Parsers for configurations: ``Config("deps", parser=requirements_txt_parser)``.

The parsers of packages return ``{"packages": {name: version}, "python": version or None}``, the
attributes of ``@pypi`` and ``@conda``.
"""

from __future__ import annotations

import re
from typing import Any, Dict, Iterable, Optional

from .exception import MetaflowException

_REQUIREMENT = re.compile(
    r"\s*(?P<name>[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?)"
    r"\s*(?:\[(?P<extras>[A-Za-z0-9._,\s-]*)\])?"
    r"\s*(?:@\s*(?P<url>[^\s;]+)|\(?(?P<versions>[^;()@]*)\)?)"
    r"\s*(?:;(?P<marker>.*))?\s*\Z"
)
_VERSION = re.compile(r"\s*(===|==|~=|!=|<=|>=|<|>)\s*[A-Za-z0-9._*+!-]+\s*\Z")
_CONDA = re.compile(r"([A-Za-z0-9_.-]+)\s*([=<>!~].+)?\Z")
_COMMENT = re.compile(r"(^|\s+)#.*$")


class ParserValueError(MetaflowException):
    """A line is not a requirement as the parser takes them."""

    headline = "Value error"


def yaml_parser(content: str) -> Any:
    """A YAML document as plain data.

    Raises:
        MetaflowException: PyYAML isn't installed.
    """
    try:
        import yaml  # type: ignore[import-untyped,unused-ignore]
    except ImportError:
        raise MetaflowException(
            "yaml_parser needs PyYAML in the flow's Python: pip install pyyaml"
        ) from None
    return yaml.safe_load(content)


def requirements_txt_parser(content: str) -> Dict[str, Any]:
    """The requirements of a ``requirements.txt``.

    Raises:
        ParserValueError: a line is an option, has an environment marker, or isn't a requirement.
    """
    lines = (_COMMENT.sub("", line).strip() for line in content.splitlines())
    return _packages((line for line in lines if line and line != "-e file:."), " =")


def pyproject_toml_parser(content: str) -> Dict[str, Any]:
    """``project.dependencies`` and ``requires-python`` of a ``pyproject.toml``.

    Raises:
        ParserValueError: a requirement has an environment marker, or isn't one.
        RuntimeError: this Python is older than 3.11 and has no tomli.
    """
    try:
        import tomllib as toml
    except ImportError:
        try:
            import tomli as toml  # type: ignore[import-not-found,no-redef,unused-ignore]
        except ImportError:
            raise RuntimeError(
                "pyproject_toml_parser needs tomli in a Python older than 3.11: pip install tomli"
            ) from None
    project = toml.loads(content).get("project", {})
    python = project.get("requires-python")
    return _packages(
        project.get("dependencies", []), "=", None if python is None else python.lstrip("=").strip()
    )


def _packages(lines: Iterable[str], strip: str, python: Optional[str] = None) -> Dict[str, Any]:
    found: Dict[str, Any] = {"packages": {}, "python": python}
    for line in lines:
        said = _REQUIREMENT.match(line)
        versions = [v for v in (said["versions"] or "").split(",") if v.strip()] if said else []
        if said is None or not all(_VERSION.match(one) for one in versions):
            raise ParserValueError(f"'{line}' is not a requirement (PEP 508), such as numpy>=1.20")
        if said["marker"] is not None:
            raise ParserValueError(f"'{line}': environment markers are not supported; remove it")
        spec = ",".join(sorted(re.sub(r"\s", "", one) for one in versions)).lstrip(strip)
        if said["name"].lower() == "python":
            if found["python"] is not None and spec:
                raise ParserValueError(f"'{line}': Python's version is given twice")
            found["python"] = spec or None
            continue
        extras = ",".join(sorted(e.strip() for e in (said["extras"] or "").split(",") if e.strip()))
        url = f"@{said['url']}" if said["url"] else ""
        found["packages"][said["name"] + (f"[{extras}]" if extras else "") + url] = spec
    return found


def conda_environment_yml_parser(content: str) -> Dict[str, Any]:
    """The dependencies of a plain ``environment.yml``, one a line.

    Raises:
        ParserValueError: a line isn't ``name`` or ``name=version``, or opens a section (``pip:``).
    """
    found: Dict[str, Any] = {"packages": {}, "python": None}
    inside = False
    for line in (_COMMENT.sub("", one).strip() for one in content.splitlines()):
        if line.lower().startswith("dependencies:"):
            inside = True
        elif line and not line.startswith("-"):
            inside = False
        elif line and inside:
            _conda_line(found, line.lstrip("-").strip())
    return found


def _conda_line(found: Dict[str, Any], line: str) -> None:
    if line.endswith(":"):
        raise ParserValueError(f"'{line}': sections within dependencies are not supported")
    said = _CONDA.match(line)
    if said is None:
        raise ParserValueError(f"'{line}' is not a package of conda, such as numpy=1.21.2")
    version = (said[2] or "").strip()
    version = version.lstrip("=").strip() if version.startswith("=") else version
    if said[1].lower() != "python":
        found["packages"][said[1]] = version
    elif found["python"] is not None and version:
        raise ParserValueError(f"'{line}': Python's version is given twice")
    else:
        found["python"] = version
