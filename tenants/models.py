"""Tenants and what belongs to them in the shared schema."""

from datetime import datetime

from django.conf import settings
from django.core.validators import MinValueValidator, RegexValidator
from django.db import models
from django.db.models import Q, Value
from django.db.models.functions import Coalesce, NullIf
from django.utils.functional import cached_property
from django_tenants.models import DomainMixin, TenantMixin

from kernel.ids import uuid7
from kernel.pools import CELERY_POOLS

SLUG_PATTERN = r"^[a-z](?:[a-z0-9-]{0,38}[a-z0-9])?$"
GROUP_PATTERN = r"^[a-z](?:[a-z0-9-]{0,22}[a-z0-9])?$"  # part of a queue's name, beside a tenant's slug


class Plan(models.Model):  # type: ignore[django-manager-missing]  # its relation's base, TenantMixin, is untyped
    """Limits and share of the tenants that have it. A null limit means none."""

    name = models.CharField(max_length=40, unique=True)
    weight = models.PositiveSmallIntegerField(default=1, help_text="Share of a pool relative to other tenants.")
    own_queue = models.BooleanField(default=True, help_text="A queue of its own, or one of the shared ones.")
    max_schedules = models.PositiveIntegerField(null=True, blank=True)
    max_jobs = models.PositiveIntegerField(null=True, blank=True)
    max_calendars = models.PositiveIntegerField(null=True, blank=True)
    max_secrets = models.PositiveIntegerField(null=True, blank=True)
    max_webhooks = models.PositiveIntegerField(null=True, blank=True)
    max_members = models.PositiveIntegerField(null=True, blank=True, help_text="People, open invitations included.")
    max_api_keys = models.PositiveIntegerField(null=True, blank=True, help_text="Keys that are valid.")
    max_running = models.PositiveIntegerField(null=True, blank=True, help_text="Executions queued or running at once.")
    max_live = models.PositiveIntegerField(null=True, blank=True, help_text="Executions that are not finished.")
    max_runs_per_min = models.PositiveIntegerField(
        null=True, blank=True, validators=[MinValueValidator(1)],
        help_text="Releases in a minute over time; more wait. Empty: any number.",
    )  # fmt: skip
    runs_burst = models.PositiveIntegerField(
        null=True, blank=True, validators=[MinValueValidator(1)],
        help_text="Of these so many may go at once. Empty: a sixth of a minute's.",
    )  # fmt: skip
    max_runs_per_day = models.PositiveIntegerField(
        null=True, blank=True,
        help_text="Runs made on a day of UTC; then requests are refused and occurrences skipped. Empty: any number.",
    )  # fmt: skip
    min_interval_s = models.PositiveIntegerField(default=1)
    max_payload_bytes = models.PositiveIntegerField(default=256 * 1024)
    max_api_requests_per_min = models.PositiveIntegerField(
        null=True, blank=True, validators=[MinValueValidator(1)],
        help_text="Requests of one API key in a minute; empty: any number.",
    )  # fmt: skip
    retention_days = models.PositiveIntegerField(default=30)
    archive_days = models.PositiveIntegerField(
        default=0, db_default=0,
        help_text="So many days more, old history is kept in archive files (ARCHIVE_URL). 0: it is deleted.",
    )  # fmt: skip
    worker_group = models.CharField(
        max_length=40, blank=True, default="", db_default="", validators=[RegexValidator(GROUP_PATTERN)],
        help_text="Workers of its tenants that name none themselves. Empty: the shared ones.",
    )  # fmt: skip

    class Meta:
        constraints = [
            models.CheckConstraint(condition=Q(weight__gte=1), name="plan_weight_is_positive"),
            models.CheckConstraint(condition=Q(max_api_requests_per_min__gte=1), name="plan_api_limit_is_positive"),
            models.CheckConstraint(condition=Q(max_runs_per_min__gte=1), name="plan_run_rate_is_positive"),
            models.CheckConstraint(condition=Q(runs_burst__gte=1), name="plan_run_burst_is_positive"),
        ]

    def __str__(self) -> str:
        return self.name


class PlanPool(models.Model):
    """What each tenant of a plan has of one pool: slots that it gets whenever it wants them, and the most it gets."""

    plan = models.ForeignKey(Plan, on_delete=models.CASCADE, related_name="pools")
    pool = models.CharField(max_length=20, choices=[(name, name) for name in CELERY_POOLS])
    reserved_slots = models.PositiveIntegerField(
        default=0, help_text="Runs at once that it can have whatever others want; lent while it does not."
    )
    max_slots = models.PositiveIntegerField(
        null=True, blank=True, validators=[MinValueValidator(1)],
        help_text="Most at once, also when the pool is idle. Empty: any number.",
    )  # fmt: skip

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["plan", "pool"], name="planpool_once_per_pool"),
            models.CheckConstraint(condition=Q(max_slots__gte=1), name="planpool_maximum_is_positive"),
            models.CheckConstraint(
                condition=Q(max_slots__gte=models.F("reserved_slots")), name="planpool_maximum_holds_the_reserve"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.plan} {self.pool}"


