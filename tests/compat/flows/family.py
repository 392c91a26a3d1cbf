"""Flow programs for both engines: kinds of graphs × what may happen in them.

A program is written for Metaflow; under ``stoker compat`` the same file runs on Stoker. Every step notes where it is
(:data:`HEAD`), so that what the client sees of a run says how the graph was walked.
"""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass, field
from itertools import takewhile
from pathlib import Path
from typing import Callable, Iterator, Optional

HEAD = """\
import os, sys, time
from metaflow import FlowSpec, Parameter, JSONType, step, current, catch, retry, timeout, card, parallel, resources
from metaflow.exception import MetaflowException
try:
    from metaflow.exception import UnhandledInMergeArtifactsException, MissingInMergeArtifactsException
except ImportError:
    from metaflow.exception import MetaflowException as UnhandledInMergeArtifactsException

ROUND = os.environ.get("ROUND", "1")

def note(self, name, inputs=None):
    if inputs is not None:
        self.seen = [name, sorted((i.seen for i in inputs), key=str)]
    else:
        self.seen = getattr(self, "seen", []) + [name]
    self.where = [list(one) for one in self.foreach_stack() or ()]
    self.here = (self.index, self.input)
    self.round = ROUND
    setattr(self, "from_" + name, (name, len(self.where)))
    print("in", name, self.where)

def chosen(self):
    return self.index in (None, 1) and getattr(self, "i", 1) == 1

class F(FlowSpec):
"""


@dataclass
class Step:
    """A step: what it does before it says ``after``."""

    name: str
    after: str
    before: str = ""
    join: bool = False
    above: str = ""


def linear() -> list[Step]:
    return [
        Step("start", "self.next(self.a)"),
        Step("a", "self.next(self.b)"),
        Step("b", "self.next(self.end)"),
    ]


def branch() -> list[Step]:
    return [
        Step("start", "self.next(self.a, self.b)"),
        Step("a", "self.next(self.join)"),
        Step("b", "self.next(self.join)"),
        Step("join", "self.next(self.end)", join=True),
    ]


def nested_branch() -> list[Step]:
    return [
        Step("start", "self.next(self.a, self.b)"),
        Step("a", "self.next(self.c, self.d)"),
        Step("c", "self.next(self.inner)"),
        Step("d", "self.next(self.inner)"),
        Step("inner", "self.next(self.join)", join=True),
        Step("b", "self.next(self.join)"),
        Step("join", "self.next(self.end)", join=True),
    ]


def foreach() -> list[Step]:
    return [
        Step("start", "self.next(self.a, foreach='items')", "self.items = ['p', 'q', 'r']"),
        Step("a", "self.next(self.join)"),
        Step("join", "self.next(self.end)", join=True),
    ]


def nested_foreach() -> list[Step]:
    return [
        Step("start", "self.next(self.a, foreach='items')", "self.items = [10, 20]"),
        Step(
            "a",
            "self.next(self.c, foreach='deeper')",
            "self.deeper = [self.input + i for i in range(2)]",
        ),
        Step("c", "self.next(self.inner)"),
        Step("inner", "self.next(self.join)", join=True),
        Step("join", "self.next(self.end)", join=True),
    ]


def foreach_in_branch() -> list[Step]:
    return [
        Step("start", "self.next(self.b, self.split)"),
        Step("split", "self.next(self.a, foreach='items')", "self.items = (3, {'k': 1})"),
        Step("a", "self.next(self.inner)"),
        Step("inner", "self.next(self.join)", join=True),
        Step("b", "self.next(self.join)"),
        Step("join", "self.next(self.end)", join=True),
    ]


def switch() -> list[Step]:
    return [
        Step(
            "start",
            "self.next({'yes': self.a, 'no': self.b}, condition='verdict')",
            "self.verdict = 'yes'",
        ),
        Step("a", "self.next(self.c)"),
        Step("b", "self.next(self.c)"),
        Step("c", "self.next(self.end)"),
    ]


def loop() -> list[Step]:
    return [
        Step("start", "self.next(self.a)", "self.i = 0"),
        Step("a", "self.next({'again': self.a, 'done': self.b}, condition='verdict')",
             "self.i += 1\nself.verdict = 'again' if self.i < 3 else 'done'"),
        Step("b", "self.next(self.end)"),
    ]  # fmt: skip


