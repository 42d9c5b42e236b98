"""Setting up a tenant's identity provider. Whoever may do it decides who gets in, so it takes a whole admin."""

import re
from collections.abc import Collection, Mapping
from datetime import datetime
from typing import Any

from apps.audit.services import Actor, record
from apps.secrets.models import Secret
from apps.secrets.store import put_value, value_of
from apps.signin.fetch import ProviderUnusable, check_url
from apps.signin.models import Provider
from apps.signin.provider import discover, forget
from kernel.errors import FieldError, Forbidden, InvalidInput, NotFound, Stale
from tenants.models import Tenant
from tenants.permissions import ROLES, may_grant
from tenants.registry import reach_of
from tenants.work import in_tenant

SECRET_NAME = "@signin.client"  # jobs can't name it
MAX_DOMAINS, MAX_ROLES = 50, 100
MAX_CLAIM_CHARS = 100
_DOMAIN = re.compile(r"(?:[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?\.)+[a-z][a-z0-9-]{0,61}[a-z0-9]")
SHOWN = ("enabled", "issuer", "client_id", "domains", "default_role", "role_claim", "roles")


def provider_put(
    *, tenant: Tenant, actor: Actor, values: Mapping[str, Any], secret: str | None, now: datetime,
    expect: Collection[int] | None = None,
) -> Provider:  # fmt: skip
    """Makes or replaces the provider; `secret` None keeps the client's secret, "" takes it away.

    InvalidInput, Forbidden, Stale. The provider is asked for its document when it is switched on.
    """
    _check_actor(actor)
    faults = faults_of(values)
    network = reach_of(tenant.network)
    if not faults:
        try:
            check_url(values["issuer"], network=network)
            if values["enabled"]:
                forget()
                discover(values["issuer"], network=network)
        except ProviderUnusable as error:
            faults.append(FieldError("/issuer", "identity_provider_unusable", error.detail))
    if faults:
        raise InvalidInput(faults)

    def work() -> Provider:
        found = Provider.objects.select_for_update().filter(tenant=tenant).first()
        if found is not None and expect is not None and found.revision not in expect:
            raise Stale("The identity provider has changed since; read it again.")
        before = {name: getattr(found, name) for name in SHOWN} if found is not None else None
        if found is None:
            found = Provider(tenant=tenant, created_at=now, updated_at=now, **values)
            found.save(force_insert=True)
        else:
            for name, value in values.items():
                setattr(found, name, value)
            found.revision += 1
            found.updated_at = now
            found.save(update_fields=[*values, "revision", "updated_at"])
        if secret is not None:
            _keep(secret, tenant, now)
        after = {name: getattr(found, name) for name in SHOWN}
        after["client_secret"] = "kept" if secret is None else "changed"
        record(
            actor=actor, action="provider.update", object_type="provider", object_id=found.pk, now=now,
            tenant_id=tenant.pk, before=before, after=after,
        )  # fmt: skip
        found.tenant = tenant
        return found

    made = in_tenant(tenant, work)
    forget()
    return made


def provider_delete(
    *, tenant: Tenant, actor: Actor, now: datetime, expect: Collection[int] | None = None
) -> None:  # fmt: skip
    """Takes the provider away; sessions that it opened go on, members stay. NotFound, Forbidden, Stale."""
    _check_actor(actor)

    def work() -> None:
        found = Provider.objects.select_for_update().filter(tenant=tenant).first()
        if found is None:
            raise NotFound("There is no identity provider.")
        if expect is not None and found.revision not in expect:
            raise Stale("The identity provider has changed since; read it again.")
        before = {name: getattr(found, name) for name in SHOWN}
        record(
            actor=actor, action="provider.delete", object_type="provider", object_id=found.pk, now=now,
            tenant_id=tenant.pk, before=before,
        )  # fmt: skip
        Secret.objects.filter(name=SECRET_NAME).delete()
        found.delete()

    in_tenant(tenant, work)


def client_secret(tenant: Tenant) -> str:
    """What the client proves itself with; empty for a public client. KeyUnknown, SecretUnreadable."""

    def work() -> str:
        row = Secret.objects.select_related("data_key").filter(name=SECRET_NAME).first()
        return "" if row is None else value_of(row, tenant_id=tenant.pk)

    return in_tenant(tenant, work)


def has_secret(tenant: Tenant) -> bool:
    """Whether the client has a secret."""
    return in_tenant(tenant, lambda: Secret.objects.filter(name=SECRET_NAME).exists())


def faults_of(values: Mapping[str, Any]) -> list[FieldError]:
    """What is wrong with domains, roles and the claim."""
    faults = []
    domains, roles = values["domains"], values["roles"]
    for number, domain in enumerate(domains):
        if not _DOMAIN.fullmatch(domain) or len(domain) > 253:
            faults.append(FieldError(f"/domains/{number}", "format", "must be a domain such as example.com."))
    if len(domains) > MAX_DOMAINS:
        faults.append(FieldError("/domains", "too_many", f"has {len(domains)} domains; {MAX_DOMAINS} are allowed."))
    if len(roles) > MAX_ROLES:
        faults.append(FieldError("/roles", "too_many", f"has {len(roles)} values; {MAX_ROLES} are allowed."))
    for value, role in roles.items():
        if role not in ROLES:
            faults.append(FieldError(f"/roles/{value}", "choice", f"must be one of {', '.join(ROLES)}."))
    if values["default_role"] not in ("", *ROLES):
        faults.append(FieldError("/default_role", "choice", f"must be one of {', '.join(ROLES)}, or null."))
    if roles and not values["role_claim"]:
        faults.append(FieldError("/role_claim", "required", "Name the claim whose values give roles."))
    if (values["default_role"] or roles) and not domains:
        detail = "Name the domains whose people may come without an invitation."
        faults.append(FieldError("/domains", "required", detail))
    return faults


def _keep(secret: str, tenant: Tenant, now: datetime) -> None:
    """The client's secret, sealed; an empty one is none."""
    row = Secret.objects.select_for_update().filter(name=SECRET_NAME).first()
    if not secret:
        if row is not None:
            row.delete()
        return
    if row is None:
        row = Secret(name=SECRET_NAME, purpose=Secret.Purpose.SEALED, created_at=now, updated_at=now)
        put_value(row, secret, tenant_id=tenant.pk, now=now)
        row.save(force_insert=True)
        return
    row.version += 1
    row.updated_at = now
    put_value(row, secret, tenant_id=tenant.pk, now=now)
    row.save(update_fields=["version", "data_key", "nonce", "ciphertext", "updated_at", "value_set_at"])


def _check_actor(actor: Actor) -> None:
    if not may_grant(actor, role="admin", scopes=None):
        raise Forbidden("Who gets in is for an admin without scopes to say.", code="grant_too_high")
