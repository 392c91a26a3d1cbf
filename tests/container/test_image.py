"""Images for real: found, checked, pulled, built and pushed, with a Podman and a registry of the test's own."""

from __future__ import annotations

import http.server
import json
import os
import shutil
import ssl
import subprocess
import sysconfig
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import conftest
import pytest
from image_tools import Registry, Stoker, environment, pip_tree, torch, wheel

WHEELS = {"no-index": None, "find-links": "/wheels"}
PIP: dict[str, Any] = {"python_package_installer": "pip", "python_package_installer_args": WHEELS}


@pytest.fixture
def stoker(podman: Any, tmp_path: Path) -> Stoker:
    folder = tmp_path / "project"
    folder.mkdir()
    return Stoker(folder, environment(podman.env, folder / "home"))


@pytest.fixture(scope="session")
def registry(podman: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Registry]:
    if shutil.which("docker-registry") is None:
        if os.environ.get("CI"):
            pytest.fail("no docker-registry here", pytrace=False)
        pytest.skip("no docker-registry here; `make deps-test-all` installs it")
    made = Registry(tmp_path_factory.mktemp("registry"), podman.registry)
    yield made
    made.close()


@pytest.fixture
def shop(registry: Registry) -> Iterator[Registry]:
    """The registry, without faults at first."""
    registry.door.fault = None
    registry.want_password(False)
    yield registry
    registry.door.fault = None
    registry.want_password(False)


