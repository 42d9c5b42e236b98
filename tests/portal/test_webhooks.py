"""Webhooks on the pages: made, edited, tried, sent again; the secret is shown once."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from tests.api.makers import audit
from tests.fixtures_portal import HOSTILE

if TYPE_CHECKING:
    from tenants.models import Tenant

SECRET = re.compile(r"whsec_[A-Za-z0-9+/=]+")
NEW = {"url": "http://127.0.0.1:9999/hook", "types": ["run.dead_lettered"], "enabled": "on", "description": "On call"}


def made(browser: Any, **members: Any) -> str:
    page = browser.post("/console/webhooks/new", {**NEW, **members}, status=200)
    assert len(SECRET.findall(page.content.decode())) == 1
    return str(page.context["url"])


def test_a_webhook_is_made_edited_and_deleted(acme: Tenant, conn: Any, console_of: Any) -> None:
    browser = console_of(acme)
    path = made(browser, labels="team: billing")
    page = browser.text(path)
    assert "On call" in page and "run.dead_lettered" in page and not SECRET.search(page)
    form = browser.get(f"{path}/edit").context["form"]
    assert form["types"].chosen == ["run.dead_lettered"] and form["labels"].value == "team: billing"
    change = {**NEW, "types": ["*"], "revision": form["revision"].value}
    browser.post(f"{path}/edit", change)
    assert "Somebody changed this webhook" in browser.post(f"{path}/edit", change, status=409).content.decode()
    seen = browser.get(f"{path}/delete").context["form"]["revision"].value
    browser.post(f"{path}/delete", {"revision": seen})
    browser.get(path, status=404)
    noted = ["webhook.create", "webhook.update", "-webhook.update", "webhook.delete"]
    assert audit(conn, path.rpartition("/")[2]) == noted


def test_what_is_wrong_is_told_in_its_place(acme: Tenant, console_of: Any) -> None:
    browser = console_of(acme)
    for members, field in (
        ({"url": "http://10.0.0.1/"}, "url"), ({"types": []}, "types"), ({"jobs": "x"}, "jobs"),
        ({"labels": "x"}, "labels"),
    ):  # fmt: skip
        page = browser.post("/console/webhooks/new", {**NEW, **members}, status=400)
        assert f'id="error-{field}"' in page.content.decode(), members


def test_a_test_is_sent_and_sent_again(acme: Tenant, conn: Any, console_of: Any) -> None:
    admin = console_of(acme)
    path = made(admin)
    operator = console_of(acme, "operator")
    operator.post(f"{path}/test", {"revision": "1"})
    page = operator.get(path)
    assert [one["type"] for one in page.context["listed"].rows] == ["webhook.test"]
    assert "Send once more" not in page.content.decode(), "it has not ended"
    for after in ("", "x", "00000000-0000-7000-8000-000000000000"):
        wrong = operator.post(f"{path}/replay", {"after": after, "replay": "missing", "revision": "1"}, status=400)
        assert 'id="error-after"' in wrong.content.decode()
    (pk,) = conn.execute(f"SELECT id FROM {acme.schema_name}.events_event LIMIT 1").fetchone() or (None,)
    if pk is not None:
        operator.post(f"{path}/replay", {"after": str(pk), "replay": "all", "revision": "1"})


def test_a_new_secret_is_shown_once(acme: Tenant, console_of: Any) -> None:
    browser = console_of(acme)
    path = made(browser)
    page = browser.post(f"{path}/rotate", {"overlap_s": "3600", "revision": "1"}, status=200)
    assert SECRET.search(page.content.decode()) and "The former secret signs as well" in browser.text(path)


def test_roles_tenants_and_hostile_texts(acme: Tenant, globex: Tenant, console_of: Any) -> None:
    path = made(console_of(acme), description=HOSTILE.replace("\u202e", "")[:200])
    viewer, stranger = console_of(acme, "viewer"), console_of(globex)
    page = viewer.text(path)
    assert "<script>alert" not in page and "<button disabled" in page
    for verb in ("edit", "test", "replay", "rotate", "delete"):
        viewer.post(f"{path}/{verb}", {}, status=403)
        assert stranger.client.get(f"{path}/{verb}").status_code == 404
