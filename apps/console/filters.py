"""List filters whose choices are known without asking the table."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import timedelta
from typing import Any
from uuid import UUID

from django.conf import settings
from django.contrib import admin
from django.db.models import Exists, OuterRef, Q, QuerySet
from django.db.models.functions import Now
from django.http import HttpRequest

from apps.audit.trail import database_now
from apps.due.models import Dispatcher
from tenants import template


def choice_filter(name: str, values: Sequence[str], label: str = "") -> type[admin.SimpleListFilter]:
    """A filter on a column that holds one of these values."""

    class Choice(admin.SimpleListFilter):
        title = label or name.replace("_", " ")
        parameter_name = name

        def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
            return [(value, value) for value in values]

        def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
            return queryset.filter(**{name: self.value()}) if self.value() in values else queryset

    return Choice


class NamedFilter(admin.AllValuesFieldListFilter):
    """All values of a small table's column; the empty one has a name to click on."""

    def choices(self, changelist: Any) -> Iterator[Any]:
        for one in super().choices(changelist):
            yield {**one, "display": one["display"] or "(none)"}


class SchemaFilter(admin.SimpleListFilter):
    """Tenants whose schemas wait for a migration, or had one of a newer version already."""

    title = "schema"
    parameter_name = "schema"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        return [("this", "of this version"), ("other", "of another version")]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        if self.value() == "this":
            return queryset.filter(schema_version=template.version())
        return queryset.exclude(schema_version=template.version()) if self.value() == "other" else queryset


class WindowFilter(admin.SimpleListFilter):
    """When a row was made, read from its UUIDv7: a range of the primary key, whatever the size of the table."""

    title = "made"
    parameter_name = "made"
    windows = {"hour": timedelta(hours=1), "day": timedelta(days=1), "week": timedelta(days=7)}

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        younger = [(name, f"in the last {name}") for name in self.windows]
        return younger + [(f"older-{name}", f"more than a {name} ago") for name in ("day", "week")]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        name = (self.value() or "").removeprefix("older-")
        if name not in self.windows:
            return queryset
        at = database_now() - self.windows[name]
        bound = UUID(int=int(at.timestamp() * 1_000) << 80)
        past = (self.value() or "").startswith("older-")
        return queryset.filter(pk__lt=bound) if past else queryset.filter(pk__gte=bound)


class ParkedFilter(admin.SimpleListFilter):
    """Entries that were put aside."""

    title = "state"
    parameter_name = "parked"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        return [("yes", "put aside"), ("no", "served")]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        if self.value() == "yes":
            return queryset.exclude(parked="")
        return queryset.filter(parked="") if self.value() == "no" else queryset


class DueFilter(admin.SimpleListFilter):
    """What is due now. The index is by shard, so all of them are named."""

    title = "due"
    parameter_name = "due"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        return [("now", "now")]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        if self.value() != "now":
            return queryset
        return queryset.filter(parked="", shard__in=list(range(settings.SHARDS)), due_at__lte=Now())


class StartByFilter(admin.SimpleListFilter):
    """What waits and may not wait for ever; what is past its time should be gone within a second or so."""

    title = "start by"
    parameter_name = "start_by"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        return [("set", "waits with a limit"), ("passed", "too late")]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        if self.value() not in ("set", "passed"):
            return queryset
        waiting = queryset.filter(start_by__isnull=False, state__in=("ready", "queued"))
        return waiting.filter(start_by__lt=Now()) if self.value() == "passed" else waiting


class LiveFilter(admin.SimpleListFilter):
    """Processes whose heartbeat is valid by the database's clock."""

    title = "heartbeat"
    parameter_name = "live"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        return [("yes", "live"), ("no", "gone")]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        if self.value() == "yes":
            return queryset.filter(expires_at__gt=Now())
        return queryset.filter(expires_at__lte=Now()) if self.value() == "no" else queryset


HELD = Q(expires_at__gt=Now()) & Exists(Dispatcher.objects.filter(pk=OuterRef("owner"), expires_at__gt=Now()))


class HolderFilter(admin.SimpleListFilter):
    """Leases with and without a live holder."""

    title = "holder"
    parameter_name = "held"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        return [("yes", "live"), ("no", "none")]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        if self.value() == "yes":
            return queryset.filter(HELD)
        return queryset.exclude(HELD) if self.value() == "no" else queryset
