"""The bodies and answers of backfills."""

from collections.abc import Sequence
from typing import Any, ClassVar

from rest_framework import serializers

from apps.api.documents import Example, Serializer, nullable, optional
from apps.operations.backfill.recognising import ONLY, STANDINGS
from apps.operations.backfill.segments import DEFINITIONS
from apps.operations.backfill.wish import AT_ONCE, MAX_OCCURRENCES, OVERLAPS
from apps.operations.backfill.within import ORDERS
from apps.operations.pacing import RATE_MAX, RATE_MIN, WHOLE_MAX
from apps.operations.states import ITEM_STATES, STATES

BEGIN, END = "2026-03-01T00:00:00Z", "2026-03-31T00:00:00Z"
_COUNTS = {**dict.fromkeys(ITEM_STATES, 0), "succeeded": 719}


def counts(name: str, names: Sequence[str], about: str, example: Example, **more: Any) -> Any:
    """A serializer with a number for each of these."""
    members = {one: serializers.IntegerField() for one in names}
    return type(name, (Serializer,), {"__doc__": about, "EXAMPLE": example, **more, **members})


class BackfillInput(Serializer):
    """Past occurrences that are to run."""

    EXAMPLE: ClassVar[Example] = {"from": "2026-03-01", "to": "2026-03-31", "only": "missing"}

    to = serializers.CharField(max_length=40, help_text="Not later than now; it does not belong to the range.")
    only = optional(serializers.ChoiceField, choices=list(ONLY), help_text="missing")
    order = optional(serializers.ChoiceField, choices=list(ORDERS), help_text="asc")
    max_in_flight = optional(
        serializers.IntegerField, min_value=1, max_value=WHOLE_MAX,
        help_text=f"Runs at once; {AT_ONCE}, or 1 where the runs of the schedule never overlap.",
    )  # fmt: skip
    overlap = optional(
        serializers.ChoiceField, choices=list(OVERLAPS),
        help_text="Beside other runs of the schedule: allow, skip, or buffer_all: after them. As the schedule says.",
    )  # fmt: skip
    priority = optional(serializers.IntegerField, min_value=0, max_value=9, help_text="0, the lowest")
    definition = optional(
        serializers.ChoiceField, choices=list(DEFINITIONS),
        help_text="now: the schedule as it is. then: its versions of the occurrences' own time; before it was made and "
        "while it was paused it had none.",
    )  # fmt: skip
    rate_per_s = optional(
        serializers.FloatField, min_value=RATE_MIN, max_value=RATE_MAX, help_text="Most runs that begin in a second."
    )
    canary = optional(
        serializers.IntegerField, min_value=1, max_value=WHOLE_MAX,
        help_text="So many first; the others when all of these succeeded.",
    )  # fmt: skip
    stop_after_failures = optional(serializers.IntegerField, min_value=1, max_value=WHOLE_MAX)
    reason = optional(serializers.CharField, max_length=500)
    dry_run = serializers.BooleanField(required=False, allow_null=True, help_text="Only say what it would do.")

    def get_fields(self) -> dict[str, serializers.Field]:  # "from" is a word of Python's
        text = f"A time, or a date: its midnight in the zone of the schedule. At most {MAX_OCCURRENCES:,} occurrences."
        return {"from": serializers.CharField(max_length=40, help_text=text), **super().get_fields()}


class WorkflowBackfillInput(BackfillInput):
    """Past occurrences of a workflow's schedule that are to run."""

    EXAMPLE: ClassVar[Example] = BackfillInput.EXAMPLE

    schedule = optional(serializers.UUIDField, help_text="Of the workflow; needed where it has several.")


class _Meant(Serializer):
    """What answers repeat of a wish."""

    schedule = serializers.UUIDField()
    to = serializers.DateTimeField()
    order = serializers.ChoiceField(list(ORDERS))
    only = serializers.ChoiceField(list(ONLY))
    overlap = serializers.ChoiceField(list(OVERLAPS))
    priority = serializers.IntegerField()
    definition = serializers.ChoiceField(list(DEFINITIONS))
    max_in_flight = nullable(serializers.IntegerField)
    rate_per_s = nullable(serializers.FloatField)

    def get_fields(self) -> dict[str, serializers.Field]:
        return {"from": serializers.DateTimeField(), **super().get_fields()}


