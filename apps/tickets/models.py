"""Tables of what is alive. Read and written by `store.py` and `workers.py`, in SQL."""

from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models import F, Q

from apps.tickets.values import LANES, WHOLE_TENANT
from kernel.transitions import TICKET_STATES

BREAKER_STATES = ("closed", "open", "half_open")


class Ticket(models.Model):
    """Live state of one execution. Deleted when the execution ends."""

    execution_id = models.UUIDField(primary_key=True)
    tenant_id = models.IntegerField()
    job_id = models.UUIDField()
    job_version = models.IntegerField()
    schedule_id = models.UUIDField(null=True)
    schedule_version = models.IntegerField(null=True)
    run_key = models.CharField(max_length=100)
    trigger = models.CharField(max_length=10)
    nominal_at = models.DateTimeField(null=True)
    actual_at = models.DateTimeField(help_text="When it became due.")
    pool = models.CharField(max_length=20)
    queue = models.CharField(max_length=80)
    priority = models.SmallIntegerField()
    timeout_s = models.SmallIntegerField()
    flow = models.UUIDField(help_text="What it queues in: its job, or a value of the job's concurrency key.")
    flow_limit = models.IntegerField(null=True, help_text="Most of this value queued or running at once.")
    key = models.CharField(  # noqa: DJ001  without a concurrency key nothing is written
        max_length=200, null=True, help_text='The value that people are shown, as "customer=42".'
    )
    job_limit = models.IntegerField(null=True, help_text="Most of its job queued or running at once; 0 while paused.")
    lane = models.SmallIntegerField(default=0, db_default=0, help_text="0 live, 1 catch-up, 2 backfill: they yield.")
    delays = models.TextField(  # noqa: DJ001  most runs are in time
        null=True, help_text="JSON: what held it back before its first release, as an execution's delays."
    )
    guarded = models.BooleanField(default=False, help_text="Its schedule's overlap policy counts it.")
    payload_from = models.CharField(max_length=9, help_text="job, schedule or execution")
    state = models.CharField(max_length=8)
    available_at = models.DateTimeField(help_text="Not released before.")
    start_by = models.DateTimeField(
        null=True, help_text="Not started after: first by the queue age, between tries by the total time-out."
    )
    total_timeout_s = models.IntegerField(null=True, help_text="From the first start over all tries and waits.")
    rank = models.DateTimeField(
        null=True, help_text="Order of release: available_at moved ahead by priority; null while it waits for its time."
    )
    release = models.BigIntegerField(null=True)
    releases = models.SmallIntegerField(default=0, help_text="Releases since the last start; drives the back-off.")
    queued_at = models.DateTimeField(null=True)
    first_queued_at = models.DateTimeField(null=True)
    attempt = models.IntegerField(default=0)
    failures = models.IntegerField(default=0, help_text="Attempts that count against the retry policy.")
    fence = models.BigIntegerField(null=True)
    worker_id = models.UUIDField(null=True)
    started_at = models.DateTimeField(null=True)
    first_started_at = models.DateTimeField(null=True)
    deadline = models.DateTimeField(null=True)
    cancel_requested = models.BooleanField(default=False)
    wait_reason = models.CharField(  # noqa: DJ001  without a reason nothing is written
        max_length=300, null=True, help_text="Why it waits for available_at; means something while it does."
    )
    remote = models.BooleanField(
        default=False, db_default=False, help_text="Held by somebody outside: lives until its deadline, has no worker."
    )
    holder = models.CharField(max_length=100, blank=True, default="", db_default="", help_text="Who holds it outside.")
    lease_s = models.SmallIntegerField(null=True, help_text="A heartbeat from outside extends the deadline by so much.")
    progress = models.JSONField(null=True, help_text="What its holder told last; small.")

    followed = models.BooleanField(
        default=False, db_default=False, help_text="Something waits for its end: a workflow, or another execution."
    )

    class Meta:
        constraints = [
            models.CheckConstraint(condition=Q(state__in=TICKET_STATES), name="ticket_state_is_known"),
            models.CheckConstraint(condition=Q(priority__range=(0, 9)), name="ticket_priority_is_0_to_9"),
            models.CheckConstraint(
                condition=~Q(state="running")
                | Q(fence__isnull=False, deadline__isnull=False, started_at__isnull=False),
                name="ticket_running_has_fence_deadline",
            ),
            models.CheckConstraint(
                condition=~Q(state="running")
                | Q(remote=False, worker_id__isnull=False)
                | Q(remote=True, worker_id__isnull=True, lease_s__isnull=False),
                name="ticket_running_has_one_holder",
            ),
            models.CheckConstraint(condition=Q(remote=False) | Q(state="running"), name="ticket_remote_is_running"),
            models.CheckConstraint(
                condition=~Q(state="running") | Q(start_by=None), name="ticket_start_by_is_for_waiting"
            ),
            models.CheckConstraint(
                condition=~Q(state="queued") | Q(release__isnull=False, queued_at__isnull=False),
                name="ticket_queued_has_release",
            ),
            models.CheckConstraint(
                condition=Q(key=None, flow=F("job_id"), flow_limit=None)
                | Q(key__isnull=False, flow_limit__isnull=False, flow_limit__gte=1) & ~Q(flow=F("job_id")),
                name="ticket_key_has_flow_and_limit",
            ),
            models.CheckConstraint(condition=Q(job_limit__gte=0), name="ticket_job_limit_is_not_negative"),
            models.CheckConstraint(condition=Q(lane__in=LANES), name="ticket_lane_is_known"),
            models.CheckConstraint(
                condition=Q(payload_from__in=["job", "schedule", "execution"]), name="ticket_payload_source_is_known"
            ),
        ]
        indexes = [
            # reader: release, the best ready tickets of a tenant's flow in a lane of a pool
            models.Index(
                fields=["pool", "lane", "tenant_id", "flow", "rank"],
                condition=Q(state="ready", rank__isnull=False),
                name="ticket_ready",
            ),
            # reader: release, tickets whose time has come
            models.Index(fields=["available_at"], condition=Q(state="ready", rank__isnull=True), name="ticket_waiting"),
            # readers: quotas (what waits for others), reconcile
            models.Index(fields=["tenant_id", "execution_id"], condition=Q(state="blocked"), name="ticket_blocked"),
            # readers: release (what is in flight), reconcile (queued but not started)
            models.Index(fields=["queued_at"], condition=Q(state="queued"), name="ticket_queued"),
            # reader: operators' page of workflows' runs that are alive, the oldest first
            models.Index(fields=["execution_id"], condition=Q(pool="workflow"), name="ticket_of_workflow"),
            # reader: the loop of workflows' runs, those that are to be looked at
            models.Index(
                fields=["deadline"], condition=Q(pool="workflow", state="running"), name="ticket_workflow_run"
            ),
            # reader: reconcile, what has waited for too long
            models.Index(
                fields=["start_by"],
                condition=Q(start_by__isnull=False, state__in=["ready", "queued"]),
                name="ticket_start_by",
            ),
            # readers: heartbeat and reconcile, what a worker runs
            models.Index(fields=["worker_id"], condition=Q(state="running"), name="ticket_running"),
            # reader: the worker's look for cancel requests
            models.Index(fields=["worker_id"], condition=Q(cancel_requested=True), name="ticket_cancel"),
            # readers: a pull queue's lease and depth
            models.Index(
                fields=["tenant_id", "queue", "lane", "flow", "rank"],
                condition=Q(pool="pull", state="ready", rank__isnull=False),
                name="ticket_pull_ready",
            ),
            # reader: what there is of a pull queue
            models.Index(fields=["tenant_id", "queue", "state"], condition=Q(pool="pull"), name="ticket_pull_queue"),
            # reader: overlap decisions
            models.Index(fields=["schedule_id"], condition=Q(guarded=True), name="ticket_overlap"),
            # readers: release and leases from pull queues, whether a schedule that runs one at a time runs one
            models.Index(
                fields=["schedule_id"],
                condition=Q(guarded=True, state__in=["queued", "running"]),
                name="ticket_serial_taken",
            ),
            # reader: leases from pull queues, how much of a job's limit is taken
            models.Index(
                fields=["job_id"],
                condition=Q(job_limit__isnull=False, state__in=["queued", "running"]),
                name="ticket_job_taken",
            ),
            # readers: release and leases from pull queues, how much of a key's limit is taken
            models.Index(
                fields=["flow"],
                condition=Q(flow_limit__isnull=False, state__in=["queued", "running"]),
                name="ticket_flow_taken",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.execution_id} {self.state}"


class Breaker(models.Model):
    """Circuit breaker of a tenant's calls to one destination. Written by `breakers.py`, when its state changes."""

    id = models.UUIDField(primary_key=True)
    tenant_id = models.IntegerField()
    destination = models.CharField(max_length=270, help_text="host:port")
    state = models.CharField(max_length=9)
    failures = models.IntegerField(help_text="Failed calls when it opened.")
    openings = models.IntegerField(help_text="In a row; each makes it stay open for longer.")
    reason = models.CharField(max_length=500, help_text="The last failure.")
    opened_at = models.DateTimeField()
    retry_at = models.DateTimeField(help_text="While it is open: when one call may try.")
    probe = models.UUIDField(null=True, help_text="Token of the call that tries.")
    probe_until = models.DateTimeField(null=True, help_text="Then another call may try.")
    changed_at = models.DateTimeField()

    class Meta:
        constraints = [
            models.CheckConstraint(condition=Q(state__in=BREAKER_STATES), name="breaker_state_is_known"),
            models.CheckConstraint(
                condition=Q(state="half_open", probe__isnull=False, probe_until__isnull=False)
                | (~Q(state="half_open") & Q(probe=None, probe_until=None)),
                name="breaker_half_open_has_probe",
            ),
            models.UniqueConstraint(fields=["tenant_id", "destination"], name="breaker_once_per_destination"),
        ]
        indexes = [
            # reader: workers, once a second
            models.Index(fields=["tenant_id"], condition=~Q(state="closed"), name="breaker_shut"),
        ]

    def __str__(self) -> str:
        return f"{self.destination} {self.state}"


class PullQueue(models.Model):
    """A queue that a pull job of the tenant names, or has named."""

    tenant_id = models.IntegerField()
    name = models.CharField(max_length=80)
    created_at = models.DateTimeField()
    paused_at = models.DateTimeField(null=True)
    paused_reason = models.CharField(max_length=500, blank=True, default="")

    class Meta:
        constraints = [models.UniqueConstraint(fields=["tenant_id", "name"], name="pull_queue_name_is_unique")]

    def __str__(self) -> str:
        return self.name


class Consumer(models.Model):
    """Who has asked a pull queue for work lately, by the name that it gave itself."""

    tenant_id = models.IntegerField()
    queue = models.CharField(max_length=80)
    name = models.CharField(max_length=100)
    seen_at = models.DateTimeField(help_text="To some seconds.")

    class Meta:
        constraints = [models.UniqueConstraint(fields=["tenant_id", "queue", "name"], name="consumer_is_unique")]

    def __str__(self) -> str:
        return self.name


class Bucket(models.Model):
    """Tokens of a rate: of a job, while its definition has one, or of a whole tenant. Changed by `buckets.py`.

    Under the pool's release lease or the tenant's row, like all that admits work.
    """

    pk = models.CompositePrimaryKey("tenant_id", "owner")
    tenant_id = models.IntegerField()
    owner = models.UUIDField(help_text="The job; all zeros for the tenant's own rate.")
    per_s = models.FloatField(help_text="Tokens that come back in a second.")
    burst = models.IntegerField(help_text="Most that there are.")
    tokens = models.FloatField(help_text="What was left at that instant.")
    at = models.DateTimeField()

    class Meta:
        constraints = [
            models.CheckConstraint(condition=Q(per_s__gt=0, burst__gte=1), name="bucket_fills"),
            models.CheckConstraint(condition=Q(tokens__lte=F("burst")), name="bucket_holds_its_burst"),
        ]

    def __str__(self) -> str:
        return f"{self.tenant_id} {'tenant' if self.owner == WHOLE_TENANT else self.owner}: {self.tokens:.1f}"


class Hold(models.Model):
    """What release holds back, and why: one row while it lasts, and for a day after. Written by `holds.py`."""

    pool = models.CharField(max_length=20)
    tenant_id = models.IntegerField()
    flow = models.UUIDField(null=True, help_text="Empty: the whole tenant in this pool.")
    code = models.CharField(max_length=40, help_text="Of apps.dispatch.admission.")
    since = models.DateTimeField()
    seen_at = models.DateTimeField(help_text="To some seconds; it lasts while this goes on.")
    limit = models.IntegerField(null=True)
    use = models.IntegerField(null=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["pool", "tenant_id", "flow", "code"], name="hold_is_one", nulls_distinct=False
            )
        ]
        indexes = [
            # reader: the pruning of what ended a day ago
            models.Index(fields=["seen_at"], name="hold_by_seen_at"),
        ]

    def __str__(self) -> str:
        return f"{self.pool} {self.tenant_id} {self.code}"


