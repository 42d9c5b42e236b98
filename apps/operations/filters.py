"""What lists and bulk requests may be asked for, by the names of the API's queries: one reading for both.

A bulk request keeps its filter as it was given and reads it again whenever it is planned on.
"""

from collections.abc import Callable, Mapping
from typing import Any, TypeVar
from uuid import UUID

from apps.deadletters.reading import STATUSES as LETTER_STATUSES
from apps.deadletters.reading import LetterFilter
from apps.executions.filtering import ExecutionFilter
from apps.executions.models import TRIGGERS
from apps.operations.asking import SEVERAL, FilterQuery
from apps.schedules.defined import jobs_of
from apps.schedules.job_input import KINDS
from apps.schedules.listing import MOST_NAMED, DefinitionFilter, jobs_named
from apps.schedules.models import Schedule
from kernel.errors import Faults
from kernel.pools import WORKFLOW
from kernel.transitions import EXECUTION_STATES

F = TypeVar("F")
JOB_STATUSES = ("active", "paused")
SCHEDULE_STATUSES = tuple(Schedule.Status.values)
OF_CHOICES = ("state", "trigger", "status", "kind")  # members that mean one of several values
ALL = "all"  # the member that says that nothing narrows it


def _times(*stems: str) -> tuple[str, ...]:
    return tuple(f"{stem}_{end}" for stem in stems for end in ("after", "before"))


EXECUTION_NAMES = (
    "state", "trigger", "name", "run_key", "replay_of", "depends_on", "workflow_run", "error_class", "label", "job",
    "schedule", *_times("created", "nominal", "started", "finished"),
)  # fmt: skip
# Of bulk requests, which are about open letters only: they have no time at which they were resolved.
LETTER_NAMES = ("status", "fingerprint", "error_class", "job", "schedule", "execution", *_times("created"))
JOB_NAMES = ("kind", "status", "name", "external_id", "label", *_times("created"))
SCHEDULE_NAMES = ("job", "workflow", "status", "name", "external_id", "label", *_times("created"))


def execution_filter(
    query: FilterQuery, *, job_id: UUID | None = None, schedule_id: UUID | None = None, replay_of: UUID | None = None
) -> ExecutionFilter:
    """Which executions; what is given here goes before what the query asks for. InvalidInput. In the tenant."""
    job_id, schedule_id = job_id or query.id("job"), schedule_id or query.id("schedule")
    name = query.text("name")
    wanted: dict[str, Any] = {
        "states": query.choices("state", EXECUTION_STATES),
        "schedule_id": schedule_id,
        "triggers": query.choices("trigger", TRIGGERS),
        "run_key": query.text("run_key"),
        "replay_of": replay_of or query.id("replay_of"),
        "depends_on": query.id("depends_on"),
        "workflow_run_id": query.id("workflow_run"),
        "error_class": query.text("error_class"),
        "labels": query.labels(),
        **{one: query.instant(one) for one in _times("created", "nominal", "started", "finished")},
    }
    query.finish()
    schedule_job_ids = jobs_of(schedule_id) if schedule_id is not None else []
    return ExecutionFilter(job_ids=_jobs(query, job_id, name), schedule_job_ids=schedule_job_ids, **wanted)


def letter_filter(
    query: FilterQuery, *, job_id: UUID | None = None, schedule_id: UUID | None = None, execution_id: UUID | None = None
) -> LetterFilter:
    """Which dead letters; what is given here goes before what the query asks for. Faults are added."""
    return LetterFilter(
        statuses=query.choices("status", LETTER_STATUSES),
        job_id=job_id or query.id("job"),
        schedule_id=schedule_id or query.id("schedule"),
        execution_id=execution_id or query.id("execution"),
        fingerprint=query.text("fingerprint"),
        error_class=query.text("error_class"),
        **{one: query.instant(one) for one in _times("created", "resolved")},
    )


def job_filter(query: FilterQuery) -> DefinitionFilter:
    """Which jobs. Faults are added."""
    return _definitions(query, job_id=None, statuses=JOB_STATUSES, kinds=query.choices("kind", KINDS))


def workflow_filter(query: FilterQuery) -> DefinitionFilter:
    """Which workflows. Faults are added."""
    return _definitions(query, job_id=None, statuses=JOB_STATUSES, kinds=[WORKFLOW])


def schedule_filter(query: FilterQuery, *, job_id: UUID | None = None) -> DefinitionFilter:
    """Which schedules. Faults are added."""
    wanted = job_id or query.id("job") or query.id("workflow")
    return _definitions(query, job_id=wanted, statuses=SCHEDULE_STATUSES, kinds=[])


def kept(given: Any, names: tuple[str, ...], read: Callable[[FilterQuery], F], faults: Faults) -> dict[str, Any]:
    """The filter of a body in the form in which it is kept: texts by name, labels as a list. Faults are added.

    A list of texts means one of them, in members that have a choice of values. Whoever means everything says so:
    `{"all": true}`.
    """
    if not isinstance(given, Mapping):
        faults.add("/filter", "required" if given is None else "type", 'must be an object; {"all": true} means all.')
        return {}
    if dict(given) == {ALL: True}:
        return {ALL: True}
    if not given:
        faults.add("/filter", "required", 'Say which ones; {"all": true} means all.')
        return {}
    found: dict[str, Any] = {}
    for name, value in given.items():
        texts = _texts(name, value)
        if name == ALL:
            faults.add("/filter/all", "choice", "must be true, and stand alone: it means all.")
        elif texts is not None and len(texts) > 1 and name in names and name not in (*SEVERAL, *OF_CHOICES):
            faults.add(f"/filter/{name}", "type", "takes one value, not several.")
        elif texts is None:
            faults.add(f"/filter/{name}", "type", "must be a text, or a list of texts.")
        else:
            found[name] = texts if name in SEVERAL else ",".join(texts)
    if not faults.errors:
        read(query_of(found, names, faults))
    return found


def query_of(stored: Mapping[str, Any], names: tuple[str, ...], faults: Faults | None = None) -> FilterQuery:
    """A kept filter, to be asked."""
    params = {name: [value] if isinstance(value, str) else value for name, value in stored.items() if name != ALL}
    return FilterQuery(params, names, place="/filter/{}", faults=faults)


def _texts(name: str, value: Any) -> list[str] | None:
    if name == "label" and isinstance(value, Mapping):
        value = [f"{key}:{one}" if isinstance(one, str) else one for key, one in value.items()]
    texts = [value] if isinstance(value, str) else value
    if not isinstance(texts, list) or not texts or not all(isinstance(one, str) for one in texts):
        return None
    return texts


def _definitions(
    query: FilterQuery, *, job_id: UUID | None, statuses: tuple[str, ...], kinds: list[str]
) -> DefinitionFilter:
    return DefinitionFilter(
        name=query.text("name"),
        external_id=query.text("external_id"),
        kinds=kinds,
        job_id=job_id,
        statuses=query.choices("status", statuses),
        labels=query.labels(),
        created_after=query.instant("created_after"),
        created_before=query.instant("created_before"),
    )


def _jobs(query: FilterQuery, job_id: UUID | None, name: str | None) -> list[UUID] | None:
    """The jobs that are asked for, None for all. InvalidInput."""
    if name is None:
        return None if job_id is None else [job_id]
    named = jobs_named(name)
    if named is None:
        query.fault("name", "too_many", f"More than {MOST_NAMED} jobs have this in their names; say more.")
        query.finish()
    return [one for one in named or () if job_id is None or one == job_id]
