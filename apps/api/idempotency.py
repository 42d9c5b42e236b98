"""Idempotency-Key: a POST that is sent again is done once.

The answer is written in the transaction of the effect, and a transaction-long advisory lock marks a key whose request
is being served. A crash at any point ends the transaction and with it the lock: either both effect and answer stand,
or neither. Only successful answers are kept; a refused request changed nothing and may be sent again under its key.
"""

import hashlib
import hmac
import re
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import orjson
from django.conf import settings
from rest_framework.response import Response

from apps.api.models import IdempotentAnswer
from apps.api.renderers import encode, stored
from kernel.errors import Conflict, FieldError, InvalidInput, ShardbeatError
from tenants import door
from tenants.models import Tenant
from tenants.work import in_tenant

KEPT = timedelta(hours=72)
SHOWN_ONCE = ("key", "signing_secret", "token", "link")  # members of an answer that are never stored
KEPT_HEADERS = ("Location", "ETag")
REMOVED_AT_ONCE = 20
RETRY_AFTER_S = 1
_KEY = re.compile(r"[\x21-\x7e](?:[\x20-\x7e]{0,253}[\x21-\x7e])?")


class KeyReused(ShardbeatError):
    """The key belongs to another request."""

    code = "idempotency_key_reused"
    status = 422


def once(
    *, tenant: Tenant, key: str, method: str, path: str, body: Any, now: datetime, work: Callable[[], Response],
) -> Response:  # fmt: skip
    """The answer of `work`, or the one it gave before under this key.

    KeyReused when the key was used for something else; Conflict while the first request is still being served. What is
    kept of the body is a keyed digest, so that trying values does not tell a secret that was in it.
    """
    if not _KEY.fullmatch(key):
        detail = "An Idempotency-Key has 1 to 255 printable ASCII characters."
        raise InvalidInput([FieldError("", "invalid_idempotency_key", detail)], detail)
    fingerprint = _fingerprint(method, path, body)

    def serve() -> Response:
        _claim(tenant, key)
        known = IdempotentAnswer.objects.filter(tenant_id=tenant.pk, key=key, created_at__gt=now - KEPT).first()
        if known is not None:
            return _again(known, fingerprint)
        response = work()
        _keep(tenant, key, fingerprint, response, now)
        return response

    return in_tenant(tenant, serve)


def shown_once_left_out(data: Any) -> Any:
    """An answer with null in the place of new keys and secrets."""
    if isinstance(data, dict) and any(name in data for name in SHOWN_ONCE):
        return {name: None if name in SHOWN_ONCE else value for name, value in data.items()}
    return data


def _claim(tenant: Tenant, key: str) -> None:
    row = (
        door.raw()
        .execute("SELECT pg_try_advisory_xact_lock(hashtextextended(%s, %s))", [f"idempotency:{key}", tenant.pk])
        .fetchone()
    )
    if row is None or not row[0]:
        detail = "A request with this Idempotency-Key is still being served."
        raise Conflict(detail, code="request_in_progress", retry_after_s=RETRY_AFTER_S)


def _again(known: IdempotentAnswer, fingerprint: str) -> Response:
    if known.fingerprint != fingerprint:
        raise KeyReused("This Idempotency-Key was used for another request; take a new one.")
    headers = {**known.headers, "Idempotency-Replayed": "true"}
    return Response(stored(known.body), status=known.status, headers=headers)


def _keep(tenant: Tenant, key: str, fingerprint: str, response: Response, now: datetime) -> None:
    answer = IdempotentAnswer(
        tenant_id=tenant.pk, key=key, fingerprint=fingerprint, status=response.status_code,
        headers={name: response[name] for name in KEPT_HEADERS if name in response},
        body=encode(shown_once_left_out(response.data)).decode(), created_at=now,
    )  # fmt: skip
    IdempotentAnswer.objects.bulk_create(  # over one that is too old to count
        [answer], update_conflicts=True, unique_fields=["tenant_id", "key"],
        update_fields=["fingerprint", "status", "headers", "body", "created_at"],
    )  # fmt: skip
    old = IdempotentAnswer.objects.filter(created_at__lte=now - KEPT).order_by("created_at")
    IdempotentAnswer.objects.filter(
        pk__in=list(old.select_for_update(skip_locked=True).values_list("pk", flat=True)[:REMOVED_AT_ONCE])
    ).delete()


def _fingerprint(method: str, path: str, body: Any) -> str:
    text = orjson.dumps(body, option=orjson.OPT_SORT_KEYS)
    request = b"\n".join((method.encode(), path.encode(), text))
    return hmac.digest(settings.SECRET_KEY.encode(), request, hashlib.sha256).hex()
