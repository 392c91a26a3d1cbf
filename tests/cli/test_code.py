"""The code of Python steps in a run's record: compared line by line, shown, masked, and stored once."""

from __future__ import annotations

import json
import os
import py_compile
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from cli_tools import PYTHON, Cli

from stoker._code.masks import masked

UTIL = """
    def area(x):
        return x * x
"""
PROGRAM = """
    from stoker import pipeline, step
    import util

    RATE = {rate}
    SHAPE = {{
        "a": [1,
              2],
    }}
    UNUSED = 7

    class Model:
        gain = 2

        def fit(self, x):
            return x * self.gain + len(SHAPE)

    def helper(x,
               y=2):
        # why it adds
        return sum(
            [x, y],
        )

    @step(secrets=["KEY"])
    def train(n: int = 3) -> float:
        '''Trains.'''
        key = "swordfish-1"
        print({word!r})
        return Model().fit(helper(n)) * RATE + util.area(2)

    @step
    def show(x: float) -> None:
        print(x)

    @pipeline
    def p():
        show(train())
        show(train(n=4), id="again")

    if __name__ == "__main__":
        p()
"""


def run(cli: Cli, **words: object) -> str:
    cli.write("prog.py", textwrap.dedent(PROGRAM).format(**{"rate": 1, "word": "one", **words}))
    done = cli("run", "-q", "--python", PYTHON, "prog.py", STOKER_SECRET_KEY="swordfish-1")
    assert done.code == 0, done.err
    return str(json.loads(cli("show", "--json").out)["run"])


def blobs(cli: Cli) -> list[Path]:
    """The documents of code in the store."""
    files = [path for path in (cli.folder / ".stoker/artifacts").rglob("*") if path.is_file()]
    return [path for path in files if b'"parts"' in path.read_bytes()]


@pytest.fixture
def project(cli: Cli) -> Cli:
    cli.write("util.py", textwrap.dedent(UTIL))
    return cli


def test_line_by_line(project: Cli) -> None:
    first = run(project)
    project.write("util.py", textwrap.dedent(UTIL).replace("x * x", "x * x + 1"))
    second = run(project, rate=2, word="two")
    text = project("diff", first, second).out
    assert "  -RATE = 1\n  +RATE = 2\n" in text, text
    assert "  -    print('one')\n  +    print('two')\n" in text
    assert "Code of module util" in text and "  +    return x * x + 1\n" in text
    assert text.count("+    print('two')") == 1 and "Code of show" not in text
    assert f"Code of train_2, {first} to {second}: as of train\n" in text, text
    sources = {
        one["name"]: one["texts"]
        for one in json.loads(project("diff", first, second, "--json").out)["sources"]
    }
    assert sources["show"][0] == sources["show"][1]
    page = Path(project("diff", first, second, "--html", "page.html").out.strip())
    assert '<span class="add">+RATE = 2</span>' in page.read_text(encoding="utf-8")
    assert f"{first} to {second}: as of train</span>" in page.read_text(encoding="utf-8")


def test_shown(project: Cli) -> None:
    run(project)
    text = project("show", "latest/train", "--code").out
    parts = ["RATE = 1\n", '"a": [1,\n          2],\n}\n', "class Model:\n    gain", "len(SHAPE)\n"]
    parts += ["def helper(x,\n", "    # why it adds\n", "    )\n", "@step(secrets", "# util.py: "]
    for part in parts:
        assert part in text, (part, text)
    assert "UNUSED" not in text and "def show" not in text
    shown = json.loads(project("show", "latest/show", "--code", "--json").out)
    assert [(one["name"], one["file"]) for one in shown["parts"]] == [("function", "prog.py")]
    card = Path(project("card", "latest/show").out.strip()).read_text(encoding="utf-8")
    assert "Code of the step" in card and "show" in card.split("Code of the step")[1]
    assert "--code shows the code of one step" in project("show", "latest", "--code").err


