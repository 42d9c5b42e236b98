"""What the page Forecast shows: a week as a heat map, an hour as columns. Values in, values out."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from typing import Any, NamedTuple

from apps.due.forecast import HOUR
from apps.presenting.charts import Column, columns
from apps.schedules.timing_zones import load_zone
from kernel.durations import span

DAY_HOURS = range(24)
FULL, OVER = 0.7, 1.0  # of what the workers can carry
FULL_WORDS = {"h4": f"above {100 * FULL:.0f} % of capacity", "h5": "above capacity"}
STEPS = (0.05, 0.3, 0.6)  # of the fullest hour


class Cell(NamedTuple):
    """One hour of the heat map. `level` is its colour, `full` what that says of the capacity, in words, where it says
    something; `marks` are the clock changes in it; `link` has its minutes."""

    runs: int
    level: str
    full: str
    text: str
    title: str
    marks: list[str]
    link: str
    chosen: bool


class Row(NamedTuple):
    """One local day; an hour that is not known, or that the clock skips, is None."""

    day: date
    cells: list[Cell | None]


def heat(
    hours: Sequence[tuple[datetime, int]], *, zone: str, capacity: float | None, changes: Sequence[dict[str, Any]],
    links: Mapping[datetime, str], chosen: datetime | None,
) -> list[Row]:  # fmt: skip
    """The hours as they are called in a zone. Two that have one name there, as the clock goes back, share a cell."""
    place = load_zone(zone)
    at_cell: dict[tuple[date, int], list[tuple[datetime, int]]] = defaultdict(list)
    for at, runs in hours:
        local = at.astimezone(place)
        at_cell[local.date(), local.hour].append((at, runs))
    most = max((runs for _, runs in hours), default=0)
    found = []
    for day in sorted({day for day, _ in at_cell}):
        cells = [
            _cell(at_cell.get((day, hour)), most, capacity, changes, links, chosen, f"{day} {hour:02}:00")
            for hour in DAY_HOURS
        ]
        found.append(Row(day, cells))
    return found


def _cell(
    parts: list[tuple[datetime, int]] | None, most: int, capacity: float | None, changes: Sequence[dict[str, Any]],
    links: Mapping[datetime, str], chosen: datetime | None, name: str,
) -> Cell | None:  # fmt: skip
    if not parts:
        return None
    runs, first = sum(runs for _, runs in parts), parts[0][0]
    marks = [change_words(one) for one in changes if any(at <= one["at"] < at + HOUR for at, _ in parts)]
    share = None if not capacity else max(count for _, count in parts) / capacity
    title = f"{name}: {runs:,} runs" + (f", {share:.0%} of capacity" if share is not None else "")
    level = _level(runs, most, share)
    return Cell(
        runs, level, FULL_WORDS.get(level, ""), short(runs), "; ".join([title, *marks]), marks, links.get(first, ""),
        any(at == chosen for at, _ in parts),
    )  # fmt: skip


def _level(runs: int, most: int, share: float | None) -> str:
    if share is not None and share > FULL:
        return "h5" if share > OVER else "h4"
    part = runs / most if most else 0.0
    return f"h{sum(part > step for step in STEPS)}"


def change_words(change: Mapping[str, Any]) -> str:
    """ "Europe/Berlin: the clock goes back 1 h"."""
    way = "forward" if change["by_s"] > 0 else "back"
    return f"{change['zone']}: the clock goes {way} {span(abs(change['by_s']))}"


def short(count: int) -> str:
    """At most four characters: 940, 12k, 3.4M."""
    for size, unit in ((1_000_000_000, "G"), (1_000_000, "M"), (1_000, "k")):
        if count >= size:
            return f"{count / size:.1f}{unit}" if count < 10 * size else f"{count // size}{unit}"
    return str(count)


def histogram(minutes: Sequence[tuple[datetime, int]], *, capacity: float | None, watched: Any = None) -> str:
    """An hour by minutes, as a chart; what is above the capacity has another colour, the chosen minute too."""
    series = [
        Column(f"{at:%H:%M}", [("bad" if capacity and runs > capacity else "warn" if at == watched else "run", runs)])
        for at, runs in minutes
    ]
    most = max(minutes, key=lambda one: one[1], default=None)
    told = "nothing is expected" if most is None or not most[1] else f"most in {most[0]:%H:%M}, {most[1]:,} runs"
    return columns(series, meaning=f"Expected runs by minute, UTC: {told}", limit=capacity)


def instant(text: str, step: timedelta) -> datetime | None:
    """A moment of an address, at the begin of its minute or hour; None where it is none."""
    try:
        at = datetime.fromisoformat(text.replace(" ", "+")).astimezone(UTC)
    except (ValueError, OverflowError):
        return None
    at = at.replace(second=0, microsecond=0)
    return at.replace(minute=0) if step == HOUR else at
