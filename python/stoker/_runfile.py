"""``python -m stoker._runfile FILE NAME [args…]``: import a file and call its pipeline or run its
flow NAME.

The part of the file under ``if __name__ == "__main__":`` doesn't run; the pipeline's parameters
come from ``stoker run --param`` (``STOKER_RUN_OPTIONS``) and its defaults.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from typing import Any, List, Optional

from ._base import registry
from ._base.errors import StokerError, did_you_mean, end_in_one_line, refuse
from ._decorators.pipeline import Pipeline
from ._decorators.step import Step
from ._engine.failures import PipelineFailed

file: Optional[str] = None  # the file that runs, for the run's record and a clean fork server
name: Optional[str] = None


def load(path: str) -> Any:
    """Import a file as a module named after it, with its folder first on ``sys.path``."""
    stem = os.path.splitext(os.path.basename(path))[0]
    folder = os.path.dirname(path)
    sys.path.insert(0, folder)
    spec = importlib.util.spec_from_file_location(stem, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[stem] = module
    spec.loader.exec_module(module)
    return module


def _can_run(thing: Any) -> bool:
    return isinstance(thing, (Pipeline, Step)) or bool(registry.first(registry.runners, thing))


def main(argv: List[str]) -> int:
    """Returns the exit status: 0 ok, 1 the run failed, 2 wrong usage."""
    global file, name
    if len(argv) < 2:
        print("usage: python -m stoker._runfile FILE NAME", file=sys.stderr)
        return 2
    path, name = os.path.abspath(argv[0]), argv[1]
    if not os.path.isfile(path):
        refuse(f"{argv[0]}: no such file")
        return 2
    sys.argv = [path, *argv[2:]]
    file = path
    sys.modules["stoker._runfile"] = sys.modules[__name__]
    module = load(path)
    found = getattr(module, name, None)
    run = registry.first(registry.runners, found)
    if run is not None:
        return int(run(argv[2:]))
    known = [k for k, v in vars(module).items() if _can_run(v)]
    if not isinstance(found, (Pipeline, Step)):
        have = ", ".join(known) or "none"
        hint = did_you_mean(name, known)
        refuse(f"{argv[0]} has no pipeline '{name}' (it has: {have}){hint}")
        return 2
    try:
        found()
    except PipelineFailed:
        return 1  # the engine has reported it
    except StokerError as bad:
        end_in_one_line(type(bad), bad, bad.__traceback__, _place_of(found))
    return 0


def _place_of(found: Any) -> str:
    code = getattr(getattr(found, "entrypoint", None), "__code__", None)
    return f"{os.path.relpath(code.co_filename)}:{code.co_firstlineno}: " if code else ""


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
