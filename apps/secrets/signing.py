"""What signs a tenant's outgoing calls: one secret, or for a while two, so that receivers can change over."""

from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db.models import F, Q, QuerySet

from apps.audit.services import Actor, record
from apps.secrets.models import Secret
from apps.secrets.store import put_value
from kernel.errors import FieldError, InvalidInput
from kernel.ids import uuid7
from kernel.webhooksign import BadSigningSecret, hmac_key, new_hmac_secret
from tenants.models import Tenant
from tenants.work import in_tenant

OVERLAP = timedelta(days=1)
OVERLAP_MAX = timedelta(days=30)


@dataclass(frozen=True, slots=True)
class Rotated:
    """The new secret; `text` is shown once, for the receivers."""

    secret: Secret
    text: str


def signing_secrets(*, now: datetime) -> "QuerySet[Secret]":
    """The rows that sign now, newest first; in the tenant's schema. At most two."""
    alive = Q(expires_at=None) | Q(expires_at__gt=now)
    return Secret.objects.filter(alive, purpose=Secret.Purpose.SIGNING).order_by("-pk")


def signing_rotate(
    *, tenant: Tenant, actor: Actor, now: datetime, overlap: timedelta = OVERLAP, text: str | None = None
) -> Rotated:  # fmt: skip
    """A new signing secret, `text` or one that is made here. Its forerunner signs as well until `overlap` is over.

    What was older than that stops signing at once, so that never more than two do. InvalidInput.
    """
    if text is not None:
        try:
            hmac_key(text)
        except BadSigningSecret as error:
            raise InvalidInput([FieldError("/signing_secret", "bad_secret", str(error))]) from None
    chosen = text or new_hmac_secret()

    def work() -> Secret:
        list(Tenant.objects.select_for_update(no_key=True).filter(pk=tenant.pk).values_list("pk"))  # one at a time
        old = Secret.objects.filter(purpose=Secret.Purpose.SIGNING)
        old.exclude(expires_at=None).delete()
        if overlap > timedelta(0):
            old.update(expires_at=now + overlap, updated_at=now)
        else:
            old.delete()
        made = Secret(purpose=Secret.Purpose.SIGNING, created_at=now, updated_at=now)
        made.pk = uuid7()
        made.name = f"@sign.{made.pk.hex}"
        put_value(made, chosen, tenant_id=tenant.pk, now=now)
        made.save(force_insert=True)
        Tenant.objects.filter(pk=tenant.pk).update(signing_version=F("signing_version") + 1)
        record(
            actor=actor, action="signing.rotate", object_type="signing_secret", object_id=made.pk, now=now,
            tenant_id=tenant.pk, after={"overlap_s": int(overlap.total_seconds())},
        )  # fmt: skip
        return made

    return Rotated(in_tenant(tenant, work), chosen)
