"""Finds the environment that ``accelerate launch`` makes of its options, with the installed
accelerate.

Accelerate's parser checks the options. Its ``launch_command`` runs until it would start processes;
Stoker's ranks get the environment of that moment, as accelerate's scripts do. The user's default
config file (``accelerate config``) doesn't count, only a ``config_file`` in the options.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import os
import re
import sys
from types import SimpleNamespace

from .._base.errors import NotYetError, SettingsError, did_you_mean, lenient, say, warn
from .entry import NOTES

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, Iterator, List, Mapping, NoReturn, Optional

# Options that name the program, or start it otherwise than as ranks of this machine.
_NOT_HERE = {
    "help": "it prints accelerate's help",
    "training_script": "the step's function is what runs",
    "training_script_args": "the step passes its arguments",
    "module": "the step's function is what runs",
    "no_python": "the step's function is what runs",
    "mpirun_hostfile": "Stoker starts the ranks itself, without MPI",
    "deepspeed_hostfile": "Stoker knows its machines, and starts the ranks on each itself",
    "machine_rank": "Stoker numbers the machines",
    "main_process_ip": "Stoker knows its machines' addresses",
}
_OF_CONFIG_FILES = {"use_cpu": "cpu"}  # option's name in accelerate's config files → the option
_OF_GPUS = ("multi_gpu", "use_deepspeed", "use_fsdp", "use_megatron_lm", "use_parallelism_config")
_SHARDING = {  # sharding, which ranks on CPUs lack → its distributed_type in a config file
    "use_fsdp": "FSDP",
    "use_deepspeed": "DEEPSPEED",
    "use_megatron_lm": "MEGATRON_LM",
}
_EXCLUDE_CPU = (*_SHARDING, "multi_gpu")
_PLACE = ("MASTER_ADDR", "MASTER_PORT")  # the launcher sets them


class _Refused(Exception):
    """The parser's sentence about an option."""


class _Stop(BaseException):
    """Ends accelerate's launcher where it would start processes. Nothing in accelerate catches
    it."""


def available() -> bool:
    """Whether accelerate and torch can be imported here; imports neither."""
    with contextlib.suppress(ImportError, ValueError):
        return all(
            name in sys.modules or importlib.util.find_spec(name) is not None
            for name in ("accelerate", "torch")
        )
    return False


def checked(where: str, options: Mapping[str, Any]) -> Dict[str, Any]:
    """The options under the parser's names, checked by the parser. The shim drops unknown options
    and wrong values.

    Raises:
        SettingsError: an unknown option, a value of a wrong type, or one that isn't a choice.
        ImportError: accelerate can't be imported.
    """
    parser = _parser()
    actions = _actions(parser)
    kept: Dict[str, Any] = {}
    for name, value in options.items():
        action = actions.get(name.replace("-", "_"))
        if value is None:
            continue
        trouble = None
        if action is None:
            alias = _OF_CONFIG_FILES.get(name)
            hint = f"; did you mean '{alias}'?" if alias else did_you_mean(name, actions)
            trouble = f"accelerate launch has no option '{name}'{hint}"
        elif action.dest in _NOT_HERE:
            trouble = f"option '{name}' has no meaning here: {_NOT_HERE[action.dest]}"
        else:
            with contextlib.suppress(_Refused):
                _parse(parser, {action.dest: value}, actions)
                kept[action.dest] = value
                continue
            trouble = _why_wrong(name, value, action)
        if not lenient():
            raise SettingsError(f"{where}: {trouble}")
        warn(f"{where}: {trouble}{' It' if trouble.endswith('?') else '; it'} is ignored")
    both = [name for name in _EXCLUDE_CPU if kept.get(name)] if kept.get("cpu") else []
    if both:
        trouble = f"options 'cpu' and '{both[0]}' exclude each other, as accelerate launch says"
        if not lenient():
            raise SettingsError(f"{where}: {trouble}; leave one of them out")
        warn(f"{where}: {trouble}; '{both[0]}' is ignored")
        for name in both:
            del kept[name]
    return kept


def _why_wrong(name: str, value: Any, action: argparse.Action) -> str:
    if action.choices is not None:
        known = [str(one) for one in action.choices]
        hint = did_you_mean(str(value), known)
        return f"option '{name}' is {value!r}, but accelerate takes {', '.join(known)}{hint}"
    wanted = "text, or a list of them"
    if action.nargs == 0 or action.type is bool:
        wanted = "True or False"
    elif action.type in (int, float):
        wanted = "an int" if action.type is int else "a number"
    return f"option '{name}' is {value!r}, but accelerate takes {wanted}"


