"""The commands of a flow's command line, as one table; a command's code is imported when it is
called."""

from __future__ import annotations

from typing import List

from ._deploy_options import deploy_groups
from ._parse import Argument, Command, Option, group

_PATH = "RUN/STEP or RUN/STEP/TASK"


def _datastore(text: str) -> str:
    if text != "local":
        raise ValueError(
            f"{text}: a run keeps its artifacts in the store of this machine; for steps elsewhere, a stack of stoker.yaml "
            "names the store that machines share (`store: s3://BUCKET/PREFIX`); leave this option out"
        )
    return text


def top_options() -> List[Option]:
    """The options that may stand before the command."""
    return [
        Option("--quiet", "Print no unnecessary messages.", "flag", off="--not-quiet"),
        Option("--metadata", "Where runs are on record.", idle=True),
        Option("--environment", "local, or pypi or conda: each step has the packages it asks for."),
        Option("--force-rebuild-environments", "Build environments anew.", "flag"),
        Option("--datastore", "local: artifacts are kept in the store.", convert=_datastore),
        Option("--datastore-root", "The folder that holds the store (its .stoker)."),
        Option("--package-suffixes", "More suffixes of files that `deploy create` keeps."),
        Option("--with", "Add a decorator to all steps: NAME or NAME:KEY=VALUE,...", many=True),
        Option("--pylint", "Run pylint on the flow.", "flag", default=None, idle=True),
        Option("--event-logger", "Where events are logged.", idle=True),
        Option("--monitor", "Where measurements go.", idle=True),
        Option("--local-config-file", "A file of settings.", hidden=True, idle=True),
        Option("--config", "Read a Config from a file: NAME PATH.", many=True, n=2),
        Option("--config-value", "Give a Config's value: NAME JSON.", many=True, n=2),
        Option("--mode", "With `spin`, `card` shows what `spin --persist` left."),
        Option("--branch", "The @project's branch.", hidden=True),
        Option("--production", "The @project's production branch.", "flag", hidden=True),
        Option("--name", "The @project's name.", hidden=True),
    ]


def _run_options() -> List[Option]:
    return [
        Option("--tag", "Give the run a tag (repeat for more).", many=True, key="tags"),
        Option("--max-workers", "At most this many tasks at once; default: as many as fit.", "int"),
        Option("--max-num-splits", "At most this many branches of one foreach.", "int", 100),
        Option(
            "--max-log-size", "At most this many megabytes of a task's output.", "int", idle=True
        ),
        Option(
            "--with",
            "Add a decorator to all steps: NAME or NAME:KEY=VALUE,...",
            many=True,
            key="decospecs",
        ),
        Option(
            "--cache",
            "Take a task's result from an earlier run of the same code on the same data.",
            "flag",
        ),
        Option(
            "--policy",
            "fit: run without missing resources, and say so; strict: refuse.",
            default=None,
        ),
        *_file_options(),
    ]


def _file_options() -> List[Option]:
    return [
        Option("--run-id-file", "Write the run's id into this file."),
        Option("--runner-attribute-file", "Write what names the run into this file, as JSON."),
    ]


def _log_streams(verb: str) -> List[Option]:
    return [
        Option("--stdout", f"{verb} stdout.", "flag"),
        Option("--stderr", f"{verb} stderr.", "flag"),
        Option("--both", f"{verb} both.", "flag", True),
        Option("--attempt", "The attempt, from 0; default: the last.", "int"),
    ]


def _tag_options() -> List[Option]:
    return [
        Option("--run-id", "The run (required)."),
        Option("--namespace", "Search this namespace instead of your own."),
    ]


def _card_options() -> List[Option]:
    return [
        Option("--hash", "Beginning of the card's digest."),
        Option("--type", "The card's type."),
        Option("--id", "The card's id."),
        Option(
            "--follow-resumed",
            "For a cloned task, use the one that it was cloned from.",
            "flag",
            True,
        ),
    ]


def _spin_options() -> List[Option]:
    return [
        Option("--skip-decorators", "Ignore the step's decorators.", "flag"),
        Option(
            "--artifacts-module", "A Python file whose ARTIFACTS (name: value) replace the task's."
        ),
        Option("--persist", "Keep the step's results.", "flag"),
        Option("--max-log-size", "At most this many megabytes of output.", "int", 10),
        *_file_options(),
    ]


_LATER = "flows can't be deployed to {}; `deploy create` lets this machine run one by itself"
_ELSEWHERE = "steps go there by a stack of stoker.yaml (docs/{}.md); `stoker runs` lists runs, `stoker cancel` ends one"
# Metaflow's commands that Stoker lacks: why, and what to use instead.
LATER = {
    "airflow": _LATER.format("Airflow"),
    "kubernetes": _ELSEWHERE.format("kubernetes"),
    "batch": _ELSEWHERE.format("batch"),
}


