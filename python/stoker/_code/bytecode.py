"""Digests of byte code: the parts that decide how a function behaves."""

from __future__ import annotations

import dis
import hashlib
import types
from typing import Any, Iterable


def hash_of(texts: Iterable[str]) -> str:
    digest = hashlib.sha256()
    for text in texts:
        data = text.encode("utf-8", "surrogatepass")
        digest.update(len(data).to_bytes(8, "little"))
        digest.update(data)
    return digest.hexdigest()[:32]


def code_text(code: types.CodeType) -> str:
    """Digest of byte code, its constants and names; positions, file names and docstrings don't
    count."""
    texts = [
        code.co_code.hex(),
        f"{code.co_argcount} {code.co_posonlyargcount} {code.co_kwonlyargcount} {code.co_flags & ~0x4000000}",
        repr((code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars)),
        getattr(code, "co_exceptiontable", b"").hex(),
    ]
    skip_line = code.co_firstlineno if "__firstlineno__" in code.co_names else None
    for i, constant in enumerate(code.co_consts):
        if isinstance(constant, types.CodeType):
            texts.append(f"{constant.co_name}:{code_text(constant)}")
        elif i == 0 and (constant is None or isinstance(constant, str)) and _never_loaded(code, 0):
            texts.append("doc")
        elif constant is not skip_line or skip_line is None:
            texts.append(_constant_text(constant))
    return hash_of(texts)


def _never_loaded(code: types.CodeType, i_constant: int) -> bool:
    """Whether no instruction uses the constant: it is a docstring, or the None in its place."""
    for instruction in dis.get_instructions(code):
        if instruction.arg == i_constant and "CONST" in instruction.opname:
            return False
    return True


def _constant_text(constant: Any) -> str:
    if isinstance(constant, frozenset):
        return "frozenset:" + ",".join(sorted(_constant_text(c) for c in constant))
    if isinstance(constant, tuple):
        return "(" + ",".join(_constant_text(c) for c in constant) + ")"
    return f"{type(constant).__name__}:{constant!r}"
