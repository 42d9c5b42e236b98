"""What the API itself remembers: answers to requests with an Idempotency-Key. Shared schema."""

from django.db import models


class IdempotentAnswer(models.Model):
    """The answer of one request, written in the transaction of its effect; kept 72 hours."""

    tenant_id = models.IntegerField()
    key = models.CharField(max_length=255)
    fingerprint = models.CharField(max_length=64, help_text="SHA-256 of method, path and body.")
    status = models.SmallIntegerField()
    headers = models.JSONField()
    body = models.TextField(help_text="JSON text; without what is shown only once.")
    created_at = models.DateTimeField()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["tenant_id", "key"], name="idempotent_answer_once_per_key")]
        indexes = [
            # reader: the removal of answers that are too old
            models.Index(fields=["created_at"], name="idempotent_answer_by_age"),
        ]

    def __str__(self) -> str:
        return f"{self.tenant_id} {self.key}"
