"""What can be done to secrets. Each service is one transaction with its audit row, which never holds a value."""

from collections.abc import Collection
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db import IntegrityError
from psycopg import sql

from apps.audit.services import Actor, record
from apps.secrets.models import Secret
from apps.secrets.store import put_value
from kernel.errors import Conflict, FieldError, InvalidInput, NotFound, Stale
from kernel.secretrules import is_name
from tenants import door
from tenants.limits import make_room
from tenants.models import Tenant
from tenants.work import in_tenant

MAX_VALUE_BYTES = 32_768
MAX_SECRETS = 1_000
MAX_DESCRIPTION_CHARS = 500


def secret_create(
    *, tenant: Tenant, actor: Actor, name: str, value: str, now: datetime, description: str = ""
) -> Secret:  # fmt: skip
    """Makes a secret. InvalidInput; Conflict when the name is taken or there are MAX_SECRETS; QuotaExceeded."""
    faults = value_faults(value)
    if not is_name(name):
        detail = "A secret's name has 1 to 64 letters, digits and _ . - and begins with a letter or _."
        faults.append(FieldError("/name", "invalid_name", detail))
    if faults:
        raise InvalidInput(faults)

    def work() -> Secret:
        known = Secret.objects.filter(purpose=Secret.Purpose.JOB)
        if make_room(tenant, known, quota="max_secrets", what="secrets", bounded=True) >= MAX_SECRETS:
            raise Conflict(f"There are {MAX_SECRETS:,} secrets already; delete some.", code="too_many_secrets")
        made = Secret(name=name, description=description, created_at=now, updated_at=now)
        put_value(made, value, tenant_id=tenant.pk, now=now)
        made.save(force_insert=True)
        _record(actor, "secret.create", made, now, tenant, after={"name": name, "version": 1})
        return made

    try:
        return in_tenant(tenant, work)
    except IntegrityError as error:
        diagnostics = getattr(error.__cause__, "diag", None)
        if getattr(diagnostics, "constraint_name", None) != "secret_name_is_unique":
            raise
        raise Conflict("There is already a secret of this name.", code="name_taken") from None


def secret_change(
    *, tenant: Tenant, actor: Actor, secret_id: UUID, now: datetime, expect: Collection[int] | None = None,
    value: str | None = None, description: str | None = None,
) -> Secret:  # fmt: skip
    """Gives a secret another value, which is its next version, or description. None keeps. Stale, NotFound."""
    faults = [] if value is None else value_faults(value)
    if faults:
        raise InvalidInput(faults)

    def work() -> Secret:
        found = lock(secret_id, expect)
        before = {"description": found.description, "version": found.version}
        if value is not None:
            found.version += 1
            put_value(found, value, tenant_id=tenant.pk, now=now)
        if description is not None:
            found.description = description
        after = {"description": found.description, "version": found.version}
        if after != before:
            found.revision += 1
            found.updated_at = now
            found.save(
                update_fields=[
                    "version", "revision", "description", "data_key", "nonce", "ciphertext", "updated_at",
                    "value_set_at",
                ]
            )  # fmt: skip
            changed = [name for name in after if after[name] != before[name]]
            _record(
                actor, "secret.update", found, now, tenant, before={name: before[name] for name in changed},
                after={name: after[name] for name in changed},
            )  # fmt: skip
        return found

    return in_tenant(tenant, work)


def remove(secret: Secret, *, tenant: Tenant, actor: Actor, now: datetime) -> None:
    """Deletes the locked row, value and all. Whether a job still needs it is the caller's to know."""
    secret_id = secret.pk
    secret.delete()
    secret.pk = secret_id
    _record(actor, "secret.delete", secret, now, tenant, before={"name": secret.name})


def lock(secret_id: UUID, expect: Collection[int] | None) -> Secret:
    """The row of a secret that jobs may name, locked also against jobs that are about to. NotFound, Stale."""
    found = Secret.objects.select_for_update().filter(pk=secret_id, purpose=Secret.Purpose.JOB).first()
    if found is None:
        raise NotFound("There is no such secret.")
    if expect is not None and found.revision not in expect:
        raise Stale("The secret has changed since; read it again.")
    return found


def names_shared(tenant: Tenant, names: Collection[str]) -> set[str]:
    """Those of `names` that exist; none of them is deleted until this transaction ends."""
    if not names:
        return set()
    query = sql.SQL("SELECT name FROM {}.secrets_secret WHERE name = ANY(%s) ORDER BY id FOR KEY SHARE")
    rows = door.raw().execute(query.format(sql.Identifier(tenant.schema_name)), [sorted(names)])
    return {row[0] for row in rows}


def value_faults(value: str, pointer: str = "/value") -> list[FieldError]:
    """What is wrong with a value; nothing said of it repeats it."""
    if not value:
        return [FieldError(pointer, "empty", "A secret has a value.")]
    size = len(value.encode(errors="surrogatepass"))
    if size > MAX_VALUE_BYTES:
        return [FieldError(pointer, "too_large", f"has {size:,} bytes; {MAX_VALUE_BYTES:,} are allowed.")]
    if "\x00" in value or any("\ud800" <= char <= "\udfff" for char in value):
        return [FieldError(pointer, "invalid_character", "A text must not hold NUL or half a character.")]
    return []


def _record(actor: Actor, action: str, secret: Secret, now: datetime, tenant: Tenant, **more: Any) -> None:
    record(
        actor=actor, action=action, object_type="secret", object_id=secret.pk, now=now, tenant_id=tenant.pk, **more
    )  # fmt: skip
