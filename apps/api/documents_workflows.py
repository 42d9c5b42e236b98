"""The bodies and answers of workflows."""

from typing import Any, ClassVar

from rest_framework import serializers

from apps.api.documents import Example, Serializer, label, labels, nullable, optional, replacement
from apps.api.documents_runs import DependsOnField
from apps.api.openapi_examples import ID
from apps.schedules import job_input
from apps.workflows.definitions import reading
from apps.workflows.definitions.graph import MAX_STEPS
from apps.workflows.definitions.reading_steps import JOINS, MAX_ITEMS, MAX_WAIT_S
from apps.workflows.dependencies.depending_input import CONDITIONS

JOB_TEXT = "Id of a job, or a job without a name, which is this workflow's own."
EXTRACT: Example = {
    "name": "extract", "job": {"kind": "http", "target": {"url": "https://example.com/extract", "method": "POST"}},
}  # fmt: skip
LOAD: Example = {
    "name": "load", "job": {"kind": "http", "target": {"url": "https://example.com/load"}}, "needs": ["extract"],
    "input": {"rows": "{{ steps.extract.result.rows }}"},
}  # fmt: skip


class StepMembers(Serializer):
    """A step: a job, another workflow, an approval or a delay; when it starts, and what it is given."""

    EXAMPLE: ClassVar[Example] = EXTRACT

    name = serializers.CharField(max_length=50, help_text="a-z 0-9 _ -, begins with a letter or a digit.")
    job = serializers.JSONField(required=False, help_text=JOB_TEXT)
    workflow = optional(serializers.UUIDField, help_text="Runs another workflow; five deep at most.")
    approval = optional(
        serializers.DictField,
        help_text='Waits for a person: {"role": "operator", "timeout_s": 86400, "message",'
        ' "on_timeout": "failed|skipped|succeeded"}.',
    )  # fmt: skip
    delay_s = optional(serializers.IntegerField, min_value=0, max_value=MAX_WAIT_S, help_text="Waits so long.")
    needs = optional(
        serializers.ListField, child=serializers.JSONField(), max_length=1_000,
        help_text='Steps above: "a", or {"step": "a", "on": "succeeded|failed|finished|skipped"}.',
    )  # fmt: skip
    join = serializers.JSONField(
        required=False, help_text=f'How many of the needs: {", ".join(JOINS)}, or {{"at_least": 2}}. all'
    )
    input = serializers.JSONField(
        required=False, help_text="What the job is given instead of its payload; texts may hold templates."
    )
    when = optional(
        serializers.ListField, child=serializers.DictField(), max_length=20,
        help_text='Conditions that must all hold, else it is skipped: [{"value": "{{ input.region }}", "in": ["eu"]}].',
    )  # fmt: skip
    for_each = optional(
        serializers.DictField,
        help_text='One run for each item: {"items": list or template, "max_items": 1000, "max_in_flight",'
        f' "max_failures": 0}}. At most {MAX_ITEMS:,} items.',
    )  # fmt: skip
    retry = optional(serializers.DictField, help_text="Members of a retry policy, instead of the job's.")
    timeout_s = optional(
        serializers.IntegerField, min_value=1, max_value=job_input.ATTEMPT_MAX_S, help_text="Instead of the job's."
    )
    max_concurrency = optional(
        serializers.IntegerField, min_value=1, max_value=job_input.MAX_CONCURRENCY,
        help_text="Of its items in one run, beside the job's own limit.",
    )  # fmt: skip
    priority = optional(serializers.IntegerField, min_value=0, max_value=9, help_text="Instead of the job's.")
    allow_failure = serializers.BooleanField(required=False, help_text="Its failure does not make the run fail. false")
    depends_on_previous = serializers.BooleanField(
        required=False, help_text="It waits for the same step of the run before. false"
    )
    compensate = optional(
        serializers.DictField,
        help_text='{"job", "input"?}: runs when the run has failed after it succeeded, with failure_policy compensate.',
    )


