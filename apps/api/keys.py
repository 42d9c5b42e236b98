"""/api-keys"""

from datetime import datetime
from typing import Any
from uuid import UUID

from django.db import transaction
from rest_framework.request import Request
from rest_framework.response import Response

from apps.api.access import access_apikey
from apps.api.documents_runs import ApiKeyAnswer, ApiKeyInput, NewApiKeyAnswer
from apps.api.endpoint import Endpoint, retry_safe
from apps.api.lists import PAGING, page
from apps.api.openapi import CURSOR_PARAMETER, PAGE_SIZE_PARAMETER, listing, operation
from apps.api.shapes import apikey_shape
from apps.audit.services import record
from apps.schedules.input_fields import Fields
from apps.schedules.timing_trigger import read_instant
from kernel.errors import Faults
from tenants.keys import apikey_create, apikey_revoke
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
        answer=NewApiKeyAnswer, status=201, retry_safe=True, tag=TAG,
    )  # fmt: skip
    @retry_safe
    def post(self, request: Request) -> Response:
        name, role, expires_at = _read(self.body, self.now)
        with transaction.atomic():
            key, text = apikey_create(tenant=self.tenant, name=name, role=role, expires_at=expires_at)
            self.record("apikey.create", key, after={"name": name, "role": role, "expires_at": _text(expires_at)})
        headers = {"Location": f"{request.path}/{key.pk}"}
        return Response({**apikey_shape(key), "key": text}, status=201, headers=headers)

    def record(self, action: str, key: ApiKey, **more: Any) -> None:
        record(
            actor=self.actor, action=action, object_type="apikey", object_id=key.pk, now=self.now,
            tenant_id=self.tenant.pk, **more,
        )  # fmt: skip


class ApiKeyDetail(Endpoint):
    """One API key."""

    actions = {"GET": "apikey.read", "DELETE": "apikey.revoke"}

    @operation("api_keys_read", "Read an API key", answer=ApiKeyAnswer, tag=TAG)
    def get(self, request: Request, key_id: UUID) -> Response:
        self.query().finish()
        return Response(apikey_shape(access_apikey(actor=self.actor, key_id=key_id, need="apikey.read")))

    @operation("api_keys_revoke", "Revoke an API key at once", status=204, tag=TAG)
    def delete(self, request: Request, key_id: UUID) -> Response:
        key = access_apikey(actor=self.actor, key_id=key_id, need="apikey.revoke")
        with transaction.atomic():
            if apikey_revoke(key, now=self.now):
                record(
                    actor=self.actor, action="apikey.revoke", object_type="apikey", object_id=key.pk, now=self.now,
                    tenant_id=self.tenant.pk,
                )  # fmt: skip
        return Response(status=204)


def _read(body: Any, now: datetime) -> tuple[str, str, datetime | None]:
    faults = Faults()
    fields = Fields(body, faults)
    fields.only(("name", "role", "expires_at"))
    name = fields.text("name", most=MAX_NAME_CHARS, required=True)
    role = fields.choice("role", KEY_ROLES)
    given = fields.data.get("expires_at")
    expires_at = None if given is None else read_instant(given, "/expires_at", "UTC", faults)
    if expires_at is not None and expires_at <= now:
        faults.add("/expires_at", "past", "must lie in the future.")
    faults.raise_if_any()
    return name or "", role, expires_at


def _text(at: datetime | None) -> str | None:
    return None if at is None else at.isoformat()
