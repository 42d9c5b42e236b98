"""The page that all verbs share: what it would do and why it is asked for; then what was done, and how to undo it.

`/admin/do/<verb>/<target>/` and `/t/<slug>/admin/do/<verb>/<target>/`. GET changes nothing. The receipt is a signed
text in the address, so it can be looked at again and sent to somebody, and never does it twice.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass, replace
from hashlib import sha256
from typing import Any

from django import forms
from django.contrib.admin import AdminSite
from django.core import signing
from django.core.exceptions import PermissionDenied
from django.db import OperationalError
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import URLPattern, path
from psycopg.errors import QueryCanceled

from apps.audit.models import AuditEvent
from apps.audit.shown import shown
from apps.audit.trail import actor_of, database_now
from apps.console import roles
from apps.console.bands import band_of
from apps.console.confirming import refuse
from apps.console.places import place_of_verb
from apps.console.reading import short_statements
from apps.console.verbs.base import Ask, Changed, Line, Preview, Receipt, Step, Verb
from apps.console.verbs.doing import REASON_CHARS, verb_do, verb_look
from apps.console.verbs.offering import verb_url
from apps.console.verbs.registry import verb_named
from apps.presenting.shown import moment
from kernel.errors import Forbidden, InvalidInput, NotFound, ShardbeatError
from tenants import door
from tenants.models import Tenant

ROWS_SHOWN = 20
DONE, LOOK = "done", "look"


class WhyForm(forms.Form):
    """Why it is done, and what was looked at: the version of the target, the fields, and the lines that were shown."""

    reason = forms.CharField(
        max_length=REASON_CHARS, widget=forms.Textarea(attrs={"rows": 2, "autocomplete": "off"}),
        help_text="For the audit trail, and for whoever comes after you.",
    )  # fmt: skip
    version = forms.CharField(widget=forms.HiddenInput, required=False)
    meant = forms.CharField(widget=forms.HiddenInput, required=False)
    seen = forms.CharField(widget=forms.HiddenInput, required=False)


@dataclass(slots=True)
class Sheet:
    """One look at the page: the verb, who asks what of it, and the forms with what was filled in."""

    verb: Verb
    site: AdminSite
    request: HttpRequest
    ask: Ask
    why: WhyForm
    own: forms.BaseForm | None

    @property
    def meant(self) -> str:
        """What the verb's own fields say, as a short text."""
        told = sorted((name, str(value)) for name, value in self.ask.given.items())
        return sha256(repr(told).encode()).hexdigest()[:16]

    @property
    def url(self) -> str:
        slug = self.ask.tenant.slug if self.ask.tenant else ""
        return verb_url(self.verb, self.ask.target, tenant=slug)


def patterns(site: AdminSite) -> list[URLPattern]:
    """The address of all verbs of one site."""

    def view(request: HttpRequest, name: str, target: str) -> HttpResponse:
        return verb_page(site, request, name, target)

    return [path("do/<str:name>/<path:target>/", site.admin_view(view), name="verb")]


def verb_page(site: AdminSite, request: HttpRequest, name: str, target: str) -> HttpResponse:
    """Looks, does, or shows what was done."""
    tenant = getattr(request, "console_tenant", None)
    verb = verb_named(name)
    if verb is None or (verb.scope == "tenant") != (tenant is not None) or "\0" in target:
        raise Http404("There is no such verb.")
    if request.method != "POST" and not roles.may(request.user, roles.VIEW):
        raise PermissionDenied
    ask = Ask(target=target, actor=actor_of(request), now=database_now(), tenant=tenant)
    sheet = Sheet(verb, site, request, ask, WhyForm(), None)
    try:
        if request.method == "POST":
            return _post(sheet)
        if DONE in request.GET:
            return _receipt_page(sheet)
        asked = verb.form is not None and any(one in request.GET for one in verb.form().fields)
        _fill(sheet, request.GET if asked else None)
        return _form_page(sheet, _look(sheet))
    except NotFound as error:
        raise Http404(error.detail) from error
    except (OperationalError, QueryCanceled) as error:
        if not isinstance(door.cause_of(error), QueryCanceled):
            raise
    return _shown(sheet, "console/narrow_page.html", status=503, title=f"{verb.label}: this takes too long")


def differing(before: Sequence[Sequence[str]], now: Sequence[Line]) -> list[Line]:
    """The lines that are not as they were: what was, and what is."""
    was = {one[0]: one[1] for one in before}
    is_now = {one.name: one.value for one in now}
    names = [*is_now, *(name for name in was if name not in is_now)]
    return [
        Line(name, was.get(name, "-"), is_now.get(name, "-")) for name in names if was.get(name) != is_now.get(name)
    ]


def signed(told: Any, *, about: str) -> str:
    """A text for the page at this address, which takes it back from nobody who has changed it."""
    return signing.dumps(told, salt=f"console verb {about}", compress=True)


def unsigned(text: str, *, about: str) -> dict[str, Any]:
    """What was signed for this page; empty when it was not."""
    try:
        found: dict[str, Any] = signing.loads(text, salt=f"console verb {about}")
    except signing.BadSignature:
        return {}
    return found


def around(
    site: AdminSite, request: HttpRequest, verb: Verb, tenant: Tenant | None, concerns: Tenant | None
) -> dict[str, Any]:
    """What the pages of a verb have around them; `tenant` is the one that they are in, `concerns` that of the band."""
    request.current_app = site.name  # Django's own way to say it to `{% url %}`
    place, url = place_of_verb(verb.name, tenant.slug if tenant else "")
    above = None if place.name == "overview" else (place.label, url)
    return {**site.each_context(request), **band_of(concerns), "verb": verb, "place": place.name, "above": above}


