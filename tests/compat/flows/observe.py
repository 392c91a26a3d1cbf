"""Prints the client's view of runs as JSON: the same program for real Metaflow and for Stoker.

    observe.py FLOW RUN… [--dump=FILE]… [--cards]

Ids and times differ from run to run, so tasks are told apart by where in their foreaches they ran, and are listed in that order.
"""

from __future__ import annotations

import hashlib
import json
import pickle
import sys

from metaflow import Flow, Run, namespace


def shown(value):
    """A value as text that is the same on both sides."""
    if isinstance(value, (bytes, bytearray)) and len(value) > 100:
        return f"{len(value)} bytes {hashlib.sha256(value).hexdigest()[:16]}"
    if isinstance(value, (list, tuple)) and len(value) > 100:
        return f"{type(value).__name__} of {len(value)}, sum {sum(value)}"
    if isinstance(value, (set, frozenset)):
        return f"{type(value).__name__} {sorted(value)}"
    if hasattr(value, "exception") and hasattr(value, "type"):
        return f"caught {value.type}: {value.exception}"
    return repr(value)


def asked(what):
    """An answer of the client, or the exception that it raises."""
    try:
        return what()
    except Exception as bad:
        return f"raises {type(bad).__name__}"


def public(task):
    return {
        a.id: asked(lambda a=a: shown(a.data)) for a in task if a.id[0] != "_" and a.id != "name"
    }


def where(task):
    return f"{task.parent.id}{[one.data for one in task if one.id == 'where']}"


def failure(task):
    found = task.exception
    if found is None:
        return None
    named = getattr(found, "type", None)
    return str(named) if named else f"{type(found).__module__}.{type(found).__name__}"


def cards(task):
    from metaflow.cards import get_cards

    return sorted([c.type, c.id] for c in get_cards(task))


def look_at_task(task):
    return {
        "index": asked(lambda: task.index),
        "successful": asked(lambda: task.successful),
        "finished": asked(lambda: task.finished),
        "failure": asked(lambda: failure(task)),
        "attempt": asked(lambda: task.current_attempt),
        "artifacts": asked(lambda: public(task)),
        "parents": asked(lambda: sorted(where(one) for one in task.parent_tasks)),
        "stdout": asked(lambda: task.stdout),
        "tags": asked(lambda: sorted(task.user_tags)),
        "cloned": asked(lambda: task.origin_pathspec is not None),
        "cards": asked(lambda: cards(task)) if "--cards" in sys.argv else None,
    }


def look_at_step(step):
    tasks = sorted((look_at_task(t) for t in step), key=lambda t: json.dumps(t, sort_keys=True))
    return {
        "tasks": tasks,
        "before": asked(lambda: sorted(s.id for s in step.parent_steps)),
        "after": asked(lambda: sorted(s.id for s in step.child_steps)),
    }


def look_at(run):
    return {
        "successful": asked(lambda: run.successful),
        "finished": asked(lambda: run.finished),
        "tags": asked(lambda: sorted(run.user_tags)),
        "steps": {step.id: look_at_step(step) for step in sorted(run, key=lambda s: s.id)},
        "end": asked(lambda: run.end_task.parent.id),
        "data": asked(lambda: sorted(n for n in dir(run.data) if n[0] != "_" and n != "name")),
    }


def dumped(path):
    with open(path, "rb") as file:
        tasks = pickle.load(file)
    told = [
        [
            key.split("/")[1],
            {name: shown(value) for name, value in sorted(found.items()) if name != "name"},
        ]
        for key, found in tasks.items()
    ]
    return sorted(told, key=json.dumps)


def main(words):
    namespace(None)
    flow, names = words[0], words[1:]
    dumps = [n[7:] for n in names if n.startswith("--dump=")]
    runs = [look_at(Run(f"{flow}/{n}")) for n in names if not n.startswith("--")]
    latest = Flow(flow).latest_run if runs else None
    print(
        json.dumps(
            {
                "runs": runs,
                "latest": latest.id == names[len(runs) - 1] if latest else None,
                "dumps": [dumped(d) for d in dumps],
            }
        )
    )


if __name__ == "__main__":
    main(sys.argv[1:])
