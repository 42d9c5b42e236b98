"""The append-only trail."""

from django.db import models


class AuditEvent(models.Model):
    """One effect or refused attempt, written in the transaction of its effect. Insert-only for the application."""

    at = models.DateTimeField()
    tenant_id = models.IntegerField(null=True)
    actor = models.CharField(max_length=200)
    action = models.CharField(max_length=80)
    object_type = models.CharField(max_length=40)
    object_id = models.CharField(max_length=64)
    allowed = models.BooleanField(default=True)
    before = models.JSONField(null=True)
    after = models.JSONField(null=True)
    reason = models.TextField(blank=True)
    request_id = models.CharField(max_length=64, blank=True)

    class Meta:
        indexes = [
            # reader: the audit pages and the API's list, newest first within a tenant
            models.Index(fields=["tenant_id", "-id"], name="audit_by_tenant"),
        ]

    def __str__(self) -> str:
        return f"{self.action} {self.object_type} {self.object_id}"
