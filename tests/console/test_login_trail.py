"""Who came to the admin or tried is in the operators' trail; and ways past the guard."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.portal.conftest import forgetful

__all__ = ["forgetful"]
LOGIN, RIGHT = "/admin/login/", "not a word"


def login(password: str, *, address: str = "192.0.2.1", username: str = "ada", path: str = LOGIN) -> Any:
    from django.test import Client

    client = Client(REMOTE_ADDR=address)
    return client.post(path, {"username": username, "password": password})


def rows(conn: Any) -> list[Any]:
    found = conn.execute(
        "SELECT subject, action, allowed, tenant_id FROM audit_auditevent WHERE action LIKE 'session.%' ORDER BY id"
    )
    return list(found.fetchall())


@pytest.fixture(autouse=True)
def few(settings: Any) -> Iterator[None]:
    settings.FAILED_LOGINS = 3
    yield


def test_after_too_many_guesses_not_even_the_right_one(operator: Any, conn: Any) -> None:
    for _ in range(3):
        assert login("wrong").status_code == 200
    for username in ("ada", "ADA"):
        late = login(RIGHT, username=username, address="192.0.2.9")
        assert late.status_code == 200 and b"Too many attempts" in late.content
    assert rows(conn) == [(f"user:{operator.pk}", "session.refuse", False, None)] * 3


def test_guesses_lock_nobody_out_of_their_own_network(operator: Any, conn: Any) -> None:
    assert login(RIGHT).status_code == 302
    for _ in range(4):
        login("wrong", address="198.51.100.7")
    assert b"Too many" in login(RIGHT, address="198.51.100.8").content
    assert login(RIGHT).status_code == 302
    assert rows(conn)[0] == (f"user:{operator.pk}", "session.begin", True, None)


def test_many_accounts_from_one_address(operator: Any, conn: Any) -> None:
    for number in range(15):
        login("wrong", username=f"somebody-{number}")
    assert b"Too many" in login(RIGHT).content
    assert rows(conn) == [], "strangers and names that there are not leave no rows"


def test_the_login_of_a_tenants_pages_counts_as_well(operator: Any, acme: Any) -> None:
    from django.contrib.auth.models import User
    from django.test import Client

    low = Client(REMOTE_ADDR="192.0.2.1")
    low.force_login(User.objects.create_user("bob", password="x", is_staff=True))
    for _ in range(3):
        low.post("/t/acme/admin/login/", {"username": "ada", "password": "wrong"})
    assert b"Too many" in low.post("/t/acme/admin/login/", {"username": "ada", "password": RIGHT}).content


def test_an_empty_password_makes_no_network_known(operator: Any) -> None:
    """Django's form looks at no password then, and has nothing against it: that is no sign-in."""
    for number in range(3):
        login("", address="198.51.100.7")
        login(f"guess {number}", address="198.51.100.7")
    login("", address="198.51.100.7")
    assert b"Too many" in login(RIGHT, address="198.51.100.7").content
