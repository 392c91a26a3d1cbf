"""The public names: which there are, what enums hold, which class an exception has."""

import importlib

from facts import fact

PUBLIC = [
    "add_tags",
    "remove_tags",
    "Tag",
    "ArtifactConfig",
    "CommandStep",
    "ExternalArtifact",
    "get_pipeline_context",
    "get_step_context",
    "load_artifact",
    "log_metadata",
    "bulk_log_metadata",
    "log_artifact_metadata",
    "log_model_metadata",
    "log_step_metadata",
    "Model",
    "link_artifact_to_model",
    "pipeline",
    "run_hook",
    "save_artifact",
    "register_artifact",
    "show",
    "step",
    "unmapped",
    "wait",
]

ENUMS = [
    "AnalyticsEventSource",
    "APITokenType",
    "ArtifactSaveType",
    "ArtifactType",
    "AuthenticationMethod",
    "CliCategories",
    "ColorVariants",
    "ContainerRegistryFlavor",
    "DatabaseBackupStrategy",
    "DeploymentStatus",
    "EnvironmentType",
    "ExecutionMode",
    "ExecutionStatus",
    "GenericFilterOps",
    "HookType",
    "LoggingLevels",
    "LogicalOperators",
    "MetadataResourceTypes",
    "ModelStages",
    "OAuthDeviceStatus",
    "OAuthGrantTypes",
    "OnboardingStep",
    "OperatingSystemType",
    "PluginSubType",
    "PluginType",
    "ResponseUpdateStrategy",
    "SecretResourceTypes",
    "SecretScope",
    "SecretsStoreType",
    "SecretValidationLevel",
    "ServerProviderType",
    "ServiceState",
    "SorterOps",
    "SourceContextTypes",
    "StackComponentType",
    "StackDeploymentProvider",
    "StepRunInputArtifactType",
    "StepRuntime",
    "StoreType",
    "TaggableResourceTypes",
    "VisualizationType",
    "ZenMLServiceType",
]

ERRORS = [
    "ZenMLBaseException",
    "AuthorizationException",
    "ZenKeyError",
    "StepContextError",
    "StepInterfaceError",
    "PipelineInterfaceError",
    "PipelineConfigurationError",
    "ArtifactInterfaceError",
    "ArtifactStoreInterfaceError",
    "MaterializerInterfaceError",
    "HydrationError",
    "EntityExistsError",
    "EntityCreationError",
    "StackExistsError",
    "StackComponentExistsError",
    "IllegalOperationError",
    "MissingStepParameterError",
    "IntegrationError",
    "ForbiddenProjectError",
    "InputResolutionError",
    "StackValidationError",
    "StackComponentInterfaceError",
    "GitNotFoundError",
    "HookValidationError",
    "HookExecutionException",
    "RunMonitoringError",
    "RunStoppedException",
    "StepInterfaceError",
    "MaxConcurrentTasksError",
    "CredentialsNotValid",
    "SettingsResolvingError",
    "DuplicateRunNameError",
    "SecretsStoreNotConfiguredError",
    "ArtifactStoreInterfaceError",
    "BackupSecretsStoreNotConfiguredError",
    "ProvisioningError",
    "OAuthError",
    "InitializationException",
    "DoesNotExistException",
    "SubscriptionUpgradeRequiredError",
]

if __name__ == "__main__":
    for name in PUBLIC:
        fact(f"zenml.{name}", lambda name=name: hasattr(importlib.import_module("zenml"), name))
    module = importlib.import_module("zenml.enums")
    for name in ENUMS:
        fact(f"enum {name}", lambda name=name: {m.name: m.value for m in getattr(module, name)})
    errors = importlib.import_module("zenml.exceptions")
    for name in dict.fromkeys(ERRORS):
        fact(
            f"error {name}",
            lambda name=name: [
                c.__name__ for c in getattr(errors, name).__mro__ if c.__module__ == "builtins"
            ],
        )
