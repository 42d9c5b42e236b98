"""Builders for the flow: definitions through the real services, every step through the code that the processes run.

Each failure test ends in `assert_exactly_one_outcome`. Time is an argument; `NOW` lies in the past of any database.
It is one file of 500 lines since it is one vocabulary: the steps use the builders, the fixtures the steps, and most of
the files that use it take words from all of its sections.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any
from uuid import UUID

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import make_conninfo

from kernel.pools import CELERY_POOLS, POOLS
from kernel.service import Loop
from kernel.transitions import FINAL_STATES
from tests.conftest import wait_until

if TYPE_CHECKING:
    from apps.audit.services import Actor
    from apps.dispatch.keeper import Keeper
    from apps.dispatch.publish import Message
    from apps.dispatch.release import ReleaseService
    from apps.outcomes.settle import Settled, Settlement
    from apps.tickets.values import Started
    from tenants.models import Tenant
    from tenants.registry import Registry

Conn = psycopg.Connection[Any]
NOW = datetime(2025, 1, 6, 10, 0, tzinfo=UTC)  # a Monday
MINUTE = timedelta(minutes=1)
SHARDS = range(64)
LEASES = len(SHARDS) + len(POOLS) + 2  # to fire, to release, to reconcile and to seal
SERVED_LEASES = len(SHARDS) + len(CELERY_POOLS) + 3  # that of the runs of workflows, too
PLAIN_RETRY = {"max_attempts": 3, "base_s": 2, "factor": 2, "max_s": 600, "jitter": "none"}


# --- definitions ---


def actor(tenant: Tenant) -> Actor:
    from apps.audit.services import Actor as Real

    return Real(name="test", role="admin", tenant_id=tenant.pk)


def make_job(tenant: Tenant, *, now: datetime = NOW, **changes: Any) -> UUID:
    """A job; a no-op of kind python unless the caller says otherwise. `retry` is merged into one without jitter."""
    from apps.schedules.services import job_create

    data: dict[str, Any] = {"name": f"job {uuid.uuid4().hex[:12]}", "kind": "python"}
    if changes.get("kind", "python") == "python":
        data["target"] = {"task": "shardbeat.noop"}
    data |= changes
    data["retry"] = {**PLAIN_RETRY, **changes.get("retry", {})}
    return job_create(tenant=tenant, actor=actor(tenant), data=data, now=now).job.pk


def make_schedule(
    tenant: Tenant, job: UUID | None = None, *, cron: str = "* * * * *", now: datetime = NOW, **changes: Any
) -> UUID:
    """A schedule, every minute unless the caller says otherwise, of a new job when no job and no workflow is given."""
    from apps.schedules.services import schedule_create

    data: dict[str, Any] = {"name": f"schedule {uuid.uuid4().hex[:12]}", "trigger": {"cron": cron}}
    if "workflow" not in changes:
        data["job"] = str(job or make_job(tenant, now=now))
    return schedule_create(tenant=tenant, actor=actor(tenant), data=data | changes, now=now).schedule.pk


def make_ticket(tenant: Tenant, job: UUID | None = None, *, now: datetime = NOW, **changes: Any) -> UUID:
    """An execution that is ready now, with its ticket; returns the execution's id. `delay_s` makes it wait."""
    from apps.dispatch.submission import execution_submit

    data = {"job": str(job or make_job(tenant, now=now)), **changes}
    return execution_submit(tenant=tenant, actor=actor(tenant), data=data, now=now)


def live_worker(
    conn: Conn, *, slots: int = 100, queues: Sequence[str], pool: str = "python", ttl_s: float = 60,
    worker: UUID | None = None, draining: bool = False, group: str = "",
) -> UUID:  # fmt: skip
    """A worker's lease, renewed now; returns the worker's id."""
    from apps.tickets import workers

    worker = worker or uuid.uuid4()
    workers.renew(
        conn, worker=worker, host="test", pid=1, version="test", slots={pool: slots}, queues=queues, ttl_s=ttl_s,
        draining=draining, skew_ms=0, stats={}, group=group,
    )  # fmt: skip
    return worker


def queue_of(registry: Registry, tenant: Tenant, pool: str = "python") -> str:
    if tenant.pk not in registry.by_id:  # made by the test
        registry.refresh(force=True)
    return registry.by_id[tenant.pk].queue(pool)


# --- steps ---


def fire(
    conn: Conn,
    registry: Registry,
    *,
    now: datetime = NOW,
    limit: int = 1000,
    shards: Sequence[int] = SHARDS,
    **more: Any,
) -> dict[str, int]:
    """One batch of firing."""
    from apps.dispatch.firing import fire_batch

    return fire_batch(conn, registry, list(shards), now=now, limit=limit, fired_by=lambda _: "test/1", **more)