class Tenant(TenantMixin):
    """A customer with a schema of its own. `schema_name` never changes; `slug` is what people type."""

    class Status(models.TextChoices):
        PROVISIONING = "provisioning"
        ACTIVE = "active"
        SUSPENDED = "suspended"
        DELETING = "deleting"

    auto_create_schema = False  # tenants.provisioning makes it, in one statement
    auto_drop_schema = False

    slug = models.CharField(max_length=40, unique=True, validators=[RegexValidator(SLUG_PATTERN)])
    name = models.CharField(max_length=200)
    plan = models.ForeignKey(Plan, on_delete=models.PROTECT, related_name="tenants")
    status = models.CharField(max_length=12, choices=Status.choices, default=Status.PROVISIONING)
    dispatch_paused = models.BooleanField(default=False, help_text="Nothing of this tenant is released while set.")
    worker_group = models.CharField(
        max_length=40, blank=True, default="", db_default="", validators=[RegexValidator(GROUP_PATTERN)],
        help_text="Workers that run its jobs; empty: those of its plan.",
    )  # fmt: skip
    network = models.JSONField(default=list, blank=True, help_text="CIDRs its HTTP jobs may call besides public ones.")
    signing_secret = models.CharField(max_length=100, blank=True, help_text="Empty: apps.secrets has it, encrypted.")
    signing_version = models.IntegerField(default=0, help_text="Grows with every new signing secret; 0 is none.")
    event_types = models.JSONField(
        default=list, blank=True, db_default=[], help_text="What its webhooks ask for, all together; kept by them."
    )
    schema_version = models.CharField(max_length=64, blank=True, help_text="Template version of its schema.")
    created_at = models.DateTimeField(auto_now_add=True)
    delete_after = models.DateTimeField(null=True, blank=True, help_text="Then its data are removed; until then undo.")
    delete_note = models.CharField(max_length=300, blank=True, help_text="Why the last step of its deletion failed.")

    class Meta:
        constraints = [
            models.CheckConstraint(
                condition=Q(status__in=["provisioning", "active", "suspended", "deleting"]),
                name="tenant_status_is_known",
            ),
            models.CheckConstraint(
                condition=Q(status="deleting", delete_after__isnull=False)
                | (~Q(status="deleting") & Q(delete_after=None)),
                name="tenant_is_deleted_after_a_grace",
            ),
        ]

    def __str__(self) -> str:
        return self.slug

    @cached_property
    def has_own_queue(self) -> bool:
        """Whether it gets the own queue that its plan gives it: the rule of `queues.with_own_queue` for one tenant.

        Asked once for each reading of the tenant.
        """
        most = settings.OWN_QUEUES_MAX
        if not self.plan.own_queue:
            return False
        if not most or self.pk <= most or self.status != self.Status.ACTIVE:  # fewer are older
            return True
        group = Coalesce(NullIf("worker_group", Value("")), "plan__worker_group")
        older = Tenant.objects.filter(pk__lt=self.pk, status=self.Status.ACTIVE, plan__own_queue=True)
        same = older.annotate(of_group=group).filter(of_group=self.worker_group or self.plan.worker_group)
        found: int = same[:most].count()
        return found < most


class Suspension(models.Model):
    """A time in which a tenant stood still: suspended, or marked for deletion and then kept."""

    tenant = models.ForeignKey(Tenant, on_delete=models.CASCADE, related_name="suspensions", db_index=False)
    began_at = models.DateTimeField()
    ended_at = models.DateTimeField(null=True)
    reason = models.CharField(max_length=500, blank=True, default="")

    class Meta:
        constraints = [
            # reader: fire, the newest of some tenants
            models.UniqueConstraint(fields=["tenant", "began_at"], name="suspension_began_once"),
            models.UniqueConstraint(
                fields=["tenant"], condition=Q(ended_at=None), name="suspension_one_open_per_tenant"
            ),
            models.CheckConstraint(
                condition=Q(ended_at__gte=models.F("began_at")), name="suspension_ends_after_it_began"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.tenant_id} from {self.began_at:%Y-%m-%dT%H:%M:%SZ}"


class Domain(DomainMixin):
    """A host name (without port) that leads to a tenant."""


class DispatchPause(models.Model):
    """What operators hold back: all runs, those of a pool, or a tenant's in a pool. Written by `pauses.py`.

    Schedules go on and their runs are made; they wait, and are late. All runs of one tenant: `Tenant.dispatch_paused`.
    """

    pool = models.CharField(max_length=20, blank=True, default="", help_text="Empty: all pools.")
    tenant_id = models.IntegerField(null=True, help_text="Empty: all tenants.")
    reason = models.CharField(max_length=500, blank=True, default="")
    paused_by = models.CharField(max_length=200)
    paused_at = models.DateTimeField()

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["pool", "tenant_id"], name="dispatch_pause_is_one", nulls_distinct=False)
        ]

    def __str__(self) -> str:
        return f"{self.pool or 'all pools'} of {self.tenant_id or 'all tenants'}"


