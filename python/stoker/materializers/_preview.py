"""What cards show of a value: a component, as JSON (src/show/show_components.h).

``preview_of`` describes a value whose file the engine can't show by itself: a frame, an array, a
chart, a model. It uses only libraries that the value has loaded. The components of flows' cards
(:mod:`stoker.flow.cards`) describe values by the same functions.
"""

from __future__ import annotations

import json
import math
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, List, Optional

SHORT, LONG = 2_000, 200_000  # shown characters of a value
_HEAD, _COLUMNS = 10, 30  # shown rows and columns of a frame
_POINTS = 5_000  # of a chart's data, in all
_PIXELS = 480
_FILE = 2 << 20  # bytes of a visualization


def preview_of(value: Any, hide: Callable[[str], str] = str) -> Optional[Dict[str, Any]]:
    """The component that shows ``value``; None if it has no better form than its file.

    Never raises: a preview never fails a step.

    Args:
        value: a step's output.
        hide: masks the step's secrets in a text.
    """
    try:
        for matches, made in _FORMS:
            if matches(value):
                found = made(value)
                if found["kind"] == "vega":
                    return chart(found["spec"], hide)
                return json.loads(hide(json.dumps(found)))  # type: ignore[no-any-return]
    except Exception:  # whatever a library or a user's __repr__ raises
        pass
    return None


def preview_of_file(
    path: str, kind: str, hide: Callable[[str], str] = str
) -> Optional[Dict[str, Any]]:
    """The component that shows a visualization that a materializer wrote; None if it is too large
    or can't be read.

    Args:
        path: its file.
        kind: one of ``_custom.VISUALS``.
        hide: masks the step's secrets in a text.
    """
    try:
        with open(path, "rb") as stream:
            raw = stream.read(_FILE + 1)
        if len(raw) > _FILE:
            return None
        if kind == "image":
            return _image(raw, path)
        text = hide(raw.decode("utf-8"))
    except (OSError, ValueError):
        return None
    return _table(text) if kind == "csv" else {"kind": kind, "text": text}


def _image(raw: bytes, path: str) -> Optional[Dict[str, Any]]:
    import base64
    import mimetypes

    kind = mimetypes.guess_type(path)[0] or "image/png"
    return {
        "kind": "image",
        "src": f"data:{kind};base64,{base64.b64encode(raw).decode('ascii')}",
        "label": "",
    }


def _table(text: str) -> Dict[str, Any]:
    """The first rows of comma-separated values, of which the first has the names."""
    import csv
    import io

    rows = list(csv.reader(io.StringIO(text)))
    shown = [row[:_COLUMNS] for row in rows[: _HEAD + 1]]
    return {
        "kind": "table",
        "headers": shown[0] if shown else [],
        "rows": shown[1:],
        "n": max(len(rows) - 1, 0),
    }


def plain(value: Any) -> Any:
    """A value for a table's cell: numbers and texts unchanged, others as text."""
    if value is None or isinstance(value, (bool, str)):
        return value
    if isinstance(value, int) and -(2**63) <= value < 2**63:
        return int(value)
    item = getattr(value, "item", None)
    if item is not None and getattr(value, "shape", None) == ():  # numpy's numbers
        return plain(item())
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else str(value)
    return short(value)


def short(value: Any, limit: int = SHORT) -> str:
    """A value as a text of at most ``limit`` characters; doesn't walk through large ones."""
    import reprlib

    if limit <= SHORT:
        maker = reprlib.Repr()
        maker.maxlist = maker.maxtuple = maker.maxset = maker.maxfrozenset = maker.maxdeque = 30
        maker.maxdict, maker.maxstring, maker.maxother, maker.maxlong = 30, 1000, 1000, 100
        try:
            text = maker.repr(value)
        except Exception as bad:
            text = f"<{type(value).__name__} whose repr() raises {type(bad).__name__}>"
    else:
        import pprint

        text = value if isinstance(value, str) else pprint.pformat(value, width=100)
    return text if len(text) <= limit else text[: limit - 1] + "…"


def kind_of(value: Any) -> str:
    """The value's type in its usual form."""
    kind = type(value)
    return kind.__name__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__name__}"


# --- frames ---


