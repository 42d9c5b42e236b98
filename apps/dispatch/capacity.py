"""What a pool can take now, and the best of what waits up to that. Pure."""

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any, NamedTuple
from uuid import UUID

from apps.tickets.values import Candidate, Flow, LiveWorker
from kernel.pools import reserve_of

MESSAGE_MAX = 100  # tickets in one message


class Message(NamedTuple):
    """Tickets of one queue that were released together."""

    queue: str
    release: int
    ids: Sequence[UUID]


@dataclass(slots=True)
class Capacity:
    """What a pool can take now."""

    slots: int
    capacity: int
    total: int
    by_queue: dict[str, int]
    by_tenant: Counter[int]
    by_job: Counter[UUID]
    by_flow: Counter[UUID]
    message_max: dict[str, int]
    running: Counter[str]  # by queue


def capacity_of(live: Sequence[LiveWorker], taken: Iterable[tuple[Any, ...]], *, prefetch: float) -> Capacity:
    """What live workers can take, less what is queued or running: (tenant, queue, flow, job, count, running)."""
    slots: Counter[str] = Counter()
    message_max: dict[str, int] = {}
    for worker in live:
        for queue in worker.queues:
            slots[queue] += worker.slots
            message_max[queue] = max(1, min(MESSAGE_MAX, message_max.get(queue, MESSAGE_MAX), worker.slots // 2))
    by_queue = {queue: int(count * prefetch) for queue, count in slots.items()}
    slots_of_all = sum(worker.slots for worker in live)
    capacity = total = int(slots_of_all * prefetch)
    by_tenant: Counter[int] = Counter()
    by_job: Counter[UUID] = Counter()
    by_flow: Counter[UUID] = Counter()
    running: Counter[str] = Counter()
    for tenant_id, queue, flow, job_id, count, of_these in taken:
        by_tenant[tenant_id] += count
        running[queue] += of_these
        by_job[job_id] += count
        by_flow[flow] += count
        if queue in by_queue:
            by_queue[queue] -= count
        if queue:  # what is held outside takes no slot; limits count it
            total -= count
    return Capacity(slots_of_all, capacity, total, by_queue, by_tenant, by_job, by_flow, message_max, running)


def leave_to_others(room: Capacity, pool: str) -> None:
    """Takes room from queues that hold much: some slots are kept for what comes through the others. Changes `room`.

    A queue whose runs take all that it may have running gets no more to wait: they are slow, and nothing waits for it.
    """
    reserve = reserve_of(pool, room.slots)
    if not reserve:
        return
    for queue, left in room.by_queue.items():
        most = 0 if room.running[queue] >= room.slots - reserve else left - reserve
        room.by_queue[queue] = min(left, most)


def open_flows(flows: Sequence[Flow], room: Capacity) -> tuple[list[Flow], float]:
    """Of one tenant's flows those that have room, and how many tickets may go of them in all."""
    free = {flow: _free(flow, room) for flow in flows}
    through = {flow: count for flow, count in free.items() if count > 0}
    return list(through), sum(through.values())


def admit(
    found: Sequence[Candidate], grants: Mapping[int, int], room: Capacity, *, busy: Set[UUID] = frozenset()
) -> list[Candidate]:
    """Of each tenant's candidates the best by rank, up to its grant, within jobs, keys and queues.

    A schedule whose overlap policy is not "allow" runs one at a time: `busy` are those of which one was admitted
    already; those of which one is queued or running are no candidates. Changes `room`; pure otherwise.
    """
    running = set(busy)
    chosen: list[Candidate] = []
    got: Counter[int] = Counter()
    for one in sorted(found, key=lambda one: (one.rank, one.execution_id)):
        if got[one.tenant_id] >= grants.get(one.tenant_id, 0):
            continue
        if _free(one, room) <= 0:
            continue
        if room.by_queue.get(one.queue, 0) <= 0:
            continue
        if one.serial is not None:
            if one.serial in running:
                continue
            running.add(one.serial)
        room.by_queue[one.queue] -= 1
        room.by_job[one.job_id] += 1
        room.by_flow[one.flow] += 1
        got[one.tenant_id] += 1
        chosen.append(one)
    return chosen


def messages_of(chosen: Sequence[Candidate], number: int, message_max: Mapping[str, int]) -> Iterator[Message]:
    """Groups what was chosen by queue, in bounded messages."""
    by_queue: dict[str, list[UUID]] = defaultdict(list)
    for one in chosen:
        by_queue[one.queue].append(one.execution_id)
    for queue, ids in by_queue.items():
        size = message_max.get(queue, MESSAGE_MAX)
        for start in range(0, len(ids), size):
            yield Message(queue, number, ids[start : start + size])


def _free(one: Flow | Candidate, room: Capacity) -> float:
    of_job = math.inf if one.job_limit is None else one.job_limit - room.by_job[one.job_id]
    of_flow = math.inf if one.flow_limit is None else one.flow_limit - room.by_flow[one.flow]
    return min(of_job, of_flow)
