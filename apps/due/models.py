"""Tables of the due-time index. They are read and written by the modules beside this one, in SQL."""

from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models import Q

from apps.due.models_forecast import Forecast as Forecast
from apps.due.models_forecast import ForecastChange as ForecastChange
from apps.due.models_forecast import ForecastShard as ForecastShard


class DueEntry(models.Model):
    """This schedule (or delayed execution) is due at `due_at`. Holds all that firing needs."""

    key = models.UUIDField(primary_key=True, help_text="Id of the schedule or of the delayed execution.")
    shard = models.SmallIntegerField()
    kind = models.CharField(max_length=10)
    tenant_id = models.IntegerField()
    due_at = models.DateTimeField(help_text="Actual instant: nominal plus jitter.")
    nominal_at = models.DateTimeField()
    version = models.IntegerField(help_text="Version of the schedule that this entry was made from.")
    spec = models.TextField(help_text="Canonical JSON of apps.schedules.timing.Spec; empty for a delayed execution.")
    job_id = models.UUIDField()
    job_version = models.IntegerField()
    pool = models.CharField(max_length=20)
    queue = models.CharField(max_length=80)
    priority = models.SmallIntegerField()
    timeout_s = models.SmallIntegerField()
    max_concurrency = models.IntegerField(null=True)
    flow = models.UUIDField(null=True, help_text="Of its runs' concurrency key; empty: their job.")
    flow_limit = models.IntegerField(null=True)
    flow_key = models.CharField(max_length=200, null=True)  # noqa: DJ001  as a ticket's key
    own_payload = models.BooleanField(
        default=False, help_text="The schedule or the execution has a payload of its own."
    )
    max_queue_age_s = models.IntegerField(null=True, help_text="The job's.")
    own_max_queue_age_s = models.IntegerField(null=True, help_text="The schedule's or the execution's; goes before.")
    total_timeout_s = models.IntegerField(null=True)
    runs_done = models.IntegerField(
        null=True, help_text="Occurrences before nominal_at that count for max_runs; empty when not counted yet."
    )
    followed = models.BooleanField(
        default=False, db_default=False, help_text="Something waits for the end of this delayed execution."
    )
    parked = models.TextField(blank=True, help_text="Why this entry is put aside; empty when it is served.")

    class Meta:
        verbose_name_plural = "due entries"
        constraints = [
            models.CheckConstraint(condition=Q(kind__in=["schedule", "execution"]), name="due_kind_is_known"),
            models.CheckConstraint(condition=Q(priority__range=(0, 9)), name="due_priority_is_0_to_9"),
            models.CheckConstraint(
                condition=Q(flow=None, flow_limit=None, flow_key=None)
                | Q(flow__isnull=False, flow_limit__isnull=False, flow_limit__gte=1, flow_key__isnull=False),
                name="due_key_has_flow_and_limit",
            ),
            models.CheckConstraint(condition=Q(due_at__gte=models.F("nominal_at")), name="due_not_before_nominal"),
        ]
        indexes = [
            # reader: the fire loop, entries of its shards up to now
            models.Index(fields=["shard", "due_at"], condition=Q(parked=""), name="due_by_shard_and_time"),
            # reader: the doctor and the admin, entries put aside
            models.Index(fields=["tenant_id"], condition=~Q(parked=""), name="due_parked"),
            # reader: quotas, delayed executions of a tenant
            models.Index(fields=["tenant_id"], condition=Q(kind="execution"), name="due_delayed"),
        ]

    def __str__(self) -> str:
        return f"{self.kind} {self.key} at {self.due_at:%Y-%m-%dT%H:%M:%SZ}"


