"""What a pause passes over, and what of it would run: decided by the code that fires."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from apps.schedules.defined import DefinedSchedule
from apps.schedules.policy import decide, first_due
from apps.schedules.timing import TimingInvalid, latest_between, spec_from_json


@dataclass(frozen=True, slots=True)
class Missed:
    """Occurrences of a stretch of time: how many, the first and the last, and how many of them would be made up for."""

    count: int = 0
    ends: tuple[datetime, datetime] | None = None
    made_up: int = 0


def missed_while(
    found: DefinedSchedule, *, since: datetime, until: datetime, now: datetime, catch_up: bool
) -> Missed:  # fmt: skip
    """The occurrences in (since, until]; with `catch_up` as many run as its misfire policy says at `now`."""
    key = str(found.schedule.pk)
    try:
        spec = spec_from_json(found.definition.spec)
        newest, count = latest_between(spec, after=since, until=until, limit=1)
        first = first_due(spec, key=key, after=since)
        if not count or first is None or not newest:
            return Missed()
        made_up = 0
        if catch_up:
            made_up = len(decide(spec, key=key, nominal_at=first[0], due_at=first[1], now=now).fires)
        return Missed(count, (first[0], newest[-1]), made_up)
    except TimingInvalid:  # it is put aside: nothing of it runs
        return Missed()
