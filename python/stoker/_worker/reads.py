"""What a process reads: files, folders and environment variables, for the cache entry of its step.

Works on any Python 3; before 3.8, which has no audit hooks, only variables are seen. Imports no other
part of Stoker, because child processes load it by its path (``_site/sitecustomize.py``).

Each record is a letter and a text, ended by a NUL byte (docs/formats/task-directory.md, "reads").
"""

from __future__ import annotations

import os
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, Iterator, List, Optional, Sequence, Set, Tuple

MOST = 10000  # files and folders of one process
_RECENT_NS = 20000000  # a file younger than this may change again without a new time stamp
_WRITES = os.O_WRONLY | os.O_TRUNC | os.O_CREAT
_MOVES = {
    "os.rename": (0, 1),
    "os.link": (1,),
    "os.symlink": (1,),
    "os.remove": (0,),
    "os.truncate": (0,),
    "os.mkdir": (0,),
    "os.rmdir": (0,),
}
# Packages that open files without Python.
_UNSEEN = (
    "cv2",
    "decord",
    "duckdb",
    "h5py",
    "lmdb",
    "netCDF4",
    "polars",
    "pyarrow.csv",
    "pyarrow.dataset",
    "pyarrow.feather",
    "pyarrow.fs",
    "pyarrow.orc",
    "pyarrow.parquet",
    "rasterio",
    "tensorflow",
    "tiledb",
)

# Callers whose reads are the interpreter's own: imports, and source lines for messages.
_INTERNAL = ("<frozen importlib", os.path.dirname(os.__file__) + "/linecache.py")
_TOKENIZE = os.path.dirname(os.__file__) + "/tokenize.py"

_HERE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
_LIBRARIES = [os.path.dirname(os.__file__), sys.prefix + "/lib", sys.base_prefix + "/lib", _HERE]
_SYSTEM = ["/proc/", "/dev/", "/sys/", "/run/", "/usr/", "/lib", "/bin/", "/sbin/"]
_SKIP = tuple([name + os.sep for name in _LIBRARIES] + _SYSTEM)

_ready = False
_cwd = ""  # "": ask
_path: Optional[str] = None  # where records go; None: nothing is recorded
_kept: Optional[List[str]] = None  # records of the worker itself; None: they are written at once
_known: Dict[str, str] = {}
_folders: Dict[str, bool] = {}  # a folder → whether its files are left out
_callers: Dict[str, bool] = {}  # a file of code → whether what it opens is the interpreter's own
_busy = False
_left_out: Tuple[str, ...] = ()
_before_ns = 0  # a time that has passed: files older than this need no look at the clock


def prepare() -> None:
    """Install the hooks, which do nothing before ``begin``.

    The fork server calls it once: in each child it would copy many pages.
    """
    global _ready
    if _ready:
        return
    _ready = True
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=_write_at_once)
    _watch_environment()
    if hasattr(sys, "addaudithook"):
        sys.addaudithook(_on_event)


def begin(path: str, keep: bool, left_out: Sequence[str] = ()) -> None:
    """Start to record into the file ``path``.

    Args:
        keep: gather records in memory until ``end``; forked children write theirs at once.
        left_out: prefixes of paths that don't count.
    """
    global _path, _kept, _left_out, _before_ns
    prepare()
    _path = path
    _kept = [] if keep else None
    _left_out = tuple(left_out)
    _before_ns = time.time_ns() - _RECENT_NS if hasattr(time, "time_ns") else 0
    _known.clear()
    _folders.clear()
    if not hasattr(sys, "addaudithook"):
        _record("u", "files, because Python before 3.8 doesn't report them")


def end() -> None:
    """Write the records that were kept, and stop."""
    global _path, _kept
    names = sys.modules
    for name in _UNSEEN:
        if name in names:
            _record("u", "files, as far as '%s' reads them" % name.partition(".")[0])
    kept, _kept = _kept, None
    if kept:
        _write(os.fsencode("\0".join(kept) + "\0"))
    _path = None


def _write_at_once() -> None:
    global _kept, _cwd
    _kept = None
    _cwd = ""


def _write(data: bytes) -> None:
    global _busy
    _busy = True
    try:
        fd = os.open(
            _path or os.devnull, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600
        )
        try:
            os.write(fd, data)
        finally:
            os.close(fd)
    except OSError:
        pass
    finally:
        _busy = False


def _record(kind: str, text: str) -> None:
    if _kept is not None:
        _kept.append(kind + text)
    else:
        _write(os.fsencode(kind + text) + b"\0")


