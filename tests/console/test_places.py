"""Where pages are in the navigation, and what is said where there is no page."""

from __future__ import annotations

from typing import Any

import pytest

from apps.console.places import OF_VERBS, place_of_verb
from apps.console.verbs.registry import all_verbs


def test_every_verb_has_a_place_on_its_site() -> None:
    for verb in all_verbs().values():
        slug = "acme" if verb.scope == "tenant" else ""
        place, url = place_of_verb(verb.name, slug)
        assert url.startswith(f"/t/{slug}/admin/" if slug else "/admin/"), verb.name
        assert place.label
    assert set(OF_VERBS) == {name.partition(".")[0] for name in all_verbs()}


@pytest.mark.parametrize(
    ("path", "place", "above"),
    [
        ("/admin/do/tenant.plan/acme/", "/admin/tenants/", "/admin/tenants/"),
        ("/admin/do/dispatch.pause/all/", "/admin/", "/admin/"),
        ("/t/acme/admin/", "/t/acme/admin/", "/admin/"),
        ("/admin/auth/user/", "/admin/tables/", "/admin/"),
    ],
)
def test_the_navigation_marks_the_place_and_leads_back(page: Any, acme: Any, path: str, place: str, above: str) -> None:
    text = page.get(path).content.decode()
    assert f'href="{place}" aria-current="page"' in text
    assert text.count('aria-current="page"') == 2, "beside the page, and in the menu"
    assert f'href="{above}"' in text


def test_where_there_is_no_page_is_said_with_a_way_back(page: Any) -> None:
    response = page.get("/admin/nothing/")
    assert response.status_code == 404
    assert "There is nothing here" in response.content.decode()
    assert 'href="/admin/find/"' in response.content.decode()
