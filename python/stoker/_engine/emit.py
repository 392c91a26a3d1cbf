"""From a built graph to the spec (docs/formats/spec.md) and the registry of the fork server."""

from __future__ import annotations

import os
from typing import Any, Callable, Dict, Iterator, List, Mapping, Optional, Tuple

from .._base.errors import SettingsError, StepInterfaceError, lenient, warn
from .._code.digester import Digester
from .._code.holds import is_data, registered_code
from .._code.texts import Piece, Record
from .._definition.entry import Entry
from .._definition.gang import check_launch
from .._definition.graph import Graph, Invocation, literal
from .._definition.jsonable import NotJsonError, exact
from .._definition.layers import Layer, RunConfig, StepPatch, merge
from .._definition.settings import CachePolicy
from .._definition.step import StepDefinition
from .._definition.types import ExternalArtifact
from .._worker.profile import PROFILE_TAG, output_names
from .compiled import Compiled, External, code_record, origin

_SPEC_KEYS = [
    "description",
    "resources",
    "retry",
    "timeout",
    "grace",
    "timeout_notice",
    "keep_checkpoints",
    "cache",
    "environment",
    "secrets",
    "docker",
    "backend",
    "isolation",
    "gang",
    "on_oom",
    "xid",
    "sample",
    "gpu_profile",
    "tags",
    "extra",
    "mode",
]


_COUNTED = frozenset(["gpu_count", "gpu_memory", "any_of"])  # these give a number of devices
# each of these requests one device unless a number is given
_DEVICES = _COUNTED | {"gpu_class", "gpu_vendor"}


def compile_graph(
    graph: Graph, run: RunConfig, parameters: Mapping[str, Any], layer: Layer
) -> Compiled:
    """Merge the layers and write the spec.

    ``layer`` is the pipeline's, with the run configuration; ``parameters`` are the pipeline's
    arguments.

    Raises:
        StepInterfaceError: a missing input, or an ``after`` that names no step.
        RuntimeError: code and run configuration give a parameter different values.
    """
    graph.check_after()
    for name in run.steps:
        if name not in graph.invocations:
            warn(
                f"run configuration for step '{name}' cannot be applied: "
                f"pipeline '{graph.pipeline.name}' has no such step"
            )
    return _Emitter(graph, run, layer).emit(parameters)


