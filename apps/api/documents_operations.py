"""Operations as OpenAPI shows them: the bodies of bulk requests, an operation, its receipt."""

from collections.abc import Mapping
from functools import cache
from typing import Any, ClassVar

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from apps.api.documents import Example, Serializer, label, nullable, optional
from apps.api.openapi_examples import ID, INSTANT
from apps.operations.kinds.letters import MAX_REPLAYS_MOST
from apps.operations.pacing import RATE_MAX, RATE_MIN, WHOLE_MAX
from apps.operations.states import ITEM_STATES, STATES
from apps.outcomes.again import MAX_REPLAYS

MAX_REASON_CHARS = 500


@extend_schema_field(
    {
        "type": "object",
        "additionalProperties": {
            "oneOf": [
                {"type": "string"},
                {"type": "boolean"},
                {"type": "array", "items": {"type": "string"}},
                {"type": "object", "additionalProperties": {"type": "string"}},
            ]
        },
    }
)
class FilterField(serializers.JSONField):
    """The filters of a list, by their names."""


def _count(text: str) -> Any:
    return serializers.IntegerField(min_value=0, help_text=text)


def _whole(text: str) -> Any:
    return optional(serializers.IntegerField, min_value=1, max_value=WHOLE_MAX, help_text=text)


def _rate() -> Any:
    return optional(serializers.FloatField, min_value=RATE_MIN, max_value=RATE_MAX, help_text="Items a second at most.")


PACE: Mapping[str, Any] = {
    "rate_per_s": _rate,
    "max_in_flight": lambda: _whole("Of the runs that it starts, so many at most at a time."),
    "canary": lambda: _whole("So many first, without what is skipped; the others only when these have succeeded."),
    "stop_after_failures": lambda: _whole(
        "It ends when so many items have failed; without max_in_flight no more run at once than may still fail."
    ),
}


class CountsAnswer(Serializer):
    """How many items are in each state; together they are `planned`."""

    EXAMPLE: ClassVar[Example] = {
        "planned": 120, "pending": 70, "running": 5, "succeeded": 40, "skipped": 4, "failed": 1, "undone": 0,
    }  # fmt: skip

    planned = _count("All of them.")
    pending = _count("Not begun; in an operation that has ended: never begun.")
    running = _count("Their runs have not ended.")
    succeeded = _count("Done.")
    skipped = _count("There was nothing left to do; `code` says why.")
    failed = _count("Refused, or their runs did not succeed.")
    undone = _count("Taken back.")


class OperationAnswer(Serializer):
    """One wish over many things, and how far it is."""

    EXAMPLE: ClassVar[Example] = {
        "action": "cancel", "target": "executions", "state": "running", "filter": {"state": "ready"}, "params": {},
        "counts": CountsAnswer.EXAMPLE, "is_planned": True, "started_at": INSTANT, "created_by": "key:deploy",
        "canary_passed": True,
    }  # fmt: skip

    id = serializers.UUIDField()
    action = serializers.CharField(help_text="What is done.")
    target = serializers.CharField(help_text="To what.")
    filter = FilterField(help_text="As it was given.")
    params = serializers.DictField(help_text="What only this action knows.")
    state = serializers.ChoiceField(list(STATES))
    frozen_at = serializers.DateTimeField(help_text="What came later is not meant.")
    is_planned = serializers.BooleanField(help_text="All its items are known.")
    counts = CountsAnswer()
    rate_per_s = nullable(serializers.FloatField)
    max_in_flight = nullable(serializers.IntegerField)
    canary = nullable(serializers.IntegerField)
    canary_passed = serializers.BooleanField()
    stop_after_failures = nullable(serializers.IntegerField)
    waits_for = nullable(serializers.CharField, help_text="Code of what holds it back just now.")
    reason = serializers.CharField(allow_blank=True)
    paused_reason = nullable(serializers.CharField, help_text="`canary_failed`, or what was said when it was paused.")
    error = nullable(serializers.CharField, help_text="Why it could not go on.")
    created_by = serializers.CharField()
    created_at = serializers.DateTimeField()
    started_at = nullable(serializers.DateTimeField, help_text="When all was planned.")
    finished_at = nullable(serializers.DateTimeField, help_text="When nothing of it ran any more.")


