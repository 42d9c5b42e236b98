"""Who appears in tests: two tenants, acme and globex, each with a key of every role; and strangers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from django.test import Client

    from apps.audit.services import Actor
    from tenants.models import Member, Tenant

ROLES = ("viewer", "editor", "operator", "admin")
PASSWORD = "correct horse battery"


@dataclass(frozen=True)
class People:
    """The texts of a tenant's API keys by role, and the host that is its own."""

    tenant: Tenant
    keys: dict[str, str] = field(default_factory=dict)

    def __getattr__(self, role: str) -> str:
        if role in ROLES:
            return self.keys[role]
        raise AttributeError(role)

    @property
    def host(self) -> str:
        return f"{self.tenant.slug}.localhost"

    def actor(self, role: str = "admin") -> Actor:
        """Somebody of this tenant, for calling services directly."""
        from apps.audit.services import Actor

        return Actor(name=f"test:{role}", role=role, tenant_id=self.tenant.pk)


@pytest.fixture
def acme_people(acme: Tenant) -> Iterator[People]:
    """acme's keys."""
    yield _people(acme)


@pytest.fixture
def globex_people(globex: Tenant) -> Iterator[People]:
    """globex's keys."""
    yield _people(globex)


@pytest.fixture
def plan(database: None) -> Iterator[Callable[..., None]]:
    """Sets limits of the tenants' plan; they are as before afterwards."""
    from tenants.models import Plan

    names = [field.name for field in Plan._meta.fields if field.name.startswith(("max_", "min_", "worker_"))]
    (before,) = Plan.objects.filter(name="standard").values(*names)

    def limit(**limits: Any) -> None:
        Plan.objects.filter(name="standard").update(**limits)

    yield limit
    Plan.objects.filter(name="standard").update(**before)


def member_of(tenant: Tenant, role: str = "admin", *, email: str = "") -> Member:
    """Somebody of the tenant, with the password PASSWORD."""
    from tenants.people import member_make

    member = member_make(
        tenant=tenant, email=email or f"{role}@{tenant.slug}.test", role=role, name=role.title(), password=PASSWORD
    )
    member.tenant = tenant
    return member


def signed_in(member: Member) -> Client:
    """A browser on the tenant's host in which the member is signed in; without following the login's pages."""
    from django.contrib.sessions.backends.db import SessionStore
    from django.http import HttpRequest
    from django.test import Client

    from tenants.sessions import session_begin

    request = HttpRequest()
    request.session = SessionStore()
    session_begin(request, member)
    request.session.save()
    client = Client(headers={"Host": f"{member.tenant.slug}.localhost"}, raise_request_exception=False)
    client.cookies["sessionid"] = str(request.session.session_key)
    return client


def _people(tenant: Tenant) -> People:
    from tenants.keys import apikey_create

    return People(tenant, {role: apikey_create(tenant=tenant, name=f"{role} key", role=role)[1] for role in ROLES})
