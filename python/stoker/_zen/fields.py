"""What a response's ``model_dump`` has: fields by ZenML's class, as body, metadata and resources."""

from __future__ import annotations

import datetime
import enum
import uuid
from typing import Any, Dict, Tuple

_OWNED = "created project_id updated user_id"
FIELDS: Dict[str, Tuple[str, str, str]] = {
    "ArtifactResponse": (
        _OWNED,
        "has_custom_name",
        "latest_version_id latest_version_name tags user",
    ),
    "ArtifactVersionResponse": (
        f"{_OWNED} artifact artifact_store_id content_hash data_type item_count materializer "
        "save_type type uri version",
        "run_metadata visualizations",
        "producer_pipeline_run_id producer_step_run_id tags user",
    ),
    "ComponentResponse": (
        "created flavor_name integration logo_url type updated user_id",
        "configuration connector connector_resource_id environment labels secrets",
        "flavor user",
    ),
    "ModelResponse": (
        _OWNED,
        "audience description ethics license limitations save_models_to_registry trade_offs "
        "use_cases",
        "latest_version_id latest_version_name tags user visualizations",
    ),
    "ModelVersionResponse": (
        f"{_OWNED} model number stage",
        "description run_metadata",
        "services tags user",
    ),
    "PipelineResponse": (
        _OWNED,
        "description",
        "latest_run_id latest_run_status latest_run_user tags user visualizations",
    ),
    "PipelineRunResponse": (
        f"{_OWNED} child_key in_progress index pipeline_id root_run_id status status_reason",
        "client_environment code_path config enable_heartbeat end_time exception_info "
        "is_templatable orchestrator_environment orchestrator_run_id run_metadata start_time "
        "template_id trigger_execution_info trigger_info",
        "active_wait_condition build code_reference log_collection model_version original_run "
        "outputs parent_run pipeline schedule snapshot source_snapshot stack tags trigger user "
        "visualizations",
    ),
    "ProjectResponse": ("created display_name updated", "description project_metadata", ""),
    "SecretResponse": ("created private updated user_id values", "", "user"),
    "StackResponse": (
        "created updated user_id",
        "components description environment labels secrets stack_spec_path",
        "user",
    ),
    "StepRunResponse": (
        f"{_OWNED} end_time heartbeat_threshold is_retriable latest_heartbeat model_version_id "
        "resource_request_id start_time status substitutions type version",
        "cache_expires_at cache_key code_hash config docstring exception_info "
        "original_step_run_id parent_step_ids pipeline_run_id run_metadata snapshot_id "
        "source_code spec",
        "inputs log_collection model_version outputs resource_request user",
    ),
    "TagResponse": ("color created exclusive updated user_id", "tagged_count", "user"),
    "UserResponse": (
        "activation_token active avatar_url created default_project_id email_opted_in full_name "
        "is_admin is_service_account updated",
        "email external_user_id oidc_claims password_changed_at user_metadata",
        "",
    ),
}


def dump(response: Any, whole: bool = True) -> Dict[str, Any]:
    """A response as a mapping; one inside of another has its body only."""
    names = (kind.__name__ for kind in type(response).__mro__)
    fields = next((FIELDS[name] for name in names if name in FIELDS), None)
    found: Dict[str, Any] = {"id": response.id, "name": response.name}
    if fields is None:
        return found
    if fields is FIELDS["ArtifactVersionResponse"]:
        del found["name"]  # the artifact has it
    found["permission_denied"] = False
    for part, text in zip(("body", "metadata", "resources"), fields):
        told = {name: _plain(getattr(response, name, None)) for name in text.split()}
        found[part] = told if whole or part == "body" else None
    return found


def _plain(value: Any) -> Any:
    if hasattr(value, "get_hydrated_version"):
        return dump(value, whole=False)
    if hasattr(value, "model_dump"):
        return value.model_dump()
    if isinstance(value, dict):
        return {key: _plain(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(one) for one in value]
    return value


def in_json(value: Any) -> Any:
    """The same as JSON has it."""
    if isinstance(value, dict):
        return {str(getattr(k, "value", k)): in_json(one) for k, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [in_json(one) for one in value]
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, datetime.datetime):
        return value.isoformat()
    plain = value is None or isinstance(value, (str, int, float))
    return value if plain and not isinstance(value, uuid.UUID) else str(value)
