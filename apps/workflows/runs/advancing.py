"""What the ends of executions mean for the runs that they are steps of, in the transaction in which they end.

Order of locks: first `lock`, the roots of the runs; then the tickets of what ends; then `advance`, which waits for
nobody but for tickets of runs, which it locks last and in id order.
"""

from collections.abc import Collection, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

import psycopg

from apps.tickets import workflow_runs
from apps.workflows.runs import store
from apps.workflows.runs.turn import Turn
from apps.workflows.runs.values import Ended
from tenants.registry import Tenancy

Conn = psycopg.Connection[Any]


def lock(conn: Conn, tenancy: Tenancy, execution_ids: Collection[UUID]) -> None:
    """Locks, in id order, the roots of the runs whose steps have these executions."""
    store.lock_of_executions(conn, tenancy.schema, execution_ids)


def advance(conn: Conn, tenancy: Tenancy, ended: Sequence[Ended], *, now: datetime) -> set[UUID]:
    """Notes steps that have ended and starts what they let start; returns the runs that have to be looked at.

    Whatever of `ended` is no step of a run, or not the current try of one, changes nothing.
    """
    ends = store.end_steps(conn, tenancy.schema, ended)
    if not ends:
        return set()
    turn = Turn(conn, tenancy, now=now)
    turn.note(ends)
    turn.go_on()
    turn.write()
    return turn.looks


def ask_for_looks(conn: Conn, tenancy: Tenancy, execution_ids: Collection[UUID]) -> None:
    """These executions end in this transaction, which does not hold the locks of their runs: others note it soon."""
    workflow_runs.look_at(conn, store.runs_of_executions(conn, tenancy.schema, execution_ids))
