"""Usage as OpenAPI shows it."""

from typing import ClassVar

from rest_framework import serializers

from apps.api.documents import Example, Serializer, nullable
from apps.usage.reading import STEP_S


class QuotaAnswer(Serializer):
    """A limit of the plan and what counts against it."""

    EXAMPLE: ClassVar[Example] = {
        "quota": "max_runs_per_day", "what": "runs made on this day (UTC)", "limit": 1_000, "use": 812,
        "percent": 81.2, "resets_at": "2027-03-02T00:00:00Z",
    }  # fmt: skip

    quota = serializers.CharField(help_text="Its name, as refusals say it.")
    what = serializers.CharField(help_text="What is counted.")
    limit = nullable(serializers.IntegerField, help_text="null: any number.")
    use = serializers.IntegerField()
    use_is_exact = serializers.BooleanField(help_text="false: at least so much.")
    percent = nullable(serializers.FloatField, help_text="Of the limit; null without one.")
    resets_at = nullable(serializers.DateTimeField, help_text="When it is counted anew; null: it is what there is.")


class PoolUseAnswer(Serializer):
    """Slots of a pool of which the plan reserves some, or says how many at most."""

    EXAMPLE: ClassVar[Example] = {"pool": "http", "reserved_slots": 10, "max_slots": 50, "use": 4}

    pool = serializers.CharField()
    reserved_slots = serializers.IntegerField(help_text="So many runs at once whenever they are wanted.")
    max_slots = nullable(serializers.IntegerField, help_text="So many at most; null: any number.")
    use = serializers.IntegerField(help_text="Queued or running now.")


class UsageAnswer(Serializer):
    """Where the tenant stands with its plan."""

    EXAMPLE: ClassVar[Example] = {"plan": "standard", "worker_group": None}

    as_of = serializers.DateTimeField()
    plan = serializers.CharField(help_text="Name of the plan.")
    quotas = QuotaAnswer(many=True)
    pools = PoolUseAnswer(many=True, help_text="Those that the plan names.")
    worker_group = nullable(serializers.CharField, help_text="The workers that run its jobs; null: the shared ones.")
    min_interval_s = serializers.IntegerField(help_text="The least time between two runs of a schedule.")
    max_payload_bytes = serializers.IntegerField()
    retention_days = serializers.IntegerField(help_text="How long what has ended is kept in the tables.")
    archive_days = serializers.IntegerField(help_text="So many days more in archive files; 0: it is deleted.")


class SpreadAnswer(Serializer):
    """How times were spread; to 41 %."""

    EXAMPLE: ClassVar[Example] = {"count": 120, "p50_s": 0.08, "p95_s": 0.4, "p99_s": 0.8}

    count = serializers.IntegerField()
    p50_s = nullable(serializers.FloatField)
    p95_s = nullable(serializers.FloatField)
    p99_s = nullable(serializers.FloatField)


class PeriodAnswer(Serializer):
    """What was done in a minute, an hour or a day of UTC."""

    starts_at = serializers.DateTimeField()
    fired = serializers.IntegerField(help_text="Runs made by schedules.")
    submitted = serializers.IntegerField(help_text="Runs that somebody asked for, with triggers, reruns and replays.")
    skipped = serializers.IntegerField(help_text="Occurrences that did not run.")
    released = serializers.IntegerField(help_text="Hand-overs to workers, later tries included.")
    started = serializers.IntegerField(help_text="First attempts; in the period in which they ended.")
    succeeded = serializers.IntegerField()
    dead = serializers.IntegerField()
    cancelled = serializers.IntegerField()
    expired = serializers.IntegerField()
    attempts = serializers.IntegerField(help_text="Attempts that ended.")
    attempts_failed = serializers.IntegerField(help_text="Of these the failed, timed-out and lost ones.")
    run_s = serializers.FloatField(help_text="How long the attempts ran, in all.")
    dispatch_lateness = SpreadAnswer(help_text="Released minus due, of first releases.")
    start_lateness = SpreadAnswer(help_text="Started minus due, of first attempts.")
    duration = SpreadAnswer(help_text="Of attempts.")


class UsageHistoryAnswer(Serializer):
    """Periods in order of time; those in which nothing happened are left out."""

    as_of = serializers.DateTimeField(help_text="What was done seconds before it may still be missing.")
    step = serializers.ChoiceField(list(STEP_S))
    to = serializers.DateTimeField()
    items = PeriodAnswer(many=True)

    def get_fields(self) -> dict[str, serializers.Field]:
        return {**super().get_fields(), "from": serializers.DateTimeField()}