def from_config_file(where: str, path: str) -> Dict[str, int]:
    """The numbers in a config file that the gang needs before accelerate can read the file.

    Raises:
        SettingsError: the file can't be read.
    """
    try:
        with open(path, encoding="utf-8-sig") as stream:
            text = stream.read()
    except (OSError, UnicodeDecodeError) as exc:
        raise SettingsError(f"{where}: config_file '{path}' can't be read: {exc}") from None
    found = {}
    for name in ("num_processes", "num_machines", "main_process_port"):
        match = re.search(rf"""^[\s{{,]*["']?{name}["']?\s*:\s*(-?[0-9]+)""", text, re.M)
        if match:
            found[name] = int(match.group(1))
    return found


def environment(
    options: Mapping[str, Any], ranks: int, devices: int, nodes: int = 1, node: int = 0
) -> Dict[str, str]:
    """The variables that accelerate's launcher adds or changes for these options.

    Args:
        options: as given to the decorator.
        ranks: number of processes on each machine.
        devices: number of devices granted to the step. If 0, the ranks compute on the CPU, whatever
            the options say (policy fit), and communicate by gloo.
        nodes: number of machines.
        node: number of this machine, from 0.

    Raises:
        ImportError: accelerate, or what an option of it needs, isn't installed.
        SettingsError, ValueError: accelerate refuses the options; a ValueError has accelerate's
            words.
    """
    given = checked("run_with_accelerate", options)
    on_cpu = devices == 0
    if on_cpu:
        _tell_of_sharding(given)
        _fit_to_cpu(given)
    elif ranks * nodes < 2:
        given.pop("multi_gpu", None)  # accelerate refuses this option for one process
    given.update(num_processes=ranks * nodes, num_machines=nodes)
    given["main_process_port"] = 0  # any port: the launcher reserves one itself
    if nodes > 1:
        given.update(machine_rank=node, main_process_ip="127.0.0.1", same_network=True)
        # the other launchers start processes by ssh
        given["deepspeed_multinode_launcher"] = "standard"
    if devices and given.get("gpu_ids") not in (None, "all"):
        given["gpu_ids"] = _of_granted(given["gpu_ids"], os.environ.get("CUDA_VISIBLE_DEVICES", ""))
    parser = _parser()
    args = _parse(parser, given, _actions(parser))
    if args.tpu and not args.cpu:
        raise NotYetError(
            "run_with_accelerate: tpu=True comes with a later version of Stoker; "
            "leave it out and start torch_xla's processes inside of the step"
        )
    made = _launched(args)
    if on_cpu and made.get("ACCELERATE_MIXED_PRECISION") == "fp16":  # from a config file
        made["ACCELERATE_MIXED_PRECISION"] = _full_precision("fp16")
    return {
        name: value
        for name, value in made.items()
        if os.environ.get(name) != value and name not in _PLACE
    }


def _fit_to_cpu(given: Dict[str, Any]) -> None:
    """Make the ranks plain data-parallel: accelerate has nothing else for CPUs, and they connect
    only with ``cpu``."""
    for name in _OF_GPUS:
        given.pop(name, None)
    given["cpu"] = True
    if given.get("mixed_precision") in ("fp16", "fp8"):
        given["mixed_precision"] = _full_precision(given["mixed_precision"])


def _tell_of_sharding(given: Mapping[str, Any]) -> None:
    """Note that sharding has no effect: on CPUs accelerate has only MULTI_CPU with
    DistributedDataParallel."""
    asked = next((name for name in _SHARDING if given.get(name)), None)
    if asked is None and given.get("config_file") is not None:
        from accelerate.commands.config import load_config_from_file

        kind = getattr(load_config_from_file(given["config_file"]), "distributed_type", "")
        kind = str(getattr(kind, "value", kind))
        asked = (
            f"distributed_type {kind} of the config file" if kind in _SHARDING.values() else None
        )
    if asked is not None:
        _note(
            f"run_with_accelerate: {asked} needs devices, and this step has none: its ranks are plain data "
            "parallel (DDP), each with the whole model"
        )


def _note(text: str) -> None:
    """Write a note to the step's log and to the run's warnings; rank 0 passes it on."""
    say(text)
    before = os.environ.get(NOTES)
    os.environ[NOTES] = text if before is None else f"{before}\n{text}"


