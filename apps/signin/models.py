"""A tenant's identity provider, and which of its subjects are which members. Shared schema.

The client's secret is a sealed row of apps.secrets in the tenant's schema.
"""

from django.db import models
from django.db.models import Q

from tenants.models import Member, Tenant
from tenants.permissions import ROLES


class Provider(models.Model):
    """How a tenant's people sign in with their company's login."""

    tenant = models.OneToOneField(Tenant, on_delete=models.CASCADE, related_name="identity_provider")
    enabled = models.BooleanField(default=False)
    issuer = models.CharField(max_length=500)
    client_id = models.CharField(max_length=255)
    domains = models.JSONField(default=list, help_text="Domains of e-mails that are believed; none: known people only.")
    default_role = models.CharField(
        max_length=10, blank=True, help_text="Of who comes first; empty: by invitation only."
    )
    role_claim = models.CharField(max_length=100, blank=True, help_text="Claim whose values give roles.")
    roles = models.JSONField(default=dict, help_text="Role by value of the claim.")
    revision = models.IntegerField(default=1, help_text="Grows with every change; the ETag.")
    created_at = models.DateTimeField()
    updated_at = models.DateTimeField()

    class Meta:
        constraints = [
            models.CheckConstraint(condition=Q(default_role__in=["", *ROLES]), name="provider_role_is_known"),
        ]

    def __str__(self) -> str:
        return self.issuer


class Identity(models.Model):
    """A subject of an issuer is a member: for good, whatever becomes of its e-mail."""

    member = models.ForeignKey(Member, on_delete=models.CASCADE, related_name="identities")
    tenant = models.ForeignKey(Tenant, on_delete=models.CASCADE, related_name="+")
    issuer = models.CharField(max_length=500)
    subject = models.CharField(max_length=255)
    created_at = models.DateTimeField()

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["tenant", "issuer", "subject"], name="identity_is_one_member"),
            models.UniqueConstraint(fields=["member", "issuer"], name="identity_one_per_member_and_issuer"),
        ]

    def __str__(self) -> str:
        return f"{self.subject} of {self.issuer}"