def _on_event(event: str, args: Tuple[Any, ...]) -> None:
    if event == "open":
        if not _busy and _path is not None:
            try:
                _on_open(args[0], args[2])
            except Exception:  # never the user's trouble
                pass
    elif event == "os.listdir" or event == "os.scandir":
        if not _busy and _path is not None:
            try:
                _on_list(args[0])
            except Exception:
                pass
    elif event in _MOVES:
        if not _busy and _path is not None:
            for i in _MOVES[event]:
                try:
                    _on_change(args[i])
                except Exception:
                    pass
    elif event == "os.chdir":
        global _cwd
        _cwd = ""
    elif event == "sqlite3.connect" and _path is not None:
        try:
            _on_open(args[0], os.O_RDWR)
        except Exception:
            pass
    elif event == "ctypes.dlopen" and _path is not None:
        name = args[0]
        if isinstance(name, str) and "/" in name and not _is_left_out(name):
            _record("u", "what the library '%s' reads" % os.path.basename(name))


def _absolute(path: Any) -> str:
    if isinstance(path, bytes):
        path = os.fsdecode(path)
    if path[:1] != "/":
        global _cwd
        if not _cwd:
            _cwd = os.getcwd()
        path = _cwd + "/" + path
    if "/." in path:
        while "/./" in path:
            path = path.replace("/./", "/")
        if path.endswith("/.") and len(path) > 2:
            path = path[:-2]
    return str(path)


def _is_left_out(path: str) -> bool:
    """Whether the file, or the folder that ends with a slash, doesn't count: by its folder."""
    folder = path[: path.rfind("/") + 1]
    known = _folders.get(folder)
    if known is None:
        known = _folders[folder] = (
            folder.startswith(_SKIP)
            or folder.startswith(_left_out)
            or "/site-packages/" in folder
            or "/dist-packages/" in folder
            or "/__pycache__/" in folder
        )
    return known


def _is_internal() -> bool:
    """Whether the interpreter itself opens or lists: the caller of the hook's function."""
    caller = sys._getframe(3).f_code.co_filename
    known = _callers.get(caller)
    if known is None:
        known = _callers[caller] = caller.startswith(_INTERNAL) or caller == _TOKENIZE
    return known


def _stamp(st: os.stat_result) -> int:
    """The file's time, in ns; 0 if it is so young that it may change again without a new one."""
    mtime = st.st_mtime_ns
    return mtime if mtime < _before_ns or time.time_ns() - mtime >= _RECENT_NS else 0


def _on_open(path: Any, flags: int) -> None:
    if isinstance(path, int) or path is None:
        return
    name, path = path, _absolute(path)
    known = _known.get(path)
    if known == "w" or _is_left_out(path) or _is_internal():
        return
    if flags & _WRITES:
        _known[path] = "w"
        _record("w", path)
        return
    kind = "m" if flags & os.O_RDWR else "f"
    if known is not None and (known == kind or known == "m"):
        return
    if len(_known) >= MOST:
        if _known.get("") is None:
            _known[""] = "u"
            _record("u", "more than %d files" % MOST)
        return
    _known[path] = kind
    try:
        st = os.stat(name)
    except OSError:
        _record("n", path)
        return
    if st.st_mode & 0o170000 != 0o100000:  # a pipe, a device, a folder
        return
    _record(kind, f"{st.st_size}:{_stamp(st)}:{st.st_ino}:{path}")


def _on_list(path: Any) -> None:
    if isinstance(path, int):
        return
    path = _absolute(path if path is not None else ".")
    key = path + "/"
    if key in _known or len(_known) >= MOST or _is_left_out(key) or _is_internal():
        return
    _known[key] = "d"
    try:
        st = os.stat(path)
    except OSError:
        return
    _record("d", f"{_stamp(st)}:{st.st_ino}:{path}")


def _on_change(path: Any) -> None:
    if isinstance(path, int) or path is None:
        return
    path = _absolute(path)
    if _known.get(path) != "w":
        _known[path] = "w"
        _record("w", path)


def _watch_environment() -> None:
    """A look-up by name counts; copying the whole environment, which looks up each name, doesn't."""
    kind: Any = type(os.environ)
    get, put, names = kind.__getitem__, kind.__setitem__, kind.__iter__
    copied: Dict[int, str] = {}  # id of a name that an iteration gave → the name
    own: Set[str] = set()

    def getitem(self: Any, name: Any) -> Any:
        if _path is not None and copied.get(id(name)) is not name and isinstance(name, str):
            key = "$" + name
            if key not in _known and name not in own and not name.startswith(("STOKER_", "PYTHON")):
                _known[key] = "e"
                _record("e", name)
        return get(self, name)

    def setitem(self: Any, name: Any, value: Any) -> None:
        own.add(name)
        put(self, name, value)

    def iterate(self: Any) -> Iterator[str]:
        copied.clear()
        for name in names(self):
            copied[id(name)] = name
            yield name

    kind.__getitem__, kind.__setitem__, kind.__iter__ = getitem, setitem, iterate
