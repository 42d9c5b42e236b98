"""Legal holds and erasure as OpenAPI shows them."""

from typing import ClassVar

from rest_framework import serializers

from apps.api.documents import Example, Serializer, nullable, optional
from apps.archive.models import SCOPES


class HoldInput(Serializer):
    """A new legal hold."""

    EXAMPLE: ClassVar[Example] = {"scope": "tenant", "reason": "Case 4711", "from_at": "2027-01-01T00:00:00Z"}

    scope = serializers.ChoiceField(list(SCOPES))
    object = optional(serializers.UUIDField, help_text="The job, schedule, workflow or execution; not of a tenant.")
    from_at = optional(serializers.DateTimeField, help_text="Only executions that were made at this time or later.")
    until_at = optional(serializers.DateTimeField, help_text="Only executions that were made before this.")
    reason = serializers.CharField(max_length=500)


class HoldAnswer(Serializer):
    """A legal hold: while it is open nothing of what it names is deleted."""

    EXAMPLE: ClassVar[Example] = {
        "scope": "tenant", "object": None, "reason": "Case 4711", "created_by": "key:counsel (admin)",
        "by_operator": False, "released_at": None, "released_by": None, "released_reason": None,
    }  # fmt: skip

    id = serializers.UUIDField()
    scope = serializers.ChoiceField(list(SCOPES))
    object = nullable(serializers.UUIDField)
    from_at = nullable(serializers.DateTimeField)
    until_at = nullable(serializers.DateTimeField)
    reason = serializers.CharField()
    by_operator = serializers.BooleanField(help_text="An operator placed it, and only one can release it.")
    created_by = serializers.CharField()
    created_at = serializers.DateTimeField()
    released_at = nullable(serializers.DateTimeField, help_text="Null: it is open.")
    released_by = nullable(serializers.CharField)
    released_reason = nullable(serializers.CharField)


class HoldReleaseInput(Serializer):
    """Why it is not needed any more."""

    EXAMPLE: ClassVar[Example] = {"reason": "Case 4711 is settled"}

    reason = serializers.CharField(max_length=500)


class EraseInput(Serializer):
    """Why, and how much."""

    EXAMPLE: ClassVar[Example] = {"reason": "Asked for by the customer"}

    reason = serializers.CharField(max_length=500)
    everything = optional(
        serializers.BooleanField,
        help_text="Also the run of a workflow that it is a step of, and what was run again of it.",
    )


class ErasureAnswer(Serializer):
    """What was erased with an execution."""

    EXAMPLE: ClassVar[Example] = {"reason": "Asked for by the customer", "done": True, "left": []}

    execution = serializers.UUIDField()
    erased_at = serializers.DateTimeField()
    reason = serializers.CharField()
    done = serializers.BooleanField(help_text="Nothing is left of them anywhere.")
    executions = serializers.ListField(
        child=serializers.UUIDField(), help_text="All that went with it, itself among them."
    )
    left = serializers.ListField(
        child=serializers.UUIDField(), help_text="Of these something is left; the platform goes on by itself."
    )
