"""The progress of an operation as one line of text. Pure."""

from collections.abc import Mapping
from datetime import datetime

WIDTH = 30
ENDED = ("succeeded", "skipped", "failed", "undone")


def bar(done: int, whole: int, *, width: int = WIDTH) -> str:
    """[######........]; full only when all is done."""
    full = width if done >= whole else done * width // whole
    return f"[{'#' * full}{'.' * (width - full)}]"


def done_of(counts: Mapping[str, int]) -> int:
    """How many are over, however they ended."""
    return sum(counts[name] for name in ENDED)


def progress_line(
    state: str, counts: Mapping[str, int], *, planned: int, expected_end: datetime | None, waits_for: str = ""
) -> str:
    """How far it is: a bar, how many of how many, what runs and what went wrong, what it waits for, when it may end."""
    if state == "planning":
        return f"{bar(0, 1)} {planned:,} found  {state}"
    done = done_of(counts)
    share = 100 if done >= planned else done * 100 // planned
    parts = [f"{bar(done, planned)} {done:,}/{planned:,} {share:3d} %", state]
    parts += [f"{counts[name]:,} {name}" for name in ("running", "failed", "skipped", "undone") if counts[name]]
    if waits_for:
        parts.append(f"waits: {waits_for}")
    if expected_end is not None:
        parts.append(f"ends about {expected_end:%Y-%m-%d %H:%M:%S}Z")
    return "  ".join(parts)
