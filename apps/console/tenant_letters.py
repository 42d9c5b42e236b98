"""A tenant's dead letters: operators replay and resolve those that they tick, or all that a filter finds."""

from __future__ import annotations

from functools import partial
from typing import Any

from django.contrib import admin, messages
from django.db import connection
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import path, reverse
from django.utils.html import format_html
from django.utils.http import urlencode

from apps.audit.trail import database_now
from apps.console import roles
from apps.console.filters import WindowFilter, choice_filter
from apps.console.reading import ReadOnlyAdmin, as_uuid
from apps.console.shown import json_field
from apps.console.tenant_admin import link_field
from apps.console.tenant_replay import replay_page
from apps.console.tenant_site import tenant_site
from apps.console.verbs.base import Verb
from apps.console.verbs.ticked import TickedMixin
from apps.deadletters.models import DeadLetter
from apps.deadletters.replays import replays_of
from apps.executions.models import Execution
from apps.schedules.models import Job
from tenants import door

REPLAY = "admin:deadletters_deadletter_replay"


@admin.register(DeadLetter, site=tenant_site)
class DeadLetterAdmin(TickedMixin, ReadOnlyAdmin):
    list_display = (
        "id", "execution_link", "job_link", "attempts", "fingerprint", "created_at", "resolved_at", "resolution",
        "resolved_by",
    )  # fmt: skip
    list_filter = (WindowFilter, choice_filter("resolution", ("replayed", "resolved")))
    uuid_search = ("id", "execution_id")
    exact_search = ("fingerprint",)
    search_help_text = "Id of a dead letter or of an execution, or a fingerprint."
    deferred = ("error",)
    verbs = ("deadletter.replay", "deadletter.resolve", "deadletter.reopen")
    fields = (
        "id", "many", "execution_link", "job_link", "fingerprint", "attempts", "replays", "created_at", "resolved_at",
        "resolution", "note", "resolved_by", "error_shown",
    )  # fmt: skip
    readonly_fields = ("many", "execution_link", "job_link", "replays", "error_shown")
    execution_link, job_link = link_field("execution_id", Execution), link_field("job_id", Job)
    error_shown = json_field("error")

    def get_urls(self) -> list[Any]:
        view = self.admin_site.admin_view(partial(replay_page, self))
        return [path("replay/", view, name="deadletters_deadletter_replay"), *super().get_urls()]

    def on_all(self, request: HttpRequest, verb: Verb) -> HttpResponse | None:
        """The page that makes an operation of what the list's filters find."""
        if verb.name not in ("deadletter.replay", "deadletter.resolve"):
            return super().on_all(request, verb)
        lack, wanted = roles.lacks(request.user, roles.OPERATE), _filter_of(request)
        if lack or wanted is None:
            text = "This list is of closed dead letters, or of a single one: there is no operation on those."
            self.message_user(request, lack or text, messages.ERROR)
            return None
        query = urlencode({**wanted, "action": verb.name.rpartition(".")[2]})
        return HttpResponseRedirect(f"{reverse(REPLAY, current_app=tenant_site.name)}?{query}")

    @admin.display(description="many")
    def many(self, obj: DeadLetter) -> str:
        url = reverse(REPLAY, current_app=tenant_site.name)
        of_cause, of_job = urlencode({"fingerprint": obj.fingerprint}), urlencode({"job": str(obj.job_id)})
        text = '<a href="{0}?{1}">Replay all of this cause</a> or <a href="{0}?{2}">of this job</a>'
        return format_html(text, url, of_cause, of_job)

    @admin.display(description="replays")
    def replays(self, obj: DeadLetter) -> int:
        schema = str(getattr(connection, "schema_name", ""))  # the tenant's: the middleware sets it
        return replays_of(door.raw(), schema, [obj.execution_id]).get(obj.execution_id, 0)


def _filter_of(request: HttpRequest) -> dict[str, str] | None:
    """The filter of an operation that means what the list shows; None where there is none."""
    given = request.GET
    if given.get("resolution"):
        return None
    wanted: dict[str, str] = {}
    if text := given.get("q", "").strip():
        key = as_uuid(text)
        if key is not None and DeadLetter.objects.filter(pk=key).exists():
            return None
        wanted["fingerprint" if key is None else "execution"] = text
    name = given.get(WindowFilter.parameter_name, "")
    if length := WindowFilter.windows.get(name.removeprefix("older-")):
        bound = "created_before" if name.startswith("older-") else "created_after"
        wanted[bound] = (database_now() - length).isoformat()
    return wanted
