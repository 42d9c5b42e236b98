"""Calendars, and what is done to schedules, as OpenAPI shows them."""

from typing import ClassVar

from rest_framework import serializers

from apps.api.documents import Example, Serializer, optional, replacement, wall_time
from apps.api.documents_runs import ReasonInput
from apps.schedules import calendar_input
from apps.schedules.timing_spec import CHOICES


class SchedulePauseInput(ReasonInput):
    """Why, and until when."""

    EXAMPLE: ClassVar[Example] = {"reason": "maintenance"}

    resume_at = wall_time("It goes on by itself from this time on; until somebody resumes it.")


class ScheduleResumeInput(Serializer):
    """How to go on."""

    EXAMPLE: ClassVar[Example] = {"catch_up": True}

    catch_up = optional(
        serializers.BooleanField, help_text="Make up, by the misfire policy, for what the pause missed."
    )


class ScheduleTriggerInput(Serializer):
    """How to run now."""

    EXAMPLE: ClassVar[Example] = {"overlap": "skip"}

    overlap = optional(serializers.ChoiceField, choices=list(CHOICES["overlap"]), help_text="Instead of its own.")


class CalendarChange(Serializer):
    """What of a calendar can be changed."""

    EXAMPLE: ClassVar[Example] = {"dates": ["2027-12-24", "2027-12-25"]}

    name = serializers.CharField(max_length=200, required=False)
    dates = optional(serializers.ListField, child=serializers.CharField(), max_length=1000, help_text="2026-12-25")
    ranges = optional(
        serializers.ListField, child=serializers.DictField(), max_length=200,
        help_text='{"from": "2026-12-24", "to": "2026-12-31"}, both inclusive.',
    )  # fmt: skip
    rrules = optional(
        serializers.ListField, child=serializers.JSONField(), max_length=50,
        help_text='"FREQ=YEARLY;BYMONTH=5;BYMONTHDAY=1" or {"rrule": "...", "from": "2026-05-01"}.',
    )  # fmt: skip
    weekdays = optional(serializers.ListField, child=serializers.CharField(), help_text='Excluded: ["sat", "sun"].')
    weekend = optional(
        serializers.ListField, child=serializers.CharField(),
        help_text="Days that nothing is moved onto, though they are not excluded. sat, sun.",
    )  # fmt: skip
    ical = optional(serializers.CharField, help_text="Text of an iCalendar file; its events are added.")


class CalendarInput(CalendarChange):
    """A named calendar of excluded days."""

    EXAMPLE: ClassVar[Example] = {
        "name": "holidays", "dates": ["2027-12-25"], "ranges": [{"from": "2027-12-27", "to": "2027-12-31"}],
        "rrules": ["FREQ=YEARLY;BYMONTH=5;BYMONTHDAY=1"], "weekdays": ["sat", "sun"],
    }  # fmt: skip

    name = serializers.CharField(max_length=200)


class CalendarAnswer(Serializer):
    """A named calendar of excluded days."""

    EXAMPLE: ClassVar[Example] = {
        **CalendarInput.EXAMPLE, "rrules": [{"rrule": "FREQ=YEARLY;BYMONTH=5;BYMONTHDAY=1"}],
        "weekend": ["sat", "sun"],
    }  # fmt: skip

    id = serializers.UUIDField()
    name = serializers.CharField()
    dates = serializers.ListField(child=serializers.CharField())
    ranges = serializers.ListField(child=serializers.DictField())
    rrules = serializers.ListField(child=serializers.DictField())
    weekdays = serializers.ListField(child=serializers.CharField())
    weekend = serializers.ListField(child=serializers.CharField())
    created_at = serializers.DateTimeField()
    updated_at = serializers.DateTimeField()


CalendarReplacement = replacement("CalendarReplacement", CalendarInput, calendar_input.READ_ONLY)
