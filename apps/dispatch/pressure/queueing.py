"""What of each Celery queue waits and runs, and at which rate it comes and goes. Pure.

Rates of what goes out are told by the workers; what comes in is that, and by how much more there is than before.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from math import exp
from typing import Any

from apps.dispatch.pressure.gauging import Depth, InFlight
from kernel.pools import CELERY_POOLS

QUEUES_KEPT = 200  # those with most work
TAU_S = 30.0


@dataclass(slots=True)
class QueueFigures:
    """One queue that has work, or had some lately. `later` waits for its time, such as retries."""

    queue: str
    pool: str
    tenants: int = 0
    ready: int = 0
    later: int = 0
    queued: int = 0
    running: int = 0
    in_per_s: float = 0.0
    out_per_s: float = 0.0

    @property
    def depth(self) -> int:
        """What waits for a worker."""
        return self.ready + self.queued

    @property
    def drain_s(self) -> float | None:
        """How long until nothing waits, at these rates; None when it grows or stands still."""
        faster = self.out_per_s - self.in_per_s
        return None if not self.depth else self.depth / faster if faster > 1e-3 else None


def queues_measured(
    before: Mapping[str, Any] | None, *, depths: Sequence[Depth], in_flight: Sequence[InFlight],
    out_per_s: Iterable[Mapping[str, float] | None], queue_of: Callable[[int, str], str | None], elapsed_s: float,
) -> list[dict[str, Any]]:  # fmt: skip
    """The figures to keep. `queue_of` names the queue of a tenant in a pool; `out_per_s` is what each worker told."""
    was = {one.queue: one for one in queues_of(before)}
    found: dict[str, QueueFigures] = {}
    tenants: dict[str, set[int]] = defaultdict(set)

    def place(tenant_id: int, pool: str) -> QueueFigures | None:
        queue = queue_of(tenant_id, pool) if pool in CELERY_POOLS else None
        if queue is None:
            return None
        tenants[queue].add(tenant_id)
        return found.setdefault(queue, QueueFigures(queue, pool))

    for depth in depths:
        if (row := place(depth.tenant_id, depth.pool)) is not None:
            row.ready += depth.ready
            row.later += depth.later
    for one in in_flight:
        if (row := place(one.tenant_id, one.pool)) is not None:
            row.queued += one.queued
            row.running += one.running
    for told in out_per_s:
        for queue, per_s in (told or {}).items():
            row = found.setdefault(queue, QueueFigures(queue, queue.split(".", 1)[0]))
            row.out_per_s += per_s
    keep = exp(-max(elapsed_s, 1e-3) / TAU_S)
    for queue, row in found.items():
        old = was.get(queue)
        row.tenants = len(tenants[queue])
        grown = (_all(row) - (_all(old) if old else 0)) / max(elapsed_s, 1e-3)
        if before is None or "queues" not in before:  # what is there now did not come within a moment
            row.in_per_s = row.out_per_s
        else:
            now = max(0.0, row.out_per_s + grown)
            row.in_per_s = round((old.in_per_s if old else 0.0) * keep + now * (1 - keep), 3)
        row.out_per_s = round(row.out_per_s, 3)
    kept = sorted(found.values(), key=lambda row: (-_all(row), -row.out_per_s, row.queue))[:QUEUES_KEPT]
    return [asdict(row) for row in kept]


def queues_of(figures: Mapping[str, Any] | None) -> list[QueueFigures]:
    """The queues of a measurement, which another version may have made."""
    names = {one.name for one in fields(QueueFigures)}
    return [
        QueueFigures(**{name: value for name, value in one.items() if name in names})
        for one in (figures or {}).get("queues", ())
    ]


def _all(row: QueueFigures) -> int:
    return row.ready + row.later + row.queued + row.running
