"""What the client answers besides runs, artifacts, models, tags and secrets.

Much of it is that there is nothing: a store has one user and one project, and no services,
deployments or connectors. A list of these is an empty page; asking for one is a KeyError.
"""

from __future__ import annotations

import contextlib
from typing import Any, Dict, Iterable, List, Mapping, NamedTuple, Optional

from .._definition.layers import load_run_config
from . import (
    artifacts,
    errors,
    invocations,
    models,
    own,
    runs,
    schedules,
    secrets,
    services,
    snapshots,
    stacks,
    tags,
    targets,
)
from .errors import IllegalOperationError
from .page import Page, page_of
from .responses import ProjectResponse, Response, UserResponse, found_by, project, user

# What there is none of → why.
NONE = {
    "build": "`stoker build` builds images",
    "code_repository": "a run keeps the digest of its code",
    "deployment": "Stoker runs no service, so there is nothing to deploy to",
    "service_connector": "credentials are those of the machine and of stoker.yaml",
    "service_account": "a store has no accounts",
    "api_key": "a store has no accounts",
    "authorized_device": "a store has no accounts",
    "webhook": "Stoker runs no service that could be called",
    "webhook_trigger": "Stoker runs no service that could be called",
    "schedule_trigger": "Stoker runs no service that could start runs",
    "platform_event_trigger": "Stoker runs no service that could start runs",
    "snapshot_trigger": "Stoker runs no service that could start runs",
    "resource_request": "`stoker why` says what a step waits for",
    "run_wait_condition": "wait() asks at the terminal",
    "curated_visualization": "`version.visualizations` has all, and no dashboard arranges them",
}
_TRIGGER = "Stoker runs no service that could start runs"


def _plural(word: str) -> str:
    return word[:-1] + "ies" if word.endswith("y") else word + "s"


LISTS = {f"list_{_plural(word)}": word for word in NONE if word != "api_key"}
GETS = {f"get_{word}": word for word in NONE}


_ON_ONE = {  # functions of the client that take one of these → what it is
    f"{verb}_{word}": word
    for verb, words in {
        "delete": (
            "build deployment code_repository service_connector "
            "authorized_device service_account api_key trigger curated_visualization"
        ),
        "update": (
            "code_repository service_connector authorized_device service_account api_key "
            "schedule_trigger webhook_trigger platform_event_trigger curated_visualization"
        ),
        "provision": "deployment",
        "deprovision": "deployment",
        "refresh": "deployment",
        "verify": "service_connector",
        "login": "service_connector",
        "rotate": "api_key",
        "resolve": "run_wait_condition",
    }.items()
    for word in words.split()
}
GETS.update(
    _ON_ONE,
    get_deployment_logs="deployment",
    create_api_key="service_account",
    create_curated_visualization="curated_visualization",
    create_service_connector="service_connector",
    get_service_connector_client="service_connector",
    get_service_connector_type="service_connector",
    list_api_keys="service_account",
    clear_trigger_dispatch_error="trigger",
    detach_trigger_from_snapshot="trigger",
)
# What ZenML refuses too where no server is.
_NO_SERVER = (
    *("replay_pipeline_run", "attach_trigger_to_snapshot", "deactivate_user"),
    *("delete_webhook", "update_webhook", "rotate_webhook_secret", "get_raw_webhook_event"),
    *("create_webhook", "create_webhook_trigger", "create_schedule_trigger"),
    "create_platform_event_trigger",
)
# What a store has one of, or none, and can't get another of → why.
_ONLY = {
    "create_user": "a store has no accounts",
    "create_service_account": "a store has no accounts",
    "create_project": "a store is one project; another folder is another one",
    "create_code_repository": "a run keeps the digest of its code",
    "update_server_settings": "there is no server: the settings are the store's",
}


def nothing(name: str) -> Any:
    """The function of the client that lists, gets or changes what there is none of, or that needs a
    server; None for another name."""
    if name in _NO_SERVER:

        def answer(*args: Any, **given: Any) -> Any:
            raise TypeError(f"{name}() isn't allowed: no server is behind this client")

        answer.why = "it is refused, as by ZenML without a server"  # type: ignore[attr-defined]
        return answer
    if name in _ONLY:

        def answer(*args: Any, **given: Any) -> Any:
            raise NotImplementedError(f"{name}(): {_ONLY[name]}")

        answer.why = f"it is refused: {_ONLY[name]}"  # type: ignore[attr-defined]
        return answer
    if name in LISTS:

        def answer(*args: Any, **given: Any) -> Any:
            return Page([], 0, size=int(given.get("size") or 20))

    elif name in GETS:

        def answer(name_id_or_prefix: Any = None, *args: Any, **given: Any) -> Any:
            word = GETS[name]
            shown = word.replace("_", " ")
            raise KeyError(f"there is no {shown} '{name_id_or_prefix}': {NONE.get(word, _TRIGGER)}")

    else:
        return None
    answer.why = f"there is none: {NONE.get(LISTS.get(name) or GETS[name], _TRIGGER)}"  # type: ignore
    return answer


