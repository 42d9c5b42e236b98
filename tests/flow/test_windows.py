"""Flows of which much may not go: a pass reads a part of them, and everything that may go gets its turn."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING, Any
from uuid import UUID, uuid4

import psycopg
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from apps.dispatch import windows
from apps.dispatch.windows import WHOLE, Windows, part_of
from apps.tickets.values import LIVE, Flow
from tests.fixtures_flow import (
    NOW,
    live_worker,
    make_job,
    make_schedule,
    make_ticket,
    queue_of,
    release,
    settle_as,
    start,
)

if TYPE_CHECKING:
    from apps.dispatch.release import ReleaseService
    from tenants.models import Tenant
    from tenants.registry import Registry

Conn = psycopg.Connection[Any]
Make = Callable[..., "ReleaseService"]
FLOW = Flow(1, UUID(int=1), UUID(int=2), None, None, LIVE, NOW)
PART = 5


@settings(max_examples=150)
@given(st.lists(st.booleans(), max_size=60), st.integers(1, 3), st.data())
def test_all_that_may_go_goes_and_no_look_reads_more_than_a_part_and_what_it_takes(
    may_go: list[bool], most: int, data: st.DataObject
) -> None:
    """As release reads them: rank n is a ticket that may go, or may not; some are set free on the way."""
    waiting: dict[int, bool] = dict(enumerate(may_go))
    parts, looks, long, freed = Windows(), 0, 0, 0
    while any(waiting.values()):
        window = parts.of(FLOW)
        ranks = [n for n in sorted(waiting) if window.after < _rank(n) <= window.until]
        found = [n for n in ranks if waiting[n]][:most]
        read = ranks.index(found[-1]) + 1 if len(found) == most else len(ranks)
        long += read > PART + most
        assert read <= PART + most or (window == WHOLE and long <= 2 + freed)
        head = min(waiting)
        behind = [FLOW] if len(found) < most or (window == WHOLE and found[0] > head) else []
        asked = parts.after(behind)
        ends = []
        for _, after in asked:
            later = [n for n in sorted(waiting) if _rank(n) > after]
            ends.append(_rank(later[PART]) if len(later) > PART else None)
        parts.go_on(asked, ends, full=[] if behind else [FLOW])
        for n in found:
            del waiting[n]
        looks += 1
        assert looks <= 4 * (len(may_go) + 4), "it comes round"
        free: bool = data.draw(st.booleans())
        if waiting and free:
            freed += 1
            waiting[data.draw(st.sampled_from(sorted(waiting)))] = True
    assert part_of(1) > part_of(100) >= part_of(10_000) == windows.PART_LEAST


def _rank(number: int) -> Any:
    return NOW + timedelta(seconds=number)


def test_what_waits_behind_many_that_may_not_go_goes(
    releaser: Make, conn: Conn, registry: Registry, acme: Tenant, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(windows, "LOOKED_AT", 0)  # so that 16 are a part
    job, schedule = make_job(acme), make_schedule(acme, overlap="buffer_all")
    live_worker(conn, slots=2, queues=[queue_of(registry, acme)])
    serial = [make_ticket(acme, job) for _ in range(60)]
    conn.execute("UPDATE tickets_ticket SET guarded = true, schedule_id = %s", [schedule])
    service = releaser()

    def gone() -> list[UUID]:
        """What a pass lets go, while it does not stay."""
        found = [one for message in release(service) for one in message.ids]
        conn.execute("DELETE FROM tickets_ticket WHERE execution_id = ANY(%s) AND NOT guarded", [found])
        return found

    [first] = start(conn, release(service), uuid4())
    assert first.execution_id == serial[0]
    behind = [make_ticket(acme, job) for _ in range(3)]
    passes = [gone() for _ in range(20)]
    assert sorted(one for found in passes for one in found) == sorted(behind)
    assert service._memory.windows.parts, "it is read in parts"
    settle_as(conn, registry, [first])
    assert next(one for _ in range(2) for one in gone()) == serial[1], "its turn comes at the head"
