"""The page of a verb on several rows: what it would do to each, one reason for all, and what became of each.

`/admin/do-many/<verb>/` and `/t/<slug>/admin/do-many/<verb>/`. Rows that are ticked in a table come here, and those
that a receipt takes back. Each is a verb of its own: it has its own version, its own rows of the trail, its own
refusal. What has changed since it was looked at is left out, and the answer is 409 with what differs; all others are
done. The answer is the receipt itself; its lasting address is that of the rows in the trail, which it names.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Any, NamedTuple

from django.contrib.admin import AdminSite
from django.core.exceptions import PermissionDenied
from django.db import OperationalError
from django.http import Http404, HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.urls import URLPattern, path
from django.utils.http import url_has_allowed_host_and_scheme
from psycopg.errors import QueryCanceled

from apps.audit.trail import actor_of, database_now
from apps.console import roles
from apps.console.reading import short_statements
from apps.console.verbs.base import Ask, Changed, Line, Preview, Receipt, Step, Verb
from apps.console.verbs.doing import REASON_CHARS, verb_do, verb_look
from apps.console.verbs.offering import many_url
from apps.console.verbs.pages import WhyForm, around, differing, signed, unsigned
from apps.console.verbs.registry import verb_named
from kernel.errors import Forbidden, NotFound, ShardbeatError
from tenants import door
from tenants.models import Tenant

ROWS_MOST = 100  # as a table has on one page
ROW, BACK = "row", "back"


@dataclass(slots=True)
class Row:
    """One row: what it would do, or what became of it. `why` says why nothing can be or was done."""

    key: str
    tenant: Tenant | None
    target: str
    preview: Preview | None = None
    receipt: Receipt | None = None
    why: str = ""
    changed: bool = False  # since it was looked at; `differs` says in what of that which was shown
    differs: Sequence[Line] = ()

    @property
    def changes(self) -> list[Line]:
        """The lines that would be otherwise then."""
        return [one for one in self.preview.lines if one.after is not None] if self.preview else []

    @property
    def stays(self) -> list[Line]:
        """The others."""
        return [one for one in self.preview.lines if one.after is None] if self.preview else []


class Next(NamedTuple):
    """What one may do next to several rows: the way back, or another look. `off` says why not."""

    verb: Verb
    label: str
    url: str
    keys: list[str]
    off: str


@dataclass(slots=True)
class Sheet:
    """One look at the page."""

    verb: Verb
    site: AdminSite
    request: HttpRequest
    rows: list[Row]
    back: str = ""
    why: WhyForm = field(default_factory=WhyForm)

    @property
    def tenant(self) -> Tenant | None:
        """Whose site it is."""
        return getattr(self.request, "console_tenant", None)

    @property
    def url(self) -> str:
        return many_url(self.verb, tenant=self.tenant.slug if self.tenant else "")


def patterns(site: AdminSite) -> list[URLPattern]:
    """The address of all verbs of one site on several rows."""

    def view(request: HttpRequest, name: str) -> HttpResponse:
        return many_page(site, request, name)

    return [path("do-many/<str:name>/", site.admin_view(view), name="verb_many")]


def key_of(target: object, *, slug: str = "") -> str:
    """A row as the page's form sends it: with the tenant's slug where the page is not the tenant's."""
    return f"{slug}/{target}" if slug else str(target)


def many_page(site: AdminSite, request: HttpRequest, name: str) -> HttpResponse:
    """Looks at the rows that are sent, or does it to those that were looked at."""
    data = request.POST if request.method == "POST" else request.GET
    seen = unsigned(str(data.get("seen", "")), about=request.path)
    keys = list(seen.get("rows", ())) or data.getlist(ROW)[:ROWS_MOST]
    sheet = _sheet(site, request, name, keys, back=seen.get("back") or str(data.get(BACK, "")))
    if request.method == "POST" and seen:
        sheet.why = WhyForm(data)
        lack = roles.lacks(request.user, sheet.verb.level)
        if lack or sheet.why.is_valid():
            return _done(sheet, seen["rows"])
    return _looked(sheet)


