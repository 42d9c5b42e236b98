"""The API form: what is accepted, what it means, and that all faults are told with their pointers."""

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from apps.schedules.timing import (
    At,
    Cron,
    Interval,
    Spec,
    TimingInvalid,
    next_after,
    occurrences,
    spec_from_api,
    spec_from_json,
    spec_to_json,
)
from tests.schedules.cases import text, utc

NOW = utc("2026-01-05T10:00:00.250Z")


def read(trigger: dict[str, Any] | None = None, **more: Any) -> Spec:
    min_interval_s = more.pop("min_interval_s", 1)
    return spec_from_api({"trigger": trigger or {"cron": "0 3 * * *"}, **more}, now=NOW, min_interval_s=min_interval_s)


def faults(trigger: Any = None, **more: Any) -> dict[str, str]:
    with pytest.raises(TimingInvalid) as caught:
        read(trigger, **more)
    assert all(error.detail[-1] in ".?" and error.code for error in caught.value.errors)
    return {error.pointer: error.detail for error in caught.value.errors}


def test_defaults() -> None:
    assert read() == Spec(
        trigger=Cron(("0 3 * * *",)),
        zone="UTC",
        start_at=None,
        end_at=None,
        jitter_s=0,
        misfire="fire_once",
        grace_s=60,
        overlap="allow",
        dst_gap="run_after",
        dst_fold="first",
        misfire_max=100,
    )


def test_null_members_are_like_missing_ones() -> None:
    names = ("timezone", "start_at", "end_at", "jitter_s", "misfire", "grace_s", "overlap", "dst_gap", "dst_fold")
    assert read({"cron": "0 3 * * *", "every_s": None}, **dict.fromkeys(names)) == read()


def test_other_members_are_not_looked_at() -> None:
    assert read(name="nightly", job="1", payload={}, labels={}) == read()


@pytest.mark.parametrize(
    ("trigger", "more", "pointers"),
    [
        (None, {"timezone": 3}, {"/timezone"}),
        (None, {"timezone": "Mars/Olympus"}, {"/timezone"}),
        (None, {"misfire": "sometimes", "overlap": []}, {"/misfire", "/overlap"}),
        (None, {"dst_gap": True, "dst_fold": ""}, {"/dst_gap", "/dst_fold"}),
        (None, {"jitter_s": -1, "grace_s": "60", "misfire_max": 0}, {"/jitter_s", "/grace_s", "/misfire_max"}),
        (None, {"jitter_s": True, "grace_s": 1.5, "misfire_max": 1001}, {"/jitter_s", "/grace_s", "/misfire_max"}),
        (None, {"start_at": "2026-02-01", "end_at": "soon"}, {"/start_at", "/end_at"}),
        (None, {"start_at": "2026-02-30T00:00:00Z", "end_at": 5}, {"/start_at", "/end_at"}),
        (None, {"start_at": "0001-01-01T00:00:00+14:00"}, {"/start_at"}),
        (None, {"end_at": "9999-12-31T23:59:59-12:00"}, {"/end_at"}),
        (None, {"start_at": "2026-03-01T00:00:00Z", "end_at": "2026-02-01T00:00:00Z"}, {"/end_at"}),
        (None, {"end_at": "2026-01-04T00:00:00Z"}, {"/end_at"}),
        (None, {"end_at": "2026-01-05T12:00:00Z"}, {"/end_at"}),
        ("0 3 * * *", {}, {"/trigger"}),
        ([], {}, {"/trigger"}),
        ({"x": 1}, {}, {"/trigger"}),
        ({"rrule": "FREQ=HOURLY;BYMINUTE=1,2"}, {}, {"/trigger/rrule"}),
        ({"cron": "0 3 * * *", "every_s": 60}, {}, {"/trigger"}),
        ({"cron": "0 3 * * *", "tz/~": 1, "jitter": 1}, {}, {"/trigger/tz~1~0", "/trigger/jitter"}),
        ({"cron": "0 3 * * *", "anchor": "2026-01-01T00:00:00Z"}, {}, {"/trigger/anchor"}),
        ({"cron": 5}, {}, {"/trigger/cron"}),
        ({"cron": []}, {}, {"/trigger/cron"}),
        ({"cron": ["0 3 * * *", 7, "0 25 * * *"]}, {}, {"/trigger/cron/1", "/trigger/cron/2"}),
        ({"cron": ["0 3 * * *", "@every 5m"]}, {}, {"/trigger/cron/1"}),
        ({"cron": "@every 0s"}, {}, {"/trigger/cron"}),
        ({"cron": "@every 999999h"}, {}, {"/trigger/cron"}),
        ({"cron": "0 0 1 1 * 2020"}, {}, {"/trigger/cron"}),
        ({"cron": "0 0 0 1 1 * 2020"}, {}, {"/trigger/cron"}),
        ({"every_s": 0}, {}, {"/trigger/every_s"}),
        ({"every_s": "60"}, {}, {"/trigger/every_s"}),
        ({"every_s": True}, {}, {"/trigger/every_s"}),
        ({"every_s": 0.5}, {}, {"/trigger/every_s"}),
        ({"every_s": float("nan")}, {}, {"/trigger/every_s"}),
        ({"every_s": 10**12}, {}, {"/trigger/every_s"}),
        ({"every_s": 60, "anchor": "noon"}, {}, {"/trigger/anchor"}),
        ({"at": "2026-01-05T09:58:59Z"}, {}, {"/trigger/at"}),
        ({"at": "tomorrow"}, {}, {"/trigger/at"}),
        ({"at": "2026-01-06T09:00:00Z"}, {"start_at": "2026-01-07T00:00:00Z"}, {"/trigger/at"}),
        ({"at": "2026-01-06T09:00:00Z"}, {"end_at": "2026-01-06T00:00:00Z"}, {"/end_at"}),
        ({"at": "٢٠٢٦-01-06T09:00:00Z"}, {}, {"/trigger/at"}),
        (None, {"overlap": "skip", "misfire": "fire_all"}, {"/overlap"}),  # B44
        (None, {"overlap": "skip", "misfire": "fire_latest_n"}, {"/overlap"}),
    ],
)
def test_refused(trigger: Any, more: dict[str, Any], pointers: set[str]) -> None:
    if trigger is None:
        trigger = {"cron": "0 3 * * *"}
    with pytest.raises(TimingInvalid) as caught:
        spec_from_api({"trigger": trigger, **more}, now=NOW)
    assert {error.pointer for error in caught.value.errors} == pointers


