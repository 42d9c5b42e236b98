"""Reading dead letters."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from apps.deadletters.models import DeadLetter
from kernel.ids import ID_SLACK, first_id_at
from kernel.keyset import WHOLE, Condition, Count, Listing, Order, Page, Part, Path, Position, count_read, page_read
from tenants import door
from tenants.models import Tenant

STATUSES = ("open", "replayed", "resolved")
ORDERS = {"-created_at": Order(), "created_at": Order(descending=False)}


@dataclass(frozen=True, slots=True)
class LetterFilter:
    """What a list of dead letters is asked for; None and empty ask for nothing. Times are exclusive."""

    statuses: Sequence[str] = ()
    job_id: UUID | None = None
    schedule_id: UUID | None = None
    execution_id: UUID | None = None
    fingerprint: str | None = None
    error_class: str | None = None
    created_after: datetime | None = None
    created_before: datetime | None = None
    resolved_after: datetime | None = None
    resolved_before: datetime | None = None


def deadletters_read(
    tenant: Tenant, wanted: LetterFilter, *, order: str = "-created_at", after: Position | None = None, size: int
) -> Page[DeadLetter]:
    """Dead letters in an order of ORDERS."""
    found = page_read(door.raw(), tenant.schema_name, _listing(wanted, order), size=size, after=after)
    letters = DeadLetter.objects.in_bulk([row[0] for row in found.rows])
    return Page([letters[row[0]] for row in found.rows if row[0] in letters], found.after)


def deadletters_ids(tenant: Tenant, wanted: LetterFilter, *, after: Position | None = None, size: int) -> Page[UUID]:
    """Only their ids, oldest first."""
    found = page_read(door.raw(), tenant.schema_name, _listing(wanted, "created_at"), size=size, after=after)
    return Page([row[0] for row in found.rows], found.after)


def deadletters_count(tenant: Tenant, wanted: LetterFilter) -> Count:
    """How many there are; see `kernel.keyset.count_read`."""
    return count_read(door.raw(), tenant.schema_name, _listing(wanted, "-created_at"))


def _listing(wanted: LetterFilter, order: str) -> Listing:
    rest = _conditions(wanted)
    paths: dict[str, Path] = {}
    for name, column, value in (
        ("execution", "e.execution_id", wanted.execution_id),
        ("schedule", "e.schedule_id", wanted.schedule_id),
        ("job", "e.job_id", wanted.job_id),
    ):
        if value is not None:
            paths[name] = Path((Part((Condition(f"{column} IS NOT NULL"),), column, value),))
    if list(wanted.statuses) == ["open"]:
        paths["status"] = Path((Part((rest["status"],)),))
        if wanted.fingerprint is not None:
            paths = {"fingerprint": Path((Part((rest["fingerprint"], rest["status"])),))}
    if len(paths) == 1:
        rest.pop(next(iter(paths)))
    bounds: list[Condition] = []
    if wanted.created_after is not None:
        bounds.append(Condition("e.id > %s", (first_id_at(wanted.created_after - ID_SLACK),)))
    before = [one for one in (wanted.created_before, wanted.resolved_before) if one is not None]
    if before:
        bounds.append(Condition("e.id < %s", (first_id_at(min(before) + ID_SLACK),)))
    return Listing(
        table="{schema}.deadletters_deadletter", columns="e.id", rest=tuple(rest.values()), order=ORDERS[order],
        paths=tuple(path.within(*bounds) for path in paths.values() or (WHOLE,)),
    )  # fmt: skip


def _conditions(wanted: LetterFilter) -> dict[str, Condition]:
    """What each row must fulfil, by name."""
    found: dict[str, Condition] = {}
    if list(wanted.statuses) == ["open"]:
        found["status"] = Condition("e.resolved_at IS NULL")
    elif wanted.statuses:
        kept = ["" if status == "open" else status for status in wanted.statuses]
        found["status"] = Condition("e.resolution = ANY(%s)", (kept,))
    for name, text, value in (
        ("job", "e.job_id = %s", wanted.job_id),
        ("schedule", "e.schedule_id = %s", wanted.schedule_id),
        ("execution", "e.execution_id = %s", wanted.execution_id),
        ("fingerprint", "e.fingerprint = %s", wanted.fingerprint),
        ("error_class", "e.error ->> 'class' = %s", wanted.error_class),
        ("created_after", "e.created_at > %s", wanted.created_after),
        ("created_before", "e.created_at < %s", wanted.created_before),
        ("resolved_after", "e.resolved_at > %s", wanted.resolved_after),
        ("resolved_before", "e.resolved_at < %s", wanted.resolved_before),
    ):
        if value is not None:
            found[name] = Condition(text, (value,))
    return found
