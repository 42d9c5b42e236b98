"""Who did what, to what, why and from where: the trail of all tenants by filters, and its export."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from datetime import datetime
from typing import Any

import orjson
from django import forms
from django.http import HttpRequest, HttpResponse, StreamingHttpResponse

from apps.audit.looking import SCAN_MOST, trail_count, trail_page, trail_walk
from apps.audit.services import record
from apps.audit.shown import Shown
from apps.audit.trail import actor_of
from apps.console import roles
from apps.console.chips import changed, chips
from apps.console.pages import page
from apps.console.shown import masked
from apps.console.trail import given_of, rows_of, wanted_of
from apps.console.verbs.doing import REASON_CHARS
from apps.console.verbs.trail import OPERATORS
from apps.presenting.paging import CURSOR

ROWS = 100
EXPORT_MOST = 100_000
WINDOW_WORDS = {"": "any time", "hour": "last hour", "day": "last day", "week": "last week"}
COLUMNS = (
    "id", "at", "tenant", "who", "role", "address", "program", "action", "object_type", "object_id", "allowed",
    "reason", "request_id", "before", "after", "link", "head",
)  # fmt: skip
FORMULA = ("=", "+", "-", "@", "\t", "\r")  # what a spreadsheet would compute


@page("audit", "audit/", title="Audit", template="console/audit.html")
def audit(request: HttpRequest, now: datetime) -> dict[str, Any]:
    """A page of it, newest first."""
    given = given_of(request.GET)
    text = request.GET.get(CURSOR, "")
    before = int(text) if text.isdecimal() and len(text) < 19 else None
    found = trail_page(wanted_of(given, now=now), before=before, size=ROWS)
    return {
        "rows": rows_of(found.rows), "given": given, "looked_to": found.looked_to,
        "older": changed(request, **{CURSOR: str(found.before)}) if found.before else "",
        "newest": changed(request) if before else "",
        "windows": chips(request, "window", WINDOW_WORDS.items(), chosen=given["window"]),
        "refusals": chips(request, "refused", [("", "all"), ("1", "refused only")], chosen=given["refused"]),
        "chain": given["tenant"] or OPERATORS, "lack": roles.lacks(request.user, roles.AUDIT),
        "export_most": EXPORT_MOST,
    }  # fmt: skip


class ExportForm(forms.Form):
    """Why it is exported, and as what."""

    format = forms.ChoiceField(choices=[("csv", "CSV"), ("ndjson", "JSON, a line each")])
    reason = forms.CharField(
        max_length=REASON_CHARS, widget=forms.Textarea(attrs={"rows": 2, "autocomplete": "off"}),
        help_text="For the audit trail, and for whoever comes after you.",
    )  # fmt: skip


@page(
    "audit_export", "audit/export/", title="Export of the audit trail", template="console/audit_export.html",
    level=roles.AUDIT, place="audit", methods=("GET", "POST"),
)  # fmt: skip
def audit_export(request: HttpRequest, now: datetime) -> HttpResponse | dict[str, Any]:
    """Says what the filters find and asks why; then all of it, as it is read, and itself in the trail."""
    data = request.POST if request.method == "POST" else request.GET
    given = given_of(data)
    form = ExportForm(data) if request.method == "POST" else ExportForm(initial={"format": data.get("format", "csv")})
    if form.is_bound and form.is_valid():
        return _exported(request, now, given, form.cleaned_data)
    count, is_exact = trail_count(wanted_of(given, now=now))
    return {
        "form": form, "given": {name: value for name, value in given.items() if value}, "count": count,
        "is_exact": is_exact, "looked": SCAN_MOST, "export_most": EXPORT_MOST,
    }  # fmt: skip


def _exported(request: HttpRequest, now: datetime, given: dict[str, str], asked: dict[str, str]) -> HttpResponse:
    as_csv = asked["format"] == "csv"
    record(
        actor=actor_of(request), action="audit.export", object_type="trail", object_id="csv" if as_csv else "ndjson",
        now=now, tenant_id=None, after={name: value for name, value in given.items() if value} or None,
        reason=asked["reason"],
    )  # fmt: skip
    rows = trail_walk(wanted_of(given, now=now), most=EXPORT_MOST)
    kind, name = ("text/csv; charset=utf-8", "csv") if as_csv else ("application/x-ndjson", "ndjson")
    response: Any = StreamingHttpResponse(_csv(rows) if as_csv else _ndjson(rows), content_type=kind)
    response["Content-Disposition"] = f'attachment; filename="audit-{now:%Y%m%dT%H%M%SZ}.{name}"'
    response["Cache-Control"] = "no-store"
    answer: HttpResponse = response
    return answer


def _told(one: Shown) -> dict[str, Any]:
    event, seal = one.event, one.seal
    values = (
        str(event.uid), event.at.isoformat(), event.tenant_id, one.who, event.role, one.opened.address,
        one.opened.agent, event.action, event.object_type, event.object_id, event.allowed, event.reason,
        event.request_id, masked(event.before), masked(event.after), seal.number if seal else None,
        bytes(seal.head).hex() if seal else None,
    )  # fmt: skip
    return dict(zip(COLUMNS, values, strict=True))


def _ndjson(rows: Iterator[Shown]) -> Iterator[bytes]:
    for one in rows:
        yield orjson.dumps(_told(one), default=str) + b"\n"


def _csv(rows: Iterator[Shown]) -> Iterator[bytes]:
    yield _line(COLUMNS)
    for one in rows:
        yield _line([_cell(value) for value in _told(one).values()])


def _cell(value: Any) -> str:
    text = "" if value is None else orjson.dumps(value, default=str).decode() if isinstance(value, dict) else str(value)
    return f"'{text}" if text.startswith(FORMULA) else text


def _line(cells: Any) -> bytes:
    text = io.StringIO()
    csv.writer(text).writerow(cells)
    return text.getvalue().encode()
