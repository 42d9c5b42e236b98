"""Why a step of a workflow waits, what it is up to, or why it ended so."""

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest

from apps.dispatch.explaining.ended import By
from apps.dispatch.explaining.steps import Before, Parent, RunNow, StepNow, run_verdict, step_verdict
from apps.dispatch.explaining.words import STEP_WORDS, WORDS
from apps.workflows.definitions.definition import Approval, Edge, ForEach, Step

NOW = datetime(2026, 11, 30, 9, tzinfo=UTC)
RUN = RunNow(UUID(int=7), "running", None)
STEP = Step("load", "job", needs=(Edge("a"), Edge("b"), Edge("c")))


def row(state: str = "waiting", **more: Any) -> StepNow:
    blank = StepNow(
        "load", None, "job", state, "", None, None, None, None, NOW if state != "waiting" else None, False, "", "",
        None, 0, 0,
    )  # fmt: skip
    return blank._replace(**more)


PARENTS = [Parent("a", "succeeded", "succeeded", True), Parent("b", "failed", "running", None)]


@pytest.mark.parametrize(
    ("join", "at_least", "said"),
    [
        ("all", 0, "It waits until 'b' fails (it is running)."),
        ("any", 0, "1 of 1 that it needs are met"),
        ("at_least", 2, "1 of 2 that it needs are met; it waits until 'b' fails"),
        ("none_failed", 0, "It is decided when all that it needs has ended"),
    ],
)
def test_what_a_waiting_step_waits_for_is_named_by_its_join_rule(join: Any, at_least: int, said: str) -> None:
    step = Step("load", "job", needs=STEP.needs, join=join, at_least=at_least)
    found = step_verdict(RUN, row(), step, PARENTS, now=NOW)
    assert found.code == "waits_for_steps"
    assert found.fine
    assert said in found.detail


def test_what_holds_the_run_goes_before_what_the_step_waits_for() -> None:
    by = By("ana", NOW)
    paused = RUN._replace(state="paused", paused_at=NOW, paused_reason="the source is down.")
    told = step_verdict(paused, row(), STEP, PARENTS, by=by, now=NOW)
    assert told.code == "run_paused"
    assert "2026-11-30T09:00:00Z by ana: the source is down." in told.detail
    stopping = step_verdict(RUN._replace(state="cancelling"), row(), STEP, PARENTS, now=NOW)
    assert stopping.code == "run_cancelling"
    before = step_verdict(RUN, row(), STEP, [], before=Before(UUID(int=6), "running"), now=NOW)
    assert before.code == "waits_for_previous"
    assert before.thing is not None
    assert before.thing.key == str(UUID(int=6))


def test_what_a_running_step_is_up_to() -> None:
    since = {"started_at": NOW - timedelta(minutes=2), "finished_at": None}
    wake = NOW + timedelta(hours=1)
    approval = Step("load", "approval", approval=Approval(role="admin"))
    asked = step_verdict(RUN, row("running", type="approval", wake_at=wake, **since), approval, [], now=NOW)
    assert (asked.code, asked.clears_at, asked.fine) == ("awaits_approval", wake, False)
    assert "role admin" in asked.detail
    delay = Step("load", "delay", delay_s=5)
    delayed = step_verdict(RUN, row("running", type="delay", wake_at=wake, **since), delay, [], now=NOW)
    assert (delayed.code, delayed.fine) == ("step_delay", True)
    mapped = Step("load", "job", for_each=ForEach([1, 2, 3], max_in_flight=2))
    items = step_verdict(RUN, row("running", items=3, items_open=2, items_failed=1, **since), mapped, [], now=NOW)
    assert (items.code, items.use, items.limit, items.fine) == ("items_running", 1, 3, False)
    item = step_verdict(RUN, row(item=2), mapped, [], now=NOW)
    assert (item.code, item.limit) == ("items_in_flight", 2)
    child = step_verdict(RUN, row("running", type="workflow", execution_id=UUID(int=9), **since), None, [], now=NOW)
    assert child.thing is not None
    assert (child.code, child.thing.key) == ("sub_workflow", str(UUID(int=9)))


def test_why_a_step_ended_so() -> None:
    failed = [Parent("a", "succeeded", "failed", False)]
    skipped = step_verdict(RUN, row("skipped", reason="upstream_failed"), STEP, failed, now=NOW)
    assert skipped.code == "upstream_failed"
    assert "Not met: 'a' (succeeded was asked, it is failed)." in skipped.detail
    person = row("skipped", reason="by_person", decided_by="ana", note="not today")
    assert "ana said so: not today." in step_verdict(RUN, person, STEP, [], now=NOW).detail
    late = step_verdict(RUN, row("failed", reason="approval_timeout", type="approval"), None, [], now=NOW)
    assert "nobody had decided in time" in late.detail
    broken = row("failed", error={"message": "no such host"})
    assert "no such host" in step_verdict(RUN, broken, STEP, [], now=NOW).detail
    for state in ("succeeded", "cancelled", "failed", "skipped"):
        assert step_verdict(RUN, row(state), None, [], now=NOW).code in WORDS


def test_a_run_says_which_of_its_steps_needs_somebody() -> None:
    waits = step_verdict(RUN, row(), STEP, PARENTS, now=NOW)
    asked = step_verdict(RUN, row("running", type="approval"), None, [], now=NOW)
    rest: dict[str, Any] = {"error": None, "reason": "", "finished_at": None, "by": None}
    found = run_verdict(RUN, [("load", waits), ("ok", asked)], **rest)
    assert found.code == "awaits_approval"
    assert found.detail.startswith("Step 'ok': ")
    runs = step_verdict(RUN, row("running"), None, [], now=NOW)
    assert run_verdict(RUN, [("load", waits), ("b", runs)], **rest).detail == "It is at 'b'."
    ended = {**rest, "error": {"step": "b", "message": "boom"}, "finished_at": NOW}
    gone = run_verdict(RUN._replace(state="failed"), [], **ended)
    assert "Step 'b' failed it. The error: boom" in gone.detail
    late = run_verdict(RUN._replace(state="failed", deadline_at=NOW), [], **{**ended, "reason": "deadline"})
    assert {gone.code, late.code} <= set(STEP_WORDS)
