"""The API's errors: ``ApiError`` carries a whole HTTP answer of kind Status.

The messages are those in the recording ``tests/data/kubernetes/errors.jsonl``.
"""

from __future__ import annotations

from typing import Any, Optional

Object = dict[str, Any]
Cause = tuple[str, str, str]  # (reason, message, field)


class ApiError(Exception):
    """An answer that isn't a success: HTTP ``code`` with a ``Status`` object or plain ``text``."""

    def __init__(
        self,
        code: int,
        reason: Optional[str],
        message: str,
        details: Optional[Object] = None,
        retry_after: Optional[int] = None,
        text: Optional[str] = None,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason
        self.message = message
        self.details = details
        self.retry_after = retry_after
        self.text = text

    def status(self) -> Object:
        """The Status object of this error."""
        out: Object = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": self.message,
        }
        if self.reason is not None:
            out["reason"] = self.reason
        if self.details is not None:
            out["details"] = self.details
        out["code"] = self.code
        return out


def success(details: Object) -> Object:
    """Return the Status that answers a DELETE."""
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Success",
        "details": details,
    }


def details_of(name: str, group: str, kind: str) -> Object:
    """Return ``details`` of a Status, without empty parts, as the server does."""
    out: Object = {}
    if name:
        out["name"] = name
    if group:
        out["group"] = group
    out["kind"] = kind
    return out


def dotted(plural: str, group: str) -> str:
    """Return ``jobs.batch`` or ``pods``: how messages name a resource."""
    return f"{plural}.{group}" if group else plural


def not_found(plural: str, group: str, name: str) -> ApiError:
    return ApiError(
        404,
        "NotFound",
        f'{dotted(plural, group)} "{name}" not found',
        details_of(name, group, plural),
    )


def no_such_resource() -> ApiError:
    return ApiError(404, "NotFound", "the server could not find the requested resource", details={})


def page_not_found() -> ApiError:
    """The answer for an API group that isn't installed: it isn't JSON."""
    return ApiError(404, None, "404 page not found", text="404 page not found\n")


def already_exists(plural: str, group: str, name: str) -> ApiError:
    return ApiError(
        409,
        "AlreadyExists",
        f'{dotted(plural, group)} "{name}" already exists',
        details_of(name, group, plural),
    )


def conflict(plural: str, group: str, name: str, why: str) -> ApiError:
    return ApiError(
        409,
        "Conflict",
        f'Operation cannot be fulfilled on {dotted(plural, group)} "{name}": {why}',
        details_of(name, group, plural),
    )


MODIFIED = (
    "the object has been modified; please apply your changes to the latest version and try again"
)


def invalid(kind: str, group: str, name: str, causes: list[Cause]) -> ApiError:
    """Return a 422 with one or more causes, joined as the server does."""
    parts = list(dict.fromkeys(f"{field}: {message}" for _, message, field in causes))
    said = parts[0] if len(parts) == 1 else "[" + ", ".join(parts) + "]"
    details = details_of(name, group, kind)
    details["causes"] = [
        {"reason": reason, "message": message, "field": field} for reason, message, field in causes
    ]
    return ApiError(422, "Invalid", f'{dotted(kind, group)} "{name}" is invalid: {said}', details)


def bad_request(message: str) -> ApiError:
    return ApiError(400, "BadRequest", message)


def forbidden(plural: str, group: str, name: str, why: str) -> ApiError:
    target = f'{dotted(plural, group)} "{name}"' if name else dotted(plural, group)
    return ApiError(
        403, "Forbidden", f"{target} is forbidden: {why}", details_of(name, group, plural)
    )


def unauthorized() -> ApiError:
    return ApiError(401, "Unauthorized", "Unauthorized")


def method_not_allowed() -> ApiError:
    return ApiError(
        405,
        "MethodNotAllowed",
        "the server does not allow this method on the requested resource",
        details={},
    )


def expired(rv: int, oldest: int) -> Object:
    """Return the Status in the ERROR event of a watch whose version has expired."""
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": f"too old resource version: {rv} ({oldest})",
        "reason": "Expired",
        "code": 410,
    }
