"""Secrets and the keys that encrypt them. Tenant schema."""

from django.db import models
from django.db.models import Q

from kernel.ids import uuid7


class DataKey(models.Model):
    """A tenant's data key, wrapped by a key-encryption key. One is in use; others wait for their secrets to move on."""

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    wrapped = models.BinaryField(help_text="Nonce and ciphertext of the 32-byte key.")
    kek_id = models.CharField(max_length=40, help_text="Which key of SECRETS_KEYS wraps it.")
    created_at = models.DateTimeField()
    retired_at = models.DateTimeField(null=True, help_text="Nothing new is encrypted with it from then on.")

    class Meta:
        constraints = [
            models.UniqueConstraint(
                models.Value(1), condition=Q(retired_at=None), name="secrets_one_data_key_is_in_use"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.pk} under {self.kek_id}"


class Secret(models.Model):
    """A named value, encrypted. Nothing but the worker decrypts it."""

    class Purpose(models.TextChoices):
        JOB = "job", "named by jobs"
        SIGNING = "signing", "signs the tenant's outgoing calls"
        SEALED = "sealed", "a credential that was written in a job itself"
        WEBHOOK = "webhook", "signs the deliveries of a webhook"

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    name = models.CharField(max_length=64)
    purpose = models.CharField(max_length=7, choices=Purpose.choices, default=Purpose.JOB)
    description = models.CharField(max_length=500, blank=True)
    data_key = models.ForeignKey(DataKey, on_delete=models.PROTECT, related_name="secrets", db_index=False)
    nonce = models.BinaryField()
    ciphertext = models.BinaryField()
    version = models.IntegerField(default=1, help_text="Grows with every new value.")
    revision = models.IntegerField(default=1, help_text="Grows with every change; the ETag.")
    created_at = models.DateTimeField()
    updated_at = models.DateTimeField()
    value_set_at = models.DateTimeField()
    last_used_at = models.DateTimeField(null=True, help_text="To the minute.")
    expires_at = models.DateTimeField(null=True, help_text="Of a signing secret that was replaced: signs until then.")

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["name"], name="secret_name_is_unique"),
            models.CheckConstraint(
                condition=Q(purpose__in=["job", "signing", "sealed", "webhook"]), name="secret_purpose_is_known"
            ),
            # Jobs can't name the platform's own: @ is in no name that a tenant may choose.
            models.CheckConstraint(
                condition=Q(purpose="job", name__regex=r"^[A-Za-z_][A-Za-z0-9_.-]{0,63}$")
                | Q(purpose__in=["signing", "sealed", "webhook"], name__regex=r"^@[a-z0-9.]+$"),
                name="secret_name_fits_its_purpose",
            ),
            models.CheckConstraint(condition=Q(version__gte=1), name="secret_version_counts_from_1"),
        ]

    def __str__(self) -> str:
        return self.name
