"""What users put on their functions: ``@step``, ``@pipeline`` and what goes with them."""
