"""What became of an occurrence, and whether a backfill wants it. Pure.

The newest record of an occurrence counts: a later run of the same instant takes the place of an earlier one, unless it
never began. One record may stand for many occurrences that did not run.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Literal, NamedTuple
from uuid import UUID

from kernel.transitions import FINAL_STATES

Only = Literal["missing", "failed", "all"]
ONLY: tuple[Only, ...] = ("missing", "failed", "all")
Standing = Literal["missing", "failed", "ran", "alive", "due", "not_known"]
STANDINGS: tuple[Standing, ...] = ("missing", "failed", "ran", "alive", "due", "not_known")
WANTED: dict[str, tuple[Standing, ...]] = {
    "missing": ("missing",),
    "failed": ("failed",),
    "all": ("missing", "failed", "ran", "not_known"),
}


class Record(NamedTuple):
    """An execution of one occurrence, or a row that says why those from `nominal_at` to `until_at` did not run."""

    id: UUID
    nominal_at: datetime
    until_at: datetime | None
    state: str
    attempts: int


class Known(NamedTuple):
    """Between which instants the records tell the whole truth.

    What lies before `created_at` never was an occurrence. Records from before `kept_from` may be gone (None: none are).
    From `due_from` on it is for the dispatcher to fire what there is.
    """

    created_at: datetime
    kept_from: datetime | None
    due_from: datetime | None


def latest(instants: Sequence[datetime], records: Iterable[Record]) -> dict[datetime, Record]:
    """Of these instants, in ascending order, those with a record, and the one that counts of each.

    It is the newest; what ended before its first attempt (a backfill that was taken back) counts only where nothing
    else is.
    """
    found: dict[datetime, Record] = {}
    for record in sorted(records, key=lambda one: (not _never_began(one), one.id)):  # ids grow with time
        last = record.nominal_at if record.until_at is None else record.until_at
        for at in instants[bisect_left(instants, record.nominal_at) : bisect_right(instants, last)]:
            found[at] = record
    return found


def standing(at: datetime, record: Record | None, known: Known) -> Standing:
    """How an occurrence stands. What ended without one attempt never ran: it is missing."""
    if known.due_from is not None and at >= known.due_from:
        return "due"
    if record is None:
        gone = known.kept_from is not None and known.created_at <= at < known.kept_from
        return "not_known" if gone else "missing"
    if record.state not in FINAL_STATES:
        return "alive"
    if record.state == "succeeded":
        return "ran"
    return "missing" if _never_began(record) else "failed"


def wants(only: str, how: Standing) -> bool:
    """Whether a backfill of this sort makes a run of an occurrence that stands so."""
    return how in WANTED[only]


def _never_began(record: Record) -> bool:
    return record.state in FINAL_STATES and record.state not in ("succeeded", "dead") and not record.attempts
