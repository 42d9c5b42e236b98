"""Who appears in tests: two tenants, acme and globex, each with a key of every role; and strangers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from apps.audit.services import Actor
    from tenants.models import Tenant

ROLES = ("viewer", "editor", "operator", "admin")


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


def _people(tenant: Tenant) -> People:
    from tenants.keys import apikey_create

    return People(tenant, {role: apikey_create(tenant=tenant, name=f"{role} key", role=role)[1] for role in ROLES})
