"""Admission: one ordered list of rules over values; each names what it holds back, and when that is over."""

from __future__ import annotations

import math
from dataclasses import fields, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apps.dispatch.admission import ADMISSION, CODES, Facts, Rate, checks, most, refusal, rooms

NOW = datetime(2025, 1, 6, 10, 0, tzinfo=UTC)
SECOND = timedelta(seconds=1)
HELD: dict[str, dict[str, Any]] = {
    "tenant_inactive": {"tenant_active": False},
    "platform_paused": {"platform_paused": True},
    "dispatch_paused": {"dispatch_paused": True},
    "pool_paused": {"pool_paused": True},
    "schedule_paused": {"schedule_paused": True},
    "job_paused": {"job_limit": 0},
    "queue_paused": {"queue_paused": True},
    "not_yet_due": {"available_at": NOW + SECOND},
    "expired": {"start_by": NOW - SECOND},
    "workflow_blocked": {"blocked_by": 2},
    "overlap": {"overlap_busy": True},
    "job_concurrency": {"job_limit": 3, "job_use": 3},
    "tenant_concurrency": {"max_running": 5, "tenant_use": 7},
    "pool_maximum": {"max_slots": 4, "pool_use": 4},
    "concurrency_key": {"flow_limit": 1, "key_use": 1},
    "tenant_rate": {"tenant_rate": Rate(0.5, 10, 0.25)},
    "job_rate": {"job_rate": Rate(2.0, 10, 0.5)},
    "daily_quota": {"max_runs_per_day": 100, "runs_today": 100},
    "breaker_open": {"breaker_open": True, "breaker_until": NOW + SECOND},
    "no_workers": {"pool_slots": 0},
    "pool_full": {"pool_slots": 8, "queue_room": 0},
    "fair_share": {"fair": 0},
}
counts = st.integers(0, 20)
limits = st.none() | st.integers(0, 20)
rates = st.none() | st.builds(Rate, st.floats(0.01, 100), st.integers(1, 50), st.floats(-3, 50))
instants = st.none() | st.integers(-100, 100).map(lambda s: NOW + s * SECOND)
facts_strategy = st.builds(
    Facts, now=st.just(NOW), tenant_active=st.booleans(), dispatch_paused=st.booleans(), job_limit=limits,
    available_at=instants, start_by=instants, overlap_busy=st.booleans(), job_use=counts, tenant_use=counts,
    max_running=limits, pool_use=counts, max_slots=limits, key_use=counts, flow_limit=limits, tenant_rate=rates,
    job_rate=rates, runs_today=counts, max_runs_per_day=limits, breaker_open=st.booleans(), pool_slots=limits,
    queue_room=st.none() | st.integers(-5, 20), fair=limits, run_s=st.none() | st.floats(0.01, 1_000),
)  # fmt: skip


def test_who_has_no_limit_is_not_held_back() -> None:
    assert refusal(Facts(now=NOW)) is None
    assert most(Facts(now=NOW)) == math.inf


def test_every_rule_has_a_case_and_the_order_is_told() -> None:
    assert list(HELD) == list(CODES) and len(set(CODES)) == len(ADMISSION) == 22


@pytest.mark.parametrize("code", HELD)
def test_each_rule_names_itself_and_the_first_of_several_is_named(code: str) -> None:
    found = refusal(Facts(now=NOW, **HELD[code]))
    assert found is not None and found.code == code
    later = {name: value for after in CODES[CODES.index(code) :] for name, value in HELD[after].items()}
    both = refusal(Facts(now=NOW, **(later | HELD[code])))
    assert both is not None and both.code == code


def test_when_it_is_over_is_estimated() -> None:
    cleared = {
        "not_yet_due": SECOND, "tenant_rate": 1.5 * SECOND, "job_rate": 0.25 * SECOND, "breaker_open": SECOND,
        "job_concurrency": 4 * SECOND, "daily_quota": timedelta(hours=14), "pool_full": 1.5 * SECOND,
    }  # fmt: skip
    for code, wait in cleared.items():
        found = refusal(Facts(now=NOW, run_s=12.0, **HELD[code]))
        assert found is not None and found.clears_at == NOW + wait, code


@given(facts_strategy)
def test_what_may_go_is_the_least_that_any_rule_says(facts: Facts) -> None:
    said = [room.most for _, room in checks(facts)]
    assert most(facts) == max(0, min(said)) == max(0, min(rooms(facts).values()))
    assert (refusal(facts) is None) == (most(facts) >= 1)
    assert most(facts) == math.inf or most(facts) == int(most(facts)), "whole runs"


@given(facts_strategy, st.sampled_from(["job_use", "tenant_use", "pool_use", "key_use", "runs_today"]))
def test_more_use_never_lets_more_go(facts: Facts, name: str) -> None:
    assert name in {field.name for field in fields(Facts)}
    assert most(replace(facts, **{name: getattr(facts, name) + 1})) <= most(facts)
