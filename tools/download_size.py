"""Prints how much `pip install -r LIST` would download."""

import json
import os
import subprocess
import sys
import urllib.parse
import urllib.request


def size_of(url: str) -> int:
    """Size in bytes of the wheel at an address, without a download; 0 for a file on this
    machine."""
    parts = urllib.parse.urlsplit(url)
    if parts.scheme == "file":
        return 0
    request = urllib.request.Request(url, method="HEAD")
    with urllib.request.urlopen(request, timeout=20) as answer:
        return int(answer.headers["Content-Length"])


def main(requirements: str) -> int:
    report = subprocess.run(
        [
            sys.executable,
            "-m",
            "pip",
            "install",
            "--dry-run",
            "-q",
            "--report",
            "-",
            "-r",
            requirements,
        ],
        check=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    ).stdout
    wheels = json.loads(report)["install"]
    total, unknown = 0, 0
    for wheel in wheels:
        try:
            total += size_of(wheel["download_info"]["url"])
        except (OSError, ValueError, TypeError):
            unknown += 1
    note = f" ({unknown} of unknown size)" if unknown else ""
    print(f"{len(wheels)} packages, {total / 1e6:.0f} MB to download{note}")
    return 0


if __name__ == "__main__":
    if len(sys.argv) != 2 or not os.path.exists(sys.argv[1]):
        sys.exit("usage: download_size.py REQUIREMENTS")
    sys.exit(main(sys.argv[1]))
