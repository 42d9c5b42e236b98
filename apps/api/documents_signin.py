"""The identity provider as OpenAPI shows it. No answer holds the client's secret."""

from typing import ClassVar

from rest_framework import serializers

from apps.api.documents import Example, Serializer, nullable, optional
from tenants.permissions import ROLES

READ_ONLY = ("has_client_secret", "created_at", "updated_at")


class ProviderInput(Serializer):
    """How to sign in with a provider of OpenID Connect."""

    EXAMPLE: ClassVar[Example] = {
        "enabled": False, "issuer": "https://login.example.com", "client_id": "shardbeat",
        "client_secret": "correct horse battery staple", "domains": ["example.com"], "default_role": "viewer",
        "role_claim": "groups", "roles": {"platform-team": "operator"},
    }  # fmt: skip

    enabled = serializers.BooleanField(required=False, help_text="false")
    issuer = serializers.CharField(max_length=500, help_text="Exactly as the provider names itself.")
    client_id = serializers.CharField(max_length=255)
    client_secret = optional(
        serializers.CharField, max_length=2000, allow_blank=True,
        help_text="Null or missing: the one that there is. Empty: none. Taken, and never shown.",
    )  # fmt: skip
    domains = serializers.ListField(
        child=serializers.CharField(), required=False, allow_null=True,
        help_text="Domains of verified e-mails that are believed the first time somebody comes.",
    )  # fmt: skip
    default_role = serializers.ChoiceField(
        list(ROLES), required=False, allow_null=True, help_text="Of who comes without an invitation; null: nobody may."
    )
    role_claim = optional(serializers.CharField, max_length=100, help_text="Claim of the ID token that gives roles.")
    roles = serializers.DictField(
        child=serializers.ChoiceField(list(ROLES)), required=False, allow_null=True,
        help_text="Role by value of the claim; the highest counts, at every login.",
    )  # fmt: skip
    has_client_secret = serializers.BooleanField(required=False, help_text="Ignored.")
    created_at = serializers.DateTimeField(required=False, help_text="Ignored.")
    updated_at = serializers.DateTimeField(required=False, help_text="Ignored.")


class ProviderAnswer(Serializer):
    """The identity provider."""

    EXAMPLE: ClassVar[Example] = {
        "enabled": False, "issuer": "https://login.example.com", "client_id": "shardbeat", "has_client_secret": True,
        "domains": ["example.com"], "default_role": "viewer", "role_claim": "groups",
        "roles": {"platform-team": "operator"},
    }  # fmt: skip

    enabled = serializers.BooleanField()
    issuer = serializers.CharField()
    client_id = serializers.CharField()
    has_client_secret = serializers.BooleanField()
    domains = serializers.ListField(child=serializers.CharField())
    default_role = serializers.ChoiceField(list(ROLES), allow_null=True)
    role_claim = nullable(serializers.CharField)
    roles = serializers.DictField(child=serializers.ChoiceField(list(ROLES)))
    created_at = serializers.DateTimeField()
    updated_at = serializers.DateTimeField()
