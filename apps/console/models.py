"""What the console keeps for itself, and the permissions of its roles. Shared schema."""

from django.conf import settings
from django.db import models
from django.db.models.functions import Lower


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


class Assignment(models.Model):
    """Which operator sees to the failures of one cause in a tenant. Written by `assigning.py`."""

    pk = models.CompositePrimaryKey("tenant_id", "fingerprint")
    tenant_id = models.IntegerField()
    fingerprint = models.CharField(max_length=64)
    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE)
    assigned_at = models.DateTimeField()

    class Meta:
        indexes = [
            # reader: a cause over all tenants
            models.Index(fields=["fingerprint"], name="assignment_of_cause"),
        ]

    def __str__(self) -> str:
        return f"{self.tenant_id} {self.fingerprint[:12]}"


class Snapshot(models.Model):
    """How the platform stood a moment ago, for all who look: one row. Read and written by `snapshot.store`, in SQL."""

    id = models.SmallIntegerField(primary_key=True, default=1)
    number = models.BigIntegerField(default=0, help_text="How many have been made.")
    made_at = models.DateTimeField()
    took_ms = models.IntegerField()
    body = models.TextField(help_text="JSON: see snapshot.store.")

    class Meta:
        default_permissions = ()
        constraints = [models.CheckConstraint(condition=models.Q(id=1), name="snapshot_is_one_row")]

    def __str__(self) -> str:
        return f"{self.number} at {self.made_at:%Y-%m-%dT%H:%M:%SZ}"


class SavedView(models.Model):
    """A page with its filters that an operator goes back to (`saved.py`)."""

    owner = models.ForeignKey("auth.User", on_delete=models.CASCADE, related_name="+")
    name = models.CharField(max_length=80)
    url = models.CharField(max_length=2000, help_text="Path and query of a page of operators.")
    shared = models.BooleanField(default=False, help_text="All operators see it.")
    created_at = models.DateTimeField()

    class Meta:
        constraints = [
            # reader: an operator's own views
            models.UniqueConstraint("owner", Lower("name"), name="savedview_name_is_unique"),
        ]

    def __str__(self) -> str:
        return self.name
