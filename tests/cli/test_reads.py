"""A hit needs unchanged files: every way of reading, every kind of change, from each front end."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import sqlite3
import time
from pathlib import Path

import pytest
from cli_tools import PYTHON, Cli
from front_tools import cannot

from stoker._worker import reads

HEAD = "import os, subprocess, sys\nfrom stoker import CachePolicy, pipeline, step\n"
# Forks of a process with threads are unsafe, so the step gets an interpreter of its own.
THREAD = """
import threading
threading.Thread(target=threading.Event().wait, daemon=True).start()
"""
REMEMBERED = """
import functools
@functools.lru_cache
def remembered(): return open('data/file').read()
remembered()
"""
END = """
@pipeline
def p(): read()
if __name__ == "__main__": p()
"""

# How a step reads what is in data/file (or lists the folder data), in Python.
READERS = {
    "open": "open('data/file').read()",
    "os.open": "os.read(os.open('data/file', os.O_RDONLY), 100)",
    "absolute": "open(os.path.abspath('data/file'), 'rb').read()",
    "pathlib": "__import__('pathlib').Path('data/file').read_text()",
    "symlink": "open('link').read()",
    "read and write mode": "open('data/file', 'r+').read()",
    "numpy": "__import__('numpy').loadtxt('data/file')",
    "numpy map": "__import__('numpy').memmap('data/file', mode='r')",
    "pandas": "__import__('pandas').read_csv('data/file')",
    "torch": "__import__('torch').load('data/torch')",
    "child": "subprocess.run([sys.executable, '-c', \"open('data/file').read()\"], check=True)",
    "shell's child": "subprocess.run(f'{sys.executable} child.py', shell=True, check=True)",
    "fork": "(lambda pid: os.waitpid(pid, 0) if pid else (open('data/file').read(), os._exit(0)))(os.fork())",
    "process": "(lambda p: (p.start(), p.join()))(__import__('multiprocessing').get_context('spawn').Process(target=look))",
    "thread": "(lambda t: (t.start(), t.join()))(__import__('threading').Thread(target=look))",
    "folder's descriptor": "os.chdir('data') or open(os.open('file', os.O_RDONLY)).read()",
    "link that it makes": "os.path.lexists('made') and os.unlink('made'); os.symlink('data/file', 'made'); open('made').read()",
    "hard link that it makes": "os.path.lexists('made') and os.unlink('made'); os.link('data/file', 'made'); open('made').read()",
    "file that it moves": "os.rename('data/file', 'data/new'); os.rename('data/new', 'data/file'); open('data/file').read()",
    "beside a temporary one": "open('data/file').read(); os.chdir('data'); d = __import__('tempfile').TemporaryDirectory(); open(d.name + '/file', 'w').close(); d.cleanup()",
    "earlier, remembered": "remembered()",
    "earlier, remembered by a fresh interpreter": "remembered()",
}
LISTERS = {
    "listdir": "os.listdir('data')",
    "scandir": "[e.name for e in os.scandir('data')]",
    "walk": "list(os.walk('data'))",
    "glob": "__import__('glob').glob('data/*')",
    "iterdir": "list(__import__('pathlib').Path('data').iterdir())",
}
NEEDS = {
    "numpy": "numpy",
    "numpy map": "numpy",
    "pandas": "pandas",
    "pyarrow": "pyarrow",
    "torch": "torch",
}


def needs(name: str) -> None:
    module = NEEDS.get(name)
    if module is not None and importlib.util.find_spec(module) is None:
        cannot(f"{module} is not installed")


def prepare(cli: Cli, body: str, policy: str = "") -> None:
    cli.write("data/file", "1\n2\n")
    if not (cli.folder / "link").is_symlink():
        os.symlink("data/file", cli.folder / "link")
    cli.write("child.py", "print(len(open('data/file').read()))\n")
    if "torch" in body:
        import torch

        torch.save({"a": 1}, cli.folder / "data/torch")
        os.utime(cli.folder / "data/torch", ns=(1, 1))
    old(cli.folder / "data/file")
    cli.write(
        "prog.py",
        f"{HEAD}{REMEMBERED if 'remembered' in body else ''}\ndef look(): open('data/file').read()\n@step{policy}\ndef read() -> int:\n    {body}\n    return 1\n{END}",
    )


def old(path: Path) -> None:
    """Sets an old time: the time of a file that has just changed is never trusted."""
    then = time.time_ns() - 3_600_000_000_000
    os.utime(path, ns=(then, then))


def status(cli: Cli) -> str:
    run = cli("run", "prog.py")
    assert run.code == 0, run.err
    return cli.json("show", "latest")["steps"]["read"]["status"]


def change(cli: Cli, kind: str, name: str = "data/file") -> bool:
    """Makes the change; returns whether the step must run again."""
    path = cli.folder / name
    text = path.read_bytes()
    if kind == "content":
        path.write_bytes(b"3\n4\n" if len(text) == 4 else text[::-1])
        old(path)
    elif kind == "size":
        path.write_bytes(text + b"5\n")
    elif kind == "touched":
        os.utime(path)
        return False
    elif kind == "replaced by the same":
        path.with_name("new").write_bytes(text)
        os.rename(path.with_name("new"), path)
        return False
    elif kind == "replaced":
        path.with_name("new").write_bytes(b"7\n8\n")
        os.rename(path.with_name("new"), path)
    elif kind == "deleted":
        path.unlink()
    return True


@pytest.mark.parametrize("reader", READERS)
def test_every_way_of_reading(cli: Cli, reader: str) -> None:
    needs(reader)
    prepare(cli, READERS[reader])
    if "fresh" in reader:
        program = cli.folder / "prog.py"
        program.write_text(THREAD + program.read_text())
    name = "data/torch" if reader == "torch" else "data/file"
    assert status(cli) == "succeeded"
    assert status(cli) == "cached", cli("why", "latest").out
    change(cli, "touched", name)
    assert status(cli) == "cached", cli("why", "latest").out
    if reader == "torch":
        import torch

        torch.save({"a": 2}, cli.folder / name)
    else:
        change(cli, "content", name)
    assert status(cli) == "succeeded"
    assert f"{cli.folder / name}, which it read, has changed" in cli("why", "read").out.replace(
        "/link", "/data/file"
    )


@pytest.mark.parametrize("kind", ["content", "size", "touched", "replaced by the same", "replaced"])
@pytest.mark.parametrize("door", ["python", "yaml"])
def test_every_change(cli: Cli, kind: str, door: str) -> None:
    """In a Python file, and in a Python program of a YAML step."""
    prepare(cli, "open('data/file').read()")
    steps = {"read": {"run": [PYTHON, "child.py"]}}

    def run() -> str:
        return status(cli) if door == "python" else cli.run(steps).statuses["read"]

    assert run() == "succeeded"
    assert run() == "cached"
    expected = "succeeded" if change(cli, kind) else "cached"
    assert run() == expected, cli("why", "read").out


@pytest.mark.parametrize("lister", LISTERS)
def test_folders(cli: Cli, lister: str) -> None:
    prepare(cli, LISTERS[lister])
    assert status(cli) == "succeeded"
    assert status(cli) == "cached", cli("why", "latest").out
    cli.write("data/file", "other content")  # it wasn't opened
    assert status(cli) == "cached", cli("why", "latest").out
    cli.write("data/more", "")
    assert status(cli) == "succeeded"
    assert "data/, which it listed, have changed" in cli("why", "read").out
    (cli.folder / "data/more").unlink()
    assert status(cli) == "succeeded"


ENVIRONMENT = {
    "environ": "os.environ['LR']",
    "get": "os.environ.get('LR', '')",
    "getenv": "os.getenv('LR')",
    "in": "'LR' in os.environ",
    "bytes": "os.environb.get(b'LR')",
    "expanded": "os.path.expandvars('$LR')",
    "child": "subprocess.run([sys.executable, '-c', \"import os; os.environ['LR']\"], check=True)",
}


@pytest.mark.parametrize("how", ENVIRONMENT)
def test_variables(cli: Cli, how: str) -> None:
    prepare(cli, ENVIRONMENT[how])
    cli.env["LR"] = "value-one"
    assert status(cli) == "succeeded"
    assert status(cli) == "cached", cli("why", "latest").out
    cli.env["OTHER"] = "1"
    assert status(cli) == "cached"
    cli.env["LR"] = "value-two"
    assert status(cli) == "succeeded"
    why = cli("why", "read").out
    assert "variable LR, which it read, has changed" in why and "value-" not in why
    assert "value-one" not in (cli.store / "store.db").read_bytes().decode(errors="ignore")


@pytest.mark.parametrize(
    "how", ["dict(os.environ)", "os.environ.copy()", "list(os.environ.items())"]
)
def test_a_copy_of_all_variables_is_no_look_up(cli: Cli, how: str) -> None:
    prepare(cli, how)
    assert status(cli) == "succeeded"
    cli.env["LR"] = "1"
    assert status(cli) == "cached", cli("why", "latest").out


def test_imports_list_no_folders(cli: Cli) -> None:
    """The interpreter searches the program's folder when a step imports something, or asks which packages there are."""
    asks = "import importlib.metadata as m; m.version('pytest')"
    prepare(cli, f"import fractions, child, traceback; traceback.format_stack(); {asks}")
    assert [status(cli), status(cli)] == ["succeeded", "cached"], cli("why", "latest").out
    cli.write("more.py", "")
    assert status(cli) == "cached", cli("why", "latest").out


