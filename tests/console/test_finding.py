"""Where an id lives, and what a word may mean."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any
from uuid import UUID

import pytest

from kernel.ids import uuid7
from tests.portal.stock import stock

if TYPE_CHECKING:
    import psycopg

    from tenants.models import Tenant
    from tenants.registry import Registry


def test_an_id_of_any_tenant_is_found(
    acme: Tenant, globex: Tenant, conn: psycopg.Connection[Any], registry: Registry, page: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """Alive, or somebody did something with it: the shared tables know. Else the minute leads to the tenants."""
    from apps.console.finding import locating, matching
    from apps.usage.figures import start_of
    from apps.usage.models import Rollup
    from apps.usage.rolling import roll_up
    from kernel.clock import utc_now

    kept = stock(globex, conn, registry, name="nightly")
    now = utc_now()

    def places(text: object, **given: Any) -> list[tuple[str, str]]:
        answer = matching.find(str(text), conn=conn, pages=PAGES, now=now, **given)
        for one in answer.found:
            assert page.get(one.url).status_code == 200, one
        return [(one.kind, one.url) for one in answer.found]

    root = "/t/globex/admin/"
    assert places(kept.waiting) == [("execution", f"{root}executions/{kept.waiting}/")]
    assert places(kept.schedule) == [("schedule", f"{root}schedules/{kept.schedule}/")]
    assert places(kept.job)[0][0] == "job" and places(kept.operation)[0][0] == "operation"
    run_key = f"{kept.schedule.hex}.20270301T030000Z"
    assert places(run_key)[0] == ("execution", f"{root}executions/?window=all&q={run_key}")
    assert places(kept.done) == [("execution", f"{root}executions/{kept.done}/")], "it was asked for"
    letter = ("dead letter", f"{root}dead-letters/{kept.letter}/")
    assert not places(kept.letter), "the figures of its minute are not summed up yet"
    roll_up(conn)
    assert places(f" {kept.letter} ") == places(kept.letter.hex) == [letter]
    assert not places(uuid7()) and not places(UUID(int=7)) and not places(UUID("ffffffff-ffff-7fff-bfff-ffffffffffff"))
    assert places(f"globex {kept.letter}") == places(kept.letter, slug="globex") == [letter]

    for minute in (now, now - timedelta(minutes=1)):
        Rollup.objects.create(step_s=60, starts_at=start_of(minute, 60), tenant_id=acme.pk)
    monkeypatch.setattr(locating, "SCHEMAS", 1)  # acme's is looked into first
    first = matching.find(str(kept.letter), conn=conn, pages=PAGES, now=now)
    assert not first.found and first.after == acme.pk and "there are more" in first.note
    assert places(kept.letter, after=first.after) == [letter]


def test_words_mean_pages_tenants_and_definitions(
    acme: Tenant, globex: Tenant, conn: psycopg.Connection[Any], registry: Registry
) -> None:
    from apps.console.finding.matching import find
    from kernel.clock import utc_now

    stock(globex, conn, registry, name="nightly 100%")

    def titles(text: str, slug: str = "") -> list[str]:
        return [one.title for one in find(text, conn=conn, pages=PAGES, now=utc_now(), slug=slug).found]

    assert titles("") == ["Overview", "Dead letters"] and titles("LETT dead") == ["Dead letters"]
    assert titles("glob") == ["globex"]
    assert titles("globex nightly") == ["nightly 100%", "nightly 100% job"] == titles("nightly", "globex")
    assert titles("globex 100%") and not titles("globex 100_"), "no pattern of the database's"
    assert not titles("nightly") and not titles("acme nightly") and not titles("nightly", "nobody")
    assert (
        not titles("\0' OR 1=1 --")
        and "Nothing has this name" in find("x" * 5_000, conn=conn, pages=PAGES, now=utc_now()).note
    )


def _pages() -> Any:
    from apps.console.finding.matching import Page

    return (Page("Overview", "/admin/"), Page("Dead letters", "/admin/dead-letters/"))


PAGES = _pages()


def test_the_page_and_what_the_palette_asks(page: Any, stranger: Any, acme: Tenant) -> None:
    """Both have the same answers; nothing is found for nobody, and text stays text."""
    whole = page.get("/admin/find/", {"q": "acme"}).content.decode()
    part = page.get("/admin/find/", {"q": "acme"}, headers={"X-Shardbeat-Fragment": "found"}).content.decode()
    assert 'href="/t/acme/admin/"' in part and part in whole and "<html" not in part
    assert "(table)" in page.get("/admin/find/?q=breakers").content.decode()
    assert "tickets/ticket" not in page.get("/admin/find/").content.decode()
    from tenants.models import Tenant

    for status, home in (("provisioning", f"/admin/tenants/tenant/{acme.pk}/change/"), ("suspended", "/t/acme/admin/")):
        Tenant.objects.filter(pk=acme.pk).update(status=status)
        assert f'href="{home}"' in page.get("/admin/find/", {"q": "acme"}).content.decode()
        if status == "provisioning":
            told = page.get("/t/acme/admin/executions/", follow=True)
            assert told.redirect_chain == [(home, 302)] and "Tenant acme is provisioning" in told.content.decode()
            assert page.post("/t/acme/admin/do/schedule.pause/x/").status_code == 404
        for text in ("acme a", f"acme {uuid7()}"):  # its schema may not be there (any more)
            found = page.get("/admin/find/", {"q": text, "tenant": "acme"}).content.decode()
            assert "too slow" not in found
    for text in ("<script>alert(1)</script>", "\0", "a" * 9_000, str(uuid7()), "%", "acme %_\\"):
        assert page.get("/admin/find/", {"q": text, "after": "9" * 20, "tenant": text}).status_code == 200
    assert stranger.get("/admin/find/", {"q": "acme"}).status_code == 302
