"""``python _rattler.py create …``: the part of micromamba's command line that makes an environment, by
py-rattler, for machines without micromamba.

A program of its own: the threads of py-rattler must not be in the process that forks tasks, and it
can be killed. It imports nothing of Stoker.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import sys
from pathlib import Path
from typing import Any, Dict, List

# What conda calls its defaults.
_DEFAULTS: Dict[str, List[str]] = {
    "defaults": [f"https://repo.anaconda.com/pkgs/{name}" for name in ("main", "r")],
    "nodefaults": [],
}


def main() -> None:
    """Make the environment that the arguments ask for."""
    parser = argparse.ArgumentParser(prog="py-rattler")
    parser.add_argument("command", choices=["create"])
    parser.add_argument("--yes", action="store_true")
    parser.add_argument("--quiet", action="store_true")
    parser.add_argument("--prefix", required=True)
    parser.add_argument("--channel", action="append", required=True)
    parser.add_argument("packages", nargs="+")
    asked = parser.parse_args()
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    failed = False
    try:
        asyncio.run(_create(asked))
    except Exception as bad:  # the exceptions of py-rattler have no common base
        failed = True
        print(f"error: {bad or type(bad).__name__}", file=sys.stderr, flush=True)
    os._exit(failed)  # its threads may crash in the interpreter's own end


async def _create(asked: Any) -> None:
    import rattler

    client = rattler.Client.authenticated_client()
    overrides = rattler.VirtualPackageOverrides.from_env()  # CONDA_OVERRIDE_CUDA and its kin
    channels = [name for one in asked.channel for name in _DEFAULTS.get(one, [one])]
    records = await rattler.solve(
        [rattler.Channel(one) for one in channels],
        [rattler.MatchSpec(one) for one in asked.packages],
        gateway=rattler.Gateway(client=client),
        virtual_packages=rattler.VirtualPackage.detect(overrides),
    )
    said = os.environ.get("CONDA_PKGS_DIRS", "").split(",")[0].strip()
    await rattler.install(
        records,
        asked.prefix,
        cache_dir=Path(said) if said else None,
        execute_link_scripts=True,  # as micromamba does
        show_progress=False,
        client=client,
    )


if __name__ == "__main__":
    main()
