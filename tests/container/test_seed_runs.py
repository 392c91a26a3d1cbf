"""The seed documents' Python blocks run unchanged in containers: a stack's image_map names a site's own mirror.

Nothing of theirs can be pulled here, so the mirror's images are the tests' Debian under the names that the blocks
have, with pip, uv and a wheelhouse, as an air-gapped site makes them. `zenml` is in no wheelhouse.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

import conftest
import pytest
from image_tools import pip_tree, wheel
from run_tools import ROOT, STOKER, WAIT_S, Project

SEEDS = ROOT / "tests" / "data" / "seeds"
MIRROR = "localhost/stoker-test-mirror/pytorch"
TAGS = ("1.12.1-cuda11.3-cudnn8-runtime", "2.1.0-cuda12.1-cudnn8-runtime")
SITE = "usr/local/lib/python3.11/dist-packages"
TORCH_IMAGE_BYTES = 4 << 30
UNNEEDED = {"..", "__pycache__", "include", "test", "tests", "share"}  # of distributions' files
# What a block uses without importing it: the page takes it as given.
GIVEN = "from zenml import DockerSettings, pipeline"
# Blocks in the order of their page; what is called; which image; is one built from it?
PAGES = {
    "000": (["scale_compute_1", "gpu_hardware_1"], "my_pipeline(lr=4)", TAGS[0], False),
    "000 requirements": (["scale_compute_1", "gpu_hardware_2"], "my_pipeline(lr=4)", TAGS[0], True),
    "001": (["scale_compute_1", "scale_compute_2"], "my_pipeline(lr=4)", TAGS[0], False),
    "001 requirements": (
        ["scale_compute_1", "scale_compute_3"],
        "my_pipeline(lr=4)",
        TAGS[0],
        True,
    ),
    "002": (["train_with_gpus_1", "train_with_gpus_2"], "my_gpu_pipeline(lr=4)", TAGS[1], True),
}
# Those with ranks. Their blocks name no image, or one, or one and packages.
WEIGHTS = "weights=[1, 2, 3, 4]"
RANKS = {
    "002": (["train_with_gpus_3", "train_with_gpus_4"], f"dist_pipeline({WEIGHTS})", 10.0),
    "003": (["accelerate_1"], "training_pipeline(10, [1, 2, 3, 4])", 50.0),
    "003 image": (["accelerate_1", "accelerate_2"], "my_pipeline(10, [1, 2, 3, 4])", 50.0),
    "003 requirements": (["accelerate_1", "accelerate_3"], "my_pipeline(10, [1, 2, 3, 4])", 50.0),
}


def program(blocks: list[str], call: str) -> str:
    texts = [GIVEN, *((SEEDS / f"{name}.py").read_text() for name in blocks)]
    tail = (
        'if __name__ == "__main__":\n    import json\n'
        f"    run = {call}\n"
        '    print(json.dumps(run.steps["training_step"].output.load()))\n'
    )
    return "\n\n".join([*texts, tail])


def uv_tree(tree: Path) -> None:
    """The uv of the tests' environment, where there is one; else pip of the image stands in for it."""
    uv = Path(sysconfig.get_path("scripts")) / "uv"
    if not uv.exists():
        if os.environ.get("CI"):
            pytest.fail("no uv here: tools/requirements-test.txt names it", pytrace=False)
        pytest.skip("uv isn't installed in the tests' environment")
    put(tree / "usr/local/bin", uv)
    put(tree / "usr/local/lib", *conftest._libraries([uv]))


def put(folder: Path, *files: Path) -> None:
    """Files of the system, links followed."""
    folder.mkdir(parents=True, exist_ok=True)
    for path in files:
        if path.parts[1] in ("lib", "lib64", "usr") or folder.name == "bin":
            shutil.copy(path, folder / path.name)