def test_all_faults_at_once() -> None:
    told = faults({"cron": ["60 * * * *", "0 3 * *"]}, timezone="Europe/Berln", start_at="x", misfire="x", jitter_s=-1)
    assert set(told) == {"/trigger/cron/0", "/trigger/cron/1", "/timezone", "/start_at", "/misfire", "/jitter_s"}
    assert "Europe/Berlin" in told["/timezone"]


def test_a_missing_trigger_is_one_fault() -> None:
    with pytest.raises(TimingInvalid) as caught:
        spec_from_api({}, now=NOW)
    assert [error.pointer for error in caught.value.errors] == ["/trigger"]


@pytest.mark.parametrize(
    ("trigger", "more", "anchor"),
    [
        ({"every_s": 300}, {}, "2026-01-05T10:00:00Z"),  # now, whole seconds
        ({"every_s": 300}, {"start_at": "2026-01-06T00:00:30Z"}, "2026-01-06T00:00:30Z"),
        (
            {"every_s": 300, "anchor": "2020-01-01T00:00:07Z"},
            {"start_at": "2026-01-06T00:00:30Z"},
            "2020-01-01T00:00:07Z",
        ),
        ({"every_s": 300.0}, {}, "2026-01-05T10:00:00Z"),
        ({"cron": "@every 5m"}, {}, "2026-01-05T10:00:00Z"),
        ({"cron": ["@every 00h05m00s"]}, {}, "2026-01-05T10:00:00Z"),
        ({"cron": "@every 300s"}, {}, "2026-01-05T10:00:00Z"),
    ],
)
def test_the_anchor_is_stored(trigger: dict[str, Any], more: dict[str, Any], anchor: str) -> None:
    spec = read(trigger, **more)
    assert spec.trigger == Interval(300, utc(anchor))
    assert spec_from_json(spec_to_json(spec)).trigger == spec.trigger


def test_interval_phase_goes_both_ways() -> None:
    spec = read({"every_s": 100, "anchor": "2026-01-05T10:00:50Z"})
    assert [text(at) for at in occurrences(spec, after=utc("2026-01-05T09:58:00Z"), limit=3)] == [
        "2026-01-05T09:59:10Z",
        "2026-01-05T10:00:50Z",
        "2026-01-05T10:02:30Z",
    ]


def test_at_may_be_a_moment_ago() -> None:
    spec = read({"at": "2026-01-05T09:59:30Z"})
    assert spec.trigger == At(utc("2026-01-05T09:59:30Z"))


def test_times_without_offset_are_wall_time_in_the_schedules_zone() -> None:
    spec = read({"at": "2026-07-01T09:00"}, timezone="America/New_York")
    assert spec.trigger == At(utc("2026-07-01T13:00:00Z"))
    spec = read(timezone="Asia/Tokyo", start_at=datetime(2026, 2, 1), end_at="2026-03-01 00:00:00")  # noqa: DTZ001
    assert (spec.start_at, spec.end_at) == (utc("2026-01-31T15:00:00Z"), utc("2026-02-28T15:00:00Z"))
    assert read(start_at=datetime(2026, 2, 1, 9, tzinfo=timezone(timedelta(hours=9)))).start_at == utc(
        "2026-02-01T00:00:00Z"
    )


