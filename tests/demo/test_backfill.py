"""The demo's backfill is asked for once, of a schedule that the first tenant has."""

from __future__ import annotations

from typing import TYPE_CHECKING

from demo.announce import MAKER, backfill_told, demos_backfill

if TYPE_CHECKING:
    from tenants.models import Tenant


def test_it_is_asked_for_once(acme: Tenant, globex: Tenant) -> None:
    from apps.operations.backfill.reading import backfills
    from demo import backfill, content
    from tenants import door
    from tenants.work import database_now

    now = database_now()
    for number, tenant in enumerate((acme, globex)):
        items = content.items(number, of=2, receiver="http://127.0.0.1:5001", now=now)
        content.fill(tenant, [one for one in items if one.key == backfill.SCHEDULE], now=now)
    assert [backfill.ask(one, now=now) for one in (acme, acme, globex)] == [True, False, False]
    with door.inside(acme):
        [made] = backfills()
    assert made.created_by == MAKER == content.ACTOR.name
    assert made.max_in_flight == backfill.AT_ONCE


def test_what_is_said_of_it() -> None:
    found = {
        "state": "completed", "from": "2026-11-29T09:00:00Z", "to": "2026-11-30T09:00:00Z", "planned": 24,
        "counts": {"succeeded": 24},
    }  # fmt: skip
    assert backfill_told(found) == (
        "completed, 24 of 24 occurrences from 2026-11-29T09:00 to 2026-11-30T09:00 succeeded"
    )  # fmt: skip
    own, other = {"created_by": MAKER}, {"created_by": "key:mine"}
    assert demos_backfill([other, own]) is own and demos_backfill([other]) is None
