"""Making many at a time: each item gets its own result, and a plan's limit, in the order in which they were sent."""

from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from kernel.errors import BatchRefused, QuotaExceeded, ShardbeatError

MAX_ITEMS = 1_000  # of one request
R = TypeVar("R")
M = TypeVar("M")


def in_rounds(
    rows: Mapping[int, R], *, room: int | None, make: Callable[[dict[int, R]], Mapping[int, ShardbeatError]],
    over: Callable[[int], QuotaExceeded],
) -> dict[int, ShardbeatError]:  # fmt: skip
    """Makes rows, at most `room` of them; what `make` refuses leaves its place to the next. Returns what was refused.

    `over` is told how many were made, and says what those get for which there is no room.
    """
    waiting, made = dict(rows), 0
    refused: dict[int, ShardbeatError] = {}
    while waiting and (room is None or made < room):
        some = list(waiting)[: None if room is None else room - made]
        lost = make({number: waiting.pop(number) for number in some})
        made += len(some) - len(lost)
        refused |= lost
    if waiting:
        refused |= dict.fromkeys(waiting, over(made))
    return refused


def results(
    count: int, made: Mapping[int, M], refused: Mapping[int, ShardbeatError], *, atomic: bool
) -> list[M | ShardbeatError]:
    """What became of each item, in order. BatchRefused when one of an `atomic` batch was refused: all is taken back."""
    if atomic and refused:
        raise BatchRefused(dict(sorted(refused.items())))
    return [made[number] if number in made else refused[number] for number in range(count)]


def only(found: Sequence[M | ShardbeatError]) -> M:
    """The one thing that was to be made; raises what it was refused with."""
    (one,) = found
    if isinstance(one, ShardbeatError):
        raise one
    return one
