"""Many dead letters of a tenant: a page that says first how many are meant, and replays or resolves those."""

from __future__ import annotations

from typing import Any

from django import forms
from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import reverse

from apps.audit.trail import actor_of, database_now
from apps.console.middleware import tenant_of
from apps.operations.pacing import NAMES as PACE
from apps.operations.pacing import RATE_MAX, RATE_MIN, WHOLE_MAX, Pace
from apps.operations.services import Rehearsed, Wish, operation_create, operation_rehearse
from kernel.errors import Faults, InvalidInput, ShardbeatError

PERMISSION = "operations.change_operation"
FILTERS = ("fingerprint", "job")
REASON_CHARS = 500
TEXT_CHARS = 200


class ReplayForm(forms.Form):
    """Which letters, and what is done to them. `seen` is what was looked at."""

    action = forms.ChoiceField(choices=[("replay", "replay"), ("resolve", "resolve without a run")])
    fingerprint = forms.CharField(max_length=TEXT_CHARS, required=False, help_text="Of a cause; empty: any.")
    job = forms.UUIDField(required=False, help_text="Id of a job; empty: any.")
    canary = forms.IntegerField(
        min_value=1, max_value=WHOLE_MAX, required=False, help_text="So many first; the others when these succeeded."
    )
    rate_per_s = forms.FloatField(min_value=RATE_MIN, max_value=RATE_MAX, required=False, help_text="A second at most.")
    max_in_flight = forms.IntegerField(min_value=1, max_value=WHOLE_MAX, required=False, help_text="Runs at once.")
    stop_after_failures = forms.IntegerField(min_value=1, max_value=WHOLE_MAX, required=False)
    new_key = forms.BooleanField(required=False, help_text="As new executions, with run keys of their own.")
    reason = forms.CharField(max_length=REASON_CHARS, required=False, widget=forms.Textarea(attrs={"rows": 3}))
    seen = forms.CharField(required=False, widget=forms.HiddenInput)

    @property
    def meant(self) -> str:
        """What is asked for, as a text to be compared."""
        given = sorted((name, value) for name, value in self.cleaned_data.items() if name != "seen")
        return "\n".join(f"{name}={value}" for name, value in given if value not in (None, ""))

    @property
    def wish(self) -> Wish:
        """As the service takes it. InvalidInput."""
        data = self.cleaned_data
        faults = Faults()
        is_replay = data["action"] == "replay"
        given = {name: data[name] for name in PACE if data[name] is not None} if is_replay else {}
        pace = Pace().changed(given, faults)
        faults.raise_if_any()
        filter_: dict[str, Any] = {name: str(data[name]) for name in FILTERS if data[name]} or {"all": True}
        params = {"new_key": data["new_key"]} if is_replay else {}
        return Wish(data["action"], "dead_letters", filter_, params, pace, data["reason"])


def replay_page(admin: Any, request: HttpRequest) -> HttpResponse:
    """Shows the form, then how many are meant, then asks for it; whoever may not is told that there is nothing."""
    if not request.user.has_perm(PERMISSION):
        raise Http404("There is no such page.")
    initial = {name: request.GET.get(name, "")[:TEXT_CHARS] for name in FILTERS}
    form = ReplayForm(request.POST) if request.method == "POST" else ReplayForm(initial=initial)
    rehearsed: Rehearsed | None = None
    if form.is_bound and form.is_valid():
        try:
            found = _asked(request, form)
            if isinstance(found, HttpResponse):
                return found
            rehearsed = found
            form.data = {**form.cleaned_data, "seen": form.meant if rehearsed.count else ""}
        except InvalidInput as error:
            for fault in error.errors:
                name = fault.pointer.rsplit("/", 1)[-1]
                form.add_error(name if name in form.fields else None, fault.detail)
        except ShardbeatError as error:
            form.add_error(None, error.detail)
    context = {
        **admin.admin_site.each_context(request), "opts": admin.opts, "form": form, "rehearsed": rehearsed,
        "title": "Replay or resolve many",
    }  # fmt: skip
    return TemplateResponse(request, "console/replay.html", context)


def _asked(request: HttpRequest, form: ReplayForm) -> HttpResponse | Rehearsed:
    wish, now = form.wish, database_now()
    tenant = tenant_of(request)
    if form.cleaned_data["seen"].replace("\r\n", "\n") != form.meant:
        return operation_rehearse(tenant=tenant, actor=actor_of(request), wish=wish, now=now)
    made = operation_create(tenant=tenant, actor=actor_of(request), wish=wish, now=now)
    messages.success(request, "It was asked for, and begins within moments.")
    return HttpResponseRedirect(reverse("admin:operations_operation_change", args=[made.pk], current_app="tenant"))
