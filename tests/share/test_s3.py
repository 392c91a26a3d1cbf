"""`stoker share` on S3: objects, artifacts, credentials and regions."""

from __future__ import annotations

import datetime
import json
import os
import subprocess
import urllib.parse
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from share_tools import (
    CHUNK,
    Fault,
    Giver,
    Moto,
    Proxy,
    Request,
    Tool,
    error,
    make_certificate,
    write_random,
)


def test_check(tool: Tool, url: str, proxy: Proxy, moto: Moto, bucket: str) -> None:
    assert "can be written, listed, read and cleared" in tool("share", "check", url)
    assert "Contents" not in moto.client().list_objects_v2(Bucket=bucket)
    assert json.loads(tool("share", "check", "--json", url)) == {"store": url, "ok": True}


def test_a_store_that_overwrites_is_refused(tool: Tool, url: str, proxy: Proxy) -> None:
    """Some servers ignore If-None-Match, so two engines would write one log."""

    def deaf(request: Request):
        if "if-none-match" in request.headers:
            return error("", 200)
        return None

    proxy.rule = deaf
    assert "doesn't support creating an object only if" in tool.fails("share", "check", url)


def signed_by_botocore(link: str, moto: Moto, bucket: str, key: str) -> bool:
    """moto doesn't check presigned URLs, so it is compared with the one that botocore makes at that time."""
    from unittest import mock

    from botocore.auth import S3SigV4QueryAuth
    from botocore.awsrequest import AWSRequest
    from botocore.credentials import Credentials

    plain, query = link.split("?")
    given = dict(urllib.parse.parse_qsl(query))
    at = datetime.datetime.strptime(given["X-Amz-Date"], "%Y%m%dT%H%M%SZ")
    request = AWSRequest("GET", plain)
    with mock.patch("botocore.auth.get_current_datetime", return_value=at, create=True):
        S3SigV4QueryAuth(Credentials(*moto.keys[0]), "s3", "eu-west-1", 3600).add_auth(request)
    theirs = dict(urllib.parse.parse_qsl(request.url.split("?")[1]))
    assert urllib.parse.unquote(plain).endswith(f"/{bucket}/some/where/{key}")
    return given == theirs


@pytest.mark.parametrize(
    "key",
    [
        "plain",
        "a/b/c",
        "with space",
        "ü/ß€",
        "a+b&c=d?e#f%20;:@$,!'()*[]{}|^~`\"<>",
        "a/-.~_",
        "%2F%",
    ],
)
def test_any_key(tool: Tool, url: str, moto: Moto, bucket: str, key: str) -> None:
    (tool.folder / "in").write_bytes(key.encode())
    tool("share", "put", url, key, "in")
    assert [o["Key"] for o in moto.client().list_objects_v2(Bucket=bucket)["Contents"]] == [
        f"some/where/{key}"
    ]
    tool("share", "get", url, key, "out")
    assert (tool.folder / "out").read_bytes() == key.encode()
    assert [o["key"] for o in json.loads(tool("share", "ls", "--json", url))] == [key]
    assert signed_by_botocore(tool("share", "link", url, key).strip(), moto, bucket, key)
    tool("share", "rm", url, key)
    tool("share", "rm", url, key)
    assert "isn't in store" in tool.fails("share", "get", url, key, "gone")
    assert not (tool.folder / "gone").exists()


