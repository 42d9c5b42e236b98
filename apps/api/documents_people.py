"""Keys, members and invitations as OpenAPI shows them."""

from typing import ClassVar

from rest_framework import serializers

from apps.api.documents import Example, Serializer, nullable, optional
from tenants.apikeys import MAX_SCOPES, OVERLAP, OVERLAP_MAX
from tenants.emails import MAX_EMAIL_CHARS
from tenants.permissions import KEY_ROLES, ROLES, known_scopes

MEMBER_READ_ONLY = ("id", "email", "has_password", "last_login_at", "created_at")


def scopes() -> serializers.ListField:
    """What of the role a key may do."""
    return serializers.ListField(
        child=serializers.ChoiceField(known_scopes()), allow_null=True, required=False, min_length=1,
        max_length=MAX_SCOPES, help_text="What of the role it may do; null: all of it.",
    )  # fmt: skip


class ApiKeyInput(Serializer):
    """A new API key."""

    EXAMPLE: ClassVar[Example] = {"name": "deploy", "role": "editor", "scopes": ["schedule.*", "*.read"]}

    name = serializers.CharField(max_length=100)
    role = serializers.ChoiceField(list(KEY_ROLES))
    scopes = scopes()
    expires_at = optional(serializers.DateTimeField)


class ApiKeyRotateInput(Serializer):
    """How to change over."""

    EXAMPLE: ClassVar[Example] = {"overlap_s": 3600}

    overlap_s = optional(
        serializers.IntegerField, min_value=0, max_value=int(OVERLAP_MAX.total_seconds()),
        help_text=f"So long the former key works as well. {int(OVERLAP.total_seconds())}",
    )  # fmt: skip


class ApiKeyAnswer(Serializer):
    """An API key; its text can't be read."""

    EXAMPLE: ClassVar[Example] = {
        "name": "deploy", "prefix": "sb_4fT9kQ2x", "role": "editor", "scopes": ["*.read", "schedule.*"],
        "created_by": "key:first key (admin)",
    }  # fmt: skip

    id = serializers.UUIDField()
    name = serializers.CharField()
    prefix = serializers.CharField()
    role = serializers.ChoiceField(list(KEY_ROLES))
    scopes = nullable(serializers.ListField, child=serializers.CharField(), help_text="Null: all of the role.")
    created_at = serializers.DateTimeField()
    created_by = nullable(serializers.CharField)
    replaces = nullable(serializers.UUIDField, help_text="The key that this one was rotated from.")
    rotated_at = nullable(serializers.DateTimeField, help_text="When it got a successor.")
    expires_at = nullable(serializers.DateTimeField)
    revoked_at = nullable(serializers.DateTimeField)
    last_used_at = nullable(serializers.DateTimeField, help_text="To the minute.")


class NewApiKeyAnswer(ApiKeyAnswer):
    """A new API key with its text, which is shown only this once."""

    EXAMPLE: ClassVar[Example] = {**ApiKeyAnswer.EXAMPLE, "key": "sb_4fT9kQ2x_..."}

    key = nullable(serializers.CharField, help_text="Null when the answer is replayed: the text is not kept.")


class MemberAnswer(Serializer):
    """A person of the tenant."""

    EXAMPLE: ClassVar[Example] = {"email": "ada@example.com", "name": "Ada", "role": "operator", "has_password": True}

    id = serializers.UUIDField()
    email = nullable(serializers.CharField)
    name = nullable(serializers.CharField)
    role = serializers.ChoiceField(list(ROLES))
    has_password = serializers.BooleanField(help_text="Else the person signs in with the identity provider only.")
    last_login_at = nullable(serializers.DateTimeField)
    created_at = serializers.DateTimeField()


class MemberChange(Serializer):
    """What of a member can be changed."""

    EXAMPLE: ClassVar[Example] = {"role": "editor"}

    name = optional(serializers.CharField, max_length=100)
    role = serializers.ChoiceField(list(ROLES), required=False)


class InvitationInput(Serializer):
    """Whom to invite."""

    EXAMPLE: ClassVar[Example] = {"email": "ada@example.com", "role": "editor", "name": "Ada"}

    email = serializers.CharField(max_length=MAX_EMAIL_CHARS)
    role = serializers.ChoiceField(list(ROLES))
    name = optional(serializers.CharField, max_length=100)


class InvitationAnswer(Serializer):
    """An invitation, or with `member` a link to choose a new password with."""

    EXAMPLE: ClassVar[Example] = {"email": "ada@example.com", "role": "editor", "name": "Ada", "status": "open"}

    id = serializers.UUIDField()
    email = serializers.CharField()
    name = nullable(serializers.CharField)
    role = serializers.ChoiceField(list(ROLES))
    member = nullable(serializers.UUIDField, help_text="Whose password is chosen anew.")
    status = serializers.ChoiceField(["open", "accepted", "revoked", "expired"])
    created_at = serializers.DateTimeField()
    created_by = serializers.CharField()
    expires_at = serializers.DateTimeField()
    accepted_at = nullable(serializers.DateTimeField)
    revoked_at = nullable(serializers.DateTimeField)


class NewInvitationAnswer(InvitationAnswer):
    """A new invitation with its link, which is shown only this once."""

    EXAMPLE: ClassVar[Example] = {
        **InvitationAnswer.EXAMPLE, "mailed": False,
        "link": "https://acme.example.com/console/invitation?token=sbi_...",
    }  # fmt: skip

    link = nullable(serializers.CharField, help_text="To pass on. Null when the answer is replayed: it is not kept.")
    mailed = serializers.BooleanField(help_text="Whether this installation sends it by mail as well.")
