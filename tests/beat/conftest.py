"""PeriodicTasks for a test; the platform's own housekeeping is switched off meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

if TYPE_CHECKING:
    from django_celery_beat.models import PeriodicTask

    from workers.beat_service import BeatService

QUEUE = "shardbeat.system"
LONG_AGO = datetime(2025, 1, 1, tzinfo=UTC)


@pytest.fixture
def periodic(database: None) -> Iterator[Callable[..., PeriodicTask]]:
    """Makes a PeriodicTask: every second unless `crontab=`, `interval=` or `clocked=` says otherwise.

    It was saved long ago, so that its newest slot is due.
    """
    from django_celery_beat.models import IntervalSchedule, PeriodicTask, PeriodicTasks

    housekeeping = list(PeriodicTask.objects.filter(enabled=True).values_list("pk", flat=True))
    PeriodicTask.objects.update(enabled=False)

    def make(name: str, *, changed_at: datetime | None = LONG_AGO, **fields: Any) -> PeriodicTask:
        if not {"crontab", "interval", "clocked", "solar"} & set(fields):
            fields["interval"], _ = IntervalSchedule.objects.get_or_create(every=1, period="seconds")
        task = PeriodicTask.objects.create(name=name, **{"task": "shardbeat.health", **fields})
        if changed_at is not None:
            PeriodicTask.objects.filter(pk=task.pk).update(date_changed=changed_at)
            task.refresh_from_db()
        return task

    yield make
    PeriodicTask.objects.exclude(pk__in=housekeeping).delete()
    PeriodicTask.objects.update(enabled=True, last_run_at=None, total_run_count=0)
    PeriodicTasks.objects.all().delete()


@pytest.fixture
def messages(database: None) -> Iterator[Callable[[], list[dict[str, Any]]]]:
    """What is on the platform's queue, oldest first: headers of each message, with its body as `body`."""
    import base64

    import orjson
    import redis
    from django.conf import settings

    client = redis.Redis.from_url(settings.BROKER_URL)
    client.delete(QUEUE)

    def read() -> list[dict[str, Any]]:
        found = []
        for raw in reversed(client.lrange(QUEUE, 0, -1)):
            message = orjson.loads(raw)
            found.append(message["headers"] | {"body": orjson.loads(base64.b64decode(message["body"]))})
        return found

    yield read
    client.delete(QUEUE)
    client.close()


@pytest.fixture
def beat(database: None) -> Iterator[Callable[[], BeatService]]:
    """Makes beats; each has its own connection."""
    import workers.housekeeping  # noqa: F401  the tasks are registered, as in a real beat
    from tenants.door import Line
    from workers.app import app
    from workers.beat_service import BeatService

    made: list[BeatService] = []

    def make() -> BeatService:
        made.append(BeatService(Line("test beat"), app))
        return made[-1]

    yield make
    for one in made:
        one.close()


def slots_of(conn: psycopg.Connection[Any], task: PeriodicTask) -> list[tuple[Any, ...]]:
    """(id, slot_at, sends, sent_at, started_at) of a task, oldest first."""
    return conn.execute(
        "SELECT id, slot_at, sends, sent_at, started_at FROM due_beatslot WHERE task_id = %s ORDER BY slot_at",
        [task.pk],
    ).fetchall()
