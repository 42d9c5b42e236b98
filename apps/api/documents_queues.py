"""The bodies and answers of pull queues and of results that come later, as OpenAPI shows them."""

from typing import ClassVar

from rest_framework import serializers

from apps.api.documents import Example, Serializer, nullable, optional
from apps.api.leases_read import ENDS, ITEMS_MAX
from apps.executions.models import TRIGGERS
from kernel.transitions import ATTEMPT_STATES, EXECUTION_STATES


class ConsumerAnswer(Serializer):
    """Who asked for work within the last hour, by the name that it gave itself."""

    EXAMPLE: ClassVar[Example] = {"name": "worker-1"}

    name = serializers.CharField()
    seen_at = serializers.DateTimeField(help_text="To some seconds.")


class QueueAnswer(Serializer):
    """A pull queue."""

    EXAMPLE: ClassVar[Example] = {"name": "invoices", "ready": 12, "running": 2, "oldest_at": "2027-03-01T07:59:30Z"}

    name = serializers.CharField()
    status = serializers.ChoiceField(["active", "paused"])
    paused_at = nullable(serializers.DateTimeField)
    paused_reason = nullable(serializers.CharField)
    ready = serializers.IntegerField(help_text="Waiting, also for their time or for others of their job.")
    running = serializers.IntegerField(help_text="Leased.")
    blocked = serializers.IntegerField()
    oldest_at = nullable(serializers.DateTimeField, help_text="Since when the oldest of those that are due waits.")
    consumers = ConsumerAnswer(many=True)
    created_at = serializers.DateTimeField()


class LeaseInput(Serializer):
    """A wish for work."""

    EXAMPLE: ClassVar[Example] = {"max": 10, "wait_s": 0, "lease_s": 60, "worker": "worker-1"}

    max = optional(serializers.IntegerField, min_value=1, max_value=100, help_text="1.")
    wait_s = optional(serializers.IntegerField, min_value=0, max_value=30, help_text="Wait so long for work. 0.")
    lease_s = optional(
        serializers.IntegerField, min_value=1, max_value=900, help_text="Until the first heartbeat, and from it on. 60."
    )
    worker = optional(serializers.CharField, max_length=100, help_text="Your worker's name, for people.")


class LeaseAnswer(Serializer):
    """A leased run."""

    EXAMPLE: ClassVar[Example] = {
        "attempt": 1, "job_name": "print invoices", "job_version": 1, "trigger": "api",
        "lease_until": "2027-03-01T08:01:00Z", "deadline": "2027-03-01T08:05:00Z", "payload": {"invoice": 4711},
        "target": {},
    }  # fmt: skip

    token = serializers.CharField(help_text="Names this attempt; keep it to yourself.")
    execution = serializers.UUIDField()
    run_key = serializers.CharField(help_text="The same over all attempts.")
    attempt = serializers.IntegerField()
    job = serializers.UUIDField()
    job_name = serializers.CharField()
    job_version = serializers.IntegerField()
    schedule = nullable(serializers.UUIDField)
    trigger = serializers.ChoiceField(list(TRIGGERS))
    nominal_at = nullable(serializers.DateTimeField)
    started_at = serializers.DateTimeField()
    lease_until = serializers.DateTimeField(help_text="Send a heartbeat before.")
    deadline = serializers.DateTimeField(help_text="The attempt's time-out; heartbeats do not move it.")
    payload = serializers.JSONField()
    target = serializers.DictField(help_text="The job's, for your worker to read.")


class LeaseListAnswer(Serializer):
    """What was leased; empty when nothing came in time."""

    items = LeaseAnswer(many=True)


class HeartbeatInput(Serializer):
    """Still at it."""

    EXAMPLE: ClassVar[Example] = {"lease_s": 60, "progress": {"pages": 3}}

    lease_s = optional(serializers.IntegerField, min_value=1, max_value=900, help_text="As before.")
    progress = serializers.JSONField(required=False, help_text="At most 2 KiB; shown with the execution.")


class AliveAnswer(Serializer):
    """How long the attempt may go on."""

    EXAMPLE: ClassVar[Example] = {"lease_until": "2027-03-01T08:01:00Z", "deadline": "2027-03-01T08:05:00Z"}

    cancel_requested = serializers.BooleanField(help_text="Stop, and say how it ended before lease_until.")
    lease_until = serializers.DateTimeField()
    deadline = serializers.DateTimeField()


class ResultInput(Serializer):
    """A result."""

    EXAMPLE: ClassVar[Example] = {"result": {"pages": 12}}

    result = serializers.JSONField(required=False, help_text="At most 64 KiB.")


