"""Finds out whether it is safe to fork this process: what makes a forked step hang or fail.

- *OpenMP pools*: a tensor operation leaves a pool of libgomp threads. A forked child lacks them but
  expects them, and hangs in its next parallel region. A canary, forked once, runs one empty
  parallel region of every loaded libgomp (torch's, scikit-learn's …): ``GOMP_parallel(free, NULL,
  2)``.
- *Open devices*: a CUDA, ROCm, TPU or Neuron context doesn't survive a fork.
- *Other Python threads*: the locks that they hold stay locked in the child.

Thread counts: a library that is loaded already doesn't read environment variables again, so the
child calls the library's setter. The addresses of setters are found once, before the fork.
"""

from __future__ import annotations

import ctypes
import os
import re
import select
import signal
import sys
from typing import Any, Dict, List, Optional, Tuple

DEVICE_PREFIXES = ("/dev/nvidia", "/dev/kfd", "/dev/accel", "/dev/neuron", "/dev/dri/render")
_HARMLESS = ("/dev/nvidia-caps",)
CANARY_S = 2.0
_POOLS = re.compile(r"lib(gomp|iomp5|omp)[-.0-9a-f]*\.so")
_BLAS = re.compile(r"(openblas|libmkl_rt|libblis)[^/]*\.so")
_SETTERS = (  # (getter, setter); a library may have several
    ("omp_get_max_threads", "omp_set_num_threads"),
    ("openblas_get_num_threads", "openblas_set_num_threads"),
    ("openblas_get_num_threads64_", "openblas_set_num_threads64_"),
    ("scipy_openblas_get_num_threads", "scipy_openblas_set_num_threads"),
    ("scipy_openblas_get_num_threads64_", "scipy_openblas_set_num_threads64_"),
    ("MKL_Get_Max_Threads", "MKL_Set_Num_Threads"),
    ("bli_thread_get_num_threads", "bli_thread_set_num_threads"),
)
_libc: Any = None


def libc() -> Any:
    """The C library, loaded once."""
    global _libc
    if _libc is None:
        _libc = ctypes.CDLL(None, use_errno=True)
        _libc.fflush.argtypes = [ctypes.c_void_p]
        _libc.prctl.argtypes = [ctypes.c_int] + [ctypes.c_ulong] * 4
        _libc.syscall.restype = ctypes.c_long
    return _libc


def in_main_thread() -> bool:
    """Whether this is the main thread, where signals can be handled. Without ``threading`` there is
    only one thread.

    This function doesn't load that module: once loaded, each fork resets its locks, which costs a
    task a tenth of its pages.
    """
    threading: Any = sys.modules.get("threading")
    return threading is None or threading.current_thread() is threading.main_thread()


def prepare() -> Dict[str, Any]:
    """Call this in the user's process, just before it forks the server.

    Flushes the standard streams, so that no text is printed twice.

    Returns:
        Facts that the server can't find out after the fork: ``os_threads`` (count),
        ``python_threads`` (names of all but the calling one). For ``serve(..., facts=…)``.
    """
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError, AttributeError):
            pass
    threading: Any = sys.modules.get("threading")
    mine = threading.current_thread() if threading is not None else None
    others = [one.name for one in threading.enumerate() if one is not mine] if mine else []
    try:
        n_threads = len(os.listdir("/proc/self/task"))
    except OSError:
        n_threads = 1 + len(others)
    return {"os_threads": n_threads, "python_threads": others}


def mapped_libraries(pattern: re.Pattern[str]) -> List[str]:
    """Paths of the mapped shared libraries whose file names match."""
    found: Dict[str, None] = {}
    with open("/proc/self/maps", encoding="utf-8", errors="surrogateescape") as stream:
        for line in stream:
            i_path = line.find("/")
            if i_path > 0 and ".so" in line[i_path:]:
                path = line[i_path:].rstrip("\n")
                if path not in found and pattern.search(os.path.basename(path)):
                    found[path] = None
    return list(found)


def open_devices() -> List[str]:
    """Device files that this process holds open."""
    found = []
    for name in os.listdir("/proc/self/fd"):
        try:
            target = os.readlink(f"/proc/self/fd/{name}")
        except OSError:
            continue
        if target.startswith(DEVICE_PREFIXES) and not target.startswith(_HARMLESS):
            found.append(target)
    return sorted(set(found))


