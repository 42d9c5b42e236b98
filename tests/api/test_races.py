"""Two at once: who meets on which row, and what is true afterwards whoever comes first."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any
from uuid import UUID

import psycopg
import pytest

from tests.api.makers import MINUTELY, Makers, begin, due, instant, queue, settle, ticket, utc_now
from tests.fixtures_api import Answer, Api, in_parallel
from tests.fixtures_people import People

if TYPE_CHECKING:
    from tenants.registry import Registry

Conn = psycopg.Connection[Any]
WaitFor = Callable[..., object]


def blocked(conn: Conn) -> bool:
    """Whether somebody waits for a lock in this database."""
    row = conn.execute(
        "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
    ).fetchone()
    return bool(row and row[0])


class Behind:
    """A request that is sent while somebody holds a lock, and that is known to wait for it."""

    def __init__(self, conn: Conn, wait_for: WaitFor, call: Callable[[], Answer]) -> None:
        self.answer: Answer | None = None
        self._thread = threading.Thread(target=self._run, args=(call,))
        self._thread.start()
        wait_for(lambda: blocked(conn) or not self._thread.is_alive(), "the request to meet the lock")
        assert self._thread.is_alive(), self.answer

    def _run(self, call: Callable[[], Answer]) -> None:
        from django.db import connection

        try:
            self.answer = call()
        finally:
            connection.close()

    def done(self) -> Answer:
        self._thread.join()
        assert self.answer is not None
        return self.answer


def test_twenty_puts_at_once_are_one(acme_people: People, make: Makers, conn: Conn) -> None:
    schedule = make.schedule()
    body = {"name": schedule["name"], "job": schedule["job"], "trigger": {"cron": "0 5 * * *"}}
    path = f"schedules/{schedule['id']}"
    answers = in_parallel(20, lambda _: Api(acme_people.admin).put(path, body, If_Match="*"))
    assert {answer.status for answer in answers} == {200}
    assert {answer.body["version"] for answer in answers} == {2}
    entry = due(conn, schedule["id"])
    assert entry and entry["version"] == 2
    assert conn.execute("SELECT count(*) FROM due_dueentry").fetchone() == (1,)
    assert conn.execute("SELECT count(*) FROM t_acme.schedules_scheduleversion").fetchone() == (2,)


def test_twenty_patches_of_one_revision_have_one_winner(acme_people: People, make: Makers, conn: Conn) -> None:
    schedule = make.schedule()
    path = f"schedules/{schedule['id']}"
    answers = in_parallel(20, lambda number: Api(acme_people.admin).patch(path, {"payload": number}, If_Match='"1"'))
    assert Counter(answer.status for answer in answers) == {200: 1, 412: 19}
    (winner,) = [answer.body for answer in answers if answer.status == 200]
    assert Api(acme_people.admin).get(path).body["payload"] == winner["payload"]


def test_twenty_different_patches_all_count(acme_people: People, make: Makers, conn: Conn) -> None:
    job = make.job()
    schedules = [make.schedule(job=job["id"])["id"] for _ in range(3)]

    def change(number: int) -> Answer:
        api = Api(acme_people.admin)
        if number % 2:
            return api.patch(f"jobs/{job['id']}", {"labels": {f"l{number}": "x"}, "timeout_s": number}, If_Match="*")
        return api.patch(f"schedules/{schedules[number % 3]}", {"payload": number}, If_Match="*")

    assert {answer.status for answer in in_parallel(20, change)} == {200}
    read = Api(acme_people.admin).get(f"jobs/{job['id']}").body
    assert (len(read["labels"]), read["version"]) == (10, 11)
    entries = [due(conn, id) for id in schedules]
    assert [entry and entry["job_version"] for entry in entries] == [11] * 3
    assert [entry and entry["timeout_s"] for entry in entries] == [read["timeout_s"]] * 3


def test_schedules_made_while_their_job_changes_fire_its_new_version(
    acme_people: People, make: Makers, conn: Conn
) -> None:
    job = make.job()["id"]

    def work(number: int) -> Answer:
        api = Api(acme_people.admin)
        if number % 2:
            return api.patch(f"jobs/{job}", {"timeout_s": number}, If_Match="*")
        return api.post("schedules", {"name": f"s{number}", "job": job, "trigger": MINUTELY})

    assert {answer.status for answer in in_parallel(16, work)} == {200, 201}
    versions = conn.execute("SELECT DISTINCT job_version FROM due_dueentry").fetchall()
    assert versions == [(9,)]
    assert conn.execute("SELECT count(*) FROM due_dueentry").fetchone() == (8,)


def test_a_job_is_not_deleted_under_a_new_schedule(acme_people: People, make: Makers, conn: Conn) -> None:
    for round_number in range(5):
        job = make.job()["id"]

        def work(number: int, job: str = job, round_number: int = round_number) -> Answer:
            api = Api(acme_people.admin)
            if number:
                return api.delete(f"jobs/{job}", If_Match="*")
            return api.post("schedules", {"name": f"r{round_number}", "job": job, "trigger": MINUTELY})

        made, gone = in_parallel(2, work)
        assert (made.status, gone.status) in {(201, 409), (400, 204)}


def test_pausing_and_resuming_a_job_from_many_sides(acme_people: People, make: Makers, conn: Conn) -> None:
    job = make.job()["id"]
    schedules = [make.schedule(job=job)["id"] for _ in range(4)]

    def work(number: int) -> Answer:
        api = Api(acme_people.admin)
        if number % 3 == 0:
            return api.post(f"jobs/{job}/{'pause' if number % 2 else 'resume'}")
        if number % 3 == 1:
            return api.post(f"schedules/{schedules[number % 4]}/{'pause' if number % 2 else 'resume'}")
        return api.post("executions", {"job": job})

    assert {answer.status for answer in in_parallel(18, work)} <= {200, 202}
    api = Api(acme_people.admin)
    paused = api.get(f"jobs/{job}").body["status"] == "paused"
    limits = conn.execute("SELECT DISTINCT job_limit FROM tickets_ticket").fetchall()
    assert limits == [(0 if paused else None,)]
    for id in schedules:
        active = conn.execute("SELECT status FROM t_acme.schedules_schedule WHERE id = %s", [id]).fetchone()
        assert (due(conn, id) is not None) == (active == ("active",) and not paused)


@pytest.mark.parametrize("quota", ["max_jobs", "max_schedules"])
def test_a_quota_holds_however_many_come_at_once(
    acme_people: People, make: Makers, conn: Conn, plan: Any, quota: str
) -> None:
    job = make.job()["id"]
    plan(**{quota: 5})

    def work(number: int) -> Answer:
        api = Api(acme_people.admin)
        if quota == "max_jobs":
            return api.post("jobs", {"name": f"n{number}", "kind": "python", "target": {"task": "shardbeat.noop"}})
        return api.post("schedules", {"name": f"n{number}", "job": job, "trigger": MINUTELY})

    statuses = Counter(answer.status for answer in in_parallel(25, work))
    assert statuses == {201: 4 if quota == "max_jobs" else 5, 429: 21 if quota == "max_jobs" else 20}


def test_one_name_for_many_at_once(acme_people: People, conn: Conn) -> None:
    body = {"name": "same", "kind": "python", "target": {"task": "shardbeat.noop"}}
    answers = in_parallel(12, lambda _: Api(acme_people.admin).post("jobs", body))
    assert Counter(answer.status for answer in answers) == {201: 1, 409: 11}


@pytest.mark.parametrize("action", ["pause", "delete", "edit"])
def test_fire_first_then_the_change(
    api: Api, make: Makers, conn: Conn, second: Conn, registry: Registry, wait_for: WaitFor, action: str
) -> None:
    """A dispatcher has locked the entry: the change waits, and the occurrence is fired, not lost."""
    from django.conf import settings

    from apps.dispatch import firing

    schedule = make.schedule(trigger={"every_s": 60, "anchor": "2026-01-01T00:00:00Z"})
    path = f"schedules/{schedule['id']}"
    now = instant(schedule["next_at"])
    with second.transaction():
        second.execute("SELECT 1 FROM due_dueentry WHERE key = %s FOR UPDATE", [schedule["id"]])
        change = Behind(
            conn,
            wait_for,
            {
                "pause": lambda: api.post(f"{path}/pause"),
                "delete": lambda: api.delete(path, If_Match="*"),
                "edit": lambda: api.patch(path, {"trigger": {"cron": "0 0 1 1 *"}}, If_Match="*"),
            }[action],
        )
        counts = firing.fire_batch(
            second, registry, range(settings.SHARDS), now=now, limit=10, fired_by=lambda entry: "test"
        )
        assert counts["fired"] == 1
    assert change.done().status in (200, 204)
    entry = due(conn, schedule["id"])
    assert (entry is None) == (action != "edit")
    assert entry is None or entry["version"] == 2
    (run,) = api.get(f"executions?schedule={schedule['id']}").body["items"]
    assert (run["state"], instant(run["nominal_at"])) == ("ready", now)


def test_the_change_first_then_fire(
    make: Makers, conn: Conn, second: Conn, registry: Registry, fire: Any, acme: Any, acme_people: People
) -> None:
    """Somebody pauses: dispatchers pass the locked entry over, and find nothing afterwards."""
    from django.db import transaction

    from apps.schedules.services import schedule_pause
    from tenants import door

    schedule = make.schedule()
    now = instant(schedule["next_at"])
    with door.inside(acme), transaction.atomic():
        schedule_pause(tenant=acme, actor=acme_people.actor(), schedule_id=UUID(schedule["id"]), now=utc_now())
        assert fire(now) == {"entries": 0}
    assert fire(now) == {"entries": 0}
    assert due(conn, schedule["id"]) is None
    assert conn.execute("SELECT count(*) FROM t_acme.executions_execution").fetchone() == (0,)


def test_trigger_waits_for_fire_so_that_one_decides_about_overlap(
    api: Api, make: Makers, conn: Conn, second: Conn, registry: Registry, wait_for: WaitFor
) -> None:
    from django.conf import settings

    from apps.dispatch import firing

    schedule = make.schedule(overlap="skip")
    now = instant(schedule["next_at"])
    with second.transaction():
        second.execute("SELECT 1 FROM due_dueentry WHERE key = %s FOR UPDATE", [schedule["id"]])
        trigger = Behind(conn, wait_for, lambda: api.post(f"schedules/{schedule['id']}/trigger"))
        firing.fire_batch(second, registry, range(settings.SHARDS), now=now, limit=10, fired_by=lambda entry: "test")
    assert trigger.done().body["state"] == "skipped"


def test_many_triggers_at_once_leave_one(acme_people: People, make: Makers, conn: Conn) -> None:
    for trigger in (MINUTELY, {"at": (utc_now() + timedelta(hours=1)).isoformat()}):
        schedule = make.schedule(overlap="skip", trigger=trigger)
        if "at" in trigger:
            conn.execute("DELETE FROM due_dueentry WHERE key = %s", [schedule["id"]])
        answers = in_parallel(10, partial(_trigger, acme_people, schedule["id"]))
        assert Counter(answer.body["state"] for answer in answers) == {"ready": 1, "skipped": 9}


def _trigger(people: People, schedule_id: str, number: int) -> Answer:
    return Api(people.admin).post(f"schedules/{schedule_id}/trigger")


def test_cancel_against_start(
    api: Api, make: Makers, conn: Conn, second: Conn, wait_for: WaitFor, registry: Registry
) -> None:
    """A worker starts the run while the cancel waits for its row: then the worker is asked to stop."""
    from apps.tickets import holding

    run = make.execution()
    number = queue(conn, run["id"])
    with second.transaction():
        (started,) = holding.start(second, [UUID(run["id"])], release=number, worker=UUID(int=1), limit=1)
        cancel = Behind(conn, wait_for, lambda: api.post(f"executions/{run['id']}/cancel"))
    answer = cancel.done()
    assert (answer.status, answer.body["state"], answer.body["cancel_requested"]) == (202, "running", True)
    settle(conn, registry, started, "cancelled")
    assert api.get(f"executions/{run['id']}").body["state"] == "cancelled"


def test_cancel_against_finish(api: Api, make: Makers, conn: Conn, second: Conn, wait_for: WaitFor) -> None:
    """The run ends while the cancel waits for its row: it ended, and the cancel is told so."""
    run = make.execution()
    started = begin(conn, run["id"])
    with second.transaction():
        second.execute("DELETE FROM tickets_ticket WHERE execution_id = %s", [run["id"]])
        second.execute(
            "UPDATE t_acme.executions_execution SET state = 'succeeded', finished_at = now() WHERE id = %s", [run["id"]]
        )
        cancel = Behind(conn, wait_for, lambda: api.post(f"executions/{run['id']}/cancel"))
    answer = cancel.done()
    assert (answer.status, answer.code) == (409, "already_finished")
    assert started


def test_cancel_against_a_retry(api: Api, make: Makers, conn: Conn, second: Conn, wait_for: WaitFor) -> None:
    """The attempt fails and waits for its retry while the cancel waits: all starts anew, and it is cancelled."""
    from apps.tickets import store

    run = make.execution()
    started = begin(conn, run["id"])
    with second.transaction():
        store.try_again(second, [(started.execution_id, started.fence, utc_now() + timedelta(minutes=1), 1, "retry")])
        cancel = Behind(conn, wait_for, lambda: api.post(f"executions/{run['id']}/cancel"))
    assert cancel.done().body["state"] == "cancelled"
    assert ticket(conn, run["id"]) is None


def test_cancel_against_the_fire_of_a_delayed_run(
    api: Api, make: Makers, conn: Conn, second: Conn, registry: Registry, wait_for: WaitFor
) -> None:
    from django.conf import settings

    from apps.dispatch import firing

    run = make.execution(delay_s=60)
    with second.transaction():
        second.execute("SELECT 1 FROM due_dueentry WHERE key = %s FOR UPDATE", [run["id"]])
        cancel = Behind(conn, wait_for, lambda: api.post(f"executions/{run['id']}/cancel"))
        later = utc_now() + timedelta(minutes=2)
        firing.fire_batch(second, registry, range(settings.SHARDS), now=later, limit=10, fired_by=lambda entry: "test")
    assert cancel.done().body["state"] == "cancelled"
    assert (ticket(conn, run["id"]), due(conn, run["id"])) == (None, None)


def test_twenty_cancels_are_one(acme_people: People, make: Makers, conn: Conn) -> None:
    run = make.execution()
    answers = in_parallel(20, lambda _: Api(acme_people.admin).post(f"executions/{run['id']}/cancel"))
    assert {(answer.status, answer.body["state"]) for answer in answers} == {(200, "cancelled")}
    noted = conn.execute(
        "SELECT count(*) FROM audit_auditevent WHERE object_id = %s AND action = 'execution.cancel'", [run["id"]]
    ).fetchone()
    assert noted == (1,)


def test_two_replays_of_one_letter(acme_people: People, make: Makers, conn: Conn, registry: Registry) -> None:
    run = make.execution()
    settle(conn, registry, begin(conn, run["id"]), "failed", error={"class": "x"}, retryable=False)
    letter = Api(acme_people.admin).get("dead-letters").body["items"][0]["id"]

    def work(number: int) -> Answer:
        body = {"payload": number} if number % 2 else {}
        return Api(acme_people.admin).post(f"dead-letters/{letter}/replay", body)

    answers = in_parallel(10, work)
    assert Counter(answer.status for answer in answers) == {202: 1, 409: 9}
    assert conn.execute("SELECT count(*) FROM tickets_ticket").fetchone() == (1,)
