"""How many runs a minute the workers that are alive can carry, from the last measurement."""

from typing import NamedTuple

from apps.dispatch.pressure.gauging import pools_of
from apps.usage.pressure import Pressure
from kernel.pools import CELERY_POOLS


class Capacity(NamedTuple):
    """Of all pools of workers together. `guessed`: in some of them it is not known yet how long a run takes."""

    per_minute: float
    slots: int
    guessed: bool


def capacity_of(measured: Pressure | None) -> Capacity | None:
    """None where nobody measures, or no worker is alive. A run takes a slot for as long as it did lately."""
    if measured is None or measured.stale:
        return None
    rows = [row for row in pools_of(measured.figures) if row.pool in CELERY_POOLS and row.slots]
    if not rows:
        return None
    per_minute = sum(row.slots * 60 / max(row.run_s, 0.001) for row in rows)
    return Capacity(per_minute, sum(row.slots for row in rows), any(not row.known for row in rows))
