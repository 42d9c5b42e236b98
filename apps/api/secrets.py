"""/secrets: values that jobs name and nobody reads."""

from typing import Any
from uuid import UUID

from rest_framework.request import Request
from rest_framework.response import Response

from apps.api.access import access_secret
from apps.api.documents_secrets import READ_ONLY, SecretAnswer, SecretChange, SecretInput, SecretReplacement
from apps.api.endpoint import Endpoint, retry_safe
from apps.api.etags import revisions, tagged
from apps.api.lists import PAGING, newest
from apps.api.openapi import CURSOR_PARAMETER, PAGE_SIZE_PARAMETER, listing, operation, parameter
from apps.api.reading import read_only_dropped
from apps.api.shapes import secret_shape
from apps.schedules.input_fields import Fields
from apps.schedules.services import secret_delete
from apps.secrets.models import Secret
from apps.secrets.services import MAX_DESCRIPTION_CHARS, secret_change, secret_create, value_faults
from kernel.errors import Faults

TAG = "secrets"
MAX_NAME_CHARS = 64


class SecretList(Endpoint):
    """All secrets."""

    actions = {"GET": "secret.read", "POST": "secret.create"}

    @operation(
        "secrets_list", "List secrets, newest first; without their values", answer=listing(SecretAnswer, "Secret"),
        tag=TAG,
        parameters=[
            parameter("name", text="part of the name, case does not count"), PAGE_SIZE_PARAMETER, CURSOR_PARAMETER
        ],
    )  # fmt: skip
    def get(self, request: Request) -> Response:
        query = self.query("name", *PAGING)
        found = Secret.objects.filter(purpose=Secret.Purpose.JOB).defer("nonce", "ciphertext")
        if (name := query.text("name")) is not None:
            found = found.filter(name__icontains=name)
        return Response(newest(found, query=query, shape=secret_shape))

    @operation(
        "secrets_create", "Create a secret; jobs name it, and nothing shows it", body=SecretInput, answer=SecretAnswer,
        status=201, retry_safe=True, tag=TAG,
        problems=("name_taken", "too_many_secrets", "quota_exceeded", "secrets_key_unknown"),
    )  # fmt: skip
    @retry_safe
    def post(self, request: Request) -> Response:
        fields = Fields(self.body, Faults())
        fields.only(("name", "value", "description"))
        name = fields.text("name", most=MAX_NAME_CHARS, required=True)
        value, description = _value(fields, required=True), _description(fields)
        fields.faults.raise_if_any()
        made = secret_create(
            tenant=self.tenant, actor=self.actor, name=name or "", value=value or "", description=description,
            now=self.now,
        )  # fmt: skip
        return tagged(secret_shape(made), made.revision, status=201, location=f"{request.path}/{made.pk}")


class SecretDetail(Endpoint):
    """One secret."""

    actions = {"GET": "secret.read", "PATCH": "secret.update", "PUT": "secret.update", "DELETE": "secret.delete"}

    @operation("secrets_read", "Read what is known of a secret, without its value", answer=SecretAnswer, tag=TAG)
    def get(self, request: Request, secret_id: UUID) -> Response:
        self.query().finish()
        found = access_secret(actor=self.actor, secret_id=secret_id, need="secret.read")
        return tagged(secret_shape(found), found.revision)

    @operation(
        "secrets_patch", "Give a secret another value or description; runs use it from their next start on",
        body=SecretChange, answer=SecretAnswer, if_match=True, tag=TAG, problems=("secrets_key_unknown",),
    )  # fmt: skip
    def patch(self, request: Request, secret_id: UUID) -> Response:
        return self._change(request, secret_id, self.body, whole=False)

    @operation(
        "secrets_replace", "Replace a secret's value and description", body=SecretReplacement, answer=SecretAnswer,
        if_match=True, tag=TAG, problems=("secrets_key_unknown",),
    )  # fmt: skip
    def put(self, request: Request, secret_id: UUID) -> Response:
        return self._change(request, secret_id, read_only_dropped(self.body, READ_ONLY), whole=True)

    @operation(
        "secrets_delete",
        "Delete a secret that no job names",
        status=204,
        if_match=True,
        tag=TAG,
        problems=("secret_in_use",),
    )
    def delete(self, request: Request, secret_id: UUID) -> Response:
        secret_delete(
            tenant=self.tenant, actor=self.actor, secret_id=secret_id, now=self.now, expect=revisions(request)
        )
        return Response(status=204)

    def _change(self, request: Request, secret_id: UUID, body: Any, *, whole: bool) -> Response:
        access_secret(actor=self.actor, secret_id=secret_id, need="secret.update")  # 404 before anything of the body
        fields = Fields(body, Faults())
        fields.only(("value", "description"), read_only=READ_ONLY)
        value = _value(fields, required=whole)
        description = _description(fields) if whole or "description" in fields.data else None
        fields.faults.raise_if_any()
        changed = secret_change(
            tenant=self.tenant, actor=self.actor, secret_id=secret_id, value=value, description=description,
            now=self.now, expect=revisions(request),
        )  # fmt: skip
        return tagged(secret_shape(changed), changed.revision)


def _value(fields: Fields, *, required: bool) -> str | None:
    """As it is: blanks may be part of it. Faults never repeat it."""
    value = fields.data.get("value")
    if "value" not in fields.data and not required:
        return None
    if value is None:
        fields.faults.add("/value", "required", "This field is required; a secret has a value.")
    elif not isinstance(value, str):
        fields.faults.add("/value", "type", "must be a text.")
    else:
        fields.faults.errors += [one for one in value_faults(value) if one not in fields.faults.errors]
        return value
    return None


def _description(fields: Fields) -> str:
    return fields.text("description", most=MAX_DESCRIPTION_CHARS) or ""
