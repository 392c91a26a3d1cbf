"""``package info list save``: the code that a deployment of the flow keeps."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Dict

from ..exception import CommandException
from ._deploy import code_of, source_of

if TYPE_CHECKING:
    from ._context import Context


def info(context: Context, values: Dict[str, Any]) -> None:
    """Print the number of files, their size, and the folder that they are in."""
    found = code_of(context)
    size = sum(os.path.getsize(source) for source in found.values())
    context.say(f"Code size: {size / 1e6:.2f} MB")
    context.say(f"Number of files: {len(found)}")
    context.say(f"From the folder {os.path.dirname(source_of(context))}")


def listing(context: Context, values: Dict[str, Any]) -> None:
    """Print the files' paths, one a line."""
    context.say("Files included in the code package (change with --package-suffixes):")
    print("\n".join(sorted(code_of(context).values())))


def save(context: Context, values: Dict[str, Any]) -> None:
    """Write the files into a compressed tar file.

    Raises:
        CommandException: it can't be written.
    """
    import tarfile

    try:
        with tarfile.open(values["path"], "w:gz") as archive:
            for name, source in sorted(code_of(context).items()):
                archive.add(os.path.realpath(source), name)
    except OSError as bad:
        raise CommandException(f"'{values['path']}' can't be written: {bad.strerror}") from None
    context.say(f"Code package saved in {values['path']}")
