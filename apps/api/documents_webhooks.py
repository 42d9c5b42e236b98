"""Webhooks, deliveries and events as OpenAPI shows them. No answer but the first holds a secret."""

from typing import ClassVar

from rest_framework import serializers

from apps.api.documents import Example, Serializer, label, labels, nullable, optional, replacement
from apps.webhooks.rules import MAX_DESCRIPTION_CHARS, MAX_FILTERED
from apps.webhooks.services import OVERLAP_MAX, READ_ONLY
from apps.webhooks.services_deliveries import REPLAYS
from kernel.eventtypes import EVENT_TYPES, EVERYTHING, TEST_TYPE
from kernel.httprules import MAX_URL_CHARS
from kernel.transitions import EXECUTION_STATES

SUBSCRIBED = [*EVENT_TYPES, EVERYTHING]
TOLD = [*EVENT_TYPES, TEST_TYPE]


class WebhookChange(Serializer):
    """What of a webhook can be changed."""

    EXAMPLE: ClassVar[Example] = {"types": ["run.dead_lettered", "schedule.missed"]}

    url = serializers.CharField(
        required=False, max_length=MAX_URL_CHARS, help_text="Called by POST; the rules are those of HTTP jobs."
    )
    description = optional(serializers.CharField, max_length=MAX_DESCRIPTION_CHARS)
    types = serializers.ListField(
        child=serializers.ChoiceField(SUBSCRIBED), min_length=1, max_length=MAX_FILTERED, required=False,
        help_text="* is all of them, also those that come with later versions.",
    )  # fmt: skip
    jobs = optional(
        serializers.ListField, child=serializers.UUIDField(), max_length=MAX_FILTERED,
        help_text="Only events of these jobs. Any.",
    )  # fmt: skip
    schedules = optional(
        serializers.ListField, child=serializers.UUIDField(), max_length=MAX_FILTERED,
        help_text="Only events of these schedules. Any.",
    )  # fmt: skip
    labels = optional(
        serializers.DictField, child=label(null=True),
        help_text="Only events of what has all of these: the job's labels, the schedule's and the run's together.",
    )  # fmt: skip
    enabled = optional(
        serializers.BooleanField, help_text="true. Enabled again, it goes on from then; see replay for what it missed."
    )


class WebhookWhole(WebhookChange):
    """All of a webhook."""

    EXAMPLE: ClassVar[Example] = {
        "url": "https://example.com/hooks/shardbeat",
        "types": ["run.dead_lettered", "schedule.missed"],
        "description": "to the pager",
    }

    url = serializers.CharField(max_length=MAX_URL_CHARS, help_text="Called by POST.")
    types = serializers.ListField(
        child=serializers.ChoiceField(SUBSCRIBED), min_length=1, max_length=MAX_FILTERED, help_text="* is all of them."
    )
    labels = optional(serializers.DictField, child=label(), help_text="Only events of what has all of these.")


class WebhookInput(WebhookWhole):
    """Who is told of what."""

    signing_secret = optional(serializers.CharField, help_text="whsec_..., instead of one that is made here.")


WebhookReplacement = replacement("WebhookReplacement", WebhookWhole, READ_ONLY)


class WebhookAnswer(Serializer):
    """A webhook; its secret can't be read."""

    EXAMPLE: ClassVar[Example] = {
        **WebhookWhole.EXAMPLE, "jobs": [], "schedules": [], "labels": {}, "enabled": True, "failures": 0,
        "last_success_at": "2027-03-01T08:00:00Z",
    }  # fmt: skip

    id = serializers.UUIDField()
    url = serializers.CharField()
    description = nullable(serializers.CharField)
    types = serializers.ListField(child=serializers.ChoiceField(SUBSCRIBED))
    jobs = serializers.ListField(child=serializers.UUIDField())
    schedules = serializers.ListField(child=serializers.UUIDField())
    labels = labels()
    enabled = serializers.BooleanField()
    disabled_at = nullable(serializers.DateTimeField)
    disabled_reason = nullable(serializers.CharField, help_text="Why the platform disabled it.")
    failing_since = nullable(serializers.DateTimeField, help_text="No attempt has succeeded since.")
    failures = serializers.IntegerField(help_text="Failed attempts since then.")
    last_error = nullable(serializers.CharField)
    last_success_at = nullable(serializers.DateTimeField, help_text="To the minute.")
    former_secret_until = nullable(serializers.DateTimeField, help_text="The former secret signs as well until then.")
    replaying = nullable(serializers.ChoiceField, choices=list(REPLAYS), help_text="A replay that is under way.")
    created_at = serializers.DateTimeField()
    updated_at = serializers.DateTimeField()


