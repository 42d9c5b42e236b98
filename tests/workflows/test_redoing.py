"""What a person's verbs do to the steps of a run."""

from itertools import pairwise
from uuid import UUID, uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apps.workflows.definitions.definition import Edge, JobRef, Step, Workflow
from apps.workflows.definitions.graph import Graph, graph_of
from apps.workflows.interventions import redoing
from apps.workflows.interventions.redoing import Row
from kernel.errors import Conflict

JOB = JobRef(UUID(int=1))


def graph(*edges: str, allowed: str = "", **joins: str) -> Graph:
    """Of "a>b" or "a>b:failed"; steps come in the order in which they are named."""
    needs: dict[str, list[Edge]] = {}
    for one in edges:
        pair, _, on = one.partition(":")
        parent, _, child = pair.partition(">")
        needs.setdefault(parent, [])
        if child:
            needs.setdefault(child, []).append(Edge(parent, on or "succeeded"))  # type: ignore[arg-type]  # from a text
    return graph_of(
        Workflow(
            tuple(
                Step(name, "job", JOB, needs=tuple(of), allow_failure=name in allowed, join=joins.get(name, "all"))  # type: ignore[arg-type]  # from a text
                for name, of in needs.items()
            )
        )
    )


def row(step: str, state: str, reason: str = "", *, item: int | None = None, ended: str | None = "dead") -> Row:
    ran = state in ("failed", "succeeded", "running")
    return Row(step, item, "job", state, reason, uuid4() if ran else None, ended if ran else None)


def named(changes: redoing.Changes) -> dict[str, str]:
    return {step if item is None else f"{step}[{item}]": to for (step, item), to in changes.items()}


def test_a_retry_goes_on_where_it_failed_and_decides_again_what_followed_from_that() -> None:
    chain = graph("a>b", "b>c", "c>d", "b>alarm:failed", "a>other", "other>skipped")
    rows = [
        row("a", "succeeded", ended="succeeded"),
        row("b", "failed"),
        row("c", "skipped", "upstream_failed"),
        row("d", "skipped", "upstream_failed"),
        row("alarm", "succeeded", ended="succeeded"),
        row("other", "skipped", "when_false"),
        row("skipped", "skipped", "upstream_skipped"),
    ]
    changes = redoing.retried(chain, rows)
    assert named(changes) == {"b": "reopen", "c": "wait", "d": "wait"}, "the handler has run, the condition stands"
    assert changes == redoing.retried(chain, rows, only=("b", None))
    with pytest.raises(Conflict) as not_failed:
        redoing.retried(chain, rows, only=("a", None))
    assert not_failed.value.extra["code"] == "step_not_failed"
    with pytest.raises(Conflict) as nothing:
        redoing.retried(chain, [row(name, "succeeded") for name in chain.steps])
    assert nothing.value.extra["code"] == "nothing_to_retry"


def test_what_was_not_dead_begins_anew_and_what_its_parents_are_asked_about_again_waits() -> None:
    two = graph("a>b:finished", "a>c", "x")
    rows = [row("a", "failed", ended="expired"), row("b", "failed"), row("c", "skipped", "upstream_failed")]
    rows += [row("x", "skipped", "fail_fast")]
    assert named(redoing.retried(two, rows)) == {"a": "start", "b": "wait", "c": "wait", "x": "wait"}
    # Only b: its parent has ended, and stays as it is. What fail_fast cut off belongs to the run's retry.
    assert named(redoing.retried(two, rows, only=("b", None))) == {"b": "reopen"}


def test_failures_that_are_allowed_are_run_again_only_by_name() -> None:
    rows = [row("a", "failed"), row("b", "succeeded")]
    loose = graph("a>b:finished", allowed="a")
    with pytest.raises(Conflict):
        redoing.retried(loose, rows)
    assert named(redoing.retried(loose, rows, only=("a", None))) == {"a": "reopen"}


def test_of_a_step_with_a_list_the_items_that_failed_run_again() -> None:
    rows = [
        row("a", "failed", "items_failed"),
        row("a", "succeeded", item=0, ended="succeeded"),
        row("a", "failed", item=1),
        row("a", "failed", item=2, ended="expired"),
        row("a", "skipped", "items_failed", item=3),
        row("b", "skipped", "upstream_failed"),
    ]
    rows[0] = rows[0]._replace(execution_id=None)
    mapped = graph("a>b")
    expected = {"a": "resume", "a[1]": "reopen", "a[2]": "start", "a[3]": "wait", "b": "wait"}
    assert named(redoing.retried(mapped, rows)) == expected
    assert named(redoing.retried(mapped, rows, only=("a", 1))) == {"a": "resume", "a[1]": "reopen", "b": "wait"}
    with pytest.raises(Conflict):
        redoing.retried(mapped, rows, only=("a", 0))
    assert named(redoing.rerun(mapped, rows, step="a")) == {
        "a": "start", "a[0]": "drop", "a[1]": "drop", "a[2]": "drop", "a[3]": "drop", "b": "wait"
    }  # fmt: skip