class Fitness:
    """The verdict, found at the first task and then kept.

    Attributes:
        one_thread: a step that must be forked anyway must not enter a parallel region.
    """

    def __init__(self, facts: Dict[str, Any]) -> None:
        self.facts = facts
        self.one_thread = False
        self._why: Optional[str] = None
        self._noted = False

    def why_unfit(self) -> str:
        """Why forking is unsafe, as one clause; "": it is safe."""
        if self._why is None:
            self._why = self._look()
        return self._why

    def _look(self) -> str:
        devices = open_devices()
        if devices:
            return f"this process holds {devices[0]} open, and a device doesn't survive a fork"
        others = self.facts.get("python_threads") or []
        pool = self._dead_pool(n_known=1 + len(others))
        if pool:
            self.one_thread = True
            return pool
        if others:
            names = ", ".join(others[:3]) + (", …" if len(others) > 3 else "")
            return f"{len(others)} other Python threads are running in this process ({names})"
        return ""

    def _dead_pool(self, n_known: int) -> str:
        libraries = mapped_libraries(_POOLS) if self.facts.get("os_threads", 1) > n_known else []
        return run_canary(libraries) if libraries else ""

    def note(self, why: str, clean: bool) -> str:
        """The note for the user if the task runs although forking is unsafe; "" from the second
        time on."""
        if self._noted or (not self.one_thread and _in_notebook()):
            return ""  # a notebook's kernel always has threads, which are harmless
        self._noted = True
        if clean:
            return f"{why}, as soon as its file is imported; each step starts an interpreter of its own"
        how = "it runs with one thread" if self.one_thread else "it is forked anyway"
        return (
            f"{why}; the step's function can't be imported afresh, so {how}. "
            "Define it at the top level of a file to have it run in a clean process"
        )


def _in_notebook() -> bool:
    kernel: Any = sys.modules.get("ipykernel.kernelapp")
    return hasattr(kernel, "IPKernelApp") and bool(kernel.IPKernelApp.initialized())


def run_canary(libraries: List[str], timeout_s: float = CANARY_S) -> str:
    """Fork a child that tests the libraries; returns a clause about the one that hangs, or ""."""
    report_r, report_w = os.pipe()
    pid = os.fork()
    if pid == 0:
        _canary(report_w, libraries)
    os.close(report_w)
    stage = b""
    poll = select.poll()
    poll.register(report_r, select.POLLIN)
    while poll.poll(int(timeout_s * 1000)):
        part = os.read(report_r, 64)
        if not part:
            break
        stage += part
    os.close(report_r)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    last = stage[-1:]
    if last == b".":
        return ""
    name = "OpenMP"
    if last and last[0] < len(libraries):
        name = os.path.basename(libraries[last[0]]).split(".")[0].split("-")[0]
    return f"an OpenMP pool of {name} is running in this process, and it doesn't survive a fork"


def _canary(report: int, libraries: List[str]) -> None:
    """Test the libraries; writes each one's index before its test, and ``.`` at the end."""
    try:
        for i_library, path in enumerate(libraries[:32]):
            os.write(report, bytes([i_library]))
            parallel = getattr(ctypes.CDLL(path), "GOMP_parallel", None)
            if parallel is None:
                continue  # LLVM's and Intel's runtimes restart in a forked child
            parallel.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint, ctypes.c_uint]
            free = ctypes.cast(libc().free, ctypes.c_void_p)
            parallel(free, None, 2, 0)  # free(NULL) on each of two threads
        os.write(report, b".")
    finally:
        os._exit(0)


class ThreadedLibraries:
    """Setters of the loaded libraries' thread counts, found before the fork."""

    def __init__(self) -> None:
        self._setters: List[Tuple[Any, int]] = []
        torch: Any = sys.modules.get("torch")
        if hasattr(torch, "set_num_threads") and hasattr(torch, "get_num_threads"):
            self._setters.append((torch.set_num_threads, torch.get_num_threads()))
        for path in mapped_libraries(_POOLS) + mapped_libraries(_BLAS):
            try:
                library = ctypes.CDLL(path, mode=getattr(os, "RTLD_NOLOAD", 0) | os.RTLD_LAZY)
            except OSError:
                continue
            for getter, setter in _SETTERS:
                get, put = getattr(library, getter, None), getattr(library, setter, None)
                if get is not None and put is not None:
                    put.argtypes, put.restype = [ctypes.c_int], None
                    self._setters.append((put, int(get())))
                    break

    def set_threads(self, n_threads: int) -> None:
        """Set the thread count, in the child. Skips libraries that have it already."""
        for put, current in self._setters:
            if current != n_threads:
                put(n_threads)
