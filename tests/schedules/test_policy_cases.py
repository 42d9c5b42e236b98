"""The decisions of tests/cases/dispatcher.jsonl: misfire, overlap, window, edit, pause, clocks gone wrong."""

import time
import tracemalloc
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest

from apps.schedules.policy import Skip, cursor_is_ahead, decide, first_due
from apps.schedules.timing import Cron, Interval, Spec, TimingInvalid, actual_at, next_after, spec_from_api
from tests.schedules.cases import case, text, utc
from tests.schedules.timeline import KEY, Timeline


def given(number: str) -> tuple[dict[str, Any], dict[str, Any]]:
    found = case("dispatcher.jsonl", number)
    return found["input"], found["expected"]


def spec_of(schedule: dict[str, Any], *, now: datetime, **more: Any) -> Spec:
    trigger = (
        {"cron": schedule["cron"]}
        if "cron" in schedule
        else {"every_s": schedule["every"], "anchor": schedule.get("anchor")}
    )
    data = {"trigger": trigger, "timezone": schedule.get("tz"), "start_at": schedule.get("start_at")}
    return spec_from_api({**data, **more}, now=now)


def play(number: str, **more: Any) -> Timeline:
    """Runs the case's timeline: down, up and edits."""
    events, _ = given(number)
    created = utc(events["created_utc"])
    grace = {"grace_s": events["skip_grace_s"]}
    line = Timeline(spec_of(events["schedule"], now=created, **grace, **more), created)
    for event in events["events"]:
        line.until(utc(event["at_utc"]))
        if event["event"] == "edit":
            changed = {**events["schedule"], **event["change"]}
            line.edit(spec_of(changed, now=line.now, **grace, **more))
        else:
            line.up = event["event"] == "up"
    line.until(utc(events["until_utc"]))
    return line


def fires(line: Timeline) -> list[dict[str, str]]:
    return [{"nominal": text(run.nominal_at), "actual": text(run.started_at)} for run in line.runs]


@pytest.mark.parametrize(
    ("name", "policy"),
    [
        ("skip", {"misfire": "skip"}),
        ("fire_once", {"misfire": "fire_once"}),
        ("fire_all", {"misfire": "fire_all", "misfire_max": 1000}),
        ("fire_all_with_max_backfill_100", {"misfire": "fire_all"}),
    ],
)
def test_b04_a_night_down(name: str, policy: dict[str, Any]) -> None:
    _, expected = given("B04")
    line = play("B04", **policy)
    assert len(line.runs) == expected["fire_count_by_policy"][name]
    assert len(line.runs) + line.skipped() == expected["missed_slots"] + 2  # each is accounted for
    reasons = {skip.reason for decision in line.decisions for skip in decision.skips}
    capped = name == "fire_all_with_max_backfill_100"
    assert reasons == ({"misfire_capped"} if capped else set() if name == "fire_all" else {"misfire_skipped"})
    if capped:
        [skip] = [skip for decision in line.decisions for skip in decision.skips]
        assert skip == Skip(utc("2026-01-05T22:01:00Z"), utc("2026-01-06T04:20:00Z"), 380, "misfire_capped")
        assert line.runs[0].nominal_at == utc("2026-01-06T04:21:00Z")  # the newest are kept


@pytest.mark.parametrize("policy", ["skip", "fire_once", "fire_all"])
def test_b05_a_laptop_sleeps(policy: str) -> None:
    _, expected = given("B05")
    assert fires(play("B05", misfire=policy)) == expected["fires_by_misfire_policy"][policy]


@pytest.mark.parametrize("policy", ["skip", "fire_once", "fire_all"])
@pytest.mark.parametrize("number", ["B06", "B09", "B10", "B15", "B16"])
def test_timelines(number: str, policy: str) -> None:
    _, expected = given(number)
    assert fires(play(number, misfire=policy)) == expected["fires"]


def test_b02_pausing_leaves_no_debt() -> None:
    """However a schedule is paused, resuming makes its entry from now."""
    events, expected = given("B02")
    spec = spec_of(events["schedule"], now=utc(events["disable_utc"]))
    assert first_due(spec, key=KEY, after=utc(events["enable_utc"])) == (utc(expected["next_run_utc"]),) * 2


def test_b13_a_shorter_interval_counts_from_the_edit() -> None:
    events, expected = given("B13")
    edited_at = utc(events["events"][0]["at_utc"])
    spec = spec_from_api({"trigger": {"every_s": 10}}, now=edited_at)
    entry = first_due(spec, key=KEY, after=edited_at)
    assert entry is not None and edited_at < entry[1] <= utc(expected["first_fire_after_edit_by_utc"])


