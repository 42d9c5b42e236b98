"""The API by a person's session: on the tenant's host alone, and no change without the form token."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.fixtures_people import People, member_of, signed_in

if TYPE_CHECKING:
    from django.test import Client

    from tenants.models import Tenant

JOBS = "/api/v1/jobs"
CALENDAR = {"name": "holidays", "dates": ["2027-12-25"]}


@pytest.fixture
def page(acme: Tenant) -> Client:
    """A browser of acme's admin that was on a page with a form."""
    return strict(signed_in(member_of(acme)))


def strict(client: Client, host: str = "acme.localhost") -> Client:
    from django.test import Client

    other = Client(enforce_csrf_checks=True, headers={"Host": host}, raise_request_exception=False)
    other.cookies = client.cookies
    other.get("/console/password")
    return other


def post(client: Client, body: Any = CALENDAR, **headers: str) -> Any:
    return client.post("/api/v1/calendars", body, content_type="application/json", headers=headers)


def test_reading(page: Client) -> None:
    answer = page.get(JOBS)
    assert answer.status_code == 200 and answer.json()["items"] == []


def test_a_change_wants_the_form_token(page: Client) -> None:
    token = page.cookies["csrftoken"].value
    for headers in ({}, {"X-CSRFToken": "wrong"}, {"X-CSRFToken": ""}, {"X-CSRFToken": "x" * 64}):
        answer = post(page, **headers)
        assert (answer.status_code, answer.json()["code"]) == (403, "csrf_failed"), headers
    for origin in ("http://globex.localhost", "null", "http://evil.test"):
        assert post(page, **{"X-CSRFToken": token, "Origin": origin}).status_code == 403
    made = post(page, **{"X-CSRFToken": token, "Origin": "http://acme.localhost"})
    assert made.status_code == 201
    assert page.get("/api/v1/calendars").json()["items"][0]["id"] == made.json()["id"]


@pytest.mark.parametrize("kind", ["application/x-www-form-urlencoded", "multipart/form-data; boundary=x", "text/plain"])
def test_a_form_of_a_foreign_page_reaches_nothing(page: Client, kind: str) -> None:
    token = page.cookies["csrftoken"].value
    for body in (b"csrfmiddlewaretoken=" + token.encode(), b"--x\r\nbroken", b'{"name": "x"}'):
        answer = page.post("/api/v1/calendars", body, content_type=kind, headers={"X-CSRFToken": token})
        assert (answer.status_code, answer.json()["code"]) == (403, "csrf_failed")


def test_every_unsafe_method(page: Client) -> None:
    path = f"{JOBS}/00000000-0000-7000-8000-000000000000"
    for method in ("PUT", "PATCH", "DELETE"):
        assert page.generic(method, path, b"{}", content_type="application/json").json()["code"] == "csrf_failed"


def test_a_role_counts_as_for_keys(acme: Tenant) -> None:
    viewer = strict(signed_in(member_of(acme, "viewer")))
    refused = post(viewer, **{"X-CSRFToken": viewer.cookies["csrftoken"].value})
    assert (refused.status_code, refused.json()["code"]) == (403, "role_too_low")
    assert viewer.get("/api/v1/members").status_code == 403


def test_the_trail_names_the_person(page: Client, conn: Any) -> None:
    made = post(page, **{"X-CSRFToken": page.cookies["csrftoken"].value})
    query = "SELECT count(*) FROM audit_auditevent WHERE action = 'calendar.create' AND object_id = %s AND allowed"
    assert conn.execute(query, [made.json()["id"]]).fetchone() == (1,)


def test_on_no_other_host(page: Client, globex: Tenant) -> None:
    for host in ("globex.localhost", "testserver"):
        assert strict(page, host).get(JOBS).status_code == 401


def test_a_key_decides_alone(page: Client, acme_people: People, globex_people: People) -> None:
    bearer = {"Authorization": f"Bearer {acme_people.viewer}"}
    assert page.get("/api/v1/members", headers=bearer).status_code == 403, "the viewer's key, not the admin's session"
    assert page.get(JOBS, headers={"Authorization": f"Bearer {globex_people.admin}"}).status_code == 403
    for wrong in ("Bearer sb_wrong", "Basic YTpi", "Bearer"):
        assert page.get(JOBS, headers={"Authorization": wrong}).status_code == 401, wrong


def test_an_operators_session_is_none_here(acme: Tenant) -> None:
    from django.contrib.auth.models import User
    from django.test import Client

    client = Client()
    client.force_login(User.objects.create_superuser("ada", password="x"))
    assert client.get(JOBS).status_code == 401
    assert strict(client).get(JOBS).status_code == 401


def test_what_is_no_session_is_counted(acme: Tenant, settings: Any) -> None:
    from django.test import Client

    from apps.api.throttle import attempts_of

    attempts_of.cache_clear()
    settings.FAILED_AUTH_PER_MIN = 2
    found = []
    for number in range(5):
        client = Client(headers={"Host": "acme.localhost"}, raise_request_exception=False)
        client.cookies["sessionid"] = f"guess{number}"
        found.append(client.get(JOBS).status_code)
    attempts_of.cache_clear()
    assert found == [401, 401, 429, 429, 429]


def test_the_limit_of_requests_is_a_persons(page: Client, acme: Tenant, conn: Any) -> None:
    conn.execute("UPDATE tenants_plan SET max_api_requests_per_min = 2")
    try:
        answers = [page.get(JOBS) for _ in range(3)]
        assert [one.status_code for one in answers] == [200, 200, 429]
        assert answers[0]["RateLimit-Policy"] == '"api-session";q=2;w=60'
        assert signed_in(member_of(acme, "viewer")).get(JOBS).status_code == 200, "others have their own"
    finally:
        conn.execute("UPDATE tenants_plan SET max_api_requests_per_min = NULL")


def test_a_suspended_tenant(page: Client, conn: Any) -> None:
    conn.execute("UPDATE tenants_tenant SET status = 'suspended' WHERE slug = 'acme'")
    try:
        answer = page.get(JOBS).json()
        assert answer["code"] == "tenant_not_active"
        query = "SELECT reason, allowed FROM audit_auditevent WHERE request_id = %s"
        assert conn.execute(query, [answer["request_id"]]).fetchall() == [("tenant_not_active", False)]
    finally:
        conn.execute("UPDATE tenants_tenant SET status = 'active' WHERE slug = 'acme'")
