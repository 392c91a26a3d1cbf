"""Secrets: encrypted in the store with a key that only the user can read."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import hmac
import json
import os
import uuid
from typing import Any, Dict, Iterator, List, Mapping, Optional

from .._base.binary import output_of
from . import records
from .errors import EntityExistsError
from .page import Page, page_of
from .responses import Response, found_by, moment


class SecretResponse(Response):
    """A secret: names with values."""

    def __init__(self, record: records.Record) -> None:
        self.name = record.name
        self.id = uuid.UUID(record.body["id"])
        self.private = bool(record.body.get("private"))
        self.created, self.updated = moment(record.created_ms), moment(record.updated_ms)
        self._sealed: str = record.body["sealed"]

    @property
    def secret_values(self) -> Dict[str, str]:
        """The values as text."""
        return dict(json.loads(_open(self.name, self._sealed)))

    @property
    def values(self) -> Dict[str, Any]:
        """The values, hidden from ``print``."""
        return {name: Hidden(value) for name, value in self.secret_values.items()}

    def _change(self, values: Dict[str, str]) -> None:
        self._sealed = _seal(self.name, json.dumps(values))

    def add_secret(self, key: str, value: str) -> None:
        """Add a value to this object; ``Client().update_secret`` changes what is kept."""
        self._change({**self.secret_values, key: value})

    def remove_secret(self, key: str) -> None:
        """Remove a value from this object."""
        self._change({k: v for k, v in self.secret_values.items() if k != key})

    def remove_secrets(self) -> None:
        """Remove all values from this object."""
        self._change(dict.fromkeys(self.secret_values, ""))

    def set_secrets(self, values: Dict[str, str]) -> None:
        """Replace the values of this object."""
        self._change(dict(values))

    @property
    def has_missing_values(self) -> bool:
        """Never: values can always be read."""
        return False


class Hidden:
    """A text that ``print`` doesn't show."""

    def __init__(self, value: str) -> None:
        self._value = value

    def get_secret_value(self) -> str:
        """The text."""
        return self._value

    def __repr__(self) -> str:
        return "**********"


_SEALED = "gcm:"  # begins what the engine sealed


def _seal(name: str, text: str) -> str:
    """Encrypted by the engine (``stoker record seal``), for this name only."""
    return _SEALED + output_of(["record", "seal", "secret", name], text=text).strip()


def _open(name: str, sealed: str) -> str:
    if not sealed.startswith(_SEALED):
        return _open_old(sealed)
    return output_of(["record", "open", "secret", name], text=sealed[len(_SEALED) :])


def _open_old(sealed: str) -> str:
    """What earlier versions wrote, in Python: HMAC-SHA256 as a key stream and as a tag. A change of
    the secret writes it as the engine does."""
    home = os.environ.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config")
    with open(os.path.join(home, "stoker", "secrets.key"), "rb") as stream:
        key = stream.read()
    encrypt, authenticate = (_mac(key, word) for word in (b"encrypt", b"authenticate"))
    raw = base64.b64decode(sealed)
    nonce, tag, data = raw[:16], raw[16:48], raw[48:]
    if not hmac.compare_digest(tag, _mac(authenticate, nonce + data)):
        raise RuntimeError("a secret can't be read: it was written with another key, or changed")
    blocks = (_mac(encrypt, nonce + i.to_bytes(8, "big")) for i in range(-(-len(data) // 32)))
    stream_of = b"".join(blocks)
    return bytes(a ^ b for a, b in zip(data, stream_of)).decode("utf-8", "surrogatepass")


def _mac(key: bytes, data: bytes) -> bytes:
    return hmac.new(key, data, hashlib.sha256).digest()


def lend(spec: Dict[str, Any]) -> Dict[str, str]:
    """Let a document's steps have the values of the secrets that they name: each key is a variable.

    Names that are no secrets of the store stay; they are variables of this process's environment
    (``STOKER_SECRET_NAME``). Returns the variables that the engine needs.
    """
    parts = [part for part in (spec, *spec["steps"].values()) if part.get("secrets")]
    if not parts:
        return {}
    known = {one: record for record in secrets() for one in (record.name, str(record.id))}
    lent: Dict[str, str] = {}
    for part in parts:
        names: List[str] = []
        for name in part["secrets"]:
            values = known[name].secret_values if name in known else None
            names += [name] if values is None else list(values)
            lent.update({f"STOKER_SECRET_{k}": v for k, v in (values or {}).items()})
        part["secrets"] = list(dict.fromkeys(names))
    return lent


@contextlib.contextmanager
def lending(values: Mapping[str, str]) -> Iterator[None]:
    """Have variables in this process's environment while an engine starts."""
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def _body(name: str, values: Mapping[str, str], private: bool) -> Dict[str, Any]:
    text = json.dumps({k: str(v) for k, v in values.items()})
    return {"sealed": _seal(name, text), "private": private}


def create(name: str, values: Mapping[str, str], private: bool = False) -> SecretResponse:
    """Keep values under a name.

    Raises:
        EntityExistsError: the name is taken.
        ValueError: a value isn't text.
    """
    wrong = [key for key, value in values.items() if not isinstance(value, str)]
    if wrong:
        raise ValueError(f"secret '{name}': the value of '{wrong[0]}' isn't text")
    try:
        return SecretResponse(records.create("secret", name, _body(name, values, private)))
    except EntityExistsError:
        raise EntityExistsError(f"a secret '{name}' exists already") from None


def secrets() -> List[SecretResponse]:
    """All secrets in order of creation."""
    return [SecretResponse(record) for record in records.listed("secret")]


def get(name_or_id: Any, partial: bool = True) -> SecretResponse:
    """A secret by name, id or prefix; raises KeyError."""
    wanted = str(getattr(name_or_id, "id", name_or_id))
    exact = [s for s in secrets() if wanted in (s.name, str(s.id))]
    if exact or not partial:
        if not exact:
            raise KeyError(f"there is no secret '{wanted}'")
        return exact[0]
    found: SecretResponse = found_by("secret", name_or_id, secrets())
    return found


def update(
    secret: SecretResponse,
    new_name: Optional[str] = None,
    more: Optional[Mapping[str, str]] = None,
    gone: Optional[List[str]] = None,
    private: Optional[bool] = None,
) -> SecretResponse:
    """Change values, the name, or whether it is private.

    Raises:
        KeyError: a value that should go isn't there.
    """
    values = {**secret.secret_values, **(more or {})}
    for key in gone or ():
        if key not in values:
            raise KeyError(f"secret '{secret.name}' has no value '{key}'")
        del values[key]
    body = _body(new_name or secret.name, values, secret.private if private is None else private)
    if new_name and new_name != secret.name:
        records.create("secret", new_name, {**body, "id": str(secret.id)})
        records.remove("secret", secret.name)
        return get(new_name, False)
    return SecretResponse(records.change("secret", secret.name, lambda b: b.update(body)))


def delete(secret: SecretResponse) -> None:
    """Remove a secret."""
    records.remove("secret", secret.name)


def list_secrets(given: Mapping[str, Any]) -> Page[SecretResponse]:
    """The page of secrets that the arguments ask for."""
    asked = {
        "id": lambda s: s.id,
        "name": lambda s: s.name,
        "private": lambda s: s.private,
        "created": lambda s: s.created,
        "updated": lambda s: s.updated,
    }
    return page_of("secrets", secrets(), given, asked)
