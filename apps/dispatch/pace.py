"""How often a pool's release looks, and when it waits to have more to release at once. Pure; simulation keeps to it."""

# While workers are busy a pass waits until a good part of their room is free: few large messages, not many small ones.
REFILL_SHARE = 0.25
REFILL_WAIT_S = 0.1
BUSY_WAIT_S = 0.02  # between looks at workers, jobs or tenants that have no room


def waits_for_more(*, free: int, capacity: int, since_release_s: float) -> bool:
    """Whether a pass that could release `free` runs of a pool's `capacity` rather waits."""
    return free <= 0 or (since_release_s < REFILL_WAIT_S and free < capacity * REFILL_SHARE)
