"""What owners write: what comes of it, and each thing that is wrong with its place."""

import time
from typing import Any
from uuid import UUID, uuid4

import pytest

from apps.workflows.definitions.definition import (
    After,
    Approval,
    Condition,
    Edge,
    ForEach,
    Handler,
    JobRef,
    Overrides,
    from_json,
    to_json,
)
from apps.workflows.definitions.reading import known_job, references
from tests.workflows.making import INLINE, JOB, OTHER_JOB, WORKFLOW, faults, read, step, workflow

EVERYTHING = {
    "failure_policy": "compensate",
    "on_failure": {"job": str(OTHER_JOB), "input": {"text": "{{ run.workflow }}: {{ run.error.message }}"}},
    "deadline_s": 7_200,
    "max_active_runs": 1,
    "input": {"regions": ["eu", "us"]},
    "output": {"rows": "{{ steps.load.result.rows }}"},
    "after": [{"workflow": str(WORKFLOW), "on": "finished"}],
    "labels": {"team": "data"},
    "external_id": "wf-1",
    "description": "Loads what\ncame in.",
}
STEPS = [
    step("extract", retry={"max_attempts": 5}, timeout_s=60, max_concurrency=2, priority=9),
    step(
        "transform",
        "extract",
        job=INLINE,
        input={"region": "{{ item }}", "at": "{{ index }}"},
        for_each={"items": "{{ input.regions }}", "max_in_flight": 2, "max_failures": 1},
        when=[{"value": "{{ steps.extract.result.rows }}", "greater_than": 0}],
    ),
    step("ask", "transform", approval={"role": "admin", "timeout_s": 60, "on_timeout": "skipped", "message": "Load?"}),
    step("pause", "extract:finished", "ask:skipped", delay_s=30, join="any", allow_failure=True),
    step(
        "child", "pause", "ask", workflow=str(WORKFLOW), join={"at_least": 1}, input={"a": 1}, depends_on_previous=True
    ),
    step("load", "child", "pause", join="none_failed", compensate={"job": INLINE, "input": "{{ steps.load.result }}"}),
]


def found(errors: list[Any]) -> list[tuple[str, str]]:
    return [(error.pointer, error.code) for error in errors]


def test_everything_is_read_and_comes_back_from_storage() -> None:
    form = read(*STEPS, **EVERYTHING)
    assert (form.name, form.labels, form.external_id, form.max_active_runs) == ("nightly", {"team": "data"}, "wf-1", 1)
    assert form.input == {"regions": ["eu", "us"]}
    assert form.inline.keys() == {"steps/transform", "steps/load/compensate"}
    assert form.inline["steps/transform"].definition.payload == {"n": 1}
    ids = {place: uuid4() for place in form.inline}
    made = form.workflow.with_jobs(ids)
    extract, transform, ask, pause, child, load = made.steps
    assert extract.overrides == Overrides({"max_attempts": 5}, 60, 2, 9) and extract.job == JobRef(JOB)
    assert transform.job == JobRef(ids["steps/transform"], inline=True)
    assert transform.for_each == ForEach("{{ input.regions }}", 1_000, 2, 1)
    assert transform.when == (Condition("{{ steps.extract.result.rows }}", "greater_than", 0),)
    assert ask.approval == Approval("admin", 60, "skipped", "Load?") and ask.type == "approval"
    assert pause.needs == (Edge("extract", "finished"), Edge("ask", "skipped")) and pause.allow_failure
    assert (child.join, child.at_least, child.workflow_id, child.depends_on_previous) == ("at_least", 1, WORKFLOW, True)
    assert load.compensate == Handler(JobRef(ids["steps/load/compensate"], inline=True), "{{ steps.load.result }}")
    assert made.on_failure is not None and made.on_failure.job == JobRef(OTHER_JOB)
    assert made.after == (After(WORKFLOW, "finished"),) and made.description == "Loads what\ncame in."
    stored = to_json(made)
    assert from_json(stored) == made
    assert stored["uses"] == sorted(map(str, [JOB, OTHER_JOB, *ids.values()])) and stored["calls"] == [str(WORKFLOW)]
    assert references({"steps": STEPS, **EVERYTHING}) == ({JOB, OTHER_JOB}, {WORKFLOW})


def test_the_least() -> None:
    made = workflow({"name": "a", "job": str(JOB)})
    assert to_json(made) == {
        "steps": [{"name": "a", "job": str(JOB)}], "failure_policy": "continue", "uses": [str(JOB)], "calls": [],
    }  # fmt: skip
    assert from_json(to_json(made)) == made


