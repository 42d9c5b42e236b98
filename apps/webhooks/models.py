"""Subscriptions to events. Tenant schema."""

from django.db import models
from django.db.models import Q

from kernel.ids import uuid7


class Webhook(models.Model):
    """Who is told of what. Its id is also that of the hidden job whose executions are its deliveries."""

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    url = models.CharField(max_length=4096)
    description = models.CharField(max_length=500, blank=True)
    types = models.JSONField(default=list, help_text='Types of events, or ["*"].')
    jobs = models.JSONField(default=list, help_text="Only events of these jobs; empty: of any.")
    schedules = models.JSONField(default=list, help_text="Only events of these schedules; empty: of any.")
    labels = models.JSONField(default=dict, help_text="Only events of what has all of these labels.")
    revision = models.IntegerField(default=1, help_text="Grows with every change; the ETag.")
    enabled = models.BooleanField(default=True)
    disabled_at = models.DateTimeField(null=True)
    disabled_reason = models.CharField(max_length=500, blank=True)
    failing_since = models.DateTimeField(null=True, help_text="No attempt has succeeded since; null while all is well.")
    failures = models.IntegerField(default=0, help_text="Failed attempts since then.")
    last_error = models.CharField(max_length=500, blank=True)
    last_success_at = models.DateTimeField(null=True, help_text="To the minute.")
    secret = models.CharField(max_length=64, help_text="Name of what signs (apps.secrets).")
    former_secret = models.CharField(max_length=64, blank=True, help_text="Signs as well until former_until.")
    former_until = models.DateTimeField(null=True)
    cursor_tx = models.BigIntegerField(help_text="Events up to (cursor_tx, cursor_id) are carried out.")
    cursor_id = models.UUIDField()
    generation = models.IntegerField(default=0, help_text="Grows when everything is sent once more; in the run keys.")
    replay = models.CharField(max_length=7, blank=True, help_text="How events up to replay_until are sent once more.")
    replay_tx = models.BigIntegerField(null=True)
    replay_id = models.UUIDField(null=True)
    created_at = models.DateTimeField()
    updated_at = models.DateTimeField()
    deleted_at = models.DateTimeField(null=True, help_text="Kept while its deliveries are.")

    class Meta:
        constraints = [
            models.CheckConstraint(condition=Q(replay__in=["", "missing", "all"]), name="webhook_replay_is_known"),
            models.CheckConstraint(
                condition=Q(replay="", replay_tx=None, replay_id=None)
                | Q(~Q(replay=""), replay_tx__isnull=False, replay_id__isnull=False),
                name="webhook_replay_has_end",
            ),
            models.CheckConstraint(condition=Q(enabled=False) | Q(deleted_at=None), name="webhook_deleted_is_disabled"),
            models.CheckConstraint(
                condition=Q(former_secret="", former_until=None) | Q(~Q(former_secret=""), former_until__isnull=False),
                name="webhook_former_secret_has_end",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.pk} {', '.join(self.types)}"
