"""Identifiers: ordered, well-formed, and the same for everybody who computes them."""

from __future__ import annotations

import threading
import time
import uuid
from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernel.ids import attempt_id, ids_beside, made_at, occurrence_run_key, shard_of, uuid7, uuid7s

EXECUTION = UUID("0190a000-0000-7abc-8def-0123456789ab")
PINNED_ATTEMPT = "0190a000-0000-7454-a50f-ae355a919d84"
PINNED_SHARDS = [21, 3, 57, 47, 12, 26, 32, 54]
PINNED_SHARD, PINNED_SHARD_OF_7 = 30, 2


@given(st.integers(1, 500))
def test_ids_are_version_7_unique_and_ascending_within_a_call(count: int) -> None:
    before = time.time_ns() // 1_000_000
    made = uuid7s(count)
    after = time.time_ns() // 1_000_000
    assert len(set(made)) == count
    assert made == sorted(made)
    for one in made:
        assert (one.version, one.variant) == (7, uuid.RFC_4122)
        assert before <= one.int >> 80 <= after
        assert made_at(one) == datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=one.int >> 80)


def test_no_ids_are_no_ids() -> None:
    assert uuid7s(0) == []


def test_later_milliseconds_sort_later(monkeypatch: pytest.MonkeyPatch) -> None:
    made = []
    for millis in range(1_700_000_000_000, 1_700_000_000_200, 7):
        monkeypatch.setattr(time, "time_ns", lambda millis=millis: millis * 1_000_000)
        made.append(uuid7())
    assert made == sorted(made)


def test_threads_make_no_id_twice() -> None:
    made: list[list[UUID]] = [[] for _ in range(8)]
    barrier = threading.Barrier(8)

    def make(number: int) -> None:
        barrier.wait()
        made[number] = [uuid7() for _ in range(500)]

    threads = [threading.Thread(target=make, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({one for some in made for one in some}) == 4_000


@given(st.uuids() | st.just(UUID(int=2**128 - 1)), st.integers(1, 10_000))
def test_an_attempts_id_follows_from_its_execution_and_number(execution: UUID, number: int) -> None:
    found = attempt_id(execution, number)
    assert found == attempt_id(execution, number)
    assert (found.version, found.variant) == (7, uuid.RFC_4122)
    assert found.int >> 80 == execution.int >> 80, "it sorts with its execution"
    first, last = ids_beside(execution)
    assert first <= min(found, execution) and max(found, execution) <= last
    assert (first.int >> 80, last.int >> 80) == (execution.int >> 80,) * 2
    assert found != attempt_id(execution, number + 1)


def test_attempts_of_many_executions_do_not_collide() -> None:
    executions = uuid7s(2_000)
    found = {attempt_id(execution, number) for execution in executions for number in range(1, 11)}
    assert len(found) == 20_000
    assert not found & set(executions)


def test_ids_that_are_stored_never_change() -> None:
    """Written down once: rows in databases depend on them."""
    assert str(attempt_id(EXECUTION, 1)) == PINNED_ATTEMPT
    assert occurrence_run_key(EXECUTION, datetime(2026, 3, 29, 1, 30, tzinfo=UTC)) == (
        "0190a00000007abc8def0123456789ab.20260329T013000Z"
    )
    assert [shard_of(UUID(int=number), 64) for number in range(8)] == PINNED_SHARDS
    assert shard_of(EXECUTION, 64) == PINNED_SHARD and shard_of(EXECUTION, 7) == PINNED_SHARD_OF_7


@given(st.uuids(), st.integers(1, 1_024))
def test_a_shard_is_one_of_the_shards(key: UUID, shards: int) -> None:
    assert 0 <= shard_of(key, shards) < shards


def test_shards_are_about_equally_full() -> None:
    counts = [0] * 64
    for key in uuid7s(32_000):
        counts[shard_of(key, 64)] += 1
    assert min(counts) > 350 and max(counts) < 650


def test_a_run_key_tells_schedules_and_seconds_apart() -> None:
    at = datetime(2026, 1, 5, 10, 0, tzinfo=UTC)
    keys = {occurrence_run_key(one, at + timedelta(seconds=n)) for one in uuid7s(20) for n in range(20)}
    assert len(keys) == 400
    assert all(len(key) <= 100 for key in keys)
