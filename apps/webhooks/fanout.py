"""The fan-out of one tenant: from events to deliveries, in one transaction. Any number of processes may try at once.

Bells are taken first, then the webhooks' rows are locked; those that somebody holds are passed over and a new bell is
rung. Each webhook reads on from its own position, so neither a crash nor a second process makes a delivery twice or
leaves one out; the unique run key is the second line.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from uuid import UUID

import psycopg
from psycopg import sql

from apps.due import bells
from apps.events import store as events
from apps.events.store import EventRow, Position
from apps.webhooks import deliveries, wanted
from apps.webhooks.deliveries import Delivery
from apps.webhooks.jobs import queue_of
from apps.webhooks.rules import fits
from kernel.eventtypes import wanted_types
from tenants.registry import Tenancy

Conn = psycopg.Connection[Any]
BATCH = 500  # events that a webhook reads in one transaction
LIVE_MAX = 1_000  # deliveries of one webhook that have not ended; further events wait
NOT_ARRIVED = ("dead", "cancelled", "expired")
AGAIN_LOCKED_S = 0.5
AGAIN_FULL_S = 2.0
BY = "webhooks"


class Subscription(NamedTuple):
    """A webhook's row, locked."""

    id: UUID
    enabled: bool
    types: list[str]
    jobs: list[str]
    schedules: list[str]
    labels: dict[str, str]
    cursor_tx: int
    cursor_id: UUID
    generation: int
    replay: str
    replay_tx: int | None
    replay_id: UUID | None

    @property
    def cursor(self) -> Position:
        return Position(self.cursor_tx, self.cursor_id)

    @property
    def replay_until(self) -> Position | None:
        if self.replay_tx is None or self.replay_id is None:
            return None
        return Position(self.replay_tx, self.replay_id)


@dataclass(slots=True)
class Fanned:
    """What one transaction did. `more` says that there is more to do at once."""

    events: int = 0
    made: int = 0
    reopened: int = 0
    cancelled: int = 0
    more: bool = False
    again_s: list[float] = field(default_factory=list)
    wants: frozenset[str] | None = None  # what the webhooks ask for together; None when not all were seen


_LOCK = f"""
SELECT {", ".join(Subscription._fields)} FROM {{schema}}.webhooks_webhook
WHERE enabled ORDER BY id FOR NO KEY UPDATE SKIP LOCKED
"""

_ENABLED = "SELECT count(*) FROM {schema}.webhooks_webhook WHERE enabled"

# Where deliveries of webhooks that are disabled or deleted are still alive.
_LEFT = """
SELECT w.id FROM {schema}.webhooks_webhook w WHERE NOT w.enabled AND EXISTS (
    SELECT 1 FROM {schema}.executions_execution e JOIN tickets_ticket t ON t.execution_id = e.id
    WHERE e.job_id = w.id AND e.finished_at IS NULL AND e.trigger = 'webhook' AND e.job_version = 1
      AND t.state IN ('blocked', 'ready', 'queued'))
ORDER BY w.id LIMIT 10
"""

_MOVE = """
UPDATE {schema}.webhooks_webhook SET cursor_tx = %(tx)s, cursor_id = %(id)s,
       replay = CASE WHEN %(done)s THEN '' ELSE replay END,
       replay_tx = CASE WHEN %(done)s THEN NULL ELSE replay_tx END,
       replay_id = CASE WHEN %(done)s THEN NULL ELSE replay_id END
WHERE id = %(webhook)s AND cursor_tx = %(old_tx)s AND cursor_id = %(old_id)s
"""

# Labels as templates of jobs see them: the job's, the schedule's, the run's own; the later ones win.
_LABELS = """
SELECT m.event_id, coalesce(j.labels, '{{}}') || coalesce(s.labels, '{{}}') || coalesce(e.labels, '{{}}')
FROM unnest(%s::uuid[], %s::uuid[], %s::uuid[], %s::uuid[]) AS m(event_id, job_id, schedule_id, execution_id)
LEFT JOIN {schema}.schedules_job j ON j.id = m.job_id
LEFT JOIN {schema}.schedules_schedule s ON s.id = m.schedule_id
LEFT JOIN {schema}.executions_execution e ON e.id = m.execution_id
"""


