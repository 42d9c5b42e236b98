"""Bringing the shared schema up to date, one run at a time, without keeping its users waiting for long.

Its tables are the hottest of all. A change of one waits `lock_timeout_ms` for it, then lets everybody else go first and
is tried again. Each migration is a transaction of its own, so what was done stays.
"""

import time
from collections.abc import Callable

import psycopg
from django.core.management import call_command
from django.db import DatabaseError, connection

from kernel.backoff import delay_s
from kernel.clock import monotonic_s
from kernel.errors import Conflict
from tenants import door
from tenants.behind import shared_pending
from tenants.migrating_one import in_the_way, reason_of
from tenants.provisioning import grant_shared

PAUSE_S, PAUSE_MAX_S = 0.5, 10.0
ALONE = "SELECT pg_advisory_lock(hashtextextended('shardbeat shared schema', 0))"


def shared_migrate(*, lock_timeout_ms: int, retry_for_s: float, say: Callable[[str], None]) -> None:
    """Migrates and grants. Waits for another run. Conflict when its tables stay locked for `retry_for_s`.

    Django's connection must have the migrating role (`door.become_owner`).
    """
    until, turn = monotonic_s() + retry_for_s, 0
    with door.connect("migrate shared", owner=True, guarded=False) as conn:
        conn.execute(ALONE)
        while True:
            turn += 1
            try:
                if shared_pending(conn):
                    _once(lock_timeout_ms)
                return grant_shared()
            except (DatabaseError, psycopg.Error) as error:
                if not in_the_way(error):
                    raise
                reason = reason_of(error)
                connection.close()
                pause = delay_s(turn, base_s=PAUSE_S, factor=2, max_s=PAUSE_MAX_S)
                if monotonic_s() + pause >= until:
                    raise Conflict(f"The shared schema could not be migrated, run it again: {reason}.") from error
                say(f"The shared schema is in use ({reason}); again in {pause:.1f} s.")
                time.sleep(pause)


def _once(lock_timeout_ms: int) -> None:
    door.raw().execute("SELECT set_config('lock_timeout', %s, false)", [str(lock_timeout_ms)])
    call_command("migrate_schemas", shared=True, interactive=False, verbosity=0)
