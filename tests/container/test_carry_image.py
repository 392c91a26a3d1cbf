"""`stoker carry --image` against a real docker-registry: plain, TLS, a password, signed tokens; by
a container engine, and into a file."""

from __future__ import annotations

import base64
import gzip
import hashlib
import http.server
import io
import json
import os
import shutil
import ssl
import subprocess
import tarfile
import threading
import time
import urllib.parse
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from front_tools import cannot
from image_tools import HTPASSWD, Stoker
from shops import Shop, certificate

NAME = "team/stoker-runner"
Object = dict[str, Any]
HOST = os.uname().machine.replace("x86_64", "amd64").replace("aarch64", "arm64")


def b64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


@dataclass
class Tokens:
    """A server that signs tokens as docker-registry checks them; ann:secret may do `rights`."""

    folder: Path
    rights: list[str] = field(default_factory=lambda: ["pull", "push"])
    scopes: list[str] = field(default_factory=list)
    refresh: str = "r3fresh"

    def __post_init__(self) -> None:
        self.key, self.cert = self.folder / "token.key", self.folder / "token.crt"
        certificate(self.key, self.cert, "tokens")
        tokens = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def log_message(self, format: str, *args: Any) -> None:
                pass

            def do_GET(self) -> None:
                basic = "Basic " + base64.b64encode(b"ann:secret").decode()
                query = self.path.partition("?")[2]
                self.say(query, self.headers.get("Authorization") == basic)

            def do_POST(self) -> None:  # an identity token is exchanged
                form = self.rfile.read(int(self.headers["Content-Length"])).decode()
                said = urllib.parse.parse_qs(form)
                self.say(form, said.get("refresh_token") == [tokens.refresh])

            def say(self, query: str, is_right: bool) -> None:
                said = urllib.parse.parse_qs(query)
                tokens.scopes += said["scope"]
                body = {"details": "incorrect username or password"}
                if is_right:
                    body = {"access_token": tokens.sign(said["service"][0], said["scope"][0])}
                data = json.dumps(body).encode()
                self.send_response(200 if is_right else 401)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def sign(self, service: str, scope: str) -> str:
        kind, name, actions = scope.split(":")
        granted = [a for a in actions.split(",") if a in self.rights]
        der = ssl.PEM_cert_to_DER_cert(self.cert.read_text())
        head = {"typ": "JWT", "alg": "RS256", "x5c": [base64.b64encode(der).decode()]}
        now = int(time.time())
        claims = {
            "iss": "tests", "aud": service, "sub": "ann", "jti": "1", "iat": now,
            "nbf": now - 60, "exp": now + 300,
            "access": [{"type": kind, "name": name, "actions": granted}],
        }  # fmt: skip
        text = ".".join(b64(json.dumps(part).encode()) for part in (head, claims))
        signed = subprocess.run(
            ["openssl", "dgst", "-sha256", "-sign", str(self.key)],
            input=text.encode(), stdout=subprocess.PIPE, check=True,
        )  # fmt: skip
        return f"{text}.{b64(signed.stdout)}"


@pytest.fixture
def open_shop(tmp_path: Path) -> Iterator[Callable[..., Shop]]:
    if shutil.which("docker-registry") is None:
        cannot("no docker-registry here; `make deps-test-all` installs it")
    made: list[Shop] = []

    def open_one(config: Object | None = None, tls: Path | None = None) -> Shop:
        folder = tmp_path / f"shop{len(made)}"
        folder.mkdir()
        made.append(Shop(folder, config or {}, tls))
        return made[-1]

    yield open_one
    for shop in made:
        shop.close()


@pytest.fixture
def stoker(tmp_path: Path) -> Stoker:
    """Where no container engine answers."""
    home = tmp_path / "project" / "home"
    home.mkdir(parents=True)
    (home / "tmp").mkdir()
    drop = ("STOKER_", "DOCKER_", "REGISTRY_", "XDG_", "CONTAINER", "CURL_CA", "SSL_CERT")
    env = {k: v for k, v in os.environ.items() if not k.startswith(drop)}
    gone = {"DOCKER_HOST": f"unix://{tmp_path}/none.sock", "TMPDIR": str(home / "tmp")}
    return Stoker(home.parent, env | {"HOME": str(home)} | gone)


def closed(shop: Path) -> Object:
    (shop / "htpasswd").write_text(HTPASSWD)
    return {"auth": {"htpasswd": {"realm": "test", "path": str(shop / "htpasswd")}}}