def parallel() -> list[Step]:
    return [
        Step("start", "self.next(self.a, num_parallel=2)"),
        Step("a", "self.next(self.join)", "self.node = (current.parallel.node_index, current.parallel.num_nodes)",
             above="@parallel"),
        Step("join", "self.next(self.end)", "self.nodes = sorted(i.node for i in inputs)", join=True),
    ]  # fmt: skip


GRAPHS: dict[str, Callable[[], list[Step]]] = {
    kind.__name__: kind
    for kind in (
        linear,
        branch,
        nested_branch,
        foreach,
        nested_foreach,
        foreach_in_branch,
        switch,
        loop,
        parallel,
    )
}
JOINS = ("branch", "nested_branch", "foreach", "nested_foreach", "foreach_in_branch")
FEW = ("linear", "branch", "foreach", "loop")


@dataclass
class Command:
    """``python flow.py WORDS``; ``$0`` is the first run's id. Words ``run`` and ``resume`` make a run each."""

    words: list[str]
    env: dict[str, str] = field(default_factory=dict)
    prints: bool = False  # what it writes on stdout counts


@dataclass
class Case:
    name: str
    source: str
    commands: list[Command]
    quick: bool = False


def written(steps: list[Step], attributes: str = "") -> str:
    """The program."""
    lines = [HEAD, *(f"    {line}\n" for line in attributes.splitlines())]
    last = Step("end", "") if all(one.name != "end" for one in steps) else None
    for one in [*steps, last] if last else steps:
        inputs = ", inputs" if one.join else ""
        body = [f"note(self, {one.name!r}{inputs})", *one.before.splitlines(), one.after]
        lines += [
            f"    {line}\n"
            for line in [*one.above.splitlines(), "@step", f"def {one.name}(self{inputs}):"]
        ]
        lines += [f"        {line}\n" for line in body if line]
    return "".join([*lines, '\nif __name__ == "__main__":\n    F()\n'])


def changed(graph: str, **steps: tuple[str, str]) -> list[Step]:
    """A graph with (decorators, lines) added to some of its steps."""
    made = GRAPHS[graph]()
    if "end" in steps:
        made.append(Step("end", ""))
    for one in made:
        above, lines = steps.get(one.name, ("", ""))
        one.above = "\n".join(filter(None, [above, one.above]))
        one.before = "\n".join(filter(None, [one.before, lines]))
    return made


RUN = Command(["run"])


def case(behaviour: str, graph: str, steps: list[Step], *commands: Command, quick: Optional[bool] = None,
         attributes: str = "") -> Case:  # fmt: skip
    name = f"{behaviour}-{graph}"
    usual = graph == "foreach"
    return Case(
        name, written(steps, attributes), list(commands) or [RUN], usual if quick is None else quick
    )


def _plain() -> Iterator[Case]:
    values = "self.kept = {'n': 1, 't': (1, None), 's': {3, 1}, 'f': 0.1, 'b': b'x'}\nself.gone = 1\nself._own = 2"
    for graph in GRAPHS:
        steps = changed(
            graph, start=("", values), a=("", "if hasattr(self, 'gone'): del self.gone")
        )
        dump = Command(["dump", "$0/a", "--file", "dump.pkl"])
        yield case("plain", graph, steps, RUN, dump, quick=True)


def _merge() -> Iterator[Case]:
    same = ("", "self.same = [1, 2]\nself.differs = self.here, self.from_a[0]")
    own = ("", "self.only_b = 2\nself.same = [1, 2]")
    kinds = {
        "merge": "self.merge_artifacts(inputs, exclude=['differs'])",
        "merge_include": "self.merge_artifacts(inputs, include=['same'])",
        "merge_conflict": "self.merge_artifacts(inputs)",
        "merge_told": "try:\n    self.merge_artifacts(inputs)\nexcept UnhandledInMergeArtifactsException as bad:\n"
        "    self.unhandled = sorted(bad.artifact_names)",
        "merge_resolved": "self.differs = 'mine'\nself.merge_artifacts(inputs)",
        "merge_missing": "self.merge_artifacts(inputs, include=['nowhere'])",
        "merge_both": "self.merge_artifacts(inputs, include=['same'], exclude=['differs'])",
    }  # fmt: skip
    for behaviour, lines in kinds.items():
        for graph in JOINS if behaviour in ("merge", "merge_conflict") else ("branch", "foreach"):
            first = "inner" if any(s.name == "inner" for s in GRAPHS[graph]()) else "join"
            steps = changed(graph, a=same, b=own, **{first: ("", lines)})
            yield case(behaviour, graph, steps)
    yield case(
        "merge_nowhere", "linear", changed("linear", a=("", "self.merge_artifacts([])")), quick=True
    )