class WorkflowChange(Serializer):
    """What of a workflow can be changed. Steps that are given take the place of all steps."""

    EXAMPLE: ClassVar[Example] = {"description": "Every night, by region.", "labels": {"team": "reports"}}

    name = serializers.CharField(max_length=200, required=False)
    steps = StepMembers(many=True, required=False, help_text=f"1 to {MAX_STEPS:,}.")
    failure_policy = optional(
        serializers.ChoiceField, choices=list(reading.FAILURE_POLICIES),
        help_text="continue: what does not need the failed step runs. fail_fast: what runs is stopped, what waits is"
        " skipped. compensate: as fail_fast, then compensations in reverse order. continue",
    )  # fmt: skip
    on_failure = optional(serializers.DictField, help_text='{"job", "input"?}: runs once when a run has failed.')
    deadline_s = optional(
        serializers.IntegerField, min_value=1, max_value=reading.MAX_DEADLINE_S, help_text="Of a whole run."
    )
    max_active_runs = optional(
        serializers.IntegerField, min_value=1, max_value=job_input.MAX_CONCURRENCY, help_text="Others wait."
    )
    input = serializers.JSONField(required=False, help_text="Of a run that is given none; {{ input.x }} in templates.")
    output = serializers.JSONField(required=False, help_text="What a run has as its result; texts may hold templates.")
    after = optional(
        serializers.ListField, child=serializers.DictField(), max_length=reading.MAX_AFTER,
        help_text='Runs whenever one of these ends: [{"workflow": id, "on": "succeeded|failed|finished"}].',
    )  # fmt: skip
    description = optional(serializers.CharField, max_length=reading.MAX_DESCRIPTION_CHARS)
    labels = optional(serializers.DictField, child=label(null=True), help_text="null removes one.")
    external_id = optional(serializers.CharField, max_length=200, help_text="Your own id; unique among workflows.")


class WorkflowInput(WorkflowChange):
    """A workflow as its owner writes it."""

    EXAMPLE: ClassVar[Example] = {"name": "nightly load", "steps": [EXTRACT, LOAD], "labels": {"team": "billing"}}

    name = serializers.CharField(max_length=200)
    steps = StepMembers(many=True, help_text=f"1 to {MAX_STEPS:,}.")
    labels = optional(serializers.DictField, child=label())


WorkflowReplacement = replacement("WorkflowReplacement", WorkflowInput, reading.READ_ONLY)


class WorkflowItem(Serializer):
    """A workflow in a list: without its steps."""

    EXAMPLE: ClassVar[Example] = {"name": "nightly load", "labels": {"team": "billing"}, "version": 1}

    id = serializers.UUIDField()
    name = serializers.CharField()
    labels = labels()
    external_id = nullable(serializers.CharField)
    version = serializers.IntegerField(help_text="Of the definition; runs keep the one that they started with.")
    status = serializers.ChoiceField(["active", "paused"])
    paused_at = nullable(serializers.DateTimeField)
    paused_reason = nullable(serializers.CharField)
    created_at = serializers.DateTimeField()
    updated_at = serializers.DateTimeField()


class WorkflowDefinition(Serializer):
    """What makes a version of a workflow. Steps are without the members that have their default."""

    EXAMPLE: ClassVar[Example] = {"steps": [EXTRACT, LOAD], "failure_policy": "continue", "after": []}

    steps = StepMembers(many=True)
    failure_policy = serializers.ChoiceField(list(reading.FAILURE_POLICIES))
    on_failure = nullable(serializers.DictField)
    deadline_s = nullable(serializers.IntegerField)
    max_active_runs = nullable(serializers.IntegerField)
    input = serializers.JSONField()
    output = serializers.JSONField()
    after = serializers.ListField(child=serializers.DictField())
    description = nullable(serializers.CharField)


class WorkflowAnswer(WorkflowItem, WorkflowDefinition):
    """A workflow."""

    EXAMPLE: ClassVar[Example] = {**WorkflowItem.EXAMPLE, **WorkflowDefinition.EXAMPLE}


class WorkflowVersionItem(Serializer):
    """A version in a list: without its steps."""

    EXAMPLE: ClassVar[Example] = {"version": 1, "step_count": 2}

    version = serializers.IntegerField()
    step_count = serializers.IntegerField()
    description = nullable(serializers.CharField)
    created_at = serializers.DateTimeField()


class WorkflowVersionAnswer(WorkflowDefinition):
    """A definition that a workflow has or had; runs name theirs in `version`."""

    EXAMPLE: ClassVar[Example] = {**WorkflowDefinition.EXAMPLE, "version": 1}

    version = serializers.IntegerField()
    created_at = serializers.DateTimeField()


class WorkflowRunInput(Serializer):
    """A wish for a run of a workflow."""

    EXAMPLE: ClassVar[Example] = {"input": {"region": "eu"}}

    input = serializers.JSONField(required=False, help_text="Instead of the workflow's.")
    run_at = optional(serializers.DateTimeField)
    delay_s = optional(serializers.IntegerField, min_value=0, max_value=366 * 86_400)
    priority = optional(serializers.IntegerField, min_value=0, max_value=9, help_text="Among runs that wait. 5")
    labels = optional(serializers.DictField, child=label())
    depends_on = optional(DependsOnField, help_text="Executions that have to end first, as of any execution.")
    condition = optional(serializers.ChoiceField, choices=CONDITIONS)


