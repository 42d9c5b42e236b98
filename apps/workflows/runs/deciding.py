"""What follows from the end of a step: pure, over values.

A step counts what its needs came to (`Needs`), one edge at a time, so the cost of an end follows from the number of its
children and not from the size of the graph. The counters are exact because whoever changes a run holds its lock; they
can be made again from the states of the parents at any time (`counted`).
"""

from collections.abc import Iterable, Mapping
from typing import Literal, NamedTuple

from apps.workflows.definitions.definition import On, Step, Workflow
from apps.workflows.definitions.graph import Graph

StepState = Literal["waiting", "running", "succeeded", "failed", "skipped", "cancelled"]
RunEnd = Literal["succeeded", "failed", "cancelled"]
FINAL = ("succeeded", "failed", "skipped", "cancelled")
# Why a step was skipped.
UPSTREAM_FAILED, UPSTREAM_SKIPPED, WHEN_FALSE, FAIL_FAST, DEADLINE, BY_PERSON = (
    "upstream_failed", "upstream_skipped", "when_false", "fail_fast", "deadline", "by_person",
)  # fmt: skip
# Skipped since something failed further up: what comes after it failed for the same reason.
_FOR_A_FAILURE = (UPSTREAM_FAILED, FAIL_FAST, DEADLINE)


class End(NamedTuple):
    """How a step ended: a final state and its reason."""

    state: str
    reason: str = ""


class Needs(NamedTuple):
    """Counters of a step's edges: parents not final, edges met, parents that failed, parents that succeeded."""

    pending: int
    met: int = 0
    failed: int = 0
    succeeded: int = 0


class Verdict(NamedTuple):
    """What becomes of a waiting step. `reason` says why it is skipped."""

    kind: Literal["wait", "start", "skip"]
    reason: str = ""


class Round(NamedTuple):
    """What the ends of some steps change: counters of steps that wait, and those that start or are skipped.

    A step that is to start or to be skipped is in `needs` as well. Skipped steps are ends: the next round begins with
    them. So do the started ones of which a condition turns out false.
    """

    needs: dict[str, Needs]
    start: list[str]
    skip: dict[str, str]  # with the reason

    @property
    def ends(self) -> dict[str, End]:
        """The skipped steps as ends."""
        return {name: End("skipped", reason) for name, reason in self.skip.items()}


WAIT, START = Verdict("wait"), Verdict("start")


def meets(on: On, end: End) -> bool:
    """Whether a parent's end fits an edge. A step skipped since something before it failed has not failed itself."""
    if on == "finished":
        return True
    if on == "failed":
        return end.state in ("failed", "cancelled")
    return end.state == on


def is_failure(end: End) -> bool:
    """Whether what comes after such an end came to nothing because something failed."""
    return end.state in ("failed", "cancelled") or (end.state == "skipped" and end.reason in _FOR_A_FAILURE)


def unmet(step: Step) -> Needs:
    """The counters of a step when its run begins."""
    return Needs(len(step.needs))


def noted(needs: Needs, on: On, end: End) -> Needs:
    """The counters after one parent ended."""
    return Needs(
        needs.pending - 1,
        needs.met + meets(on, end),
        needs.failed + is_failure(end),
        needs.succeeded + (end.state == "succeeded"),
    )


def counted(step: Step, ends: Mapping[str, End]) -> Needs:
    """The counters made anew from the ends of the parents; parents that are not final are left out of `ends`."""
    needs = unmet(step)
    for parent, on in step.needs:
        if parent in ends:
            needs = noted(needs, on, ends[parent])
    return needs


def decide(step: Step, needs: Needs) -> Verdict:
    """Whether a waiting step starts, is skipped, or waits on."""
    if not step.needs:
        return START
    wanted = {"any": 1, "at_least": step.at_least}.get(step.join)
    if wanted is not None and needs.met >= wanted:
        return START
    if needs.pending > 0:
        return WAIT
    if step.join == "all" and needs.met == len(step.needs):
        return START
    if step.join == "none_failed" and needs.failed == 0 and needs.succeeded > 0:
        return START
    return Verdict("skip", UPSTREAM_FAILED if needs.failed else UPSTREAM_SKIPPED)


def begin(graph: Graph) -> Round:
    """The first round of a run: all steps with their counters, and those that start at once."""
    needs = {name: unmet(step) for name, step in graph.steps.items()}
    return Round(needs, list(graph.roots), {})


def children_of(graph: Graph, ended: Iterable[str]) -> list[str]:
    """The steps whose rows a round needs, in the order of the definition."""
    found = {child for name in ended for child, _ in graph.children[name]}
    return sorted(found, key=graph.place.__getitem__)


def advance(graph: Graph, ended: Mapping[str, End], waiting: Mapping[str, Needs]) -> Round:
    """One round: what the ends of `ended` mean for their children.

    `waiting` are the counters of those children that still wait; whatever has started or ended is left out.
    """
    needs: dict[str, Needs] = {}
    for name, end in ended.items():
        for child, on in graph.children[name]:
            if child in waiting:
                needs[child] = noted(needs.get(child, waiting[child]), on, end)
    start: list[str] = []
    skip: dict[str, str] = {}
    for child in sorted(needs, key=graph.place.__getitem__):
        verdict = decide(graph.steps[child], needs[child])
        if verdict.kind == "start":
            start.append(child)
        elif verdict.kind == "skip":
            skip[child] = verdict.reason
    return Round(needs, start, skip)


# -- ends of steps and of runs ----------------------------------------------------------------------------------------


def end_of_step(execution_state: str, reason: str = "") -> End | None:
    """How a step ends with its execution; None while that is not finished."""
    if execution_state in ("dead", "expired"):
        return End("failed", reason)
    if execution_state in ("succeeded", "cancelled", "skipped"):
        return End(execution_state, reason)
    return None


def fails_run(step: Step, end: End) -> bool:
    """Whether this end makes the run fail."""
    return end.state in ("failed", "cancelled") and not step.allow_failure


def stops_run(workflow: Workflow, step: Step, end: End) -> bool:
    """Whether this end stops what else the run does: what runs is asked to end, what waits is skipped (`cut_off`)."""
    return workflow.failure_policy != "continue" and fails_run(step, end)


def cut_off(graph: Graph, waiting: Iterable[str]) -> list[str]:
    """Which of the waiting steps are skipped when the run stops at its first failure.

    Handlers are left to be decided: what is there for a failure runs, and so does what only follows from it.
    """
    return [name for name in waiting if name not in graph.handlers]


def end_of_run(*, open_steps: int, failed_steps: int, cancelled: bool) -> RunEnd | None:
    """The state of a run, in the one place that knows it; None while a step is open."""
    if open_steps > 0:
        return None
    if cancelled:
        return "cancelled"
    return "failed" if failed_steps > 0 else "succeeded"


def end_of_map(*, open_items: int, failed_items: int, max_failures: int) -> End | None:
    """How a step with an execution for each item ends; None while an item is open."""
    if open_items > 0:
        return None
    return End("failed", "items_failed") if failed_items > max_failures else End("succeeded")


def map_goes_on(*, failed_items: int, max_failures: int) -> bool:
    """Whether further items are begun: once too many failed the step fails whatever the rest would bring."""
    return failed_items <= max_failures