class ShardLease(models.Model):
    """Who serves a slice of the work. `term` only grows; the database's clock alone decides expiry."""

    kind = models.CharField(max_length=10, help_text="fire, release, reconcile or seal")
    shard = models.SmallIntegerField()
    owner = models.UUIDField(null=True)
    term = models.BigIntegerField(default=0)
    expires_at = models.DateTimeField()
    taken_at = models.DateTimeField(null=True)
    taken_from = models.UUIDField(null=True, help_text="Former owner, when its lease had run out.")
    taken_why = models.CharField(max_length=20, blank=True, default="", db_default="", help_text="Of leases.WHY.")
    given_up_why = models.CharField(max_length=20, blank=True, default="", db_default="", help_text="While it is free.")

    class Meta:
        constraints = [models.UniqueConstraint(fields=["kind", "shard"], name="lease_once_per_shard")]

    def __str__(self) -> str:
        return f"{self.kind}/{self.shard}"


class Dispatcher(models.Model):
    """Heartbeat of a dispatcher process; a new id each start."""

    id = models.UUIDField(primary_key=True)
    host = models.CharField(max_length=200)
    pid = models.IntegerField()
    version = models.CharField(max_length=40)
    started_at = models.DateTimeField()
    expires_at = models.DateTimeField()
    backends = ArrayField(models.IntegerField(), help_text="Database backends to end when its leases are taken over.")
    draining = models.BooleanField(default=False)
    drain_wanted = models.BooleanField(default=False, db_default=False, help_text="Operators told it to stand back.")
    skew_ms = models.IntegerField(default=0, help_text="Its clock minus the database's.")
    stats = models.JSONField(default=dict)

    def __str__(self) -> str:
        return f"{self.host}:{self.pid}"


class BeatSlot(models.Model):
    """One due slot of a PeriodicTask: sent from this row, started at most once, sent again when not started."""

    task_id = models.IntegerField()
    slot_at = models.DateTimeField()
    name = models.CharField(max_length=200)
    sent_at = models.DateTimeField(null=True)
    sends = models.SmallIntegerField(default=0)
    started_at = models.DateTimeField(null=True)
    finished_at = models.DateTimeField(null=True)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["task_id", "slot_at"], name="beat_slot_once")]
        indexes = [
            # reader: the beat, slots to send again
            models.Index(fields=["sent_at"], condition=Q(started_at=None), name="beat_slot_not_started"),
        ]

    def __str__(self) -> str:
        return f"{self.name} at {self.slot_at:%Y-%m-%dT%H:%M:%SZ}"


class ZoneData(models.Model):
    """The version of the time zone data that the due entries were computed with. One row at most."""

    id = models.SmallIntegerField(primary_key=True, default=1)
    version = models.CharField(max_length=40)
    applied_at = models.DateTimeField()
    rules = models.JSONField(null=True, help_text="Its files: {zones: {name: digest}, files: {digest: base64}}.")
    newer = models.CharField(  # noqa: DJ001  the installation's first row is made by a statement without it
        max_length=40, null=True, help_text="Another version that dispatchers run with already."
    )
    newer_since = models.DateTimeField(null=True)

    class Meta:
        constraints = [models.CheckConstraint(condition=Q(id=1), name="zonedata_is_one_row")]

    def __str__(self) -> str:
        return self.version


class ZoneChange(models.Model):
    """The rules that a zone had before the due entries were computed anew with others; read by completeness."""

    zone = models.CharField(max_length=64)
    at = models.DateTimeField(help_text="When the due entries had all been computed anew.")
    file = models.BinaryField(help_text="The zone's file of the data before, compressed.")

    class Meta:
        constraints = [models.UniqueConstraint(fields=["zone", "at"], name="zone_changes_once_at_a_time")]

    def __str__(self) -> str:
        return f"{self.zone} at {self.at:%Y-%m-%dT%H:%M:%SZ}"


