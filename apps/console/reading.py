"""ModelAdmins that only read, and stay fast on tables of millions of rows.

Newest first by primary key, a capped count, no facets, no sorting by columns without an index, search by exact ids,
big columns left out of lists, three seconds a page. Nothing is added, changed or deleted here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar
from uuid import UUID

from django.contrib import admin
from django.contrib.admin import ShowFacets
from django.core.paginator import Paginator
from django.db import OperationalError, connection, transaction
from django.db.models import Q, QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.utils.http import urlencode
from psycopg.errors import QueryCanceled

from apps.console.selecting import refuse_hidden

if TYPE_CHECKING:
    BaseAdmin = admin.ModelAdmin[Any]
    BasePaginator = Paginator[Any]
else:
    BaseAdmin, BasePaginator = admin.ModelAdmin, Paginator

CAP = 10_000
PAGE = 100
STATEMENT_MS = 3_000
TRAIL = "/admin/audit/auditevent/"


class CappedPaginator(BasePaginator):
    """Counts to CAP and no further; `capped` says that there is more."""

    @cached_property
    def count(self) -> int:
        self.capped = False
        rows: Any = self.object_list
        found: int = rows.order_by()[: CAP + 1].count()
        self.capped = found > CAP
        return min(found, CAP)


class ReadOnlyAdmin(BaseAdmin):
    """Lists and looks. `uuid_search` and `exact_search` name indexed columns."""

    uuid_search: tuple[str, ...] = ()
    exact_search: tuple[str, ...] = ()
    deferred: tuple[str, ...] = ()
    list_per_page = PAGE
    list_max_show_all = PAGE
    show_full_result_count = False
    show_facets = ShowFacets.NEVER
    list_select_related: ClassVar[Any] = False
    sortable_by: ClassVar[Any] = ()
    ordering: ClassVar[Any] = ("-pk",)
    paginator = CappedPaginator
    change_list_template = "console/change_list.html"

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        rows: QuerySet[Any] = super().get_queryset(request)
        match = request.resolver_match
        in_list = match is not None and str(match.url_name).endswith("_changelist")
        return rows.defer(*self.deferred) if in_list and self.deferred else rows

    def get_search_fields(self, request: HttpRequest) -> tuple[str, ...]:
        return (*self.uuid_search, *self.exact_search)

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Any], search_term: str
    ) -> tuple[QuerySet[Any], bool]:
        """Exact matches only: all of it in one column, or each of its words in some column."""
        words = search_term.split()
        if not words:
            return queryset, False
        every = Q()
        for word in words:
            every &= self._matches(word)
        return queryset.filter(self._matches(" ".join(words)) | every), False

    def _matches(self, text: str) -> Q:
        key = as_uuid(text)
        wanted = Q()
        for name in self.uuid_search if key is not None else ():
            wanted |= Q(**{name: key})
        for name in self.exact_search:
            wanted |= Q(**{name: text})
        return wanted if wanted else Q(pk__in=[])

    def history_view(
        self, request: HttpRequest, object_id: str, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """The object's rows in the audit trail, which is on the public site."""
        return HttpResponseRedirect(f"{TRAIL}?{urlencode({'q': object_id})}")

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        if request.method != "GET":  # an action has its own transactions
            refuse_hidden(self, request)
            return super().changelist_view(request, extra_context)
        return bounded(self, request, lambda: super(ReadOnlyAdmin, self).changelist_view(request, extra_context))


def bounded(model_admin: Any, request: HttpRequest, view: Callable[[], HttpResponse]) -> HttpResponse:
    """The page, rendered while its statements are bounded; else one that says how to ask for less."""
    try:
        with short_statements():
            response = view()
            return response.render() if isinstance(response, TemplateResponse) else response
    except OperationalError as error:
        if not isinstance(error.__cause__, QueryCanceled):
            raise
    context = {
        **model_admin.admin_site.each_context(request),
        "title": "This list takes too long",
        "opts": model_admin.opts,
    }
    return TemplateResponse(request, "console/narrow.html", context, status=503).render()


@contextmanager
def short_statements() -> Iterator[datetime]:
    """One transaction in which no statement takes longer than STATEMENT_MS; the database's time."""
    with transaction.atomic():
        with connection.cursor() as cursor:
            cursor.execute("SELECT clock_timestamp(), set_config('statement_timeout', %s, true)", [str(STATEMENT_MS)])
            now: datetime = cursor.fetchone()[0]
        yield now


def as_uuid(text: str) -> UUID | None:
    """The id that a text is, if it is one."""
    try:
        return UUID(text)
    except ValueError:
        return None