def table(parameters: List[Option]) -> Command:
    """The whole command line; ``parameters`` are the flow's own, options of ``run``."""
    resume = [
        *_run_options(),
        Option("--origin-run-id", "The run to resume; default: the newest of this flow."),
        Option("--run-id", "An id for the new run.", hidden=True),
        Option("--clone-only", "Only take over what has succeeded.", "flag", hidden=True),
        Option("--reentrant", "", "flag", hidden=True, idle=True),
        Option("--resume-identifier", "", hidden=True, idle=True),
        Option(
            "--namespace", "The namespace to search; --namespace= for all.", key="user_namespace"
        ),
    ]
    taken = {
        p.name for p in parameters
    }  # a parameter may have the name of an option that only Stoker has
    run = [
        *parameters,
        *(o for o in _run_options() if o.name not in taken),
        Option(
            "--namespace",
            "The namespace that the steps see; --namespace= for all.",
            key="user_namespace",
        ),
    ]
    logs = [*_log_streams("Show"), Option("--timestamps", "Show times.", "flag")]
    scrub = [
        *_log_streams("Scrub"),
        Option("--latest", "The last attempt only.", "flag", True, off="--all"),
        Option(
            "--include-not-done", "Also of tasks that haven't ended.", "flag", off="--done-only"
        ),
    ]
    path = [Argument("input_path")]
    card = [Argument("pathspec")]
    tag_list = [
        Option("--run-id", "Of this run."),
        Option("--all", "Of all runs of this flow.", "flag", off="--not-all"),
        Option("--my-runs", "Of your own runs of this flow.", "flag"),
        Option("--hide-system-tags", "Only those that people gave.", "flag"),
        Option("--group-by-tag", "Runs by tag.", "flag"),
        Option("--group-by-run", "Tags by run.", "flag"),
        Option("--flat", "One a line.", "flag", hidden=True),
    ]
    commands = [
        Command(
            "check",
            "Check that the flow is valid (default).",
            "_graph:check",
            [Option("--warnings", "Show warnings of pylint as well.", "flag", idle=True)],
        ),
        Command(
            "dump",
            f"Show artifacts of a task, or of all tasks of a step ({_PATH}).",
            "_data:dump",
            [
                Option("--private", "Also names that begin with _.", "flag"),
                Option(
                    "--max-value-size",
                    "Only values smaller than this, in bytes; 0: only names.",
                    "int",
                    1000,
                ),
                Option("--include", "Only these names, separated by commas."),
                Option("--file", "Write them into this file, pickled."),
            ],
            path,
        ),
        *deploy_groups(),
        Command("help", "Show all available commands.", "_graph:show_help"),
        group(
            "logs",
            "What tasks wrote.",
            [
                Command(
                    "show",
                    f"Show what a task, or all tasks of a step, wrote ({_PATH}).",
                    "_data:logs",
                    logs,
                    path,
                ),
                Command("scrub", f"Remove what tasks wrote ({_PATH}).", "_data:scrub", scrub, path),
            ],
            default="show",
        ),
        Command("output-dot", "Show the flow as a graph for Graphviz.", "_graph:output_dot"),
        Command(
            "output-raw",
            "Show the flow's graph as data.",
            "_graph:output_raw",
            [Option("--json", "As JSON.", "flag")],
        ),
        group(
            "package",
            "The code that `deploy create` keeps.",
            [
                Command("info", "Show where it comes from and how large it is.", "_package:info"),
                Command("list", "List its files.", "_package:listing"),
                Command("save", "Write it as a .tgz.", "_package:save", [], [Argument("path")]),
            ],
        ),
        Command(
            "resume",
            "Resume a past run of this flow.",
            "_run:resume",
            resume,
            [Argument("step_to_rerun", required=False)],
        ),
        Command("run", "Run the flow on this machine.", "_run:run", run),
        Command("show", "Show the flow's structure.", "_graph:show"),
        Command(
            "spin",
            "Run one step alone, with the inputs of a past task (STEP, or RUN/STEP/TASK).",
            "_spin:spin",
            _spin_options(),
            [Argument("pathspec")],
        ),
        group(
            "tag",
            "Tags of runs.",
            [
                Command(
                    "add",
                    "Give a run tags.",
                    "_tag:add",
                    _tag_options(),
                    [Argument("tags", many=True)],
                ),
                Command(
                    "list",
                    "List tags.",
                    "_tag:listing",
                    tag_list,
                    [Argument("arg_run_id", required=False)],
                ),
                Command(
                    "remove",
                    "Remove tags from a run.",
                    "_tag:remove",
                    _tag_options(),
                    [Argument("tags", many=True)],
                ),
                Command(
                    "replace",
                    "Replace tags of a run, in one step.",
                    "_tag:replace",
                    [
                        *_tag_options(),
                        Option("--add", "Give this tag.", many=True),
                        Option("--remove", "Take this tag away.", many=True),
                    ],
                ),
            ],
        ),
        group(
            "card",
            "Cards of tasks.",
            [
                Command(
                    "get",
                    "Write a card's HTML (to stdout, or PATH).",
                    "_card:get",
                    _card_options(),
                    [*card, Argument("path", required=False)],
                ),
                Command(
                    "list",
                    "List cards.",
                    "_card:listing",
                    [
                        *_card_options(),
                        Option("--as-json", "As JSON.", "flag"),
                        Option("--file", "Write the list into this file."),
                    ],
                    [Argument("pathspec", required=False)],
                ),
                Command(
                    "server",
                    "Show a run's cards at a loopback address, even while it runs.",
                    "_card:server",
                    [
                        Option("--run-id", "The run; default: the newest."),
                        Option("--port", "The port; 0: any that is free.", "int", 8324),
                        Option("--poll-interval", "Seconds between two looks.", "int", 5),
                    ],
                ),
                Command("view", "Show a card in the browser.", "_card:view", _card_options(), card),
            ],
        ),
        Command("version", "Show Stoker's version.", "_graph:version"),
    ]
    return group("", "", commands, options=top_options(), default="check")
