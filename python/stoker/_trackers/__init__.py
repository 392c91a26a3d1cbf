"""Experiment trackers that hear of a run: MLflow, W&B, TensorBoard.

The engine starts ``python -m stoker._trackers mlflow,wandb`` beside a run and writes a line of JSON for
each event of it (``docs/formats/trackers.md``). This program reads the metrics that the tasks' files
get meanwhile, and calls the trackers, each on a thread of its own. The run never waits for it but at
its end, for some seconds.
"""
