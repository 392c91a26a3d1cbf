"""``stoker compat -- metaflow COMMAND``: the commands of Metaflow's own program, as far as they mean
something here."""

from __future__ import annotations

import sys
from typing import List, Sequence

from .. import __version__
from .._base.errors import StokerError, did_you_mean, say

_HELP = """Usage: metaflow COMMAND

  status      The store, its flows, and the settings that are set.
  configure   show: the settings that are set. Others: what takes their place.
  tutorials   Where Metaflow's tutorials are.
  code        Where the code of a run is.
  develop     Types for editors.
  version     The versions."""

_CONFIGURE = (
    "Nothing has to be configured: runs and artifacts are in the store of this folder (.stoker). Steps go elsewhere by "
    "stacks of stoker.yaml (`stoker stack --help`, docs/kubernetes.md, docs/batch.md, docs/slurm.md, docs/ssh.md). "
    "Variables METAFLOW_… and the file of METAFLOW_PROFILE in METAFLOW_HOME count; `metaflow configure show` shows them."
)
_TUTORIALS = (
    "The tutorials are part of Metaflow's package, not of Stoker. Get them beside Stoker, and run them by it: "
    "`pip download metaflow --no-deps`, unpack it, and `stoker compat -- python 00-helloworld/helloworld.py run` in "
    "its folder metaflow/tutorials."
)
_CODE = (
    "A run keeps the digest of its code, not a package of it: `stoker show RUN` names the file, `stoker why RUN/STEP` "
    "says what changed. The code of a deployed flow is in deployments/NAME/code of the store."
)
_DEVELOP = (
    "Stubs aren't needed: stoker.flow has its own types (py.typed). For editors and mypy write `from stoker.flow "
    "import FlowSpec, step` in place of `from metaflow import …`."
)


def _status() -> None:
    from . import _records
    from ._config import settings_set
    from ._current import username
    from .client import get_namespace

    store = _records.store_path()
    print(f"Stoker {__version__}, in place of Metaflow {_version()}")
    print(f"user: {username()}, namespace: {get_namespace() or '(global)'}")
    print(f"store: {store or 'none yet; the first run makes .stoker in its folder'}")
    counts: dict[str, int] = {}
    for row in _records.listed(store):
        counts[str(row["pipeline"])] = counts.get(str(row["pipeline"]), 0) + 1
    for name in sorted(counts):
        print(f"flow: {name}, runs: {counts[name]}")
    _show(settings_set())


def _show(settings: Sequence[str]) -> None:
    for line in settings:
        print(f"setting: {line}")
    if not settings:
        print("settings: none")


def _version() -> str:
    from ._tags import METAFLOW_VERSION

    return METAFLOW_VERSION


def main(words: Sequence[str]) -> int:
    """Run a command; returns the exit status."""
    name: str = words[0] if words else "--help"
    texts = {"configure": _CONFIGURE, "tutorials": _TUTORIALS, "code": _CODE, "develop": _DEVELOP}
    known: List[str] = ["status", *texts, "version", "help"]
    if name in ("--help", "-h", "help"):
        print(_HELP)
    elif name == "status":
        _status()
    elif name in ("version", "--version"):
        print(f"{_version()} (Stoker {__version__})")
    elif list(words[:2]) == ["configure", "show"]:
        from ._config import settings_set

        _show(settings_set())
    elif name in texts:
        print(texts[name])
        return 0 if len(words) == 1 or words[1] in ("--help", "info", "list") else 1
    else:
        say(
            f"metaflow has no command '{name}'{did_you_mean(name, known)} (there is: {', '.join(known)})"
        )
        return 2
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except StokerError as bad:
        say(str(bad))
        sys.exit(bad.exit_status)