def fire_all(conn: Conn, registry: Registry, *, now: datetime = NOW, limit: int = 1000) -> int:
    """Batches until nothing is due; how many executions were made."""
    made = 0
    while (counts := fire(conn, registry, now=now, limit=limit))["entries"]:
        made += counts["fired"]
    return made


@dataclass
class Noted:
    """A publisher that keeps what it was given."""

    messages: list[Message] = field(default_factory=list)
    dropped: list[str] = field(default_factory=list)
    fails: bool = False

    def publish(self, messages: Sequence[Message]) -> None:
        if self.fails:
            raise ConnectionError("the broker is away")
        self.messages += messages

    def drop(self, queues: Sequence[str]) -> None:
        self.dropped += queues

    def close(self) -> None:
        pass

    def taken(self) -> list[Message]:
        """What came since the last call."""
        found, self.messages = self.messages, []
        return found


@dataclass
class OneLine:
    """A line that always gives the same connection."""

    conn: Conn

    def get(self) -> Conn:
        return self.conn

    def fresh(self, *, visits: int = 0) -> Conn:
        return self.get()

    def close(self) -> None:
        pass


def release(service: ReleaseService, *, passes: int = 1) -> list[Message]:
    """So many passes of a release service, each as if the last one were long ago; what it published."""
    assert isinstance(service._publisher, Noted)
    for _ in range(passes):
        service._released_at = service._again_at = float("-inf")
        service.run_once()
    return service._publisher.taken()


def start(conn: Conn, messages: Sequence[Message], worker: UUID, *, limit: int = 1000) -> list[Started]:
    """What a worker starts of these messages."""
    from apps.tickets import holding

    return [
        one
        for message in messages
        for one in holding.start(conn, list(message.ids), release=message.release, worker=worker, limit=limit)
    ]


def started_now(conn: Conn, ids: Sequence[UUID], worker: UUID) -> list[Started]:
    """Ready tickets, released and started at once: for tests of what comes after."""
    from apps.tickets import holding, releasing

    number = releasing.next_release(conn)
    releasing.release(conn, list(ids), release=number, now=NOW)
    return holding.start(conn, list(ids), release=number, worker=worker, limit=len(ids))


def settlement(
    conn: Conn,
    registry: Registry,
    one: Started,
    outcome: str = "succeeded",
    *,
    worker: UUID | None = None,
    **report: Any,
) -> Settlement:
    """How an attempt ended, with its job's definition. `report` holds further members of Report."""
    from apps.outcomes.settle import Settlement as Real
    from apps.outcomes.verdict import Report
    from apps.schedules.definitions import Definitions

    if registry.get(one.tenant_id) is None:  # it reads all again only now and then, and the tenant may be new
        registry.refresh(force=True)
    tenancy = registry.get(one.tenant_id)
    assert tenancy is not None
    key = (one.job_id, one.job_version)
    found = Definitions().jobs(conn, tenancy.schema, [key]).get(key)
    given = {"started_at": one.started_at, "finished_at": ended_at(one), **report}
    if outcome not in ("succeeded", "returned", "cancelled"):
        given.setdefault("error", {"class": "test", "message": "it went wrong"})
    return Real(one, worker, Report(outcome, **given), found)


def ended_at(one: Started) -> datetime:
    """The earliest end that an attempt can have."""
    return max(one.started_at, one.first_started_at)


def settle_as(
    conn: Conn, registry: Registry, started: Sequence[Started], outcome: str = "succeeded", **report: Any
) -> Settled:
    """Settles attempts, all with the same outcome."""
    from apps.outcomes.settle import settle

    return settle(conn, registry, [settlement(conn, registry, one, outcome, **report) for one in started])


def run_to_the_end(conn: Conn, registry: Registry, tenants: Sequence[Tenant], *, worker: UUID | None = None) -> None:
    """Releases, starts and settles all tickets of these tenants as succeeded, until there is none."""
    worker = worker or uuid.uuid4()
    while ready := ready_of(conn, *tenants):
        settle_as(conn, registry, started_now(conn, ready, worker))


# --- what there is ---


def ready_of(conn: Conn, *tenants: Tenant) -> list[UUID]:
    """Executions of these tenants whose tickets are ready, oldest first."""
    query = (
        "SELECT execution_id FROM tickets_ticket WHERE state = 'ready' AND tenant_id = ANY(%s) ORDER BY execution_id"
    )
    return [row[0] for row in conn.execute(query, [[tenant.pk for tenant in tenants]])]


def letters_of(conn: Conn, tenant: Tenant) -> dict[UUID, dict[str, Any]]:
    """Dead letters by their executions, each of which died once."""
    return {row["execution_id"]: row for row in rows_of(conn, tenant, "deadletters_deadletter")}


