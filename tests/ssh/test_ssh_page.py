"""The commands of docs/ssh.md, typed as they stand there, on real hosts."""

from __future__ import annotations

from ssh_project import Project
from typed_page import type_page


def test_typed(project: Project) -> None:
    hosts = list(project.lab.hosts)
    said = type_page("docs/ssh.md", __file__, project, {"hosts": hosts}, poll=0.2)
    assert "typed" in said and all(host in said for host in hosts)
