"""Records what real ZenML tells of the programs in tests/compat/zenml, in tests/data/zenml.

Usage: record_zenml.py PYTHON [PROGRAM…]; PYTHON has ZenML. Without a program, all of them.
record_zenml.py --large PYTHON OURS records tests/compat/zenml_large on both sides, in
tests/data/zenml/large.json: both interpreters have the packages that it imports, and $STOKER_BIN
names the engine.
It writes tests/compat/zenml/asked.py too: the attributes that ZenML's classes have, of which the
program `attributes` asks each.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PROGRAMS = ROOT / "tests" / "compat" / "zenml"
RECORD = ROOT / "tests" / "data" / "zenml" / "recorded.json"
SHARED = ("facts", "asked")  # imported by the programs

# What runs under real ZenML to find the attributes that its classes have. A response's `body`,
# `metadata` and `resources` only hold them.
CLASSES = """
import importlib
from pydantic import BaseModel

KINDS = {
    "zenml.models": "PipelineRunResponse StepRunResponse PipelineResponse ArtifactResponse "
    "ArtifactVersionResponse ModelResponse ModelVersionResponse TagResponse SecretResponse "
    "StackResponse ComponentResponse UserResponse ProjectResponse Page",
    "zenml.config.pipeline_configurations": "PipelineConfiguration",
    "zenml.config.step_configurations": "StepConfiguration StepSpec",
    "zenml.config.source": "Source",
    "zenml.stack": "Stack StackComponent",
    "zenml": "Model",
}
LEFT_OUT = {"from_yaml", "get_analytics_metadata", "body", "metadata", "resources", "hydrate"}
print('\"\"\"What attributes ZenML has; `make record-zenml` writes this.\"\"\"\\n')
print("ASKED = {")
for module, names in KINDS.items():
    for name in names.split():
        kind = getattr(importlib.import_module(module), name)
        found = {*dir(kind), *getattr(kind, "model_fields", {})} - {*dir(BaseModel)} - LEFT_OUT
        print(f'    "{name}": [')
        for one in sorted(found):
            if one[0] != "_" and one.upper() != one:
                print(f'        "{one}",')
        print("    ],")
print("}")
"""


def surroundings(python: str, folder: str) -> dict[str, str]:
    """The environment of a program, with a configuration of its own, and the command ``zenml``."""
    return {
        **os.environ,
        "PATH": os.pathsep.join([os.path.dirname(python), os.environ["PATH"]]),
        "ZENML_CONFIG_PATH": os.path.join(folder, "config"),
        "ZENML_ANALYTICS_OPT_IN": "false",
        "ZENML_LOGGING_VERBOSITY": "ERROR",
        "AUTO_OPEN_DASHBOARD": "false",
    }


def write_asked(python: str) -> None:
    """Write the attributes that ZenML's classes have."""
    with tempfile.TemporaryDirectory(prefix="record-zenml-") as folder:
        done = subprocess.run(
            [python, "-c", CLASSES],
            env=surroundings(python, folder),
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        )
    (PROGRAMS / "asked.py").write_text(done.stdout)


def facts_of(python: str, program: Path) -> dict[str, str]:
    """What the program tells under real ZenML, with a configuration of its own."""
    with tempfile.TemporaryDirectory(prefix="record-zenml-") as folder:
        for file in PROGRAMS.glob("*.py"):
            shutil.copy(file, folder)
        done = subprocess.run(
            [python, program.name],
            cwd=folder,
            env=surroundings(python, folder),
            stdout=subprocess.PIPE,
            text=True,
        )
    if done.returncode != 0:
        raise SystemExit(f"{program.name} ended with status {done.returncode} under real ZenML")
    lines = (line[5:] for line in done.stdout.splitlines() if line.startswith("FACT "))
    return dict(line.split(" = ", 1) for line in lines)


def large(python: str, ours: str) -> None:
    """Record the program with large libraries, under real ZenML and under `stoker compat`."""
    program = ROOT / "tests" / "compat" / "zenml_large" / "libraries.py"
    imports = ("datasets", "lightgbm", "numpy", "polars", "xgboost")
    asks = f"import importlib as i, json; print(json.dumps({{n: i.import_module(n).__version__ for n in {imports}}}))"
    told = {}
    stoker = [os.environ["STOKER_BIN"], "compat", "--"]
    for side, words in (("theirs", [python]), ("ours", [*stoker, ours])):
        with tempfile.TemporaryDirectory(prefix="record-zenml-") as folder:
            shutil.copy(program, folder)
            shutil.copy(PROGRAMS / "facts.py", folder)
            done = subprocess.run(
                [*words, program.name],
                cwd=folder,
                env={**surroundings(python, folder), "PYTHONPATH": str(ROOT / "python")},
                stdout=subprocess.PIPE,
                text=True,
                check=True,
            )
            lines = (line[5:] for line in done.stdout.splitlines() if line.startswith("FACT "))
            told[side] = dict(line.split(" = ", 1) for line in lines)
    packages = {
        side: json.loads(subprocess.check_output([words, "-c", asks], text=True))
        for side, words in (("theirs", python), ("ours", ours))
    }
    digest = hashlib.sha256(program.read_bytes()).hexdigest()
    record = {"program": digest, "packages": packages, **told}
    (RECORD.parent / "large.json").write_text(json.dumps(record, indent=1) + "\n")
    print(f"{len(told['theirs'])} facts")


def main(python: str, names: list[str]) -> None:
    """Record the programs."""
    version = subprocess.run(
        [python, "-c", "import zenml; print(zenml.__version__)"],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    ).stdout.split()[-1]
    write_asked(python)
    known = json.loads(RECORD.read_text())["programs"] if RECORD.exists() else {}
    every = {p.stem: p for p in sorted(PROGRAMS.glob("*.py")) if p.stem not in SHARED}
    for name in names or every:
        known[name] = {
            "program": hashlib.sha256(every[name].read_bytes()).hexdigest(),
            "facts": facts_of(python, every[name]),
        }
        print(f"{name}: {len(known[name]['facts'])} facts")
    record = {"zenml": version, "programs": {k: known[k] for k in every if k in known}}
    RECORD.write_text(json.dumps(record, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    if len(sys.argv) < 2:
        raise SystemExit(__doc__)
    if sys.argv[1] == "--large":
        large(*(str(Path(one).absolute()) for one in sys.argv[2:4]))
    else:
        main(str(Path(sys.argv[1]).absolute()), sys.argv[2:])
