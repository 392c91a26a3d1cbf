"""Artifacts: every kind of value comes back as it was, from the format it should lie in."""

from __future__ import annotations

import dataclasses
import datetime
import decimal
import enum
import fractions
import functools
import json
import os
import sys
import threading
import types
import uuid
import weakref
from pathlib import Path
from typing import Any

import pytest
from front_tools import needed

from stoker import materializers
from stoker.materializers import (
    LoadError,
    SerializeError,
    _arrays,
    _artifact,
    _custom,
    _files,
    _json,
    _safetensors,
    _spend,
    _trust,
)

CHUNK = 16 << 20


def store(value: Any, tmp_path: Path, **more: Any) -> dict[str, Any]:
    """Store below a fresh folder; the entry as the engine would pass it on (through JSON)."""
    folder = tmp_path / uuid.uuid4().hex
    folder.mkdir()
    entry, _ = _artifact.store(value, str(folder / "out"), **more)
    return json.loads(json.dumps(entry, allow_nan=False))


def there_and_back(value: Any, tmp_path: Path) -> tuple[dict[str, Any], Any]:
    entry = store(value, tmp_path)
    return entry, _artifact.load(entry)


# ---------------------------------------------------------------- values inside of result.json


class Color(enum.Enum):
    RED = 1


class Level(enum.IntEnum):
    LOW = 1


@dataclasses.dataclass
class Point:
    x: float
    y: tuple[int, ...] = ()
    name: str = dataclasses.field(default="p", init=False)


@dataclasses.dataclass(frozen=True)
class Frozen:
    inner: Point


UTC = datetime.timezone.utc
PLAIN = [
    None,
    True,
    False,
    0,
    -7,
    2**63 - 1,
    1.5,
    -0.0,
    1e300,
    "",
    "text ü",
    [],
    [1, [2]],
    {},
    {"a": {"b": None}},
]
TAGGED = [
    2**63,
    -(2**70),
    float("inf"),
    (1, (2,)),
    {1, 2},
    frozenset({"a"}),
    {1: "a", (2, 3): "b"},
    {"!py": "tuple", "v": [1]},
    {"a\0b": 1},
    b"",
    b"\0\xff",
    "nul \0 in it",
    "\ud800 alone",
    1 + 2j,
    datetime.date(2026, 1, 2),
    datetime.datetime(2026, 1, 2, 3, 4, 5, 6),
    datetime.time(1, 2),
    datetime.timedelta(days=-1, microseconds=3),
    uuid.UUID(int=5),
    decimal.Decimal("1.10"),
    Color.RED,
    Level.LOW,
    Point(1.5, (1, 2)),
    Frozen(Point(2.0)),
    [Point(1.0), {"k": (Frozen(Point(1.0)),)}],
]


def same(a: Any, b: Any) -> bool:
    if type(a) is not type(b) or a != b:
        return False
    if isinstance(a, (list, tuple)):
        return all(map(same, a, b))
    if isinstance(a, dict):
        return all(same(x, y) for x, y in zip(a.items(), b.items()))
    return repr(a) == repr(b)


@pytest.mark.parametrize("value", PLAIN + TAGGED, ids=repr)
def test_small_values_travel_inline(value: Any, tmp_path: Path) -> None:
    entry, back = there_and_back(value, tmp_path)
    assert set(entry) == {"value", "type"}
    assert same(back, value), back
    if any(value is one for one in PLAIN):
        assert entry["value"] == value, "plain values are plain JSON"


def test_nan(tmp_path: Path) -> None:
    _, back = there_and_back([float("nan")], tmp_path)
    assert back[0] != back[0]


def test_what_json_would_change_is_not_json() -> None:
    class Sub(dict):  # type: ignore[type-arg]
        pass

    extra = Point(1.0)
    extra.more = 1  # type: ignore[attr-defined]
    deep: list[Any] = []
    for _ in range(200):
        deep = [deep]
    aware = datetime.datetime(2026, 1, 1, tzinfo=UTC)
    for value in (Sub(), extra, deep, aware, fractions.Fraction(1, 3), object(), Point, len):
        with pytest.raises(_json.NotJson):
            _json.encode(value)


