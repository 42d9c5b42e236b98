"""Who listens to what, and what a word to the workers would change: read from their leases, for people."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any

import psycopg

from apps.tickets import served
from apps.tickets.served import LiveProcess
from apps.tickets.subscriptions import Scope
from kernel.pools import CELERY_POOLS, SYSTEM_QUEUE
from tenants.queues import queues_of
from tenants.registry import Registry

Conn = psycopg.Connection[Any]


@dataclass(frozen=True, slots=True)
class Change:
    """What workers would do that are told something now."""

    fits: list[str]  # queues of their group that the pattern fits
    workers: list[LiveProcess]
    gained: list[str] = field(default_factory=list)  # some of them would listen to these, and none of all does now
    left: list[str] = field(default_factory=list)  # nobody would listen to these any more


@dataclass(frozen=True, slots=True)
class Unserved:
    """A queue that nobody listens to, while tenants have something ready for it."""

    queue: str
    tenants: list[str]


def change(registry: Registry, workers: Sequence[LiveProcess], *, scope: Scope, pattern: str, listens: bool) -> Change:
    """What telling these workers this would change, if it is the last word on it."""
    names = [SYSTEM_QUEUE, *queues_of(registry.by_id.values(), group=scope.group, pools=CELERY_POOLS)]
    fits = [name for name in names if fnmatchcase(name, pattern)]
    told = [one for one in workers if one.group == scope.group and scope.host in ("", one.host)]
    now = _listened(workers)
    if listens:
        after = {name for one in told for name in fits if name == SYSTEM_QUEUE or name.split(".", 1)[0] in one.slots}
        return Change(fits, told, gained=sorted(after - now))
    ids = {one.id for one in told}
    rest = _listened(one for one in workers if one.id not in ids)
    dropped = {name for one in told for name in one.queues if fnmatchcase(name, pattern)}
    return Change(fits, told, left=sorted(dropped - rest))


def unserved(conn: Conn, registry: Registry, workers: Iterable[LiveProcess]) -> list[Unserved]:
    """Queues that nobody listens to, with the tenants that wait for it."""
    listened, waits = _listened(workers), dict[str, list[str]]()
    for pool, tenant_id in served.waiting(conn):
        tenancy = registry.by_id.get(tenant_id)
        if tenancy is not None and tenancy.active and tenancy.queue(pool) not in listened:
            waits.setdefault(tenancy.queue(pool), []).append(tenancy.slug)
    return [Unserved(queue, sorted(slugs)) for queue, slugs in sorted(waits.items())]


def _listened(workers: Iterable[LiveProcess]) -> set[str]:
    return {queue for one in workers if not one.draining for queue in one.queues}