class WorkflowPreviewAsk(WorkflowChange):
    """Members of a workflow: the preview is of what it would be with them."""

    EXAMPLE: ClassVar[Example] = {"steps": [EXTRACT]}


class PreviewJob(Serializer):
    """The job of a step."""

    EXAMPLE: ClassVar[Example] = {"name": "nightly load/extract", "kind": "http", "id": ID}

    id = nullable(serializers.UUIDField, help_text="Null of one that is written inline.")
    name = serializers.CharField()
    kind = serializers.ChoiceField(list(job_input.KINDS))
    paused = serializers.BooleanField()


class PreviewWorkflow(Serializer):
    """The workflow that a step runs."""

    EXAMPLE: ClassVar[Example] = {"name": "inner"}

    id = serializers.UUIDField()
    name = serializers.CharField()


class PreviewStep(Serializer):
    """A step of a preview."""

    EXAMPLE: ClassVar[Example] = {
        "name": "load", "type": "job", "level": 1, "starts": "when extract has succeeded", "timeout_s": 60,
        "max_attempts": 3, "priority": 5, "job": {**PreviewJob.EXAMPLE, "paused": False},
    }  # fmt: skip

    name = serializers.CharField()
    type = serializers.ChoiceField(["job", "workflow", "approval", "delay"])
    level = serializers.IntegerField(help_text="Length of the longest path to it, from 0.")
    starts = serializers.CharField(help_text="When it starts, in words.")
    job: Any = PreviewJob(allow_null=True)
    workflow = PreviewWorkflow(allow_null=True)
    items_max = nullable(serializers.IntegerField, help_text="With for_each: items at most.")
    items_at_once = nullable(serializers.IntegerField)
    timeout_s = nullable(serializers.IntegerField, help_text="Of one attempt.")
    max_attempts = nullable(serializers.IntegerField)
    priority = nullable(serializers.IntegerField)
    max_concurrency = nullable(serializers.IntegerField, help_text="Of this step in one run.")
    job_max_concurrency = nullable(serializers.IntegerField, help_text="Of its job, wherever it runs.")
    waits_for = nullable(serializers.CharField, help_text="What a step without a job waits for.")


class WorkflowPreviewAnswer(Serializer):
    """What would run in which order, and what limits it."""

    EXAMPLE: ClassVar[Example] = {
        "step_count": 2, "depth": 2, "width": 1, "levels": [["extract"], ["load"]],
    }  # fmt: skip

    step_count = serializers.IntegerField()
    depth = serializers.IntegerField(help_text="Steps on the longest path.")
    width = serializers.IntegerField(help_text="Most steps of one level.")
    levels = serializers.ListField(child=serializers.ListField(child=serializers.CharField()))
    steps = PreviewStep(many=True, help_text="By level.")
    max_active_runs = nullable(serializers.IntegerField)
    max_running = nullable(serializers.IntegerField, help_text="Of the plan: steps and other runs at once.")


class GraphNode(Serializer):
    """A step of a graph, with its place in the picture."""

    EXAMPLE: ClassVar[Example] = {"step": "extract", "type": "job", "join": "all", "job": ID}

    step = serializers.CharField()
    type = serializers.ChoiceField(["job", "workflow", "approval", "delay"])
    join = serializers.JSONField()
    job = nullable(serializers.UUIDField)
    workflow = nullable(serializers.UUIDField)
    for_each = serializers.BooleanField()
    level = serializers.IntegerField()
    x = serializers.FloatField()
    y = serializers.FloatField()
    width = serializers.FloatField()
    height = serializers.FloatField()


# "from" is a word of Python's.
GraphEdge = type(
    "GraphEdge",
    (Serializer,),
    {
        "__doc__": "A need: the second step waits for the first.",
        "EXAMPLE": {"from": "extract", "to": "load", "on": "succeeded"},
        "from": serializers.CharField(),
        "to": serializers.CharField(),
        "on": serializers.ChoiceField(["succeeded", "failed", "finished", "skipped"]),
    },
)


class WorkflowGraphAnswer(Serializer):
    """The steps of a workflow as a graph; places are for a picture of this width and height."""

    EXAMPLE: ClassVar[Example] = {"width": 400, "height": 120, "version": 1}

    version = serializers.IntegerField()
    width = serializers.FloatField()
    height = serializers.FloatField()
    nodes = GraphNode(many=True)
    edges: Any = GraphEdge(many=True)
