"""The class ``S3``."""

from __future__ import annotations

import io
import json
import os
import shutil
import sys
import tempfile
from typing import Any, Dict, Iterable, List, Mapping, Optional, Sequence, Tuple
from urllib.parse import urlparse

from .._config import setting
from .._current import current
from ._ask import answers
from ._folder import SCHEME
from ._objects import (
    MetaflowS3InvalidObject,
    MetaflowS3NotFound,
    MetaflowS3URLException,
    RangeInfo,
    S3Object,
    S3PutObject,
)

_META = "metaflow-user-attributes"
_told: List[str] = []


class S3:
    """A client of S3, and a temporary folder for what it downloads.

    It is a context: ``with S3(run=self) as s3`` removes the folder at the end; :meth:`close` does,
    too. Credentials, region and endpoint are those of AWS's own tools (``AWS_PROFILE`` …).

    Args:
        tmproot: where the temporary folder is made.
        bucket, prefix: with ``run``, in place of those of ``METAFLOW_DATATOOLS_S3ROOT``.
        run: the flow (``self``) or a past run: keys are below FLOW/RUN of
            ``METAFLOW_DATATOOLS_S3ROOT``; where that isn't set, in a folder of the store.
        s3root: keys are below this URL. Without ``run`` and ``s3root``, keys are whole URLs.
        encryption: at the server, such as ``AES256`` or ``aws:kms``.
        client_params: ``endpoint_url`` only. role: ARN of a role to assume.

    Raises:
        MetaflowS3URLException: a URL isn't one of S3, or there is no place for ``run``.
    """

    TYPE = "s3"

    def __init__(
        self,
        tmproot: Optional[str] = None,
        bucket: Optional[str] = None,
        prefix: Optional[str] = None,
        run: Any = None,
        s3root: Optional[str] = None,
        encryption: Optional[str] = None,
        **kwargs: Any,
    ) -> None:
        self._endpoint = _endpoint(kwargs)
        self._role = str(kwargs.get("role") or "")
        self._encryption = encryption or setting("S3_SERVER_SIDE_ENCRYPTION")
        self._s3root: Optional[str] = None
        if run:
            self._s3root = _root_of(run, bucket, prefix)
        elif s3root:
            self._s3root = _text(s3root).rstrip("/")
            if urlparse(self._s3root).scheme not in ("s3", "local"):
                raise MetaflowS3URLException("s3root needs to be an S3 URL prefixed with s3://.")
        self._tmpdir: Optional[str] = tempfile.mkdtemp(
            dir=tmproot or setting("TEMPDIR"), prefix="metaflow.s3."
        )
        self._n = 0

    def __enter__(self) -> S3:
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def close(self) -> None:
        """Remove the temporary files."""
        if self._tmpdir:
            shutil.rmtree(self._tmpdir, ignore_errors=True)
            self._tmpdir = None

    # ------------------------------------------------------------------ reading

    def info(self, key: Optional[str] = None, return_missing: bool = False) -> S3Object:
        """Facts about one object.

        Raises:
            MetaflowS3NotFound: it doesn't exist, unless ``return_missing``.
        """
        return self.info_many([key], return_missing)[0]

    def info_many(
        self, keys: Iterable[Optional[str]], return_missing: bool = False
    ) -> List[S3Object]:
        """Facts about objects, in the order of the keys."""
        urls = [self._url(key) for key in keys]
        given = self._ask([{"op": "look", "url": url} for url in urls], return_missing)
        return [self._known(url, None, said) for url, said in zip(urls, given)]

    def get(
        self, key: Any = None, return_missing: bool = False, return_info: bool = True
    ) -> S3Object:
        """Download one object, or the part that an ``S3GetObject`` names.

        Raises:
            MetaflowS3NotFound: it doesn't exist, unless ``return_missing``.
        """
        return self.get_many([key], return_missing, return_info)[0]

    def get_many(
        self, keys: Iterable[Any], return_missing: bool = False, return_info: bool = True
    ) -> List[S3Object]:
        """Download objects, in the order of the keys."""
        asked = [{"op": "get", **self._part(key), "path": self._temporary()} for key in keys]
        given = self._ask(asked, return_missing)
        found = []
        for one, said in zip(asked, given):
            path = None if "error" in said else one["path"]
            if return_info:
                found.append(self._known(one["url"], path, said))
            else:
                found.append(S3Object(self._s3root, one["url"], path))
        return found

    def get_recursive(
        self, keys: Iterable[Optional[str]], return_info: bool = False
    ) -> List[S3Object]:
        """Download all objects whose keys begin with those given."""
        prefixes = [self._url(key) for key in keys]
        pairs = [(prefix, url) for prefix, url, _ in self._listed(prefixes, True)]
        asked = [{"op": "get", "url": url, "path": self._temporary()} for _, url in pairs]
        given = self._ask(asked)
        found = []
        for (prefix, url), one, said in zip(pairs, asked, given):
            if return_info:
                found.append(self._known(url, one["path"], said))
            else:
                found.append(S3Object(prefix, url, one["path"]))
        return found

    def get_all(self, return_info: bool = False) -> List[S3Object]:
        """Download all objects below ``s3root`` or the run.

        Raises:
            MetaflowS3URLException: this client has neither.
        """
        if self._s3root is None:
            raise MetaflowS3URLException("Can't get_all() when S3 is initialized without a prefix")
        return self.get_recursive([None], return_info)

    def list_paths(self, keys: Optional[Iterable[str]] = None) -> List[S3Object]:
        """What is directly below the keys: objects, and prefixes, which don't ``exist``."""
        urls = [self._url(key).rstrip("/") + "/" for key in (keys if keys is not None else [None])]
        return [
            S3Object(prefix, url, None, size) for prefix, url, size in self._listed(urls, False)
        ]

    def list_recursive(self, keys: Optional[Iterable[str]] = None) -> List[S3Object]:
        """All objects below the keys."""
        urls = [self._url(key) for key in (keys if keys is not None else [None])]
        below = [url if _path(url) in ("", "/") else url.rstrip("/") + "/" for url in urls]
        at = dict(zip(below, urls))
        return [S3Object(at[p], url, None, size) for p, url, size in self._listed(below, True)]

    # ------------------------------------------------------------------ writing

    def put(
        self,
        key: Any,
        obj: Any,
        overwrite: bool = True,
        content_type: Optional[str] = None,
        metadata: Optional[Dict[str, str]] = None,
    ) -> str:
        """Store a text, bytes or a binary file; returns its URL.

        Args:
            overwrite: False: an object that exists stays as it is.
        """
        name = getattr(key, "key", key)
        said = S3PutObject(name, value=obj, content_type=content_type, metadata=metadata)
        self._put_values([said], overwrite)
        return self._url(name)

    def put_many(self, key_objs: Iterable[Any], overwrite: bool = True) -> List[Tuple[str, str]]:
        """Store ``(key, obj)`` pairs or ``S3PutObject``; returns key and URL of those stored."""
        said = [
            one if isinstance(one, S3PutObject) else S3PutObject(one[0], value=one[1])
            for one in key_objs
        ]
        return self._put_values(said, overwrite)

    def put_files(self, key_paths: Iterable[Any], overwrite: bool = True) -> List[Tuple[str, str]]:
        """Store local files, ``(key, path)`` or ``S3PutObject``; returns key and URL of those
        stored.

        Raises:
            MetaflowS3NotFound: a file doesn't exist.
        """
        said = [
            one if isinstance(one, S3PutObject) else S3PutObject(one[0], path=str(one[1]))
            for one in key_paths
        ]
        for one in said:
            if not one.path or not os.path.exists(one.path):
                raise MetaflowS3NotFound(f"Local file not found: {one.path}")
        return self._put(said, [os.path.realpath(str(one.path)) for one in said], overwrite)

    def _put_values(self, said: Sequence[S3PutObject], overwrite: bool) -> List[Tuple[str, str]]:
        paths = []
        for one in said:
            path = self._temporary()
            with open(path, "wb") as file:
                _write(file, one.key, one.value)
            paths.append(path)
        try:
            return self._put(said, paths, overwrite)
        finally:
            for path in paths:
                os.unlink(path)

    def _put(
        self, said: Sequence[S3PutObject], paths: Sequence[str], overwrite: bool
    ) -> List[Tuple[str, str]]:
        asked: List[Dict[str, Any]] = []
        for one, path in zip(said, paths):
            request: Dict[str, Any] = {"op": "put", "url": self._url(one.key), "path": path}
            request["type"] = one.content_type
            request["encryption"] = one.encryption or self._encryption
            request["meta"] = json.dumps(one.metadata) if one.metadata else None
            request["only_new"] = not overwrite
            asked.append({key: value for key, value in request.items() if value})
        given = self._ask(asked)
        return [(o.key, r["url"]) for o, r, told in zip(said, asked, given) if told["put"]]

    # ------------------------------------------------------------------ requests

    def _ask(
        self, asked: Sequence[Mapping[str, Any]], missing: bool = False
    ) -> List[Dict[str, Any]]:
        return answers(asked, self._endpoint, missing, self._role)

    def _listed(self, urls: Sequence[str], deep: bool) -> List[Tuple[str, str, Optional[int]]]:
        """(prefix, URL, size) of what is below prefixes; size None: a prefix."""
        given = self._ask([{"op": "list", "url": url, "deep": deep} for url in urls])
        found = []
        for prefix, said in zip(urls, given):
            parsed = urlparse(prefix, allow_fragments=False)
            for key, size in said["objects"]:
                base = SCHEME if parsed.scheme == "local" else f"s3://{parsed.netloc}/"
                found.append((prefix, base + key, size))
        return found

    def _known(self, url: str, path: Optional[str], said: Mapping[str, Any]) -> S3Object:
        if "error" in said:
            return S3Object(self._s3root, url, None)
        span = RangeInfo(said["size"], said["from"], said["n"]) if path else None
        return S3Object(
            self._s3root,
            url,
            path,
            said["size"],
            said.get("type"),
            {_META: said["meta"]} if said.get("meta") else None,
            span,
            None if said["modified"] is None else float(said["modified"]),
            said.get("encryption"),
        )

    def _temporary(self) -> str:
        if self._tmpdir is None:
            raise MetaflowS3URLException("this S3 is closed; make another one")
        self._n += 1
        return os.path.join(os.path.abspath(self._tmpdir), f"object-{self._n}")

    def _part(self, key: Any) -> Dict[str, Any]:
        """URL and range of what is to be downloaded."""
        said: Dict[str, Any] = {"url": self._url(getattr(key, "key", key))}
        start, length = getattr(key, "offset", None), getattr(key, "length", None)
        if length is not None and length < 0:
            said["from"] = length
        elif start is not None or length is not None:
            said["from"] = start or 0
            said["n"] = -1 if length is None else length
        return said

    def _url(self, key: Any) -> str:
        key = None if key is None else _text(getattr(key, "key", key))
        if self._s3root is None:
            parsed = urlparse(key or "", allow_fragments=False)
            if parsed.scheme in ("s3", "local") and parsed.path:
                return str(key)
            if current.is_running_flow:
                raise MetaflowS3URLException(
                    "Specify S3(run=self) when you use S3 inside a running flow. Otherwise you have to use S3 with "
                    "full s3:// urls."
                )
            raise MetaflowS3URLException(
                "Initialize S3 with an 's3root' or 'run' if you don't want to specify full s3:// urls."
            )
        if not key:
            return self._s3root
        if key.startswith(("s3://", "local://")):
            raise MetaflowS3URLException(
                "Don't use absolute S3 URLs when the S3 client is initialized with a prefix. "
                f"URL: {key}"
            )
        return os.path.join(self._s3root, key.lstrip("/"))


