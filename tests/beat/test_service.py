"""The beat on a real database and a real broker: one slot, one message, whoever else does the same."""

from __future__ import annotations

import logging
import threading
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest

from apps.due import slots
from kernel.clock import utc_now
from tests.beat.conftest import slots_of

Conn = psycopg.Connection[Any]
TASKS = 20


def test_a_due_task_has_one_slot_and_one_message(periodic: Any, messages: Any, beat: Any, conn: Conn) -> None:
    texts = {"args": "[1]", "kwargs": '{"a": "b"}', "headers": '{"x": "y"}'}
    task = periodic("one", task="other.app.task", crontab=crontab("0", "3"), **texts)
    beat().run_once()
    beat().run_once()
    ((slot_id, slot_at, sends, sent_at, started_at),) = slots_of(conn, task)
    assert (sends, started_at) == (1, None)
    assert slot_at.astimezone(UTC).hour == 3
    assert utc_now() - slot_at < timedelta(days=1)
    (message,) = messages()
    assert message["shardbeat_slot"] == slot_id
    assert (message["task"], message["x"], message["periodic_task_name"]) == ("other.app.task", "y", "one")
    assert message["body"][:2] == [[1], {"a": "b"}]
    task.refresh_from_db()
    assert task.total_run_count == 1
    assert abs(task.last_run_at - sent_at) < timedelta(seconds=5)


def test_any_number_of_beats_make_and_send_each_slot_once(periodic: Any, messages: Any, beat: Any, conn: Conn) -> None:
    made = [periodic(f"task {number}", crontab=crontab("0", "3")) for number in range(TASKS)]
    beats = [beat() for _ in range(4)]
    barrier = threading.Barrier(len(beats))

    def passes(one: Any) -> None:
        barrier.wait()
        for _ in range(3):
            one.run_once()

    threads = [threading.Thread(target=passes, args=(one,)) for one in beats]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    ids = {slots_of(conn, task)[0][0] for task in made}
    assert all(len(slots_of(conn, task)) == 1 for task in made)
    assert sorted(message["shardbeat_slot"] for message in messages()) == sorted(ids)
    for task in made:
        task.refresh_from_db()
        assert task.total_run_count == 1


def test_what_nobody_started_is_sent_again_later_each_time(periodic: Any, messages: Any, beat: Any, conn: Conn) -> None:
    task = periodic("again", crontab=crontab("0", "3"))
    service = beat()
    service.run_once()
    for sends, too_early_s, late_enough_s in ((1, 4, 6), (2, 9, 11), (3, 19, 21)):
        age(conn, too_early_s)
        service.run_once()
        assert len(messages()) == sends
        age(conn, late_enough_s)
        service.run_once()
        assert len(messages()) == sends + 1
    assert slots.start(conn, slots_of(conn, task)[0][0])
    age(conn, 3_600)
    service.run_once()
    assert len(messages()) == 4
    assert {message["shardbeat_slot"] for message in messages()} == {slots_of(conn, task)[0][0]}


