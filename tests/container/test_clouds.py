"""Registries of ECR, Google and Azure, played by their documented protocols: `stoker carry --image` logs in there by
the clouds' own helpers, or asks for a short token itself."""

from __future__ import annotations

import base64
import http.server
import json
import os
import shutil
import subprocess
import threading
import urllib.parse
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from cloud_front import AZURE, ECR, GOOGLE, CloudFront
from front_tools import cannot
from image_tools import Stoker
from moto_server import start_moto
from shops import Shop

NAMES = {host: f"{host}/team/stoker:1" for host in (ECR, GOOGLE, AZURE)}
Object = dict[str, Any]


@pytest.fixture
def front(tmp_path: Path) -> Iterator[CloudFront]:
    if shutil.which("docker-registry") is None:
        cannot("no docker-registry here; `make deps-test-all` installs it")
    shop = Shop(tmp_path, {})
    made = CloudFront(tmp_path, shop.address)
    yield made
    made.close()
    shop.close()


@pytest.fixture
def stoker(tmp_path: Path, front: CloudFront) -> Stoker:
    """A machine without a container engine and any credentials, whose way to the clouds is the test's."""
    home = tmp_path / "project" / "home"
    home.mkdir(parents=True)
    drop = (
        "STOKER_", "DOCKER_", "REGISTRY_", "XDG_", "CONTAINER", "CURL_CA", "SSL_CERT",
        "AWS_", "AZURE_", "GOOGLE_", "GCE_", "CLOUDSDK_", "HTTP", "http", "no_proxy", "NO_PROXY", "ALL_PROXY",
    )  # fmt: skip
    env = {k: v for k, v in os.environ.items() if not k.startswith(drop)}
    return Stoker(
        home.parent,
        env
        | {
            "HOME": str(home),
            "DOCKER_HOST": f"unix://{tmp_path}/none.sock",
            "HTTPS_PROXY": front.proxy,
            "SSL_CERT_FILE": str(front.authority),
            "AWS_EC2_METADATA_DISABLED": "true",
            "GCE_METADATA_HOST": "127.0.0.1:1",
        },
    )


def push(stoker: Stoker, host: str, **env: str) -> str:
    done = stoker("carry", "--json", "--image", NAMES[host], **env)
    assert done.code == 0, done.said
    pinned = str(done.json()["pinned"])
    assert pinned.startswith(f"{host}/team/stoker@sha256:")
    return pinned


def refused(stoker: Stoker, host: str, **env: str) -> str:
    done = stoker("carry", "--image", NAMES[host], **env)
    assert done.code in (2, 3), done.said
    return done.said


@pytest.mark.parametrize("file", ["home/.docker/config.json", "home/.config/containers/auth.json"])
@pytest.mark.parametrize(
    "host, helper, user, secret",
    [
        (ECR, "ecr-login", "AWS", "123456789012-auth-token"),
        (GOOGLE, "gcr", "oauth2accesstoken", "google-token"),
        (GOOGLE, "gcloud", "oauth2accesstoken", "google-token"),
        (AZURE, "acr-env", "<token>", "azure-refresh"),
    ],
)
def test_helpers(stoker: Stoker, host: str, helper: str, user: str, secret: str, file: str) -> None:
    """By credHelpers, and by credsStore where that is the file's only word."""
    program = stoker.write(
        f"bin/docker-credential-{helper}",
        f"""#!/bin/sh\nread -r s\n[ "$1 $s" = "get {host}" ] || {{ echo 'credentials not found'; exit 1; }}\n"""
        f"""echo '{{"ServerURL": "{host}", "Username": "{user}", "Secret": "{secret}"}}'\n""",
    )
    program.chmod(0o755)
    path = f"{program.parent}:{os.environ['PATH']}"
    stoker.write(file, json.dumps({"credHelpers": {host: helper}}))
    pinned = push(stoker, host, PATH=path)
    stoker.write(file, json.dumps({"credsStore": helper}))
    assert push(stoker, host, PATH=path) == pinned
    program.unlink()
    assert f"docker-credential-{helper}" in refused(stoker, host)


@pytest.fixture
def moto(tmp_path: Path) -> Iterator[str]:
    pytest.importorskip("moto")
    process, port = start_moto(tmp_path / "moto.log")
    yield f"http://127.0.0.1:{port}"
    process.kill()
    process.wait()


def test_ecr(stoker: Stoker, front: CloudFront, moto: str) -> None:
    """By AWS's own credentials; each missing right by its name."""
    assert "no credentials were found" in refused(stoker, ECR)
    keys = {"AWS_ACCESS_KEY_ID": "AKIA1", "AWS_SECRET_ACCESS_KEY": "s", "AWS_ENDPOINT_URL": moto}
    push(stoker, ECR, **keys)
    front.repositories = {"team/other"}
    front.rights = {"pull"}
    done = stoker("carry", "--image", f"{ECR}/team/other:1", **keys)
    assert done.code == 3 and "AWS's credentials may not push there" in done.said
    assert "ask for the right (ecr:InitiateLayerUpload" in done.said
    said = refused(stoker, ECR, **keys)
    assert f"registry {ECR} has no repository team/stoker" in said
    assert "aws ecr create-repository --repository-name team/stoker" in said
    front.secrets[ECR] = "another"  # as if the token had expired
    said = refused(stoker, ECR, **keys)
    assert "AWS's credentials" in said and "aws ecr get-login-password" in said


