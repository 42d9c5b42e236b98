"""The beat: makes the slots of PeriodicTasks that are due, and sends what waits.

Any number of beats may run, each doing all of this: a slot's row exists once, is claimed by one sender at a time and is
started once (`workers.periodic.SlotTask`). So there is no leader, and nothing to take over when one dies.
Nothing is kept between passes but what has been said in the log. A task that can't be served costs only itself.
"""

import logging
from collections.abc import Sequence
from datetime import datetime
from typing import Any

import psycopg
from celery import Celery
from kombu.exceptions import OperationalError

from apps.due import slots
from apps.due.slots import Slot
from kernel.service import Pass
from tenants.door import Line
from workers import beat_rows
from workers.beat_message import Message, message_of
from workers.beat_rows import Candidate
from workers.beat_timing import Unservable, newest_due, next_due

log = logging.getLogger(__name__)
Conn = psycopg.Connection[Any]
IDLE_S = 1.0  # also how soon a change in the admin is seen
SEND_BATCH = 100
WAITING_MAX = 10  # while so many slots of a task wait for a worker, no more are made: later ones count as missed


class BeatService:
    """One thread, one connection to the database, one to the broker."""

    name = "beat"

    def __init__(self, line: Line, app: Celery) -> None:
        self._line = line
        self._app = app
        self._broker: Any = app.connection_for_write()  # connects when it is used
        # A lost broker is noticed at once: the next pass tries again, with the loop's back-off.
        self._broker.transport_options = {**self._broker.transport_options, "max_retries": 0}
        self._away = (OperationalError, OSError, *self._broker.connection_errors, *self._broker.channel_errors)
        self._producer: Any = None
        self._told: dict[int, str] = {}

    def run_once(self) -> Pass:
        conn = self._line.get()
        for name in beat_rows.expire(conn):
            log.info("periodic task %r has expired and is switched off", name)
        now, candidates = beat_rows.enabled(conn)
        made, wait_s = 0, IDLE_S
        if now is not None:
            due, nearest = self._decide(candidates, now)
            made = beat_rows.make_slots(conn, due, now=now) if due else 0
            wait_s = (nearest - now).total_seconds() if nearest is not None else IDLE_S
        claimed = slots.claim_to_send(conn, limit=SEND_BATCH)
        sent = self._send(conn, claimed)
        late = slots.give_up_late(conn, limit=SEND_BATCH)
        for slot in late:
            log.error("periodic task %r: nobody started its slot of %s, given up", slot.name, slot.slot_at)
        counts = {"made": made, "sent": sent, "given_up": len(late)}
        return Pass(counts, full=len(claimed) == SEND_BATCH, wait_s=wait_s)

    def close(self) -> None:
        self._hang_up()
        self._line.close()

    def _decide(
        self, candidates: Sequence[Candidate], now: datetime
    ) -> tuple[list[tuple[Candidate, datetime]], datetime | None]:
        """What is due, and the next instant at which something will be."""
        due: list[tuple[Candidate, datetime]] = []
        nearest: datetime | None = None
        troubles: dict[int, str] = {}
        for task in candidates:
            try:
                slot_at = newest_due(task.when, now=now) if task.waiting < WAITING_MAX else None
                following = next_due(task.when, now=now)
            except Unservable as error:
                troubles[task.id] = str(error)
                continue
            except Exception as error:  # whatever a row holds, the others go on
                troubles[task.id] = f"{type(error).__name__}: {error}"
                continue
            if slot_at is not None:
                due.append((task, slot_at))
            if following is not None and (nearest is None or following < nearest):
                nearest = following
        names = {task.id: task.name for task in candidates}
        for task_id, trouble in troubles.items():
            if self._told.get(task_id) != trouble:
                log.error("periodic task %r is not served: %s", names[task_id], trouble)
        self._told = troubles
        return due, nearest

    def _send(self, conn: Conn, claimed: Sequence[Slot]) -> int:
        """Sends what was claimed. When the broker is away the claims are given back, and the pass fails."""
        tasks = beat_rows.by_id(conn, sorted({slot.task_id for slot in claimed})) if claimed else {}
        sent = 0
        for number, slot in enumerate(claimed):
            task = tasks.get(slot.task_id)
            if task is None:
                self._never(conn, slot, "the task has been deleted")
                continue
            try:
                message = message_of(task, slot)
                if message.expires_at is not None and message.expires_at <= slot.sent_at:
                    self._never(conn, slot, "it has expired")
                    continue
                self._publish(message)
                sent += 1
            except self._away:
                slots.not_sent(conn, claimed[number:])
                self._hang_up()
                raise
            except Exception as error:  # a poison task: it is tried again later, in case somebody mends it
                log.error(
                    "periodic task %r can't be sent (%d of %d): %s: %s",
                    slot.name, slot.sends, slots.SENDS_MAX, type(error).__name__, error,
                )  # fmt: skip
        return sent

    def _publish(self, message: Message) -> None:
        """One try; the row is what repeats it. A task that this app does not know is somebody else's to run."""
        if self._producer is None:
            self._producer = self._app.amqp.Producer(self._broker, auto_declare=False)
        options = {**message.options, "producer": self._producer, "retry": False}
        task = self._app.tasks.get(message.task)
        if task is not None:
            task.apply_async(message.args, message.kwargs, **options)
        else:
            self._app.send_task(message.task, message.args, message.kwargs, **options)

    def _hang_up(self) -> None:
        """Closes the connection to the broker; it is opened again when it is needed."""
        self._producer = None
        self._broker.release()

    def _never(self, conn: Conn, slot: Slot, reason: str) -> None:
        if slots.give_up(conn, slot.id):
            log.warning("periodic task %r: its slot of %s is given up: %s", slot.name, slot.slot_at, reason)
