"""Visualizations of artifact versions: the files that a materializer wrote with a value, and what
ZenML's own materializers show of one, made when asked for."""

from __future__ import annotations

import base64
import functools
import json
import os
import sys
import tempfile
from typing import Any, Callable, Dict, List, Optional, Tuple, Union

from ..materializers import CSVString, HTMLString, JSONString, MarkdownString
from . import enums, errors, records
from .responses import Response

Made = Tuple[str, str, Callable[[], bytes]]  # its file's name, its kind, its bytes
_STRINGS = (
    (HTMLString, "output.html", "html"),
    (MarkdownString, "output.md", "markdown"),
    (CSVString, "output.csv", "csv"),
    (JSONString, "output.json", "json"),
)
_BASIC = (bool, int, float, str, type(None))
_PICKLED = ("PIL.",)  # types with visualizations that are stored as pickles
_PANDAS_ROWS = 10


@functools.cache
def _folder() -> tempfile.TemporaryDirectory[str]:
    """Where files of visualizations are; removed when the program ends."""
    return tempfile.TemporaryDirectory(prefix="stoker-visual-")


class ArtifactVisualizationResponse(Response):
    """One visualization of an artifact version."""

    def __init__(self, version: Any, number: int, made: Made) -> None:
        self.name, kind, self._bytes = made
        self.type = enums.__getattr__("VisualizationType")(kind)
        self.id = records.id_of("artifact visualization", f"{version.id}/{number}")
        self.artifact_version = version
        self.artifact_version_id = version.id
        self.created, self.updated = version.created, version.updated

    @property
    def uri(self) -> str:
        """Path of a file with it, which lasts as long as this program."""
        path = os.path.join(_folder().name, str(self.id), os.path.basename(self.name))
        if not os.path.exists(path):
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, "wb") as stream:
                stream.write(self._bytes())
        return path

    def read(self) -> Union[str, bytes]:
        """Its text; the bytes of a picture."""
        raw = self._bytes()
        return raw if self.type.value == "image" else raw.decode("utf-8")


class LoadedVisualization:
    """What a visualization shows: its type, and its text or bytes."""

    def __init__(self, type: Any, value: Union[str, bytes]) -> None:
        self.type = type
        self.value = value


def visualizations_of(version: Any) -> List[ArtifactVisualizationResponse]:
    """All of a version: those that its materializer wrote, else those of a value of its type."""
    meta = version.row.get("meta") or {}
    if meta.get("materializer"):
        made = [_file(version, name, kind) for name, kind in meta.get("visualizations") or ()]
    elif version.switch("enable_artifact_visualization") is False:
        made = []
    else:
        made = _made(version)
    return [ArtifactVisualizationResponse(version, i, one) for i, one in enumerate(made)]


def _file(version: Any, name: str, kind: str) -> Made:
    def read() -> bytes:
        with open(os.path.join(version.uri, name), "rb") as stream:
            return stream.read()

    return name, kind, read


def _made(version: Any) -> List[Made]:
    kind = str(version.data_type)
    if "pickle" in str(version.row.get("format")) and not kind.startswith(_PICKLED):
        return []
    value = version.load()
    for matches, made in _FORMS:
        if matches(value):
            return made(value)
    return []


def _json(value: Any) -> List[Made]:
    return [("data.json", "json", lambda: json.dumps(value, default=list).encode())]


def _is_plain(value: Any) -> bool:
    """Whether ZenML writes a value as JSON."""
    if isinstance(value, dict):
        return all(isinstance(key, str) for key in value) and all(map(_is_plain, value.values()))
    if isinstance(value, (list, tuple, set)):
        return all(map(_is_plain, value))
    return isinstance(value, _BASIC)


def _string(value: Any) -> List[Made]:
    name, kind = next((name, kind) for own, name, kind in _STRINGS if isinstance(value, own))
    return [(name, kind, lambda: value.encode("utf-8"))]


def _is(module: str, *names: str) -> Callable[[Any], bool]:
    def matches(value: Any) -> bool:
        kinds = [getattr(sys.modules.get(module), name, None) for name in names]
        return isinstance(value, tuple(kind for kind in kinds if kind))

    return matches


def _frame(value: Any) -> List[Made]:
    def sample() -> bytes:
        head = value.head(int(os.environ.get("ZENML_PANDAS_SAMPLE_ROWS", _PANDAS_ROWS)))
        return (head if hasattr(head, "columns") else head.to_frame()).to_csv().encode()  # type: ignore[no-any-return]

    return [
        ("describe.csv", "csv", lambda: value.describe().to_csv().encode()),
        ("sample.csv", "csv", sample),
    ]


