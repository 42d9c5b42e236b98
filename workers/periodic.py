"""Base of all Celery tasks: one that was sent for a slot of a PeriodicTask runs at most once for it."""

import logging
import threading
from typing import Any

import psycopg
from celery import Task
from celery.exceptions import Ignore

from apps.due import slots
from tenants.door import Line

log = logging.getLogger(__name__)
SLOT_HEADER = "shardbeat_slot"
_lines = threading.local()  # a connection for each of Celery's threads; the task's own work never shares it


class SlotTask(Task):
    """Starts by compare-and-set on the slot's row when the message names one; else it is a plain Celery task."""

    abstract = True

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        slot_id = (self.request.headers or {}).get(SLOT_HEADER)
        if slot_id is None:
            return self.run(*args, **kwargs)
        if not slots.start(_line().get(), int(slot_id)):
            log.info("slot %s has been started before: not again", slot_id)
            raise Ignore()
        try:
            return self.run(*args, **kwargs)
        finally:
            _finish(int(slot_id))


def _finish(slot_id: int) -> None:
    try:
        slots.finish(_line().get(), slot_id)
    except psycopg.Error:  # the work is done: what it returned or raised counts, not this note
        log.exception("the end of slot %s could not be noted", slot_id)


def _line() -> Line:
    line: Line | None = getattr(_lines, "line", None)
    if line is None:
        line = _lines.line = Line("worker slot")
    return line
