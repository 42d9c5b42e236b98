"""Looking at an operation from a terminal until it has ended: one line that moves; in a log, a line for each change."""

from collections.abc import Callable, Mapping
from time import sleep
from typing import Any, NamedTuple

from django.core.management.base import OutputWrapper

LOOK_S = 1.0
CLEAR = "\r\033[K"  # the terminal's line


class Look(NamedTuple):
    """How something is now: in words, and whether that will not change any more."""

    line: str
    has_ended: bool
    answer: Any


def until_ended(out: OutputWrapper, look: Callable[[], Look]) -> Any:
    """Looks every LOOK_S seconds and writes what it sees to `out`; the last answer. Ctrl-C raises KeyboardInterrupt."""
    is_terminal, told = out.isatty(), ""
    while True:
        seen = look()
        if is_terminal:
            out.write(f"{CLEAR}{seen.line}", ending="\n" if seen.has_ended else "")
        elif seen.line != told:
            out.write(seen.line)
        told = seen.line
        if seen.has_ended:
            return seen.answer
        sleep(LOOK_S)


def stands_still(state: str, counts: Mapping[str, int]) -> bool:
    """Whether nothing more happens to an operation until somebody does something about it."""
    return state == "paused" and not counts["running"]
