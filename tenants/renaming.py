"""Giving a tenant another slug, name or host. What is kept of it hangs on its number and its schema, which stay.

Own queues are named by the slug. Workers listen to the new ones within seconds; what was queued on the old ones goes
back to ready once nobody listens there and is released anew, and what runs goes on. Old hosts go on leading to the
tenant unless they are given up.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.conf import settings
from django.db import IntegrityError

from apps.audit.services import Actor, record
from kernel.errors import Conflict, FieldError, InvalidInput
from kernel.pools import CELERY_POOLS
from tenants import door
from tenants.models import Domain, Tenant
from tenants.provisioning import check_slug, host_for, queue_for
from tenants.registry import CHANNEL
from tenants.work import atomically

NAME_CHARS = 200
HOST = re.compile(r"(?=.{1,253}$)[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?(?:\.[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?)*")


@dataclass(frozen=True, slots=True)
class Renamed:
    """How a tenant is called now, and before: the same when nothing was to be changed."""

    tenant: Tenant
    before: dict[str, Any]
    after: dict[str, Any]

    @property
    def queues(self) -> list[tuple[str, str]]:
        """Its queues whose names are others now: before and after."""
        pairs = zip(self.before["queues"], self.after["queues"], strict=True)
        return [(old, new) for old, new in pairs if old != new]


def tenant_rename(
    *, tenant: Tenant, actor: Actor, now: datetime, slug: str | None = None, name: str | None = None,
    host: str | None = None, keep_hosts: bool = True, reason: str = "",
) -> Renamed:  # fmt: skip
    """Changes what is given; asked again, nothing. With a new slug a host that was made of the old one follows it.

    InvalidInput for what can't be a slug, name or host; Conflict when slug or host are another tenant's, or the tenant
    is being deleted.
    """
    _check(slug, name, host)

    def work() -> Renamed:
        rows = Tenant.objects.select_for_update(of=("self",)).select_related("plan")
        found: Tenant | None = rows.filter(pk=tenant.pk).first()
        if found is None or found.status in (Tenant.Status.PROVISIONING, Tenant.Status.DELETING):
            raise Conflict(f"The tenant is {'gone' if found is None else found.status}.", code="tenant_not_active")
        before = _shown(found)
        wanted = host or _following(before, found.slug, slug)
        found.slug, found.name = slug or found.slug, found.name if name is None else name
        found.save(update_fields=["slug", "name"])
        _lead(found, wanted, keep_hosts=keep_hosts)
        after = _shown(found)
        if after != before:
            door.raw().execute("SELECT pg_notify(%s, '')", [CHANNEL])
            changed = [key for key in after if after[key] != before[key]]
            record(
                actor=actor, action="tenant.rename", object_type="tenant", object_id=found.pk, now=now,
                tenant_id=found.pk, reason=reason, before={key: before[key] for key in changed},
                after={key: after[key] for key in changed},
            )  # fmt: skip
        return Renamed(found, before, after)

    try:
        return atomically(work)
    except IntegrityError as error:
        raise Conflict("That slug or host is another tenant's.", code="name_taken") from error


def hosts_of(tenant: Tenant) -> list[str]:
    """The hosts that lead to a tenant, the one that it is shown under first."""
    rows = Domain.objects.filter(tenant=tenant).order_by("-is_primary", "domain")
    return list(rows.values_list("domain", flat=True))


def _check(slug: str | None, name: str | None, host: str | None) -> None:
    if slug is not None:
        check_slug(slug)
    if name is not None and not 1 <= len(name) <= NAME_CHARS:
        raise InvalidInput([FieldError("/name", "length", f"has 1 to {NAME_CHARS} characters.")])
    if host is not None and (not HOST.fullmatch(host) or host in settings.PUBLIC_HOSTS):
        detail = "is no host name of a tenant: such as acme.example.com, in small letters, without a port."
        raise InvalidInput([FieldError("/host", "invalid_host", detail)])


def _following(before: dict[str, Any], old: str, slug: str | None) -> str | None:
    return host_for(slug) if slug and slug != old and before["hosts"][:1] == [host_for(old)] else None


def _lead(tenant: Tenant, host: str | None, *, keep_hosts: bool) -> None:
    """The tenant is shown under this host from now on, if one is given."""
    known = Domain.objects.filter(tenant=tenant)
    if host is not None and not known.filter(domain=host, is_primary=True).exists():
        known.filter(is_primary=True).update(is_primary=False)
        if not known.filter(domain=host).update(is_primary=True):
            Domain.objects.bulk_create([Domain(tenant=tenant, domain=host, is_primary=True)])
    if not keep_hosts:
        known.filter(is_primary=False).delete()


def _shown(tenant: Tenant) -> dict[str, Any]:
    queues: Sequence[str] = [queue_for(tenant, pool) for pool in CELERY_POOLS]
    return {"slug": tenant.slug, "name": tenant.name, "hosts": hosts_of(tenant), "queues": queues}
