"""Schedules, named snapshots and run templates."""

import datetime

from facts import fact
from zenml import pipeline, step
from zenml.client import Client
from zenml.config.pipeline_run_configuration import PipelineRunConfiguration
from zenml.config.schedule import Schedule
from zenml.exceptions import EntityExistsError
from zenml.models import PipelineSnapshotResponse, ScheduleFilter

NOON = datetime.datetime(2031, 1, 1, 12)
ZONE = datetime.timezone.utc


@step(enable_cache=False)
def double(n: int) -> int:
    return 2 * n


@pipeline
def sc_run(n: int = 1):
    double(n)


@pipeline
def sc_other():
    double(7)


def names(page):
    return [one.name for one in page]


def taken():
    try:
        sc_run.create_snapshot(name="sc_first")
    except EntityExistsError:
        return "taken"


if __name__ == "__main__":
    client = Client()
    fact("empty schedule", lambda: Schedule())
    fact("interval alone", lambda: Schedule(interval_second=60))
    fact("interval", lambda: Schedule(start_time=NOON, interval_second=60).interval_second)
    fact("zone", lambda: Schedule(start_time=NOON, interval_second=60).start_time.tzinfo is None)
    fact(
        "kept zone",
        lambda: Schedule(run_once_start_time=NOON.replace(tzinfo=ZONE)).run_once_start_time,
    )
    fact("catchup", lambda: Schedule(cron_expression="0 3 * * *").catchup)
    fact("wrong time", lambda: Schedule(run_once_start_time="soon"))
    fact("no schedules", lambda: client.list_schedules().total)
    fact("get no schedule", lambda: client.get_schedule("sc_none"))
    fact("update no schedule", lambda: client.update_schedule("sc_none"))
    fact("delete no schedule", lambda: client.delete_schedule("sc_none"))
    nightly = sc_run.with_options(schedule=Schedule(name="sc_night", cron_expression="0 3 * * *"))
    fact("scheduled", lambda: nightly(n=3))
    fact("not run", lambda: client.list_pipeline_runs().total)
    fact("schedules", lambda: names(client.list_schedules()))

    fact("first", lambda: sc_run.create_snapshot(name="sc_first").name)
    sc_run.prepare(n=4)
    fact("snapshot", lambda: sc_run.create_snapshot(name="sc_second", description="four").name)
    fact("of other", lambda: sc_other.create_snapshot(name="sc_first").name)
    fact("taken", taken)
    second = client.get_snapshot("sc_second")
    fact("class", lambda: isinstance(second, PipelineSnapshotResponse))
    fact("is dynamic", lambda: second.is_dynamic)
    fact("its stack", lambda: second.stack.name)
    fact("its parameters", lambda: second.pipeline_configuration.parameters)
    fact("its configuration", lambda: second.pipeline_configuration.name)
    fact("its name of runs", lambda: second.run_name_template)
    fact("its environment", lambda: second.client_environment["os"])
    fact("snapshots", lambda: names(client.list_snapshots()))
    fact("by pipeline", lambda: names(client.list_snapshots(pipeline="sc_other")))
    fact("description", lambda: client.get_snapshot("sc_second").description)
    fact("its pipeline", lambda: client.get_snapshot("sc_second").pipeline.name)
    fact("latest run", lambda: client.get_snapshot("sc_second").latest_run_id)
    fact("update", lambda: client.update_snapshot("sc_second", name="sc_third").name)
    fact("tags", lambda: names(client.update_snapshot("sc_third", add_tags=["sc_tag"]).tags))
    fact("replace", lambda: sc_other.create_snapshot(name="sc_first", replace=True).name)
    fact("total", lambda: client.list_snapshots().total)
    fact("get none", lambda: client.get_snapshot("sc_none"))
    fact("delete", lambda: client.delete_snapshot("sc_third"))
    fact("left", lambda: sorted(names(client.list_snapshots())))
    fact("template", lambda: sc_run.create_run_template(name="sc_template").name)
    fact("templates", lambda: names(client.list_run_templates()))
    fact("trigger nothing", lambda: client.trigger_pipeline())
    fact(
        "trigger",
        lambda: client.trigger_pipeline(template_id="sc_template", synchronous=True).status.value,
    )
    every = Schedule(name="sc_every", start_time=NOON, interval_second=5400)
    fact("every", lambda: sc_other.with_options(schedule=every)())
    by = client.zen_store.list_schedules
    fact("by interval", lambda: names(by(ScheduleFilter(interval_second=5400))))
    fact("by other interval", lambda: names(by(ScheduleFilter(interval_second=60))))
    asked = PipelineRunConfiguration(parameters={"n": 9}, enable_cache=False)
    fact("run configuration", lambda: (asked.parameters, asked.enable_cache))
