"""Definitions: what runs (jobs) and when (schedules), each with its versions. Tenant schema."""

from django.db import models
from django.db.models import Q
from django.db.models.functions import Lower

from kernel.ids import uuid7
from kernel.pools import WORKFLOW

POOL_OF_KIND = {"http": "http", "python": "python", "container": "container", "pull": "pull", WORKFLOW: WORKFLOW}


class Job(models.Model):
    """What to run. The definition itself is in JobVersion `version`.

    A workflow is one of kind `workflow`; a job that is written inside of a workflow names it and changes with it.
    """

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    name = models.CharField(max_length=300, help_text="Up to 200; with workflow and step for a job inside of one.")
    kind = models.CharField(max_length=10)
    workflow_id = models.UUIDField(null=True, help_text="The workflow it is written in; not shown by itself.")
    version = models.IntegerField(default=1)
    revision = models.IntegerField(default=1, help_text="Grows with every change; the ETag.")
    paused_at = models.DateTimeField(null=True)
    paused_reason = models.CharField(max_length=500, blank=True)
    labels = models.JSONField(default=dict)
    external_id = models.CharField(max_length=200, null=True)  # noqa: DJ001  null keeps several without one unique
    created_at = models.DateTimeField()
    updated_at = models.DateTimeField()
    deleted_at = models.DateTimeField(null=True, help_text="Deleted for its users; kept for its history.")

    class Meta:
        constraints = [
            models.CheckConstraint(condition=Q(kind__in=list(POOL_OF_KIND)), name="job_kind_is_known"),
            models.CheckConstraint(
                condition=Q(workflow_id=None) | ~Q(kind=WORKFLOW), name="job_in_a_workflow_is_no_workflow"
            ),
            models.UniqueConstraint(
                Lower("name"),
                condition=Q(deleted_at=None, workflow_id=None) & ~Q(kind=WORKFLOW),
                name="job_name_is_unique",
            ),
            models.UniqueConstraint(
                Lower("name"), condition=Q(deleted_at=None, kind=WORKFLOW), name="workflow_name_is_unique"
            ),
            models.UniqueConstraint(
                fields=["external_id"],
                condition=Q(deleted_at=None) & ~Q(kind=WORKFLOW),
                name="job_external_id_is_unique",
            ),
            models.UniqueConstraint(
                fields=["external_id"],
                condition=Q(deleted_at=None, kind=WORKFLOW),
                name="workflow_external_id_is_unique",
            ),
        ]
        indexes = [
            # reader: changes of a workflow, which change its own jobs
            models.Index(fields=["workflow_id"], condition=Q(workflow_id__isnull=False), name="job_of_workflow"),
            # reader: lists of runs of workflows, which look for those of each
            models.Index(fields=["id"], condition=Q(kind=WORKFLOW), name="job_is_workflow"),
        ]

    def __str__(self) -> str:
        return self.name


class JobVersion(models.Model):
    """An immutable definition of a job; executions name the one that they run."""

    id = models.BigAutoField(primary_key=True)
    job = models.ForeignKey(Job, on_delete=models.CASCADE, related_name="versions", db_index=False)
    version = models.IntegerField()
    target = models.JSONField()
    payload = models.JSONField(null=True)
    timeout_s = models.IntegerField()
    max_queue_age_s = models.IntegerField(null=True, help_text="A run that has not started by then expires.")
    total_timeout_s = models.IntegerField(null=True, help_text="From the first start over all tries and waits.")
    retry = models.JSONField()
    priority = models.SmallIntegerField()
    max_concurrency = models.IntegerField(null=True)
    concurrency_key = models.JSONField(
        null=True, help_text='{"label" or "payload", "max"}: most at once of each value.'
    )
    rate_limit = models.JSONField(null=True, help_text='{"runs", "per_s", "burst"}: starts; what is more waits.')
    queue = models.CharField(max_length=80, blank=True, help_text="Named queue of a pull job.")
    created_at = models.DateTimeField()

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["job", "version"], name="job_version_once"),
            models.CheckConstraint(condition=Q(timeout_s__range=(1, 28_800)), name="job_timeout_is_1_to_28800_s"),
            models.CheckConstraint(condition=Q(max_queue_age_s__gte=1), name="job_max_queue_age_is_positive"),
            models.CheckConstraint(
                condition=Q(total_timeout_s__gte=models.F("timeout_s")), name="job_total_timeout_holds_one_attempt"
            ),
            models.CheckConstraint(condition=Q(priority__range=(0, 9)), name="job_priority_is_0_to_9"),
        ]

    def __str__(self) -> str:
        return f"{self.job_id} v{self.version}"


