"""The bodies and answers of schedules."""

from typing import ClassVar

from rest_framework import serializers

from apps.api.documents import Example, Serializer, label, labels, nullable, optional, replacement, wall_time
from apps.api.openapi_examples import ID
from apps.schedules import job_input, schedule_input
from apps.schedules.timing_spec import CHOICES, MAX_NUMBERS


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

    EXAMPLE: ClassVar[Example] = {
        **TimingInput.EXAMPLE,
        "name": "nightly report",
        "job": ID,
        "labels": {"team": "billing"},
    }

    name = serializers.CharField(max_length=200)
    job = optional(serializers.UUIDField, help_text="What runs. Give it or a workflow.")
    workflow = optional(serializers.UUIDField, help_text="What runs, in the place of a job.")
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
    payload = serializers.JSONField(required=False, help_text="Instead of the job's; of a workflow its input.")
    labels = optional(serializers.DictField, child=label())
    external_id = optional(serializers.CharField, max_length=200, help_text="Your own id; unique among schedules.")


class ScheduleChange(ScheduleInput):
    """What of a schedule can be changed."""

    EXAMPLE: ClassVar[Example] = {"trigger": {"cron": "30 3 * * mon-fri"}}

    name = serializers.CharField(max_length=200, required=False)
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
    job = nullable(serializers.UUIDField)
    workflow = nullable(serializers.UUIDField)
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


class QuieterAnswer(Serializer):
    """The same schedule with other members, and what its fullest minute would be like then."""

    EXAMPLE: ClassVar[Example] = {
        "change": {"trigger": {"cron": "17 3 * * *"}}, "minute": "2027-03-02T02:17:00Z", "times_usual": 0.9,
    }  # fmt: skip

    change = serializers.DictField(help_text="Members to send with PATCH.")
    minute = serializers.DateTimeField()
    times_usual = serializers.FloatField()


class LoadHintAnswer(Serializer):
    """What is expected of the whole platform in the fullest minute in which this schedule runs within a day."""

    EXAMPLE: ClassVar[Example] = {
        "as_of": "2027-03-01T08:00:00Z", "level": "crowded", "minute": "2027-03-02T02:00:00Z", "times_usual": 14.2,
        "quieter": QuieterAnswer.EXAMPLE,
        "jitter": {"change": {"jitter_s": 900}, "minute": "2027-03-02T02:00:00Z", "times_usual": 1.8},
    }  # fmt: skip

    as_of = serializers.DateTimeField(help_text="When the forecast was made.")
    level = serializers.ChoiceField(
        ["calm", "busy", "crowded"], help_text="busy: twice the usual minute; crowded: four times."
    )
    minute = serializers.DateTimeField(help_text="Begin of that minute.")
    times_usual = serializers.FloatField(help_text="Its expected runs, of all tenants, by those of the average minute.")
    quieter = QuieterAnswer(allow_null=True, help_text="Another minute of the same hour, when one is half as full.")
    jitter = QuieterAnswer(allow_null=True, help_text="A jitter over which it is, on average, half as full.")


class ScheduleSaved(ScheduleAnswer):
    """A schedule that was made or changed, and what its runs meet."""

    EXAMPLE: ClassVar[Example] = {**ScheduleAnswer.EXAMPLE, "load_hint": LoadHintAnswer.EXAMPLE}

    load_hint = LoadHintAnswer(
        required=False, help_text="Left out when it is not active, does not run within a day, or nothing is known."
    )


ScheduleReplacement = replacement("ScheduleReplacement", ScheduleInput, schedule_input.READ_ONLY)