def _post(sheet: Sheet) -> HttpResponse:
    data, user = sheet.request.POST, sheet.request.user
    sheet.why = WhyForm(data)
    fields_fit = _fill(sheet, data)
    wants_look = LOOK in data or (sheet.verb.look_first and data.get("meant") != sheet.meant)
    if not roles.lacks(user, sheet.verb.level):
        if wants_look:
            sheet.why = WhyForm(initial={"reason": data.get("reason", "")})
        if wants_look or not fields_fit or not sheet.why.is_valid():
            return _form_page(sheet, _look(sheet))
    reason = str(data.get("reason", "")).replace("\0", "").strip()[:REASON_CHARS]
    actor = replace(sheet.ask.actor, because=reason)
    sheet.ask = replace(sheet.ask, actor=actor, reason=reason, version=str(data.get("version", "")))
    newest = AuditEvent.objects.order_by("-pk").values_list("pk", flat=True).first() or 0
    try:
        receipt = verb_do(sheet.verb, sheet.ask, user=user)
    except Changed as error:
        seen = unsigned(str(data.get("seen", "")), about=sheet.url)
        differs = differing(seen.get("lines", []), error.now.lines)
        return _form_page(sheet, error.now, status=error.status, error=error.detail, differs=differs)
    except Forbidden as error:
        return _shown(
            sheet, "console/problem.html", status=error.status, title=f"{sheet.verb.label}: refused",
            detail=error.detail,
        )  # fmt: skip
    except NotFound:
        raise
    except ShardbeatError as error:
        if sheet.own is not None and isinstance(error, InvalidInput):
            refuse(sheet.own, error)
            return _form_page(sheet, _look(sheet), status=error.status)
        return _form_page(sheet, _look(sheet), status=error.status, error=error.detail)
    made = AuditEvent.objects.filter(pk__gt=newest, request_id=sheet.ask.actor.request_id).order_by("pk")
    told = signed(_told(receipt, made, sheet.ask), about=sheet.url)
    return HttpResponseRedirect(f"{sheet.url}?{DONE}={told}", status=303)


def _fill(sheet: Sheet, data: Mapping[str, Any] | None) -> bool:
    """Makes the verb's own form of what was sent, when anything was; whether that fits."""
    if sheet.verb.form is None:
        return True
    sheet.own = sheet.verb.form(data, initial=dict(sheet.verb.initial(sheet.ask)) if data is None else None)
    if data is None or not sheet.own.is_valid():
        return data is None
    sheet.ask = replace(sheet.ask, given=sheet.own.cleaned_data)
    return True


def _look(sheet: Sheet) -> Preview:
    """No statement of it takes longer than those of a page."""
    with short_statements():
        return verb_look(sheet.verb, sheet.ask, user=sheet.request.user)


def _form_page(
    sheet: Sheet, preview: Preview, *, status: int = 200, error: str = "", differs: Sequence[Line] = ()
) -> TemplateResponse:
    """The form with the version that is shown now: whoever sends it has seen that."""
    reason = sheet.why.data.get("reason", "") if sheet.why.is_bound else sheet.why.initial.get("reason", "")
    seen = {"reason": reason, "version": preview.version, "meant": sheet.meant}
    seen["seen"] = signed({"lines": [[one.name, one.value] for one in preview.lines]}, about=sheet.url)
    why = WhyForm({**seen}) if sheet.why.is_bound else WhyForm(initial=seen)
    return _shown(
        sheet, "console/verb.html", status=status, title=preview.title, preview=preview, why=why, own=sheet.own,
        error=error, differs=differs,
    )  # fmt: skip


def _receipt_page(sheet: Sheet) -> HttpResponse:
    told = unsigned(sheet.request.GET[DONE], about=sheet.url)
    if "text" not in told:
        raise Http404("There is no such receipt.")
    rows = shown(AuditEvent.objects.filter(pk__in=told["rows"]).order_by("pk"), seals=False)
    undo, then = [[Step(*one) for one in told[name]] for name in ("undo", "then")]
    return _shown(
        sheet, "console/verb_receipt.html", title=f"{sheet.verb.label}: done", told=told, rows=rows, undo=undo,
        then=then, lines=[Line(*one) for one in told["lines"]],
    )  # fmt: skip


def _told(receipt: Receipt, rows: Any, ask: Ask) -> dict[str, Any]:
    """A receipt as its address holds it."""
    undo = [receipt.undo] if receipt.undo else []
    return {
        "text": receipt.text, "link": receipt.link, "rows": list(rows.values_list("pk", flat=True)[:ROWS_SHOWN]),
        "at": f"{moment(ask.now)} UTC",
        "undo": [astuple(one) for one in undo], "then": [astuple(one) for one in receipt.then], "bad": receipt.bad,
        "lines": [astuple(one) for one in receipt.lines],
    }  # fmt: skip


def _shown(sheet: Sheet, template: str, *, status: int = 200, **context: Any) -> TemplateResponse:
    verb, ask = sheet.verb, sheet.ask
    whole = around(sheet.site, sheet.request, verb, ask.tenant, verb.concerns(ask))
    whole["button"] = verb.button(ask.target)
    return TemplateResponse(sheet.request, template, {**whole, **context}, status=status)
