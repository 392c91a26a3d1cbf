"""Pages of results: filters, sorting and pages as ZenML's lists have them."""

from __future__ import annotations

import datetime
import json
from typing import Any, Callable, Dict, Iterable, List, Mapping, TypeVar

_T = TypeVar("_T")
_LARGEST = 10000


class Page(List[_T]):
    """One page of results: a list, with the number of all results."""

    def __init__(self, items: Iterable[_T], total: int, index: int = 1, size: int = 20) -> None:
        super().__init__(items)
        self.total = total
        self.index = index  # type: ignore[method-assign,assignment]
        self.max_size = size
        self.total_pages = max(1, -(-total // size))

    @property
    def size(self) -> int:
        """How many results this page has."""
        return len(self)

    @property
    def items(self) -> List[_T]:
        """The results of this page."""
        return list(self)

    def model_dump(self, **given: Any) -> Dict[str, Any]:
        """Its numbers, and its results as mappings."""
        told = {k: getattr(self, k) for k in ("index", "max_size", "total_pages", "total")}
        return {**told, "items": [one.model_dump(**given) for one in self]}  # type: ignore[attr-defined]


def _several(value: Any) -> Iterable[Any]:
    return value if isinstance(value, (list, tuple, set)) else [value]


def text_of(value: Any) -> str:
    """A value as filters see it."""
    return str(getattr(value, "value", value))


def _typed(value: Any, given: str) -> Any:
    """The text of a filter as what it is compared with: a time or a number where that is one.

    Raises:
        ValueError: it is none.
    """
    if isinstance(value, datetime.datetime):
        try:
            return datetime.datetime.strptime(given, _TIME)
        except ValueError:
            raise ValueError(f"'{given}' is not a time such as 2025-01-31 12:00:00") from None
    return _number(given)


def _number(value: Any) -> Any:
    if isinstance(value, datetime.datetime):
        return value
    try:
        return float(value)
    except (TypeError, ValueError):
        return text_of(value)


def _compare(value: Any, given: str, how: Callable[[Any, Any], bool]) -> bool:
    if value is None:
        return False
    left, right = _number(value), _typed(value, given)
    if type(left) is not type(right):
        left, right = text_of(value), given
    return how(left, right)


def _between(value: Any, given: str) -> bool:
    """``in:FROM,TO`` of a time."""
    first, comma, last = given.partition(",")
    if not comma or not isinstance(value, datetime.datetime):
        raise ValueError(f"the filter 'in:{given}' needs two times, as in 'in:FROM,TO'")
    return bool(_typed(value, first) <= _number(value) <= _typed(value, last))


def _one_of(value: Any, given: str) -> bool:
    try:
        wanted = json.loads(given)
    except ValueError:
        wanted = None
    if not isinstance(wanted, list):
        raise ValueError(f"the filter 'oneof:{given}' needs a JSON list, as in 'oneof:[\"a\"]'")
    return text_of(value) in [text_of(one) for one in wanted]


_TIME = "%Y-%m-%d %H:%M:%S"
_OPS: Dict[str, Callable[[Any, str], bool]] = {
    "equals": lambda value, given: text_of(value) == given,
    "notequals": lambda value, given: text_of(value) != given,
    "contains": lambda value, given: given in text_of(value),
    "notcontains": lambda value, given: given not in text_of(value),
    "startswith": lambda value, given: text_of(value).startswith(given),
    "endswith": lambda value, given: text_of(value).endswith(given),
    "oneof": _one_of,
    "notoneof": lambda value, given: not _one_of(value, given),
    "in": _between,
    "isnull": lambda value, given: value is None,
    "isnotnull": lambda value, given: value is not None,
    "gt": lambda value, given: _compare(value, given, lambda a, b: a > b),
    "gte": lambda value, given: _compare(value, given, lambda a, b: a >= b),
    "lt": lambda value, given: _compare(value, given, lambda a, b: a < b),
    "lte": lambda value, given: _compare(value, given, lambda a, b: a <= b),
}


def matches(value: Any, wanted: Any) -> bool:
    """Whether a value passes a filter: a value, ``"contains:x"``, or a list of filters, which must
    all pass. Of a list of values (tags) one must pass; metadata is asked by ``"KEY:VALUE"`` or
    ``"KEY:gt:VALUE"``."""
    if isinstance(wanted, (list, tuple, set)):
        return all(matches(value, one) for one in wanted)
    if isinstance(value, dict):
        return _has_metadata(value, text_of(wanted))
    if isinstance(value, (list, tuple, set)):
        return any(matches(one, wanted) for one in value)
    if isinstance(value, datetime.datetime) and isinstance(wanted, datetime.datetime):
        return value == wanted
    text = text_of(wanted)
    word, colon, given = text.partition(":")
    if colon and word in _OPS:
        return _OPS[word](value, given)
    if isinstance(wanted, bool) or isinstance(value, bool):
        return text.lower() == str(value).lower()
    return text_of(value) == text


def _has_metadata(metadata: Mapping[str, Any], wanted: str) -> bool:
    key, colon, given = wanted.partition(":")
    if not colon:
        raise ValueError(f"the filter '{wanted}' of metadata is 'KEY:VALUE' or 'KEY:gt:VALUE'")
    return key in metadata and matches(_plain(metadata[key]), given)


def _plain(value: Any) -> Any:
    return json.dumps(value) if isinstance(value, (dict, list)) else value


class Filters:
    """What the arguments of a ``list_…`` call ask for.

    ``asked`` maps an argument to a function of a result: the value that the filter looks at.
    """

    def __init__(
        self, what: str, given: Mapping[str, Any], asked: Mapping[str, Callable[[Any], Any]]
    ) -> None:
        self.given = {k: v for k, v in given.items() if v is not None}
        self.asked = asked
        for wanted in self.given.get("run_metadata", ()) and _several(self.given["run_metadata"]):
            _has_metadata({}, "" if isinstance(wanted, Mapping) else text_of(wanted))
        for name in self.given:
            if name not in asked and name not in _IGNORED:
                known = ", ".join(sorted(asked))
                raise TypeError(f"list_{what}() has no filter '{name}'; it has {known}")

    def passes(self, item: Any, logical: str) -> bool:
        """Whether a result passes all filters, or one of them with ``logical="or"``."""
        found = [
            matches(self.asked[name](item), wanted)
            for name, wanted in self.given.items()
            if name in self.asked
        ]
        return any(found) if found and text_of(logical) == "or" else all(found)


_IGNORED = (
    *("hydrate", "project", "user", "scope_user", "external_user_id", "latest_run_user"),
    *("include_full_metadata", "connector_id"),
)


def page_of(
    what: str,
    found: Iterable[_T],
    given: Mapping[str, Any],
    asked: Mapping[str, Callable[[Any], Any]],
    sort_by: str = "created",
    orders: Mapping[str, Callable[[Any], Any]] = {},
) -> Page[_T]:
    """The page that the arguments of ``list_WHAT`` ask for; ``sort_by`` is its usual order, and
    ``orders`` are those that are no filters.

    Raises:
        TypeError: an argument that this list doesn't have.
        ValueError: a page, size or order that isn't one.
    """
    given = dict(given)
    sort_by = text_of(given.pop("sort_by", None) or sort_by)
    index, size = (
        _whole(given.pop(key, None), usual) for key, usual in (("page", 1), ("size", 20))
    )
    logical = given.pop("logical_operator", None) or "and"
    if index < 1 or not 1 <= size <= _LARGEST:
        raise ValueError(f"page {index} of size {size}: pages count from 1, sizes go to {_LARGEST}")
    filters = Filters(what, given, asked)
    items = [item for item in found if filters.passes(item, logical)]
    order, colon, column = sort_by.partition(":")
    if not colon:
        order, column = "asc", sort_by
    orders = {**asked, **orders}
    if column not in orders:
        raise ValueError(
            f"list_{what}() can't sort by '{column}'; it can by {', '.join(sorted(orders))}"
        )
    items = _sorted(items, orders[column])
    if order == "desc":
        items.reverse()
    if index > max(1, -(-len(items) // size)):
        raise ValueError(f"there is no page {index}: {len(items)} results at {size} a page")
    return Page(items[(index - 1) * size : index * size], len(items), index, size)


def _whole(value: Any, usual: int) -> int:
    return usual if value is None else int(value)


def _sorted(items: List[_T], asked: Callable[[Any], Any]) -> List[_T]:
    def key(item: Any) -> Any:
        value = asked(item)
        value = getattr(value, "value", value)
        return (value is not None, value if not isinstance(value, (list, dict)) else len(value))

    return sorted(items, key=key)
