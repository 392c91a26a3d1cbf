"""Objects in a folder of this machine: ``local:///folder/key``, where no bucket is configured.

What is kept beside an object's content is in ``.about``, a file for each object, in its folder.
"""

from __future__ import annotations

import json
import os
import shutil
from typing import Any, Dict, Iterator, List, Mapping, Optional, Tuple

SCHEME = "local://"
_ABOUT = ".about"


def answer(asked: Mapping[str, Any]) -> Dict[str, Any]:
    """The answer to one request."""
    path = os.path.normpath(asked["url"][len(SCHEME) :])
    try:
        return _OPS[asked["op"]](path, asked)
    except (FileNotFoundError, IsADirectoryError, NotADirectoryError):
        return {"error": "not_found", "text": f"there is no file {path}"}
    except OSError as bad:
        kind = {"EACCES": "denied", "ENOSPC": "full"}.get(_name(bad), "failed")
        return {"error": kind, "text": str(bad.strerror or bad)}


def _name(bad: OSError) -> str:
    import errno

    return errno.errorcode.get(bad.errno or 0, "")


def _about(path: str) -> str:
    folder, name = os.path.split(path)
    return os.path.join(folder, _ABOUT, name)


def _look(path: str, asked: Mapping[str, Any]) -> Dict[str, Any]:
    if not os.path.isfile(path):
        raise FileNotFoundError(path)
    status = os.stat(path)
    facts: Dict[str, Any] = {"size": status.st_size, "from": 0, "n": status.st_size}
    facts["modified"] = int(status.st_mtime)
    facts["type"] = "binary/octet-stream"
    try:
        with open(_about(path), encoding="utf-8") as file:
            facts.update(json.load(file))
    except (OSError, ValueError):
        pass
    return facts


def _get(path: str, asked: Mapping[str, Any]) -> Dict[str, Any]:
    facts = _look(path, asked)
    size = int(facts["size"])
    start, n = int(asked.get("from") or 0), int(asked.get("n", -1))
    if start < 0:
        start, n = max(0, size + start), -1
    if start >= size and (start or n >= 0):
        return {"error": "range", "text": f"the file has {size} bytes"}
    end = size if n < 0 else min(size, start + n)
    with open(path, "rb") as source, open(asked["path"], "wb") as target:
        source.seek(start)
        left = end - start
        while left > 0:
            piece = source.read(min(left, 1 << 20))
            if not piece:
                break
            target.write(piece)
            left -= len(piece)
    return {**facts, "from": start, "n": end - start}


def _put(path: str, asked: Mapping[str, Any]) -> Dict[str, Any]:
    if asked.get("only_new") and os.path.exists(path):
        return {"put": False}
    about = {key: asked[key] for key in ("type", "meta") if asked.get(key)}
    os.makedirs(os.path.dirname(path), exist_ok=True)
    half = os.path.join(os.path.dirname(path), _ABOUT, f".half-{os.getpid()}-{id(asked)}")
    os.makedirs(os.path.dirname(half), exist_ok=True)
    shutil.copyfile(asked["path"], half)
    if about:
        with open(_about(path), "w", encoding="utf-8") as file:
            json.dump(about, file)
    elif os.path.exists(_about(path)):
        os.unlink(_about(path))
    os.replace(half, path)
    return {"put": True}


def _list(path: str, asked: Mapping[str, Any]) -> Dict[str, Any]:
    prefix = asked["url"][len(SCHEME) :]
    if os.path.isdir(prefix) and not prefix.endswith("/"):
        prefix += "/"  # not its neighbours whose names begin alike
    folder = prefix if prefix.endswith("/") else os.path.dirname(prefix)
    found: List[Tuple[str, Optional[int]]] = list(
        _below(folder.rstrip("/"), bool(asked.get("deep")))
    )
    return {"objects": sorted((o for o in found if o[0].startswith(prefix)), key=_order)}


def _order(listed: Tuple[str, Optional[int]]) -> Tuple[bool, str]:
    """As S3 lists a level: objects, then prefixes."""
    return listed[1] is None, listed[0]


def _below(folder: str, deep: bool) -> Iterator[Tuple[str, Optional[int]]]:
    if not os.path.isdir(folder):
        return
    for entry in os.scandir(folder):
        if entry.name == _ABOUT:
            continue
        if entry.is_file():
            yield entry.path, entry.stat().st_size
        elif deep:
            yield from _below(entry.path, True)
        else:
            yield f"{entry.path}/", None


_OPS = {"look": _look, "get": _get, "put": _put, "list": _list}
