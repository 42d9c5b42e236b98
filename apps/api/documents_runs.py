"""The bodies and answers of executions, dead letters and API keys as OpenAPI shows them."""

from typing import ClassVar

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from apps.api.documents import Example, Serializer, label, labels, nullable, optional
from apps.executions.models import TRIGGERS
from apps.schedules.job_input import MAX_QUEUE_AGE_S
from apps.workflows.dependencies.depending_input import CONDITIONS, MAX_PARENTS
from kernel.transitions import ATTEMPT_STATES, EXECUTION_STATES


@extend_schema_field(
    {
        "type": "array",
        "maxItems": MAX_PARENTS,
        "items": {
            "oneOf": [
                {"type": "string", "format": "uuid"},
                {
                    "type": "object",
                    "properties": {
                        "execution": {"type": "string", "format": "uuid"},
                        "on": {"type": ["string", "null"], "enum": [*CONDITIONS, None]},
                    },
                    "required": ["execution"],
                    "additionalProperties": False,
                },
            ]
        },
    }
)
class DependsOnField(serializers.ListField):
    """Ids of executions, or objects with `execution` and `on`."""


class SubmitInput(Serializer):
    """A wish for a run."""

    EXAMPLE: ClassVar[Example] = {"payload": {"format": "pdf"}, "delay_s": 60, "priority": 7}

    job = serializers.UUIDField()
    payload = serializers.JSONField(required=False, help_text="Instead of the job's.")
    run_at = optional(serializers.DateTimeField)
    delay_s = optional(serializers.IntegerField, min_value=0, max_value=366 * 86_400)
    priority = optional(serializers.IntegerField, min_value=0, max_value=9)
    max_queue_age_s = optional(
        serializers.IntegerField, min_value=1, max_value=MAX_QUEUE_AGE_S, help_text="Instead of the job's."
    )
    labels = optional(serializers.DictField, child=label())
    depends_on = optional(
        DependsOnField, help_text="Executions that have to end first: up to 100 ids, or objects with a condition each."
    )
    condition = optional(
        serializers.ChoiceField, choices=CONDITIONS,
        help_text="How those of depends_on have to end that say nothing of their own; succeeded by default.",
    )  # fmt: skip


class DependencyAnswer(Serializer):
    """An execution that another one depends on."""

    EXAMPLE: ClassVar[Example] = {"on": "succeeded", "met": None, "state": "running"}

    execution = serializers.UUIDField()
    on = serializers.ChoiceField(CONDITIONS)
    met = nullable(serializers.BooleanField, help_text="Null while it has not ended.")
    state = nullable(serializers.ChoiceField, choices=EXECUTION_STATES, help_text="Null when it is not kept any more.")


class ExecutionAnswer(Serializer):
    """An execution: its history and, while it is alive, its live state."""

    EXAMPLE: ClassVar[Example] = {
        "job_version": 1, "state": "scheduled", "trigger": "api", "priority": 7, "count": 1,
        "available_at": "2027-03-01T08:01:00Z", "actual_at": "2027-03-01T08:01:00Z", "attempt_count": 0, "labels": {},
        "fired_by": "key:nightly (editor)", "payload": {"format": "pdf"},
    }  # fmt: skip

    id = serializers.UUIDField()
    job = serializers.UUIDField()
    job_version = serializers.IntegerField()
    schedule = nullable(serializers.UUIDField)
    schedule_version = nullable(serializers.IntegerField)
    run_key = serializers.CharField(help_text="The same over retries, failover and replay.")
    state = serializers.ChoiceField(list(EXECUTION_STATES))
    trigger = serializers.ChoiceField(list(TRIGGERS))
    priority = serializers.IntegerField()
    nominal_at = nullable(serializers.DateTimeField)
    until_at = nullable(serializers.DateTimeField, help_text="Last instant of a row that stands for several.")
    count = serializers.IntegerField(help_text="Occurrences that this row stands for.")
    actual_at = serializers.DateTimeField(help_text="When it was or will be due.")
    available_at = nullable(serializers.DateTimeField, help_text="It does not start before; null when finished.")
    wait_reason = nullable(
        serializers.CharField,
        help_text='Why it waits for available_at ("retry", "returned", "breaker_open host:port") or, when it is due, '
        'which limit or pause of tenant, job, key or queue it waits for ("job_paused", "job_concurrency"); else null. '
        "/executions/{id}/explain tells all of it.",
    )
    start_by = nullable(
        serializers.DateTimeField,
        help_text="It does not start after: it expires, or between attempts is dead. Null without a limit, while it "
        "runs, and when finished.",
    )  # fmt: skip
    created_at = serializers.DateTimeField()
    queued_at = nullable(serializers.DateTimeField)
    started_at = nullable(serializers.DateTimeField, help_text="Start of the first attempt.")
    finished_at = nullable(serializers.DateTimeField)
    attempt_count = serializers.IntegerField()
    cancel_requested = serializers.BooleanField()
    progress = serializers.JSONField(help_text="What its worker or its task told last; null when it does not run.")
    result = serializers.JSONField()
    error = serializers.JSONField()
    reason = nullable(serializers.CharField, help_text="Why it was skipped, expired or cancelled.")
    replay_of = nullable(serializers.UUIDField)
    workflow_run = nullable(
        serializers.UUIDField, help_text="The run of a workflow that it is a step of; of a run that began its own id."
    )
    step = nullable(serializers.CharField, help_text="Of that run.")
    fired_by = serializers.CharField()
    labels = labels()
    archived = serializers.BooleanField(help_text="It has left the tables and was read from its archive.")
    erased_at = nullable(
        serializers.DateTimeField, help_text="Since then its payload, result, errors, labels and attempts are gone."
    )
    as_of = serializers.DateTimeField()
    payload = serializers.JSONField(required=False, help_text="Its own; only when read alone.")
    depends_on = DependencyAnswer(many=True, required=False, help_text="Only when read alone.")


