"""API keys as people and keys look after them: nobody hands out more than they have. Each is one transaction."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django.db.models import Q, QuerySet

from apps.audit.services import Actor, record
from kernel.errors import Conflict, FieldError, Forbidden, InvalidInput, NotFound
from tenants.keys import apikey_create, apikey_revoke
from tenants.limits import make_room, plan_locked
from tenants.models import ApiKey, Tenant
from tenants.permissions import KEY_ROLES, known_scopes, may_grant
from tenants.work import atomically

OVERLAP = timedelta(days=1)
OVERLAP_MAX = timedelta(days=30)
MAX_SCOPES = 50


def apikey_issue(
    *, tenant: Tenant, actor: Actor, name: str, role: str, now: datetime, scopes: Sequence[str] | None = None,
    expires_at: datetime | None = None,
) -> tuple[ApiKey, str]:  # fmt: skip
    """A new key with its text, which can't be shown again. InvalidInput, Forbidden, QuotaExceeded."""
    faults = scope_faults(scopes)
    if role not in KEY_ROLES:
        faults.append(FieldError("/role", "choice", f"must be one of {', '.join(KEY_ROLES)}."))
    if expires_at is not None and expires_at <= now:
        faults.append(FieldError("/expires_at", "past", "must lie in the future."))
    if faults:
        raise InvalidInput(faults)
    _check_grant(actor, role, scopes)

    def work() -> tuple[ApiKey, str]:
        make_room(tenant, counted_keys(tenant, now=now), quota="max_api_keys", what="valid API keys")
        key, text = apikey_create(
            tenant=tenant, name=name, role=role, scopes=scopes, expires_at=expires_at, created_by=actor.stored
        )
        _record(actor, "apikey.create", key, now, after=_shown(key))
        return key, text

    return atomically(work)


def apikey_rotate(
    *, tenant: Tenant, actor: Actor, key_id: UUID, now: datetime, overlap: timedelta = OVERLAP
) -> tuple[ApiKey, str]:
    """A successor with the same name, role, scopes and length of life; the key itself ends after `overlap`.

    NotFound, Forbidden; Conflict for a key that is over or has a successor; QuotaExceeded when as many keys as the plan
    allows work on beside a successor already.
    """

    def work() -> tuple[ApiKey, str]:
        plan_locked(tenant, quota="max_api_keys")  # before its keys
        old = ApiKey.objects.select_for_update().filter(tenant=tenant, pk=key_id).first()
        if old is None:
            raise NotFound("There is no such API key.")
        _check_grant(actor, old.role, old.scopes)
        if old.revoked_at is not None or (old.expires_at is not None and old.expires_at <= now):
            raise Conflict("The key is revoked or expired; make a new one.", code="key_over")
        if old.rotated_at is not None:
            successor = ApiKey.objects.filter(tenant=tenant, replaces=old.pk).values_list("pk", flat=True).first()
            raise Conflict("The key has a successor already.", code="already_rotated", successor=str(successor))
        if overlap:  # else valid keys, each with a limit of requests of its own, have no end
            what = "keys that work on beside a successor"
            make_room(tenant, _overlapping(tenant, now=now), quota="max_api_keys", what=what)
        life = None if old.expires_at is None else now + (old.expires_at - old.created_at)
        key, text = apikey_create(
            tenant=tenant, name=old.name, role=old.role, scopes=old.scopes, expires_at=life, created_by=actor.stored,
            replaces=old.pk,
        )  # fmt: skip
        ends_at = now + overlap if old.expires_at is None else min(old.expires_at, now + overlap)
        ApiKey.objects.filter(pk=old.pk).update(rotated_at=now, expires_at=ends_at)
        _record(
            actor, "apikey.rotate", key, now, before={"id": str(old.pk), "ends_at": ends_at.isoformat()},
            after=_shown(key),
        )  # fmt: skip
        return key, text

    return atomically(work)


def apikey_end(*, tenant: Tenant, actor: Actor, key_id: UUID, now: datetime) -> None:
    """Revokes a key; one that is revoked stays so. NotFound."""

    def work() -> None:
        key = ApiKey.objects.filter(tenant=tenant, pk=key_id).first()
        if key is None:
            raise NotFound("There is no such API key.")
        if apikey_revoke(key, now=now):
            _record(actor, "apikey.revoke", key, now, before={"prefix": key.prefix})

    atomically(work)


def counted_keys(tenant: Tenant, *, now: datetime) -> "QuerySet[ApiKey]":
    """The keys that a plan counts: valid ones, but for those that only go on beside their successor."""
    alive = ApiKey.objects.filter(tenant=tenant, revoked_at=None, rotated_at=None)
    return alive.filter(Q(expires_at=None) | Q(expires_at__gt=now))


def _overlapping(tenant: Tenant, *, now: datetime) -> "QuerySet[ApiKey]":
    """The keys that only go on beside their successor."""
    return ApiKey.objects.filter(tenant=tenant, revoked_at=None, rotated_at__isnull=False, expires_at__gt=now)


def scope_faults(scopes: Sequence[str] | None) -> list[FieldError]:
    """What is wrong with scopes: one that names nothing, or none at all."""
    if scopes is None:
        return []
    if not scopes:
        return [FieldError("/scopes", "required", "Name one scope or more; leave it out for all of the role.")]
    if len(scopes) > MAX_SCOPES:
        return [FieldError("/scopes", "too_many", f"has {len(scopes)} scopes; {MAX_SCOPES} are allowed.")]
    known = set(known_scopes())
    return [
        FieldError(f"/scopes/{number}", "unknown_scope", "There is no such scope; docs/people.md lists them.")
        for number, scope in enumerate(scopes)
        if scope not in known
    ]


def _check_grant(actor: Actor, role: str, scopes: Sequence[str] | None) -> None:
    if not may_grant(actor, role=role, scopes=scopes):
        raise Forbidden("Nobody grants more than they may themselves.", code="grant_too_high")


def _shown(key: ApiKey) -> dict[str, Any]:
    expires_at = None if key.expires_at is None else key.expires_at.isoformat()
    return {"name": key.name, "role": key.role, "scopes": key.scopes, "expires_at": expires_at}


def _record(actor: Actor, action: str, key: ApiKey, now: datetime, **more: Any) -> None:
    record(
        actor=actor, action=action, object_type="apikey", object_id=key.pk, now=now, tenant_id=key.tenant_id, **more
    )  # fmt: skip
