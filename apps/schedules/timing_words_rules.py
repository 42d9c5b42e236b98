"""Calendar intervals, recurrence rules, windows and excluded days in words."""

from collections.abc import Iterable
from datetime import datetime

from apps.schedules.cron_kinds import MONTH_NAMES
from apps.schedules.recurrence_parse import Parts, parse_rrule
from apps.schedules.timing_spec import Spec
from apps.schedules.timing_triggers import Every, Recurrence

_UNITS = {
    "YEARLY": "year", "MONTHLY": "month", "WEEKLY": "week", "DAILY": "day", "HOURLY": "hour", "MINUTELY": "minute",
    "SECONDLY": "second",
}  # fmt: skip
_DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
MAX_TIMES_SHOWN = 6
_OUTSIDE = {"skip": "is left out", "next_opening": "runs when they open next"}
_ON_EXCLUDED = {
    "skip": "days that its calendar excludes are left out",
    "previous_business_day": "what falls on an excluded day runs on the business day before",
    "next_business_day": "what falls on an excluded day runs on the next business day",
}


def every_words(trigger: Every, zone: str) -> str:
    """Such as "every month at 09:00 on its 31st or last day, counted from 2026-01-31"."""
    anchor = datetime.fromisoformat(trigger.anchor)
    short = {"months": anchor.day > 28, "years": (anchor.month, anchor.day) == (2, 29)}.get(trigger.unit, False)
    last = ", on the last day of months that are too short" if short else ""
    every = _every(trigger.unit.removesuffix("s"), trigger.number)
    return f"{every} at {_clock(anchor)}{last}, counted from {anchor.date()} ({zone})"


def recurrence_words(trigger: Recurrence, zone: str) -> str:
    """The rule part by part; what has no short words stands as it was written."""
    parts = parse_rrule(trigger.rrule, lambda *_: None)
    start = datetime.fromisoformat(trigger.dtstart)
    if parts is None:
        return f"{trigger.rrule} ({zone})"
    words = [_every(_UNITS[parts.freq], parts.interval), *_limits(parts)]
    words.append(_within(parts) if parts.sub_daily else _times(parts, start))
    words.append(f"from {start.date()}")
    if parts.count is not None:
        words.append("once" if parts.count == 1 else f"{parts.count} times")
    if parts.until is not None:
        words.append(f"until {_until(parts.until)}")
    text = " ".join(word for word in words if word)
    if trigger.rdate:
        text += f", and at {len(trigger.rdate)} more instant{'s' * (len(trigger.rdate) > 1)}"
    if trigger.exdate:
        text += f", except at {len(trigger.exdate)}"
    return f"{text} ({zone})"


def limits_words(spec: Spec) -> list[str]:
    """Windows, excluded days and the number of runs."""
    found = []
    if spec.max_runs is not None:
        used = f", of which {spec.runs_used} are used up" if spec.runs_used else ""
        found.append(f"at most {spec.max_runs} runs{used}")
    if spec.windows:
        windows = " and ".join(
            f"{_time(window.from_s)} to {_time(window.until_s)}" + _on(window.days) for window in spec.windows
        )
        found.append(f"inside of {windows}; what falls outside {_OUTSIDE[spec.outside]}")
    if spec.exclusion is not None:
        found.append(_ON_EXCLUDED[spec.on_excluded])
    return found


def _limits(parts: Parts) -> list[str]:
    words = []
    names = [f"the {_nth(nth)} {_DAYS[day]}" if nth else _DAYS[day] for nth, day in parts.weekdays]
    if names:
        words.append("on " + " and ".join(names))
    lists = parts.lists
    if "BYMONTHDAY" in lists:
        words.append(
            "on day "
            + " and ".join(str(day) if day > 0 else f"{_nth(day)} of the month" for day in lists["BYMONTHDAY"])
        )
    if "BYMONTH" in lists:
        words.append("in " + " and ".join(MONTH_NAMES[month - 1] for month in lists["BYMONTH"]))
    words += [
        f"({name} {','.join(map(str, lists[name]))})" for name in ("BYYEARDAY", "BYWEEKNO", "BYSETPOS") if name in lists
    ]
    return words


def _times(parts: Parts, start: datetime) -> str:
    """The times of day of a rule from daily on, one by one as long as that is short."""
    hours = parts.lists.get("BYHOUR", (start.hour,))
    minutes = parts.lists.get("BYMINUTE", (start.minute,))
    seconds = parts.lists.get("BYSECOND", (start.second,))
    if len(hours) * len(minutes) * len(seconds) <= MAX_TIMES_SHOWN:
        return "at " + _and(
            _clock(start.replace(hour=hour, minute=minute, second=second))
            for hour in hours for minute in minutes for second in seconds
        )  # fmt: skip
    words = [("second", seconds)] * (seconds != (0,)) + [("minute", minutes), ("hour", hours)]
    return "at " + " of ".join(f"{name} {_and(map(str, values))}" for name, values in words)


def _within(parts: Parts) -> str:
    hours = parts.lists.get("BYHOUR")
    return f"in the hour{'s' * (len(hours) > 1)} {_and(map(str, hours))}" if hours else ""


def _until(text: str) -> str:
    """An RRULE's UNTIL as other times are written."""
    day = f"{text[:4]}-{text[4:6]}-{text[6:8]}"
    return day if len(text) == 8 else f"{day} {text[9:11]}:{text[11:13]}:{text[13:15]}{' UTC' * text.endswith('Z')}"


def _and(parts: Iterable[str]) -> str:
    *most, last = parts
    return f"{', '.join(most)} and {last}" if most else last


def _every(unit: str, number: int) -> str:
    return f"every {unit}" if number == 1 else f"every {number} {unit}s"


def _nth(number: int) -> str:
    if number == -1:
        return "last"
    size = abs(number)
    suffix = "th" if 10 < size % 100 < 14 else {1: "st", 2: "nd", 3: "rd"}.get(size % 10, "th")
    return f"{size}{suffix}" + (" last" if number < 0 else "")


def _clock(at: datetime) -> str:
    return f"{at:%H:%M:%S}" if at.second else f"{at:%H:%M}"


def _time(seconds: int) -> str:
    tail = f":{seconds % 60:02}" if seconds % 60 else ""
    return f"{seconds // 3600:02}:{seconds // 60 % 60:02}{tail}"


def _on(days: tuple[int, ...]) -> str:
    return "" if len(days) == 7 else " on " + " and ".join(_DAYS[day] for day in days)
