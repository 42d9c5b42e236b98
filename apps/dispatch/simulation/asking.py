"""A simulation as it is asked for: where its runs come from, what is changed, the answer. For command and page."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime, timedelta
from pathlib import Path
from statistics import quantiles
from typing import Any, NamedTuple
from uuid import UUID

import psycopg

from apps.dispatch.simulation.answer import Side, answer
from apps.dispatch.simulation.changes import changed, scaled
from apps.dispatch.simulation.engine import simulate
from apps.dispatch.simulation.history import History, load_of, read_history
from apps.dispatch.simulation.present import live_dispatchers, live_workers, present_settings
from apps.dispatch.simulation.scenarios import SCENARIOS
from apps.dispatch.simulation.schedules import Scheduled, arrivals_of, latest_times, read_scheduled, rescheduled
from apps.dispatch.simulation.settings import Arrival, Costs, Load, Settings
from apps.dispatch.simulation.spec import read_spec
from kernel.errors import FieldError, InvalidInput
from kernel.pools import CELERY_POOLS
from tenants.registry import Tenancy

Conn = psycopg.Connection[Any]
RUNS_MAX = 1_000_000
STEP_LEAST_S, STEP_MOST_S = 0.001, 0.1  # of a step that nothing is in the way of
WARM_UP = timedelta(minutes=5)
WINDOW_MAX = timedelta(days=7)


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked. Either a synthetic load or a window; a window that ends in the future is of schedules."""

    changes: Mapping[tuple[str, ...], Any] = field(default_factory=dict)
    seed: int = 0
    synthetic: Mapping[str, Any] | None = None
    since: datetime | None = None
    until: datetime | None = None
    runs_max: int = RUNS_MAX
    limit_s: float | None = None


def synthetic_document(name: str, *, files: bool) -> dict[str, Any]:
    """A named scenario, or with `files` the JSON of a file. InvalidInput when it is neither."""
    if name in SCENARIOS:
        return SCENARIOS[name]
    try:
        if not files:
            raise OSError("files are read by the command only")
        found: dict[str, Any] = json.loads(Path(name).read_text())
        return found
    except (OSError, ValueError) as error:
        known = ", ".join(SCENARIOS)
        raise InvalidInput(
            [FieldError("/synthetic", "unknown", f"{name}: no scenario ({known}) and not read: {error}")]
        ) from error


class Material(NamedTuple):
    """What was gathered for a question: nothing more is read for its answer."""

    settings: Settings
    load: Load
    what_if_load: Load  # with other schedules, where the changes name some
    about: str
    real: bool = False  # whether the load knows the waits of reality


def gather(question: Question, *, now: datetime, conn: Conn | None, tenancies: Mapping[int, Tenancy]) -> Material:
    """Reads all that the question needs, in short transactions. A synthetic load needs no database."""
    if question.synthetic is not None:
        settings, load = read_spec(question.synthetic, seed=question.seed, most=question.runs_max)
        material = Material(settings, load, load, str(question.synthetic.get("about", "A synthetic load")))
    elif conn is None or question.since is None or question.until is None:
        raise InvalidInput([FieldError("/from", "missing", "Give a window or a synthetic load.")])
    else:
        material = _window(question, question.since, question.until, now, conn, tenancies)
    count = len(material.load.arrivals)
    if count > question.runs_max:
        raise InvalidInput([FieldError("/from", "too_many", f"{count:,} runs; at most {question.runs_max:,}.")])
    return material


def answer_of(question: Question, material: Material) -> dict[str, Any]:
    """Simulates the present settings, then those with the changes, and compares."""
    settings, load = material.settings, material.load
    present = Side(settings, simulate(settings, load, limit_s=question.limit_s))
    what_if = None
    if question.changes:
        new = changed(settings, question.changes)
        then = scaled(material.what_if_load, new, question.changes, seed=question.seed)
        what_if = Side(new, simulate(new, then, limit_s=question.limit_s))
    return {
        "about": material.about, "seed": question.seed, "costs": asdict(settings.costs),
        "changes": {".".join(path): value for path, value in question.changes.items()},
        **answer(present, what_if, load, real=material.real),
    }  # fmt: skip


def _window(
    question: Question, since: datetime, until: datetime, now: datetime, conn: Conn, tenancies: Mapping[int, Tenancy]
) -> Material:
    if not since < until <= since + WINDOW_MAX:
        raise InvalidInput([FieldError("/to", "bad_window", "A window ends after it begins, by at most seven days.")])
    if since >= now - timedelta(seconds=1):
        return _future(question, since, until, now, conn, tenancies)
    if until > now:
        raise InvalidInput(
            [FieldError("/to", "bad_window", "A window lies in the past or in the future, not in both.")]
        )
    start = since - WARM_UP
    history = read_history(conn, tenancies.values(), since=start, until=until, most=question.runs_max)
    jobs = {tenant: {row.job_id for row, _, _ in rows} for tenant, rows in history.rows.items()}
    named = any(path[0] == "schedule" for path in question.changes)
    schedules = read_scheduled(conn, until=now + timedelta(days=366), most=question.runs_max) if named else []
    moved, keys = rescheduled(schedules, question.changes, _slugs(tenancies), now=now)
    for one in moved:
        jobs.setdefault(one.tenant, set()).add(one.job_id)
    settings, numbers = present_settings(conn, tenancies.values(), jobs, _costs(conn, history))
    settings, notes = _with_slots(conn, settings, history, numbers)
    pools = {number: job.pool for number, job in settings.jobs.items()}
    load = load_of(history, numbers, pools, since=start, until=until, counted_from=since)
    load = replace(load, notes=(*load.notes, *notes))
    then = load
    if keys:
        kept = load_of(history, numbers, pools, since=start, until=until, counted_from=since, without=keys)
        ours, _ = _ours(moved, settings, numbers)
        made = _made(question, ours, numbers, conn, tenancies, start, until)
        then = replace(kept, arrivals=sorted([*kept.arrivals, *made], key=lambda one: one.at))
    about = f"History from {since:%Y-%m-%d %H:%M:%S} to {until:%H:%M:%S} UTC, all tenants"
    return Material(settings, load, then, about, real=True)


