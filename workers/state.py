"""The one runtime of this process, from its start to its end."""

from collections.abc import Callable

from django.conf import settings

from apps.secrets.keyring import keyring
from kernel.errors import Conflict
from workers.breakers import BreakerDesk
from workers.containers import container_executor
from workers.executors.base import Executor
from workers.executors.delivery import DeliveryExecutor
from workers.executors.http import HttpExecutor
from workers.executors.http_breaker import Breakers
from workers.executors.python import PythonExecutor
from workers.executors.threads import ThreadExecutor
from workers.progress import ProgressBoard
from workers.runtime import Runtime

queues_named = False
DESK_STOP_S = 5.0
_runtime: Runtime | None = None
_desk: BreakerDesk | None = None


def start(queues: Callable[[], list[str]]) -> Runtime:
    """Makes and starts the runtime of this process."""
    global _runtime, _desk
    keyring()  # without keys no secret can be read: better not to start than to fail every run that needs one
    if settings.HTTP_BREAKER_FAILURES and "http" in settings.WORKER_POOLS:
        _desk = BreakerDesk()
        _desk.loop.start()
    progress = ProgressBoard()
    made = executors(progress, _desk.breakers if _desk is not None else None)
    _runtime = Runtime(made, queues=queues, progress=progress)
    _runtime.start()
    return _runtime


def runtime() -> Runtime:
    """The running runtime; Conflict when this process has none."""
    if _runtime is None:
        raise Conflict("This process is not a worker.")
    return _runtime


def stands_back() -> bool:
    """Whether operators told this process to take nothing more."""
    return _runtime is not None and _runtime.drain_wanted


def stop(grace_s: float) -> None:
    """Drains and ends the runtime."""
    global _runtime, _desk
    if _runtime is not None:
        _runtime.stop(grace_s)
        _runtime = None
    if _desk is not None:
        _desk.loop.stop()
        _desk.loop.join(DESK_STOP_S)
        _desk = None


def executors(progress: ProgressBoard, breakers: Breakers | None = None) -> dict[str, Executor]:
    """An executor for each pool that this process serves."""
    makers: dict[str, Callable[[], Executor]] = {
        "http": lambda: HttpExecutor(slots=settings.HTTP_SLOTS, breakers=breakers),
        "python": lambda: python_executor(progress),
        "queue": lambda: DeliveryExecutor(slots=settings.QUEUE_SLOTS),
        "container": container_executor,
    }
    unknown = set(settings.WORKER_POOLS) - set(makers)
    if unknown:
        raise Conflict(f"WORKER_POOLS names {', '.join(sorted(unknown))}; known are {', '.join(makers)}.")
    return {pool: makers[pool]() for pool in settings.WORKER_POOLS}


def python_executor(progress: ProgressBoard) -> Executor:
    """Child processes, or threads. Raises Conflict for another PYTHON_POOL."""
    setup, told = settings.PYTHON_SETUP or None, progress.report
    match settings.PYTHON_POOL:
        case "prefork":
            return PythonExecutor(
                registry=settings.PYTHON_TASKS, children=settings.PYTHON_CHILDREN, setup=setup, progress=told
            )
        case "threads":
            return ThreadExecutor(
                registry=settings.PYTHON_TASKS, threads=settings.PYTHON_THREADS, setup=setup, progress=told
            )
    raise Conflict(f"PYTHON_POOL is {settings.PYTHON_POOL}; known are prefork and threads.")
