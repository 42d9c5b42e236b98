"""The append-only trail, what seals it, and the keys of what it says about persons. Shared schema."""

from django.contrib.postgres.fields import ArrayField
from django.contrib.postgres.functions import RandomUUID
from django.db import models
from django.db.models import BigIntegerField, Func, Q, TextField
from django.db.models.functions import Cast

from kernel.ids import uuid7


class AuditEvent(models.Model):
    """One effect or refused attempt, written in the transaction of its effect. Insert-only for the application."""

    # Of the transaction that wrote it: what is finished, and so may be sealed, is known by it and not by the id.
    txid = models.BigIntegerField(
        db_default=Cast(Cast(Func(function="pg_current_xact_id"), TextField()), BigIntegerField()), editable=False
    )
    uid = models.UUIDField(db_default=RandomUUID(), editable=False, help_text="Its name outside: tells nothing.")
    at = models.DateTimeField()
    tenant_id = models.IntegerField(null=True)
    actor = models.CharField(max_length=200, help_text="A machine's name; of a person only the number.")
    role = models.CharField(max_length=20, blank=True, db_default="")
    subject = models.CharField(max_length=64, blank=True, db_default="", help_text="Who that is for good: user:3.")
    action = models.CharField(max_length=80)
    object_type = models.CharField(max_length=40)
    object_id = models.CharField(max_length=64)
    allowed = models.BooleanField(default=True)
    before = models.JSONField(null=True)
    after = models.JSONField(null=True)
    reason = models.TextField(blank=True)
    request_id = models.CharField(max_length=64, blank=True)
    personal = models.BinaryField(null=True, help_text="Name, address and program of the subject, encrypted.")
    about = models.CharField(max_length=64, blank=True, db_default="", help_text="The person that it concerns.")
    about_personal = models.BinaryField(null=True, help_text="What it says of them, encrypted.")

    class Meta:
        indexes = [
            # reader: the audit pages and the API's list, newest first within a tenant
            models.Index(fields=["tenant_id", "-id"], name="audit_by_tenant"),
            # reader: the history of one object, in the admin and the API
            models.Index(fields=["object_id", "id"], name="audit_by_object"),
            # reader: the API's list of a range of time
            models.Index(fields=["tenant_id", "at"], name="audit_by_time"),
            # reader: the sealer, what was written since
            models.Index(fields=["txid", "id"], name="audit_by_transaction"),
            # reader: the admin's first page and verifying, what the sealer found wrong
            models.Index(fields=["id"], condition=Q(action="audit.alarm"), name="audit_alarms"),
            # reader: the strip of operators' pages, what operators and commands changed lately
            models.Index(
                fields=["at", "id"],
                condition=Q(subject__startswith="user:") | Q(actor__startswith="command:"),
                name="audit_by_operators",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.action} {self.object_type} {self.object_id}"


class Seal(models.Model):
    """One link of a tenant's chain: a keyed hash of the event and of the link before. Insert-only."""

    event_id = models.BigIntegerField(primary_key=True)
    tenant_id = models.IntegerField(help_text="0: the operators' own.")
    number = models.BigIntegerField()
    sealed_at = models.DateTimeField()
    head = models.BinaryField()

    class Meta:
        constraints = [
            # reader: the sealer (the last one), verifying and the export (from one on)
            models.UniqueConstraint(fields=["tenant_id", "number"], name="seal_once_per_number"),
            models.CheckConstraint(condition=Q(number__gte=1), name="seal_number_begins_at_1"),
        ]

    def __str__(self) -> str:
        return f"{self.tenant_id}/{self.number}"


class SealState(models.Model):
    """How far the sealer is. One row.

    Sealed is what is at or before (`at_txid`, `at_id`), but for the transactions in `late`, which were open then.
    """

    id = models.SmallIntegerField(primary_key=True, default=1)
    step = models.BigIntegerField(default=0)
    at_txid = models.BigIntegerField(default=0)
    at_id = models.BigIntegerField(default=0)
    late = ArrayField(models.BigIntegerField(), default=list)
    rescan_id = models.BigIntegerField(null=True, help_text="All rows are looked at again, from this id on.")
    total = models.BigIntegerField(default=0, help_text="How many seals there are.")
    mac = models.BinaryField(default=b"")
    wrapped = models.BinaryField(null=True, help_text="The key of all chains.")
    kek_id = models.CharField(max_length=40, blank=True)

    class Meta:
        constraints = [models.CheckConstraint(condition=Q(id=1), name="sealstate_is_one_row")]

    def __str__(self) -> str:
        return f"step {self.step}"


class SubjectKey(models.Model):
    """What encrypts the personal fields of one subject in one tenant's trail. Erasing the subject deletes it.

    There may be several for one subject: whoever finds none makes one, and nobody waits for another.
    """

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    tenant_id = models.IntegerField(help_text="0: of the operators' own rows.")
    subject = models.CharField(max_length=64)
    wrapped = models.BinaryField()
    kek_id = models.CharField(max_length=40)
    created_at = models.DateTimeField()

    class Meta:
        indexes = [
            # reader: writers of the trail, and erasure
            models.Index(fields=["subject", "tenant_id"], name="subjectkey_by_subject"),
        ]

    def __str__(self) -> str:
        return f"{self.subject} of {self.tenant_id}"
