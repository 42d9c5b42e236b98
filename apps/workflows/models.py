"""Runs of workflows, their steps, and executions that wait for others. Tenant schema; written in SQL by `store.py`.

A run is an execution, of a job of the kind `workflow`; its row here has the same id. Who changes anything of a run
locks the row of its root first.
"""

from django.db import models
from django.db.models import F, Q

RUN_STATES = ("running", "paused", "cancelling", "succeeded", "failed", "cancelled")
RUN_ENDS = ("succeeded", "failed", "cancelled")
STEP_STATES = ("waiting", "running", "succeeded", "failed", "skipped", "cancelled")
STEP_ENDS = ("succeeded", "failed", "skipped", "cancelled")
STEP_TYPES = ("job", "workflow", "approval", "delay", "compensation", "on_failure")
STEP_NAME_CHARS = 60  # 50 of a step's own name, and what goes before it in the row of its compensation
CONDITIONS = ("succeeded", "failed", "finished", "skipped")


class Run(models.Model):
    """One run of a workflow, with the version that it keeps to its end."""

    execution_id = models.UUIDField(primary_key=True)
    root_id = models.UUIDField(help_text="The run that nobody's step started; its row is the lock of the whole tree.")
    parent_step_id = models.BigIntegerField(null=True, help_text="The step that started it as its sub-workflow.")
    depth = models.SmallIntegerField(default=0)
    workflow_id = models.UUIDField()
    version = models.IntegerField()
    state = models.CharField(max_length=10)
    input = models.JSONField(null=True)
    output = models.JSONField(null=True)
    reason = models.CharField(max_length=200, blank=True, default="")
    error = models.JSONField(null=True, help_text="Of the first step that failed it, with its name and execution.")
    open = models.IntegerField(default=0, help_text="Steps that have not ended.")
    failed = models.IntegerField(default=0, help_text="Steps that failed and fail the run.")
    deadline_at = models.DateTimeField(null=True)
    started_at = models.DateTimeField()
    finished_at = models.DateTimeField(null=True)
    paused_at = models.DateTimeField(null=True)
    paused_by = models.CharField(max_length=200, blank=True, default="")
    paused_reason = models.CharField(max_length=500, blank=True, default="")
    generation = models.IntegerField(default=1, help_text="Grows when it is opened again.")
    revision = models.IntegerField(default=1, help_text="Grows with every change by a person; the ETag.")

    class Meta:
        constraints = [
            models.CheckConstraint(condition=Q(state__in=RUN_STATES), name="run_state_is_known"),
            models.CheckConstraint(
                condition=Q(state__in=RUN_ENDS, finished_at__isnull=False)
                | ~Q(state__in=RUN_ENDS) & Q(finished_at=None),
                name="run_ended_has_finished_at",
            ),
            models.CheckConstraint(condition=Q(open__gte=0, failed__gte=0), name="run_counts_are_not_negative"),
            models.CheckConstraint(
                condition=Q(depth=0, root_id=F("execution_id"), parent_step_id=None)
                | Q(depth__gt=0, parent_step_id__isnull=False),
                name="run_root_has_no_parent",
            ),
        ]
        indexes = [
            # readers: a tree's runs; cancel and pause of all of it
            models.Index(fields=["root_id"], condition=Q(depth__gt=0), name="run_of_tree"),
            # reader: the run that a step started
            models.Index(fields=["parent_step_id"], condition=Q(depth__gt=0), name="run_of_step"),
            # readers: lists by workflow, newest first; the run before this one
            models.Index(fields=["workflow_id", "execution_id"], name="run_by_workflow"),
            # readers: lists of what goes on; reconcile
            models.Index(fields=["execution_id"], condition=Q(finished_at=None), name="run_alive"),
            # reader: lists of what went wrong
            models.Index(
                fields=["state", "execution_id"],
                condition=Q(state__in=["failed", "cancelled"]),
                name="run_by_bad_state",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.execution_id} {self.state}"


class StepRun(models.Model):
    """A step of a run; of a step with a list also one row for each item of it."""

    id = models.BigAutoField(primary_key=True)
    run_id = models.UUIDField()
    step = models.CharField(max_length=STEP_NAME_CHARS)
    item = models.IntegerField(null=True, help_text="Place in the list; null: the step itself.")
    type = models.CharField(max_length=12)
    state = models.CharField(max_length=10)
    reason = models.CharField(max_length=40, blank=True, default="", help_text="Why it was skipped, failed or waits.")
    error = models.JSONField(null=True)
    value = models.JSONField(null=True, help_text="Of a place in the list: what stands there.")
    output = models.JSONField(null=True, help_text="Result of a step that has no execution of its own.")
    execution_id = models.UUIDField(null=True)
    generation = models.IntegerField(default=1, help_text="Grows when it is run once more; in the run key.")
    pending = models.IntegerField(default=0, help_text="Steps that it needs and that have not ended.")
    met = models.IntegerField(default=0, help_text="Needs that are met.")
    failed = models.IntegerField(default=0, help_text="Steps that it needs and that failed.")
    succeeded = models.IntegerField(default=0, help_text="Steps that it needs and that succeeded.")
    items = models.IntegerField(null=True, help_text="Length of its list.")
    items_open = models.IntegerField(default=0)
    items_failed = models.IntegerField(default=0)
    wake_at = models.DateTimeField(null=True, help_text="End of a delay or of the time for an approval; or look again.")
    started_at = models.DateTimeField(null=True)
    finished_at = models.DateTimeField(null=True)
    forced = models.BooleanField(default=False, help_text="A person decided on it, whatever its needs say.")
    decided_by = models.CharField(max_length=200, blank=True, default="")
    note = models.CharField(max_length=500, blank=True, default="")
    used = models.JSONField(null=True, help_text="{step: attempt} of what it needs, as they were when it started.")

    class Meta:
        constraints = [
            models.CheckConstraint(condition=Q(state__in=STEP_STATES), name="step_state_is_known"),
            models.CheckConstraint(condition=Q(type__in=STEP_TYPES), name="step_type_is_known"),
            models.CheckConstraint(
                condition=Q(state__in=STEP_ENDS, finished_at__isnull=False)
                | ~Q(state__in=STEP_ENDS) & Q(finished_at=None),
                name="step_ended_has_finished_at",
            ),
            models.CheckConstraint(
                condition=Q(pending__gte=0, met__gte=0, failed__gte=0, succeeded__gte=0, items_open__gte=0),
                name="step_counts_are_not_negative",
            ),
            models.UniqueConstraint(
                fields=["run_id", "step", "item"], name="step_once_per_run_and_item", nulls_distinct=False
            ),
            # reader: settle, the step whose execution has ended
            models.UniqueConstraint(fields=["execution_id"], name="step_has_own_execution"),
        ]
        indexes = [
            # reader: lists of a run's steps, in order
            models.Index(fields=["run_id", "id"], name="step_of_run"),
            # reader: the look at a run, whose time has come
            models.Index(fields=["run_id", "wake_at"], condition=Q(wake_at__isnull=False), name="step_wakes"),
            # reader: the list of approvals that wait for a person
            models.Index(fields=["id"], condition=Q(type="approval", state="running"), name="step_awaits_approval"),
        ]

    def __str__(self) -> str:
        return f"{self.run_id} {self.step} {self.state}"


class Dependency(models.Model):
    """An execution waits for another one, outside any workflow."""

    id = models.BigAutoField(primary_key=True)
    parent_id = models.UUIDField()
    child_id = models.UUIDField()
    on = models.CharField(max_length=10)
    met = models.BooleanField(null=True, help_text="Null while the parent has not ended.")

    class Meta:
        verbose_name_plural = "dependencies"
        constraints = [
            models.CheckConstraint(condition=Q(on__in=CONDITIONS), name="dependency_condition_is_known"),
            models.CheckConstraint(condition=~Q(parent_id=F("child_id")), name="dependency_is_on_another"),
            # reader: settle, who waits for what has ended
            models.UniqueConstraint(fields=["parent_id", "child_id"], name="dependency_once"),
        ]
        indexes = [
            # reader: what an execution waits for
            models.Index(fields=["child_id"], name="dependency_of_child"),
        ]

    def __str__(self) -> str:
        return f"{self.child_id} after {self.parent_id} {self.on}"
