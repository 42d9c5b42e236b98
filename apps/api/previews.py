"""/schedules/preview and /schedules/{id}/preview: what would run when, by the same code that fires."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any
from uuid import UUID

from rest_framework.request import Request
from rest_framework.response import Response

from apps.api.access import access_schedule
from apps.api.documents import PreviewAnswer, PreviewAsk, PreviewInput
from apps.api.endpoint import Endpoint
from apps.api.openapi import operation
from apps.schedules.input_fields import Fields
from apps.schedules.schedule_input import FIELDS, READ_ONLY, read_timing, timing_of
from apps.schedules.timing import Spec, describe, notes, preview, spec_from_json
from apps.schedules.timing_trigger import read_instant
from kernel.errors import Faults

TAG = "schedules"
COUNT, COUNT_MAX = 5, 100
ASK_FIELDS = ("after", "count")


class PreviewUnsaved(Endpoint):
    """The future of a schedule that is not saved."""

    actions = {"POST": "schedule.preview"}

    @operation("schedules_preview_unsaved", "Preview a schedule before saving it", body=PreviewInput,
               answer=PreviewAnswer, tag=TAG)  # fmt: skip
    def post(self, request: Request) -> Response:
        faults = Faults()
        fields = Fields(self.body, faults)
        fields.only((*FIELDS, *ASK_FIELDS), read_only=READ_ONLY)
        after, count = _ask(fields, self.now)
        timing = timing_of(fields.data)
        spec = read_timing(
            timing, fields.data, key="", now=self.now, min_interval_s=self.tenant.plan.min_interval_s, faults=faults
        )
        faults.raise_if_any()
        assert spec is not None
        return Response(_shape(spec, "", after, count))


class PreviewSaved(Endpoint):
    """The future of a schedule."""

    actions = {"POST": "schedule.preview"}

    @operation("schedules_preview", "Preview a schedule", body=PreviewAsk, answer=PreviewAnswer, tag=TAG)
    def post(self, request: Request, schedule_id: UUID) -> Response:
        found = access_schedule(actor=self.actor, schedule_id=schedule_id, need="schedule.preview")
        faults = Faults()
        fields = Fields(self.body, faults)
        fields.only(ASK_FIELDS)
        after, count = _ask(fields, self.now)
        faults.raise_if_any()
        return Response(_shape(spec_from_json(found.definition.spec), str(schedule_id), after, count))


def _ask(fields: Fields, now: datetime) -> tuple[datetime, int]:
    given = fields.data.get("after")
    after = None if given is None else read_instant(given, "/after", "UTC", fields.faults)
    return after or now, fields.whole("count", 1, COUNT_MAX, COUNT)


def _shape(spec: Spec, key: str, after: datetime, count: int) -> Mapping[str, Any]:
    found = preview(spec, after=after, count=count, key=key)
    return {
        "occurrences": [{"nominal_local": one.nominal_local, "at": one.at, "flags": one.flags} for one in found],
        "description": describe(spec),
        "notes": notes(spec),
    }