def _array(value: Any) -> List[Made]:
    """A histogram of numbers, or the picture of which they are the pixels, if matplotlib is
    installed."""
    import importlib.util
    import io

    numpy: Any = sys.modules["numpy"]
    is_picture = value.ndim == 3 and value.shape[2] in (3, 4)
    is_shown = numpy.issubdtype(value.dtype, numpy.number) and (value.ndim == 1 or is_picture)
    if not is_shown or importlib.util.find_spec("matplotlib") is None:
        return []

    def draw() -> bytes:
        out = io.BytesIO()
        if is_picture:
            from matplotlib.image import imsave

            imsave(out, value)
        else:
            from matplotlib.figure import Figure

            figure = Figure()
            figure.subplots().hist(value)
            figure.savefig(out, format="png")
        return out.getvalue()

    return [("image.png" if is_picture else "histogram.png", "image", draw)]


def _picture(value: Any) -> List[Made]:
    import io

    form = str(value.format or "PNG")

    def draw() -> bytes:
        out = io.BytesIO()
        value.save(out, format=form)
        return out.getvalue()

    return [(f"image_file.{form}", "image", draw)]


def _pydantic(value: Any) -> List[Made]:
    return [("data.json", "json", lambda: str(value.model_dump_json()).encode())]


def _dataclass(value: Any) -> List[Made]:
    import dataclasses

    return _json(dataclasses.asdict(value))


_FORMS: Tuple[Tuple[Callable[[Any], bool], Callable[[Any], List[Made]]], ...] = (
    (lambda value: isinstance(value, tuple(own for own, _, _ in _STRINGS)), _string),
    (_is_plain, _json),
    (lambda value: type(value) is bytes, lambda v: [("data.txt", "markdown", lambda: v)]),
    (_is("pandas", "DataFrame", "Series"), _frame),
    (_is("numpy", "ndarray"), _array),
    (_is("PIL.Image", "Image"), _picture),
    (lambda value: hasattr(type(value), "model_dump_json"), _pydantic),
    (lambda value: hasattr(type(value), "__dataclass_fields__"), _dataclass),
)


def load_artifact_visualization(
    artifact: Any, index: int = 0, zen_store: Any = None, encode_image: bool = False
) -> LoadedVisualization:
    """One visualization of an artifact version.

    Raises:
        DoesNotExistException: it has none of this index.
    """
    found = artifact.visualizations
    if not 0 <= index < len(found):
        bad: Any = errors.__getattr__("DoesNotExistException")
        raise bad(
            f"artifact '{artifact.name}:{artifact.version}' has {len(found)} visualizations, so "
            f"none of index {index}"
        )
    value = found[index].read()
    if encode_image and isinstance(value, bytes):
        value = base64.b64encode(value).decode("ascii")
    return LoadedVisualization(found[index].type, value)


def visualize_artifact(artifact: Any, title: Optional[str] = None) -> None:
    """Display all visualizations of an artifact version in a notebook.

    Raises:
        RuntimeError: the program doesn't run in a notebook.
    """
    if not _in_notebook():
        raise RuntimeError(
            "visualize() displays in a notebook; elsewhere `stoker ui` shows the artifact, and "
            "load_artifact_visualization(artifact).value is what it shows"
        )
    from IPython import display

    if title:
        display.display(display.Markdown(f"### {title}"))  # type: ignore[no-untyped-call]
    makers: Dict[str, Callable[[Any], Any]] = {
        "image": display.Image,
        "html": display.HTML,
        "markdown": display.Markdown,
        "csv": lambda text: display.HTML(format_csv_visualization_as_html(text)),  # type: ignore[no-untyped-call]
        "json": lambda text: display.JSON(json.loads(text)),  # type: ignore[no-untyped-call]
    }
    for one in artifact.visualizations:
        display.display(makers[one.type.value](one.read()))  # type: ignore[no-untyped-call]


def _in_notebook() -> bool:
    shell: Any = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return hasattr(shell, "kernel")


def format_csv_visualization_as_html(
    csv_visualization: str, max_rows: int = 10, max_cols: int = 10
) -> str:
    """Comma-separated values as a table of HTML; what lies in the middle of many rows is left
    out."""
    import csv
    import html
    import io

    rows = list(csv.reader(io.StringIO(csv_visualization)))
    if len(rows) > max_rows:
        half = max_rows // 2
        rows = [*rows[:half], ["..."], *rows[-half:]]
    lines = []
    for row in rows:
        cells = row if len(row) <= max_cols else [*row[:max_cols], "..."]
        lines.append("".join(f"<td>{html.escape(cell)}</td>" for cell in cells))
    return f"<table>{''.join(f'<tr>{line}</tr>' for line in lines)}</table>"
