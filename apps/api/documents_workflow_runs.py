"""The bodies and answers of runs of workflows and of their steps."""

from typing import Any, ClassVar

from rest_framework import serializers

from apps.api.documents import Example, Serializer, labels, nullable, optional
from apps.api.documents_workflows import GraphEdge, GraphNode
from apps.executions.models import TRIGGERS
from apps.workflows.models import STEP_STATES, STEP_TYPES
from apps.workflows.views.runs_reading import STATES
from kernel.transitions import EXECUTION_STATES
from tenants.permissions import ROLES

STARTED, ENDED = "2027-03-01T08:00:00Z", "2027-03-01T08:00:42Z"


class RunParent(Serializer):
    """The step of another run that started this one as its sub-workflow."""

    EXAMPLE: ClassVar[Example] = {"step": "load", "item": None}

    run = serializers.UUIDField()
    step = serializers.CharField()
    item = nullable(serializers.IntegerField, help_text="Place in the step's list.")


class WorkflowRunItem(Serializer):
    """A run of a workflow, without its steps. Its id is the id of its execution."""

    EXAMPLE: ClassVar[Example] = {
        "workflow_name": "nightly load", "version": 3, "state": "running", "trigger": "schedule", "priority": 5,
        "started_at": STARTED, "generation": 1, "fired_by": "dispatcher-1",
    }  # fmt: skip

    id = serializers.UUIDField()
    workflow = serializers.UUIDField()
    workflow_name = serializers.CharField()
    version = serializers.IntegerField(help_text="That it keeps to its end.")
    state = serializers.ChoiceField(list(STATES))
    trigger = serializers.ChoiceField(list(TRIGGERS))
    schedule = nullable(serializers.UUIDField)
    nominal_at = nullable(serializers.DateTimeField)
    run_key = serializers.CharField()
    priority = serializers.IntegerField()
    created_at = serializers.DateTimeField()
    actual_at = serializers.DateTimeField(help_text="When it was or will be due.")
    started_at = nullable(serializers.DateTimeField, help_text="Null while it has not begun.")
    finished_at = nullable(serializers.DateTimeField)
    deadline_at = nullable(serializers.DateTimeField, help_text="Past it the run fails.")
    paused_at = nullable(serializers.DateTimeField)
    paused_by = nullable(serializers.CharField)
    paused_reason = nullable(serializers.CharField)
    wait_reason = nullable(serializers.CharField, help_text="Of a run that is ready: what it waits for.")
    reason = nullable(serializers.CharField, help_text="Why it stopped before its time, or never began.")
    error = serializers.JSONField(help_text="Of the first step that failed it: with `step` and `execution`.")
    generation = serializers.IntegerField(help_text="Grows when it is opened again.")
    parent = RunParent(allow_null=True)
    replay_of = nullable(serializers.UUIDField)
    fired_by = serializers.CharField()
    labels = labels()
    as_of = serializers.DateTimeField()


# One member for each state, so that the names stand in one place.
StepCounts = type(
    "StepCounts",
    (Serializer,),
    {
        "__doc__": "How many steps are in which state.",
        "EXAMPLE": {**dict.fromkeys(STEP_STATES, 0), "succeeded": 1, "running": 1},
        **{state: serializers.IntegerField() for state in STEP_STATES},
    },
)


class WorkflowRunAnswer(WorkflowRunItem):
    """A run of a workflow."""

    EXAMPLE: ClassVar[Example] = {
        **WorkflowRunItem.EXAMPLE, "input": {"region": "eu"}, "output": None, "step_count": 2,
    }  # fmt: skip

    input = serializers.JSONField()
    output = serializers.JSONField()
    step_count = serializers.IntegerField(help_text="0 while it has not begun.")
    steps: Any = StepCounts()


class StepAnswer(Serializer):
    """A step of a run, or one item of the list of a step with for_each."""

    EXAMPLE: ClassVar[Example] = {
        "step": "extract", "type": "job", "state": "running", "execution_state": "running", "attempt_count": 1,
        "generation": 1, "started_at": STARTED, "items_open": 0, "items_failed": 0, "value": None, "output": None,
        "used": {},
    }  # fmt: skip

    run = serializers.UUIDField()
    step = serializers.CharField()
    item = nullable(serializers.IntegerField, help_text="Place in the list, from 0; null: the step itself.")
    type = serializers.ChoiceField(list(STEP_TYPES))
    state = serializers.ChoiceField(list(STEP_STATES))
    reason = nullable(serializers.CharField, help_text="Why it was skipped, failed or waits.")
    error = serializers.JSONField()
    execution = nullable(serializers.UUIDField, help_text="Of a step that runs a job or a workflow, once it started.")
    execution_state = nullable(serializers.ChoiceField, choices=EXECUTION_STATES)
    attempt_count = serializers.IntegerField()
    generation = serializers.IntegerField(help_text="Grows when it is run once more.")
    items = nullable(serializers.IntegerField, help_text="With for_each: length of the list, once it started.")
    items_open = serializers.IntegerField()
    items_failed = serializers.IntegerField()
    value = serializers.JSONField(help_text="Of an item what stands in the list, of an approval its message.")
    output = serializers.JSONField(help_text="Of a step that has no execution.")
    wake_at = nullable(serializers.DateTimeField, help_text="End of a delay, or of the time for an approval.")
    started_at = nullable(serializers.DateTimeField, help_text="When its needs let it start.")
    finished_at = nullable(serializers.DateTimeField)
    forced = serializers.BooleanField(help_text="A person decided on it, whatever its needs say.")
    decided_by = nullable(serializers.CharField)
    note = nullable(serializers.CharField)
    used = serializers.DictField(
        child=serializers.IntegerField(), help_text="Of what it needs: which attempt it was started with."
    )


