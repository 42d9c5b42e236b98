"""Calendars of excluded days, what schedules do with them, and previews of all that decides when."""

from __future__ import annotations

from typing import Any

from tests.api.makers import Makers, due
from tests.fixtures_api import Api

DAILY = {"cron": "0 9 * * *"}


def test_a_calendar_is_made_read_changed_and_deleted(api: Api, make: Makers) -> None:
    made = api.post(
        "calendars",
        {
            "name": "Holidays", "dates": ["2027-12-25", "2027-12-26", "2027-12-25"], "weekdays": ["sun"],
            "ranges": [{"from": "2027-08-01", "to": "2027-08-14"}], "rrules": ["FREQ=YEARLY;BYMONTH=5;BYMONTHDAY=1"],
        },
    )  # fmt: skip
    assert made.status == 201 and made.headers["Location"].endswith(made.body["id"])
    assert made.body["dates"] == ["2027-12-25", "2027-12-26"] and made.body["weekend"] == ["sat", "sun"]
    assert made.body["rrules"] == [{"rrule": "FREQ=YEARLY;BYMONTH=5;BYMONTHDAY=1", "from": "1970-01-01"}]
    path = f"calendars/{made.body['id']}"
    assert api.get(path).body == made.body
    assert [one["name"] for one in api.get("calendars").body["items"]] == ["Holidays"]
    assert api.patch(path, {"dates": []}).status == 428
    changed = api.patch(path, {"name": "Days off", "dates": ["2028-01-01"]}, If_Match=made.etag)
    assert (changed.status, changed.body["dates"], changed.body["ranges"]) == (200, ["2028-01-01"], made.body["ranges"])
    assert api.patch(path, {"dates": []}, If_Match=made.etag).status == 412
    back = api.put(path, changed.body, If_Match=changed.etag)
    assert (back.status, back.body) == (200, changed.body)
    schedule = make.schedule(trigger=DAILY, calendar="days OFF")
    assert schedule["calendar"] == made.body["id"]
    refused = api.delete(path, If_Match="*")
    assert (refused.status, refused.code) == (409, "calendar_in_use")
    assert refused.body["schedules"] == [{"id": schedule["id"], "name": schedule["name"]}]
    assert api.patch(f"schedules/{schedule['id']}", {"calendar": None}, If_Match="*").body["calendar"] is None
    assert api.delete(path, If_Match="*").status == 204 and api.get(path).status == 404


def test_faults_and_names(api: Api) -> None:
    bad = api.post(
        "calendars", {"name": "x", "dates": ["soon"], "rrules": ["FREQ=SECONDLY"], "ical": "nothing", "color": 1}
    )
    assert set(bad.faults) == {"/dates/0", "/rrules/0", "/ical", "/color"}
    wrong: Any
    for wrong in (0, False, "", {}):
        assert set(api.post("calendars", {"name": "y", "weekdays": wrong}).faults) == {"/weekdays"}
    assert api.post("calendars", {"name": "x"}).status == 201
    assert api.post("calendars", {"name": "X"}).code == "name_taken"


def test_ranges_that_meet_come_back_as_one(api: Api) -> None:
    years = [{"from": f"{year}-01-01", "to": f"{year + 1}-12-31"} for year in (2027, 2029)]
    made = api.post("calendars", {"name": "closed", "ranges": years})
    assert made.body["ranges"] == [{"from": "2027-01-01", "to": "2030-12-31"}]
    changed = api.patch(f"calendars/{made.body['id']}", {"name": "shut"}, If_Match=made.etag)
    assert (changed.status, changed.body["ranges"]) == (200, made.body["ranges"])
    far = {"name": "for ever", "ranges": [{"from": "1970-01-01", "to": "2498-12-31"}]}
    assert api.post("calendars", far).faults == {"/ranges/0": "range"}


def test_a_calendar_whose_name_no_text_can_hold_is_refused(api: Api) -> None:
    asked = api.post("schedules/preview", {"trigger": DAILY, "calendar": "\x00"})
    assert (asked.status, set(asked.faults)) == (400, {"/calendar"})


def test_a_change_of_a_calendar_reaches_the_due_entries(api: Api, make: Makers, conn: Any) -> None:
    calendar = api.post("calendars", {"name": "none"}).body
    schedule = make.schedule(trigger=DAILY, calendar=calendar["id"], on_excluded="next_business_day")
    before = due(conn, schedule["id"])
    assert before is not None
    day = before["nominal_at"].date().isoformat()
    assert api.patch(f"calendars/{calendar['id']}", {"dates": [day], "weekend": []}, If_Match="*").status == 200
    after = due(conn, schedule["id"])
    assert after is not None and after["nominal_at"] > before["nominal_at"] and after["version"] == 2
    assert api.get(f"schedules/{schedule['id']}").body["version"] == 2