def test_a_rerun_takes_all_that_follows_and_waits_for_none_of_it_to_run() -> None:
    diamond = graph("a>b", "a>c", "b>d", "c>d", "z")
    rows = [row(name, "succeeded") for name in diamond.steps]
    assert named(redoing.rerun(diamond, rows, step="b")) == {"b": "start", "d": "wait"}
    rows[3] = row("d", "running")
    with pytest.raises(Conflict) as running:
        redoing.rerun(diamond, rows, step="b")
    assert "d" in running.value.detail
    rows[3] = row("d", "waiting")
    assert named(redoing.rerun(diamond, rows, step="b")) == {"b": "start"}
    with pytest.raises(Conflict):
        redoing.rerun(diamond, [row("z", "skipped", "when_false"), *rows[:4]], step="z")


def test_skipping_and_forcing() -> None:
    chain = graph("a>b", "b>c")
    rows = [row("a", "failed"), row("b", "skipped", "upstream_failed"), row("c", "skipped", "upstream_failed")]
    assert named(redoing.skipped(chain, rows, step="a")) == {"a": "skip", "b": "wait", "c": "wait"}
    assert named(redoing.forced(chain, rows, step="b")) == {"b": "start", "c": "wait"}, "F12"
    waiting = [row("a", "running"), row("b", "waiting"), row("c", "waiting")]
    assert named(redoing.skipped(chain, waiting, step="b")) == {"b": "skip"}
    assert named(redoing.forced(chain, waiting, step="b")) == {"b": "start"}
    for verb in (redoing.skipped, redoing.forced):
        with pytest.raises(Conflict):
            verb(chain, waiting, step="a")
    waiting[0] = Row("a", None, "approval", "running", "")
    assert named(redoing.skipped(chain, waiting, step="a")) == {"a": "skip"}


def test_a_cancelled_branch_leaves_joins_with_others_to_their_rule() -> None:
    two = graph("a>b", "b>c", "c>join", "x>join", "join>end")
    rows = [row(name, "waiting") for name in two.steps if name not in "ax"] + [row("a", "running"), row("x", "running")]
    assert named(redoing.branch_cancelled(two, rows, step="a", branch=False)) == {"a": "stop"}
    assert named(redoing.branch_cancelled(two, rows, step="a", branch=True)) == {
        "a": "stop", "b": "cancel", "c": "cancel"
    }  # fmt: skip
    chain = graph(*(f"{one}>{after}" for one, after in pairwise("stuvwxyz")))
    ends = redoing.branch_cancelled(chain, [row(one, "waiting") for one in chain.steps], step="u", branch=True)
    assert [name for name, _ in ends] == list("uvwxyz"), "the one that was named is the first that failed the run"
    with pytest.raises(Conflict):
        redoing.branch_cancelled(graph("a"), [row("a", "succeeded")], step="a", branch=True)
    items = [row("a", "succeeded", item=0), row("a", "running", item=1), row("a", "waiting", item=2)]
    assert named(redoing.branch_cancelled(two, [*rows, *items], step="a", branch=False)) == {
        "a": "cut", "a[1]": "stop", "a[2]": "cancel"
    }, "the step ends with its items, however many of them may fail"  # fmt: skip


NAMES = "abcdefgh"
EDGES = st.sets(
    st.tuples(st.sampled_from(NAMES), st.sampled_from(NAMES)).filter(lambda pair: pair[0] < pair[1]), max_size=14
)


@given(EDGES, st.lists(st.sampled_from(["succeeded", "failed", "cancelled", "skipped"]), min_size=8, max_size=8))
def test_no_verb_runs_again_what_nobody_asked_for(edges: set[tuple[str, str]], states: list[str]) -> None:
    some = graph(*NAMES, *(f"{a}>{b}" for a, b in sorted(edges)))
    rows = [
        row(name, state, "upstream_failed" if state == "skipped" else "")
        for name, state in zip(NAMES, states, strict=True)
    ]
    by_name = {one.step: one for one in rows}
    if {"failed", "cancelled"} & set(states):
        changes = named(redoing.retried(some, rows))
        assert not any(by_name[name].state == "succeeded" for name in changes)
        for name, to in changes.items():
            parents = {edge.parent for edge in some.steps[name].needs}
            assert to != "reopen" or not parents & set(changes), "it goes on only when all that it needs stays"
    for name in NAMES:
        if by_name[name].state != "skipped":
            again = named(redoing.rerun(some, rows, step=name))
            assert set(again) == {name} | some.downstream([name])
            assert [one for one, to in again.items() if to == "start"] == [name]
