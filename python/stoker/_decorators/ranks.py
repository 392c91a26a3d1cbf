"""``@run_with_accelerate`` and ``@torchrun``: steps of many processes.

A decorator sets the step's ``gang`` setting and keeps its options with the step (docs/decisions/0006-ranks.md).
"""

from __future__ import annotations

from typing import Any, Mapping

from .._base import registry
from .._base.errors import SettingsError
from .._definition.entry import Launch, kind_name
from .._definition.gang import accelerate_gang, find_script, torchrun_gang
from .._definition.graph import active_graph
from .._definition.layers import merge
from .step import Step


def run_with_accelerate(_step: Any = None, *, all_ranks: bool = False, **options: Any) -> Any:
    """Run a step on many processes, as ``accelerate launch`` would: put it above ``@step``, bare or with options.

    Args:
        options: those of ``accelerate launch``, checked by the installed accelerate's own parser:
            ``num_processes`` (default: as many as the step was granted GPUs, else one), ``cpu``, ``multi_gpu``,
            ``mixed_precision``, ``config_file`` … The user's default config file never counts.
        all_ranks: each output is a list of what all ranks returned, in order of rank; else it is rank 0's.

    Every rank gets the step's arguments and runs its function. Metadata is that of rank 0. A rank that fails
    fails the step by its own error. ``multi_gpu`` and its kin with ``num_processes`` ask for as many GPUs, unless
    the step's resources say how many; where there are none the ranks run on CPUs (policy ``fit``).
    ``num_machines`` runs it on as many, ``num_processes`` counting the ranks of all (as with accelerate) and
    resources those of each; which machine this is, and where they meet, is Stoker's to say.

    Raises:
        RuntimeError: used on something that is no step, twice, or inside of a pipeline's function.
        SettingsError: an option or value that accelerate doesn't know (a warning in the compatibility shim).

    Example::

        @run_with_accelerate(num_processes=4)
        @step
        def train() -> float: ...
    """
    return _decorator(_step, "accelerate", options, all_ranks)


def torchrun(
    _step: Any = None,
    *,
    nproc_per_node: Any = None,
    entrypoint: Any = None,
    entrypoint_args: Any = None,
    all_ranks: bool = False,
    **options: Any,
) -> Any:
    """Run a step on many processes with the environment that ``torchrun`` makes; put it above ``@step``.

    Args:
        nproc_per_node: number of ranks; ``"gpu"``, ``"auto"`` or None: as many as the step was granted GPUs, else one.
        all_ranks: as in :func:`run_with_accelerate`.
        entrypoint: a Python script that every rank runs as ``__main__``. When all have, they call the step's
            function, which makes the step's outputs of what the script left. It is looked for beside the step's
            file, then in the working directory; it can ask ``get_step_context().inputs`` for the step's arguments, its content
            counts in the cache key, and its exit status other than 0 fails the rank.
        entrypoint_args: its words, or a mapping: ``{"lr": 0.1, "amp": True}`` is ``--lr 0.1 --amp`` (None and False are
            left out, a list is several words).
        options: ``nnodes`` (machines, each with ``nproc_per_node`` ranks), ``master_port``, ``max_restarts``.

    Raises:
        RuntimeError: used on something that is no step, twice, or inside of a pipeline's function.
        SettingsError: an unknown option, a value out of range, or a script that isn't there.

    Example::

        @torchrun(nproc_per_node="gpu")
        @step
        def train() -> float: ...
    """
    options = {"entrypoint": entrypoint, "entrypoint_args": entrypoint_args, **options}
    return _decorator(_step, "torchrun", {"nproc_per_node": nproc_per_node, **options}, all_ranks)


def _decorator(step: Any, kind: str, options: Mapping[str, Any], all_ranks: bool) -> Any:
    if step is None:
        return lambda given: _decorate(given, kind, options, all_ranks)
    return _decorate(step, kind, options, all_ranks)


def _decorate(step: Any, kind: str, options: Mapping[str, Any], all_ranks: bool) -> Any:
    given = {k: v for k, v in options.items() if v is not None}
    said = {**given, **({"all_ranks": True} if all_ranks else {})}
    of_flow = registry.first(registry.decorations, kind_name(kind), step, said)
    if of_flow is not None:
        return of_flow
    launch = Launch(kind, given, all_ranks)
    name = launch.decorator
    example = f"write\n\n    @{name}(...)\n    @step\n    def training_step(...): ..."
    if not isinstance(step, Step):
        what = f"'{step.__name__}'" if callable(step) and hasattr(step, "__name__") else repr(step)
        raise RuntimeError(
            f"`{name}` belongs directly above @step, but {what} is no step: {example}"
        )
    if active_graph() is not None:
        raise RuntimeError(
            f"`{name}` can't be used as a function inside of a pipeline; decorate step '{step.name}' where it is "
            f"defined: {example}"
        )
    if step.launch is not None:
        raise RuntimeError(
            f"step '{step.name}' is launched by `{step.launch.decorator}` already; give all options there: {example}"
        )
    where = f"step '{step.name}': {name}"
    if all_ranks and step.materializers:
        raise SettingsError(
            f"{where}: all_ranks makes each output a list, which output_materializers know nothing of; "
            "leave one of them out"
        )
    if kind == "torchrun":
        find_script(where, step.entrypoint, launch.options)
        gang = torchrun_gang(where, launch.options)
    else:
        gang = accelerate_gang(where, launch.options)
    step.launch = launch
    step.layer = merge(step.layer, {"gang": gang})
    return step
