"""How executions that ended run again: dead ones under their run keys, any as new executions that name them.

The caller has locked their jobs, been admitted and closed their letters.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from uuid import UUID

import orjson

from apps.audit.services import Actor
from apps.executions import store as executions
from apps.executions.models import Execution
from apps.schedules.models import ScheduleVersion
from apps.schedules.running import GoesOn, JobNow, Run, Start, runs_start, tickets_go_on
from apps.schedules.timing import TimingInvalid, spec_from_json
from tenants import door
from tenants.models import Tenant
from tenants.work import Again

UNCHANGED = object()
MAX_REPLAYS = 3  # of what died again each time
Versions = Mapping[tuple[UUID, int], ScheduleVersion]


@dataclass(frozen=True, slots=True)
class How:
    """How dead letters are replayed.

    A `payload` or `new_key` makes new executions; `force` replays what was replayed `max_replays` times already.
    `yields`: live runs go first.
    """

    payload: Any = UNCHANGED
    new_key: bool = False
    force: bool = False
    max_replays: int = MAX_REPLAYS
    yields: bool = False
    note: str = ""

    @property
    def makes_new(self) -> bool:
        return self.new_key or self.payload is not UNCHANGED


@dataclass(frozen=True, slots=True)
class Replayed:
    """The execution that runs. `before` is what an undo puts back: empty when there is nothing to put back."""

    execution_id: UUID
    before: Mapping[str, Any] = field(default_factory=dict)


def reopen(
    tenant: Tenant, actor: Actor, jobs: Mapping[UUID, JobNow], olds: Sequence[Execution], how: How, now: datetime
) -> list[Replayed]:
    """dead -> ready: these executions go on, with tickets of their own. Again when one is not dead any more."""
    versions = [(old.pk, jobs[old.job_id].version) for old in olds]
    found = {one.id: one for one in executions.reopen_many(door.raw(), tenant.schema_name, versions)}
    if len(found) < len(olds):
        raise Again
    of_schedules = _versions_of(olds)
    tickets_go_on(
        tenant,
        [
            GoesOn(jobs[old.job_id], _as_before(old, of_schedules, how), old.pk, old.run_key, found[old.pk].attempts)
            for old in olds
        ],
        now=now,
    )
    return [
        Replayed(one.id, {"job_version": one.version_before, "reason": one.reason_before})
        for one in (found[old.pk] for old in olds)
    ]


def start_new(
    tenant: Tenant, actor: Actor, jobs: Mapping[UUID, JobNow], olds: Sequence[Execution], how: How, now: datetime
) -> list[Replayed]:
    """New executions with new run keys, in the place of these."""
    of_schedules = _versions_of(olds)
    starts = [Start(jobs[old.job_id], _as_new(actor, old, of_schedules, how)) for old in olds]
    return [Replayed(key) for key in runs_start(tenant, starts, now=now)]


def _versions_of(olds: Sequence[Execution]) -> Versions:
    """The versions of schedules that these executions are of."""
    wanted = {(old.schedule_id, old.schedule_version) for old in olds if old.schedule_id and old.schedule_version}
    if not wanted:
        return {}
    found = ScheduleVersion.objects.filter(
        schedule_id__in={key for key, _ in wanted}, version__in={version for _, version in wanted}
    ).only("schedule_id", "version", "spec", "own_payload")
    return {(one.schedule_id, one.version): one for one in found if (one.schedule_id, one.version) in wanted}


def _version_of(old: Execution, of_schedules: Versions) -> ScheduleVersion | None:
    if old.schedule_id is None or old.schedule_version is None:
        return None
    return of_schedules.get((old.schedule_id, old.schedule_version))


def _source_of(old: Execution, of_schedules: Versions) -> str:
    """Where its payload comes from."""
    if old.payload is not None:
        return "execution"
    version = _version_of(old, of_schedules)
    return "schedule" if version is not None and version.own_payload else "job"


def _as_before(old: Execution, of_schedules: Versions, how: How) -> Run:
    return Run(
        trigger=old.trigger, fired_by=old.fired_by, payload_from=_source_of(old, of_schedules), priority=old.priority,
        nominal_at=old.nominal_at, schedule_id=old.schedule_id, schedule_version=old.schedule_version,
        guarded=_guarded(_version_of(old, of_schedules)), yields=how.yields,
    )  # fmt: skip


def _as_new(actor: Actor, old: Execution, of_schedules: Versions, how: How) -> Run:
    if how.payload is UNCHANGED:
        payload, source = old.payload, _source_of(old, of_schedules)
    else:
        payload, source = how.payload, "job" if how.payload is None else "execution"
    text = None if payload is None else orjson.dumps(payload).decode()
    return Run(
        trigger="replay", fired_by=actor.stored, payload=text, payload_from=source, priority=old.priority,
        nominal_at=old.nominal_at, schedule_id=old.schedule_id, schedule_version=old.schedule_version,
        labels=old.labels, replay_of=old.pk, yields=how.yields,
    )  # fmt: skip


def _guarded(version: ScheduleVersion | None) -> bool:
    """Whether the schedule's overlap policy counts this run."""
    try:
        return version is not None and spec_from_json(version.spec).overlap != "allow"
    except TimingInvalid:
        return False
