"""What is due, what is alive and who serves it, over all tenants: shared tables only."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from django.contrib import admin
from django.db.models import BooleanField, Count, ExpressionWrapper, Func, IntegerField, OuterRef, Q, QuerySet, Subquery
from django.db.models.functions import Coalesce, Now
from django.http import HttpRequest
from django.urls import reverse
from django.utils.html import format_html

from apps.console.admin_trail import ByTenantAdmin
from apps.console.filters import HELD, DueFilter, HolderFilter, LiveFilter, ParkedFilter, StartByFilter, choice_filter
from apps.console.reading import ReadOnlyAdmin
from apps.console.shown import json_field, tenant_link
from apps.console.verbs.many import key_of
from apps.console.verbs.ticked import TickedMixin
from apps.due import slots
from apps.due.models import BeatSlot, Dispatcher, DueEntry, ShardLease
from apps.tickets.models import BREAKER_STATES, Breaker, Ticket, Worker
from kernel.pools import POOLS
from kernel.transitions import TICKET_STATES
from tenants.models import Tenant

LIVE = ExpressionWrapper(Q(expires_at__gt=Now()), output_field=BooleanField())


@admin.register(DueEntry)
class DueEntryAdmin(TickedMixin, ByTenantAdmin):
    list_display = ("key", "tenant", "kind", "due_at", "nominal_at", "queue", "priority", "shard", "parked")
    list_filter = (
        DueFilter, ParkedFilter, choice_filter("kind", ("schedule", "execution")), choice_filter("pool", POOLS),
    )  # fmt: skip
    uuid_search = ("key",)
    search_help_text = "Id of a schedule or of a delayed execution, or a tenant."
    verbs = ("dueentry.unpark",)


@admin.register(Ticket)
class TicketAdmin(TickedMixin, ByTenantAdmin):
    list_display = (
        "execution", "tenant", "state", "why", "waits_for", "priority", "key", "queue", "attempt", "available_at",
        "start_by", "queued_at", "started_at", "deadline", "held_by", "cancel_requested",
    )  # fmt: skip
    list_filter = (choice_filter("state", TICKET_STATES), choice_filter("pool", POOLS), StartByFilter)
    uuid_search = ("execution_id", "worker_id")
    search_help_text = "Id of an execution or of a worker, or a tenant."
    list_display_links = ("state",)
    verbs = ("ticket.cancel", "ticket.release")

    def keys_of(self, ids: list[Any]) -> Iterable[str]:
        """With the tenant of each; what is over by now is nobody's."""
        of_tenant = dict(Ticket.objects.filter(pk__in=ids).values_list("pk", "tenant_id"))
        slugs = dict(Tenant.objects.filter(pk__in=set(of_tenant.values())).values_list("pk", "slug"))
        return [key_of(key, slug=slugs.get(of_tenant.get(key, 0), "-")) for key in ids]

    @admin.display(description="execution")
    def execution(self, obj: Any) -> str:
        return tenant_link(obj.tenant_slug, f"executions/execution/{obj.pk}/change/", obj.pk)

    @admin.display(description="why?")
    def why(self, obj: Any) -> str:
        return tenant_link(obj.tenant_slug, f"executions/execution/{obj.pk}/explain/", "why?")

    @admin.display(description="held by")
    def held_by(self, obj: Any) -> str:
        """A worker of ours, or somebody outside, who has it until the deadline."""
        if obj.state != "running":
            return "-"
        return f"outside: {obj.holder or 'no name'}" if obj.remote else str(obj.worker_id)

    @admin.display(description="waits for", empty_value="-")
    def waits_for(self, obj: Any) -> str | None:
        """What was written down means something while it waits for its time; *why?* says the rest."""
        waits = obj.state == "ready" and obj.rank is None
        return obj.wait_reason if waits else None


@admin.register(Breaker)
class BreakerAdmin(TickedMixin, ByTenantAdmin):
    list_display = (
        "destination", "tenant", "state", "failures", "openings", "opened_at", "retry_at", "probe_until", "changed_at",
        "reason",
    )  # fmt: skip
    list_filter = (choice_filter("state", BREAKER_STATES),)
    exact_search = ("destination",)
    search_help_text = "host:port, or a tenant."
    verbs = ("breaker.reset",)


