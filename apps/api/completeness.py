"""/schedules/{id}/completeness: is each occurrence accounted for, and accounting for what is missing."""

from datetime import datetime, timedelta
from uuid import UUID

from rest_framework.request import Request
from rest_framework.response import Response

from apps.api.access import access_schedule
from apps.api.codes import OF_ARCHIVES
from apps.api.documents_completeness import CompletenessAnswer, CompletenessRepairAnswer, CompletenessRepairInput
from apps.api.endpoint import Endpoint, retry_safe
from apps.api.openapi import operation, parameter
from apps.dispatch.completeness.checking import completeness_of
from apps.dispatch.completeness.repairing import HOW, completeness_repair
from apps.dispatch.completeness.shape import completeness_shape, repair_shape
from apps.schedules.input_fields import Fields
from apps.schedules.timing import spec_from_json
from apps.schedules.timing_trigger import read_instant
from kernel.errors import Faults, FieldError, InvalidInput

TAG = "schedules"
LOOKS_BACK = timedelta(days=7)
MOST = 50_000  # occurrences in one call: more than a month of minutes; the command has no bound
RANGE = [
    parameter("from", datetime, text="the first instant; RFC 3339, 7 days before `to` by itself"),
    parameter("to", datetime, text="the instant after the last one; RFC 3339, now by itself"),
]


class ScheduleCompleteness(Endpoint):
    """What a schedule had to account for, and what became of it."""

    actions = {"GET": "schedule.read"}

    @operation(
        "schedules_completeness", "Check that each occurrence of a schedule ran, or a row says why not",
        answer=CompletenessAnswer, parameters=RANGE, tag=TAG, problems=OF_ARCHIVES,
    )  # fmt: skip
    def get(self, request: Request, schedule_id: UUID) -> Response:
        query = self.query("from", "to")
        since, until = query.instant("from"), query.instant("to")
        query.finish()
        access_schedule(actor=self.actor, schedule_id=schedule_id, need="schedule.read")
        given, until = until, until or self.now
        since = since or until - LOOKS_BACK
        if until < since:
            raise InvalidInput([_reversed("?", given)])
        found = completeness_of(
            self.tenant, schedule_id, since=since, until=until, now=self.now, most=MOST, pointer="?from"
        )  # fmt: skip
        return Response(completeness_shape(found))


class ScheduleCompletenessRepair(Endpoint):
    """Accounting for what is missing."""

    actions = {"POST": "schedule.repair"}

    @operation(
        "schedules_completeness_repair", "Account for what is missing of a schedule, by its policies or as skipped",
        body=CompletenessRepairInput, answer=CompletenessRepairAnswer, retry_safe=True, tag=TAG,
        problems=OF_ARCHIVES,
    )  # fmt: skip
    @retry_safe
    def post(self, request: Request, schedule_id: UUID) -> Response:
        found = access_schedule(actor=self.actor, schedule_id=schedule_id, need="schedule.repair")
        faults = Faults()
        fields = Fields(self.body, faults)
        fields.only(("from", "to", "how", "dry_run"))
        zone = spec_from_json(found.definition.spec).zone
        given = _instant(fields, "to", zone)
        until = given or self.now
        since = _instant(fields, "from", zone) or until - LOOKS_BACK
        if until < since:
            faults.errors.append(_reversed("/", given))
        how, dry_run = fields.choice("how", HOW, "policy"), fields.flag("dry_run")
        faults.raise_if_any()
        done = completeness_repair(
            tenant=self.tenant, actor=self.actor, schedule_id=schedule_id, since=since, until=until, now=self.now,
            how="skip" if how == "skip" else "policy", dry_run=dry_run, most=MOST,
        )  # fmt: skip
        return Response(repair_shape(done))


def _instant(fields: Fields, name: str, zone: str) -> datetime | None:
    given = fields.data.get(name)
    return None if given is None else read_instant(given, f"/{name}", zone, fields.faults)


def _reversed(place: str, to: datetime | None) -> FieldError:
    """What is wrong with a range that ends before it begins; `to` None was not given, so the range ends now."""
    if to is None:
        return FieldError(f"{place}from", "range", "must not be later than now.")
    return FieldError(f"{place}to", "range", "must not be earlier than from.")
