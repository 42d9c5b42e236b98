"""A Celery task that only tests know: it notes each run in the broker, by slot."""

from typing import Any

import redis
from django.conf import settings

from workers.app import app
from workers.periodic import SLOT_HEADER

RUNS = "tests:beat:runs"


@app.task(name="tests.beat.record", bind=True, ignore_result=True)
def record(self: Any, *args: Any, **kwargs: Any) -> None:
    """The list RUNS gets the id of the slot."""
    slot_id = (self.request.headers or {}).get(SLOT_HEADER, "none")
    with redis.Redis.from_url(settings.BROKER_URL) as client:
        client.rpush(RUNS, slot_id)
