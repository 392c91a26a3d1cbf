"""What the client makes or changes besides runs, artifacts and models."""

import datetime
import uuid

from facts import fact
from zenml import pipeline, step
from zenml.client import Client
from zenml.enums import StackComponentType, VisualizationResourceTypes

LATER = datetime.datetime(2031, 1, 1)


@step(enable_cache=False)
def cr_one() -> int:
    return 1


@pipeline
def cr_pipeline():
    cr_one()


def told(project):
    return project.name, project.display_name, project.description


if __name__ == "__main__":
    client, none = Client(), uuid.uuid4()
    fact("user", lambda: (client.active_user.name, client.active_user.full_name))
    fact("user metadata", lambda: client.active_user.user_metadata)
    fact("update_user", lambda: client.update_user("default", updated_full_name="Ann").full_name)
    fact("its name", lambda: client.get_user("default").full_name)
    fact("update_user of none", lambda: client.update_user("nobody", updated_full_name="Ann"))
    fact("project", lambda: told(client.get_project("default")))
    words = {"new_display_name": "Shown", "new_description": "told"}
    fact("update_project", lambda: told(client.update_project("default", **words)))
    fact("its words", lambda: told(client.get_project("default")))
    fact("update_project of none", lambda: client.update_project("other", **words))
    fact("delete_flavor", lambda: client.delete_flavor("nothing"))
    fact("delete_flavor of ZenML", lambda: client.delete_flavor("local"))
    fact("prune_snapshots", lambda: client.prune_snapshots(LATER).snapshot_count)
    fact("prune_snapshots apply", lambda: client.prune_snapshots(LATER, apply=True).task_id)
    fact("create_api_key", lambda: client.create_api_key("nobody", "key"))
    fact("create_webhook", lambda: client.create_webhook("w", "github"))
    fact("create_webhook_trigger", lambda: client.create_webhook_trigger("w", "none", {}))
    fact("create_service_connector", lambda: client.create_service_connector("c", "nothing"))
    fact("delete_curated", lambda: client.delete_curated_visualization(none))
    fact("update_curated", lambda: client.update_curated_visualization(none, display_name="x"))
    kind = VisualizationResourceTypes.MODEL
    fact(
        "create_curated",
        lambda: client.create_curated_visualization(none, resource_id=none, resource_type=kind),
    )
    fact("update_step_run", lambda: client.update_step_run(none, LATER))
    fact("create_flavor", lambda: client.create_flavor("no.Flavor", StackComponentType.DEPLOYER))
    names = ("create_user", "create_project", "create_service_account", "create_code_repository")
    fact("names", lambda: [hasattr(client, name) for name in names])
