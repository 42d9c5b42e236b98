"""Settle: end attempts, hundreds at a time, and do what follows, in one transaction.

An attempt counts only where its (execution, fence) still is what runs: those rows are locked, the others are stale and
change nothing. Schedules that it may pause, and the runs of workflows that its steps are of, are locked before, in the
order that all keep (docs/architecture.md). What waits for the end of a step starts in the same transaction.
A batch that fails is settled per tenant, so that one tenant's fault costs only that tenant.
"""

import logging
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any
from urllib.parse import urlsplit
from uuid import UUID

import psycopg

from apps.deadletters import store as deadletters
from apps.events import store as events
from apps.executions import store as executions
from apps.outcomes import counted
from apps.outcomes.causing import fingerprint
from apps.outcomes.following import Followed, follow, leave_to_others, lock_runs
from apps.outcomes.storable import UNSTORABLE_RESULT, bare_error, error_text, result_text
from apps.outcomes.telling import storable, told_of
from apps.outcomes.verdict import (
    ACCEPTED,
    FAILURES,
    TOTAL_TIMEOUT,
    Report,
    Verdict,
    has_letter,
    judge,
    total_timeout_error,
)
from apps.schedules import pausing
from apps.schedules.definitions import Definition
from apps.schedules.retry import retry_from_json
from apps.tickets import remote
from apps.tickets import store as tickets
from apps.tickets.values import Started
from apps.usage import deltas
from apps.usage.figures import Tally
from apps.webhooks import outcome as webhooks
from kernel.eventtypes import DELIVERY
from kernel.ids import attempt_id, uuid7
from tenants.registry import Registry, Tenancy

log = logging.getLogger(__name__)
Conn = psycopg.Connection[Any]
Pair = tuple[UUID, int]
HOLDER_CHARS = 100
WANTS_NOTHING: frozenset[str] = frozenset()

TOLD_OF_WEBHOOKS = frozenset({"succeeded", "failed", "timed_out"})  # what their receivers did, and not our workers
DEFAULT_POLICY = retry_from_json({})  # of runs whose job can't be read right now
# A lock that is not given, a table that is not there: each further try would wait as long for the same answer.
FAULTS_OF_SCHEMAS = (psycopg.OperationalError, psycopg.ProgrammingError)


@dataclass(frozen=True, slots=True)
class Settlement:
    """One ended attempt: what was started, by which worker, how it ended.

    Without a definition (its job can't be read) a failure that may be tried again is, by the default policy.
    """

    started: Started
    worker_id: UUID | None
    report: Report
    definition: Definition | None
    follows: bool = True  # what waits for this end goes on with it; else somebody else sees to that

    @property
    def pair(self) -> Pair:
        return self.started.execution_id, self.started.fence


@dataclass(slots=True)
class Settled:
    """What a batch did."""

    counts: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    failed: list[Settlement] = field(default_factory=list)  # to be tried again: their tenant's schema did not answer


@dataclass(slots=True)
class _Writes:
    """Everything that one tenant's schema is told."""

    ended: list[executions.Ended] = field(default_factory=list)
    attempts: list[executions.Attempted] = field(default_factory=list)
    letters: list[deadletters.Letter] = field(default_factory=list)
    pauses: list[tuple[UUID, str, datetime]] = field(default_factory=list)
    told: list[events.NewEvent] = field(default_factory=list)
    delivered: list[webhooks.Delivered] = field(default_factory=list)
    died: dict[UUID, datetime] = field(default_factory=dict)  # of schedules that watch failures, and when a run died
    followed: list[Followed] = field(default_factory=list)  # something waits for these ends
    unfollowed: list[Followed] = field(default_factory=list)  # likewise, but it is left to others


def settle(conn: Conn, registry: Registry, items: Sequence[Settlement]) -> Settled:
    """Settles a batch on an autocommit connection; raises when the database fails, never for one tenant's fault."""
    by_tenant = _by_tenant(items)
    if len(by_tenant) > 1:
        try:
            return _settle_batch(conn, registry, items)
        except Exception:  # whatever one tenant's rows may do
            if conn.closed:
                raise
            log.warning("settling %d attempts failed, trying per tenant", len(items), exc_info=True)
    total = Settled()
    for of_tenant in by_tenant.values():
        _settle_tenant(conn, registry, of_tenant, total)
    return total


def _settle_tenant(conn: Conn, registry: Registry, items: list[Settlement], total: Settled) -> None:
    """One tenant's part. Rows at fault are looked for by halving; a schema that does not answer is not asked again."""
    try:
        done = _settle_batch(conn, registry, items)
    except FAULTS_OF_SCHEMAS:
        if conn.closed:
            raise
        log.warning("%d attempts of tenant %d wait for it", len(items), items[0].started.tenant_id, exc_info=True)
        total.failed += items
        return
    except Exception:
        if conn.closed:
            raise
        if len(items) > 1:
            middle = len(items) // 2
            _settle_tenant(conn, registry, items[:middle], total)
            _settle_tenant(conn, registry, items[middle:], total)
            return
        log.exception("attempt %s could not be settled", items[0].pair)
        less = _with_less(items[0])
        if less is None:
            total.failed += items
        else:
            _settle_tenant(conn, registry, [less], total)
        return
    for name, count in done.counts.items():
        total.counts[name] += count


