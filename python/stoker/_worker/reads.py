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
_CHANGES = {"os.remove": 1, "os.truncate": 2, "os.mkdir": 2, "os.rmdir": 1}  # → place of dir_fd
_STARTS = {"subprocess.Popen": 3, "os.posix_spawn": 2, "os.exec": 2}  # → place of the environment
_MACHINE = (
    "ldconfig",
    "lscpu",
    "nproc",
    "nvidia-smi",
    "uname",
)  # programs that tell of the machine
# Packages that open files without Python.
_UNSEEN = (
    "av",
    "catboost",
    "cv2",
    "decord",
    "duckdb",
    "faiss",
    "fasttext",
    "fiona",
    "h5py",
    "lance",
    "lightgbm",
    "llama_cpp",
    "lmdb",
    "netCDF4",
    "onnxruntime",
    "osgeo",
    "polars",
    "pyarrow.csv",
    "pyarrow.dataset",
    "pyarrow.feather",
    "pyarrow.fs",
    "pyarrow.orc",
    "pyarrow.parquet",
    "pyogrio",
    "pysam",
    "pyvips",
    "rasterio",
    "safetensors",
    "sentencepiece",
    "soundfile",
    "tables",
    "tensorflow",
    "tiledb",
    "tokenizers",
    "torchaudio",
    "torchcodec",
    "torchvision.io",
    "xgboost",
)

_PYARROW = ["pyarrow." + name for name in ("util", "lib", "fs", "dataset", "parquet.core")]
_PYARROW += ["pyarrow." + name for name in ("_fs", "_dataset", "_orc", "_parquet")]

# Callers whose reads are the interpreter's own: imports, what is installed, source lines for messages.
_STDLIB = os.path.dirname(os.__file__)
_INTERNAL = ("<frozen importlib", _STDLIB + "/importlib/metadata", _STDLIB + "/linecache.py")
_TOKENIZE = _STDLIB + "/tokenize.py"
_REMOVERS = {"rmtree", "_rmtree_unsafe", "_rmtree_safe_fd", "_rmtree_safe_fd_step"}  # of shutil

_HERE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
_SITE = _HERE + "/_worker/_site"
_LIBRARIES = [os.path.dirname(os.__file__), sys.prefix + "/lib", sys.base_prefix + "/lib", _HERE]
_SYSTEM = (
    "/proc/ /dev/ /sys/ /run/ /bin/ /sbin/ /lib/ /lib32/ /lib64/ /usr/bin/ /usr/sbin/ /usr/include/"
    " /usr/lib/ /usr/lib32/ /usr/lib64/ /usr/libexec/ /usr/share/ /usr/local/bin/ /usr/local/sbin/"
    " /usr/local/include/ /usr/local/lib/ /usr/local/lib64/ /usr/local/share/"
)
_SKIP = tuple([name + os.sep for name in _LIBRARIES] + _SYSTEM.split())
_DISKS = "/run/media/"  # where desktops mount a user's disks

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
    _watch_pyarrow()
    if hasattr(sys, "addaudithook"):
        sys.addaudithook(_on_event)


def forget_results() -> None:
    """Empty the ``functools.lru_cache`` of the program's functions: what they read before the steps
    began would reach a step unseen. For the fork server, whose children are the steps."""
    import functools

    kind = type(functools.lru_cache(len))
    for module in list(sys.modules.values()):
        path = getattr(module, "__file__", None)
        if not isinstance(path, str) or _is_left_out(_absolute(path)):
            continue
        spaces = [vars(module)]
        spaces += [vars(one) for one in spaces[0].values() if issubclass(type(one), type)]
        for value in [one for space in spaces for one in list(space.values())]:
            value = getattr(value, "__func__", value) if type(value) in _METHODS else value
            if type(value) is kind and value.cache_info().currsize:
                value.cache_clear()


_METHODS = (classmethod, staticmethod)


