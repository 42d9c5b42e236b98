"""Runs a dispatcher until it is told to stop. Any number may run."""

import signal
from typing import Any

from apps.dispatch.dispatcher import Dispatcher
from tenants.commands import Command as Base


class Command(Base):
    help = "Fire due schedules, release ready work, reconcile. Ends with SIGTERM or Ctrl-C after the work in hand."

    def handle(self, *args: Any, **options: Any) -> None:
        dispatcher = Dispatcher()
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: dispatcher.stop())
        dispatcher.run()