def _text(value: Any) -> str:
    return value.decode("utf-8") if isinstance(value, bytes) else str(value)


def _path(url: str) -> str:
    return urlparse(url, allow_fragments=False).path


def _write(file: Any, key: Any, obj: Any) -> None:
    if isinstance(obj, (io.RawIOBase, io.BufferedIOBase)):
        if not obj.readable() or not obj.seekable():
            raise MetaflowS3InvalidObject(
                f"Object corresponding to the key '{key}' is not readable or seekable"
            )
        obj.seek(0)
        shutil.copyfileobj(obj, file)
    elif isinstance(obj, (str, bytes)):
        file.write(obj.encode("utf-8") if isinstance(obj, str) else obj)
    else:
        raise MetaflowS3InvalidObject(
            f"Object corresponding to the key '{key}' is not a string or a bytes object."
        )


def _endpoint(more: Mapping[str, Any]) -> str:
    """The service's URL from ``client_params`` or the settings; "": none is given."""
    params = dict(more.get("client_params") or {})
    found = params.pop("endpoint_url", None) or setting("S3_ENDPOINT_URL") or ""
    other = [key for key in ("session_vars", "external_client") if more.get(key)]
    other += [f"client_params[{key!r}]" for key in params]
    if other:
        raise MetaflowS3URLException(
            f"S3({other[0]}=…) isn't there: say it in a profile of ~/.aws/config (region …) and name that by "
            "AWS_PROFILE"
        )
    return str(found)


