"""Checks rules that the compiler doesn't: which room includes which, file length, names of symbols.

    lint_rooms.py [--root DIR] [--library build/libstoker.a]

Prints `file:line: sentence` for each violation, and exits 1 if there is one.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from pathlib import Path

MAX_LINES = 800

# The wings below src/, in the order that data walks; a room is a folder of one, "store" the wing's own. What a
# room may use besides itself (ARCHITECTURE.md): only rooms above it in this list. model is pure: same input, same
# bytes out, so nothing that touches a file, a clock or a socket.
CELLAR = ("tbl", "base", "sys")
ROOMS: dict[str, set[str]] = {
    "tbl": set(),
    "base": {"tbl"},
    "sys": {"tbl", "base"},
    "net": {*CELLAR},
    "model/spec": {"tbl", "base"},
    "model/pack": {"tbl", "base"},
    "model/grow": {"tbl", "base", "model/spec"},
    "model/plan": {"tbl", "base", "model/spec", "model/pack"},
    "model/sched": {"tbl", "base", "model/pack"},
    "store": {*CELLAR},
    "store/package": {*CELLAR, "store"},
    "store/metrics": {*CELLAR},
    "store/view": {*CELLAR, "model/spec", "store"},
    "host/accel": {*CELLAR},
    "host/preflight": {*CELLAR, "host/accel"},
    "host/runner": {*CELLAR, "host/accel"},
    "host/launch": {*CELLAR, "host/accel", "host/runner"},
    "host/backend": {*CELLAR, "host/accel", "host/runner"},
    "host/fit": {*CELLAR, "model/spec", "model/pack", "model/plan", "host/accel"},
    "image/stack": {*CELLAR, "model/spec", "model/pack", "model/plan"},
    "image/contain": {*CELLAR, "net", "model/spec"},
    "image": {*CELLAR, "net", "host/accel", "host/preflight", "image/contain"},
    "away/aws": {*CELLAR, "net"},
    "away/link": {*CELLAR},
    "away/share": {*CELLAR, "net", "away/aws", "away/link", "store"},
    "away/remote": {
        *CELLAR,
        *("net", "model/spec", "store", "store/package", "store/metrics", "host/accel"),
        *("host/runner", "host/backend", "away/aws", "away/share"),
    },
    "away/mirror": {
        *CELLAR,
        *("model/spec", "store", "store/view", "away/share", "away/remote"),
    },
    "away/kubernetes": {*CELLAR, "net", "model/spec", "away/remote"},
    "away/ssh": {
        *CELLAR,
        *("model/spec", "host/accel", "host/fit", "away/link", "away/share", "away/remote"),
    },
    "away/slurm": {*CELLAR, "model/spec", "away/share", "away/remote"},
    "away/batch": {*CELLAR, "net", "model/spec", "away/aws", "away/share", "away/remote"},
    "away/agent": {
        *CELLAR,
        *("model/spec", "store", "store/package", "store/metrics", "host/accel", "host/runner"),
        *("host/backend", "host/fit", "away/share", "away/remote"),
    },
    "run/exec": {
        *CELLAR,
        *("net", "model/spec", "model/pack", "model/grow", "model/plan", "model/sched", "store"),
        *("host/accel", "host/runner", "host/backend", "host/fit", "image/stack"),
    },
    "run/observe": {*CELLAR, "net", "model/spec", "store", "store/view"},
    "run/simulate": {*CELLAR, "model/pack", "host/accel"},
    "run": {
        *CELLAR,
        *("model/spec", "model/plan", "model/sched", "store", "store/package", "store/view"),
        *("host/accel", "host/preflight", "host/backend", "host/fit", "image/stack"),
        *("image/contain", "image"),
        *("away/share", "away/remote", "run/exec", "run/observe"),
    },
    "show": {
        *CELLAR,
        *("model/spec", "model/pack", "model/plan", "model/sched", "store", "store/metrics"),
        *("store/view", "host/accel", "host/preflight", "host/runner", "host/fit", "image/stack"),
        *("run", "run/exec"),
    },
    "show/top": {*CELLAR, "host/accel", "host/runner", "show"},
    "ui": {
        *CELLAR,
        *("store", "store/metrics", "store/view", "host/accel", "host/runner", "away/mirror"),
        *("run", "show"),
    },
}
ROOMS["cli"] = {*ROOMS}
# Functions of libc that the rooms of model may use: none touches a file, a clock or a process.
PURE = re.compile(
    r"stk_|__|_GLOBAL_|_ITM_|mem(?:cpy|move|set|cmp|chr|mem)$|str(?!ftime)|to(?:lower|upper)$|v?snprintf$|sscanf$"
    r"|(?:malloc|calloc|realloc|reallocarray|free|qsort|bsearch)$"
    r"|(?:ll?round|round|ceil|floor|fabs|fmax|fmin|pow|log|log2|exp|sqrt)$"
)
# Folders within a room: parts of its files, and data of tests.
PARTS = {"core", "grown", "place", "testdata"}

# A loop over one of these takes a failure for the end: whoever reads a folder asks sys/dir.h, which has all of
# it or an error. stk-runner has nothing but libc.
FOLDERS = re.compile(
    r"\b(?:opendir|fdopendir|readdir(?:64)?|scandir(?:at)?|fts_open|fts_read|n?ftw)\("
)
READS_FOLDERS = {"src/sys/dir.c", "src/image/contain/stk_runner_user.c"}

# In these rooms each place that opens or reads is one that a test can have fail.
FAULTY = ("src/store/store", "src/away/share/", "src/away/agent/", "src/sys/file.c")
OPENS = re.compile(r"(?<![_\w>.])(?:open|openat|fopen|read|pread)\(")

# A test, and a program in one, sleeps in a loop that looks whether what it waits for has come, or for a
# minute and more until it is ended. Any other says why its length doesn't matter: `# sleeps: …`, there or above.
SLEEPS = re.compile(r"\btime\.sleep\((?!(?:[6-9]\d|\d{3,})\))")
LOOP = re.compile(r"\bwhile\b")
REASON = "# sleeps: "

INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"')


def room_of(name: str) -> str | None:
    """The room of a file, by its path below src/: the deepest folder that is a room."""
    folder = name
    while "/" in folder:
        folder = folder.rpartition("/")[0]
        if folder in ROOMS:
            return folder
    return None


def check_file(path: Path, shown: str, room: str) -> list[str]:
    """Violations in one source file, as `file:line: sentence`."""
    lines = path.read_text(encoding="utf-8").splitlines()
    found = []
    if len(lines) > MAX_LINES:
        found.append(
            f"{shown}:{MAX_LINES + 1}: {len(lines)} lines; a file has at most {MAX_LINES}, split it by question"
        )
    is_test = path.name.endswith("_test.c")
    if shown.startswith(FAULTY) and path.suffix == ".c" and not is_test:
        text = "\n".join(lines)
        if OPENS.search(text) and '#include "sys/faults.h"' not in text:
            found.append(
                f"{shown}:1: opens or reads files without sys/faults.h, so no test can have that fail"
            )
    for number, line in enumerate(lines, 1):
        if not is_test and shown not in READS_FOLDERS and (reads := FOLDERS.search(line)):
            found.append(
                f"{shown}:{number}: {reads[0][:-1]} takes a failure for the end of a folder; use sys/dir.h"
            )
        match = INCLUDE.match(line)
        if not match:
            continue
        target = room_of(match[1]) if "/" in match[1] else None
        if match[1].startswith("../") or (target is None and (path.parent / match[1]).exists()):
            found.append(
                f'{shown}:{number}: "{match[1]}" is relative; write it from src/, like "base/err.h"'
            )
        elif target and target != room and target not in ROOMS[room] and not is_test:
            below = ", ".join(sorted(ROOMS[room])) or "nothing"
            found.append(
                f"{shown}:{number}: room '{room}' includes '{match[1]}'; it may include only: {below}"
            )
    return found


def check_sources(root: Path) -> list[str]:
    """Violations in all files under src/; a folder that isn't a room is one, too."""
    found = []
    for path in sorted((root / "src").rglob("*")):
        if path.suffix not in {".c", ".h", ".def"}:
            continue
        shown = str(path.relative_to(root))
        below = path.relative_to(root / "src")
        room = room_of(str(below))
        if room is None or {*below.parent.parts} - {*room.split("/")} - PARTS:
            found.append(
                f"{shown}:1: src/{below.parent} is no room; name it and what it may include in tools/lint_rooms.py"
            )
        else:
            found += check_file(path, shown, room)
    return found


