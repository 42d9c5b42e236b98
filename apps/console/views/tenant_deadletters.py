"""A tenant's dead letters: what is open by cause, the list of all, one cause and one letter."""

from __future__ import annotations

from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

from django.http import HttpRequest

from apps.audit.models import AuditEvent
from apps.audit.shown import shown
from apps.console.assigning import Assigned, assigned
from apps.console.chips import chips
from apps.console.letters import chart, fingerprint_of, since, spark, window_chips, window_of
from apps.console.middleware import tenant_of
from apps.console.pages import TENANT, page
from apps.console.shown import masked
from apps.deadletters.groups import Group, group_read, groups_read
from apps.deadletters.models import DeadLetter
from apps.deadletters.reading import STATUSES, LetterFilter, deadletters_read
from apps.deadletters.replays import replays_of
from apps.outcomes.again import MAX_REPLAYS
from apps.presenting.paging import CURSOR, as_uuid, paged, position_of
from apps.presenting.shown import error_line
from apps.schedules.names import names_of
from apps.usage import failures
from kernel.errors import NotFound
from kernel.keyset import Position
from tenants import door
from tenants.models import Tenant

GROUPS = 50
ROWS = 50
CLASS_CHARS = 100
AUDIT_ROWS = 20


class GroupLine(NamedTuple):
    """A group of open letters: what it says, of which job the newest is, its shape, and who sees to it."""

    group: Group
    words: str
    job: str
    spark: str
    who: Assigned | None


class LetterLine(NamedTuple):
    """A row of the list."""

    letter: DeadLetter
    state: str
    words: str
    job: str


@page("deadletters", "dead-letters/", title="Dead letters", template="console/tenant_deadletters.html", site=TENANT)
def groups(request: HttpRequest, now: datetime) -> dict[str, Any]:
    """What is open, by cause: those with the most first on each page."""
    tenant, window = tenant_of(request), window_of(request)
    after = fingerprint_of(request.GET.get(CURSOR, ""))
    found = groups_read(tenant, after=Position(UUID(int=0), after) if after else None, size=GROUPS)
    lines = _group_lines(tenant, found.rows, request, now)
    next_after = found.after.value if found.after else None
    return {
        "listed": paged(request, lines, after=next_after), "window": window, "windows": window_chips(request, window),
        "letters": sum(one.letters for one in found.rows), "exact": all(one.is_exact for one in found.rows),
    }  # fmt: skip


@page("letters", "dead-letters/list/", title="Dead letters, one by one", place="deadletters",
      template="console/tenant_letters.html", site=TENANT)  # fmt: skip
def letters(request: HttpRequest, now: datetime) -> dict[str, Any]:
    """The newest first; by state, time, job, cause and class."""
    tenant, window = tenant_of(request), window_of(request)
    status = request.GET.get("status", "open")
    status = status if status in (*STATUSES, "all") else "open"
    fingerprint = fingerprint_of(request.GET.get("cause", "").strip())
    error_class = request.GET.get("class", "").strip()[:CLASS_CHARS]
    job = as_uuid(request.GET.get("job", ""))
    wanted = LetterFilter(
        statuses=[status] if status in STATUSES else [], job_id=job, fingerprint=fingerprint or None,
        error_class=error_class or None, created_after=since(window, now),
    )  # fmt: skip
    found = deadletters_read(tenant, wanted, after=position_of(request), size=ROWS)
    return {
        "listed": paged(request, _letter_lines(found.rows), after=found.after and found.after.id),
        "chosen": status, "statuses": chips(request, "status", [(one, one) for one in (*STATUSES, "all")],
                                            chosen=status),
        "windows": window_chips(request, window), "window": window,
        "given": {"cause": fingerprint, "class": error_class, "job": str(job) if job else ""},
    }  # fmt: skip


@page("cause", "dead-letters/causes/<str:fingerprint>/", title="Cause", place="deadletters",
      template="console/tenant_cause.html", site=TENANT)  # fmt: skip
