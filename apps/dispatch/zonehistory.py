"""The changes of zone data that an installation has gone through: where the rules of then differ from those of now."""

import zlib
from collections.abc import Collection
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Any

import psycopg

from apps.dispatch.completeness.expecting import ZoneChange
from apps.schedules.timing_zones import EPOCH, MAX_S, MIN_S, Offsets, offsets_of, zone_offsets

Conn = psycopg.Connection[Any]
Span = tuple[datetime, datetime]
REMEMBERED = 256
_SECOND = timedelta(seconds=1)


def zone_changes(conn: Conn, zones: Collection[str]) -> list[ZoneChange]:
    """All changes of these zones, oldest first."""
    if not zones:
        return []
    rows = conn.execute("SELECT zone, at, file FROM due_zonechange WHERE zone = ANY(%s) ORDER BY at", [list(zones)])
    return [_change(zone, at, bytes(file)) for zone, at, file in rows]


def differing(old: Offsets, new: Offsets, low: datetime, high: datetime) -> list[Span]:
    """Where in [low, high) two sets of rules say different offsets."""
    at_s, end_s = max(MIN_S, (low - EPOCH) // _SECOND), min(MAX_S, -((EPOCH - high) // _SECOND))
    found: list[tuple[int, int]] = []
    while at_s < end_s:
        one, other = old.index(at_s), new.index(at_s)
        until_s = min(old.end(one), new.end(other), end_s)
        if old.offsets[one] != new.offsets[other]:
            if found and found[-1][1] == at_s:
                found[-1] = (found[-1][0], until_s)
            else:
                found.append((at_s, until_s))
        at_s = until_s
    return [(EPOCH + first * _SECOND, EPOCH + last * _SECOND) for first, last in found]


def _change(zone: str, at: datetime, file: bytes) -> ZoneChange:
    return ZoneChange(zone, at, lambda low, high: differing(_offsets(zone, file), zone_offsets(zone), low, high))


@lru_cache(maxsize=REMEMBERED)
def _offsets(zone: str, file: bytes) -> Offsets:
    return offsets_of(zone, zlib.decompress(file))