def test_64_kib_is_the_limit_inline(tmp_path: Path) -> None:
    fits = [0] * ((_artifact.INLINE_MAX - 1) // 2)
    entry, back = there_and_back(fits, tmp_path)
    assert "value" in entry and back == fits
    entry, back = there_and_back([*fits, 0], tmp_path)
    assert entry["format"] == "json" and back == [*fits, 0]
    assert json.loads(Path(entry["path"]).read_text()) == back


@pytest.mark.parametrize(
    ("document", "text"),
    [
        ({"!py": "spell", "v": 1}, "tagged 'spell'"),
        ({"!py": "dataclass", "type": "no_such_mod:X", "v": {}}, "no_such_mod"),
        ({"!py": "dataclass", "type": "json:X", "v": {}}, "class 'X' isn't in module 'json'"),
        ({"!py": "dataclass", "type": "json:JSONDecoder", "v": {}}, "not a dataclass"),
        ({"!py": "enum", "type": f"{__name__}:Color", "v": "BLUE"}, "no member BLUE"),
    ],
)
def test_damaged_documents(document: Any, text: str) -> None:
    with pytest.raises(LoadError, match=text):
        _artifact.load({"value": document})


# ---------------------------------------------------------------- text, bytes, files


@pytest.mark.parametrize(
    ("value", "format_"),
    [
        ("x" * 70000, "text"),
        (b"\0" * 70000, "bytes"),
        (bytearray(b"ab"), "bytes"),
        (materializers.HTMLString("<p>"), "html"),
        (materializers.MarkdownString("# a"), "markdown"),
        (materializers.CSVString("a,b"), "csv"),
        (materializers.JSONString("{}"), "text"),
    ],
    ids=lambda one: type(one).__name__,
)
def test_text_and_bytes(value: Any, format_: str, tmp_path: Path) -> None:
    entry, back = there_and_back(value, tmp_path)
    assert entry["format"] == format_
    assert type(back) is type(value) and back == value
    raw = value if isinstance(value, (bytes, bytearray)) else value.encode()
    assert Path(entry["path"]).read_bytes() == raw


def test_path_to_a_file(tmp_path: Path) -> None:
    source = tmp_path / "table.csv"
    source.write_bytes(b"a,b\n" * 400_000)
    entry = store(source, tmp_path)
    assert (entry["format"], entry["meta"]) == ("file", {"name": "table.csv"})
    assert "digest" not in entry and Path(entry["path"]).read_bytes() == source.read_bytes()
    back = _artifact.load(entry, links=str(tmp_path / "in" / "x"))
    assert back == tmp_path / "in" / "x" / "table.csv"
    assert back.read_bytes() == source.read_bytes()
    assert _artifact.load(entry, str) == entry["path"]
    assert _artifact.load(entry, bytes) == source.read_bytes()


def test_path_to_a_directory(tmp_path: Path) -> None:
    source = tmp_path / "tree"
    (source / "sub").mkdir(parents=True)
    (source / "sub" / "a.txt").write_text("a")
    entry, back = there_and_back(source, tmp_path)
    assert entry["format"] == "dir"
    assert (back / "sub" / "a.txt").read_text() == "a"


def test_path_that_is_written_in_place(tmp_path: Path) -> None:
    target = tmp_path / "out"
    target.write_text("here already")
    entry, _ = _artifact.store(target, str(target))
    assert entry["path"] == str(target) and target.read_text() == "here already"


@pytest.mark.parametrize("path", ["/no/such/file", "/dev/null"])
def test_path_that_cannot_be_stored(path: str, tmp_path: Path) -> None:
    with pytest.raises(SerializeError, match=path):
        store(Path(path), tmp_path)


def test_unknown_format_and_missing_file(tmp_path: Path) -> None:
    (tmp_path / "x").write_text("")
    with pytest.raises(LoadError, match="format 'hieroglyphs'"):
        _artifact.load({"path": str(tmp_path / "x"), "format": "hieroglyphs"})
    with pytest.raises(LoadError, match="store verify"):
        _artifact.load({"path": str(tmp_path / "y"), "format": "npy"})


# ---------------------------------------------------------------- writing


@pytest.mark.parametrize("size", [0, 1, 1 << 20, CHUNK - 1, CHUNK, CHUNK + 1, 3 * CHUNK + 5])
@pytest.mark.parametrize("n_parts", [1, 3])
def test_parts_one_after_the_other(size: int, n_parts: int, tmp_path: Path) -> None:
    whole = os.urandom(1 << 16) * (size // (1 << 16) + 1)
    whole = whole[:size]
    cut = size // n_parts
    parts = [whole[i * cut : (i + 1) * cut] for i in range(n_parts - 1)] + [
        whole[(n_parts - 1) * cut :]
    ]
    path = tmp_path / "file"
    assert _files.write_parts(str(path), parts) == size
    assert path.read_bytes() == whole


# ---------------------------------------------------------------- memory that goes back


def _array(n: int = 1 << 20) -> Any:
    numpy = needed("numpy")
    return numpy.arange(n, dtype=numpy.uint8)


def test_whose_array_may_be_spent(monkeypatch: pytest.MonkeyPatch) -> None:
    numpy = needed("numpy")
    monkeypatch.setattr(_spend, "SPEND_FROM", 1 << 20)
    assert _spend.is_last([_array()])
    assert _spend.is_last([_array().reshape(1024, 1024).T])  # what it is a view of is nobody's
    assert not _spend.is_last([_array(1000)])  # small
    assert not _spend.is_last([_array().tobytes()])
    assert not _spend.is_last([numpy.frombuffer(bytearray(1 << 20), numpy.uint8)])
    assert not _spend.is_last([numpy.full(1 << 20, "x", object)])
    kept = _array()
    assert not _spend.is_last([kept])
    for hold in (
        lambda one: one[5:],  # a view
        memoryview,
        lambda one: weakref.ref(one),
        lambda one: types.SimpleNamespace(of=one),
        lambda one: one.ctypes,
    ):
        holder = [_array()]
        other = hold(holder[0])
        assert not _spend.is_last(holder), hold
        del other
        assert _spend.is_last(holder), hold
    half = [_array(2 << 20)]
    half.append(half[0][: 1 << 20])
    assert not _spend.is_last(half[1:])  # its whole is somebody's


@pytest.mark.parametrize("make", ["plain", "view", "fortran", "strided"])
def test_a_spent_array_is_written_whole(make: str, tmp_path: Path) -> None:
    numpy = needed("numpy")
    numbers = numpy.random.default_rng(3).integers(0, 1 << 60, 5 << 20)
    array = {
        "plain": lambda: numbers,
        "view": lambda: numbers[777:-5],
        "fortran": lambda: numbers.reshape(1 << 10, -1).T,
        "strided": lambda: numbers[::2],
    }[make]()
    before = array.copy()
    entry = store(array, tmp_path, spend=True)
    assert numpy.array_equal(_artifact.load(entry), before)
    gone = not array.any() or not array.ravel("K")[4096:-4096].any()
    assert gone == (make != "strided")  # of that one it is the copy's memory
    if make == "view":  # nothing but its own
        assert numbers[:777].all() and numbers[-5:].all()


def test_disk_full_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(_files.os, "write", full)
    for size in (1 << 20, 40 << 20):
        with pytest.raises(SerializeError, match=r"can't be written: .*No space left on device"):
            store(b"\0" * size, tmp_path)


# ---------------------------------------------------------------- numpy, pandas

FRAME_CASES = [
    "plain",
    "index",
    "dates",
    "category",
    "strings",
    "mixed",
    "multi",
    "attrs",
    "ints",
    "text index",
]


def array(case: str) -> Any:
    numpy = needed("numpy")
    return {
        "float": lambda: numpy.arange(12.0).reshape(3, 4),
        "fortran": lambda: numpy.asfortranarray(numpy.arange(12).reshape(3, 4)),
        "strided": lambda: numpy.arange(100)[::7],
        "empty": lambda: numpy.zeros((0, 3), "f4"),
        "scalar": lambda: numpy.array(5),
        "dates": lambda: numpy.array(["2026-01-01", "NaT"], "M8[D]"),
        "text": lambda: numpy.array(["a", "bcd"]),
        "record": lambda: numpy.array([(1, 2.0)], [("a", "i4"), ("b", "f8")]),
        "bool": lambda: numpy.array([True, False]),
        "big": lambda: numpy.arange(3 << 20, dtype="i8"),
    }[case]()


@pytest.mark.parametrize(
    "case",
    ["float", "fortran", "strided", "empty", "scalar", "dates", "text", "record", "bool", "big"],
)
def test_arrays(case: str, tmp_path: Path) -> None:
    numpy = needed("numpy")
    value = array(case)
    entry, back = there_and_back(value, tmp_path)
    assert entry["format"] == "npy" and entry["meta"]["shape"] == list(value.shape)
    assert type(back) is numpy.ndarray
    assert back.dtype == value.dtype and back.shape == value.shape
    assert numpy.array_equal(back, value, equal_nan=case == "dates")
    assert back.flags.f_contiguous == value.flags.f_contiguous or case == "strided"
    assert numpy.array_equal(numpy.load(entry["path"]), value, equal_nan=case == "dates"), (
        "any reader can"
    )


def test_large_array_is_mapped_private(tmp_path: Path) -> None:
    numpy = needed("numpy")
    entry, back = there_and_back(array("big"), tmp_path)
    assert entry["path"] in Path("/proc/self/maps").read_text()
    back //= 2  # writable, and nobody else sees it
    assert back[7] == 3
    again = _artifact.load(entry)
    assert again[7] == 7 and numpy.array_equal(again, array("big"))


def test_array_of_objects_and_scalars(tmp_path: Path) -> None:
    numpy = needed("numpy")
    entry, back = there_and_back(numpy.array([1, "a", None], dtype=object), tmp_path)
    assert entry["format"] == "pickle" and back.tolist() == [1, "a", None]
    for value in (numpy.float64(0.1), numpy.float32(0.1), numpy.int64(5), numpy.bool_(True)):
        entry, back = there_and_back(value, tmp_path)
        assert entry["value"]["!py"] == "numpy" and type(back) is type(value) and back == value


def test_truncated_array(tmp_path: Path) -> None:
    needed("numpy")
    entry = store(array("big"), tmp_path)
    os.truncate(entry["path"], 1 << 20)
    with pytest.raises(LoadError, match="not a complete npy file"):
        _artifact.load(entry)


def frame(case: str) -> Any:
    pandas = needed("pandas")
    plain = pandas.DataFrame({"a": [1, 2, 3], "b": [1.5, None, 2.5], "c": [True, False, True]})
    if case == "index":
        return plain.set_index(pandas.Index([5, 7, 9], name="key"))
    if case == "text index":
        return plain.set_index(pandas.Index(["u", "v", "w"], dtype=object))
    if case == "dates":
        return plain.assign(t=pandas.date_range("2026-01-01", periods=3, tz="UTC"))
    if case == "category":
        return plain.assign(k=pandas.Categorical(["x", "y", "x"], ordered=True))
    if case == "strings":
        return plain.assign(s=["a", "b", "c"], o=pandas.Series(["x", "y", "z"], dtype=object))
    if case == "mixed":
        return plain.assign(o=pandas.Series([1, "a", None], dtype=object))
    if case == "multi":
        return plain.set_index(["a", "b"])
    if case == "attrs":
        plain.attrs["origin"] = "test"
    if case == "ints":
        return pandas.DataFrame({0: [1], 1: [2]})
    return plain


@pytest.mark.parametrize("case", FRAME_CASES)
def test_frames(case: str, tmp_path: Path) -> None:
    pandas = needed("pandas")
    needed("pyarrow")
    value = frame(case)
    entry, back = there_and_back(value, tmp_path)
    pandas.testing.assert_frame_equal(
        back, value, check_index_type="exact", check_column_type="exact"
    )
    assert back.attrs == value.attrs
    assert (entry["format"] == "arrow") == (case not in ("mixed", "multi", "attrs")), entry
    back.iloc[0, 0] = back.iloc[-1, 0]  # writable


def test_series_and_frames_without_arrow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pandas = needed("pandas")
    needed("pyarrow")
    for value in (
        pandas.Series([1, 2], name="n"),
        pandas.Series([1.5]),
        pandas.Series([1], name=7),
    ):
        _, back = there_and_back(value, tmp_path)
        pandas.testing.assert_series_equal(back, value)
    monkeypatch.setattr(_arrays, "_arrow_table", lambda pandas, frame: None)
    large = pandas.DataFrame({"a": range(100_000)})
    entry, back = there_and_back(large, tmp_path)
    assert entry["format"] == "safetensors+pickle"
    pandas.testing.assert_frame_equal(back, large)
    back.iloc[0, 0] = 5


# ---------------------------------------------------------------- pickles


class Plain:
    """Importable, no JSON."""

    def __init__(self, inner: Any = None) -> None:
        self.inner = inner


def test_pickle_is_the_last_resort_and_warns(tmp_path: Path) -> None:
    warnings: list[str] = []
    entry = store(Plain([1]), tmp_path, warnings=warnings, name="model")
    assert entry["format"] == "pickle"
    assert _artifact.load(entry).inner == [1]
    assert len(warnings) == 1
    assert "output 'model' (a test_materialize_values.Plain) was pickled" in warnings[0]
    assert "register" in warnings[0]


def test_large_parts_lie_beside_the_skeleton_and_are_mapped(tmp_path: Path) -> None:
    numpy = needed("numpy")
    shared = numpy.arange(500_000.0)
    value = Plain(
        {"a": shared, "b": [shared], "small": numpy.arange(3), "odd": numpy.ones(200_001, "u1")}
    )
    entry, back = there_and_back(value, tmp_path)
    assert entry["format"] == "safetensors+pickle"
    assert (Path(entry["path"]) / "skeleton.pkl").stat().st_size < 2000
    assert back.inner["b"][0] is back.inner["a"], "one object twice stays one"
    assert numpy.array_equal(back.inner["a"], shared)
    assert back.inner["a"].flags.writeable and back.inner["a"].flags.aligned
    assert str(Path(entry["path"]) / "tensors.safetensors") in Path("/proc/self/maps").read_text()
    back.inner["a"][0] = 9
    assert _artifact.load(entry).inner["a"][0] == 0


class Slotted:
    __slots__ = ("lock",)

    def __init__(self) -> None:
        self.lock = threading.Lock()


def module_function() -> None:
    pass


@pytest.mark.parametrize(
    ("make", "trail"),
    [
        (lambda: Plain({"k": [1, threading.Lock()]}), ".inner['k'][1]"),
        (lambda: Plain(Slotted()), ".inner.lock"),
        (lambda: functools.partial(module_function, 1, f=lambda: 1), ".keywords['f']"),
        (lambda: (x for x in ()), ""),
        (lambda: [1, sys], "[1]"),
    ],
)
def test_culprit_is_named(make: Any, trail: str, tmp_path: Path) -> None:
    with pytest.raises(SerializeError) as caught:
        store(make(), tmp_path)
    text = str(caught.value)
    assert "can't be pickled" in text and "materializer" in text
    assert (f"its part '{trail}' is" in text) if trail else ("its part" not in text)


def test_class_that_is_gone(tmp_path: Path) -> None:
    module = types.ModuleType("short_lived")
    sys.modules["short_lived"] = module
    exec("class Gone:\n    pass", module.__dict__)
    try:
        entry = store(module.Gone(), tmp_path)
    finally:
        del sys.modules["short_lived"]
    with pytest.raises(LoadError, match="needs 'short_lived', which isn't installed here"):
        _artifact.load(entry)


def test_damaged_pickles(tmp_path: Path) -> None:
    entry = store(Plain("x" * 5000), tmp_path)
    os.truncate(entry["path"], 100)
    with pytest.raises(LoadError, match="is damaged"):
        _artifact.load(entry)


def test_pickles_of_others_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    numpy = needed("numpy")
    pickled, mapped = store(Plain(1), tmp_path), store(numpy.arange(3), tmp_path)
    in_parts = store(Plain(numpy.zeros(5000)), tmp_path)
    if os.geteuid() != 0:
        pytest.skip("only root can give files to another user")
    for entry in (pickled, in_parts):
        path = Path(entry["path"])
        os.chown(next(path.iterdir()) if path.is_dir() else path, 41002, 41002)
        with pytest.raises(LoadError, match=r"belongs to user 41002.*stoker trust"):
            _artifact.load(entry)
    assert _artifact.load(mapped).tolist() == [0, 1, 2]
    monkeypatch.setenv("STOKER_TRUST_STORE", "1")
    assert _artifact.load(pickled).inner == 1


def test_what_is_put_in_place_of_a_checked_pickle_is_not_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another user swaps the file between the look at its owner and the load."""
    good, bad = store(Plain(1), tmp_path), store(Plain(2), tmp_path)
    why_not = _trust._why_not

    def swapped(path: str, found: os.stat_result) -> object:
        if os.path.exists(bad["path"]):
            os.replace(bad["path"], good["path"])
        return why_not(path, found)

    monkeypatch.setattr(_trust, "_why_not", swapped)
    assert _artifact.load(good).inner == 1


def test_pickles_that_others_may_write_are_refused(tmp_path: Path) -> None:
    entry = store(Plain(1), tmp_path)
    os.chmod(entry["path"], 0o666)
    with pytest.raises(LoadError, match="can be written by others"):
        _artifact.load(entry)


# ---------------------------------------------------------------- safetensors


def test_safetensors_layout(tmp_path: Path) -> None:
    path = tmp_path / "t"
    tensors = [
        _safetensors.Tensor("odd", "U8", [3], b"abc", 1),
        _safetensors.Tensor("wide", "F64", [2], b"12345678" * 2, 8),
        _safetensors.Tensor("buffer", "U8", [5], b"hello", 64),
    ]
    _safetensors.write(str(path), tensors, {"made": "here"})
    raw = path.read_bytes()
    length = int.from_bytes(raw[:8], "little")
    header = json.loads(raw[8 : 8 + length])
    assert (8 + length) % 64 == 0
    spans = sorted(one["data_offsets"] for name, one in header.items() if name != "__metadata__")
    assert spans[0][0] == 0 and spans[-1][1] == len(raw) - 8 - length
    assert all(a[1] == b[0] for a, b in zip(spans, spans[1:])), "the format allows no holes"
    assert (
        header["wide"]["data_offsets"][0] % 8 == 0 and header["buffer"]["data_offsets"][0] % 64 == 0
    )
    reader = _safetensors.Reader(str(path))
    assert bytes(reader.data("wide")) == b"12345678" * 2 and reader.metadata == {"made": "here"}
    with pytest.raises(LoadError, match="no tensor 'x'"):
        reader.data("x")


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"\x01",
        (1 << 62).to_bytes(8, "little") + b"{}",
        (2).to_bytes(8, "little") + b"{]",
        (2).to_bytes(8, "little") + b"[]",
        (40).to_bytes(8, "little") + b'{"a":{"data_offsets":[0,8],"dtype":"U8"}}'[:40].ljust(40),
        b'\x28\0\0\0\0\0\0\0{"a":{"data_offsets":[0, 99],"x":"U8"}}',
    ],
)
def test_damaged_safetensors(raw: bytes, tmp_path: Path) -> None:
    path = tmp_path / "t"
    path.write_bytes(raw)
    with pytest.raises(LoadError, match=r"truncated|header"):
        _safetensors.Reader(str(path))


# ---------------------------------------------------------------- the user's own


class Graph:
    def __init__(self, edges: str) -> None:
        self.edges = edges


class SubGraph(Graph):
    pass


class Parts(materializers.BaseMaterializer):
    SKIP_REGISTRATION = True
    ASSOCIATED_TYPES = (Graph,)

    def save(self, data: Graph) -> None:
        with self.artifact_store.open(os.path.join(self.uri, "edges.txt"), "w") as stream:
            stream.write(data.edges)

    def load(self, data_type: Any) -> Graph:
        with self.artifact_store.open(os.path.join(self.uri, "edges.txt")) as stream:
            return Graph(stream.read())

    def extract_metadata(self, data: Graph) -> dict[str, Any]:
        return {"n_edges": len(data.edges)}


def save_graph(value: Graph, path: str) -> dict[str, Any]:
    Path(path).write_text(value.edges)
    return {"n": len(value.edges)}


def load_graph(path: str) -> Graph:
    return Graph(Path(path).read_text() + "!")


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_custom, "by_type", dict(_custom.by_type))


def test_registered_functions(tmp_path: Path, registry: None) -> None:
    materializers.register(Graph, save_graph, load_graph)
    for value in (Graph("ab"), SubGraph("ab")):
        entry, metadata = _artifact.store(value, str(tmp_path / type(value).__name__))
        assert entry["format"] == "custom" and metadata == {"n": 2}
        assert _artifact.load(entry).edges == "ab!"
    _custom.by_type.clear()
    with pytest.raises(LoadError, match="import the module that registers it"):
        _artifact.load(entry)


@pytest.mark.parametrize("chosen", [Parts, f"{__name__}.Parts", [Parts]])
def test_materializer_class(chosen: Any, tmp_path: Path) -> None:
    entry, metadata = _artifact.store(Graph("ab"), str(tmp_path / "out"), chosen)
    assert metadata == {"n_edges": 2}
    assert entry["meta"] == {"materializer": f"{__name__}:Parts"}
    assert _artifact.load(entry).edges == "ab"


def test_subclass_registers_itself(registry: None, tmp_path: Path) -> None:
    class Own(Parts):
        ASSOCIATED_TYPES = (Graph,)

    assert _custom.find(SubGraph("")) is Own

    class Nothing(materializers.BaseMaterializer):
        SKIP_REGISTRATION = True

    with pytest.raises(SerializeError, match="wrote nothing"):
        store(Graph(""), tmp_path, materializer=Nothing)
    with pytest.raises(TypeError, match="is not a class"):

        class Wrong(Parts):
            ASSOCIATED_TYPES = ("Graph",)


def test_own_materializer_that_fails(tmp_path: Path, registry: None) -> None:
    materializers.register(Graph, lambda value, path: 1 / 0, load_graph)
    with pytest.raises(SerializeError, match="ZeroDivisionError"):
        store(Graph(""), tmp_path)
    materializers.register(Graph, lambda value, path: None, load_graph)
    with pytest.raises(SerializeError, match="wrote nothing"):
        store(Graph(""), tmp_path)
    with pytest.raises(TypeError, match="is not a class"):
        materializers.register("Graph", save_graph, load_graph)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="loader None"):
        materializers.register(Graph, save_graph, None)  # type: ignore[arg-type]
