"""Many dead letters of a tenant: a page that says first how many are meant, and replays or resolves those."""

from __future__ import annotations

from typing import Any

from django import forms
from django.http import Http404, HttpRequest, HttpResponse

from apps.audit.trail import actor_of, database_now
from apps.console.confirming import PERMISSION, ConfirmedForm, asked_for, confirmed_page
from apps.console.middleware import tenant_of
from apps.console.replaying import ReplayFields, pace_given
from apps.operations.services import Rehearsed, Wish, operation_create, operation_rehearse

FILTERS = ("fingerprint", "job")
REASON_CHARS = 500
TEXT_CHARS = 200


class ReplayForm(ConfirmedForm, ReplayFields):
    """Which letters, and what is done to them."""

    field_order = ("seen", "action", "fingerprint", "job")  # before how fast it goes

    action = forms.ChoiceField(choices=[("replay", "replay"), ("resolve", "resolve without a run")])
    fingerprint = forms.CharField(max_length=TEXT_CHARS, required=False, help_text="Of a cause; empty: any.")
    job = forms.UUIDField(required=False, help_text="Id of a job; empty: any.")
    reason = forms.CharField(max_length=REASON_CHARS, required=False, widget=forms.Textarea(attrs={"rows": 3}))

    @property
    def wish(self) -> Wish:
        """As the service takes it. InvalidInput."""
        data = self.cleaned_data
        is_replay = data["action"] == "replay"
        pace = pace_given(data if is_replay else {})
        filter_: dict[str, Any] = {name: str(data[name]) for name in FILTERS if data[name]} or {"all": True}
        params = {"new_key": data["new_key"]} if is_replay else {}
        return Wish(data["action"], "dead_letters", filter_, params, pace, data["reason"])


def replay_page(admin: Any, request: HttpRequest) -> HttpResponse:
    """Shows the form, then how many are meant, then asks for it; whoever may not is told that there is nothing."""
    if not request.user.has_perm(PERMISSION):
        raise Http404("There is no such page.")
    initial = {name: request.GET.get(name, "")[:TEXT_CHARS] for name in FILTERS}
    form = ReplayForm(request.POST) if request.method == "POST" else ReplayForm(initial=initial)

    def ask() -> HttpResponse | tuple[int, Rehearsed]:
        wish, tenant, actor, now = form.wish, tenant_of(request), actor_of(request), database_now()
        if form.was_seen:
            return asked_for(request, operation_create(tenant=tenant, actor=actor, wish=wish, now=now).pk)
        found = operation_rehearse(tenant=tenant, actor=actor, wish=wish, now=now)
        return found.count, found

    return confirmed_page(admin, request, form, ask, template="console/replay.html", title="Replay or resolve many")
