"""Workflows for tests: short ways to write steps, and random graphs."""

from typing import Any
from uuid import UUID

from hypothesis import strategies as st

from apps.schedules.job_input import JobRules
from apps.workflows.definitions.definition import Workflow
from apps.workflows.definitions.reading import Known, KnownJob, WorkflowForm, read_workflow
from kernel.errors import FieldError, InvalidInput

JOB, OTHER_JOB, WORKFLOW = UUID(int=1), UUID(int=2), UUID(int=3)
KNOWN = Known({JOB: KnownJob("python", 28_800), OTHER_JOB: KnownJob("http", 900)}, {WORKFLOW})
RULES = JobRules(network=(), max_payload_bytes=262_144, python_tasks=["shardbeat.noop"])
INLINE = {"kind": "python", "target": {"task": "shardbeat.noop"}, "payload": {"n": 1}}


def step(name: str, *needs: str, **more: Any) -> dict[str, Any]:
    """A step of a job as it is sent. Needs are written "parent" or "parent:failed"."""
    edges = [{"step": parent, "on": on or "succeeded"} for parent, _, on in (one.partition(":") for one in needs)]
    kind = {} if {"workflow", "approval", "delay_s"} & more.keys() else {"job": str(JOB)}
    return {"name": name, **kind, "needs": edges, **more}


def read(*steps: Any, **more: Any) -> WorkflowForm:
    """Reads a workflow. Raises InvalidInput."""
    return read_workflow({"name": "nightly", "steps": list(steps), **more}, rules=RULES, known=KNOWN)


def workflow(*steps: Any, **more: Any) -> Workflow:
    return read(*steps, **more).workflow


def faults(*steps: Any, **more: Any) -> list[FieldError]:
    """What is wrong with a workflow; an empty list when nothing is."""
    try:
        read(*steps, **more)
    except InvalidInput as bad:
        return bad.errors
    return []


@st.composite
def random_steps(draw: st.DrawFn, *, most: int = 12) -> list[dict[str, Any]]:
    """Steps of a random graph without cycles, in random order, with all joins and conditions."""
    count = draw(st.integers(1, most))
    made = []
    for at in range(count):
        above = draw(st.lists(st.integers(0, at - 1), unique=True, max_size=4)) if at else []
        join: Any = draw(st.sampled_from(["all", "all", "any", "none_failed", "at_least"])) if above else "all"
        ons = (
            st.just("succeeded")
            if join == "none_failed"
            else st.sampled_from(["succeeded"] * 3 + ["failed", "finished", "skipped"])
        )
        needs = [{"step": f"s{parent}", "on": draw(ons)} for parent in above]
        if join == "at_least":
            join = {"at_least": draw(st.integers(1, len(needs)))}
        made.append(
            {"name": f"s{at}", "job": str(JOB), "needs": needs, "join": join, "allow_failure": draw(st.booleans())}
        )
    return draw(st.permutations(made))