def begin(path: str, keep: bool, left_out: Sequence[str] = ()) -> None:
    """Start to record into the file ``path``.

    Args:
        keep: gather records in memory until ``end``; forked children write theirs at once.
        left_out: prefixes of paths that don't count.
    """
    global _path, _kept, _left_out, _before_ns, _cwd
    prepare()
    _path = path
    _cwd = ""
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
                _on_open(args[0], args[2], args[1] is None)
            except Exception:  # never the user's trouble
                pass
    elif event == "os.listdir" or event == "os.scandir":
        if not _busy and _path is not None:
            try:
                _on_list(args[0])
            except Exception:
                pass
    elif event == "import":
        if "pyarrow.util" in sys.modules and _path is not None:
            _watch_pyarrow()
    elif event in _OTHERS and not _busy and _path is not None:
        try:
            _on_other(event, args)
        except Exception:
            pass


_OTHERS = {*_CHANGES, *_STARTS, "os.rename", "os.link", "os.symlink", "os.chdir", "os.system"}
_OTHERS |= {"sqlite3.connect", "ctypes.dlopen"}


def _on_other(event: str, args: Tuple[Any, ...]) -> None:
    if event in _CHANGES:
        place = _CHANGES[event]
        _on_change(_at(args[0], args[place] if place < len(args) else -1), "w")
    elif event == "os.rename":
        old, new = _at(args[0], args[2]), _at(args[1], args[3])
        kind = "w" if _known.get(_absolute(old)) in ("w", "s") else ""  # else it may still be read
        _on_change(old, "w")
        _on_change(new, kind)
    elif event == "os.link":
        _on_open(_at(args[0], args[2]), os.O_RDONLY)  # what will be read by the new name
        _on_change(_at(args[1], args[3]), "w")
    elif event == "os.symlink":
        _on_change(_at(args[1], args[2]), "s")
    elif event == "os.chdir":
        global _cwd
        _cwd = ""
    elif event == "os.system":
        _record("u", "what the commands of os.system read")
    elif event in _STARTS:
        _on_start(args[0], args[1], args[_STARTS[event]])
    elif event == "sqlite3.connect":
        name = args[0]
        if isinstance(name, str) and name.startswith("file:"):
            from urllib.parse import unquote

            name = unquote(name[5:].partition("?")[0].partition("#")[0])
            name = name[2:] if name.startswith("///") else name
        if name not in ("", ":memory:"):
            _on_open(name, os.O_RDWR)
    elif event == "ctypes.dlopen":
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
            (folder.startswith(_SKIP) and not folder.startswith(_DISKS))
            or folder.startswith(_left_out)
            or "/site-packages/" in folder
            or "/dist-packages/" in folder
            or "/__pycache__/" in folder
        )
    return known


def _is_internal() -> bool:
    """Whether the interpreter itself opens or lists: the caller of the hook's function."""
    code = sys._getframe(3).f_code
    caller = code.co_filename
    known = _callers.get(caller)
    if known is None:
        known = _callers[caller] = caller.startswith(_INTERNAL) or caller == _TOKENIZE
    return known or code.co_name in _REMOVERS


def _stamp(st: os.stat_result) -> int:
    """The file's time, in ns; 0 if it is so young that it may change again without a new one."""
    mtime = st.st_mtime_ns
    return mtime if mtime < _before_ns or time.time_ns() - mtime >= _RECENT_NS else 0


def _on_open(path: Any, flags: int, by_os: bool = False) -> None:
    """``by_os``: by ``os.open``, whose ``dir_fd`` isn't told."""
    if isinstance(path, int) or path is None:
        return
    name, path = path, _absolute(path)
    known = _known.get(path)
    if known == "s":  # a link that the step made: what it points to counts
        path = os.path.realpath(path)
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
        if by_os and os.fsdecode(name)[:1] != "/":
            _record("u", "a file named '%s', if it was opened by dir_fd" % os.fsdecode(name))
        return
    if st.st_mode & 0o170000 != 0o100000:  # a pipe, a device, a folder
        return
    _record(kind, f"{st.st_size}:{_stamp(st)}:{st.st_ino}:{path}")


def _on_list(path: Any) -> None:
    if isinstance(path, int):
        path = os.readlink("/proc/self/fd/%d" % path)
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


def _at(path: Any, folder_fd: int) -> Any:
    """The path that a call with ``dir_fd`` means."""
    if folder_fd < 0 or isinstance(path, int):
        return path
    return os.path.join(os.readlink("/proc/self/fd/%d" % folder_fd), os.fsdecode(path))


