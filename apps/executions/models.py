"""History of runs, one set of tables per tenant. Hot paths write them through `store.py`."""

from django.db import models
from django.db.models import Q
from django.db.models.functions import Left

from kernel.eventtypes import DELIVERY
from kernel.transitions import ATTEMPT_STATES, EXECUTION_STATES

TRIGGERS = ("schedule", "manual", "api", "backfill", "replay", "workflow", "catch_up", DELIVERY)


class Execution(models.Model):
    """One logical run. While it is alive its ticket holds the current state; `state` here is then 'ready'."""

    id = models.UUIDField(primary_key=True)
    run_key = models.CharField(max_length=100)
    job_id = models.UUIDField()
    job_version = models.IntegerField()
    schedule_id = models.UUIDField(null=True)
    schedule_version = models.IntegerField(null=True)
    trigger = models.CharField(max_length=10)
    state = models.CharField(max_length=10)
    priority = models.SmallIntegerField()
    nominal_at = models.DateTimeField(null=True)
    actual_at = models.DateTimeField()
    created_at = models.DateTimeField()
    queued_at = models.DateTimeField(null=True)
    started_at = models.DateTimeField(null=True)
    finished_at = models.DateTimeField(null=True)
    attempt_count = models.IntegerField(default=0)
    payload = models.JSONField(null=True)
    result = models.JSONField(null=True)
    error = models.JSONField(null=True)
    reason = models.CharField(max_length=40, blank=True, help_text="Why it was skipped, expired or cancelled.")
    until_at = models.DateTimeField(null=True, help_text="Last instant of a row that stands for several.")
    count = models.IntegerField(default=1, help_text="Occurrences that this row stands for.")
    replay_of = models.UUIDField(null=True)
    fired_by = models.CharField(max_length=80, blank=True, help_text="Dispatcher and term, or who asked for it.")
    labels = models.JSONField(null=True)
    delays = models.JSONField(
        null=True, help_text='What held its first release back, the longest first: [{"code", "s"}, ...].'
    )

    workflow_run_id = models.UUIDField(null=True, help_text="The run that it is a step of; of a run itself its own id.")
    step = models.CharField(max_length=60, null=True)  # noqa: DJ001  most executions are no steps
    overrides = models.JSONField(null=True, help_text='What its step sets aside of its job: {"retry", "timeout_s"}.')

    class Meta:
        constraints = [
            models.CheckConstraint(condition=Q(state__in=EXECUTION_STATES), name="execution_state_is_known"),
            models.CheckConstraint(condition=Q(trigger__in=TRIGGERS), name="execution_trigger_is_known"),
            models.UniqueConstraint(fields=["run_key"], name="execution_run_key_is_unique"),
            models.UniqueConstraint(
                fields=["schedule_id", "nominal_at"],
                condition=Q(trigger__in=["schedule", "catch_up"]),
                name="execution_once_per_occurrence",
            ),
        ]
        indexes = [
            # reader: lists by job, newest first
            models.Index(fields=["job_id", "id"], name="execution_by_job"),
            # reader: reconcile, executions that are alive
            models.Index(fields=["id"], condition=Q(finished_at=None), name="execution_alive"),
            # reader: lists of what went wrong; succeeded and live rows are not in it
            models.Index(
                fields=["state", "id"],
                condition=Q(state__in=["dead", "cancelled", "expired", "skipped"]),
                name="execution_by_bad_state",
            ),
            # reader: the fan-out, how many deliveries of a webhook are alive
            models.Index(
                fields=["job_id"], condition=Q(finished_at=None, trigger=DELIVERY), name="execution_delivery_alive"
            ),
            # reader: the fan-out, an event's deliveries when what is missing is sent once more
            models.Index(Left("run_key", 32), condition=Q(trigger=DELIVERY), name="execution_delivery_of_event"),
            # readers: the list of delayed executions; pausing a job, which finds the delayed ones of the job
            models.Index(fields=["job_id", "id"], condition=Q(state="scheduled"), name="execution_scheduled"),
            # reader: lists by trigger; what fire and submit write is not in it
            models.Index(
                fields=["trigger", "id"],
                condition=Q(trigger__in=["manual", "backfill", "replay", "workflow", "catch_up"]),
                name="execution_by_rare_trigger",
            ),
            # reader: lists by schedule, which find occurrences by execution_once_per_occurrence
            models.Index(
                fields=["schedule_id", "id"],
                condition=Q(schedule_id__isnull=False) & ~Q(trigger__in=["schedule", "catch_up"]),
                name="execution_of_schedule_by_hand",
            ),
            # readers: backfill and completeness, later runs of an occurrence
            models.Index(
                fields=["schedule_id", "nominal_at"],
                condition=Q(trigger__in=["backfill", "replay"]),
                name="execution_of_occurrence_again",
            ),
            # reader: lists by replay_of
            models.Index(fields=["replay_of", "id"], condition=Q(replay_of__isnull=False), name="execution_replays"),
            # reader: lists by label; only runs that were asked for have labels
            models.Index(fields=["id"], condition=Q(labels__isnull=False), name="execution_labelled"),
            # readers: lists in order of finished_at, lists by when runs ended or started
            models.Index(
                fields=["finished_at", "id"], condition=Q(finished_at__isnull=False), name="execution_by_finished_at"
            ),
            # reader: executions of a workflow's run
            models.Index(
                fields=["workflow_run_id", "id"],
                condition=Q(workflow_run_id__isnull=False),
                name="execution_of_workflow_run",
            ),
        ]

    def __str__(self) -> str:
        return self.run_key


class Attempt(models.Model):
    """One ended try of an execution. The running one is its ticket. The id follows from execution and number."""

    id = models.UUIDField(primary_key=True)
    execution_id = models.UUIDField()
    number = models.IntegerField()
    fence = models.BigIntegerField()
    state = models.CharField(max_length=10)
    worker_id = models.UUIDField(null=True)
    started_at = models.DateTimeField()
    finished_at = models.DateTimeField()
    error = models.JSONField(null=True)
    retry_at = models.DateTimeField(null=True)

    class Meta:
        constraints = [models.CheckConstraint(condition=Q(state__in=ATTEMPT_STATES), name="attempt_state_is_known")]
        indexes = [
            # reader: lists of attempts by state or error; attempts that succeeded are not in it
            models.Index(fields=["state", "id"], condition=~Q(state="succeeded"), name="attempt_by_bad_state"),
        ]

    def __str__(self) -> str:
        return f"{self.execution_id} #{self.number} {self.state}"


class Erasure(models.Model):
    """An execution whose contents were erased, or are to be: what it was about is gone, that it was is not."""

    execution_id = models.UUIDField(primary_key=True)
    asked_id = models.UUIDField(help_text="The execution that was asked for; this one went with it.")
    at = models.DateTimeField()
    by = models.CharField(max_length=200)
    reason = models.CharField(max_length=500)
    done_at = models.DateTimeField(null=True, help_text="Nothing is left of it anywhere.")

    class Meta:
        indexes = [
            # reader: whoever goes on where somebody was stopped
            models.Index(fields=["execution_id"], condition=Q(done_at=None), name="erasure_undone"),
            # reader: what came of one request
            models.Index(fields=["asked_id"], name="erasure_asked"),
        ]

    def __str__(self) -> str:
        return f"{self.execution_id} erased"
