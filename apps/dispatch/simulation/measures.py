"""What a simulation measures by tenant: waits, slots used, share got against share due, what held runs back. Pure."""

from __future__ import annotations

import math
from array import array
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

QUANTILES = (0.5, 0.95, 0.99)


class Waits(NamedTuple):
    """Quantiles of a wait in seconds, and the longest; None of nothing."""

    runs: int
    p50: float | None
    p95: float | None
    p99: float | None
    longest: float | None


class Demand(NamedTuple):
    """What one tenant holds of a pool's group and what it could use besides, its own limits considered."""

    weight: int
    held: int
    wants: int
    reserved: int = 0
    maximum: int | None = None


@dataclass(slots=True)
class OfTenant:
    """One tenant's figures, while they are collected."""

    waits: array[float] = field(default_factory=lambda: array("d"))
    real: array[float] = field(default_factory=lambda: array("d"))
    arrived: int = 0
    started: int = 0
    finished: int = 0
    waiting: int = 0  # at the end of the window
    slot_s: float = 0.0  # slot seconds
    contended_s: float = 0.0  # seconds in which it had runs waiting that its own limits would have let go
    got: float = 0.0  # slot seconds while it contended
    due: float = 0.0
    held: dict[str, float] = field(
        default_factory=lambda: defaultdict(float)
    )  # seconds of waiting by the code of what held it back
    dropped: Counter[str] = field(default_factory=Counter)  # runs that did not come to be, by reason


def waits_of(values: Sequence[float]) -> Waits:
    """Its quantiles: the smallest value that at least that share does not exceed."""
    if not values:
        return Waits(0, None, None, None, None)
    ordered = sorted(values)
    p50, p95, p99 = (ordered[max(0, math.ceil(share * len(ordered)) - 1)] for share in QUANTILES)
    return Waits(len(ordered), p50, p95, p99, ordered[-1])


def shares_due(demands: Mapping[int, Demand], capacity: float) -> dict[int, float]:
    """Weighted max-min shares of `capacity` slots: what each tenant is due now, whatever it holds.

    The yardstick that starvation is told by; it grants nothing. Reserves come first, scaled down when they exceed the
    capacity, and nobody is due more than it holds and wants.
    """
    most = {
        one: min(demand.held + demand.wants, math.inf if demand.maximum is None else demand.maximum)
        for one, demand in demands.items()
    }
    floor = {one: min(most[one], demand.reserved) for one, demand in demands.items()}
    reserved = sum(floor.values())
    if reserved > capacity:
        return {one: share * capacity / reserved for one, share in floor.items()}
    due = dict.fromkeys(demands, 0.0)
    left, opened = float(capacity), dict(demands)
    while opened and left > 1e-9:
        level = left / sum(demand.weight for demand in opened.values())
        fixed = {one: most[one] for one in opened if most[one] <= level * opened[one].weight}
        if not fixed:  # whoever has more reserved than its share is due its reserve
            fixed = {one: floor[one] for one in opened if floor[one] > level * opened[one].weight}
        if not fixed:
            return due | {one: level * demand.weight for one, demand in opened.items()}
        for one, share in fixed.items():
            due[one] = share
            left -= share
            del opened[one]
    return due
