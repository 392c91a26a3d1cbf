"""The components of cards: they check their arguments and write JSON.

:meth:`MetaflowCardComponent.written` returns a JSON object with ``kind``, which the engine's room
``show`` renders.
"""

from __future__ import annotations

import json
import re
import textwrap
from typing import Any, Callable, Dict, List, Optional, Tuple, Union

from ..._worker import hidden
from ...materializers import _preview
from ...materializers._preview import LONG, SHORT, is_altair, kind_of, short


class MetaflowCardComponent:
    """A part of a card. Users' components derive from it and define :meth:`render`.

    Attributes:
        component_id: its key in ``current.card.components``.
        REALTIME_UPDATABLE: ``update`` changes the displayed component.
    """

    REALTIME_UPDATABLE = False
    _component_id: Optional[str] = None
    _logger: Any = None

    @property
    def component_id(self) -> Optional[str]:
        """Its id within its card."""
        return self._component_id

    @component_id.setter
    def component_id(self, value: str) -> None:
        if not isinstance(value, str):
            raise TypeError("Component ID must be a string")
        self._component_id = value

    def update(self, *args: Any, **kwargs: Any) -> None:
        """Replace the content."""
        raise NotImplementedError(f"{type(self).__qualname__} has no update()")

    def render(self) -> Any:
        """A text or a JSON-encodable dictionary."""
        raise NotImplementedError(f"{type(self).__qualname__} has no render()")

    def written(self) -> Dict[str, Any]:
        """The JSON for the card; a user's component writes the result of ``render``."""
        made = self.render()
        if isinstance(made, dict):
            return {"kind": "json", "title": type(self).__name__, "text": _as_json(made)}
        return {"kind": "markdown", "text": str(made)}


class UserComponent(MetaflowCardComponent):
    """Base of the built-in components."""

    def update(self, *args: Any, **kwargs: Any) -> None:
        """Report that it can't be updated."""
        import warnings

        warnings.warn(f"{type(self).__name__} of a card can't be updated", stacklevel=2)

    def render(self) -> Dict[str, Any]:
        """The JSON for the card."""
        return self.written()


def written(component: Any) -> Dict[str, Any]:
    """A component's JSON; if it fails, an error in its place. Never raises."""
    try:
        return component.written()  # type: ignore[no-any-return]
    except Exception as bad:
        return failure(f"{type(component).__name__} could not be shown", bad)


def failure(title: str, error: Any) -> Dict[str, Any]:
    """The JSON of an error in a card."""
    import traceback

    if isinstance(error, BaseException):
        error = "".join(traceback.format_exception(type(error), error, error.__traceback__))
    return {"kind": "error", "title": title, "text": str(error).rstrip()}


def _as_json(value: Any) -> str:
    return json.dumps(value, indent=2, default=repr, ensure_ascii=False)


def plain(value: Any) -> Any:
    """A value for a cell: numbers and texts unchanged, components as JSON, others as text."""
    return written(value) if isinstance(value, MetaflowCardComponent) else _preview.plain(value)


class Markdown(UserComponent):
    """Text in Markdown (CommonMark and simple tables); common indentation is removed.

    Args:
        text: the text.
    """

    REALTIME_UPDATABLE = True

    def __init__(self, text: Optional[str] = None) -> None:
        self.update(text)

    def update(self, text: Optional[str] = None) -> None:
        """Replace the text."""
        self._text = None if text is None else textwrap.dedent(str(text))

    def written(self) -> Dict[str, Any]:
        return {"kind": "markdown", "text": self._text or ""}


class Artifact(UserComponent):
    """Any object, as text.

    Args:
        artifact: the object. name: shown before it. compressed: large ones are cut.
    """

    REALTIME_UPDATABLE = True

    def __init__(self, artifact: Any, name: Optional[str] = None, compressed: bool = True) -> None:
        self._artifact, self._name, self._compressed = artifact, name, compressed

    def update(self, artifact: Any) -> None:
        """Show another object."""
        self._artifact = artifact

    def written(self) -> Dict[str, Any]:
        name = None if self._name is None else str(self._name)
        text = short(self._artifact, SHORT if self._compressed else LONG)
        return {"kind": "artifact", "name": name, "type": kind_of(self._artifact), "text": text}


