"""The images of this cluster: only names, as a container's root is the host's own system."""

from __future__ import annotations

import fnmatch
import re

REFERENCE = re.compile(
    r"^(?:[a-zA-Z0-9](?:[a-zA-Z0-9.-]*[a-zA-Z0-9])?(?::[0-9]+)?/)?[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*"
    r"(?:/[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*)*(?::[A-Za-z0-9_][A-Za-z0-9_.-]{0,127})?(?:@sha256:[0-9a-f]{64})?$"
)


def invalid(image: str) -> str:
    """Return the kubelet's message if a name isn't a valid image name, else ''."""
    if REFERENCE.match(image):
        return ""
    return (
        f'Failed to apply default image tag "{image}": couldn\'t parse image name "{image}": invalid '
        f"reference format: repository name (library/{image}) must be lowercase"
    )


def there(image: str, present: list[str], absent: list[str]) -> bool:
    """Whether a node has an image or can pull it."""
    if any(fnmatch.fnmatchcase(image, p) for p in absent):
        return False
    return any(fnmatch.fnmatchcase(image, p) for p in present)


def parts(image: str) -> tuple[str, str, str]:
    """Return (registry, repository, tag or digest), with Docker's defaults."""
    name, _, digest = image.partition("@")
    head, _, rest = name.partition("/")
    if not rest or not ("." in head or ":" in head or head == "localhost"):
        head, rest = "docker.io", name if "/" in name else f"library/{name}"
    repository, _, tag = rest.partition(":")
    return head, repository, digest or tag or "latest"


# A registry's answers, by the words that ``Options.pulls`` assigns to patterns of names.
ANSWERS = {
    "missing": "{full}: not found",
    "denied": "pull access denied, repository does not exist or may require authorization: server message: "
    "insufficient_scope: authorization failed",
    "limited": "unexpected status from HEAD request to {url}: 429 Too Many Requests",
    "untrusted": 'failed to do request: Head "{url}": tls: failed to verify certificate: x509: certificate signed by '
    "unknown authority",
    "down": "unexpected status from HEAD request to {url}: 503 Service Unavailable",
}


def answer(image: str, pulls: dict[str, str]) -> str:
    """Return the word that ``pulls`` has for an image, or ''."""
    return next((word for p, word in pulls.items() if fnmatch.fnmatchcase(image, p)), "")


def pull_error(image: str, says: str = "") -> str:
    """Return containerd's message on a failed pull. ``says``: a word of ANSWERS or 'platform'."""
    registry, repository, tag = parts(image)
    mark = "@" if tag.startswith("sha256:") else ":"
    full = image if image.startswith(registry) else f"{registry}/{repository}{mark}{tag}"
    head = f'failed to pull and unpack image "{full}": failed to resolve image: '
    at = f"https://{registry}/v2/{repository}/manifests/{tag}"
    if says == "platform":
        return f'failed to pull and unpack image "{full}": no match for platform in manifest: not found'
    if says:
        return head + ANSWERS[says].format(full=full, url=at)
    url = f'Head "{at}"'
    if registry.split(":")[0] == "localhost":
        return f"{head}failed to do request: {url}: dial tcp 127.0.0.1:443: connect: connection refused"
    if registry.endswith(".invalid"):
        return f"{head}failed to do request: {url}: dial tcp: lookup {registry} on 127.0.0.1:53: no such host"
    return f"{head}{full}: not found"
