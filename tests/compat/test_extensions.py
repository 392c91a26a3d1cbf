"""A package ``metaflow_extensions.NAME`` with decorators, options, cards and names, used by a flow:
the same files with real Metaflow and with Stoker."""

from __future__ import annotations

import io
import json
import os
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from compat_tools import metaflow_python, run_shimmed
from front_tools import PACKAGE, ROOT, cannot, engine, needs_engine

sys.path.insert(0, str(Path(__file__).parent / "flows"))

import play

FILES = {
    "config/mfextinit_own.py": "OWN_VALUE = 42\n",
    "exceptions/mfextinit_own.py": """
from metaflow.exception import MetaflowException
class OwnException(MetaflowException):
    headline = "Own"
""",
    "toplevel/mfextinit_own.py": 'toplevel = "own_top"\n',
    "toplevel/own_top.py": '__mf_extensions__ = "own"\n__version__ = None\nown_name = "top"\n',
    "plugins/mfextinit_own.py": """
STEP_DECORATORS_DESC = [("own_step", ".steps.OwnStep"), ("own_wrap", ".steps.OwnWrap")]
FLOW_DECORATORS_DESC = [("own_flow", ".flows.OwnFlow")]
__mf_promote_submodules__ = ["helpers"]
""",
    "plugins/helpers/__init__.py": "helped = 7\n",
    "plugins/steps.py": """
from metaflow.decorators import StepDecorator
class OwnStep(StepDecorator):
    name = "own_step"
    defaults = {"word": "none"}
    def task_pre_step(self, step_name, task_datastore, metadata, run_id, task_id, flow, graph, retry_count,
                      max_user_code_retries, ubf_context, inputs):
        flow.before = (step_name, retry_count, graph[step_name].type)
    def task_post_step(self, step_name, flow, graph, retry_count, max_user_code_retries):
        flow.word = self.attributes["word"]
class OwnWrap(StepDecorator):
    name = "own_wrap"
    def task_decorate(self, step_func, flow, graph, retry_count, max_user_code_retries, ubf_context):
        def wrapped(*inputs):
            flow.wrapped = len(inputs)
            return step_func(*inputs)
        return wrapped
    def task_exception(self, exception, step_name, flow, graph, retry_count, max_user_code_retries):
        flow.raised = str(exception)
        return False
""",
    "plugins/flows.py": """
from metaflow import current
from metaflow.decorators import FlowDecorator
class OwnFlow(FlowDecorator):
    name = "own_flow"
    options = {"own-word": dict(default="usual", show_default=False, help="A word.")}
    def flow_init(self, flow, graph, environment, flow_datastore, metadata, logger, echo, options):
        current._update_env({"own_word": options["own-word"]})
""",
    "plugins/cards/first/__init__.py": """
from metaflow.cards import MetaflowCard
class Own(MetaflowCard):
    type = "own_card"
    def render(self, task):
        return "<p>%s</p>" % task["word"].data
CARDS = [Own]
""",
    "plugins/cards/broken/__init__.py": "raise Exception('not today')\n",
}

FLOW = """
from metaflow import FlowSpec, card, current, own_flow, own_name, own_step, own_wrap, step
from metaflow.metaflow_config import OWN_VALUE
from metaflow.exception import OwnException
from metaflow.plugins.helpers import helped

@own_flow
class F(FlowSpec):
    @card(type="own_card", save_errors=False)
    @card(type="no_such_card", save_errors=False)
    @own_step(word="w")
    @step
    def start(self):
        self.found = (own_name, OWN_VALUE, helped, OwnException.headline, current.own_word)
        self.next(self.a, self.b)
    @own_wrap
    @step
    def a(self):
        self.next(self.join)
    @step
    def b(self):
        self.next(self.join)
    @own_wrap
    @step
    def join(self, inputs):
        self.seen = inputs.a.wrapped
        self.merge_artifacts(inputs, exclude=["wrapped"])
        self.next(self.end)
    @step
    def end(self):
        pass

if __name__ == "__main__":
    F()
"""

LOOK = """
import json
from metaflow import Flow, namespace
from metaflow.cards import get_cards
namespace(None)
run = Flow("F").latest_run
start, join = run["start"].task, run["join"].task
cards = list(get_cards(start))
print(json.dumps([run.successful, start.data.found, start.data.before, start.data.word, join.data.seen,
    join.data.wrapped, [[one.type, one.get()] for one in cards]]))
"""

