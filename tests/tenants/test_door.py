"""The only door into a tenant's schema: it closes behind everybody, and threads never meet in it."""

from __future__ import annotations

import uuid
from functools import partial
from typing import Any, cast

import psycopg
import pytest
from django.db import OperationalError, ProgrammingError, connection, transaction

from apps.schedules.models import Job
from kernel.errors import Conflict
from tenants import door
from tenants.models import Tenant
from tenants.work import TRIES, Again, atomically, in_tenant, rehearsing
from tests.fixtures_flow import NOW, at_once, count, make_job
from tests.schedules.cases import case

Conn = psycopg.Connection[Any]


def schema_now() -> str:
    return str(cast(Any, connection).schema_name)


def add_job(name: str) -> None:
    Job.objects.create(name=name, kind="python", created_at=NOW, updated_at=NOW)


def test_inside_is_the_tenants_and_outside_nobodys(acme: Tenant, globex: Tenant) -> None:
    for tenant in (acme, globex):
        with door.inside(tenant):
            add_job(f"of {tenant.slug}")
            assert schema_now() == tenant.schema_name
            assert list(Job.objects.values_list("name", flat=True)) == [f"of {tenant.slug}"]
        assert schema_now() == "public"
    with pytest.raises(ProgrammingError):
        list(Job.objects.all())


def test_a_queryset_that_leaves_the_block_reads_nothing(acme: Tenant) -> None:
    """It fails; it does not read another tenant's rows."""
    make_job(acme)
    with door.inside(acme):
        lazy = Job.objects.all()
    with pytest.raises(ProgrammingError):
        list(lazy)


def test_an_error_closes_the_door(acme: Tenant) -> None:
    with pytest.raises(ZeroDivisionError), door.inside(acme):
        raise ZeroDivisionError
    assert schema_now() == "public"
    with pytest.raises(ProgrammingError):
        Job.objects.count()


def test_doors_can_be_nested(acme: Tenant, globex: Tenant) -> None:
    with door.inside(acme):
        with door.inside(globex):
            add_job("inner")
        add_job("outer")
        assert list(Job.objects.values_list("name", flat=True)) == ["outer"]
    with door.inside(globex):
        assert list(Job.objects.values_list("name", flat=True)) == ["inner"]


def test_threads_never_read_or_write_another_tenants_rows(acme: Tenant, globex: Tenant) -> None:
    """Case D07 in small: fifty threads in two tenants write their marker and read it back, switching all the time."""
    expected = case("tenancy.jsonl", "D07")["expected"]
    tenants = [acme, globex]
    foreign_reads, foreign_rows = [], 0

    def work(number: int) -> None:
        for turn in range(4):
            tenant = tenants[(number + turn) % 2]
            marker = f"{tenant.slug} {uuid.uuid4().hex}"
            with door.inside(tenant):
                add_job(marker)
                names = set(Job.objects.values_list("name", flat=True))
                if marker not in names:
                    foreign_reads.append(marker)
                foreign_reads.extend(name for name in names if not name.startswith(f"{tenant.slug} "))

    at_once(*(partial(work, number) for number in range(50)))
    for tenant in tenants:
        with door.inside(tenant):
            names = list(Job.objects.values_list("name", flat=True))
        assert len(names) == 100
        foreign_rows += sum(not name.startswith(f"{tenant.slug} ") for name in names)
    assert {"foreign_reads": len(foreign_reads), "foreign_rows": foreign_rows} == expected


def test_the_raw_connection_is_in_the_transaction_of_the_orm(acme: Tenant) -> None:
    with pytest.raises(ZeroDivisionError), door.inside(acme), transaction.atomic():
        add_job("with the ORM")
        door.raw().execute(
            "INSERT INTO t_acme.schedules_job (id, name, kind, version, revision, paused_reason, labels, created_at,"
            " updated_at) VALUES (%s, 'with SQL', 'python', 1, 1, '', '{}', now(), now())",
            [uuid.uuid4()],
        )
        assert Job.objects.count() == 2
        raise ZeroDivisionError
    with door.inside(acme):
        assert Job.objects.count() == 0


