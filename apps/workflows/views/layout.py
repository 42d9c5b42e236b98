"""Where the steps of a graph stand in its picture: levels from left to right, few crossings, always the same. Pure.

An edge that passes levels gets a place in each of them, so that it goes between steps and not behind them. The order in
a level is found by a few sweeps, each of which puts every node at the mean of its neighbours in the level before.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from apps.workflows.definitions.definition import Edge, Step
from apps.workflows.definitions.graph import levels, parents_of

SWEEPS = 4
MAX_PASSED = 5_000  # places for edges that pass levels; beyond that they go straight
NODE_HEIGHT, ROW_GAP, LEVEL_GAP, MARGIN = 40, 16, 84, 16
PASSED_HEIGHT = 8
CHAR_WIDTH, MIN_CHARS, MAX_CHARS = 7.3, 8, 30

_Slot = tuple[str, str, int]  # a step: (name, "", level); an edge that passes: (child, parent, level)


class Box(NamedTuple):
    """The place of a step, in pixels; x and y are its upper left corner."""

    x: float
    y: float
    width: float
    height: float
    level: int


class Line(NamedTuple):
    """One edge with the points it goes through, from the right side of the parent to the left side of the child."""

    edge: Edge
    child: str
    points: tuple[tuple[float, float], ...]


@dataclass(frozen=True, slots=True)
class Layout:
    boxes: Mapping[str, Box]
    lines: Sequence[Line]
    width: float
    height: float


def layout(steps: Sequence[Step]) -> Layout:
    """Places for all steps of a valid workflow."""
    parents = parents_of(steps)
    by_level = levels(parents)
    level = {name: at for at, names in enumerate(by_level) for name in names}
    ranks: list[list[_Slot]] = [[(name, "", at) for name in names] for at, names in enumerate(by_level)]
    above: dict[_Slot, list[_Slot]] = {slot: [] for rank in ranks for slot in rank}
    passing = sum(level[name] - level[parent] - 1 for name in parents for parent in parents[name])
    for name, of in parents.items():
        for parent in of:
            before: _Slot = (parent, "", level[parent])
            for between in range(level[parent] + 1, level[name]) if passing <= MAX_PASSED else ():
                slot: _Slot = (name, parent, between)
                ranks[between].append(slot)
                above[slot] = [before]
                before = slot
            above[(name, "", level[name])].append(before)
    _sort(ranks, above)
    return _placed(steps, ranks, level)


def shown(name: str) -> str:
    """A name as it fits into its box."""
    return name if len(name) <= MAX_CHARS else f"{name[: MAX_CHARS - 1]}…"


def _sort(ranks: list[list[_Slot]], above: Mapping[_Slot, Sequence[_Slot]]) -> None:
    """Orders each level by the mean place of its neighbours, downwards and upwards in turn."""
    below: dict[_Slot, list[_Slot]] = {slot: [] for slot in above}
    for slot, parents in above.items():
        for parent in parents:
            below[parent].append(slot)
    # Places are shares of a level, since levels differ in length.
    place = {slot: share for rank in ranks for slot, share in _shares(rank)}
    for sweep in range(SWEEPS):
        beside, order = (above, ranks[1:]) if sweep % 2 == 0 else (below, ranks[-2::-1])
        for rank in order:
            means = {slot: _mean([place[one] for one in beside[slot]], place[slot]) for slot in rank}
            rank.sort(key=means.__getitem__)
            place.update(_shares(rank))


def _shares(rank: Sequence[_Slot]) -> list[tuple[_Slot, float]]:
    return [(slot, (at + 0.5) / len(rank)) for at, slot in enumerate(rank)]


def _mean(places: Sequence[float], own: float) -> float:
    return sum(places) / len(places) if places else own


def _placed(steps: Sequence[Step], ranks: Sequence[Sequence[_Slot]], level: Mapping[str, int]) -> Layout:
    wide = [_width(rank) for rank in ranks]
    high = [sum(_height(slot) + ROW_GAP for slot in rank) - ROW_GAP for rank in ranks]
    boxes: dict[str, Box] = {}
    passed: dict[_Slot, tuple[float, float]] = {}
    left = float(MARGIN)
    for at, rank in enumerate(ranks):
        top = MARGIN + (max(high) - high[at]) / 2
        for slot in rank:
            if slot[1]:
                passed[slot] = (left, top + PASSED_HEIGHT / 2)
            else:
                boxes[slot[0]] = Box(left, top, wide[at], NODE_HEIGHT, at)
            top += _height(slot) + ROW_GAP
        left += wide[at] + LEVEL_GAP
    lines = [_line(edge, step.name, boxes, passed, wide, level) for step in steps for edge in step.needs]
    return Layout(boxes, lines, left - LEVEL_GAP + MARGIN, max(high) + 2 * MARGIN)


def _line(
    edge: Edge, child: str, boxes: Mapping[str, Box], passed: Mapping[_Slot, tuple[float, float]],
    wide: Sequence[float], level: Mapping[str, int],
) -> Line:  # fmt: skip
    start, end = boxes[edge.parent], boxes[child]
    points = [(start.x + start.width, start.y + start.height / 2)]
    for between in range(level[edge.parent] + 1, level[child]):
        if (found := passed.get((child, edge.parent, between))) is not None:
            points += [found, (found[0] + wide[between], found[1])]
    points.append((end.x, end.y + end.height / 2))
    return Line(edge, child, tuple(points))


def _width(rank: Sequence[_Slot]) -> float:
    chars = max((len(shown(slot[0])) for slot in rank if not slot[1]), default=0)
    return round(max(MIN_CHARS, chars) * CHAR_WIDTH + 24, 1)


def _height(slot: _Slot) -> int:
    return PASSED_HEIGHT if slot[1] else NODE_HEIGHT