def cause(request: HttpRequest, now: datetime, fingerprint: str) -> dict[str, Any]:
    """One cause: what is open of it, when it happened, and who sees to it."""
    tenant, window, known = tenant_of(request), window_of(request), fingerprint_of(fingerprint)
    group = group_read(tenant, known) if known else None
    past = failures.groups(
        door.raw(), step=window.step, since=since(window, now), tenant_id=tenant.pk, fingerprint=known or "-"
    ).groups
    newest = deadletters_read(tenant, LetterFilter(fingerprint=known or "-"), size=AUDIT_ROWS).rows
    if group is None and not past and not newest:
        raise NotFound("There is no such cause here.")
    seen_to = assigned([known], tenant_id=tenant.pk).get((tenant.pk, known))
    return {
        "fingerprint": known, "group": group, "past": past[0] if past else None, "who": seen_to,
        "words": error_line(masked((group.error if group else newest[0].error) if group or newest else None)),
        "cause": past[0].cause if past else None, "window": window, "windows": window_chips(request, window),
        "chart": chart(past[0], window=window, now=now) if past else "", "rows": _letter_lines(newest),
        "none_open": "" if group else "Nothing of it is open.",
    }  # fmt: skip


@page("letter", "dead-letters/<uuid:letter_id>/", title="Dead letter", place="deadletters",
      template="console/tenant_letter.html", site=TENANT)  # fmt: skip
def letter(request: HttpRequest, now: datetime, letter_id: UUID) -> dict[str, Any]:
    """One dead letter, with what became of it."""
    tenant = tenant_of(request)
    found = DeadLetter.objects.filter(pk=letter_id).first()
    if found is None:
        raise NotFound("There is no such dead letter.")
    names = names_of(jobs=[found.job_id], schedules=[found.schedule_id] if found.schedule_id else [])
    rows = AuditEvent.objects.filter(tenant_id=tenant.pk, object_type="dead_letter", object_id=str(found.pk))
    return {
        "letter": found, "state": found.resolution or "open", "words": error_line(masked(found.error)),
        "error": masked(found.error), "job": names.jobs.get(found.job_id, "a job that is gone"),
        "schedule": names.schedules.get(found.schedule_id, "") if found.schedule_id else "",
        "replays": replays_of(door.raw(), tenant.schema_name, [found.execution_id]).get(found.execution_id, 0),
        "replays_most": MAX_REPLAYS, "closed": f"It was {found.resolution} already." if found.resolved_at else "",
        "audit": shown(rows.order_by("-pk")[:AUDIT_ROWS], seals=False),
    }  # fmt: skip


def _group_lines(tenant: Tenant, rows: list[Group], request: HttpRequest, now: datetime) -> list[GroupLine]:
    window = window_of(request)
    names = names_of(jobs=[one.job_id for one in rows])
    who = assigned([one.fingerprint for one in rows], tenant_id=tenant.pk)
    past = failures.groups(
        door.raw(), step=window.step, since=since(window, now), most=500, by="letters", tenant_id=tenant.pk
    ).groups
    shapes = {one.fingerprint: spark(one, window=window, now=now, letters=True) for one in past}
    lines = [
        GroupLine(
            one, error_line(masked(one.error)), names.jobs.get(one.job_id, "a job that is gone"),
            shapes.get(one.fingerprint, ""), who.get((tenant.pk, one.fingerprint)),
        )
        for one in rows
    ]  # fmt: skip
    return sorted(lines, key=lambda line: (-line.group.letters, line.group.fingerprint))


def _letter_lines(rows: list[DeadLetter]) -> list[LetterLine]:
    names = names_of(jobs=[one.job_id for one in rows])
    return [
        LetterLine(
            one, one.resolution or "open", error_line(masked(one.error)),
            names.jobs.get(one.job_id, "a job that is gone"),
        )
        for one in rows
    ]  # fmt: skip