class Table(UserComponent):
    """Rows of texts, numbers and components.

    Args:
        data: list of rows. headers: names of the columns.
    """

    REALTIME_UPDATABLE = True
    MAX_ROWS = 5  # of a truncated frame: this many at its beginning and at its end

    def __init__(
        self,
        data: Optional[List[List[Any]]] = None,
        headers: Optional[List[str]] = None,
        disable_updates: bool = False,
    ) -> None:
        self._data = [list(row) if _is_row(row) else [row] for row in data or ()]
        self._headers = list(headers or ())
        self._n = len(self._data)  # rows of the whole frame
        if disable_updates:
            self.REALTIME_UPDATABLE = False

    @classmethod
    def from_dataframe(cls, dataframe: Any = None, truncate: bool = True) -> Table:
        """The table of a pandas dataframe, by default its first and last rows.

        Raises:
            TypeError: it isn't a dataframe.
        """
        if not (hasattr(dataframe, "columns") and hasattr(dataframe, "itertuples")):
            raise TypeError(f"Table.from_dataframe needs a dataframe, not a {kind_of(dataframe)}")
        n = len(dataframe)
        shown = dataframe
        if truncate and n > 2 * cls.MAX_ROWS:
            import pandas

            shown = pandas.concat([dataframe.head(cls.MAX_ROWS), dataframe.tail(cls.MAX_ROWS)])
        rows = [list(row) for row in shown.itertuples(index=True)]
        made = cls(rows, ["", *(str(c) for c in dataframe.columns)], disable_updates=True)
        made._n = n
        return made

    def written(self) -> Dict[str, Any]:
        rows = [[plain(cell) for cell in row] for row in self._data]
        headers = [str(h) for h in self._headers]
        return {"kind": "table", "headers": headers, "rows": rows, "n": self._n}


def _is_row(value: Any) -> bool:
    return hasattr(value, "__iter__") and not isinstance(value, (str, bytes, dict))


class Image(UserComponent):
    """A picture, embedded in the card.

    Args:
        src: PNG, JPEG, GIF, WebP, BMP or SVG as bytes, or as a ``data:image/…`` text. label: the
            text below it.
    """

    _KINDS = (
        (b"\x89PNG\r\n", "png"),
        (b"\xff\xd8\xff", "jpeg"),
        (b"GIF8", "gif"),
        (b"BM", "bmp"),
    )

    def __init__(
        self, src: Any = None, label: Optional[str] = None, disable_updates: bool = True
    ) -> None:
        self.REALTIME_UPDATABLE = not disable_updates
        self._label, self._src, self._error = label, "", None  # type: Optional[str], str, Any
        try:
            self._src = self._encoded(src)
        except (TypeError, ValueError) as bad:
            self._error = bad

    @classmethod
    def _encoded(cls, src: Any) -> str:
        import base64

        if isinstance(src, str):
            if not src.startswith("data:image/"):
                raise ValueError("a text must be a data URI, 'data:image/png;base64,…'")
            return src
        if not isinstance(src, (bytes, bytearray, memoryview)):
            raise TypeError(f"it takes bytes or a 'data:image/…' text, not a {kind_of(src)}")
        data = bytes(src)
        kind = next((k for start, k in cls._KINDS if data.startswith(start)), None)
        if kind is None and data[:4] == b"RIFF" and data[8:12] == b"WEBP":
            kind = "webp"
        if kind is None and b"<svg" in data[:1000]:
            kind = "svg+xml"
        if kind is None:
            raise ValueError("the bytes are no PNG, JPEG, GIF, WebP, BMP or SVG")
        return f"data:image/{kind};base64,{base64.b64encode(data).decode('ascii')}"

    @classmethod
    def from_pil_image(
        cls, pilimage: Any, label: Optional[str] = None, disable_updates: bool = False
    ) -> Image:
        """The picture of a ``PIL.Image``."""
        return cls._from(_png_of_pil, pilimage, label, disable_updates)

    @classmethod
    def from_matplotlib(
        cls, plot: Any, label: Optional[str] = None, disable_updates: bool = False
    ) -> Image:
        """The picture of a matplotlib figure, or of an object that has one (axes)."""
        return cls._from(_png_of_figure, plot, label, disable_updates)

    @classmethod
    def _from(
        cls, png_of: Callable[[Any], bytes], what: Any, label: Optional[str], fixed: bool
    ) -> Image:
        try:
            return cls(png_of(what), label, fixed)
        except Exception as bad:
            made = cls(None, label, fixed)
            made._error = bad
            return made

    def update(self, image: Any, label: Optional[str] = None) -> None:
        """Show another picture: bytes, a data URI, a ``PIL.Image`` or a figure."""
        if isinstance(image, (str, bytes, bytearray)):
            new = Image(image, label)
        elif hasattr(image, "savefig") or hasattr(image, "get_figure"):
            new = Image.from_matplotlib(image, label)
        else:
            new = Image.from_pil_image(image, label)
        self._src, self._error = new._src, new._error
        self._label = label if label is not None else self._label

    def written(self) -> Dict[str, Any]:
        if self._error is not None:
            return failure("Image could not be shown", str(self._error))
        return {"kind": "image", "src": self._src, "label": self._label}