def _with_less(item: Settlement) -> Settlement | None:
    """The same outcome without what follows from it, then without what the database may have refused: it must end."""
    if item.follows and item.started.followed:
        return replace(item, follows=False)
    report = item.report
    result = None if report.result is None else UNSTORABLE_RESULT
    error = None if report.error is None else bare_error(report.error)
    bare = replace(item, report=replace(report, result=result, error=error))
    return None if bare == item else bare


def _settle_batch(conn: Conn, registry: Registry, items: Sequence[Settlement]) -> Settled:
    done = Settled()
    writes: dict[int, _Writes] = defaultdict(_Writes)
    ends: list[Pair] = []
    agains: list[tuple[UUID, int, datetime, int, str]] = []
    accepted: list[tuple[UUID, int, str]] = []
    tally = Tally()
    with conn.transaction():
        watching = pausing.lock_to_pause(conn, _suspects(registry, items))
        lock_runs(conn, registry, [item.started for item in items])
        current, now = tickets.lock_current(conn, [item.pair for item in items])
        for item in (_in_order(item, now) for item in items):
            known = current.get(item.pair)
            if known is None:
                done.counts["stale"] += 1
                continue
            del current[item.pair]  # the same attempt twice in one batch counts once
            if item.report.outcome == ACCEPTED:  # not the end: somebody outside goes on with it
                done.counts[ACCEPTED] += 1
                accepted.append((*item.pair, (item.report.holder or _host(item.definition))[:HOLDER_CHARS]))
                continue
            verdict = _judge(item, known.cancel_requested)
            done.counts[verdict.state if verdict.kind == "end" else "retry"] += 1
            tenancy = registry.get(item.started.tenant_id)
            wants = WANTS_NOTHING if tenancy is None else tenancy.wants
            _note(item, verdict, writes[item.started.tenant_id], watching, wants)
            if item.started.trigger != DELIVERY:  # figures are of what the tenant runs
                host = _host(item.definition) if item.report.outcome in FAILURES else ""
                counted.count(tally, item.started, item.report, verdict, host=host)
            if verdict.kind == "end":
                ends.append(item.pair)
                if known.followed:
                    write = writes[item.started.tenant_id]
                    (write.followed if item.follows else write.unfollowed).append((item.started, write.ended[-1]))
            else:
                assert verdict.at is not None
                agains.append((*item.pair, verdict.at, verdict.failures, verdict.reason))
        if accepted:
            remote.hand_over(conn, accepted, lease_s=remote.LEASE_MAX_S, grace_s=tickets.REMOTE_CANCEL_GRACE_S)
        _write(conn, registry, writes, ends, agains, tally, now)
    return done


def _suspects(registry: Registry, items: Sequence[Settlement]) -> dict[str, pausing.Suspects]:
    """Schedules, by schema, that these attempts may pause, whatever of them is stale."""
    found: dict[str, pausing.Suspects] = {}
    for item in items:
        schedule_id, tenancy = item.started.schedule_id, registry.get(item.started.tenant_id)
        if schedule_id is None or tenancy is None:
            continue
        dies = _judge(item, False).state == "dead"
        if dies or item.report.pause_schedule:
            of_schema = found.setdefault(tenancy.schema, pausing.Suspects(set(), set()))
            for applies, ids in ((item.report.pause_schedule, of_schema.gone), (dies, of_schema.dying)):
                if applies:
                    ids.add(schedule_id)
    return found


def _write(
    conn: Conn, registry: Registry, writes: dict[int, _Writes], ends: list[Pair],
    agains: list[tuple[UUID, int, datetime, int, str]], tally: Tally, now: datetime,
) -> None:  # fmt: skip
    tenancies = {tenant_id: registry.get(tenant_id) for tenant_id in writes}
    with conn.pipeline():
        if ends:
            tickets.end(conn, ends)
        if agains:
            tickets.try_again(conn, agains)
        deltas.add(conn, tally, now=now)
        for tenant_id, write in sorted(writes.items()):
            tenancy = tenancies[tenant_id]
            if tenancy is None:  # the tenant is gone and its history with it: only the tickets are ended
                log.warning("tenant %d is gone: %d attempts ended without history", tenant_id, len(write.attempts))
                continue
            executions.settle(conn, tenancy.schema, write.ended, write.attempts)
            if write.letters:
                deadletters.add(conn, tenancy.schema, write.letters)
            if write.told:
                events.emit(conn, tenancy.schema, tenant_id, write.told, ring=bool(tenancy.wants))
    known = [(tenancy, writes[tenant_id]) for tenant_id, tenancy in sorted(tenancies.items()) if tenancy is not None]
    follow(conn, [(tenancy, write.followed) for tenancy, write in known if write.followed], now)
    leave_to_others(conn, [one for _, write in known for one in write.unfollowed])
    for tenancy, write in known:
        for schedule_id, reason, at in write.pauses:
            pausing.pause_by_system(
                conn, tenancy.schema, tenant_id=tenancy.id, schedule_id=schedule_id, reason=reason, now=at
            )
        pause_failing(conn, tenancy, write.died)
        if write.delivered:
            webhooks.note(conn, tenancy.schema, tenant_id=tenancy.id, ended=write.delivered)


