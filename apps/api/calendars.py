"""/calendars: named calendars of excluded days."""

from uuid import UUID

from rest_framework.request import Request
from rest_framework.response import Response

from apps.api.access import access_calendar
from apps.api.documents_time import CalendarAnswer, CalendarChange, CalendarInput, CalendarReplacement
from apps.api.endpoint import Endpoint, retry_safe
from apps.api.etags import revisions, tagged
from apps.api.lists import PAGING, newest
from apps.api.openapi import CURSOR_PARAMETER, PAGE_SIZE_PARAMETER, listing, operation, parameter
from apps.api.reading import read_only_dropped
from apps.api.shapes import calendar_shape
from apps.schedules import services
from apps.schedules.calendar_input import READ_ONLY
from apps.schedules.models import Calendar

TAG = "calendars"


class CalendarList(Endpoint):
    """All calendars."""

    actions = {"GET": "calendar.read", "POST": "calendar.create"}

    @operation(
        "calendars_list", "List calendars, newest first", answer=listing(CalendarAnswer, "Calendar"), tag=TAG,
        parameters=[
            parameter("name", text="part of the name, case does not count"), PAGE_SIZE_PARAMETER, CURSOR_PARAMETER
        ],
    )  # fmt: skip
    def get(self, request: Request) -> Response:
        query = self.query("name", *PAGING)
        found = Calendar.objects.filter(deleted_at=None)
        if (name := query.text("name")) is not None:
            found = found.filter(name__icontains=name)
        return Response(newest(found, query=query, shape=calendar_shape))

    @operation(
        "calendars_create", "Create a calendar", body=CalendarInput, answer=CalendarAnswer, status=201,
        retry_safe=True, tag=TAG, problems=("name_taken", "too_many_calendars", "quota_exceeded"),
    )  # fmt: skip
    @retry_safe
    def post(self, request: Request) -> Response:
        made = services.calendar_create(tenant=self.tenant, actor=self.actor, data=self.body, now=self.now)
        return tagged(calendar_shape(made), made.revision, status=201, location=f"{request.path}/{made.pk}")


class CalendarDetail(Endpoint):
    """One calendar."""

    actions = {
        "GET": "calendar.read",
        "PATCH": "calendar.update",
        "PUT": "calendar.update",
        "DELETE": "calendar.delete",
    }

    @operation("calendars_read", "Read a calendar", answer=CalendarAnswer, tag=TAG)
    def get(self, request: Request, calendar_id: UUID) -> Response:
        self.query().finish()
        found = access_calendar(actor=self.actor, calendar_id=calendar_id, need="calendar.read")
        return tagged(calendar_shape(found), found.revision)

    @operation(
        "calendars_patch", "Change a calendar; the schedules that use it follow from now on", body=CalendarChange,
        answer=CalendarAnswer, if_match=True, tag=TAG, problems=("name_taken",),
    )  # fmt: skip
    def patch(self, request: Request, calendar_id: UUID) -> Response:
        changed = services.calendar_update(
            tenant=self.tenant, actor=self.actor, calendar_id=calendar_id, patch=self.body, now=self.now,
            expect=revisions(request),
        )  # fmt: skip
        return tagged(calendar_shape(changed), changed.revision)

    @operation(
        "calendars_replace", "Replace a calendar", body=CalendarReplacement, answer=CalendarAnswer, if_match=True,
        tag=TAG, problems=("name_taken",),
    )  # fmt: skip
    def put(self, request: Request, calendar_id: UUID) -> Response:
        changed = services.calendar_replace(
            tenant=self.tenant, actor=self.actor, calendar_id=calendar_id, now=self.now, expect=revisions(request),
            data=read_only_dropped(self.body, READ_ONLY),
        )  # fmt: skip
        return tagged(calendar_shape(changed), changed.revision)

    @operation(
        "calendars_delete", "Delete a calendar that no schedule uses", status=204, if_match=True, tag=TAG,
        problems=("calendar_in_use",),
    )  # fmt: skip
    def delete(self, request: Request, calendar_id: UUID) -> Response:
        services.calendar_delete(
            tenant=self.tenant, actor=self.actor, calendar_id=calendar_id, now=self.now, expect=revisions(request)
        )
        return Response(status=204)