class Role(models.TextChoices):
    WORKER = "worker"
    VIEWER = "viewer"
    EDITOR = "editor"
    OPERATOR = "operator"
    ADMIN = "admin"


class Member(models.Model):
    """A person in a tenant. The login is of this tenant alone: the same e-mail elsewhere is another account."""

    uid = models.UUIDField(unique=True, default=uuid7, editable=False, help_text="Its id in the API.")
    tenant = models.ForeignKey(Tenant, on_delete=models.CASCADE, related_name="members")
    user = models.ForeignKey("auth.User", on_delete=models.CASCADE, related_name="memberships")
    email = models.CharField(
        max_length=254, blank=True, help_text="In lower case; empty: can't sign in with a password."
    )
    name = models.CharField(max_length=100, blank=True)
    role = models.CharField(max_length=10, choices=Role.choices)
    revision = models.IntegerField(default=1, help_text="Grows with every change; the ETag.")
    session_epoch = models.IntegerField(default=1, help_text="Sessions that began under another number are over.")
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["tenant", "user"], name="member_once_per_tenant"),
            models.UniqueConstraint(
                fields=["tenant", "email"], condition=~Q(email=""), name="member_email_is_unique_in_tenant"
            ),
            models.CheckConstraint(condition=Q(role__in=Role.values), name="member_role_is_known"),
        ]

    def __str__(self) -> str:
        return f"{self.email or self.user_id} {self.role}"


class Invitation(models.Model):
    """Somebody may become a member, or with `member` choose a new password. Only a hash of its token is kept."""

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    tenant = models.ForeignKey(Tenant, on_delete=models.CASCADE, related_name="invitations")
    member = models.ForeignKey(
        Member, on_delete=models.CASCADE, null=True, related_name="resets", help_text="Whose password is chosen anew."
    )
    email = models.CharField(max_length=254)
    name = models.CharField(max_length=100, blank=True)
    role = models.CharField(max_length=10, choices=Role.choices)
    digest = models.CharField(max_length=64, unique=True, help_text="SHA-256 of the whole token, hexadecimal.")
    created_at = models.DateTimeField()
    created_by = models.CharField(max_length=200)
    expires_at = models.DateTimeField()
    accepted_at = models.DateTimeField(null=True)
    revoked_at = models.DateTimeField(null=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["tenant", "email"],
                condition=Q(accepted_at=None, revoked_at=None),
                name="invitation_one_open_per_email",
            ),
            models.CheckConstraint(condition=Q(role__in=Role.values), name="invitation_role_is_known"),
        ]

    def __str__(self) -> str:
        return f"{self.email} {self.role}"

    def status_at(self, now: datetime) -> str:
        """open, accepted, revoked or expired."""
        if self.accepted_at is not None or self.revoked_at is not None:
            return "accepted" if self.accepted_at is not None else "revoked"
        return "open" if self.expires_at > now else "expired"


class ApiKey(models.Model):
    """A key of a tenant. Only its prefix and a hash are kept; the key is shown once."""

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    tenant = models.ForeignKey(Tenant, on_delete=models.CASCADE, related_name="api_keys")
    name = models.CharField(max_length=100)
    prefix = models.CharField(max_length=16, unique=True)
    digest = models.CharField(max_length=64, help_text="SHA-256 of the whole key, hexadecimal.")
    role = models.CharField(max_length=10, choices=Role.choices)
    scopes = models.JSONField(null=True, blank=True, help_text="What of the role it may do; null: all of it.")
    created_at = models.DateTimeField(auto_now_add=True)
    created_by = models.CharField(max_length=200, blank=True)
    replaces = models.UUIDField(null=True, editable=False, help_text="The key that this one was rotated from.")
    rotated_at = models.DateTimeField(null=True, editable=False, help_text="When a successor was made, once.")
    expires_at = models.DateTimeField(null=True, blank=True)
    revoked_at = models.DateTimeField(null=True, blank=True)
    last_used_at = models.DateTimeField(null=True, blank=True, help_text="To the minute.")

    class Meta:
        verbose_name = "API key"
        constraints = [models.CheckConstraint(condition=Q(role__in=Role.values), name="apikey_role_is_known")]

    def __str__(self) -> str:
        return f"{self.name} ({self.prefix}...)"
