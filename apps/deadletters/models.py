"""Dead letters of a tenant."""

from django.db import models
from django.db.models import Q

from kernel.ids import uuid7


class DeadLetter(models.Model):
    """An execution that used up its retries or can't be retried. Open until replayed or resolved."""

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    execution_id = models.UUIDField()
    job_id = models.UUIDField()
    schedule_id = models.UUIDField(null=True)
    fingerprint = models.CharField(max_length=64, help_text="Class, status, host and normalised message, hashed.")
    error = models.JSONField()
    attempts = models.IntegerField()
    created_at = models.DateTimeField()
    resolved_at = models.DateTimeField(null=True)
    resolution = models.CharField(max_length=10, blank=True)
    note = models.CharField(max_length=1000, blank=True)
    resolved_by = models.CharField(max_length=200, blank=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["execution_id"], condition=Q(resolved_at=None), name="deadletter_one_open_per_execution"
            ),
            models.CheckConstraint(
                condition=Q(resolution__in=["", "replayed", "resolved"]), name="deadletter_resolution_is_known"
            ),
            models.CheckConstraint(
                condition=Q(resolution="", resolved_at=None) | Q(~Q(resolution=""), resolved_at__isnull=False),
                name="deadletter_resolution_has_time",
            ),
        ]
        indexes = [
            # reader: the open list and its groups
            models.Index(fields=["fingerprint", "id"], condition=Q(resolved_at=None), name="deadletter_open"),
            # readers: the open list, newest first; the lists of a job, a schedule and an execution
            models.Index(fields=["id"], condition=Q(resolved_at=None), name="deadletter_open_newest"),
            models.Index(fields=["job_id", "id"], name="deadletter_by_job"),
            models.Index(
                fields=["schedule_id", "id"], condition=Q(schedule_id__isnull=False), name="deadletter_by_schedule"
            ),
            models.Index(fields=["execution_id", "id"], name="deadletter_by_execution"),
        ]

    def __str__(self) -> str:
        return f"{self.execution_id} {self.fingerprint[:12]}"
