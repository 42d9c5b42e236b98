"""Completeness of schedules, as OpenAPI shows it."""

from typing import ClassVar

from rest_framework import serializers

from apps.api.documents import Example, Serializer, optional
from apps.dispatch.completeness.repairing import HOW

ID = "0190a6f4-7c3e-7b21-9d55-3c1f0a6b8e42"
BEGIN, LOST, END = "2027-03-01T00:00:00Z", "2027-03-01T08:00:00Z", "2027-03-02T00:00:00Z"


class _Range(Serializer):
    """From an instant to the one after the last."""

    to = serializers.DateTimeField()

    def get_fields(self) -> dict[str, serializers.Field]:  # "from" is a word of Python's
        return {"from": serializers.DateTimeField(), **super().get_fields()}


class GapAnswer(Serializer):
    """Occurrences that follow one another and of which nothing is written."""

    EXAMPLE: ClassVar[Example] = {"version": 3, "first_at": LOST, "last_at": LOST, "count": 1}

    version = serializers.IntegerField(help_text="The version of the schedule that had to account for them.")
    first_at = serializers.DateTimeField()
    last_at = serializers.DateTimeField()
    count = serializers.IntegerField()


class SkippedAnswer(Serializer):
    """Why occurrences did not run, and how many."""

    EXAMPLE: ClassVar[Example] = {"reason": "misfire_skipped", "count": 2}

    reason = serializers.CharField()
    count = serializers.IntegerField()


class UnknownAnswer(_Range):
    """A range of which nothing can be said, and why."""

    EXAMPLE: ClassVar[Example] = {"from": BEGIN, "to": LOST, "reason": "not_kept"}

    reason = serializers.CharField(help_text="not_kept, history_unknown, zone_data_changed or unreadable.")


class ExpectedAnswer(_Range):
    """A range in which a version of the schedule decided what was to run."""

    EXAMPLE: ClassVar[Example] = {"version": 3, "from": LOST, "to": END}

    version = serializers.IntegerField()


class CompletenessAnswer(_Range):
    """What a schedule had to account for in a range, and what became of it.

    `expected` is `ran`, `made_later`, `skipped`, `pending` and `missing` together.
    """

    EXAMPLE: ClassVar[Example] = {
        "schedule": ID, "from": BEGIN, "to": END, "as_of": END, "is_complete": False, "expected": 16, "ran": 13,
        "made_later": 0, "skipped": 2, "skipped_by_reason": [SkippedAnswer.EXAMPLE], "pending": 0, "missing": 1,
        "gaps": [GapAnswer.EXAMPLE], "gap_count": 1, "unknown": [UnknownAnswer.EXAMPLE],
        "versions": [ExpectedAnswer.EXAMPLE],
    }  # fmt: skip

    schedule = serializers.UUIDField()
    as_of = serializers.DateTimeField(help_text="What is later is not looked at.")
    is_complete = serializers.BooleanField(help_text="Nothing is missing, as far as can be said.")
    expected = serializers.IntegerField(help_text="Occurrences by the versions of that time.")
    ran = serializers.IntegerField(help_text="There is an execution, whatever became of it.")
    made_later = serializers.IntegerField(help_text="Nothing was fired, and a backfill made a run.")
    skipped = serializers.IntegerField(help_text="A row says why they did not run.")
    skipped_by_reason = SkippedAnswer(many=True)
    pending = serializers.IntegerField(help_text="Due or late; the dispatcher has not fired them yet.")
    missing = serializers.IntegerField()
    gaps = GapAnswer(many=True, help_text="The first 1,000, oldest first.")
    gap_count = serializers.IntegerField()
    unknown = UnknownAnswer(many=True)
    versions = ExpectedAnswer(many=True)


class CompletenessRepairInput(Serializer):
    """What to account for, and how."""

    EXAMPLE: ClassVar[Example] = {"how": "policy", "dry_run": True}

    to = optional(serializers.DateTimeField, help_text="The instant after the last one; now by itself.")
    how = optional(
        serializers.ChoiceField, choices=list(HOW),
        help_text="By the misfire and overlap policies (by itself), or all as skipped.",
    )  # fmt: skip
    dry_run = optional(serializers.BooleanField, help_text="Only say what would be done.")

    def get_fields(self) -> dict[str, serializers.Field]:  # "from" is a word of Python's
        text = "The first instant; 7 days before `to` by itself."
        return {"from": serializers.DateTimeField(required=False, help_text=text), **super().get_fields()}


class CompletenessRepairAnswer(Serializer):
    """What was missing and what was made of it."""

    EXAMPLE: ClassVar[Example] = {
        "dry_run": True, "made": 1, "skipped": 0, "is_put_back": False, "before": CompletenessAnswer.EXAMPLE,
    }  # fmt: skip

    dry_run = serializers.BooleanField()
    made = serializers.IntegerField(help_text="Runs.")
    skipped = serializers.IntegerField(help_text="Occurrences that got a row, which says why they do not run.")
    is_put_back = serializers.BooleanField(
        help_text="The due entry was not there or stood too late; the dispatcher goes on from where it stands now."
    )
    before = CompletenessAnswer()
