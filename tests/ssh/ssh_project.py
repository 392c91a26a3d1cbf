"""A user's project whose stack `lab` is the hosts of a lab, on one of its submitting machines."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Optional

from ssh_hosts import Client, Lab
from stack_project import StackProject


class Project(StackProject):
    """`more` are keys of the stack."""

    def __init__(self, folder: Path, lab: Lab, client: Optional[Client] = None, **more: Any) -> None:  # fmt: skip
        self.lab, self.client = lab, client or lab.user
        stack = {"backend": "ssh", "hosts": list(lab.hosts), "options": {"poll": 0.2}, **more}
        super().__init__(folder, stack, self.client.env())
        self.umask = 0o22

    def share(self) -> None:
        """The store is a folder of all machines, where the user of the hosts is the submitting one."""
        self.umask = 0
        self.say(store=str(self.lab.shared / "store"))