def test_b08_saving_one_schedule_fires_no_other() -> None:
    """Each has its own cursor: a save makes one anew from now, a reload none."""
    events, expected = given("B08")
    repeating, once = events["schedules"]
    start, at = utc("2026-01-05T07:00:00Z"), utc(once["at"])
    lines = {
        repeating["id"]: Timeline(spec_of(repeating, now=start), start),
        once["id"]: Timeline(spec_from_api({"trigger": {"at": once["at"]}}, now=start), start),
    }
    for line in lines.values():
        line.until(at)
    saved = lines[once["id"]]
    saved.until(at + timedelta(seconds=1))
    saved.edit(saved.spec)
    for line in lines.values():
        line.until(at + timedelta(seconds=3))
    assert {number: len(line.runs) for number, line in lines.items()} == expected["runs"]
    assert "reload never moves a schedule's cursor backwards" in expected["invariant"]


def test_b25_a_slot_between_two_passes_is_found_by_the_next_one() -> None:
    """No look-back: what is due waits in its entry for whoever comes next, however late."""
    events, expected = given("B25")
    start = utc("2026-01-05T10:00:00Z")
    slot = start + timedelta(seconds=events["slot_at_s"])
    line = Timeline(spec_from_api({"trigger": {"at": text(slot)}}, now=start), start)
    line.up = False  # the first node's next pass would be at 45 s, but it stops
    first_pass = events["node_offsets_s"][1]
    line.until(start + timedelta(seconds=first_pass + events["cadence_s"]))
    line.up = True
    line.until(line.now)
    assert [run.nominal_at for run in line.runs] == [slot] and expected["slot_fired"]
    assert (line.now - slot).total_seconds() > events["lookback_s"]


def test_b17_b18_instants_are_not_read_again_in_another_zone() -> None:
    events, expected = given("B17")
    spec = spec_of(events["schedule"], now=utc("2026-01-01T00:00:00Z"))
    assert next_after(spec, utc(events["restart_utc"])) == utc(expected["next_fire_utc"])
    events, expected = given("B18")
    spec = spec_of(events["schedule"], now=utc("2026-01-01T00:00:00Z"))
    assert next_after(spec, utc(events["cursor_utc"])) == utc(expected["next_run_utc"])


def test_b27_a_cursor_ahead_of_the_clock_is_found_and_made_anew() -> None:
    """The clock went back two hours: the entry waits for 17:01 while it is 15:01."""
    spec = Spec(Cron(("* * * * *",)))
    waiting, now = utc("2026-01-05T17:01:00Z"), utc("2026-01-05T15:01:10Z")
    assert cursor_is_ahead(spec, nominal_at=waiting, now=now)
    entry = first_due(spec, key=KEY, after=now)
    assert entry is not None and (entry[0] - now).total_seconds() <= 2 * 60
    # What a healthy entry looks like is left alone: the next one, and a few minutes of clock error.
    assert not cursor_is_ahead(spec, nominal_at=entry[0], now=now)
    assert not cursor_is_ahead(spec, nominal_at=now + timedelta(minutes=5), now=now)
    assert not cursor_is_ahead(Spec(Cron(("0 0 1 1 *",))), nominal_at=utc("2027-01-01T00:00:00Z"), now=now)
    # Until it is made anew, nothing fires.
    waits = decide(spec, key=KEY, nominal_at=waiting, due_at=waiting, now=now)
    assert not waits.fires and not waits.skips and waits.next_nominal == waiting


def test_b28_a_daily_schedule_owes_one_run_to_a_clock_a_day_ahead() -> None:
    """The node with the wrong clock owns no shard; and with this clock a schedule could fire once, never in bulk."""
    spec = Spec(Cron(("0 3 * * *",)))
    at = utc("2026-01-06T03:00:00Z")
    decision = decide(spec, key=KEY, nominal_at=at, due_at=at, now=utc("2026-01-06T10:00:00Z"))
    assert len(decision.fires) == 1 and decision.next_nominal == utc("2026-01-07T03:00:00Z")


@pytest.mark.parametrize(
    "trigger", [Cron(("* * * * *",)), Cron(("* * * * * *",)), Interval(1, utc("2020-01-01T00:00:00Z"))]
)
@pytest.mark.parametrize("misfire", ["skip", "fire_once", "fire_latest_n", "fire_all"])
def test_b29_a_clock_in_2200_runs_nothing(trigger: Cron | Interval, misfire: str) -> None:
    spec = Spec(trigger, misfire=misfire, misfire_max=1000)
    cursor, now = utc("2026-01-01T00:00:00Z"), utc("2200-01-01T00:00:00Z")
    tracemalloc.start()
    started = time.process_time()
    decision = decide(spec, key=KEY, nominal_at=cursor, due_at=cursor, now=now)
    took_s, (_, peak) = time.process_time() - started, tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert decision.alert == "clock_implausible" and not decision.fires and not decision.skips
    assert (decision.next_nominal, decision.next_due) == (cursor, cursor)  # the entry stays for a clock that is right
    assert took_s < 0.05 and peak < 50_000_000


