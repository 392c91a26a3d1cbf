"""Metrics of training libraries, logged by :func:`stoker.log_metrics` without a line of your own.

::

    import stoker
    stoker.autolog()                                       # whatever of these a step uses

    from stoker.callbacks import KerasCallback             # or one by one
    model.fit(x, y, callbacks=[KerasCallback()])

==================== ==============================================================
Keras                ``KerasCallback()`` in ``fit(callbacks=[…])``: after each epoch
PyTorch Lightning    ``LightningLogger()`` in ``Trainer(logger=…)``: all of ``self.log``
Hugging Face         ``HuggingFaceCallback()`` in ``Trainer(callbacks=[…])``: each of its logs
XGBoost              ``XGBoostCallback()`` in ``train(callbacks=[…])``: each of ``evals``, a round
scikit-learn         ``log_estimator(model)`` after ``fit``: the curve that the model kept
TensorBoard          ``SummaryWriter.add_scalar``, by ``autolog()``
==================== ==============================================================

A library is imported when its class is first asked for. Outside of a step nothing is logged.
"""

from __future__ import annotations

import os
import sys
from importlib import import_module

from ._worker.metrics import log_metrics

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any, Callable, Dict, List, Optional

    KerasCallback: Any
    LightningLogger: Any
    HuggingFaceCallback: Any
    XGBoostCallback: Any

__all__ = [
    "HuggingFaceCallback",
    "KerasCallback",
    "LightningLogger",
    "XGBoostCallback",
    "autolog",
    "log_estimator",
]

# Attributes in which estimators keep a value for each iteration, and the metric's name.
_CURVES = {
    "loss_curve_": "loss",
    "validation_scores_": "validation_score",
    "train_score_": "train_score",
    "validation_score_": "validation_score",
}


def _log(values: Mapping[str, Any], step: Optional[int]) -> None:
    """Those of the values that are numbers, if a step runs."""
    if not os.environ.get("STOKER_METRICS"):
        return
    numbers = {}
    for name, value in values.items():
        if not isinstance(value, (str, bytes)) and hasattr(value, "__float__"):
            try:
                numbers[str(name)] = float(value)
            except (TypeError, ValueError, RuntimeError):
                continue  # an array of several
    for reserved in ("step", "time"):
        numbers.pop(reserved, None)
    if numbers:
        log_metrics(numbers, step=step)


def log_estimator(model: Any, prefix: str = "") -> None:
    """Log the curves that a fitted scikit-learn estimator kept: the loss or score of each
    iteration of neural networks and boosted trees.

    Raises:
        TypeError: the estimator kept none.

    Example::

        model = MLPClassifier().fit(x, y)
        log_estimator(model)
    """
    if not _log_curves(model, prefix):
        kept = ", ".join(_CURVES)
        raise TypeError(
            f"log_estimator: {type(model).__name__} kept no curve of its training ({kept}); "
            "use log_metrics for scores"
        )


def _log_curves(model: Any, prefix: str = "") -> bool:
    found = False
    for attribute, name in _CURVES.items():
        curve = getattr(model, attribute, None)
        if curve is None or not hasattr(curve, "__len__"):
            continue
        found = True
        for i, value in enumerate(curve):
            _log({prefix + name: value}, i)
    return found


# --- the libraries' own classes, made when they are first asked for ---


def _keras() -> Any:
    base: Any = import_module("keras").callbacks.Callback

    class KerasCallback(base):  # type: ignore[misc]
        """Logs what Keras tells after each epoch; ``step`` is the epoch, from 0."""

        def on_epoch_end(self, epoch: int, logs: Optional[Dict[str, Any]] = None) -> None:
            _log(logs or {}, epoch)

    return KerasCallback


def _lightning() -> Any:
    try:
        base: Any = import_module("lightning.pytorch.loggers.logger").Logger
    except ImportError:
        base = import_module("pytorch_lightning.loggers.logger").Logger

    class LightningLogger(base):  # type: ignore[misc]
        """Logs everything that ``self.log`` gives to loggers; ``step`` is Lightning's."""

        @property
        def name(self) -> str:
            return "stoker"

        @property
        def version(self) -> str:
            return os.environ.get("STOKER_RUN", "0")

        def log_metrics(self, metrics: Dict[str, Any], step: Optional[int] = None) -> None:
            _log({k: v for k, v in metrics.items() if k != "epoch"}, step)

        def log_hyperparams(self, *_: Any, **__: Any) -> None:
            """Parameters of the pipeline are on record already."""

    return LightningLogger


def _hugging_face() -> Any:
    base: Any = import_module("transformers.trainer_callback").TrainerCallback

    class HuggingFaceCallback(base):  # type: ignore[misc]
        """Logs what the Trainer logs; ``step`` is its global step."""

        def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **_: Any) -> None:
            if state.is_world_process_zero:
                _log({k: v for k, v in (logs or {}).items() if k != "epoch"}, state.global_step)

    return HuggingFaceCallback


def _xgboost() -> Any:
    base: Any = import_module("xgboost.callback").TrainingCallback

    class XGBoostCallback(base):  # type: ignore[misc]
        """Logs each metric of ``evals`` after each round, as ``train-rmse``."""

        def after_iteration(self, model: Any, epoch: int, evals_log: Any) -> bool:
            last: Dict[str, Any] = {}
            for data, metrics in evals_log.items():
                for name, values in metrics.items():
                    value = values[-1]
                    last[f"{data}-{name}"] = value[0] if isinstance(value, tuple) else value
            _log(last, epoch)
            return False

    return XGBoostCallback


