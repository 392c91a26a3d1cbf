"""From a definition to a finished run, and what the engine tells of runs and artifacts."""
