"""Every call of ``S3``, each with its result or error on a line; the root is the argument."""

import io
import json
import os
import sys

from metaflow import S3
from metaflow.plugins.datatools.s3 import S3GetObject, S3PutObject

R = sys.argv[1]


def o(x):
    return [
        x.key,
        x.prefix,
        x.exists,
        x.downloaded,
        x.size,
        x.has_info,
        x.content_type,
        x.metadata,
        x.range_info and list(x.range_info),
        x.text[:50] if x.downloaded else None,
        x.encryption,
        type(x.last_modified).__name__,
        str(x).split(" ", 2)[2],
    ]


def show(n, f):
    try:
        r = f()
    except Exception as e:
        print(n, "EXC", type(e).__name__, getattr(e, "headline", ""))
        return
    if isinstance(r, list):
        r = [o(x) if hasattr(x, "exists") else x for x in r]
    elif hasattr(r, "exists"):
        r = o(r)
    print(n, json.dumps(r))


with S3(s3root=R) as s3:
    show("put", lambda: s3.put("a/0.txt", "hello"))
    show(
        "put2",
        lambda: s3.put(
            "a/b/1 x.txt", b"bytes", content_type="text/plain", metadata={"k": "v  w", "ü": "é"}
        ),
    )
    show("put3", lambda: s3.put("a/0.txt", "other", overwrite=False))
    show("putbad", lambda: s3.put("a/0.txt", 5))
    show("putf", lambda: s3.put("f/4.txt", io.BytesIO(b"0123456789")))
    show(
        "many",
        lambda: s3.put_many(
            [
                ("a/c/2#.txt", "two"),
                S3PutObject("a/d/e/3.txt", value="three", content_type="x/y", metadata={"m": "1"}),
            ]
        ),
    )
    show("many2", lambda: s3.put_many([("a/c/2#.txt", "two"), ("n.txt", "")], overwrite=False))
    open("loc.txt", "w").write("local file")
    show(
        "files",
        lambda: s3.put_files(
            [("loc", "loc.txt"), S3PutObject("loc2", path="loc.txt", metadata={"q": "2"})]
        ),
    )
    show("filesno", lambda: s3.put_files([("loc", "nope.txt")]))
    show("get", lambda: s3.get("a/0.txt"))
    show("get2", lambda: s3.get("a/b/1 x.txt"))
    show("getn", lambda: s3.get("nope"))
    show("getn2", lambda: s3.get("nope", return_missing=True))
    show("geti", lambda: s3.get("a/0.txt", return_info=False))
    show("range", lambda: s3.get(S3GetObject("f/4.txt", 2, 3)))
    show("range2", lambda: s3.get(S3GetObject("f/4.txt", None, -3)))
    show("range3", lambda: s3.get(S3GetObject("f/4.txt", 4, None)))
    show("range4", lambda: s3.get(S3GetObject("f/4.txt", 100, 3)))
    show("empty", lambda: s3.get("n.txt"))
    show("gm", lambda: s3.get_many(["f/4.txt", "a/0.txt", S3GetObject("f/4.txt", 1, 2)]))
    show("gmm", lambda: s3.get_many(["f/4.txt", "zzz"], return_missing=True))
    show("gmn", lambda: s3.get_many(["f/4.txt", "zzz"]))
    show("gmi", lambda: s3.get_many(["f/4.txt"], return_info=False))
    show("rec", lambda: s3.get_recursive(["a", "f"]))
    show("reci", lambda: s3.get_recursive(["a/b"], return_info=True))
    show("recn", lambda: s3.get_recursive(["nothing"]))
    show("all", lambda: sorted(x.key for x in s3.get_all()))
    show("lp", lambda: s3.list_paths(["a", "f"]))
    show("lp0", lambda: s3.list_paths())
    show("lpn", lambda: s3.list_paths(["nothing"]))
    show("lr", lambda: s3.list_recursive(["a", "f"]))
    show("lr0", lambda: s3.list_recursive())
    show("info", lambda: s3.info("a/b/1 x.txt"))
    show("infon", lambda: s3.info("nope"))
    show("infonm", lambda: s3.info("nope", return_missing=True))
    show("infom", lambda: s3.info_many(["f/4.txt", "zz"], return_missing=True))
    show("infomn", lambda: s3.info_many(["f/4.txt", "zz"]))
    show("abs", lambda: s3.get("s3://x/y"))
    tmp = s3._tmpdir
show("tmp", lambda: os.path.exists(tmp))
with S3() as s3:
    show("full", lambda: s3.get(R + "/a/0.txt"))
    show("fullno", lambda: s3.get("a/0.txt"))
    show("fullall", lambda: s3.get_all())
    show("nobucket", lambda: s3.get("s3://no-such-bucket-x/y"))
    show("nobucketp", lambda: s3.put("s3://no-such-bucket-x/y", "k"))
    show("nobucketl", lambda: s3.list_paths(["s3://no-such-bucket-x/y"]))
show("badroot", lambda: S3(s3root="http://x"))