def _failures() -> Iterator[Case]:
    fail = "if chosen(self): raise ValueError('told to')"
    for graph in GRAPHS:
        yield case("fail", graph, changed(graph, a=("", fail)))
        caught = changed(
            graph,
            a=("@catch(var='err')", fail),
            end=(
                "",
                "err = getattr(self, 'err', None)\nself.saw = err and err.type.rpartition('.')[2]",
            ),
        )
        if graph not in ("nested_foreach", "loop", "parallel"):  # not where the step is a split
            yield case("catch", graph, caught)
        again = "if current.retry_count == 0: raise ValueError('first')\nself.attempt = current.retry_count"
        if graph != "parallel":
            quick = changed(graph, a=("@retry(times=2, minutes_between_retries=0)", again))
            yield case("retry", graph, quick)
    for graph in FEW:
        yield case(
            "retry_all_fail",
            graph,
            changed(graph, a=("@retry(times=1, minutes_between_retries=0)", fail)),
        )
        slow = "if chosen(self): time.sleep(60)"
        yield case("timeout", graph, changed(graph, a=("@timeout(seconds=1)", slow)))
    both = "@catch(var='err')\n@retry(times=1, minutes_between_retries=0)"
    yield case("catch_after_retry", "foreach", changed("foreach", a=(both, fail)))
    late = changed("foreach", a=("@catch(var='err')\n@timeout(seconds=1)", slow), join=("", "self.errs = [i.err and i.err.type.rpartition('.')[2] for i in inputs]"))  # fmt: skip
    yield case("catch_timeout", "foreach", late)


def _ends() -> Iterator[Case]:
    kinds = {
        "exit_0": "if chosen(self): sys.exit(0)",
        "exit_3": "if chosen(self): sys.exit(3)",
        "unpicklable": "self.bad = open(os.devnull)",
        "killed": "if chosen(self): os.kill(os.getpid(), 9)",
        "no_artifact": "print(self.nowhere)",
        "kept_self": "self.bad = self",
        "large": "self.big = bytes(range(256)) * 20000\nself.many = list(range(200000))",
    }
    for behaviour, lines in kinds.items():
        for graph in ("linear", "foreach"):
            yield case(behaviour, graph, changed(graph, a=("", lines)))
    yield case("empty", "foreach", changed("foreach", start=("", "self.items = []")))
    yield case("not_iterable", "foreach", changed("foreach", start=("", "self.items = 3")))
    yield case(
        "generator",
        "foreach",
        changed("foreach", start=("", "self.items = (i * i for i in range(3))")),
    )
    yield case("dict", "foreach", changed("foreach", start=("", "self.items = {'k': 1, 'l': 2}")))
    yield case("set", "foreach", changed("foreach", start=("", "self.items = {7}")))
    yield case("text", "foreach", changed("foreach", start=("", "self.items = 'xy'")))
    yield case(
        "too_wide", "foreach", GRAPHS["foreach"](), Command(["run", "--max-num-splits", "2"])
    )
    outside = changed("switch", start=("", "self.verdict = 'maybe'"))
    yield case("outside", "switch", outside, quick=True)
    typed = changed("switch", start=("", "self.verdict = 1"))
    yield case("other_type", "switch", typed, quick=True)
    yield case(
        "other_way", "switch", changed("switch", start=("", "self.verdict = 'no'")), quick=True
    )
    none = changed("switch", start=("", "del self.verdict"))
    yield case("no_verdict", "switch", none, quick=True)


# Beside these, others run: whether they are done when the run fails is luck, so the failure waits for them.
BESIDE = {"branch": "ab", "nested_branch": "abcd", "foreach_in_branch": ("split", "a", "b")}