def many_look(site: AdminSite, request: HttpRequest, name: str, keys: Iterable[str], *, back: str) -> HttpResponse:
    """The page for rows that were ticked in a table."""
    return _looked(_sheet(site, request, name, list(keys)[:ROWS_MOST], back=back))


def _sheet(site: AdminSite, request: HttpRequest, name: str, keys: Sequence[str], *, back: str) -> Sheet:
    verb, tenant = verb_named(name), getattr(request, "console_tenant", None)
    if verb is None or verb.form is not None or (tenant is not None and verb.scope != "tenant"):
        raise Http404("There is no such verb on several rows.")
    if not roles.may(request.user, roles.VIEW):
        raise PermissionDenied
    rows = list(_rows(verb, tenant, [key for key in dict.fromkeys(keys) if "\0" not in key]))
    if not rows:
        raise Http404("No row was named.")
    return Sheet(verb, site, request, rows, back if url_has_allowed_host_and_scheme(back, None) else "")


def _rows(verb: Verb, tenant: Tenant | None, keys: Sequence[str]) -> Iterator[Row]:
    if tenant is not None or verb.scope != "tenant":
        yield from (Row(key, tenant, key) for key in keys)
        return
    named = [(key, *key.partition("/")[::2]) for key in keys]
    tenants = Tenant.objects.select_related("plan").filter(slug__in={slug for _, slug, _ in named})
    found = {one.slug: one for one in tenants}
    yield from (Row(key, found.get(slug), target) for key, slug, target in sorted(named, key=lambda one: one[1]))


def _looked(sheet: Sheet) -> HttpResponse:
    """What it would do to each, and the form that does it."""
    try:
        for _, rows in groupby(sheet.rows, lambda row: row.tenant and row.tenant.pk):
            _look_at(sheet, list(rows))
    except (OperationalError, QueryCanceled) as error:
        if not isinstance(door.cause_of(error), QueryCanceled):
            raise
        return _shown(
            sheet, "console/narrow_page.html", status=503, title=f"{sheet.verb.label}: this takes too long"
        )  # fmt: skip
    lack = roles.lacks(sheet.request.user, sheet.verb.level)
    seen = {
        row.key: {"version": row.preview.version, "lines": [[one.name, one.value] for one in row.preview.lines]}
        for row in sheet.rows
        if row.preview is not None and (lack or not row.why)  # what can't be done now is not tried
    }
    kept = {"seen": signed({"rows": seen, "back": sheet.back}, about=sheet.url)}
    reason = sheet.why.data.get("reason", "") if sheet.why.is_bound else ""
    why = WhyForm({**kept, "reason": reason}) if sheet.why.is_bound else WhyForm(initial=kept)
    able = sum(not row.why for row in sheet.rows)
    warnings = dict.fromkeys(one for row in sheet.rows if row.preview and not row.why for one in row.preview.warnings)
    return _shown(
        sheet, "console/verb_many.html", title=f"{sheet.verb.label}: {_counted(len(sheet.rows))}", why=why,
        rows=sheet.rows, able=able, warnings=list(warnings), lack=lack,
    )  # fmt: skip


def _look_at(sheet: Sheet, rows: Sequence[Row]) -> None:
    """What it would do to each of these rows, which are of one tenant: in one transaction."""
    actor, user = actor_of(sheet.request), sheet.request.user
    try:
        with _inside(sheet, rows[0]), short_statements() as now:
            for row in rows:
                try:
                    ask = Ask(target=row.target, actor=actor, now=now, tenant=row.tenant)
                    row.preview = verb_look(sheet.verb, ask, user=user)
                    row.why = row.preview.refused or row.preview.asks
                except NotFound as error:
                    row.why = error.detail
    except NotFound as error:  # the tenant is gone
        for row in rows:
            row.why = error.detail


