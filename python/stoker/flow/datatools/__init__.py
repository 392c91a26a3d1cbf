"""``S3``: objects of S3 for flows, or of a folder where no bucket is named.

``_s3.py`` has the class, ``_objects.py`` what it returns, ``_ask.py`` asks the engine, which has
the credentials, connections and retries (``stoker share answer``), ``_folder.py`` answers the same
requests from a folder.
"""

from __future__ import annotations

from ._objects import (
    MetaflowS3AccessDenied,
    MetaflowS3Exception,
    MetaflowS3InsufficientDiskSpace,
    MetaflowS3InvalidObject,
    MetaflowS3InvalidRange,
    MetaflowS3NotFound,
    MetaflowS3URLException,
    RangeInfo,
    S3GetObject,
    S3Object,
    S3PutObject,
)
from ._s3 import S3

__all__ = [
    "S3",
    "MetaflowS3AccessDenied",
    "MetaflowS3Exception",
    "MetaflowS3InsufficientDiskSpace",
    "MetaflowS3InvalidObject",
    "MetaflowS3InvalidRange",
    "MetaflowS3NotFound",
    "MetaflowS3URLException",
    "RangeInfo",
    "S3GetObject",
    "S3Object",
    "S3PutObject",
]