def _full_precision(asked: str) -> str:
    _note(
        f"run_with_accelerate: {asked} needs a device, and this step has none: it runs in full precision"
    )
    return "no"


def _of_granted(ids: Any, mask: str) -> str:
    """The mask of the devices that ``gpu_ids`` name among those granted to the step."""
    granted = mask.split(",") if mask else []
    chosen = []
    for one in ids if isinstance(ids, (list, tuple)) else str(ids).split(","):
        text = str(one).strip()
        if not text.isdigit() or int(text) >= len(granted):
            raise SettingsError(
                f"run_with_accelerate: gpu_ids names GPU {text}, but the step was granted {len(granted)} "
                "(they count from 0); ask for as many by gpu_count, or leave gpu_ids out"
            )
        chosen.append(granted[int(text)])
    return ",".join(chosen)


# ---------------------------------------------------------------------------- accelerate itself


def _launch_module() -> Any:
    try:
        from accelerate.commands import launch
    except ImportError as exc:
        missing = (exc.name or "").split(".")[0]
        if missing in ("accelerate", "torch"):
            raise ModuleNotFoundError(
                f"run_with_accelerate needs '{missing}' in the step's environment: pip install accelerate "
                "(in an image: add it to DockerSettings(requirements=[…]))",
                name=missing,
            ) from exc
        raise
    return launch


def _parser() -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = _launch_module().launch_command_parser()

    def refuse(message: str) -> NoReturn:
        raise _Refused(message)

    parser.error = refuse  # type: ignore[method-assign]
    return parser


def _actions(parser: argparse.ArgumentParser) -> Dict[str, argparse.Action]:
    """Each name of an option, as a Python name → the option."""
    found = {}
    for action in parser._actions:
        for text in action.option_strings:
            if text.startswith("--"):
                found[text[2:].replace("-", "_")] = action
        found.setdefault(action.dest, action)
    return found


def _parse(
    parser: argparse.ArgumentParser,
    options: Mapping[str, Any],
    actions: Mapping[str, argparse.Action],
) -> argparse.Namespace:
    words: List[str] = []
    direct: Dict[str, bool] = {}
    for name, value in options.items():
        action = actions[name]
        flag = max(action.option_strings, key=len)
        if action.nargs == 0 or action.type is bool:
            if not isinstance(value, bool):
                raise _Refused(name)
            if action.nargs == 0 and value:
                words.append(flag)
            elif action.type is bool:
                direct[action.dest] = value  # argparse takes any text, even "False", for True
            continue
        if isinstance(value, bool) and action.type in (int, float):
            raise _Refused(name)
        if isinstance(value, (list, tuple)):
            value = ",".join(map(str, value))
        words.append(f"{flag}={value}")
    args = parser.parse_args([*words, "step.py"])
    for name, value in direct.items():
        setattr(args, name, value)
    return args


def _launched(args: argparse.Namespace) -> Dict[str, str]:
    """The environment in which accelerate's launcher would start its processes."""
    launch = _launch_module()
    found: Dict[str, str] = {}

    def run(_: Any) -> NoReturn:  # replaces torchrun's run; the environment is complete here
        found.update(os.environ)
        raise _Stop

    def popen(_: Any, env: Optional[Dict[str, str]] = None, **__: Any) -> NoReturn:
        found.update(os.environ if env is None else env)
        raise _Stop

    processes = SimpleNamespace(**{**vars(launch.subprocess), "Popen": popen})
    with contextlib.ExitStack() as undo:
        undo.enter_context(_replaced(launch, "default_config_file", os.devnull))
        undo.enter_context(_replaced(launch, "subprocess", processes))
        if not args.cpu:
            from torch.distributed import run as elastic

            undo.enter_context(_replaced(elastic, "run", run))
        undo.enter_context(_quiet(launch.logger))
        undo.enter_context(contextlib.suppress(_Stop))
        launch.launch_command(args)
    return found


@contextlib.contextmanager
def _replaced(owner: Any, name: str, value: Any) -> Iterator[None]:
    before = getattr(owner, name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, before)


@contextlib.contextmanager
def _quiet(logger: Any) -> Iterator[None]:
    """Silence the logger: its "values not passed to accelerate launch" don't help the author of a
    decorator."""
    before = logger.disabled
    logger.disabled = True
    try:
        yield
    finally:
        logger.disabled = before
