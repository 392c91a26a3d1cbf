"""``Client()``: what ZenML's client answers from a server, answered from the store."""

from __future__ import annotations

from typing import Any, Dict, List, Mapping, Optional

from .._base.binary import output_of
from .._base.errors import did_you_mean
from .._definition.graph import active_graph
from . import (
    artifacts,
    connected,
    models,
    registering,
    runs,
    saved,
    schedules,
    secrets,
    snapshots,
    stacks,
    tags,
    targets,
    whole,
)
from .answers import NONE, Answers, nothing
from .dynamic import running_body
from .lazy import LazyArtifact, LazyVersion
from .page import Page
from .repository import Repository
from .responses import ProjectResponse, UserResponse, project, user
from .zen_store import ZenStore


class Client(Repository, Answers):
    """Reads and changes the store of the working directory, or that of ``STOKER_STORE``."""

    # ------------------------------------------------------------------ where it is

    @classmethod
    def get_instance(cls) -> Client:
        """A client; all are alike."""
        return cls()

    @property
    def active_user(self) -> UserResponse:
        """The only user."""
        return user()

    @property
    def active_project(self) -> ProjectResponse:
        """The only project: the store."""
        return project()

    active_workspace = active_project

    @property
    def active_stack(self) -> stacks.Stack:
        """This machine and its store."""
        return stacks.active()

    @property
    def active_stack_model(self) -> stacks.StackResponse:
        """The same as the client lists it."""
        return stacks.active().model

    @property
    def zen_store(self) -> ZenStore:
        """The same functions under the names of ZenML's store."""
        return self.__dict__.setdefault("_store", ZenStore(self))  # type: ignore[no-any-return]

    def activate_stack(self, stack_name_id_or_prefix: Any) -> None:
        """Let runs of this project's programs go to a stack of ``stoker.yaml``; raises KeyError."""
        stacks.activate(stack_name_id_or_prefix)

    def get_stack(self, name_id_or_prefix: Any = None, **_: Any) -> stacks.StackResponse:
        """The stack; raises KeyError for another name."""
        return stacks.get_stack(name_id_or_prefix)

    def list_stacks(self, **given: Any) -> Page[stacks.StackResponse]:
        """The stack."""
        return stacks.list_stacks(given)

    def create_stack(
        self, name: str, components: Mapping[Any, Any], *_: Any, **__: Any
    ) -> stacks.StackResponse:
        """Write a stack of components into ``stoker.yaml``.

        Raises:
            KeyError: there is no such component.
            EntityExistsError: there is a stack of this name.
            ValueError: a component is missing.
            StackValidationError: ``stoker.yaml`` can't take it.
        """
        return registering.create(name, components)

    def update_stack(
        self,
        name_id_or_prefix: Any = None,
        name: Optional[str] = None,
        component_updates: Optional[Mapping[Any, Any]] = None,
        **_: Any,
    ) -> stacks.StackResponse:
        """Change a stack that was registered; raises as :meth:`create_stack`."""
        return registering.update(name_id_or_prefix, name, component_updates)

    def delete_stack(self, name_id_or_prefix: Any, recursive: bool = False) -> None:
        """Remove a stack that was registered, if ``recursive`` with its registered components that no
        other stack has.

        Raises:
            KeyError: there is none.
            ValueError: it is the active one.
            IllegalOperationError: ``stoker.yaml`` has it from a person.
        """
        connected.delete_stack(name_id_or_prefix, recursive)

    def get_stack_component(
        self, component_type: Any, name_id_or_prefix: Any = None, **_: Any
    ) -> stacks.ComponentResponse:
        """A component of the stack; raises KeyError."""
        return stacks.component(component_type, name_id_or_prefix)

    def create_stack_component(
        self,
        name: str,
        flavor: str,
        component_type: Any,
        configuration: Optional[Mapping[str, Any]] = None,
        **_: Any,
    ) -> stacks.ComponentResponse:
        """Register a component: MLflow's experiment tracker or model registry, which every stack
        then has, or one that stacks are made of.

        Raises:
            EntityExistsError: there is one of this type and name.
            NotImplementedError: another component.
        """
        return connected.create(name, flavor, component_type, configuration)

    def update_stack_component(
        self,
        name_id_or_prefix: Any,
        component_type: Any,
        name: Optional[str] = None,
        configuration: Optional[Mapping[str, Any]] = None,
        **_: Any,
    ) -> stacks.ComponentResponse:
        """Change a registered component's name or configuration; raises as
        :meth:`delete_stack_component`."""
        return connected.update(name_id_or_prefix, component_type, name, configuration)

    def delete_stack_component(self, name_id_or_prefix: Any, component_type: Any) -> None:
        """Remove a registered component.

        Raises:
            KeyError: there is none.
            IllegalOperationError: it is one of ``stoker.yaml`` or of Stoker.
        """
        connected.remove(name_id_or_prefix, component_type)

    def list_stack_components(self, **given: Any) -> Page[stacks.ComponentResponse]:
        """The stack's components."""
        return stacks.list_components(given)

    # ------------------------------------------------------------------ runs

    def get_pipeline_run(self, name_id_or_prefix: Any, **_: Any) -> runs.PipelineRunResponse:
        """A run by id, name or prefix; raises KeyError."""
        return runs.get_run(name_id_or_prefix)

    def list_pipeline_runs(self, **given: Any) -> Page[runs.PipelineRunResponse]:
        """Runs, the first ones first."""
        return runs.list_runs(given)

    def delete_pipeline_run(self, name_id_or_prefix: Any, **_: Any) -> None:
        """Remove an ended run; raises KeyError."""
        runs.delete_run(runs.get_run(name_id_or_prefix))

    def get_run_step(self, step_run_id: Any, **_: Any) -> runs.StepRunResponse:
        """A step by id; raises KeyError."""
        return runs.get_step(step_run_id)

    def list_run_steps(self, **given: Any) -> Page[runs.StepRunResponse]:
        """Steps of runs."""
        return runs.list_steps(given)

    def get_pipeline(self, name_id_or_prefix: Any, **_: Any) -> runs.PipelineResponse:
        """A pipeline that has run, or has a schedule or a snapshot; raises KeyError."""
        return runs.get_pipeline(name_id_or_prefix)

    def list_pipelines(self, **given: Any) -> Page[runs.PipelineResponse]:
        """Pipelines that have run, or have a schedule or a snapshot."""
        return runs.list_pipelines(given)

    def delete_pipeline(self, name_id_or_prefix: Any, **_: Any) -> None:
        """Remove all runs, schedules and snapshots of a pipeline; raises KeyError."""
        found = runs.get_pipeline(name_id_or_prefix)
        gone = [r.native.id for r in runs.runs() if r.pipeline.name == found.name]
        for one in gone:
            models.settle(one)
        if gone:
            output_of(["store", "rm", *(part for one in gone for part in whole.forget(one))])
        for schedule in schedules.schedules():
            if schedule.pipeline_id == found.id:
                schedules.delete(schedule.id, soft=False)
        for snapshot in snapshots.snapshots():
            if snapshot.pipeline.id == found.id:
                snapshots.delete(snapshot)
        tags.forget("pipeline", found.id)

    # ------------------------------------------------------------------ artifacts

    def get_artifact(self, name_id_or_prefix: Any, **_: Any) -> artifacts.ArtifactResponse:
        """An artifact; raises KeyError."""
        return artifacts.get_artifact(name_id_or_prefix)

    def get_artifact_version(
        self, name_id_or_prefix: Any, version: Any = None, **_: Any
    ) -> artifacts.ArtifactVersionResponse:
        """A version by name (the latest, or the given one), id or prefix; raises KeyError.

        In a pipeline's body it is looked up when the step that takes it starts.
        """
        if active_graph() is not None and running_body() is None:
            return LazyArtifact(str(name_id_or_prefix), version)  # type: ignore[return-value]
        return artifacts.get_version(name_id_or_prefix, version)

    def list_artifacts(self, **given: Any) -> Page[artifacts.ArtifactResponse]:
        """Artifacts by name."""
        return artifacts.list_artifacts(given)

    def list_artifact_versions(self, **given: Any) -> Page[artifacts.ArtifactVersionResponse]:
        """Versions of artifacts."""
        belong = targets.belonging(given.pop("model", None), given.pop("model_version_id", None))
        return artifacts.list_versions(given, belong)

    def update_artifact(
        self,
        name_id_or_prefix: Any,
        new_name: Optional[str] = None,
        add_tags: Any = None,
        remove_tags: Any = None,
        has_custom_name: Optional[bool] = None,
        **_: Any,
    ) -> artifacts.ArtifactResponse:
        """Change an artifact's name or tags; raises KeyError, EntityExistsError."""
        found = artifacts.get_artifact(name_id_or_prefix)
        tags.attach("artifact", found.id, add_tags)
        tags.detach("artifact", found.id, remove_tags)
        if new_name is None or new_name == found.name:
            return found
        own = [t.name for t in found.tags]
        saved.rename(found.name, new_name)
        tags.forget("artifact", found.id)
        renamed = artifacts.get_artifact(new_name)
        tags.attach("artifact", renamed.id, own)
        return renamed

    def update_artifact_version(
        self,
        name_id_or_prefix: Any,
        version: Any = None,
        add_tags: Any = None,
        remove_tags: Any = None,
        **_: Any,
    ) -> artifacts.ArtifactVersionResponse:
        """Change a version's tags; raises KeyError."""
        found = artifacts.get_version(name_id_or_prefix, version)
        tags.attach("artifact_version", found.id, add_tags)
        tags.detach("artifact_version", found.id, remove_tags)
        return found

    def delete_artifact(self, name_id_or_prefix: Any, **_: Any) -> None:
        """Remove all versions; raises KeyError."""
        artifacts.delete_artifact(artifacts.get_artifact(name_id_or_prefix))

    def delete_artifact_version(
        self, name_id_or_prefix: Any, version: Any = None, **_: Any
    ) -> None:
        """Remove a version.

        Raises:
            KeyError: there is none.
            ValueError: a run made or took it.
        """
        found = artifacts.get_version(name_id_or_prefix, version)
        if found.id in artifacts.used():
            raise ValueError(
                f"artifact '{found.name}:{found.version}' belongs to a run: delete the runs that "
                "made or took it first"
            )
        artifacts.delete_version(found)

    # ------------------------------------------------------------------ models

    def create_model(self, name: str, **given: Any) -> models.ModelResponse:
        """Make a model; raises EntityExistsError."""
        return models.create_model(name, given)

    def get_model(self, model_name_or_id: Any, **_: Any) -> models.ModelResponse:
        """A model; raises KeyError."""
        return models.get_model(model_name_or_id)

    def list_models(self, **given: Any) -> Page[models.ModelResponse]:
        """Models."""
        return models.list_models(given)

    def update_model(self, model_name_or_id: Any, **given: Any) -> models.ModelResponse:
        """Change a model; raises KeyError."""
        return models.update_model(models.get_model(model_name_or_id), given)

    def delete_model(self, model_name_or_id: Any, **_: Any) -> None:
        """Remove a model and its versions; raises KeyError."""
        models.delete_model(models.get_model(model_name_or_id))

    def create_model_version(
        self, model_name_or_id: Any, name: Optional[str] = None, **given: Any
    ) -> models.ModelVersionResponse:
        """Make a version; raises KeyError, EntityExistsError."""
        return models.create_model_version(models.get_model(model_name_or_id), name, given)

    def get_model_version(
        self,
        model_name_or_id: Any = None,
        model_version_name_or_number_or_id: Any = None,
        **_: Any,
    ) -> models.ModelVersionResponse:
        """A version by number, name, stage or id; by id also without a model. Raises KeyError.

        In a pipeline's body, what is asked of it is looked up when the step that takes it starts.
        """
        if active_graph() is not None and running_body() is None:
            return LazyVersion(model_name_or_id, model_version_name_or_number_or_id)  # type: ignore[return-value]
        if model_name_or_id is None:
            id = model_version_name_or_number_or_id
            return targets.model_version({"model_version_id": id})
        return models.get_model_version(model_name_or_id, model_version_name_or_number_or_id)

    def list_model_versions(
        self, model: Any = None, **given: Any
    ) -> Page[models.ModelVersionResponse]:
        """Versions of models."""
        wanted = given.pop("model_name_or_id", None) if model is None else model
        return models.list_versions({**given, "model": wanted})

    def update_model_version(
        self, model_name_or_id: Any, version_name_or_id: Any, **given: Any
    ) -> models.ModelVersionResponse:
        """Change a version; raises KeyError."""
        found = models.get_model_version(model_name_or_id, version_name_or_id)
        return models.update_version(found, given)

    def delete_model_version(self, model_version_id: Any, **_: Any) -> None:
        """Remove a version by its id; raises KeyError."""
        models.delete_version(targets.model_version({"model_version_id": model_version_id}))

    # ------------------------------------------------------------------ tags

    def create_tag(self, name: str, exclusive: bool = False, color: Any = None) -> tags.TagResponse:
        """Make a tag; raises EntityExistsError."""
        return tags.create(name, color, exclusive)

    def get_tag(self, tag_name_or_id: Any, **_: Any) -> tags.TagResponse:
        """A tag; raises KeyError."""
        return tags.get(tag_name_or_id)

    def list_tags(self, **given: Any) -> Page[tags.TagResponse]:
        """Tags."""
        return tags.list_tags(given)

    def update_tag(self, tag_name_or_id: Any, **given: Any) -> tags.TagResponse:
        """Change a tag's name or color, or whether it is exclusive; raises KeyError."""
        return tags.update(tag_name_or_id, given)

    def delete_tag(self, tag_name_or_id: Any) -> None:
        """Remove a tag, also from what has it. Raises KeyError."""
        tags.delete(tag_name_or_id)

    # ------------------------------------------------------------------ secrets

    def create_secret(
        self, name: str, values: Dict[str, str], private: bool = False
    ) -> secrets.SecretResponse:
        """Keep values under a name; raises EntityExistsError."""
        return secrets.create(name, values, private)

    def get_secret(
        self, name_id_or_prefix: Any, allow_partial_name_match: bool = True, **_: Any
    ) -> secrets.SecretResponse:
        """A secret; raises KeyError."""
        return secrets.get(name_id_or_prefix, allow_partial_name_match)

    def list_secrets(self, **given: Any) -> Page[secrets.SecretResponse]:
        """Secrets."""
        return secrets.list_secrets(given)

    def update_secret(
        self,
        name_id_or_prefix: Any,
        new_name: Optional[str] = None,
        add_or_update_values: Optional[Dict[str, str]] = None,
        remove_values: Optional[List[str]] = None,
        update_private: Optional[bool] = None,
        **_: Any,
    ) -> secrets.SecretResponse:
        """Change values, the name, or whether it is private; raises KeyError."""
        found = secrets.get(name_id_or_prefix)
        given = (new_name, add_or_update_values, remove_values, update_private)
        return secrets.update(found, *given)

    def delete_secret(self, name_id_or_prefix: Any, **_: Any) -> None:
        """Remove a secret; raises KeyError."""
        secrets.delete(secrets.get(name_id_or_prefix))

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        answer = nothing(name)
        if answer is not None:
            return answer
        known = [n for n in dir(type(self)) if not n.startswith("_")]
        why = _why(name)
        told = did_you_mean(name, known) if why is None else f": {why}"
        raise AttributeError(f"Stoker's Client has no '{name}'{told or ': no server is behind it'}")


_WHY = {
    **NONE,
    "user": "a store has no accounts",
    "trigger": "Stoker runs no service that could start runs",
    "snapshot": "`pipeline.create_snapshot` keeps what `trigger_pipeline` starts",
    "flavor": "there are no flavors to install",
    "project": "a store is one project; another folder is another one",
    "schedule": "`pipeline.with_options(schedule=…)` makes one",
    "visualization": "`version.visualizations` has them; curated ones aren't there",
    "replay": "start the program again: what hasn't changed comes from the cache",
    "step_run": "a step's record is the engine's; `stoker run --no-cache` runs it again",
}


def _why(name: str) -> Optional[str]:
    return next((why for word, why in _WHY.items() if word in name), None)
