"""numpy arrays as npy, pandas frames as Arrow: formats that can be mapped into memory."""

from __future__ import annotations

import io
import sys

from ._errors import LoadError
from ._files import write_parts
from ._json import need
from ._saved import Saved

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, Optional


_MAP_FROM = 1 << 20  # smaller arrays are read, because a mapping costs more than a copy


class Numpy:
    """``numpy.ndarray`` without Python objects; loads as a private, writable mapping."""

    formats = ("npy",)

    @staticmethod
    def matches(value: Any) -> bool:
        numpy = sys.modules.get("numpy")
        if numpy is None or type(value) not in (numpy.ndarray, numpy.memmap):
            return False
        return not value.dtype.hasobject

    @staticmethod
    def save(value: Any, path: str, spend: bool = False) -> Saved:
        """Write header and data as ``numpy.save`` does, straight from the array's memory.

        Args:
            spend: no code will use the array again (:mod:`._spend`); its content is lost.
        """
        numpy: Any = sys.modules["numpy"]
        array = numpy.asarray(value)
        fortran = array.flags.f_contiguous and not array.flags.c_contiguous
        if not (fortran or array.flags.c_contiguous):
            array = numpy.ascontiguousarray(array)
        head = io.BytesIO()
        lib = numpy.lib.format
        fields = lib.header_data_from_array_1_0(array)
        try:
            lib.write_array_header_1_0(head, fields)
        except ValueError:  # a header above 64 KiB: very many named fields
            head = io.BytesIO()
            lib.write_array_header_2_0(head, fields)
        flat = (array.T if fortran else array).reshape(-1)
        raw = flat.view(numpy.uint8) if flat.size and flat.dtype.itemsize else b""
        address = flat.__array_interface__["data"][0] if spend else 0
        write_parts(path, [head.getvalue(), raw], spend=address)
        return Saved("npy", {"shape": list(array.shape), "dtype": str(array.dtype)})

    @staticmethod
    def load(path: str, meta: Dict[str, Any], type_: Any) -> Any:
        import os

        numpy = need("numpy")
        mode: Optional[str] = "c" if os.stat(path).st_size >= _MAP_FROM else None
        try:
            return numpy.asarray(numpy.load(path, mmap_mode=mode, allow_pickle=False))
        except (ValueError, EOFError) as exc:
            raise LoadError(f"'{path}' is not a complete npy file: {exc}") from exc


class Pandas:
    """``DataFrame`` and ``Series`` as an Arrow file, if pyarrow is installed and keeps every type.

    Frames that Arrow would change (mixed objects, categories of objects, attributes) use the
    skeleton format, whose blocks are mapped as well.
    """

    formats = ("arrow",)

    @staticmethod
    def matches(value: Any) -> bool:
        pandas: Any = sys.modules.get("pandas")
        return hasattr(pandas, "DataFrame") and type(value) in (pandas.DataFrame, pandas.Series)

    @staticmethod
    def save(value: Any, path: str) -> Saved:
        pandas: Any = sys.modules["pandas"]
        meta: Dict[str, Any] = {"shape": list(value.shape)}
        frame = value
        if isinstance(value, pandas.Series):
            meta["series"] = {"name": None if value.name is None else str(value.name)}
            frame = value.to_frame("value")
        table = _arrow_table(pandas, frame)
        if table is not None:
            meta.update(_lost_by_arrow(pandas, frame))
        if table is None or (value.ndim == 1 and type(value.name) not in (str, type(None))):
            from . import _skeleton

            format_, more = _skeleton.save(value, path)
            return Saved(format_, {**meta, **more})
        _write_arrow(table, path)
        if value.ndim == 2:
            meta["columns"] = [str(name) for name in value.columns[:100]]
        return Saved("arrow", meta)

    @staticmethod
    def load(path: str, meta: Dict[str, Any], type_: Any) -> Any:
        need("pandas")
        pyarrow = need("pyarrow")
        need("pyarrow.ipc")
        try:
            with pyarrow.memory_map(path, "r") as source:
                frame = pyarrow.ipc.open_file(source).read_all().to_pandas()
        except pyarrow.ArrowInvalid as exc:
            raise LoadError(f"'{path}' is not a complete Arrow file: {exc}") from exc
        for i_column in meta.get("objects", ()):
            frame.isetitem(i_column, frame.iloc[:, i_column].astype(object))
        if meta.get("index_object"):
            frame.index = frame.index.astype(object)
        if meta.get("range_columns"):
            frame.columns = need("pandas").RangeIndex(frame.shape[1])
        if "series" not in meta:
            return frame
        series = frame["value"]
        series.name = meta["series"]["name"]
        return series


def _arrow_table(pandas: Any, frame: Any) -> Any:
    """The Arrow table, or None if a type would change."""
    import importlib

    if frame.attrs or not frame.columns.is_unique:
        return None
    objects = [frame[name] for name in frame.columns if _is_object(frame[name])]
    if isinstance(frame.index, pandas.MultiIndex) or isinstance(frame.columns, pandas.MultiIndex):
        return None
    if _is_object(frame.index):
        objects.append(frame.index)
    if any(pandas.api.types.infer_dtype(one, skipna=False) != "string" for one in objects):
        return None
    try:
        pyarrow = importlib.import_module("pyarrow")
    except ImportError:
        return None
    try:
        table = pyarrow.Table.from_pandas(frame)
        empty = table.slice(0, 0).to_pandas()
    except (pyarrow.ArrowException, TypeError, ValueError):
        return None
    same = (
        list(empty.columns) == list(frame.columns)
        and empty.columns.dtype == frame.columns.dtype
        and empty.columns.names == frame.columns.names
        and all(a == b or _is_object(b) for a, b in zip(empty.dtypes, frame.dtypes))
        and type(empty.index) is type(frame.index)
    )
    if same and not isinstance(frame.index, pandas.RangeIndex):  # Arrow keeps a range as it is
        same = empty.index.names == frame.index.names and (
            empty.index.dtype == frame.index.dtype or _is_object(frame.index)
        )
    return table if same else None


def _lost_by_arrow(pandas: Any, frame: Any) -> Dict[str, Any]:
    """The properties that Arrow loses and ``load`` restores: texts as objects, a range as the
    columns."""
    meta: Dict[str, Any] = {}
    objects = [i for i, dtype in enumerate(frame.dtypes) if str(dtype) == "object"]
    if objects:
        meta["objects"] = objects
    if _is_object(frame.index):
        meta["index_object"] = True
    columns = frame.columns
    if isinstance(columns, pandas.RangeIndex) and columns.equals(pandas.RangeIndex(len(columns))):
        meta["range_columns"] = columns.name is None
    return meta


def _is_object(values: Any) -> bool:
    return str(getattr(values, "dtype", values)) == "object"


def _write_arrow(table: Any, path: str) -> None:
    pyarrow = need("pyarrow")
    need("pyarrow.ipc")
    with pyarrow.OSFile(path, "wb") as sink, pyarrow.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)
