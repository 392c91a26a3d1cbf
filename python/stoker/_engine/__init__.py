"""From a definition to a finished run; and the engine's records of runs and artifacts."""
