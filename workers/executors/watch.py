"""Limits on what a child process does: time-outs, cancel, works stuck behind a long one, slow starts and exits.

`watch` acts on what is due now, `next_look_s` says when to look again; both read what the child runs from its page.
"""

from workers.executors import frames
from workers.executors.base import Held, Work
from workers.executors.childpool import Child

STUCK_S = 0.05  # a work that runs longer lets those behind it go
CANCEL_GRACE_S = 1.0  # between raising Cancelled in a work and killing its process
START_S = 60.0  # for imports of a new child
EXIT_S = 2.0  # for a child that has nothing more to do
LOOK_S = 0.02  # how soon to look what a child does with works that were just sent


def watch(child: Child, now_ns: int) -> None:
    """Enforce what is due at `now_ns` (monotonic)."""
    if child.hung_up_ns is not None:
        if _since_s(child.hung_up_ns, now_ns) >= EXIT_S:
            child.kill()
    elif not child.ready:
        if _since_s(child.spawned_ns, now_ns) >= START_S:
            child.kill()
    elif running := child.running():
        _watch_work(child, *running, now_ns)
    elif child.retiring and not child.in_flight and not child.has_unsent:
        child.hang_up(now_ns)


def next_look_s(child: Child, now_ns: int) -> float:
    """Seconds until `watch` has to be called for this child, when nothing comes from it before; may be infinite."""
    if child.hung_up_ns is not None:
        return EXIT_S - _since_s(child.hung_up_ns, now_ns)
    if not child.ready:
        return START_S - _since_s(child.spawned_ns, now_ns)
    running = child.running()
    if running is None:
        # With works it is waking up or between two of them.
        return LOOK_S if child.in_flight else float("inf")
    seq, started_ns = running
    entry = child.in_flight.get(seq)
    # Without an entry its result came already, and the page follows in a moment.
    return LOOK_S if entry is None else min(_limits_s(child, entry, seq)) - _since_s(started_ns, now_ns)


def is_stuck(child: Child, now_ns: int) -> bool:
    """Whether it runs something long, so that nothing should wait behind it."""
    running = child.running()
    return running is not None and _since_s(running[1], now_ns) >= STUCK_S


def _watch_work(child: Child, seq: int, started_ns: int, now_ns: int) -> None:
    entry = child.in_flight.get(seq)
    if seq > child.assigned:
        child.kill()  # it wrote over the page, so nothing can be known about it
    if entry is None or child.verdict:
        return
    ran_s = _since_s(started_ns, now_ns)
    if ran_s >= entry.work.timeout_s:
        child.kill((seq, entry.end_as or "timed_out"))
    elif entry.end_as:
        if entry.extra is None:
            child.interrupt(seq, frames.CANCELLED)
            entry.extra = now_ns
        elif _since_s(entry.extra, now_ns) >= CANCEL_GRACE_S:
            child.kill((seq, entry.end_as))
    elif ran_s >= _soft_timeout_s(entry.work) and child.page[frames.INTERRUPT_SEQ] != seq:
        child.interrupt(seq, frames.TIMED_OUT)
    if ran_s >= STUCK_S:
        child.long_seq = seq
        if len(child.in_flight) > 1 and not child.revoking:
            child.revoking = True
            child.revoke(waiting for waiting in child.in_flight if waiting > seq)


def _limits_s(child: Child, entry: Held, seq: int) -> list[float]:
    """When the running work needs attention, in seconds after its start."""
    if child.verdict:
        return [float("inf")]  # killed; its pipe will tell
    limits = [entry.work.timeout_s]
    if child.page[frames.INTERRUPT_SEQ] != seq:
        limits.append(_soft_timeout_s(entry.work))
    # That it runs long is worth a look by itself: room is counted anew.
    if child.long_seq != seq or (len(child.in_flight) > 1 and not child.revoking):
        limits.append(STUCK_S)
    if entry.extra is not None:
        limits.append(_since_s(child.page[frames.STARTED_NS], entry.extra) + CANCEL_GRACE_S)
    return limits


def _soft_timeout_s(work: Work) -> float:
    soft_s = work.target.get("soft_timeout_s")
    return float(soft_s) if isinstance(soft_s, int | float) and soft_s > 0 else float("inf")


def _since_s(then_ns: int, now_ns: int) -> float:
    return (now_ns - then_ns) / 1e9