SEEN = [
    True,
    ["top", 42, 7, "Own", "mine"],
    ["start", 0, "split"],
    "w",
    0,
    1,
    [["own_card", "<p>w</p>"]],
]


def package(folder: Path) -> Path:
    """The extension, ready for PYTHONPATH."""
    for name, text in FILES.items():
        path = folder / "extension" / "metaflow_extensions" / "own" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (folder / "flow.py").write_text(FLOW)
    (folder / "look.py").write_text(LOOK)
    return folder / "extension"


def played(side: play.Side, folder: Path) -> list[object]:
    """Run the flow; returns what the client sees."""
    path = os.pathsep.join([str(package(folder)), side.env["PYTHONPATH"]])
    done = side.start(folder, "flow.py", "run", PYTHONPATH=path, METAFLOW_OWN_WORD="mine")
    assert done.returncode == 0, done.stdout + done.stderr
    looked = side.start(folder, "look.py", PYTHONPATH=path)
    assert looked.returncode == 0, looked.stderr
    return list(json.loads(looked.stdout.splitlines()[-1]))


@needs_engine
def test_extension(tmp_path: Path) -> None:
    assert played(play.stoker(str(engine()), PACKAGE), tmp_path) == SEEN


@pytest.mark.slow
def test_real_metaflow_sees_the_same(tmp_path: Path) -> None:
    assert played(play.real(metaflow_python()), tmp_path) == SEEN


def test_a_way_to_start_tasks_is_refused(tmp_path: Path) -> None:
    done = run_shimmed(
        tmp_path,
        """
        from metaflow import FlowSpec, step
        from metaflow.decorators import StepDecorator
        class Elsewhere(StepDecorator):
            name = "elsewhere"
            def runtime_step_cli(self, cli_args, retry_count, max_user_code_retries, ubf_context):
                pass
        class F(FlowSpec):
            @step
            def start(self):
                self.next(self.end)
            @step
            def end(self):
                pass
        F.start.decorators.append(Elsewhere())
        from stoker.flow._compile import compile_flow
        try:
            compile_flow(F, {}, {})
        except Exception as bad:
            print(bad)
        """,
    )
    assert (
        "@elsewhere of __main__ starts tasks in a way of its own (runtime_step_cli)" in done.stdout
    )


REAL = """
from metaflow import FlowSpec, card, current, mpi, step, tensorflow

class Real(FlowSpec):
    @card(type="html")
    @step
    def start(self):
        self.html = "<p>of its own</p>"
        self.next(self.tf, num_parallel=2)
    @card(type="html", options={"attribute": "other"})
    @tensorflow
    @step
    def tf(self):
        current.card.refresh({"html": f"<p>refreshed {current.parallel.num_nodes}</p>"})
        self.node = current.parallel.node_index
        self.next(self.j)
    @step
    def j(self, inputs):
        self.nodes = [getattr(one, "node", None) for one in inputs]
        self.next(self.before)
    @step
    def before(self):
        self.next(self.m, num_parallel=2)
    @mpi
    @step
    def m(self):
        self.kind = type(current.mpi).__name__
        self.next(self.k)
    @step
    def k(self, inputs):
        self.kinds = [getattr(one, "kind", None) for one in inputs]
        self.next(self.end)
    @step
    def end(self): pass

if __name__ == "__main__": Real()
"""
RAY = """
from metaflow import FlowSpec, metaflow_ray, step

class R(FlowSpec):
    @step
    def start(self): self.next(self.work, num_parallel=2)
    @metaflow_ray
    @step
    def work(self): self.next(self.j)
    @step
    def j(self, inputs): self.next(self.end)
    @step
    def end(self): pass

if __name__ == "__main__": R()
"""


def extensions() -> str:
    """Real packages of PyPI; `make build/metaflow-extensions/.installed` installs them."""
    folder = ROOT / "build" / "metaflow-extensions"
    if not (folder / ".installed").exists():
        cannot("Metaflow's extensions are not in build/metaflow-extensions")
    return str(folder)


