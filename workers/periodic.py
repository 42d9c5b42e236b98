"""Base of all Celery tasks: one that was sent for a slot of a PeriodicTask runs at most once for it."""

import logging
from typing import Any

from celery import Task
from celery.exceptions import Ignore

from apps.due import slots
from tenants import door

log = logging.getLogger(__name__)
SLOT_HEADER = "shardbeat_slot"


class SlotTask(Task):
    """Starts by compare-and-set on the slot's row when the message names one; else it is a plain Celery task."""

    abstract = True

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        slot_id = (self.request.headers or {}).get(SLOT_HEADER) or self.request.get(SLOT_HEADER)
        if slot_id is None:
            return self.run(*args, **kwargs)
        if not slots.start(door.raw(), int(slot_id)):
            log.info("slot %s has been started before: not again", slot_id)
            raise Ignore()
        try:
            return self.run(*args, **kwargs)
        finally:
            slots.finish(door.raw(), int(slot_id))