class OperationChange(Serializer):
    """How fast it goes, and what stops it; null takes a limit away."""

    EXAMPLE: ClassVar[Example] = {"rate_per_s": 20}

    rate_per_s = _rate()
    max_in_flight = PACE["max_in_flight"]()
    canary = PACE["canary"]()
    stop_after_failures = PACE["stop_after_failures"]()


class OperationItemAnswer(Serializer):
    """What became of one item."""

    EXAMPLE: ClassVar[Example] = {"n": 1, "target": ID, "state": "succeeded", "code": None, "done_at": INSTANT}

    n = serializers.IntegerField(help_text="From 1, in the order in which they are done.")
    target = nullable(serializers.UUIDField, help_text="What it was done to.")
    nominal_at = nullable(serializers.DateTimeField, help_text="Of a backfill: the occurrence.")
    state = serializers.ChoiceField(list(ITEM_STATES))
    code = nullable(serializers.CharField, help_text="Why it was skipped or failed, or could not be undone.")
    detail = nullable(serializers.CharField)
    execution = nullable(serializers.UUIDField, help_text="The run that it started.")
    done_at = nullable(serializers.DateTimeField)


class SampleAnswer(Serializer):
    """One of the things that it would be done to."""

    EXAMPLE: ClassVar[Example] = {"target": ID, "nominal_at": None}

    target = nullable(serializers.UUIDField)
    nominal_at = nullable(serializers.DateTimeField)


class RehearsedAnswer(Serializer):
    """What an operation would be about. Nothing was done."""

    EXAMPLE: ClassVar[Example] = {
        "action": "cancel", "target": "executions", "filter": {"state": "ready"}, "params": {}, "count": 120,
        "sample": [SampleAnswer.EXAMPLE], "warnings": [],
    }  # fmt: skip

    action = serializers.CharField()
    target = serializers.CharField()
    filter = FilterField()
    params = serializers.DictField()
    count = serializers.IntegerField(help_text="Exactly so many fit now.")
    sample = SampleAnswer(many=True, help_text="The first 20.")
    warnings = serializers.ListField(child=serializers.CharField())


@cache  # lint: allow memory-has-a-bound: one for each bulk operation
def wish_input(name: str, filters: tuple[str, ...], example: str, own: tuple[str, ...] = ()) -> type[Serializer]:
    """The body of a bulk request: `filters` are the names of its list's; `own` are members that only this kind has."""
    known = ", ".join(filters)
    members: dict[str, Any] = {
        "EXAMPLE": {"filter": {example: "billing"} if example == "name" else {example: ID}, **_examples(own)},
        "filter": FilterField(help_text=f'Which ones, by the names of the list: {known}. `{{"all": true}}`: all.'),
        "dry_run": optional(serializers.BooleanField, help_text="Only say how many and which (200)."),
        "reason": optional(serializers.CharField, max_length=MAX_REASON_CHARS, help_text="Stands in the trail."),
        **{one: make() for one, make in PACE.items()},
        **{one: OWN[one]() for one in own},
        "__doc__": "Many at once, by the filters of their list.",
    }
    return type(name, (serializers.Serializer,), members)


def _labels() -> Any:
    return serializers.DictField(child=label(null=True), help_text="Set; null takes one away.")


def _examples(own: tuple[str, ...]) -> dict[str, Any]:
    return {name: value for name, value in OWN_EXAMPLES.items() if name in own}


OWN_EXAMPLES: Mapping[str, Any] = {"labels": {"team": "billing"}, "payload": {"format": "html"}}


OWN: Mapping[str, Any] = {
    "labels": _labels,
    "catch_up": lambda: optional(serializers.BooleanField, help_text="What they missed is due now."),
    "payload": lambda: serializers.JSONField(required=False, help_text="Instead of theirs, in new executions."),
    "new_key": lambda: optional(serializers.BooleanField, help_text="As new executions, with new run keys."),
    "force": lambda: optional(serializers.BooleanField, help_text="However often they were replayed."),
    "max_replays": lambda: optional(
        serializers.IntegerField,
        min_value=1,
        max_value=MAX_REPLAYS_MOST,
        help_text=f"What was replayed so often and died each time is skipped; {MAX_REPLAYS} when not given.",
    ),
}
