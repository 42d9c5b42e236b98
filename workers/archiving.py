"""The archive as a PeriodicTask: each tenant whose plan archives has its turn, and no tenant all of the time."""

import logging
import random
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, NamedTuple

import psycopg
from django.conf import settings

from apps.archive.files import Store, store
from apps.archive.standing import standing
from apps.usage import archives
from kernel.clock import within
from kernel.errors import ShardbeatError
from tenants.door import Line
from tenants.models import Tenant
from workers.app import app

if TYPE_CHECKING:
    from apps.archive.archiving import Run

log = logging.getLogger(__name__)
BUDGET_S = 300.0
STATEMENT_MS = 25_000
TURN_S = 60.0  # of one tenant in one run; a batch that was begun is finished

_TENANTS = """
SELECT t.id, t.slug, t.schema_name, clock_timestamp() - p.retention_days * interval '1 day', p.archive_days
FROM tenants_tenant t JOIN tenants_plan p ON p.id = t.plan_id
WHERE t.status IN ('active', 'suspended') AND p.archive_days > 0 ORDER BY t.id
"""


class Turn(NamedTuple):
    """A tenant, what of it may be archived, and for how many days it is kept then."""

    tenant_id: int
    slug: str
    schema: str
    before: datetime
    archive_days: int


@app.task(name="shardbeat.archive", ignore_result=True)
def archive() -> dict[str, int]:
    """Moves history older than the plan's retention_days into files, and removes files older than its archive_days."""
    if not settings.ARCHIVE_URL:
        return {}
    total = {"tenants": 0, "batches": 0, "executions": 0, "expired": 0, "failed": 0}
    more, line, files = within(BUDGET_S), Line("archive", opened=_bounded), store()
    try:
        turns = [Turn._make(row) for row in line.get().execute(_TENANTS)]
        archives.forget(line.get(), but=[one.tenant_id for one in turns])
        random.shuffle(turns)  # when the time does not reach for all, it is not always the same ones who wait
        for turn in turns:
            if not more():
                break
            total["tenants"] += 1
            run = _turn(line, files, turn)
            if run is None:
                total["failed"] += 1
                continue
            total["batches"] += run.batches
            total["executions"] += run.counts.get("executions", 0)
            total["expired"] += run.expired
    finally:
        line.close()
    log.info("archive: %s", total)
    return total


def _turn(line: Line, files: Store, turn: Turn) -> "Run | None":
    """One tenant; None when it failed, which is nobody else's trouble."""
    from apps.archive.archiving import archive_run  # 50 MB of pyarrow, for those who archive

    tenant = Tenant(pk=turn.tenant_id, slug=turn.slug, schema_name=turn.schema)
    keep = timedelta(days=turn.archive_days)
    try:
        run = archive_run(line.fresh(visits=1), tenant, files, before=turn.before, keep=keep, more=within(TURN_S))
        found = standing(line.get(), turn.schema, before=turn.before)
    except (psycopg.Error, ShardbeatError) as error:
        log.warning("archive of tenant %s failed; it is tried again at the next run", turn.slug, exc_info=True)
        archives.note_fault(line.get(), turn.tenant_id, str(error).partition("\n")[0])
        return None
    archives.note(line.get(), turn.tenant_id, executions=found.executions, bytes=found.bytes, overdue_s=found.overdue_s)
    return run


def _bounded(conn: psycopg.Connection[Any]) -> None:
    """No statement holds vacuum back for long."""
    conn.execute(f"SET statement_timeout = {STATEMENT_MS}")