def is_in_loop(lines: list[str], number: int, column: int) -> bool:
    """Whether `while` stands before `column` on the line, or starts a block around it."""
    indent = len(lines[number]) - len(lines[number].lstrip())
    if LOOP.search(lines[number][:column]):
        return True
    for line in reversed(lines[:number]):
        here = len(line) - len(line.lstrip())
        if line.strip() and line.lstrip()[0] not in ")]}" and here < indent:
            indent = here
            if LOOP.search(line) or re.match(r"\s*(?:def|class) ", line):
                return LOOP.search(line) is not None
    return False


def check_sleeps(root: Path) -> list[str]:
    """Tests that wait for a time instead of an event."""
    found = []
    for path in sorted((root / "tests").rglob("*.py")):
        lines = path.read_text(encoding="utf-8").splitlines()
        for i, line in enumerate(lines):
            says_why = REASON in line or (i > 0 and lines[i - 1].lstrip().startswith(REASON))
            for match in SLEEPS.finditer(line):
                if not says_why and not is_in_loop(lines, i, match.start()):
                    found.append(
                        f"{path.relative_to(root)}:{i + 1}: time.sleep waits for no event: sleep in a "
                        "`while` that looks for it, or say why with '# sleeps: …'"
                    )
    return found


def symbols(library: Path, *options: str) -> list[tuple[str, str]]:
    """(object file, symbol) of each line that nm prints."""
    listing = subprocess.run(
        ["nm", *options, "--print-file-name", str(library)],
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    ).stdout
    return [(line.split()[0].split(":")[1], line.split()[-1]) for line in listing.splitlines()]