def token_auth(tokens: Tokens) -> Object:
    realm = f"http://127.0.0.1:{tokens.server.server_port}/token"
    bundle = str(tokens.cert)
    return {
        "auth": {
            "token": {
                "realm": realm, "service": "shop", "issuer": "tests", "rootcertbundle": bundle
            }
        }
    }  # fmt: skip


def holds(shop: Shop, sent: Object, authorization: str = "") -> None:
    """The image is whole: every digest is that of the bytes, and its layer is a program's folder."""
    digest = sent["pinned"].partition("@")[2]
    manifest = json.loads(shop.get(NAME, f"manifests/{digest}", authorization))
    (layer,) = manifest["layers"]
    assert layer["mediaType"].endswith("tar+gzip")
    config = json.loads(shop.get(NAME, f"blobs/{manifest['config']['digest']}", authorization))
    assert config["config"]["Entrypoint"] == ["/stoker/bin/stoker"]
    assert config["architecture"] == HOST == sent["arch"]
    data = shop.get(NAME, f"blobs/{layer['digest']}", authorization)
    assert len(data) == layer["size"] == sent["bytes"]
    plain = gzip.decompress(data)
    assert config["rootfs"]["diff_ids"] == [f"sha256:{hashlib.sha256(plain).hexdigest()}"]
    check_tree(tarfile.open(fileobj=io.BytesIO(plain)))


def check_tree(tar: tarfile.TarFile) -> None:
    members = {m.name: m for m in tar.getmembers()}
    assert members["stoker/bin/stoker"].mode == members["stoker"].mode == 0o755
    assert members["stoker/bin/stoker"].uid == 0
    assert all(m.mode & 0o444 == 0o444 for m in members.values())
    assert any(n.startswith("stoker/bin/lib/libcurl") for n in members)


def pushed(stoker: Stoker, shop: Shop, *words: str, **env: str) -> Object:
    done = stoker("carry", "--json", "--image", f"{shop.address}/{NAME}:1", *words, **env)
    assert done.code == 0, done.said
    sent: Object = done.json()
    assert sent["image"] == f"{shop.address}/{NAME}:1"
    assert list((stoker.folder / "home/tmp").iterdir()) == []
    return sent


def refused(stoker: Stoker, shop: Shop, **env: str) -> str:
    done = stoker("carry", "--image", f"{shop.address}/{NAME}:1", **env)
    assert done.code == 3, done.said
    return done.said


def test_straight_and_plain(stoker: Stoker, open_shop: Callable[..., Shop]) -> None:
    shop = open_shop()
    os.umask(0o077)  # what is in the image doesn't depend on it
    try:
        sent = pushed(stoker, shop)
    finally:
        os.umask(0o022)
    holds(shop, sent)
    again = pushed(stoker, shop, "--by", "registry")
    assert again["pinned"] == sent["pinned"]
    said = stoker("carry", "--image", f"{shop.address}/{NAME}:2").out.splitlines()
    assert said[0].startswith(f"pushed {shop.address}/{NAME}:2 for {HOST}, ")
    assert said[1] == f"runner_image: {sent['pinned']}"


def test_tls(stoker: Stoker, open_shop: Callable[..., Shop], tmp_path: Path) -> None:
    authority = tmp_path / "authority.crt"
    shop = open_shop(tls=authority)
    assert f"certs.d/{shop.address}/ca.crt" in refused(stoker, shop)
    holds(shop, pushed(stoker, shop, SSL_CERT_FILE=str(authority)))
    # where Podman and Docker keep authorities, by the registry's name
    certs = stoker.folder / "home/.config/containers/certs.d" / shop.address
    certs.mkdir(parents=True)
    shutil.copy(authority, certs / "ca.crt")
    holds(shop, pushed(stoker, shop))


def test_a_password(stoker: Stoker, open_shop: Callable[..., Shop], tmp_path: Path) -> None:
    shop = open_shop(closed(tmp_path))
    assert "no credentials were found" in refused(stoker, shop)
    stoker.login(shop.address, "ann", "wrong")
    said = refused(stoker, shop)
    assert "config.json" in said and "docker login" in said and "wrong" not in said
    stoker.login(shop.address, "ann", "secret")
    basic = "Basic " + base64.b64encode(b"ann:secret").decode()
    holds(shop, pushed(stoker, shop), basic)


