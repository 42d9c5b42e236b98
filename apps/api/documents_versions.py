"""Versions of jobs and schedules as OpenAPI shows them."""

from typing import ClassVar

from rest_framework import serializers

from apps.api.documents import Example, Serializer, nullable
from apps.api.documents_jobs import ConcurrencyKeyAnswer, JobAnswer, RateLimitAnswer, RetryAnswer
from apps.api.documents_schedules import ScheduleAnswer

_SCHEDULE_MEMBERS = (
    "name", "labels", "external_id", "id", "version", "status", "paused_reason", "paused_at", "resume_at", "next_at",
    "problem", "last_at", "created_at", "updated_at",
)  # fmt: skip


class JobVersionAnswer(Serializer):
    """A definition that a job has or had; executions name theirs in `job_version`."""

    EXAMPLE: ClassVar[Example] = {
        name: JobAnswer.EXAMPLE[name]
        for name in (
            "version",
            "target",
            "payload",
            "timeout_s",
            "retry",
            "priority",
            "concurrency_key",
            "rate_limit",
        )
    }

    version = serializers.IntegerField()
    target = serializers.DictField()
    payload = serializers.JSONField()
    timeout_s = serializers.IntegerField()
    max_queue_age_s = nullable(serializers.IntegerField)
    total_timeout_s = nullable(serializers.IntegerField)
    retry = RetryAnswer()
    priority = serializers.IntegerField()
    max_concurrency = nullable(serializers.IntegerField)
    concurrency_key = ConcurrencyKeyAnswer(allow_null=True)
    rate_limit = RateLimitAnswer(allow_null=True)
    queue = nullable(serializers.CharField)
    created_at = serializers.DateTimeField()


def _schedule_version() -> type[Serializer]:
    """What of a schedule's answer is of its version."""
    members = {name: field for name, field in ScheduleAnswer._declared_fields.items() if name not in _SCHEDULE_MEMBERS}
    doc = "A definition that a schedule has or had; executions name theirs in `schedule_version`."
    example = {name: value for name, value in ScheduleAnswer.EXAMPLE.items() if name in members or name == "version"}
    own = {
        "version": serializers.IntegerField(), "created_at": serializers.DateTimeField(),
        "decides_after": nullable(
            serializers.DateTimeField, help_text="Its occurrences are later than this; null: not known."
        ),
        "decides_until": nullable(
            serializers.DateTimeField, help_text="And not later than this; null: until the next version."
        ),
        "ended_by": nullable(
            serializers.CharField, help_text="What stopped it: paused, job_paused, deleted or completed."
        ),
        "__doc__": doc, "EXAMPLE": {**example, "ended_by": "paused"},
    }  # fmt: skip
    return type("ScheduleVersionAnswer", (Serializer,), {**members, **own})


ScheduleVersionAnswer = _schedule_version()