class Issuer:
    """Google's and Entra ID's servers of tokens. ``check``: of a form, whether it is right."""

    def __init__(self, token: str, check: Callable[[str, Object], bool]) -> None:
        issuer = self
        self.n_asked = 0

        class Handler(http.server.BaseHTTPRequestHandler):
            def log_message(self, format: str, *args: Any) -> None:
                pass

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0)).decode()
                form = {k: v[0] for k, v in urllib.parse.parse_qs(body).items()}
                form["flavor"] = self.headers.get("Metadata-Flavor", "")
                form["metadata"] = self.headers.get("Metadata", "")
                form["header"] = self.headers.get("X-IDENTITY-HEADER", "")
                issuer.n_asked += 1
                is_right = check(self.path, form)
                doc = {"access_token": token} if is_right else {"error_description": "not you"}
                data = json.dumps(doc).encode()
                self.send_response(200 if is_right else 401)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            do_GET = do_POST

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()


@pytest.fixture
def issue() -> Iterator[Callable[..., Issuer]]:
    made: list[Issuer] = []

    def make(token: str, check: Callable[[str, Object], bool]) -> Issuer:
        made.append(Issuer(token, check))
        return made[-1]

    yield make
    for one in made:
        one.close()


def test_google(
    stoker: Stoker, front: CloudFront, issue: Callable[..., Issuer], tmp_path: Path
) -> None:
    """A token in the environment, Google's metadata server, a user's and a service account's file."""
    assert "no credentials were found" in refused(stoker, GOOGLE)
    pinned = push(stoker, GOOGLE, CLOUDSDK_AUTH_ACCESS_TOKEN="google-token")
    where = "/computeMetadata/v1/instance/service-accounts/default/token"
    meta = issue("google-token", lambda path, form: path == where and form["flavor"] == "Google")
    assert push(stoker, GOOGLE, GCE_METADATA_HOST=meta.address) == pinned

    def by_user(path: str, form: Object) -> bool:
        wanted = {
            "grant_type": "refresh_token",
            "refresh_token": "1//r",
            "client_id": "c",
            "client_secret": "s",
        }
        return wanted.items() <= form.items()

    own = "home/.config/gcloud/application_default_credentials.json"
    user = {
        "type": "authorized_user",
        "client_id": "c",
        "client_secret": "s",
        "refresh_token": "1//r",
    }
    to = f"http://{issue('google-token', by_user).address}/token"
    stoker.write(own, json.dumps({**user, "token_uri": to}))
    assert push(stoker, GOOGLE) == pinned
    stoker.write(own, json.dumps({**user, "refresh_token": "old", "token_uri": to}))
    said = refused(stoker, GOOGLE)
    assert "application_default_credentials.json" in said and "not you" in said
    account = service_account(tmp_path, issue)
    named = stoker.write("account.json", json.dumps(account))
    assert push(stoker, GOOGLE, GOOGLE_APPLICATION_CREDENTIALS=str(named)) == pinned
    other = subprocess.run(
        ["openssl", "genrsa", "2048"], capture_output=True, text=True, check=True
    )
    stoker.write("account.json", json.dumps({**account, "private_key": other.stdout}))
    assert "not you" in refused(stoker, GOOGLE, GOOGLE_APPLICATION_CREDENTIALS=str(named))


def service_account(tmp_path: Path, issue: Callable[..., Issuer]) -> Object:
    """Its key signs; the issuer checks that with the public one."""
    made = subprocess.run(["openssl", "genrsa", "2048"], capture_output=True, text=True, check=True)
    (tmp_path / "account.pem").write_text(made.stdout)
    public = tmp_path / "account.pub"
    subprocess.run(
        ["openssl", "rsa", "-in", tmp_path / "account.pem", "-pubout", "-out", public],
        check=True, capture_output=True,
    )  # fmt: skip

    def decoded(part: str) -> bytes:
        return base64.urlsafe_b64decode(part + "=" * (-len(part) % 4))

    def by_signature(path: str, form: Object) -> bool:
        head, claims, signature = form["assertion"].split(".")
        (tmp_path / "signature").write_bytes(decoded(signature))
        checked = subprocess.run(
            ["openssl", "dgst", "-sha256", "-verify", public, "-signature", tmp_path / "signature"],
            input=f"{head}.{claims}".encode(), capture_output=True,
        )  # fmt: skip
        said = json.loads(decoded(claims))
        return (
            checked.returncode == 0
            and said["iss"] == "robot@p.iam"
            and said["aud"].endswith("/token")
        )

    to = f"http://{issue('google-token', by_signature).address}/token"
    return {
        "type": "service_account",
        "client_email": "robot@p.iam",
        "private_key": made.stdout,
        "token_uri": to,
    }


