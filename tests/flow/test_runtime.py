"""A worker process from inside: it takes what it has slots for, and answers for what it took."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any
from uuid import UUID

import psycopg
import pytest

from apps.dispatch.submit import schedule_trigger
from apps.schedules.definitions import Definitions
from apps.schedules.services import job_update
from kernel.clock import utc_now
from tenants.models import Tenant
from tenants.registry import Registry, reach_of
from tests.conftest import wait_until
from tests.fixtures_flow import (
    MINUTE,
    NOW,
    actor,
    assert_exactly_one_outcome,
    at_once,
    attempts_of,
    count,
    executions_of,
    fire_all,
    make_job,
    make_schedule,
    make_ticket,
    ticket_of,
)
from tests.flow.hands import Hands
from tests.flow.running import _take, as_lost, queued, release_now, settled, take
from tests.flow.test_fire_faults import table_lock
from workers import runtime as runtime_module
from workers.batching import Usual
from workers.runtime import Runtime

Conn = psycopg.Connection[Any]
Make = Callable[..., Runtime]

# --- taking ---


def test_what_comes_through_one_queue_leaves_slots_to_the_others(
    runtimes: Make, conn: Conn, acme: Tenant, globex: Tenant
) -> None:
    """Of twenty slots for HTTP one queue gets eighteen; what it may not have goes back soon, and its place is kept."""
    hands = Hands(slots=20)
    runtime = runtimes(hands, "http")

    def work(ids: list[UUID], queue: str) -> dict[str, int]:
        number = release_now(conn, ids)
        try:
            return runtime.take("http", ids, number, queue=queue)
        finally:
            runtime._line.close()

    mine = [make_ticket(acme, make_job(acme)) for _ in range(25)]
    theirs = [make_ticket(globex, make_job(globex)) for _ in range(3)]
    (taken,) = at_once(partial(work, mine, "http.own.acme"))
    assert taken == {"started": 18, "put_back": 7}
    assert count(conn, "SELECT count(*) FROM tickets_ticket WHERE state = 'ready' AND rank IS NOT NULL") >= 7
    (taken,) = at_once(partial(work, theirs, "http.own.globex"))
    assert taken == {"started": 2, "put_back": 1}
    for key in hands.held():
        hands.end(key, "succeeded")
    wait_until(lambda: not runtime.settling.pending())
    assert not runtime._held_of and not runtime._queue_of and runtime._reserved == {"http": 0}
    rest = [one for one in mine if ticket_of(conn, one)]
    assert at_once(partial(work, rest, "http.own.acme")) == [{"started": 7, "put_back": 0}]


def test_templates_get_the_names_of_the_run_as_they_are_now(
    runtime: Runtime, hands: Hands, conn: Conn, acme: Tenant
) -> None:
    """Only targets that ask for them cost a query; labels are the job's, the schedule's and the run's own."""
    target = {"url": "http://127.0.0.1:9999/{{ job.name }}", "body": "{{ labels.a }} {{ schedule.name }}"}
    labels = {"a": "job", "b": "job"}
    job = make_job(acme, kind="http", target=target, name="before", labels=labels)
    job_update(tenant=acme, actor=actor(acme), job_id=job, patch={"name": "after"}, now=NOW)
    schedule = make_schedule(acme, job, name="nightly", labels={"a": "schedule"})
    by_schedule = schedule_trigger(tenant=acme, actor=actor(acme), schedule_id=schedule, now=NOW)
    by_hand = make_ticket(acme, job, labels={"a": "run"})
    plain = make_ticket(acme, make_job(acme, kind="http", target={"url": "http://127.0.0.1:9999/"}))
    ids = [by_schedule, by_hand, plain]
    take(runtime, ids, release_now(conn, ids))
    works = [hands.work_of(one) for one in ids]
    assert [work.job_name for work in works] == ["after", "after", ""]
    assert [work.schedule_name for work in works] == ["nightly", "", ""]
    assert [work.labels for work in works] == [{"a": "schedule", "b": "job"}, {"a": "run", "b": "job"}, {}]
    assert works[0].schedule_id == schedule


