"""Reads what a process writes into the last part that is kept, no faster than is good for the others in the loop."""

import asyncio
import os
from contextlib import suppress

from workers.executors.container_output import Tail

READ_BYTES = 65_536
BURST_BYTES = 1_048_576  # in PAUSE_S: a container that floods its output waits, it costs no core
PAUSE_S = 0.1


class Drain:
    """Reads a pipe to its end into a Tail; owns the file descriptor."""

    def __init__(self, fd: int, loop: asyncio.AbstractEventLoop) -> None:
        self.tail = Tail()
        self._fd, self._loop, self._burst = fd, loop, 0
        self._ended = loop.create_future()
        os.set_blocking(fd, False)
        loop.add_reader(fd, self._read)

    async def wait_end(self, within_s: float) -> bool:
        """Until the pipe is closed by all who wrote to it; False when it is not in time."""
        done, _ = await asyncio.wait({self._ended}, timeout=within_s)
        return bool(done)

    def close(self) -> None:
        if self._fd >= 0:
            self._loop.remove_reader(self._fd)
            os.close(self._fd)
            self._fd = -1
        if not self._ended.done():
            self._ended.set_result(None)

    def _read(self) -> None:
        try:
            data = os.read(self._fd, READ_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self.close()
            return
        self.tail.add(data)
        self._burst += len(data)
        if self._burst >= BURST_BYTES:
            self._loop.remove_reader(self._fd)
            self._loop.call_later(PAUSE_S, self._go_on)

    def _go_on(self) -> None:
        self._burst = 0
        if self._fd >= 0:
            with suppress(ValueError):
                self._loop.add_reader(self._fd, self._read)
