"""The audit trail as OpenAPI shows it."""

from typing import ClassVar

from rest_framework import serializers

from apps.api.documents import Example, Serializer, nullable

HEAD = "9f2c1b7e4a5d8f60312ac9e7b4d05f8816e3c2a97d4b5f1e08c6a3d29b7f4e51"


class AuditActor(Serializer):
    """Who did it. What can identify a person is null after they were erased."""

    EXAMPLE: ClassVar[Example] = {
        "id": "member:0190a6f4-7c3e-7b21-9d55-3c1f0a6b8e42", "name": "member:ada@example.com (admin)", "role": "admin",
        "address": "192.0.2.7", "agent": "Mozilla/5.0", "erased": False,
    }  # fmt: skip

    id = nullable(serializers.CharField, help_text="Who that is for good; null for the system and operators' commands.")
    name = serializers.CharField()
    role = serializers.CharField(allow_blank=True)
    address = nullable(serializers.CharField, help_text="Where from.")
    agent = nullable(serializers.CharField, help_text="The program, as it names itself.")
    erased = serializers.BooleanField(help_text="Whether personal members of this row were erased.")


class AuditSeal(Serializer):
    """Its link in the tenant's chain."""

    EXAMPLE: ClassVar[Example] = {"number": 4711, "head": HEAD}

    number = serializers.IntegerField(min_value=1)
    sealed_at = serializers.DateTimeField()
    head = serializers.CharField(help_text="Keyed hash of this row and of the link before, hexadecimal.")


class AuditEventAnswer(Serializer):
    """Something that was done, or refused."""

    EXAMPLE: ClassVar[Example] = {
        "action": "schedule.pause", "object_type": "schedule", "object_id": "0190a6f4-7c3e-7b21-9d55-3c1f0a6b8e42",
        "allowed": True, "before": {"status": "active"}, "after": {"status": "paused"}, "about": None,
        "request_id": "0f8fad5bd9cb469fa16570867728950e",
    }  # fmt: skip

    id = serializers.UUIDField()
    at = serializers.DateTimeField()
    actor = AuditActor()
    action = serializers.CharField()
    object_type = serializers.CharField()
    object_id = serializers.CharField(allow_blank=True)
    allowed = serializers.BooleanField(help_text="False: it was refused, and `reason` says why.")
    before = nullable(serializers.DictField, help_text="What was changed, as it was.")
    after = nullable(serializers.DictField, help_text="What was changed, as it is now.")
    reason = serializers.CharField(allow_blank=True)
    request_id = serializers.CharField(allow_blank=True)
    about = nullable(serializers.DictField, help_text="The person that it concerns: `id`, and what it says of them.")
    seal = nullable(AuditSeal, help_text="null for the few seconds before it is sealed.")


class AuditChainAnswer(Serializer):
    """The end of the tenant's chain. Keep it: it proves later that nothing before it was changed or cut off."""

    EXAMPLE: ClassVar[Example] = {"number": 4711, "head": HEAD}

    number = serializers.IntegerField(min_value=0, help_text="How many rows are sealed.")
    head = nullable(serializers.CharField, help_text="null while nothing is sealed.")
    sealed_at = nullable(serializers.DateTimeField)
    as_of = serializers.DateTimeField()