def test_b35_jitter_stays_before_the_next_run() -> None:
    events, expected = given("B35")
    at = utc(events["schedule"]["at"])
    for shape, most in zip(events["cases"], expected["max_delay_s"], strict=True):
        if shape["following"] is None:
            trigger: dict[str, Any] = {"at": text(at)}
        else:
            trigger = {"every_s": int(shape["following"].strip("+s")), "anchor": text(at)}
        spec = spec_from_api({"trigger": trigger, "jitter_s": shape["jitter_s"]}, now=at)
        delays = {(actual_at(spec, f"key-{number}", at) - at).total_seconds() for number in range(500)}
        assert min(delays) == 0 and most - 1 <= max(delays) <= most


def test_b39_a_busy_second_is_no_misfire() -> None:
    events, expected = given("B39")
    spec = spec_of(
        events["schedule"], now=utc("2026-01-05T00:00:00Z"), misfire=events["misfire"], grace_s=events["grace_s"]
    )
    at = utc("2026-01-05T11:00:00Z")
    late = [at + timedelta(seconds=delay) for delay in events["tick_delay_s"]]
    assert [bool(decide(spec, key=KEY, nominal_at=at, due_at=at, now=now).fires) for now in late] == expected["fired"]
    assert Spec(Cron(("0 11 * * *",))).grace_s >= expected["default_grace_s_min"]


def test_b40_two_one_offs_at_one_instant_both_run() -> None:
    at = utc("2026-01-05T10:00:00Z")
    for key in ("x", "y"):
        spec = spec_from_api({"trigger": {"at": text(at)}}, now=at - timedelta(hours=1))
        decision = decide(spec, key=key, nominal_at=at, due_at=at, now=at)
        assert len(decision.fires) == 1 and decision.next_nominal is None and decision.next_due is None


def test_b42_a_skipped_overlap_moves_on() -> None:
    events, expected = given("B42")
    start = utc(events["schedule"]["anchor"])
    spec = spec_from_api({"trigger": {"every_s": 60}, "start_at": text(start), "overlap": "skip"}, now=start)
    line = Timeline(spec, start, run_takes=timedelta(seconds=events["run_duration_s"]))
    line.until(utc(events["until_utc"]))
    assert [text(run.nominal_at) for run in line.runs] == expected["started_nominal"]
    skips = [skip for decision in line.decisions for skip in decision.skips]
    assert [text(skip.nominal_at) for skip in skips] == expected["skipped_nominal"]
    assert all(skip == Skip(skip.nominal_at, skip.nominal_at, 1, "overlap_skipped") for skip in skips)


def test_b43_queued_runs_count_as_alive() -> None:
    events, expected = given("B43")
    start = utc("2026-01-05T10:00:30Z")
    spec = spec_from_api({"trigger": {"every_s": 60}, "overlap": "skip"}, now=start)
    line = Timeline(spec, start, run_takes=None)
    line.until(start + timedelta(minutes=events["minutes"]))
    assert (len(line.runs), line.skipped()) == (expected["pending_runs"], expected["skipped"])


def test_b44_contradictory_policies_are_refused() -> None:
    events, _ = given("B44")
    with pytest.raises(TimingInvalid, match="use misfire 'fire_once'"):
        spec_from_api(
            {"trigger": {"cron": "* * * * *"}, "overlap": events["overlap"], "misfire": events["misfire"]},
            now=utc("2026-01-05T00:00:00Z"),
        )


@pytest.mark.parametrize("misfire", ["skip", "fire_once", "fire_all"])
def test_b46_resuming_makes_no_extra_run(misfire: str) -> None:
    events, expected = given("B46")
    paused, resumed = map(utc, events["paused_utc"])
    spec = spec_of(events["schedule"], now=utc("2026-01-01T00:00:00Z"), misfire=misfire)
    line = Timeline(spec, utc("2026-01-01T00:00:00Z"))
    line.until(paused)
    before = len(line.runs)
    line.entry, line.now = None, resumed
    line.edit(replace(spec))
    line.until(utc(events["until_utc"]))
    assert [text(run.nominal_at) for run in line.runs[before:]] == expected["fires_after_unpause"]
