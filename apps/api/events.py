"""/events: what happened, in the order in which it can be read without missing any."""

from uuid import UUID

from rest_framework.request import Request
from rest_framework.response import Response

from apps.api.documents_webhooks import EventAnswer
from apps.api.endpoint import Endpoint
from apps.api.lists import PAGING, page
from apps.api.openapi import CURSOR_PARAMETER, PAGE_SIZE_PARAMETER, listing, operation, parameter
from apps.events import store as events
from apps.events.store import FIRST, Position
from kernel.errors import NotFound, ShardbeatError
from kernel.eventtypes import EVENT_TYPES
from tenants import door
from tenants.permissions import may

TAG = "events"
BEGINNING = Position(-(2**63), FIRST)  # events of another installation are numbered below 0


class EventGone(ShardbeatError):
    """The place to go on from is not known any more: what came after it may be forgotten, too."""

    code = "event_gone"
    status = 410


class EventList(Endpoint):
    """All events that are kept."""

    actions = {"GET": "event.read"}

    @operation(
        "events_list", "List events, oldest first: those after the last one that you have seen",
        answer=listing(EventAnswer, "Event"), tag=TAG, problems=("event_gone",),
        parameters=[
            parameter("after", UUID, text="id of an event; 410 when it is not kept any more"),
            parameter("type", choices=list(EVENT_TYPES), text="one or several, with commas between them"),
            parameter("job", UUID), parameter("schedule", UUID),
            parameter("execution", UUID), PAGE_SIZE_PARAMETER, CURSOR_PARAMETER,
        ],
    )  # fmt: skip
    def get(self, request: Request) -> Response:
        query = self.query("after", "type", "job", "schedule", "execution", *PAGING)
        after, types = query.id("after"), query.choices("type", list(EVENT_TYPES))
        about = {"job_id": query.id("job"), "schedule_id": query.id("schedule"), "execution_id": query.id("execution")}
        cursor, size = query.before(), query.page_size()
        query.finish()
        conn, schema = door.raw(), self.tenant.schema_name
        place = cursor or after
        start = BEGINNING
        if place is not None:
            found = events.read_one(conn, schema, place)
            if found is None:
                detail = "This event is not kept any more, or never was; events after it may be missing. Begin anew."
                raise EventGone(detail)
            start = found.position
        bound = events.horizon(conn)  # in a statement before the one that reads: see apps.events
        rows = events.read_after(conn, schema, start, limit=size + 1, bound=bound, types=types or None, **about)
        return Response(page(rows, query=query, size=size, key=lambda row: row.id, shape=events.body_of))


class EventDetail(Endpoint):
    """One event."""

    actions = {"GET": "event.read"}

    @operation("events_read", "Read an event", answer=EventAnswer, tag=TAG)
    def get(self, request: Request, event_id: UUID) -> Response:
        self.query().finish()
        found = events.read_one(door.raw(), self.tenant.schema_name, event_id)
        if found is None or not may(self.actor, "event.read"):
            raise NotFound("There is no such event.")
        return Response(events.body_of(found))
