"""A session is good where it began: on one tenant's host, or on the operators'."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.fixtures_people import member_of, signed_in

if TYPE_CHECKING:
    from django.test import Client

    from tenants.models import Tenant


def elsewhere(client: Client, host: str) -> Client:
    """The same cookies, sent to another host."""
    from django.test import Client

    other = Client(headers={"Host": host}, raise_request_exception=False)
    other.cookies = client.cookies
    return other


def test_a_member_sees_the_console(acme: Tenant) -> None:
    page = signed_in(member_of(acme)).get("/console/")
    assert page.status_code == 200 and b"Admin" in page.content
    assert page["Cache-Control"] == "no-store"


def test_a_session_opens_no_other_tenant(acme: Tenant, globex: Tenant) -> None:
    client = signed_in(member_of(acme))
    assert elsewhere(client, "globex.localhost").get("/console/").status_code == 302
    assert client.get("/console/").status_code == 200


def test_not_even_for_a_member_of_both(acme: Tenant, globex: Tenant) -> None:
    from tenants.models import Member

    member = member_of(acme)
    Member.objects.create(tenant=globex, user=member.user, role="viewer")
    assert elsewhere(signed_in(member), "globex.localhost").get("/console/").status_code == 302


def test_an_operator_who_is_a_member_takes_no_session_to_the_admin(acme: Tenant) -> None:
    member = member_of(acme)
    member.user.is_staff = member.user.is_superuser = True
    member.user.save(update_fields=["is_staff", "is_superuser"])
    client = signed_in(member)
    assert client.get("/console/").status_code == 200
    assert elsewhere(client, "testserver").get("/admin/").status_code == 302


def test_an_operators_session_is_nobodys_on_a_tenants_host(acme: Tenant, database: None) -> None:
    from django.contrib.auth.models import User
    from django.test import Client

    from tenants.models import Member

    operator = User.objects.create_superuser("ada", password="not a word")
    Member.objects.create(tenant=acme, user=operator, role="admin")
    client = Client()
    client.force_login(operator)
    assert client.get("/admin/").status_code == 200
    assert elsewhere(client, "acme.localhost").get("/console/").status_code == 302
    assert client.get("/admin/").status_code == 200, "and it goes on"


@pytest.mark.parametrize("end", ["member", "user", "inactive"])
def test_who_leaves_is_out_at_once(acme: Tenant, end: str) -> None:
    member = member_of(acme)
    client = signed_in(member)
    assert client.get("/console/").status_code == 200
    if end == "inactive":
        member.user.is_active = False
        member.user.save(update_fields=["is_active"])
    else:
        gone: Any = member if end == "member" else member.user
        gone.delete()
    assert client.get("/console/").status_code == 302


def test_the_public_hosts_have_no_console(acme: Tenant) -> None:
    client = signed_in(member_of(acme))
    for path in ("/console/", "/console/login"):
        assert elsewhere(client, "testserver").get(path).status_code == 404


def test_the_root_leads_to_the_console(acme: Tenant) -> None:
    client = signed_in(member_of(acme))
    assert client.get("/")["Location"] == "/console/"
    assert elsewhere(client, "testserver").get("/")["Location"] == "/admin/"


def test_a_stranger_is_sent_to_the_login_and_back(acme: Tenant) -> None:
    from django.test import Client

    nobody = Client(headers={"Host": "acme.localhost"})
    assert nobody.get("/console/?a=1")["Location"] == "/console/login?next=%2Fconsole%2F%3Fa%3D1"
