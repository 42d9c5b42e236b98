"""Results that come over the API: of runs leased from a pull queue, and of runs whose receiver answers later.

A token names one attempt by its fence. What it says is settled as a worker's results are, so that of several ends one
counts. Said again with the same token and content it is answered as before; anything else of an attempt that is over is
refused and changes nothing.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal, NamedTuple
from uuid import UUID

import orjson
import psycopg
from psycopg import sql

from apps.outcomes.settle import Settlement, settle
from apps.outcomes.storable import error_text, result_text
from apps.outcomes.verdict import Report
from apps.schedules.definitions import Definitions
from apps.tickets import remote
from apps.tickets import store as tickets
from kernel.ids import attempt_id
from kernel.runtokens import RunToken
from tenants.registry import Registry, Tenancy

Conn = psycopg.Connection[Any]
How = Literal["succeeded", "failed", "returned"]
State = Literal["done", "over", "unsettled"]
TIMED_OUT = {"class": "timeout", "message": "The result did not come within the job's time-out."}

# How the attempts ended, and whether that is what is said now.
_ENDED = """
SELECT m.number, a.fence, a.state, a.retry_at, e.state,
       (m.how = 'succeeded' AND a.state = 'succeeded' AND e.result IS NOT DISTINCT FROM m.said::jsonb)
       OR (m.how <> 'succeeded' AND a.state IN (m.how, 'cancelled') AND a.error IS NOT DISTINCT FROM m.said::jsonb)
FROM unnest(%s::int[], %s::uuid[], %s::uuid[], %s::text[], %s::text[]) AS m(number, attempt, execution, how, said)
JOIN {schema}.executions_attempt a ON a.id = m.attempt
JOIN {schema}.executions_execution e ON e.id = m.execution
"""


@dataclass(frozen=True, slots=True)
class Said:
    """How an attempt ended, as its holder says it. `result` and `error` are bounded and can be stored."""

    token: RunToken
    how: How
    result: Any = None
    error: dict[str, Any] | None = None
    retryable: bool = True
    retry_after_s: float | None = None

    @property
    def pair(self) -> tuple[UUID, int]:
        return self.token.execution_id, self.token.fence


class Answer(NamedTuple):
    """What came of it. `state` "over": the attempt had ended otherwise; "unsettled": say it again later."""

    state: State
    attempt_state: str | None = None
    execution_state: str | None = None
    retry_at: datetime | None = None


@dataclass(slots=True)
class Desk:
    """Takes what holders say. For one thread: it remembers definitions."""

    definitions: Definitions = field(default_factory=Definitions)

    def take(self, conn: Conn, tenancy: Tenancy, said: Sequence[Said], *, now: datetime) -> list[Answer]:
        """Settles what still runs; answers for each in order. On an autocommit connection."""
        current = remote.held(conn, [one.pair for one in said], tenant_id=tenancy.id)
        found = [(current[one.pair], one) for one in said if one.pair in current]
        if found:
            known = self.definitions.of_runs(conn, tenancy.schema, [held.started for held, _ in found])
            settle(conn, Only(tenancy), [_settlement(held, one, known, now) for held, one in found])
            queues = {
                (tenancy.id, held.queue)
                for held, one in found
                if held.waited_for or held.timed_out or one.how != "succeeded"
            }
            tickets.notify_pull(conn, queues)
        return _answers(conn, tenancy, said)


class Only(Registry):
    """A registry that knows one tenant."""

    def __init__(self, tenancy: Tenancy) -> None:
        self.by_id = {tenancy.id: tenancy}

    def get(self, tenant_id: int) -> Tenancy | None:
        return self.by_id.get(tenant_id)


def _settlement(held: remote.HeldOutside, one: Said, known: dict[Any, Any], now: datetime) -> Settlement:
    started = held.started
    definition = known.get(started.execution_id)
    if held.timed_out:  # whatever is said: it counts as if the reconciler had been here before
        late = Report("timed_out", started.started_at, now, error=TIMED_OUT)
        return Settlement(started, held.worker_id, late, definition)
    result = None if one.result is None else orjson.dumps(one.result).decode()
    report = Report(
        one.how, started.started_at, now, result=result, error=one.error, retryable=one.retryable,
        retry_after_s=one.retry_after_s,
    )  # fmt: skip
    return Settlement(started, held.worker_id, report, definition)


def _answers(conn: Conn, tenancy: Tenancy, said: Sequence[Said]) -> list[Answer]:
    texts = [
        result_text(None if one.result is None else orjson.dumps(one.result).decode())
        if one.how == "succeeded"
        else error_text(one.error)
        for one in said
    ]
    query = sql.SQL(_ENDED).format(schema=sql.Identifier(tenancy.schema))
    rows = conn.execute(
        query,
        [
            list(range(len(said))), [attempt_id(one.token.execution_id, one.token.attempt) for one in said],
            [one.token.execution_id for one in said], [one.how for one in said], texts,
        ],
    )  # fmt: skip
    ended = {row[0]: row[1:] for row in rows}
    alive = remote.held(conn, [one.pair for one in said], tenant_id=tenancy.id)
    answers = []
    for number, one in enumerate(said):
        row = ended.get(number)
        if row is not None and row[0] == one.token.fence:
            _, attempt_state, retry_at, execution_state, same = row
            answers.append(Answer("done" if same else "over", attempt_state, execution_state, retry_at))
        else:  # without a row the attempt goes on, because its settling failed; or its history is gone
            answers.append(Answer("unsettled" if one.pair in alive else "over"))
    return answers
