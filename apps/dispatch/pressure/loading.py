"""Whose load it is: what was measured for the pools, by tenant, for operators' pages."""

from collections.abc import Mapping, Sequence
from typing import Any

import psycopg

from apps.dispatch.pressure.gauging import Serving
from apps.due import entries
from apps.tickets import depths
from apps.usage import lately, loads
from apps.usage.loads import TenantLoad
from kernel.clock import monotonic_s

Conn = psycopg.Connection[Any]
DUE_PER_SHARD = 500  # entries that are counted, the oldest: a burst has other things to do
PAST_EVERY_S = 10.0  # at least: the sums are added to every five seconds
SHARE = 20  # it takes at most one part in so many of the time


class Past:
    """What tenants did lately, read again after a while. For one thread."""

    def __init__(self) -> None:
        self._known: dict[int, lately.OfTenant] = {}
        self._until = float("-inf")

    def read(self, conn: Conn) -> Mapping[int, lately.OfTenant]:
        began = monotonic_s()
        if began >= self._until:
            self._known = lately.by_tenant(conn)
            took_s = monotonic_s() - began
            self._until = began + max(PAST_EVERY_S, took_s * SHARE)
        return self._known


def load_of(
    *, due: Mapping[int, entries.DueOf], ready: Sequence[depths.Count], later: Sequence[depths.Count],
    taken: Sequence[depths.Taken], held: Mapping[tuple[str, int, int], int], past: Mapping[int, lately.OfTenant],
) -> dict[int, TenantLoad]:  # fmt: skip
    """Each tenant that has something or did something lately. Pure."""
    found: dict[int, TenantLoad] = {}

    def of(tenant_id: int) -> TenantLoad:
        return found.setdefault(tenant_id, TenantLoad(tenant_id))

    for tenant_id, entry in due.items():
        of(tenant_id).due, of(tenant_id).oldest_due_s = entry.entries, round(entry.oldest_s, 3)
    for one in ready:
        of(one.tenant_id).ready += one.tickets
        of(one.tenant_id).held += min(one.tickets, held.get((one.pool, one.lane, one.tenant_id), 0))
    for one in later:
        of(one.tenant_id).later += one.tickets
    for flow in taken:
        of(flow.tenant_id).queued += flow.queued
        of(flow.tenant_id).running += flow.running + flow.outside
    for tenant_id, did in past.items():
        row = of(tenant_id)
        row.ended, row.dead, row.attempts, row.attempts_failed = did.ended, did.dead, did.attempts, did.attempts_failed
        row.released, row.dispatch_p99_s = did.released, did.dispatch_p99_s
    return found


def keep(
    conn: Conn, found: Mapping[int, TenantLoad], *, due_is_exact: bool, workers: Sequence[Serving], every_s: float
) -> None:
    """Writes the measurement, and adds it to its minute."""
    loads.write(conn, found, due_is_exact=due_is_exact, every_s=every_s)
    slots = sum(count for worker in workers for count in worker.slots.values())
    loads.sample(conn, loads.added_up(found.values()), slots=slots, workers=len(workers))
