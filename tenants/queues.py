"""Which Celery queue a tenant's work goes through, and which queues a worker group has in all."""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from django.conf import settings

from kernel.pools import WORKFLOW, group_queue, own_queue, shared_queue

if TYPE_CHECKING:
    from tenants.registry import Tenancy


def queue_name(*, pool: str, tenant_id: int, slug: str, own: bool, group: str = "") -> str:
    """A queue of its own; else its dedicated group's, or the shared one that the tenant's number falls on.

    Runs of workflows go to no worker: all of them have one name.
    """
    if pool == WORKFLOW:
        return WORKFLOW
    if own:
        return own_queue(pool, slug, group)
    return group_queue(pool, group) if group else shared_queue(pool, tenant_id % settings.SHARED_QUEUES)


def queues_of(tenants: Iterable["Tenancy"], *, group: str, pools: Sequence[str]) -> list[str]:
    """All queues of a worker group in these pools: those that its tenants share, and the own ones of tenants.

    Also of one whose dispatch is paused: what was handed to its queue goes on. Not of one that is suspended.
    """
    own = [one for one in tenants if one.own_queue and not one.suspended and one.group == group]
    names: list[str] = []
    for pool in pools:
        if group:
            names.append(group_queue(pool, group))
        else:
            names += [shared_queue(pool, number) for number in range(settings.SHARED_QUEUES)]
        names += [one.queue(pool) for one in own]
    return names


def with_own_queue(found: Iterable["Tenancy"], *, most: int) -> tuple[set[int], Counter[str]]:
    """Whose plan's own queue is given: the first `most` of a group (0: all), by age; and how many more want one.

    A worker that listens to thousands of queues is slow. All processes find the same ones.
    """
    given: Counter[str] = Counter()
    beyond: Counter[str] = Counter()
    kept = set()
    for one in sorted(found, key=lambda one: one.id):
        if not one.own_queue or one.suspended:
            continue
        if most and given[one.group] >= most:
            beyond[one.group] += 1
            continue
        given[one.group] += 1
        kept.add(one.id)
    return kept, beyond