def test_a_file_that_was_looked_for(cli: Cli) -> None:
    body = "\n    ".join(["try: open('config')", "except OSError: pass"])
    prepare(cli, body)
    assert [status(cli), status(cli)] == ["succeeded", "cached"]
    cli.write("config", "")
    assert status(cli) == "succeeded"
    assert "config, which it looked for, exists" in cli("why", "read").out


def test_what_the_step_wrote_itself_is_left_out(cli: Cli) -> None:
    body = (
        "open('made', 'w').write(str(os.getpid())); open('made').read(); os.listdir('.');"
        " open('t', 'w').close(); os.rename('t', 'moved'); open('moved').read()"
    )
    prepare(cli, body)
    assert [status(cli), status(cli)] == ["succeeded", "cached"], cli("why", "latest").out
    (cli.folder / "made").unlink()
    assert status(cli) == "cached", cli("why", "latest").out


def test_a_file_that_changes_while_the_step_runs(cli: Cli) -> None:
    """The step read the old content, so its result isn't valid for the new one."""
    body = "open('data/file').read(); subprocess.run('echo 9 >> data/file', shell=True)"
    prepare(cli, body)
    assert [status(cli), status(cli)] == ["succeeded", "succeeded"]


def test_a_state_that_the_step_reads_and_writes(cli: Cli) -> None:
    """What it read is the old content: it isn't there any more."""
    prepare(cli, "n = int(open('data/file').read()[0]); open('data/file', 'w').write(str(n + 1))")
    assert [status(cli), status(cli)] == ["succeeded", "succeeded"]
    assert (cli.folder / "data/file").read_text() == "3"
    assert "data/file, which it read, has changed" in cli("why", "read").out


