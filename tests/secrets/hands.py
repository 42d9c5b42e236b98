"""Builders for the tests of secrets."""

from __future__ import annotations

import base64
import os
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import psycopg
from psycopg import sql

if TYPE_CHECKING:
    from apps.audit.services import Actor
    from apps.secrets.models import Secret
    from tenants.models import Tenant
    from tenants.registry import Registry, Tenancy

Conn = psycopg.Connection[Any]
NOW = datetime(2025, 1, 6, 10, 0, tzinfo=UTC)


def kek(key_id: str) -> str:
    """An entry of SECRETS_KEYS with a new key."""
    return f"{key_id}:{base64.b64encode(os.urandom(32)).decode()}"


def actor(tenant: Tenant) -> Actor:
    from apps.audit.services import Actor as Real

    return Real(name="test", role="admin", tenant_id=tenant.pk)


def make_secret(tenant: Tenant, name: str = "TOKEN", value: str = "v-1", **more: Any) -> Secret:
    from apps.secrets.services import secret_create

    return secret_create(tenant=tenant, actor=actor(tenant), name=name, value=value, now=NOW, **more)


def change(tenant: Tenant, secret: Secret, value: str) -> Secret:
    from apps.secrets.services import secret_change

    return secret_change(tenant=tenant, actor=actor(tenant), secret_id=secret.pk, value=value, now=NOW)


def tenancy_of(registry: Registry, tenant: Tenant) -> Tenancy:
    registry.refresh(force=True)
    found = registry.get(tenant.pk)
    assert found is not None
    return found


def execute(conn: Conn, tenant: Tenant, query: str, *parameters: Any) -> list[tuple[Any, ...]]:
    """A statement in a tenant's schema; `{}` is the schema."""
    cursor = conn.execute(sql.SQL(query).format(sql.Identifier(tenant.schema_name)), parameters)
    return cursor.fetchall() if cursor.description else []