@pytest.fixture(scope="session")
def mirror(podman: Any, debian: str, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Images of a site without a way out, under PyTorch's own tags."""
    tree = tmp_path_factory.mktemp("mirror")
    pip_tree(tree)
    uv_tree(tree)
    wheel(tree / "wheels", "torchvision", "0.16.0", {"torchvision.py": "SAYS = 'seen'\n"})
    (tree / "Dockerfile").write_text(
        f"FROM {debian}\nCOPY usr /usr\nCOPY wheels /wheels\n"
        "ENV LD_LIBRARY_PATH=/usr/local/lib\n"
        "ENV PIP_NO_INDEX=1 PIP_FIND_LINKS=/wheels UV_OFFLINE=1 UV_NO_INDEX=1 UV_FIND_LINKS=/wheels\n"
    )
    podman("build", "-q", "-t", f"{MIRROR}:{TAGS[0]}", str(tree))
    podman("tag", f"{MIRROR}:{TAGS[0]}", f"{MIRROR}:{TAGS[1]}")
    return MIRROR


def link_or_copy(source: Path, target: Path) -> None:
    try:
        os.link(source.resolve(), target)
    except OSError:  # another file system
        shutil.copy(source, target)


def site_of(tree: Path, *names: str) -> None:
    """Distributions of this environment and all that they need, as hard links."""
    wanted, seen = list(names), set()
    while wanted:
        name = re.sub(r"[-_.]+", "-", wanted.pop()).lower()
        try:
            found = importlib.metadata.distribution(name)
        except importlib.metadata.PackageNotFoundError:
            continue  # for another platform
        if name in seen:
            continue
        seen.add(name)
        needs = [n for n in found.requires or [] if "extra ==" not in n]
        wanted += [re.split(r"[^\w.-]", need)[0] for need in needs]
        for file in found.files or []:
            source, target = Path(str(found.locate_file(file))), tree / str(file)
            if source.is_file() and not UNNEEDED & set(file.parts):
                target.parent.mkdir(parents=True, exist_ok=True)
                link_or_copy(source, target)


@pytest.fixture(scope="session")
def torch_mirror(podman: Any, mirror: str) -> str:
    """The same with this environment's real PyTorch and accelerate in it."""
    if not all(importlib.util.find_spec(name) for name in ("torch", "accelerate")):
        pytest.skip("PyTorch and accelerate are not installed")
    if sys.version_info[:2] != (3, 11):
        pytest.skip("the image's Python isn't of this environment's version")
    if "+cpu" not in importlib.metadata.version("torch"):
        pytest.skip("this PyTorch carries gigabytes of CUDA")
    version = importlib.metadata.version("torch")
    reference = f"{mirror}-{version.partition('+')[0]}"
    id_ = podman.api("GET", f"/images/{mirror}:{TAGS[0]}/json")[1]["Id"].rpartition(":")[2]
    kept = f"{reference}:from-{id_[:12]}"
    if not podman.has_image(kept):
        free = shutil.disk_usage(podman.storage).free
        if free < TORCH_IMAGE_BYTES:
            pytest.skip(
                f"an image of PyTorch takes 3 GiB while it is made; {free >> 20} MiB are free"
            )
        tree = podman.storage / "torch-mirror"  # beside the environment: nothing is copied twice
        shutil.rmtree(tree, ignore_errors=True)
        site_of(tree / "site", "torch", "accelerate")
        put(tree / "lib", *conftest._libraries(sorted((tree / "site").rglob("*.so*"))))
        (tree / "Dockerfile").write_text(
            f"FROM {mirror}:{TAGS[0]}\nCOPY lib /usr/local/lib\nCOPY site /{SITE}\n"
            "ENV OMP_NUM_THREADS=1\n"
        )
        podman("build", "-q", "-t", kept, str(tree))
        shutil.rmtree(tree)
    for tag in TAGS:
        podman("tag", kept, f"{reference}:{tag}")
    return reference


class Seeds(Project):
    """A program as it is on the page, run by `stoker compat` on a stack of the site's."""

    def page(self, blocks: list[str], call: str, to: str, **env: str) -> Any:
        self.write(
            "stoker.yaml",
            "stacks:\n  site:\n    backend: docker\n"
            f"    default_image: pytorch/pytorch:{TAGS[1]}\n"
            f"    image_map: {{pytorch/pytorch: {to}}}\n",
        )
        (self.folder / "page.py").write_text(program(blocks, call))
        words = ["compat", "--", STOKER, "run", "--with", "site", "--python", sys.executable]
        done = subprocess.run(
            [STOKER, *words, "page.py"],
            cwd=self.folder,
            env={**self.env, **env},
            capture_output=True,
            text=True,
            timeout=2 * WAIT_S,
        )
        assert done.returncode == 0, done.stderr + done.stdout
        return json.loads(done.stdout.strip().splitlines()[-1])


@pytest.fixture
def seeds(tmp_path: Path, podman: Any) -> Seeds:
    folder = tmp_path / "proj"
    folder.mkdir()
    return Seeds(folder, podman)


def test_every_block_is_here() -> None:
    """But for the one that is no statement: its settings are 003's last block's too."""
    used = {name for blocks, *_ in [*PAGES.values(), *RANKS.values()] for name in blocks}
    assert {p.stem for p in SEEDS.glob("*.py")} - used == {"train_with_gpus_5"}


@pytest.mark.parametrize("page", PAGES)
def test_pages_run_in_their_image(seeds: Seeds, mirror: str, page: str) -> None:
    """Packages are there where they were asked for; `zenml` is asked for too and is in no image."""
    blocks, call, tag, builds = PAGES[page]
    assert seeds.page(blocks, call, mirror) == 8.0
    shown = seeds.show()
    image = shown["steps"]["training_step"]["granted"]["image"]
    assert image["name"] == f"pytorch/pytorch:{tag}"
    parent = seeds.podman.api("GET", f"/images/{mirror}:{tag}/json")[1]["Id"]
    assert (image["id"].rpartition(":")[2] != parent.rpartition(":")[2]) == builds
    code = "import importlib.util as u; print([bool(u.find_spec(n)) for n in ('torchvision', 'zenml')])"
    asked = ["run", "--rm", "--network", "none", "--entrypoint", "python3", image["id"], "-c", code]
    assert seeds.podman(*asked).stdout == f"[{builds}, False]\n"
    assert any("asked for 2 GPUs" in note for note in shown["notes"]), shown["notes"]


@pytest.mark.torch
@pytest.mark.parametrize("page", RANKS)
def test_pages_with_ranks(seeds: Seeds, torch_mirror: str, page: str) -> None:
    """Four ranks of a real PyTorch inside of one container; a block without an image has the stack's."""
    blocks, call, total = RANKS[page]
    value = seeds.page(blocks, call, torch_mirror)
    assert value["total"] == total and value["ranks"] == 4
    step = seeds.show()["steps"]["training_step"]
    assert step["granted"]["image"]["name"].startswith("pytorch/pytorch:")
    assert json.loads((Path(step["dir"]) / "gang.json").read_text())["ranks"] == 4