class NewWebhookAnswer(WebhookAnswer):
    """A webhook with its new secret, which is shown only this once."""

    EXAMPLE: ClassVar[Example] = {**WebhookAnswer.EXAMPLE, "signing_secret": "whsec_..."}

    signing_secret = nullable(serializers.CharField, help_text="Null when the answer is replayed: it is not kept.")


class WebhookRotateInput(Serializer):
    """How to change over to another secret."""

    EXAMPLE: ClassVar[Example] = {"overlap_s": 3600}

    overlap_s = optional(
        serializers.IntegerField, min_value=0, max_value=int(OVERLAP_MAX.total_seconds()),
        help_text="So long the former secret signs as well. 86400",
    )  # fmt: skip
    signing_secret = optional(serializers.CharField, help_text="whsec_..., instead of one that is made here.")


class WebhookReplayInput(Serializer):
    """What to send once more."""

    EXAMPLE: ClassVar[Example] = {"replay": "missing"}

    after = serializers.UUIDField(help_text="Id of an event; what came after it is sent.")
    replay = optional(
        serializers.ChoiceField, choices=list(REPLAYS),
        help_text='missing: what has not arrived; "all": everything, under new ids. missing',
    )  # fmt: skip


class DeliveryAnswer(Serializer):
    """An event on its way to a webhook: an execution; its attempts are at /executions/{id}/attempts."""

    EXAMPLE: ClassVar[Example] = {
        "type": "run.dead_lettered",
        "webhook_id": "0190a6f47c3e7b219d553c1f0a6b8e42.0190a6f47c3e7b219d553c1f0a6b8e42",
        "state": "succeeded",
        "attempt_count": 1,
        "status": 204,
    }

    id = serializers.UUIDField()
    webhook = serializers.UUIDField()
    event = nullable(serializers.UUIDField, help_text="Null for a test.")
    type = serializers.ChoiceField(TOLD)
    webhook_id = serializers.CharField(help_text="The header that the receiver gets: the same over all attempts.")
    state = serializers.ChoiceField(list(EXECUTION_STATES))
    attempt_count = serializers.IntegerField()
    next_attempt_at = nullable(serializers.DateTimeField)
    status = nullable(serializers.IntegerField, help_text="What the receiver answered last, once it has ended.")
    error = nullable(serializers.DictField, child=serializers.CharField(), help_text="class, message")
    created_at = serializers.DateTimeField()
    started_at = nullable(serializers.DateTimeField, help_text="Start of the first attempt.")
    finished_at = nullable(serializers.DateTimeField)
    replay_of = nullable(serializers.UUIDField)


class EventAnswer(Serializer):
    """Something that happened; the same as the body of a webhook."""

    EXAMPLE: ClassVar[Example] = {
        "type": "schedule.paused",
        "data": {
            "schedule": "0190a6f4-7c3e-7b21-9d55-3c1f0a6b8e42",
            "reason": "5 runs in a row have died.",
            "resume_at": None,
            "by": "system",
        },
    }

    id = serializers.UUIDField()
    type = serializers.ChoiceField(list(EVENT_TYPES))
    timestamp = serializers.DateTimeField()
    data = serializers.DictField(  # type: ignore[assignment]  # DRF takes fields out of the class
        help_text="Depends on the type; see docs/webhooks.md."
    )
