"""Making a tenant with its first key, in one transaction with its row of the trail."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from django.db import transaction

from apps.audit.services import Actor, record
from kernel.errors import Conflict
from tenants.keys import apikey_create
from tenants.models import Plan, Tenant
from tenants.provisioning import tenant_create
from tenants.renaming import hosts_of


@dataclass(frozen=True, slots=True)
class Opened:
    """A tenant; the text of its first key is there only when it was made just now."""

    tenant: Tenant
    host: str
    api_key: str | None


def tenant_open(
    *, slug: str, plan: Plan, host: str, actor: Actor, now: datetime, name: str = "", network: Iterable[str] = (),
    if_missing: bool = False,
) -> Opened:  # fmt: skip
    """Makes a tenant, all of it or nothing. With `if_missing` one that is there under this slug and host is enough.

    InvalidInput; Conflict when slug or host are taken.
    """
    found: Tenant | None = Tenant.objects.select_related("plan").filter(slug=slug).first() if if_missing else None
    if found is not None:
        if host not in hosts_of(found):
            raise Conflict(f"There is already a tenant {slug!r}, and {host!r} does not lead to it.")
        return Opened(found, host, None)
    with transaction.atomic():
        made = tenant_create(slug=slug, name=name, plan=plan, host=host, network=network)
        _, text = apikey_create(tenant=made, name="first key", created_by=actor.stored)
        record(
            actor=actor, action="tenant.create", object_type="tenant", object_id=made.pk, now=now, tenant_id=made.pk,
            after={"slug": slug, "name": made.name, "plan": plan.name, "host": host, "schema": made.schema_name},
        )  # fmt: skip
    return Opened(made, host, text)
