"""What a backfill would do, before anybody says yes: how many runs, from when to when, until when, at which cost."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import NamedTuple
from uuid import UUID

from apps.due import entries
from apps.operations.backfill.dispositions import known_of, records
from apps.operations.backfill.forecast import Pace, Use, expected_end, uses
from apps.operations.backfill.live import typical_s
from apps.operations.backfill.recognising import Standing, standing, wants
from apps.operations.backfill.segments import NOW, Segment, of_then, page
from apps.operations.backfill.wish import Wish
from apps.schedules.defined import DefinedJob, definition_of, version_of
from apps.schedules.history_store import history_read
from apps.schedules.models import Schedule
from apps.schedules.timing import Spec, spec_from_json
from apps.schedules.timing_triggers import instant_text
from apps.usage import counting
from apps.usage.admitting import live_of as alive_of_tenant
from kernel.errors import NotFound
from tenants import door
from tenants.models import Tenant

PAGE = 5_000
SAMPLE = 20


class Scheduled(NamedTuple):
    """A schedule as it is now, with its timing and its job."""

    schedule: Schedule
    spec: Spec
    job: DefinedJob
    due_from: datetime | None  # the occurrence that its due entry stands for
    due_at: datetime | None  # when that one is due


@dataclass(slots=True)
class Outlook:
    """`standings` counts all occurrences of the range; `count` those that would run, `first` and `last` in time."""

    standings: Counter[Standing] = field(default_factory=Counter)
    count: int = 0
    first: datetime | None = None
    last: datetime | None = None
    sample: list[datetime] = field(default_factory=list)
    expected_end: datetime | None = None
    run_s: float | None = None
    uses: list[Use] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)


def scheduled(schedule_id: UUID) -> Scheduled:
    """NotFound when there is none. In the tenant."""
    schedule = Schedule.objects.select_related("job").filter(pk=schedule_id, deleted_at=None).first()
    if schedule is None:
        raise NotFound("There is no such schedule.")
    due_from, due_at = entries.next_of(door.raw(), [schedule_id]).get(schedule_id, (None, None))
    return Scheduled(
        schedule, spec_from_json(version_of(schedule).spec), DefinedJob(schedule.job, definition_of(schedule.job)),
        due_from, due_at,
    )  # fmt: skip


def segments_of(tenant: Tenant, found: Scheduled, wish: Wish) -> list[Segment]:
    """What decides in the parts of the wish's range. In the tenant."""
    if wish.definition == NOW:
        return [Segment(found.spec, wish.within, found.schedule.version)]
    history = history_read(door.raw(), tenant.schema_name, wish.schedule_id)
    return [] if history is None else of_then(history, wish.within)


def stood(
    tenant: Tenant, wish: Wish, found: Scheduled, instants: Sequence[datetime]
) -> Iterator[tuple[datetime, Standing]]:
    """How each of these occurrences stands now, in their order."""
    known = known_of(tenant, found.schedule, found.due_from)
    of = records(door.raw(), tenant, wish.schedule_id, instants)
    for at in instants:
        yield at, standing(at, of.get(at), known)


def outlook(
    tenant: Tenant, wish: Wish, found: Scheduled, *, at_once: int, rate_per_s: float | None, now: datetime
) -> Outlook:
    """Looks at each occurrence of the range; writes nothing. In the tenant."""
    answer, after, segments = Outlook(), None, segments_of(tenant, found, wish)
    while instants := page(segments, order=wish.order, after=after, size=PAGE):
        after = instants[-1]
        for at, how in stood(tenant, wish, found, instants):
            answer.standings[how] += 1
            if wants(wish.only, how):
                _add(answer, at)
    _foresee(answer, tenant, wish, found, at_once=at_once, rate_per_s=rate_per_s, now=now)
    answer.warnings += _warnings(answer, tenant, wish, found)
    return answer


def places(tenant: Tenant, wish: Wish, found: Scheduled, at_once: int) -> int:
    """How many runs go at once at most, whatever others want."""
    limits = (at_once, found.job.definition.max_concurrency, tenant.plan.max_running)
    return 1 if wish.serial else max(1, min(limit for limit in limits if limit is not None))


def per_day_of(tenant: Tenant, *, now: datetime) -> tuple[int, int] | None:
    """The plan's limit of runs in a day, and how many this day has; None for no limit."""
    limit = tenant.plan.max_runs_per_day
    return None if limit is None else (limit, counting.used(door.raw(), tenant.pk, now=now))


def _add(answer: Outlook, at: datetime) -> None:
    answer.count += 1
    answer.first = at if answer.first is None else min(answer.first, at)
    answer.last = at if answer.last is None else max(answer.last, at)
    if len(answer.sample) < SAMPLE:
        answer.sample.append(at)


def _foresee(
    answer: Outlook, tenant: Tenant, wish: Wish, found: Scheduled, *, at_once: int, rate_per_s: float | None,
    now: datetime,
) -> None:  # fmt: skip
    conn, plan = door.raw(), tenant.plan
    per_day, live = per_day_of(tenant, now=now), None
    if plan.max_live is not None:
        live = (plan.max_live, alive_of_tenant(conn, tenant.pk, most=plan.max_live))
    answer.run_s = typical_s(conn, tenant.schema_name, found.schedule.job_id)
    pace = Pace(answer.run_s, places(tenant, wish, found, at_once), rate_per_s)
    answer.expected_end = expected_end(answer.count, pace, now=now, per_day=per_day)
    answer.uses = uses(answer.count, at_once=pace.at_once, per_day=per_day, live=live)


def _warnings(answer: Outlook, tenant: Tenant, wish: Wish, found: Scheduled) -> list[str]:
    said = []
    if not answer.count:
        said.append("Nothing is to be run.")
    if unknown := answer.standings["not_known"]:
        kept = known_of(tenant, found.schedule, None).kept_from
        since = "" if kept is None else f" before {instant_text(kept.replace(microsecond=0))}"
        what = "they run again" if wish.only == "all" else "they are left out; 'all' runs them"
        said.append(f"Of {unknown:,} occurrences nothing is known, since history{since} is deleted: {what}.")
    if due := answer.standings["due"]:
        said.append(f"{due:,} occurrences are still due by themselves; they are left to the schedule.")
    if alive := answer.standings["alive"]:
        said.append(f"{alive:,} occurrences run or wait right now; they are left alone.")
    if wish.serial and answer.count > 1:
        said.append("Runs of this schedule never overlap: one runs at a time.")
    if found.schedule.job.paused_at is not None:
        said.append("What is run is paused: the runs wait until it is resumed.")
    if answer.count and answer.run_s is None:
        said.append("None of these has succeeded lately, so when it ends can't be said.")
    said += [
        f"The plan's {use.quota} is {use.limit:,}, and {use.room:,} are left: what finds no room waits."
        for use in answer.uses
        if not use.enough
    ]
    return said