def test_a_file_that_was_deleted(cli: Cli) -> None:
    prepare(cli, "os.path.exists('data/file') and open('data/file').read()")
    assert [status(cli), status(cli)] == ["succeeded", "cached"]
    change(cli, "deleted")
    assert status(cli) == "succeeded"
    assert "data/file, which it read, has changed" in cli("why", "read").out


def test_a_database(cli: Cli) -> None:
    """By its name or by a URI."""
    read = "__import__('sqlite3').connect('file:data/db?mode=ro', uri=True).execute('select * from t').fetchall()"
    prepare(cli, read)
    with contextlib.closing(sqlite3.connect(cli.folder / "data/db")) as base:
        base.execute("create table t (x)")
    old(cli.folder / "data/db")
    assert [status(cli), status(cli)] == ["succeeded", "cached"], cli("why", "latest").out
    with contextlib.closing(sqlite3.connect(cli.folder / "data/db")) as base:
        base.execute("insert into t values (1)")
        base.commit()
    assert status(cli) == "succeeded"


def test_a_file_that_it_opened_for_both_and_changed(cli: Cli) -> None:
    prepare(cli, "f = open('data/file', 'r+'); f.read(); f.write('more')")
    assert [status(cli), status(cli)] == ["succeeded", "cached"]
    assert "Stoker can't see what it read of" in cli("why", "read").out


