"""Scopes narrow a role, and nobody grants what they lack. The table alone, without a database."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from apps.audit.services import Actor
from tenants.permissions import KEY_ROLES, LEAST_ROLE, actions_of, known_scopes, may, may_grant, role_reaches

SCOPES = st.none() | st.frozensets(st.sampled_from(known_scopes()), max_size=6)
ROLE = st.sampled_from(KEY_ROLES)


def actor(role: str, *scopes: str) -> Actor:
    return Actor("x", role, 1, scopes=frozenset(scopes))


def test_no_scopes_are_the_whole_role() -> None:
    assert may(Actor("x", "admin", 1), "apikey.create")
    assert not may(Actor("x", "viewer", 1), "job.create")


def test_each_form_of_scope() -> None:
    assert may(actor("admin", "schedule.read"), "schedule.read")
    assert not may(actor("admin", "schedule.read"), "schedule.update")
    assert may(actor("admin", "schedule.*"), "schedule.update") and not may(actor("admin", "schedule.*"), "job.read")
    assert may(actor("admin", "*.read"), "job.read") and not may(actor("admin", "*.read"), "job.update")


def test_a_scope_lifts_no_role() -> None:
    assert not may(actor("viewer", "job.*", "*.create"), "job.create")
    assert not may(actor("worker", "*.read"), "job.read")


def test_what_looks_like_a_scope_is_none() -> None:
    for scope in ("*", "*.*", "**", "schedule", ".read", "schedule.", "", "SCHEDULE.READ", "schedule.read "):
        assert not any(may(actor("admin", scope), action) for action in LEAST_ROLE), scope
        assert scope not in known_scopes()


def test_empty_scopes_are_nothing() -> None:
    assert not any(may(actor("admin"), action) for action in LEAST_ROLE)


@given(ROLE, SCOPES, ROLE, SCOPES)
def test_who_grants_has_it(
    role: str, scopes: frozenset[str] | None, granted: str, within: frozenset[str] | None
) -> None:
    granter = Actor("x", role, 1, scopes=scopes)
    if may_grant(granter, role=granted, scopes=within):
        assert all(may(granter, action) for action in actions_of(role=granted, scopes=within))


@given(ROLE, SCOPES)
def test_scopes_only_take_away(role: str, scopes: frozenset[str] | None) -> None:
    assert all(role_reaches(role, action) for action in actions_of(role=role, scopes=scopes))


def test_a_narrow_granter_gives_no_open_role() -> None:
    granter = actor("admin", *known_scopes())
    assert may_grant(granter, role="viewer", scopes=["*.read"])
    assert not may_grant(granter, role="viewer", scopes=None), "later versions add actions"
