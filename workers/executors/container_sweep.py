"""Finds containers that nobody holds, and removes them.

Only those of this installation are looked at. One stays while the database says that its attempt runs, and, where the
runtime can hand it over, while its execution waits for the next attempt and the container's own time is not up.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Literal

from workers.executors.base import Key
from workers.executors.container_runtime import Found, Runtime, RuntimeFailed

log = logging.getLogger(__name__)

Alive = Callable[[Sequence[Key]], Mapping[Key, Literal["running", "waiting"]]]  # blocks; may raise anything


class Sweep:
    """Looks every `every_s` seconds, first at once."""

    def __init__(
        self, runtime: Runtime, installation: str, alive: Alive | None, held: Callable[[], set[Key]], *, every_s: float
    ) -> None:
        self._runtime, self._installation, self._alive, self._held = runtime, installation, alive, held
        self._every_s = every_s
        self.removed = 0

    async def run(self) -> None:
        while True:
            try:
                await self.once()
            except RuntimeFailed as error:
                log.warning("orphaned containers can't be looked for: %s", error.message)
            except Exception:
                log.exception("looking for orphaned containers failed")
            await asyncio.sleep(self._every_s)

    async def once(self) -> int:
        """Removes what nobody holds; how many."""
        found = [one for one in await self._runtime.find(self._installation) if not self._holds(one)]
        if not found:
            return 0
        orphans = [one for one in found if one.orphan and not self._runtime.adopts]
        rest = [one for one in found if one not in orphans]
        if rest and self._alive is not None:
            keys = [(one.execution_id, one.fence) for one in rest]
            alive = await asyncio.get_running_loop().run_in_executor(None, self._alive, keys)
            orphans += [one for one in rest if not self._stays(one, alive.get((one.execution_id, one.fence)))]
        removed = 0
        for one in orphans:
            if not self._holds(one):  # it may have been taken over since
                log.warning("removing container %s: nobody holds attempt %s/%d", one.ref, one.execution_id, one.fence)
                await self._runtime.remove(one)
                removed += 1
        self.removed += removed
        return removed

    def _holds(self, found: Found) -> bool:
        """Any attempt of its execution: whoever holds that looks after it."""
        return any(execution_id == found.execution_id for execution_id, _ in self._held())

    def _stays(self, found: Found, state: str | None) -> bool:
        if state == "running":
            return True
        return state == "waiting" and self._runtime.adopts and not found.ending and time.time() < found.deadline_s
