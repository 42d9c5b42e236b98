"""What a schedule's runs meet, from the forecast as this process has seen it last."""

from datetime import datetime, timedelta
from typing import Any, NamedTuple

import psycopg

from apps.due import forecast
from apps.schedules.load_hints import Hint, Minutes, Quieter, hint
from apps.schedules.timing import Spec
from kernel.glance import Glance

Conn = psycopg.Connection[Any]
GLANCE_S = 5.0
USABLE = timedelta(hours=2)  # an older forecast says nothing


class LoadHint(NamedTuple):
    """A hint, and when the forecast was made that it comes from."""

    as_of: datetime
    hint: Hint


def minutes_read(conn: Conn, now: datetime) -> tuple[datetime, Minutes] | None:
    """When the forecast was made, and the minutes from now on; None when there is none that is of use."""
    total = forecast.read(conn)
    if total is None or abs(now - total.made_at) > USABLE:
        return None
    return total.made_at, Minutes(total.of_minutes(now))


glance = Glance(minutes_read, first=None, for_s=GLANCE_S)


def load_hint(conn: Conn, spec: Spec, *, key: str, now: datetime) -> LoadHint | None:
    """Where the next runs of a schedule fall; None where nothing is known of it, or it does not run within a day."""
    known = glance.take(conn, now)
    if known is None:
        return None
    found = hint(spec, key=key, minutes=known[1], after=now)
    return None if found is None else LoadHint(known[0], found)


def hint_shape(told: LoadHint) -> dict[str, Any]:
    """As answers have it."""
    hint = told.hint
    return {
        "as_of": told.as_of, "level": hint.level, "minute": hint.at, "times_usual": hint.times_usual,
        "quieter": _quieter(hint.quieter), "jitter": _quieter(hint.jitter),
    }  # fmt: skip


def _quieter(one: Quieter | None) -> dict[str, Any] | None:
    return None if one is None else {"change": one.changes, "minute": one.at, "times_usual": one.times_usual}