class ServerSettingsResponse(Response):
    """The settings of the store: there is no server."""

    name = server_name = "stoker"
    active = True
    enable_analytics = display_announcements = display_updates = False
    logo_url = last_user_activity = None

    def __init__(self) -> None:
        self.id = project().id


class PrunedSnapshots(NamedTuple):
    """How many snapshots were removed."""

    snapshot_count: int = 0
    task_id: Any = None


def _refuse(what: str, given: Mapping[str, Any]) -> None:
    for key, value in given.items():
        if value is not None:
            raise NotImplementedError(
                f"the {what}'s '{key}' can't be changed: a store has one {what}"
            )


class Answers:
    """Part of :class:`stoker._zen.client.Client`."""

    # ------------------------------------------------------------------ links of models

    def list_model_version_artifact_links(
        self, **given: Any
    ) -> Page[models.ModelVersionArtifactResponse]:
        """Which artifacts belong to which versions of models."""
        return models.list_artifact_links(given)

    def list_model_version_pipeline_run_links(
        self, **given: Any
    ) -> Page[models.ModelVersionPipelineRunResponse]:
        """Which runs belong to which versions of models."""
        return models.list_run_links(given)

    def delete_model_version_artifact_link(
        self, model_version_id: Any, artifact_version_id: Any
    ) -> None:
        """Remove an artifact from a version of a model; it stays in the store. Raises KeyError."""
        version = targets.model_version({"model_version_id": model_version_id})
        wanted = str(getattr(artifact_version_id, "id", artifact_version_id))
        some = [one for one in version._links() if wanted in (str(one.id), one.name)]
        if not some:
            raise KeyError(
                f"version '{version.name}' of model '{version.model.name}' has no artifact '{wanted}'"
            )
        version.unlink(some)

    def delete_all_model_version_artifact_links(
        self, model_version_id: Any, only_links: bool = True
    ) -> None:
        """Remove all artifacts from a version of a model, and from the store unless
        ``only_links``."""
        version = targets.model_version({"model_version_id": model_version_id})
        some = version._links()
        version.unlink(some)
        if not only_links:
            for one in some:
                artifacts.delete_version(one)

    # ------------------------------------------------------------------ tags and metadata by id

    def attach_tag(self, tag: Any, resources: Iterable[Any]) -> None:
        """Add a tag to objects, each with ``id`` and ``type``; makes the tag. Raises KeyError."""
        tags.make([tag])
        for one in resources:
            targets.tag_by_id(one, tags.named(tag), add=True)

    def detach_tag(self, tag_name_or_id: Any, resources: Iterable[Any]) -> None:
        """Remove a tag from objects, each with ``id`` and ``type``. Raises KeyError."""
        name = tags.get(tag_name_or_id).name
        for one in resources:
            targets.tag_by_id(one, [name], add=False)

    def create_run_metadata(
        self, metadata: Dict[str, Any], resources: Iterable[Any], *_: Any, **__: Any
    ) -> None:
        """Attach metadata to objects, each with ``id`` and ``type``. Raises KeyError."""
        for one in resources:
            targets.log_by_id(one, metadata)

    def prune_artifacts(
        self, only_versions: bool = True, delete_from_artifact_store: bool = False, **_: Any
    ) -> None:
        """Remove the versions of artifacts that no run made or took, and without ``only_versions``
        the artifacts that have none left; content goes once nothing refers to it."""
        used = artifacts.used()
        for one in artifacts.versions_of():
            if one.id not in used:
                artifacts.delete_version(one)
        for empty in [] if only_versions else artifacts._artifacts():
            if not empty.versions:
                artifacts.delete_artifact(empty)

    # ------------------------------------------------------------------ hooks

    def list_hook_invocations(self, **given: Any) -> Page[invocations.HookInvocationResponse]:
        """Calls of hooks of steps, and by ``run_hook``."""
        return invocations.listing(given)

    def get_hook_invocation(
        self, hook_invocation_id: Any, hydrate: bool = True
    ) -> invocations.HookInvocationResponse:
        """A call of a hook; raises KeyError."""
        return invocations.get(hook_invocation_id)

    def delete_hook_invocation(self, hook_invocation_id: Any) -> None:
        """Forget a call of a hook. Raises KeyError."""
        invocations.delete(hook_invocation_id)

    # ------------------------------------------------------------------ schedules

    def get_schedule(
        self, name_id_or_prefix: Any, is_archived: Optional[bool] = False, **_: Any
    ) -> schedules.ScheduleResponse:
        """A schedule; raises KeyError."""
        return schedules.get(name_id_or_prefix, is_archived)

    def list_schedules(self, **given: Any) -> Page[schedules.ScheduleResponse]:
        """Schedules; those that were deleted with ``is_archived=True``."""
        return schedules.listing(given)

    def update_schedule(
        self,
        name_id_or_prefix: Any,
        cron_expression: Optional[str] = None,
        active: Optional[bool] = None,
    ) -> schedules.ScheduleResponse:
        """Change a schedule's times, stop it, or let it go on; raises KeyError."""
        return schedules.update(name_id_or_prefix, cron_expression, active)

    def delete_schedule(self, name_id_or_prefix: Any, soft: bool = True, **_: Any) -> None:
        """Stop and remove a schedule; with ``soft`` it is archived. Raises KeyError."""
        schedules.delete(name_id_or_prefix, soft)

    # ------------------------------------------------------------------ snapshots and templates

    def create_run_template(
        self, name: str, snapshot_id: Any, description: Optional[str] = None, tags: Any = None
    ) -> snapshots.RunTemplateResponse:
        """Give a snapshot that was created by ``pipeline.create_snapshot`` another name.

        Raises:
            KeyError: there is no such snapshot.
            ValueError: it is a run's.
        """
        return snapshots.template_of(self.get_snapshot(snapshot_id), name, description, tags)

    def get_run_template(self, name_id_or_prefix: Any, **_: Any) -> snapshots.RunTemplateResponse:
        """A run template; raises KeyError."""
        return snapshots.get_template(name_id_or_prefix)

    def list_run_templates(self, **given: Any) -> Page[snapshots.RunTemplateResponse]:
        """Run templates."""
        return snapshots.listing("run_templates", snapshots.templates(), given)

    def update_run_template(
        self,
        name_id_or_prefix: Any,
        name: Optional[str] = None,
        description: Optional[str] = None,
        add_tags: Any = None,
        remove_tags: Any = None,
        project: Any = None,
    ) -> snapshots.RunTemplateResponse:
        """Change a template's name, description or tags; raises KeyError, EntityExistsError."""
        found = snapshots.get_template(name_id_or_prefix)
        fields = {"name": name, "description": description}
        fields.update(add_tags=add_tags, remove_tags=remove_tags)
        return snapshots.RunTemplateResponse(snapshots.update(found, fields))

    def delete_run_template(self, name_id_or_prefix: Any, **_: Any) -> None:
        """Remove a run template; its runs stay. Raises KeyError."""
        snapshots.delete(snapshots.get_template(name_id_or_prefix))

    def update_snapshot(
        self,
        name_id_or_prefix: Any,
        project: Any = None,
        name: Optional[str] = None,
        description: Optional[str] = None,
        replace: Optional[bool] = None,
        add_tags: Any = None,
        remove_tags: Any = None,
    ) -> snapshots.KeptSnapshot:
        """Change a snapshot's name, description or tags; raises KeyError, EntityExistsError."""
        fields: Dict[str, Any] = {"name": name, "description": description, "replace": replace}
        fields.update(add_tags=add_tags, remove_tags=remove_tags)
        return snapshots.KeptSnapshot(snapshots.update(snapshots.get(name_id_or_prefix), fields))

    def delete_snapshot(self, name_id_or_prefix: Any, **_: Any) -> None:
        """Remove a named snapshot; its runs stay. Raises KeyError."""
        snapshots.delete(snapshots.get(name_id_or_prefix))

    def trigger_pipeline(
        self,
        snapshot_name_or_id: Any = None,
        pipeline_name_or_id: Any = None,
        run_configuration: Any = None,
        config_path: Optional[str] = None,
        stack_name_or_id: Any = None,
        synchronous: bool = False,
        template_id: Any = None,
        **_: Any,
    ) -> runs.PipelineRunResponse:
        """Start a run of a snapshot or template, or of a pipeline's latest one; returns it once it
        has begun, with ``synchronous`` once it has ended.

        Raises:
            KeyError: there is none.
            ValueError: it is that of a run.
            RuntimeError: no run began; the text says why.
        """
        if run_configuration and config_path:
            raise RuntimeError("Only config path or runtime configuration can be specified.")
        found = snapshots.to_run(template_id or snapshot_name_or_id, pipeline_name_or_id)
        stack = None if stack_name_or_id is None else stacks.get_stack(stack_name_or_id).name
        given = load_run_config(config_path) if config_path else run_configuration
        return snapshots.run(found, given, stack, synchronous)

    def list_snapshots(self, **given: Any) -> Page[Any]:
        """Snapshots that have a name; with ``named_only=False`` also what runs were started with."""
        found: List[Any] = list(snapshots.snapshots())
        if not given.pop("named_only", True):
            found += [run.snapshot for run in runs.runs()]
        return snapshots.listing("snapshots", found, given)

    def get_snapshot(self, name_id_or_prefix: Any, **_: Any) -> Any:
        """A named snapshot, or what a run was started with, by ``run.snapshot.id``; raises
        KeyError."""
        kept = snapshots.find(name_id_or_prefix)
        if kept is not None:
            return kept
        wanted = str(getattr(name_id_or_prefix, "id", name_id_or_prefix))
        for run in reversed(runs.runs()):
            if str(run.snapshot.id) == wanted:
                return run.snapshot
        raise KeyError(f"there is no snapshot '{wanted}'")

    # ------------------------------------------------------------------ services

    def create_service(
        self, config: Any, service_type: services.ServiceType, model_version_id: Any = None
    ) -> services.ServiceResponse:
        """Register a service, which runs once it is started; raises EntityExistsError."""
        return services.create(config, service_type, model_version_id)

    def get_service(self, name_id_or_prefix: Any, *_: Any, **__: Any) -> services.ServiceResponse:
        """A service; raises KeyError."""
        return services.get(name_id_or_prefix)

    def list_services(self, **given: Any) -> Page[services.ServiceResponse]:
        """Services."""
        return services.listing(given)

    def update_service(self, id: Any, **fields: Any) -> services.ServiceResponse:
        """Change what is kept of a service; raises KeyError."""
        return services.update(id, fields)

    def delete_service(self, name_id_or_prefix: Any, **_: Any) -> None:
        """Remove the record of a service; raises KeyError."""
        services.delete(name_id_or_prefix)

    # ------------------------------------------------------------------ flavors

    def get_flavor(self, name_id_or_prefix: Any, **_: Any) -> stacks.FlavorResponse:
        """A kind of component; raises KeyError."""
        return stacks.get_flavor(name_id_or_prefix)

    def get_flavor_by_name_and_type(self, name: str, component_type: Any) -> stacks.FlavorResponse:
        """A kind of component of a type; raises KeyError."""
        return stacks.get_flavor(name, component_type)

    def get_flavors_by_type(self, component_type: Any) -> Page[stacks.FlavorResponse]:
        """The kinds of a type."""
        return stacks.list_flavors({"type": component_type})

    def list_flavors(self, **given: Any) -> Page[stacks.FlavorResponse]:
        """The kinds of components."""
        return stacks.list_flavors(given)

    def create_flavor(self, source: str, component_type: Any) -> stacks.FlavorResponse:
        """Register a flavor of the program's own; raises as :func:`.own.register`."""
        return own.register(source, component_type)

    def delete_flavor(self, name_id_or_prefix: Any) -> None:
        """Remove a registered flavor; raises ZenKeyError if there is none."""
        with contextlib.suppress(KeyError):
            return own.unregister(name_id_or_prefix)
        raise errors.ZenKeyError(f"there is no registered flavor '{name_id_or_prefix}'")

    def prune_snapshots(self, older_than: Any, apply: bool = False, **_: Any) -> PrunedSnapshots:
        """Remove snapshots without a name that no run has: there are none."""
        return PrunedSnapshots()

    def update_step_run(self, step_run_id: Any, cache_expires_at: Any = None) -> Any:
        """Raises KeyError; of a step, NotImplementedError."""
        name = runs.get_step(step_run_id).name
        raise NotImplementedError(
            f"step '{name}': when its result expires is said before the run: "
            "cache_policy=CachePolicy(expires_after=…)"
        )

    # ------------------------------------------------------------------ users, projects, settings

    def update_user(
        self,
        name_id_or_prefix: Any,
        updated_full_name: Optional[str] = None,
        updated_user_metadata: Optional[Dict[str, Any]] = None,
        **more: Any,
    ) -> UserResponse:
        """Change the only user's full name or metadata.

        Raises:
            KeyError: there is no such user.
            NotImplementedError: something else is to change.
        """
        found = self.get_user(name_id_or_prefix)
        _refuse("user", more)
        fields = {"full_name": updated_full_name, "user_metadata": updated_user_metadata}
        found.change(fields)
        return found

    def update_project(
        self,
        name_id_or_prefix: Any,
        new_name: Optional[str] = None,
        new_display_name: Optional[str] = None,
        new_description: Optional[str] = None,
        project_metadata: Optional[Dict[str, Any]] = None,
        **more: Any,
    ) -> ProjectResponse:
        """Change what is said of the only project; raises as :meth:`update_user`."""
        found = self.get_project(name_id_or_prefix)
        _refuse("project", {**more, "new_name": new_name})
        fields = {"display_name": new_display_name, "description": new_description}
        found.change({**fields, "project_metadata": project_metadata})
        return found

    def get_user(self, name_id_or_prefix: Any, *_: Any, **__: Any) -> UserResponse:
        """The only user; raises KeyError for another."""
        found: UserResponse = found_by("user", name_id_or_prefix, [user()])
        return found

    def delete_user(self, name_id_or_prefix: Any) -> None:
        """Raises KeyError; of the only user, IllegalOperationError."""
        raise IllegalOperationError(f"'{self.get_user(name_id_or_prefix).name}' is the only user")

    def delete_project(self, name_id_or_prefix: Any) -> None:
        """Raises KeyError; of the only project, IllegalOperationError."""
        raise IllegalOperationError(
            f"'{self.get_project(name_id_or_prefix).name}' is the only project: it is the store"
        )

    def list_users(self, **given: Any) -> Page[UserResponse]:
        """The only user."""
        return page_of("users", [user()], given, _NAMED)

    def get_project(self, name_id_or_prefix: Any = None, *_: Any, **__: Any) -> ProjectResponse:
        """The only project; raises KeyError for another."""
        if name_id_or_prefix is None:
            return project()
        found: ProjectResponse = found_by("project", name_id_or_prefix, [project()])
        return found

    def list_projects(self, **given: Any) -> Page[ProjectResponse]:
        """The only project."""
        return page_of("projects", [project()], given, _NAMED)

    def set_active_project(self, project_name_or_id: Any) -> ProjectResponse:
        """The only project; raises KeyError for another."""
        return self.get_project(project_name_or_id)

    def get_settings(self, **_: Any) -> ServerSettingsResponse:
        """The settings of the store."""
        return ServerSettingsResponse()

    def list_service_connector_resources(self, *_: Any, **__: Any) -> List[Any]:
        """None: credentials are those of the machine and of ``stoker.yaml``."""
        return []

    list_service_connector_types = list_service_connector_resources

    def set_api_key(self, key: str) -> None:
        """Raises NotImplementedError: a store has no accounts."""
        raise NotImplementedError("there is no server that an API key could be for")

    # ------------------------------------------------------------------ secrets

    def backup_secrets(self, ignore_errors: bool = True, delete_secrets: bool = False) -> None:
        """Raises BackupSecretsStoreNotConfiguredError: the store is the only one."""
        raise errors.BackupSecretsStoreNotConfiguredError("secrets are kept in the store only")

    restore_secrets = backup_secrets

    def get_secret_by_name_and_private_status(
        self, name: str, private: Optional[bool] = None, **_: Any
    ) -> secrets.SecretResponse:
        """A secret by its whole name; raises KeyError."""
        found = secrets.get(name, False)
        if private is not None and found.private != private:
            raise KeyError(f"there is no {'private' if private else 'public'} secret '{name}'")
        return found

    def list_secrets_by_private_status(
        self, private: bool, **_: Any
    ) -> Page[secrets.SecretResponse]:
        """The private secrets, or the others."""
        return secrets.list_secrets({"private": private})


_NAMED: Mapping[str, Any] = {
    "id": lambda one: one.id,
    "name": lambda one: one.name,
    "created": lambda one: one.created,
    "updated": lambda one: one.updated,
}