def _is_frame(value: Any) -> bool:
    pandas: Any = sys.modules.get("pandas")
    polars: Any = sys.modules.get("polars")
    return any(
        hasattr(library, "DataFrame") and isinstance(value, (library.DataFrame, library.Series))
        for library in (pandas, polars)
    )


def _frame(value: Any) -> Dict[str, Any]:
    """The first rows, with the type of each column."""
    if not hasattr(value, "columns"):
        value = value.to_frame()
    n, width = (int(size) for size in value.shape)
    head = value.head(_HEAD)
    if hasattr(value, "iloc"):
        head = head.iloc[:, :_COLUMNS]
        rows = [[plain(cell) for cell in row] for row in head.itertuples(index=True)]
        headers = ["", *(str(name) for name in head.columns)]
        types = ["", *(str(kind) for kind in head.dtypes)]
    else:  # polars
        head = head[:, :_COLUMNS]
        rows = [[plain(cell) for cell in row] for row in head.rows()]
        headers = [str(name) for name in head.columns]
        types = [str(kind) for kind in head.dtypes]
    return {
        "kind": "table",
        "headers": headers,
        "types": types,
        "rows": rows,
        "n": n,
        "columns": width,
    }


# --- arrays ---


def _is_array(value: Any) -> bool:
    numpy: Any = sys.modules.get("numpy")
    return hasattr(numpy, "ndarray") and isinstance(value, numpy.ndarray)


def _array(value: Any) -> Dict[str, Any]:
    numpy: Any = sys.modules["numpy"]
    shape = " × ".join(map(str, value.shape)) or "scalar"
    text = numpy.array2string(value, threshold=50, edgeitems=3, max_line_width=100)
    return _described(value, f"{value.dtype}, {shape}\n{text}")


def _is_tensor(value: Any) -> bool:
    torch: Any = sys.modules.get("torch")
    return hasattr(torch, "Tensor") and isinstance(value, torch.Tensor)


def _tensor(value: Any) -> Dict[str, Any]:
    shape = " × ".join(map(str, value.shape)) or "scalar"
    text = f"{str(value.dtype).rpartition('.')[2]}, {shape}, on {value.device}"
    if value.device.type == "cpu" and value.numel() > 0:  # reading a device's memory waits for it
        first = value.detach().reshape(-1)[:10].tolist()
        text += "\n" + short(first)[:-1] + (", …]" if value.numel() > 10 else "]")
    return _described(value, text)


def _described(value: Any, text: str) -> Dict[str, Any]:
    return {"kind": "artifact", "type": kind_of(value), "text": text}


# --- charts ---


def _draw(spec: str) -> Dict[str, str]:
    """Draw a Vega-Lite specification: ``src``, the picture; or ``why`` there is none."""
    import base64

    try:
        import vl_convert  # type: ignore[import-not-found, unused-ignore]

        svg = vl_convert.vegalite_to_svg(spec, allowed_base_urls=[])
    except ImportError:
        return {"why": "vl-convert-python is not installed"}
    except Exception as bad:  # the first line says only that it failed, the later ones where
        return {"why": (str(bad).splitlines()[1:2] or [repr(bad)])[0][:200]}
    return {"src": f"data:image/svg+xml;base64,{base64.b64encode(svg.encode()).decode('ascii')}"}


def is_altair(value: Any) -> bool:
    """Whether the value is an ``altair`` chart."""
    name = kind_of(value)
    return all(part in name for part in ("altair", "vegalite", "Chart"))


def chart(spec: Any, hide: Callable[[str], str] = str) -> Dict[str, Any]:
    """The component of a Vega-Lite specification, whose texts pass through ``hide``."""
    text = hide(json.dumps(_finite(spec), default=_cell, ensure_ascii=False))
    return {"kind": "vega", "spec": json.loads(text), **_draw(text)}


def _is_plotly(value: Any) -> bool:
    figures: Any = sys.modules.get("plotly.basedatatypes")
    return hasattr(figures, "BaseFigure") and isinstance(value, figures.BaseFigure)


