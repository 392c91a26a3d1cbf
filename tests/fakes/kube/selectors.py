"""Label selectors (both spellings), field selectors and quantities."""

from __future__ import annotations

import re
from collections.abc import Callable
from fractions import Fraction
from typing import Any, Optional

from .errors import ApiError, bad_request

Object = dict[str, Any]
Match = Callable[[Object], bool]
SUFFIX = {
    "n": Fraction(1, 10**9),
    "u": Fraction(1, 10**6),
    "m": Fraction(1, 1000),
    "": Fraction(1),
    "k": Fraction(1000),
    "M": Fraction(10**6),
    "G": Fraction(10**9),
    "T": Fraction(10**12),
    "P": Fraction(10**15),
    "E": Fraction(10**18),
    "Ki": Fraction(2**10),
    "Mi": Fraction(2**20),
    "Gi": Fraction(2**30),
    "Ti": Fraction(2**40),
    "Pi": Fraction(2**50),
    "Ei": Fraction(2**60),
}
QUANTITY = re.compile(r"^([+-]?[0-9]*\.?[0-9]*)(?:[eE]([+-]?[0-9]+)|([A-Za-z]*))$")


def quantity(text: Any) -> Fraction:
    """Return the value of ``250m``, ``64Mi``, ``1e3``, 2. ValueError if it isn't a quantity."""
    found = QUANTITY.match(str(text))
    if not found or not found[1].strip("+-."):
        raise ValueError(f"{text!r} is no quantity")
    if found[2]:
        return Fraction(found[1]) * Fraction(10) ** int(found[2])
    if (found[3] or "") not in SUFFIX:
        raise ValueError(f"{text!r} has an unknown suffix")
    return Fraction(found[1]) * SUFFIX[found[3] or ""]


DECIMAL = ("E", "P", "T", "G", "M", "k", "", "m", "u", "n")
BINARY = ("Ei", "Pi", "Ti", "Gi", "Mi", "Ki")


def canonical(text: Any) -> str:
    """Return a quantity as the server writes it: ``0.5`` is ``500m``, ``1024Mi`` is ``1Gi``."""
    value = quantity(text)
    for suffix in (*BINARY, "") if str(text).endswith("i") else DECIMAL:
        if value and (value / SUFFIX[suffix]).denominator == 1:
            return f"{value / SUFFIX[suffix]}{suffix}"
    return "0" if not value else str(text)


def spelled(value: Fraction) -> str:
    """Return a quantity as a whole number or in thousandths."""
    return str(int(value)) if value.denominator == 1 else f"{int(value * 1000)}m"


def labels_of(obj: Object) -> dict[str, str]:
    return obj["metadata"].get("labels") or {}


def _split(text: str) -> list[str]:
    """Split ``a=b,c in (d,e)`` at the commas outside parentheses."""
    parts, depth, start = [], 0, 0
    for i, c in enumerate(text):
        depth += (c == "(") - (c == ")")
        if c == "," and depth == 0:
            parts.append(text[start:i])
            start = i + 1
    parts.append(text[start:])
    return parts


def _requirement(part: str) -> Match:
    part = part.strip()
    found = re.match(r"^(\S+)\s+(in|notin)\s+\((.*?)(\)?)$", part)
    if found:
        if not found[4]:
            raise bad_request(
                "unable to parse requirement: found '', expected: ',', ')' or identifier"
            )
        key, values, wanted = found[1], {v.strip() for v in found[3].split(",")}, found[2] == "in"
        return lambda o: (labels_of(o).get(key) in values) == wanted
    for mark, same in (("!=", False), ("==", True), ("=", True)):
        if mark in part:
            key, _, value = (x.strip() for x in part.partition(mark))
            return lambda o: (labels_of(o).get(key) == value) == same
    if part.startswith("!"):
        absent = part[1:].strip()
        return lambda o: absent not in labels_of(o)
    return lambda o: part in labels_of(o)


def label_selector(text: str) -> Optional[Match]:
    """Return the predicate of ``?labelSelector=``; None matches everything."""
    if not text.strip():
        return None
    tests = [_requirement(p) for p in _split(text)]
    return lambda o: all(t(o) for t in tests)


def _expression(labels: dict[str, str], e: Object) -> bool:
    key, op, values = e["key"], e["operator"], e.get("values") or []
    if op == "In":
        return labels.get(key) in values
    if op == "NotIn":
        return labels.get(key) not in values
    if op == "Exists":
        return key in labels
    if op == "DoesNotExist":
        return key not in labels
    try:
        mine, bound = int(labels[key]), int(values[0])
    except (KeyError, ValueError, IndexError):
        return False
    return mine > bound if op == "Gt" else mine < bound


def matches_labels(labels: dict[str, str], selector: Object) -> bool:
    """Match labels against a ``LabelSelector`` object (matchLabels, matchExpressions)."""
    same = all(labels.get(k) == v for k, v in (selector.get("matchLabels") or {}).items())
    return same and all(_expression(labels, e) for e in selector.get("matchExpressions") or [])


def matches_term(node: Object, term: Object) -> bool:
    """Match a node against a ``NodeSelectorTerm``; an empty term matches nothing."""
    on_labels, on_fields = term.get("matchExpressions") or [], term.get("matchFields") or []
    if not on_labels and not on_fields:
        return False
    fields = {"metadata.name": node["metadata"]["name"]}
    return all(_expression(labels_of(node), e) for e in on_labels) and all(
        _expression(fields, e) for e in on_fields
    )


def at_path(obj: Object, path: str) -> str:
    """Return the value at a dotted path, as field selectors compare it ('' if it is missing)."""
    value: Any = obj
    for part in path.split("."):
        if not isinstance(value, dict):
            return ""
        value = value.get(part)
    return "" if value is None else str(value)


def field_selector(text: str, kind: str, known: tuple[str, ...]) -> Optional[Match]:
    """Return the predicate of ``?fieldSelector=``; 400 for a field that the kind lacks."""
    if not text.strip():
        return None
    tests: list[tuple[str, str, bool]] = []
    for part in text.split(","):
        for mark, same in (("!=", False), ("==", True), ("=", True)):
            if mark in part:
                path, _, value = part.partition(mark)
                tests.append((path.strip(), value.strip(), same))
                break
        else:
            raise bad_request(f"invalid selector: '{text}'; can't understand '{part}'")
    for path, _, _ in tests:
        if path not in ("metadata.name", "metadata.namespace", *known):
            raise ApiError(400, "BadRequest", f'field label "{path}" not supported for {kind}')
    return lambda o: all((at_path(o, p) == v) == same for p, v, same in tests)