class AttemptAnswer(Serializer):
    """One try of an execution."""

    EXAMPLE: ClassVar[Example] = {
        "number": 1,
        "state": "succeeded",
        "finished_at": "2027-03-01T08:00:02Z",
        "worker": None,
    }

    id = serializers.UUIDField()
    execution = serializers.UUIDField()
    number = serializers.IntegerField()
    state = serializers.ChoiceField(list(ATTEMPT_STATES))
    worker = nullable(serializers.UUIDField)
    started_at = serializers.DateTimeField()
    finished_at = nullable(serializers.DateTimeField)
    error = serializers.JSONField()
    retry_at = nullable(serializers.DateTimeField)


class DeadLetterAnswer(Serializer):
    """An execution that a person should look at."""

    EXAMPLE: ClassVar[Example] = {
        "status": "open", "fingerprint": "2f1c9d0a7b3e5864", "attempts": 5, "replays": 0,
        "error": {"class": "http", "status": 500, "message": "the answer was 500"},
    }  # fmt: skip

    id = serializers.UUIDField()
    execution = serializers.UUIDField()
    job = serializers.UUIDField()
    schedule = nullable(serializers.UUIDField)
    status = serializers.ChoiceField(["open", "replayed", "resolved"])
    fingerprint = serializers.CharField(help_text="The same for failures of one cause.")
    error = serializers.JSONField()
    attempts = serializers.IntegerField()
    replays = serializers.IntegerField(help_text="How often its work was replayed, this letter's own replay counted.")
    created_at = serializers.DateTimeField()
    resolved_at = nullable(serializers.DateTimeField)
    resolved_by = nullable(serializers.CharField)
    note = nullable(serializers.CharField)


class DeadLetterGroupAnswer(Serializer):
    """Open dead letters of one cause."""

    EXAMPLE: ClassVar[Example] = {
        "fingerprint": "2f1c9d0a7b3e5864", "count": 12, "count_is_exact": True,
        "error": {"class": "http", "status": 500, "message": "the answer was 500"},
        "oldest_at": "2027-03-01T08:00:00Z", "newest_at": "2027-03-01T09:10:00Z",
    }  # fmt: skip

    fingerprint = serializers.CharField()
    count = serializers.IntegerField(help_text="Counted up to 1,000.")
    count_is_exact = serializers.BooleanField()
    newest = serializers.UUIDField(help_text="The newest letter; `job` and `error` are its.")
    job = serializers.UUIDField()
    error = serializers.JSONField()
    oldest_at = serializers.DateTimeField()
    newest_at = serializers.DateTimeField()


class ReasonInput(Serializer):
    """Why."""

    EXAMPLE: ClassVar[Example] = {"reason": "maintenance"}

    reason = optional(serializers.CharField, max_length=500)


class NoInput(Serializer):
    """Nothing: no body, or an empty object."""

    EXAMPLE: ClassVar[Example] = {}


class RerunInput(Serializer):
    """With what to run again."""

    EXAMPLE: ClassVar[Example] = {"payload": {"format": "html"}}

    payload = serializers.JSONField(required=False, help_text="Instead of the one that it had; null: the job's.")


class ReplayInput(Serializer):
    """How to replay: with `payload` or `new_key` a new execution is made, else the same one is reopened."""

    EXAMPLE: ClassVar[Example] = {"payload": {"format": "html"}, "note": "fixed by the supplier"}

    payload = serializers.JSONField(required=False, help_text="Instead of the one that it had; null: the job's.")
    new_key = optional(
        serializers.BooleanField,
        help_text="As a new execution with a new run key: for a target that keeps its failure under the old one.",
    )
    force = optional(serializers.BooleanField, help_text="Also what was replayed three times and died again each time.")
    note = optional(serializers.CharField, max_length=1000)


class NoteInput(Serializer):
    """What was found."""

    EXAMPLE: ClassVar[Example] = {"note": "fixed by the supplier"}

    note = optional(serializers.CharField, max_length=1000)
