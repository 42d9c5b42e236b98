"""PeriodicTasks in the admin: django-celery-beat's own pages, fitted to many beats.

An edit saves only what was changed, so that it never sets back the count of a run that happened meanwhile. "Run now"
makes a slot like any other: it is sent and started by the same rules, whether or not the broker answers now.
"""

from __future__ import annotations

from collections.abc import Iterable
from importlib import import_module
from typing import Any

from django import forms
from django.contrib import admin, messages
from django.db import transaction
from django.db.models import QuerySet
from django.http import HttpRequest
from django_celery_beat import admin as stock
from django_celery_beat.models import (
    ClockedSchedule,
    CrontabSchedule,
    IntervalSchedule,
    PeriodicTask,
    PeriodicTasks,
    SolarSchedule,
)

from apps.audit.seen import SeenMixin
from apps.audit.services import record
from apps.audit.trail import TrailMixin, actor_of, database_now
from apps.due import slots
from tenants import door

admin.site.unregister([PeriodicTask, ClockedSchedule, CrontabSchedule, IntervalSchedule, SolarSchedule])


class TaskSelect(stock.TaskSelectWidget):
    """The tasks that the platform's workers know. The app is imported when a form is shown, not when the web starts."""

    def tasks_as_choices(self) -> tuple[tuple[str, str], ...]:
        app = import_module("workers.app").app
        for name in app.conf.include:
            import_module(name)
        names = sorted(name for name in app.tasks if not name.startswith("celery."))
        return ("", ""), *((name, name) for name in names)


class TaskChoice(stock.TaskChoiceField):
    widget = TaskSelect


class PeriodicTaskForm(stock.PeriodicTaskForm):
    regtask = TaskChoice(label="Task (registered)", required=False)


class QuietAdmin(stock.PeriodicTaskAdmin):
    """django-celery-beat warns about every scheduler but its own."""

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> Any:
        return super(stock.PeriodicTaskAdmin, self).changelist_view(request, extra_context)

    def changeform_view(
        self, request: HttpRequest, object_id: str | None = None, form_url: str = "",
        extra_context: dict[str, Any] | None = None,
    ) -> Any:  # fmt: skip
        return super(stock.PeriodicTaskAdmin, self).changeform_view(request, object_id, form_url, extra_context)


@admin.register(PeriodicTask)
class PeriodicTaskAdmin(SeenMixin, TrailMixin, QuietAdmin):
    form = PeriodicTaskForm
    date_hierarchy = None
    list_display = ("name", "enabled", "scheduler", "task", "last_run_at", "total_run_count", "one_off")
    list_filter = ("enabled", "one_off")
    list_per_page = 100
    show_full_result_count = False
    show_facets = admin.ShowFacets.NEVER
    actions = ("enable_tasks", "disable_tasks", "run_tasks")
    ordering = ("name",)

    def saved_besides(self, form: forms.ModelForm[Any]) -> Iterable[str]:
        yield from ("task", "date_changed")
        if "enabled" in form.changed_data and not form.cleaned_data["enabled"]:
            yield "last_run_at"

    @admin.action(description="Switch on the selected tasks")
    def enable_tasks(self, request: HttpRequest, queryset: QuerySet[PeriodicTask]) -> None:
        # The moment counts as the last change: what was missed while it was off is not made up for.
        self._switch(request, queryset.filter(enabled=False), "enable", enabled=True, date_changed=database_now())

    @admin.action(description="Switch off the selected tasks")
    def disable_tasks(self, request: HttpRequest, queryset: QuerySet[PeriodicTask]) -> None:
        self._switch(request, queryset.filter(enabled=True), "disable", enabled=False, last_run_at=None)

    @admin.action(description="Run the selected tasks once now")
    def run_tasks(self, request: HttpRequest, queryset: QuerySet[PeriodicTask]) -> None:
        now = database_now()
        with transaction.atomic():
            tasks = list(queryset.order_by("pk"))
            slots.make(door.raw(), [(task.pk, now, task.name) for task in tasks])
            self._note(request, tasks, "run")
        self.message_user(request, f"{len(tasks)} will be sent within a second by a running beat.", messages.SUCCESS)

    def _switch(self, request: HttpRequest, queryset: QuerySet[PeriodicTask], verb: str, **fields: Any) -> None:
        with transaction.atomic():
            tasks = list(queryset.select_for_update(of=("self",)).order_by("pk"))
            PeriodicTask.objects.filter(pk__in=[task.pk for task in tasks]).update(**fields)
            PeriodicTasks.update_changed()
            self._note(request, tasks, verb)
        self.message_user(request, f"{len(tasks)} switched {'on' if fields['enabled'] else 'off'}.", messages.SUCCESS)

    def _note(self, request: HttpRequest, tasks: list[PeriodicTask], verb: str) -> None:
        now = database_now()
        for task in tasks:
            record(
                actor=actor_of(request), action=f"periodictask.{verb}", object_type="periodictask", object_id=task.pk,
                now=now, tenant_id=None, after={"name": task.name},
            )  # fmt: skip


@admin.register(ClockedSchedule)
class ClockedScheduleAdmin(SeenMixin, TrailMixin, stock.ClockedScheduleAdmin):
    pass


@admin.register(CrontabSchedule)
class CrontabScheduleAdmin(SeenMixin, TrailMixin, stock.CrontabScheduleAdmin):
    pass


@admin.register(IntervalSchedule)
class IntervalScheduleAdmin(SeenMixin, TrailMixin, stock.IntervalScheduleAdmin):
    pass
