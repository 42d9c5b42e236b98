"""Any schedule that can be written: its views agree, and no question about it costs much (in lines of Python)."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Any, TypeVar

import pytest
from hypothesis import HealthCheck, Phase, given, note, reject, settings
from hypothesis import strategies as st

from apps.schedules.timing import (
    LOOK_AGAIN_US,
    Spec,
    TimingInvalid,
    actual_at,
    count_between,
    next_after,
    occurrences,
    previous_before,
)
from apps.schedules.timing_preview import left_out, preview, preview_previous
from apps.schedules.timing_zones import EPOCH, zone_names
from kernel.errors import InvalidInput
from tests.schedules.cases import text, utc
from tests.schedules.steps import counted
from tests.schedules.test_timing_bounds import LINES_MAX, MONTH_OUT, RULES, WEEKDAYS, looked, made
from tests.schedules.walk import jobs

T = TypeVar("T")
NAMES = sorted(zone_names())
TICK = timedelta(microseconds=1)
INSTANTS = st.integers(0, 4_102_444_800).map(lambda second: EPOCH + timedelta(seconds=second))
SPECIAL = st.sampled_from([
    "0 9 L * *", "0 9 LW * *", "0 9 L-3 * *", "30 2 15W * *", "0 9 * * 1#2", "0 9 * * FRIL", "H H * * *",
    "H/15 H(9-17) * * *",
    "0 0 29 2 *", "0 0 29 2 */7", "0 0 0 29 2 * 2096-2199", "*/7 * * * * *", "@monthly", "@every 90s", "0 0 ? * MON#5",
])  # fmt: skip
DATES = st.dates(datetime(2026, 1, 1).date(), datetime(2030, 1, 1).date()).map(str)  # noqa: DTZ001  a plain date
WINDOWS = st.lists(
    st.tuples(
        st.integers(0, 1_439), st.integers(0, 1_439), st.lists(st.sampled_from(WEEKDAYS), min_size=1, unique=True)
    ),
    min_size=1, max_size=4,
).map(lambda each: [
    {"from": f"{low // 60:02}:{low % 60:02}", "to": f"{high // 60:02}:{high % 60:02}", "days": days}
    for low, high, days in each if low != high
])  # fmt: skip


@st.composite
def rules(draw: st.DrawFn) -> dict[str, Any]:
    freq = draw(st.sampled_from(["YEARLY", "MONTHLY", "WEEKLY", "DAILY", "HOURLY", "MINUTELY", "SECONDLY"]))
    parts = [f"FREQ={freq}", f"INTERVAL={draw(st.integers(1, 400))}"]
    if draw(st.booleans()):
        parts.append(f"BYMONTH={draw(st.integers(1, 12))},{draw(st.integers(1, 12))}")
    if draw(st.booleans()):
        parts.append(f"BYDAY={','.join(draw(st.lists(st.sampled_from(['MO', 'TU', 'SU']), min_size=1, unique=True)))}")
    if draw(st.booleans()) and freq != "WEEKLY":
        parts.append(f"BYMONTHDAY={draw(st.integers(1, 31))},-1")
    if draw(st.booleans()):
        parts.append(f"BYHOUR={draw(st.integers(0, 23))},{draw(st.integers(0, 23))}")
    if draw(st.booleans()):
        parts.append(f"COUNT={draw(st.integers(1, 5_000))}")
    dates = draw(st.lists(DATES, max_size=5)), draw(st.lists(DATES, max_size=5))
    return {"rrule": ";".join(parts), "dtstart": "1999-05-31T02:30:00", "exdate": dates[0], "rdate": dates[1]}


@st.composite
def schedules(draw: st.DrawFn) -> tuple[dict[str, Any], dict[str, Any] | None]:
    """Every kind of trigger with everything that narrows or moves it, in any zone."""
    crons = st.one_of(SPECIAL, jobs().map(lambda job: job.text))
    trigger = draw(st.one_of(
        crons.map(lambda text: {"cron": text}),
        st.lists(crons.filter(lambda text: "@" not in text), min_size=2, max_size=5).map(lambda each: {"cron": each}),
        st.integers(1, 10_000_000).map(lambda every: {"every_s": every, "anchor": "2020-02-29T23:59:59Z"}),
        st.tuples(st.sampled_from(["days", "weeks", "months", "years"]), st.integers(1, 9)).map(
            lambda each: {"every": {each[0]: each[1]}, "anchor": "2020-02-29T02:30"}
        ),
        rules(),
    ))  # fmt: skip
    data: dict[str, Any] = {"trigger": trigger, "timezone": draw(st.sampled_from(NAMES))}
    data |= {
        "dst_gap": draw(st.sampled_from(["run_after", "skip"])),
        "jitter_s": draw(st.sampled_from([0, 0, 90, 86_400])),
    }
    data["dst_fold"] = draw(st.sampled_from(["first", "last", "both"]))
    days = None
    if draw(st.booleans()) and (windows := draw(WINDOWS)):
        data |= {"windows": windows, "outside": draw(st.sampled_from(["skip", "next_opening"]))}
    if draw(st.booleans()):
        days = {
            "dates": draw(st.lists(DATES, max_size=10)),
            "weekdays": draw(st.lists(st.sampled_from(WEEKDAYS[4:]), max_size=2)) or None,
            "rrules": draw(st.lists(st.sampled_from([*RULES, MONTH_OUT]), max_size=5, unique=True)),
        }  # fmt: skip
        data["on_excluded"] = draw(st.sampled_from(["skip", "next_business_day", "previous_business_day"]))
    return data, days


def agree(spec: Spec, at: datetime, count: int) -> None:
    """Previous inverts next; a range is the filtered next; the preview is what would fire; nothing is twice or lost."""
    following = few_lines(lambda: looked(spec.calendar().next_after, at))
    earlier = few_lines(lambda: looked(spec.calendar().previous_before, at))
    assert following is None or following > at
    assert earlier is None or earlier < at
    found = list(occurrences(spec, after=at, limit=count))
    if not found and following is not None:  # the search has ended there, and says so
        assert next_after(spec, at) == following.replace(microsecond=LOOK_AGAIN_US)
    assert not found or found[0] == following
    assert all(one < other for one, other in pairwise(found))
    for one, other in pairwise(found):
        assert previous_before(spec, other) == one and next_after(spec, one) == other
        assert next_after(spec, other - TICK) == other
    if not found:
        return
    last = found[-1]
    shown = preview(spec, after=at, count=count, key="k")
    assert [each.nominal_at for each in shown] == found
    assert [each.at for each in shown] == [actual_at(spec, "k", each) for each in found]
    assert all(("jittered" in each.flags) == (each.at != each.nominal_at) for each in shown)
    assert preview(spec, after=at, until=last, count=10_000, key="k") == shown
    assert preview_previous(spec, before=last + TICK, count=len(found), key="k") == shown
    assert not {each.nominal_at for each in left_out(spec, after=at, until=last)} & set(found)
    assert count_between(spec, after=at, until=last) == len(found)


def few_lines(work: Callable[[], T]) -> T:
    result, lines = counted(work)
    assert lines <= LINES_MAX, f"{lines} lines"
    return result


def legal(given_: tuple[dict[str, Any], dict[str, Any] | None]) -> Spec:
    """What is refused, such as what never runs, is no example."""
    try:
        return made(*given_)
    except (TimingInvalid, InvalidInput):
        reject()


UNSHRUNK = [Phase.explicit, Phase.reuse, Phase.generate]  # a slow example takes an hour to shrink, and says no more
HEALTHY = [HealthCheck.too_slow, HealthCheck.filter_too_much]


@settings(max_examples=100, derandomize=True, database=None, suppress_health_check=HEALTHY)
@given(schedules(), INSTANTS, st.integers(1, 12))
def test_a_hundred_schedules_of_every_kind_agree_with_themselves(
    given_: tuple[dict[str, Any], dict[str, Any] | None], at: datetime, count: int
) -> None:
    agree(legal(given_), at, count)


@pytest.mark.long
@pytest.mark.timeout(900)
@settings(max_examples=1_000, suppress_health_check=HEALTHY, phases=UNSHRUNK, print_blob=True)
@given(schedules(), INSTANTS, st.integers(1, 12))
def test_any_legal_schedule_is_cheap_and_its_views_agree(
    given_: tuple[dict[str, Any], dict[str, Any] | None], at: datetime, count: int
) -> None:
    """Work is bounded in lines only: a bound on time wavers with the machine, and hypothesis then looks for ever."""
    note(f"{given_!r} at {at} {count} times")
    agree(legal(given_), at, count)


def test_a_window_past_midnight_does_not_open_an_excluded_day() -> None:
    """Days come first: Saturday's window goes on into Sunday, but nothing runs on a Sunday."""
    spec = made(
        {"trigger": {"cron": "30 2,22 * * *"}, "windows": [{"from": "21:00", "to": "11:00", "days": ["fri", "sat"]}]},
        {"weekdays": ["sun"]},
    )
    after, until = utc("2026-01-09T00:00:00Z"), utc("2026-01-12T00:00:00Z")
    shown = [text(each.at)[5:16] for each in preview(spec, after=after, until=until, count=9)]
    assert shown == ["01-09T22:30", "01-10T02:30", "01-10T22:30"]
    gone = left_out(spec, after=after, until=until)
    assert ("01-11T02:30", ["excluded"]) in [(text(each.at)[5:16], each.flags) for each in gone]


def test_an_rdate_beside_a_rule_that_is_too_rare_is_refused_and_no_error() -> None:
    """A search that ends in vain past an instant says that the rule does not run there."""
    rule = {"rrule": "FREQ=SECONDLY;INTERVAL=86401;BYHOUR=1", "dtstart": "2025-01-01T02:30:00"}
    with pytest.raises(TimingInvalid, match="what is that rare is refused"):
        made({"trigger": {**rule, "rdate": ["2026-02-01T02:30:00Z"]}}, None)
