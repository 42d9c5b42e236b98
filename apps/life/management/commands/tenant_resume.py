"""Lets a suspended tenant go on."""

from apps.life.status_command import StatusCommand
from apps.life.suspending import tenant_resume
from tenants.models import Tenant


class Command(StatusCommand):
    help = "Let a suspended tenant go on, with the next occurrences of its schedules and all that waited."
    becomes = Tenant.Status.ACTIVE
    change = staticmethod(tenant_resume)
    name = "command:tenant_resume"