def room_of_object(member: str) -> str | None:
    """meson names the object of src/a/b/c.c src_a_b_c.c.o."""
    name = member.rpartition("/")[2]
    for room in sorted(ROOMS, key=len, reverse=True):
        if name.startswith(f"src_{room.replace('/', '_')}_"):
            return room
    return None


def check_symbols(library: Path) -> list[str]:
    """External symbols start with stk_, a room uses only rooms it may use, and model uses only
    memory."""
    found = []
    home: dict[str, str | None] = {}
    for member, symbol in symbols(library, "--defined-only", "--extern-only"):
        home[symbol] = room_of_object(member)
        # Names with dots or two underscores belong to the compiler and the sanitizers.
        if not symbol.startswith(("stk_", "_", "asan.")) and "." not in symbol:
            found.append(
                f"{member}:1: symbol '{symbol}' is visible outside its file; make it static or name it stk_…"
            )
    for member, symbol in symbols(library, "--undefined-only"):
        room, its = room_of_object(member), home.get(symbol)
        plain = re.sub(r"@.*|^__(?=.*_chk$)|_chk$", "", symbol)
        if room and room.startswith("model/") and not PURE.match(plain):
            found.append(
                f"{member}:1: model is pure (no file, clock or process), so it may not use {symbol}"
            )
        if room and its and its != room and its not in ROOMS[room]:
            found.append(
                f"{member}:1: room '{room}' uses {symbol} of room '{its}', which it may not"
            )
    return found


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--root", type=Path, default=Path(__file__).resolve().parent.parent)
    parser.add_argument(
        "--library", type=Path, help="default: ROOT/build/libstoker.a where that exists"
    )
    options = parser.parse_args(argv)
    found = check_sources(options.root) + check_sleeps(options.root)
    library = options.library or options.root / "build" / "libstoker.a"
    if options.library or library.exists():
        found += check_symbols(library)
    for line in found:
        print(line)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
