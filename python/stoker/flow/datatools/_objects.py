"""What ``S3`` takes and returns, and its errors."""

from __future__ import annotations

import json
import os
from typing import Any, Dict, NamedTuple, Optional

from ..exception import MetaflowException


class MetaflowS3InvalidObject(MetaflowException):
    """A value to store is neither text, bytes nor a file that can be read from its start."""

    headline = "Not a string-like object"


class MetaflowS3URLException(MetaflowException):
    """An address is of a wrong form, or its bucket doesn't exist."""

    headline = "Invalid address"


class MetaflowS3Exception(MetaflowException):
    """S3 can't be reached, or answers with an error."""

    headline = "S3 access failed"


class MetaflowS3NotFound(MetaflowException):
    """There is no such object."""

    headline = "S3 object not found"


class MetaflowS3AccessDenied(MetaflowException):
    """The credentials don't allow it."""

    headline = "S3 access denied"


class MetaflowS3InvalidRange(MetaflowException):
    """The object has no such part."""

    headline = "S3 invalid range"


class MetaflowS3InsufficientDiskSpace(MetaflowException):
    """There is no room for what is downloaded."""

    headline = "Insufficient disk space"


class S3GetObject(NamedTuple):
    """A part of an object: ``length`` bytes from ``offset``; a negative length: the last bytes."""

    key: str
    offset: Optional[int]
    length: Optional[int]


class S3PutObject(NamedTuple):
    """An object to store: ``value`` for ``put_many``, ``path`` for ``put_files``."""

    key: str
    value: Any = None
    path: Optional[str] = None
    content_type: Optional[str] = None
    encryption: Optional[str] = None
    metadata: Optional[Dict[str, str]] = None


class RangeInfo(NamedTuple):
    """What was downloaded of an object, in bytes."""

    total_size: int
    request_offset: int = 0
    request_length: int = -1


class S3Object:
    """A path or an object of S3, perhaps with a local copy that lasts as long as its ``S3``.

    Attributes:
        url: ``s3://bucket/key``. key: what was asked for: the part of the URL below ``prefix``, or
            the URL. prefix: what it was asked for below, or None. exists: whether it is an object.
        size: in bytes; None: it doesn't exist. downloaded: whether there is a local copy.
        path: of the local copy, or None.
        has_info: whether the following are known. content_type, metadata, encryption,
            last_modified (Unix time), range_info.
    """

    def __init__(
        self,
        prefix: Optional[str],
        url: str,
        path: Optional[str],
        size: Optional[int] = None,
        content_type: Optional[str] = None,
        metadata: Optional[Dict[str, str]] = None,
        range_info: Optional[RangeInfo] = None,
        last_modified: Optional[float] = None,
        encryption: Optional[str] = None,
    ) -> None:
        self.url = url
        self.path = path
        self.size = os.stat(path).st_size if path else size
        self.content_type = content_type
        self.last_modified = last_modified
        self.encryption = encryption
        self.range_info = range_info
        said = (metadata or {}).get("metaflow-user-attributes")
        self.metadata: Optional[Dict[str, str]] = json.loads(said) if said else None
        if prefix is None or prefix == url:
            self.key, self.prefix = url, None
        else:
            self.key, self.prefix = url[len(prefix.rstrip("/")) + 1 :].rstrip("/"), prefix

    @property
    def exists(self) -> bool:
        """Whether it is an object."""
        return self.size is not None

    @property
    def downloaded(self) -> bool:
        """Whether there is a local copy."""
        return bool(self.path)

    @property
    def has_info(self) -> bool:
        """Whether more than its size is known."""
        known = (self.content_type, self.metadata, self.range_info, self.encryption)
        return any(one is not None for one in known)

    @property
    def blob(self) -> Optional[bytes]:
        """Its content; None if it wasn't downloaded."""
        if not self.path:
            return None
        with open(self.path, "rb") as file:
            return file.read()

    @property
    def text(self) -> Optional[str]:
        """Its content as UTF-8; None if it wasn't downloaded."""
        blob = self.blob
        return None if blob is None else blob.decode("utf-8", errors="replace")

    def __str__(self) -> str:
        if self.path:
            return f"<S3Object {self.url} ({self.size} bytes, local)>"
        if self.size:
            return f"<S3Object {self.url} ({self.size} bytes, in S3)>"
        return f"<S3Object {self.url} (object does not exist)>"

    __repr__ = __str__