@pytest.mark.parametrize(
    ("steps", "errors"),
    [
        ([step("a", "b"), step("b", "c"), step("c", "a")], [("/steps", "cycle")]),
        ([step("a", "a")], [("/steps", "cycle")]),
        ([step("a"), step("b", "aa")], [("/steps/1/needs/0", "unknown_step")]),
        ([step("a"), step("a")], [("/steps/1/name", "duplicate_name")]),
        ([step("a"), step("b", "a", "a")], [("/steps/1/needs/1", "duplicate")]),
        ([step("a"), step("b", "a", "a:failed")], [("/steps/1/needs", "contradiction")]),
        ([step("a"), step("b", "a:skipped", "a:failed")], [("/steps/1/needs", "contradiction")]),
        ([step("a"), step("b", "a", "a:finished")], []),
        ([step("a"), step("b", "a", "a:skipped", join="any")], []),
        ([step("a"), step("b", "a", "a:failed", join={"at_least": 2})], [("/steps/1/join", "contradiction")]),
        ([step("a"), step("b", "a", join={"at_least": 2})], [("/steps/1/join", "range")]),
        ([step("a"), step("b", "a:failed", join="none_failed")], [("/steps/1/needs", "contradiction")]),
        ([step("a", join="any")], [("/steps/0/join", "contradiction")]),
        # b is there for a failure of a; what needs both can't start, and neither can what needs that.
        (
            [step("a"), step("b", "a:failed"), step("c", "a", "b"), step("d", "c"), step("e", "c", "a", join="any")],
            [("/steps/2/needs", "unreachable"), ("/steps/3/needs", "unreachable")],
        ),
        ([step("a"), step("b", "a:failed"), step("c", "a", "b", join="none_failed")], []),
        (
            [step("a"), step("b", "a:failed"), step("c", "a", "b"), step("d", "c:skipped")],
            [("/steps/2/needs", "unreachable")],
        ),
        ([step("a"), step("b", "a"), step("n", "a:failed", "b:failed")], [("/steps/2/needs", "unreachable")]),
        ([step("a", input="{{ steps.b.result }}"), step("b", "a")], [("/steps/0/input", "not_upstream")]),
        ([step("a"), step("b", "a", input={"x": ["{{ steps.a.rows }}"]})], [("/steps/1/input/x/0", "bad_template")]),
        ([step("a", when=[{"value": "{{ item }}", "equals": 1}])], [("/steps/0/when/0/value", "bad_template")]),
        ([step("a", delay_s=1, job=str(JOB))], [("/steps/0", "contradiction")]),
        ([{"name": "a"}], [("/steps/0", "required")]),
        ([3, {"job": str(JOB)}], [("/steps/0", "type"), ("/steps/1/name", "required")]),
        ([step("A b")], [("/steps/0/name", "invalid_name")]),
        ([step("a", delay_s=1, retry={"max_attempts": 2})], [("/steps/0/retry", "not_for_type")]),
        ([step("a", colour="red")], [("/steps/0/colour", "unknown_field")]),
        ([step("a", job=str(UUID(int=9)))], [("/steps/0/job", "unknown_job")]),
        ([step("a", job="x")], [("/steps/0/job", "type")]),
        ([step("a", workflow=str(JOB))], [("/steps/0/workflow", "unknown_workflow")]),
        ([step("a", job=str(OTHER_JOB), timeout_s=901)], [("/steps/0/timeout_s", "range")]),
        ([step("a", retry={"retry_on": ["time_out"]})], [("/steps/0/retry/retry_on/0", "unknown_value")]),
        ([step("a", job={**INLINE, "name": "x"})], [("/steps/0/job/name", "unknown_field")]),
        ([step("a", job={"kind": "python", "target": {"task": "no"}})], [("/steps/0/job/target/task", "unknown_task")]),
        ([step("a", for_each={"items": "{{ input.a }}s"})], [("/steps/0/for_each/items", "type")]),
        ([step("a", for_each={"items": [1, 2], "max_items": 1})], [("/steps/0/for_each/items", "too_many")]),
        ([step("a", approval=[])], [("/steps/0/approval", "not_an_object")]),
        ([step("a", when=[{"value": 1}])], [("/steps/0/when/0", "type")]),
        ([step("a", when=[{"value": 1, "in": 2}])], [("/steps/0/when/0/in", "type")]),
        ([step("a", when=[{"value": 1, "less_than": None}])], [("/steps/0/when/0/less_than", "type")]),
        ([step("a", approval={"role": "owner"})], [("/steps/0/approval/role", "choice")]),
        (
            [step("a", approval={"on_timeout": "later", "x": 1})],
            [("/steps/0/approval/x", "unknown_field"), ("/steps/0/approval/on_timeout", "choice")],
        ),
        ([step("a", compensate={"job": str(JOB)})], [("/steps/0/compensate", "contradiction")]),
        ([step("a", needs=[{"step": "b", "on": "done"}])], [("/steps/0/needs/0/on", "choice")]),
        ([step("a", needs={"step": "b"})], [("/steps/0/needs", "range")]),
        (
            [step("a", join={"at_least": 0}), step("b", "a", join="most")],
            [("/steps/0/join", "choice"), ("/steps/1/join", "choice")],
        ),
        ([], [("/steps", "range")]),
    ],
)
def test_what_is_wrong_with_steps(steps: list[Any], errors: list[tuple[str, str]]) -> None:
    assert sorted(found(faults(*steps))) == sorted(errors)


