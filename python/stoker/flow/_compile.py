"""Makes the engine's document from a flow's class, its parameters and the command line's
options."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Dict, List, Mapping, NamedTuple, Optional

from .._base.digest import sha256
from .._definition.entry import Entry
from .._definition.jsonable import NotJsonError, exact
from .._engine.compiled import Compiled, External, code_record, origin
from ._current import username
from ._decorators import decorators_of, flow_decorators_of
from ._decorators._resources import request_of
from ._environments import Placed, place
from ._flow import constants_of
from ._graph import FlowGraph, Node, decorators_info, lint, steps_info, structure
from ._mutable import attach_all
from ._parameters import DelayEvaluator, config_names, parameters_of, set_configs
from ._tags import system_tags
from ._task import entry_of
from .exception import MetaflowException

if TYPE_CHECKING:
    from .._code.texts import Piece

_VALUE_MAX = 4 << 10  # bytes of JSON; a larger parameter is an artifact, not a part of every task
_KINDS = {bool: "bool", int: "int", float: "float", str: "str"}


class FlowDocument(NamedTuple):
    """A flow that is ready to run."""

    compiled: Compiled
    notes: List[str]


def compile_flow(
    cls: Any, parameters: Mapping[str, Any], options: Mapping[str, Any]
) -> FlowDocument:
    """The document, the fork server's registry, and notes for the user.

    Args:
        parameters: attribute → value, configurations included (``read_configs``,
            ``read_parameters``).
        options: ``with`` (decorators for all steps), ``tags``, ``max_num_splits``, ``cache``,
            ``namespace``, ``origin_run`` (of a resumed run), ``branch``, ``production``,
            ``run_name``.

    Raises:
        LintWarn: the graph has a fault. MetaflowException: a decorator's attribute is wrong.
    """
    set_configs(config_names(cls, parameters))
    specs = attach_all(cls, options.get("with") or (), parameters)
    graph: FlowGraph = cls._graph
    lint(graph)
    said: Dict[str, Any] = {"stoker": 1, "name": cls.__name__}
    if graph.doc:
        said["description"] = graph.doc
    inputs = _Inputs(cls, parameters)
    if inputs.declared:
        said["parameters"] = inputs.declared
    said["cache"] = bool(options.get("cache"))
    said["tags"] = list(dict.fromkeys([*system_tags(), *(options.get("tags") or ())]))
    notes: List[str] = []
    for one in flow_decorators_of(cls):
        bound = one.bound()
        _merge(said, bound.settings(cls, dict(options)))
        notes += [bound.note()] if bound.note() else []
    flow = said.setdefault("extra", {}).setdefault("flow", {})
    _merge(flow, _for_tasks(cls, specs, options))
    if inputs.none:
        flow["none"] = inputs.none
    if options.get("max_num_splits"):
        # the engine passes it to each task
        said["extra"]["max_splits"] = int(options["max_num_splits"])
    said["origin"] = origin()
    said["origin"]["code"] = _code_of(cls)
    said["steps"] = {}
    decorators = {n: [o.bound() for o in decorators_of(cls, n)] for n in graph.sorted_nodes}
    base = [one.bound() for one in flow_decorators_of(cls)]
    placed = place(decorators, base, options)
    notes += placed.notes
    registry: Dict[str, Entry] = {}
    externals: List[External] = []
    code = _Code(cls)
    for name in graph.sorted_nodes:
        said["steps"][name] = step = _step(
            cls, graph, graph[name], notes, bool(options.get("cache")), code
        )
        _give(step, placed, name)
        first = name == graph.start_step
        step["inputs"] = inputs.of_step(first, externals)
        if not step["inputs"]:
            del step["inputs"]
        if first:  # for the client; other steps needn't carry it
            own = {"graph": without_secrets(graph_info(cls)), "stored": sorted(inputs.stored)}
            _merge(step, {"extra": {"flow": {k: v for k, v in own.items() if v}}})
        registry[name] = entry_of(cls, name)
    if not flow:
        del said["extra"]["flow"]
    if not said["extra"]:
        del said["extra"]
    record = code_record(said["origin"], code.record)
    compiled = Compiled(said, registry, externals, options.get("run_name"), record)
    return FlowDocument(compiled, list(dict.fromkeys(notes)))


def _for_tasks(cls: Any, specs: List[str], options: Mapping[str, Any]) -> Dict[str, Any]:
    """Facts for every task besides its artifacts."""
    told = {
        "with": specs,
        "tags": list(options.get("tags") or ()),
        "namespace": options.get("namespace"),
        "user": username(),
        "system_tags": system_tags(),
        "origin_run": options.get("origin_run"),
        "file": graph_info(cls)["file"],
        "deployment": options.get("deployment"),
        "trigger": options.get("trigger"),
    }
    return {key: value for key, value in told.items() if value}


class _Inputs:
    """Parameters in the document: literals of every task, or artifacts of the first task."""

    def __init__(self, cls: Any, values: Mapping[str, Any]) -> None:
        self.declared: Dict[str, Any] = {}
        self.stored: Dict[str, Any] = {}
        self.none: List[str] = []
        for one in parameters_of(cls):
            value = values.get(one.var)
            if value is None:
                self.none.append(one.var)
                continue
            try:
                document = exact(value)
            except NotJsonError:
                document = None
            if document is None or _size(document) > _VALUE_MAX:
                from .._definition.types import ExternalArtifact

                self.stored[one.var] = ExternalArtifact(value)
            else:
                # Values that JSON lacks (NaN) are mappings in the document.
                plain = type(document) is type(value)
                kind = _KINDS.get(type(value), "json") if plain else "json"
                self.declared[one.var] = {"type": kind, "default": document}
                text = one.kwargs.get("help")
                if isinstance(text, str) and text:
                    self.declared[one.var]["help"] = text

    def of_step(self, first: bool, externals: List[External]) -> Dict[str, Any]:
        inputs: Dict[str, Any] = {name: {"param": name} for name in self.declared}
        if first:
            for name, artifact in self.stored.items():
                inputs[name] = artifact
                externals.append(External(inputs, name, artifact))
        return inputs


def _size(document: Any) -> int:
    import json

    return len(json.dumps(document))


def _step(
    cls: Any, graph: FlowGraph, node: Node, notes: List[str], cached: bool, code: _Code
) -> Dict[str, Any]:
    decorators = [one.bound() for one in decorators_of(cls, node.name)]
    said: Dict[str, Any] = {"python": f"{cls.__module__}:{cls.__qualname__}.{node.name}"}
    said.update(_following(cls, graph, node))
    if node.num_args > 1:
        said["join"] = True
    if node.doc:
        said["description"] = node.doc
    said["source"] = f"{_near(node.source_file)}:{node.func_lineno}"
    for one in decorators:
        one.check(node, graph)
        _merge(said, one.settings(decorators))
        note = one.note()
        notes += [note] if note else []
    request = request_of(node.name, decorators)
    if request:
        said["resources"] = {**said.get("resources", {}), **request}
        uses = code.uses(node.name) if request.get("gpu_count") else []
        if uses:
            said["uses"] = uses  # for preflight
    if cached or (said.get("cache") or {}).get("enabled"):
        said["code"] = code.parts(node.name)
    code.keep(node.name)
    return said


def _give(step: Dict[str, Any], placed: Placed, name: str) -> None:
    """Add what a step's own environment says."""
    settings = placed.settings.get(name)
    if not settings:
        return
    own = step.get("environment") or {}
    _merge(step, settings)
    step["environment"].update({k: v for k, v in own.items() if k != "PYTHONPATH"})
    if "PYTHONPATH" in own:
        front = settings["environment"]["PYTHONPATH"]
        step["environment"]["PYTHONPATH"] = os.pathsep.join([front, own["PYTHONPATH"]])
    step["uses"] = []  # preflight looks at the interpreter that starts the flow
    if "code" in step:
        step["code"]["packages"] = placed.locks[name]


