"""What a pool's live workers can take now, by worker group and queue, and the messages that carry it to them. Pure."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple
from uuid import UUID

from apps.dispatch.pace import kept_for_newcomers
from apps.tickets.values import LANES, Candidate, InFlight, LiveWorker
from kernel.pools import group_of, reserve_of

MESSAGE_MAX = 100  # tickets in one message


class Message(NamedTuple):
    """Tickets of one queue that were released together."""

    queue: str
    release: int
    ids: Sequence[UUID]


@dataclass(slots=True)
class Group:
    """The workers of one group: only what names their queues can use them."""

    slots: int = 0
    capacity: int = 0  # slots, and what may wait for them
    free: int = 0  # of the capacity; below zero when workers have gone
    held: list[int] = field(default_factory=lambda: [0 for _ in LANES])  # by lane

    @property
    def kept(self) -> int:
        """Places beyond its capacity that only newcomers get."""
        return kept_for_newcomers(capacity=self.capacity, slots=self.slots)

    def places_for_newcomers(self, given: int = 0, *, refill: bool = True) -> int:
        """What of these is not taken, when so many more went in this pass; with what is free where nobody else goes."""
        left = max(0, self.free - given + self.kept)
        return min(self.kept, left) if refill else left


@dataclass(slots=True)
class Capacity:
    """What a pool can take, and what of it is taken."""

    groups: dict[str, Group]
    slots: dict[str, int]  # by queue, of workers that listen to it
    whose: dict[str, str]  # by queue: the group whose slots its runs take
    by_queue: dict[str, int]  # what each queue can still take
    by_tenant: Counter[int]  # queued or running, also outside
    held: Counter[int]  # by tenant, of our workers' slots
    by_job: Counter[UUID]
    by_flow: Counter[UUID]
    running: Counter[str]  # by queue
    message_max: dict[str, int]

    @property
    def most(self) -> int:
        """What may be queued or running of all groups at once."""
        return sum(group.capacity for group in self.groups.values())

    @property
    def free(self) -> int:
        """Of all groups that have room."""
        return sum(max(0, group.free) for group in self.groups.values())


def capacity_of(live: Sequence[LiveWorker], taken: Iterable[InFlight], *, prefetch: float) -> Capacity:
    """What live workers can take, less what is queued or running."""
    groups: dict[str, Group] = defaultdict(Group)
    slots: Counter[str] = Counter()
    message_max: dict[str, int] = {}
    whose: dict[str, str] = {}
    for worker in live:
        groups[worker.group].slots += worker.slots
        for queue in worker.queues:
            slots[queue] += worker.slots
            if queue not in whose or group_of(queue) == worker.group:  # as its name says, where these serve it
                whose[queue] = worker.group
            message_max[queue] = max(1, min(MESSAGE_MAX, message_max.get(queue, MESSAGE_MAX), worker.slots // 2))
    for group in groups.values():
        group.capacity = group.free = int(group.slots * prefetch)
    by_queue = {queue: int(count * prefetch) for queue, count in slots.items()}
    found = Capacity(
        groups, dict(slots), whose, by_queue, Counter(), Counter(), Counter(), Counter(), Counter(), message_max
    )  # fmt: skip
    for one in taken:
        _take(found, one)
    return found


def leave_to_others(capacity: Capacity, pool: str) -> None:
    """Takes room from queues that hold much: some slots are kept for what comes through the others.

    A queue whose runs take all that it may have running gets no more to wait: they are slow, and nothing waits for it.
    """
    for queue, left in capacity.by_queue.items():
        slots = capacity.groups[capacity.whose[queue]].slots
        reserve = reserve_of(pool, slots)
        if reserve:
            most = 0 if capacity.running[queue] >= slots - reserve else left - reserve
            capacity.by_queue[queue] = min(left, most)


def messages_of(chosen: Sequence[Candidate], number: int, message_max: Mapping[str, int]) -> Iterator[Message]:
    """Groups what was chosen by queue, in bounded messages."""
    by_queue: dict[str, list[UUID]] = defaultdict(list)
    for one in chosen:
        by_queue[one.queue].append(one.execution_id)
    for queue, ids in by_queue.items():
        size = message_max.get(queue, MESSAGE_MAX)
        for start in range(0, len(ids), size):
            yield Message(queue, number, ids[start : start + size])


def _take(capacity: Capacity, one: InFlight) -> None:
    capacity.by_tenant[one.tenant_id] += one.tickets
    capacity.by_job[one.job_id] += one.tickets
    capacity.by_flow[one.flow] += one.tickets
    if not one.queue:  # what is held outside takes no slot; limits count it
        return
    capacity.held[one.tenant_id] += one.tickets
    capacity.running[one.queue] += one.running
    if one.queue in capacity.by_queue:
        capacity.by_queue[one.queue] -= one.tickets
    group = capacity.groups.get(capacity.whose.get(one.queue, group_of(one.queue)))
    if group is not None:
        group.free -= one.tickets
        group.held[one.lane] += one.tickets