class _Emitter:
    def __init__(self, graph: Graph, run: RunConfig, layer: Layer) -> None:
        self.graph = graph
        self.run = run
        self.override: Layer = layer.get("override") or {}
        self.top = merge(layer, self.override)
        self.digester = Digester()
        self.registry: Dict[str, Entry] = {}
        self.externals: List[External] = []
        self.scopes: Dict[Tuple[Any, ...], Layer] = {(): {}}
        self.passed: Dict[str, Dict[str, str]] = {}
        self.record = Record()
        self.pieces: Dict[int, List[Piece]] = {}
        self.plain: Dict[
            Tuple[int, Tuple[Any, ...]], Tuple[StepDefinition, Layer, Dict[str, Any], Entry]
        ] = {}

    def emit(self, parameters: Mapping[str, Any]) -> Compiled:
        pipeline = self.graph.pipeline
        spec: Dict[str, Any] = {"stoker": 1, "name": pipeline.name}
        if parameters:
            spec["parameters"] = {k: _parameter(v) for k, v in parameters.items()}
        spec.update(spec_settings(self.top))
        spec["origin"] = origin()
        spec["steps"] = {name: self._step(i) for name, i in self.graph.invocations.items()}
        spec["origin"]["code"] = _digest_of(spec["steps"])
        code = code_record(spec["origin"], self.record)
        return Compiled(spec, self.registry, self.externals, self.run.run_name, code)

    def _step(self, invocation: Invocation) -> Dict[str, Any]:
        step, patch = invocation.step, self.run.steps.get(invocation.id)
        layer, base, entry = self._base(step, invocation.scope, patch)
        self.registry[invocation.id] = entry
        spec = dict(base)
        inputs = self._inputs(invocation, patch)
        self._pass_on(invocation, inputs, spec)
        if inputs:
            spec["inputs"] = inputs
            for key, value in inputs.items():
                if isinstance(value, ExternalArtifact):
                    self.externals.append(External(inputs, key, value))
        if invocation.after:
            spec["after"] = invocation.after
        policy = merge(self.top, layer).get("policy")
        self.record.add(invocation.id, self._pieces(step, policy))
        if policy is not None:
            _apply_policy(spec, policy, inputs)
        return spec

    def _base(
        self, step: StepDefinition, scope: Tuple[Any, ...], patch: Optional[StepPatch]
    ) -> Tuple[Layer, Dict[str, Any], Entry]:
        """The parts of the spec that all calls of a step in a scope share."""
        known = self.plain.get((id(step), scope))
        if known is not None and patch is None:
            return known[1:]
        layer = merge(self._scope(scope), step.layer)
        if "cache" in self.override and "enabled" in (layer.get("cache") or {}):
            layer = dict(layer, cache={k: v for k, v in layer["cache"].items() if k != "enabled"})
        if patch is not None:
            layer = merge(layer, patch.layer)
        whole = merge(self.top, layer)
        spec: Dict[str, Any] = {"python": step.reference()}
        profile = _profile_outputs(whole.get("gpu_profile"), step)
        if step.outputs or profile:
            spec["outputs"] = _outputs(step, profile)
        spec["code"] = self._code(step, whole.get("policy"))
        uses = self.digester.uses(step.entrypoint, _types(step))
        if step.launch is not None:
            check_launch(step.launch, f"step '{step.name}'")
            spec["code"] = {**spec["code"], **step.launch.code()}
            uses = sorted({*uses, *step.launch.uses})
        if uses or _DEVICES.intersection(whole.get("resources") or ()):
            spec["uses"] = uses  # if devices are requested, an empty list counts too
        spec["source"] = _source(step)
        spec.update(spec_settings(layer))
        n_gpus = step.launch.gpus() if step.launch is not None else 0
        if n_gpus and not _COUNTED.intersection(whole.get("resources") or ()):
            spec["resources"] = {**spec.get("resources", {}), "gpu_count": n_gpus}
        if layer.get("secrets") and self.top.get("secrets"):
            spec["secrets"] = whole["secrets"]
        if profile:
            spec["extra"] = {**spec.get("extra", {}), "gpu_profile": whole["gpu_profile"]}
        hooks = merge(self.top.get("hooks") or {}, layer.get("hooks") or {})
        if hooks:
            spec["hooks"] = {k: {"python": _hook_reference(h)} for k, h in hooks.items()}
        made = (layer, spec, step.entry(hooks))
        if patch is None:
            self.plain[id(step), scope] = (step, *made)
        return made

    def _scope(self, scope: Tuple[Any, ...]) -> Layer:
        if scope not in self.scopes:
            layer: Layer = {}
            for pipeline in scope:
                layer = merge(layer, pipeline.step_defaults())
            self.scopes[scope] = layer
        return self.scopes[scope]

    def _code(self, step: StepDefinition, policy: Optional[CachePolicy]) -> Dict[str, str]:
        if policy is not None and not policy.include_step_code:
            code = {"function": "not part of the key (cache_policy)"}
        else:
            code = dict(self.digester.parts(step.entrypoint, _types(step)))
        for name, source in _more_code(step, policy):
            for part, digest in self.digester.parts(source).items():
                code[f"{name}: {part}"] = digest
        return code

    def _pieces(self, step: StepDefinition, policy: Optional[CachePolicy]) -> List[Piece]:
        known = self.pieces.get(id(step))
        if known is None:
            known = list(self.digester.pieces(step.entrypoint, _types(step)))
            for name, source in _more_code(step, policy):
                more = self.digester.pieces(source)
                known += [p._replace(name=f"{name}: {p.name}") for p in more]
            self.pieces[id(step)] = known
        return known

    def _pass_on(
        self, invocation: Invocation, inputs: Mapping[str, Any], spec: Dict[str, Any]
    ) -> None:
        """Add to a step's code parts those of the steps that made its inputs.

        An input may be an object of a class that only its maker's code names. A pickle has its
        class by name, so its content doesn't show that the class has changed. So the maker's
        classes, helpers and modules count for this step too, unless the annotations say that the
        value is plain data.
        """
        step = invocation.step
        got: Dict[str, str] = {}
        for key, value in inputs.items():
            origin = value.get("from", ()) if isinstance(value, dict) else ()
            if not origin or is_data(step.annotations.get(key, Any)):
                continue
            for reference in [origin] if isinstance(origin, str) else origin:
                maker, _, output = reference.partition(".")
                if not is_data(self.graph.invocations[maker].step.outputs[output].type):
                    got = _joined(got, self.passed[maker])
        own = spec["code"]
        made = {k: v for k, v in own.items() if k.startswith(("class ", "helper ", "module "))}
        self.passed[invocation.id] = _joined(got, made)
        more = {f"{k} (of an input)": v for k, v in got.items() if own.get(k) != v}
        if more and not spec["code"].get("function", "").startswith("not part"):
            spec["code"] = {**own, **more}

    def _inputs(self, invocation: Invocation, patch: Optional[StepPatch]) -> Dict[str, Any]:
        step = invocation.step
        configured = {**step.parameters, **(patch.parameters if patch is not None else {})}
        for key in configured:
            if key not in step.signature.parameters:
                raise StepInterfaceError(
                    f"run configuration: step '{invocation.id}' has no parameter '{key}'"
                )
        inputs: Dict[str, Any] = {}
        conflicts: List[str] = []
        for key, parameter in step.signature.parameters.items():
            if key in invocation.inputs:
                inputs[key] = invocation.inputs[key]
                if key in configured and _conflict(step, key, inputs[key], configured[key]):
                    conflicts.append(f"{key}: {configured[key]!r}")
            elif key in configured:
                inputs[key] = {"value": literal(step, key, configured[key])}
            elif parameter.default is parameter.empty and key == "self":
                raise StepInterfaceError(
                    f"{os.path.relpath(invocation.line)}: step '{invocation.id}' is a method, but a step is a "
                    "function: define it outside of the class, without 'self'"
                )
            elif parameter.default is parameter.empty:
                raise StepInterfaceError(
                    f"{os.path.relpath(invocation.line)}: step '{invocation.id}' is called without its input "
                    f"'{key}'; give it: {step.name}({key}=...)"
                )
            else:
                try:
                    inputs[key] = {"value": exact(parameter.default)}
                except NotJsonError:
                    pass  # Python fills it in; its value is part of the function's digest
        if conflicts:
            raise RuntimeError(
                f"Configured parameter for the step '{invocation.id}' conflict with parameter passed in "
                f"runtime: {', '.join(conflicts)}; give it in one place"
            )
        return inputs


