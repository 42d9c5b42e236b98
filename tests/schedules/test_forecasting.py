"""The forecast of an entry is what fire makes of it: each run that `policy.decide` fires, in its minute or hour."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple
from uuid import UUID

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from apps.schedules.forecasting import HOURS, MINUTES, NEAR_HOURS, Expander
from apps.schedules.policy import decide, first_due
from apps.schedules.timing import Spec, spec_from_api, spec_to_json
from tests.schedules.test_timing_any import legal, schedules

FIRED_MAX = 1_500
START = datetime(2027, 3, 23, 6, tzinfo=UTC)  # the week in which Europe's clocks go forward


class Entry(NamedTuple):
    key: UUID
    kind: str
    spec: str
    nominal_at: datetime
    due_at: datetime
    runs_done: int | None = None


def entry_of(spec: Spec, key: UUID, after: datetime) -> Entry | None:
    """As a schedule that is made, edited or resumed at an instant has it."""
    first = first_due(spec, key=str(key), after=after)
    return None if first is None else Entry(key, "schedule", spec_to_json(spec), *first)


def fired(spec: Spec, entry: Entry, expander: Expander) -> tuple[Counter[int], int]:
    """What becomes of an entry that is fired at each instant at which it is due, by bin; and up to which bin."""
    nominal, due, done = entry.nominal_at, entry.due_at, entry.runs_done
    found: Counter[int] = Counter()
    for _ in range(FIRED_MAX):
        if due >= expander.until:
            break
        decision = decide(spec, key=str(entry.key), nominal_at=nominal, due_at=due, now=due, done=done)
        for one in decision.fires:
            if (index := expander.bin_of(one.actual_at)) is not None:
                found[index] += 1
        if decision.next_nominal is None or decision.next_due is None:
            return found, 2**31
        nominal, due, done = decision.next_nominal, decision.next_due, decision.done
    if due < expander.starts_at:
        return found, 0
    last = expander.bin_of(due)
    return found, 2**31 if last is None else last


def assert_forecast(spec: Spec, *, key: UUID, now: datetime, after: datetime, done: int | None = None) -> None:
    """The bins that begin later than `now`, as far as fire was driven."""
    expander = Expander(now.replace(minute=0, second=0, microsecond=0), now)
    entry = entry_of(spec, key, after)
    if entry is None:
        return
    entry = entry._replace(runs_done=done)
    expected: Counter[int] = Counter()
    for index, count in expander.runs(entry):
        expected[index] += count
    really, until = fired(spec, entry, expander)
    first = expander.bin_of(now)
    assert first is not None
    assert {at: n for at, n in expected.items() if first < at < until} == {
        at: n for at, n in really.items() if first < at < until
    }


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much])
@given(
    given_=schedules(), start=st.integers(0, 4 * 365 * 86_400), jitter=st.sampled_from([None, 0, 1, 45, 7_200]),
    key=st.uuids(), later=st.sampled_from([-90_000, -61, 0, 1, 86_399, 300_000]),
    runs=st.none() | st.integers(1, 400),
)  # fmt: skip
def test_any_schedule_runs_when_the_forecast_says(
    given_: Any, start: int, jitter: int | None, key: UUID, later: int, runs: int | None
) -> None:
    now = datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=start)
    spec = legal(given_)
    if jitter is not None:
        spec = replace(spec, jitter_s=jitter)
    if runs is not None:
        spec = replace(spec, max_runs=runs, runs_from=now, runs_used=0)
    assert_forecast(spec, key=key, now=now, after=now + timedelta(seconds=later))


SPECS: list[dict[str, Any]] = [
    {"trigger": {"cron": "* * * * *"}}, {"trigger": {"cron": "*/10 * * * * *"}}, {"trigger": {"every_s": 7}},
    {"trigger": {"cron": "*/5 * * * * *"}, "jitter_s": 30}, {"trigger": {"every_s": 20}, "jitter_s": 15},
    {"trigger": {"cron": "59 * * * *"}, "jitter_s": 120}, {"trigger": {"cron": "0 0 * * *"}, "jitter_s": 86_400},
    {"trigger": {"cron": "30 2 * * *"}, "timezone": "Europe/Berlin"},
    {"trigger": {"cron": "30 2 * * *"}, "timezone": "Europe/Berlin", "dst_gap": "skip", "jitter_s": 3_600},
    {"trigger": {"cron": "*/5 * * * *"}, "windows": [{"from": "08:00", "to": "18:00"}], "jitter_s": 400},
    {"trigger": {"every_s": 90}, "max_runs": 500, "jitter_s": 80}, {"trigger": {"every_s": 30}, "max_runs": 6_000},
    {"trigger": {"at": "2027-03-25T12:00:00Z"}, "jitter_s": 600},
    {"trigger": {"cron": "*/3 * * * *"}, "end_at": "2027-03-24T17:31:00Z", "jitter_s": 170},
    {"trigger": {"rrule": "FREQ=MINUTELY;INTERVAL=3;BYHOUR=2,3"}, "timezone": "Europe/Berlin"},
]  # fmt: skip


@pytest.mark.parametrize("data", SPECS, ids=str)
def test_frequent_ones_jitter_and_clock_changes(data: dict[str, Any]) -> None:
    now = START + timedelta(minutes=17, seconds=3)
    spec = spec_from_api(data, now=now, key="key")
    for key in (UUID(int=1), UUID(int=2**90)):
        assert_forecast(spec, key=key, now=now, after=now)
        assert_forecast(spec, key=key, now=now, after=now + timedelta(hours=31))


def test_what_is_alike_is_expanded_once_and_bins_fit_together() -> None:
    expander = Expander(START, START)
    specs = [
        spec_from_api({"trigger": {"every_s": 300, "anchor": anchor}}, now=START)
        for anchor in ("2027-01-01T00:01:00Z", "2026-12-31T23:56:00Z")
    ]
    entries = [entry_of(spec, UUID(int=number), START) for number, spec in enumerate(specs)]
    first, second = (expander.pattern(entry) for entry in entries if entry is not None)
    assert first is second
    assert sum(count for _, count in first.bins) == HOURS * 12
    runs = dict(first.bins)
    assert (runs.get(1), runs.get(2), runs[MINUTES + 143]) == (1, None, 12)
    delayed = Entry(UUID(int=1), "execution", "run", START, START + timedelta(hours=NEAR_HOURS + 3))
    assert list(expander.runs(delayed)) == [(MINUTES + 3, 1)]
    assert list(expander.runs(delayed._replace(kind="schedule", spec="no text"))) == []  # fire parks it