@admin.register(ShardLease)
class ShardLeaseAdmin(ReadOnlyAdmin):
    list_display = ("__str__", "held", "holder", "term", "expires_at", "taken_at", "taken_from")
    list_filter = (choice_filter("kind", ("fire", "release", "reconcile", "seal")), HolderFilter)
    uuid_search = ("owner", "taken_from")
    search_help_text = "Id of a dispatcher."
    ordering = ("kind", "shard")

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        is_held = ExpressionWrapper(HELD, output_field=BooleanField())
        rows: QuerySet[Any] = super().get_queryset(request).annotate(is_held=is_held)
        return rows

    @admin.display(description="live holder", boolean=True)
    def held(self, obj: Any) -> bool:
        return bool(obj.is_held)

    @admin.display(description="holder")
    def holder(self, obj: ShardLease) -> str:
        if obj.owner is None:
            return "-"
        return format_html('<a href="{}">{}</a>', reverse("admin:due_dispatcher_change", args=[obj.owner]), obj.owner)


class ProcessAdmin(ReadOnlyAdmin):
    """Processes with a heartbeat."""

    list_filter = (LiveFilter,)
    uuid_search = ("id",)
    exact_search: tuple[str, ...] = ("host",)
    search_help_text = "Id or host."
    ordering = ("-started_at", "-pk")

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        rows: QuerySet[Any] = super().get_queryset(request).annotate(is_live=LIVE)
        return rows

    @admin.display(description="live", boolean=True)
    def live(self, obj: Any) -> bool:
        return bool(obj.is_live)


@admin.register(Dispatcher)
class DispatcherAdmin(ProcessAdmin):
    list_display = ("id", "host", "pid", "live", "leases", "draining", "skew_ms", "version", "started_at", "expires_at")
    fields = (
        "id", "host", "pid", "version", "started_at", "expires_at", "draining", "skew_ms", "leases", "stats_shown",
    )  # fmt: skip
    readonly_fields = ("leases", "stats_shown")
    stats_shown = json_field("stats")

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        own = ShardLease.objects.filter(owner=OuterRef("pk"), expires_at__gt=Now()).order_by().values("owner")
        counted = Subquery(own.annotate(n=Count("pk")).values("n"), output_field=IntegerField())
        rows: QuerySet[Any] = super().get_queryset(request).annotate(lease_count=Coalesce(counted, 0))
        return rows

    @admin.display(description="leases")
    def leases(self, obj: Any) -> str:
        url = reverse("admin:due_shardlease_changelist")
        return format_html('<a href="{}?q={}">{}</a>', url, obj.pk, obj.lease_count)


@admin.register(Worker)
class WorkerAdmin(ProcessAdmin):
    list_display = (
        "id", "host", "pid", "group", "live", "draining", "pools", "slots", "listens", "skew_ms", "version",
        "started_at",
    )  # fmt: skip
    exact_search = ("host", "group")
    search_help_text = "Id, host or group."
    deferred = ("queues", "stats")
    fields = (
        "id", "host", "pid", "group", "version", "started_at", "expires_at", "draining", "skew_ms", "pools", "slots",
        "queues_shown", "stats_shown",
    )  # fmt: skip
    readonly_fields = ("queues_shown", "stats_shown")
    queues_shown, stats_shown = json_field("queues"), json_field("stats")

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        counted = Func("queues", function="cardinality", output_field=IntegerField())
        rows: QuerySet[Any] = super().get_queryset(request).annotate(queue_count=counted)
        return rows

    @admin.display(description="queues")
    def listens(self, obj: Any) -> str:
        return f"{obj.queue_count:,}"


class SlotStateFilter(admin.SimpleListFilter):
    """Where a slot is in its life."""

    title = "state"
    parameter_name = "state"
    states = {
        "waiting": Q(started_at=None, sends__lte=slots.SENDS_MAX),
        "given-up": Q(started_at=None, sends__gt=slots.SENDS_MAX),
        "running": Q(started_at__isnull=False, finished_at=None),
        "finished": Q(finished_at__isnull=False),
    }

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        return [(name, name.replace("-", " ")) for name in self.states]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        wanted = self.states.get(self.value() or "")
        return queryset.filter(wanted) if wanted is not None else queryset


@admin.register(BeatSlot)
class BeatSlotAdmin(ReadOnlyAdmin):
    list_display = ("name", "slot_at", "state", "sends", "sent_at", "started_at", "finished_at")
    list_filter = (SlotStateFilter,)
    exact_search = ("name",)
    search_help_text = "Name of a periodic task."

    @admin.display(description="state")
    def state(self, obj: BeatSlot) -> str:
        if obj.finished_at:
            return "finished"
        if obj.started_at:
            return "running, or its worker died"
        return "given up" if obj.sends > slots.SENDS_MAX else "sent" if obj.sends else "to be sent"
