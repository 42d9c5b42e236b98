"""Tables of quotas and figures, in the shared schema. Read and written in SQL by the modules of this package."""

from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models import Q

LEVELS = (80, 100)  # percent of a limit at which its tenant is told
STEPS = (60, 3_600, 86_400)  # seconds that a roll-up row covers


class DayCount(models.Model):
    """Runs of a tenant on one day (UTC): what its max_runs_per_day is compared with, under this row's lock.

    Where a plan has no such limit `rolling` adds to it, a few seconds later.
    """

    pk = models.CompositePrimaryKey("tenant_id", "day")
    tenant_id = models.IntegerField()
    day = models.DateField()
    runs = models.BigIntegerField(default=0, db_default=0)

    class Meta:
        constraints = [models.CheckConstraint(condition=Q(runs__gte=0), name="daycount_is_not_negative")]
        indexes = [
            # reader: rolling, days that nobody asks for any more
            models.Index(fields=["day"], name="daycount_by_day"),
        ]

    def __str__(self) -> str:
        return f"{self.tenant_id} {self.day}: {self.runs}"


class Delta(models.Model):
    """What one transaction did, written by it; taken away by `rolling` when it is summed up."""

    id = models.BigAutoField(primary_key=True)
    minute = models.DateTimeField()
    counts = models.TextField(help_text="JSON: [[tenant id, key of apps.usage.figures, how many], ...]")

    def __str__(self) -> str:
        return f"{self.id} {self.minute:%H:%M}"


class Rollup(models.Model):
    """Figures of a tenant in one minute, hour or day (UTC). Histograms as in apps.usage.figures; null: nothing."""

    pk = models.CompositePrimaryKey("step_s", "starts_at", "tenant_id")
    step_s = models.IntegerField(help_text="Seconds that the row covers.")
    starts_at = models.DateTimeField()
    tenant_id = models.IntegerField()
    fired = models.BigIntegerField(default=0, help_text="Runs made by schedules.")
    submitted = models.BigIntegerField(default=0, help_text="Runs that somebody asked for; replays and reruns too.")
    skipped = models.BigIntegerField(default=0, help_text="Occurrences that did not run.")
    released = models.BigIntegerField(default=0, help_text="Hand-overs to workers; later tries too.")
    started = models.BigIntegerField(default=0, help_text="First attempts, in the minute in which they ended.")
    succeeded = models.BigIntegerField(default=0)
    dead = models.BigIntegerField(default=0)
    cancelled = models.BigIntegerField(default=0)
    expired = models.BigIntegerField(default=0)
    attempts = models.BigIntegerField(default=0, help_text="Attempts that ended.")
    attempts_failed = models.BigIntegerField(default=0, help_text="Of these the failed, timed-out and lost ones.")
    run_ms = models.BigIntegerField(default=0, help_text="How long the attempts ran, in all.")
    dispatch = ArrayField(models.IntegerField(), null=True, help_text="Dispatch lateness of first releases.")
    start = ArrayField(models.IntegerField(), null=True, help_text="Start lateness of first attempts.")
    duration = ArrayField(models.IntegerField(), null=True, help_text="Durations of attempts.")

    class Meta:
        constraints = [models.CheckConstraint(condition=Q(step_s__in=STEPS), name="rollup_step_is_known")]
        indexes = [
            # reader: a tenant's history
            models.Index(fields=["tenant_id", "step_s", "starts_at"], name="rollup_of_tenant"),
        ]

    def __str__(self) -> str:
        return f"{self.tenant_id} {self.starts_at:%Y-%m-%dT%H:%M}/{self.step_s}"


class Notice(models.Model):
    """A limit came near or was reached: at most once a day for each limit and level. Kept until its tenant is told."""

    pk = models.CompositePrimaryKey("tenant_id", "quota", "level", "day")
    tenant_id = models.IntegerField()
    quota = models.CharField(max_length=40)
    level = models.SmallIntegerField(help_text="Percent of the limit.")
    day = models.DateField()
    most = models.BigIntegerField(help_text="The limit.")
    use = models.BigIntegerField()
    noted_at = models.DateTimeField()
    told_at = models.DateTimeField(null=True)

    class Meta:
        constraints = [models.CheckConstraint(condition=Q(level__in=LEVELS), name="notice_level_is_known")]
        indexes = [
            # reader: whoever tells tenants of it
            models.Index(fields=["noted_at"], condition=Q(told_at=None), name="notice_to_tell"),
            # reader: rolling, notices that are done with
            models.Index(fields=["day"], name="notice_by_day"),
        ]

    def __str__(self) -> str:
        return f"{self.tenant_id} {self.quota} {self.level} %"


class Pressure(models.Model):
    """How busy the platform is, measured by the dispatcher that holds the reconcile lease. One row at most."""

    id = models.SmallIntegerField(primary_key=True, default=1)
    measured_at = models.DateTimeField()
    every_s = models.FloatField(help_text="When the next measurement is to be expected.")
    live = models.BigIntegerField(help_text="Executions that are not finished, of all tenants, delayed ones too.")
    ended_per_s = models.FloatField(help_text="How many of them end in a second.")
    figures = models.JSONField(default=dict, help_text="By pool and group: see apps.dispatch.pressure.gauging.")

    class Meta:
        constraints = [models.CheckConstraint(condition=Q(id=1), name="pressure_is_one_row")]

    def __str__(self) -> str:
        return f"{self.live} live at {self.measured_at:%Y-%m-%dT%H:%M:%SZ}"


class ArchiveStanding(models.Model):
    """How a tenant's archive stood after the last run over it. Written and read by `archives.py`."""

    tenant_id = models.IntegerField(primary_key=True)
    at = models.DateTimeField()
    executions = models.BigIntegerField(help_text="In its files.")
    bytes = models.BigIntegerField(help_text="Size of its files.")
    overdue_s = models.FloatField(help_text="For how long the oldest that may be archived should have been.")
    fault = models.CharField(max_length=300, blank=True, help_text="Why the last run failed.")

    def __str__(self) -> str:
        return f"{self.tenant_id} {self.executions} executions {self.fault}".strip()
