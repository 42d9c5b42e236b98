"""Who may use a tenant, for a file: people with the hash of their password, API keys with the hash of the key.

Both work on after a move: hashes do not depend on the installation. So they are sealed.
"""

from collections.abc import Iterable
from datetime import datetime
from typing import Any
from uuid import UUID

import orjson
from django.contrib.auth.models import User
from django.db import IntegrityError, transaction

from kernel.parcel import Row
from tenants.models import ApiKey, Member, Role, Tenant
from tenants.people import USER_PREFIX

PEOPLE_COLUMNS = ("uid", "email", "name", "role", "created_at", "password")
KEY_COLUMNS = (
    "id", "name", "prefix", "digest", "role", "scopes", "created_at", "created_by", "replaces", "rotated_at",
    "expires_at", "last_used_at",
)  # fmt: skip


def people_of(tenant: Tenant) -> tuple[tuple[str, ...], list[Row]]:
    """Members whose login is of this tenant alone; operators who are members, too, stay where they are."""
    members = Member.objects.select_related("user").filter(tenant=tenant, user__username__startswith=USER_PREFIX)
    return PEOPLE_COLUMNS, [
        (str(one.uid), one.email, one.name, one.role, str(one.created_at), one.user.password)
        for one in members.order_by("pk")
    ]


def keys_of(tenant: Tenant) -> tuple[tuple[str, ...], list[Row]]:
    """Keys that are not revoked."""
    found: list[Row] = []
    for one in ApiKey.objects.filter(tenant=tenant, revoked_at=None).order_by("pk"):
        told = {name: getattr(one, name) for name in KEY_COLUMNS}
        told["scopes"] = None if one.scopes is None else orjson.dumps(one.scopes).decode()
        found.append([None if given is None else str(given) for given in told.values()])
    return KEY_COLUMNS, found


def take_people(tenant: Tenant, rows: Iterable[dict[str, str | None]]) -> int:
    """Makes the members in the current transaction; how many. ValueError for what is none."""
    count = 0
    for row in rows:
        uid = UUID(row["uid"] or "")
        user = User.objects.create(
            username=f"{USER_PREFIX}{uid.hex}", email=row["email"] or "", password=row["password"] or ""
        )
        Member.objects.create(
            tenant=tenant, user=user, uid=uid, email=row["email"] or "", name=row["name"] or "",
            role=Role(row["role"] or ""),
        )  # fmt: skip
        count += 1
    return count


def take_keys(tenant: Tenant, rows: Iterable[dict[str, str | None]]) -> tuple[int, list[str]]:
    """Makes the keys; how many, and the names of those that are here already. ValueError for what is none."""
    count, there = 0, []
    for row in rows:
        given: dict[str, Any] = {name: value for name, value in row.items() if name not in ("scopes", "created_at")}
        for name in ("rotated_at", "expires_at", "last_used_at"):
            given[name] = None if given[name] is None else datetime.fromisoformat(given[name])
        given["scopes"] = None if row["scopes"] is None else orjson.loads(row["scopes"])
        given["role"], given["created_by"] = Role(row["role"] or ""), row["created_by"] or ""
        try:
            with transaction.atomic():
                ApiKey.objects.create(tenant=tenant, **given)
            count += 1
        except IntegrityError:
            there.append(str(row["name"]))
    return count, there