@pytest.mark.parametrize(
    ("more", "errors"),
    [
        ({"failure_policy": "stop"}, [("/failure_policy", "choice")]),
        ({"deadline_s": 0}, [("/deadline_s", "range")]),
        ({"max_active_runs": True}, [("/max_active_runs", "range")]),
        ({"on_failure": {"input": 1}}, [("/on_failure/job", "required")]),
        ({"on_failure": "x"}, [("/on_failure", "type")]),
        ({"on_failure": {"job": str(JOB), "input": "{{ steps.b.error }}"}}, [("/on_failure/input", "not_upstream")]),
        ({"output": "{{ run.error }}"}, [("/output", "bad_template")]),
        ({"after": [{"workflow": str(JOB)}]}, [("/after/0/workflow", "unknown_workflow")]),
        ({"after": [{"workflow": str(WORKFLOW), "on": "skipped"}]}, [("/after/0/on", "choice")]),
        ({"after": [{"workflow": str(WORKFLOW)}] * 2}, [("/after/1/workflow", "duplicate")]),
        ({"version": 3, "colour": 1}, [("/colour", "unknown_field"), ("/version", "read_only")]),
        ({"name": None, "description": 3}, [("/description", "type"), ("/name", "required")]),
        ({"steps": None}, [("/steps", "required")]),
        ({"input": "\x00"}, [("/input", "invalid_character")]),
        ({"input": "x" * 300_000}, [("", "too_large")]),
    ],
)
def test_what_is_wrong_with_the_rest(more: dict[str, Any], errors: list[tuple[str, str]]) -> None:
    assert sorted(found(faults(step("a"), **more))) == errors


def test_faults_say_what_to_do() -> None:
    cycle = faults(step("load", "transform"), step("transform", "check"), step("check", "load"), step("end", "load"))
    assert cycle[0].detail == "These steps wait for each other: load -> check -> transform -> load."
    assert faults(step("extract"), step("b", "extrac"))[0].detail == (
        "There is no step 'extrac'. Did you mean 'extract'?"
    )
    assert "'a' ends in two ways" in faults(step("a"), step("b", "a:failed"), step("c", "a", "b"))[0].detail
    assert found(faults(*"ab", name=7)) == [("/name", "type"), ("/steps/0", "type"), ("/steps/1", "type")]


def test_bounds_and_what_large_ones_cost() -> None:
    began = time.process_time()
    chain = [step(f"s{at}", *([f"s{at - 1}"] if at else [])) for at in range(501)]
    assert found(faults(*chain)) == [("/steps", "too_deep")] and not faults(*chain[:500])
    assert found(faults(*(step(f"s{at}") for at in range(1_001)))) == [("/steps", "range")]
    wide = [step("s"), *(step(f"m{at}", "s") for at in range(998)), step("e", *(f"m{at}" for at in range(998)))]
    assert len(workflow(*wide).steps) == 1_000
    ring = [step(f"s{at}", f"s{(at - 1) % 300}") for at in range(300)]
    assert faults(*ring)[0].detail.endswith("s17 -> s18 -> ... -> s0.")
    assert time.process_time() - began < 10


def test_how_long_an_attempt_may_take_follows_from_the_job() -> None:
    assert known_job("http", {"url": "https://example.com"}).attempt_max_s == 900
    assert known_job("http", {"url": "https://example.com", "completion": "callback"}).attempt_max_s == 28_800
    assert known_job("container", {}) == ("container", 28_800)
