"""One turn of one operation: a batch of planning, or a chunk of work, in the caller's transaction.

The caller holds the operation's row in the due index; the operation itself is locked, too, and says what to do.
Whatever a turn does is written with it, or not at all.
"""

from collections import Counter
from collections.abc import Iterable
from datetime import datetime, timedelta
from uuid import UUID

from apps.operations import asked_by, items
from apps.operations.carrying import carry_out, take_back
from apps.operations.deciding import CHUNK, Standing, next_start, next_step
from apps.operations.items import Settled
from apps.operations.kinds import KINDS, kind_of
from apps.operations.kinds.base import Work
from apps.operations.models import Operation
from apps.operations.outlined import outline
from kernel.errors import ShardbeatError
from kernel.transitions import FINAL_STATES
from tenants import door
from tenants.models import Tenant

MAX_ITEMS = 1_000_000
PLAN_ROWS = 2_000  # of one transaction
UNDO_NUMBERS = 500  # looked at in one transaction; most of them may have nothing to take back
LOOK_ROWS = 1_000
LOOK_S, LOOK_IDLE_S = 0.5, 2.0  # between looks at what runs: while some end or others wait for their place, and else
TOO_MANY = f"The filter fits more than {MAX_ITEMS:,} things; narrow it, or do it in parts."
GIVE_UP_AFTER = 5  # turns in a row that failed: then the item that fails them does
ERROR_CHARS = 500
CANARY_FAILED = "canary_failed"
GONE = "execution_gone"


