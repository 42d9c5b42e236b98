"""What a failed run still does: compensations in reverse order, then on_failure, once for each failure."""

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from apps.workflows.definitions.definition import Handler, JobRef, Step, Workflow
from apps.workflows.definitions.graph import Graph, graph_of
from apps.workflows.runs.closing import ON_FAILURE_STEP, Row, closing, handler_of

JOB = JobRef(UUID(int=1))
NOW = datetime(2026, 11, 30, 9, tzinfo=UTC)


def graph(policy: Any = "compensate", *, tells: bool = True) -> Graph:
    undone = Handler(JobRef(UUID(int=2)))
    steps = tuple(
        Step(name, "job", JOB, compensate=None if name == "plain" else undone) for name in ("a", "b", "plain")
    )
    return graph_of(
        Workflow((*steps, Step("bad", "job", JOB)), policy, Handler(JobRef(UUID(int=3))) if tells else None)
    )


def rows(**more: Row) -> list[Row]:
    found = {
        "b": Row("b", "job", "succeeded", 1, NOW),
        "a": Row("a", "job", "succeeded", 1, NOW + timedelta(seconds=1)),
        "plain": Row("plain", "job", "succeeded", 1, NOW),
        "bad": Row("bad", "job", "failed", 1, NOW),
    }
    return [*(found | more).values()]


def beside(step: str, state: str, *, generation: int = 1) -> Row:
    kind = "on_failure" if step == ON_FAILURE_STEP else "compensation"
    return Row(step, kind, state, generation, NOW if state not in ("waiting", "running") else None)


def test_what_ended_last_is_compensated_first_and_one_at_a_time() -> None:
    some = graph()
    assert closing(some, rows(), generation=1) == ("undo.a", "compensation")
    going = {"undo.a": beside("undo.a", "running")}
    assert closing(some, rows(**going), generation=1) == ("undo.a", "compensation"), "one that is being begun"
    going["undo.a"] = beside("undo.a", "failed")
    assert closing(some, rows(**going), generation=1) == ("undo.b", "compensation"), "a failed one stops nothing"
    going["undo.b"] = beside("undo.b", "succeeded")
    assert closing(some, rows(**going), generation=1) == (ON_FAILURE_STEP, "on_failure")
    assert handler_of(some, "undo.a") == some.steps["a"].compensate
    assert handler_of(some, ON_FAILURE_STEP) == some.workflow.on_failure
    assert handler_of(some, "a") is None


def test_on_failure_runs_once_for_each_time_that_the_run_fails() -> None:
    some = graph("continue")
    assert closing(some, rows(), generation=1) == (ON_FAILURE_STEP, "on_failure")
    told = {ON_FAILURE_STEP: beside(ON_FAILURE_STEP, "failed")}
    assert closing(some, rows(**told), generation=1) is None
    assert closing(some, rows(**told), generation=2) == (ON_FAILURE_STEP, "on_failure"), "the run was retried"
    assert closing(graph("fail_fast", tells=False), rows(), generation=1) is None
