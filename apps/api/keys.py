"""/api-keys"""

from datetime import timedelta
from typing import Any
from uuid import UUID

from rest_framework.request import Request
from rest_framework.response import Response

from apps.api.access import access_apikey
from apps.api.documents_people import ApiKeyAnswer, ApiKeyInput, ApiKeyRotateInput, NewApiKeyAnswer
from apps.api.endpoint import Endpoint, retry_safe
from apps.api.lists import PAGING, page
from apps.api.openapi import CURSOR_PARAMETER, PAGE_SIZE_PARAMETER, listing, operation
from apps.api.shapes import apikey_shape
from apps.schedules.input_fields import Fields
from apps.schedules.timing_trigger import read_instant
from kernel.errors import Faults
from tenants.apikeys import OVERLAP, OVERLAP_MAX, apikey_end, apikey_issue, apikey_rotate
from tenants.models import ApiKey
from tenants.permissions import KEY_ROLES

TAG = "API keys"
MAX_NAME_CHARS = 100


class ApiKeyList(Endpoint):
    """The tenant's API keys."""

    actions = {"GET": "apikey.read", "POST": "apikey.create"}

    @operation(
        "api_keys_list", "List API keys, newest first", answer=listing(ApiKeyAnswer, "ApiKey"), tag=TAG,
        parameters=[PAGE_SIZE_PARAMETER, CURSOR_PARAMETER],
    )  # fmt: skip
    def get(self, request: Request) -> Response:
        query = self.query(*PAGING)
        before, size = query.before(), query.page_size()
        query.finish()
        found = ApiKey.objects.filter(tenant=self.tenant).order_by("-pk")
        if before is not None:
            found = found.filter(pk__lt=before)
        return Response(
            page(list(found[: size + 1]), query=query, size=size, key=lambda row: row.pk, shape=apikey_shape)
        )

    @operation(
        "api_keys_create", "Create an API key; its text is shown only in this answer", body=ApiKeyInput,
        answer=NewApiKeyAnswer, status=201, retry_safe=True, tag=TAG, problems=("grant_too_high", "quota_exceeded"),
    )  # fmt: skip
    @retry_safe
    def post(self, request: Request) -> Response:
        faults = Faults()
        fields = Fields(self.body, faults)
        fields.only(("name", "role", "scopes", "expires_at"))
        name = fields.text("name", most=MAX_NAME_CHARS, required=True)
        role, scopes = fields.choice("role", KEY_ROLES), _scopes(fields)
        given = fields.data.get("expires_at")
        expires_at = None if given is None else read_instant(given, "/expires_at", "UTC", faults)
        faults.raise_if_any()
        key, text = apikey_issue(
            tenant=self.tenant, actor=self.actor, name=name or "", role=role, scopes=scopes, expires_at=expires_at,
            now=self.now,
        )  # fmt: skip
        return Response(
            {**apikey_shape(key), "key": text}, status=201, headers={"Location": f"{request.path}/{key.pk}"}
        )


class ApiKeyDetail(Endpoint):
    """One API key."""

    actions = {"GET": "apikey.read", "DELETE": "apikey.revoke"}

    @operation("api_keys_read", "Read an API key", answer=ApiKeyAnswer, tag=TAG)
    def get(self, request: Request, key_id: UUID) -> Response:
        self.query().finish()
        return Response(apikey_shape(access_apikey(actor=self.actor, key_id=key_id, need="apikey.read")))

    @operation("api_keys_revoke", "Revoke an API key at once", status=204, tag=TAG)
    def delete(self, request: Request, key_id: UUID) -> Response:
        apikey_end(tenant=self.tenant, actor=self.actor, key_id=key_id, now=self.now)
        return Response(status=204)


class ApiKeyRotate(Endpoint):
    """Changing over to a new key."""

    actions = {"POST": "apikey.rotate"}

    @operation(
        "api_keys_rotate", "Make a successor of a key, shown only in this answer; the key itself works on for a while",
        body=ApiKeyRotateInput, answer=NewApiKeyAnswer, status=201, retry_safe=True, tag=TAG,
        problems=("grant_too_high", "key_over", "already_rotated", "quota_exceeded"),
    )  # fmt: skip
    @retry_safe
    def post(self, request: Request, key_id: UUID) -> Response:
        access_apikey(actor=self.actor, key_id=key_id, need="apikey.rotate")  # 404 before anything of the body
        fields = Fields(self.body, Faults())
        fields.only(("overlap_s",))
        overlap_s = fields.whole("overlap_s", 0, int(OVERLAP_MAX.total_seconds()), int(OVERLAP.total_seconds()))
        fields.faults.raise_if_any()
        key, text = apikey_rotate(
            tenant=self.tenant, actor=self.actor, key_id=key_id, overlap=timedelta(seconds=overlap_s), now=self.now
        )
        place = f"{request.path.removesuffix(f'/{key_id}/rotate')}/{key.pk}"
        return Response({**apikey_shape(key), "key": text}, status=201, headers={"Location": place})


def _scopes(fields: Fields) -> list[str] | None:
    """A list of texts; whether they name something is the service's to say."""
    given: Any = fields.data.get("scopes")
    if given is None:
        return None
    if not isinstance(given, list) or not all(isinstance(one, str) for one in given):
        fields.faults.add("/scopes", "type", 'must be a list of texts such as ["schedule.*", "*.read"].')
        return None
    return given
