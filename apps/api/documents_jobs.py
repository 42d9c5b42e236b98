"""The bodies and answers of jobs."""

from typing import Any, ClassVar

from rest_framework import serializers

from apps.api.documents import Example, Serializer, label, labels, nullable, optional, replacement
from apps.schedules import job_input
from apps.schedules.job_input import KINDS
from kernel import limitrules

TARGET_TEXT = (
    "http: url, method, headers, body, success_status, success_if, redirects, connect_timeout_s, auth, completion;"
    " URL, headers and body may hold templates such as {{ payload.id }}. python: task, soft_timeout_s. pull: what your"
    " workers read, or delivery, url, exchange, routing_key, queue, stream, max_length, headers, finish_on."
    " container: image, command, args, environment, payload_as, cpu, memory_mb, pids, scratch_mb, network,"
    " working_dir, user, exit_codes."
)


class RetryInput(Serializer):
    """When a failed attempt is tried again."""

    EXAMPLE: ClassVar[Example] = {"max_attempts": 5, "base_s": 2, "max_s": 600}

    max_attempts = serializers.IntegerField(min_value=1, max_value=100, required=False, help_text="All tries. 3.")
    backoff = serializers.ChoiceField(["exponential", "fixed"], required=False)
    base_s = serializers.FloatField(min_value=0, max_value=86_400, required=False)
    factor = serializers.FloatField(min_value=1, max_value=100, required=False)
    max_s = serializers.FloatField(min_value=0, max_value=86_400, required=False)
    jitter = serializers.ChoiceField(["none", "full", "equal"], required=False)
    retry_on = serializers.ListField(
        child=serializers.CharField(max_length=80), max_length=50, required=False,
        help_text='Outcomes, error classes or statuses such as "timed_out", "connect_failed", "http_503", "http_5xx"; '
        "for Python tasks also exceptions; empty is all.",
    )  # fmt: skip
    never_on = serializers.ListField(child=serializers.CharField(max_length=80), max_length=50, required=False)


class ConcurrencyKeyInput(Serializer):
    """How many runs at once for each value of a label or of a place in the payload: give one of the two."""

    EXAMPLE: ClassVar[Example] = {"payload": "/customer/id", "max": 1}

    label = optional(serializers.CharField, max_length=63, help_text="Name of a label of the job, schedule or run.")
    payload = optional(
        serializers.CharField,
        max_length=limitrules.POINTER_CHARS,
        help_text="JSON pointer into the payload (RFC 6901).",
    )
    max = optional(
        serializers.IntegerField, min_value=1, max_value=limitrules.KEY_MAX, help_text="Runs at once of each value. 1."
    )


class RateLimitInput(Serializer):
    """How many runs start in a time, as a token bucket: what is more waits, nothing is dropped."""

    EXAMPLE: ClassVar[Example] = {"runs": 100, "per_s": 60, "burst": 10}

    runs = serializers.IntegerField(
        min_value=1, max_value=limitrules.RATE_RUNS_MAX, required=False, help_text="Starts in `per_s` seconds."
    )
    per_s = serializers.IntegerField(min_value=1, max_value=limitrules.RATE_PER_S_MAX, required=False)
    burst = optional(
        serializers.IntegerField, min_value=1, max_value=limitrules.RATE_BURST_MAX,
        help_text="Starts at once after a pause. A tenth of `runs`, at least 1.",
    )  # fmt: skip


