"""The console's page of what-if questions."""

from __future__ import annotations

from typing import Any

from tests.console.conftest import logged_in


def test_a_question_is_answered(page: Any, acme: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr("apps.console.simulate.LIMIT_S", 0.3)
    assert "what-if" not in page.get("/admin/simulate/").content.decode()
    asked = {"source": "weights", "changes": "tenant.light.weight=3\nslots.http=300", "seed": "1"}
    response = page.get("/admin/simulate/", asked)
    text = response.content.decode()
    assert response.status_code == 200
    assert "heavy" in text and "what if" in text and '<rect class="what-if"' in text
    assert "The comparison is worth" in text and "the time limit ended" in text


def test_the_first_page_leads_to_it_and_history_may_be_empty(page: Any, acme: Any) -> None:
    assert "/admin/simulate/" in page.get("/admin/").content.decode()
    text = page.get("/admin/simulate/", {"source": "15", "changes": "", "seed": ""}).content.decode()
    assert "0 runs" in text


def test_a_window_between_two_times(page: Any, acme: Any) -> None:
    asked = {"source": "window", "since": "2026-01-05T08:00Z", "until": "2026-01-05T09:30+01:00"}
    text = page.get("/admin/simulate/", asked).content.decode()
    assert "History from 2026-01-05 08:00:00 to 08:30:00 UTC" in text
    for since, until, word in (
        ("<b>", "2026-01-05T08:00Z", "From: "), ("2026-01-05T08:00Z", "", "To: "),
        ("2026-01-05T08:00Z", "2026-02-05T08:00Z", "seven days"), ("2026-01-05T08:00Z", "2026-01-04", "To: "),
        ("2026-01-05T08:00Z", "2026-01-04T00:00Z", "ends after it begins"),
    ):  # fmt: skip
        response = page.get("/admin/simulate/", {"source": "window", "since": since, "until": until})
        assert response.status_code == 400 and word in response.content.decode()
        assert "<b>" not in response.content.decode()
    for wrong in ({"source": "x"}, {"source": "flood", "seed": "x"}):
        assert page.get("/admin/simulate/", wrong).status_code == 400


def test_what_makes_no_sense_or_is_too_much_is_told(page: Any, acme: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr("apps.console.simulate.LIMIT_S", 0.1)
    for changes, word in (("tenant.nobody.weight=1", "nobody"), ("<script>=1", "Known"), ("x=1\n" * 21, "At most 20")):
        response = page.get("/admin/simulate/", {"source": "weights", "changes": changes})
        assert response.status_code == 400
        assert word in response.content.decode()
        assert "<script>=1" not in response.content.decode()
    response = page.get("/admin/simulate/", {"source": "aligned", "changes": ""})
    assert response.status_code == 400 and "More than 60,000 runs" in response.content.decode()


def test_only_who_may_see_plans_and_tickets(stranger: Any, database: None) -> None:
    from django.contrib.auth.models import User

    assert stranger.get("/admin/simulate/").status_code == 302
    staff = User.objects.create_user("bob", password="not a word", is_staff=True)
    assert logged_in(staff).get("/admin/simulate/").status_code == 403