def test_a_slot_is_started_once(periodic: Any, beat: Any, conn: Conn, second: Conn) -> None:
    task = periodic("once", crontab=crontab("0", "3"))
    beat().run_once()
    slot_id = slots_of(conn, task)[0][0]
    won: list[bool] = []
    barrier = threading.Barrier(2)

    def start(own: Conn) -> None:
        barrier.wait()
        won.append(slots.start(own, slot_id))

    threads = [threading.Thread(target=start, args=(own,)) for own in (conn, second)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(won) == [False, True]


def test_what_nobody_ever_starts_is_given_up_and_one_beat_says_so(
    periodic: Any, messages: Any, beat: Any, conn: Conn, caplog: pytest.LogCaptureFixture
) -> None:
    task = periodic("vain", crontab=crontab("0", "3"))
    services = [beat(), beat()]
    services[0].run_once()
    conn.execute("UPDATE due_beatslot SET sends = %s", [slots.SENDS_MAX])
    age(conn, 3_600)
    with caplog.at_level(logging.ERROR):
        for service in services * 2:
            service.run_once()
    assert [record.message for record in caplog.records if "given up" in record.message] == [
        f"periodic task 'vain': nobody started its slot of {slots_of(conn, task)[0][1]}, given up"
    ]
    assert slots_of(conn, task)[0][2] == slots.SENDS_MAX + 1
    assert len(messages()) == 1


@pytest.mark.parametrize(
    "poison",
    [
        {"kwargs": "{not json"}, {"args": '{"a": 1}'}, {"kwargs": "[1]"}, {"headers": "x"}, {"task": " "},
        {"crontab": ("99", "*")}, {"kwargs": '{"surplus": 1}'}, {"interval": (0, "days")}, {"solar": True},
    ],
    ids=str,
)  # fmt: skip
def test_a_poison_task_costs_only_itself(
    poison: dict[str, Any], periodic: Any, messages: Any, beat: Any, conn: Conn, caplog: pytest.LogCaptureFixture
) -> None:
    fields = {"crontab": crontab("0", "3")} | poison
    if isinstance(fields["crontab"], tuple):
        fields["crontab"] = crontab(*fields["crontab"])
    if "interval" in poison:
        from django_celery_beat.models import IntervalSchedule

        fields = {"interval": IntervalSchedule.objects.create(every=poison["interval"][0], period="days")}
    if "solar" in poison:
        from django_celery_beat.models import SolarSchedule

        fields = {"solar": SolarSchedule.objects.get_or_create(event="sunrise", latitude=1, longitude=1)[0]}
    periodic("a poison", **fields)
    good = periodic("good", crontab=crontab("0", "3"))
    with caplog.at_level(logging.ERROR):
        service = beat()
        service.run_once()
        service.run_once()
    assert [message["periodic_task_name"] for message in messages()] == ["good"]
    assert slots_of(conn, good)[0][2] == 1
    told = [record.message for record in caplog.records if "a poison" in record.message]
    assert len(told) == 1, told


def test_a_task_that_this_platform_does_not_know_is_sent_by_name(periodic: Any, messages: Any, beat: Any) -> None:
    periodic("foreign", task="other.app.task", crontab=crontab("0", "3"))
    beat().run_once()
    (message,) = messages()
    assert message["task"] == "other.app.task"


def test_a_deleted_task_is_not_sent_again(periodic: Any, messages: Any, beat: Any, conn: Conn) -> None:
    task = periodic("gone", crontab=crontab("0", "3"))
    service = beat()
    service.run_once()
    kept = task.pk
    task.delete()
    task.pk = kept
    age(conn, 3_600)
    service.run_once()
    assert len(messages()) == 1
    assert slots_of(conn, task)[0][2] == slots.SENDS_MAX + 1


def test_while_the_broker_is_away_nothing_is_used_up(periodic: Any, messages: Any, beat: Any, conn: Conn) -> None:
    from celery import Celery

    from tenants.door import Line
    from workers.beat_service import BeatService

    task = periodic("patient", crontab=crontab("0", "3"))
    lost = BeatService(Line("test beat"), Celery("nowhere", broker="redis://127.0.0.1:1/0", set_as_current=False))
    for _ in range(3):
        with pytest.raises(Exception, match=r"127\.0\.0\.1:1"):
            lost.run_once()
    lost.close()
    assert [row[2:4] for row in slots_of(conn, task)] == [(0, None)]
    beat().run_once()
    assert len(messages()) == 1


def test_a_one_off_task_runs_once_and_is_switched_off(periodic: Any, messages: Any, beat: Any) -> None:
    task = periodic("one off", one_off=True)
    service = beat()
    service.run_once()
    service.run_once()
    task.refresh_from_db()
    assert (task.enabled, task.total_run_count, len(messages())) == (False, 1, 1)


def test_a_clocked_task_runs_once_at_its_time(periodic: Any, messages: Any, beat: Any) -> None:
    from django_celery_beat.models import ClockedSchedule

    at = utc_now() + timedelta(hours=1)
    task = periodic("clocked", clocked=ClockedSchedule.objects.create(clocked_time=at), one_off=True)
    service = beat()
    service.run_once()
    assert messages() == []
    ClockedSchedule.objects.update(clocked_time=utc_now() - timedelta(seconds=1))
    service.run_once()
    service.run_once()
    task.refresh_from_db()
    assert (task.enabled, len(messages())) == (False, 1)


def test_a_task_past_its_end_is_switched_off(periodic: Any, messages: Any, beat: Any) -> None:
    task = periodic("over", expires=utc_now() - timedelta(seconds=1))
    beat().run_once()
    task.refresh_from_db()
    assert (task.enabled, messages()) == (False, [])


def test_a_slot_past_its_own_end_is_given_up(periodic: Any, messages: Any, beat: Any, conn: Conn) -> None:
    task = periodic("short", crontab=crontab("*", "*"), expire_seconds=120)
    service = beat()
    service.run_once()
    (message,) = messages()
    slot_id, slot_at = slots_of(conn, task)[0][:2]
    assert datetime.fromisoformat(message["expires"]) == slot_at + timedelta(seconds=120)
    conn.execute("UPDATE due_beatslot SET slot_at = slot_at - interval '10 minutes' WHERE id = %s", [slot_id])
    age(conn, 3_600)
    service.run_once()
    by_id = {row[0]: row[2] for row in slots_of(conn, task)}
    assert by_id[slot_id] == slots.SENDS_MAX + 1


def test_pausing_wins_against_a_beat_that_has_read_already(periodic: Any, beat: Any, conn: Conn) -> None:
    from workers import beat_rows

    task = periodic("paused", crontab=crontab("0", "3"))
    now, (candidate,) = beat_rows.enabled(conn)
    assert now is not None
    type(task).objects.filter(pk=task.pk).update(enabled=False)
    assert beat_rows.make_slots(conn, [(candidate, now)], now=now) == 0
    assert slots_of(conn, task) == []


def test_an_edit_in_the_admin_holds_up_nobody_and_keeps_the_count(
    periodic: Any, messages: Any, beat: Any, conn: Conn, second: Conn
) -> None:
    edited = periodic("edited", crontab=crontab("0", "3"))
    periodic("other", crontab=crontab("0", "3"))
    service = beat()
    with second.transaction():
        second.execute(
            "SELECT 1 FROM django_celery_beat_periodictask WHERE id = %s FOR UPDATE", [edited.pk]
        )  # an edit that is not saved yet
        service.run_once()
        assert [message["periodic_task_name"] for message in messages()] == ["other"]
    service.run_once()
    assert len(messages()) == 2


def test_a_change_counts_from_its_moment(periodic: Any, messages: Any, beat: Any) -> None:
    task = periodic("changed", crontab=crontab("0", "3"))
    task.description = "saved now, as the admin does"
    task.save(update_fields=["description", "date_changed"])
    beat().run_once()
    assert messages() == []


def test_while_ten_slots_of_a_task_wait_the_rest_counts_as_missed(
    periodic: Any, messages: Any, beat: Any, conn: Conn
) -> None:
    from workers.beat_service import WAITING_MAX

    task = periodic("eager")
    service = beat()
    for _ in range(WAITING_MAX + 5):
        service.run_once()
        for shift in ("- interval '999 days'", "+ interval '999 days' - interval '1 minute'"):  # no two are ever alike
            conn.execute(f"UPDATE due_beatslot SET slot_at = slot_at {shift} WHERE task_id = %s", [task.pk])
        conn.execute("UPDATE django_celery_beat_periodictask SET last_run_at = NULL WHERE id = %s", [task.pk])
    assert len(slots_of(conn, task)) == WAITING_MAX
    slots.start(conn, slots_of(conn, task)[0][0])
    service.run_once()
    assert len(slots_of(conn, task)) == WAITING_MAX + 1


def test_pruning_keeps_the_newest_slot_of_each_task(periodic: Any, conn: Conn) -> None:
    first, other = periodic("first"), periodic("other")
    old = datetime(2025, 1, 1, tzinfo=UTC)
    rows = [(first.pk, old + timedelta(minutes=number), "first") for number in range(5)] + [(other.pk, old, "other")]
    assert len(slots.make(conn, rows)) == 6
    assert slots.make(conn, rows) == []
    assert slots.prune(conn, older_than_s=60, limit=3) == 3
    assert slots.prune(conn, older_than_s=60) == 1
    assert [row[1] for row in slots_of(conn, first)] == [old + timedelta(minutes=4)]
    assert len(slots_of(conn, other)) == 1


def crontab(minute: str, hour: str) -> Any:
    from django_celery_beat.models import CrontabSchedule

    return CrontabSchedule.objects.get_or_create(minute=minute, hour=hour, timezone="UTC")[0]


def age(conn: Conn, seconds: int) -> None:
    """Everything was sent that long ago."""
    conn.execute("UPDATE due_beatslot SET sent_at = clock_timestamp() - %s * interval '1 second'", [seconds])
