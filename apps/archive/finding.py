"""What the API and the console show of archives: executions that have left the tables, as they were in them."""

from datetime import datetime
from typing import NamedTuple
from uuid import UUID

from apps.archive.reading import Archived, archived_execution, archived_range
from apps.deadletters.models import DeadLetter
from apps.deadletters.reading import LetterFilter
from apps.executions import erasures
from apps.executions.filtering import ExecutionFilter
from apps.executions.reading import ExecutionRow, execution_read
from apps.executions.reading_attempts import AttemptRow
from kernel.keyset import Page, Position
from tenants import door
from tenants.models import Tenant


class Found(NamedTuple):
    """An execution, wherever it is."""

    row: ExecutionRow  # with its live state, or as it was when it was archived
    archived: Archived | None  # None while it is in the tables


def execution_anywhere(tenant: Tenant, execution_id: UUID) -> Found | None:
    """From the tables, else from its archive, whose files are read once. Errors as of `execution_find`."""
    row = execution_read(tenant, execution_id)
    if row is not None:
        return Found(row, None)
    archived = execution_find(tenant, execution_id)
    return None if archived is None else Found(archived.execution, archived)


def execution_find(tenant: Tenant, execution_id: UUID) -> Archived | None:
    """One archived execution with all that goes with it. ArchiveOff, ArchiveUnreachable, ArchiveDamaged."""
    found = archived_execution(tenant, execution_id)
    if found is None:
        return None
    erased = erasures.of(door.raw(), tenant.schema_name, [execution_id]).get(execution_id)
    row = found.execution._replace(archived_at=found.archived_at)
    if erased is None:
        return found._replace(execution=row)
    return found._replace(execution=_blank(row, erased), attempts=[], letters=[])


def executions_find(
    tenant: Tenant, wanted: ExecutionFilter, *, after: Position | None, size: int
) -> Page[ExecutionRow]:  # fmt: skip
    """Archived executions that fit, newest first; a page may be short, or empty, before the last one."""
    page = archived_range(tenant, wanted, after=after, size=size)
    erased = erasures.of(door.raw(), tenant.schema_name, [row.id for row in page.rows])
    return Page([_blank(row, erased[row.id]) if row.id in erased else row for row in page.rows], page.after)


def attempts_find(found: Archived, *, before: int | None, size: int) -> Page[AttemptRow]:
    """The attempts of an archived execution by descending number. Positions of this list hold numbers."""
    rows = [one for one in found.attempts if before is None or one.number < before]
    more = len(rows) > size
    return Page(rows[:size], Position(UUID(int=rows[size - 1].number)) if more else None)


def letters_find(found: Archived, wanted: LetterFilter) -> list[DeadLetter]:
    """The dead letters of an archived execution that fit, newest first: one for each time that it died."""
    fitting = [one for one in found.letters if _fits(one, wanted)]
    return sorted(fitting, key=lambda one: one.pk, reverse=True)


def _fits(letter: DeadLetter, wanted: LetterFilter) -> bool:
    error = letter.error if isinstance(letter.error, dict) else {}
    times = (
        (letter.created_at, wanted.created_after, wanted.created_before),
        (letter.resolved_at, wanted.resolved_after, wanted.resolved_before),
    )
    return (
        (not wanted.statuses or (letter.resolution or "open") in wanted.statuses)
        and wanted.fingerprint in (None, letter.fingerprint)
        and wanted.error_class in (None, error.get("class"))
        and all(_within(*one) for one in times)
    )


def _within(at: datetime | None, after: datetime | None, before: datetime | None) -> bool:
    if after is None and before is None:
        return True
    return at is not None and (after is None or at > after) and (before is None or at < before)


def _blank(row: ExecutionRow, erased: erasures.Erased) -> ExecutionRow:
    """What is to be erased is not shown any more, also where its file is still to be written anew."""
    return row._replace(payload=None, result=None, error=None, labels=None, erased_at=erased.at)
