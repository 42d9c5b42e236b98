"""Operations of a tenant and their items. Items are written in SQL by `items.py`, many at once."""

from collections.abc import Mapping
from typing import Any

from django.db import models
from django.db.models import F, Q

from apps.operations.states import ENDS, ITEM_STATES, STATES


class Operation(models.Model):
    """One wish over many things. Its counts are of its items and always add up to `planned`."""

    id = models.UUIDField(primary_key=True)
    action = models.CharField(max_length=20, help_text="cancel, rerun, pause, replay, backfill, ...")
    target = models.CharField(max_length=20, help_text="executions, jobs, schedules, dead_letters, workflow_runs")
    filter = models.JSONField(help_text="As it was given, by the names of the list's query.")
    params = models.JSONField(default=dict, help_text="What its kind knows besides.")
    state = models.CharField(max_length=10)
    frozen_at = models.DateTimeField(help_text="What came into being later is not meant.")
    cursor = models.JSONField(null=True, help_text="How far planning has got, or undoing.")
    is_planned = models.BooleanField(default=False, help_text="All its items are there.")
    planned = models.IntegerField(default=0)
    pending = models.IntegerField(default=0)
    running = models.IntegerField(default=0)
    succeeded = models.IntegerField(default=0)
    skipped = models.IntegerField(default=0)
    failed = models.IntegerField(default=0)
    undone = models.IntegerField(default=0)
    rate_per_s = models.FloatField(null=True, help_text="Items a second at most.")
    max_in_flight = models.IntegerField(null=True, help_text="Executions at most that it started and that run.")
    canary = models.IntegerField(null=True, help_text="So many first; the others only when these succeeded.")
    canary_passed = models.BooleanField(default=False)
    stop_after_failures = models.IntegerField(null=True)
    next_at = models.DateTimeField(null=True, help_text="No further item is started before.")
    waits_for = models.CharField(max_length=40, blank=True, help_text="Code of what holds it back just now.")
    looked_n = models.IntegerField(default=0, help_text="Running items were looked at up to this one.")
    reason = models.CharField(max_length=500, blank=True)
    paused_reason = models.CharField(max_length=500, blank=True)
    error = models.CharField(max_length=500, blank=True)
    created_by = models.CharField(max_length=200)
    actor = models.JSONField(help_text="Who asked: subject, stored name, role.")
    created_at = models.DateTimeField()
    started_at = models.DateTimeField(null=True)
    finished_at = models.DateTimeField(null=True)
    revision = models.IntegerField(default=1, help_text="Grows with every change by a person; the ETag.")

    class Meta:
        constraints = [
            models.CheckConstraint(condition=Q(state__in=STATES), name="operation_state_is_known"),
            models.CheckConstraint(
                condition=Q(
                    planned=F("pending") + F("running") + F("succeeded") + F("skipped") + F("failed") + F("undone"),
                    pending__gte=0, running__gte=0, succeeded__gte=0, skipped__gte=0, failed__gte=0, undone__gte=0,
                ),
                name="operation_counts_add_up",
            ),
            models.CheckConstraint(
                condition=Q(finished_at=None) | Q(state__in=ENDS), name="operation_finished_has_ended"
            ),
            models.CheckConstraint(
                condition=Q(is_planned=True) | Q(state__in=["planning", "paused", "cancelled", "failed"]),
                name="operation_works_when_planned",
            ),
        ]  # fmt: skip
        indexes = [
            # readers: lists of what is going on; retention, which leaves it alone
            models.Index(fields=["id"], condition=Q(finished_at=None), name="operation_alive"),
        ]

    def __str__(self) -> str:
        return f"{self.action} {self.target} {self.id}"

    def values(self) -> dict[str, Any]:
        """All its fields, as they are just now."""
        return {field.attname: getattr(self, field.attname) for field in self._meta.concrete_fields}

    def changed_since(self, was: Mapping[str, Any]) -> dict[str, Any]:
        """Those of its `values` that are other ones than they were."""
        return {name: value for name, value in self.values().items() if value != was[name]}


class Item(models.Model):
    """One thing of an operation, and what became of it. What is pending is always the end of the list."""

    pk = models.CompositePrimaryKey("operation_id", "n")
    operation_id = models.UUIDField()
    n = models.IntegerField(help_text="From 1, in the order in which they are worked off.")
    target_id = models.UUIDField(null=True)
    nominal_at = models.DateTimeField(null=True, help_text="Of a backfill: the occurrence.")
    state = models.CharField(max_length=10)
    code = models.CharField(max_length=40, blank=True, help_text="Why it was skipped or failed, or not undone.")
    detail = models.CharField(max_length=300, blank=True)
    made_id = models.UUIDField(null=True, help_text="The execution that it started.")
    before = models.JSONField(null=True, help_text="What an undo restores.")
    done_at = models.DateTimeField(null=True)

    class Meta:
        constraints = [
            models.CheckConstraint(condition=Q(state__in=ITEM_STATES), name="operationitem_state_is_known"),
        ]
        indexes = [
            # reader: the engine, what may have ended
            models.Index(fields=["operation_id", "n"], condition=Q(state="running"), name="operationitem_running"),
            # reader: receipts, what went wrong
            models.Index(
                fields=["operation_id", "n"], condition=Q(state__in=["skipped", "failed"]), name="operationitem_bad"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.operation_id} #{self.n} {self.state}"
