"""/signing-secrets: what signs the tenant's outgoing calls."""

from datetime import timedelta

from rest_framework.request import Request
from rest_framework.response import Response

from apps.api.documents_secrets import NewSigningAnswer, SigningAnswer, SigningRotateInput
from apps.api.endpoint import Endpoint, retry_safe
from apps.api.lists import PAGING, newest
from apps.api.openapi import CURSOR_PARAMETER, PAGE_SIZE_PARAMETER, listing, operation
from apps.api.shapes import signing_shape
from apps.schedules.input_fields import Fields
from apps.secrets.signing import OVERLAP, OVERLAP_MAX, signing_rotate, signing_secrets
from kernel.errors import Faults

TAG = "signing secrets"
MAX_TEXT_CHARS = 200


class SigningList(Endpoint):
    """What signs now."""

    actions = {"GET": "signing.read"}

    @operation(
        "signing_secrets_list", "List the secrets that sign outgoing calls now, newest first: none, one or two",
        answer=listing(SigningAnswer, "SigningSecret"), parameters=[PAGE_SIZE_PARAMETER, CURSOR_PARAMETER], tag=TAG,
    )  # fmt: skip
    def get(self, request: Request) -> Response:
        query = self.query(*PAGING)
        return Response(newest(signing_secrets(now=self.now), query=query, shape=signing_shape))


class SigningRotate(Endpoint):
    """Changing over to another one."""

    actions = {"POST": "signing.rotate"}

    @operation(
        "signing_secrets_rotate", "Make a new signing secret, shown only in this answer; the former signs as well "
        "for a while", body=SigningRotateInput, answer=NewSigningAnswer, status=201, retry_safe=True, tag=TAG,
        problems=("secrets_key_unknown",),
    )  # fmt: skip
    @retry_safe
    def post(self, request: Request) -> Response:
        fields = Fields(self.body, Faults())
        fields.only(("overlap_s", "signing_secret"))
        longest_s = int(OVERLAP_MAX.total_seconds())
        overlap_s = fields.whole("overlap_s", 0, longest_s, int(OVERLAP.total_seconds()))
        text = fields.text("signing_secret", most=MAX_TEXT_CHARS)
        fields.faults.raise_if_any()
        made = signing_rotate(
            tenant=self.tenant, actor=self.actor, now=self.now, overlap=timedelta(seconds=overlap_s), text=text
        )
        return Response({**signing_shape(made.secret), "signing_secret": made.text}, status=201)
