"""Stopping a tenant as a whole, and letting it go on. Pausing its dispatch alone is in `pausing`."""

from __future__ import annotations

from apps.console.roles import OPERATE
from apps.console.verbs.base import Ask, Line, Preview, Receipt, Step, Verb, version_of
from apps.console.verbs.pausing import known_tenant, tenant_named
from apps.console.verbs.registry import register
from apps.dispatch.reserves import overbooked
from apps.life.suspending import tenant_resume, tenant_suspend
from apps.presenting.shown import moment
from tenants import door
from tenants.models import Suspension, Tenant

ACTIVE, SUSPENDED = Tenant.Status.ACTIVE, Tenant.Status.SUSPENDED


@register
class SuspendTenant(Verb):
    """Nothing of it starts, and its keys and logins are refused; the target is its slug."""

    name, label, level, key, opposite = "tenant.suspend", "Suspend", OPERATE, "s", "tenant.unsuspend"
    stops = True

    def concerns(self, ask: Ask) -> Tenant | None:
        return known_tenant(ask.target)

    def look(self, ask: Ask) -> Preview:
        tenant = tenant_named(ask.target)
        wanted = SUSPENDED if self.stops else ACTIVE
        since = Suspension.objects.filter(tenant=tenant, ended_at=None).first()
        lines = [
            Line("Tenant", f"{tenant.slug}, {tenant.name}"),
            Line("Status", tenant.status, None if tenant.status == wanted else wanted),
            *([Line("Suspended", f"since {moment(since.began_at)} UTC: {since.reason or '-'}")] if since else []),
        ]
        warning = (
            "Nothing of it starts, and its keys and logins are refused. What runs goes on; what its schedules pass"
            " over is left out."
            if self.stops
            else "What waits of it has its time limits moved, and starts as far as limits and workers allow."
        )
        refused = "" if tenant.status in (ACTIVE, SUSPENDED) and tenant.status != wanted else f"It is {tenant.status}."
        return Preview(
            f"{self.label}: tenant {tenant.slug}", lines, version_of(tenant.status), [warning], refused,
            f"/admin/tenants/tenant/{tenant.pk}/change/",
        )  # fmt: skip

    def do(self, ask: Ask) -> Receipt:
        tenant, service = tenant_named(ask.target), tenant_suspend if self.stops else tenant_resume
        service(tenant=tenant, actor=ask.actor, now=ask.now, reason=ask.reason)
        return Receipt(
            f"{tenant.slug} is {'suspended' if self.stops else 'let go on'}.",
            f"/admin/tenants/tenant/{tenant.pk}/change/", Step(self.opposite, ask.target),
            lines=[] if self.stops else overbooked_lines(),
        )  # fmt: skip


@register
class UnsuspendTenant(SuspendTenant):
    """The way back."""

    name, label, opposite, stops = "tenant.unsuspend", "Let it go on", "tenant.suspend", False


def overbooked_lines() -> list[Line]:
    """Where more slots are reserved than there are workers for; nothing is refused, workers come and go."""
    return [Line("Reserved", str(one)) for one in overbooked(door.raw())]
