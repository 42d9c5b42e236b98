"""/schedules: every endpoint, good and bad input, and what each does to the due-time index."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import psycopg
import pytest

from tests.api.makers import MINUTELY, NOWHERE, Makers, audit, begin, due, instant, ticket, utc_now
from tests.fixtures_api import Api

Conn = psycopg.Connection[Any]
YEARLY = {"cron": "0 0 1 1 *"}


def shift(conn: Conn, key: str, by: str) -> None:
    """Moves a due entry in time, as if the dispatchers had been away."""
    conn.execute(
        "UPDATE due_dueentry SET nominal_at = nominal_at + %s::interval, due_at = due_at + %s::interval WHERE key = %s",
        [by, by, key],
    )


def test_a_schedule_is_created_with_its_defaults_and_is_due(api: Api, make: Makers, conn: Conn) -> None:
    job = make.job(priority=7, timeout_s=11, max_concurrency=4)
    made = api.post("schedules", {"name": "minutely", "job": job["id"], "trigger": MINUTELY})
    assert made.status == 201
    assert (made.headers["Location"], made.etag) == (f"/api/v1/schedules/{made.body['id']}", '"1"')
    wanted: dict[str, Any] = {
        "timezone": "UTC", "start_at": None, "end_at": None, "jitter_s": 0, "misfire": "fire_once", "grace_s": 60,
        "overlap": "allow", "dst_gap": "run_after", "dst_fold": "first", "payload": None, "labels": {},
        "status": "active", "version": 1, "last_at": None, "trigger": MINUTELY,
    }  # fmt: skip
    assert {name: made.body[name] for name in wanted} == wanted
    entry = due(conn, made.body["id"])
    assert entry
    assert entry["due_at"] == instant(made.body["next_at"]) > utc_now() - timedelta(seconds=1)
    assert (entry["pool"], entry["queue"]) == ("http", "http.own.acme")
    assert (entry["priority"], entry["timeout_s"], entry["max_concurrency"]) == (7, 11, 4)
    assert (entry["own_payload"], entry["version"], entry["job_version"]) == (False, 1, 1)
    assert api.get(f"schedules/{made.body['id']}").body == made.body
    assert audit(conn, made.body["id"]) == ["schedule.create"]


def test_everything_that_is_given_comes_back(api: Api, make: Makers, conn: Conn) -> None:
    body = {
        "name": "all", "job": make.job()["id"], "trigger": {"cron": ["0 3 * * *", "30 15 * * 1-5"]},
        "timezone": "Europe/Berlin", "start_at": "2027-01-01T00:00:00Z", "end_at": "2028-01-01T00:00:00+01:00",
        "jitter_s": 30, "misfire": "skip", "grace_s": 5, "misfire_max": 7, "overlap": "skip", "dst_gap": "skip",
        "dst_fold": "both", "payload": {"x": 1}, "labels": {"a": "b"}, "external_id": "e",
    }  # fmt: skip
    made = api.post("schedules", body)
    assert {name: made.body[name] for name in body} == body
    entry = due(conn, made.body["id"])
    assert entry and entry["own_payload"] is True


@pytest.mark.parametrize(
    "trigger", [{"every_s": 300}, {"cron": "@hourly"}, {"cron": "H H * * *"}, {"cron": "@every 5m"}]
)
def test_triggers(api: Api, make: Makers, trigger: dict[str, Any]) -> None:
    made = make.schedule(trigger=trigger)
    assert made["trigger"] == trigger
    assert made["next_at"]


def test_one_instant(api: Api, make: Makers, conn: Conn) -> None:
    at = utc_now() + timedelta(hours=1)
    made = make.schedule(trigger={"at": at.isoformat()})
    assert instant(made["next_at"]) == at
    conn.execute("DELETE FROM due_dueentry WHERE key = %s", [made["id"]])  # as firing it does
    read = api.get(f"schedules/{made['id']}")
    assert (read.body["status"], read.body["next_at"]) == ("completed", None)
    assert [one["id"] for one in api.get("schedules?status=completed").body["items"]] == [made["id"]]
    assert api.get("schedules?status=active").body["items"] == []


def test_an_instant_just_past_is_due_and_an_older_one_is_refused(api: Api, make: Makers) -> None:
    job = make.job()["id"]
    body = {"name": "once", "job": job, "trigger": {"at": (utc_now() - timedelta(seconds=61)).isoformat()}}
    assert api.post("schedules", body).faults == {"/trigger/at": "past"}
    at = utc_now() - timedelta(seconds=50)
    assert instant(make.schedule(job=job, trigger={"at": at.isoformat()})["next_at"]) == at


def test_a_zone_in_the_expression_moves_to_its_own_member(api: Api, make: Makers) -> None:
    made = make.schedule(trigger={"cron": "CRON_TZ=Europe/Berlin 0 3 * * *"})
    assert made["timezone"] == "Europe/Berlin"
    back = api.put(f"schedules/{made['id']}", made, If_Match="*")
    assert (back.status, back.body["version"], back.body["next_at"]) == (200, 1, made["next_at"])


BAD = [
    ({"name": None}, "/name", "required"),
    ({"job": None}, "/job", "required"),
    ({"job": "x"}, "/job", "type"),
    ({"job": NOWHERE}, "/job", "not_found"),
    ({"job": 5}, "/job", "type"),
    ({"trigger": None}, "/trigger", "type"),
    ({"trigger": {}}, "/trigger", "kind"),
    ({"trigger": {"cron": "* * * * *", "every_s": 5}}, "/trigger", "kind"),
    ({"trigger": {"every_s": 0}}, "/trigger/every_s", "range"),
    ({"trigger": {"every_s": "5"}}, "/trigger/every_s", "type"),
    ({"trigger": {"every_s": 10**40}}, "/trigger/every_s", "range"),
    ({"trigger": {"at": "yesterday"}}, "/trigger/at", "format"),
    ({"timezone": "Mars/Olympus"}, "/timezone", None),
    ({"timezone": 7}, "/timezone", "type"),
    ({"start_at": "2027-01-01", "end_at": None}, "/start_at", "format"),
    ({"start_at": "2027-02-01T00:00:00Z", "end_at": "2027-01-01T00:00:00Z"}, "/end_at", "window"),
    ({"end_at": "2020-01-01T00:00:00Z"}, "/end_at", "past"),
    ({"jitter_s": -1}, "/jitter_s", "range"),
    ({"misfire": "maybe"}, "/misfire", "choice"),
    ({"overlap": "skip", "misfire": "fire_all"}, "/overlap", "contradiction"),
    ({"payload": "x" * 262_144}, "/payload", "too_large"),
    ({"cron": "* * * * *"}, "/cron", "unknown_field"),
    ({"status": "paused"}, "/status", "read_only"),
]


@pytest.mark.parametrize(("change", "pointer", "code"), BAD, ids=lambda value: str(value)[:40])
def test_bad_members_are_refused_with_their_place(
    api: Api, make: Makers, conn: Conn, change: dict[str, Any], pointer: str, code: str | None
) -> None:
    refused = api.post("schedules", {"name": "bad", "job": make.job()["id"], "trigger": MINUTELY, **change})
    assert (refused.status, refused.code) == (400, "invalid")
    assert list(refused.faults) == [pointer]
    assert code in (None, refused.faults[pointer])
    assert conn.execute("SELECT count(*) FROM t_acme.schedules_schedule").fetchone() == (0,)
    assert conn.execute("SELECT count(*) FROM due_dueentry").fetchone() == (0,)


def test_an_invalid_cron_comes_with_a_hint(api: Api, make: Makers) -> None:
    refused = api.post("schedules", {"name": "bad", "job": make.job()["id"], "trigger": {"cron": "61 * * * *"}})
    (error,) = refused.body["errors"]
    assert error["pointer"] == "/trigger/cron"
    assert "59" in error["detail"]


def test_all_faults_are_told_at_once(api: Api) -> None:
    refused = api.post("schedules", {"trigger": {"cron": "x"}, "timezone": "Nowhere", "jitter_s": -1, "payloads": 1})
    assert {"/name", "/job", "/trigger/cron", "/timezone", "/jitter_s", "/payloads"} <= set(refused.faults)


def test_the_plan_bounds_intervals(api: Api, make: Makers, conn: Conn, plan: Any) -> None:
    plan(min_interval_s=300)
    job = make.job()["id"]
    for trigger in ({"every_s": 299}, {"cron": "*/4 * * * *"}):
        refused = api.post("schedules", {"name": "often", "job": job, "trigger": trigger})
        assert set(refused.faults.values()) == {"below_minimum"}
    assert make.schedule(job=job, trigger={"every_s": 300})


def test_an_edit_of_when_starts_from_now_under_a_new_version(api: Api, make: Makers, conn: Conn) -> None:
    schedule = make.schedule(trigger={"cron": "0 23 * * *"})
    changed = api.patch(f"schedules/{schedule['id']}", {"trigger": {"every_s": 10}}, If_Match='"1"')
    assert (changed.status, changed.body["version"], changed.etag) == (200, 2, '"2"')
    entry = due(conn, schedule["id"])
    assert entry and entry["version"] == 2
    assert timedelta(0) < entry["due_at"] - instant(changed.body["updated_at"]) <= timedelta(seconds=10)
    assert api.get(f"executions?schedule={schedule['id']}").body["items"] == []
    assert audit(conn, schedule["id"]) == ["schedule.create", "schedule.update"]


def test_an_edit_of_when_never_fires_what_was_due_and_says_so(api: Api, make: Makers, conn: Conn) -> None:
    schedule = make.schedule(trigger={"every_s": 60, "anchor": "2026-01-01T00:00:00Z"})
    shift(conn, schedule["id"], "-10 minutes")
    api.patch(f"schedules/{schedule['id']}", {"trigger": YEARLY}, If_Match="*")
    entry = due(conn, schedule["id"])
    assert entry and entry["due_at"] > utc_now()
    (skipped,) = api.get(f"executions?schedule={schedule['id']}").body["items"]
    assert (skipped["state"], skipped["reason"], skipped["count"]) == ("skipped", "schedule_changed", 10)
    assert skipped["schedule_version"] == 1


def test_an_edit_of_what_keeps_the_cursor(api: Api, make: Makers, conn: Conn) -> None:
    schedule = make.schedule(payload={"v": 1})
    shift(conn, schedule["id"], "-10 minutes")
    before = due(conn, schedule["id"])
    changed = api.patch(f"schedules/{schedule['id']}", {"payload": {"v": 2}}, If_Match="*")
    assert changed.body["version"] == 2
    after = due(conn, schedule["id"])
    assert before and after
    assert {name for name in after if after[name] != before[name]} == {"version"}, "nothing that was due is lost"
    job = make.job()
    moved = api.patch(f"schedules/{schedule['id']}", {"job": job["id"], "payload": None}, If_Match="*")
    assert (moved.body["job"], moved.body["version"]) == (job["id"], 3)
    after = due(conn, schedule["id"])
    assert after and (str(after["job_id"]), after["own_payload"], after["version"]) == (job["id"], False, 3)
    assert after["due_at"] == before["due_at"]


@pytest.mark.parametrize(
    "same",
    [
        {}, {"name": "other"}, {"labels": {"a": "b"}}, {"trigger": MINUTELY}, {"trigger": {"cron": ["*  * * * *"]}},
        {"grace_s": 60}, {"timezone": "UTC"}, {"jitter_s": None},
    ],
)  # fmt: skip
def test_an_edit_that_changes_nothing_of_it_leaves_entry_and_cursor_alone(
    api: Api, make: Makers, conn: Conn, same: dict[str, Any]
) -> None:
    schedule = make.schedule()
    shift(conn, schedule["id"], "-10 minutes")
    before = due(conn, schedule["id"])
    changed = api.patch(f"schedules/{schedule['id']}", same, If_Match="*")
    assert (changed.status, changed.body["version"]) == (200, 1)
    assert due(conn, schedule["id"]) == before
    assert {name: changed.body[name] for name in same if same[name]} == {
        name: same[name] for name in same if same[name]
    }


def test_an_interval_keeps_its_phase_while_other_members_change(api: Api, make: Makers, conn: Conn) -> None:
    schedule = make.schedule(trigger={"every_s": 3600})
    first = due(conn, schedule["id"])
    api.patch(f"schedules/{schedule['id']}", {"misfire": "skip"}, If_Match="*")
    api.patch(f"schedules/{schedule['id']}", {"labels": {"a": "b"}}, If_Match="*")
    second = due(conn, schedule["id"])
    assert first and second
    assert (second["version"], second["nominal_at"]) == (2, first["nominal_at"])


def test_a_pause_removes_the_entry_and_a_resume_starts_from_now(api: Api, make: Makers, conn: Conn) -> None:
    schedule = make.schedule(trigger={"every_s": 60, "anchor": "2026-01-01T00:00:00Z"})
    shift(conn, schedule["id"], "-5 minutes")
    paused = api.post(f"schedules/{schedule['id']}/pause", {"reason": "holidays"})
    assert (paused.status, paused.body["status"], paused.body["next_at"]) == (200, "paused", None)
    assert (paused.body["paused_reason"], paused.etag) == ("holidays", '"2"')
    assert due(conn, schedule["id"]) is None
    (skipped,) = api.get(f"executions?schedule={schedule['id']}").body["items"]
    assert (skipped["reason"], skipped["count"]) == ("schedule_paused", 5)
    assert api.post(f"schedules/{schedule['id']}/pause").etag == '"2"', "pausing twice is pausing once"
    resumed = api.post(f"schedules/{schedule['id']}/resume")
    assert (resumed.body["status"], resumed.body["version"], resumed.body["paused_reason"]) == ("active", 2, None)
    entry = due(conn, schedule["id"])
    assert entry and entry["version"] == 2
    assert entry["nominal_at"] > instant(resumed.body["updated_at"])
    assert entry["nominal_at"].second == 0, "the phase stays"
    assert api.post(f"schedules/{schedule['id']}/resume").etag == resumed.etag
    assert len(api.get(f"executions?schedule={schedule['id']}").body["items"]) == 1, "a resume fires nothing"
    assert audit(conn, schedule["id"]) == ["schedule.create", "schedule.pause", "schedule.resume"]


def test_a_pause_says_how_long_it_lasts_and_a_later_one_changes_that(api: Api, make: Makers, conn: Conn) -> None:
    schedule = make.schedule(timezone="Europe/Berlin")
    path = f"schedules/{schedule['id']}/pause"
    timed = api.post(path, {"resume_at": "2100-01-01T12:00:00"})
    assert timed.body["resume_at"] == "2100-01-01T11:00:00Z", "without an offset it is the schedule's wall time"
    assert due(conn, schedule["id"]) is not None
    assert api.post(path, {"resume_at": "2100-01-01T12:00:00"}).etag == timed.etag
    for body in ({}, {"resume_at": None}, {"reason": "a freeze"}):
        api.post(path, {"resume_at": "2100-01-01T12:00:00+01:00"})
        endless = api.post(path, body).body
        assert (endless["status"], endless["resume_at"]) == ("paused", None)
        assert due(conn, schedule["id"]) is None
    assert api.post(path).body["paused_reason"] == "a freeze"
    assert api.post(path, {"reason": "a longer freeze"}).body["paused_reason"] == "a longer freeze"
    assert api.post(f"schedules/{schedule['id']}/resume").body["status"] == "active"
    assert due(conn, schedule["id"]) is not None


def test_a_preview_reads_times_without_an_offset_in_the_schedules_zone(api: Api, make: Makers) -> None:
    body = {"trigger": {"cron": "H 9 * * *"}, "timezone": "Asia/Kathmandu", "after": "2026-03-01T09:59:59", "count": 1}
    unsaved = api.post("schedules/preview", body).body
    assert unsaved["occurrences"][0]["nominal_local"].startswith("2026-03-02T09:")
    assert any("picks H" in note for note in unsaved["notes"])
    saved = make.schedule(trigger={"cron": "0 9 * * *"}, timezone="Asia/Kathmandu")
    shown = api.post(f"schedules/{saved['id']}/preview", {"after": "2026-03-01T09:00:00", "count": 1}).body
    assert shown["occurrences"][0]["nominal_local"] == "2026-03-02T09:00:00+05:45"
    # A change of the zone: times without an offset are of the zone that it would have.
    change = {"timezone": "America/New_York", "after": "2026-03-01T09:00:00", "until": "2026-03-02T09:00:00"}
    shown = api.post(f"schedules/{saved['id']}/preview", change).body
    assert [one["nominal_local"] for one in shown["occurrences"]] == ["2026-03-02T09:00:00-05:00"]
    assert [one["nominal_local"] for one in shown["current"]["occurrences"]] == ["2026-03-02T09:00:00+05:45"]


def test_a_paused_schedule_can_be_edited_and_stays_paused(api: Api, make: Makers, conn: Conn) -> None:
    schedule = make.schedule()
    api.post(f"schedules/{schedule['id']}/pause")
    changed = api.patch(f"schedules/{schedule['id']}", {"trigger": YEARLY}, If_Match="*")
    assert (changed.body["status"], changed.body["version"]) == ("paused", 2)
    assert due(conn, schedule["id"]) is None
    resumed = api.post(f"schedules/{schedule['id']}/resume")
    assert (resumed.body["version"], resumed.body["trigger"]) == (3, YEARLY)


def test_a_schedule_without_further_instants_is_completed_on_resume(api: Api, make: Makers, conn: Conn) -> None:
    schedule = make.schedule(trigger={"at": (utc_now() + timedelta(hours=1)).isoformat()})
    api.post(f"schedules/{schedule['id']}/pause")
    past = (utc_now() - timedelta(hours=1)).isoformat()
    spec = 'regexp_replace(spec, \'"at":"[^"]*"\', \'"at":"\' || %s || \'"\')'
    conn.execute(f"UPDATE t_acme.schedules_scheduleversion SET spec = {spec}", [past])
    assert api.post(f"schedules/{schedule['id']}/resume").body["status"] == "completed"
    refused = api.post(f"schedules/{schedule['id']}/pause")
    assert (refused.status, refused.code) == (409, "schedule_completed")
    later = {"trigger": {"at": (utc_now() + timedelta(hours=2)).isoformat()}}
    assert api.patch(f"schedules/{schedule['id']}", later, If_Match="*").body["status"] == "active"
    assert due(conn, schedule["id"])


def test_a_schedule_that_can_not_be_read_any_more_can_be_mended(api: Api, make: Makers, conn: Conn) -> None:
    schedule = make.schedule()
    conn.execute("UPDATE t_acme.schedules_scheduleversion SET spec = 'garbage'")
    conn.execute("UPDATE due_dueentry SET spec = 'garbage', parked = 'undecodable'")
    mended = api.patch(f"schedules/{schedule['id']}", {"trigger": YEARLY}, If_Match="*")
    entry = due(conn, schedule["id"])
    assert mended.status == 200
    assert entry and (entry["parked"], entry["version"]) == ("", 2)


def test_a_schedule_that_is_put_aside_says_so(api: Api, make: Makers, conn: Conn) -> None:
    schedule, other = make.schedule(), make.schedule()
    shift(conn, schedule["id"], "-10 minutes")
    conn.execute("UPDATE due_dueentry SET parked = 'no zone data' WHERE key = %s", [schedule["id"]])
    for read in (api.get(f"schedules/{schedule['id']}").body, api.get("schedules").body["items"][1]):
        assert (read["status"], read["next_at"], read["problem"]) == ("active", None, "no zone data")
    whole = api.get(f"schedules/{other['id']}").body
    assert whole["next_at"] and whole["problem"] is None
    renamed = api.patch(f"schedules/{schedule['id']}", {"name": "other"}, If_Match="*")
    assert (renamed.body["problem"], renamed.body["version"]) == ("no zone data", 1)


@pytest.mark.parametrize("how", ["patch", "put", "resume"])
def test_the_same_trigger_brings_back_what_is_put_aside(api: Api, make: Makers, conn: Conn, how: str) -> None:
    schedule = make.schedule()
    path = f"schedules/{schedule['id']}"
    shift(conn, schedule["id"], "-10 minutes")
    conn.execute("UPDATE due_dueentry SET parked = 'no zone data'")
    if how == "patch":
        mended = api.patch(path, {"trigger": schedule["trigger"]}, If_Match='"1"')
    elif how == "put":
        mended = api.put(path, api.get(path).body, If_Match='"1"')
    else:
        api.post(f"{path}/pause")
        mended = api.post(f"{path}/resume")
    assert (mended.status, mended.body["version"], mended.body["problem"]) == (200, 2, None)
    assert mended.etag != '"1"'
    entry = due(conn, schedule["id"])
    assert entry and (entry["parked"], entry["version"]) == ("", 2)
    assert entry["due_at"] == instant(mended.body["next_at"]) > utc_now() - timedelta(seconds=1)
    (skipped,) = api.get(f"executions?schedule={schedule['id']}").body["items"]
    assert (skipped["state"], skipped["schedule_version"]) == ("skipped", 1)
    again = api.patch(path, {"trigger": schedule["trigger"]}, If_Match="*")
    assert (again.body["version"], again.etag) == (2, mended.etag)


def test_what_has_fired_for_the_last_time_can_not_be_paused(api: Api, make: Makers, conn: Conn) -> None:
    at = utc_now() - timedelta(seconds=30)
    schedule = make.schedule(trigger={"at": at.isoformat()})
    conn.execute("DELETE FROM due_dueentry WHERE key = %s", [schedule["id"]])  # as firing it does
    refused = api.post(f"schedules/{schedule['id']}/pause")
    assert (refused.status, refused.code) == (409, "schedule_completed")
    assert api.get(f"schedules/{schedule['id']}").body["status"] == "completed"
    lost = make.schedule()
    conn.execute("DELETE FROM due_dueentry WHERE key = %s", [lost["id"]])  # an accident, which reconcile repairs
    assert api.post(f"schedules/{lost['id']}/pause").status == 200
    waiting = make.schedule()
    api.post(f"jobs/{waiting['job']}/pause")
    assert api.post(f"schedules/{waiting['id']}/pause").body["status"] == "paused"


def test_deleting_removes_the_entry_and_frees_the_name(api: Api, make: Makers, conn: Conn) -> None:
    schedule = make.schedule(name="Nightly", trigger={"every_s": 60, "anchor": "2026-01-01T00:00:00Z"})
    shift(conn, schedule["id"], "-2 minutes")
    assert api.delete(f"schedules/{schedule['id']}", If_Match='"1"').status == 204
    assert due(conn, schedule["id"]) is None
    assert api.get(f"schedules/{schedule['id']}").status == 404
    (skipped,) = api.get(f"executions?schedule={schedule['id']}").body["items"]
    assert (skipped["reason"], skipped["count"]) == ("schedule_deleted", 2)
    again = make.schedule(name="nightly")
    assert due(conn, again["id"]), "a new schedule is new"
    taken = api.post("schedules", {"name": "NIGHTLY", "job": again["job"], "trigger": MINUTELY})
    assert (taken.status, taken.code) == (409, "name_taken")


def test_put_replaces(api: Api, make: Makers) -> None:
    schedule = make.schedule(labels={"a": "b"}, payload=1)
    body = {"name": "bare", "job": schedule["job"], "trigger": YEARLY}
    replaced = api.put(f"schedules/{schedule['id']}", body, If_Match="*")
    assert (replaced.body["labels"], replaced.body["payload"], replaced.body["trigger"]) == ({}, None, YEARLY)


@pytest.mark.parametrize("method", ["PATCH", "PUT", "DELETE"])
def test_a_change_says_what_it_has_read(api: Api, make: Makers, method: str) -> None:
    schedule = make.schedule()
    path, body = f"schedules/{schedule['id']}", {"name": "n", "job": schedule["job"], "trigger": YEARLY}
    assert api.call(method, path, body).status == 428
    assert api.call(method, path, body, headers={"If-Match": '"7"'}).status == 412
    assert api.get(path).body == schedule


def test_trigger_runs_now_whatever_the_schedule_does(api: Api, make: Makers, conn: Conn) -> None:
    schedule = make.schedule(payload={"mine": True}, trigger=YEARLY)
    before = due(conn, schedule["id"])
    runs = [api.post(f"schedules/{schedule['id']}/trigger") for _ in range(2)]
    assert [run.status for run in runs] == [202, 202]
    assert len({run.body["run_key"] for run in runs}) == 2
    run = runs[0].body
    assert (run["trigger"], run["nominal_at"], run["state"], run["schedule_version"]) == ("manual", None, "ready", 1)
    made = ticket(conn, run["id"])
    assert made and (made["payload_from"], made["guarded"]) == ("schedule", False)
    assert due(conn, schedule["id"]) == before, "the plan goes on as it was"
    api.post(f"schedules/{schedule['id']}/pause")
    assert api.post(f"schedules/{schedule['id']}/trigger", {}).body["state"] == "ready"
    assert audit(conn, schedule["id"]).count("schedule.trigger") == 3


@pytest.mark.parametrize(("overlap", "room"), [("skip", 1), ("buffer_one", 2), ("allow", 3)])
def test_trigger_respects_the_overlap_policy_and_says_so(
    api: Api, make: Makers, conn: Conn, overlap: str, room: int
) -> None:
    schedule = make.schedule(overlap=overlap)
    states = [api.post(f"schedules/{schedule['id']}/trigger").body for _ in range(3)]
    assert [one["state"] for one in states] == ["ready"] * room + ["skipped"] * (3 - room)
    assert {one["reason"] for one in states if one["state"] == "skipped"} <= {"overlap_skipped"}
    begin(conn, states[0]["id"])
    last = api.post(f"schedules/{schedule['id']}/trigger").body
    assert last["state"] == ("ready" if overlap == "allow" else "skipped")


def test_preview_of_a_schedule(api: Api, make: Makers) -> None:
    schedule = make.schedule(trigger={"cron": "0 2 * * *"}, timezone="Europe/Berlin")
    shown = api.post(f"schedules/{schedule['id']}/preview", {"after": "2026-03-28T00:00:00Z", "count": 3})
    assert shown.status == 200
    assert [one["at"] for one in shown.body["occurrences"]] == [
        "2026-03-28T01:00:00Z", "2026-03-29T01:00:00Z", "2026-03-30T00:00:00Z"
    ]  # fmt: skip
    assert shown.body["occurrences"][1]["flags"]
    assert "Europe/Berlin" in shown.body["description"]
    assert len(api.post(f"schedules/{schedule['id']}/preview").body["occurrences"]) == 5


def test_preview_before_saving(api: Api, conn: Conn) -> None:
    shown = api.post("schedules/preview", {"trigger": {"every_s": 60}, "count": 2})
    assert len(shown.body["occurrences"]) == 2
    refused = api.post("schedules/preview", {"trigger": {"cron": "x"}, "count": 0, "after": "x", "no": 1})
    assert refused.faults.keys() == {"/trigger/cron", "/count", "/after", "/no"}
    assert conn.execute("SELECT count(*) FROM t_acme.schedules_schedule").fetchone() == (0,)


def test_preview_refuses_what_saving_refuses(api: Api, make: Makers) -> None:
    wrong = {
        "pause_after_failures": 0, "probe_after_s": "soon", "max_queue_age_s": -1, "labels": 3, "external_id": "",
        "name": 7, "job": "x", "payload": "x" * 300_000,
    }  # fmt: skip
    shown = api.post("schedules/preview", {"trigger": {"every_s": 60}, **wrong})
    saved = api.post("schedules", {"trigger": {"every_s": 60}, **wrong})
    assert shown.status == saved.status and shown.faults == saved.faults
    assert shown.faults.keys() == {f"/{name}" for name in wrong}
    alone = {"trigger": {"every_s": 60}, "probe_after_s": 60}
    assert api.post("schedules/preview", alone).faults == {"/probe_after_s": "contradiction"}
    fine = {"trigger": {"every_s": 60}, "pause_after_failures": 3, "probe_after_s": 60, "max_queue_age_s": 5}
    assert api.post("schedules/preview", fine).status == 200


@pytest.mark.parametrize("action", ["", "pause", "resume", "trigger", "preview"])
def test_a_schedule_that_does_not_exist(api: Api, action: str) -> None:
    answer = api.post(f"schedules/{NOWHERE}/{action}") if action else api.get(f"schedules/{NOWHERE}")
    assert (answer.status, answer.code) == (404, "not_found")


def test_last_at_is_the_newest_occurrence(api: Api, make: Makers, conn: Conn, fire: Any) -> None:
    schedule = make.schedule(trigger={"every_s": 60, "anchor": "2026-01-01T00:00:00Z"})
    entry = due(conn, schedule["id"])
    assert entry
    fire(entry["due_at"])
    read = api.get(f"schedules/{schedule['id']}").body
    assert instant(read["last_at"]) == entry["due_at"]
    assert instant(read["next_at"]) == entry["due_at"] + timedelta(minutes=1)
    (run,) = api.get(f"executions?schedule={schedule['id']}").body["items"]
    assert (run["trigger"], instant(run["nominal_at"])) == ("schedule", entry["nominal_at"])
