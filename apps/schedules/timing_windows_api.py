"""Daily run windows as the API writes them: `[{"from": "08:00", "to": "18:00", "days": ["mon", "fri"]}]`."""

import re
from collections.abc import Mapping
from typing import Any

from apps.schedules.timing_open import Window
from apps.schedules.timing_zones import DAY_S
from kernel.errors import Faults

DAY_NAMES = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
LONG_NAMES = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
MAX_WINDOWS = 20
_CLOCK = re.compile(r"([0-9]{2}):([0-9]{2})(?::([0-9]{2}))?")


def read_windows(given: Any, faults: Faults) -> tuple[Window, ...]:
    """The windows, in order; empty means always open."""
    if given is None:
        return ()
    if not isinstance(given, list | tuple) or not 1 <= len(given) <= MAX_WINDOWS:
        faults.add(
            "/windows",
            "type",
            f'must be a list of 1 to {MAX_WINDOWS} windows such as {{"from": "08:00", "to": "18:00"}}.',
        )
        return ()
    found = [_window(each, f"/windows/{number}", faults) for number, each in enumerate(given)]
    return tuple(
        sorted({each for each in found if each is not None}, key=lambda each: (each.from_s, each.until_s, each.days))
    )


def read_days(given: Any, pointer: str, faults: Faults) -> tuple[int, ...]:
    """Weekdays by their English names, short or whole."""
    if not isinstance(given, list | tuple) or not given:
        faults.add(pointer, "type", f"must be a list of {', '.join(DAY_NAMES)}.")
        return ()
    found = set()
    for number, name in enumerate(given[:20]):
        written = name.strip().lower() if isinstance(name, str) else ""
        short = written[:3]
        if short not in DAY_NAMES or written not in (short, LONG_NAMES[DAY_NAMES.index(short)]):
            faults.add(f"{pointer}/{number}", "choice", f"must be one of {', '.join(DAY_NAMES)}.")
        else:
            found.add(DAY_NAMES.index(short))
    return tuple(sorted(found))


def _window(given: Any, pointer: str, faults: Faults) -> Window | None:
    if not isinstance(given, Mapping):
        faults.add(pointer, "type", 'must be an object such as {"from": "08:00", "to": "18:00", "days": ["mon"]}.')
        return None
    for name in list(given)[:10]:
        if name not in ("from", "to", "days"):
            faults.add(pointer, "unknown_field", f"{str(name)[:30]!r} does not belong to a window: from, to, days.")
    start, end = (_clock(given.get(name), f"{pointer}/{name}", faults) for name in ("from", "to"))
    days = read_days(given["days"], f"{pointer}/days", faults) if given.get("days") is not None else tuple(range(7))
    if start is None or end is None or not days:
        return None
    if start in (DAY_S, end):
        faults.add(pointer, "range", "must not be empty; a whole day is from 00:00 to 24:00.")
        return None
    return Window(start, end, days)


def _clock(value: Any, pointer: str, faults: Faults) -> int | None:
    match = _CLOCK.fullmatch(value) if isinstance(value, str) else None
    if match:
        hour, minute, second = (int(part or 0) for part in match.groups())
        seconds = hour * 3600 + minute * 60 + second
        if minute < 60 and second < 60 and seconds <= DAY_S:
            return seconds
    faults.add(pointer, "format", "must be a time of day such as 08:00; the end of the day is 24:00.")
    return None