def test_connections_have_the_second_line_of_defence(database: None) -> None:
    """Time-outs that keep a stuck client from holding row locks, and UTC."""
    with door.connect("test guarded") as guarded, door.connect("test free", guarded=False) as free:
        assert guarded.autocommit
        shown = {name: [one.execute(f"SHOW {name}").fetchone() for one in (guarded, free)] for name in GUARDS}
    assert shown["lock_timeout"] == [("2s",), ("0",)]
    assert shown["idle_in_transaction_session_timeout"] == [("5s",), ("0",)]
    assert shown["timezone"] == [("UTC",), ("UTC",)]


GUARDS = ("lock_timeout", "idle_in_transaction_session_timeout", "timezone")


def test_a_line_opens_again_when_it_was_lost(database: None) -> None:
    from tests.fixtures_flow import end_backend

    opened: list[int] = []
    line = door.Line("test line", opened=lambda conn: opened.append(conn.info.backend_pid))
    first = line.get()
    assert line.get() is first
    end_backend(first.info.backend_pid)
    with pytest.raises(psycopg.OperationalError):
        first.execute("SELECT 1")
    assert line.get().execute("SELECT 1").fetchone() == (1,)
    assert len(opened) == 2
    line.close()
    line.close()


# --- one piece of work ---


def test_work_that_finds_the_world_changed_starts_anew(acme: Tenant) -> None:
    tries: list[int] = []

    def work() -> str:
        tries.append(len(tries))
        add_job("half done")
        if len(tries) < 3:
            raise Again
        return "done"

    assert in_tenant(acme, work) == "done"
    assert len(tries) == 3
    with door.inside(acme):
        assert Job.objects.count() == 1, "what the others tries wrote is gone"


def test_work_that_never_gets_through_is_a_conflict(acme: Tenant) -> None:
    tries: list[int] = []

    def work() -> None:
        tries.append(1)
        raise Again

    with pytest.raises(Conflict) as caught:
        in_tenant(acme, work)
    assert caught.value.extra["code"] == "busy" and len(tries) == TRIES


def test_a_lost_deadlock_is_tried_again(acme: Tenant, conn: Conn) -> None:
    """Two pieces of work that lock the same two rows in different orders: both get through."""
    import threading

    rows = [make_job(acme), make_job(acme)]
    barrier = threading.Barrier(2)
    through = [threading.Event(), threading.Event()]
    tries = [0, 0]

    def work(number: int) -> None:
        order = rows if number else rows[::-1]
        tries[number] += 1
        if tries[number] > 1:  # else it may be in time to make the other one lose, too
            through[1 - number].wait(30)
        list(Job.objects.select_for_update().filter(pk=order[0]))
        if tries[number] == 1:
            barrier.wait(30)
        list(Job.objects.select_for_update().filter(pk=order[1]))
        Job.objects.filter(pk__in=rows).update(revision=number + 10)

    def whole(number: int) -> None:
        with rehearsing(False):  # as commands do: it opens nothing, so that there is another try
            in_tenant(acme, partial(work, number))
        through[number].set()

    at_once(*(partial(whole, number) for number in (0, 1)))
    assert sorted(tries) == [1, 2]


def test_other_errors_of_the_database_are_not_tried_again(database: None) -> None:
    tries: list[int] = []

    def work() -> None:
        tries.append(1)
        raise OperationalError("something else")

    with pytest.raises(OperationalError):
        atomically(work)
    assert len(tries) == 1


def test_inside_another_transaction_a_deadlock_is_left_to_its_opener(database: None) -> None:
    tries: list[int] = []

    def work() -> None:
        tries.append(1)
        raise psycopg.errors.DeadlockDetected

    with pytest.raises(psycopg.errors.DeadlockDetected), transaction.atomic():
        atomically(work)
    assert len(tries) == 1


def test_nothing_of_it_is_left_on_the_connection(acme: Tenant, conn: Conn) -> None:
    make_job(acme)
    assert schema_now() == "public"
    assert count(conn, "SELECT count(*) FROM t_acme.schedules_job") == 1


def test_no_plan_is_kept_from_when_a_table_was_empty(conn: Conn) -> None:
    """Live tables are empty between bursts: a plan from then reads all that has come since."""
    for _ in range(12):  # a plan of its own is made five times, then one is kept
        conn.execute("SELECT 1 FROM tickets_ticket WHERE pool = %s", ["python"])
    kept = conn.execute("SELECT sum(generic_plans), sum(custom_plans) > 0 FROM pg_prepared_statements").fetchone()
    assert kept == (0, True)