def _plotly(value: Any) -> Dict[str, Any]:
    """A plotly figure as a Vega-Lite chart of its lines, points, bars and histograms."""
    data: List[Dict[str, Any]] = []
    marks: Dict[str, str] = {}
    for number, trace in enumerate(value.data):
        name = str(trace.name or f"trace {number}")
        xs, ys = _numbers(trace, "x"), _numbers(trace, "y")
        if ys is None and xs is not None and trace.type == "histogram":
            ys = [None] * len(xs)
        if ys is None:
            continue
        pairs = zip(xs if xs is not None else range(len(ys)), ys)
        data += [{"x": x, "y": y, "trace": name} for x, y in pairs]
        marks[name] = _mark(trace)
    if not marks:
        kinds = ", ".join(sorted({str(trace.type) for trace in value.data}))
        return _described(value, f"a figure of {kinds or 'no traces'}")
    layout = value.layout
    x_type = "quantitative"  # one for all layers: they share the axis
    if "bar" in marks.values() or any(type(row["x"]) not in (int, float) for row in data):
        x_type = "ordinal"
    layers = [
        {
            "transform": [{"filter": {"field": "trace", "equal": name}}],
            "mark": {"type": "bar"} if kind == "histogram" else {"type": kind},
            "encoding": _encoding(kind, layout, x_type, len(marks) > 1),
        }
        for name, kind in marks.items()
    ]
    return {
        "kind": "vega",
        "spec": {
            "$schema": "https://vega.github.io/schema/vega-lite/v5.json",
            "title": layout.title.text or "",
            "width": 560,
            "data": {"values": data[:_POINTS]},
            "layer": layers,
        },
    }


def _numbers(trace: Any, key: str) -> Optional[List[Any]]:
    values = getattr(trace, key, None)  # a trace knows only the properties of its type
    if values is None:
        return None
    return [_cell(value) for value in list(values)[:_POINTS]]


def _mark(trace: Any) -> str:
    if trace.type == "histogram":
        return "histogram"
    if trace.type == "bar":
        return "bar"
    return "point" if str(trace["mode"] or "lines") == "markers" else "line"


def _encoding(kind: str, layout: Any, x_type: str, coloured: bool) -> Dict[str, Any]:
    x = {"field": "x", "type": x_type, "title": layout.xaxis.title.text or "x"}
    y = {"field": "y", "type": "quantitative", "title": layout.yaxis.title.text or "y"}
    if kind == "histogram":
        x, y = (
            {**x, "bin": {"maxbins": 30}} if x_type == "quantitative" else x,
            {"aggregate": "count"},
        )
    made: Dict[str, Any] = {"x": x, "y": y}
    if coloured:
        made["color"] = {"field": "trace", "type": "nominal", "title": None}
    return made


def _cell(value: Any) -> Any:
    made = getattr(value, "isoformat", None)
    return made() if made is not None else plain(value)


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _finite(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(one) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


# --- pictures ---


def _is_picture(value: Any) -> bool:
    pillow: Any = sys.modules.get("PIL.Image")
    return hasattr(pillow, "Image") and isinstance(value, pillow.Image)


def _picture(value: Any) -> Dict[str, Any]:
    """A ``PIL.Image``, at most :data:`_PIXELS` wide and high."""
    import base64
    import io

    width, height = value.size
    label = f"{value.mode}, {width} × {height} pixels"
    small = value if value.mode in ("L", "LA", "RGB", "RGBA") else value.convert("RGB")
    if max(width, height) > _PIXELS:
        small = small.copy()
        small.thumbnail((_PIXELS, _PIXELS))
    out = io.BytesIO()
    small.save(out, format="PNG")
    src = f"data:image/png;base64,{base64.b64encode(out.getvalue()).decode('ascii')}"
    return {"kind": "image", "src": src, "label": label}


# --- models and the like ---


def _is_known(value: Any) -> bool:
    """Objects whose ``repr`` is short and without effects: estimators and modules."""
    torch: Any = sys.modules.get("torch")
    if hasattr(torch, "nn") and isinstance(value, torch.nn.Module):
        return True
    return any(base.__module__.split(".")[0] == "sklearn" for base in type(value).__mro__)


def _known(value: Any) -> Dict[str, Any]:
    return _described(value, repr(value)[:SHORT])


_FORMS = (
    (_is_frame, _frame),
    (_is_array, _array),
    (_is_tensor, _tensor),
    (_is_plotly, _plotly),
    (_is_picture, _picture),
    (is_altair, lambda value: {"kind": "vega", "spec": value.to_dict()}),
    (_is_known, _known),
)
