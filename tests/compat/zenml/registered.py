"""Components and stacks that a program registers, changes and deletes."""

from facts import fact
from zenml import pipeline, step
from zenml.client import Client
from zenml.enums import StackComponentType
from zenml.exceptions import EntityExistsError, IllegalOperationError


@step(enable_cache=False)
def one() -> int:
    return 1


@pipeline
def rg_pipeline():
    one()


def parts(stack):
    some = ("orchestrator", "artifact_store", "container_registry")
    return {
        kind.value: [one.name for one in found]
        for kind, found in sorted(stack.components.items(), key=lambda pair: pair[0].value)
        if kind.value in some
    }


def component(part):
    return part.name, part.type.value, part.flavor_name


def refused(call, *kinds):
    try:
        call()
    except kinds as bad:
        return next(kind.__name__ for kind in kinds if isinstance(bad, kind))
    return "nothing"


if __name__ == "__main__":
    client = Client()
    make, kinds = client.create_stack_component, StackComponentType

    fact("orchestrator", lambda: component(make("rg_o", "local", kinds.ORCHESTRATOR, {})))
    fact("store", lambda: component(make("rg_a", "local", kinds.ARTIFACT_STORE, {})))
    uri = {"uri": "reg.example.org/team"}
    fact("registry", lambda: component(make("rg_c", "default", kinds.CONTAINER_REGISTRY, uri)))
    fact(
        "no uri",
        lambda: refused(lambda: make("rg_d", "default", kinds.CONTAINER_REGISTRY, {}), ValueError),
    )
    twice = ("rg_o", "local", kinds.ORCHESTRATOR, {})
    fact("again", lambda: refused(lambda: make(*twice), EntityExistsError))
    fact("get", lambda: component(client.get_stack_component(kinds.ORCHESTRATOR, "rg_o")))
    fact("by prefix", lambda: client.get_stack_component(kinds.ORCHESTRATOR, "rg_").name)
    fact(
        "config", lambda: client.get_stack_component(kinds.CONTAINER_REGISTRY, "rg_c").configuration
    )
    fact("list", lambda: [c.name for c in client.list_stack_components(type=kinds.ORCHESTRATOR)])
    fact(
        "list by name",
        lambda: [c.name for c in client.list_stack_components(name="startswith:rg_")],
    )
    fact("missing", lambda: client.get_stack_component(kinds.ORCHESTRATOR, "nothing"))

    both = {kinds.ORCHESTRATOR: "rg_o", kinds.ARTIFACT_STORE: "rg_a"}
    fact("stack", lambda: parts(client.create_stack("rg_stack", both)))
    fact(
        "stack again",
        lambda: refused(lambda: client.create_stack("rg_stack", both), EntityExistsError),
    )
    lacks = {kinds.ORCHESTRATOR: "rg_o"}
    fact(
        "stack without store",
        lambda: refused(lambda: client.create_stack("rg_x", lacks), ValueError),
    )
    unknown = {**both, kinds.ORCHESTRATOR: "nothing"}
    fact("stack of unknown", lambda: client.create_stack("rg_x", unknown))
    fact("stacks", lambda: sorted(s.name for s in client.list_stacks()))
    fact("get stack", lambda: parts(client.get_stack("rg_stack")))
    fact("to_yaml", lambda: client.get_stack("rg_stack").to_yaml()["stack_name"])
    drop = client.delete_stack_component
    used = ("rg_o", kinds.ORCHESTRATOR)
    fact("component in use", lambda: refused(lambda: drop(*used), IllegalOperationError))

    client.activate_stack("rg_stack")
    fact("active", lambda: client.active_stack_model.name)
    fact("active orchestrator", lambda: client.active_stack.orchestrator.name)
    run = rg_pipeline()
    fact("run", lambda: (run.stack.name, run.steps["one"].output.load()))
    fact("delete active", lambda: client.delete_stack("rg_stack"))

    more = {kinds.CONTAINER_REGISTRY: ["rg_c"]}
    fact("update", lambda: parts(client.update_stack("rg_stack", component_updates=more)))
    fact("rename", lambda: client.update_stack("rg_stack", name="rg_new").name)
    fact(
        "rename taken",
        lambda: refused(lambda: client.update_stack("rg_new", name="default"), EntityExistsError),
    )
    fact("stacks renamed", lambda: sorted(s.name for s in client.list_stacks()))
    fact("still active", lambda: client.active_stack_model.name)
    new = {"uri": "other.example.org/team"}
    make("rg_e", "default", kinds.CONTAINER_REGISTRY, uri)
    change = client.update_stack_component
    fact(
        "change", lambda: change("rg_e", kinds.CONTAINER_REGISTRY, configuration=new).configuration
    )
    fact("rename component", lambda: change("rg_e", kinds.CONTAINER_REGISTRY, name="rg_f").name)
    fact(
        "renamed", lambda: [c.name for c in client.list_stack_components(type="container_registry")]
    )

    make("rg_g", "default", kinds.CONTAINER_REGISTRY, uri)
    client.update_stack("rg_new", component_updates={kinds.CONTAINER_REGISTRY: ["rg_g"]})
    fact(
        "change in a stack",
        lambda: change("rg_g", kinds.CONTAINER_REGISTRY, configuration=new).configuration,
    )
    fact("rename in a stack", lambda: change("rg_g", kinds.CONTAINER_REGISTRY, name="rg_h").name)
    fact("its stack", lambda: parts(client.get_stack("rg_new")))
    fact("still active then", lambda: client.active_stack_model.name)

    client.activate_stack("default")
    fact("stack of the run", lambda: client.get_pipeline_run(run.id).stack.name)
    fact("stack of its step", lambda: client.get_pipeline_run(run.id).stack.id == run.stack.id)
    fact("delete", lambda: client.delete_stack("rg_new"))
    fact("delete again", lambda: client.delete_stack("rg_new"))
    fact("stacks left", lambda: sorted(s.name for s in client.list_stacks()))
    fact(
        "components left",
        lambda: [c.name for c in client.list_stack_components(name="startswith:rg_")],
    )
    client.create_stack("rg_two", both)
    fact("delete recursively", lambda: client.delete_stack("rg_two", recursive=True))
    fact("gone", lambda: [c.name for c in client.list_stack_components(name="startswith:rg_")])
    fact(
        "delete component", lambda: client.delete_stack_component("rg_c", kinds.CONTAINER_REGISTRY)
    )
    fact("no component", lambda: client.delete_stack_component("rg_c", kinds.CONTAINER_REGISTRY))
    fact(
        "delete default",
        lambda: refused(lambda: client.delete_stack("default"), ValueError, IllegalOperationError),
    )
