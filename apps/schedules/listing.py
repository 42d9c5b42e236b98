"""Lists of jobs and schedules: what they may be asked for, and by which indexes they are read."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from uuid import UUID

import orjson

from apps.schedules.defined import DefinedJob, DefinedSchedule
from apps.schedules.models import Job
from apps.schedules.reading import jobs_defined, schedules_with
from kernel.keyset import Condition, Count, Listing, Order, Page, Part, Path, Position, count_read, page_read
from kernel.pools import WORKFLOW
from tenants import door
from tenants.models import Tenant

ORDERS: Mapping[str, Order] = {
    "-created_at": Order(),
    "created_at": Order(descending=False),
    "name": Order("lower(e.name)", "text", descending=False),
    "-name": Order("lower(e.name)", "text"),
}
MOST_NAMED = 10_000  # jobs that a part of a name may stand for in lists of their runs


@dataclass(frozen=True, slots=True)
class DefinitionFilter:
    """What a list of jobs or schedules is asked for; None and empty ask for nothing. Times are exclusive."""

    name: str | None = None  # a part of it, case does not count
    external_id: str | None = None
    kinds: Sequence[str] = ()  # of jobs; empty is all but workflows
    job_id: UUID | None = None  # of schedules
    statuses: Sequence[str] = ()
    labels: Mapping[str, str] = field(default_factory=dict)
    created_after: datetime | None = None
    created_before: datetime | None = None


def jobs_read(
    tenant: Tenant, wanted: DefinitionFilter, *, order: str = "-created_at", after: Position | None = None, size: int
) -> Page[DefinedJob]:
    """Jobs with their current versions, in an order of ORDERS."""
    found = page_read(door.raw(), tenant.schema_name, _of_jobs(wanted, order), size=size, after=after)
    jobs = Job.objects.in_bulk([row[0] for row in found.rows])
    return Page(jobs_defined([jobs[row[0]] for row in found.rows if row[0] in jobs]), found.after)


def workflows_read(
    tenant: Tenant, wanted: DefinitionFilter, *, order: str = "-created_at", after: Position | None = None, size: int
) -> Page[Job]:
    """Workflows without their versions, in an order of ORDERS; `wanted` must ask for their kind."""
    found = page_read(door.raw(), tenant.schema_name, _of_jobs(wanted, order), size=size, after=after)
    jobs = Job.objects.in_bulk([row[0] for row in found.rows])
    return Page([jobs[row[0]] for row in found.rows if row[0] in jobs], found.after)


def jobs_ids(tenant: Tenant, wanted: DefinitionFilter, *, after: Position | None = None, size: int) -> Page[UUID]:
    """Only their ids, oldest first."""
    found = page_read(door.raw(), tenant.schema_name, _of_jobs(wanted, "created_at"), size=size, after=after)
    return Page([row[0] for row in found.rows], found.after)


def schedules_ids(
    tenant: Tenant, wanted: DefinitionFilter, *, now: datetime, after: Position | None = None, size: int
) -> Page[UUID]:
    """Only their ids, oldest first."""
    found = page_read(door.raw(), tenant.schema_name, _of_schedules(wanted, "created_at", now), size=size, after=after)
    return Page([row[0] for row in found.rows], found.after)


def jobs_count(tenant: Tenant, wanted: DefinitionFilter) -> Count:
    """How many there are; see `kernel.keyset.count_read`."""
    return count_read(door.raw(), tenant.schema_name, _of_jobs(wanted, "-created_at"))


def schedules_read(
    tenant: Tenant, wanted: DefinitionFilter, *, now: datetime, order: str = "-created_at",
    after: Position | None = None, size: int,
) -> Page[DefinedSchedule]:  # fmt: skip
    """Schedules with their current versions and jobs, in an order of ORDERS."""
    found = page_read(door.raw(), tenant.schema_name, _of_schedules(wanted, order, now), size=size, after=after)
    return Page(schedules_with([row[0] for row in found.rows]), found.after)


def schedules_count(tenant: Tenant, wanted: DefinitionFilter, *, now: datetime) -> Count:
    """How many there are; see `kernel.keyset.count_read`."""
    return count_read(door.raw(), tenant.schema_name, _of_schedules(wanted, "-created_at", now))


def jobs_named(part: str) -> list[UUID] | None:
    """The jobs with a part of their name, deleted ones too; None for more than MOST_NAMED."""
    found = list(Job.objects.filter(name__icontains=part).values_list("pk", flat=True)[: MOST_NAMED + 1])
    return found if len(found) <= MOST_NAMED else None


def _of_jobs(wanted: DefinitionFilter, order: str) -> Listing:
    rest = _common(wanted)
    if wanted.kinds:
        rest.append(Condition("e.kind = ANY(%s)", (list(wanted.kinds),)))
    else:
        rest.append(Condition("e.kind <> %s", (WORKFLOW,)))
    if len(set(wanted.statuses)) == 1:
        rest.append(Condition("e.paused_at IS NULL" if "active" in wanted.statuses else "e.paused_at IS NOT NULL"))
    return Listing(
        table="{schema}.schedules_job", columns="e.id", rest=tuple(rest), paths=_paths(wanted), order=ORDERS[order]
    )


def _of_schedules(wanted: DefinitionFilter, order: str, now: datetime) -> Listing:
    rest = _common(wanted)
    if wanted.job_id is not None:
        rest.append(Condition("e.job_id = %s", (wanted.job_id,)))
    if wanted.statuses:
        rest.append(_status(wanted.statuses, now))
    return Listing(
        table="{schema}.schedules_schedule", columns="e.id", rest=tuple(rest), paths=_paths(wanted),
        order=ORDERS[order],
    )  # fmt: skip


def _paths(wanted: DefinitionFilter) -> tuple[Path, ...]:
    """What is not deleted by the list's own order, and before that what is narrower."""
    live = Condition("e.deleted_at IS NULL")
    whole = Path((Part((live,)),), sparse=False)
    for text, value in (("e.external_id = %s", wanted.external_id), ("e.job_id = %s", wanted.job_id)):
        if value is not None:
            return Path((Part((live, Condition(text, (value,)))),), ordered=False), whole
    return (whole,)


