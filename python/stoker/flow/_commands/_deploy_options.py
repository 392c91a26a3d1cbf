"""The commands of deployed flows: ``deploy``, by Metaflow's names of schedulers too."""

from __future__ import annotations

from typing import List

from ._parse import Argument, Command, Option, group

# Options that only a scheduler of a cluster has.
_IDLE = (
    "--authorize --new-token --workflow-timeout --workflow-priority --notify-slack-webhook-url "
    "--notify-pager-duty-integration-key --notify-incident-io-api-key --workflow-title "
    "--workflow-description --sqs-url-on-error --incident-io-alert-source-config-id"
)
_IDLE_FLAGS = (
    "--generate-new-token --auto-emit-argo-events --notify-on-error --notify-on-success "
    "--enable-heartbeat-daemon --enable-error-msg-capture --log-execution-history --distributed-map"
)
_NAME = Option("--name", "The deployed flow's name; default: the flow's, in lowercase.")


def _create_options() -> List[Option]:
    return [
        _NAME,
        Option("--tag", "Give its runs a tag (repeat for more).", many=True, key="tags"),
        Option("--namespace", "The namespace that the steps see.", key="user_namespace"),
        Option("--max-workers", "At most this many tasks of a run at once.", "int"),
        Option("--with", "Add a decorator to all steps.", many=True, key="decospecs"),
        Option("--only-json", "Print the record, and deploy nothing.", "flag"),
        Option("--deployer-attribute-file", "Write what names it into this file.", hidden=True),
        *(Option(one, hidden=True, idle=True) for one in _IDLE.split()),
        *(Option(one, "", "flag", hidden=True, idle=True) for one in _IDLE_FLAGS.split()),
    ]


def deploy_groups() -> List[Command]:
    """The group, under each of its names."""
    commands = [
        Command(
            "create",
            "Let this machine run the flow by itself: @schedule, @trigger, @trigger_on_finish.",
            "_deploy:create",
            _create_options(),
        ),
        Command(
            "trigger",
            "Start a run of the deployed flow.",
            "_deploy:trigger",
            [
                _NAME,
                Option("--run-id-file", "Write the run's id into this file."),
                Option("--deployer-attribute-file", "", hidden=True),
            ],
        ),
        Command("list-runs", "List its runs.", "_deploy:list_runs", [_NAME]),
        Command("list", "List all deployed flows.", "_deploy:listing"),
        Command(
            "delete",
            "Remove it; its runs stay.",
            "_deploy:delete",
            [_NAME, Option("--authorize", hidden=True, idle=True)],
        ),
        Command(
            "terminate",
            "Cancel one of its runs.",
            "_deploy:terminate",
            [_NAME],
            [Argument("run_id")],
        ),
    ]
    text = "Flows that this machine runs by itself."
    return [
        group("deploy", text, commands),
        group("argo-workflows", text, commands, hidden=True),
        group("step-functions", text, commands, hidden=True),
    ]
