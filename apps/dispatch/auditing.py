"""Sealing the audit trail (`apps.audit.sealing`), in the dispatcher that holds its lease.

Nothing that is wrong with the trail may cost the schedules their dispatcher: a pass that fails is told and tried again.
"""

import logging

import psycopg

from apps.audit import sealing
from apps.dispatch.keeper import Keeper
from kernel.errors import ShardbeatError
from kernel.service import Pass
from tenants.door import Line

log = logging.getLogger(__name__)
KIND = "seal"
EVERY_S = 1.5  # a row is sealed within 5 s; passes in a row cost less when they have more to do


class SealService:
    """Runs while this process holds the lease, which only spares others the work. One thread, one connection."""

    name = KIND

    def __init__(self, line: Line, keeper: Keeper) -> None:
        self._line = line
        self._keeper = keeper
        self._told = ""

    def run_once(self) -> Pass:
        if not self._keeper.held(KIND):
            return Pass(wait_s=EVERY_S)
        conn = self._line.get()
        try:
            done = sealing.seal(conn)
        except (ShardbeatError, psycopg.Error) as error:
            if conn.closed:
                raise
            if str(error) != self._told:
                log.error("the audit trail is not sealed: %s", error)
            self._told = str(error)
            return Pass({"seal_failed": 1}, wait_s=EVERY_S)
        self._told = ""
        counts = {"sealed": done.count, "alarms": int(bool(done.alarm))}
        return Pass(counts, full=done.full, wait_s=EVERY_S)

    def close(self) -> None:
        self._line.close()
