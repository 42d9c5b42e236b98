"""Removing tenants whose grace is over (`tenants.deletion`), in any dispatcher, beside everything else."""

import logging

from kernel.service import Pass
from tenants import deletion
from tenants.door import Line

log = logging.getLogger(__name__)
LOOK_S = 5.0
STEPS_A_PASS = 20


class DeletionService:
    """Takes steps until nothing is left to delete. One thread, one connection; others may do the same."""

    name = "deletion"

    def __init__(self, line: Line) -> None:
        self._line = line
        self._said: dict[int, str] = {}  # why a tenant's deletion waits, said once and not at each look

    def run_once(self) -> Pass:
        conn = self._line.get()
        counts, after = {"deleted": 0, "delete_failed": 0, "deleted_rows": 0}, 0
        for _ in range(STEPS_A_PASS):
            try:
                step = deletion.delete_step(conn, after=after)
            except deletion.StepFailed as failed:
                if conn.closed:
                    raise
                if self._said.get(failed.tenant_id) != str(failed):
                    self._said[failed.tenant_id] = str(failed)
                    log.warning("the deletion of tenant %s waits: %s", failed.slug, failed)
                counts["delete_failed"] += 1
                after = failed.tenant_id  # the others do not wait for it
                continue
            if step is None:
                return Pass(counts, wait_s=LOOK_S)
            counts["deleted_rows"] += step.removed
            if step.done:
                counts["deleted"] += 1
                log.info("tenant %s is deleted", step.slug)
        return Pass(counts, full=True)

    def close(self) -> None:
        self._line.close()
