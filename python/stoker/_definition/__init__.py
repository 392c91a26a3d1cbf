"""Definitions of steps and pipelines: settings, layers, signatures, the graph of step calls."""
