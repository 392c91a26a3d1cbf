"""A whole program: a model is trained and tracked by MLflow, deployed, and asked for predictions."""

import uuid

import mlflow
import numpy as np
from facts import fact
from sklearn.linear_model import LinearRegression
from zenml import pipeline, step
from zenml.client import Client
from zenml.enums import StackComponentType
from zenml.integrations.mlflow.model_deployers import MLFlowModelDeployer
from zenml.integrations.mlflow.services import MLFlowDeploymentConfig, MLFlowDeploymentService
from zenml.integrations.mlflow.steps import mlflow_model_deployer_step

PIPELINE, STEP = "wd_deploy", "mlflow_model_deployer_step"


def connect() -> None:
    """A stack with MLflow's tracker and deployer; Stoker's has what is registered."""
    client = Client()
    kinds = (StackComponentType.EXPERIMENT_TRACKER, StackComponentType.MODEL_DEPLOYER)
    for kind in kinds:
        client.create_stack_component(
            name="served", flavor="mlflow", component_type=kind, configuration={}
        )
    parts = {
        StackComponentType.ORCHESTRATOR: "default",
        StackComponentType.ARTIFACT_STORE: "default",
        **dict.fromkeys(kinds, "served"),
    }
    client.create_stack("served", parts)
    client.activate_stack("served")


@step(experiment_tracker="served", enable_cache=False)
def wd_train(slope: float) -> LinearRegression:
    x = np.arange(4.0).reshape(-1, 1)
    model = LinearRegression().fit(x, slope * x[:, 0] + 1)
    mlflow.sklearn.log_model(model, name="model", serialization_format="cloudpickle")
    return model


@step(enable_cache=False)
def wd_decide(model: LinearRegression) -> bool:
    return bool(model.coef_[0] > 1)


@step(enable_cache=False)
def wd_predict(service: MLFlowDeploymentService) -> float:
    service.start(timeout=100)
    return float(service.predict(np.array([[3.0]]))[0])


@pipeline(enable_cache=False)
def wd_deploy(slope: float):
    model = wd_train(slope)
    service = mlflow_model_deployer_step(model=model, deploy_decision=wd_decide(model), timeout=100)
    wd_predict(service)


@pipeline(enable_cache=False, name="wd_refuse")
def wd_refuse():
    model = wd_train(0.5)
    mlflow_model_deployer_step(model=model, deploy_decision=wd_decide(model), timeout=100)


def services():
    found = Client().list_services()
    return [(s.name, s.service_type.flavor, str(s.state), str(s.admin_state)) for s in found]


def rounded(values):
    return np.round(values, 3).tolist()


def main() -> None:
    connect()
    deployer = MLFlowModelDeployer.get_active_model_deployer()
    fact("deployer", lambda: (deployer.name, deployer.flavor, deployer.type.value, deployer.NAME))
    fact("none", lambda: deployer.find_model_server())
    fact("missing", lambda: deployer.stop_model_server(uuid.uuid4()))
    fact("no name", lambda: MLFlowDeploymentConfig(model_uri="x", model_name=""))
    fact("no model", lambda: MLFlowDeploymentConfig(model_name="x"))
    fact("default name", lambda: MLFlowDeploymentConfig(model_uri="x", name="n").service_name)
    refused = wd_refuse()
    fact("refused", lambda: refused.steps[STEP].output.load())
    run = wd_deploy(2.0)
    fact("predicted", lambda: round(run.steps["wd_predict"].output.load(), 3))
    out = run.steps[STEP].output
    fact("type", lambda: out.type.value)
    fact("materializer", lambda: out.materializer.attribute)
    fact("metadata", lambda: sorted(out.run_metadata))
    fact("services", services)
    found = deployer.find_model_server(
        pipeline_name=PIPELINE, pipeline_step_name=STEP, model_name="model", running=True
    )
    fact("found", lambda: [type(one).__name__ for one in found])
    service = found[0]
    fact("by name", lambda: service.uuid == Client().get_service("zenml-model").id)
    left_out = ("model_uri", "root_runtime_path", "type")
    told = {k: v for k, v in service.config.model_dump().items() if k not in left_out}
    fact("config", lambda: sorted(told.items(), key=str))
    fact("model", lambda: service.config.model_uri.rpartition("/")[2])
    fact("state", lambda: (str(service.status.state), service.is_running, service.is_stopped))
    fact("failed", lambda: (service.is_failed, service.status.last_error))
    fact("url", lambda: service.prediction_url == service.endpoint.prediction_url)
    fact("path", lambda: service.prediction_url.rpartition("/")[2])
    fact("host", lambda: service.endpoint.status.hostname)
    fact("health", lambda: service.get_healthcheck_url().rpartition("/")[2])
    fact("info", lambda: sorted(deployer.get_model_server_info(service)))
    fact("process", lambda: service.status.pid > 0)
    fact("predict", lambda: rounded(service.predict(np.array([[1.0], [2.0]]))))
    fact("loaded", lambda: rounded(out.load().predict(np.array([[1.0]]))))
    fact("logs", lambda: any("Uvicorn running" in line for line in service.get_logs()))
    fact("its pipeline", lambda: Client().get_service(service.uuid).config["pipeline_name"])
    for key, value in (("pipeline_name", PIPELINE), ("pipeline_name", "other"), ("running", True)):
        listed = Client().list_services(**{key: value})
        fact(f"listed by {key} {value}", lambda some=listed: len(some))
    fact("by model", lambda: len(deployer.find_model_server(model_name="model")))
    fact("by service", lambda: len(deployer.find_model_server(service_name="zenml-model")))
    deployer.stop_model_server(service.uuid, timeout=60)
    stopped = deployer.find_model_server(service_uuid=service.uuid)[0]
    fact("stopped", lambda: (str(stopped.status.state), str(stopped.admin_state)))
    fact("not running", lambda: (stopped.is_running, stopped.prediction_url))
    fact("services stopped", services)
    fact("running", lambda: deployer.find_model_server(running=True))
    fact("predict stopped", lambda: stopped.predict(np.array([[1.0]])))
    deployer.delete_model_server(service.uuid, timeout=60)
    fact("deleted", lambda: len(Client().list_services()))
    fact("get deleted", lambda: Client().get_service(service.uuid))


if __name__ == "__main__":
    main()
