"""Names of ``zenml.integrations``: materializers, for which their packages needn't be there, and what
Stoker doesn't have, which is refused when a program uses it."""

from __future__ import annotations

import functools
from typing import Any, Dict, Optional, Tuple

from .._base.errors import NotYetError
from .._dialect import ComponentSettings
from . import materials
from .enums import ArtifactType
from .materials import _BuiltIn, _import

# Materializer → the module and the types that it stores, and whether these are models. Values of them
# are stored as without it.
_MATERIALIZERS: Dict[str, Tuple[str, str, bool]] = {
    "BasePyTorch": ("torch.nn", "Module", True),
    "Bento": ("bentoml", "Bento", True),
    "HFDataset": ("datasets", "Dataset DatasetDict", False),
    "HFPTModel": ("transformers", "PreTrainedModel", True),
    "HFT5": ("transformers", "T5ForConditionalGeneration T5Tokenizer T5TokenizerFast", True),
    "HFTFModel": ("transformers", "TFPreTrainedModel", True),
    "HFTokenizer": ("transformers", "PreTrainedTokenizerBase", True),
    "Keras": ("keras", "Model", True),
    "LangchainDocument": ("langchain_core.documents", "Document", False),
    "LangchainOpenaiEmbedding": ("langchain_community.embeddings", "OpenAIEmbeddings", True),
    "LangchainVectorStore": ("langchain_core.vectorstores", "VectorStore", False),
    "LightGBMBooster": ("lightgbm", "Booster", True),
    "LightGBMDataset": ("lightgbm", "Dataset", False),
    "NeuralProphet": ("neuralprophet", "NeuralProphet", True),
    "PillowImage": ("PIL.Image", "Image", False),
    "Polars": ("polars", "DataFrame Series", False),
    "PyTorchDataLoader": ("torch.utils.data", "DataLoader Dataset", False),
    "PyTorchLightning": ("torch.nn", "Module", True),
    "PyTorchModule": ("torch.nn", "Module", True),
    "Sklearn": ("sklearn.base", "BaseEstimator", True),
    "Sparse": ("scipy.sparse", "spmatrix", False),
    "SparkDataFrame": ("pyspark.sql", "DataFrame", False),
    "TensorflowDataset": ("tensorflow.data", "Dataset", False),
    "XgboostBooster": ("xgboost", "Booster", True),
    "XgboostDMatrix": ("xgboost", "DMatrix", False),
}
_DATA = "call {} in a step, and return its report as HTMLString, which the card shows"
_TRACKER = "call {} in a step; `trackers` in stoker.yaml sends whole runs to MLflow and W&B"
_ALERTER = "an alerter class of the program's own posts (create_flavor)"
# Integration → what it is called, and what a program does instead.
_REFUSED: Dict[str, Tuple[str, str]] = {
    "comet": ("Comet", _TRACKER),
    "deepchecks": ("Deepchecks", _DATA),
    "discord": ("Discord", _ALERTER),
    "evidently": ("Evidently", _DATA),
    "facets": ("Facets", _DATA),
    "great_expectations": ("Great Expectations", _DATA),
    "neptune": ("Neptune", _TRACKER),
    "slack": ("Slack", _ALERTER),
    "wandb": ("W&B", _TRACKER),
    "whylogs": ("whylogs", _DATA),
}


def has_module(module: str) -> bool:
    """Whether ``zenml.integrations.NAME…`` exists: NAME itself and what has settings and materializers
    do for any NAME, and all of what is refused."""
    parts = module.split(".")
    if parts[:2] != ["zenml", "integrations"] or len(parts) < 3:
        return False
    return parts[2] in _REFUSED or parts[3:4] in (
        *([], ["flavors"], ["pod_settings"]),
        ["materializers"],
    )


def named(module: str, name: str) -> Optional[Any]:
    """A name of such a module, or None: integrations' names (``PYTORCH``), settings of components that
    Stoker lacks, materializers, and what is refused."""
    if module == "zenml.integrations.constants" and name.isupper():
        return name.lower()
    if not module.startswith("zenml.integrations."):
        return None
    if name.endswith("Settings"):
        return ComponentSettings
    if ".materializers" in module and name.endswith("Materializer"):
        key = name[: -len("Materializer")]
        if key in _MATERIALIZERS:
            return _materializer(name)
        if key in ("Numpy", "Pandas"):
            return getattr(materials, name)
    integration = module.split(".")[2]
    return _refused(integration, name) if integration in _REFUSED else None


@functools.cache
def _materializer(name: str) -> Any:
    home, types, is_model = _MATERIALIZERS[name[: -len("Materializer")]]
    body = {
        "__doc__": "See ZenML's documentation.",
        "__module__": __name__,
        "ASSOCIATED_TYPES": _import(home, *types.split()),
        "ASSOCIATED_ARTIFACT_TYPE": ArtifactType.MODEL if is_model else ArtifactType.DATA,
        "SKIP_REGISTRATION": True,
    }
    return type(name, (_BuiltIn,), body)


class _Refusing(type):
    why: str

    def __call__(cls, *_: Any, **__: Any) -> Any:
        raise NotYetError(cls.why)

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise NotYetError(cls.why)


@functools.cache
def _refused(integration: str, name: str) -> Any:
    """A class that says why Stoker doesn't have it when it is called or asked for something."""
    title, instead = _REFUSED[integration]
    why = f"{name}: Stoker has no integration of {title}; {instead.format(title)}"
    return _Refusing(name, (), {"__module__": __name__, "why": why})
