"""Where situations are set up: acme with a live dispatcher and worker, and rows as the processes leave them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any
from uuid import UUID, uuid4

import psycopg
from psycopg import sql

from tests.fixtures_flow import actor, live_worker, make_job, make_ticket, queue_of, settle_as, started_now

if TYPE_CHECKING:
    from apps.tickets.values import Started
    from tenants.models import Tenant
    from tenants.registry import Registry

Conn = psycopg.Connection[Any]


@dataclass
class Stage:
    """`now` is the database's. A dispatcher holds all leases, and one worker of ten slots serves acme's queue."""

    conn: Conn
    tenant: Tenant
    registry: Registry
    plan: Callable[..., None]
    now: datetime
    worker: UUID = field(default_factory=uuid4)

    def serve(self) -> None:
        self.conn.execute(
            "UPDATE due_shardlease SET owner = %s, expires_at = clock_timestamp() + interval '60 seconds'", [uuid4()]
        )
        self.work()

    def work(self, *, slots: int = 10, queues: list[str] | None = None, ttl_s: float = 60) -> None:
        live_worker(
            self.conn, slots=slots, queues=[self.queue] if queues is None else queues, worker=self.worker, ttl_s=ttl_s
        )

    @property
    def queue(self) -> str:
        return queue_of(self.registry, self.tenant)

    def at(self, seconds: float) -> datetime:
        return self.now + timedelta(seconds=seconds)

    def job(self, **changes: Any) -> UUID:
        return make_job(self.tenant, now=self.now, **changes)

    def run(self, job: UUID | None = None, **changes: Any) -> UUID:
        return make_ticket(self.tenant, job or self.job(), now=self.now, **changes)

    def begin(self, *runs: UUID) -> list[Started]:
        """These run on the worker; started a second ago."""
        found = started_now(self.conn, list(runs), self.worker)
        self.ticket(runs[0], started_at=self.at(-1))
        return found

    def end(self, started: list[Started], outcome: str = "succeeded", **report: Any) -> None:
        settle_as(self.conn, self.registry, started, outcome, **report)

    def ticket(self, run: UUID, **columns: Any) -> UUID:
        """As some process left it."""
        self._set(sql.Identifier("tickets_ticket"), "execution_id", run, columns)
        return run

    def execution(self, run: UUID, **columns: Any) -> UUID:
        self._set(sql.Identifier(self.tenant.schema_name, "executions_execution"), "id", run, columns)
        return run

    def entry(self, key: UUID, **columns: Any) -> UUID:
        self._set(sql.Identifier("due_dueentry"), "key", key, columns)
        return key

    def actor(self) -> Any:
        return actor(self.tenant)

    def _set(self, table: sql.Composable, key: str, value: UUID, columns: dict[str, Any]) -> None:
        pairs = sql.SQL(", ").join(
            sql.SQL("{} = {}").format(sql.Identifier(one), sql.Placeholder(one)) for one in columns
        )
        query = sql.SQL("UPDATE {} SET {} WHERE {} = {}").format(
            table, pairs, sql.Identifier(key), sql.Placeholder("_key")
        )
        assert self.conn.execute(query, {**columns, "_key": value}).rowcount == 1
