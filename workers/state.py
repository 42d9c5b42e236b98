"""The one runtime of this process, from its start to its end."""

from collections.abc import Callable

from django.conf import settings

from kernel.errors import Conflict
from workers.containers import container_executor
from workers.executors.base import Executor
from workers.executors.http import HttpExecutor
from workers.executors.python import PythonExecutor
from workers.runtime import Runtime

queues_named = False
_runtime: Runtime | None = None


def start(queues: Callable[[], list[str]]) -> Runtime:
    """Makes and starts the runtime of this process."""
    global _runtime
    _runtime = Runtime(executors(), queues=queues)
    _runtime.start()
    return _runtime


def runtime() -> Runtime:
    """The running runtime; Conflict when this process has none."""
    if _runtime is None:
        raise Conflict("This process is not a worker.")
    return _runtime


def stop(grace_s: float) -> None:
    """Drains and ends the runtime."""
    global _runtime
    if _runtime is not None:
        _runtime.stop(grace_s)
        _runtime = None


def executors() -> dict[str, Executor]:
    """An executor for each pool that this process serves."""
    makers: dict[str, Callable[[], Executor]] = {
        "http": lambda: HttpExecutor(slots=settings.HTTP_SLOTS),
        "python": lambda: PythonExecutor(
            registry=settings.PYTHON_TASKS, children=settings.PYTHON_CHILDREN, setup=settings.PYTHON_SETUP or None
        ),
        "container": container_executor,
    }
    unknown = set(settings.WORKER_POOLS) - set(makers)
    if unknown:
        raise Conflict(f"WORKER_POOLS names {', '.join(sorted(unknown))}; known are {', '.join(makers)}.")
    return {pool: makers[pool]() for pool in settings.WORKER_POOLS}
