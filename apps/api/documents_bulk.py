"""The bodies and answers of bulk operations as OpenAPI shows them."""

from functools import cache
from typing import Any, ClassVar

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from apps.api.documents import Example, Serializer, nullable, optional
from apps.api.documents_jobs import JobInput
from apps.api.documents_runs import SubmitInput
from apps.api.documents_schedules import ScheduleInput
from apps.api.openapi_examples import ID
from apps.schedules.batches import MAX_ITEMS


@extend_schema_field({"oneOf": [{"$ref": "#/components/schemas/Problem"}, {"type": "null"}]})
class ProblemField(serializers.JSONField):
    """A problem document, or null."""


class BulkItemAnswer(Serializer):
    """What became of one item."""

    EXAMPLE: ClassVar[Example] = {"index": 0, "status": 201, "id": ID, "problem": None}

    index = serializers.IntegerField(help_text="Its place among the items, from 0.")
    status = serializers.IntegerField(help_text="What it would have been answered with alone.")
    id = nullable(serializers.UUIDField, help_text="Of what was made; null when it was refused.")
    problem = ProblemField(help_text="Why it was refused; pointers are into the item.")


class BulkAnswer(Serializer):
    """A result for each item, in the order in which they were sent."""

    EXAMPLE: ClassVar[Example] = {"items": [BulkItemAnswer.EXAMPLE], "succeeded": 1, "refused": 0}

    items = BulkItemAnswer(many=True)
    succeeded = serializers.IntegerField()
    refused = serializers.IntegerField()


@cache  # lint: allow memory-has-a-bound: one for each operation
def bulk_input(item: type[Serializer], name: str) -> type[Serializer]:
    """The body of a bulk operation."""
    members: dict[str, Any] = {
        "items": serializers.ListField(child=item(), min_length=1, max_length=MAX_ITEMS),
        "atomic": optional(
            serializers.BooleanField, help_text="All or nothing: one that is refused refuses all (422)."
        ),
        "__doc__": "Many at a time.",
    }
    return type(name, (serializers.Serializer,), members)


JobsBulkInput = bulk_input(JobInput, "JobsBulkInput")
SchedulesBulkInput = bulk_input(ScheduleInput, "SchedulesBulkInput")
ExecutionsBulkInput = bulk_input(SubmitInput, "ExecutionsBulkInput")