@needs_engine
@pytest.mark.slow
def test_packages_of_pypi_as_they_are(tmp_path: Path) -> None:
    """A card, and decorators of gangs; nodes but the first do nothing, as those packages have it on one machine."""
    side = play.stoker(str(engine()), PACKAGE)
    path = os.pathsep.join([extensions(), side.env["PYTHONPATH"]])
    (tmp_path / "real.py").write_text(REAL)
    done = side.start(tmp_path, "real.py", "run", PYTHONPATH=path)
    assert done.returncode == 0, done.stdout + done.stderr
    (tmp_path / "look.py").write_text(
        "from metaflow import *\nfrom metaflow.cards import get_cards\nnamespace(None)\n"
        "run = Flow('Real').latest_run\nprint(run['j'].task.data.nodes, run['k'].task.data.kinds)\n"
        "print([one.get() for step in ('start', 'tf') for one in get_cards(run[step].task)])"
    )
    assert side.start(tmp_path, "look.py", PYTHONPATH=path).stdout.splitlines() == [
        "[0, None] ['MPIExecutor', None]",
        "['<p>of its own</p>', '<p>refreshed 2</p>']",
    ]


@needs_engine
@pytest.mark.slow
def test_ray_says_what_it_needs(tmp_path: Path) -> None:
    """metaflow-ray loads; without ray its own sentence says so."""
    side = play.stoker(str(engine()), PACKAGE)
    path = os.pathsep.join([extensions(), side.env["PYTHONPATH"]])
    (tmp_path / "ray_flow.py").write_text(RAY)
    done = side.start(tmp_path, "ray_flow.py", "run", PYTHONPATH=path)
    assert done.returncode == 1
    assert "RayNotInstalledException" in done.stderr, done.stderr


RAY_TASKS = """
from metaflow import FlowSpec, current, metaflow_ray, step

class R(FlowSpec):
    @step
    def start(self): self.next(self.work, num_parallel=2)
    @metaflow_ray(all_nodes_started_timeout=300)
    @step
    def work(self):
        import ray
        ray.init(address="auto")
        square = ray.remote(lambda x: x * x)
        self.found = len(ray.nodes()), ray.get([square.remote(i) for i in range(4)])
        self.place = current.ray_storage_path
        self.next(self.j)
    @step
    def j(self, inputs):
        print("RAY", inputs[0].found, inputs[0].place)
        self.next(self.end)
    @step
    def end(self): pass

if __name__ == "__main__": R()
"""


@needs_engine
@pytest.mark.slow
def test_ray_over_a_gang(tmp_path: Path) -> None:
    """metaflow-ray as it is: its nodes meet in the attempt's folder and are one cluster of Ray's."""
    ray = ROOT / "build" / "ray"
    if not (ray / ".installed").exists():
        cannot("Ray is not in build/ray")
    side = play.stoker(str(engine()), PACKAGE)
    path = os.pathsep.join([extensions(), side.env["PYTHONPATH"], str(ray)])
    (tmp_path / "ray_flow.py").write_text(RAY_TASKS)
    done = side.start(tmp_path, "ray_flow.py", "run", PYTHONPATH=path)
    assert f"RAY (2, [0, 1, 4, 9]) {tmp_path}/.stoker/runs/" in done.stdout, (
        done.stdout + done.stderr
    )


def test_what_hooks_get_for_a_datastore(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from stoker.flow._decorators._storage import Datastore
    from stoker.flow.exception import MetaflowException

    class F:
        pass

    running = SimpleNamespace(cls=F, attempt=SimpleNamespace(directory=str(tmp_path)))
    one = Datastore(SimpleNamespace(name="own"), running)
    storage = one._storage_impl
    assert (one.flow_name, storage.TYPE) == ("F", "s3")
    storage.save_bytes([("a/b", io.BytesIO(b"1")), ("a/c", (io.BytesIO(b"2"), {}))])
    storage.save_bytes([("a/b", io.BytesIO(b"3"))])
    storage.save_bytes([("a/c", io.BytesIO(b"4"))], overwrite=True)
    with storage.load_bytes(["a/b", "a/c", "a/d"]) as found:
        assert [path and Path(path).read_bytes() for _, path, _ in found] == [b"1", b"4", None]
    assert [one.path for one in storage.list_content(["a", "b"])] == ["a/b", "a/c"]
    assert storage.is_file(["a/b", "a"]) == [True, False]
    for asked in (lambda: storage.info_file("a"), lambda: one.get_task_datastore()):
        with pytest.raises(MetaflowException, match="@own of types asks Metaflow's datastore for"):
            asked()
    with pytest.raises(MetaflowException, match="asks Metaflow's datastore for _storage_impl"):
        Datastore(SimpleNamespace(name="own"))._storage_impl.save_bytes([])
    monkeypatch.setenv("MF_PARALLEL_MAIN_IP", "10.0.0.1")
    apart = Datastore(SimpleNamespace(name="own"), running)._storage_impl
    with pytest.raises(MetaflowException, match="nodes on several hosts"):
        apart.is_file(["a/b"])
