"""Celery beat over any number of processes: `celery -A workers.app beat -S workers.beat:LeaseScheduler`.

Such a process is a whole dispatcher (fire, release, reconcile) and serves the PeriodicTasks of the shared schema (see
`workers.beat_service`). Celery's own loop only waits: it holds no schedule. This is the one module of the workers that
knows dispatch.
"""

import logging
import threading
from typing import Any

from celery import Celery
from celery.beat import Scheduler

from apps.dispatch.dispatcher import Dispatcher
from kernel.clock import monotonic_s
from kernel.service import Loop
from workers.beat_service import IDLE_S, BeatService

log = logging.getLogger(__name__)
TICK_S = 1.0
CLOSE_S = 8.0  # a stop is over after so long, whatever the database or the broker do: what is held runs out by itself


class BeatDispatcher(Dispatcher):
    """A dispatcher with the beat as one more loop."""

    def __init__(self, app: Celery) -> None:
        super().__init__()
        self.beat = Loop(BeatService(self.keeper.line("beat"), app), idle_s=IDLE_S)

    def start(self) -> None:
        super().start()
        self.beat.start()

    def close(self) -> None:
        self.beat.stop()
        super().close()
        self.beat.join()

    def stats(self) -> dict[str, Any]:
        return super().stats() | {"beat": self.beat.totals | {"errors": self.beat.errors}}


class LeaseScheduler(Scheduler):
    """Celery's frame around it. A lazy scheduler, as the banner makes one, starts nothing."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._dispatcher: BeatDispatcher | None = None
        self._closing: threading.Thread | None = None
        self._close_by = 0.0
        super().__init__(*args, **kwargs)

    def setup_schedule(self) -> None:
        """Starts the loops; doing it twice is doing it once."""
        if self._dispatcher is not None:
            return
        if self.app.conf.beat_schedule:
            log.warning("beat_schedule in the configuration is not served: make PeriodicTasks in the admin")
        self._dispatcher = BeatDispatcher(self.app)
        self._dispatcher.start()

    def tick(self, *args: Any, **kwargs: Any) -> float:
        """Nothing is due here: the loops have their own threads."""
        return TICK_S

    def close(self) -> None:
        """Ends the work in hand and gives up the leases, within CLOSE_S. Celery calls it twice."""
        if self._dispatcher is not None:
            if self._closing is None:
                self._close_by = monotonic_s() + CLOSE_S
                self._closing = threading.Thread(target=self._dispatcher.close, name="beat close", daemon=True)
                self._closing.start()
            self._closing.join(max(0.0, self._close_by - monotonic_s()))
            if self._closing.is_alive():
                log.warning("the loops did not end within %.0f s; their leases run out by themselves", CLOSE_S)
        super().close()

    @property
    def info(self) -> str:
        return "    . PeriodicTasks of the shared schema, with a dispatcher"