def _joined(some: Dict[str, str], more: Dict[str, str]) -> Dict[str, str]:
    """The parts of both; two parts of one name (from two modules) become one text."""
    if not some or some is more:
        return more
    joined = dict(some)
    for part, digest in more.items():
        known = joined.setdefault(part, digest)
        if known != digest:
            joined[part] = "+".join(sorted({*known.split("+"), *digest.split("+")}))
    return joined


def _conflict(step: StepDefinition, key: str, given: Any, configured: Any) -> bool:
    return not isinstance(given, dict) or given.get("value", _NOTHING) != literal(
        step, key, configured
    )


_NOTHING = object()


def spec_settings(layer: Layer) -> Dict[str, Any]:
    """The keys of a layer that are part of the spec."""
    return {k: layer[k] for k in _SPEC_KEYS if layer.get(k) not in (None, {}, [])}


def _types(step: StepDefinition) -> Dict[str, Any]:
    outputs = {f"-> {name}": output.type for name, output in step.outputs.items()}
    return {**dict.fromkeys(step.signature.parameters, Any), **step.annotations, **outputs}


def _more_code(
    step: StepDefinition, policy: Optional[CachePolicy]
) -> Iterator[Tuple[str, Callable[..., Any]]]:
    """What counts for a step beside its function, with names for people."""
    if policy is None or policy.include_step_code:
        for name, one in registered_code(_types(step).values()):
            yield f"materializer of '{name}'", one
        for name, one in step.materializers.items():
            yield f"materializer of '{name}'", one
    for source in (policy.source_dependencies or ()) if policy is not None else ():
        yield getattr(source, "__qualname__", str(source)), _source_object(step, source)


