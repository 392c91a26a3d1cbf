"""Finds the project files and distributions that a step has loaded, for its cache key; and the
owner of a file.

Works on Python 3.7 and imports little, like all modules of the worker.
"""

from __future__ import annotations

import os
import sys

from .._base import PACKAGE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, List, Set

_STDLIB = os.path.dirname(os.path.abspath(os.__file__)) + os.sep
_SITES = (os.sep + "site-packages" + os.sep, os.sep + "dist-packages" + os.sep)


def is_ours(filename: str) -> bool:
    return filename.startswith(PACKAGE)


def is_users(filename: str) -> bool:
    """Whether a file is the user's: not of Stoker, the standard library or an installed package."""
    if is_ours(filename) or filename.startswith("<frozen"):
        return False
    return not any(site in filename for site in _SITES) and not filename.startswith(_STDLIB)


class Baseline:
    """The modules that are loaded now.

    The fork server makes one before its first fork: a list of a thousand modules made in each child
    would copy many pages.
    """

    def __init__(self) -> None:
        self.names = frozenset(sys.modules)
        self.last = next(reversed(list(sys.modules)), "")

    def fresh(self) -> List[str]:
        """Names of the modules that were loaded since, without Stoker's."""
        fresh = []
        names: Any = sys.modules if sys.version_info >= (3, 8) else list(sys.modules)
        for name in reversed(names):  # new ones are at the end
            if name == self.last:
                break
            if name not in self.names and not name.startswith("stoker."):
                fresh.append(name)
        return fresh


def seen_since(before: Baseline) -> Dict[str, str]:
    """Project files imported since (path → SHA-256 of the bytes) and distributions (path → "")."""
    fresh = before.fresh()
    seen: Dict[str, str] = {}
    packages: Dict[str, Set[str]] = {}
    for name in fresh:
        filename = getattr(sys.modules.get(name), "__file__", None)
        if not isinstance(filename, str) or is_ours(filename):
            continue
        filename = os.path.abspath(filename)
        for site in _SITES:
            if site in filename:
                root, _, _ = filename.partition(site)
                packages.setdefault(root + site.rstrip(os.sep), set()).add(name.split(".")[0])
                break
        else:
            if not filename.startswith(_STDLIB) and os.path.isfile(filename):
                from .._base.digest import sha256

                with open(filename, "rb") as stream:
                    seen[filename] = sha256(stream.read()).hexdigest()
    for site, tops in packages.items():
        for folder in _distributions(site, tops):
            seen[os.path.join(site, folder)] = ""
    return seen


def _distributions(site: str, tops: Set[str]) -> List[str]:
    """The ``.dist-info`` folders of distributions with these top-level names."""
    folders = [name for name in os.listdir(site) if name.endswith(".dist-info")]
    found = []
    left = {top.lower() for top in tops}
    for folder in folders:
        name = folder.split("-")[0].lower().replace(".", "_")
        if name in left:
            found.append(folder)
            left.discard(name)
    for folder in folders if left else ():
        try:
            with open(os.path.join(site, folder, "top_level.txt"), encoding="utf-8") as stream:
                names = {line.strip().lower() for line in stream}
        except OSError:
            continue
        if names & left and folder not in found:
            found.append(folder)
    return sorted(found)
