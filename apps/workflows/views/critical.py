"""Where the time of a run went: one bar a step, and the chain of steps that made it as long as it is. Pure.

The critical path is read backwards: from the step that ended last to the need that let it start, and so on to the
beginning. What a step waited between being released and its first attempt (a limit, a queue) is told apart from what it
ran. `slack_s` of a step is how much later it could have ended without the run ending later, had all else taken as long.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

from apps.workflows.definitions.definition import Step
from apps.workflows.definitions.graph import Graph, parents_of, topological
from apps.workflows.runs.deciding import End, meets


class Times(NamedTuple):
    """What is known of one step of a run. `released_at` is when its needs let it start, `began_at` its first attempt.

    A step without an execution of its own (a delay, an approval) has no `began_at`; one that was skipped ended only.
    """

    state: str
    reason: str = ""
    released_at: datetime | None = None
    began_at: datetime | None = None
    finished_at: datetime | None = None


class Bar(NamedTuple):
    """One step in a Gantt chart. Seconds count from the start of the run; a step that goes on ends now.

    `freed_by` is the need whose end let it start. Steps that still wait have no bar.
    """

    step: str
    state: str
    reason: str
    start_s: float
    begin_s: float  # of the first attempt: before it, the step waited for a place
    end_s: float
    freed_by: str | None
    critical: bool
    slack_s: float


class Link(NamedTuple):
    """One step of the critical path: what it waited since the step before it ended, and what it ran, in seconds."""

    step: str
    waited_s: float
    ran_s: float


@dataclass(frozen=True, slots=True)
class Timeline:
    """The bars in the order of their start; the critical path from the start to the end of the run (or until now)."""

    bars: tuple[Bar, ...]
    path: tuple[Link, ...]
    total_s: float


def timeline(graph: Graph, times: Mapping[str, Times], *, started_at: datetime, now: datetime) -> Timeline:
    """Bars and critical path of a run at `now`; `times` may leave out steps that wait."""
    spans = {name: span for name, one in times.items() if (span := _span(one, started_at, now)) is not None}
    if not spans:
        return Timeline((), (), 0.0)
    freed = {name: _freed_by(graph.steps[name], times, spans) for name in spans if name in graph.steps}
    # What is above comes first among steps that end at one instant, so that a chain of skips is no path of its own.
    order = {name: at for at, name in enumerate(topological(parents_of(graph.workflow.steps)))}
    path: list[str] = []
    name: str | None = max(freed, key=lambda one: (spans[one].end, times[one].state != "skipped", -order[one]))
    while name is not None and name not in path:
        path.append(name)
        name = freed[name]
    path.reverse()
    total = max(spans[name].end for name in freed)
    slack = _slack(graph, spans, freed, total)
    critical = set(path)
    bars = [
        Bar(
            step=name,
            state=times[name].state,
            reason=times[name].reason,
            start_s=round(spans[name].start, 3),
            begin_s=round(spans[name].begin, 3),
            end_s=round(spans[name].end, 3),
            freed_by=freed[name],
            critical=name in critical,
            slack_s=round(slack[name], 3),
        )
        for name in sorted(freed, key=lambda one: (spans[one].start, order[one]))
    ]
    return Timeline(tuple(bars), tuple(_links(path, spans)), round(total, 3))


class _Span(NamedTuple):
    start: float
    begin: float
    end: float


def _span(one: Times, started_at: datetime, now: datetime) -> _Span | None:
    """The seconds of a step from the start of the run; None while it waits."""
    if one.released_at is None and one.finished_at is None:
        return None
    end = one.finished_at or now
    start = min(one.released_at or end, end)
    begin = min(max(one.began_at or (end if one.state == "running" else start), start), end)
    return _Span(*((at - started_at).total_seconds() for at in (start, begin, end)))


def _freed_by(step: Step, times: Mapping[str, Times], spans: Mapping[str, _Span]) -> str | None:
    """The need that was the last one that this step waited for.

    Of a join that is content with some of its needs that is the one that made enough of them.
    """
    ended = sorted(
        (spans[edge.parent].end, at, edge)
        for at, edge in enumerate(step.needs)
        if edge.parent in spans and times[edge.parent].finished_at is not None
    )
    wanted = {"any": 1, "at_least": step.at_least}.get(step.join)
    if wanted is not None:
        met = [one for one in ended if meets(one[2].on, End(times[one[2].parent].state, times[one[2].parent].reason))]
        ended = met[:wanted] if len(met) >= wanted else ended
    return ended[-1][2].parent if ended else None


def _slack(graph: Graph, spans: Mapping[str, _Span], freed: Mapping[str, str | None], total: float) -> dict[str, float]:
    """By how much each step could have ended later, from the last steps back to the first."""
    latest: dict[str, float] = {}
    for name in reversed(topological(parents_of(graph.workflow.steps))):
        if name not in freed:
            continue
        bound = total
        for child, _ in graph.children[name]:
            # A join that is content with some needs was held up by one of them only.
            if child in latest and (graph.steps[child].join in ("all", "none_failed") or freed[child] == name):
                bound = min(bound, latest[child] - (spans[child].end - spans[child].start))
        latest[name] = bound
    return {name: max(0.0, latest[name] - spans[name].end) for name in freed}


def _links(path: list[str], spans: Mapping[str, _Span]) -> list[Link]:
    links, before = [], 0.0
    for name in path:
        span = spans[name]
        links.append(Link(name, round(max(0.0, span.begin - before), 3), round(span.end - max(span.begin, before), 3)))
        before = span.end
    return links