def _root_of(run: Any, bucket: Optional[str], prefix: Optional[str]) -> str:
    """Where the objects of a flow that runs, or of a past run, are."""
    from .._flow import FlowSpec

    if isinstance(run, FlowSpec):
        if not current.is_running_flow:
            raise MetaflowS3URLException(
                "Initializing S3 with a FlowSpec outside of a running flow is not supported."
            )
        names = (str(current.flow_name), str(current.run_id))
    else:
        names = (str(run.parent.id), str(run.id))
    root = setting("DATATOOLS_S3ROOT")
    if not root and not bucket:
        return "/".join([_here(), *names])
    parsed = urlparse(str(root or ""))
    where = [bucket or parsed.netloc, (prefix or parsed.path).strip("/"), *names]
    return "s3://" + "/".join(one for one in where if one)


def _here() -> str:
    """A folder of the store, in place of a bucket.

    Raises:
        MetaflowS3URLException: the store isn't on this machine.
    """
    from .._records import store_path

    folder = setting("DATATOOLS_LOCALROOT")
    if not folder:
        store = store_path()
        if store is None or not os.path.isdir(store):
            raise MetaflowS3URLException(
                "S3(run=…) needs a bucket here, because the store's folder isn't on this machine: set "
                "METAFLOW_DATATOOLS_S3ROOT to s3://BUCKET/PREFIX"
            )
        folder = os.path.join(store, "data")
    if not _told:
        _told.append(folder)
        print(
            f"stoker: S3(run=…) keeps its objects in {folder}, because METAFLOW_DATATOOLS_S3ROOT names no bucket",
            file=sys.stderr,
        )
    return SCHEME + os.path.abspath(str(folder))
