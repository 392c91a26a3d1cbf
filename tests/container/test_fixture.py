"""The images that other tests of this folder use are correct."""

from __future__ import annotations


def run(podman, *words: str) -> str:
    return podman("run", "--rm", "--network", "host", *words).stdout


def test_scratch_holds_one_program(podman, scratch):
    out = run(podman, "--entrypoint", "/probe", scratch, "say", "a", "--", "stat", "/bin/sh", "--", "id")  # fmt: skip
    assert out.split("\n") == ["a", "(none)", "0:0", ""]


def test_debian_has_python_and_a_shell(podman, debian):
    code = "import json, ssl, sqlite3, ctypes, hashlib, os; print(os.getcwd(), os.environ['IMAGE_SAYS'])"
    assert run(podman, debian, "python3", "-c", code) == "entrypoint\n/srv hello\n"
    assert run(podman, "--entrypoint", "/bin/sh", debian, "-c", "id -u; echo $0") == "0\n/bin/sh\n"
