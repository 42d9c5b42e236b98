"""The base of all API views: who asks, for which tenant, at which time, with which body."""

from collections.abc import Callable, Mapping
from datetime import datetime
from functools import wraps
from typing import Any, ClassVar, cast

from django.http import QueryDict
from rest_framework.parsers import BaseParser
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from apps.api.deprecation import say as say_deprecated
from apps.api.idempotency import once
from apps.api.lists import SELECTING, ListQuery
from apps.api.middleware import TenantRequest
from apps.api.parsers import JsonParser, MergePatchParser
from apps.api.rehearsal import PARAMETER, rehearsed
from apps.api.renderers import AnswerRenderer
from apps.api.selecting import fields_asked, fields_of, read_answer
from apps.audit.services import Actor
from kernel.errors import Forbidden
from tenants.models import Tenant

Handler = Callable[..., Response]


class Endpoint(APIView):
    """`actions` names, by HTTP method, what the permissions table decides about."""

    actions: ClassVar[Mapping[str, str]] = {}
    validate_only = False  # of this request
    fields: frozenset[str] | None = None  # that this request selects of the answer
    renderer_classes = [AnswerRenderer]
    http_method_names = ["get", "head", "post", "put", "patch", "delete"]

    @property
    def inner(self) -> TenantRequest:
        return cast("TenantRequest", self.request._request)

    @property
    def tenant(self) -> Tenant:
        tenant = self.inner.tenant
        if tenant is None:  # permissions have refused it before; an empty tenant is nobody, never everybody
            raise Forbidden("The request is for no tenant.", code="no_tenant")
        return tenant

    @property
    def actor(self) -> Actor:
        return cast("Actor", self.request.user)

    @property
    def now(self) -> datetime:
        return self.inner.now

    @property
    def body(self) -> Any:
        """The decoded body; an empty object when there is none."""
        data = self.request.data
        return {} if isinstance(data, QueryDict) else data

    def query(self, *names: str) -> ListQuery:
        """The query parameters; only these names are known, and for reads `fields`, which `initial` has read."""
        known = (*names, SELECTING) if self._selectable() else names
        return ListQuery(self.request.query_params, known, path=self.request.path)

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        super().initial(request, *args, **kwargs)
        if request.method in ("GET", "HEAD"):
            self.fields = fields_asked(request, self._selectable())
            return
        # What changes something has no other query parameter.
        can_be = getattr(getattr(self, str(request.method).lower(), None), "rehearsed", False)
        query = self.query(PARAMETER) if can_be else self.query()
        self.validate_only = can_be and query.flag(PARAMETER)
        query.finish()

    def finalize_response(self, request: Request, response: Any, *args: Any, **kwargs: Any) -> Any:
        finished = super().finalize_response(request, response, *args, **kwargs)
        if request.method in ("GET", "HEAD") and finished.status_code == 200 and self._selectable():
            finished = read_answer(request, finished, self.fields)
        finished.headers.setdefault("Cache-Control", "no-store")  # an answer is for this key only
        say_deprecated(getattr(self, str(request.method).lower(), None), finished)
        return finished

    def _selectable(self) -> frozenset[str]:
        """The members of what GET answers, as its operation is described."""
        if self.request.method not in ("GET", "HEAD"):
            return frozenset()
        return fields_of(getattr(getattr(self, "get", None), "answer", None))

    def get_parsers(self) -> list[BaseParser]:
        if self.request is not None and self.request.method == "PATCH":
            return [JsonParser(), MergePatchParser()]
        return [JsonParser()]


def retry_safe(method: Handler) -> Handler:
    """A POST that honours Idempotency-Key."""

    @wraps(method)
    def handle(self: Endpoint, request: Request, **ids: Any) -> Response:
        key = request.headers.get("Idempotency-Key")
        if key is None or self.validate_only:
            return method(self, request, **ids)
        return once(
            tenant=self.tenant, key=key, method=str(request.method), path=request.path, body=self.body, now=self.now,
            work=lambda: method(self, request, **ids),
        )  # fmt: skip

    return handle


def changes_what_is_stored(method: Handler) -> Handler:
    """A handler that honours validate_only: its effects are in this thread's transaction, all of them."""

    @wraps(method)
    def handle(self: Endpoint, request: Request, **ids: Any) -> Response:
        if not self.validate_only:
            return method(self, request, **ids)
        return rehearsed(self.tenant, lambda: method(self, request, **ids))

    handle.rehearsed = True  # type: ignore[attr-defined]  # `initial` looks for it
    return handle