def entry_of(conn: Conn, key: UUID) -> Any:
    """The due entry of a schedule or delayed execution; None when it has none."""
    row = conn.execute("SELECT due_at, nominal_at, version, parked FROM due_dueentry WHERE key = %s", [key]).fetchone()
    return row and EntryNow(*row)


@dataclass(frozen=True)
class EntryNow:
    due_at: datetime
    nominal_at: datetime
    version: int
    parked: str


def executions_of(conn: Conn, tenant: Tenant, schedule: UUID | None = None) -> list[dict[str, Any]]:
    """Executions in the order of their nominal instants."""
    query = sql.SQL(
        "SELECT * FROM {}.executions_execution WHERE %(schedule)s::uuid IS NULL OR schedule_id = %(schedule)s"
        " ORDER BY nominal_at, id"
    ).format(sql.Identifier(tenant.schema_name))
    cursor = conn.execute(query, {"schedule": schedule})
    names = [column.name for column in cursor.description or ()]
    return [dict(zip(names, row, strict=True)) for row in cursor]


def execution_of(conn: Conn, tenant: Tenant, execution_id: UUID) -> dict[str, Any]:
    found = [one for one in executions_of(conn, tenant) if one["id"] == execution_id]
    assert len(found) == 1
    return found[0]


def rows_of(conn: Conn, tenant: Tenant, table: str) -> list[dict[str, Any]]:
    """All rows of a table of the tenant."""
    cursor = conn.execute(sql.SQL("SELECT * FROM {}").format(sql.Identifier(tenant.schema_name, table)))
    names = [column.name for column in cursor.description or ()]
    return [dict(zip(names, row, strict=True)) for row in cursor]


def attempts_of(conn: Conn, tenant: Tenant, execution_id: UUID) -> list[dict[str, Any]]:
    found = [one for one in rows_of(conn, tenant, "executions_attempt") if one["execution_id"] == execution_id]
    return sorted(found, key=lambda one: one["number"])


def ticket_of(conn: Conn, execution_id: UUID) -> Any:
    """The ticket's row as a dict; None when it has none."""
    cursor = conn.execute("SELECT * FROM tickets_ticket WHERE execution_id = %s", [execution_id])
    row = cursor.fetchone()
    return row and {column.name: value for column, value in zip(cursor.description or (), row, strict=True)}


def count(conn: Conn, query: str, *parameters: Any) -> int:
    """The number that a query answers with."""
    row = conn.execute(query, parameters).fetchone()
    assert row is not None
    return int(row[0])


def assert_exactly_one_outcome(conn: Conn, tenant: Tenant, run_key: str, *, state: str | None = None) -> dict[str, Any]:
    """The run has one execution that has ended, once: its attempts, its dead letter and the live tables agree."""
    found = [one for one in executions_of(conn, tenant) if one["run_key"] == run_key]
    assert len(found) == 1, f"{len(found)} executions have the run key {run_key}"
    one = found[0]
    assert one["state"] in FINAL_STATES and one["finished_at"] is not None, f"{run_key} is {one['state']}"
    assert state is None or one["state"] == state, f"{run_key} is {one['state']}, not {state}"
    assert ticket_of(conn, one["id"]) is None, f"{run_key} has ended and has a ticket"
    assert entry_of(conn, one["id"]) is None, f"{run_key} has ended and has a due entry"
    attempts = attempts_of(conn, tenant, one["id"])
    assert [each["number"] for each in attempts] == list(range(1, one["attempt_count"] + 1))
    assert len({each["fence"] for each in attempts}) == len(attempts)
    ended_well = [each["number"] for each in attempts if each["state"] == "succeeded"]
    assert ended_well == ([one["attempt_count"]] if one["state"] == "succeeded" else [])
    letters = [
        letter
        for letter in rows_of(conn, tenant, "deadletters_deadletter")
        if letter["execution_id"] == one["id"] and letter["resolved_at"] is None
    ]
    assert len(letters) == (1 if one["state"] == "dead" else 0)
    return one


# --- failures ---


class Fragile(psycopg.Connection[Any]):
    """A connection whose server process ends at its n-th wait for an answer: before it is sent, or after it came."""

    ends_at: int = 0
    after: bool = False
    waits: int = 0

    def wait(self, gen: Any, *args: Any, **more: Any) -> Any:
        self.waits += 1
        if self.waits != self.ends_at:
            return super().wait(gen, *args, **more)
        if not self.after:
            end_backend(self.info.backend_pid)
            return super().wait(gen, *args, **more)
        super().wait(gen, *args, **more)
        end_backend(self.info.backend_pid)
        self.pgconn.finish()  # as the client sees it, the line is dead
        raise psycopg.OperationalError("the connection was lost after the answer")


