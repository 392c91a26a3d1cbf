"""``python -m stoker._worker DIR [--main FILE]``: one attempt in a fresh interpreter."""

from __future__ import annotations

import json
import os
import sys

from .._base.in_use import use
from . import attempt, frameworks, ranks, reads, stacks

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, List


def main(argv: List[str]) -> int:
    """Returns the exit status of :func:`.attempt.run_attempt`; 2: wrong usage."""
    if not argv or len(argv) not in (1, 3) or (len(argv) == 3 and argv[1] != "--main"):
        print("usage: python -m stoker._worker DIR [--main FILE]", file=sys.stderr)
        return 2
    use(sys.prefix)  # as long as this process and its forks live
    stacks.write_at_crashes()
    directory = os.path.abspath(argv[0])
    attempt.masks_at_start = frameworks.masks()
    error = None
    try:
        with open(os.path.join(directory, "task.json"), "rb") as stream:
            task = json.loads(stream.read().decode("utf-8"))
        if task.get("gang") and ranks.rank_in(directory) is None:
            from . import server  # noqa: F401  (ranks are forks of one)
        granted = task.get("granted") or {}
        if granted.get("threads"):
            attempt.set_thread_variables(int(granted["threads"]), dict(os.environ))
    except (OSError, ValueError, AttributeError, TypeError):
        pass  # run_attempt reports the error
    main_file = argv[2] if len(argv) == 3 else None
    if main_file is not None:
        error = attempt.import_main(main_file)
        reads.forget_results()
    hook = os.environ.get("STOKER_HOOK")
    said = os.environ.get("STOKER_ERROR", "")
    status = attempt.run_attempt(directory, None, hook, said, error, main_file)
    threading: Any = sys.modules.get("threading")
    if threading is not None and threading.active_count() > 1:
        from . import lingering

        lingering.tell_of_threads()
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