def _png_of_figure(plot: Any) -> bytes:
    import io

    figure = plot if hasattr(plot, "savefig") else getattr(plot, "get_figure", lambda: None)()
    if figure is None or not hasattr(figure, "savefig"):
        raise TypeError(f"from_matplotlib needs a figure or axes, not a {kind_of(plot)}")
    out = io.BytesIO()
    figure.savefig(out, format="png", dpi=120, bbox_inches="tight", facecolor="white")
    return out.getvalue()


def _png_of_pil(picture: Any) -> bytes:
    import io

    if not (hasattr(picture, "save") and hasattr(picture, "mode")):
        raise TypeError(f"from_pil_image needs a PIL.Image, not a {kind_of(picture)}")
    out = io.BytesIO()
    fits = picture.mode in ("1", "L", "LA", "I", "P", "RGB", "RGBA")
    (picture if fits else picture.convert("RGB")).save(out, format="PNG")
    return out.getvalue()


class Error(UserComponent):
    """A handled exception.

    Args:
        exception: the exception. title: the text above it.
    """

    def __init__(self, exception: Any, title: Optional[str] = None) -> None:
        self._exception, self._title = exception, title

    def written(self) -> Dict[str, Any]:
        title = self._title if self._title is not None else type(self._exception).__name__
        if isinstance(self._exception, BaseException) and self._exception.__traceback__ is None:
            return failure(title, repr(self._exception))
        return failure(title, self._exception)


class ProgressBar(UserComponent):
    """A progress bar.

    Args:
        max: the final value. label, unit: shown with it. value: the current value. metadata: a line
            below it.
    """

    REALTIME_UPDATABLE = True

    def __init__(
        self,
        max: float = 100,
        label: Optional[str] = None,
        value: float = 0,
        unit: Optional[str] = None,
        metadata: Optional[str] = None,
    ) -> None:
        self._max, self._label, self._value = max, label, value
        self._unit, self._metadata = unit, metadata

    def update(self, new_value: float, metadata: Optional[str] = None) -> None:
        """Set the current value."""
        self._value = new_value
        if metadata is not None:
            self._metadata = metadata

    def written(self) -> Dict[str, Any]:
        return {
            "kind": "progress",
            "max": plain(self._max),
            "value": plain(self._value),
            "label": self._label,
            "unit": self._unit,
            "details": None if self._metadata is None else str(self._metadata),
        }


class ValueBox(UserComponent):
    """One important figure.

    Args:
        title: up to 200 characters. value: a number or a text of up to 100. subtitle: up to 300.
        theme: ``success``, ``warning``, ``danger``, ``bg-gradient-indigo-purple`` or ``default``.
        change_indicator: "Up 15 %"; up to 200.

    Raises:
        TypeError, ValueError: an argument has another type or value.
    """

    REALTIME_UPDATABLE = True
    _LIMITS = {"title": 200, "subtitle": 300, "theme": 100, "change_indicator": 200}

    def __init__(
        self,
        title: Optional[str] = None,
        value: Union[str, int, float] = "",
        subtitle: Optional[str] = None,
        theme: Optional[str] = None,
        change_indicator: Optional[str] = None,
    ) -> None:
        if value is None:
            raise ValueError("Value is required and cannot be None")
        self._said: Dict[str, Any] = {}
        self.update(title, value, subtitle, theme, change_indicator)

    def update(
        self,
        title: Optional[str] = None,
        value: Union[str, int, float, None] = None,
        subtitle: Optional[str] = None,
        theme: Optional[str] = None,
        change_indicator: Optional[str] = None,
    ) -> None:
        """Change the given parts."""
        texts = {"title": title, "subtitle": subtitle, "theme": theme}
        texts["change_indicator"] = change_indicator
        for name, text in texts.items():
            if text is not None:
                self._said[name] = self._checked(name, text)
        if value is not None:
            self._said["value"] = self._value(value)

    @classmethod
    def _checked(cls, name: str, text: Any) -> str:
        words = name.replace("_", " ").capitalize()
        if not isinstance(text, str):
            raise TypeError(f"{words} must be a string, got {type(text).__name__}")
        if len(text) > cls._LIMITS[name]:
            raise ValueError(
                f"{words} must be {cls._LIMITS[name]} characters or less, got {len(text)} characters"
            )
        if not text.strip():
            raise ValueError(f"{words} cannot be empty or whitespace only")
        if name == "theme" and not re.match(r"^[a-zA-Z][a-zA-Z0-9_-]*$", text):
            raise ValueError(f"Theme must be a valid CSS class name, got '{text}'")
        return text

    @staticmethod
    def _value(value: Any) -> Any:
        value = plain(value) if getattr(value, "shape", None) == () else value
        if not isinstance(value, (str, int, float)):
            raise TypeError(f"Value must be str, int, or float, got {type(value).__name__}")
        if isinstance(value, str):
            if len(value) > 100:
                raise ValueError(
                    f"String value must be 100 characters or less, got {len(value)} characters"
                )
            if not value.strip():
                raise ValueError("String value cannot be empty or whitespace only")
        elif not -1e15 <= value <= 1e15:
            raise ValueError(f"Numeric value must be between -1e15 and 1e15, got {value}")
        return value

    def written(self) -> Dict[str, Any]:
        said = dict(self._said)
        change = said.pop("change_indicator", None)
        return {"kind": "value", **said, "change": change}


