"""What a schedule's runs meet, from the forecast as this process has seen it last."""

import threading
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any, NamedTuple

import psycopg

from apps.due import forecast
from apps.due.forecast import DAY_MINUTES
from apps.schedules.load_hints import Hint, Minutes, Quieter, hint
from apps.schedules.timing import Spec
from kernel.clock import monotonic_s

Conn = psycopg.Connection[Any]
GLANCE_S = 5.0
USABLE = timedelta(hours=2)  # an older forecast says nothing


class LoadHint(NamedTuple):
    """A hint, and when the forecast was made that it comes from."""

    as_of: datetime
    hint: Hint


class Glance:
    """The forecast by minutes as it was at most GLANCE_S ago. Holds one, of a day."""

    def __init__(self, *, clock: Callable[[], float] = monotonic_s) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._until = float("-inf")
        self._known: tuple[datetime, Minutes] | None = None

    def take(self, conn: Conn, now: datetime) -> tuple[datetime, Minutes] | None:
        """When it was made, and the minutes from then on; None when there is none that is of use."""
        with self._lock:
            if self._clock() < self._until:
                return self._known
            self._until = self._clock() + GLANCE_S  # the others go on with what was known, whatever this read does
        total = forecast.read(conn)
        found = None
        if total is not None and abs(now - total.made_at) <= USABLE:
            found = total.made_at, Minutes(total.of_minutes(now, DAY_MINUTES))
        with self._lock:
            self._known = found
        return found

    def forget(self) -> None:
        """The next one reads it again."""
        with self._lock:
            self._until = float("-inf")


glance = Glance()


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