def fan_out(conn: Conn, tenancy: Tenancy, *, batch: int = BATCH, live_max: int = LIVE_MAX) -> Fanned:
    """One step of the tenant's fan-out: at most `batch` events of each webhook."""
    done = Fanned()
    with conn.transaction():
        at = bells.moment(conn)
        if not bells.take(conn, tenancy.id, at):
            return done
        found = [Subscription._make(row) for row in conn.execute(_in(_LOCK, tenancy))]
        row = conn.execute(_in(_ENABLED, tenancy)).fetchone()
        if row is not None and row[0] > len(found):
            done.again_s.append(AGAIN_LOCKED_S)
        else:
            done.wants = frozenset().union(*(wanted_types(one.types) for one in found))
        alive = deliveries.live(conn, tenancy.schema, [one.id for one in found]) if found else {}
        for webhook in found:
            _carry(conn, tenancy, webhook, at, batch, live_max - alive.get(webhook.id, 0), done)
        left = [row[0] for row in conn.execute(_in(_LEFT, tenancy))]
        done.more = done.more or bool(left)
        if done.more or done.again_s:
            bells.ring(conn, tenancy.id, in_s=0.0 if done.more else min(done.again_s))
    if done.wants is not None and done.wants != tenancy.wants:
        wanted.refresh(conn, tenancy.schema, tenancy.id)
    for webhook_id in left:
        # After the commit, for tickets come before webhooks in the order of locks; should this process end before it,
        # the bell brings whoever is next. Deliveries of webhooks that are not enabled do not wait for their tries.
        with conn.transaction():
            ended = deliveries.cancel_waiting(conn, tenancy.schema, webhook_id, now=at.now, limit=LIVE_MAX)
        done.cancelled += ended
    return done


def _carry(
    conn: Conn, tenancy: Tenancy, webhook: Subscription, at: bells.Moment, batch: int, room: int, done: Fanned
) -> None:
    """Reads a webhook's next events and makes their deliveries."""
    if room <= 0:
        done.again_s.append(AGAIN_FULL_S)
        return
    limit = min(batch, room)
    read = events.read_after(conn, tenancy.schema, webhook.cursor, limit=limit, bound=at.horizon)
    if not read:
        _end_replay(conn, tenancy, webhook)
        return
    done.events += len(read)
    chosen = _fitting(conn, tenancy, webhook, read)
    queue = queue_of(tenancy)
    to_make = [
        Delivery(webhook.id, deliveries.key_of(one.id, webhook.id, webhook.generation), events.body_of(one), one.at)
        for one in _not_there(conn, tenancy, webhook, chosen, at, queue, done)
    ]
    made = deliveries.make(
        conn, tenancy.schema, tenant_id=tenancy.id, queue=queue, wanted=to_make, now=at.now, by=BY
    )  # fmt: skip
    done.made += len(made)
    until = webhook.replay_until
    if len(read) == limit:
        done.more = True
        _move(conn, tenancy, webhook, read[-1].position)
    else:  # that was all: what was to be sent once more is
        _move(conn, tenancy, webhook, max(read[-1].position, until or read[-1].position))


def _fitting(conn: Conn, tenancy: Tenancy, webhook: Subscription, read: Sequence[EventRow]) -> list[EventRow]:
    labels: Mapping[UUID, Mapping[str, str]] = {}
    if webhook.labels:
        columns = [[getattr(one, name) for one in read] for name in ("id", "job_id", "schedule_id", "execution_id")]
        labels = dict(conn.execute(_in(_LABELS, tenancy), columns).fetchall())
    return [
        one
        for one in read
        if fits(webhook, type_=one.type, job_id=one.job_id, schedule_id=one.schedule_id, labels=labels.get(one.id))
    ]


def _not_there(
    conn: Conn, tenancy: Tenancy, webhook: Subscription, chosen: Sequence[EventRow], at: bells.Moment, queue: str,
    done: Fanned,
) -> list[EventRow]:  # fmt: skip
    """While what is missing is sent once more: what never got a delivery. A dead one is opened again, here."""
    until = webhook.replay_until
    if webhook.replay != "missing" or until is None:
        return list(chosen)
    again = [one.id for one in chosen if one.position <= until]
    there = deliveries.of_events(conn, tenancy.schema, webhook.id, again) if again else {}
    new = []
    for one in chosen:
        known = there.get(one.id, [])
        if any(state not in NOT_ARRIVED for _, state in known):
            continue
        dead = [execution_id for execution_id, state in known if state == "dead"]
        if not dead:
            new.append(one)
        elif deliveries.reopen(conn, tenancy.schema, max(dead), tenant_id=tenancy.id, queue=queue, now=at.now):
            done.reopened += 1
    return new


def _move(conn: Conn, tenancy: Tenancy, webhook: Subscription, to: Position) -> None:
    until = webhook.replay_until
    moved = conn.execute(
        _in(_MOVE, tenancy),
        {
            "tx": to.tx, "id": to.id, "done": until is not None and to >= until, "webhook": webhook.id,
            "old_tx": webhook.cursor_tx, "old_id": webhook.cursor_id,
        },
    )  # fmt: skip
    if moved.rowcount != 1:  # can't be while the row is locked; if it ever is, nothing of this may stand
        raise psycopg.errors.SerializationFailure("a webhook moved under its lock")


def _end_replay(conn: Conn, tenancy: Tenancy, webhook: Subscription) -> None:
    """There is nothing more to read: what was to be sent once more is, or is forgotten."""
    until = webhook.replay_until
    if until is not None:
        _move(conn, tenancy, webhook, max(webhook.cursor, until))


def _in(query: str, tenancy: Tenancy) -> sql.Composed:
    return sql.SQL(query).format(schema=sql.Identifier(tenancy.schema))
