"""Durations for people."""

_UNITS = (("min", 60, "s", 1, 60), ("h", 3_600, "min", 60, 24), ("d", 86_400, "h", 3_600, 10**6))


def span(seconds: float) -> str:
    """ "420 ms", "1.5 s", "12 s", "3 min 4 s", "2 h 5 min", "3 d 4 h"."""
    if seconds < 0:
        return f"-{span(-seconds)}"
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 10:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    for unit, size, small, step, most in _UNITS:
        if whole < size * most:
            rest = whole % size // step
            return f"{whole // size} {unit}" + (f" {rest} {small}" if rest else "")
    return f"{whole} s"