def _profile_outputs(setting: Any, step: StepDefinition) -> List[str]:
    """Names of the outputs that a step's ``gpu_profile`` setting adds.

    Raises:
        SettingsError: the step has an output with one of these names.
    """
    names = output_names(setting)
    for name in names:
        if name in step.outputs:
            raise SettingsError(
                f"step '{step.name}' has an output '{name}', but @gpu_profile needs that name; "
                "give it another artifact_prefix"
            )
    return names


def _outputs(step: StepDefinition, profile: List[str]) -> Any:
    tags = {k: [str(t) for t in o.config.get("tags") or ()] for k, o in step.outputs.items()}
    tags.update({k: [PROFILE_TAG] for k in profile})
    if any(tags.values()):
        return {k: {"tags": t} if t else {} for k, t in tags.items()}
    return list(tags)


def _parameter(value: Any) -> Dict[str, Any]:
    kind = {bool: "bool", int: "int", float: "float", str: "str"}.get(type(value), "json")
    return {"type": kind, "default": value}


def _hook_reference(hook: Any) -> str:
    if isinstance(hook, str):
        return hook
    return f"{hook.__module__}:{getattr(hook, '__qualname__', type(hook).__qualname__)}"


def _source(step: StepDefinition) -> str:
    import inspect

    code = getattr(inspect.unwrap(step.entrypoint), "__code__", None)
    if code is None:
        return step.reference()
    path = code.co_filename
    if os.path.isabs(path):
        near = os.path.relpath(path)
        path = path if near.startswith("..") else near
    return f"{path}:{code.co_firstlineno}"


def _source_object(step: StepDefinition, source: Any) -> Any:
    if not isinstance(source, str):
        return source
    import importlib

    for end in range(source.count(".") + 1):
        parts = source.rsplit(".", end)
        try:
            found: Any = importlib.import_module(parts[0])
            for name in parts[1:]:
                found = getattr(found, name)
            return found
        except (ImportError, AttributeError):
            continue
    raise StepInterfaceError(
        f"step '{step.name}': cache_policy names the source '{source}', which can't be imported"
    )


def _apply_policy(spec: Dict[str, Any], policy: CachePolicy, inputs: Mapping[str, Any]) -> None:
    """Apply the parts of a cache policy that depend on this call's inputs."""
    cache = dict(spec.get("cache") or {})
    ignored = list(cache.pop("ignore_inputs", None) or ())
    for key, value in inputs.items():
        is_literal = isinstance(value, dict) and "value" in value
        if is_literal and lenient() and key in ignored:
            ignored.remove(key)  # ZenML's ignored inputs are artifacts
        contents = policy.include_artifact_values or policy.include_artifact_ids
        if not (policy.include_step_parameters if is_literal else contents):
            ignored.append(key)
    if ignored:
        cache["ignore_inputs"] = list(dict.fromkeys(ignored))
    if policy.cache_func is not None:
        cache["salt"] = _digest_of(policy.cache_func())
    spec.pop("cache", None)
    if cache:
        spec["cache"] = cache


def _digest_of(data: Any) -> str:
    import hashlib
    import json

    text = json.dumps(data, sort_keys=True, default=repr)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:32]