# How a step starts a program whose reads Stoker doesn't see, and that program's name.
STARTERS = {
    "program": ("subprocess.run(['cat', 'data/file'])", "the program 'cat'"),
    "shell": ("subprocess.run('cat data/file', shell=True)", "the program 'sh'"),
    "popen": ("os.popen('cat data/file').read()", "the program 'sh'"),
    "system": ("os.system('cat data/file')", "the commands of os.system"),
    "spawn": (
        "os.waitpid(os.posix_spawn('/bin/cat', ['cat', 'data/file'], os.environ), 0)",
        "'cat'",
    ),
    "exec": (
        "(lambda pid: os.waitpid(pid, 0) if pid else os.execvp('cat', ['cat', 'data/file']))(os.fork())",
        "'cat'",
    ),
    "no variables": (
        "subprocess.run([sys.executable, '-c', 'pass'], env={'HOME': '/'})",
        "the program 'python",
    ),
    "own PYTHONPATH": (
        "subprocess.run([sys.executable, '-c', 'pass'], env={**os.environ, 'PYTHONPATH': '.'})",
        "the program 'python",
    ),
    "isolated": ("subprocess.run([sys.executable, '-Ic', 'pass'])", "the program 'python"),
}


@pytest.mark.parametrize("name", STARTERS)
def test_programs_that_a_step_starts(cli: Cli, name: str) -> None:
    body, program = STARTERS[name]
    prepare(cli, body)
    assert [status(cli), status(cli)] == ["succeeded", "cached"], cli("why", "latest").out
    why = cli("why", "read").out
    assert "Stoker can't see what " in why and program in why
    assert "Stoker can't see all that 'read' reads: stoker why read" in cli("why").out
    prepare(cli, body, "(cache_policy=CachePolicy(track='strict'))")
    assert [status(cli), status(cli)] == ["succeeded", "succeeded"]


def test_python_programs_that_a_step_starts_are_seen(cli: Cli) -> None:
    cli.write("tool", f"#!{PYTHON}\nopen('data/file').read()\n").chmod(0o755)
    body = "subprocess.run(['./tool'], check=True); subprocess.run([sys.executable, '-X', 'dev', 'child.py'])"
    prepare(cli, body, "(cache_policy=CachePolicy(track='strict'))")
    assert [status(cli), status(cli)] == ["succeeded", "cached"], cli("why", "latest").out
    change(cli, "content")
    assert status(cli) == "succeeded"


def test_what_is_left_out_by_its_folder() -> None:
    left_out = ["/usr/lib/x", "/usr/share/dict/words", "/lib/x", "/proc/stat", "/run/x"]
    counts = ["/library/x", "/usr/src/app/x", "/usr/local/data/x", "/run/media/me/disk/x", "/srv/x"]
    assert [path for path in left_out + counts if reads._is_left_out(path)] == left_out


def test_off_and_strict(cli: Cli) -> None:
    prepare(cli, READERS["open"], "(cache_policy=CachePolicy(track=False))")
    assert status(cli) == "succeeded"
    change(cli, "content")
    assert status(cli) == "cached"
    seen = {"read": {"run": [PYTHON, "child.py"], "cache": {"track": "strict"}}}
    assert cli.run(seen).statuses["read"] == "succeeded"
    assert "isn't cached" in cli.run(seen).err
    assert cli.run(seen).statuses["read"] == "succeeded"


def test_unseen_reads_are_said(cli: Cli) -> None:
    steps = {"read": {"run": "cat data/file"}}
    prepare(cli, "pass")
    assert cli.run(steps).statuses["read"] == "succeeded"
    assert cli.run(steps).statuses["read"] == "cached"
    assert "Stoker can't see what its programs read" in cli("why", "read").out


# How pandas and pyarrow, which opens files in C++, read data/table or the folder data.
TABLES = {
    "pandas": "__import__('pandas').read_parquet('data/table')",
    "table": "__import__('pyarrow.parquet').parquet.read_table('data/table')",
    "file": "__import__('pyarrow.parquet').parquet.ParquetFile('data/table').read()",
    "path": "__import__('pyarrow.parquet').parquet.read_table(__import__('pathlib').Path('data/table'))",
    "dataset": "__import__('pyarrow.dataset').dataset.dataset('data').to_table()",
    "feather": "__import__('pyarrow.feather').feather.read_table('feather')",
    "csv": "__import__('pyarrow.csv').csv.read_csv('csv')",
    "orc": "__import__('pyarrow.orc').orc.read_table('orc')",
    "imported before": "parquet.read_table('data/table')",
    "child": "subprocess.run([sys.executable, '-c', 'from pyarrow import parquet; parquet.read_table(\"data/table\")'], check=True)",
}


