"""Celery tasks as people have them, for the tests of the adapter: nothing in here knows of this platform."""

from typing import Any

from celery import Task, shared_task, signals
from celery.exceptions import Ignore, Reject, SoftTimeLimitExceeded

from tests.executors.sample_tasks import hold, spin

seen: list[str] = []
REGISTRY = {
    name: f"{__name__}:{name}"
    for name in (
        *("add", "whoami", "again", "again_with", "flaky", "used_up", "reject", "requeue", "ignore", "hooked"),
        *("journal", "calls_another", "waits", "spins", "schema", "own_call"),
    )
}


@shared_task
def add(x: int, y: int = 1) -> int:
    return x + y


@shared_task(bind=True)
def whoami(self: Any, **kwargs: Any) -> dict[str, Any]:
    request = self.request
    return {
        "id": request.id, "retries": request.retries, "key": request.correlation_id, "name": request.task,
        "kwargs": request.kwargs, "tenant": request.shardbeat.tenant, "direct": request.called_directly,
    }  # fmt: skip


@shared_task(bind=True, default_retry_delay=7, max_retries=None)
def again(self: Any) -> None:
    raise self.retry()


@shared_task(bind=True, max_retries=None)
def again_with(self: Any, x: int) -> None:
    raise self.retry(args=(x + 1,))


@shared_task(autoretry_for=(ConnectionError,), retry_backoff=3, retry_jitter=False, max_retries=2)
def flaky() -> None:
    raise ConnectionError("the mail server is away")


@shared_task(bind=True, max_retries=0)
def used_up(self: Any) -> None:
    try:
        raise ValueError("no such row")
    except ValueError as error:
        raise self.retry(exc=error) from error


@shared_task
def reject() -> None:
    raise Reject("not mine")


@shared_task
def requeue() -> None:
    raise Reject("later", requeue=True)


@shared_task
def ignore() -> None:
    raise Ignore


class Hooked(Task):
    def before_start(self, *args: Any) -> None:
        seen.append("before_start")

    def on_success(self, *args: Any) -> None:
        seen.append("on_success")

    def on_failure(self, *args: Any) -> None:
        seen.append("on_failure")

    def on_retry(self, *args: Any) -> None:
        seen.append("on_retry")

    def after_return(self, state: str, *args: Any) -> None:
        seen.append(f"after_return {state}")


@shared_task(base=Hooked, bind=True, max_retries=None, default_retry_delay=1)
def hooked(self: Any, how: str = "") -> None:
    if how == "fail":
        raise ValueError
    if how == "retry":
        raise self.retry()


@signals.task_prerun.connect
def note_prerun(**kwargs: Any) -> None:
    seen.append("prerun")


@signals.task_postrun.connect
def note_postrun(state: str = "", **kwargs: Any) -> None:
    seen.append(f"postrun {state}")


def journal(payload: Any, context: Any) -> list[str]:
    """What was seen since the last look; a plain callable, so it leaves no trace itself."""
    found = seen[:]
    seen.clear()
    return found


@shared_task
def calls_another() -> int:
    return int(add(1, 2)) + int(add.run(3, 4))


@shared_task(bind=True)
def waits(self: Any, path: str) -> str:
    try:
        return hold({"path": path}, self.request.shardbeat)
    except SoftTimeLimitExceeded:
        return "cleaned up"


@shared_task(bind=True)
def spins(self: Any, path: str) -> str:
    try:
        spin({"path": path}, self.request.shardbeat)
    except SoftTimeLimitExceeded:
        return "cleaned up"
    return "never"


class OwnCall(Task):
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return {"wrapped": self.run(*args, **kwargs)}


@shared_task(base=OwnCall)
def own_call() -> str:
    return "inner"


@shared_task
def schema() -> str:
    """The schema that the ORM works in."""
    from django.db import connection

    with connection.cursor() as cursor:
        cursor.execute("SELECT current_schema()")
        row = cursor.fetchone()
    assert row
    return str(row[0])
