"""Why is it not running? The answer about one execution, from the rows as they are and by the rules that release asks.

What waits is answered by `admission`, what runs by its ticket and worker, what has ended by what was written down.
About a dozen short statements, whatever waits: see `rows` and `facts`.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import psycopg

from apps.deadletters.models import DeadLetter
from apps.dispatch.admission import refusal
from apps.dispatch.explaining.causes import BEHIND_S
from apps.dispatch.explaining.dependencies import holders_of
from apps.dispatch.explaining.ended import By, Letter, delays_of, ended, instant, late_s, parts_of
from apps.dispatch.explaining.facts import Known, known_of
from apps.dispatch.explaining.rows import (
    HeldRow,
    LastAttempt,
    Lengths,
    Run,
    attempt_of,
    holders,
    lengths_of,
    run_of,
)
from apps.dispatch.explaining.running import running
from apps.dispatch.explaining.stopped import stopped_by
from apps.dispatch.explaining.trail import last_by
from apps.dispatch.explaining.values import Explanation, Holder, Thing, Verdict
from apps.dispatch.explaining.waiting import checks_of, position_of, queued, waiting
from apps.due.leases import IMPLAUSIBLE_S
from kernel.durations import span
from kernel.errors import NotFound
from kernel.ids import attempt_id
from tenants import door
from tenants.models import Tenant

Conn = psycopg.Connection[Any]

_SHARD_IS_HELD = f"""
SELECT EXISTS (SELECT 1 FROM due_shardlease WHERE kind = 'fire' AND shard = %s AND owner IS NOT NULL
               AND expires_at > clock_timestamp() AND expires_at < clock_timestamp() + interval '{IMPLAUSIBLE_S} s')
"""


def execution_explain(
    tenant: Tenant, execution_id: UUID, *, now: datetime, named: bool = False, operator: bool = False
) -> Explanation:
    """Why it waits, what it is up to, or why it ended so; in the tenant's schema, read with its plan. NotFound.

    `named`: persons by name, for who may read the trail. `operator`: with what is the platform's own.
    """
    conn = door.raw()
    run = run_of(conn, tenant, execution_id)
    if run is None:
        raise NotFound("There is no such execution.")
    if run.is_over:
        return _answer(run, now, _ended(conn, tenant, run, named=named))
    if run.stored_state == "scheduled":
        return _answer(run, now, _scheduled(conn, run, now))
    if run.state is None:
        text = "Its execution is not finished, and no ticket stands for it."
        return _answer(run, now, Verdict("no_ticket", text, thing=Thing("execution", str(run.id))))
    if run.state == "running":
        by = stopped_by(tenant, run.id, named=named) if run.cancel_requested else None
        return _answer(run, now, running(run, lengths_of(conn, tenant, run.job_id), by=by, now=now, operator=operator))
    known = known_of(conn, tenant, run, now=now)
    if run.state == "queued":
        return _answer(run, now, queued(run, known, operator=operator))
    verdict = _waiting(conn, tenant, run, known, named=named, operator=operator)
    return _answer(run, now, verdict, known, operator=operator)


def _answer(
    run: Run, now: datetime, verdict: Verdict, known: Known | None = None, *, operator: bool = False
) -> Explanation:
    delays = delays_of(run)
    late = parts_of(run, delays) if verdict.code != "started_late" else ""
    return Explanation(
        "execution", run.id, run.job_name, run.now_state, now, verdict,
        checks=checks_of(known.facts, operator=operator) if known else (),
        position=position_of(run, known) if known else None, delays=delays, late_s=late_s(run, now=now),
        notes=[late] if late else [],
    )  # fmt: skip


def _ended(conn: Conn, tenant: Tenant, run: Run, *, named: bool) -> Verdict:
    last, letter, by = None, None, None
    if run.stored_state == "dead":
        last = attempt_of(conn, tenant, [attempt_id(run.id, run.attempts)])
        found = DeadLetter.objects.filter(execution_id=run.id).order_by("-pk").only("pk", "resolved_at").first()
        letter = None if found is None else Letter(found.pk, found.resolved_at is None)
    elif run.stored_state == "cancelled" and run.reason != "replaced":
        by = stopped_by(tenant, run.id, named=named)
    return ended(run, last=last, letter=letter, by=by)


def _scheduled(conn: Conn, run: Run, now: datetime) -> Verdict:
    """A delayed run, whose place is in the due-time index."""
    me = Thing("execution", str(run.id))
    if run.due_at is None:
        return Verdict("entry_missing", f"It is due at {instant(run.actual_at)}, and has no due entry.", thing=me)
    if run.parked:
        return Verdict("entry_parked", f"Its due entry was put aside: {run.parked}", thing=me)
    row = conn.execute(_SHARD_IS_HELD, [run.shard]).fetchone()
    if not (row and row[0]):
        text = f"It is due at {instant(run.due_at)}, and no live dispatcher holds shard {run.shard}, which it is in."
        return Verdict("no_dispatcher", text, thing=Thing("dispatchers"))
    if run.due_at <= now:
        late_s = (now - run.due_at).total_seconds()
        return Verdict(
            "due_now", f"It has been due for {span(late_s)}.", fine=late_s < BEHIND_S, since=run.due_at, thing=me
        )
    text = f"It was asked for later, and is due at {instant(run.due_at)}."
    return Verdict("delayed", text, fine=True, check="not_yet_due", clears_at=run.due_at, thing=me)


def _waiting(conn: Conn, tenant: Tenant, run: Run, known: Known, *, named: bool, operator: bool) -> Verdict:
    refused = refusal(known.facts)
    code = refused.code if refused is not None else ""
    by: By | None = None
    if code == "job_paused":
        by = last_by(tenant, run.job_id, ["job.pause", "workflow.pause"], named=named)
    elif code == "queue_paused":
        by = last_by(tenant, run.queue, ["queue.pause"], named=named)
    last: LastAttempt | None = None
    if code == "not_yet_due" and run.attempt:
        last = attempt_of(conn, tenant, [attempt_id(run.id, run.attempt)])
    return waiting(run, known, holders=_holders(conn, tenant, run, code, known), by=by, last=last, operator=operator)


def _holders(conn: Conn, tenant: Tenant, run: Run, code: str, known: Known) -> list[Holder]:
    """The tenant's own runs that hold what this one waits for, or that it depends on."""
    if code == "workflow_blocked":
        return holders_of(known.parents)
    narrowed: dict[str, dict[str, Any]] = {
        "overlap": {"schedule": run.schedule_id},
        "job_concurrency": {"job": run.job_id},
        "tenant_concurrency": {},
        "pool_maximum": {"pool": run.pool},
        "concurrency_key": {"flow": run.flow},
        "pool_full": {"pool": run.pool},
    }
    if code not in narrowed:
        return []
    return _expected(holders(conn, tenant, but=run.id, **narrowed[code]), known.lengths)


def _expected(rows: Sequence[HeldRow], lengths: Lengths) -> list[Holder]:
    """With when they should end: after the usual time, at the latest at their deadlines."""
    found = []
    for row in rows:
        usual = None
        if lengths.median_s is not None and row.state == "running":
            usual = row.since + timedelta(seconds=lengths.median_s)
        ends = [at for at in (usual, row.deadline) if at is not None]
        found.append(Holder(row.execution_id, row.state, row.since, min(ends, default=None)))
    return found
