"""The answer to "why is it not running?" as OpenAPI shows it."""

from typing import ClassVar

from rest_framework import serializers

from apps.api.documents import Example, Serializer, nullable, optional
from apps.dispatch.admission import CODES
from kernel.transitions import EXECUTION_STATES

INSTANT = "2027-03-01T08:00:00Z"
ID = "0190a6f4-7c3e-7b21-9d55-3c1f0a6b8e42"


class ExplainAsk(Serializer):
    """What about a schedule is asked: without `at`, how it stands now."""

    EXAMPLE: ClassVar[Example] = {"at": INSTANT}

    at = optional(serializers.DateTimeField, help_text="What became of this instant, or becomes of it.")


class HolderAnswer(Serializer):
    """A run that holds what another one waits for."""

    EXAMPLE: ClassVar[Example] = {"state": "running", "expected_end_at": "2027-03-01T08:00:08Z"}

    execution = serializers.UUIDField()
    state = serializers.ChoiceField(list(EXECUTION_STATES))
    since = serializers.DateTimeField()
    expected_end_at = nullable(serializers.DateTimeField, help_text="As long as such runs take, at most its deadline.")


class VerdictAnswer(Serializer):
    """The cause, in words with numbers."""

    EXAMPLE: ClassVar[Example] = {
        "code": "job_concurrency", "title": "As many runs of the job as may run at once are under way",
        "detail": "2 of 2 runs of the job 'nightly report' are queued or running (max_concurrency).",
        "check": "job_concurrency", "limit": 2, "use": 2, "holders": [
            {"execution": ID, "state": "running", "since": INSTANT, "expected_end_at": "2027-03-01T08:00:08Z"}
        ], "clears_at": "2027-03-01T08:00:08Z",
        "estimate": "0 come first, 2 run at once, and 12 runs of the job took 8.2 s (median)",
        "remedy": "Raise the job's max_concurrency, make its runs shorter, or cancel some.",
        "link": f"/api/v1/jobs/{ID}",
    }  # fmt: skip

    code = serializers.CharField(help_text="docs/explain.md lists them; more may be added.")
    title = serializers.CharField()
    detail = serializers.CharField()
    is_fine = serializers.BooleanField(help_text="Whether nobody need do anything.")
    check = nullable(serializers.CharField, help_text="The rule of admission that refuses, when it is one.")
    limit = nullable(serializers.FloatField)
    use = nullable(serializers.FloatField)
    since = nullable(serializers.DateTimeField, help_text="Since when, where that is known.")
    holders = HolderAnswer(many=True, help_text="The ten that have held it for longest; your own runs only.")
    clears_at = nullable(serializers.DateTimeField, help_text="When it may go; certain where `estimate` is null.")
    estimate = nullable(serializers.CharField, help_text="How `clears_at` was guessed.")
    remedy = nullable(serializers.CharField, help_text="What to do.")
    link = nullable(serializers.CharField, help_text="Where over this API; null where only the operator can.")


class CheckAnswer(Serializer):
    """What one rule of admission says."""

    EXAMPLE: ClassVar[Example] = {
        "code": "job_concurrency", "level": "job", "ok": False, "limit": 2, "use": 2,
        "title": "As many runs of the job as may run at once are under way",
    }  # fmt: skip

    code = serializers.ChoiceField(list(CODES))
    level = serializers.ChoiceField(["tenant", "job", "key", "run", "pool"], help_text="Whose limit it is.")
    ok = serializers.BooleanField()
    limit = nullable(serializers.FloatField)
    use = nullable(serializers.FloatField)
    clears_at = nullable(serializers.DateTimeField)
    title = nullable(serializers.CharField, help_text="What it means, where it refuses.")


class PositionAnswer(Serializer):
    """Its place among what waits for the same job or concurrency key."""

    EXAMPLE: ClassVar[Example] = {"ahead": 3, "is_exact": True, "key": None}

    ahead = serializers.IntegerField(help_text="How many come first.")
    is_exact = serializers.BooleanField(help_text="false: there are more.")
    key = nullable(serializers.CharField, help_text="The value of its concurrency key.")


class DelayAnswer(Serializer):
    """What held a run back, and for how long."""

    EXAMPLE: ClassVar[Example] = {
        "code": "job_concurrency", "title": "As many runs of the job as may run at once are under way", "s": 10.5,
    }  # fmt: skip

    code = serializers.CharField()
    title = serializers.CharField()
    s = serializers.FloatField(help_text="Seconds.")


class DispositionAnswer(Serializer):
    """What became of an occurrence."""

    EXAMPLE: ClassVar[Example] = {"state": "skipped", "reason": "overlap_skipped", "occurrences": 1}

    execution_id = serializers.UUIDField()
    nominal_at = nullable(serializers.DateTimeField)
    state = serializers.ChoiceField(list(EXECUTION_STATES))
    reason = nullable(serializers.CharField)
    occurrences = serializers.IntegerField(help_text="That the row stands for.")


class ExplanationAnswer(Serializer):
    """Why it does not run, what it is up to, or why it ended so."""

    EXAMPLE: ClassVar[Example] = {
        "kind": "execution", "state": "ready", "verdict": {**VerdictAnswer.EXAMPLE, "is_fine": False, "since": None},
        "checks": [{**CheckAnswer.EXAMPLE, "clears_at": "2027-03-01T08:00:04Z"}], "position": PositionAnswer.EXAMPLE,
        "late_s": 10.5, "delays": [], "notes": [], "recent": [],
    }  # fmt: skip

    kind = serializers.ChoiceField(["execution", "schedule", "workflow_run", "step"])
    id = serializers.UUIDField(help_text="Of a step: of its run.")
    name = serializers.CharField(help_text="Of the job, the schedule or the workflow; of a step with its name.")
    state = serializers.CharField(help_text="Of the execution, the run or the step, or the status of the schedule.")
    as_of = serializers.DateTimeField()
    verdict = VerdictAnswer()
    checks = CheckAnswer(many=True, help_text="Of a run that waits: all rules, in their order.")
    position = PositionAnswer(allow_null=True)
    late_s = nullable(serializers.FloatField, help_text="Seconds from due to its start, or until now.")
    delays = DelayAnswer(many=True, help_text="What held a late run back, the longest first.")
    notes = serializers.ListField(child=serializers.CharField())
    next_at = nullable(serializers.DateTimeField, help_text="Of a schedule: its next run.")
    recent = DispositionAnswer(many=True, help_text="Of a schedule: its ten newest occurrences.")
