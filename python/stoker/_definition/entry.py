"""A step as the processes that execute it see it.

The front passes a registry ``{step name: Entry}`` to the fork server. A clean server and the worker
find the same entry by ``module:qualname`` in ``task.json`` (``_worker/resolve.py``).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Callable, Dict, List, Mapping, Optional, Tuple

NOTES = "STOKER_GANG_NOTES"  # a variable: lines that rank 0 reports as warnings of the run
_GPU_WAYS = ("multi_gpu", "use_deepspeed", "use_fsdp", "use_megatron_lm")


def kind_name(kind: str) -> str:
    """Name of the decorator of this kind."""
    return "torchrun" if kind == "torchrun" else "run_with_accelerate"


class Launch:
    """How to start a step's processes: by the rules of ``accelerate`` or ``torchrun``, with which
    options."""

    def __init__(self, kind: str, options: Mapping[str, Any], all_ranks: bool) -> None:
        self.kind = kind
        self.options = dict(options)
        self.all_ranks = all_ranks

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Launch) and vars(self) == vars(other)

    __hash__ = None  # type: ignore[assignment]

    def code(self) -> Dict[str, str]:
        """The parts that count in the step's cache key."""
        import hashlib
        import json

        text = json.dumps([self.options, self.all_ranks], sort_keys=True, default=repr)
        for name in ("config_file", "entrypoint"):
            if self.options.get(name):
                with open(self.options[name], encoding="utf-8") as stream:
                    text += stream.read()
        return {f"options of {self.decorator}": hashlib.sha256(text.encode()).hexdigest()[:32]}

    @property
    def decorator(self) -> str:
        """The decorator's name."""
        return kind_name(self.kind)

    @property
    def uses(self) -> List[str]:
        """Frameworks that every rank loads, even if its function doesn't import them."""
        return ["torch"] if self.kind == "accelerate" else []

    def gpus(self) -> int:
        """GPUs of each machine that the options imply; 0 if they imply none."""
        options = self.options
        if options.get("cpu") or not any(options.get(one) for one in _GPU_WAYS):
            return 0
        return int(options.get("num_processes") or 0) // int(options.get("num_machines") or 1)


@dataclass
class Entry:
    """Everything that a process needs to execute one step.

    Attributes:
        func: the user's function.
        output_names: names of the outputs, in order; none for ``-> None``.
        output_types: their annotations; ``typing.Any`` if there is none.
        materializers: output name → materializer class; ``"*"`` stands for every output.
        hooks: ``on_start``, ``on_success``, ``on_failure``, ``on_end`` → callable.
        importable: (module, qualified name) under which a fresh interpreter finds the same step, or
            None (closures, notebooks).
        annotations: parameter name → type, ``Annotated`` stripped.
        is_async: the function is a coroutine function.
        launch: how to start its processes, for a step with several.
        output_configs: output name → ``ArtifactConfig`` as a mapping
            (``name``, ``version``, ``tags``, ``run_metadata``, ``artifact_type``; only the given
            ones).
        patience: seconds that a rank that failed gives the others to end by themselves.
    """

    func: Callable[..., Any]
    output_names: List[str]
    output_types: List[Any]
    materializers: Dict[str, Any] = field(default_factory=dict)
    hooks: Dict[str, Callable[..., Any]] = field(default_factory=dict)
    importable: Optional[Tuple[str, str]] = None
    annotations: Dict[str, Any] = field(default_factory=dict)
    is_async: bool = False
    output_configs: Dict[str, Dict[str, Any]] = field(default_factory=dict)
    patience: float = 0.0
    launch: Optional[Launch] = None
