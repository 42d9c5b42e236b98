"""Suspends a tenant."""

from apps.life.status_command import StatusCommand
from apps.life.suspending import tenant_suspend
from tenants.models import Tenant


class Command(StatusCommand):
    help = (
        "Suspend a tenant: nothing of it fires or starts, what runs goes on to its end, and nothing is owed "
        "afterwards. Asked again, it changes nothing."
    )
    becomes = Tenant.Status.SUSPENDED
    change = staticmethod(tenant_suspend)
    name = "command:tenant_suspend"
