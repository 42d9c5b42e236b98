"""A second opinion on wall times: instants of a wall time by asking zoneinfo for both folds, changes by halving."""

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

from tests.schedules.walk import CORRECTION

SECOND = timedelta(seconds=1)


def instants_of(wall: datetime, zone: ZoneInfo, *, gap: str, fold: str) -> list[datetime]:
    """None, one or two instants of a naive wall time."""
    passes = [wall.replace(tzinfo=zone, fold=number).astimezone(UTC) for number in (0, 1)]
    found = sorted({at for at in passes if wall_of(at, zone) == wall})
    if not found:
        return after_gap(min(passes), max(passes), zone) if gap == "run_after" else []
    return found if fold == "both" else found[:1] if fold == "first" else found[-1:]


def after_gap(low: datetime, high: datetime, zone: ZoneInfo) -> list[datetime]:
    """The first whole minute after the change between two instants; none after three hours or more."""
    before = low.astimezone(zone).utcoffset()
    while high - low > SECOND:
        middle = low + (high - low) // SECOND // 2 * SECOND
        low, high = (middle, high) if middle.astimezone(zone).utcoffset() == before else (low, middle)
    jump = wall_of(high, zone) - wall_of(low, zone) - SECOND
    if jump >= CORRECTION:
        return []
    while wall_of(high, zone).second:
        high += SECOND
    return [high]


def wall_of(at: datetime, zone: ZoneInfo) -> datetime:
    return at.astimezone(zone).replace(tzinfo=None, fold=0)