def test_a_taken_run_reaches_the_executor_and_its_end_the_database(
    runtime: Runtime, hands: Hands, conn: Conn, acme: Tenant
) -> None:
    job = make_job(acme, timeout_s=33, payload={"from": "job"})
    ids, number = queued(conn, acme, 1, job)
    assert take(runtime, ids, number) == {"started": 1, "put_back": 0}
    work = hands.work_of(ids[0])
    ticket = ticket_of(conn, ids[0])
    assert (work.fence, work.attempt, work.deadline) == (ticket["fence"], 1, ticket["deadline"])
    assert (work.tenant_id, work.tenant_slug, work.job_id) == (acme.pk, "acme", job)
    assert (work.kind, dict(work.target), work.payload) == ("python", {"task": "shardbeat.noop"}, {"from": "job"})
    assert (work.timeout_s, work.run_key, work.network) == (33, ids[0].hex, reach_of(acme.network))
    assert runtime.holds() == {(ids[0], work.fence)}
    hands.end((ids[0], work.fence), result={"rows": 3})
    wait_until(lambda: settled(conn, acme, ids[0]), "the settlement")
    assert assert_exactly_one_outcome(conn, acme, ids[0].hex, state="succeeded")["result"] == {"rows": 3}
    wait_until(lambda: runtime.holds() == set(), "nothing to be held")


def test_payloads_come_from_where_the_ticket_says(
    runtime: Runtime, hands: Hands, conn: Conn, registry: Registry, acme: Tenant
) -> None:
    job = make_job(acme, payload={"from": "job"})
    own = make_ticket(acme, job, payload={"from": "execution"})
    plain = make_schedule(acme, job)
    with_own = make_schedule(acme, job, payload={"from": "schedule"})
    fire_all(conn, registry, now=NOW + MINUTE)
    ids = [one["id"] for one in executions_of(conn, acme)]
    take(runtime, ids, release_now(conn, ids))
    found = {hands.work_of(one["id"]).payload["from"]: one["schedule_id"] for one in executions_of(conn, acme)}
    assert found == {"execution": None, "job": plain, "schedule": with_own}
    assert hands.work_of(own).nominal_at is None


def test_slots_are_never_exceeded_and_the_rest_goes_back(
    runtime: Runtime, hands: Hands, conn: Conn, acme: Tenant
) -> None:
    ids, number = queued(conn, acme, 9)
    assert take(runtime, ids, number) == {"started": 4, "put_back": 5}
    assert len(hands.held()) == 4
    assert count(conn, "SELECT count(*) FROM tickets_ticket WHERE state = 'ready'") == 5


def test_slots_that_become_free_are_used_while_it_waits(
    runtime: Runtime, hands: Hands, conn: Conn, acme: Tenant, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runtime_module, "WAIT_FOR_SLOT_S", 20.0)
    ids, number = queued(conn, acme, 10)
    seen: set[UUID] = set()

    def work() -> None:
        while len(seen) < len(ids):
            wait_until(hands.held, "work")
            seen.update(key[0] for key in hands.held())
            assert len(hands.held()) <= hands.slots
            hands.end_all()

    counts, _ = at_once(partial(_take, runtime, ids, number), work)
    assert counts == {"started": 10, "put_back": 0}
    for one in ids:
        wait_until(partial(settled, conn, acme, one), "the settlement")


