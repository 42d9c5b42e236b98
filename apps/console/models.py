"""What the console keeps for itself, and the permissions of its roles. Shared schema."""

from django.db import models


class Level(models.Model):
    """No table: what an operator may do in the console, as permissions that groups can hold (`roles.py`)."""

    class Meta:
        managed = False
        default_permissions = ()
        permissions = (
            ("view", "May look at the console's pages"),
            ("respond", "May retry, cancel, and pause one tenant"),
            ("operate", "May do it in bulk, run backfills and change quotas"),
            ("platform", "May move leases, drain machines and pause all"),
            ("audit", "May export the audit trail and verify its chains"),
        )

    def __str__(self) -> str:
        return "level"