class ErrorInput(Serializer):
    """What went wrong."""

    EXAMPLE: ClassVar[Example] = {"message": "the printer is out of paper", "class": "no_paper"}

    message = serializers.CharField(max_length=500)
    details = serializers.JSONField(required=False, help_text="At most 2 KiB.")

    def get_fields(self) -> dict[str, serializers.Field]:  # "class" is a word of Python's
        kind = serializers.CharField(max_length=100, required=False, allow_null=True, help_text="For retry policies.")
        return {**super().get_fields(), "class": kind}


class FailInput(Serializer):
    """An error."""

    EXAMPLE: ClassVar[Example] = {"error": ErrorInput.EXAMPLE, "retry_after_s": 60}

    error = ErrorInput()
    retryable = optional(serializers.BooleanField, help_text="false: never again, whatever the policy says.")
    retry_after_s = optional(serializers.IntegerField, min_value=0, max_value=86_400)


class ReleaseInput(Serializer):
    """Given back."""

    EXAMPLE: ClassVar[Example] = {"delay_s": 30}

    delay_s = optional(serializers.IntegerField, min_value=0, max_value=86_400, help_text="Not before.")


class SettledAnswer(Serializer):
    """What came of an attempt."""

    EXAMPLE: ClassVar[Example] = {"attempt": 1, "attempt_state": "succeeded", "execution_state": "succeeded"}

    execution = serializers.UUIDField()
    attempt = serializers.IntegerField()
    attempt_state = serializers.ChoiceField(list(ATTEMPT_STATES))
    execution_state = serializers.ChoiceField(list(EXECUTION_STATES))
    retry_at = nullable(serializers.DateTimeField)


class SettleItemInput(Serializer):
    """The end of one lease: its token, how it ended, and what belongs to that."""

    EXAMPLE: ClassVar[Example] = {"token": "sbl_...", "end": "complete", "result": {"pages": 12}}

    token = serializers.CharField()
    end = serializers.ChoiceField(list(ENDS), required=False, help_text="complete.")
    result = serializers.JSONField(required=False)
    error = ErrorInput(required=False)
    retryable = optional(serializers.BooleanField)
    retry_after_s = optional(serializers.IntegerField, min_value=0, max_value=86_400)
    delay_s = optional(serializers.IntegerField, min_value=0, max_value=86_400)


class SettleInput(Serializer):
    """The ends of many leases."""

    items = serializers.ListField(child=SettleItemInput(), min_length=1, max_length=ITEMS_MAX)


class FaultAnswer(Serializer):
    """One fault."""

    pointer = serializers.CharField(allow_blank=True)
    code = serializers.CharField()
    detail = serializers.CharField()


class SettleItemAnswer(Serializer):
    """What came of one, with the status and code that it would have had alone."""

    EXAMPLE: ClassVar[Example] = {
        **SettledAnswer.EXAMPLE, "status": 200, "code": None, "detail": None, "errors": [],
    }  # fmt: skip

    status = serializers.IntegerField()
    code = nullable(serializers.CharField)
    detail = nullable(serializers.CharField)
    execution = nullable(serializers.UUIDField)
    attempt = nullable(serializers.IntegerField)
    attempt_state = nullable(serializers.ChoiceField, choices=list(ATTEMPT_STATES))
    execution_state = nullable(serializers.ChoiceField, choices=list(EXECUTION_STATES))
    retry_at = nullable(serializers.DateTimeField)

    def get_fields(self) -> dict[str, serializers.Field]:  # "errors" is a member of serializers
        return {**super().get_fields(), "errors": FaultAnswer(many=True)}


class SettleListAnswer(Serializer):
    """In the order of the items."""

    items = SettleItemAnswer(many=True)


class CompletionAsk(Serializer):
    """A result, or an error when there is one."""

    EXAMPLE: ClassVar[Example] = {"token": "sbr_...", "result": {"pages": 12}}

    token = optional(serializers.CharField, help_text="With an API key; without, it is the bearer's.")
    result = serializers.JSONField(required=False, help_text="At most 64 KiB.")
    error = ErrorInput(required=False, allow_null=True)
    retryable = optional(serializers.BooleanField)
    retry_after_s = optional(serializers.IntegerField, min_value=0, max_value=86_400)


class CompletionBeat(HeartbeatInput):
    """Still at it."""

    EXAMPLE: ClassVar[Example] = {"token": "sbr_...", "progress": {"pages": 3}}

    token = optional(serializers.CharField, help_text="With an API key; without, it is the bearer's.")
