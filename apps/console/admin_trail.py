"""The audit trail, to read."""

from __future__ import annotations

import json
from typing import Any

from django.contrib import admin
from django.contrib.admin.views.main import ChangeList
from django.contrib.auth.models import User
from django.db.models import OuterRef, QuerySet, Subquery
from django.http import HttpRequest

from apps.audit.actors import member, operator
from apps.audit.chain import fits
from apps.audit.models import AuditEvent
from apps.audit.shown import Shown, shown
from apps.console.filters import choice_filter
from apps.console.reading import ReadOnlyAdmin
from apps.console.shown import excerpt, json_field
from kernel.errors import ShardbeatError
from kernel.sealing import Unreadable
from tenants import door
from tenants.models import Member, Tenant


class ByTenantAdmin(ReadOnlyAdmin):
    """Rows that carry a tenant's number: the list shows its name, and a word of the search may be its slug."""

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        slug = Tenant.objects.filter(pk=OuterRef("tenant_id")).values("slug")[:1]
        rows: QuerySet[Any] = super().get_queryset(request).annotate(tenant_slug=Subquery(slug))
        return rows

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Any], search_term: str
    ) -> tuple[QuerySet[Any], bool]:
        words = search_term.split()
        slugs = dict(Tenant.objects.filter(slug__in=words[:20]).values_list("slug", "pk")) if words else {}
        for tenant_id in slugs.values():
            queryset = queryset.filter(tenant_id=tenant_id)
        return super().get_search_results(request, queryset, " ".join(word for word in words if word not in slugs))

    @admin.display(description="tenant")
    def tenant(self, obj: Any) -> str:
        return obj.tenant_slug or (f"#{obj.tenant_id}" if obj.tenant_id else "-")


class NamedChangeList(ChangeList):
    """Finds out once for a whole page who the rows are of."""

    def get_results(self, request: HttpRequest) -> None:
        super().get_results(request)
        rows = list(self.result_list)
        for row, one in zip(rows, shown(rows, seals=False), strict=True):
            row.shown = one
        self.result_list = rows


@admin.register(AuditEvent)
class AuditEventAdmin(ByTenantAdmin):
    """Who did what, when, to what. The database refuses changes, too, and the chain of hashes shows any."""

    list_display = ("at", "tenant", "who", "action", "object_type", "object_id", "allowed", "reason")
    list_filter = (choice_filter("allowed", ("True", "False"), "allowed"),)
    exact_search = ("object_id", "object_type", "action", "actor", "subject", "about", "request_id")
    search_help_text = "Tenant, object id, object type, action, login or other actor, request id, exactly."
    deferred = ("before", "after")
    fields = (
        "at", "tenant", "who", "actor", "role", "address", "agent", "action", "object_type", "object_id", "allowed",
        "reason", "request_id", "about", "about_shown", "before_shown", "after_shown", "chain",
    )  # fmt: skip
    readonly_fields = ("tenant", "who", "address", "agent", "about_shown", "before_shown", "after_shown", "chain")
    before_shown, after_shown = json_field("before"), json_field("after")

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[ChangeList]:
        return NamedChangeList

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Any], search_term: str
    ) -> tuple[QuerySet[Any], bool]:
        """A word may be a login, with or without what the trail puts before it: the row holds only its number."""
        words = search_term.split()
        names = {word.removeprefix("admin:").removeprefix("member:"): word for word in words[:20]}
        if not names:
            return super().get_search_results(request, queryset, search_term)
        members = Member.objects.filter(email__in=names).values_list("email", "uid")
        operators = User.objects.filter(username__in=names).values_list("username", "pk")
        logins = {names[name]: member(uid) for name, uid in members}
        logins |= {names[name]: operator(pk) for name, pk in operators}
        return super().get_search_results(request, queryset, " ".join(logins.get(word, word) for word in words))

    @admin.display(description="actor")
    def who(self, obj: Any) -> str:
        return self._shown(obj).who

    @admin.display(description="address")
    def address(self, obj: Any) -> str:
        return self._shown(obj).opened.address or self._lost(obj)

    @admin.display(description="program")
    def agent(self, obj: Any) -> str:
        return self._shown(obj).opened.agent or self._lost(obj)

    @admin.display(description="about whom")
    def about_shown(self, obj: Any) -> str:
        about = self._shown(obj).opened.about
        return excerpt(json.dumps(dict(about), indent=1, ensure_ascii=False)) if about else self._lost(obj)

    @admin.display(description="chain")
    def chain(self, obj: Any) -> str:
        seal = self._shown(obj).seal
        if seal is None:
            return "Not sealed yet."
        try:
            right = fits(door.raw(), obj.pk)
        except (ShardbeatError, Unreadable) as error:
            return f"Link {seal.number}; it can't be checked here: {error}"
        says = "fits the row and the link before" if right else "DOES NOT FIT: the row or a link was changed"
        return f"Link {seal.number} of {seal.sealed_at:%Y-%m-%d %H:%M:%S} {says}. {bytes(seal.head).hex()}"

    def _lost(self, obj: Any) -> str:
        return "(erased)" if self._shown(obj).opened.erased else "-"

    def _shown(self, obj: Any) -> Shown:
        if not hasattr(obj, "shown"):
            obj.shown = shown([obj])[0]
        found: Shown = obj.shown
        return found
