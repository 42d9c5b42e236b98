"""Tables of quotas and figures, in the shared schema. Read and written in SQL by the modules of this package."""

from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models import Q

LEVELS = (80, 100)  # percent of a limit at which its tenant is told
STEPS = (60, 3_600, 86_400)  # seconds that a roll-up row covers
FAILURE_STEPS = (60, 3_600)


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
    failures = models.TextField(  # noqa: DJ001  most transactions have none
        null=True, help_text="JSON: what failed, by tenant and cause; see Tally.failures of apps.usage.figures."
    )

    def __str__(self) -> str:
        return f"{self.id} {self.minute:%H:%M}"


class Figures(models.Model):
    """What was done in one minute, hour or day (UTC). Histograms as in apps.usage.figures; null: nothing."""

    step_s = models.IntegerField(help_text="Seconds that the row covers.")
    starts_at = models.DateTimeField()
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
        abstract = True


class Rollup(Figures):
    """Figures of a tenant."""

    pk = models.CompositePrimaryKey("step_s", "starts_at", "tenant_id")
    tenant_id = models.IntegerField()

    class Meta:
        constraints = [models.CheckConstraint(condition=Q(step_s__in=STEPS), name="rollup_step_is_known")]
        indexes = [
            # reader: a tenant's history
            models.Index(fields=["tenant_id", "step_s", "starts_at"], name="rollup_of_tenant"),
        ]

    def __str__(self) -> str:
        return f"{self.tenant_id} {self.starts_at:%Y-%m-%dT%H:%M}/{self.step_s}"


class PlatformRollup(Figures):
    """Figures of all tenants together, those that are gone too."""

    pk = models.CompositePrimaryKey("step_s", "starts_at")

    class Meta:
        constraints = [models.CheckConstraint(condition=Q(step_s__in=STEPS), name="platformrollup_step_is_known")]

    def __str__(self) -> str:
        return f"{self.starts_at:%Y-%m-%dT%H:%M}/{self.step_s}"


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


class Backlog(models.Model):
    """What waited and who worked in a minute, of all tenants: the worst of what was measured in it."""

    minute = models.DateTimeField(primary_key=True)
    due = models.IntegerField(help_text="Due entries whose time has come: the most.")
    oldest_due_s = models.FloatField(help_text="How long the oldest of them was due: the most.")
    ready = models.IntegerField(help_text="Tickets that waited to be released: the most.")
    queued = models.IntegerField(help_text="The most.")
    running = models.IntegerField(help_text="The most.")
    slots = models.IntegerField(help_text="Of live workers: the fewest.")
    workers = models.IntegerField(help_text="Live ones: the fewest.")
    dispatchers = models.IntegerField(help_text="Live ones: the fewest.")

    def __str__(self) -> str:
        return f"{self.minute:%Y-%m-%dT%H:%M} due {self.due} ready {self.ready}"


class Load(models.Model):
    """Whose work is due, waits and runs, as it was measured last. One row at most."""

    id = models.SmallIntegerField(primary_key=True, default=1)
    measured_at = models.DateTimeField()
    every_s = models.FloatField(help_text="When the next measurement is to be expected.")
    body = models.TextField(help_text="JSON; see apps.usage.loads.")

    class Meta:
        constraints = [models.CheckConstraint(condition=Q(id=1), name="load_is_one_row")]

    def __str__(self) -> str:
        return f"load at {self.measured_at:%Y-%m-%dT%H:%M:%SZ}"


class FailureCount(models.Model):
    """What failed of one cause in a minute or an hour."""

    step_s = models.IntegerField()
    starts_at = models.DateTimeField()
    fingerprint = models.CharField(max_length=64, blank=True, help_text="Empty: causes beyond the bound.")
    attempts = models.BigIntegerField(default=0, help_text="Attempts that failed.")
    letters = models.BigIntegerField(default=0, help_text="Dead letters that were made.")

    class Meta:
        abstract = True


class Failure(FailureCount):
    """Of one tenant."""

    pk = models.CompositePrimaryKey("step_s", "starts_at", "tenant_id", "fingerprint")
    tenant_id = models.IntegerField()

    class Meta:
        constraints = [models.CheckConstraint(condition=Q(step_s__in=FAILURE_STEPS), name="failure_step_is_known")]
        indexes = [
            # reader: a tenant's failures
            models.Index(fields=["tenant_id", "step_s", "starts_at"], name="failure_of_tenant"),
            # reader: one cause over all tenants
            models.Index(fields=["fingerprint", "step_s", "starts_at"], name="failure_of_cause"),
        ]

    def __str__(self) -> str:
        return f"{self.tenant_id} {self.fingerprint[:12]} {self.attempts}"


class PlatformFailure(FailureCount):
    """Of all tenants."""

    pk = models.CompositePrimaryKey("step_s", "starts_at", "fingerprint")
    tenants = ArrayField(models.IntegerField(), default=list, help_text="Ids of those that it happened to; not all.")

    class Meta:
        constraints = [
            models.CheckConstraint(condition=Q(step_s__in=FAILURE_STEPS), name="platformfailure_step_is_known")
        ]

    def __str__(self) -> str:
        return f"{self.fingerprint[:12]} {self.attempts}"


class FailureCause(models.Model):
    """What failures of a tenant with one fingerprint have in common. Texts of the tenant: hostile, bounded."""

    pk = models.CompositePrimaryKey("tenant_id", "fingerprint")
    tenant_id = models.IntegerField()
    fingerprint = models.CharField(max_length=64)
    error_class = models.CharField(max_length=100, blank=True)
    status = models.CharField(max_length=20, blank=True)
    host = models.CharField(max_length=253, blank=True)
    message = models.CharField(max_length=200, blank=True, help_text="Without numbers, ids, quoted text and queries.")
    first_at = models.DateTimeField(help_text="Minute of the first one that is known.")
    last_at = models.DateTimeField(help_text="Minute of the last one.")
    execution_id = models.UUIDField(help_text="One that failed so in the last of these minutes.")

    class Meta:
        indexes = [
            # readers: what people are shown of a cause, and since when there is one, over all tenants
            models.Index(fields=["fingerprint", "last_at"], name="failurecause_newest"),
            models.Index(fields=["fingerprint", "first_at"], name="failurecause_oldest"),
            # reader: rolling, causes that nobody has seen for long
            models.Index(fields=["last_at"], name="failurecause_by_age"),
        ]

    def __str__(self) -> str:
        return f"{self.error_class} {self.host}"