def _common(wanted: DefinitionFilter) -> list[Condition]:
    found: list[Condition] = []
    if wanted.name is not None:
        found.append(Condition("strpos(lower(e.name), lower(%s)) > 0", (wanted.name,)))
    if wanted.external_id is not None:
        found.append(Condition("e.external_id = %s", (wanted.external_id,)))
    if wanted.labels:
        found.append(Condition("e.labels @> %s::jsonb", (orjson.dumps(dict(wanted.labels)).decode(),)))
    if wanted.created_after is not None:
        found.append(Condition("e.created_at > %s", (wanted.created_after,)))
    if wanted.created_before is not None:
        found.append(Condition("e.created_at < %s", (wanted.created_before,)))
    return found


def _status(statuses: Sequence[str], now: datetime) -> Condition:
    """Stored status, but a pause may be over, and an active one without an entry has fired for the last time."""
    woken = "(e.status = 'paused' AND e.resume_at IS NOT NULL AND e.resume_at <= %s)"
    active = f"(e.status = 'active' OR {woken})"
    has_entry = "EXISTS (SELECT FROM due_dueentry d WHERE d.key = e.id)"
    paused = "EXISTS (SELECT FROM {schema}.schedules_job j WHERE j.id = e.job_id AND j.paused_at IS NOT NULL)"
    texts = {
        "active": f"({active} AND ({has_entry} OR {paused}))",
        "completed": f"(e.status = 'completed' OR ({active} AND NOT {has_entry} AND NOT {paused}))",
        "paused": f"(e.status = 'paused' AND NOT {woken})",
    }
    chosen = [texts[status] for status in statuses]
    return Condition(" OR ".join(chosen), (now,) * len(chosen))
