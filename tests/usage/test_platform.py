"""Figures of all tenants together: what was done, what fails by cause, whose work waits."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING, Any
from uuid import UUID

import orjson
import psycopg
from hypothesis import given
from hypothesis import strategies as st

from apps.outcomes.causing import MESSAGE_CHARS, cause_of, normalised
from apps.usage.bounding import Failed, admitted, folded
from apps.usage.figures import CAUSES_MOST, OTHERS, Cause, Tally
from tests.fixtures_flow import (
    MINUTE,
    NOW,
    live_worker,
    make_job,
    make_schedule,
    make_ticket,
    queue_of,
    release,
    settle_as,
    start,
)

if TYPE_CHECKING:
    from apps.dispatch.release import ReleaseService
    from tenants.models import Tenant
    from tenants.registry import Registry

Conn = psycopg.Connection[Any]
WORKER = UUID(int=1)
A = UUID(int=2)
COUNTS = st.dictionaries(
    st.text("abcdef", max_size=2), st.builds(Failed, st.integers(0, 9), st.integers(0, 9)), max_size=20
)


@given(COUNTS, st.sets(st.text("abcdef", max_size=2), max_size=8), st.integers(0, 8))
def test_however_many_causes_there_are_only_so_many_get_rows_and_nothing_is_lost(
    wanted: dict[str, Failed], known: set[str], most: int
) -> None:
    kept = admitted(wanted, known=known, most=most)
    found = folded(wanted, kept)
    assert sum(one.attempts for one in found.values()) == sum(one.attempts for one in wanted.values())
    assert sum(one.letters for one in found.values()) == sum(one.letters for one in wanted.values())
    assert len((known | kept) - {OTHERS}) <= max(most, len(known - {OTHERS}))
    assert set(found) <= kept | {OTHERS}


@given(st.text(max_size=2_000))
def test_what_people_are_shown_of_a_message_can_be_stored_and_is_short(text: str) -> None:
    found = normalised(text)
    assert len(found) <= MESSAGE_CHARS and "\0" not in found and "@" not in found
    orjson.dumps(found)


def test_a_message_without_what_it_was_about() -> None:
    error: dict[str, Any] = {
        "class": "HttpStatus",
        "status": 503,
        "message": "no 'Ann' <a.b@c.org> at http://h/p?key=x, run 4711",
    }
    found = cause_of(error, host="h.example")
    assert found[1:] == ("HttpStatus", "503", "h.example", "no … <…> at http://h/p?… run #")
    assert (
        found.fingerprint == cause_of({**error, "message": error["message"].replace("4711", "12")}, host="h.example")[0]
    )
    assert found.fingerprint != cause_of(error, host="other.example").fingerprint


def test_a_transaction_names_so_many_causes_of_a_tenant() -> None:
    tally = Tally()
    for number in range(CAUSES_MOST + 7):
        tally.failed(1, Cause(f"{number:064}"), execution_id=A, letters=1)
    tally.failed(2, Cause("x"), execution_id=A)
    rows = tally.failures()
    assert sum(row[2] for row in rows if row[0] == 1) == CAUSES_MOST + 7  # type: ignore[misc]  # they are numbers
    assert len(rows) == CAUSES_MOST + 2


def fail(conn: Conn, tenant: Tenant, *, minute: int, message: str, times: int = 1, letters: int = 0) -> None:
    """Notes failures at NOW and so many minutes."""
    from apps.usage import deltas
    from apps.usage.figures import ATTEMPTS, ATTEMPTS_FAILED

    tally = Tally()
    tally.add(tenant.pk, ATTEMPTS, times)
    tally.add(tenant.pk, ATTEMPTS_FAILED, times)
    cause = cause_of({"class": "HttpStatus", "status": 500, "message": message}, host="down.example")
    tally.failed(tenant.pk, cause, execution_id=A, attempts=times, letters=letters)
    deltas.add(conn, tally, now=NOW + minute * MINUTE)


def test_a_failure_is_seen_by_its_cause_over_all_tenants_and_of_one(
    conn: Conn, registry: Registry, acme: Tenant, globex: Tenant, releaser: Callable[..., ReleaseService]
) -> None:
    from apps.usage import failures, platform
    from apps.usage.rolling import roll_up

    job = make_job(acme, retry={"max_attempts": 1})
    live_worker(conn, queues=[queue_of(registry, acme)], worker=WORKER)
    make_ticket(acme, job)
    settle_as(conn, registry, start(conn, release(releaser()), WORKER), "failed")
    while roll_up(conn):
        pass
    (seen,) = failures.groups(conn, step="hour", since=NOW - timedelta(days=1), by="letters").groups
    assert (seen.attempts, seen.letters, seen.tenants) == (1, 1, [acme.pk])
    row = conn.execute(f"SELECT fingerprint, execution_id FROM {acme.schema_name}.deadletters_deadletter").fetchone()
    assert seen.cause is not None and row == (seen.fingerprint, seen.cause.execution_id)
    conn.execute("DELETE FROM usage_failure; DELETE FROM usage_platformfailure; DELETE FROM usage_platformrollup")

    fail(conn, acme, minute=0, message="step 1", times=3, letters=2)
    fail(conn, globex, minute=1, message="step 22", times=4)
    fail(conn, globex, minute=1, message="other", times=1, letters=1)
    roll_up(conn)
    fail(conn, acme, minute=61, message="step 3", times=2, letters=1)
    roll_up(conn)
    found = failures.groups(conn, step="hour", since=NOW - timedelta(hours=1))
    assert [(one.attempts, one.letters, one.tenants) for one in found.groups] == [
        (9, 3, [acme.pk, globex.pk]), (1, 1, [globex.pk]),
    ]  # fmt: skip
    step, other = found.groups
    assert step.cause is not None and other.cause is not None
    assert (step.cause.message, step.cause.first_at, step.cause.last_at) == ("step #", NOW, NOW + 61 * MINUTE)
    assert [(at, attempts, letters) for at, attempts, letters in step.series] == [
        (NOW, 7, 2), (NOW + timedelta(hours=1), 2, 1),
    ]  # fmt: skip
    assert [one.fingerprint for one in failures.groups(conn, step="minute", since=NOW, by="letters").groups] == [
        step.fingerprint, other.fingerprint,
    ]  # fmt: skip
    (host,) = failures.hosts(found.groups)
    assert (host.host, host.attempts, host.tenants) == ("down.example", 10, [acme.pk, globex.pk])
    of_globex = failures.groups(conn, step="hour", since=NOW, tenant_id=globex.pk, fingerprint=step.fingerprint)
    assert [(one.attempts, one.tenants) for one in of_globex.groups] == [(4, [globex.pk])]
    of_cause = failures.tenants_of(conn, step.fingerprint, step="hour", since=NOW)
    assert [(one.tenant_id, one.attempts, one.letters) for one in of_cause] == [(acme.pk, 5, 3), (globex.pk, 4, 0)]

    fail(conn, acme, minute=61 - 7 * 1_440, message="step 4", times=1)
    roll_up(conn)
    rate = platform.failure_rate(conn, now=NOW + 62 * MINUTE)
    assert (rate.now.attempts_failed, rate.now.failing, rate.since) == (2, 1.0, NOW + 2 * MINUTE)
    assert rate.week_ago is not None and rate.week_ago.attempts_failed == 1
    hours = platform.history(conn, step="hour", start=NOW, end=NOW + 90 * MINUTE)
    assert [one.counts["attempts"] for one in hours] == [8, 2]


def test_a_tenant_that_invents_causes_gets_so_many_rows_an_hour(conn: Conn, acme: Tenant) -> None:
    from apps.usage.bounding import HOUR_MOST
    from apps.usage.rolling import prune, roll_up

    for minute in range(HOUR_MOST // CAUSES_MOST + 2):
        for number in range(CAUSES_MOST):
            fail(conn, acme, minute=minute, message="x" * (minute + 1) + "y" * (number + 1))
        roll_up(conn, limit=CAUSES_MOST)
    most, total, hours = conn.execute(
        "SELECT (SELECT max(n) FROM (SELECT count(*) FILTER (WHERE fingerprint <> '') n FROM usage_failure"
        " WHERE step_s = 60 GROUP BY starts_at) m),"
        " sum(attempts)::int, count(*) FROM usage_failure WHERE step_s = 3600"
    ).fetchone() or (0, 0, 0)
    assert (most, total, hours) == (CAUSES_MOST, CAUSES_MOST * (HOUR_MOST // CAUSES_MOST + 2), HOUR_MOST + 1)
    assert conn.execute("SELECT count(*) FROM usage_failurecause").fetchone() == (HOUR_MOST,)
    prune(conn, now=NOW + timedelta(days=32))
    for table in ("usage_failure", "usage_platformfailure", "usage_failurecause"):
        assert conn.execute(f"SELECT count(*) FROM {table}").fetchone() == (0,)


def test_whose_work_is_due_waits_and_runs(
    conn: Conn, registry: Registry, acme: Tenant, globex: Tenant, releaser: Callable[..., ReleaseService]
) -> None:
    from apps.dispatch.pressure.gauges import count, measure
    from apps.dispatch.pressure.loading import Past
    from apps.usage import lately, loads
    from apps.usage.rolling import roll_up
    from kernel.clock import utc_now

    live_worker(conn, queues=[queue_of(registry, acme)], worker=WORKER)
    for _ in range(3):
        make_schedule(globex)
    conn.execute(
        "UPDATE due_dueentry SET nominal_at = m.at, due_at = m.at"
        " FROM (SELECT clock_timestamp() - interval '1 h' AS at) m"
    )
    for _ in range(2):
        make_ticket(acme, now=utc_now())
    start(conn, release(releaser()), WORKER)
    make_ticket(acme, now=utc_now())
    roll_up(conn)
    registry.refresh(force=True)
    for _ in range(2):
        measure(conn, registry, count(conn), past=Past().read(conn))
    found = loads.read(conn)
    assert found is not None and found.due_is_exact and not found.stale
    of_globex, of_acme = found.tenants
    assert (of_globex.tenant_id, of_globex.due, of_globex.waiting) == (globex.pk, 3, 3)
    assert 3_600 <= of_globex.oldest_due_s < 3_700
    assert (of_acme.ready, of_acme.running, of_acme.released) == (1, 2, 2)
    assert of_acme.dispatch_p99_s is not None and of_acme.dispatch_p99_s < 60
    assert lately.by_tenant(conn)[acme.pk].released == 2
    (sample,) = loads.samples(conn, start=utc_now() - timedelta(minutes=1), end=utc_now() + MINUTE)[-1:]
    assert (sample.due, sample.ready, sample.running, sample.workers, sample.dispatchers) == (3, 1, 2, 1, 1)
    assert sample.oldest_due_s >= 3_600


def test_what_is_due_and_what_was_done_lately_is_found_by_the_index(conn: Conn, database: None) -> None:
    """However many entries there are that are not due, and minutes of days past: by a time that a plan can use."""
    from apps.due.entries import DUE_BY_TENANT
    from apps.usage import lately

    for query, bound in (
        (DUE_BY_TENANT, "due_at <= statement_timestamp()"), (lately._OF_TENANTS, "starts_at >="),
        (lately._LATENESS_OF_TENANTS, "starts_at >="), (lately._SUMS, "starts_at >="),
    ):  # fmt: skip
        with conn.transaction():
            conn.execute("SET LOCAL enable_seqscan = off")
            plan = "\n".join(row[0] for row in conn.execute(f"EXPLAIN {query}", {"shards": [1, 2], "most": 5}))
        entered = [line for line in plan.splitlines() if "Index Cond" in line]
        assert any(bound in line for line in entered), plan
