"""The base of all pages: whose page it is, what they may do there, and what a refusal looks like.

The tenant is the host's, the person the session's; neither is ever in the path or in a form. Pages call the same
services as the API and ask the same table of permissions, so that nobody can do more here than there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any, ClassVar, cast

from django.db import OperationalError, connection, transaction
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import render
from django.urls import reverse
from django.views import View
from psycopg.errors import QueryCanceled

from apps.audit.refused import NOTED, note
from apps.audit.services import Actor, record
from apps.portal.login_gate import PortalRequest, signed_in
from kernel.errors import Forbidden, ShardbeatError
from tenants.models import Tenant
from tenants.permissions import LEAST_ROLE, may, role_reaches

STATEMENT_MS = 3_000
OBJECT_ID_CHARS = 64  # of the audit trail


@dataclass(frozen=True, slots=True)
class Offer:
    """Something that can be done from a page; `why` says why not, when it can't."""

    label: str
    url: str
    kind: str = ""  # "primary", "danger" or plain
    why: str = ""


class Page(View):
    """`actions` names, by method, what the permissions table decides about."""

    actions: ClassVar[Mapping[str, str]] = {}
    section: ClassVar[str] = ""
    http_method_names = ["get", "head", "post"]

    @property
    def inner(self) -> PortalRequest:
        return cast("PortalRequest", self.request)

    @property
    def tenant(self) -> Tenant:
        return self.inner.tenant

    @property
    def actor(self) -> Actor:
        return self.inner.actor

    @property
    def now(self) -> datetime:
        return self.inner.now

    def dispatch(self, request: Any, *args: Any, **kwargs: Any) -> Any:
        return signed_in(self._serve)(request, *args, **kwargs)

    def page(self, template: str, *, status: int = 200, **context: Any) -> HttpResponse:
        """The page."""
        base = {"page": self, "section": self.section, "now": self.now, "actor": self.actor, "tenant": self.tenant}
        return render(self.request, template, {**base, **context}, status=status)

    def problem(self, error: ShardbeatError) -> HttpResponse:
        """What is wrong, in the words of the service that refused."""
        shown = {400: 400, 403: 403, 404: 404, 409: 409, 412: 409, 429: 429}.get(error.status)
        if shown is None:
            raise error
        title = PROBLEMS.get(shown, "That did not work")
        return self.page("portal/problem.html", status=shown, title=title, detail=error.detail, error=error)

    def refused(self, error: ShardbeatError) -> None:
        """Notes what a service refused, as the API does; whoever shows it in the form has to call this."""
        action = self.actions.get(str(self.request.method))
        if action is not None and isinstance(error, NOTED):
            note(
                error, actor=self.actor, action=action, object_id=self._object_id(), now=self.now,
                tenant_id=self.tenant.pk,
            )  # fmt: skip

    def may(self, action: str) -> bool:
        return may(self.actor, action)

    def offer(
        self, label: str, url_name: str, action: str, *args: Any, kind: str = "", blocked: str = "", query: str = ""
    ) -> Offer:
        """A verb's link, or why this person or this state can't have it; `query` says what of a list it is about."""
        why, url = self.lacks(action) or blocked, reverse(url_name, args=args)
        return Offer(label, f"{url}?{query}" if query else url, kind, why)

    def lacks(self, action: str) -> str:
        """What the person lacks for an action, as a sentence; empty when nothing."""
        if self.may(action):
            return ""
        if role_reaches(self.actor.role, action):
            return "Your access is narrowed to other things."
        return f"This needs the role {LEAST_ROLE[action]}; you are {self.actor.role}."

    def _serve(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        try:
            self._permit()
        except ShardbeatError as error:
            return self.problem(error)
        try:
            return self._answer(request, *args, **kwargs)
        except ShardbeatError as error:
            self.refused(error)
            return self.problem(error)

    def _permit(self) -> None:
        method = "GET" if self.request.method == "HEAD" else str(self.request.method)
        action = self.actions.get(method)
        if action is None or self.may(action):
            return
        object_type, _, _ = action.partition(".")
        record(
            actor=self.actor, action=action, object_type=object_type, object_id=self._object_id(),
            now=self.now, tenant_id=self.tenant.pk, allowed=False, reason=f"role {self.actor.role}",
        )  # fmt: skip
        raise Forbidden(self.lacks(action), code="role_too_low", needs=LEAST_ROLE[action])

    def _object_id(self) -> str:
        return str(next(iter(self.kwargs.values()), ""))[:OBJECT_ID_CHARS]

    def _answer(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        if request.method not in ("GET", "HEAD"):  # services have their own transactions
            return cast("HttpResponse", super().dispatch(request, *args, **kwargs))
        try:
            with short_statements():
                return cast("HttpResponse", super().dispatch(request, *args, **kwargs))
        except OperationalError as error:
            if not isinstance(error.__cause__, QueryCanceled):
                raise
        return self.page("portal/narrow.html", status=503, title="This takes too long")


PROBLEMS = {
    400: "That can't be done like this",
    403: "This is not for your role",
    404: "There is nothing here",
    409: "Its state does not allow this now",
    429: "A limit is reached",
}


@contextmanager
def short_statements() -> Iterator[None]:
    """One transaction in which no statement takes longer than STATEMENT_MS."""
    with transaction.atomic():
        with connection.cursor() as cursor:
            cursor.execute(f"SET LOCAL statement_timeout = {STATEMENT_MS}")
        yield


def go(url_name: str, *args: Any) -> HttpResponseRedirect:
    """To another page, by GET."""
    response = HttpResponseRedirect(reverse(url_name, args=args))
    response.status_code = 303
    return response