def _resumes() -> Iterator[Case]:
    for graph in GRAPHS:
        names = [one.name for one in GRAPHS[graph]()] + ["end"]
        if graph == "switch":
            names.remove("b")
        for name in names:
            wait = (
                # sleeps: for what runs beside it to end
                "time.sleep(float(os.environ.get('WAIT', 2))); "
                if name in BESIDE.get(graph, ())
                else ""
            )
            fail = ("", f"if ROUND == '1': {wait}raise ValueError('told to')")
            again = Command(["resume", "--origin-run-id", "$0"], {"ROUND": "2"})
            yield case(
                f"resume_{name}",
                graph,
                changed(graph, **{name: fail}),
                RUN,
                again,
                quick=name == "join",
            )
    step = Command(["resume", "a", "--origin-run-id", "$0"], {"ROUND": "2"})
    for graph in FEW:
        yield case("resume_from", graph, GRAPHS[graph](), RUN, step, quick=graph == "foreach")


def _lines() -> Iterator[Case]:
    for graph in ("linear", "foreach"):
        yield case("cards", graph, changed(graph, a=("@card\n@card(id='other', type='blank')", "")))
    run = Command(["run", "--tag", "t1", "--tag", "t2"])
    tags = [run, Command(["tag", "add", "--run-id", "$0", "t3"]), Command(["tag", "remove", "--run-id", "$0", "t1"]),
            Command(["tag", "replace", "--run-id", "$0", "t2", "t4"]),
            Command(["tag", "remove", "--run-id", "$0", "never"])]  # fmt: skip
    yield case("tags", "linear", GRAPHS["linear"](), *tags, quick=True)
    given = "alpha = Parameter('alpha', default=0.5)\nn = Parameter('n', type=int, required=True)\n" \
            "flag = Parameter('flag', type=bool, default=False)\nshape = Parameter('shape', type=JSONType, default='[1]')\n" \
            "CONST = {'k': 1}"  # fmt: skip
    for name, words in {
        "parameters": ["--n", "3", "--alpha", "2", "--flag", "true", "--shape", '{"a": 1}'],
        "missing_parameter": [],
        "wrong_parameter": ["--n", "three"],
        "unknown_parameter": ["--n", "3", "--nope", "1"],
        "wrong_json": ["--n", "3", "--shape", "{"],
    }.items():
        yield case(
            name,
            "linear",
            GRAPHS["linear"](),
            Command(["run", *words]),
            attributes=given,
            quick=True,
        )
    yield case("changed_parameter", "linear", changed("linear", a=("", "self.n = 4")), Command(["run", "--n", "3"]),
               attributes=given, quick=True)  # fmt: skip
    yield case("with", "linear", changed("linear", a=("", "if current.retry_count < 1: raise ValueError")),
               Command(["run", "--with", "retry:times=1,minutes_between_retries=0"]), quick=True)  # fmt: skip
    commands = [
        RUN,
        Command(["dump", "$0/nowhere"]),
        Command(["logs", "$0/a", "--stdout"], prints=True),
    ]
    yield case("asked", "linear", GRAPHS["linear"](), *commands, quick=True)
    for name, steps in {
        "no_next": [Step("start", ""), Step("a", "self.next(self.end)")],
        "no_such_step": [Step("start", "self.next(self.nowhere)")],
        "orphan": [Step("start", "self.next(self.end)"), Step("a", "self.next(self.end)")],
        "no_join": [Step("start", "self.next(self.a, self.b)"), Step("a", "self.next(self.end)"), Step("b", "self.next(self.end)")],
        "join_alone": [Step("start", "self.next(self.a)"), Step("a", "self.next(self.end)", join=True)],
        "cycle": [Step("start", "self.next(self.a)"), Step("a", "self.next(self.start)")],
    }.items():  # fmt: skip
        yield case(f"lint_{name}", "bad", steps, Command(["check"]), RUN, quick=True)


def _programs() -> Iterator[Case]:
    """Whole programs, as people write them: `programs/`. Their `# $` lines are the commands."""
    for path in sorted(Path(__file__).with_name("programs").glob("*.py")):
        source = path.read_text()
        lines = [line[4:] for line in source.splitlines() if line.startswith("# $ ")]
        yield Case(f"program-{path.stem}", source, [_command(line) for line in lines], True)


def _command(line: str) -> Command:
    words = shlex.split(line)
    given = list(takewhile(lambda word: re.match(r"[A-Z_]+=", word), words))
    env = {name: value for name, _, value in (word.partition("=") for word in given)}
    return Command(words[len(given) :], env)


def cases() -> list[Case]:
    """The whole family."""
    made = [
        one
        for kind in (_plain, _merge, _failures, _ends, _resumes, _lines, _programs)
        for one in kind()
    ]
    assert len({one.name for one in made}) == len(made) and all(one.commands for one in made)
    return made
