"""What one request of the role matrix needs: acme's things, made for the names that paths give them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import psycopg

from tests.api.makers import TARGET, Makers, begin, begin_run, kill

if TYPE_CHECKING:
    from tenants.registry import Registry
    from tests.fixtures_api import Api

LATER = {"target": {**TARGET, "completion": "callback"}, "timeout_s": 3600}


@dataclass
class World:
    """acme, seen by its admin. `ids` are those of the things that were made, by the parameter of the path."""

    api: Api
    make: Makers
    conn: psycopg.Connection[Any]
    registry: Registry
    ids: dict[str, str] = field(default_factory=dict)

    def with_things(self, path: str, **others: str) -> str:
        """The path with things that are made now; `others` says where another one than the usual is wanted."""
        for part in path.split("/"):
            if part.startswith("{"):
                name = part.strip("{}")
                thing = others.get(name, name)
                assert thing in THINGS, f"tests/api/world.py does not know how to make {thing}"
                self.ids[name] = THINGS[thing](self)
                path = path.replace(part, self.ids[name])
        return path


def job(world: World) -> str:
    return str(world.make.job()["id"])


def external_id(world: World) -> str:
    """Of a job, of its schedule and of a workflow."""
    world.make.count += 1
    own = f"own-{world.make.count}"
    world.make.workflow(external_id=own)
    world.make.schedule(job=world.make.job(external_id=own)["id"], external_id=own)
    return own


def workflow(world: World) -> str:
    return str(world.make.workflow()["id"])


def run(world: World) -> str:
    """Of a workflow: somebody with the least role is asked, and a step waits for a delay."""
    asks = {"name": "ask", "approval": {"role": "editor", "message": "Go on?"}}
    waits = {"name": "next", "delay_s": 1, "needs": ["wait"]}
    made = world.make.workflow(asks, {"name": "wait", "delay_s": 3600}, waits)
    started = str(world.api.post(f"workflows/{made['id']}/run").body["id"])
    begin_run(world.conn, world.registry, started)
    return started


def paused_run(world: World) -> str:
    made = run(world)
    assert world.api.post(f"workflow-runs/{made}/pause").status == 200
    return made


def failed_run(world: World) -> str:
    """One whose first step has failed."""
    made = run(world)
    assert world.api.post(f"workflow-runs/{made}/steps/ask/reject").status == 200
    return made


def schedule(world: World) -> str:
    return str(world.make.schedule()["id"])


def scheduled_workflow(world: World) -> str:
    made = workflow(world)
    world.make.count += 1
    body = {"name": f"schedule {world.make.count}", "workflow": made, "trigger": {"every_s": 300}}
    _made(world, "schedules", body)
    return made


def backfill(world: World) -> str:
    answer = world.api.post(f"schedules/{schedule(world)}/backfill", {"from": "2026-01-01", "to": "2026-01-02"})
    assert answer.status == 202, answer.body
    return str(answer.body["id"])


def paused_schedule(world: World) -> str:
    made = schedule(world)
    assert world.api.post(f"schedules/{made}/pause").status == 200
    return made


def execution(world: World) -> str:
    """One that waits."""
    return str(world.make.execution()["id"])


def dead_execution(world: World) -> str:
    made = execution(world)
    kill(world.conn, world.registry, made)
    return made


def erased_execution(world: World) -> str:
    made = dead_execution(world)
    assert world.api.post(f"executions/{made}/erase", {"reason": "asked for"}).status == 200
    return made


def held_execution(world: World) -> str:
    """One whose receiver answered 202; `ids["completion"]` is the token that it was sent."""
    from tenants.runtokens import runtoken_make

    run = world.make.execution(job=world.make.job(**LATER)["id"])
    one = begin(world.conn, run["id"])
    token = runtoken_make(
        "completion", tenant_id=one.tenant_id, execution_id=one.execution_id, attempt=one.attempt, fence=one.fence
    )
    assert token is not None
    world.ids["completion"] = token
    return str(run["id"])


def letter(world: World) -> str:
    dead = dead_execution(world)
    [found] = world.api.get(f"dead-letters?execution={dead}").body["items"]
    return str(found["id"])


def resolved_letter(world: World) -> str:
    found = letter(world)
    assert world.api.post(f"dead-letters/{found}/resolve").status == 200
    return found


def calendar(world: World) -> str:
    world.make.count += 1
    return _made(world, "calendars", {"name": f"holidays {world.make.count}", "dates": ["2027-12-25"]})


def hold(world: World) -> str:
    return _made(world, "legal-holds", {"scope": "tenant", "reason": "case 4711"})


def secret(world: World) -> str:
    world.make.count += 1
    return _made(world, "secrets", {"name": f"TOKEN_{world.make.count}", "value": "s3cret"})


def key(world: World) -> str:
    world.make.count += 1
    return _made(world, "api-keys", {"name": f"key {world.make.count}", "role": "viewer"})


def member(world: World) -> str:
    from tenants.models import Tenant
    from tenants.people import member_make

    world.make.count += 1
    tenant = Tenant.objects.filter(slug="acme").get()
    email = f"p{world.make.count}@acme.test"
    return str(member_make(tenant=tenant, email=email, role="viewer", name="", password=None).uid)


def invitation(world: World) -> str:
    world.make.count += 1
    return _made(world, "invitations", {"email": f"i{world.make.count}@acme.test", "role": "viewer"})


def breaker(world: World) -> str:
    """An open one."""
    from apps.tickets import breakers

    world.make.count += 1
    host = f"h{world.make.count}.example:443"
    query = "SELECT id FROM tenants_tenant WHERE slug = 'acme'"
    ((tenant_id,),) = world.conn.execute(query).fetchall()
    breakers.open_(
        world.conn, tenant_id=tenant_id, destination=host, failures=1, reason="down", open_s=60, max_s=60
    )  # fmt: skip
    [found] = world.api.get(f"breakers?destination={host}").body["items"]
    return str(found["id"])


def queue(world: World) -> str:
    """A pull queue with work in it."""
    world.make.count += 1
    name = f"queue-{world.make.count}"
    made = world.make.job(kind="pull", queue=name, target={})
    world.make.execution(job=made["id"])
    return name


def lease(world: World) -> str:
    """The token of a lease."""
    answer = world.api.post(f"queues/{queue(world)}/lease", {})
    return str(answer.body["items"][0]["token"])


def webhook(world: World) -> str:
    return _made(world, "webhooks", {"url": TARGET["url"], "types": ["*"]})


def delivery(world: World) -> str:
    """One that has ended, of the webhook that the path names."""
    made = str(world.api.post(f"webhooks/{world.ids['webhook_id']}/test").body["id"])
    kill(world.conn, world.registry, made)
    return made


def event(world: World) -> str:
    """A pause of a schedule, told."""
    paused = paused_schedule(world)
    query = "SELECT id FROM t_acme.events_event WHERE schedule_id = %s"
    ((event_id,),) = world.conn.execute(query, [paused]).fetchall()
    return str(event_id)


def operation(world: World) -> str:
    """One that is being planned; an editor may ask for it."""
    return str(world.api.post("jobs/bulk-pause", {"filter": {"name": "none of this name"}}).body["id"])


def paused_operation(world: World) -> str:
    made = operation(world)
    assert world.api.post(f"operations/{made}/pause").status == 200
    return made


def done_operation(world: World) -> str:
    """A job was paused."""
    from tests.operations.fixtures import work_off

    name = world.make.job()["name"]
    made = world.api.post("jobs/bulk-pause", {"filter": {"name": name}}).body["id"]
    assert work_off("acme", made).succeeded == 1
    return str(made)


# By the parameter of the path; under other names what single rows ask for instead.
THINGS: dict[str, Callable[[World], str]] = {
    "job_id": job,
    "workflow_id": workflow,
    "run_id": run,
    "paused run": paused_run,
    "failed run": failed_run,
    "step": lambda world: "ask",
    "waiting step": lambda world: "next",
    "schedule_id": schedule,
    "operation_id": operation,
    "paused operation": paused_operation,
    "done operation": done_operation,
    "external_id": external_id,
    "paused schedule": paused_schedule,
    "scheduled workflow": scheduled_workflow,
    "backfill_id": backfill,
    "execution_id": execution,
    "dead execution": dead_execution,
    "erased execution": erased_execution,
    "held execution": held_execution,
    "letter_id": letter,
    "resolved letter": resolved_letter,
    "calendar_id": calendar,
    "hold_id": hold,
    "secret_id": secret,
    "key_id": key,
    "member_id": member,
    "invitation_id": invitation,
    "breaker_id": breaker,
    "name": queue,
    "token": lease,
    "version": lambda world: "1",
    "webhook_id": webhook,
    "delivery_id": delivery,
    "event_id": event,
}


# Members of bodies that name other things, and how to make one.
NAMED = {"job": "job_id", "schedule": "schedule_id", "execution": "execution_id", "token": "token"}
UNIQUE = ("name", "external_id", "email")  # numbered, so that each body makes another thing


def in_body(world: World, example: Any) -> Any:
    """The example with things that there are in the place of the things that it names."""
    if isinstance(example, dict):
        return {name: _member(world, name, value) for name, value in example.items()}
    return [in_body(world, one) for one in example] if isinstance(example, list) else example


def _member(world: World, name: str, value: Any) -> Any:
    if name in NAMED and isinstance(value, str):
        return THINGS[NAMED[name]](world)
    if name in UNIQUE and isinstance(value, str):
        world.make.count += 1
        return f"{world.make.count}{value}" if name == "email" else f"{value}_{world.make.count}"
    return in_body(world, value)


def _made(world: World, path: str, body: dict[str, Any]) -> str:
    answer = world.api.post(path, body)
    assert answer.status == 201, answer.body
    return str(answer.body["id"])
