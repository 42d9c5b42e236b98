"""Circuit breakers as OpenAPI shows them."""

from typing import ClassVar

from rest_framework import serializers

from apps.api.documents import Example, Serializer, nullable
from apps.tickets.models import BREAKER_STATES


class BreakerAnswer(Serializer):
    """A destination whose calls failed often; while it is open, HTTP runs to it wait."""

    EXAMPLE: ClassVar[Example] = {
        "destination": "example.com:443", "state": "open", "failures": 20, "openings": 1,
        "reason": "connect_failed: the connection was refused", "retry_at": "2027-03-01T08:00:30Z",
    }  # fmt: skip

    id = serializers.UUIDField()
    destination = serializers.CharField(help_text="host:port")
    state = serializers.ChoiceField(list(BREAKER_STATES))
    failures = serializers.IntegerField(help_text="Failed calls when it opened.")
    openings = serializers.IntegerField(help_text="In a row; each makes it stay open for longer.")
    reason = serializers.CharField(help_text="The last failure.")
    opened_at = serializers.DateTimeField()
    retry_at = nullable(serializers.DateTimeField, help_text="When one call may try; null unless it is open.")
    changed_at = serializers.DateTimeField()