def _future(
    question: Question, since: datetime, until: datetime, now: datetime, conn: Conn, tenancies: Mapping[int, Tenancy]
) -> Material:
    schedules = [one for one in read_scheduled(conn, until=until, most=question.runs_max) if one.tenant in tenancies]
    moved, keys = rescheduled(schedules, question.changes, _slugs(tenancies), now=now)
    jobs: dict[int, set[UUID]] = {}
    for one in schedules:
        jobs.setdefault(one.tenant, set()).add(one.job_id)
    settings, numbers = present_settings(
        conn, tenancies.values(), jobs, replace(Costs(), dispatchers=live_dispatchers(conn))
    )
    ours, outside = _ours(schedules, settings, numbers)
    notes = [] if settings.slots else ["no worker is alive: there are no slots unless --set slots.POOL says so"]
    if outside:
        notes.append(f"{outside:,} schedules of workflows or pull queues are left out: no worker of ours runs those")
    arrivals = _made(question, ours, numbers, conn, tenancies, since, until)
    load = Load(arrivals, (until - since).total_seconds(), starts_at=since, notes=tuple(notes))
    then = load
    if keys:
        then_ours, _ = _ours([*(one for one in schedules if one.key not in keys), *moved], settings, numbers)
        then = replace(load, arrivals=_made(question, then_ours, numbers, conn, tenancies, since, until))
    about = (
        f"Schedules from {since:%Y-%m-%d %H:%M:%S} to {until:%Y-%m-%d %H:%M:%S} UTC, all tenants; nothing else arrives"
    )
    return Material(settings, load, then, about)


def _ours(
    schedules: list[Scheduled], settings: Settings, numbers: Mapping[tuple[int, UUID], int]
) -> tuple[list[Scheduled], int]:
    """Those whose runs go to workers of the platform, and how many others there are."""
    found = [one for one in schedules if settings.jobs[numbers[one.tenant, one.job_id]].pool in CELERY_POOLS]
    return found, len(schedules) - len(found)


def _made(
    question: Question, schedules: list[Scheduled], numbers: Mapping[tuple[int, UUID], int], conn: Conn,
    tenancies: Mapping[int, Tenancy], since: datetime, until: datetime,
) -> list[Arrival]:  # fmt: skip
    made = arrivals_of(
        schedules, numbers, latest_times(conn, tenancies), since=since, until=until, seed=question.seed,
        most=question.runs_max,
    )  # fmt: skip
    return sorted(made, key=lambda one: one.at)


def _slugs(tenancies: Mapping[int, Tenancy]) -> dict[int, str]:
    return {tenant: one.slug for tenant, one in tenancies.items()}


def _costs(conn: Conn, history: History) -> Costs:
    """Costs with what the window itself says: what the steps took when nothing was in their way."""
    costs = replace(Costs(), dispatchers=live_dispatchers(conn))
    if len(history.handover_s) < 20:
        return costs
    return replace(
        costs, handover_s=_usual(history.handover_s, costs.handover_s), round_s=_usual(history.release_s, costs.round_s)
    )


def _usual(times: list[float], default: float) -> float:
    """What one in a hundred stays below, within bounds: in busy times all the others have waits in them."""
    low = quantiles(times, n=100)[0] if len(times) > 1 else default
    return min(STEP_MOST_S, max(STEP_LEAST_S, low))


def _with_slots(
    conn: Conn, settings: Settings, history: History, numbers: Mapping[tuple[int, UUID], int]
) -> tuple[Settings, list[str]]:
    """For pools with runs in the window but no worker now as many slots as ran at once; and what is doubtful."""
    notes: list[str] = []
    at_once = history.at_once(
        {key: (settings.jobs[number].pool, settings.tenants[key[0]].group) for key, number in numbers.items()}
    )
    slots = dict(settings.slots)
    for key, most in sorted(at_once.items()):
        name = "@".join(part for part in key if part)
        if key not in slots:
            slots[key] = most
            notes.append(
                f"no worker of {name} is alive: {most:,} slots are taken, as many as ran at once in the window"
            )
        elif most > slots[key]:
            notes.append(
                f"{most:,} runs of {name} ran at once in the window, and its workers have {slots[key]:,} slots now"
            )
    known = live_workers(conn)
    gone = len(history.workers - known)
    if gone and slots == settings.slots:
        notes.append(f"{gone:,} workers of the window are gone, {len(known):,} live now: slots may have been others")
    return replace(settings, slots=slots), notes