class Worker(models.Model):
    """Lease of one worker process; its tickets live while it lives."""

    id = models.UUIDField(primary_key=True)
    host = models.CharField(max_length=200)
    pid = models.IntegerField()
    version = models.CharField(max_length=40)
    pools = ArrayField(models.CharField(max_length=20))
    slots = models.JSONField(default=dict, help_text="Slots by pool.")
    queues = ArrayField(models.CharField(max_length=80), help_text="Celery queues it consumes.")
    started_at = models.DateTimeField()
    expires_at = models.DateTimeField()
    draining = models.BooleanField(default=False)
    drain_wanted = models.BooleanField(default=False, db_default=False, help_text="Operators told it to stand back.")
    group = models.CharField(max_length=40, blank=True, default="", db_default="", help_text="Empty: the shared ones.")
    skew_ms = models.IntegerField(default=0)
    stats = models.JSONField(default=dict)

    def __str__(self) -> str:
        return f"{self.host}:{self.pid}"


class Subscription(models.Model):
    """What operators told the workers of a group, besides their configuration. The latest that fits a queue counts."""

    worker_group = models.CharField(max_length=40, blank=True, default="", help_text="Empty: the shared workers.")
    host = models.CharField(max_length=200, blank=True, default="", help_text="Empty: all of the group.")
    pattern = models.CharField(max_length=80, help_text="A queue; * and ? stand for any.")
    listens = models.BooleanField(help_text="Listen to it, or do not.")
    reason = models.CharField(max_length=300, blank=True, default="")
    created_by = models.CharField(max_length=200)
    created_at = models.DateTimeField()

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["worker_group", "host", "pattern"], name="subscription_is_said_once")
        ]

    def __str__(self) -> str:
        return f"{'+' if self.listens else '-'} {self.pattern}"


class BrokerQueue(models.Model):
    """A queue that workers listen to or have listened to: its remains are taken from the broker when it is left."""

    name = models.CharField(primary_key=True, max_length=80)
    pool = models.CharField(max_length=20)

    def __str__(self) -> str:
        return self.name