@pytest.fixture(scope="session")
def pip_image(podman: Any, debian: str, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The Debian-like image with pip and a wheelhouse."""
    tree = tmp_path_factory.mktemp("pip")
    pip_tree(tree)
    (tree / "Dockerfile").write_text(f"FROM {debian}\nCOPY usr /usr\nCOPY wheels /wheels\n")
    podman("build", "-q", "-t", "localhost/stoker-test-pip:1", str(tree))
    return "localhost/stoker-test-pip:1"


@pytest.fixture(scope="session")
def torch_image(podman: Any, pip_image: str, tmp_path_factory: pytest.TempPathFactory) -> str:
    """With a torch built for CUDA 13 in it, as images of PyTorch have."""
    tree = tmp_path_factory.mktemp("torch")
    site = tree / "site"
    for name, text in torch("2.9.0+cu130", "13.0").items():
        (site / name).parent.mkdir(parents=True, exist_ok=True)
        (site / name).write_text(text)
    info = site / "torch-2.9.0+cu130.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: torch\nVersion: 2.9.0+cu130\n")
    (info / "RECORD").write_text("")
    (info / "INSTALLER").write_text("pip\n")
    (tree / "Dockerfile").write_text(
        f"FROM {pip_image}\nCOPY site /usr/local/lib/python3.11/dist-packages\nENV CUDA_VERSION=13.0.1\n"
    )
    podman("build", "-q", "-t", "localhost/stoker-test-torch:1", str(tree))
    return "localhost/stoker-test-torch:1"


def images(podman: Any) -> set[str]:
    return {one["Id"] for one in podman.api("GET", "/images/json?all=false")[1]}


# --- as it is ---


def test_an_image_that_is_here(stoker: Stoker, podman: Any, debian: str) -> None:
    before = images(podman)
    made = stoker.built({"parent_image": debian})
    assert made["id"] == podman.api("GET", f"/images/{debian}/json")[1]["Id"]
    assert not made["pulled"] and not made["built"]
    assert made["steps"] == ["train"]
    assert images(podman) == before
    found = stoker.findings("--image", debian)
    assert found["arch"][0]["level"] == "ok"
    assert "is here" in found["image"][0]["text"]


def test_zenml_among_the_requirements_builds_nothing(stoker: Stoker, debian: str) -> None:
    as_it_is = stoker.built({"parent_image": debian})
    zenml = stoker.built(
        {"parent_image": debian, "requirements": ["zenml==0.20.5", "zenml[server]"]}
    )
    assert zenml["id"] == as_it_is["id"] and not zenml["built"]


def test_an_image_that_is_nowhere(stoker: Stoker) -> None:
    done = stoker.build({"parent_image": "localhost/nothing:1"})
    assert done.code == 2
    assert "step 'train': image 'localhost/nothing:1' isn't here" in done.said
    assert stoker.findings("--image", "localhost/nothing:1")["image"][0]["level"] == "problem"


def test_inside_of_images_with_and_without_python(
    stoker: Stoker, debian: str, scratch: str, torch_image: str, podman: Any
) -> None:
    before = podman.containers()
    found = stoker.findings("--image", scratch, "--inside")
    assert "has no Python" in found["python"][0]["text"]
    found = stoker.findings("--image", debian, "--inside")
    assert found["python"][-1]["text"].startswith(f"image '{debian}' has Python 3.")
    stoker.gpus(driver="535.104.05", cuda=12020)
    found = stoker.findings("--image", torch_image, "--inside")
    assert "needs driver 580 or newer; this host has 535.104.05" in found["torch"][-1]["text"]
    assert found["cuda"][0]["level"] == "problem"
    assert found["driver"][0]["level"] == "warning"  # nothing passed a driver into it
    stoker.gpus()
    found = stoker.findings("--image", torch_image, "--inside")
    assert "torch 2.9.0+cu130 fits the driver" in found["torch"][-1]["text"]
    assert podman.containers() == before


def test_inside_with_the_drivers_library(
    stoker: Stoker, podman: Any, torch_image: str, tmp_path: Path
) -> None:
    """A stand-in of what nvidia-ctk writes: the library comes into the container by CDI."""
    folder = Path("/etc/cdi")
    if not os.access("/etc", os.W_OK):
        pytest.skip("CDI specifications lie in /etc/cdi, which only root writes")
    folder.mkdir(exist_ok=True)
    (tmp_path / "libcuda").write_text("")
    mount = {
        "hostPath": str(tmp_path / "libcuda"),
        "containerPath": "/usr/lib/x86_64-linux-gnu/libcuda.so.1",
        "options": ["ro", "bind"],
    }
    devices = [{"name": "all", "containerEdits": {"mounts": [mount]}}]
    spec = {"cdiVersion": "0.5.0", "kind": "nvidia.com/gpu", "devices": devices}
    stoker.gpus()
    (folder / "stoker-look.json").write_text(json.dumps(spec))
    try:
        found = stoker.findings("--image", torch_image, "--inside")
    finally:
        (folder / "stoker-look.json").unlink()
    assert found["driver"][0]["level"] == "ok"
    assert found["driver"][0]["text"].endswith("/usr/lib/x86_64-linux-gnu/libcuda.so.1")
    found = stoker.findings("--image", torch_image, "--inside")  # no specification any more
    assert {f["level"] for f in found["driver"]} == {"warning"}
    assert "fits the driver" in found["torch"][-1]["text"]  # the rest is looked at all the same


def test_a_look_that_was_killed_leaves_nothing(stoker: Stoker, podman: Any, debian: str) -> None:
    dead = subprocess.Popen(["true"])
    dead.wait()
    podman("create", "--label", f"stoker.look={dead.pid}", debian)
    podman("create", "--name", "of-somebody", "--label", "stoker.look=1", debian)
    stoker.findings("--image", debian, "--inside")
    assert podman.containers() == ["of-somebody"]
    podman("rm", "of-somebody")


# --- steps with devices ---


@pytest.mark.parametrize("allowed", [False, True])
def test_a_cpu_only_image_for_a_gpu_step(
    stoker: Stoker, podman: Any, debian: str, allowed: bool
) -> None:
    podman("tag", debian, "localhost/team/pytorch-cpu:1")
    stoker.gpus()
    env = {"STOKER_ALLOW_CPU_BUILD": "1"} if allowed else {}
    step = {"resources": {"gpu_count": 1}}
    done = stoker.build({"parent_image": "localhost/team/pytorch-cpu:1"}, step=step, **env)
    assert done.code == (0 if allowed else 2)
    if not allowed:
        assert (
            "step 'train': image 'localhost/team/pytorch-cpu:1' is made for CPUs only" in done.said
        )
        assert "use pytorch/pytorch:2.9.0-cuda13.0" in done.said
        assert "set STOKER_ALLOW_CPU_BUILD=1 to run without devices" in done.said
    assert stoker.build({"parent_image": "localhost/team/pytorch-cpu:1"}).code == 0
    spec = stoker.pipeline({"parent_image": "localhost/team/pytorch-cpu:1"}, **step)
    for policy in ("fit", "strict"):
        done = stoker("run", "--with", "docker", "--policy", policy, spec, **env)
        assert allowed or (done.code == 2 and "is made for CPUs only" in done.said)


def test_a_cpu_build_of_torch_found_inside(stoker: Stoker, podman: Any, pip_image: str) -> None:
    stoker.gpus()
    step = {"resources": {"gpu_count": 1}, "uses": ["torch"]}
    docker = {"parent_image": pip_image, "requirements": ["torch==2.9.0+cpu"], **PIP}
    done = stoker.build(docker, step=step)
    assert done.code == 2
    assert "torch 2.9.0+cpu is a CPU-only build: it can't use this host's NVIDIA GPU" in done.said
    docker["requirements"] = ["torch==2.9.0+cu130"]
    assert stoker.build(docker, step=step).code == 0
    # a parent without any is no reason against what is built on it
    podman("tag", pip_image, "localhost/team/python-cpu:1")
    docker["parent_image"] = "localhost/team/python-cpu:1"
    assert stoker.build(docker, step=step).code == 0


# --- built ---


def test_built_once(stoker: Stoker, podman: Any, pip_image: str) -> None:
    docker: dict[str, Any] = {
        "parent_image": pip_image,
        "requirements": ["tinypkg==1.0"],
        "environment": {"SAYS": 'a "quoted" word'},
        **PIP,
    }
    made = stoker.built(docker)
    assert made["built"]
    said = podman("run", "--rm", "--network", "none", "--entrypoint", "python3", made["id"], "-c",
                  "import os, tinypkg; print(tinypkg.VALUE, os.environ['SAYS'])").stdout  # fmt: skip
    assert said == '42 a "quoted" word\n'
    (log,) = (stoker.folder / ".stoker/images").iterdir()
    assert "FROM" in log.read_text() and "tinypkg" in log.read_text()
    log.unlink()
    stoker.write("train.py", "print('code is no part of it')\n")
    again = stoker.built(docker)
    assert again["id"] == made["id"] and not again["built"]
    assert stoker("run", "--with", "docker", stoker.folder / "p.yaml").code == 0
    assert not list((stoker.folder / ".stoker/images").iterdir())  # the builder wasn't even asked
    docker["requirements"] = ["tinypkg==2.0"]
    assert stoker.built(docker)["id"] != made["id"]


@pytest.mark.parametrize("own", [False, True], ids=["install command", "dockerfile"])
def test_a_command_that_replaces_the_parents_torch(
    stoker: Stoker, torch_image: str, own: bool
) -> None:
    """No resolver knows what it does: the image is held against its parent, at each use."""
    site = "/usr/local/lib/python3.11/dist-packages/torch/version.py"
    text = "__version__ = '2.10.0'\ncuda = None\nhip = None\n"
    stoker.write("ctx/cpu.py", f"open({site!r}, 'w').write({text!r})\n")
    stoker.write("ctx/Dockerfile", f"FROM {torch_image}\nCOPY cpu.py /\nRUN python3 /cpu.py\n")
    docker: dict[str, Any] = {"dockerfile": "ctx/Dockerfile", "build_context_root": "ctx"}
    if not own:
        docker = {
            "parent_image": torch_image,
            "local_project_install_command": "python3 ctx/cpu.py",
        }
    for _ in range(2):
        done = stoker.build(docker)
        assert done.code == 2, done.said
        assert (
            f"the build on {torch_image} replaces its torch 2.9.0+cu130, built for CUDA 13.0, with "
            "2.10.0, a CPU build" in done.said
        )
        assert "pin the version of the image (torch==2.9.0+cu130)" in done.said
        assert "the build for its CUDA (torch==2.10.0+cu130)" in done.said
    # the storage is kept: an image that another session has made isn't built again
    stoker.write("ctx/cpu.py", f"pass  # {stoker.folder} {time.time_ns()}\n")
    assert stoker.built(docker)["built"]


def test_prevent_build_reuse_asks_the_builder_again(stoker: Stoker, pip_image: str) -> None:
    docker = {"parent_image": pip_image, "requirements": ["tinypkg==1.0"], **PIP}
    stoker.built(docker)
    log = stoker.folder / ".stoker/images/build-train.log"
    log.unlink(missing_ok=True)
    stoker.built(docker | {"prevent_build_reuse": True})
    assert log.exists()


def test_an_own_dockerfile(stoker: Stoker, podman: Any) -> None:
    stoker.write("docker/Dockerfile", "FROM scratch\nCOPY . /\n")
    stoker.write("docker/kept/hello", "hello\n")
    stoker.write("docker/secret", "x")
    stoker.write("docker/.dockerignore", "secret\n.dockerignore\n")
    docker = {"dockerfile": "docker/Dockerfile", "build_context_root": "docker"}
    made = stoker.built(docker)
    mount = podman("save", "--format", "docker-dir", "-o", str(stoker.folder / "out"), made["id"])
    assert mount.returncode == 0
    names = ""
    for layer in (stoker.folder / "out").iterdir():
        tar = subprocess.run(["tar", "-tf", layer], capture_output=True, text=True)
        names += tar.stdout
    assert "kept/hello" in names and "secret" not in names


@pytest.mark.parametrize("installer", ["pip", "uv"])
def test_a_requirement_that_would_replace_the_parents_torch(
    stoker: Stoker, podman: Any, torch_image: str, installer: str
) -> None:
    before = images(podman)
    docker: dict[str, Any] = {"parent_image": torch_image, "requirements": ["oldvision"], **PIP}
    docker["python_package_installer"] = installer  # uv isn't in it: pip resolves the same
    done = stoker.build(docker)
    assert done.code == 2
    assert (
        f"the requirements would replace torch 2.9.0+cu130 of {torch_image}, built for CUDA 13.0, "
        "with torch 2.9.0+cpu" in done.said
    )
    assert "pin the version of the image (torch==2.9.0+cu130)" in done.said
    assert images(podman) == before
    if installer == "pip":
        assert stoker.built(docker | {"requirements": ["goodvision"]})["built"]


def test_the_same_where_an_own_dockerfile_is_the_parent(
    stoker: Stoker, podman: Any, torch_image: str
) -> None:
    """It is built, the resolver is asked in it, and only then are packages put on it: on the same layers."""
    stoker.write(
        "Dockerfile", f"FROM {torch_image}\nCOPY . /context/\nRUN echo made-once > /made\n"
    )
    stoker.write("hello", "x")
    docker: dict[str, Any] = {"dockerfile": "Dockerfile", "build_context_root": ".", **PIP}
    done = stoker.build(docker | {"requirements": ["oldvision"]})
    assert done.code == 2
    assert "would replace torch 2.9.0+cu130 of Dockerfile, built for CUDA 13.0, with" in done.said
    assert stoker.built(docker | {"requirements": ["goodvision"]})["built"]
    log = (stoker.folder / ".stoker/images/build-train.log").read_text()
    assert log.count("COPY . /context/\n--> Using cache") == 1, log


def test_the_failing_line_is_shown(stoker: Stoker, debian: str) -> None:
    done = stoker.build({"parent_image": debian, "apt_packages": ["git"]})
    assert done.code == 3
    assert "building an image failed at: RUN apt-get update" in done.said
    assert "not found" in done.said
    log = stoker.folder / ".stoker/images/build-train.log"
    assert str(log) in done.said
    assert "not found" in log.read_text()


def test_no_space_during_a_build(stoker: Stoker, debian: str) -> None:
    stoker.write("Dockerfile", f"FROM {debian}\nRUN dd if=/dev/zero of=/dev/full bs=4096 count=1\n")
    done = stoker.build({"dockerfile": "Dockerfile"})
    assert done.code == 3
    assert "no space left" in done.said.lower()
    assert "podman system prune" in done.said


@pytest.fixture(scope="session")
def no_pip(podman: Any, debian: str, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The Debian-like image with a wheelhouse, but without pip."""
    tree = tmp_path_factory.mktemp("no-pip")
    (tree / "wheels").mkdir()
    wheel(tree / "wheels", "tinypkg", "1.0", {"tinypkg.py": "VALUE = 42\n"})
    uv = Path(sysconfig.get_path("scripts")) / "uv"
    (tree / "lib").mkdir()
    for library in conftest._libraries([uv]):  # of the C compiler, which any Debian has
        shutil.copy2(library, tree / "lib")
    (tree / "Dockerfile").write_text(
        f"FROM {debian}\nCOPY wheels /wheels\nCOPY lib /usr/local/lib\nENV LD_LIBRARY_PATH=/usr/local/lib\n"
    )
    podman("build", "-q", "-t", "localhost/stoker-test-no-pip:1", str(tree))
    return "localhost/stoker-test-no-pip:1"


@pytest.mark.parametrize("installer", ["pip", "uv"])
def test_a_parent_without_pip(stoker: Stoker, podman: Any, no_pip: str, installer: str) -> None:
    """uv of this machine installs, isn't left in the image, and the image is found again by its recipe."""
    scripts = sysconfig.get_path("scripts")
    docker: dict[str, Any] = {"parent_image": no_pip, "requirements": ["tinypkg==1.0"], **PIP}
    docker["python_package_installer"] = installer
    bare = {"PATH": "/usr/bin:/bin", "STOKER_PYTHON": "/usr/bin/python3"}
    if not Path("/usr/bin/uv").exists():
        done = stoker.build(docker, **bare)
        assert done.code == 3 and "has no pip" in done.said and "pip install uv" in done.said
    made = stoker.built(docker, PATH=f"{scripts}:{os.environ['PATH']}")
    code = "import os, tinypkg; uv = '/tmp/stoker-uv'; print(tinypkg.VALUE, os.path.exists(uv) and os.path.getsize(uv) > 0)"
    words = ("run", "--rm", "--network", "none", "--entrypoint", "python3", made["id"], "-c", code)
    assert podman(*words).stdout == "42 False\n"
    again = stoker.built(docker, **bare)
    assert again["id"] == made["id"] and not again["built"]


# --- registries ---


@pytest.fixture
def sold(shop: Registry, podman: Any, tmp_path: Path) -> Iterator[str]:
    """An image that only the registry has."""
    name = f"{shop.address}/team/hello:1"
    (tmp_path / "sold").mkdir()
    (tmp_path / "sold" / "data").write_text(os.urandom(16).hex())
    podman.load(name, tmp_path / "sold")
    podman("push", "-q", name)
    podman("rmi", name)
    yield name
    podman("image", "prune", "-f")
    if podman.has_image(name):
        podman("rmi", "-f", name)


def test_looked_at_in_its_registry_and_pulled(
    stoker: Stoker, podman: Any, shop: Registry, sold: str
) -> None:
    found = stoker.findings("--image", sold)
    digest = shop.digest("team/hello", "1")
    assert f"can be pulled from {shop.address}: {digest}" in found["pull"][0]["text"]
    assert found["arch"][0]["level"] == "ok"
    assert not podman.has_image(sold)
    made = stoker.built({"parent_image": sold})
    assert made["pulled"] and podman.has_image(sold)
    assert not stoker.built({"parent_image": sold})["pulled"]
    podman("rmi", "-f", sold)
    pinned = f"{shop.address}/team/hello@{digest}"
    assert stoker.built({"parent_image": pinned})["id"] == made["id"]
    podman("rmi", "-f", made["id"])


def test_refusals_are_told_apart(stoker: Stoker, podman: Any, shop: Registry, sold: str) -> None:
    missing = sold.replace("hello:1", "hello:2")
    assert f"has no image {missing}" in stoker.findings("--image", missing)["pull"][0]["text"]
    done = stoker.build({"parent_image": missing})
    assert done.code == 2 and "has no image" in done.said
    shop.door.fault = 429
    pull = stoker.findings("--image", sold)["pull"][0]
    assert "limits requests from here (429, the door says 429; again in s: 7)" in pull["text"]
    assert "mirror" in pull["remedy"]
    assert stoker.build({"parent_image": sold}).code == 3
    shop.door.fault = 503
    assert "answers 503" in stoker.findings("--image", sold)["pull"][0]["text"]
    assert not podman.has_image(sold)


def test_a_password(stoker: Stoker, podman: Any, shop: Registry, sold: str) -> None:
    shop.want_password(True)
    pull = stoker.findings("--image", sold)["pull"][0]
    assert "refuses image" in pull["text"] and "no credentials were found" in pull["text"]
    assert f"docker login {shop.address}" in pull["remedy"]
    stoker.login(shop.address, "ann", "wrong")
    assert "rejects the credentials" in stoker.findings("--image", sold)["pull"][0]["text"]
    stoker.login(shop.address, "ann", "secret")
    assert "can be pulled" in stoker.findings("--image", sold)["pull"][0]["text"]
    assert stoker.built({"parent_image": sold})["pulled"]


def test_a_token(stoker: Stoker, podman: Any, shop: Registry, sold: str) -> None:
    shop.door.fault = "token"
    assert "refuses image" in stoker.findings("--image", sold)["pull"][0]["text"]
    stoker.login(shop.address, "ann", "secret")
    shop.door.tokens.clear()
    assert "can be pulled" in stoker.findings("--image", sold)["pull"][0]["text"]
    assert shop.door.tokens[0] == "/token?service=door&scope=repository:team/hello:pull"
    assert stoker.built({"parent_image": sold})["pulled"]


def test_a_layer_that_breaks_off(stoker: Stoker, podman: Any, shop: Registry) -> None:
    name = f"{shop.address}/team/big:1"
    stoker.write("big/data", os.urandom(400_000).hex())
    stoker.write("big/Dockerfile", "FROM scratch\nCOPY data /\n")
    podman("build", "-q", "-t", name, str(stoker.folder / "big"))
    podman("push", "-q", name)
    podman("rmi", "-f", name)
    shop.door.fault = "cut"
    done = stoker.build({"parent_image": name})
    assert shop.door.n_cut > 0
    assert done.code == 3
    assert f"the pull of image {shop.address}/team/big:1 broke off" in done.said
    assert "try again: complete layers" in done.said
    shop.door.fault = None
    assert stoker.built({"parent_image": name})["pulled"]
    podman("rmi", "-f", name)


@pytest.fixture
def answering(tmp_path: Path) -> Iterator[Any]:
    """answering(tls) is the address of a server that answers 503, by TLS of an unknown authority or without."""
    servers = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(503)
            self.send_header("Content-Length", "0")
            self.end_headers()

        do_HEAD = do_GET

    def answering(tls: bool) -> str:
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        if tls:
            key, cert = tmp_path / "key.pem", tmp_path / "cert.pem"
            words = f"openssl req -x509 -newkey rsa:2048 -nodes -subj /CN=nobody -keyout {key} -out {cert} -days 2"
            subprocess.run(words.split(), check=True, capture_output=True)
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(cert, key)
            server.socket = context.wrap_socket(server.socket, server_side=True)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        servers.append(server)
        return f"127.0.0.1:{server.server_address[1]}"

    yield answering
    for server in servers:
        server.shutdown()
        server.server_close()


@pytest.mark.parametrize("tls, way", [(True, "certs.d/"), (False, "insecure = true")])
def test_a_registry_that_is_not_trusted(
    stoker: Stoker, podman: Any, answering: Any, tls: bool, way: str
) -> None:
    """One sentence: the image with its tag, the engine that doesn't trust it, where trust is said."""
    name = f"{answering(tls)}/team/big:7"
    done = stoker.build({"parent_image": name})
    assert done.code == 3 and f"image {name} failed" in done.said, done.said
    assert "doesn't trust registry" in done.said and way in done.said


def test_built_images_are_pushed_and_pinned(
    stoker: Stoker, podman: Any, shop: Registry, pip_image: str
) -> None:
    stoker.write(
        "stoker.yaml",
        json.dumps({"stacks": {"lab": {"backend": "docker", "registry": f"{shop.address}/lab"}}}),
    )
    docker = {"parent_image": pip_image, "requirements": ["tinypkg"], **PIP}
    shop.want_password(True)
    done = stoker.build(docker | {"target_repository": "digits"}, "--with", "lab")
    assert done.code == 3 and "no credentials were found" in done.said
    stoker.login(shop.address, "ann", "secret")
    made = stoker.built(docker | {"target_repository": "digits"}, "--with", "lab")
    name, _, digest = made["pinned"].partition("@")
    assert name == f"{shop.address}/lab/digits"
    (tag,) = shop.tags("lab/digits")
    assert shop.digest("lab/digits", tag) == digest
    again = stoker.built(docker | {"target_repository": "digits"}, "--with", "lab")
    assert again["pinned"] == made["pinned"] and not again["pulled"]


# --- two stacks ---


def test_stacks_compared(stoker: Stoker, torch_image: str, debian: str) -> None:
    stacks = {
        "a": {"backend": "docker", "default_image": torch_image},
        "b": {"backend": "docker", "default_image": debian},
        "c": {"backend": "docker", "default_image": "x/pytorch/pytorch:2.1.0-cuda12.1-cudnn8-runtime",
              "image_map": {"x/": "localhost/"}},
    }  # fmt: skip
    stoker.write("stoker.yaml", json.dumps({"stacks": stacks}))
    found = stoker.findings("--compare", "a", "b")
    assert "CUDA: stack 'a' has 13.0" in found["cuda"][0]["text"]
    assert found["python"][0]["level"] == "ok"
    found = stoker.findings("--compare", "a", "c")
    assert "CUDA differs: stack 'a' has 13.0" in found["cuda"][0]["text"]
    assert "stack 'c' has 12.1 (image 'localhost/pytorch/pytorch" in found["cuda"][0]["text"]
    assert [f["level"] for f in found["framework"]] == ["ok", "warning"]
    assert stoker("doctor", "--compare", "a", "nope").code == 2
    assert stoker("doctor", "--compare", "a").code == 2


def test_wheels_are_what_pip_takes_them_for(tmp_path: Path) -> None:
    """The stand-ins themselves: pip reads name, version and requirements from them."""
    made = wheel(tmp_path, "oldvision", "0.1", {"oldvision.py": ""}, "torch==2.9.0+cpu")
    import zipfile

    with zipfile.ZipFile(made) as z:
        assert (
            "Requires-Dist: torch==2.9.0+cpu" in z.read("oldvision-0.1.dist-info/METADATA").decode()
        )


# --- another engine ---


def test_the_same_on_podman_and_docker(
    engine: Any, shop: Registry, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    stoker = Stoker(tmp_path, environment(engine.env, tmp_path / "home"))
    tree = tmp_path_factory.mktemp("pip")
    pip_tree(tree)
    base = next(
        t
        for i in engine.api("GET", "/images/json")[1]
        for t in i["RepoTags"] or []
        if "-debian:" in t
    )
    (tree / "Dockerfile").write_text(f"FROM {base}\nCOPY usr /usr\nCOPY wheels /wheels\n")
    engine("build", "-q", "-t", "localhost/stoker-test-pip:1", str(tree))
    parent = "localhost/stoker-test-pip:1"
    stacks = {"lab": {"backend": "docker", "registry": f"{shop.address}/lab"}}
    stoker.write("stoker.yaml", json.dumps({"stacks": stacks}))
    host = {"build_config": {"build_options": {"network": "host"}}}
    docker = {"parent_image": parent, "requirements": ["tinypkg==1.0"], **PIP, **host}
    made = stoker.built(docker, "--with", "lab")
    again = stoker.built(docker, "--with", "lab")
    assert (again["id"], again["pinned"]) == (made["id"], made["pinned"]) and made["pinned"]
    engine("rmi", "-f", made["id"])
    pulled = stoker.built({"parent_image": made["pinned"]})
    assert pulled["pulled"]
    found = stoker.findings("--image", made["pinned"], "--inside")
    assert found["python"][-1]["level"] == "ok"
    done = stoker.build({"parent_image": parent, "apt_packages": ["git"], **host})
    assert "building an image failed at: RUN apt-get update" in done.said
    assert "not found" in done.said
    engine("rmi", "-f", pulled["id"])


# --- runs ---


def test_a_run_builds_what_its_steps_ask_for(stoker: Stoker, podman: Any, pip_image: str) -> None:
    import_it = "python3 -c 'import tinypkg; print(tinypkg.VALUE)'"
    docker = {"parent_image": pip_image, "requirements": ["tinypkg==2.0", "zenml"], **PIP}
    spec = stoker.pipeline(docker, run=import_it)
    planned = stoker("plan", "--with", "docker", spec)
    assert planned.code == 0
    done = stoker("run", "--with", "docker", spec)
    assert done.code == 0, done.said
    run = stoker("show", "latest", "--json").json()
    assert Path(run["steps"]["train"]["logs"]["stdout"]).read_text() == "43\n"
    again = stoker("run", "--with", "docker", spec)
    assert again.code == 0 and "cached" in again.said  # the built image's id is in the key
    assert "1 of 1 step comes from the cache" in stoker("plan", "--with", "docker", spec).out


def test_a_run_refuses_before_its_first_task(stoker: Stoker, podman: Any, torch_image: str) -> None:
    spec = stoker.pipeline({"parent_image": torch_image, "requirements": ["oldvision"], **PIP})
    done = stoker("run", "--with", "docker", spec)
    assert done.code == 2
    assert "step 'train': the requirements would replace torch 2.9.0+cu130" in done.said
    assert podman.containers() == []


def test_the_dockerfile_is_shown_of_python_too(stoker: Stoker, debian: str) -> None:
    stoker.write(
        "flow.py",
        "from stoker import pipeline, step\nfrom stoker import DockerSettings\n"
        "@step\ndef train() -> None: pass\n"
        f"@pipeline(settings={{'docker': DockerSettings(parent_image={debian!r}, apt_packages=['git'])}})\n"
        "def flow():\n    train()\nif __name__ == '__main__':\n    flow()\n",
    )
    shown = stoker("plan", "--dockerfile", "flow.py")
    assert shown.code == 0
    assert shown.out.startswith(f"# step 'train'\nFROM {debian}\n")
    assert "--no-install-recommends git" in shown.out
    done = stoker("build", "flow.py")
    assert done.code == 3 and "building an image failed at: RUN apt-get" in done.said