def test_a_preview_has_a_range_what_was_before_and_what_is_left_out(api: Api) -> None:
    api.post("calendars", {"name": "off", "dates": ["2027-03-03"]})
    shown = api.post(
        "schedules/preview",
        {
            "trigger": DAILY, "timezone": "Europe/Berlin", "calendar": "off", "after": "2027-03-01T00:00:00Z",
            "until": "2027-03-05T00:00:00Z", "previous": 2,
        },
    ).body  # fmt: skip
    assert [one["nominal_at"] for one in shown["occurrences"]] == [
        "2027-03-01T08:00:00Z", "2027-03-02T08:00:00Z", "2027-03-04T08:00:00Z",
    ]  # fmt: skip
    assert [one["nominal_local"] for one in shown["previous"]] == [
        "2027-02-27T09:00:00+01:00",
        "2027-02-28T09:00:00+01:00",
    ]
    [missing] = shown["left_out"]
    assert (missing["nominal_at"], missing["flags"]) == ("2027-03-03T08:00:00Z", ["excluded"])
    assert missing["words"] == ["its day is excluded by the calendar"]


def test_a_change_is_compared_before_it_is_saved(api: Api, make: Makers) -> None:
    schedule = make.schedule(trigger={"cron": "0 9,12 * * *"})
    path = f"schedules/{schedule['id']}"
    ask = {"after": "2027-03-01T00:00:00Z", "until": "2027-03-03T00:00:00Z"}
    shown = api.post(f"{path}/preview", {**ask, "trigger": {"cron": "0 12,15 * * *"}}).body
    assert [one["at"][11:13] for one in shown["occurrences"]] == ["12", "15", "12", "15"]
    assert [one["at"][11:13] for one in shown["current"]["occurrences"]] == ["09", "12", "09", "12"]
    difference = shown["difference"]
    assert [one["at"][:13] for one in difference["added"]] == ["2027-03-01T15", "2027-03-02T15"]
    assert [one["at"][:13] for one in difference["removed"]] == ["2027-03-01T09", "2027-03-02T09"]
    assert difference["kept"] == 2
    assert api.get(path).body["trigger"] == schedule["trigger"]
    assert "difference" not in api.post(f"{path}/preview", ask).body
    assert api.post(f"{path}/preview", {**ask, "trigger": {"cron": "0 25 * * *"}}).faults == {"/trigger/cron": "range"}
    assert api.post(f"{path}/preview", {"until": "2020-01-01T00:00:00Z"}).faults == {"/until": "range"}


def test_every_trigger_and_choice_comes_back_as_it_was_given(api: Api, make: Makers) -> None:
    given = {
        "trigger": {"every": {"months": 1}, "anchor": "2027-01-31T09:00"}, "timezone": "Europe/Berlin", "max_runs": 12,
        "windows": [{"from": "08:00", "to": "18:00", "days": ["mon", "tue"]}], "outside": "next_opening",
        "misfire": "fire_all", "misfire_max": 5, "misfire_max_age_s": 3600, "misfire_order": "newest",
        "catch_up_per_s": 0.5, "overlap": "buffer_all", "overlap_max": 4,
        "pause_after_failures": 3, "probe_after_s": 60,
    }  # fmt: skip
    schedule = make.schedule(**given)
    assert {name: schedule[name] for name in given} == given
    path = f"schedules/{schedule['id']}"
    again = api.put(path, api.get(path).body, If_Match="*")
    assert (again.status, again.body["version"]) == (200, 1)
    only = api.patch(path, {"pause_after_failures": None, "probe_after_s": None}, If_Match="*").body
    assert (only["version"], only["pause_after_failures"], only["next_at"]) == (1, None, schedule["next_at"])
    rule = make.schedule(trigger={"rrule": "DTSTART;TZID=Asia/Tokyo:20270101T090000\nRRULE:FREQ=WEEKLY"})
    assert (rule["timezone"], rule["trigger"]) == (
        "Asia/Tokyo",
        {"rrule": "FREQ=WEEKLY", "dtstart": "2027-01-01T09:00:00"},
    )
    assert api.put(f"schedules/{rule['id']}", rule, If_Match="*").body["version"] == 1


def test_pausing_until_a_time_and_resuming_with_the_debt(api: Api, make: Makers) -> None:
    schedule = make.schedule()
    path = f"schedules/{schedule['id']}"
    assert api.post(f"{path}/pause", {"resume_at": "2020-01-01T00:00:00Z"}).faults == {"/resume_at": "past"}
    paused = api.post(f"{path}/pause", {"resume_at": "2040-01-01T00:00:00Z", "reason": "later"}).body
    assert (paused["status"], paused["resume_at"], paused["next_at"]) == (
        "paused", "2040-01-01T00:00:00Z", "2040-01-01T00:01:00Z",
    )  # fmt: skip
    assert [one["id"] for one in api.get("schedules?status=paused").body["items"]] == [schedule["id"]]
    for wrong in ("yes", 0, 1, 1.0, [True], {"yes": True}):  # 0 equals false, and is no answer to yes or no
        assert api.post(f"{path}/resume", {"catch_up": wrong}).faults == {"/catch_up": "type"}
    resumed = api.post(f"{path}/resume", {"catch_up": True}).body
    assert (resumed["status"], resumed["resume_at"], resumed["paused_at"]) == ("active", None, None)
    assert api.post(f"{path}/trigger", {"overlap": "sometimes"}).faults == {"/overlap": "choice"}
    assert api.post(f"{path}/trigger", {"overlap": "cancel_running"}).faults == {"/overlap": "contradiction"}
    assert api.post(f"{path}/trigger", {"overlap": "skip"}).status == 202
