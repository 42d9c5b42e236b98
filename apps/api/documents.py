"""The bodies and answers as OpenAPI shows them. They describe; the services decide, and the tests compare both."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from rest_framework import serializers

from apps.schedules import job_input, schedule_input
from apps.schedules.job_input import KINDS
from apps.schedules.timing_spec import CHOICES, MAX_NUMBERS

Serializer = serializers.Serializer[Any]
Example = Mapping[str, Any]  # members as they may look; openapi_examples says what becomes of it
TARGET_TEXT = (
    "http: url, method, headers, body, success_status, success_if, redirects, connect_timeout_s, auth, completion;"
    " URL, headers and body may hold templates such as {{ payload.id }}. python: task, soft_timeout_s. pull: what your"
    " workers read, or delivery, url, exchange, routing_key, queue, stream, max_length, headers, finish_on."
    " container: image, command, args, environment, payload_as, cpu, memory_mb, pids, scratch_mb, network,"
    " working_dir, user, exit_codes."
)


def nullable(field: type[serializers.Field[Any, Any, Any, Any]], **options: Any) -> Any:
    """A member that answers always carry, and that may be null."""
    return field(allow_null=True, **options)


def optional(field: type[serializers.Field[Any, Any, Any, Any]], **options: Any) -> Any:
    """A member that a body may leave out or set to null: then it has its default."""
    return field(required=False, allow_null=True, **options)


def wall_time(text: str) -> Any:
    """A time that may come without an offset."""
    return optional(
        serializers.CharField, max_length=40, help_text=f"{text} RFC 3339; without an offset in `timezone`."
    )


def label(*, null: bool = False) -> Any:
    """A label's text; in a merge patch null removes one."""
    return serializers.CharField(max_length=200, allow_blank=True, allow_null=null)


def replacement(name: str, whole: type[Serializer], read_only: Sequence[str]) -> type[Serializer]:
    """What PUT takes: an answer that was changed may be sent back, with what only answers carry."""
    ignored = {one: serializers.JSONField(required=False, help_text="Ignored.") for one in read_only}
    return type(name, (whole,), {**ignored, "__doc__": "All of it; what is missing takes its default."})


def labels() -> Any:
    return serializers.DictField(child=label())


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
    labels = optional(serializers.DictField, child=label(null=True), help_text="null removes one.")
    external_id = optional(serializers.CharField, max_length=200, help_text="Your own id; unique among jobs.")
    kind = optional(serializers.ChoiceField, choices=list(KINDS), help_text="It can't change.")
    queue = optional(serializers.CharField, max_length=80, help_text="Of kind pull: where its runs wait.")