class Turn:
    """What one turn has read and is about to write. `due_at` is when the next one is; None for never."""

    def __init__(self, tenant: Tenant, operation: Operation, *, now: datetime, failures: int) -> None:
        self.tenant, self.operation, self.now = tenant, operation, now
        self.conn, self.schema = door.raw(), tenant.schema_name
        self.careful = failures > 0  # one item at a time
        self.give_up = failures >= GIVE_UP_AFTER
        self.due_at: datetime | None = now
        self.counts: Counter[str] = Counter()
        self._before = operation.values()

    def run(self) -> None:
        """Does what the operation's state asks for."""
        one = self.operation
        if one.state == "planning":
            self._plan()
        else:
            ended = self._look()
            if one.state == "running":
                self._work(ended)
            elif one.state == "undoing":
                self._undo(ended)
            elif not one.running:
                if one.state != "paused":
                    one.finished_at = one.finished_at or self.now
                self.due_at = None
            else:
                self._look_again(ended)
        self._write()
        if one.finished_at is not None and self._before["finished_at"] is None:
            kind = KINDS.get((one.action, one.target))
            if kind is not None:  # else a version that knew it has made it
                kind.ended(self.tenant, one, now=self.now)

    def _plan(self) -> None:
        one = self.operation
        kind = kind_of(one.action, one.target)
        try:
            found = kind.planned(self.tenant, one, after=one.cursor, size=PLAN_ROWS)
        except ShardbeatError as error:  # what it was asked for can't be asked for any more
            self._fail(error.detail)
            return
        if one.planned + len(found.items) > MAX_ITEMS:
            self._fail(TOO_MANY)
            return
        if found.items:
            items.add(self.conn, self.schema, one.pk, found.items, after_n=one.planned)
        one.planned += len(found.items)
        one.pending += len(found.items)
        one.cursor = found.after
        self.counts["planned"] += len(found.items)
        if found.after is None:
            one.is_planned, one.state, one.started_at = True, "running", self.now

    def _fail(self, why: str) -> None:
        one = self.operation
        one.state, one.error, one.finished_at, self.due_at = "failed", why[:ERROR_CHARS], self.now, None

    def _look(self) -> int:
        """Settles running items whose executions have ended; how many."""
        one = self.operation
        if not one.running:
            return 0
        seen = items.look(self.conn, self.schema, one.pk, after_n=one.looked_n, limit=LOOK_ROWS)
        one.looked_n = seen[-1].n if len(seen) == LOOK_ROWS else 0
        ended = [_ended(row.n, row.state) for row in seen if row.state is None or row.ended]
        self._settle(ended)
        return len(ended)

    def _work(self, ended: int) -> None:
        one = self.operation
        standing = _standing(one)
        step = next_step(standing, now=self.now)
        one.canary_passed = step.canary_passed
        if step.verb == "complete":
            one.state, one.finished_at, one.waits_for, self.due_at = "completed", self.now, "", None
        elif step.verb == "stop":
            one.state, one.waits_for = "stopped", ""
            self._end_or_look(ended)
        elif step.verb == "hold":
            one.state, one.paused_reason, one.waits_for = "paused", CANARY_FAILED, ""
            self._look_again(ended)
        elif step.verb == "wait":
            if step.at is None:  # until then it waits for what it said
                one.waits_for = ""
            self._look_again(ended, at=step.at)
        else:
            self._start(1 if self.careful else step.room, standing, ended)

    def _start(self, room: int, standing: Standing, ended: int) -> None:
        one, kind, work = self.operation, kind_of(self.operation.action, self.operation.target), self._as_asker()
        one.waits_for = kind.holds(work)
        if one.waits_for:
            self._look_again(ended)
            return
        left = None if one.stop_after_failures is None else one.stop_after_failures - one.failed
        if not one.canary_passed and one.canary is not None:
            left = 1
        taken = items.pending(self.conn, self.schema, one.pk, first_n=one.planned - one.pending + 1, limit=room)
        if not taken:
            raise RuntimeError(f"operation {one.pk} counts {one.pending} pending items and has none")
        found = carry_out(kind, work, taken, failures_left=left, give_up=self.give_up)
        self._settle(found.settled)
        one.waits_for = found.waits_for
        if found.waits_for:
            one.next_at = self.now + timedelta(seconds=found.wait_s)
            self._look_again(ended, at=one.next_at)
        else:
            one.next_at = next_start(standing, started=len(found.settled), now=self.now)
            if one.next_at is not None:
                self._look_again(ended, at=one.next_at)

    def _undo(self, ended: int) -> None:
        """From the last number down; what has started by now goes on, and is waited for."""
        one = self.operation
        last = (one.cursor or {}).get("undo_below", one.planned + 1) - 1
        if last >= 1:
            taken = items.to_undo(self.conn, self.schema, one.pk, last_n=last, limit=UNDO_NUMBERS)
            some = taken[: 1 if self.careful else CHUNK]
            done = take_back(kind_of(one.action, one.target), self._as_asker(), some, give_up=self.give_up)
            self._settle(done)
            all_seen = len(done) == len(taken)
            one.cursor = {"undo_below": max(1, last - UNDO_NUMBERS + 1) if all_seen else done[-1].n}
        elif one.running:
            self._look_again(ended)
        else:
            one.state, one.finished_at, self.due_at = "undone", self.now, None

    def _as_asker(self) -> Work:
        one = self.operation
        actor = asked_by.restored(self.conn, one.actor, tenant_id=self.tenant.pk, operation_id=one.pk)
        return Work(tenant=self.tenant, actor=actor, operation=one, now=self.now)

    def _settle(self, rows: Iterable[Settled]) -> None:
        rows = list(rows)
        written = items.settle(self.conn, self.schema, self.operation.pk, rows, now=self.now)
        if written != len(rows):  # nobody else writes items while the operation is locked
            raise RuntimeError(f"{written} of {len(rows)} items of operation {self.operation.pk} could be written")
        for row in rows:
            if row.was != row.state:
                setattr(self.operation, row.was, getattr(self.operation, row.was) - 1)
                setattr(self.operation, row.state, getattr(self.operation, row.state) + 1)
            self.counts[row.state] += 1

    def _end_or_look(self, ended: int) -> None:
        if self.operation.running:
            self._look_again(ended)
        else:
            self.operation.finished_at, self.due_at = self.now, None

    def _look_again(self, ended: int, *, at: datetime | None = None) -> None:
        """The next turn is when what runs is looked at, or at `at` if that is sooner; without either, never."""
        one = self.operation
        others_wait = one.state == "running" and one.pending and not one.waits_for  # for a place
        wait_s = LOOK_S if ended or one.looked_n or others_wait else LOOK_IDLE_S
        look_at = self.now + timedelta(seconds=wait_s) if self.operation.running or self.operation.waits_for else None
        self.due_at = min((one for one in (look_at, at) if one is not None), default=None)

    def _write(self) -> None:
        changed, was = self.operation.changed_since(self._before), self._before["state"]
        if changed:
            written = Operation.objects.filter(pk=self.operation.pk, state=was).update(**changed)
            if not written:  # it is locked
                raise RuntimeError(f"operation {self.operation.pk} is not {was} any more")
        outline(self.conn, self.operation, tenant_id=self.tenant.pk, now=self.now)


def lock(operation_id: UUID) -> Operation | None:
    """The operation, locked; None when there is none."""
    found: Operation | None = Operation.objects.select_for_update().filter(pk=operation_id).first()
    return found


def _ended(n: int, state: str | None) -> Settled:
    if state is None:
        return Settled(n, "running", "skipped", GONE, "What it started is not kept any more.")
    if state in ("succeeded", "skipped"):
        return Settled(n, "running", state, "" if state == "succeeded" else state)
    assert state in FINAL_STATES
    return Settled(n, "running", "failed", state)


def _standing(one: Operation) -> Standing:
    return Standing(
        planned=one.planned, pending=one.pending, running=one.running, failed=one.failed, skipped=one.skipped,
        rate_per_s=one.rate_per_s, max_in_flight=one.max_in_flight, canary=one.canary, canary_passed=one.canary_passed,
        stop_after_failures=one.stop_after_failures, next_at=one.next_at,
    )  # fmt: skip
