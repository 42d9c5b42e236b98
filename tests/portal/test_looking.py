"""The facts of the overview: what comes next, what is overdue, what is put aside."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

from tests.api.makers import utc_now
from tests.portal.stock import stock

if TYPE_CHECKING:
    from tenants.models import Tenant


def test_what_is_ahead_overdue_and_put_aside(acme: Tenant, globex: Tenant, conn: Any, registry: Any) -> None:
    from apps.portal.looking import Looked, look
    from tenants import door

    keys = [stock(acme, conn, registry, name=name).schedule for name in ("first", "second", "third")]
    stock(globex, conn, registry)
    now = utc_now()

    def looked() -> Looked:
        with door.inside(acme):
            return look(acme, now=now)

    def due(key: Any, minutes: int, parked: str = "") -> None:
        at = now + timedelta(minutes=minutes)
        conn.execute(
            "UPDATE due_dueentry SET due_at = %s, nominal_at = %s, parked = %s WHERE key = %s", [at, at, parked, key]
        )

    for number, key in enumerate(keys):
        due(key, 30 - number)
    facts, ahead = looked()
    assert [one.name for one in ahead] == ["third", "second", "first"]
    assert (facts.next_at, facts.overdue_at, facts.parked) == (ahead[0].at, None, 0)
    due(keys[0], -5)
    due(keys[1], -9, parked="unreadable")
    facts, ahead = looked()
    assert [one.id for one in ahead] == [keys[2]]
    assert (facts.overdue_at, facts.parked) == (now - timedelta(minutes=5), 1)