class ApprovalAnswer(StepAnswer):
    """An approval that waits for somebody."""

    EXAMPLE: ClassVar[Example] = {
        **StepAnswer.EXAMPLE, "step": "approve", "type": "approval", "workflow_name": "order", "execution": None,
        "execution_state": None, "message": "Ship order 7?", "role": "operator",
    }  # fmt: skip

    workflow = serializers.UUIDField()
    workflow_name = serializers.CharField()
    role = nullable(serializers.ChoiceField, choices=ROLES, help_text="The least role that may answer.")
    message = nullable(serializers.CharField)


class RunGraphNode(GraphNode):
    """A step in the graph of a run."""

    EXAMPLE: ClassVar[Example] = {**GraphNode.EXAMPLE, "state": "running", "note": ""}

    state = serializers.ChoiceField(list(STEP_STATES))
    note = serializers.CharField(help_text="The reason, or how many items of a list have ended.", allow_blank=True)


class RunGraphAnswer(Serializer):
    """The steps of a run as a graph; places are for a picture of this width and height."""

    EXAMPLE: ClassVar[Example] = {"width": 400, "height": 120, "version": 1}

    version = serializers.IntegerField()
    width = serializers.FloatField()
    height = serializers.FloatField()
    nodes = RunGraphNode(many=True)
    edges: Any = GraphEdge(many=True)


class TimelineBar(Serializer):
    """One step in a Gantt chart. Seconds count from the start of the run; what goes on ends now."""

    EXAMPLE: ClassVar[Example] = {
        "step": "extract", "state": "succeeded", "start_s": 0, "begin_s": 0.2, "end_s": 30.5, "freed_by": None,
        "is_critical": True, "slack_s": 0,
    }  # fmt: skip

    step = serializers.CharField()
    state = serializers.ChoiceField(list(STEP_STATES))
    reason = nullable(serializers.CharField)
    start_s = serializers.FloatField(help_text="When its needs let it start.")
    begin_s = serializers.FloatField(help_text="Its first attempt: before it, the step waited for a place.")
    end_s = serializers.FloatField()
    freed_by = nullable(serializers.CharField, help_text="The step whose end let it start.")
    is_critical = serializers.BooleanField(help_text="Whether it is on the critical path.")
    slack_s = serializers.FloatField(help_text="So much later it could have ended without the run ending later.")


class TimelineLink(Serializer):
    """One step of the critical path."""

    EXAMPLE: ClassVar[Example] = {"step": "extract", "waited_s": 0.2, "ran_s": 30.3}

    step = serializers.CharField()
    waited_s = serializers.FloatField(help_text="Since the step before it ended.")
    ran_s = serializers.FloatField()


class TimelineAnswer(Serializer):
    """Where the time of a run went. Steps that wait for others have no bar."""

    EXAMPLE: ClassVar[Example] = {"started_at": STARTED, "finished_at": ENDED, "total_s": 42.1}

    started_at = nullable(serializers.DateTimeField)
    finished_at = nullable(serializers.DateTimeField)
    total_s = serializers.FloatField()
    bars = TimelineBar(many=True, help_text="In the order of their start.")
    critical_path = TimelineLink(many=True, help_text="The steps that made the run as long as it is.")
    as_of = serializers.DateTimeField()


class StepRerunInput(Serializer):
    """Whether what follows from the step runs once more, too."""

    EXAMPLE: ClassVar[Example] = {"reason": "the source was mended"}

    downstream = optional(serializers.BooleanField, help_text="true")
    reason = optional(serializers.CharField, max_length=500)


class RunRerunInput(StepRerunInput):
    """From which step, and whether what follows from it runs once more, too."""

    EXAMPLE: ClassVar[Example] = {"step": "extract", **StepRerunInput.EXAMPLE}

    step = serializers.CharField()


class StepRetryInput(Serializer):
    """Of which item; without one all that failed of the step."""

    EXAMPLE: ClassVar[Example] = {"reason": "the source was mended"}

    item = optional(serializers.IntegerField, min_value=0)
    reason = optional(serializers.CharField, max_length=500)


class StepCancelInput(Serializer):
    """Whether what follows from the step alone is cancelled, too."""

    EXAMPLE: ClassVar[Example] = {"branch": True, "reason": "not needed any more"}

    branch = optional(serializers.BooleanField)
    reason = optional(serializers.CharField, max_length=500)


class StepSkipInput(Serializer):
    """Why."""

    EXAMPLE: ClassVar[Example] = {"reason": "loaded by hand"}

    reason = serializers.CharField(max_length=500)


class StepNoteInput(Serializer):
    """What there is to say."""

    EXAMPLE: ClassVar[Example] = {"note": "seen and counted"}

    note = optional(serializers.CharField, max_length=500)
