"""Faults on demand: refusals, cut and slow answers, watches that lose events."""

from __future__ import annotations

import dataclasses
import random
import re
from typing import Any, Optional

from . import errors
from .api import error_response
from .errors import ApiError
from .http import Request, Response
from .watch import WatchFaults

Object = dict[str, Any]
TEXTS = {
    429: "Too many requests, please try again later.\n",
    502: "Bad Gateway\n",
    503: "Service Unavailable\n",
}
REASONS = {500: "InternalError", 503: "ServiceUnavailable", 504: "Timeout"}


@dataclasses.dataclass
class Fault:
    """A fault for requests whose ``METHOD TARGET`` matches the pattern ``match``.

    ``status``: answer with this status (429 as API priority and fairness: text/plain, Retry-After).
    ``cut``: ``before`` (no answer) or ``half`` (half of the answer). ``delay_s``: answer late.
    ``after``: carry out the request, then lose or replace only its answer.
    ``times``: how often (None: until cleared); ``chance``: from 0 to 1.
    ``watch``: {drop, double, cut_after, half}: faults of matching watches, see watch.WatchFaults.
    """

    match: str
    status: Optional[int] = None
    cut: Optional[str] = None
    delay_s: float = 0.0
    after: bool = False
    times: Optional[int] = None
    chance: float = 1.0
    watch: Optional[Object] = None
    taken: int = 0

    def response(self, good: Optional[Response]) -> Response:
        """Return ``good`` with the fault applied, or a refusal; without both, no answer."""
        r = good or Response(200, b"")
        if self.status is not None:
            r = refusal(self.status)
        if r.stream is not None and self.cut == "half":
            self.cut_stream(r)
            return r
        return dataclasses.replace(r, cut=self.cut, delay_s=self.delay_s)

    def cut_stream(self, r: Response) -> None:
        r.cut = "half"


def refusal(status: int) -> Response:
    """Return an error as the real server, or a proxy in front of it, sends it."""
    if status == 401:
        return error_response(errors.unauthorized())
    if status in (429, 502):
        after = 1 if status == 429 else None
        return error_response(
            ApiError(status, None, TEXTS[status], retry_after=after, text=TEXTS[status])
        )
    words = {
        500: "an error on the server has prevented the request from succeeding",
        503: "the server is currently unable to handle the request",
        504: "Timeout: request did not complete within the allotted timeout",
    }
    return error_response(
        ApiError(status, REASONS.get(status), words.get(status, "refused on request"))
    )


class Faults:
    """All active faults. The first one that matches applies."""

    def __init__(self) -> None:
        self.rules: list[Fault] = []
        self.random = random.Random(1)

    def add(self, **given: Any) -> Fault:
        rule = Fault(**given)
        re.compile(rule.match)
        self.rules.append(rule)
        return rule

    def clear(self) -> None:
        self.rules.clear()

    def take(self, request: Request) -> Optional[Fault]:
        line = f"{request.method} {request.target}"
        for rule in self.rules:
            if rule.watch is not None or (rule.times is not None and rule.taken >= rule.times):
                continue
            if re.search(rule.match, line) and self.random.random() < rule.chance:
                rule.taken += 1
                if rule.delay_s and rule.status is None and rule.cut is None:
                    rule = dataclasses.replace(rule, after=True)
                return rule
        return None

    def watch_faults(self, request: Request) -> WatchFaults:
        line = f"{request.method} {request.target}"
        for rule in self.rules:
            over = rule.times is not None and rule.taken >= rule.times
            if rule.watch is not None and not over and re.search(rule.match, line):
                rule.taken += 1
                return WatchFaults(**rule.watch, random=self.random)
        return WatchFaults()
