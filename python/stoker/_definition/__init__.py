"""What a step and a pipeline are made of: settings, layers, signatures, the graph of step calls."""
