"""Many dead letters of a tenant: a page that says first how many are meant, and replays or resolves those."""

from __future__ import annotations

from typing import Any

from django import forms
from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import reverse

from apps.audit.trail import actor_of, database_now
from apps.console.confirming import PERMISSION, refuse
from apps.console.middleware import tenant_of
from apps.console.replaying import ReplayFields, pace_given
from apps.operations.services import Rehearsed, Wish, operation_create, operation_rehearse
from kernel.errors import ShardbeatError

FILTERS = ("fingerprint", "job", "execution", "created_after", "created_before")
REASON_CHARS = 500
TEXT_CHARS, TIME_CHARS = 200, 40


class ReplayForm(ReplayFields):
    """Which letters, and what is done to them. `seen` is what was looked at."""

    field_order = ("seen", "action", *FILTERS)  # before how fast it goes

    seen = forms.CharField(required=False, widget=forms.HiddenInput)
    action = forms.ChoiceField(choices=[("replay", "replay"), ("resolve", "resolve without a run")])
    fingerprint = forms.CharField(max_length=TEXT_CHARS, required=False, help_text="Of a cause; empty: any.")
    job = forms.UUIDField(required=False, help_text="Id of a job; empty: any.")
    execution = forms.UUIDField(required=False, help_text="Id of an execution; empty: any.")
    created_after = forms.CharField(
        label="Failed after", max_length=TIME_CHARS, required=False, help_text="Such as 2026-03-01T08:00:00Z."
    )
    created_before = forms.CharField(label="Failed before", max_length=TIME_CHARS, required=False)
    reason = forms.CharField(max_length=REASON_CHARS, widget=forms.Textarea(attrs={"rows": 3}))

    @property
    def wish(self) -> Wish:
        """As the service takes it. InvalidInput."""
        data = self.cleaned_data
        is_replay = data["action"] == "replay"
        pace = pace_given(data if is_replay else {})
        filter_: dict[str, Any] = {name: str(data[name]) for name in FILTERS if data[name]} or {"all": True}
        params = {"new_key": data["new_key"]} if is_replay else {}
        return Wish(data["action"], "dead_letters", filter_, params, pace, data["reason"])

    @property
    def meant(self) -> str:
        """What is asked for, as a text to be compared."""
        given = [(name, value) for name, value in self.cleaned_data.items() if name != "seen"]
        return "\n".join(f"{name}={value}" for name, value in sorted(given) if value not in (None, ""))

    @property
    def was_seen(self) -> bool:
        """Whether just this was looked at."""
        seen: str = self.cleaned_data["seen"]
        return seen.replace("\r\n", "\n") == self.meant


def replay_page(admin: Any, request: HttpRequest) -> HttpResponse:
    """Shows the form, then how many are meant, then asks for it; whoever may not is told that there is nothing."""
    if not request.user.has_perm(PERMISSION):
        raise Http404("There is no such page.")
    initial = {name: request.GET.get(name, "")[:TEXT_CHARS] for name in ("action", *FILTERS)}
    form = ReplayForm(request.POST) if request.method == "POST" else ReplayForm(initial=initial)
    found: Rehearsed | None = None
    if form.is_bound and form.is_valid():
        tenant, actor, now = tenant_of(request), actor_of(request), database_now()
        try:
            if form.was_seen:
                made = operation_create(tenant=tenant, actor=actor, wish=form.wish, now=now)
                messages.success(request, "It was asked for, and begins within moments.")
                page = reverse("admin:operations_operation_change", args=[made.pk], current_app="tenant")
                return HttpResponseRedirect(page)
            found = operation_rehearse(tenant=tenant, actor=actor, wish=form.wish, now=now)
            form.data = {**form.cleaned_data, "seen": form.meant if found.count else ""}
        except ShardbeatError as error:
            refuse(form, error)
    shown = {
        **admin.admin_site.each_context(request), "opts": admin.opts, "form": form, "outlook": found,
        "title": "Replay or resolve many",
    }  # fmt: skip
    return TemplateResponse(request, "console/replay.html", shown)