def _done(sheet: Sheet, seen: dict[str, Any]) -> HttpResponse:
    """Does it to each row as it was looked at, and says what became of it."""
    reason = str(sheet.why.data.get("reason", "")).replace("\0", "").strip()[:REASON_CHARS]
    actor, user = replace(actor_of(sheet.request), because=reason), sheet.request.user
    for row in sheet.rows:
        was = seen[row.key]
        ask = Ask(
            target=row.target, actor=actor, now=database_now(), tenant=row.tenant, reason=reason,
            version=was["version"],
        )  # fmt: skip
        try:
            with _inside(sheet, row):
                row.receipt = verb_do(sheet.verb, ask, user=user)
        except Changed as error:
            row.preview, row.why, row.changed = error.now, error.detail, True
            row.differs = differing(was["lines"], error.now.lines)
        except Forbidden as error:  # of the first row, as of all
            return _shown(
                sheet, "console/problem.html", status=error.status, title=f"{sheet.verb.label}: refused",
                detail=error.detail,
            )  # fmt: skip
        except ShardbeatError as error:
            row.why = error.detail
    changed = [row for row in sheet.rows if row.changed]
    done = [row for row in sheet.rows if row.receipt]
    texts = Counter(row.receipt.text for row in done if row.receipt)
    return _shown(
        sheet, "console/verb_many_done.html", title=f"{sheet.verb.label}: done", rows=sheet.rows,
        status=Changed.status if changed else 200, done=len(done), left=len(sheet.rows) - len(done),
        texts=texts.most_common(5) if len(texts) <= 5 else [], trail=actor.request_id, at=database_now(),
        then=[*_next(sheet, done), *([_again(sheet, changed)] if changed else [])],
    )  # fmt: skip


def _next(sheet: Sheet, done: Sequence[Row]) -> list[Next]:
    """The ways back and what one does next, each for all rows that offer it."""
    wanted: dict[str, list[Step]] = {}
    for row in done:
        assert row.receipt is not None
        for step in [*([row.receipt.undo] if row.receipt.undo else []), *row.receipt.then]:
            wanted.setdefault(step.verb, []).append(step)
    found = []
    for name, steps in wanted.items():
        verb = verb_named(name)
        if verb is not None and verb.form is None:
            keys = [key_of(step.target, slug="" if sheet.tenant else step.tenant) for step in steps]
            url = many_url(verb, tenant=sheet.tenant.slug if sheet.tenant else "")
            off = roles.lacks(sheet.request.user, verb.level)
            found.append(Next(verb, f"{verb.label}: {_counted(len(keys))}", url, keys, off))
    return found


def _again(sheet: Sheet, changed: Sequence[Row]) -> Next:
    return Next(sheet.verb, f"Look again at {_counted(len(changed))}", sheet.url, [row.key for row in changed], "")


@contextmanager
def _inside(sheet: Sheet, row: Row) -> Iterator[None]:
    """In the schema that the verb needs. NotFound where its tenant is gone."""
    if sheet.verb.scope != "tenant" or sheet.tenant is not None:
        yield
        return
    if row.tenant is None:
        raise NotFound("It is not there (any more).")
    with door.inside(row.tenant):
        yield


def _counted(count: int) -> str:
    return f"{count:,} row{'' if count == 1 else 's'}"


def _shown(sheet: Sheet, template: str, *, status: int = 200, **context: Any) -> TemplateResponse:
    of = {row.tenant.pk: row.tenant for row in sheet.rows if row.tenant is not None}
    whole = around(sheet.site, sheet.request, sheet.verb, sheet.tenant, *(of.values() if len(of) == 1 else [None]))
    whole |= {"back": sheet.back, "url": sheet.url}
    return TemplateResponse(sheet.request, template, {**whole, **context}, status=status)
