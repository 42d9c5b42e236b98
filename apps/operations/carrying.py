"""Carrying out items, and taking them back: each in a savepoint of its own, through the service of a single request.

Where a kind's service takes many at once, the items of a chunk go through it together.
"""

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

import psycopg
from django.db import OperationalError, transaction

from apps.operations.items import Settled, settled
from apps.operations.kinds.base import Done, HeldBack, Kind, TakenItem, Work
from kernel.clock import monotonic_s
from kernel.errors import Conflict, NotFound, Overloaded, QuotaExceeded, ShardbeatError, Stale, code_of

log = logging.getLogger(__name__)
BUDGET_S = 0.25  # of one transaction: others wait for its locks
WAIT_S, WAIT_MAX_S = 5.0, 60.0  # for room in the plan, or on the platform
STALE_TRIES = 3
HELD_S = 1.0  # for an item's turn
BUSY = "busy"
INTERNAL = "internal_error"
NOT_UNDONE = "not_undone"


@dataclass(slots=True)
class Carried:
    """What became of items. `waits_for`: the first one that is not here must wait, so long, because of this."""

    settled: list[Settled] = field(default_factory=list)
    waits_for: str = ""
    wait_s: float = 0.0


def carry_out(
    kind: Kind, work: Work, items: Sequence[TakenItem], *, failures_left: int | None, give_up: bool
) -> Carried:
    """Carries items out in their order, until the time is over or `failures_left` of them have failed.

    An error of the database that another try may not meet is raised, and nothing is done; with `give_up` the item that
    meets it fails.
    """
    found = Carried()
    together = {} if give_up or len(items) == 1 else _together(kind, work, items)
    failed = 0
    for item in items if together else _in_time(items):
        try:
            known = together.get(item.n)
            done = _one(partial(kind.apply, work, item), give_up) if known is None else _done(known)
        except HeldBack as error:
            found.waits_for, found.wait_s = error.code, HELD_S
            break
        except (QuotaExceeded, Overloaded) as error:
            found.waits_for = code_of(error)
            found.wait_s = min(WAIT_MAX_S, max(1.0, float(error.extra.get("retry_after_s") or WAIT_S)))
            break
        found.settled.append(settled(item, done))
        failed += done.state == "failed"
        if not together and failures_left is not None and failed >= failures_left:
            break
    return found


def take_back(kind: Kind, work: Work, items: Sequence[TakenItem], *, give_up: bool) -> list[Settled]:
    """Takes items back in their order, until the time is over. One that can't be keeps its state, with the reason."""
    found: list[Settled] = []
    for item in _in_time(items):
        done = _one(partial(_undone, kind, work, item), give_up)
        if done.state == "succeeded":
            found.append(Settled(item.n, item.state, "undone"))
        else:
            found.append(Settled(item.n, item.state, item.state, done.code or NOT_UNDONE, done.detail))
    return found


def _together(kind: Kind, work: Work, items: Sequence[TakenItem]) -> Mapping[int, Done | ShardbeatError]:
    """What became of all of them, by their numbers; empty when they go one by one."""
    try:
        with transaction.atomic():
            return kind.apply_together(work, items)
    except (OperationalError, psycopg.OperationalError):
        raise
    except Exception:  # one of them; which one is found out
        log.warning("%d items of an operation could not be done together", len(items), exc_info=True)
        return {}


def _done(known: Done | ShardbeatError) -> Done:
    """What a refusal makes of an item. HeldBack, QuotaExceeded and Overloaded are raised: the item waits."""
    if isinstance(known, Done):
        return known
    if isinstance(known, HeldBack | QuotaExceeded | Overloaded):
        raise known
    return Done("skipped" if isinstance(known, NotFound | Conflict) else "failed", code_of(known), known.detail)


def _undone(kind: Kind, work: Work, item: TakenItem) -> Done:
    kind.undo(work, item)
    return Done("succeeded")


def _in_time(items: Sequence[TakenItem]) -> Iterator[TakenItem]:
    """The first item in any case, then others while there is time."""
    stop_at = monotonic_s() + BUDGET_S
    for number, item in enumerate(items):
        if number and monotonic_s() >= stop_at:
            return
        yield item


def _one(work: Callable[[], Done], give_up: bool, tries: int = STALE_TRIES) -> Done:
    try:
        with transaction.atomic():
            return work()
    except Stale as error:  # somebody changed it between reading and writing
        return _one(work, give_up, tries - 1) if tries > 1 else Done("failed", error.code, error.detail)
    except ShardbeatError as error:
        return _done(error)
    except (OperationalError, psycopg.OperationalError) as error:
        if not give_up:
            raise
        log.warning("an item of an operation is given up: %s", error)
        return Done("failed", BUSY, "The database would not let it through; somebody holds what it needs.")
    except Exception:  # one bad row must not stop the others
        log.exception("an item of an operation failed")
        return Done("failed", INTERNAL, "It failed for a reason that the log of the dispatcher tells.")