def _on_change(path: Any, kind: str) -> None:
    """The step made, moved or removed the path. ``kind``: what ``_known`` says of it from now on."""
    if isinstance(path, int) or path is None:
        return
    path = _absolute(path)
    if _known.get(path) != "w":
        _record("w", path)
    _known[path] = kind


def _on_start(program: Any, args: Any, env: Any) -> None:
    program = os.fsdecode(program)
    words = [os.fsdecode(one) for one in args] if isinstance(args, (list, tuple)) else []
    name = os.path.basename(program)
    if name in _MACHINE or (_is_python(program) and _reaches(words, env)):
        return
    text = "what the program '%s' reads" % name
    if text not in _known:
        _known[text] = "u"
        _record("u", text)


def _is_python(program: str) -> bool:
    """Whether it is an interpreter, or a script of one."""
    global _busy
    if program == sys.executable or os.path.basename(program).startswith(("python", "pypy")):
        return True
    _busy = True
    try:
        import shutil

        with open(shutil.which(program) or program, "rb") as file:
            line = file.readline(200)
        return line.startswith(b"#!") and b"python" in line
    except OSError:
        return False
    finally:
        _busy = False


def _reaches(words: List[str], env: Any) -> bool:
    """Whether the program loads ``_site/sitecustomize.py``, which records what it reads."""
    for word in words[1:]:
        if word[:1] != "-" or word[:2] in ("--", "-c", "-m"):
            break
        if word[:2] not in ("-X", "-W") and any(flag in word for flag in "IES"):
            return False
    if env is None:
        env = os.environ
    given = {os.fsdecode(key): os.fsdecode(env[key]) for key in list(env)}
    return "STOKER_READS" in given and _SITE in given.get("PYTHONPATH", "").split(":")


def _watch_pyarrow() -> None:
    """Libraries in C tell no path, but pyarrow's Python code makes a text of each that it is given."""
    for name in _PYARROW:
        space = vars(sys.modules[name]) if name in sys.modules else {}
        stringify = space.get("_stringify_path")
        if stringify is not None and not hasattr(stringify, "of_stoker"):
            space["_stringify_path"] = _telling(stringify)


def _telling(stringify: Any) -> Any:
    def stringify_and_tell(path: Any) -> Any:
        text = stringify(path)
        if _path is not None and not _busy and isinstance(text, str):
            try:
                _on_given(text[7:] if text.startswith("file://") else text)
            except Exception:
                pass
        return text

    stringify_and_tell.of_stoker = True  # type: ignore[attr-defined]
    return stringify_and_tell


def _on_given(path: str) -> None:
    """A file or folder that pyarrow is to read or to write, which the path doesn't tell."""
    if os.path.isfile(path):
        _on_open(path, os.O_RDWR)
    elif os.path.isdir(path):
        for folder, _, names in os.walk(path):
            for name in names:
                _on_open(os.path.join(folder, name), os.O_RDWR)


def _watch_environment() -> None:
    """A look-up by name counts; copying the whole environment, which looks up each name, doesn't."""
    kind: Any = type(os.environ)
    get, put, names = kind.__getitem__, kind.__setitem__, kind.__iter__
    copied: Dict[int, str] = {}  # id of a name that an iteration gave → the name
    own: Set[str] = set()

    def getitem(self: Any, name: Any) -> Any:
        if _path is not None and not _busy and copied.get(id(name)) is not name:
            text = os.fsdecode(name) if isinstance(name, bytes) else name
            key = f"${text}"
            if key not in _known and text not in own and not text.startswith(("STOKER_", "PYTHON")):
                _known[key] = "e"
                _record("e", text)
        return get(self, name)

    def setitem(self: Any, name: Any, value: Any) -> None:
        own.add(os.fsdecode(name))
        put(self, name, value)

    def iterate(self: Any) -> Iterator[str]:
        copied.clear()
        for name in names(self):
            copied[id(name)] = name
            yield name

    kind.__getitem__, kind.__setitem__, kind.__iter__ = getitem, setitem, iterate
