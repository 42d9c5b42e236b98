"""Why is it not running? A page of a tenant's admin, with what is the platform's own."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.contrib import admin
from django.http import Http404, HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.urls import path, reverse
from django.utils.html import format_html

from apps.audit.trail import database_now
from apps.console.middleware import tenant_of
from apps.console.reading import ReadOnlyAdmin, bounded
from apps.dispatch.explaining.execution import execution_explain
from apps.dispatch.explaining.schedules import schedule_explain
from apps.dispatch.explaining.shape import explanation_text
from apps.dispatch.explaining.words import words_of
from apps.dispatch.explaining.workflow_runs import run_explain
from apps.schedules.timing_trigger import instant_asked
from kernel.errors import NotFound

AT_CHARS = 40


class ExplainedAdmin(ReadOnlyAdmin):
    """A table of executions, schedules or runs of workflows, each of which can be explained."""

    def get_urls(self) -> list[Any]:
        view = self.admin_site.admin_view(self.explain_view)
        return [path("<uuid:key>/explain/", view, name=f"{self._name()}_explain"), *super().get_urls()]

    @admin.display(description="why?")
    def why(self, obj: Any) -> str:
        url = reverse(f"admin:{self._name()}_explain", args=[obj.pk], current_app=self.admin_site.name)
        return format_html('<a href="{}">Why is it not running?</a>', url)

    def explain_view(self, request: HttpRequest, key: UUID) -> HttpResponse:
        if not self.has_view_permission(request):
            raise Http404
        return bounded(self, request, lambda: self._explained(request, key))

    def _explained(self, request: HttpRequest, key: UUID) -> HttpResponse:
        tenant = tenant_of(request)
        asked, fault = request.GET.get("at", "").strip()[:AT_CHARS], ""
        try:
            now = database_now()
            if self.opts.model_name == "execution":
                found = execution_explain(tenant, key, now=now, named=True, operator=True)
            elif self.opts.model_name == "run":
                found = run_explain(tenant, key, now=now, named=True, operator=True)
            else:
                at, fault = instant_asked(asked)
                found = schedule_explain(tenant, key, now=now, at=at, named=True, operator=True)
        except NotFound as error:
            raise Http404(error.detail) from error
        context = {
            **self.admin_site.each_context(request), "opts": self.opts, "title": "Why is it not running?",
            "found": found, "words": words_of(found.verdict.code), "text": explanation_text(found),
            "asked": asked, "fault": fault,
        }  # fmt: skip
        return TemplateResponse(request, "console/explain.html", context)

    def _name(self) -> str:
        return f"{self.opts.app_label}_{self.opts.model_name}"
