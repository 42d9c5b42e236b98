"""A tenant's dead letters: operators replay and resolve those that they tick, or many of a cause or a job."""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import Any

from django.contrib import admin, messages
from django.db import connection
from django.db.models import QuerySet
from django.http import HttpRequest
from django.urls import path, reverse
from django.utils.html import format_html
from django.utils.http import urlencode

from apps.audit.trail import actor_of, database_now
from apps.console.confirming import PERMISSION
from apps.console.filters import WindowFilter, choice_filter
from apps.console.middleware import tenant_of
from apps.console.reading import ReadOnlyAdmin
from apps.console.roles import RESPOND, may
from apps.console.selecting import ticked
from apps.console.shown import json_field
from apps.console.tenant_admin import link_field
from apps.console.tenant_replay import replay_page
from apps.console.tenant_site import tenant_site
from apps.deadletters.models import DeadLetter
from apps.deadletters.replays import replays_of
from apps.executions.models import Execution
from apps.outcomes.again import How
from apps.outcomes.replay import deadletters_replay
from apps.outcomes.resolve import deadletters_resolve
from apps.schedules.models import Job
from kernel.errors import ShardbeatError, code_of
from tenants import door


@admin.register(DeadLetter, site=tenant_site)
class DeadLetterAdmin(ReadOnlyAdmin):
    list_display = (
        "id", "execution_link", "job_link", "attempts", "fingerprint", "created_at", "resolved_at", "resolution",
        "resolved_by",
    )  # fmt: skip
    list_filter = (WindowFilter, choice_filter("resolution", ("replayed", "resolved")))
    uuid_search = ("id", "execution_id")
    exact_search = ("fingerprint",)
    search_help_text = "Id of a dead letter or of an execution, or a fingerprint."
    deferred = ("error",)
    actions = ("replay", "resolve")
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

    def has_work_permission(self, request: HttpRequest) -> bool:
        return may(request.user, RESPOND) or request.user.has_perm(PERMISSION)

    @admin.display(description="many")
    def many(self, obj: DeadLetter) -> str:
        url = reverse("admin:deadletters_deadletter_replay", current_app=tenant_site.name)
        of_cause, of_job = urlencode({"fingerprint": obj.fingerprint}), urlencode({"job": str(obj.job_id)})
        text = '<a href="{0}?{1}">Replay all of this cause</a> or <a href="{0}?{2}">of this job</a>'
        return format_html(text, url, of_cause, of_job)

    @admin.display(description="replays")
    def replays(self, obj: DeadLetter) -> int:
        schema = str(getattr(connection, "schema_name", ""))  # the tenant's: the middleware sets it
        return replays_of(door.raw(), schema, [obj.execution_id]).get(obj.execution_id, 0)

    @admin.action(description="Replay the ticked dead letters", permissions=["work"])
    def replay(self, request: HttpRequest, queryset: QuerySet[DeadLetter]) -> None:
        if not (ids := ticked(self, request)):
            return
        try:
            done = deadletters_replay(
                tenant=tenant_of(request), actor=actor_of(request), letter_ids=ids, now=database_now(), how=How()
            )
        except ShardbeatError as error:
            self.message_user(request, error.detail, messages.ERROR)
            return
        refused = {key: one for key, one in done.items() if isinstance(one, ShardbeatError)}
        self._say(request, len(done) - len(refused), "run again", refused)

    @admin.action(description="Resolve the ticked dead letters without a run", permissions=["work"])
    def resolve(self, request: HttpRequest, queryset: QuerySet[DeadLetter]) -> None:
        if ids := ticked(self, request):
            refused = deadletters_resolve(
                tenant=tenant_of(request), actor=actor_of(request), letter_ids=ids, now=database_now()
            )
            self._say(request, len(ids) - len(refused), "resolved", refused)

    def _say(self, request: HttpRequest, done: int, word: str, refused: dict[Any, ShardbeatError]) -> None:
        """How many, and what was refused for which reason."""
        if done:
            self.message_user(request, f"{done} {word}.", messages.SUCCESS)
        counts = Counter(code_of(error) for error in refused.values())
        for code, count in counts.most_common():
            detail = next(error.detail for error in refused.values() if code_of(error) == code)
            self.message_user(request, f"{count} not: {detail}", messages.WARNING)
