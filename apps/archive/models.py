"""What must be kept whatever its age, and the catalogue of what is kept in files. Tenant schema."""

from django.db import models
from django.db.models import F, Q

from kernel.ids import uuid7

SCOPES = ("tenant", "job", "schedule", "workflow", "execution")

# writing -> written (files are whole) -> verified (read back; hot rows are being deleted) -> done
# done -> restoring -> restored; done -> expired; done or verified -> replaced (by a batch with fewer rows)
STATES = ("writing", "written", "verified", "done", "restoring", "restored", "expired", "replaced")
OPEN_STATES = ("writing", "written", "verified", "restoring")  # somebody works at it, or has to go on
READABLE_STATES = ("verified", "done", "restoring")  # its files hold what the tables need not have any more
ENDED_STATES = ("restored", "expired", "replaced")  # its files mean nothing any more


class LegalHold(models.Model):
    """While it is open nothing of what it names is deleted, from the tables or from archives. Never changed but once,
    when it is released."""

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    scope = models.CharField(max_length=9)
    object_id = models.UUIDField(null=True, help_text="The job, schedule, workflow or execution; null: the tenant.")
    from_at = models.DateTimeField(null=True, help_text="Only executions that were made at this instant or later.")
    until_at = models.DateTimeField(null=True, help_text="Only executions that were made before.")
    reason = models.CharField(max_length=500)
    by_operator = models.BooleanField(default=False, help_text="Then only an operator can release it.")
    created_by = models.CharField(max_length=200)
    created_at = models.DateTimeField()
    released_at = models.DateTimeField(null=True)
    released_by = models.CharField(max_length=200, blank=True, default="")
    released_reason = models.CharField(max_length=500, blank=True, default="")

    class Meta:
        constraints = [
            models.CheckConstraint(condition=Q(scope__in=SCOPES), name="hold_scope_is_known"),
            models.CheckConstraint(
                condition=Q(scope="tenant", object_id=None) | Q(~Q(scope="tenant"), object_id__isnull=False),
                name="hold_names_its_object",
            ),
            models.CheckConstraint(
                condition=Q(from_at=None) | Q(until_at=None) | Q(from_at__lt=F("until_at")), name="hold_range_is_one"
            ),
            models.CheckConstraint(
                condition=Q(released_at=None, released_by="") | Q(~Q(released_by=""), released_at__isnull=False),
                name="hold_released_by_somebody",
            ),
        ]
        indexes = [
            # readers: everything that deletes
            models.Index(fields=["id"], condition=Q(released_at=None), name="hold_open"),
        ]

    def __str__(self) -> str:
        return f"{self.scope} {self.object_id or ''}".strip()


class Forgotten(models.Model):
    """How far back history is whole: of occurrences before, executions may be deleted for good. One row at most."""

    id = models.SmallIntegerField(primary_key=True, default=1)
    before = models.DateTimeField()

    class Meta:
        constraints = [models.CheckConstraint(condition=Q(id=1), name="forgotten_is_one_row")]

    def __str__(self) -> str:
        return f"{self.before:%Y-%m-%dT%H:%M:%SZ}"


class ArchiveBatch(models.Model):
    """Executions of one day with all that belongs to them, in the files of one folder."""

    id = models.UUIDField(primary_key=True)
    day = models.DateField(help_text="UTC day on which its executions were made; of steps, their run's.")
    seq = models.IntegerField(help_text="From 1 for each day.")
    path = models.CharField(max_length=300, help_text="Folder below ARCHIVE_URL; empty once its files are removed.")
    state = models.CharField(max_length=10)
    format = models.SmallIntegerField(help_text="Version of the form of the files.")
    counts = models.JSONField(default=dict, help_text="Rows by table.")
    bytes = models.BigIntegerField(default=0, help_text="Size of all its files.")
    manifest_sha256 = models.CharField(max_length=64, blank=True, default="")
    min_id = models.UUIDField(null=True, help_text="Lowest id of an execution in it.")
    max_id = models.UUIDField(null=True)
    nominal_from = models.DateTimeField(null=True, help_text="First instant of the occurrences in it.")
    nominal_to = models.DateTimeField(
        null=True, help_text="Last instant of them, of rows for several the last of these."
    )
    cursor = models.UUIDField(null=True, help_text="Hot rows up to this one were deleted.")
    kept_back = models.JSONField(default=list, help_text="Executions in it that stay hot, or are being restored.")
    replaces = models.UUIDField(null=True, help_text="The batch that it is made from.")
    keep_until = models.DateTimeField(null=True, help_text="Until then what was restored is not archived again.")
    note = models.CharField(max_length=300, blank=True, default="", help_text="Why the last try failed.")
    created_at = models.DateTimeField()
    touched_at = models.DateTimeField(help_text="Last sign of whoever works at it.")
    verified_at = models.DateTimeField(null=True)
    done_at = models.DateTimeField(null=True, help_text="When the last of its hot rows was deleted.")
    ended_at = models.DateTimeField(null=True, help_text="When it was restored, expired or replaced.")

    class Meta:
        verbose_name_plural = "archive batches"
        constraints = [
            models.UniqueConstraint(fields=["day", "seq"], name="archivebatch_once_per_number"),
            models.CheckConstraint(condition=Q(state__in=STATES), name="archivebatch_state_is_known"),
            models.CheckConstraint(
                condition=Q(state__in=("writing", *ENDED_STATES)) | (Q(min_id__isnull=False) & ~Q(path="")),
                name="archivebatch_in_use_has_files",
            ),
            models.CheckConstraint(
                condition=Q(state__in=ENDED_STATES, ended_at__isnull=False)
                | (~Q(state__in=ENDED_STATES) & Q(ended_at=None)),
                name="archivebatch_ended_has_time",
            ),
        ]
        indexes = [
            # readers: the batch that holds an execution; lists of a range, newest first
            models.Index(fields=["max_id"], condition=Q(state__in=READABLE_STATES), name="archivebatch_readable"),
            # readers: the next run, what is to be finished; files that are to be removed
            models.Index(fields=["id"], condition=Q(state__in=OPEN_STATES), name="archivebatch_open"),
            models.Index(
                fields=["id"], condition=Q(state__in=ENDED_STATES) & ~Q(path=""), name="archivebatch_has_refuse"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.day} #{self.seq} {self.state}"
