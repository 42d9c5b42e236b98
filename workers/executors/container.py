"""The container executor: one asyncio loop in a thread looks after all containers of a worker process.

What runs a container is behind `container_runtime.Runtime`. One attempt is `container_run.Run`; here is who waits, who
runs, and who looks for containers that nobody holds (`container_sweep`).
"""

import asyncio
import logging
import time
from collections.abc import Callable
from datetime import datetime

from kernel.clock import utc_now
from kernel.containerrules import ContainerRules
from workers.executors.base import Held, Result, returned
from workers.executors.container_run import Run
from workers.executors.container_runtime import STOP_GRACE_S, Runtime, RuntimeFailed
from workers.executors.container_sweep import Alive, Sweep
from workers.executors.loops import LoopExecutor

log = logging.getLogger(__name__)

DEFAULT_SLOTS = 4
SWEEP_EVERY_S = 10.0
UNAVAILABLE_S = 5.0  # a runtime that could not be asked is offered no work for so long
STOP_S = 8.0  # for containers to be stopped and removed, after the grace period


class ContainerExecutor(LoopExecutor):
    """Runs works of kind `container`. See `base.Executor` for the contract of its methods.

    `alive` says which (execution, fence) of these the database still knows, running or waiting for another attempt.
    """

    def __init__(
        self,
        runtime: Runtime,
        *,
        rules: ContainerRules,
        installation: str,
        alive: Alive | None = None,
        slots: int = DEFAULT_SLOTS,
        stop_grace_s: float = STOP_GRACE_S,
        sweep_every_s: float = SWEEP_EVERY_S,
        clock: Callable[[], datetime] = utc_now,
    ) -> None:
        loop = asyncio.new_event_loop()
        super().__init__(loop, name="container executor", slots=slots, stop_s=STOP_S, clock=clock)
        self._serves = True
        self._runtime, self._rules, self._installation = runtime, rules, installation
        self._stop_grace_s = stop_grace_s
        self._sweep = Sweep(runtime, installation, alive, self._ledger.keys, every_s=sweep_every_s)
        self._unavailable_until = 0.0

    @property
    def slots(self) -> int:
        """No slots without a runtime: then no work is to come here."""
        return self._ledger.slots if self._serves else 0

    def free(self) -> int:
        away = not self._serves or time.monotonic() < self._unavailable_until
        return 0 if away else self._ledger.free()

    # Everything below runs in the loop's thread.

    def _serve(self) -> None:
        asyncio.set_event_loop(self._loop)
        opened = False
        try:
            self._loop.run_until_complete(self._runtime.open())
            opened = True
            sweeping = self._loop.create_task(self._sweep.run())
            self._loop.run_forever()
            sweeping.cancel()
            rest = [*self._running.values(), sweeping]
            for task in rest:
                task.cancel()
            self._loop.run_until_complete(asyncio.gather(*rest, return_exceptions=True))
        except Exception:
            log.exception("the container runtime %s does not serve", self._runtime.name)
            self._serves = False
        finally:
            self._ledger.close()
            if opened:
                self._loop.run_until_complete(self._runtime.close())
            self._loop.run_until_complete(self._loop.shutdown_default_executor())
            self._loop.close()
            for entry in self._ledger.entries():  # none, unless this thread failed
                self._ledger.end(entry, returned(self._clock(), entry.started_at))

    def _begin(self, entry: Held) -> asyncio.Task[Result]:
        entry.started_at = self._clock()
        entry.extra = run = Run(
            self._runtime, entry.work, entry.started_at, rules=self._rules, installation=self._installation,
            stop_grace_s=self._stop_grace_s, clock=self._clock,
        )  # fmt: skip
        return self._loop.create_task(run.result())

    def _ask_to_stop(self, entry: Held, task: asyncio.Task[Result]) -> None:
        entry.extra.stop(entry.end_as)

    def _saw(self, entry: Held, exception: BaseException | None) -> str:
        if exception is None and entry.extra.unavailable:
            self._unavailable_until = time.monotonic() + UNAVAILABLE_S
        elif exception is not None and not isinstance(exception, RuntimeFailed):
            log.error("a container run failed", exc_info=exception)
        return "The run"
