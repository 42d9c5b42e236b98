"""Work in lines of Python that were executed: a bound on it does not depend on the machine or on what else it does."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any, TypeVar

T = TypeVar("T")


def counted(work: Callable[[], T]) -> tuple[T, int]:
    """What the work returns, and how many lines it took; lines of the standard library's Python code count too."""
    lines = 0

    def each(frame: FrameType, event: str, arg: Any) -> Any:
        nonlocal lines
        if event == "line":
            lines += 1
        return each

    before = sys.gettrace()
    sys.settrace(each)
    try:
        result = work()
    finally:
        sys.settrace(before)
    return result, lines
