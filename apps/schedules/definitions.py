"""Immutable versions of jobs and schedules for the hot paths: read once a process, many at a time, then remembered."""

from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple
from uuid import UUID

import orjson
import psycopg
from psycopg import sql

from apps.schedules.retry import RetryPolicy, retry_changed, retry_from_json
from apps.tickets.values import Started
from kernel.httptemplates import names_in
from kernel.secretrules import secret_names
from kernel.stepkeys import TRIGGER

Conn = psycopg.Connection[Any]
REMEMBERED = 20_000
LARGE_PAYLOAD_BYTES = 8_192  # larger ones, with their target, are not remembered: they would fill the memory


@dataclass(frozen=True, slots=True)
class Definition:
    """A job version. `payload` is the parsed JSON, shared by all runs: nobody may change it."""

    kind: str
    name: str
    target: dict[str, Any]
    payload: Any
    timeout_s: int
    retry: RetryPolicy
    uses: frozenset[str] = frozenset()  # what its templates name of a run
    secrets: frozenset[str] = frozenset()  # the names that its target refers to


class Definitions:
    """Remembers job versions and schedule payloads. Not shared between threads."""

    def __init__(self) -> None:
        self._jobs: OrderedDict[tuple[str, UUID, int], Definition] = OrderedDict()
        self._payloads: OrderedDict[tuple[str, UUID, int], Any] = OrderedDict()

    def jobs(self, conn: Conn, schema: str, wanted: Iterable[tuple[UUID, int]]) -> dict[tuple[UUID, int], Definition]:
        """Definitions by (job, version); one query for those not known. Missing or unreadable ones are left out."""
        keys = set(wanted)
        missing, large = [key for key in keys if (schema, *key) not in self._jobs], []
        if missing:
            query = sql.SQL(
                "SELECT v.job_id, v.version, j.kind, j.name, v.target::text, v.payload::text, v.timeout_s,"
                " v.retry::text"
                " FROM {schema}.schedules_jobversion v JOIN {schema}.schedules_job j ON j.id = v.job_id"
                " JOIN unnest(%s::uuid[], %s::int[]) AS m(job_id, version)"
                " ON m.job_id = v.job_id AND m.version = v.version"
            ).format(schema=sql.Identifier(schema))
            for row in conn.execute(query, [[key[0] for key in missing], [key[1] for key in missing]]):
                try:
                    target = orjson.loads(row[4])
                    found = Definition(
                        row[2], row[3], target, _parsed(row[5]), row[6], retry_from_json(orjson.loads(row[7])),
                        names_in(target) if row[2] == "http" else frozenset(), frozenset(secret_names(target)),
                    )  # fmt: skip
                except (ValueError, TypeError, KeyError):
                    continue
                self._jobs[(schema, row[0], row[1])] = found
                if len(row[4]) + len(row[5] or "") > LARGE_PAYLOAD_BYTES:
                    large.append((schema, row[0], row[1]))
        answer = {key: self._jobs[(schema, *key)] for key in keys if (schema, *key) in self._jobs}
        for one in large:
            self._jobs.pop(one, None)
        _shrink(self._jobs)
        return answer

    def of_runs(self, conn: Conn, schema: str, started: Sequence[Started]) -> dict[UUID, Definition]:
        """Definitions by execution, of a workflow's steps with what these say instead. Missing ones are left out."""
        known = self.jobs(conn, schema, {(one.job_id, one.job_version) for one in started})
        steps = [one.execution_id for one in started if one.followed and one.trigger == TRIGGER]
        overrides = _overrides(conn, schema, steps) if steps else {}
        found = {}
        for one in started:
            definition = known.get((one.job_id, one.job_version))
            if definition is not None:
                own = overrides.get(one.execution_id)
                found[one.execution_id] = _overridden(definition, own) if own else definition
        return found

    def schedule_payload(self, conn: Conn, schema: str, schedule_id: UUID, version: int) -> Any:
        """The payload of a schedule version, parsed and shared; None when it has none."""
        key = (schema, schedule_id, version)
        if key in self._payloads:
            return self._payloads[key]
        query = sql.SQL(
            "SELECT payload::text FROM {}.schedules_scheduleversion WHERE schedule_id = %s AND version = %s"
        ).format(sql.Identifier(schema))
        row = conn.execute(query, [schedule_id, version]).fetchone()
        text: str | None = row[0] if row else None
        payload = _parsed(text)
        if text is None or len(text) <= LARGE_PAYLOAD_BYTES:
            self._payloads[key] = payload
            _shrink(self._payloads)
        return payload


class RunNames(NamedTuple):
    """What a run's templates may say about it, as it is now."""

    job_name: str
    schedule_name: str
    labels: dict[str, str]  # the job's, the schedule's and its own; the later ones win


def run_names(conn: Conn, schema: str, execution_ids: Iterable[UUID]) -> dict[UUID, RunNames]:
    """By execution; one query."""
    query = sql.SQL(
        "SELECT e.id, j.name, coalesce(s.name, ''),"
        " (j.labels || coalesce(s.labels, '{{}}') || coalesce(e.labels, '{{}}'))::text"
        " FROM {schema}.executions_execution e JOIN {schema}.schedules_job j ON j.id = e.job_id"
        " LEFT JOIN {schema}.schedules_schedule s ON s.id = e.schedule_id WHERE e.id = ANY(%s)"
    ).format(schema=sql.Identifier(schema))
    rows = conn.execute(query, [list(execution_ids)])
    return {row[0]: RunNames(row[1], row[2], orjson.loads(row[3])) for row in rows}


def _overrides(conn: Conn, schema: str, execution_ids: Sequence[UUID]) -> dict[UUID, dict[str, Any]]:
    query = sql.SQL(
        "SELECT id, overrides FROM {}.executions_execution WHERE id = ANY(%s) AND overrides IS NOT NULL"
    ).format(sql.Identifier(schema))
    return dict(conn.execute(query, [list(execution_ids)]).fetchall())


def _overridden(definition: Definition, own: Mapping[str, Any]) -> Definition:
    timeout_s = own.get("timeout_s") or definition.timeout_s
    return replace(definition, timeout_s=timeout_s, retry=retry_changed(definition.retry, own.get("retry") or {}))


def _parsed(text: str | None) -> Any:
    return None if text is None else orjson.loads(text)


def _shrink(memory: "OrderedDict[Any, Any]") -> None:
    while len(memory) > REMEMBERED:
        memory.popitem(last=False)