def test_azure(
    stoker: Stoker, front: CloudFront, issue: Callable[..., Issuer], tmp_path: Path
) -> None:
    """A client's secret, and the token that a cluster gives its pods (workload identity)."""

    def check(path: str, form: Object) -> bool:
        wanted = {
            "grant_type": "client_credentials",
            "client_id": "c",
            "scope": "https://containerregistry.azure.net/.default",
        }
        proof = form.get("client_secret") == "s" or form.get("client_assertion") == "pod-token"
        return path == "/t/oauth2/v2.0/token" and wanted.items() <= form.items() and proof

    entra = issue("entra-token", check)
    client = {
        "AZURE_TENANT_ID": "t",
        "AZURE_CLIENT_ID": "c",
        "AZURE_AUTHORITY_HOST": f"http://{entra.address}/",
    }
    pinned = push(stoker, AZURE, **client, AZURE_CLIENT_SECRET="s")
    token = stoker.write("pod-token", "pod-token\n")
    assert push(stoker, AZURE, **client, AZURE_FEDERATED_TOKEN_FILE=str(token)) == pinned
    assert "AZURE_CLIENT_SECRET gives no log-in (401, not you)" in refused(
        stoker, AZURE, **client, AZURE_CLIENT_SECRET="x"
    )
    front.rights = set()
    assert "AcrPush" in refused(stoker, AZURE, **client, AZURE_CLIENT_SECRET="s")


RESOURCE = "https://containerregistry.azure.net"


def query_of(path: str) -> Object:
    return {k: v[0] for k, v in urllib.parse.parse_qs(path.partition("?")[2]).items()}


@pytest.mark.parametrize("client", [None, "a client"])
def test_a_managed_identity(
    stoker: Stoker, front: CloudFront, issue: Callable[..., Issuer], client: str | None
) -> None:
    """The identity of a virtual machine, and of an app, whose server's address Azure sets."""
    wanted = {"resource": RESOURCE} | ({"client_id": client} if client else {})
    own = {"AZURE_CLIENT_ID": client} if client else {}

    def of_machine(path: str, form: Object) -> bool:
        asked = {"api-version": "2018-02-01", **wanted}
        is_there = path.startswith("/metadata/identity/oauth2/token?")
        return is_there and query_of(path) == asked and form["metadata"] == "true"

    def of_app(path: str, form: Object) -> bool:
        asked = {"api-version": "2019-08-01", **wanted}
        return path.startswith("/msi?") and query_of(path) == asked and form["header"] == "h"

    machine = issue("entra-token", of_machine)
    there = {"AZURE_POD_IDENTITY_AUTHORITY_HOST": f"http://{machine.address}/", **own}
    pinned = push(stoker, AZURE, **there)
    app = issue("entra-token", of_app)
    env = {"IDENTITY_ENDPOINT": f"http://{app.address}/msi", **own}
    assert push(stoker, AZURE, **env, IDENTITY_HEADER="h") == pinned
    assert machine.n_asked > 0 and app.n_asked > 0
    said = refused(stoker, AZURE, **env, IDENTITY_HEADER="x")
    assert "IDENTITY_ENDPOINT gives no log-in (401, not you)" in said
    front.rights = set()
    assert "AcrPush" in refused(stoker, AZURE, **there)


def test_another_clouds_metadata_server(stoker: Stoker, tmp_path: Path) -> None:
    """It has the same address, and knows nothing of Azure: then nobody is logged in."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def log_message(self, format: str, *args: Any) -> None:
            pass

        def do_GET(self) -> None:
            self.send_error(404)

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        there = f"http://127.0.0.1:{server.server_port}"
        said = refused(stoker, AZURE, AZURE_POD_IDENTITY_AUTHORITY_HOST=there)
    finally:
        server.shutdown()
        server.server_close()
    assert "no credentials were found" in said and "gives no log-in" not in said


def test_before_submission(stoker: Stoker, front: CloudFront, tmp_path: Path) -> None:
    """A plan for another machine says that the image can't be seen, whose right is missing, and how to log in."""
    front.rights = set()
    stack = {
        "backend": "kubernetes", "store": str(tmp_path), "default_image": NAMES[ECR],
        "store_volume": "pvc:x", "carry_volume": "/opt/stoker",
    }  # fmt: skip
    stoker.write("stoker.yaml", json.dumps({"stacks": {"prod": stack}}))
    stoker.write("p.yaml", json.dumps({"stoker": 1, "name": "p", "steps": {"a": {"run": "true"}}}))
    auth = base64.b64encode(b"AWS:123456789012-auth-token").decode()
    stoker.write("home/.docker/config.json", json.dumps({"auths": {ECR: {"auth": auth}}}))
    done = stoker("plan", "--with", "prod", "p.yaml")
    assert done.code == 0 and "refuses image" in done.said and "ecr:BatchGetImage" in done.said
    front.repositories.clear()
    done = stoker("plan", "--with", "prod", "p.yaml")
    assert (
        done.code == 0
        and "has no image" in done.said
        and "does not exist in the registry" in done.said
        and "only nodes that already hold it can run it" in done.said
        and "isn't checked" not in done.said
    )
