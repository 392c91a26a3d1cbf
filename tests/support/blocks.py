"""The blocks of code in the pages that people read, and how each is tried.

What a block is, its language says; a comment at the end of what stands before it may say more:

| block | what is done |
|---|---|
| `python` whose first line is `# NAME.py` | written; `stoker plan` if no later command of the page names it |
| `python` | run as a program, after PRELUDE |
| `yaml` whose first line is `# NAME.yaml` | written; planned as above. `stoker.yaml`: its stacks are listed |
| `sh` | run by bash, which stops at the first failure |
| `console` | each line behind `$ ` is run; what follows it are lines of its output, in order, `…` is any text |
| `json` | read as JSON |
| `<!-- block: part -->` | a part of a pipeline file, `steps` or settings of a step: planned as such |
| `<!-- block: in a step: CODE -->` | Python that a step runs, after CODE |
| `<!-- block: words: REASON -->` | not run: its commands and their options must exist, which `--help` behind them tells |
| `<!-- block: typed: tests/X.py -->` | run by that test, which has such a place (typed_page.py); here as `words` |
| `<!-- block: not run: REASON -->` | |

The blocks of a page share one folder, in order. A block without a language is output or a protocol.
"""

from __future__ import annotations

import itertools
import json
import re
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Callable, NamedTuple

from stoker_binary import find_binary

ROOT = Path(__file__).resolve().parents[2]
STOKER = str(find_binary())
BLOCK = re.compile(r"(?:<!-- block: ([^\n]*?) -->\n+)?^```(\S*)\n(.*?)^```$", re.M | re.S)
NAME = re.compile(r"# ([\w-]+\.(?:py|yaml))\b")
STATUS = re.compile(r"# exit status (\d+)$")
ELSEWHERE = "/opt/envs/train/bin/python"  # as pages call an interpreter of other machines
PRELUDE = """
from __future__ import annotations
from typing import Annotated, Any
import numpy as np
import stoker
from stoker import *
"""
HEAD = "stoker: 1\nname: p\n"
STEP = "steps:\n  s:\n    run: 'true'\n"
IN_A_STEP = """
@step
def train() -> None:
    BODY

@pipeline
def p():
    train()

if __name__ == "__main__":
    p()
"""


class Block(NamedTuple):
    page: str
    line: int
    mark: str
    language: str
    text: str

    @property
    def where(self) -> str:
        return f"{self.page}:{self.line}"

    @property
    def name(self) -> str:
        """The file that it is."""
        found = NAME.match(self.text)
        return found[1] if found and self.language in ("python", "yaml") else ""

    @property
    def kind(self) -> str:
        """What is done with it."""
        if self.mark:
            return self.mark.partition(":")[0]
        return self.language if self.language in TRIED else "text"

    @property
    def commands(self) -> list[str]:
        """Its command lines."""
        lines = self.text.splitlines()
        if self.language == "console":
            return [line[2:] for line in lines if line.startswith("$ ")]
        return lines if self.language == "sh" else []


def blocks_of(page: str) -> list[Block]:
    text = (ROOT / page).read_text(encoding="utf-8")
    found = []
    for one in BLOCK.finditer(text):
        line = text.count("\n", 0, one.start(2)) + 1
        found.append(Block(page, line, one[1] or "", one[2], one[3]))
    return found


