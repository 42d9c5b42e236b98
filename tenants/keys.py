"""API keys: `sb_<prefix>_<secret>`. The prefix finds the row, the SHA-256 of the whole key proves it."""

import hashlib
import hmac
import re
import secrets
import string
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import psycopg
from django.db.models import Q

from tenants import door
from tenants.models import ApiKey, Plan, Role, Tenant
from tenants.rows import Columns

ALPHABET = string.ascii_letters + string.digits
PREFIX_LENGTH = 8
SECRET_LENGTH = 40
LAST_USED_STEP = timedelta(minutes=1)
_FORM = re.compile(f"sb_([A-Za-z0-9]{{{PREFIX_LENGTH}}})_[A-Za-z0-9]{{{SECRET_LENGTH}}}")

_KEY, _TENANT, _PLAN = Columns(ApiKey, "k"), Columns(Tenant, "t"), Columns(Plan, "p")
_READ = f"""
SELECT clock_timestamp(), {_KEY.sql}, {_TENANT.sql}, {_PLAN.sql}
FROM (SELECT $1::text AS prefix) asked LEFT JOIN public.tenants_apikey k ON k.prefix = asked.prefix
LEFT JOIN public.tenants_tenant t ON t.id = k.tenant_id LEFT JOIN public.tenants_plan p ON p.id = t.plan_id
"""


def apikey_create(
    *, tenant: Tenant, name: str, role: str = Role.ADMIN, expires_at: datetime | None = None,
    scopes: Sequence[str] | None = None, created_by: str = "", replaces: UUID | None = None,
) -> tuple[ApiKey, str]:  # fmt: skip
    """Makes a key and returns it with its text, which is not kept and can't be shown again."""
    prefix = _chosen(PREFIX_LENGTH)
    while ApiKey.objects.filter(prefix=prefix).exists():
        prefix = _chosen(PREFIX_LENGTH)
    text = f"sb_{prefix}_{_chosen(SECRET_LENGTH)}"
    key = ApiKey.objects.create(
        tenant=tenant, name=name, role=role, expires_at=expires_at, prefix=prefix, digest=_digest(text),
        scopes=None if scopes is None else sorted(set(scopes)), created_by=created_by, replaces=replaces,
    )  # fmt: skip
    return key, text


def apikey_find(text: str, *, now: datetime) -> ApiKey | None:
    """The valid key with this text, with its tenant and plan; None when unknown, expired or revoked.

    The digest is compared in constant time, also when there is no such prefix.
    """
    return _valid(_read(text)[1], text, now=now)


def apikey_look(text: str) -> tuple[ApiKey | None, datetime]:
    """As `apikey_find` at the database's time, and that time, in one statement."""
    now, key = _read(text)
    return _valid(key, text, now=now), now


def _valid(key: ApiKey | None, text: str, *, now: datetime) -> ApiKey | None:
    matches = hmac.compare_digest(key.digest if key else "0" * 64, _digest(text))
    if key is None or not matches or key.revoked_at is not None or (key.expires_at and key.expires_at <= now):
        return None
    return key


def apikey_touch(key: ApiKey, *, now: datetime) -> None:
    """Notes the use of a key, at most once a minute so that reads stay reads."""
    if key.last_used_at is None or now - key.last_used_at >= LAST_USED_STEP:
        before = Q(last_used_at=None) | Q(last_used_at__lte=now - LAST_USED_STEP)
        ApiKey.objects.filter(before, pk=key.pk).update(last_used_at=now)


def apikey_revoke(key: ApiKey, *, now: datetime) -> bool:
    """Ends a key now; False when it had ended before."""
    return bool(ApiKey.objects.filter(pk=key.pk, revoked_at=None).update(revoked_at=now))


def _read(text: str) -> tuple[datetime, ApiKey | None]:
    """The database's time, and the key with the prefix of this text."""
    formed = _FORM.fullmatch(text)  # whatever else a header may hold does not reach the database
    cursor: psycopg.Cursor[Any] = psycopg.RawCursor(door.raw())
    row = cursor.execute(_READ, [formed[1] if formed else ""], prepare=True).fetchone()
    assert row is not None
    now, row = row[0], row[1:]
    if row[0] is None:
        return now, None
    ends = len(_KEY), len(_KEY) + len(_TENANT)
    key = _KEY.made(row[: ends[0]])
    key.tenant = _TENANT.made(row[ends[0] : ends[1]])
    key.tenant.plan = _PLAN.made(row[ends[1] :])
    return now, key


def _chosen(length: int) -> str:
    return "".join(secrets.choice(ALPHABET) for _ in range(length))


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
