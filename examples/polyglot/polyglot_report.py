"""The last step of polyglot/pipeline.yaml: reads what the C step wrote."""

import json
from pathlib import Path


def report(line: Path, slope: float) -> str:
    fitted = json.loads(Path(line).read_text())
    return f"slope {fitted['b']:.3f} fitted, {slope} was drawn"