class Shell:
    """A folder in which a page's blocks are tried."""

    def __init__(self, folder: Path, env: dict[str, str], page: list[Block]) -> None:
        self.folder, self.env, self.page = folder, env, page

    def run(self, *words: str, status: int = 0, where: str = "") -> str:
        """What it writes, to stdout and stderr as they come."""
        done = subprocess.run(
            words,
            cwd=self.folder,
            env=self.env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=280,
        )
        assert done.returncode == status, f"{where}: exit status {done.returncode}\n{done.stdout}"
        return done.stdout

    def try_block(self, block: Block) -> None:
        TRIED[block.kind](self, block)

    def write(self, block: Block, name: str, before: str = "") -> None:
        text = block.text.replace(ELSEWHERE, sys.executable)
        (self.folder / name).write_text(before + text, encoding="utf-8")

    def file(self, block: Block) -> None:
        """Written. If no later command of the page uses it, what is in it is looked at here."""
        self.write(block, block.name)
        later = self.page[self.page.index(block) + 1 :]
        if block.name == "stoker.yaml":
            self.run(STOKER, "stack", "list", where=block.where)
        elif not any(block.name in line for one in later for line in one.commands if is_run(one)):
            self.run(STOKER, "plan", block.name, where=block.where)

    def python(self, block: Block) -> None:
        if block.name:
            return self.file(block)
        self.write(block, "fragment.py", PRELUDE)
        self.run(sys.executable, "fragment.py", where=block.where)

    def yaml(self, block: Block) -> None:
        assert block.name, f"{block.where}: no line '# NAME.yaml', and no mark that says what it is"
        self.file(block)

    def part(self, block: Block) -> None:
        text = block.text
        if not text.startswith("steps:"):
            text = STEP + textwrap.indent(text, "    ")
        (self.folder / "part.yaml").write_text(HEAD + text)
        self.run(STOKER, "plan", "part.yaml", where=block.where)

    def in_a_step(self, block: Block) -> None:
        before = block.mark.partition(":")[2].strip()
        body = textwrap.indent(f"{before}\n{block.text}", "    ").strip()
        (self.folder / "in_a_step.py").write_text(PRELUDE + IN_A_STEP.replace("BODY", body))
        self.run(STOKER, "run", "in_a_step.py", where=block.where)

    def sh(self, block: Block) -> None:
        self.run("bash", "-euc", block.text, where=block.where)

    def console(self, block: Block) -> None:
        for part in re.split(r"^\$ ", block.text, flags=re.M)[1:]:
            command, *expected = part.splitlines()
            found = STATUS.search(command)
            status = int(found[1]) if found else 0
            said = self.run("bash", "-euc", command, status=status, where=block.where)
            check_output(block.where, command, expected, said)

    def json(self, block: Block) -> None:
        json.loads(block.text)

    def words(self, block: Block) -> None:
        assert block.commands, f"{block.where}: only sh and console have words"
        for line in block.commands:
            check_words(block.where, line)

    def typed(self, block: Block) -> None:
        test = ROOT / block.mark.partition(":")[2].strip()
        assert f'"{block.page}"' in test.read_text(), f"{block.where}: {test} doesn't type it"
        self.words(block)

    def nothing(self, block: Block) -> None:
        """Output and protocols: commands in them would be untried."""
        lines = [line for line in block.text.splitlines() if re.match(r"(\$ |stoker [a-z])", line)]
        assert block.mark or not lines, f"{block.where}: {lines[0]}: say that it is sh or console"


TRIED: dict[str, Callable[[Shell, Block], None]] = {
    "python": Shell.python,
    "yaml": Shell.yaml,
    "part": Shell.part,
    "in a step": Shell.in_a_step,
    "sh": Shell.sh,
    "console": Shell.console,
    "json": Shell.json,
    "words": Shell.words,
    "typed": Shell.typed,
    "text": Shell.nothing,
    "not run": Shell.nothing,
}


def is_run(block: Block) -> bool:
    return block.kind in ("sh", "console")


def check_output(where: str, command: str, expected: list[str], said: str) -> None:
    """Each expected line is among those that were printed, in this order."""
    lines = iter(re.sub(r"\s+", " ", line).strip() for line in said.splitlines())
    for line in filter(None, (re.sub(r"\s+", " ", one).strip() for one in expected)):
        pattern = re.compile(re.escape(line).replace("…", ".*"))
        assert any(pattern.fullmatch(one) for one in lines), (
            f"{where}: after `{command}`: no line {line!r} in\n{said}"
        )


def check_words(where: str, line: str) -> None:
    """The commands of Stoker and targets of make in a line, and their options, exist."""
    words = line.partition(" #")[0].split()
    if words[:1] == ["make"]:
        targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.M)
        missing = [w for w in words[1:] if "=" not in w and w not in targets]
        assert not missing, f"{where}: make has no {missing}"
    for i, word in enumerate(words):
        if word.rpartition("/")[2] != "stoker" or i + 1 == len(words):
            continue
        own = list(itertools.takewhile(lambda word: word != "--", words[i + 1 :]))
        if own[0] == "launch":  # what follows the program is the program's
            own = [word for word in own if not word.endswith(".py")]
        done = subprocess.run([STOKER, *own, "--help"], capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, f"{where}: {line}: {done.stderr}"