def test_tokens(stoker: Stoker, open_shop: Callable[..., Shop], tmp_path: Path) -> None:
    tokens = Tokens(tmp_path)
    shop = open_shop(token_auth(tokens))
    assert "no credentials were found" in refused(stoker, shop)
    stoker.login(shop.address, "ann", "secret")
    sent = pushed(stoker, shop)
    scope = f"repository:{NAME}:pull,push"
    assert set(tokens.scopes) == {scope}
    holds(shop, sent, "Bearer " + tokens.sign("shop", scope))
    # an identity token, as `az acr login` leaves one, and a helper that has one
    entry = {"auths": {shop.address: {"identitytoken": tokens.refresh}}}
    stoker.write("home/.docker/config.json", json.dumps(entry))
    assert pushed(stoker, shop)["pinned"] == sent["pinned"]
    helper = stoker.write(
        "bin/docker-credential-played",
        f"""#!/bin/sh\nread -r s\n[ "$1 $s" = "get {shop.address}" ] || exit 1\n"""
        f"""echo '{{"Username": "<token>", "Secret": "{tokens.refresh}"}}'\n""",
    )
    helper.chmod(0o755)
    entry = {"credHelpers": {shop.address: "played"}}
    stoker.write("home/.docker/config.json", json.dumps(entry))
    path = f"{helper.parent}:{os.environ['PATH']}"
    assert pushed(stoker, shop, PATH=path)["pinned"] == sent["pinned"]
    # an account that may pull, but not push
    tokens.rights = ["pull"]
    fresh = open_shop(token_auth(tokens))
    stoker.login(fresh.address, "ann", "secret")
    assert "refuses the push of image" in refused(stoker, fresh)


def test_a_file(stoker: Stoker) -> None:
    done = stoker("carry", "--json", "--image", "r.example/x:1", "--tar", "image.tar")
    assert done.code == 0, done.said
    sent = done.json()
    assert sent["pinned"] is None and sent["file"] == "image.tar"
    with tarfile.open(stoker.folder / "image.tar") as tar:
        (entry,) = json.load(tar.extractfile("manifest.json"))  # type: ignore[arg-type]
        assert entry["RepoTags"] == ["r.example/x:1"]
        config = tar.extractfile(entry["Config"]).read()  # type: ignore[union-attr]
        assert sent["id"] == f"sha256:{hashlib.sha256(config).hexdigest()}"
        layer = tar.extractfile(entry["Layers"][0]).read()  # type: ignore[union-attr]
    (diff,) = json.loads(config)["rootfs"]["diff_ids"]
    assert diff == f"sha256:{hashlib.sha256(layer).hexdigest()}"
    check_tree(tarfile.open(fileobj=io.BytesIO(layer)))


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["--image", "x:1", "folder"],
        ["--by", "podman", "folder"],
        ["--image", "x:1", "--by", "kaniko"],
        ["--image", "x:1", "--by", "podman", "--tar", "f"],
        ["--image", "UPPER:1"],
        ["--image", f"x@sha256:{'0' * 64}"],
    ],
)
def test_wrong_words(stoker: Stoker, words: list[str]) -> None:
    assert stoker("carry", *words).code == 2
    assert list(stoker.folder.iterdir()) == [stoker.folder / "home"]


def test_an_engine_that_is_asked_for(stoker: Stoker, open_shop: Callable[..., Shop]) -> None:
    shop = open_shop()
    done = stoker("carry", "--image", f"{shop.address}/{NAME}:1", "--by", "podman")
    assert done.code != 0 and "none.sock" in done.said


def test_by_an_engine(stoker: Stoker, podman: Any, open_shop: Callable[..., Shop]) -> None:
    """Podman takes the image, pushes it, and runs it."""
    shop = open_shop()
    insecure = f'[[registry]]\nlocation = "{shop.address}"\ninsecure = true\n'
    env = {"DOCKER_HOST": f"unix://{podman.socket}", "XDG_RUNTIME_DIR": str(stoker.folder)}
    conf = Path(podman.env["CONTAINERS_REGISTRIES_CONF"])
    text = conf.read_text()
    conf.write_text(f"{text}\n{insecure}")
    podman.stop()  # a service reads the file once
    podman.serve()
    try:
        sent = pushed(stoker, shop, **env)
        assert "Podman" in sent["by"] and sent["pinned"].startswith(shop.address)
        image = json.loads(podman("image", "inspect", sent["image"]).stdout)[0]
        assert f"sha256:{image['Id'].removeprefix('sha256:')}" == sent["id"]
        assert "run" in podman("run", "--rm", sent["image"], "help").stdout
        podman("rmi", "-f", sent["image"])
        # and what is pushed straight runs there, too
        straight = pushed(stoker, shop, "--by", "registry")
        podman("pull", "-q", straight["pinned"])
        assert "run" in podman("run", "--rm", straight["pinned"], "help").stdout
        podman("rmi", "-f", straight["pinned"])
        assert (
            "not docker" in stoker("carry", "--image", sent["image"], "--by", "docker", **env).said
        )
    finally:
        conf.write_text(text)