def _following(cls: Any, graph: FlowGraph, node: Node) -> Dict[str, Any]:
    """``next`` of a step, and its kind."""
    if not node.out_funcs or node.type == "end":
        return {"next": []} if len(list(graph)) == 1 else {}  # a single step is a valid flow
    following: Any = node.out_funcs[0] if len(node.out_funcs) == 1 else list(node.out_funcs)
    said: Dict[str, Any] = {"next": following}
    if node.parallel_foreach:
        n = node.num_parallel
        said["num_parallel"] = n if isinstance(n, int) and not isinstance(n, bool) else True
    elif node.type == "foreach":
        said["foreach"] = node.foreach_param
    elif node.type == "split-switch":
        said["switch"] = node.condition
        said["cases"] = {_case(cls, key): step for key, step in node.switch_cases.items()}
    return said


def _case(cls: Any, key: Any) -> str:
    """A case in the document: a text unchanged, another value as JSON."""
    if isinstance(key, str) and key.startswith("config:"):
        key = DelayEvaluator(key[len("config:") :])()
    if isinstance(key, str):
        return key
    import json

    try:
        return json.dumps(key, separators=(",", ":"))
    except TypeError:
        raise MetaflowException(
            f"a switch's case {key!r} is not a text, number or truth value"
        ) from None


