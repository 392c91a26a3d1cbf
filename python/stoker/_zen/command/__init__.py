"""The command ``zenml`` under ``stoker compat``."""
