"""Runs that schedules will make, or would have made with other triggers: from the due index, through timing."""

import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple
from uuid import UUID

import psycopg
from django.conf import settings
from psycopg import sql

from apps.dispatch.simulation.settings import Arrival
from apps.due.entries import read_after
from apps.schedules import timing
from apps.schedules.timing_spec import CHOICES, MAX_NUMBERS
from kernel.errors import Faults, FieldError, InvalidInput
from tenants.registry import Tenancy

Conn = psycopg.Connection[Any]
Tries = Sequence[tuple[float, ...]]
BATCH = 5_000
SAMPLE = 100  # of the latest runs of a job whose times are drawn from
LONG_AGO = datetime(1970, 1, 1, tzinfo=UTC)
UNKNOWN: Tries = ((1.0,),)
FIELDS = ("cron", "every_s", "timezone", "jitter_s", "overlap", "remove")

_TIMES = """
SELECT extract(epoch FROM finished_at - started_at)::float8 FROM (
    SELECT started_at, finished_at, state, attempt_count FROM {}.executions_execution
    WHERE job_id = %s ORDER BY id DESC LIMIT %s) latest
WHERE state = 'succeeded' AND attempt_count = 1 AND started_at IS NOT NULL AND finished_at IS NOT NULL
"""


class Scheduled(NamedTuple):
    """A schedule that will fire."""

    key: UUID
    tenant: int
    job_id: UUID
    priority: int
    nominal_at: datetime
    spec: timing.Spec


def read_scheduled(conn: Conn, *, until: datetime, most: int) -> list[Scheduled]:
    """All schedules that are due by then, shard after shard. InvalidInput when there are more than `most`."""
    found: list[Scheduled] = []
    for shard in range(settings.SHARDS):
        at, key = LONG_AGO, UUID(int=0)
        while True:
            entries = read_after(conn, shard, due_at=at, key=key, until=until, limit=BATCH)
            found += [
                Scheduled(
                    one.key, one.tenant_id, one.job_id, one.priority, one.nominal_at, timing.spec_from_json(one.spec)
                )
                for one in entries
                if one.kind == "schedule"
            ]
            if len(found) > most:
                raise InvalidInput([FieldError("/to", "too_many", f"More than {most:,} schedules are due by then.")])
            if len(entries) < BATCH:
                break
            at, key = entries[-1].due_at, entries[-1].key
    return found


def rescheduled(
    schedules: Iterable[Scheduled], changes: Mapping[tuple[str, ...], Any], slugs: Mapping[int, str], *, now: datetime
) -> tuple[list[Scheduled], set[UUID]]:
    """Those that the changes name (schedule.ID.FIELD or schedule.SLUG/*.FIELD), with other specs; and all their keys.

    What is removed is only among the keys.
    """
    faults, keys = Faults(), set()
    by_name: dict[str, dict[str, Any]] = {}
    for path, value in changes.items():
        if path[0] == "schedule" and len(path) == 3 and path[2] in FIELDS:
            by_name.setdefault(path[1], {})[path[2]] = value
        elif path[0] == "schedule":
            faults.add(".".join(path), "unknown", f"Write schedule.ID.FIELD with one of {', '.join(FIELDS)}.")
    changed, used = [], set()
    for one in schedules if by_name else ():
        names = (str(one.key), f"{slugs.get(one.tenant)}/*", "*")
        wanted = [name for name in names if name in by_name]
        if not wanted:
            continue
        used.add(wanted[0])
        keys.add(one.key)
        fields = by_name[wanted[0]]
        if not fields.get("remove"):
            changed.append(one._replace(spec=_spec(one.spec, fields, str(one.key), now)))
    for name in by_name.keys() - used:
        faults.add(f"schedule.{name}", "unknown", "No active schedule goes by that: write its id, SLUG/* or *.")
    faults.raise_if_any()
    return changed, keys


def arrivals_of(
    schedules: Iterable[Scheduled], numbers: Mapping[tuple[int, UUID], int], tries: Callable[[int, UUID], Tries], *,
    since: datetime, until: datetime, seed: int, most: int,
) -> list[Arrival]:  # fmt: skip
    """The runs of these schedules in the window; how long each takes is drawn from those of its job."""
    found: list[Arrival] = []
    for place, one in enumerate(schedules):
        known = tries(one.tenant, one.job_id) or UNKNOWN
        rng = random.Random(f"{seed}/{one.key}")
        for nominal in _nominals(one, since, until):
            at = (timing.actual_at(one.spec, str(one.key), nominal) - since).total_seconds()
            found.append(
                Arrival(
                    at=at, job=numbers[one.tenant, one.job_id], tries=known[int(rng.random() * len(known))],
                    priority=one.priority, fired=True, overlap=one.spec.overlap,
                    serial=None if one.spec.overlap == "allow" else place,
                )
            )  # fmt: skip
        if len(found) > most:
            raise InvalidInput(
                [FieldError("/to", "too_many", f"More than {most:,} runs would be made: shorten the window.")]
            )
    return found


def latest_times(conn: Conn, tenancies: Mapping[int, Tenancy]) -> Callable[[int, UUID], Tries]:
    """The times of a job's latest runs that succeeded at once; read when they are first asked for."""
    known: dict[tuple[int, UUID], Tries] = {}

    def of(tenant: int, job_id: UUID) -> Tries:
        if (tenant, job_id) not in known:
            query = sql.SQL(_TIMES).format(sql.Identifier(tenancies[tenant].schema))
            known[tenant, job_id] = [(max(0.0, row[0]),) for row in conn.execute(query, [job_id, SAMPLE])]
        return known[tenant, job_id]

    return of


def _nominals(one: Scheduled, since: datetime, until: datetime) -> Iterator[datetime]:
    """Nominal instants whose actual ones may lie in the window. Debt from before it is not made up for."""
    before = since - timedelta(seconds=one.spec.jitter_s, microseconds=1)
    for nominal in timing.occurrences(one.spec, after=before, until=until, limit=1_000_000):
        if since <= timing.actual_at(one.spec, str(one.key), nominal) < until:
            yield nominal


def _spec(spec: timing.Spec, fields: Mapping[str, Any], key: str, now: datetime) -> timing.Spec:
    """The spec with another trigger, zone, jitter or overlap policy."""
    if "cron" in fields or "every_s" in fields:
        trigger = {"cron": fields["cron"]} if "cron" in fields else {"every_s": fields["every_s"]}
        made = timing.spec_from_api(
            {"trigger": trigger, "timezone": fields.get("timezone", spec.zone)}, now=now, key=key
        )
        spec = replace(
            made, jitter_s=spec.jitter_s, overlap=spec.overlap, overlap_max=spec.overlap_max, grace_s=spec.grace_s
        )
    elif "timezone" in fields:
        spec = replace(spec, zone=str(fields["timezone"]))
    faults = Faults()
    jitter = fields.get("jitter_s", spec.jitter_s)
    if isinstance(jitter, bool) or not isinstance(jitter, int) or not 0 <= jitter <= MAX_NUMBERS["jitter_s"]:
        faults.add("jitter_s", "out_of_range", f"Give whole seconds up to {MAX_NUMBERS['jitter_s']:,}.")
    if fields.get("overlap", spec.overlap) not in CHOICES["overlap"]:
        faults.add("overlap", "unknown_value", f"Use one of {', '.join(CHOICES['overlap'])}.")
    faults.raise_if_any()
    return replace(spec, jitter_s=jitter, overlap=fields.get("overlap", spec.overlap))