@pytest.mark.parametrize("size", [0, 1, CHUNK, CHUNK + 1, 3 * CHUNK + 12345])
def test_sizes(tool: Tool, url: str, proxy: Proxy, size: int) -> None:
    write_random(tool.folder / "in", size)
    tool("share", "put", url, "k", "in")
    assert proxy.count(Request.is_part) == (0 if size <= CHUNK else -(-size // CHUNK))
    tool("share", "get", url, "k", "out")
    assert (tool.folder / "in").read_bytes() == (tool.folder / "out").read_bytes()
    assert proxy.count(Request.is_data) == max(1, -(-size // CHUNK))


def test_list_of_thousands(tool: Tool, url: str, moto: Moto, bucket: str) -> None:
    s3 = moto.client()
    keys = [f"log/{i:06d}" for i in range(1005)]
    with ThreadPoolExecutor(4) as pool:
        list(
            pool.map(lambda k: s3.put_object(Bucket=bucket, Key=f"some/where/{k}", Body=b""), keys)
        )
    s3.put_object(Bucket=bucket, Key="some/whereelse", Body=b"")
    s3.put_object(Bucket=bucket, Key="some/where/folder/", Body=b"")
    assert [o["key"] for o in json.loads(tool("share", "ls", "--json", url))] == keys
    found = json.loads(tool("share", "ls", "--json", url, "log/00100"))
    assert [o["key"] for o in found] == keys[1000:1005]
    tool("share", "rm", url, "log/0010/")  # a folder's name is whole
    assert len(json.loads(tool("share", "ls", "--json", url))) == 1005
    for key in ("log/a/b/c", "log/a-b"):
        s3.put_object(Bucket=bucket, Key=f"some/where/{key}", Body=b"")
    tool("share", "rm", url, "log/a/")
    found = json.loads(tool("share", "ls", "--json", url, "log/a"))
    assert [o["key"] for o in found] == ["log/a-b"]


# --- artifacts ---


def test_file_artifact(tool: Tool, url: str, proxy: Proxy) -> None:
    content = write_random(tool.folder / "in", 2 * CHUNK + 7)
    digest = tool.add(tool.folder / "here", content)
    env = {"STOKER_STORE": str(tool.folder / "here")}
    assert "isn't in store" in tool.fails("share", "pull", url, digest)
    tool("share", "push", url, digest, **env)
    parts = proxy.count(Request.is_part)
    tool("share", "push", url, digest, **env)
    assert proxy.count(Request.is_part) == parts == 3
    there = tool.folder / "there"
    tool("share", "pull", url, digest, STOKER_STORE=str(there))
    assert tool.content(there, digest).read_bytes() == content.read_bytes()
    asked = proxy.count(Request.is_data)
    tool("share", "pull", url, digest, STOKER_STORE=str(there))
    assert proxy.count(Request.is_data) == asked
    assert not list((there / "tmp").glob("pull-*"))


def test_folder_artifact(tool: Tool, url: str, proxy: Proxy) -> None:
    folder = tool.folder / "in"
    for i in range(60):
        path = folder / f"d{i % 7}" / f"file {i}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(str(i % 50))  # ten are twice there
    (folder / "run").write_text("#!")
    (folder / "run").chmod(0o755)
    (folder / "empty").mkdir()
    write_random(folder / "large", CHUNK + 5)
    digest = tool.add(tool.folder / "here", folder)
    tool("share", "push", url, digest, STOKER_STORE=str(tool.folder / "here"))
    there = tool.folder / "there"
    tool("share", "pull", url, digest, STOKER_STORE=str(there))
    back = tool.content(there, digest)
    assert subprocess.run(["diff", "-r", folder, back]).returncode == 0
    assert os.access(back / "run", os.X_OK) and not (back / "large").stat().st_mode & 0o111
    assert (back / "empty").is_dir()


def test_changed_content_is_refused(tool: Tool, url: str, moto: Moto, bucket: str) -> None:
    digest = tool.add(tool.folder / "here", write_random(tool.folder / "in", CHUNK + 100))
    tool("share", "push", url, digest, STOKER_STORE=str(tool.folder / "here"))
    data = bytearray((tool.folder / "in").read_bytes())
    data[CHUNK + 50] ^= 1
    key = f"some/where/artifacts/{digest[:2]}/{digest[2:]}"
    moto.client().put_object(Bucket=bucket, Key=key, Body=bytes(data))
    there = tool.folder / "there"
    for _ in range(2):  # nothing bad is kept for the next time
        text = tool.fails("share", "pull", url, digest, STOKER_STORE=str(there))
        assert "was changed: its digest is" in text
    moto.client().put_object(Bucket=bucket, Key=key, Body=bytes(data[:CHUNK]))
    assert "was changed" in tool.fails("share", "pull", url, digest, STOKER_STORE=str(there))
    key_data = (tool.folder / "in").read_bytes()
    moto.client().put_object(Bucket=bucket, Key=key, Body=key_data)
    tool("share", "pull", url, digest, STOKER_STORE=str(there))
    assert tool.content(there, digest).read_bytes() == key_data


def test_an_artifact_that_rotted_here_is_not_pushed(tool: Tool, url: str, proxy: Proxy) -> None:
    here = tool.folder / "here"
    digest = tool.add(here, write_random(tool.folder / "in", CHUNK + 100))
    path = tool.content(here, digest)
    path.chmod(0o644)
    with path.open("r+b") as file:
        file.seek(CHUNK + 3)
        file.write(b"rotten")
    assert "was changed" in tool.fails("share", "push", url, digest, STOKER_STORE=str(here))
    assert "isn't in store" in tool.fails("share", "pull", url, digest)


# --- who may, and where ---


def test_wrong_secret(tool: Tool, url: str) -> None:
    text = tool.fails("share", "check", url, AWS_SECRET_ACCESS_KEY="wrong" * 8)
    assert (
        "SignatureDoesNotMatch" in text
        and "the secret key doesn't belong to the access key" in text
    )
    assert "wrongwrong" not in text


def test_unknown_key(tool: Tool, url: str) -> None:
    assert "InvalidAccessKeyId" in tool.fails("share", "check", url, AWS_ACCESS_KEY_ID="AKIANOBODY")


def test_no_bucket(tool: Tool) -> None:
    text = tool.fails("share", "check", "s3://nobody-has-this/x")
    assert "bucket 'nobody-has-this' doesn't exist" in text


def test_no_credentials(tool: Tool, url: str) -> None:
    text = tool.fails("share", "check", url, AWS_ACCESS_KEY_ID="")
    assert "no AWS credentials" in text and "AWS_PROFILE" in text


def test_denied(tool: Tool, url: str, proxy: Proxy) -> None:
    proxy.rule = lambda r: error("AccessDenied", 403) if r.method == "DELETE" else None
    text = tool.fails("share", "check", url)
    assert "can't remove an object" in text and "AccessDenied" in text
    proxy.rule = lambda r: error("", 403) if r.method in ("HEAD", "GET") else None
    assert "the credentials need s3:GetObject" in tool.fails("share", "pull", url, "0" * 64)


def test_tls(tool: Tool, url: str, moto: Moto) -> None:
    """By AWS_CA_BUNDLE; who can't be trusted isn't asked twice, and is sent nothing."""
    bundle, context = make_certificate(tool.folder)
    secure = Proxy(moto.url, context)
    try:
        tool("share", "check", url, AWS_ENDPOINT_URL=secure.url, AWS_CA_BUNDLE=str(bundle))
        n = len(secure.seen)
        text = tool.fails("share", "check", url, AWS_ENDPOINT_URL=secure.url)
    finally:
        secure.stop()
    assert "certificate" in text.lower() and len(secure.seen) == n > 0


@pytest.mark.parametrize(
    "bucket, region, host",
    [
        ("data", "eu-west-1", "data.s3.eu-west-1.amazonaws.com"),
        ("data", "cn-north-1", "data.s3.cn-north-1.amazonaws.com.cn"),
        ("with.dots", "us-gov-west-1", "s3.us-gov-west-1.amazonaws.com"),
    ],
)
def test_where_buckets_of_aws_are(
    tool: Tool, proxy: Proxy, bucket: str, region: str, host: str
) -> None:
    proxy.rule = lambda r: Fault(status=502)
    env = {
        "AWS_ENDPOINT_URL": "",
        "https_proxy": proxy.url,
        "no_proxy": "",
        "AWS_MAX_ATTEMPTS": "1",
    }
    tool.fails("share", "ls", f"s3://{bucket}/x", AWS_REGION=region, **env)
    assert [(r.method, r.path) for r in proxy.seen] == [("CONNECT", f"{host}:443")]


def test_virtual_hosts_of_others(tool: Tool, proxy: Proxy) -> None:
    (Path(tool.env["HOME"]) / ".aws").mkdir()
    (Path(tool.env["HOME"]) / ".aws/config").write_text(
        "[default]\ns3 =\n  addressing_style = virtual\n"
    )
    proxy.rule = lambda r: Fault(status=204)
    port = proxy.url.rsplit(":", 1)[1]
    tool("share", "rm", "s3://data/x", "k", AWS_ENDPOINT_URL=f"http://localhost:{port}")
    assert proxy.seen[0].path == "/x/k"
    assert proxy.seen[0].headers["host"] == f"data.localhost:{port}"


def test_refused_at_once(tool: Tool, url: str) -> None:
    text = tool.fails(
        "share", "check", url, AWS_ENDPOINT_URL="http://127.0.0.1:1", AWS_MAX_ATTEMPTS="2"
    )
    assert "127.0.0.1:1" in text and "onnect" in text


def test_bucket_in_another_region(tool: Tool, url: str, proxy: Proxy, moto: Moto) -> None:
    """S3 names the bucket's region; the request is then signed for it."""

    def elsewhere(request: Request):
        if "/us-west-2/s3/" not in request.headers["authorization"]:
            return error(
                "AuthorizationHeaderMalformed", 400, **{"x-amz-bucket-region": "us-west-2"}
            )
        return None

    proxy.rule = elsewhere
    tool("share", "check", url)
    assert proxy.count(lambda r: "/eu-west-1/" in r.headers["authorization"]) == 1


@pytest.mark.parametrize("what", ["imds", "container", "web"])
def test_credentials_of_machines(
    tool: Tool, url: str, moto: Moto, proxy: Proxy, tmp_path: Path, what: str
) -> None:
    """They are fetched, and fetched once more when S3 says that they have expired."""
    giver = Giver(moto.keys)
    (tmp_path / "token").write_text("web-token\n" if what == "web" else "the-container's\n")
    tool.env.pop("AWS_ACCESS_KEY_ID")
    tool.env.update(
        {
            "imds": {
                "AWS_EC2_METADATA_DISABLED": "false",
                "AWS_EC2_METADATA_SERVICE_ENDPOINT": giver.url + "/",
                "AWS_REGION": "",
            },
            "container": {
                "AWS_CONTAINER_CREDENTIALS_FULL_URI": giver.url + "/container",
                "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE": str(tmp_path / "token"),
            },
            "web": {
                "AWS_WEB_IDENTITY_TOKEN_FILE": str(tmp_path / "token"),
                "AWS_ROLE_ARN": "arn:aws:iam::123456789012:role/x",
                "AWS_ENDPOINT_URL_STS": giver.url,
            },
        }[what]
    )
    first, second = (key for key, _ in moto.keys)
    expired = False

    def rule(request: Request):
        nonlocal expired
        expired = expired or request.n > 2
        if expired and f"Credential={first}/" in request.headers["authorization"]:
            return error("ExpiredToken", 400)
        return None

    proxy.rule = rule
    try:
        tool("share", "check", url)
    finally:
        giver.stop()
    used = [r.headers["authorization"].split("Credential=")[1].split("/")[0] for r in proxy.seen]
    assert used[:3] == [first] * 3 and set(used[3:]) == {second}
    assert not any("Token" in r.headers.get("x-amz-security-token", "") for r in proxy.seen)


def test_credentials_renewed_in_the_file(
    tool: Tool, url: str, moto: Moto, proxy: Proxy, tmp_path: Path
) -> None:
    """New keys in AWS's file are read during a run, once the old ones have expired."""
    file = tmp_path / "credentials"
    (old, old_secret), (new, new_secret) = moto.keys
    tool.env.update(AWS_ACCESS_KEY_ID="", AWS_SHARED_CREDENTIALS_FILE=str(file))
    text = "[default]\naws_access_key_id = {}\naws_secret_access_key = {}\n"
    file.write_text(text.format(old, old_secret))

    def rule(request: Request):
        if request.n > 2:
            file.write_text(text.format(new, new_secret))
        if request.n > 2 and f"Credential={old}/" in request.headers["authorization"]:
            return error("ExpiredToken", 400)
        return None

    proxy.rule = rule
    tool("share", "check", url)
    used = [r.headers["authorization"].split("Credential=")[1].split("/")[0] for r in proxy.seen]
    assert used[:3] == [old] * 3 and set(used[3:]) == {new}


def test_pods_need_keys_of_their_own(tool: Tool, url: str, moto: Moto, tmp_path: Path) -> None:
    """`stack check` says so where ours are in a file of this machine, which no pod has; and it
    names an address that only this machine reaches."""
    told = tool.run("stack", "check", "kubernetes", STOKER_SHARE=url).stdout
    assert f"✓ store {url} can be written, read and listed from here; other machines" in told
    assert "can't reach http://127.0.0.1:" in told and "role" not in told
    file = tmp_path / "credentials"
    key, secret = moto.keys[0]
    file.write_text(f"[default]\naws_access_key_id = {key}\naws_secret_access_key = {secret}\n")
    tool.env.update(AWS_ACCESS_KEY_ID="", AWS_SHARED_CREDENTIALS_FILE=str(file))
    told = tool.run("stack", "check", "kubernetes", STOKER_SHARE=url).stdout
    assert "; its pods need a role of their own for it (service_account" in told


def test_credentials_that_stay_expired(tool: Tool, url: str, proxy: Proxy) -> None:
    proxy.rule = lambda r: error("ExpiredToken", 400)
    text = tool.fails("share", "check", url)
    assert "ExpiredToken" in text and "renew the credentials" in text
    assert len(proxy.seen) == 2


def test_a_giver_that_is_down(tool: Tool, url: str, moto: Moto) -> None:
    giver = Giver(moto.keys)
    giver.status = 500
    tool.env.update(
        AWS_ACCESS_KEY_ID="", AWS_CONTAINER_CREDENTIALS_FULL_URI=giver.url + "/container"
    )
    try:
        text = tool.fails("share", "check", url)
    finally:
        giver.stop()
    assert "answers with status 500" in text


def role_of(moto: Moto, name: str, action: str) -> str:
    """The ARN of a role that anyone may assume, and that may do this."""
    anyone = {"Effect": "Allow", "Action": "sts:AssumeRole", "Principal": {"AWS": "*"}}
    role = moto.client("iam").create_role(
        RoleName=f"{name}{os.getpid()}",
        AssumeRolePolicyDocument=json.dumps({"Statement": [anyone]}),
    )["Role"]
    allowed = {"Effect": "Allow", "Action": action, "Resource": "*"}
    moto.client("iam").put_role_policy(
        RoleName=role["RoleName"],
        PolicyName="all",
        PolicyDocument=json.dumps({"Version": "2012-10-17", "Statement": [allowed]}),
    )
    return str(role["Arn"])


def test_a_role_of_the_environment(tool: Tool, url: str, moto: Moto) -> None:
    """STOKER_AWS_ROLE, as S3(role=…) of a flow sets it: it does what the role may, not more."""
    tool("share", "check", url, STOKER_AWS_ROLE=role_of(moto, "may", "s3:*"))
    tool("share", "check", url)
    refused = tool.fails("share", "check", url, STOKER_AWS_ROLE=role_of(moto, "not", "ec2:*"))
    assert "AccessDenied" in refused


def test_profile_with_a_role(tool: Tool, url: str, moto: Moto) -> None:
    """A profile whose role is assumed with another profile's keys: real signatures, moto's STS."""
    folder = Path(tool.env["HOME"]) / ".aws"
    folder.mkdir()
    role = role_of(moto, "r", "s3:*")
    (folder / "config").write_text(
        f"[profile work]\nrole_arn = {role}\nsource_profile = me\nregion = eu-west-1\n"
    )
    key, secret = moto.keys[0]
    (folder / "credentials").write_text(
        f"[me]\naws_access_key_id={key}\naws_secret_access_key={secret}\n"
    )
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_REGION"):
        tool.env.pop(name)
    tool("share", "check", url, AWS_PROFILE="work")
    assert "isn't in AWS's configuration or credentials file" in tool.fails(
        "share", "check", url, AWS_PROFILE="none"
    )


def test_clock_skew(tool: Tool, url: str, proxy: Proxy) -> None:
    """A machine whose clock is hours off: the answer's Date says so, and all that follows is signed by it."""
    from email.utils import formatdate
    from time import time

    def rule(request: Request):
        if request.n == 1:
            fault = error("RequestTimeTooSkewed", 403)
            fault.date = formatdate(time() - 7200, usegmt=True)
            return fault
        return None

    proxy.rule = rule
    # moto doesn't look at the time, so what it was told is read here
    tool("share", "check", url)
    from datetime import datetime, timezone

    def stamp(request: Request) -> float:
        date = datetime.strptime(request.headers["x-amz-date"], "%Y%m%dT%H%M%SZ")
        return date.replace(tzinfo=timezone.utc).timestamp()

    assert abs(stamp(proxy.seen[0]) - time()) < 120
    assert all(abs(stamp(r) - (time() - 7200)) < 120 for r in proxy.seen[1:])


def test_one_of_many_creates(tool: Tool, url: str) -> None:
    for i in range(8):
        (tool.folder / f"in{i}").write_text(f"of {i}")
    with ThreadPoolExecutor(8) as pool:
        all_done = list(
            pool.map(lambda i: tool.run("share", "put", "--new", url, "log/1", f"in{i}"), range(8))
        )
    won = [i for i, done in enumerate(all_done) if done.returncode == 0]
    assert len(won) == 1, all_done
    assert all("already in store" in d.stderr for i, d in enumerate(all_done) if i != won[0])
    tool("share", "get", url, "log/1", "out")
    assert (tool.folder / "out").read_text() == f"of {won[0]}"


def test_a_lost_answer_is_not_somebody_else(tool: Tool, url: str, proxy: Proxy) -> None:
    """The first try created it and the second is refused: with our content it is ours, with other
    content it isn't."""
    proxy.rule = lambda r: Fault(lose=True) if r.n == 1 else None
    (tool.folder / "in").write_text("mine")
    tool("share", "put", "--new", url, "log/1", "in")
    assert [r.method for r in proxy.seen] == ["PUT", "PUT", "GET"]
    (tool.folder / "in").write_text("yours")
    proxy.rule = lambda r: Fault(drop=True) if r.n == 4 else None
    assert "already in store" in tool.fails("share", "put", "--new", url, "log/1", "in")
