"""Lines over time, and cells, as SVG text like `charts`: colours by class, each with its meaning in words. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from math import log10
from typing import NamedTuple

from apps.presenting.charts import svg_of

WIDE, HIGH = 560, 150
LEFT, TOP, RIGHT = 46, 10, 8
CELL = 22


class Line(NamedTuple):
    """One line: None where nothing is known, which is a gap."""

    tone: str
    name: str
    values: Sequence[float | None]
    dashed: bool = False


class Mark(NamedTuple):
    """Something that happened at the place `at`, counted from the left like values."""

    at: float
    text: str


class Scale(NamedTuple):
    """What the height means: ticks from the bottom, (value, text); `log` keeps the small ones apart."""

    ticks: Sequence[tuple[float, str]]
    log: bool = False

    def place(self, value: float) -> float:
        """From 0 at the bottom to 1 at the top."""
        low, high = self.ticks[0][0], self.ticks[-1][0]
        if self.log:
            low, high, value = log10(low), log10(high), log10(max(value, low))
        return min(1.0, max(0.0, (value - low) / (high - low or 1)))


class Cell(NamedTuple):
    tone: str
    text: str
    title: str


def counts_scale(most: float) -> Scale:
    """From 0 to a round number that `most` fits below."""
    size = 10 ** max(0, int(log10(most)) if most >= 1 else 0)
    top = next(step * size for step in (1, 2, 5, 10) if step * size >= most)
    return Scale([(0, "0"), (top / 2, f"{top / 2:,.10g}"), (top, f"{top:,}")])


def lines(
    series: Sequence[Line], *, labels: Sequence[str], scale: Scale, meaning: str, marks: Sequence[Mark] = (),
    target: tuple[float, str] | None = None,
) -> str:  # fmt: skip
    """Values over time, with a line that they should stay below. `labels` name the places from the left."""
    step = (WIDE - LEFT - RIGHT) / max(1, len(labels) - 1)
    drawn = []
    for value, text in scale.ticks:
        y = _y(scale, value)
        drawn.append(f'<line class="grid" x1="{LEFT}" x2="{WIDE - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
        drawn.append(f'<text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{escape(text)}</text>')
    if target is not None:
        y = _y(scale, target[0])
        drawn.append(f'<line class="target" x1="{LEFT}" x2="{WIDE - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
        drawn.append(f'<text class="target" x="{LEFT + 4}" y="{y - 4:.1f}">{escape(target[1])}</text>')
    for mark in marks:
        x = LEFT + mark.at * step
        drawn.append(
            f'<g class="mark"><line x1="{x:.1f}" x2="{x:.1f}" y1="{TOP}" y2="{TOP + HIGH}"/>'
            f'<path d="M{x - 5:.1f} {TOP - 8}h10l-5 8z"/><title>{escape(mark.text)}</title></g>'
        )
    for line in series:
        for part in _parts(line.values):
            points = " ".join(f"{LEFT + at * step:.1f},{_y(scale, value):.1f}" for at, value in part)
            dashed = ' stroke-dasharray="4 3"' if line.dashed else ""
            if len(part) == 1:
                [(at, value)] = part
                place = f'cx="{LEFT + at * step:.1f}" cy="{_y(scale, value):.1f}"'
                drawn.append(f'<circle class="dot line-{line.tone}" {place} r="3"/>')
            else:
                drawn.append(f'<polyline class="line line-{line.tone}" points="{points}"{dashed}/>')
    every = max(1, -(-len(labels) // 6))
    drawn += [
        f'<text x="{LEFT + at * step:.1f}" y="{TOP + HIGH + 17}" text-anchor="middle">{escape(label)}</text>'
        for at, label in enumerate(labels)
        if at % every == 0 and LEFT + at * step < WIDE - 16
    ]
    return svg_of("chart", WIDE, TOP + HIGH + 22, meaning, drawn)


def cells(found: Sequence[Cell], *, meaning: str, across: int = 16) -> str:
    """A map of squares, row by row."""
    drawn = []
    for number, cell in enumerate(found):
        x, y = number % across * CELL, number // across * CELL
        drawn.append(
            f'<g><rect class="cell fill-{cell.tone}" x="{x}" y="{y}" width="{CELL - 2}" height="{CELL - 2}" rx="3"/>'
            f'<text x="{x + CELL / 2 - 1:.0f}" y="{y + 14}" text-anchor="middle">{escape(cell.text)}</text>'
            f"<title>{escape(cell.title)}</title></g>"
        )
    down = -(-len(found) // across) or 1
    return svg_of("cells", across * CELL - 2, down * CELL - 2, meaning, drawn)


def _y(scale: Scale, value: float) -> float:
    return TOP + (1 - scale.place(value)) * HIGH


def _parts(values: Sequence[float | None]) -> list[list[tuple[int, float]]]:
    """The stretches without a gap."""
    found: list[list[tuple[int, float]]] = [[]]
    for at, value in enumerate(values):
        if value is None:
            found.append([])
        else:
            found[-1].append((at, value))
    return [part for part in found if part]