_MEANT: Example = {"from": BEGIN, "to": END, "priority": 0, "max_in_flight": AT_ONCE}
ItemCounts = counts("BackfillCounts", ITEM_STATES, "How many occurrences are in which state.", _COUNTS)


class BackfillItem(_Meant):
    """A backfill: an operation, whose verbs and items are at /operations/{id}."""

    EXAMPLE: ClassVar[Example] = {
        **_MEANT, "state": "completed", "planned": 719, "created_by": "key:deploy", "reason": None,
        "started_at": BEGIN, "finished_at": END,
    }  # fmt: skip

    id = serializers.UUIDField()
    state = serializers.ChoiceField(list(STATES))
    canary = nullable(serializers.IntegerField)
    stop_after_failures = nullable(serializers.IntegerField)
    reason = nullable(serializers.CharField)
    paused_reason = nullable(serializers.CharField)
    waits_for = nullable(serializers.CharField, help_text="Code of what holds it back just now.")
    error = nullable(serializers.CharField)
    planned = serializers.IntegerField(help_text="Occurrences that it is about, as far as they are found.")
    counts: Any = ItemCounts()
    created_by = serializers.CharField()
    created_at = serializers.DateTimeField()
    started_at = nullable(serializers.DateTimeField)
    finished_at = nullable(serializers.DateTimeField)


BackfillDay = counts(
    "BackfillDay", ITEM_STATES, "How many occurrences of a day, or in a long range of a month, are in which state.",
    {**_COUNTS, "day": "2026-03-29", "succeeded": 23},
    day=serializers.CharField(help_text="2026-03-29 in the zone of the schedule, or 2026-03."),
)  # fmt: skip


class BackfillAnswer(BackfillItem):
    """A backfill and how far it is."""

    EXAMPLE: ClassVar[Example] = BackfillItem.EXAMPLE

    job = nullable(serializers.UUIDField)
    workflow = nullable(serializers.UUIDField)
    timezone = serializers.CharField()
    days: Any = BackfillDay(many=True)
    expected_end = nullable(serializers.DateTimeField, help_text="An estimate; null where there is none.")
    as_of = serializers.DateTimeField()


class BackfillUse(Serializer):
    """A limit of the plan, what counts against it, and what the backfill adds."""

    EXAMPLE: ClassVar[Example] = {
        "quota": "max_runs_per_day", "limit": 10_000, "use": 1_200, "adds": 719, "enough": True,
    }  # fmt: skip

    quota = serializers.CharField()
    limit = serializers.IntegerField()
    use = serializers.IntegerField()
    adds = serializers.IntegerField()
    enough = serializers.BooleanField()


Standings = counts(
    "BackfillStandings", STANDINGS,
    "How the occurrences of the range stand: never ran, failed, ran, run or wait right now, still due by themselves, "
    "or nothing is known since their history was removed.",
    {**dict.fromkeys(STANDINGS, 0), "missing": 719},
)  # fmt: skip


class BackfillOutlook(_Meant):
    """What a backfill would do, as of now."""

    EXAMPLE: ClassVar[Example] = {
        **_MEANT, "occurrences": 719, "count": 719, "first": BEGIN, "last": END, "sample": [BEGIN],
        "warnings": ["What is run is paused: the runs wait until it is resumed."],
    }  # fmt: skip

    dry_run = serializers.BooleanField()
    job = nullable(serializers.UUIDField)
    workflow = nullable(serializers.UUIDField)
    timezone = serializers.CharField()
    occurrences = serializers.IntegerField(help_text="In the range, whether they would run or not.")
    standings: Any = Standings()
    count = serializers.IntegerField(help_text="That would run.")
    first = nullable(serializers.DateTimeField)
    last = nullable(serializers.DateTimeField)
    sample = serializers.ListField(child=serializers.DateTimeField(), help_text="The first of them in their order.")
    expected_end = nullable(serializers.DateTimeField, help_text="An estimate; null where there is none.")
    quotas = BackfillUse(many=True)
    warnings = serializers.ListField(child=serializers.CharField())
