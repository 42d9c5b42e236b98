"""Jobs, schedules, calendars, secrets."""

from typing import Any

from tests.api.makers import TARGET
from tests.api.rows import Row
from tests.api.world import World, job


def a_job(world: World) -> dict[str, Any]:
    """Without an external id: the path has it."""
    world.make.count += 1
    return {"name": f"put {world.make.count}", "kind": "http", "target": TARGET}


def a_schedule(world: World) -> dict[str, Any]:
    world.make.count += 1
    return {"name": f"put {world.make.count}", "job": job(world), "trigger": {"every_s": 300}}


def a_workflow(world: World) -> dict[str, Any]:
    """Not the example: names of steps are named again, so that they can't be numbered."""
    world.make.count += 1
    return {"name": f"put {world.make.count}", "steps": [{"name": "wait", "delay_s": 1}]}


ROWS = {
    "jobs_list": Row("viewer"),
    "jobs_create": Row("editor", 201),
    "jobs_bulk_create": Row("editor"),
    "jobs_read_by_external_id": Row("viewer"),
    "jobs_put_by_external_id": Row("editor", body=a_job, other=412),
    "jobs_read": Row("viewer"),
    "jobs_patch": Row("editor"),
    "jobs_replace": Row("editor"),
    "jobs_delete": Row("editor", 204),
    "jobs_pause": Row("editor"),
    "jobs_resume": Row("editor"),
    **{f"jobs_{one}": Row("viewer") for one in ("executions", "schedules", "dead_letters", "versions", "version")},
    **{f"schedules_{one}": Row("viewer") for one in ("executions", "dead_letters", "versions", "version")},
    "workflows_list": Row("viewer"),
    "workflows_create": Row("editor", 201, body=a_workflow),
    "workflows_preview_unsaved": Row("viewer", body=a_workflow),
    "workflows_read_by_external_id": Row("viewer"),
    "workflows_put_by_external_id": Row("editor", body=a_workflow, other=412),
    "workflows_read": Row("viewer"),
    "workflows_patch": Row("editor"),
    "workflows_replace": Row("editor", body=a_workflow),
    "workflows_delete": Row("editor", 204),
    "workflows_pause": Row("editor"),
    "workflows_resume": Row("editor"),
    "workflows_run": Row("editor", 202),
    "workflows_preview": Row("viewer"),
    **{f"workflows_{one}": Row("viewer") for one in ("graph", "picture", "schedules", "versions", "version")},
    "schedules_list": Row("viewer"),
    "schedules_create": Row("editor", 201, other=400),
    "schedules_preview_unsaved": Row("viewer"),
    "schedules_bulk_create": Row("editor"),
    "schedules_read_by_external_id": Row("viewer"),
    "schedules_put_by_external_id": Row("editor", body=a_schedule, other=412),
    "schedules_read": Row("viewer"),
    "schedules_patch": Row("editor"),
    "schedules_replace": Row("editor"),
    "schedules_delete": Row("editor", 204),
    "schedules_pause": Row("editor"),
    "schedules_resume": Row("editor", things={"schedule_id": "paused schedule"}),
    "schedules_trigger": Row("editor", 202),
    "schedules_preview": Row("viewer"),
    "schedules_backfill": Row("operator", 202),
    "workflows_backfill": Row("operator", 202, things={"workflow_id": "scheduled workflow"}),
    "backfills_list": Row("viewer"),
    "backfills_read": Row("viewer"),
    "schedules_explanation": Row("viewer"),
    "schedules_explain": Row("viewer"),
    "schedules_completeness": Row("viewer"),
    "schedules_completeness_repair": Row("operator"),
    "calendars_list": Row("viewer"),
    "calendars_create": Row("editor", 201),
    "calendars_read": Row("viewer"),
    "calendars_patch": Row("editor"),
    "calendars_replace": Row("editor"),
    "calendars_delete": Row("editor", 204),
    "secrets_list": Row("viewer"),
    "secrets_create": Row("editor", 201),
    "secrets_read": Row("viewer"),
    "secrets_patch": Row("editor"),
    "secrets_replace": Row("editor"),
    "secrets_delete": Row("editor", 204),
}