def test_by_docker(stoker: Stoker, docker: Any, open_shop: Callable[..., Shop]) -> None:
    """Docker takes the image and pushes it with the password of a helper; it pulls and runs it."""
    folder = stoker.folder / "shop"
    folder.mkdir()
    shop = open_shop(closed(folder))
    env = {"DOCKER_HOST": f"unix://{docker.socket}"}
    words = ("carry", "--image", f"{shop.address}/{NAME}:1", "--by", "docker")
    assert "no credentials were found" in stoker(*words, **env).said
    helper = stoker.write(
        "bin/docker-credential-played",
        f"""#!/bin/sh\nread -r s\n[ "$1 $s" = "get {shop.address}" ] || exit 1\n"""
        """echo '{"Username": "ann", "Secret": "secret"}'\n""",
    )
    helper.chmod(0o755)
    stoker.write("home/.docker/config.json", json.dumps({"credHelpers": {shop.address: "played"}}))
    env["PATH"] = f"{helper.parent}:{os.environ['PATH']}"
    sent = pushed(stoker, shop, "--by", "docker", **env)
    assert "Docker" in sent["by"] and sent["pinned"].startswith(f"{shop.address}/{NAME}@sha256:")
    basic = "Basic " + base64.b64encode(b"ann:secret").decode()
    digest = sent["pinned"].partition("@")[2]
    manifest = json.loads(shop.get(NAME, f"manifests/{digest}", basic))
    assert manifest["config"]["digest"] == sent["id"]
    # a run of that engine pulls what it lacks, builds on it and pushes what it has built
    for name in (sent["image"], sent["pinned"]):
        docker.api("DELETE", f"/images/{name}?force=true")
    stoker.write("stoker.yaml", json.dumps({"stacks": {"box": {"backend": "docker", "registry": shop.address}}}))  # fmt: skip
    step = {"run": ["/stoker/bin/stoker", "--version"], "docker": {"parent_image": sent["image"]}}
    built = {**step, "docker": {**step["docker"], "environment": {"BUILT": "yes"}}}
    steps = {"pulled": step, "built": built}
    document = {"stoker": 1, "name": "p", "steps": steps}
    stoker.write("p.json", json.dumps(document))
    done = stoker("run", "--json", "--with", "box", "p.json", **env)
    assert done.code == 0, done.said
    told = json.loads(done.out)["steps"]
    assert told["pulled"]["granted"]["image"]["id"] == sent["id"]
    catalogue = json.loads(shop.get("", "_catalog", basic))["repositories"]
    assert len(catalogue) == 2 and NAME in catalogue
    for tag in docker.api("GET", "/images/json")[1]:
        for name in tag["RepoTags"] or []:
            if name.startswith(shop.address):
                docker.api("DELETE", f"/images/{name}?force=true")


INDEX = "application/vnd.oci.image.index.v1+json"


def test_an_image_of_several_platforms(stoker: Stoker, open_shop: Callable[..., Shop]) -> None:
    """A tag that is an index: the variant of the machine that runs is judged, and none is missed."""
    shop = open_shop()
    pinned = pushed(stoker, shop)["pinned"].partition("@")[2]
    kind = "application/vnd.oci.image.manifest.v1+json"
    manifest = json.loads(shop.get(NAME, f"manifests/{pinned}"))
    size = len(shop.get(NAME, f"manifests/{pinned}"))
    other = {"amd64": "arm64", "arm64": "amd64"}[HOST]

    def variant(arch: str) -> Object:
        platform = {"os": "linux", "architecture": arch}
        return {"mediaType": manifest.get("mediaType", kind), "digest": pinned, "size": size, "platform": platform}  # fmt: skip

    def put(tag: str, *arches: str) -> str:
        index = {"schemaVersion": 2, "mediaType": INDEX, "manifests": [variant(a) for a in arches]}
        data = json.dumps(index).encode()
        shop.put(NAME, f"manifests/{tag}", data, INDEX)
        return f"sha256:{hashlib.sha256(data).hexdigest()}"

    whole = put("both", other, HOST)
    done = stoker("doctor", "--json", "--image", f"{shop.address}/{NAME}:both")
    assert done.code == 0, done.said
    assert HOST in done.out and whole in done.out
    put("others", other, "s390x")
    done = stoker("doctor", "--image", f"{shop.address}/{NAME}:others")
    assert done.code != 0
    for word in (f"linux/{HOST}", f"linux/{other}", "linux/s390x"):
        assert word in done.said