def test_secrets_are_stars(project: Cli) -> None:
    run(project)
    assert 'key = "***********"' in project("show", "latest/train", "--code").out
    for path in (project.folder / ".stoker").rglob("*"):
        assert not path.is_file() or b"swordfish" not in path.read_bytes(), path


LITERALS = """
    from stoker import pipeline, step
    import login

    @step
    def train() -> str:
        login.now(token="hf_Swordfish2swordfish")
        return "x"

    @pipeline
    def p():
        train()

    if __name__ == "__main__":
        p()
"""
LOGIN = """
    PASSWORD = "swordfish"
    KEYS = {"api_key": "swordfish", "name": "kept-name"}

    def now(token, url="https://me:swordfish@host/path"):
        assert token != "hf_Swordfish3swordfish"
"""


def test_literals_that_look_like_secrets_are_stars(cli: Cli) -> None:
    """In functions and modules; the function itself, and its part of the cache key, are as before."""
    cli.write("login.py", textwrap.dedent(LOGIN))
    cli.write("prog.py", textwrap.dedent(LITERALS))
    done = cli("run", "-q", "--python", PYTHON, "prog.py")
    assert done.code == 0, done.err
    text = cli("show", "latest/train", "--code").out
    for part in (
        'login.now(token="***")',
        'PASSWORD = "***"\nKEYS = {"api_key": "***", "name": "kept-name"}\n',
        'url="https://***@host/path"',
        'token != "***"',
    ):
        assert part in text, (part, text)
    for path in (cli.folder / ".stoker").rglob("*"):
        assert not path.is_file() or b"swordfish" not in path.read_bytes().lower(), path


@pytest.mark.parametrize(
    ("code", "shown"),
    [
        ("self.password: str = 'a b'", 'self.password: str = "***"'),
        ('environ["HF_TOKEN"] = "abcdefgh"', 'environ["HF_TOKEN"] = "***"'),
        ('get("DB_PASSWORD", "abc") + "d"', 'get("DB_PASSWORD", "***") + "d"'),
        ('f(token=("abcdefgh"\n"ijk"), x="y")', 'f(token=("***"), x="y")'),
        ('if secret == "abc":', 'if secret == "***":'),
        ('login("ghp_0123456789abcdefghij")', 'login("***")'),
        ('pad_token="<pad>", cls_token="[CLS]"', None),
        ('token: str = "main", tokenizer="bert-base"', None),
        ('token=environ["HF_TOKEN"], max_tokens=5', None),
        ('["password", "email"]', None),
        ('url + "?token=" + x + "abcdefgh"', None),
        ('print("token: " + x, "abcdefgh")', None),
    ],
)
def test_what_looks_like_a_secret(code: str, shown: str | None) -> None:
    assert masked(code) == (shown or code)


def test_stored_once_and_removed(project: Cli) -> None:
    first, second = run(project), run(project)
    assert len(blobs(project)) == 1
    third = run(project, word="two")
    assert len(blobs(project)) == 2
    assert project("rm", third).code == 0 and project("store", "gc").code == 0
    assert len(blobs(project)) == 1
    assert "print('one')" in project("show", f"{first}/train", "--code").out
    assert project("rm", first).code == 0 and project("store", "gc").code == 0
    assert "print('one')" in project("show", f"{second}/train", "--code").out
    assert project("rm", second).code == 0 and project("store", "gc").code == 0
    assert blobs(project) == []


def git(cli: Cli, *words: str) -> str:
    who = ["-c", "user.name=a", "-c", "user.email=a@b"]
    done = subprocess.run(
        ["git", *who, *words],
        cwd=cli.folder,
        env={**os.environ, "GIT_CONFIG_GLOBAL": "/dev/null"},
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    )
    return done.stdout.strip()


def origin(cli: Cli, **words: object) -> tuple[object, object]:
    run(cli, **words)
    found = json.loads(cli("show", "--json").out)["origin"]
    return found.get("commit"), found.get("dirty")