def write_tables(cli: Cli, value: int) -> None:
    import pyarrow
    from pyarrow import csv, feather, orc, parquet

    table = pyarrow.table({"a": [value]})
    for name, write in (
        ("data/table", parquet.write_table),
        ("csv", csv.write_csv),
        ("orc", orc.write_table),
        ("feather", feather.write_feather),
    ):
        write(table, cli.folder / name)
        old(cli.folder / name)


@pytest.mark.parametrize("name", TABLES)
def test_tables(cli: Cli, name: str) -> None:
    needs("pandas")
    needs("pyarrow")
    prepare(cli, TABLES[name])
    (cli.folder / "data/file").unlink()  # no table
    if name == "imported before":
        program = cli.folder / "prog.py"
        program.write_text(
            program.read_text().replace("import os", "from pyarrow import parquet; import os")
        )
    write_tables(cli, 1)
    assert [status(cli), status(cli)] == ["succeeded", "cached"], cli("why", "latest").out
    assert "as far as 'pyarrow' reads them" in cli("why", "read").out or name == "child"
    write_tables(cli, 2)
    assert status(cli) == "succeeded"
    assert "which it read, has changed" in cli("why", "read").out


def test_tables_that_a_step_writes(cli: Cli) -> None:
    """They don't keep its result from the cache, though pyarrow was given a file that was there."""
    needs("pyarrow")
    write = "parquet.write_table(pyarrow.table({'a': [os.getpid()]}), 'table')"
    prepare(cli, f"import pyarrow; from pyarrow import parquet; {write}")
    write_tables(cli, 1)
    (cli.folder / "csv").rename(cli.folder / "table")
    assert [status(cli), status(cli)] == ["succeeded", "cached"], cli("why", "latest").out


def test_plan_lists_what_was_read(cli: Cli) -> None:
    prepare(cli, "open('data/file'); os.listdir('data'); os.getenv('LR'); os.getenv('UNSET')")
    cli.env["LR"] = "1"
    assert status(cli) == "succeeded"
    text = cli("plan", "prog.py").out
    assert "data/file" in text and "data/" in text and "$LR" in text
    assert "; reads" not in text  # nothing stands before it
    prepare(cli, "os.listdir('.')")
    assert status(cli) == "succeeded" and "reads ./\n" in cli("plan", "prog.py").out
    prepare(cli, "open('data/file')")
    assert status(cli) == "succeeded"
    change(cli, "content")
    assert "data/file, which it read, has changed" in cli("plan", "prog.py").out


def test_a_library_in_c(cli: Cli) -> None:
    body = "import ctypes; libc = ctypes.CDLL(None); f = libc.open(b'data/file', 0); libc.close(f); sys.modules.setdefault('h5py', sys)"
    prepare(cli, body)
    assert [status(cli), status(cli)] == ["succeeded", "cached"]
    assert "Stoker can't see files, as far as 'h5py' reads them" in cli("why", "read").out


FLOW = """
import os
from stoker.flow import FlowSpec, step

class Reads(FlowSpec):
    @step
    def start(self):
        self.items = [1, 2]
        self.next(self.work, foreach="items")

    @step
    def work(self):
        self.read = open("data.csv").read() + os.environ.get("COLOUR", "")
        self.next(self.join)

    @step
    def join(self, inputs):
        self.reads = [one.read for one in inputs]
        self.next(self.end)

    @step
    def end(self):
        print("result", self.reads)

if __name__ == "__main__":
    Reads()
"""


def test_tasks_of_a_flow(cli: Cli) -> None:
    """Each task of a foreach has its own entry: it runs again when what it read has changed."""
    cli.write("flow.py", FLOW)

    def run(**env: str) -> tuple[int, str]:
        done = cli("run", "--python", PYTHON, "flow.py", "run", "--cache", **env)
        assert done.code == 0, done.err
        said = [line.partition("result ")[2] for line in done.out.splitlines() if "result" in line]
        cached = [task["status"] for task in cli.json("show", "latest/work")["tasks"]]
        return cached.count("cached"), "".join(said)

    cli.write("data.csv", "old")
    assert run() == (0, "['old', 'old']")
    assert run() == (2, "")
    cli.write("data.csv", "new")
    assert run() == (0, "['new', 'new']")
    assert run(COLOUR="red") == (0, "['newred', 'newred']")
    assert "COLOUR" in cli("why", "work").out
    assert run(COLOUR="red") == (2, "")
