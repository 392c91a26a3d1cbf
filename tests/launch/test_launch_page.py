"""The commands of docs/ranks.md that need several machines, typed as they stand there, on nodes in
network namespaces."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest
from launch_tools import binary
from node_tools import Nodes, ends, skip_without
from typed_page import typed_blocks

LINES = [line for block in typed_blocks("docs/ranks.md", __file__) for line in block.commands]
TRAIN = "import os\nprint('rank', os.environ['RANK'], 'of', os.environ['WORLD_SIZE'])\n"


@skip_without
@pytest.mark.parametrize("line", LINES)
def test_typed(line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "train.py").write_text(TRAIN)
    monkeypatch.chdir(tmp_path)
    words = shlex.split(line)
    assert words[:2] == ["stoker", "launch"]
    n = int(words[words.index("--nnodes") + 1].rpartition(":")[2])
    each = int(words[words.index("-n" if "-n" in words else "--nproc-per-node") + 1])
    nodes = Nodes(n)
    try:
        key = {"STOKER_GANG_KEY": nodes.mark}
        for k in range(n):
            here = [w.replace("HOST", nodes.address(0)) if w != "K" else str(k) for w in words[1:]]
            nodes.start(k, binary(), *here, **key)
        done = ends(nodes.started)
    finally:
        nodes.close()
    assert all(one.code == 0 for one in done)
    said = "".join(one.out for one in done)
    assert all(f"rank {rank} of {n * each}" in said for rank in range(n * each))
