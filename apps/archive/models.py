"""What must be kept whatever its age. Tenant schema."""

from django.db import models
from django.db.models import F, Q

from kernel.ids import uuid7

SCOPES = ("tenant", "job", "schedule", "workflow", "execution")


class LegalHold(models.Model):
    """While it is open nothing of what it names is deleted, from the tables or from archives. Never changed but once,
    when it is released."""

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    scope = models.CharField(max_length=9)
    object_id = models.UUIDField(null=True, help_text="The job, schedule, workflow or execution; null: the tenant.")
    from_at = models.DateTimeField(null=True, help_text="Only executions that were made at this instant or later.")
    until_at = models.DateTimeField(null=True, help_text="Only executions that were made before.")
    reason = models.CharField(max_length=500)
    by_operator = models.BooleanField(default=False, help_text="Then only an operator can release it.")
    created_by = models.CharField(max_length=200)
    created_at = models.DateTimeField()
    released_at = models.DateTimeField(null=True)
    released_by = models.CharField(max_length=200, blank=True, default="")
    released_reason = models.CharField(max_length=500, blank=True, default="")

    class Meta:
        constraints = [
            models.CheckConstraint(condition=Q(scope__in=SCOPES), name="hold_scope_is_known"),
            models.CheckConstraint(
                condition=Q(scope="tenant", object_id=None) | Q(~Q(scope="tenant"), object_id__isnull=False),
                name="hold_names_its_object",
            ),
            models.CheckConstraint(
                condition=Q(from_at=None) | Q(until_at=None) | Q(from_at__lt=F("until_at")), name="hold_range_is_one"
            ),
            models.CheckConstraint(
                condition=Q(released_at=None, released_by="") | Q(~Q(released_by=""), released_at__isnull=False),
                name="hold_released_by_somebody",
            ),
        ]
        indexes = [
            # readers: everything that deletes
            models.Index(fields=["id"], condition=Q(released_at=None), name="hold_open"),
        ]

    def __str__(self) -> str:
        return f"{self.scope} {self.object_id or ''}".strip()
