"""``zenml.io.fileio``: the functions of files, on this machine."""

from __future__ import annotations

import builtins
import glob as _glob
import os
import shutil
from typing import IO, Any, Callable, Iterable, List, Optional, Tuple

from .. import _dialect


def open(path: Any, mode: str = "r") -> IO[Any]:
    """Open a file."""
    return builtins.open(path, mode)


def copy(src: Any, dst: Any, overwrite: bool = False) -> None:
    """Copy a file; raises FileExistsError without ``overwrite``."""
    _dialect.copy(src, dst, overwrite)


def exists(path: Any) -> bool:
    """Whether a path exists."""
    return os.path.exists(path)


def glob(pattern: Any) -> List[Any]:
    """The paths that a pattern fits."""
    return list(_glob.glob(pattern))


def isdir(path: Any) -> bool:
    """Whether a path is a folder."""
    return os.path.isdir(path)


def listdir(path: Any, only_file_names: bool = True) -> List[Any]:
    """The names in a folder, or their paths; none of what is no folder."""
    if not os.path.isdir(path):
        return []
    return [n if only_file_names else os.path.join(path, n) for n in os.listdir(path)]


def makedirs(path: Any) -> None:
    """Make a folder and its parents, unless it exists."""
    os.makedirs(path, exist_ok=True)


def mkdir(path: Any) -> None:
    """Make a folder, unless it exists."""
    os.makedirs(path, exist_ok=True)


def remove(path: Any) -> None:
    """Remove a file."""
    os.remove(path)


def rename(src: Any, dst: Any, overwrite: bool = False) -> None:
    """Move a file; raises FileExistsError without ``overwrite``."""
    if not overwrite and os.path.exists(dst):
        raise FileExistsError(f"'{dst}' exists; pass overwrite=True to replace it")
    os.replace(src, dst)


def rmtree(dir_path: Any) -> None:
    """Remove a folder with what is in it."""
    shutil.rmtree(dir_path)


def size(path: Any) -> Optional[int]:
    """Bytes of a file, or of all files in a folder; None: there is none."""
    if not os.path.exists(path):
        return None
    if not os.path.isdir(path):
        return os.path.getsize(path)
    return sum(os.path.getsize(os.path.join(d, f)) for d, _, some in os.walk(path) for f in some)


def stat(path: Any) -> Any:
    """What the system knows of a file."""
    return os.stat(path)


def walk(
    top: Any, topdown: bool = True, onerror: Optional[Callable[..., None]] = None
) -> Iterable[Tuple[Any, List[Any], List[Any]]]:
    """Folders below a path, each with its folders and files."""
    return os.walk(top, topdown, onerror)