class VegaChart(UserComponent):
    """A chart by its Vega-Lite specification.

    ``vl-convert-python`` draws it if that is installed, from data in the specification. Else the
    page shows the data and the specification.

    Args:
        spec: the specification. show_controls: kept, without effect: pages have no scripts.
    """

    REALTIME_UPDATABLE = True

    def __init__(self, spec: Dict[str, Any], show_controls: bool = False) -> None:
        self._spec, self._show_controls = spec, show_controls
        self._drawn: Tuple[str, Dict[str, Any]] = ("", {})  # (specification as text, component)

    @classmethod
    def from_altair_chart(cls, altair_chart: Any) -> VegaChart:
        """The chart of an ``altair.Chart``.

        Raises:
            ValueError: it isn't an ``altair.Chart``.
        """
        if not is_altair(altair_chart):
            raise ValueError(f"{kind_of(altair_chart)} is not an altair chart")
        return cls(altair_chart.to_dict())

    def update(self, spec: Any = None) -> None:
        """Show another specification or ``altair.Chart``."""
        if spec is not None:
            self._spec = spec.to_dict() if is_altair(spec) else spec

    def written(self) -> Dict[str, Any]:
        # The whole specification is the key: a chart that didn't change isn't drawn again.
        text = json.dumps(self._spec, default=repr)
        if text != self._drawn[0]:
            self._drawn = (text, _preview.chart(self._spec, hidden.hide))
        return self._drawn[1]


class PythonCode(UserComponent):
    """Python code.

    Args:
        code_func: a function whose source is shown. code_string: the code, if there is no function.
    """

    def __init__(
        self, code_func: Optional[Callable[..., Any]] = None, code_string: Optional[str] = None
    ) -> None:
        self._error: Any = None
        self._code = code_string
        if code_func is not None:
            try:
                import inspect

                self._code = textwrap.dedent(inspect.getsource(code_func))
            except (OSError, TypeError) as bad:
                self._error = bad
        elif code_string is None:
            self._error = "PythonCode needs a code_func or a code_string"

    def written(self) -> Dict[str, Any]:
        if self._error is not None:
            return failure("PythonCode could not be shown", self._error)
        return {"kind": "code", "text": self._code}


class _Viewer(UserComponent):
    REALTIME_UPDATABLE = True
    _KIND = ""

    def __init__(
        self,
        data: Any,
        collapsible: bool = True,
        max_height: Optional[str] = None,
        show_copy_button: bool = True,
        title: Optional[str] = None,
    ) -> None:
        self._data, self._collapsible, self._title = data, collapsible, title

    def update(self, data: Any) -> None:
        """Show other data."""
        self._data = data

    def _shown(self, text: str) -> Dict[str, Any]:
        said = {"title": self._title, "collapsible": bool(self._collapsible)}
        return {"kind": self._KIND, **said, "text": text}


class JSONViewer(_Viewer):
    """Data as JSON.

    Args:
        data: any value; a text that is JSON is indented. collapsible: users can fold it. title: the
            text above it.
        max_height, show_copy_button: kept, without effect.
    """

    _KIND = "json"

    def written(self) -> Dict[str, Any]:
        if not isinstance(self._data, str):
            return self._shown(_as_json(self._data))
        try:
            return self._shown(_as_json(json.loads(self._data)))
        except ValueError:
            return self._shown(self._data)


class YAMLViewer(_Viewer):
    """Data as YAML.

    Args:
        data: any value; a text is shown unchanged. The other arguments are those of
            :class:`JSONViewer`.
    """

    _KIND = "yaml"

    def written(self) -> Dict[str, Any]:
        if isinstance(self._data, str):
            return self._shown(self._data)
        return self._shown("\n".join(_yaml(json.loads(json.dumps(self._data, default=repr)))))


