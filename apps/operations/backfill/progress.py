"""How far a backfill is, day by day of its schedule's zone."""

from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from typing import Any, NamedTuple
from uuid import UUID
from zoneinfo import ZoneInfo

import psycopg

from apps.operations.backfill.within import Range
from apps.operations.states import ITEM_STATES
from apps.schedules.timing import load_zone
from tenants.statements import run_in

Conn = psycopg.Connection[Any]
DAYS_MOST = 400  # beyond that it is told month by month

# The places between the bounds are counted from 1. Zones are never asked of SQL.
_BY_PART = """
SELECT width_bucket(nominal_at, $2::timestamptz[]), state, count(*) FROM {schema}.operations_item
WHERE operation_id = $1 GROUP BY 1, 2
"""


class Part(NamedTuple):
    """A day (2026-03-29) or a month (2026-03), and how many of its occurrences are in which state."""

    name: str
    counts: dict[str, int]


def parts_of(within: Range, zone: str) -> list[tuple[str, datetime]]:
    """The days or months of a range in order, each with the instant at which it begins."""
    local = load_zone(zone)
    first = within.since.astimezone(local).date()
    last = (within.until - timedelta(microseconds=1)).astimezone(local).date()
    if (last - first).days < DAYS_MOST:
        days = [first + timedelta(days=n) for n in range((last - first).days + 1)]
        return [(day.isoformat(), _begins(day, local)) for day in days]
    months = range(first.year * 12 + first.month - 1, last.year * 12 + last.month)
    begins = [date(month // 12, month % 12 + 1, 1) for month in months]
    return [(f"{day:%Y-%m}", _begins(day, local)) for day in begins]


def progress(conn: Conn, schema: str, operation_id: UUID, within: Range, zone: str) -> list[Part]:
    """Those parts of the range that have occurrences to run, in order of time."""
    parts = parts_of(within, zone)
    rows = run_in(conn, _BY_PART, schema, [operation_id, [at for _, at in parts]]).fetchall()
    return _filled([name for name, _ in parts], rows)


def _filled(names: Sequence[str], rows: Sequence[tuple[int, str, int]]) -> list[Part]:
    found: dict[int, dict[str, int]] = {}
    for place, state, count in rows:
        found.setdefault(place, dict.fromkeys(ITEM_STATES, 0))[state] = count
    return [Part(names[place - 1], counts) for place, counts in sorted(found.items())]


def _begins(day: date, zone: ZoneInfo) -> datetime:
    """The first instant of a local day, also where its midnight is skipped."""
    return datetime(day.year, day.month, day.day, tzinfo=zone).astimezone(UTC)
