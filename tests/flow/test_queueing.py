"""What comes into a queue and goes out of it, in a second: told by workers, and by how much more there is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apps.dispatch.pressure.gauging import Depth, InFlight
from apps.dispatch.pressure.queueing import QUEUES_KEPT, QueueFigures, queues_measured, queues_of
from workers.queue_pace import TOLD_MOST, QueuePace

QUEUES = {1: "http.own.acme", 2: "http.shared.0", 3: "http.shared.0"}


def measured(
    before: Mapping[str, Any] | None, ready: Mapping[int, int], out: Sequence[Mapping[str, float] | None] = ()
) -> dict[str, Any]:
    """Ten seconds after `before`."""
    found = queues_measured(
        before, depths=[Depth("http", 0, tenant, count, later=1) for tenant, count in ready.items()],
        in_flight=[InFlight("http", 1, 2, 3), InFlight("pull", 1, 0, 9)], out_per_s=out, elapsed_s=10.0,
        queue_of=lambda tenant, pool: QUEUES.get(tenant),
    )  # fmt: skip
    return {"queues": found}


def test_tenants_of_one_queue_are_one_row_and_what_has_no_queue_is_none() -> None:
    found = queues_of(measured(None, {1: 10, 2: 20, 3: 30, 99: 5}))
    assert [(one.queue, one.tenants, one.ready, one.later, one.queued, one.running) for one in found] == [
        ("http.shared.0", 2, 50, 2, 0, 0), ("http.own.acme", 1, 10, 1, 2, 3),
    ]  # fmt: skip


def test_what_comes_in_is_what_goes_out_and_what_is_more_than_before() -> None:
    told: list[dict[str, float] | None] = [{"http.own.acme": 3.0}, None, {"http.own.acme": 1.0, "python.own.acme": 2.0}]
    figures = measured(None, {1: 100}, told)
    for ready in range(80, 0, -20):  # two less a second, and four of them end
        figures = measured(figures, {1: ready}, told)
    acme, other = queues_of(figures)
    assert (acme.out_per_s, other.out_per_s, other.pool) == (4.0, 2.0, "python")
    assert 2.0 < acme.in_per_s < 8.0, "from the first guess to two a second"
    for _ in range(40):
        figures = measured(figures, {1: 20}, told)
    acme = queues_of(figures)[0]
    assert acme.in_per_s == pytest.approx(4.0, abs=0.01) and acme.drain_s is None, "it stands still"
    assert QueueFigures("q", "http", ready=90, queued=10, in_per_s=1, out_per_s=3).drain_s == 50
    assert QueueFigures("q", "http", running=9, out_per_s=3).drain_s is None, "nothing waits"


@given(st.lists(st.tuples(st.integers(0, 400), st.integers(0, 50)), max_size=200))
def test_only_the_busiest_queues_are_kept(sizes: list[tuple[int, int]]) -> None:
    depths = [Depth("http", 0, tenant, ready) for tenant, ready in sizes]
    found = queues_measured(
        None, depths=depths, in_flight=(), out_per_s=[{f"http.x.{n}": 1.0 for n in range(150)}], elapsed_s=1.0,
        queue_of=lambda tenant, pool: f"http.own.{tenant}",
    )  # fmt: skip
    work = [one["ready"] for one in found]
    assert work == sorted(work, reverse=True) and len(found) <= QUEUES_KEPT
    assert max(work, default=0) == max((sum(r for t, r in sizes if t == tenant) for tenant, _ in sizes), default=0)


def test_a_worker_tells_a_rate_that_forgets_and_of_its_busiest_queues() -> None:
    pace = QueuePace()
    assert pace.told(0.0) == {}
    for second in range(1, 201):
        for _ in range(4):
            pace.ended("http.own.acme")
        told = pace.told(float(second))
    assert told["http.own.acme"] == pytest.approx(4.0, rel=0.01)
    assert pace.told(200.0) == told, "no time has gone by"
    assert pace.told(230.0)["http.own.acme"] == pytest.approx(4.0 / 2.718, rel=0.02)
    assert pace.told(900.0) == {}
    for queue in range(TOLD_MOST + 5):
        pace.ended(f"http.own.{queue}")
    assert len(pace.told(901.0)) == TOLD_MOST
