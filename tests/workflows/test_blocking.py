"""What a step waits for, in words."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from apps.workflows.definitions.definition import Edge, Step
from apps.workflows.views.blocking import blocked_by

NOW = datetime(2026, 11, 30, tzinfo=UTC)
LATER = NOW + timedelta(hours=1)
NEEDS = tuple(Edge(name) for name in "abcde")


def said(step: Step | None = None, **more: Any) -> str:
    given: dict[str, Any] = {"state": "waiting", "type_": "job", "run_state": "running", "states": {}, "now": NOW}
    return blocked_by(step, **(given | more))


@pytest.mark.parametrize(("expected", "step", "more"), [
    ("", None, {"state": "failed"}),
    ("", None, {"state": "running", "execution_state": "running"}),
    ("the run is paused", Step("x", "job"), {"run_state": "paused"}),
    ("", None, {"run_state": "paused", "state": "running", "execution_state": "running"}),
    ("its definition can't be read", None, {}),
    ("its turn comes with the next look at the run", Step("x", "job", needs=NEEDS[:1]), {"states": {"a": "failed"}}),
    ("needs 'b' to fail, which is running", Step("x", "job", needs=(Edge("a"), Edge("b", "failed"))),
     {"states": {"a": "succeeded", "b": "running"}}),
    ("needs 'a' to succeed, which is waiting; 'b' to succeed, which is waiting; 'c' to succeed, which is waiting; "
     "2 more", Step("x", "job", needs=NEEDS), {}),
    ("needs any of: 'a' to succeed, which is running; 'b' to succeed, which is waiting",
     Step("x", "job", needs=NEEDS[:2], join="any"), {"states": {"a": "running"}}),
    ("somebody is to approve or reject it", None, {"state": "running", "type_": "approval", "wake_at": LATER}),
    ("its delay", None, {"state": "running", "type_": "delay", "wake_at": LATER}),
    ("its delay is over, and the next look ends it", None, {"state": "running", "type_": "delay", "wake_at": NOW}),
    ("3 of its 1,200 items have not ended", None, {"state": "running", "items": 1_200, "items_open": 3}),
    ("its execution waits for a worker's slot", None, {"state": "running", "execution_state": "ready"}),
    ("its own run of a workflow", None, {"state": "running", "type_": "workflow", "execution_state": "running"}),
])  # fmt: skip
def test_what_a_step_waits_for(expected: str, step: Step | None, more: dict[str, Any]) -> None:
    assert said(step, **more) == expected