def fragile(ends_at: int, *, after: bool) -> Fragile:
    """Such a connection, as the application; counting starts with its first statement."""
    from tenants import door

    with door.connect("test parameters") as plain:
        parameters = {**plain.info.get_parameters(), "password": plain.info.password}
    conn = Fragile.connect(make_conninfo(**parameters), autocommit=True)
    conn.waits, conn.ends_at, conn.after = 0, ends_at, after
    return conn


def end_backend(pid: int) -> None:
    """Ends a server process and waits until it is gone."""
    from tenants import door

    with door.connect("test ender") as other:
        other.execute("SELECT pg_terminate_backend(%s)", [pid])
        gone = "SELECT count(*) = 0 FROM pg_stat_activity WHERE pid = %s"
        wait_until(lambda: count(other, gone, pid), f"backend {pid} to end")


def at_every_crash(work: Callable[[Conn], object], check: Callable[[str], None]) -> int:
    """Runs `work` on connections that end at its first wait, its second, ... until it gets through; how many crashed.

    After each crash `check` must bring the world back to where `work` can run again; its argument says where it was.
    """
    crashes = 0
    for after in (False, True):
        at = 1
        while True:
            conn = fragile(at, after=after)
            try:
                work(conn)
            except psycopg.OperationalError:
                crashes += 1
                check(f"{'after' if after else 'before'} wait {at}")
                at += 1
            else:
                break
            finally:
                conn.close()
        check("no crash")
    return crashes


def at_once(*works: Callable[[], Any]) -> list[Any]:
    """Runs these in threads that start together; their results in order. Fails with the first exception of one."""
    from tests.fixtures_api import in_parallel

    results = in_parallel(len(works), lambda number: works[number]())
    for result in results:
        if isinstance(result, Exception):
            raise result
    return results


def is_blocked(conn: Conn, pid: int) -> bool:
    """Whether that backend waits for somebody's lock."""
    return bool(count(conn, "SELECT cardinality(pg_blocking_pids(%s))", pid))


# --- fixtures ---


@pytest.fixture
def leader(database: None) -> Iterator[Keeper]:
    """A keeper that holds all leases until the test ends."""
    from apps.dispatch.keeper import Keeper as Real

    keeper = Real(wants=lambda _: True, progressed=lambda _: True, stats=dict)
    loop = Loop(keeper)
    loop.start()
    wait_until(lambda: len(keeper.held("fire")) == len(SHARDS), "all shards to be held")
    yield keeper
    loop.stop()
    assert loop.join(10)


@pytest.fixture
def releaser(leader: Keeper, conn: Conn) -> Callable[..., ReleaseService]:
    """Makes a release service on the test's connection (or `on`) that notes what it publishes."""
    from apps.dispatch.release import ReleaseService as Real

    def make(pool: str = "python", *, on: Conn | None = None) -> ReleaseService:
        return Real(pool, OneLine(on or conn), leader, Noted())  # type: ignore[arg-type]  # a line is what it gives

    return make


@pytest.fixture
def as_owner(database: None) -> Callable[[], Any]:
    """`with as_owner(): ...` runs with the migrating role, as the commands do."""
    return owning


@contextmanager
def owning() -> Iterator[None]:
    from django.db import connection

    from tenants import door

    application = {key: connection.settings_dict[key] for key in ("USER", "PASSWORD")}
    door.become_owner()
    try:
        yield
    finally:
        connection.close()
        connection.settings_dict.update(application)


@pytest.fixture
def new_tenant(database: None) -> Iterator[Callable[..., Tenant]]:
    """Makes tenants that go with the test."""
    from tenants import provisioning
    from tenants.models import Plan, Tenant

    made: list[Tenant] = []

    def make(slug: str | None = None, **plan: Any) -> Tenant:
        slug = slug or f"t{uuid.uuid4().hex[:10]}"
        with owning():
            chosen = Plan.objects.create(name=slug, **plan) if plan else Plan.objects.get(name="standard")
            made.append(provisioning.tenant_create(slug=slug, plan=chosen, host=f"{slug}.test"))
        found: Tenant = Tenant.objects.select_related("plan").get(pk=made[-1].pk)
        return found

    yield make
    with owning():
        for tenant in made:
            remove_tenant(tenant)


def remove_tenant(tenant: Tenant) -> None:
    """Tenant, schema, and a plan of its own."""
    from tenants import provisioning
    from tenants.models import Plan

    provisioning.schema_drop(tenant.schema_name)
    type(tenant).objects.filter(pk=tenant.pk).delete()
    Plan.objects.filter(name=tenant.slug).delete()


def with_report(item: Settlement, **changes: Any) -> Settlement:
    """The same settlement with other members in its report."""
    return replace(item, report=replace(item.report, **changes))
