"""Cancelling a run: from this transaction on nothing more of it starts. What runs is stopped by whoever looks at it."""

from datetime import datetime
from typing import Any
from uuid import UUID

import psycopg

from apps.tickets import workflow_runs
from apps.workflows.interventions import store_changes
from apps.workflows.runs import store
from apps.workflows.runs.turn import Turn
from tenants.registry import Tenancy

Conn = psycopg.Connection[Any]


def cancel_run(conn: Conn, tenancy: Tenancy, run_id: UUID, *, now: datetime) -> None:
    """Cancels what waits of a run and of its sub-workflows; nothing when it is no run, has not begun or has ended.

    Locks its root. The caller locks the ticket of the run after that, and asks it to stop.
    """
    if not store.lock_of_runs(conn, tenancy.schema, [run_id]):
        return
    turn = Turn(conn, tenancy, now=now)
    turn.take(store_changes.below(conn, tenancy.schema, run_id))
    for run in sorted(turn.runs.values(), key=lambda one: one.depth):
        if run.state in ("running", "paused"):
            turn.cancel(run)
    turn.go_on()
    turn.write()
    workflow_runs.look_at(conn, turn.looks)