class JobInput(JobChange):
    """A job as its owner writes it."""

    EXAMPLE: ClassVar[Example] = {
        "name": "nightly report", "kind": "http", "target": {"url": "https://example.com/report", "method": "POST"},
        "payload": {"format": "pdf"}, "timeout_s": 60, "retry": RetryInput.EXAMPLE, "labels": {"team": "billing"},
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
    queue = nullable(serializers.CharField)
    labels = labels()
    external_id = nullable(serializers.CharField)
    version = serializers.IntegerField(help_text="Of the definition; executions name theirs.")
    status = serializers.ChoiceField(["active", "paused"])
    paused_at = nullable(serializers.DateTimeField)
    paused_reason = nullable(serializers.CharField)
    created_at = serializers.DateTimeField()
    updated_at = serializers.DateTimeField()


class TimingInput(Serializer):
    """When a schedule runs."""

    EXAMPLE: ClassVar[Example] = {"trigger": {"cron": "0 3 * * *"}, "timezone": "Europe/Berlin"}

    trigger = serializers.DictField(
        help_text='{"cron": "0 3 * * *"} or a list, {"every_s": 300, "anchor"?: time}, {"every": {"months": 1}}, '
        '{"at": time} or {"rrule": "FREQ=MONTHLY;BYDAY=-1FR", "dtstart"?, "rdate"?, "exdate"?}'
    )
    timezone = optional(serializers.CharField, help_text="Such as Europe/Berlin. UTC.")
    start_at = wall_time("The first instant that counts.")
    end_at = wall_time("The last instant that counts.")
    jitter_s = optional(serializers.IntegerField, min_value=0, max_value=MAX_NUMBERS["jitter_s"])
    misfire = optional(serializers.ChoiceField, choices=list(CHOICES["misfire"]), help_text="fire_once")
    grace_s = optional(serializers.IntegerField, min_value=0, max_value=MAX_NUMBERS["grace_s"], help_text="60")
    misfire_max = optional(serializers.IntegerField, min_value=1, max_value=MAX_NUMBERS["misfire_max"])
    misfire_max_age_s = optional(
        serializers.IntegerField, min_value=1, max_value=MAX_NUMBERS["misfire_max_age_s"],
        help_text="Missed runs that are older are not made up for.",
    )  # fmt: skip
    misfire_order = optional(serializers.ChoiceField, choices=list(CHOICES["misfire_order"]), help_text="oldest")
    catch_up_per_s = optional(
        serializers.FloatField, min_value=0.001, max_value=MAX_NUMBERS["catch_up_per_s"],
        help_text="Missed runs are made up for at this rate; all at once.",
    )  # fmt: skip
    overlap = optional(serializers.ChoiceField, choices=list(CHOICES["overlap"]), help_text="allow")
    overlap_max = optional(
        serializers.IntegerField, min_value=1, max_value=MAX_NUMBERS["overlap_max"],
        help_text="How many runs wait under buffer_all. 10",
    )  # fmt: skip
    max_runs = optional(
        serializers.IntegerField, min_value=1, max_value=MAX_NUMBERS["max_runs"],
        help_text="The schedule is completed after so many occurrences.",
    )  # fmt: skip
    windows = optional(
        serializers.ListField, child=serializers.DictField(), min_length=1, max_length=20,
        help_text='[{"from": "08:00", "to": "18:00", "days": ["mon", "fri"]}], in the schedule\'s zone.',
    )  # fmt: skip
    outside = optional(serializers.ChoiceField, choices=list(CHOICES["outside"]), help_text="Of the windows. skip")
    calendar = optional(serializers.CharField, max_length=200, help_text="Id or name of a calendar of excluded days.")
    on_excluded = optional(serializers.ChoiceField, choices=list(CHOICES["on_excluded"]), help_text="skip")
    dst_gap = optional(serializers.ChoiceField, choices=list(CHOICES["dst_gap"]), help_text="run_after")
    dst_fold = optional(serializers.ChoiceField, choices=list(CHOICES["dst_fold"]), help_text="first")


class ScheduleInput(TimingInput):
    """A schedule as its owner writes it."""

    EXAMPLE: ClassVar[Example] = {**TimingInput.EXAMPLE, "name": "nightly report", "labels": {"team": "billing"}}

    name = serializers.CharField(max_length=200)
    job = serializers.UUIDField()
    pause_after_failures = optional(
        serializers.IntegerField, min_value=1, max_value=schedule_input.FAILURES_MAX,
        help_text="Paused when so many runs in a row have died.",
    )  # fmt: skip
    probe_after_s = optional(
        serializers.IntegerField, min_value=schedule_input.PROBE_MIN_S, max_value=schedule_input.PROBE_MAX_S,
        help_text="Then tried again after so many seconds.",
    )  # fmt: skip
    max_queue_age_s = optional(
        serializers.IntegerField, min_value=1, max_value=job_input.MAX_QUEUE_AGE_S, help_text="Instead of the job's."
    )
    payload = serializers.JSONField(required=False, help_text="Instead of the job's.")
    labels = optional(serializers.DictField, child=label())
    external_id = optional(serializers.CharField, max_length=200, help_text="Your own id; unique among schedules.")


class ScheduleChange(ScheduleInput):
    """What of a schedule can be changed."""

    EXAMPLE: ClassVar[Example] = {"trigger": {"cron": "30 3 * * mon-fri"}}

    name = serializers.CharField(max_length=200, required=False)
    job = serializers.UUIDField(required=False)
    trigger = serializers.DictField(required=False)
    labels = optional(serializers.DictField, child=label(null=True), help_text="null removes one.")


class ScheduleAnswer(Serializer):
    """A schedule."""

    EXAMPLE: ClassVar[Example] = {
        **ScheduleInput.EXAMPLE, "jitter_s": 0, "misfire": "fire_once", "grace_s": 60, "overlap": "allow",
        "dst_gap": "run_after", "dst_fold": "first", "outside": "skip", "on_excluded": "skip", "overlap_max": 10,
        "status": "active", "version": 1, "next_at": "2027-03-02T02:00:00Z",
    }  # fmt: skip

    id = serializers.UUIDField()
    name = serializers.CharField()
    job = serializers.UUIDField()
    trigger = serializers.DictField()
    timezone = serializers.CharField()
    start_at = nullable(serializers.CharField, help_text="As it was given.")
    end_at = nullable(serializers.CharField, help_text="As it was given.")
    jitter_s = serializers.IntegerField()
    misfire = serializers.ChoiceField(list(CHOICES["misfire"]))
    grace_s = serializers.IntegerField()
    misfire_max = serializers.IntegerField()
    misfire_max_age_s = nullable(serializers.IntegerField)
    misfire_order = serializers.ChoiceField(list(CHOICES["misfire_order"]))
    catch_up_per_s = nullable(serializers.FloatField)
    overlap = serializers.ChoiceField(list(CHOICES["overlap"]))
    overlap_max = serializers.IntegerField()
    max_runs = nullable(serializers.IntegerField)
    windows = nullable(serializers.ListField, child=serializers.DictField())
    outside = serializers.ChoiceField(list(CHOICES["outside"]))
    calendar = nullable(serializers.UUIDField)
    on_excluded = serializers.ChoiceField(list(CHOICES["on_excluded"]))
    pause_after_failures = nullable(serializers.IntegerField)
    probe_after_s = nullable(serializers.IntegerField)
    max_queue_age_s = nullable(serializers.IntegerField, help_text="Null: what the job says.")
    dst_gap = serializers.ChoiceField(list(CHOICES["dst_gap"]))
    dst_fold = serializers.ChoiceField(list(CHOICES["dst_fold"]))
    payload = serializers.JSONField()
    labels = labels()
    external_id = nullable(serializers.CharField)
    version = serializers.IntegerField()
    status = serializers.ChoiceField(["active", "paused", "completed"])
    paused_reason = nullable(serializers.CharField)
    paused_at = nullable(serializers.DateTimeField)
    resume_at = nullable(serializers.DateTimeField, help_text="It goes on by itself then.")
    next_at = nullable(serializers.DateTimeField, help_text="Actual instant of the next run.")
    problem = nullable(
        serializers.CharField, help_text="Why it is not run although it is active; write its trigger again to mend it."
    )
    last_at = nullable(serializers.DateTimeField, help_text="Actual instant of the newest occurrence that was fired.")
    created_at = serializers.DateTimeField()
    updated_at = serializers.DateTimeField()


ScheduleReplacement = replacement("ScheduleReplacement", ScheduleInput, schedule_input.READ_ONLY)


class PreviewRange(Serializer):
    """How much of a schedule's future to show."""

    EXAMPLE: ClassVar[Example] = {"count": 1}

    after = wall_time("Later than this; now.")
    until = wall_time("Up to this, inclusive.")
    count = optional(serializers.IntegerField, min_value=1, max_value=1000, help_text="5; with until 1000.")
    previous = optional(serializers.IntegerField, min_value=0, max_value=100, help_text="So many earlier ones too. 0")


class PreviewInput(ScheduleInput, PreviewRange):
    """A schedule that is not saved, and how much of its future to show."""

    EXAMPLE: ClassVar[Example] = {**TimingInput.EXAMPLE, "count": 1}

    name = optional(serializers.CharField, max_length=200)
    job = optional(serializers.UUIDField)


class PreviewAsk(TimingInput, PreviewRange):
    """How much of a schedule's future to show; with members of a schedule also what it would be like with them."""

    EXAMPLE: ClassVar[Example] = {"trigger": {"cron": "30 3 * * mon-fri"}, "count": 1}

    trigger = serializers.DictField(required=False)


class OccurrenceAnswer(Serializer):
    """One line of a preview."""

    EXAMPLE: ClassVar[Example] = {
        "nominal_local": "2027-03-02T03:00:00+01:00", "nominal_at": "2027-03-02T02:00:00Z",
        "at": "2027-03-02T02:00:00Z", "flags": [], "words": [],
    }  # fmt: skip

    nominal_local = serializers.CharField(help_text="What the trigger says, in the schedule's zone.")
    nominal_at = serializers.DateTimeField(help_text="The same in UTC.")
    at = serializers.DateTimeField(help_text="When it would run.")
    flags = serializers.ListField(child=serializers.CharField())
    words = serializers.ListField(child=serializers.CharField(), help_text="The flags in words.")


class LeftOutAnswer(Serializer):
    """What the trigger says and does not run."""

    EXAMPLE: ClassVar[Example] = {
        "nominal_local": "2027-03-02T03:00:00+01:00", "nominal_at": "2027-03-02T02:00:00Z", "flags": ["excluded"],
        "words": ["left out: an excluded day"],
    }  # fmt: skip

    nominal_local = serializers.CharField()
    nominal_at = serializers.DateTimeField()
    flags = serializers.ListField(child=serializers.CharField())
    words = serializers.ListField(child=serializers.CharField())


class ForecastAnswer(Serializer):
    """The coming runs of a schedule."""

    EXAMPLE: ClassVar[Example] = {
        "occurrences": [OccurrenceAnswer.EXAMPLE], "previous": [], "left_out": [],
        "description": "at 03:00 every day", "notes": [],
    }  # fmt: skip

    occurrences = OccurrenceAnswer(many=True)
    previous = OccurrenceAnswer(many=True)
    left_out = LeftOutAnswer(many=True, help_text="In the same time: excluded, outside of windows, skipped.")
    description = serializers.CharField()
    notes = serializers.ListField(child=serializers.CharField(), help_text="What may surprise.")


class DifferenceAnswer(Serializer):
    """Instants that a change would add to and take from the same stretch of time."""

    EXAMPLE: ClassVar[Example] = {"added": [OccurrenceAnswer.EXAMPLE], "removed": [], "kept": 5, "until": None}

    added = OccurrenceAnswer(many=True)
    removed = OccurrenceAnswer(many=True)
    kept = serializers.IntegerField()
    until = nullable(serializers.DateTimeField, help_text="Compared up to here.")


class PreviewAnswer(ForecastAnswer):
    """The coming runs; when a change was given, as it would be then, with what is so now and the difference."""

    current = ForecastAnswer(required=False)
    difference = DifferenceAnswer(required=False)
