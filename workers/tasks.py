"""The batch task: what a release puts on a queue. It claims in the database, hands to the executor and returns."""

import logging
from typing import Any
from uuid import UUID

from kernel.pools import BATCH_TASK
from workers import state
from workers.app import app

log = logging.getLogger(__name__)


@app.task(name=BATCH_TASK, ignore_result=True)
def batch(queue: Any, release: Any, ids: Any) -> None:
    """Starts the tickets of one queue that were released together.

    A message that can't be read is dropped with a line in the log: it carries nothing, its tickets are released again.
    """
    try:
        pool = str(queue).split(".", 1)[0]
        wanted = [UUID(hex=one) for one in ids]
        number = int(release)
    except (TypeError, ValueError, AttributeError):
        log.warning("a batch message can't be read and is dropped")
        return
    state.runtime().take(pool, wanted, number, queue=str(queue))