class JobChange(Serializer):
    """What of a job can be changed."""

    EXAMPLE: ClassVar[Example] = {"timeout_s": 120, "labels": {"team": "reports"}}

    name = serializers.CharField(max_length=200, required=False)
    target = serializers.DictField(
        required=False,
        help_text=TARGET_TEXT,
    )
    payload = serializers.JSONField(required=False, help_text="Any JSON; sent to the target.")
    timeout_s = optional(
        serializers.IntegerField, min_value=1, max_value=28_800,
        help_text="Of one attempt. 60. At most 900 for an http job whose result is the answer itself.",
    )  # fmt: skip
    max_queue_age_s = optional(
        serializers.IntegerField, min_value=1, max_value=job_input.MAX_QUEUE_AGE_S,
        help_text="A run that has not started so many seconds after it was due expires; null is no limit.",
    )  # fmt: skip
    total_timeout_s = optional(
        serializers.IntegerField, min_value=1, max_value=job_input.MAX_TOTAL_TIMEOUT_S,
        help_text="From the first start over all attempts and waits; at least timeout_s; null is no limit.",
    )  # fmt: skip
    retry = RetryInput(required=False, allow_null=True)
    priority = optional(serializers.IntegerField, min_value=0, max_value=9, help_text="9 is first. 5.")
    max_concurrency = optional(
        serializers.IntegerField, min_value=1, max_value=100_000, help_text="Runs at the same time; null is no limit."
    )
    concurrency_key = ConcurrencyKeyInput(
        required=False, allow_null=True, help_text="Runs at the same time for each value, as one for each customer."
    )
    rate_limit = RateLimitInput(required=False, allow_null=True, help_text="Starts in a time; null is no limit.")
    labels = optional(serializers.DictField, child=label(null=True), help_text="null removes one.")
    external_id = optional(serializers.CharField, max_length=200, help_text="Your own id; unique among jobs.")
    kind = optional(serializers.ChoiceField, choices=list(KINDS), help_text="It can't change.")
    queue = optional(
        serializers.CharField, max_length=80, help_text="Where the runs of kind pull wait; other kinds have none."
    )


class JobInput(JobChange):
    """A job as its owner writes it."""

    EXAMPLE: ClassVar[Example] = {
        "name": "nightly report", "kind": "http", "target": {"url": "https://example.com/report", "method": "POST"},
        "payload": {"format": "pdf"}, "timeout_s": 60, "retry": RetryInput.EXAMPLE, "labels": {"team": "billing"},
        "concurrency_key": ConcurrencyKeyInput.EXAMPLE, "rate_limit": RateLimitInput.EXAMPLE,
    }  # fmt: skip

    name = serializers.CharField(max_length=200)
    kind = serializers.ChoiceField(list(KINDS))
    labels = optional(serializers.DictField, child=label())
    target = serializers.DictField(
        required=False, help_text=f"{TARGET_TEXT} Only kind pull needs none."
    )  # fmt: skip


JobReplacement = replacement("JobReplacement", JobInput, job_input.READ_ONLY)


class RetryAnswer(Serializer):
    """A complete retry policy."""

    EXAMPLE: ClassVar[Example] = {
        "max_attempts": 5, "backoff": "exponential", "base_s": 2.0, "factor": 2.0, "max_s": 600.0, "jitter": "full",
        "retry_on": [], "never_on": [],
    }  # fmt: skip

    max_attempts = serializers.IntegerField()
    backoff = serializers.ChoiceField(["exponential", "fixed"])
    base_s = serializers.FloatField()
    factor = serializers.FloatField()
    max_s = serializers.FloatField()
    jitter = serializers.ChoiceField(["none", "full", "equal"])
    retry_on = serializers.ListField(child=serializers.CharField())
    never_on = serializers.ListField(child=serializers.CharField())


class ConcurrencyKeyAnswer(Serializer):
    """A complete concurrency key: it has a label or a pointer into the payload."""

    EXAMPLE: ClassVar[Example] = ConcurrencyKeyInput.EXAMPLE

    label: Any = serializers.CharField(required=False)
    payload = serializers.CharField(required=False)
    max = serializers.IntegerField()


class RateLimitAnswer(Serializer):
    """A complete rate limit."""

    EXAMPLE: ClassVar[Example] = RateLimitInput.EXAMPLE

    runs = serializers.IntegerField()
    per_s = serializers.IntegerField()
    burst = serializers.IntegerField()


class JobAnswer(Serializer):
    """A job."""

    EXAMPLE: ClassVar[Example] = {
        **JobInput.EXAMPLE, "retry": RetryAnswer.EXAMPLE, "priority": 5, "version": 1,
        "target": {"url": "https://example.com/report", "method": "POST", "headers": {}},
    }  # fmt: skip

    id = serializers.UUIDField()
    name = serializers.CharField()
    kind = serializers.ChoiceField(list(KINDS))
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
    labels = labels()
    external_id = nullable(serializers.CharField)
    version = serializers.IntegerField(help_text="Of the definition; executions name theirs.")
    status = serializers.ChoiceField(["active", "paused"])
    paused_at = nullable(serializers.DateTimeField)
    paused_reason = nullable(serializers.CharField)
    created_at = serializers.DateTimeField()
    updated_at = serializers.DateTimeField()
