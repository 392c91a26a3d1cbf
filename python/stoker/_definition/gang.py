"""The ``gang`` setting, made from the options of decorators for steps with several processes."""

from __future__ import annotations

import os
from typing import Any, Dict, List, Mapping

from .._base.errors import SettingsError, refuse_unknown
from .entry import Launch

_MAX_RANKS, _MAX_RESTARTS = 1024, 1000  # the engine's limits
_TORCHRUN = (
    *("nproc_per_node", "nnodes", "master_port", "max_restarts"),
    *("entrypoint", "entrypoint_args"),
)


def check_launch(launch: Launch, where: str) -> None:
    """Check the options with accelerate's parser if accelerate can be imported.

    Raises:
        SettingsError: an unknown option or a wrong value (the shim drops it with a warning).
    """
    if launch.kind == "accelerate" and launch.options:
        from . import accelerate

        if accelerate.available():
            launch.options = accelerate.checked(f"{where}: run_with_accelerate", launch.options)


def accelerate_gang(where: str, options: Dict[str, Any]) -> Dict[str, Any]:
    """The ``gang`` setting of the options; accelerate's parser checks the other ones later, in the
    step."""
    from . import accelerate

    said = dict(options)
    if options.get("config_file") is not None:
        options["config_file"] = os.path.abspath(str(options["config_file"]))
        said = {**accelerate.from_config_file(where, options["config_file"]), **said}
    machines = _machines(where, "num_machines", said.get("num_machines"))
    ranks = said.get("num_processes")
    if machines > 1 and isinstance(ranks, int) and not isinstance(ranks, bool):
        if ranks % machines or ranks < machines:
            raise SettingsError(
                f"{where}: num_processes is {ranks}, which num_machines {machines} can't share equally; it counts "
                f"the processes of all machines: make it a multiple of {machines}"
            )
        said["num_processes"] = ranks // machines
    return _gang_of(where, said, "num_processes", "main_process_port", machines)


def torchrun_gang(where: str, options: Dict[str, Any]) -> Dict[str, Any]:
    refuse_unknown(where, "option", options, _TORCHRUN)
    machines = _machines(where, "nnodes", options.get("nnodes"))
    said = dict(options)
    if said.get("nproc_per_node") in ("gpu", "auto"):
        del said["nproc_per_node"]
    return _gang_of(where, said, "nproc_per_node", "master_port", machines)


def find_script(where: str, func: Any, options: Dict[str, Any]) -> None:
    """Replace the script and its arguments in ``options`` by an absolute path and a list of
    words."""
    given = options.get("entrypoint")
    words = options.get("entrypoint_args")
    if given is None:
        if words is not None:
            raise SettingsError(
                f"{where}: entrypoint_args need a script; name it by entrypoint, or give the "
                "step's function its arguments in the pipeline"
            )
        return
    if not isinstance(given, (str, os.PathLike)):
        raise SettingsError(
            f"{where}: entrypoint is {given!r}; it must be the path of a script (the step's "
            "function runs anyway)"
        )
    code = getattr(func, "__code__", None)
    folders = [os.path.dirname(os.path.abspath(code.co_filename))] if code is not None else []
    folders.append(os.getcwd())
    paths = [os.path.join(folder, os.fspath(given)) for folder in folders]
    found = next((path for path in paths if os.path.isfile(path)), None)
    if found is None:
        raise SettingsError(
            f"{where}: entrypoint '{os.fspath(given)}' was not found in "
            f"{' and '.join(dict.fromkeys(folders))}"
        )
    options["entrypoint"] = found
    options["entrypoint_args"] = script_words(where, words)


def script_words(where: str, given: Any) -> List[str]:
    """A script's words, from a sequence or a mapping of options.

    Raises:
        SettingsError: ``given`` is neither.
    """
    if given is None:
        return []
    if isinstance(given, (list, tuple)):
        return [str(word) for word in given]
    if not hasattr(given, "items"):
        raise SettingsError(
            f"{where}: entrypoint_args is {given!r}; it must be a list of words or a mapping of options"
        )
    words = []
    for name, value in given.items():
        if value is None or value is False:
            continue
        words.append(f"--{name}")
        if isinstance(value, (list, tuple)):
            words += [str(one) for one in value]
        elif value is not True:
            words.append(str(value))
    return words


def _gang_of(
    where: str, said: Mapping[str, Any], ranks: str, port: str, machines: int
) -> Dict[str, Any]:
    gang: Dict[str, Any] = {"ranks": "gpus"}
    if machines > 1:
        gang["nodes"] = machines
    for key, option, low, high in (
        ("ranks", ranks, 1, _MAX_RANKS),
        ("restarts", "max_restarts", 0, _MAX_RESTARTS),
        ("port", port, 0, 65535),
    ):
        value = said.get(option)
        if value is None:
            continue
        if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
            words = ', "gpu" or "auto"' if option == "nproc_per_node" else ""
            if option == "num_processes" and machines > 1:
                words = f" on each of {machines} machines"
            raise SettingsError(
                f"{where}: {option} is {value!r}; it must be an int from {low} to {high}{words}"
            )
        if key == "ranks" or value:
            gang[key] = value  # port 0 means any, like no port
    return gang


def _machines(where: str, option: str, value: Any) -> int:
    """Number of machines; torchrun also writes 2 as ``"2:2"``, a config file as ``"2"``."""
    if value is None:
        return 1
    low, _, high = str(value).partition(":")
    if isinstance(value, bool) or not low.isdigit() or high not in ("", low) or not int(low):
        raise SettingsError(
            f"{where}: {option} is {value!r}; it must be a number of machines (one that changes while the "
            "step runs isn't possible)"
        )
    return int(low)