def pause_failing(conn: Conn, tenancy: Tenancy, died: Mapping[UUID, datetime]) -> None:
    """Pauses those of these schedules, each with the time at which a run of it died, that ask for it."""
    if not died:
        return
    for one in pausing.failing(conn, tenancy.schema, died):
        pausing.pause_failing(conn, tenancy.schema, one, tenant_id=tenancy.id, now=died[one.schedule_id])


def _in_order(item: Settlement, now: datetime) -> Settlement:
    """Start and end of the attempt between its claim and now: another machine's clock told them."""
    claimed, report = item.started, item.report
    started_at = min(max(report.started_at, claimed.started_at), now)
    finished_at = min(max(report.finished_at, started_at, claimed.first_started_at), now)
    if (started_at, finished_at) == (report.started_at, report.finished_at):
        return item
    return replace(item, report=replace(report, started_at=started_at, finished_at=finished_at))


def _judge(item: Settlement, cancel_requested: bool) -> Verdict:
    if item.definition is None and not item.report.retryable and not cancel_requested:
        return Verdict("end", "dead", item.started.failures + 1, reason="undecodable")
    policy = DEFAULT_POLICY if item.definition is None else item.definition.retry
    return judge(
        item.report, policy=policy, failures=item.started.failures, cancel_requested=cancel_requested,
        give_up_at=item.started.give_up_at,
    )  # fmt: skip


def _note(
    item: Settlement, verdict: Verdict, write: _Writes, watching: set[UUID], wants: frozenset[str]
) -> None:  # fmt: skip
    started, report = item.started, item.report
    error = error_text(report.error)
    if wants or verdict.state == "dead":
        write.told += told_of(started, report, verdict, wants)
    if started.trigger == DELIVERY and report.outcome in TOLD_OF_WEBHOOKS:
        write.delivered.append(_delivered(item))
    write.attempts.append(
        executions.Attempted(
            attempt_id(started.execution_id, started.attempt), started.execution_id, started.attempt, started.fence,
            "cancelled" if verdict.state == "cancelled" else report.outcome, item.worker_id, report.started_at,
            report.finished_at, error, verdict.at,
        )
    )  # fmt: skip
    if verdict.kind == "end":
        if verdict.reason == TOTAL_TIMEOUT and started.give_up_at is not None and started.total_timeout_s is not None:
            whole = total_timeout_error(
                report.error, give_up_at=started.give_up_at, total_timeout_s=started.total_timeout_s
            )
            error = error_text(whole)
        # The first attempt's own start, where an executor let it wait; later ones know the first's claim.
        first_started_at = report.started_at if started.attempt == 1 else started.first_started_at
        write.ended.append(
            executions.Ended(
                started.execution_id, verdict.state, started.first_queued_at, first_started_at,
                report.finished_at, started.attempt, result_text(report.result), error, verdict.reason,
                started.delays,
            )
        )  # fmt: skip
    if verdict.state == "dead" and has_letter(started.trigger, started.run_key):
        if started.schedule_id in watching:
            write.died[started.schedule_id] = report.finished_at
        host = _host(item.definition)
        write.letters.append(
            deadletters.Letter(
                uuid7(), started.execution_id, started.job_id, started.schedule_id,
                fingerprint(report.error, host=host), error or "{}", started.attempt, report.finished_at,
            )
        )  # fmt: skip
    if report.pause_schedule and started.schedule_id is not None:
        reason = f"The receiver answered 410 Gone to execution {started.execution_id}."
        write.pauses.append((started.schedule_id, reason, report.finished_at))


def _delivered(item: Settlement) -> webhooks.Delivered:
    started, report = item.started, item.report
    error = storable(str((report.error or {}).get("message", "")))
    return webhooks.Delivered(
        started.job_id, started.job_version, report.outcome == "succeeded", report.pause_schedule, error,
        report.finished_at,
    )  # fmt: skip


def _host(definition: Definition | None) -> str:
    url = definition.target.get("url") if definition is not None else None
    if isinstance(url, dict):  # it names a secret; what is around it may tell the host
        url = url.get("prefix")
    try:
        return urlsplit(url).hostname or "" if isinstance(url, str) else ""
    except ValueError:
        return ""


def _by_tenant(items: Sequence[Settlement]) -> dict[int, list[Settlement]]:
    found: dict[int, list[Settlement]] = defaultdict(list)
    for item in items:
        found[item.started.tenant_id].append(item)
    return found
