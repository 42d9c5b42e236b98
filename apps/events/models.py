"""The outbox of a tenant. Written and read by `store.py`, in SQL. Tenant schema."""

from django.db import models


class Event(models.Model):
    """Something that happened. Never changed; forgotten with the plan's retention."""

    id = models.UUIDField(primary_key=True)
    tx = models.BigIntegerField(help_text="Transaction that wrote it (xid8): the first part of the order.")
    type = models.CharField(max_length=40)
    at = models.DateTimeField()
    job_id = models.UUIDField(null=True)
    schedule_id = models.UUIDField(null=True)
    execution_id = models.UUIDField(null=True)
    data = models.JSONField()

    class Meta:
        indexes = [
            # readers: GET /events and the fan-out, in order from a position on
            models.Index(fields=["tx", "id"], name="event_order"),
        ]

    def __str__(self) -> str:
        return f"{self.type} {self.id}"