def test_a_zone_prefix_counts_only_where_no_timezone_is_given() -> None:
    assert read({"cron": "CRON_TZ=Europe/Paris 0 6 * * *"}).zone == "Europe/Paris"
    assert read({"cron": ["TZ=Asia/Tokyo 0 6 * * *", "TZ=Asia/Tokyo @daily"]}).zone == "Asia/Tokyo"
    assert "keep only timezone" in faults({"cron": "TZ=UTC 0 6 * * *"}, timezone="UTC")["/trigger/cron"]
    assert "share one zone" in faults({"cron": ["TZ=Asia/Tokyo 0 6 * * *", "0 7 * * *"]})["/trigger/cron"]
    assert "Europe/Paris" in faults({"cron": "TZ=Europe/Pari 0 6 * * *"})["/trigger/cron"]


def test_expressions_are_normalised_and_united() -> None:
    assert read({"cron": ["0 03 * * mon", " @daily ", "0 3 * * 1"]}).trigger == Cron(("0 3 * * 1", "0 0 * * *"))


@pytest.mark.parametrize(
    ("trigger", "least_s", "fine"),
    [
        ({"every_s": 59}, 60, False),
        ({"every_s": 60}, 60, True),
        ({"cron": "@every 30s"}, 60, False),
        ({"cron": "* * * * *"}, 60, True),
        ({"cron": "* * * * *"}, 61, False),
        ({"cron": "*/15 * * * * *"}, 60, False),
        ({"cron": "*/15 * * * * *"}, 15, True),
        ({"cron": "*/45 * * * * *"}, 45, False),  # 45, then 15 seconds
        ({"cron": "30 */5 * * * *"}, 300, True),
        ({"cron": "59,0 59,0 23,0 1 * *"}, 60, False),
        ({"cron": ["0 3 * * *", "5 3 * * *"]}, 3600, False),
        ({"cron": ["0 3 1 * *", "5 3 2 * *"]}, 3600, True),
        ({"cron": "0 */6 * * *"}, 3600, True),
        ({"at": "2026-02-01T00:00:00Z"}, 3600, True),
    ],
)
def test_the_plans_minimum_interval(trigger: dict[str, Any], least_s: int, fine: bool) -> None:
    if fine:
        assert next_after(read(trigger, min_interval_s=least_s), NOW) is not None
    else:
        [told] = faults(trigger, min_interval_s=least_s).values()
        assert f"{least_s} s" in told


@pytest.mark.parametrize(
    "broken",
    [
        "",
        "{",
        "null",
        "[]",
        "{}",
        '{"trigger":{}}',
        "\x00",
        "[" * 100_000,
        '{"trigger":{"cron":["0 3 * * *"]}}',
    ],
)
def test_poison_text_is_refused(broken: str) -> None:
    with pytest.raises(TimingInvalid):
        spec_from_json(broken)


@pytest.mark.parametrize(
    ("part", "instead"),
    [
        ('"0 3 * * *"', '"0 25 * * *"'),
        ('"0 3 * * *"', "5"),
        ('["0 3 * * *"]', "[]"),
        ('"UTC"', '"Mars"'),
        ('"UTC"', "7"),
        ('"start_at":null', '"start_at":"2026-01-01T00:00:00"'),
        ('"grace_s":60', '"grace_s":"60"'),
        ('"jitter_s":0', '"jitter_s":-1'),
        ('"misfire_max":100', '"misfire_max":100000'),
        ('"fire_once"', '"fire_twice"'),
        ('"zone"', '"zones"'),
        ('{"cron":["0 3 * * *"]}', '{"every_s":0,"anchor":"2026-01-01T00:00:00Z"}'),
        ('{"cron":["0 3 * * *"]}', '{"at":"2026-01-01T00:00:00Z","x":1}'),
        ('{"cron":["0 3 * * *"]}', '{"solar":"sunrise"}'),
    ],
)
def test_every_poisoned_member_is_refused(part: str, instead: str) -> None:
    good = spec_to_json(read())
    assert part in good
    with pytest.raises(TimingInvalid):
        spec_from_json(good.replace(part, instead))


def test_json_is_canonical() -> None:
    spec = read(
        {"cron": ["0 3 * * *", "@hourly"]}, timezone="Europe/Berlin", start_at="2026-02-01T00:00:00.5+01:00", jitter_s=5
    )
    assert spec_to_json(spec) == (
        '{"dst_fold":"first","dst_gap":"run_after","end_at":null,"grace_s":60,"jitter_s":5,"misfire":"fire_once",'
        '"misfire_max":100,"overlap":"allow","start_at":"2026-01-31T23:00:00.500000Z",'
        '"trigger":{"cron":["0 3 * * *","0 * * * *"]},"zone":"Europe/Berlin"}'
    )
    again = spec_from_json(spec_to_json(spec))
    assert again == spec and hash(again) == hash(spec) and again is spec_from_json(spec_to_json(spec))
    assert next_after(again, NOW) == next_after(spec, NOW)


def test_now_may_have_any_zone() -> None:
    local = NOW.astimezone(timezone(timedelta(hours=-3)))
    assert spec_from_api({"trigger": {"every_s": 60}}, now=local) == spec_from_api(
        {"trigger": {"every_s": 60}}, now=NOW
    )
    assert spec_from_api({"trigger": {"every_s": 60}}, now=local).trigger.as_json()["anchor"].endswith("Z")
    assert NOW.tzinfo is UTC
