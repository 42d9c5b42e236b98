"""The fields of a cron expression: their ranges and names."""

from dataclasses import dataclass, field

MONTH_NAMES = ("January", "February", "March", "April", "May", "June", "July", "August", "September", "October",
               "November", "December")  # fmt: skip
WEEKDAY_NAMES = ("Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday")
FIRST_YEAR, LAST_YEAR = 1970, 2199


@dataclass(frozen=True, slots=True, eq=False)
class FieldKind:
    """What a field may hold. `hash_high` is the last value that `H` may pick: every month has 28 days."""

    name: str
    low: int
    high: int
    hash_high: int
    names: dict[str, int] = field(default_factory=dict)


def _short_and_long(names: tuple[str, ...], first: int) -> dict[str, int]:
    return {name[:size].upper(): number for number, name in enumerate(names, first) for size in (3, 9)}


SECOND = FieldKind("second", 0, 59, 59)
MINUTE = FieldKind("minute", 0, 59, 59)
HOUR = FieldKind("hour", 0, 23, 23)
DAY = FieldKind("day-of-month", 1, 31, 28)
MONTH = FieldKind("month", 1, 12, 12, _short_and_long(MONTH_NAMES, 1))
WEEKDAY = FieldKind("day-of-week", 0, 7, 6, _short_and_long(WEEKDAY_NAMES, 0))
YEAR = FieldKind("year", FIRST_YEAR, LAST_YEAR, LAST_YEAR)
KINDS = (SECOND, MINUTE, HOUR, DAY, MONTH, WEEKDAY, YEAR)
