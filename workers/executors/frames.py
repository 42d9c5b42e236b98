"""The wire between a worker and its child processes: framed JSON in pipes, and one page of shared memory.

JSON, not pickle: nothing that a callable returns can run code in the worker. The page tells the parent at any time what
the child runs, without a message for it, and still does after the child was killed.

    parent -> child   INIT {registry, ...}   WORKS [[seq, task, ...], ...]   REVOKE [seq, ...]
    child -> parent   READY   DONE header + JSON   REVOKED [seq, ...]: these will not run here   PROGRESS seq + JSON

A work has a number `seq` that grows per child; a child runs its works in that order.
"""

import struct

FRAME = struct.Struct("<IB")  # bytes that follow the header, kind
DONE_HEAD = struct.Struct("<QBdd")  # seq, status, started and finished (seconds since 1970)
MAX_FRAME_BYTES = 262_144  # from a child; results are cut to a quarter of that before

SEQ = struct.Struct("<Q")
INIT, WORKS, REVOKE, READY, DONE, REVOKED, PROGRESS = range(7)
SUCCEEDED, FAILED, FAILED_FOR_GOOD, TIMED_OUT, CANCELLED = range(5)

# Words of the page, each an aligned 64-bit number with one writer.
PAGE_BYTES = 4_096
LAST_STARTED = 0  # child: seq
STARTED_NS = 1  # child: monotonic clock, written before LAST_STARTED
LAST_FINISHED = 2  # child: seq, written after its DONE
INTERRUPT_SEQ = 3  # parent: the work that is asked to stop, before it sends the signal
INTERRUPT_WHY = 4  # parent: TIMED_OUT or CANCELLED


class BrokenFrame(ValueError):
    """The other side wrote what is no frame."""


def pack(kind: int, body: bytes = b"") -> bytes:
    return FRAME.pack(len(body), kind) + body


def unpack(buffer: bytearray) -> list[tuple[int, bytes]]:
    """Take all complete frames out of `buffer`. Raises BrokenFrame."""
    frames, at = [], 0
    while len(buffer) - at >= FRAME.size:
        size, kind = FRAME.unpack_from(buffer, at)
        if size > MAX_FRAME_BYTES or kind not in (READY, DONE, REVOKED, PROGRESS):
            raise BrokenFrame
        end = at + FRAME.size + size
        if end > len(buffer):
            break
        frames.append((kind, bytes(buffer[at + FRAME.size : end])))
        at = end
    del buffer[:at]
    return frames
