"""Operators sign in; guessing their passwords is slowed, and tells nothing."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from django.test import Client

from tenants import guard
from tenants.rates import rates
from tests.fixtures_flow import at_once

PASSWORD = "not a word"


@pytest.fixture
def limit(settings: Any) -> Iterator[int]:
    settings.FAILED_LOGINS = 3
    rates().forget_all()
    yield 3
    rates().forget_all()
    guard.forget_all()


def try_it(name: str, password: str, address: str = "192.0.2.7") -> bytes:
    answer = Client(REMOTE_ADDR=address).post(
        "/admin/login/", {"username": name, "password": password, "next": "/admin/"}
    )
    return b"in" if answer.status_code == 302 else answer.content


def test_who_knows_the_password_comes_in(operator: Any, limit: int) -> None:
    assert try_it("ada", PASSWORD) == b"in"
    assert b"Please enter the correct" in try_it("ada", "wrong")


@pytest.mark.parametrize("name", ["ada", "nobody"])
def test_guessing_is_slowed_whether_or_not_there_is_somebody(operator: Any, limit: int, name: str) -> None:
    for number in range(limit):
        assert b"Too many attempts" not in try_it(name, f"guess {number}", f"192.0.2.{number}")
    assert b"Too many attempts" in try_it(name, PASSWORD, "192.0.2.99"), "not even the right one is looked at"


def test_who_was_here_before_is_not_locked_out_by_others(operator: Any, limit: int) -> None:
    assert try_it("ada", PASSWORD, "198.51.100.1") == b"in"
    for number in range(limit + 1):
        try_it("ada", "guess", f"192.0.2.{number}")
    assert try_it("ada", PASSWORD, "198.51.100.1") == b"in"


def test_many_at_once_do_not_slip_past(operator: Any, limit: int) -> None:
    answers = at_once(*[lambda: try_it("ada", "guess") for _ in range(8)])
    assert sum(b"Too many attempts" not in answer for answer in answers) == limit
