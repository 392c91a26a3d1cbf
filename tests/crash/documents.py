"""The documents that crash.py runs: steps that write their start and end into a journal."""

from __future__ import annotations

import json
from pathlib import Path


def command_spec(journal: Path, n_steps: int) -> str:
    lines = ["stoker: 1", "name: crash", "retry: {max_retries: 5}", "steps:"]
    for i in range(n_steps):
        text = f"echo begin s{i} >> {journal}; echo {i} > $STOKER_OUTPUT/value; echo end s{i} >> {journal}"
        lines += [f"  s{i}:", f"    run: {json.dumps(text)}", "    outputs: [value]"]
        lines.append("    resources: {cpu_count: 0.25, gpu_count: %d}" % (1 if i % 10 == 3 else 0))
        if i >= 5:
            lines.append(
                "    inputs: {left: {from: s%d.value}, right: {from: s%d.value}}"
                % (i - 5, i - 5 + (i + 1) % 5 - i % 5)
            )
    return "\n".join(lines) + "\n"


def gang_spec(journal: Path, n_steps: int) -> str:
    """Each step is a gang of two; both ranks have a child, and the first one writes the journal."""
    lines = ["stoker: 1", "name: crash", "retry: {max_retries: 5}", "steps:"]
    for i in range(n_steps):
        first = f"echo begin s{i} >> {journal}; sleep 0.02; echo {i} > $STOKER_OUTPUT/value; echo end s{i} >> {journal}"
        text = f'if [ "$RANK" = 0 ]; then {first}; else sleep 0.02; true; fi'
        lines += [f"  s{i}:", f"    run: {json.dumps(text)}", "    outputs: [value]"]
        lines.append("    gang: {ranks: 2}")
        lines.append("    resources: {cpu_count: 0.5}")
        if i >= 2:
            lines.append("    inputs: {left: {from: s%d.value}}" % (i - 2))
    return "\n".join(lines) + "\n"


def growing_spec(journal: Path, width: int, wide: bool) -> str:
    """A foreach, in each branch of it two more and their join (unless it is to be wide), and the join of all."""

    def step(work: str) -> str:
        me = "$STOKER_STEP$STOKER_INDEX"
        return json.dumps(f"echo begin {me} >> {journal}; {work}; echo end {me} >> {journal}")

    items = ", ".join(str(i) for i in range(width))
    inner = [
        f"  work: {{run: {step('echo $STOKER_ITEM > $STOKER_OUTPUT/part')}, outputs: [part], next: {'gather' if wide else '[a, b]'}}}"
    ]
    if not wide:
        for name in "ab":
            inner.append(
                f"  {name}: {{run: {step('cp $STOKER_INPUT_x $STOKER_OUTPUT/part')}, inputs: {{x: {{from: work.part}}}}, "
                "outputs: [part], next: both}"
            )
        both = step("cat $STOKER_INPUT_x/* $STOKER_INPUT_y/* | sort -u > $STOKER_OUTPUT/part")
        inner.append(
            f"  both: {{run: {both}, join: true, inputs: {{x: {{from: a.part}}, y: {{from: b.part}}}}, "
            "outputs: [part], next: gather}"
        )
    gather = step(
        "cat $STOKER_INPUT_parts/* | wc -l > $STOKER_OUTPUT/n; cat $STOKER_INPUT_parts/* | sort -u | wc -l >> $STOKER_OUTPUT/n"
    )
    return "\n".join(
        [
            "stoker: 1",
            "name: crash",
            "retry: {max_retries: 5}",
            "resources: {cpu_count: 0.25}",
            "steps:",
            f"  start: {{run: {step(f'echo [{items}] > $STOKER_OUTPUT/todo')}, outputs: [todo], next: work, foreach: todo}}",
            *inner,
            f"  gather: {{run: {gather}, join: true, inputs: {{parts: {{from: {'work' if wide else 'both'}.part}}}}, outputs: [n], next: last}}",
            f"  last: {{run: {step('true')}}}",
            "",
        ]
    )


def contained_spec(marker: str, image: str, n_steps: int) -> str:
    """Two chains of commands in containers; what a step tells the journal it tells its log."""
    key, value = marker.split("=")
    lines = ["stoker: 1", "name: crash", "retry: {max_retries: 5}"]
    lines.append(f"docker: {{parent_image: {image}, environment: {{{key}: {value}}}}}")
    lines.append("steps:")
    for i in range(n_steps):
        text = (
            f"read id < /proc/sys/kernel/random/uuid; echo begin s{i} $id; sleep 0.1; "
            f"echo {i} > $STOKER_OUTPUT/value; echo end s{i} $id"
        )
        lines += [f"  s{i}:", f"    run: {json.dumps(text)}", "    outputs: [value]"]
        lines.append("    resources: {cpu_count: 0.5}")
        if i >= 2:
            lines.append("    inputs: {left: {from: s%d.value}}" % (i - 2))
    return "\n".join(lines) + "\n"


def remote_spec(journal: Path, n_steps: int) -> str:
    """Two chains of commands on other machines, the last step here."""
    lines = ["stoker: 1", "name: crash", "retry: {max_retries: 5}", "steps:"]
    for i in range(n_steps):
        text = (
            f"echo begin s{i} $STOKER_ATTEMPT >> {journal}; mkdir -p $STOKER_CHECKPOINT_DIR; "
            f"echo {i} > $STOKER_CHECKPOINT_DIR/s; sleep 0.1; "
            f"echo {i} > $STOKER_OUTPUT/value; echo end s{i} $STOKER_ATTEMPT >> {journal}"
        )
        lines += [f"  s{i}:", f"    run: {json.dumps(text)}", "    outputs: [value]"]
        if i == n_steps - 1:
            lines.append("    backend: local")
        if i >= 2:
            lines.append("    inputs: {left: {from: s%d.value}}" % (i - 2))
    return "\n".join(lines) + "\n"
