"""Hosts for the pages that send steps to other machines."""

from ssh_hosts import all_hosts, lab  # noqa: F401
