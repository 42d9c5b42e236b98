"""Pieces of work that lose a deadlock, or find that the world has moved, are done again."""

from __future__ import annotations

import threading
from typing import Any

import psycopg
import pytest

from tests.api.makers import Makers
from tests.fixtures_api import in_parallel


def test_a_deadlock_costs_a_second_try(make: Makers, acme: Any) -> None:
    from apps.schedules.models import Job
    from tenants.work import in_tenant

    first, second = make.job()["id"], make.job()["id"]
    both_hold_one = threading.Barrier(2, timeout=20)
    through = [threading.Event(), threading.Event()]
    tries = [0, 0]

    def work(number: int) -> str:
        order = [first, second] if number else [second, first]

        def piece() -> str:
            tries[number] += 1
            if tries[number] > 1:  # else it may be in time to make the other one lose, too
                through[1 - number].wait(20)
            for turn, job in enumerate(order):
                Job.objects.select_for_update().filter(pk=job).get()
                if turn == 0 and sum(tries) <= 2:
                    both_hold_one.wait()
            return "done"

        told = in_tenant(acme, piece)
        through[number].set()
        return told

    assert in_parallel(2, work) == ["done", "done"]
    assert sorted(tries) == [1, 2]


def test_again_starts_anew_and_ends_somewhen(acme: Any) -> None:
    from kernel.errors import Conflict
    from tenants.work import TRIES, Again, in_tenant

    count = 0

    def twice() -> int:
        nonlocal count
        count += 1
        if count < 2:
            raise Again
        return count

    def never() -> int:
        nonlocal count
        count += 1
        raise Again

    assert in_tenant(acme, twice) == 2
    count = 0
    with pytest.raises(Conflict) as caught:
        in_tenant(acme, never)
    assert (count, caught.value.extra["code"]) == (TRIES, "busy")


@pytest.mark.parametrize("error", [ValueError, psycopg.errors.UniqueViolation, psycopg.OperationalError])
def test_other_errors_are_passed_on_at_once(acme: Any, error: type[Exception]) -> None:
    from tenants.work import in_tenant

    count = 0

    def work() -> None:
        nonlocal count
        count += 1
        raise error("no")

    with pytest.raises(error):
        in_tenant(acme, work)
    assert count == 1


def test_inside_a_transaction_only_its_owner_tries_again(acme: Any) -> None:
    from django.db import transaction

    from tenants.work import in_tenant

    count = 0

    def work() -> None:
        nonlocal count
        count += 1
        raise psycopg.errors.DeadlockDetected

    with pytest.raises(psycopg.errors.DeadlockDetected), transaction.atomic():
        in_tenant(acme, work)
    assert count == 1