def test_what_waited_for_slots_is_started_together(
    runtime: Runtime, hands: Hands, conn: Conn, acme: Tenant, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A start of many costs little more than one: where runs take some time, free slots wait a moment for others."""
    monkeypatch.setattr(runtime_module, "WAIT_FOR_SLOT_S", 20.0)
    monkeypatch.setattr(Usual, "wait_s", 20.0)
    ids, number = queued(conn, acme, 6)
    sizes: list[int] = []
    hands.submits = lambda works: sizes.append(len(works))

    def work() -> None:
        wait_until(lambda: len(hands.held()) == 4, "the first ones")
        for key in sorted(hands.held())[:3]:
            hands.end(key)  # its slot is free after that

    counts, _ = at_once(partial(_take, runtime, ids, number), work)
    assert counts == {"started": 6, "put_back": 0}
    assert sizes == [4, 2]
    assert not runtime._gathers and runtime._reserved == {"python": 0}


def test_many_messages_at_once_do_not_exceed_the_slots(
    runtime: Runtime, hands: Hands, conn: Conn, acme: Tenant
) -> None:
    job = make_job(acme)
    messages = [queued(conn, acme, 3, job) for _ in range(6)]
    most = []
    hands.submits = lambda works: most.append(len(hands.held()) + len(works))
    done = at_once(*(partial(_take, runtime, ids, number) for ids, number in messages))
    assert sum(counts["started"] for counts in done) == hands.slots == len(hands.held())
    assert sum(counts["put_back"] for counts in done) == 18 - hands.slots
    assert max(most) <= hands.slots


def test_two_workers_with_the_same_message_run_it_once(runtimes: Make, conn: Conn, acme: Tenant) -> None:
    """Case C02, as far as messages go: a second delivery finds nothing to start."""
    ours, theirs = Hands(), Hands()
    workers = [runtimes(ours), runtimes(theirs)]
    for _ in range(5):
        ids, number = queued(conn, acme, 3)
        done = at_once(*(partial(_take, one, ids, number) for one in workers))
        assert sum(counts["started"] for counts in done) == 3
        assert sorted(key[0] for key in ours.held() | theirs.held()) == sorted(ids)
        ours.end_all()
        theirs.end_all()
        for one in ids:
            wait_until(partial(settled, conn, acme, one), "the settlement")
            assert_exactly_one_outcome(conn, acme, one.hex, state="succeeded")


@pytest.mark.parametrize("why", ["another pool", "draining"])
def test_what_can_not_be_taken_goes_back(runtime: Runtime, hands: Hands, conn: Conn, acme: Tenant, why: str) -> None:
    ids, number = queued(conn, acme, 2)
    if why == "draining":
        runtime.stop(0.1)
        assert take(runtime, ids, number) == {"started": 0, "put_back": 2}
    else:
        assert runtime.take("http", ids, number) == {"started": 0, "put_back": 2}
    assert count(conn, "SELECT count(*) FROM tickets_ticket WHERE state = 'ready' AND attempt = 0") == 2


def test_large_definitions_are_read_each_time_and_not_remembered(conn: Conn, registry: Registry, acme: Tenant) -> None:
    small, large = make_job(acme, payload={"a": 1}), make_job(acme, payload={"a": "x" * 10_000})
    definitions = Definitions()
    for _ in range(2):
        found = definitions.jobs(conn, acme.schema_name, [(small, 1), (large, 1)])
        assert len(found[large, 1].payload["a"]) == 10_000 and found[small, 1].payload == {"a": 1}
    assert list(definitions._jobs) == [(acme.schema_name, small, 1)]


def test_what_can_not_be_settled_is_bounded_by_starting_no_more_of_it(
    runtime: Runtime, hands: Hands, conn: Conn, acme: Tenant, globex: Tenant, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A tenant's schema that does not answer fills no worker's memory, and stops nobody else; then a worker stops."""
    monkeypatch.setattr("workers.settling.UNSETTLED_MAX_OF_TENANT", 2)
    ids, number = queued(conn, acme, 4)
    assert take(runtime, ids[:2], number)["started"] == 2
    with table_lock(acme):
        for key in hands.held():
            hands.end(key)
        wait_until(lambda: runtime.settling.clogged() == [acme.pk], "the settlements to wait apart")
        assert take(runtime, ids[2:], number) == {"started": 0, "put_back": 0}, "released again later, with back-off"
        other, theirs = queued(conn, globex)
        assert take(runtime, other, theirs)["started"] == 1
        monkeypatch.setattr("workers.settling.UNSETTLED_MAX", 2)
        more, number_of_more = queued(conn, globex)
        assert take(runtime, more, number_of_more) == {"started": 0, "put_back": 1}
    wait_until(lambda: all(settled(conn, acme, one) for one in ids[:2]), "the settlements")
    assert runtime.settling.clogged() == [] and take(runtime, ids[2:], number)["started"] == 2


# --- what can't be prepared ends as an attempt ---


def test_a_locked_schema_costs_only_its_tenants_attempts_and_they_are_tried_again(
    runtime: Runtime, hands: Hands, conn: Conn, acme: Tenant, globex: Tenant
) -> None:
    mine, theirs = make_ticket(acme, payload={"n": 1}), make_ticket(globex)
    ids = [mine, theirs]
    number = release_now(conn, ids)
    with table_lock(acme):
        assert take(runtime, ids, number)["started"] == 2
        assert [work.execution_id for work in hands.works] == [theirs]
    wait_until(lambda: ticket_of(conn, mine)["state"] == "ready", "the attempt to end")
    [attempt] = attempts_of(conn, acme, mine)
    assert (attempt["state"], attempt["error"]["class"]) == ("returned", "not_prepared")
    ticket = ticket_of(conn, mine)
    assert ticket["failures"] == 0, "the platform's fault uses up no attempt"
    assert ticket["available_at"] > utc_now(), "and is not tried again at once"


def test_a_job_that_is_missing_or_unreadable_is_a_dead_letter(
    runtime: Runtime, hands: Hands, conn: Conn, acme: Tenant
) -> None:
    broken, missing, good = make_job(acme), make_job(acme), make_job(acme)
    ids = [make_ticket(acme, job) for job in (broken, missing, good)]
    schema = acme.schema_name
    conn.execute(f'UPDATE {schema}.schedules_jobversion SET retry = \'{{"base_s": "x"}}\' WHERE job_id = %s', [broken])
    conn.execute(f"DELETE FROM {schema}.schedules_jobversion WHERE job_id = %s", [missing])
    take(runtime, ids, release_now(conn, ids))
    for one in ids[:2]:
        wait_until(partial(settled, conn, acme, one), "the settlement")
        found = assert_exactly_one_outcome(conn, acme, one.hex, state="dead")
        assert (found["reason"], found["error"]["class"]) == ("undecodable", "undecodable")
    assert [work.execution_id for work in hands.works] == [ids[2]]


def test_a_payload_that_is_gone_does_not_hold_up_the_others(
    runtime: Runtime, hands: Hands, conn: Conn, acme: Tenant, globex: Tenant
) -> None:
    gone, theirs = make_ticket(acme, payload={"n": 1}), make_ticket(globex)
    conn.execute(f"UPDATE {acme.schema_name}.executions_execution SET payload = NULL WHERE id = %s", [gone])
    ids = [gone, theirs]
    take(runtime, ids, release_now(conn, ids))
    assert [work.execution_id for work in hands.works] == [theirs]
    wait_until(lambda: ticket_of(conn, gone)["state"] == "ready", "the attempt to end")


def test_a_tenant_that_is_gone_leaves_no_ticket(
    runtime: Runtime, hands: Hands, conn: Conn, registry: Registry, new_tenant: Any, acme: Tenant
) -> None:
    from tests.fixtures_flow import owning, remove_tenant

    tenant = new_tenant()
    ids = [make_ticket(tenant), make_ticket(acme)]
    number = release_now(conn, ids)
    with owning():
        remove_tenant(tenant)
    take(runtime, ids, number)
    wait_until(lambda: ticket_of(conn, ids[0]) is None, "the ticket to go")
    assert [work.execution_id for work in hands.works] == [ids[1]]


def test_an_executor_that_refuses_loses_nothing(
    runtime: Runtime, hands: Hands, conn: Conn, registry: Registry, acme: Tenant
) -> None:
    """Claimed, and never in anybody's hands: noticed, lost, tried again."""
    ids, number = queued(conn, acme, 2)

    def refuse(works: Any) -> None:
        raise RuntimeError("no")

    hands.submits = refuse
    with pytest.raises(RuntimeError):
        take(runtime, ids, number)
    assert runtime.holds() == set()
    runtime.heartbeat._compare()
    runtime.heartbeat._compare()
    as_lost(conn, registry)
    hands.submits = lambda works: None
    take(runtime, ids, release_now(conn, ids))
    hands.end_all()
    for one in ids:
        wait_until(partial(settled, conn, acme, one), "the settlement")
        assert assert_exactly_one_outcome(conn, acme, one.hex, state="succeeded")["attempt_count"] == 2


class Unwritable:
    def __str__(self) -> str:
        raise ValueError("no text")


def deep(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


@pytest.mark.parametrize("result", ["half \ud800", {("a", 1): 2}, 10**40, Unwritable(), deep(2_000), {1: "one"}])
def test_whatever_an_executor_gives_the_attempt_ends(
    runtime: Runtime, hands: Hands, conn: Conn, acme: Tenant, result: Any
) -> None:
    ids, number = queued(conn, acme)
    take(runtime, ids, number)
    hands.end_all(result=result)
    wait_until(lambda: settled(conn, acme, ids[0]), "the settlement")
    assert_exactly_one_outcome(conn, acme, ids[0].hex, state="succeeded")
    wait_until(lambda: runtime.holds() == set(), "nothing to be held")
