"""Pipelines that this machine starts by itself, or when a program asks: schedules and snapshots.

``stoker._deployed`` keeps them, with the program's code as it is then, the pipeline's configuration
and its arguments. ``python -m stoker._zen.deployed FOLDER`` is what starts a run of one.
"""

from __future__ import annotations

import importlib
import inspect
import json
import os
import re
import sys
import uuid
from typing import Any, Dict, Iterator, List, Mapping, NamedTuple, Optional, Tuple

from .. import _deployed as shared
from .. import _runfile
from .._base import PACKAGE
from .._base.errors import InWorkerError, SettingsError, StokerError, end_in_one_line
from .._decorators.pipeline import Pipeline, refuse_in_worker
from .._definition.jsonable import NotJsonError, exact
from .._definition.layers import RunConfig, as_patch
from .._engine.compiled import main_file
from .._engine.failures import PipelineFailed
from ..materializers import _json
from . import stacks, whole


def keep(
    pipeline: Any, arguments: Tuple[Any, Dict[str, Any]], kind: str, title: str, **more: Any
) -> Dict[str, Any]:
    """Keep a pipeline with its arguments; returns the record.

    Args:
        kind: ``schedule`` or ``snapshot``. title: its name.
        more: further fields of the record.

    Raises:
        SettingsError: it can't be found or called again from its files.
    """
    refuse_in_worker(f"pipeline '{pipeline.name}'")
    whole.refuse_import(f"pipeline '{pipeline.name}' is kept")
    args, kwargs = arguments
    pipeline.prepare(*args, **kwargs)
    place = _place(pipeline)
    made = str(uuid.uuid4())
    word = re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-") or kind
    record = {
        "name": f"{word[:150]}-{made[:8]}",
        "id": made,
        "kind": kind,
        "title": title,
        "pipeline": pipeline.name,
        "module": place.module,
        "attribute": place.attribute,
        "file": os.path.relpath(place.program, place.root),
        "source": place.program,
        "cwd": os.getcwd(),
        "python": sys.executable,
        "env": {**shared.kept_environment(), "ZENML_ACTIVE_STACK_NAME": stacks.active_name()},
        "arguments": _plain(pipeline, args, kwargs),
        "configuration": _configuration(pipeline, place.written),
        "schedule": None,
        **more,
    }
    return shared.write(record, shared.sources(place.root))


def listed(kind: str) -> Iterator[Dict[str, Any]]:
    """Records of a kind."""
    return (one for one in shared.listed("pipeline") if one["kind"] == kind)


def taken(kind: str, title: str, pipeline: Optional[str] = None) -> List[Dict[str, Any]]:
    """Records of a kind and name, of a pipeline if one is given."""
    some = (one for one in listed(kind) if one["title"] == title)
    return [one for one in some if pipeline in (None, one["pipeline"])]


class _Place(NamedTuple):
    """Where a pipeline is: its program's file, the folder from which that imports, the module (empty:
    the program itself) and the name in it; and the pipeline as it is written there."""

    root: str
    program: str
    module: str
    attribute: str
    written: Any


def _place(pipeline: Any) -> _Place:
    module = str(pipeline.entrypoint.__module__)
    source = os.path.abspath(inspect.getsourcefile(pipeline.entrypoint) or "")
    program = main_file()
    if program is None or program.startswith(PACKAGE + os.sep):  # a command imported the module
        program = None if module == "__main__" else source
    if program is None:
        raise SettingsError(
            f"pipeline '{pipeline.name}': its program isn't a file, so nothing can start it later"
        )
    root = os.path.dirname(program)
    if source == program:
        for _ in range(module.count(".")):
            root = os.path.dirname(root)
        module = module if "." in module else ""
    known = pipeline.entrypoint.__globals__
    for name, value in known.items():
        if isinstance(value, Pipeline) and value.entrypoint is pipeline.entrypoint:
            return _Place(root, program, module, name, value)
    raise SettingsError(
        f"pipeline '{pipeline.name}' is no global of its module, so nothing can find it later: "
        "define it outside of functions and classes"
    )


def _plain(pipeline: Any, args: Any, kwargs: Dict[str, Any]) -> Dict[str, Any]:
    found = {}
    for key, value in pipeline.signature.bind_partial(*args, **kwargs).arguments.items():
        try:
            found[key] = exact(value)
        except NotJsonError as bad:
            raise SettingsError(
                f"pipeline '{pipeline.name}': the value of '{key}' can't be kept for later runs: {bad}"
            ) from None
    return found


