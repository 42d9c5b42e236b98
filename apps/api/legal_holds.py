"""/legal-holds: what must be kept whatever its age."""

from typing import Any
from uuid import UUID

from rest_framework.request import Request
from rest_framework.response import Response

from apps.api.access import access_hold
from apps.api.codes import OF_ARCHIVES
from apps.api.documents_holds import HoldAnswer, HoldInput, HoldReleaseInput
from apps.api.endpoint import Endpoint, retry_safe
from apps.api.lists import PAGING, newest
from apps.api.openapi import CURSOR_PARAMETER, PAGE_SIZE_PARAMETER, listing, operation, parameter
from apps.api.reading import reason_of
from apps.archive.holding import hold_place, hold_release
from apps.archive.models import SCOPES, LegalHold

TAG = "legal holds"
STATUSES = ("open", "released")


class HoldList(Endpoint):
    """All legal holds, those that are released among them."""

    actions = {"GET": "hold.read", "POST": "hold.create"}

    @operation(
        "legal_holds_list", "List legal holds, newest first", answer=listing(HoldAnswer, "LegalHold"), tag=TAG,
        parameters=[
            parameter("status", choices=STATUSES, several=False, text="open or released; both when left out"),
            parameter("scope", choices=SCOPES, text="one or several scopes, with commas between them"),
            parameter("object", UUID, text="id of what is held"), PAGE_SIZE_PARAMETER, CURSOR_PARAMETER,
        ],
    )  # fmt: skip
    def get(self, request: Request) -> Response:
        query = self.query("status", "scope", "object", *PAGING)
        statuses, scopes, object_id = (
            query.choices("status", STATUSES),
            query.choices("scope", SCOPES),
            query.id("object"),
        )
        found = LegalHold.objects.all()
        if len(statuses) == 1:
            found = found.filter(released_at__isnull=statuses == ["open"])
        if scopes:
            found = found.filter(scope__in=scopes)
        if object_id is not None:
            found = found.filter(object_id=object_id)
        return Response(newest(found, query=query, shape=hold_shape))

    @operation(
        "legal_holds_create", "Place a legal hold: from the answer on nothing of what it names is deleted",
        body=HoldInput, answer=HoldAnswer, status=201, retry_safe=True, tag=TAG,
        problems=("too_many_holds", "grace_over", *OF_ARCHIVES),
    )  # fmt: skip
    @retry_safe
    def post(self, request: Request) -> Response:
        made = hold_place(tenant=self.tenant, actor=self.actor, data=self.body, now=self.now)
        return Response(hold_shape(made), status=201, headers={"Location": f"{request.path}/{made.pk}"})


class HoldDetail(Endpoint):
    """One legal hold."""

    actions = {"GET": "hold.read"}

    @operation("legal_holds_read", "Read a legal hold", answer=HoldAnswer, tag=TAG)
    def get(self, request: Request, hold_id: UUID) -> Response:
        self.query().finish()
        return Response(hold_shape(access_hold(actor=self.actor, hold_id=hold_id, need="hold.read")))


class HoldRelease(Endpoint):
    """The end of a legal hold."""

    actions = {"POST": "hold.release"}

    @operation(
        "legal_holds_release", "Release a legal hold; what is old enough goes with the next clean-up",
        body=HoldReleaseInput, answer=HoldAnswer, retry_safe=True, tag=TAG,
        problems=("already_released", "hold_of_operator"),
    )  # fmt: skip
    @retry_safe
    def post(self, request: Request, hold_id: UUID) -> Response:
        access_hold(actor=self.actor, hold_id=hold_id, need="hold.release")  # 404 before anything of the body
        reason = reason_of(self.body, required=True)
        released = hold_release(tenant=self.tenant, actor=self.actor, hold_id=hold_id, reason=reason, now=self.now)
        return Response(hold_shape(released))


def hold_shape(hold: LegalHold) -> dict[str, Any]:
    """A legal hold as the API answers it."""
    return {
        "id": hold.pk,
        "scope": hold.scope,
        "object": hold.object_id,
        "from_at": hold.from_at,
        "until_at": hold.until_at,
        "reason": hold.reason,
        "by_operator": hold.by_operator,
        "created_by": hold.created_by,
        "created_at": hold.created_at,
        "released_at": hold.released_at,
        "released_by": hold.released_by or None,
        "released_reason": hold.released_reason or None,
    }
