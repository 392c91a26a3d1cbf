"""ZenML's dialect: the client, responses, models, tags and stacks that its programs use.

``_compat/zenml`` names what lives here. Runs and artifacts are read from the store; what ZenML's
server keeps besides (models, tags, secrets) are records of the store (``stoker record``).
"""
