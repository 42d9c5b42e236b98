"""Charts as SVG text: no script, no inline style, colours by class, each with its meaning in words. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import NamedTuple

STRIP_RUNS = 30
PHASES_WIDTH = 1_000
LEAST_WIDTH = 6.0  # of a phase that is there
COLUMNS_HEIGHT = 120
LIMIT_SHOWN = 3  # times the highest column


class Part(NamedTuple):
    """One phase of a run. `tone` is that of a state."""

    tone: str
    label: str
    seconds: float


class Column(NamedTuple):
    """What ended in one stretch of time: counts by tone, from the bottom."""

    label: str
    counts: Sequence[tuple[str, int]]

    @property
    def total(self) -> int:
        return sum(count for _, count in self.counts)


def strip(results: Sequence[tuple[str, str]], *, meaning: str) -> str:
    """The last results, oldest first: (tone, title). What went wrong is taller as well as of another colour."""
    bars = []
    for number, (tone, title) in enumerate(results):
        high = 30 if tone in ("bad", "warn") else 20
        bars.append(
            f'<rect class="fill-{tone}" x="{number * 16}" y="{32 - high}" width="12" height="{high}" rx="2">'
            f"<title>{escape(title)}</title></rect>"
        )
    empty = [
        f'<rect class="fill-base" x="{number * 16}" y="28" width="12" height="4" rx="2"/>'
        for number in range(len(results), STRIP_RUNS)
    ]
    return svg_of("strip", STRIP_RUNS * 16 - 4, 34, meaning, [*bars, *empty])


def phases(parts: Sequence[Part], *, meaning: str) -> str:
    """Where the time of a run went, as one bar."""
    total = sum(part.seconds for part in parts)
    shares = [part.seconds / total if total else 1 / max(1, len(parts)) for part in parts]
    widths = [max(LEAST_WIDTH, share * PHASES_WIDTH) for share in shares]
    scale = PHASES_WIDTH / (sum(widths) or 1)
    bars, left = [], 0.0
    for part, width in zip(parts, widths, strict=True):
        wide = width * scale
        bars.append(
            f'<rect class="fill-{part.tone}" x="{left:.1f}" y="0" width="{max(1.0, wide - 2):.1f}" height="18">'
            f"<title>{escape(part.label)}</title></rect>"
        )
        left += wide
    return svg_of("phases", PHASES_WIDTH, 18, meaning, bars, stretch=True)


def columns(series: Sequence[Column], *, meaning: str, across: int = 1_000, limit: float | None = None) -> str:
    """Counts over time, stacked; a `limit` near them is a line. The table beside it has the numbers.

    `across` is the picture's width in its units.
    """
    most = max((one.total for one in series), default=0) or 1
    if limit is not None and most < limit <= most * LIMIT_SHOWN:
        most = round(limit)
    most += most % 2 if most > 1 else 0  # its half, which has a line of its own, is a whole number
    wide = (across - 40) / max(1, len(series))
    bars = [f'<line class="grid" x1="40" x2="{across}" y1="{y}" y2="{y}"/>' for y in (10, 10 + COLUMNS_HEIGHT // 2)]
    bars.append(f'<text x="34" y="14" text-anchor="end">{most:,}</text>')
    if most > 1:
        bars.append(f'<text x="34" y="{14 + COLUMNS_HEIGHT // 2}" text-anchor="end">{most // 2:,}</text>')
    bars.append(f'<text x="34" y="{COLUMNS_HEIGHT + 10}" text-anchor="end">0</text>')
    for number, column in enumerate(series):
        bottom, left = 10.0 + COLUMNS_HEIGHT, 40 + number * wide
        for tone, count in column.counts:
            if not count:
                continue
            high = max(2.0, count / most * COLUMNS_HEIGHT)
            bottom -= high
            bars.append(
                f'<rect class="fill-{tone}" x="{left + wide * 0.12:.1f}" y="{bottom:.1f}" width="{wide * 0.76:.1f}"'
                f' height="{high:.1f}"><title>{escape(f"{column.label}: {count:,}")}</title></rect>'
            )
    bars.append(f'<line class="grid" x1="40" x2="{across}" y1="{10 + COLUMNS_HEIGHT}" y2="{10 + COLUMNS_HEIGHT}"/>')
    if limit is not None and limit <= most:
        y = 10 + COLUMNS_HEIGHT * (1 - limit / most)
        bars.append(f'<line class="limit" x1="40" x2="{across}" y1="{y:.1f}" y2="{y:.1f}"/>')
    bars += _labels(series, wide)
    return svg_of("chart", across, COLUMNS_HEIGHT + 32, meaning, bars)


def meter(share: float, *, tone: str, meaning: str) -> str:
    """How much of a limit is used."""
    wide = min(1.0, max(0.0, share)) * 300
    bars = ['<rect class="fill-base" x="0" y="0" width="300" height="10" rx="5"/>']
    if wide:
        bars.append(f'<rect class="fill-{tone}" x="0" y="0" width="{max(10.0, wide):.1f}" height="10" rx="5"/>')
    return svg_of("meter", 300, 10, meaning, bars, stretch=True)


def spark(values: Sequence[float], *, meaning: str) -> str:
    """The shape of a few numbers over time, as small as a word; the numbers themselves stand beside it."""
    most, last = max(values, default=0) or 1, max(1, len(values) - 1)
    points = " ".join(f"{at / last * 94 + 1:.1f},{18 - value / most * 16:.1f}" for at, value in enumerate(values))
    return svg_of("spark", 96, 20, meaning, [f'<polyline points="{points}"/>'], stretch=True)


def _labels(series: Sequence[Column], wide: float) -> list[str]:
    most = 5 if any(len(one.label) > len("00:00") for one in series) else 8  # so many have room beside each other
    every = max(1, -(-len(series) // most))
    return [
        f'<text x="{40 + (number + 0.5) * wide:.1f}" y="{COLUMNS_HEIGHT + 27}" text-anchor="middle">'
        f"{escape(one.label)}</text>"
        for number, one in enumerate(series)
        if number % every == 0
    ]


def svg_of(kind: str, wide: int, high: int, meaning: str, parts: Iterable[str], *, stretch: bool = False) -> str:
    """The picture, with what it means for those who do not see it."""
    keep = ' preserveAspectRatio="none"' if stretch else ""
    return (
        f'<svg class="{kind}" viewBox="0 0 {wide} {high}" role="img" aria-label="{escape(meaning)}"{keep}>'
        f"{''.join(parts)}</svg>"
    )
