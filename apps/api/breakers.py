"""/breakers: destinations that are not called for a while."""

from typing import Any
from uuid import UUID

from rest_framework.request import Request
from rest_framework.response import Response

from apps.api.documents_breakers import BreakerAnswer
from apps.api.documents_runs import NoInput
from apps.api.endpoint import Endpoint, retry_safe
from apps.api.lists import PAGING, newest
from apps.api.openapi import CURSOR_PARAMETER, PAGE_SIZE_PARAMETER, listing, operation, parameter
from apps.api.reading import nothing_of
from apps.tickets.models import BREAKER_STATES, Breaker
from apps.tickets.resetting import breaker_reset

TAG = "breakers"


class BreakerList(Endpoint):
    """All breakers of the tenant."""

    actions = {"GET": "breaker.read"}

    @operation(
        "breakers_list", "List circuit breakers, newest first", answer=listing(BreakerAnswer, "Breaker"), tag=TAG,
        parameters=[
            parameter("state", choices=BREAKER_STATES), parameter("destination", text="host:port"),
            PAGE_SIZE_PARAMETER, CURSOR_PARAMETER,
        ],
    )  # fmt: skip
    def get(self, request: Request) -> Response:
        query = self.query("state", "destination", *PAGING)
        states, destination = query.choices("state", BREAKER_STATES), query.text("destination", most=270)
        found = Breaker.objects.filter(tenant_id=self.tenant.pk)
        if states:
            found = found.filter(state__in=states)
        if destination is not None:
            found = found.filter(destination=destination)
        return Response(newest(found, query=query, shape=breaker_shape))


class BreakerReset(Endpoint):
    """Closing a breaker by hand."""

    actions = {"POST": "breaker.reset"}

    @operation(
        "breakers_reset", "Close a circuit breaker; what waits for it is let go", body=NoInput, answer=BreakerAnswer,
        retry_safe=True, tag=TAG, problems=("breaker_closed",),
    )  # fmt: skip
    @retry_safe
    def post(self, request: Request, breaker_id: UUID) -> Response:
        nothing_of(self.body)
        done = breaker_reset(actor=self.actor, breaker_id=breaker_id, now=self.now, tenant_id=self.tenant.pk)
        return Response(breaker_shape(done))


def breaker_shape(row: Breaker) -> dict[str, Any]:
    """A breaker as the API answers it."""
    return {
        "id": row.pk,
        "destination": row.destination,
        "state": row.state,
        "failures": row.failures,
        "openings": row.openings,
        "reason": row.reason,
        "opened_at": row.opened_at,
        "retry_at": row.retry_at if row.state == "open" else None,
        "changed_at": row.changed_at,
    }
