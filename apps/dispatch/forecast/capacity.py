"""How many runs a minute the workers that are alive can carry, from the last measurement."""

from collections.abc import Iterable
from typing import Any, NamedTuple, Protocol

import psycopg

from apps.dispatch.pressure.gauging import pools_of
from apps.usage import pressure
from kernel.pools import CELERY_POOLS

Conn = psycopg.Connection[Any]
RUN_MIN_S = 0.001  # no run counts as shorter


class Pool(Protocol):
    """What of a pool and group of workers says how much it gets done."""

    @property
    def pool(self) -> str: ...
    @property
    def slots(self) -> int: ...
    @property
    def run_s(self) -> float: ...


class Capacity(NamedTuple):
    """Of all pools of workers together. `guessed`: in some of them it is not known yet how long a run takes."""

    per_minute: float
    slots: int
    guessed: bool


def capacity_read(conn: Conn) -> Capacity | None:
    """None where nobody measures, or no worker is alive."""
    measured = pressure.read(conn)
    if measured is None or measured.stale:
        return None
    rows = [row for row in pools_of(measured.figures) if row.pool in CELERY_POOLS and row.slots]
    if not rows:
        return None
    return Capacity(per_minute(rows), sum(row.slots for row in rows), any(not row.known for row in rows))


def per_minute(pools: Iterable[Pool]) -> float:
    """What all slots of workers get done. A run takes one for as long as it did lately."""
    return sum(one.slots * 60 / max(one.run_s, RUN_MIN_S) for one in pools if one.pool in CELERY_POOLS)