class Schedule(models.Model):
    """When a job runs. Firing never touches this row: next_at is the due entry's, last_at the newest execution's."""

    class Status(models.TextChoices):
        ACTIVE = "active"
        PAUSED = "paused"
        COMPLETED = "completed"

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    name = models.CharField(max_length=200)
    job = models.ForeignKey(Job, on_delete=models.PROTECT, related_name="schedules")
    version = models.IntegerField(default=1, help_text="Version of its definition (ScheduleVersion).")
    revision = models.IntegerField(default=1, help_text="Grows with every change; the ETag.")
    status = models.CharField(max_length=10, choices=Status.choices, default=Status.ACTIVE)
    paused_reason = models.CharField(max_length=500, blank=True)
    paused_at = models.DateTimeField(null=True)
    resume_at = models.DateTimeField(
        null=True, help_text="It goes on by itself; its due entry waits for later instants."
    )
    failures_from = models.IntegerField(default=1, help_text="Failures of earlier versions do not count for pausing.")
    labels = models.JSONField(default=dict)
    external_id = models.CharField(max_length=200, null=True)  # noqa: DJ001  null keeps several without one unique
    created_at = models.DateTimeField()
    updated_at = models.DateTimeField()
    deleted_at = models.DateTimeField(null=True, help_text="Deleted for its users; kept for its history.")

    class Meta:
        constraints = [
            models.CheckConstraint(
                condition=Q(status__in=["active", "paused", "completed"]), name="schedule_status_is_known"
            ),
            models.UniqueConstraint(Lower("name"), condition=Q(deleted_at=None), name="schedule_name_is_unique"),
            models.UniqueConstraint(
                fields=["external_id"], condition=Q(deleted_at=None), name="schedule_external_id_is_unique"
            ),
        ]

    def __str__(self) -> str:
        return self.name


class ScheduleVersion(models.Model):
    """An immutable definition of a schedule; executions name the one that made them.

    With the time in which it decided what was to run (see `history`), which is what completeness is checked against.
    """

    id = models.BigAutoField(primary_key=True)
    schedule = models.ForeignKey(Schedule, on_delete=models.CASCADE, related_name="versions", db_index=False)
    version = models.IntegerField()
    definition = models.JSONField(help_text="As given over the API: trigger, timezone, window, policies.")
    spec = models.TextField(help_text="Canonical JSON of timing.Spec, the text that the due entry carries.")
    payload = models.JSONField(null=True)
    own_payload = models.BooleanField(default=False)
    created_at = models.DateTimeField()
    from_at = models.DateTimeField(null=True, help_text="Occurrences later than this are its; null: not known.")
    until_at = models.DateTimeField(null=True, help_text="And up to this, inclusive; null: until the next version's.")
    ended_by = models.CharField(max_length=20, blank=True, db_default="", help_text="What stopped it at `until_at`.")

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["schedule", "version"], name="schedule_version_once"),
            models.CheckConstraint(
                condition=Q(until_at=None, ended_by="") | (Q(until_at__isnull=False) & ~Q(ended_by="")),
                name="schedule_version_end_has_a_reason",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.schedule_id} v{self.version}"


class Calendar(models.Model):
    """Days that schedules leave out. Each schedule that uses it carries a copy of its days in its spec."""

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    name = models.CharField(max_length=200)
    revision = models.IntegerField(default=1, help_text="Grows with every change; the ETag.")
    days = models.JSONField(help_text="As the API shows it: dates, ranges, rrules, weekdays, weekend.")
    exclusion = models.TextField(help_text="JSON of apps.schedules.exclusion.Exclusion, which specs carry.")
    created_at = models.DateTimeField()
    updated_at = models.DateTimeField()
    deleted_at = models.DateTimeField(null=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(Lower("name"), condition=Q(deleted_at=None), name="calendar_name_is_unique"),
        ]

    def __str__(self) -> str:
        return self.name