def _yaml(value: Any) -> List[str]:
    """Lines of plain data as YAML."""
    if isinstance(value, dict) and value:
        return [line for key, one in value.items() for line in _yaml_member(f"{_word(key)}:", one)]
    if isinstance(value, list) and value:
        lines = []
        for one in value:
            first, *rest = _yaml(one)
            lines += [f"- {first}", *(f"  {line}" for line in rest)]
        return lines
    return [_word(value) if isinstance(value, str) else json.dumps(value)]


def _yaml_member(key: str, value: Any) -> List[str]:
    if isinstance(value, (dict, list)) and value:
        return [key, *(f"  {line}" for line in _yaml(value))]
    return [f"{key} {_yaml(value)[0]}"]


def _word(text: str) -> str:
    """A text as YAML, in quotes if YAML would read it as another type."""
    plain_word = re.match(r"^[A-Za-z_/][\w ./-]*$", text) and text == text.strip()
    taken = text.lower() in ("true", "false", "null", "yes", "no", "on", "off")
    return text if plain_word and not taken else json.dumps(text, ensure_ascii=False)


class EventsTimeline(UserComponent):
    """Events, the latest first.

    Args:
        title: the text above it. max_events: older ones are counted, not shown.
    """

    REALTIME_UPDATABLE = True
    _PRIORITIES = ("low", "normal", "high", "critical")

    def __init__(self, title: Optional[str] = None, max_events: int = 100) -> None:
        self._title, self._max = title, max_events
        self._events: List[Dict[str, Any]] = []
        self._n, self._finished = 0, False
        self._first: Optional[float] = None
        self._last: Optional[float] = None
        # times of the first and the last event, by the monotonic clock
        self._beats: List[float] = []

    def update(
        self,
        event_data: Dict[str, Any],
        style_theme: Optional[str] = None,
        priority: Optional[str] = None,
        payloads: Optional[Dict[str, Any]] = None,
        finished: Optional[bool] = None,
    ) -> None:
        """Add an event.

        Args:
            event_data: names and plain values. style_theme: ``success``, ``warning``, ``error``,
                ``info``, ``primary``, ``secondary``, ``tool_call``, ``ai_response`` or ``default``.
            priority: ``low``, ``normal``, ``high``, ``critical``. payloads: names and components,
                folded.
            finished: no event follows.

        Raises:
            TypeError, ValueError: an argument has another type or value.
        """
        import time

        if not isinstance(event_data, dict):
            raise TypeError(f"an event is a dict, not a {kind_of(event_data)}")
        if priority is not None and priority not in self._PRIORITIES:
            raise ValueError(
                f"priority must be one of {', '.join(self._PRIORITIES)}, not {priority!r}"
            )
        for name, one in (payloads or {}).items():
            if not isinstance(one, MetaflowCardComponent) or isinstance(one, VegaChart):
                raise TypeError(
                    f"payload '{name}' must be a component other than a VegaChart, not a {kind_of(one)}"
                )
        self._last = time.time()
        self._beats.append(time.monotonic())
        del self._beats[1:-1]
        self._first = self._first if self._first is not None else self._last
        self._n += 1
        self._finished = self._finished if finished is None else bool(finished)
        event = {"data": dict(event_data), "theme": style_theme, "priority": priority}
        self._events.insert(0, {**event, "payloads": dict(payloads or {}), "at": self._last})
        del self._events[self._max :]

    def get_stats(self) -> Dict[str, Any]:
        """The number of events, and their times (seconds since the epoch)."""
        stats: Dict[str, Any] = {"total_events": self._n, "displayed_events": len(self._events)}
        stats.update(last_update=self._last, first_event=self._first, finished=self._finished)
        runtime = self._beats[-1] - self._beats[0] if self._beats else 0.0
        if runtime > 0:
            stats["events_per_minute"] = round(self._n / runtime * 60, 1)
            stats["total_runtime_seconds"] = round(runtime, 1)
        return stats

    def written(self) -> Dict[str, Any]:
        import time

        shown = []
        for one in self._events:
            at = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(one["at"]))
            data = {str(k): plain(v) for k, v in one["data"].items()}
            payloads = {str(k): written(v) for k, v in one["payloads"].items()}
            shown.append({**one, "data": data, "payloads": payloads, "at": at})
        said = {"title": self._title, "n": self._n, "finished": self._finished}
        return {"kind": "events", **said, "events": shown}
