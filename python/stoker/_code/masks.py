"""Literals that look like secrets (``token="hf_…"``), which have stars in what people read of code."""

from __future__ import annotations

import re
from typing import Match

STARS = "***"
_NAME = r"(?:token|passw(?:or)?d|passphrase|secret|(?:api|access|secret|private)_?key|credentials?)"
# name=, name: str =, "name":, ["name"] =, ==, get("name",; a quote before a space, a comma or the
# like ends a literal, such as "token=".
_LITERAL = re.compile(
    rf"""(?P<head>(?P<name>{_NAME})"""
    r"""(?:["']\s*(?::|(?P<comma>,))|["']?\]?(?:\s*:\s*[\w.\[\]| ]+?(?==))?\s*(?:==?|!=))\s*\(?)"""
    r"""(?P<value>(?:\s*[bfru]{0,2}(?P<quote>"{3}|'{3}|"|')(?![\s+,)%\]}:;.])"""
    r"""(?:\\.|(?!(?P=quote)).)+?(?P=quote))+)""",
    re.IGNORECASE | re.DOTALL,
)
_CALL = re.compile(r"""(?:get|getenv|setdefault|setenv)\(\s*["']\w*\Z""")
# Of a tokenizer, such as "<pad>" and "[CLS]", and short words, such as "main".
_HARMLESS = re.compile(r"""\s*["']+(?:.{0,5}|[<\[|].*)["']+""", re.DOTALL)
# What services give out, keys in PEM, and users of URLs.
_KNOWN = re.compile(
    r"\b(?:hf_[A-Za-z0-9]{16,}|sk-(?=[\w-]*\d)[\w-]{16,}|gh[opsur]_\w{20,}|github_pat_\w{20,}"
    r"|glpat-[\w-]{16,}|xox[abpr]-[\w-]{10,}|AKIA[0-9A-Z]{16}|AIza[\w-]{30,})"
    r"|(?<=PRIVATE KEY-----).+?(?=-----END)"
    r"""|(?<=://)[^\s/@"'{}]+:[^\s/@"'{}]+(?=@)""",
    re.DOTALL,
)


def masked(text: str) -> str:
    """Python code without the literals that look like secrets."""
    return _KNOWN.sub(STARS, _LITERAL.sub(_starred, text))


def is_secret(name: str) -> bool:
    """Whether a literal of this name is one."""
    return re.search(rf"{_NAME}\Z", name, re.IGNORECASE) is not None


def _starred(found: Match[str]) -> str:
    harmless = found["name"].lower() == "token" and _HARMLESS.fullmatch(found["value"])
    if harmless or (
        found["comma"] and not _CALL.search(found.string, max(0, found.start() - 99), found.start())
    ):
        return found[0]
    return f'{found["head"]}"{STARS}"'
