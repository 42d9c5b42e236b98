"""/schedules/preview and /schedules/{id}/preview: what would run when, by the same code that fires."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from rest_framework.request import Request
from rest_framework.response import Response

from apps.api.access import access_schedule
from apps.api.documents_previews import PreviewAnswer, PreviewAsk, PreviewInput
from apps.api.endpoint import Endpoint
from apps.api.openapi import operation
from apps.schedules.input_fields import Fields
from apps.schedules.schedule_input import FIELDS, READ_ONLY, TIMING_DEFAULTS, Known, read_rest, read_timing, timing_of
from apps.schedules.services import DefinedSchedule, schedule_as_given
from apps.schedules.services_calendars import exclusion_read
from apps.schedules.timing import Spec, describe, notes, seed_notes, spec_from_json
from apps.schedules.timing_preview import Difference, Occurrence, compare, left_out, preview, preview_previous
from apps.schedules.timing_trigger import read_instant
from kernel.errors import Faults
from kernel.jsonrules import merge_patch

TAG = "schedules"
COUNT, COUNT_MAX, PREVIOUS_MAX = 5, 1_000, 100
ASK_FIELDS = ("after", "until", "count", "previous")


@dataclass(frozen=True, slots=True)
class Ask:
    """How much to show."""

    after: datetime
    until: datetime | None
    count: int
    previous: int


class PreviewUnsaved(Endpoint):
    """The future of a schedule that is not saved."""

    actions = {"POST": "schedule.preview"}

    @operation("schedules_preview_unsaved", "Preview a schedule before saving it", body=PreviewInput,
               answer=PreviewAnswer, tag=TAG)  # fmt: skip
    def post(self, request: Request) -> Response:
        faults = Faults()
        fields = Fields(self.body, faults)
        fields.only((*FIELDS, *ASK_FIELDS), read_only=READ_ONLY)
        timing = timing_of(fields.data)
        spec = read_timing(
            timing, fields.data, key="", now=self.now, min_interval_s=self.tenant.plan.min_interval_s, faults=faults,
            exclusion_of=exclusion_read,
        )  # fmt: skip
        for name, read in (("name", fields.name), ("job", lambda: fields.id("job"))):
            if fields.data.get(name) is not None:  # a preview needs neither
                read()
        read_rest(fields, max_payload_bytes=self.tenant.plan.max_payload_bytes)
        ask = _ask(fields, self.now, spec.zone if spec is not None else "UTC")
        faults.raise_if_any()
        assert spec is not None
        answer = _forecast(spec, "", ask)
        return Response({**answer, "notes": [*answer["notes"], *seed_notes(spec, fields.data.get("trigger"))]})


class PreviewSaved(Endpoint):
    """The future of a schedule, and what a change would make of it."""

    actions = {"POST": "schedule.preview"}

    @operation("schedules_preview", "Preview a schedule, or a change of it with the difference", body=PreviewAsk,
               answer=PreviewAnswer, tag=TAG, problems=("invalid_schedule",),
    )  # fmt: skip
    def post(self, request: Request, schedule_id: UUID) -> Response:
        found = access_schedule(actor=self.actor, schedule_id=schedule_id, need="schedule.preview")
        faults = Faults()
        fields = Fields(self.body, faults)
        fields.only((*TIMING_DEFAULTS, *ASK_FIELDS))
        spec = spec_from_json(found.definition.spec)
        change = {name: fields.data[name] for name in TIMING_DEFAULTS if name in fields.data}
        changed = self._changed(found, spec, change, faults) if change else None
        ask = _ask(fields, self.now, (changed or spec).zone)
        faults.raise_if_any()
        key = str(schedule_id)
        if changed is None:
            return Response(_forecast(spec, key, ask))
        difference = compare(spec, changed, after=ask.after, until=ask.until, count=ask.count, key=key)
        answer = {
            **_forecast(changed, key, ask),
            "current": _forecast(spec, key, ask),
            "difference": _difference(difference),
        }
        return Response(answer)

    def _changed(
        self, found: DefinedSchedule, spec: Spec, change: Mapping[str, Any], faults: Faults
    ) -> Spec | None:  # fmt: skip
        """The spec as PATCH would make it."""
        given = schedule_as_given(found)
        if change.get("trigger") is not None:
            given["trigger"] = None
        merged = merge_patch(given, change)
        return read_timing(
            timing_of(merged), merged, key=str(found.schedule.pk), now=self.now,
            min_interval_s=self.tenant.plan.min_interval_s, faults=faults, exclusion_of=exclusion_read,
            known=Known(timing_of(found.definition.definition), spec, found.schedule.paused_at),
        )  # fmt: skip


def _ask(fields: Fields, now: datetime, zone: str) -> Ask:
    after, until = (_instant(fields, name, zone) for name in ("after", "until"))
    after = after or now
    if until is not None and until <= after:
        fields.faults.add("/until", "range", "must be later than after.")
    return Ask(
        after, until, fields.whole("count", 1, COUNT_MAX, COUNT if until is None else COUNT_MAX),
        fields.whole("previous", 0, PREVIOUS_MAX, 0),
    )  # fmt: skip


def _instant(fields: Fields, name: str, zone: str) -> datetime | None:
    given = fields.data.get(name)
    return None if given is None else read_instant(given, f"/{name}", zone, fields.faults)


def _forecast(spec: Spec, key: str, ask: Ask) -> dict[str, Any]:
    found = preview(spec, after=ask.after, until=ask.until, count=ask.count, key=key)
    last = found[-1].nominal_at if len(found) == ask.count else ask.until
    missing = left_out(spec, after=ask.after, until=last) if last is not None else []
    previous = preview_previous(spec, before=ask.after, count=ask.previous, key=key) if ask.previous else []
    return {
        "occurrences": [_shape(one) for one in found],
        "previous": [_shape(one) for one in previous],
        "left_out": [
            {"nominal_local": one.nominal_local, "nominal_at": one.nominal_at, "flags": one.flags, "words": one.words}
            for one in missing
        ],
        "description": describe(spec),
        "notes": notes(spec),
    }


def _shape(one: Occurrence) -> dict[str, Any]:
    return {
        "nominal_local": one.nominal_local,
        "nominal_at": one.nominal_at,
        "at": one.at,
        "flags": one.flags,
        "words": one.words,
    }


def _difference(found: Difference) -> dict[str, Any]:
    return {
        "added": [_shape(one) for one in found.added],
        "removed": [_shape(one) for one in found.removed],
        "kept": found.kept,
        "until": found.until,
    }
