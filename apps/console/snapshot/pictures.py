"""The pictures of Overview: the last hour by minute, and who serves which shard. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from apps.console.verdict.values import Facts
from apps.console.verdict.work import LATE_S
from apps.presenting.charts import Column, columns
from apps.presenting.plots import Cell, Line, Mark, Scale, cells, counts_scale, lines
from kernel.durations import span

MINUTES = 60
WIDE = 560
LATENESS = Scale(
    [(0.01, "10 ms"), (0.1, "100 ms"), (1, "1 s"), (10, "10 s"), (100, "100 s"), (1_000, "17 min")], log=True
)
MARKS = 12
ByMinute = Mapping[int, Sequence[Any]]


def by_minute(rows: Sequence[Sequence[Any]], now: datetime) -> ByMinute:
    """Rows that begin with their minute, by how many minutes after the left edge that is."""
    first = _first(now)
    found = {round((datetime.fromisoformat(row[0]) - first).total_seconds() / 60): row[1:] for row in rows}
    return {at: row for at, row in found.items() if 0 <= at < MINUTES}


def marks(changes: Sequence[Sequence[Any]], now: datetime) -> list[Mark]:
    """What operators changed, at its minute; the newest MARKS."""
    first, found = _first(now), []
    for at, action, _, _, who, *_ in changes[:MARKS]:
        minute = (datetime.fromisoformat(at) - first).total_seconds() / 60
        if 0 <= minute < MINUTES:
            found.append(Mark(minute, f"{datetime.fromisoformat(at):%H:%M:%S} {action} by {who}"))
    return found


def lateness(past: ByMinute, marked: Sequence[Mark], now: datetime) -> str:
    """Dispatch lateness against its target."""
    p50, p99 = _column(past, -2), _column(past, -1)
    worst = max((one for one in p99 if one is not None), default=None)
    told = "nothing was released" if worst is None else f"the worst p99 of a minute was {span(worst)}"
    return lines(
        [Line("idle", "p50", p50, dashed=True), Line("run", "p99", p99)],
        labels=_labels(now),
        scale=LATENESS,
        marks=marked,
        target=(LATE_S, "target 10 s"),
        meaning=f"Dispatch lateness in the last hour: {told}.",
    )


def backlog(samples: ByMinute, marked: Sequence[Mark], now: datetime) -> str:
    """What waited and what ran, by minute."""
    due, ready, running, free = (_column(samples, at) for at in range(4))
    known = [one for series in (due, ready, running, free) for one in series if one is not None]
    most = max((one for one in ready if one is not None), default=0)
    return lines(
        [
            Line("bad", "due", due),
            Line("warn", "ready and queued", ready),
            Line("run", "running", running),
            Line("idle", "slots", free, dashed=True),
        ],
        labels=_labels(now),
        scale=counts_scale(max([1, *known])),
        marks=marked,
        meaning=f"Backlog in the last hour: at most {most:,.0f} ready and queued.",
    )


def throughput(past: ByMinute, now: datetime) -> str:
    """What ended, by outcome."""
    series = []
    for at, label in enumerate(_labels(now)):
        succeeded, dead, cancelled, expired = past[at][:4] if at in past else (0, 0, 0, 0)
        series.append(Column(label, [("ok", succeeded), ("bad", dead), ("warn", expired), ("idle", cancelled)]))
    total = sum(one.total for one in series)
    return columns(series, meaning=f"Runs that ended in the last hour: {total:,}.", across=WIDE)


def ahead(expected: Sequence[tuple[str, int]], facts: Facts) -> str:
    """What schedules will make in each minute of the next hour, against what the slots that there are get done."""
    able = facts.capacity
    most = max((runs for _, runs in expected), default=0)
    near = 0 < able <= 20 * max(1, most)  # far above all of it the line would only flatten the picture
    told = f", at most {most:,} in a minute" + (f"; {able:,.0f} a minute can be done" if able else "")
    return lines(
        [Line("run", "expected", [float(runs) for _, runs in expected])],
        labels=[label for label, _ in expected],
        scale=counts_scale(max(1.0, most, able if near else 0)),
        target=(able, f"capacity {able:,.0f} a minute") if near else None,
        meaning=f"Runs expected in the next hour: {sum(runs for _, runs in expected):,}{told}.",
    )


def shards(facts: Facts) -> str:
    """Who serves which shard: an exclamation mark where nobody does, an asterisk where somebody took it just now."""
    found = []
    for one in facts.slices:
        if one.kind != "fire":
            continue
        held = one.unheld_s < 0
        who = f"held by {one.holder}, term {one.term}" if held else f"nobody for {span(one.unheld_s)}"
        fresh = held and one.taken_s is not None and one.taken_s < 60
        tone = ("warn" if fresh else "ok") if held else "bad"
        text = f"{one.shard}{'*' if fresh else ''}" if held else "!"
        found.append(Cell(tone, text, f"Shard {one.shard}: {who}"))
    unheld = sum(one.tone == "bad" for one in found)
    return cells(found, meaning=f"{len(found)} shards, {unheld} of them without a live holder.")


def _first(now: datetime) -> datetime:
    return now.replace(second=0, microsecond=0) - timedelta(minutes=MINUTES - 1)


def _labels(now: datetime) -> list[str]:
    return [f"{_first(now) + timedelta(minutes=at):%H:%M}" for at in range(MINUTES)]


def _column(rows: ByMinute, at: int) -> list[float | None]:
    return [rows[minute][at] if minute in rows else None for minute in range(MINUTES)]
