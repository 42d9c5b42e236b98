"""What lists of executions may be asked for, and by which indexes each is read (`kernel.keyset`)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from uuid import UUID

import orjson

from kernel.eventtypes import DELIVERY
from kernel.ids import ID_SLACK, first_id_at
from kernel.keyset import WHOLE, Condition, Order, Part, Path
from kernel.transitions import TICKET_STATES

# Ids follow the time of creation. Only occurrences (schedule, catch_up) have a nominal order: by their unique index.
ORDERS: Mapping[str, Order] = {
    "-created_at": Order(),
    "created_at": Order(descending=False),
    "-finished_at": Order("e.finished_at", "timestamptz"),
    "finished_at": Order("e.finished_at", "timestamptz", descending=False),
    "-nominal_at": Order("e.nominal_at", "timestamptz"),
    "nominal_at": Order("e.nominal_at", "timestamptz", descending=False),
}
NEED_SCHEDULE = ("-nominal_at", "nominal_at")
BAD_STATES = ("dead", "cancelled", "expired", "skipped")  # of the index execution_by_bad_state
WITH_ERROR = ("dead", "cancelled", "expired")
RARE_TRIGGERS = ("manual", "backfill", "replay", "workflow", "catch_up")  # of the index execution_by_rare_trigger
IN_FLIGHT = ("queued", "running")
_TICKET_STATE = "(SELECT state FROM tickets_ticket WHERE execution_id = e.id)"
_DEPENDENTS = "e.id = ANY(ARRAY(SELECT child_id FROM {schema}.workflows_dependency WHERE parent_id = %s))"
ALIVE = Part((Condition("e.finished_at IS NULL"),))
MAX_JOBS_APART = 20  # of more jobs, the newest rows are looked at instead of each job's


@dataclass(frozen=True, slots=True)
class ExecutionFilter:
    """What a list of executions is asked for; None and empty ask for nothing. Times are exclusive."""

    states: Sequence[str] = ()
    job_ids: Sequence[UUID] | None = None  # empty: none fits
    schedule_id: UUID | None = None
    schedule_job_ids: Sequence[UUID] = ()  # all jobs that the schedule has had: history has an index by job
    triggers: Sequence[str] = ()
    run_key: str | None = None
    replay_of: UUID | None = None
    depends_on: UUID | None = None
    workflow_run_id: UUID | None = None
    error_class: str | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    created_after: datetime | None = None
    created_before: datetime | None = None
    nominal_after: datetime | None = None
    nominal_before: datetime | None = None
    started_after: datetime | None = None
    started_before: datetime | None = None
    finished_after: datetime | None = None
    finished_before: datetime | None = None


def paths_of(tenant_id: int, wanted: ExecutionFilter, order: str) -> tuple[tuple[Path, ...], tuple[Condition, ...]]:
    """The indexes that could give the list, and what each row must fulfil besides."""
    rest = _conditions(wanted)
    if order in NEED_SCHEDULE:
        given = "e.schedule_id = %s AND e.trigger IN ('schedule', 'catch_up') AND e.nominal_at IS NOT NULL"
        part = Part((Condition(given, (wanted.schedule_id,)), *_range("nominal_at", wanted)))
        for name in ("schedule", "nominal_at 0", "nominal_at 1"):
            rest.pop(name, None)
        return (Path((part,)),), tuple(rest.values())
    if ORDERS[order].key:
        part = Part((Condition("e.finished_at IS NOT NULL"), *_range("finished_at", wanted)))
        for name in ("finished_at 0", "finished_at 1"):
            rest.pop(name, None)
        return (Path((part,), sparse=False),), tuple(rest.values())
    bounds = _id_bounds(wanted)
    found = _indexes(tenant_id, wanted)
    if not any(path.ordered for path in found.values()):
        found["whole"] = WHOLE
    if len(found) == 1:  # what its index ensures needs no second look
        rest.pop(next(iter(found)), None)
    return tuple(path.within(*bounds) for path in found.values()), tuple(rest.values())


def _indexes(tenant_id: int, wanted: ExecutionFilter) -> dict[str, Path]:
    """Paths by what they ensure. The narrowest comes first; one that has few rows in any case is the only one."""
    if wanted.run_key is not None:
        return {"run_key": _path("e.run_key = %s", wanted.run_key)._replace(short=True)}
    if wanted.replay_of is not None:
        reruns = Part((Condition("e.replay_of IS NOT NULL"),), "e.replay_of", wanted.replay_of)
        return {"replay_of": Path((reruns,))}
    if wanted.depends_on is not None:
        return {"depends_on": _path(_DEPENDENTS, wanted.depends_on)}
    if wanted.workflow_run_id is not None:
        steps = Part((Condition("e.workflow_run_id IS NOT NULL"),), "e.workflow_run_id", wanted.workflow_run_id)
        return {"workflow_run": Path((steps,))}
    if wanted.states and set(wanted.states) <= set(IN_FLIGHT):
        return {"states": Path((_in_flight(tenant_id, wanted.states),), short=True)}
    found: dict[str, Path] = {}
    if wanted.schedule_id is not None:  # history has no index by schedule and id
        found["of the schedule"] = Path(_of_schedule(wanted.schedule_id), ordered=False)
    jobs = wanted.job_ids if wanted.job_ids is not None or wanted.schedule_id is None else wanted.schedule_job_ids
    if jobs is not None and len(jobs) <= MAX_JOBS_APART:
        parts = tuple(Part((), "e.job_id", job) for job in dict.fromkeys(jobs))
        found["jobs"] = Path(parts or (Part((Condition("false"),)),))
    states = _states_with_errors(wanted)
    if states and "succeeded" not in states:
        path = Path(_of_states(tenant_id, states))
        found["alive" if ALIVE in path.parts else "states"] = path
    if wanted.triggers and set(wanted.triggers) <= set(RARE_TRIGGERS):
        rare = Condition(f"e.trigger IN ({_quoted(RARE_TRIGGERS)})")
        found["triggers"] = Path(tuple(Part((rare,), "e.trigger", one) for one in dict.fromkeys(wanted.triggers)))
    if wanted.labels:
        found["labelled"] = _path("e.labels IS NOT NULL")
    since = wanted.finished_after or wanted.started_after
    if since is not None:  # what started since then has ended since then, or is alive
        since_then = [Part((Condition("e.finished_at > %s", (since,)), *_range("finished_at", wanted)))]
        if wanted.finished_after is None and wanted.finished_before is None:
            since_then.append(ALIVE)
        found["ended since"] = Path(tuple(since_then), ordered=False)
    return found


def _path(text: str, *values: Any) -> Path:
    return Path((Part((Condition(text, values),)),))


def _of_schedule(schedule_id: UUID) -> tuple[Part, ...]:
    """Occurrences, by the index that keeps them unique, and the other runs of a schedule."""
    return (
        Part((Condition("e.schedule_id = %s AND e.trigger IN ('schedule', 'catch_up')", (schedule_id,)),)),
        Part((Condition("e.schedule_id = %s AND e.trigger NOT IN ('schedule', 'catch_up')", (schedule_id,)),)),
    )


def _of_states(tenant_id: int, states: Sequence[str]) -> tuple[Part, ...]:
    bad = Condition(f"e.state IN ({_quoted(BAD_STATES)})")
    parts = [Part((bad,), "e.state", state) for state in dict.fromkeys(states) if state in BAD_STATES]
    live = [state for state in states if state not in BAD_STATES]
    if live:  # their tickets say which; what is in flight is found through the tickets, which are few
        parts.append(_in_flight(tenant_id, live) if set(live) <= set(IN_FLIGHT) else ALIVE)
    return tuple(parts)


def _in_flight(tenant_id: int, states: Sequence[str]) -> Part:
    """By the small indexes of tickets that are queued or running; each state is named, so that its index is seen."""
    texts = [
        f"SELECT execution_id FROM tickets_ticket WHERE tenant_id = %s AND state = '{state}'"
        for state in IN_FLIGHT
        if state in states
    ]
    text = f"e.id = ANY(ARRAY({' UNION ALL '.join(texts)})) AND e.finished_at IS NULL"
    return Part((Condition(text, (tenant_id,) * len(texts)),))


def _conditions(wanted: ExecutionFilter) -> dict[str, Condition]:
    """What each row must fulfil, by name."""
    found: dict[str, Condition] = {}
    states = _states_with_errors(wanted)
    live = [state for state in states if state in TICKET_STATES]
    kept = [state for state in states if state not in TICKET_STATES]
    alive = f"e.finished_at IS NULL AND {_TICKET_STATE} = ANY(%s)"  # what has ended has no ticket to look for
    if live and kept:
        found["states"] = Condition(f"e.state = ANY(%s) OR ({alive})", (kept, live))
    elif live:
        found["states"] = Condition(alive, (live,))
    elif kept:
        found["states"] = Condition("e.state = ANY(%s)", (kept,))
    if wanted.job_ids is not None:
        found["jobs"] = Condition("e.job_id = ANY(%s)", (list(wanted.job_ids),))
    if wanted.schedule_id is not None:
        found["schedule"] = Condition("e.schedule_id = %s", (wanted.schedule_id,))
    if wanted.triggers:
        found["triggers"] = Condition("e.trigger = ANY(%s)", (list(wanted.triggers),))
    elif wanted.run_key is None and wanted.job_ids is None and wanted.schedule_id is None:
        found["no deliveries"] = Condition("e.trigger <> %s", (DELIVERY,))  # they are listed with their webhook
    if wanted.run_key is not None:
        found["run_key"] = Condition("e.run_key = %s", (wanted.run_key,))
    if wanted.replay_of is not None:
        found["replay_of"] = Condition("e.replay_of = %s", (wanted.replay_of,))
    if wanted.depends_on is not None:
        found["depends_on"] = Condition(_DEPENDENTS, (wanted.depends_on,))
    if wanted.workflow_run_id is not None:
        found["workflow_run"] = Condition("e.workflow_run_id = %s", (wanted.workflow_run_id,))
    if wanted.error_class is not None:
        found["error_class"] = Condition("e.error ->> 'class' = %s", (wanted.error_class,))
    if wanted.labels:
        found["labels"] = Condition("e.labels @> %s::jsonb", (orjson.dumps(dict(wanted.labels)).decode(),))
    for name in ("created_at", "nominal_at", "finished_at"):
        for number, one in enumerate(_range(name, wanted)):
            found[f"{name} {number}"] = one
    live_start = "(SELECT first_started_at FROM tickets_ticket WHERE execution_id = e.id)"
    started = f"CASE WHEN e.finished_at IS NULL THEN coalesce({live_start}, e.started_at) ELSE e.started_at END"
    if wanted.started_after is not None:
        found["started_after"] = Condition(f"{started} > %s", (wanted.started_after,))
    if wanted.started_before is not None:
        found["started_before"] = Condition(f"{started} < %s", (wanted.started_before,))
    return found


def _states_with_errors(wanted: ExecutionFilter) -> Sequence[str]:
    """Whoever asks for a class of errors asks for states that have errors."""
    if wanted.error_class is None or wanted.states:
        return wanted.states
    return WITH_ERROR


def _range(name: str, wanted: ExecutionFilter) -> list[Condition]:
    stem = name.removesuffix("_at")
    after, before = getattr(wanted, f"{stem}_after"), getattr(wanted, f"{stem}_before")
    found = [] if after is None else [Condition(f"e.{name} > %s", (after,))]
    return found if before is None else [*found, Condition(f"e.{name} < %s", (before,))]


def _id_bounds(wanted: ExecutionFilter) -> tuple[Condition, ...]:
    """Ids hold when they were made: not before the nominal instant, and nothing starts or ends earlier."""
    found: list[Condition] = []
    after = [one for one in (wanted.created_after, wanted.nominal_after) if one is not None]
    if after:
        found.append(Condition("e.id > %s", (first_id_at(max(after) - ID_SLACK),)))
    before = [one for one in (wanted.created_before, wanted.started_before, wanted.finished_before) if one is not None]
    if before:
        found.append(Condition("e.id < %s", (first_id_at(min(before) + ID_SLACK),)))
    return tuple(found)


def _quoted(names: Sequence[str]) -> str:
    return ", ".join(f"'{name}'" for name in names)
