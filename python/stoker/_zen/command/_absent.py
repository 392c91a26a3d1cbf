"""Lists of what a store has one or none of, and why commands are missing."""

from __future__ import annotations

from ._words import ID, NAME, Lists

_STACKS = "stoker.yaml says where steps run: change the stack there"


_NO_SERVICE = "Stoker runs no service"


REASONS = {
    "stack": _STACKS,
    "flavor": "there are no flavors to install",
    "service-connector": "credentials are those of the machine and of stoker.yaml",
    "service-account": "a store has no accounts",
    "authorized-device": "a store has no accounts",
    "user": "a store has no accounts",
    "project": "a store is one project; another folder is another one",
    "code-repository": "a run keeps the digest of its code",
    "deployment": f"{_NO_SERVICE}, so there is nothing to deploy to",
    "pipeline deploy": f"{_NO_SERVICE}, so there is nothing to deploy to",
    "pipeline build": "`stoker build FILE` builds the images of a pipeline's steps",
    "pipeline create-run-template": "`zenml pipeline snapshot create` is its newer name",
    "pipeline register": "a run registers its pipeline by itself",
    "pipeline runs": "`stoker cancel RUN` ends a run",
    "trigger": f"{_NO_SERVICE} that could start runs",
    "server": "there is no server",
    "logs": "`stoker logs STEP` shows what a step printed",
    "go": "docs/steps.md begins with a first pipeline",
    "backup-database": "the store is the folder .stoker: copy it while no run goes on",
    "restore-database": "the store is the folder .stoker: copy it back",
    "migrate-database": "the store is brought up to date when it is opened",
    "downgrade": "an older Stoker says whether it can read the store",
}


LISTS: Lists = {
    ("user", "list"): ("list_users", [ID, NAME]),
    ("project", "list"): ("list_projects", [ID, NAME]),
    ("code-repository", "list"): ("list_code_repositories", [ID, NAME]),
    ("service-connector", "list"): ("list_service_connectors", [ID, NAME]),
    ("service-account", "list"): ("list_service_accounts", [ID, NAME]),
    ("deployment", "list"): ("list_deployments", [ID, NAME]),
}