class ClockMark(models.Model):
    """How far the database's clock has been, to see when it goes back. One row at most."""

    id = models.SmallIntegerField(primary_key=True, default=1)
    seen_at = models.DateTimeField(help_text="The latest time that reconcile has seen, to some seconds.")
    ahead_until = models.DateTimeField(
        null=True, help_text="The clock went back from here, and due entries have not all been looked at since."
    )

    class Meta:
        constraints = [models.CheckConstraint(condition=Q(id=1), name="clockmark_is_one_row")]

    def __str__(self) -> str:
        return f"{self.seen_at:%Y-%m-%dT%H:%M:%SZ}"


class EventBell(models.Model):
    """A tenant has events to carry out. Narrow and short-lived; read and written by `bells.py`."""

    tenant_id = models.IntegerField()
    tx = models.BigIntegerField(help_text="Transaction that rang (xid8).")
    available_at = models.DateTimeField(help_text="Not looked at before.")

    class Meta:
        indexes = [
            # reader: the fan-out, a tenant's bells
            models.Index(fields=["tenant_id", "tx"], name="event_bell_of_tenant"),
            # reader: the fan-out, which tenants have one
            models.Index(fields=["available_at"], name="event_bell_rung"),
        ]

    def __str__(self) -> str:
        return f"{self.tenant_id} {self.tx}"


class DueOperation(models.Model):
    """An operation that has not ended wants work from `due_at` on. Narrow; read and written by `operations.py`."""

    operation_id = models.UUIDField(primary_key=True)
    tenant_id = models.IntegerField()
    due_at = models.DateTimeField()
    failures = models.SmallIntegerField(default=0, help_text="Turns in a row that could not be taken.")

    class Meta:
        indexes = [
            # reader: the loop of operations, whose turn it is
            models.Index(fields=["due_at", "operation_id"], name="due_operation_by_time"),
        ]

    def __str__(self) -> str:
        return f"{self.operation_id} at {self.due_at:%Y-%m-%dT%H:%M:%SZ}"


class OperationOutline(models.Model):
    """What an operation of some tenant is and how far it is, for pages over all tenants. Written by `outlines.py`."""

    operation_id = models.UUIDField(primary_key=True)
    tenant_id = models.IntegerField()
    action = models.CharField(max_length=20)
    target = models.CharField(max_length=20)
    state = models.CharField(max_length=10)
    waits_for = models.CharField(max_length=40, blank=True, default="", db_default="")
    planned = models.IntegerField(default=0, db_default=0)
    pending = models.IntegerField(default=0, db_default=0)
    running = models.IntegerField(default=0, db_default=0)
    succeeded = models.IntegerField(default=0, db_default=0)
    skipped = models.IntegerField(default=0, db_default=0)
    failed = models.IntegerField(default=0, db_default=0)
    undone = models.IntegerField(default=0, db_default=0)
    rate_per_s = models.FloatField(null=True)
    max_in_flight = models.IntegerField(null=True)
    schedule_id = models.UUIDField(null=True, help_text="Of a backfill.")
    created_by = models.CharField(max_length=200)
    reason = models.CharField(max_length=500, blank=True, default="", db_default="")
    created_at = models.DateTimeField()
    started_at = models.DateTimeField(null=True)
    finished_at = models.DateTimeField(null=True)
    seen_at = models.DateTimeField(help_text="When this was written.")
    per_s = models.FloatField(null=True, help_text="Items that ended in a second, lately.")
    mark_at = models.DateTimeField(help_text="From when on that is measured.")
    mark_done = models.IntegerField(default=0, db_default=0, help_text="Items that had ended then.")

    class Meta:
        indexes = [
            # reader: the list of what goes on or stands still, newest first
            models.Index(fields=["-operation_id"], condition=Q(finished_at=None), name="operationoutline_live"),
            # reader: the same of one tenant
            models.Index(fields=["tenant_id", "-operation_id"], name="operationoutline_of_tenant"),
            # reader: reconcile, what ended a day ago
            models.Index(fields=["finished_at"], condition=Q(finished_at__isnull=False), name="operationoutline_ended"),
        ]

    def __str__(self) -> str:
        return f"{self.action} {self.target} {self.operation_id} {self.state}"
