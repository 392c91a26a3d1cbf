"""Random numbers: a program that seeds them gets the same results in each run
(docs/formats/task-directory.md).

The front detects which generators the program has seeded: ``random`` by a call of its ``seed``
(:func:`notice`, from ``import stoker``), numpy's global one by the seed sequence that it then
lacks, torch by a seed that differs from its first one. The digest of a seeded generator's state is
in the document (``extra._seeds``) and so in every ``task.json``, on any machine; the task's seed is
derived from this and from the task's identity. A generator that was never seeded gets fresh entropy
in each task. This module imports no generator. Works on Python 3.7, like all modules of the worker.
"""

from __future__ import annotations

import os
import sys

from .._base.after_import import finder, when_imported

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, List, Mapping, Optional


KEY = "_seeds"  # in the document's and a task's `extra`
CODE = "random seeds"  # the name of this part in a step's cache key and in reasons for a miss
_MODULES = {"random": "random", "numpy": "numpy.random.mtrand", "torch": "torch"}

_noticed = False
_seeded_random = False
_first_of_torch: Optional[int] = None  # the seed of its generator before any seeding


# ---------------------------------------------------------------------------- the program


def notice() -> Any:
    """Watch from now on whether ``random`` and torch are seeded; ``import stoker`` calls this.

    Returns:
        The finder that sees their imports.
    """
    global _noticed
    if not _noticed:
        _noticed = True
        when_imported("random", _watch_random)
        if "torch" not in sys.modules:
            when_imported("torch", _watch_torch)
    return finder


def _watch_random(module: Any) -> None:
    """Wrap ``random.seed`` and ``random.setstate``, the functions of the shared generator."""
    for name in ("seed", "setstate"):
        setattr(module, name, _noting(getattr(module, name)))


def _noting(given: Any) -> Any:
    def call(*args: Any, **kwargs: Any) -> Any:
        global _seeded_random
        given(*args, **kwargs)
        # A call without a seed uses entropy, as at the start.
        _seeded_random = bool(args or kwargs) and (args + tuple(kwargs.values()))[0] is not None

    call.__name__, call.__doc__ = given.__name__, given.__doc__
    return call


def _watch_torch(module: Any) -> None:
    global _first_of_torch
    if hasattr(module, "default_generator"):  # else it is another module with that name
        _first_of_torch = int(module.initial_seed())


def _numpy_state() -> Any:
    return getattr(sys.modules.get(_MODULES["numpy"]), "_rand", None)


def _numpy_is_seeded(state: Any) -> bool:
    """Whether numpy is seeded: ``numpy.random.seed(n)`` removes the seed sequence."""
    return state is not None and getattr(state._bit_generator, "_seed_seq", None) is None


def _torch_is_seeded(torch: Any) -> bool:
    """Whether torch is seeded. It starts with 64 bits of entropy; if that seed is unknown, a small
    number means yes."""
    seed = int(torch.initial_seed())
    return seed != _first_of_torch if _first_of_torch is not None else seed < 1 << 33


def _torch() -> Any:
    module = sys.modules.get("torch")
    return module if hasattr(module, "default_generator") else None


def seeded() -> Dict[str, str]:
    """Generator → digest of its state, for those that this program has seeded."""
    from .._base.digest import sha256

    found: Dict[str, bytes] = {}
    random: Any = sys.modules.get("random")
    if random is not None and _seeded_random:
        found["random"] = repr(random.getstate()).encode()
    state = _numpy_state()
    if _numpy_is_seeded(state):
        said = state.get_state()
        found["numpy"] = said[1].tobytes() + repr(said[2:]).encode()
    torch = _torch()
    if torch is not None and _torch_is_seeded(torch):
        found["torch"] = bytes(torch.get_rng_state().numpy())
    return {name: sha256(raw).hexdigest()[:32] for name, raw in found.items()}


# ---------------------------------------------------------------------------- a task


def refresh() -> None:
    """In a fork: reseed generators that aren't seeded, so that they don't repeat the parent's
    numbers. (Python does it for ``random``.)"""
    state = _numpy_state()
    if state is not None and not _numpy_is_seeded(state):
        state.seed(int.from_bytes(os.urandom(4), "little"))
    torch = _torch()
    if torch is not None and not _torch_is_seeded(torch):
        torch.default_generator.manual_seed(int.from_bytes(os.urandom(8), "little"))


def sow(task: Mapping[str, Any]) -> None:
    """Seed each generator that the program has seeded for this task, as soon as it is imported."""
    found = (task.get("extra") or {}).get(KEY)
    if isinstance(found, dict):
        for name in _MODULES:
            if isinstance(found.get(name), str):
                _sow_one(name, _derived(found, name, task))


def _sow_one(name: str, seed: int) -> None:
    when_imported(_MODULES[name], lambda module: _SOW[name](module, seed))


def _derived(found: Mapping[str, Any], name: str, task: Mapping[str, Any]) -> int:
    """64 bits derived from the program's state, the step, its place in foreachs, and its round in a
    loop."""
    from hashlib import sha256

    step = task.get("step")
    frames = (task.get("flow") or {}).get("foreach") or []
    place: List[Any] = [(frame.get("step"), frame.get("index")) for frame in frames]
    place += [task.get("task")] if step in (found.get("loops") or ()) else []
    said = repr((found[name], name, step, place))
    return int.from_bytes(sha256(said.encode("utf-8", "surrogatepass")).digest()[:8], "little")


def _sow_random(module: Any, seed: int) -> None:
    module._inst.seed(seed)


def _sow_numpy(module: Any, seed: int) -> None:
    module._rand.seed(seed & 0xFFFFFFFF)


def _sow_torch(module: Any, seed: int) -> None:
    if hasattr(module, "default_generator"):
        module.manual_seed(seed)


_SOW = {"random": _sow_random, "numpy": _sow_numpy, "torch": _sow_torch}