def _merge(said: Dict[str, Any], more: Mapping[str, Any]) -> None:
    for key, value in more.items():
        known = said.get(key)
        if isinstance(known, dict) and isinstance(value, dict):
            _merge(known, value)
        elif isinstance(known, list) and isinstance(value, list):
            said[key] = [*known, *value]
        else:
            said[key] = value


def _near(path: str) -> str:
    near = os.path.relpath(path) if os.path.isabs(path) else path
    return path if near.startswith("..") else near


def _code_of(cls: Any) -> str:
    """Digest of the flow's source, so that ``stoker resume`` notices changes."""
    import inspect
    import linecache

    digest = sha256()
    for base in cls.__mro__:
        if base.__module__.startswith("stoker.") or base is object:
            continue
        try:
            path: Optional[str] = inspect.getsourcefile(base)
        except TypeError:  # from a notebook
            path = None
        for node in cls._graph if path is None else ():
            path = node.source_file
        digest.update("".join(linecache.getlines(path or "")).encode("utf-8", "surrogatepass"))
    return digest.hexdigest()[:32]


class _Code:
    """The code of a flow's steps: each one's function, and the methods that any step may call."""

    def __init__(self, cls: Any) -> None:
        from .._code.digester import Digester
        from .._code.texts import Record

        self.record = Record()
        self._cls = cls
        self._digester = Digester()
        self._pieces: Optional[List[Piece]] = None  # of the helpers
        self._helpers = [
            (name, one)
            for base in cls.__mro__
            if not base.__module__.startswith("stoker.")
            for name, one in vars(base).items()
            if hasattr(one, "__code__") and not getattr(one, "is_step", False)
        ]

    def uses(self, step: str) -> List[str]:
        """Frameworks that the step's code, or a method that it may call, imports."""
        functions = [getattr(self._cls, step), *(one for _, one in self._helpers)]
        return sorted({name for one in functions for name in self._digester.uses(one)})

    def parts(self, step: str) -> Dict[str, str]:
        """The parts of the step's code for the cache key: its function and the class's other
        attributes."""
        from .._code.bytecode import hash_of
        from .._code.masks import is_secret, masked

        parts = dict(self._digester.parts(getattr(self._cls, step)))
        for name in constants_of(self._cls):
            value = getattr(self._cls, name)
            try:
                text = repr(exact(value))[:200]
                secret = is_secret(name) or masked(text) != text
                parts[f"constant {name}"] = hash_of([text]) if secret else text
            except NotJsonError:
                parts[f"constant {name}"] = type(value).__qualname__
        for name, one in self._helpers:
            parts.update({f"{name}: {k}": v for k, v in self._digester.parts(one).items()})
        return parts

    def keep(self, step: str) -> None:
        """Put the texts of the same code on record."""
        if self._pieces is None:
            self._pieces = list(
                dict.fromkeys(
                    p._replace(name=f"method '{name}'") if p.name == "function" else p
                    for name, one in self._helpers
                    for p in self._digester.pieces(one)
                )
            )
        own = self._digester.pieces(getattr(self._cls, step))
        self.record.add(step, [*own, *self._pieces])


def without_secrets(value: Any, key: str = "") -> Any:
    """A graph's data for the store: values that decorators' attributes hide are stars."""
    from .._code.masks import STARS, is_secret, masked

    if isinstance(value, dict):
        inline = key == "env_vars"  # of @secrets
        return {k: STARS if inline else without_secrets(v, str(k)) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [without_secrets(one, key) for one in value]
    if not isinstance(value, str):
        return value
    return STARS if is_secret(key) else masked(value)


def graph_info(cls: Any) -> Dict[str, Any]:
    """The flow's graph as plain data, as ``current.graph`` and cards show it."""
    known: Optional[Dict[str, Any]] = cls.__dict__.get("_stoker_graph_info")
    if known is not None:
        return known
    import inspect

    graph: FlowGraph = cls._graph
    try:
        path = inspect.getsourcefile(cls) or ""
    except TypeError:
        path = ""
    info = {
        "file": os.path.basename(path),
        "start_step": graph.start_step,
        "end_step": graph.end_step,
        "parameters": [
            {
                "name": one.var,
                "type": "Config" if one.IS_CONFIG_PARAMETER else type(one).__name__,
            }
            for one in sorted(parameters_of(cls), key=lambda one: one.var)
        ],
        "constants": [
            {"name": name, "type": type(getattr(cls, name)).__name__}
            for name in sorted(constants_of(cls))
        ],
        "steps": steps_info(graph),
        "graph_structure": structure(graph),
        "doc": graph.doc,
        "decorators": decorators_info(flow_decorators_of(cls)),
        "extensions": {},
    }
    cls._stoker_graph_info = info
    return info