def _configuration(pipeline: Any, written: Any) -> Dict[str, Any]:
    """What :func:`_restored` reads: layers as they are merged, but for what the code itself says."""
    layer, run = pipeline.folded()
    steps = {
        name: {"layer": _kept(name, patch.layer, {}), "parameters": patch.parameters}
        for name, patch in run.steps.items()
    }
    kept = {"layer": _kept(pipeline.name, layer, written.layer), "run_name": run.run_name}
    return {**kept, "parameters": run.parameters, "steps": steps}


def _kept(name: str, layer: Mapping[str, Any], written: Mapping[str, Any]) -> Dict[str, Any]:
    found = {}
    for key, value in layer.items():
        try:
            found[key] = json.loads(json.dumps(value))
        except TypeError:  # a function, or an object
            if written.get(key) != value:
                raise SettingsError(
                    f"'{name}': {key} can't be kept for later runs: give it to the decorator"
                ) from None
    return found


# ---------------------------------------------------------------------------- a run


def start(
    record: Mapping[str, Any],
    configuration: Optional[Mapping[str, Any]] = None,
    env: Optional[Mapping[str, str]] = None,
) -> Tuple[str, Any]:
    """Start a run; returns the engine's id of it as soon as there is one, and its process.

    Args:
        configuration: a run configuration that wins over what is kept. env: further variables.

    Raises:
        RuntimeError: the program ended before it had a run.
    """
    whole.refuse_import(f"a run of '{record['title']}' is started")
    words = ["--configuration", json.dumps(configuration)] if configuration else []
    started = shared.start(record, words, env=env)
    return str(started.wait()["run_id"]), started.process


def main(words: List[str]) -> int:
    """Run a kept pipeline; returns the exit status."""
    import argparse

    parser = argparse.ArgumentParser(prog="python -m stoker._zen.deployed", allow_abbrev=False)
    parser.add_argument("folder")
    parser.add_argument("--configuration", type=json.loads, default={})
    parser.add_argument("--runner-attribute-file")
    given = parser.parse_args(words)
    shared.taken_from_environment()
    if given.runner_attribute_file:
        whole.told.append(lambda run: _tell(given.runner_attribute_file, run))
    try:
        place, name = os.path.split(given.folder)
        record = shared.find(name, os.path.dirname(place))
        whole.started_by[record["kind"]] = record["id"]
        arguments = {k: _json.decode(v) for k, v in record["arguments"].items()}
        configuration = dict(given.configuration)
        arguments.update(configuration.pop("parameters", None) or {})
        pipeline = _restored(record, os.path.join(given.folder, record["code"]))
        pipeline._runs.append(RunConfig("run configuration", configuration))
        pipeline(**arguments)
    except PipelineFailed:
        return 1  # the engine has reported it
    except StokerError as bad:
        end_in_one_line(type(bad), bad, bad.__traceback__, "")
    return 0


def _tell(path: str, run: str) -> None:
    with open(f"{path}.new", "w", encoding="utf-8") as stream:
        json.dump({"run_id": run}, stream)
    os.replace(f"{path}.new", path)


def _restored(record: Mapping[str, Any], code: str) -> Any:
    """The pipeline from the copy of its program's code, with the configuration that was kept."""
    _runfile.file = os.path.join(code, record["file"])
    _runfile.name = record["attribute"]
    sys.argv = [_runfile.file]
    whole.importing.append(_runfile.file)
    try:
        written = getattr(_imported(record["module"], code), record["attribute"])
    finally:
        whole.importing.clear()
    kept = record["configuration"]
    pipeline = written.copy()
    pipeline.layer = {**written.layer, **kept["layer"]}
    run = RunConfig(f"pipeline '{pipeline.name}'", {})
    run.run_name, run.parameters = kept["run_name"], kept["parameters"]
    for name, patch in kept["steps"].items():
        run.steps[name] = as_patch(name, {})
        run.steps[name].layer, run.steps[name].parameters = patch["layer"], patch["parameters"]
    pipeline._runs = [run]
    pipeline.name = record["pipeline"]
    return pipeline


def _imported(module: str, code: str) -> Any:
    """The module; of a program that isn't under ``if __name__``, what it defines until then."""
    if module:
        sys.path.insert(0, code)
        return importlib.import_module(module)
    assert _runfile.file is not None
    try:
        return _runfile.load(_runfile.file)
    except InWorkerError:
        return sys.modules[os.path.splitext(os.path.basename(_runfile.file))[0]]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