def test_commit(project: Cli) -> None:
    assert origin(project) == (None, None)
    git(project, "init", "-q", "-b", "main")
    git(project, "add", "prog.py")
    git(project, "commit", "-q", "-m", "one")
    head = git(project, "rev-parse", "HEAD")
    assert origin(project) == (head, ["util.py"])  # which git doesn't know
    git(project, "add", "util.py")
    assert origin(project) == (head, ["staged changes"])
    git(project, "commit", "-q", "-m", "two")
    head = git(project, "rev-parse", "HEAD")
    assert origin(project) == (head, [])
    project.write("other.txt", "not part of the code")
    git(project, "pack-refs", "--all")
    git(project, "checkout", "-q", "--detach")
    assert origin(project, word="two") == (head, ["prog.py"])
    text = project("diff", *[one["run"] for one in json.loads(project("runs", "--json").out)[:2]])
    assert "not committed" in text.out and "prog.py" in text.out
    git(project, "checkout", "-q", "-f", "main")
    git(project, "worktree", "add", "-q", "further")
    further = Cli(project.folder / "further")
    assert origin(further) == (head, [])


CELLS = """
    import linecache
    import stoker

    def cell(number, text):
        name = f"<cell {number}>"
        linecache.cache[name] = (len(text), None, text.splitlines(True), name)
        exec(compile(text, name, "exec"), globals())

    cell(1, "def twice(x):\\n    return 2 * x\\n")
    cell(2, "@stoker.step\\ndef a() -> int:\\n    return twice(2)\\n\\n@stoker.pipeline\\ndef p():\\n    a()\\n")
    p()
"""  # fmt: skip


def test_cells(cli: Cli) -> None:
    cli.write("cells.py", textwrap.dedent(CELLS))
    assert cli("run", "-q", "--python", PYTHON, "cells.py").code == 0
    text = cli("show", "latest/a", "--code").out
    assert "# a notebook's cell: function\n@stoker.step\ndef a() -> int:\n" in text
    assert "def twice(x):\n    return 2 * x\n" in text and "def p" not in text


FLOW = """
    from stoker.flow import FlowSpec, step

    K = 3

    class F(FlowSpec):
        @step
        def start(self):
            self.x = self.more(K)
            self.next(self.end)

        def more(self, x):
            return x + 1

        @step
        def end(self):
            pass

    if __name__ == "__main__":
        F()
"""


def test_flow(cli: Cli) -> None:
    for word in ("x + 1", "x + 2"):
        cli.write("flow.py", textwrap.dedent(FLOW).replace("x + 1", word))
        assert cli("run", "-q", "--python", PYTHON, "flow.py").code == 0
    text = cli("show", "latest/start", "--code").out
    assert "K = 3\n" in text and "self.x = self.more(K)" in text and "return x + 2" in text
    assert "def end" not in text
    named = [one["run"] for one in json.loads(cli("runs", "--json").out)][::-1]
    assert "  -        return x + 1\n  +        return x + 2\n" in cli("diff", *named).out


def test_compiled(cli: Cli) -> None:
    source = cli.write("m.py", "def f() -> int: return 1\n")
    py_compile.compile(str(source), str(source.with_suffix(".pyc")), doraise=True)
    source.unlink()
    cli.write(
        "prog.py",
        "import m\nfrom stoker import pipeline, step\n"
        "@step\ndef a() -> int: return m.f()\n@pipeline\ndef p(): a()\np()\n",
    )
    assert cli("run", "-q", "--python", sys.executable, "prog.py").code == 0
    text = cli("show", "a", "--code").out
    assert text.endswith("# m.pyc: module m\n# compiled: only its digest is kept\n")


def test_without_text(cli: Cli) -> None:
    cli.write(
        "c.yaml", "stoker: 1\nname: c\nsteps: {a: {run: 'echo hi'}, b: {python: 'os:getcwd'}}"
    )
    cli("run", "-q", "c.yaml")
    assert cli("show", "latest/a", "--code").out == "echo hi\n"
    wrong = cli("show", "latest/b", "--code")
    assert wrong.code != 0 and "has no text of step 'b'" in wrong.err
