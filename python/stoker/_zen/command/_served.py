"""``zenml model-deployer models …``: servers of models on this machine."""

from __future__ import annotations

from typing import Any, List

from .. import stacks
from ..mlflow_services import START_STOP_S, MLFlowModelDeployer
from ..page import Page
from ._words import YES, Column, Commands, fail, parse, say, show, table, text_of

_MODELS = ["model-deployer", "models"]
_COLUMNS = [
    Column("status", lambda s: s.status.state.value),
    Column("uuid", lambda s: str(s.uuid)),
    Column("pipeline_name", lambda s: s.config.pipeline_name),
    Column("pipeline_step_name", lambda s: s.config.pipeline_step_name),
    Column("model_name", lambda s: s.config.model_name),
    Column("model_version", lambda s: s.config.model_version),
]
_FILTERS = {
    "pipeline": "pipeline_name",
    "step": "pipeline_step_name",
    "model": "model_name",
    "model_version": "model_version",
    "flavor": "flavor",
}


def _deployer() -> Any:
    found = stacks.active().model_deployer
    if not isinstance(found, MLFlowModelDeployer):
        found = MLFlowModelDeployer("mlflow", {})
    return found


def _list(words: List[str]) -> int:
    options = [
        *(("--step", "-s"), ("--pipeline", "-n"), ("--model", "-m"), ("--model-version", "-v")),
        *(("--flavor", "-f"), ("--output", "-o")),
    ]
    given = parse([*_MODELS, "list"], words, options, flags=[("--running",)])
    asked = {name: getattr(given, key) for key, name in _FILTERS.items()}
    found = _deployer().find_model_server(running=True if given.running else None, **asked)
    page = Page(found, len(found), size=max(20, len(found)))
    return show(page, _COLUMNS, given.output or "table")


def _describe(words: List[str]) -> int:
    service = _one("describe", words)
    told = {"STATUS": service.status.state.value, **_deployer().get_model_server_info(service)}
    table(["PROPERTY", "VALUE"], [[key, text_of(value)] for key, value in told.items()])
    return 0


def _one(word: str, words: List[str]) -> Any:
    return _deployer()._one(parse([*_MODELS, word], words, names=["uuid"]).uuid)


def _get_url(words: List[str]) -> int:
    url = _one("get-url", words).prediction_url
    if url is None:
        return fail("the server isn't running: `zenml model-deployer models start UUID`")
    return say(url)


def _start(words: List[str]) -> int:
    given = parse([*_MODELS, "start"], words, [("--timeout", "-t")], ["uuid"])
    _deployer().start_model_server(given.uuid, int(given.timeout or START_STOP_S))
    return say(f"Model server {given.uuid} was started.")


def _ended(word: str, words: List[str]) -> Any:
    flags = [*YES, ("--force", "-f")]
    given = parse([*_MODELS, word], words, [("--timeout", "-t")], ["uuid"], flags)
    function = getattr(_deployer(), f"{word}_model_server")
    function(given.uuid, int(given.timeout or START_STOP_S), given.force)
    return given.uuid


def _stop(words: List[str]) -> int:
    return say(f"Model server {_ended('stop', words)} was stopped.")


def _delete(words: List[str]) -> int:
    return say(f"Model server {_ended('delete', words)} was deleted.")


def _logs(words: List[str]) -> int:
    given = parse([*_MODELS, "logs"], words, [("--tail", "-t")], ["uuid"], [("--follow", "-f")])
    tail = int(given.tail) if given.tail else None
    for line in _deployer().get_model_server_logs(given.uuid, given.follow, tail):
        print(line, flush=True)
    return 0


COMMANDS: Commands = {
    ("model-deployer", "models", "list"): _list,
    ("model-deployer", "models", "describe"): _describe,
    ("model-deployer", "models", "get-url"): _get_url,
    ("model-deployer", "models", "start"): _start,
    ("model-deployer", "models", "stop"): _stop,
    ("model-deployer", "models", "delete"): _delete,
    ("model-deployer", "models", "logs"): _logs,
}
