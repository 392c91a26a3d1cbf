"""Artifacts of libraries that the user may have: pydantic, torch, scikit-learn, matplotlib."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from front_tools import needed
from play_engine import ROOT
from test_materialize_values import store, there_and_back

from stoker.materializers import LoadError, Picture, _artifact, _torch

try:
    import pydantic

    class Inner(pydantic.BaseModel):
        pair: tuple[int, float]

    class Model(pydantic.BaseModel):
        name: str
        inner: Inner
        ratio: float = float("inf")

    class Odd(pydantic.BaseModel):
        model_config = pydantic.ConfigDict(arbitrary_types_allowed=True)
        thing: Any

except ImportError:
    pydantic = None  # type: ignore[assignment]


@pytest.mark.skipif(pydantic is None, reason="needs pydantic")
def test_pydantic_models(tmp_path: Path) -> None:
    value = Model(name="a", inner=Inner(pair=(1, 2.0)), ratio=2.5)
    entry, back = there_and_back([value], tmp_path)
    assert entry["value"][0]["!py"] == "pydantic"
    assert back == [value] and type(back[0].inner) is Inner
    entry, back = there_and_back(Model(name="a", inner=Inner(pair=(1, 2.0))), tmp_path)
    assert back.ratio == float("inf")
    warnings: list[str] = []
    entry = store(Odd(thing=complex(1, 2)), tmp_path, warnings=warnings, name="o")
    assert entry["format"] == "pickle" and len(warnings) == 1
    assert _artifact.load(entry).thing == complex(1, 2)


# ---------------------------------------------------------------- torch


@pytest.fixture
def torch() -> Any:
    return needed("torch")


DTYPES = [
    "float32",
    "float64",
    "float16",
    "bfloat16",
    "int64",
    "uint8",
    "bool",
    "complex64",
    "float8_e4m3fn",
]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.torch
def test_tensors(dtype: str, torch: Any, tmp_path: Path) -> None:
    value = torch.arange(6).reshape(2, 3).to(getattr(torch, dtype))
    entry, back = there_and_back(value, tmp_path)
    assert entry["format"] == "safetensors+pickle"
    assert back.dtype == value.dtype and back.shape == value.shape
    assert torch.equal(back.to(torch.complex64), value.to(torch.complex64))


@pytest.mark.torch
def test_odd_tensors(torch: Any, tmp_path: Path) -> None:
    base = torch.arange(24.0).reshape(4, 6)
    values = {
        "view": base[1:3, ::2],
        "transposed": base.t(),
        "empty": torch.zeros(0, 3),
        "scalar": torch.tensor(3.5),
        "grad": torch.ones(2, requires_grad=True),
        "parameter": torch.nn.Parameter(torch.ones(2)),
        "sparse": torch.eye(3).to_sparse(),
        "expanded": torch.ones(1, 3).expand(5, 3),
    }
    for name, value in values.items():
        _, back = there_and_back(value, tmp_path)
        assert type(back) is type(value), name
        assert back.requires_grad == value.requires_grad, name
        assert torch.equal(back.to_dense(), value.to_dense()), name
        if value.layout == torch.strided:
            assert back.stride() == value.stride(), name


@pytest.mark.torch
def test_mapped_private_and_shared_storages(torch: Any, tmp_path: Path) -> None:
    base = torch.arange(1000.0)
    entry, back = there_and_back(
        {"whole": base, "half": base[:500], "other": torch.ones(3)}, tmp_path
    )
    assert str(Path(entry["path"]) / "tensors.safetensors") in Path("/proc/self/maps").read_text()
    back["whole"][7] = -1
    assert back["half"][7] == -1, "they shared a storage, and they share it again"
    assert _artifact.load(entry)["whole"][7] == 7


def network(torch: Any) -> Any:
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.Linear(8, 16), torch.nn.BatchNorm1d(16), torch.nn.Linear(16, 4)
    )
    tied = torch.nn.ModuleDict({"net": model, "head": torch.nn.Linear(16, 4)})
    tied["head"].weight = model[2].weight
    return tied


@pytest.mark.torch
def test_modules_and_state_dicts(torch: Any, tmp_path: Path) -> None:
    model = network(torch)
    warnings: list[str] = []
    entry = store(model, tmp_path, warnings=warnings)
    assert entry["format"] == "safetensors+pickle" and warnings == []
    back = _artifact.load(entry)
    x = torch.randn(5, 8)
    assert torch.equal(back["net"].eval()(x), model["net"].eval()(x))
    assert back["head"].weight is back["net"][2].weight, "tied weights stay tied"
    raw = (Path(entry["path"]) / "tensors.safetensors").read_bytes()
    header = json.loads(raw[8 : 8 + int.from_bytes(raw[:8], "little")])
    assert header["net.0.weight"]["shape"] == [16, 8] and header["net.0.weight"]["dtype"] == "F32"
    state = model.state_dict()
    _, state_back = there_and_back(state, tmp_path)
    assert type(state_back) is type(state) and state_back._metadata == state._metadata
    network(torch).load_state_dict(state_back)
    optimizer = torch.optim.Adam(model.parameters())
    model["net"](x).sum().backward()
    optimizer.step()
    _, again = there_and_back({"model": model, "optimizer": optimizer}, tmp_path)
    assert again["optimizer"].param_groups[0]["params"][0] is again["model"]["net"][0].weight


@pytest.mark.torch
def test_weights_can_be_read_by_others(torch: Any, tmp_path: Path) -> None:
    reader = needed("safetensors.torch")
    model = network(torch)
    entry = store(model, tmp_path)
    weights = reader.load_file(Path(entry["path"]) / "tensors.safetensors")
    assert torch.equal(weights["net.0.weight"], model["net"][0].weight)


@pytest.mark.torch
def test_model_of_a_gpu_loads_without_one(
    torch: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from stoker.materializers import _skeleton

    take = _skeleton._Parts.take_storage

    def taken(self: Any, storage: Any) -> Any:
        pid = list(take(self, storage))
        pid[2] = "cuda:1"
        return tuple(pid)

    monkeypatch.setattr(_skeleton._Parts, "take_storage", taken)
    entry = store(torch.ones(3), tmp_path)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    back = _artifact.load(entry)
    assert back.device.type == "cpu" and back.tolist() == [1, 1, 1]


@pytest.mark.parametrize(
    ("device", "available", "count", "expected"),
    [
        ("cpu", True, 1, "cpu"),
        ("cuda:0", True, 1, "cuda:0"),
        ("cuda:3", True, 2, "cuda:0"),
        ("cuda:0", False, 0, "cpu"),
        ("quantum:0", True, 1, "cpu"),
    ],
)
@pytest.mark.torch
def test_map_location(
    device: str,
    available: bool,
    count: int,
    expected: str,
    torch: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: available)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: count)
    assert _torch._device(torch, device) == expected


@pytest.mark.torch
def test_tensor_artifact_without_torch(torch: Any, tmp_path: Path) -> None:
    entry = store(torch.ones(3), tmp_path)
    script = (
        "import json, sys; sys.modules['torch'] = None\n"
        "from stoker.materializers import _artifact\n"
        "try:\n    _artifact.load(json.loads(sys.argv[1]))\n"
        "except _artifact.LoadError as exc:\n    print(exc)\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "python")}
    command = [sys.executable, "-c", script, json.dumps(entry)]
    said = subprocess.run(
        command, env=environment, capture_output=True, text=True, check=True
    ).stdout
    assert "torch" in said


@pytest.mark.torch
def test_damaged_tensor_file(torch: Any, tmp_path: Path) -> None:
    entry = store(torch.ones(100), tmp_path)
    os.truncate(Path(entry["path"]) / "tensors.safetensors", 100)
    with pytest.raises(LoadError, match="truncated"):
        _artifact.load(entry)


# ---------------------------------------------------------------- scikit-learn, matplotlib


def test_scikit_learn(tmp_path: Path) -> None:
    needed("sklearn")
    import numpy
    from sklearn.datasets import load_digits
    from sklearn.ensemble import RandomForestClassifier
    from sklearn.neighbors import KNeighborsClassifier
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    x, y = load_digits(return_X_y=True)
    for model in (
        RandomForestClassifier(3),
        make_pipeline(StandardScaler(), KNeighborsClassifier()),
    ):
        model.fit(x, y)
        warnings: list[str] = []
        entry = store(model, tmp_path, warnings=warnings)
        assert warnings == []
        assert entry["format"] == "safetensors+pickle"
        assert numpy.array_equal(_artifact.load(entry).predict(x), model.predict(x))


def test_figures(tmp_path: Path) -> None:
    matplotlib = needed("matplotlib")
    matplotlib.use("Agg")
    from matplotlib.figure import Figure

    figure = Figure(figsize=(2, 1))
    figure.subplots().plot([1, 2])
    entry, back = there_and_back(figure, tmp_path)
    assert entry["format"] == "png" and entry["meta"] == {"width_inches": 2.0, "height_inches": 1.0}
    assert (
        isinstance(back, Picture)
        and back.data.startswith(b"\x89PNG")
        and back._repr_png_() == back.data
    )
    again, _ = there_and_back(back, tmp_path)
    assert Path(again["path"]).read_bytes() == back.data
