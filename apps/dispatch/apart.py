"""Firing apart what failed together: per tenant, and per entry where the rows themselves are at fault.

A tenant whose schema does not answer (a lock, a missing table) is left out of the batches until it has been fired
alone, which is tried later each time. An entry that the database refuses is put aside with its reason.
"""

import logging
from collections import defaultdict
from collections.abc import Sequence
from typing import Any, Protocol
from uuid import UUID

import psycopg

from apps.due import entries
from apps.due.entries import Entry
from kernel.backoff import delay_s
from kernel.clock import monotonic_s

log = logging.getLogger(__name__)
Conn = psycopg.Connection[Any]
BUDGET_S = 1.5  # then the next pass goes on: a lease is only renewed for a loop that completes its passes
AGAIN_MAX_S = 60.0
FAULTS_OF_ROWS = (psycopg.DataError, psycopg.IntegrityError)


class Batch(Protocol):
    """Fires these entries in one transaction of their own; returns counts."""

    def __call__(self, *, only: Sequence[UUID]) -> dict[str, int]: ...


class Apart:
    """Remembers which tenants fail. For one thread."""

    def __init__(self) -> None:
        self._failing: dict[int, tuple[int, float]] = {}  # tenant -> (failures in a row, not before)

    def avoided(self) -> list[int]:
        """Tenants that no batch may hold."""
        return list(self._failing)

    def to_try_again(self) -> list[int]:
        """Those whose time has come."""
        now = monotonic_s()
        return [tenant_id for tenant_id, (_, until) in self._failing.items() if until <= now]

    def fire(self, conn: Conn, seen: Sequence[Entry], batch: Batch) -> dict[str, int]:
        """Fires these entries, a transaction per tenant, within BUDGET_S. Raises only when the connection is lost."""
        by_tenant: dict[int, list[UUID]] = defaultdict(list)
        for entry in seen:
            by_tenant[entry.tenant_id].append(entry.key)
        total: dict[str, int] = defaultdict(int, entries=0)
        stop_at = monotonic_s() + BUDGET_S
        for tenant_id in sorted(by_tenant, key=lambda one: (self._failing.get(one, (0, 0.0)), one)):
            if monotonic_s() >= stop_at:
                break
            for name, count in self._fire_tenant(conn, tenant_id, by_tenant[tenant_id], batch).items():
                total[name] += count
        return total

    def _fire_tenant(self, conn: Conn, tenant_id: int, keys: list[UUID], batch: Batch) -> dict[str, int]:
        try:
            counts, refused = _fire_keys(conn, keys, batch)
        except psycopg.Error:
            if conn.closed:
                raise
            failures = self._failing.get(tenant_id, (0, 0.0))[0] + 1
            wait = delay_s(failures, base_s=0.5, factor=2, max_s=AGAIN_MAX_S)
            self._failing[tenant_id] = (failures, monotonic_s() + wait)
            log.exception("tenant %d can't be fired (%d in a row), again in %.1f s", tenant_id, failures, wait)
            return {"tenant_failures": 1}
        self._failing.pop(tenant_id, None)
        for key, reason in refused.items():
            log.error("due entry %s is put aside: %s", key, reason)
            entries.park(conn, key, reason)
        return counts | {"poison": counts.get("poison", 0) + len(refused)}


def _fire_keys(conn: Conn, keys: list[UUID], batch: Batch) -> tuple[dict[str, int], dict[UUID, str]]:
    """Fires them; halves what the database refuses until the rows at fault are alone: these come with their reasons."""
    try:
        return batch(only=keys), {}
    except FAULTS_OF_ROWS as error:
        if len(keys) == 1:
            return {}, {keys[0]: f"{type(error).__name__}: {error}"}
    middle = len(keys) // 2
    counts, refused = _fire_keys(conn, keys[:middle], batch)
    more, also_refused = _fire_keys(conn, keys[middle:], batch)
    both = {name: counts.get(name, 0) + more.get(name, 0) for name in {**counts, **more}}
    return both, {**refused, **also_refused}
