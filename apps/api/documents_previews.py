"""The bodies and answers of previews: the future of a schedule, saved or not."""

from typing import ClassVar

from rest_framework import serializers

from apps.api.documents import Example, Serializer, nullable, optional, wall_time
from apps.api.documents_schedules import ScheduleInput, TimingInput


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
