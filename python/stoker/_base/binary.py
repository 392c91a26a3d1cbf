"""Finds and calls the ``stoker`` binary."""

from __future__ import annotations

import os
import sys
from typing import Any, Dict, List, Mapping, Optional, Sequence

from . import PACKAGE
from .errors import EngineError

_WAY_OUT = {
    "darwin": "this is macOS: use a Linux machine, or a Linux container or virtual machine here",
    "win32": "this is Windows: install Stoker inside WSL2 (`wsl --install`)",
}


def refusal(platform: str) -> Optional[str]:
    """Why Stoker can't run on ``platform`` (a value of ``sys.platform``); None on Linux."""
    if platform == "linux":
        return None
    return f"Stoker runs on Linux only, and {_WAY_OUT.get(platform, f'this is {platform}')}"


def find() -> str:
    """Path of the binary: ``$STOKER_BIN``, beside the package, the environment's scripts, ``PATH``.

    Raises:
        EngineError: it is in none of these places, or this isn't Linux.
    """
    refused = refusal(sys.platform)
    if refused is not None:
        raise EngineError(refused)
    named = os.environ.get("STOKER_BIN")
    if named:
        if os.path.isfile(named) and os.access(named, os.X_OK):
            return os.path.abspath(named)
        raise EngineError(
            f"STOKER_BIN names {named}, which is not an executable file; correct or unset it"
        )
    beside = (
        os.path.join(PACKAGE, "_bin"),
        os.path.dirname(sys.executable),
        os.path.join(sys.prefix, "bin"),
    )
    for candidate in (os.path.join(folder, "stoker") for folder in beside):
        if os.path.isfile(candidate) and os.access(candidate, os.X_OK):
            return candidate
    import shutil

    found = shutil.which("stoker")
    if found is None:
        raise EngineError(
            "the stoker binary was not found beside the package, in the environment's scripts or on PATH; "
            "install Stoker's wheel, run `make build` in its source tree, or set STOKER_BIN"
        )
    return found


def answer_of(arguments: Sequence[str]) -> Dict[str, Any]:
    """The answer of a ``stoker`` command with ``--json``; of a failed one ``{"error": {"class",
    "text", "hint"}}``.

    Raises:
        EngineError: it printed no JSON; the text is its message.
    """
    import json
    import subprocess

    done = subprocess.run(
        [find(), *arguments, "--json"], stdin=subprocess.DEVNULL, capture_output=True, check=False
    )
    try:
        body = json.loads(done.stdout)
    except ValueError:
        raise EngineError(done.stderr.decode("utf-8", "replace").strip()) from None
    return body if isinstance(body, dict) else {"answer": body}


def output_of(
    arguments: Sequence[str], store: Optional[str] = None, text: Optional[str] = None
) -> str:
    """Standard output of a ``stoker`` command; ``store`` is the store's folder if it is known,
    ``text`` its standard input.

    Raises:
        EngineError: the command failed; the text is its message.
    """
    import subprocess

    environment: Dict[str, str] = dict(os.environ)
    if store is not None:
        environment["STOKER_STORE"] = store
    done = subprocess.run(
        [find(), *arguments],
        input=b"" if text is None else text.encode("utf-8", "surrogateescape"),
        capture_output=True,
        env=environment,
        check=False,
    )
    if done.returncode != 0:
        said = done.stderr.decode("utf-8", "replace").strip()
        command = " ".join(["stoker", *arguments[:2]])
        raise EngineError(said or f"`{command}` ended with status {done.returncode}")
    return done.stdout.decode("utf-8", "replace")


def json_of(arguments: Sequence[str], store: Optional[str] = None) -> Any:
    """As :func:`output_of` with ``--json``, parsed."""
    import json

    text = output_of([*arguments, "--json"], store)
    try:
        return json.loads(text)
    except ValueError:
        shown: List[str] = list(arguments)
        raise EngineError(
            f"`stoker {' '.join(shown)} --json` printed no JSON: {text[:200]!r}"
        ) from None


def store_path() -> Optional[str]:
    """The store's folder, found by the engine; None: there is none yet.

    Raises:
        EngineError: the engine doesn't use the store, because it is another user's; the text says
            why.
    """
    named = os.environ.get("STOKER_STORE")
    if named:
        return os.path.abspath(named)
    body = answer_of(["store", "path"])
    error = body.get("error")
    if error and error.get("class") != "not_found":
        raise EngineError(error["text"] + (f"; {error['hint']}" if error.get("hint") else ""))
    return None if error else str(body["path"])


def run_options() -> Mapping[str, Any]:
    """The options of ``stoker run file.py --option …``, from ``STOKER_RUN_OPTIONS``.

    Raises:
        EngineError: the variable holds no JSON object.
    """
    from .options import asked

    try:
        return asked()
    except ValueError as bad:
        raise EngineError(str(bad)) from None