_MAKERS: Dict[str, Callable[[], Any]] = {
    "KerasCallback": _keras,
    "LightningLogger": _lightning,
    "HuggingFaceCallback": _hugging_face,
    "XGBoostCallback": _xgboost,
}


def __getattr__(name: str) -> Any:
    if name not in _MAKERS:
        raise AttributeError(f"module 'stoker.callbacks' has no attribute {name!r}")
    return _class(name)


def _class(name: str) -> Any:
    if name not in globals():
        globals()[name] = _MAKERS[name]()
    return globals()[name]


# --- autolog ---


def _wrap(owner: Any, name: str, around: Callable[..., Any]) -> None:
    """Replace a function by ``around(original, *args, **kwargs)``, once."""
    from functools import wraps

    original = getattr(owner, name)
    if getattr(original, "_stoker_autolog", False):
        return

    @wraps(original)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        return around(original, *args, **kwargs)

    wrapped._stoker_autolog = True  # type: ignore[attr-defined]
    setattr(owner, name, wrapped)


def _with_callback(kwargs: Dict[str, Any], name: str) -> Dict[str, Any]:
    kind = _class(name)
    given = kwargs.get("callbacks")
    given = [] if given is None else list(given) if isinstance(given, (list, tuple)) else [given]
    if not any(isinstance(one, kind) for one in given):
        given.append(kind())
    return {**kwargs, "callbacks": given}


def _patch_keras(module: Any) -> None:
    def fit(original: Any, *args: Any, **kwargs: Any) -> Any:
        return original(*args, **_with_callback(kwargs, "KerasCallback"))

    _wrap(module.Model, "fit", fit)


def _patch_lightning(module: Any) -> None:
    def begin(original: Any, self: Any, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        kind = _class("LightningLogger")
        if not any(isinstance(one, kind) for one in self.loggers):
            self.loggers = [*self.loggers, kind()]

    _wrap(module.Trainer, "__init__", begin)


def _patch_hugging_face(module: Any) -> None:
    def begin(original: Any, self: Any, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        kind = _class("HuggingFaceCallback")
        if not any(isinstance(one, kind) for one in self.callback_handler.callbacks):
            self.add_callback(kind())

    _wrap(module.Trainer, "__init__", begin)


def _patch_xgboost(module: Any) -> None:
    def train(original: Any, *args: Any, **kwargs: Any) -> Any:
        return original(*args, **_with_callback(kwargs, "XGBoostCallback"))

    before = module.train
    _wrap(module, "train", train)
    for name in ("xgboost", "xgboost.sklearn"):
        user: Any = sys.modules.get(name)
        if getattr(user, "train", None) is before:
            user.train = module.train


def _patch_estimators(module: Any) -> None:
    def fit(original: Any, self: Any, *args: Any, **kwargs: Any) -> Any:
        fitted = original(self, *args, **kwargs)
        _log_curves(self)
        return fitted

    for kind in list(vars(module).values()):
        if isinstance(kind, type) and "fit" in vars(kind) and kind.__module__ == module.__name__:
            _wrap(kind, "fit", fit)


def _patch_summary_writer(module: Any) -> None:
    def add_scalar(
        original: Any, self: Any, tag: Any, value: Any, *args: Any, **kwargs: Any
    ) -> Any:
        step = args[0] if args else kwargs.get("global_step")
        _log({tag: value}, None if step is None else int(step))
        return original(self, tag, value, *args, **kwargs)

    _wrap(module.SummaryWriter, "add_scalar", add_scalar)


_PATCHES: Dict[str, Callable[[Any], None]] = {
    "torch.utils.tensorboard.writer": _patch_summary_writer,
    "tensorboardX.writer": _patch_summary_writer,
    "keras": _patch_keras,
    "lightning.pytorch.trainer.trainer": _patch_lightning,
    "pytorch_lightning.trainer.trainer": _patch_lightning,
    "transformers.trainer": _patch_hugging_face,
    "xgboost.training": _patch_xgboost,
    "sklearn.neural_network._multilayer_perceptron": _patch_estimators,
    "sklearn.ensemble._gb": _patch_estimators,
    "sklearn.ensemble._hist_gradient_boosting.gradient_boosting": _patch_estimators,
}


class _Finder:
    """Patches a library after its import."""

    _busy: List[str] = []

    @classmethod
    def find_spec(cls, name: str, path: Any = None, target: Any = None) -> Any:
        patch = _PATCHES.get(name)
        if patch is None or name in cls._busy:
            return None
        from importlib.util import find_spec

        cls._busy.append(name)
        try:
            spec = find_spec(name)
        finally:
            cls._busy.remove(name)
        if spec is None or spec.loader is None or not hasattr(spec.loader, "exec_module"):
            return spec
        run = spec.loader.exec_module

        def exec_module(module: Any) -> None:
            run(module)
            patch(module)

        spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


def autolog() -> None:
    """Log the metrics of Keras, PyTorch Lightning, Hugging Face's Trainer, XGBoost and
    scikit-learn's neural networks and boosted trees, wherever the running step uses them.

    Call it at the top of a file, or in a step. Libraries that are imported later are found, too;
    none is imported by it.

    Example::

        import stoker

        stoker.autolog()
    """
    for name, patch in _PATCHES.items():
        if name in sys.modules:
            patch(sys.modules[name])
    if _Finder not in sys.meta_path:
        sys.meta_path.insert(0, _Finder)
