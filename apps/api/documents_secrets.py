"""Secrets as OpenAPI shows them. No answer holds a value."""

from typing import ClassVar

from rest_framework import serializers

from apps.api.documents import Example, Serializer, nullable, optional, replacement
from apps.secrets.services import MAX_DESCRIPTION_CHARS
from apps.secrets.signing import OVERLAP_MAX
from kernel.secretrules import NAME_PATTERN

READ_ONLY = ("id", "name", "version", "value_set_at", "last_used_at", "created_at", "updated_at")


class SecretChange(Serializer):
    """What of a secret can be changed. Its name can't: jobs hold it."""

    EXAMPLE: ClassVar[Example] = {"value": "correct horse battery staple"}

    value = serializers.CharField(required=False, help_text="At most 32,768 bytes. Taken, and never shown.")
    description = optional(serializers.CharField, max_length=MAX_DESCRIPTION_CHARS)


class SecretInput(SecretChange):
    """A secret that jobs can name."""

    EXAMPLE: ClassVar[Example] = {
        "name": "REPORT_TOKEN",
        "value": "correct horse battery staple",
        "description": "of the report server",
    }

    name = serializers.RegexField(f"^{NAME_PATTERN}$", help_text="Letters, digits and _ . -")
    value = serializers.CharField(help_text="At most 32,768 bytes. Taken, and never shown.")


class SecretWhole(SecretChange):
    value = serializers.CharField(help_text="The new value.")


SecretReplacement = replacement("SecretReplacement", SecretWhole, READ_ONLY)


class SecretAnswer(Serializer):
    """A secret; its value can't be read."""

    EXAMPLE: ClassVar[Example] = {"name": "REPORT_TOKEN", "description": "of the report server", "version": 1}

    id = serializers.UUIDField()
    name = serializers.CharField()
    description = nullable(serializers.CharField)
    version = serializers.IntegerField(help_text="Grows with every new value.")
    value_set_at = serializers.DateTimeField()
    last_used_at = nullable(serializers.DateTimeField, help_text="To the minute.")
    created_at = serializers.DateTimeField()
    updated_at = serializers.DateTimeField()


class SigningRotateInput(Serializer):
    """How to change over."""

    EXAMPLE: ClassVar[Example] = {"overlap_s": 3600}

    overlap_s = optional(
        serializers.IntegerField, min_value=0, max_value=int(OVERLAP_MAX.total_seconds()),
        help_text="So long the former secret signs as well. 86400",
    )  # fmt: skip
    signing_secret = optional(serializers.CharField, help_text="whsec_..., instead of one that is made here.")


class SigningAnswer(Serializer):
    """A secret that signs the tenant's outgoing calls; its text can't be read."""

    id = serializers.UUIDField()
    created_at = serializers.DateTimeField()
    expires_at = nullable(serializers.DateTimeField, help_text="It was replaced, and signs until then.")


class NewSigningAnswer(SigningAnswer):
    """A new signing secret with its text, which is shown only this once."""

    EXAMPLE: ClassVar[Example] = {"signing_secret": "whsec_..."}

    signing_secret = nullable(serializers.CharField, help_text="Null when the answer is replayed: it is not kept.")
