"""Other schedulers' spellings: names the dialect of a refused text and offers the equivalent, where there is one."""

import re
from collections.abc import Callable

from apps.schedules.cron_fields import parse_field
from apps.schedules.cron_kinds import KINDS, WEEKDAY, YEAR

_UNITS = {"second": 1, "sec": 1, "minute": 60, "min": 60, "hour": 3600, "day": 86_400, "week": 604_800}
_WORD_TIMES = {
    "minutely": "* * * * *",
    "hourly": "@hourly",
    "daily": "@daily",
    "weekly": "0 0 * * 1",
    "monthly": "@monthly",
    "yearly": "@yearly",
    "annually": "@yearly",
    "quarterly": "0 0 1 1,4,7,10 *",
    "midnight": "@midnight",
}
_COLUMNS = (
    ("minute",),
    ("hour",),
    ("mday", "day", "day_of_month"),
    ("month", "month_of_year"),
    ("wday", "dayofweek", "day_of_week"),
)
_NAMED = re.compile(r"(\w+)\s*=\s*(?:'([^']*)'|\"([^\"]*)\"|([^,()\s]+(?:,[\d*/-]+)*))")
_QUOTED = re.compile(r"['\"`>(]([^'\"`<>()]+)['\"`<)]")
_AFTER_KEY = re.compile(r"^\w+: ?([^'\"]+)$")
_ALIAS = re.compile(r"@(?:hourly|daily|midnight|weekly|monthly|yearly|annually)")
_ZONE_ARGUMENT = re.compile(r"timezone ?[=:(] ?['\"]?([A-Za-z][\w/.+-]*)")
_ON = "(?:OnCalendar=)?"
_DAY_NAMES = [name for name in WEEKDAY.names if len(name) == 3]  # Sunday first
_WEEKDAY_NUMBER = re.compile(r"(?<![#/\d])[1-7](?!\d)")


def foreign_hint(text: str) -> str | None:
    """One sentence for a text of another dialect; None when it looks like none that is known."""
    text = " ".join(text.split())
    for pattern, hint in _DIALECTS:
        if (match := pattern.fullmatch(text)) and (found := hint(match)):
            return found
    if len(_NAMED.findall(text)) > 1 or text.startswith("crontab("):
        return _named(text)
    for inner in (*_QUOTED.findall(text), *_AFTER_KEY.findall(text)):
        if _is_legal(inner.split()) or _ALIAS.fullmatch(inner):
            return f"write the expression alone: '{' '.join(inner.split())}'{_zone_beside(text)}"
    return None


def _zone_beside(text: str) -> str:
    """What else to write, where a call has an argument `timezone`."""
    if not (match := _ZONE_ARGUMENT.search(text)):
        return ""
    shown = match[1]
    return (
        f" and timezone {shown!r}" if "/" in shown or shown == "UTC" else f" and the timezone that {shown} stands for"
    )


def _reboot(match: re.Match[str]) -> str:
    return "@reboot has no meaning here: there is no machine that starts; for a single run use a trigger with 'at'"


def _once(match: re.Match[str]) -> str:
    return "@once (Airflow) is not a repeating schedule; use a trigger with 'at' and the instant"


def _every_alias(match: re.Match[str]) -> str:
    return f"@every {match[1]} is an interval; write it alone, as @every 90s, @every 5m or @every 1h30m"


def _rate(match: re.Match[str]) -> str:
    seconds = int(match[1]) * _UNITS[match[2].lower()]
    return f"rate(...) is EventBridge's form; use an interval: every_s {seconds}"


def _every_words(match: re.Match[str]) -> str:
    seconds = int(match[1] or 1) * _UNITS[match[2].lower()]
    hours = f", and windows from {match[3]} to {match[4]}" if match[3] else ""
    return f"that is an interval in words; use a trigger with every_s {seconds}, or @every {seconds}s{hours}"


def _ruby_interval(match: re.Match[str]) -> str:
    seconds = int(match[1]) * _UNITS[match[2].lower()]
    return f"that is an interval of a Ruby scheduler (whenever, clockwork); use a trigger with every_s {seconds}"


def _short_interval(match: re.Match[str]) -> str:
    seconds = int(match[1]) * {"s": 1, "m": 60, "h": 3600}[match[2].lower()]
    return f"that is an interval, as in Prow; use a trigger with every_s {seconds}"


def _seconds(match: re.Match[str]) -> str:
    return f"a number of seconds (Celery) is an interval; use a trigger with every_s {int(match[1])}"


def _cron_call(match: re.Match[str]) -> str:
    words = match[1].split()
    if shown := _without_year(words):
        return f"cron(...) is EventBridge's form with the year last; write '{shown}'"
    return f"cron(...) is another scheduler's form; write '{' '.join(words)}' alone"


def _year_last(match: re.Match[str]) -> str | None:
    shown = _without_year(match[0].split())
    if shown is None:
        return None
    return f"six fields start with the second; if the last one is meant as a year (EventBridge, Nomad), write '{shown}'"


def _without_year(words: list[str]) -> str | None:
    """Minute, hour, day, month, weekday, year as it is written here; None when it is not that."""
    if len(words) != 6 or parse_field(YEAR, words[5].upper()).faults or not _is_legal(words[:5]):
        return None
    if "?" in words:  # EventBridge asks for it, and counts weekdays from Sunday = 1
        words = [*words[:4], _WEEKDAY_NUMBER.sub(lambda day: _DAY_NAMES[int(day[0]) - 1], words[4]), words[5]]
    shown = " ".join(words[:5])
    return shown if words[5] == "*" else f"0 {shown} {words[5]}"


def _zone_last(match: re.Match[str]) -> str:
    return f"a zone inside the expression (sidekiq, Snowflake) is refused; write '{match[1]}' and timezone {match[2]!r}"


def _user_column(match: re.Match[str]) -> str | None:
    if not _is_legal(match[1].split()):
        return None
    return f"{match[2]!r} looks like the user column of a system crontab; write '{match[1]}'"


def _comment(match: re.Match[str]) -> str | None:
    words = match[1].split()
    shown = next((words[:size] for size in (len(words), 5) if _is_legal(words[:size])), None)
    return None if shown is None else f"the line is commented out; write '{' '.join(shown)}'"


def _comment_after(match: re.Match[str]) -> str | None:
    return f"leave the comment out; write '{match[1]}'" if _is_legal(match[1].split()) else None


def _calendar(match: re.Match[str]) -> str | None:
    """systemd's OnCalendar: weekdays year-month-day hour:minute:second zone."""
    given = match.groupdict()
    if all((given[name] or "").isdigit() for name in ("y", "mo", "d", "h", "m")):
        return "that is a single instant; use a trigger with 'at'"
    weekday = (given["wd"] or "*").upper().replace("..", "-").rstrip(",")
    weekday = re.sub(r"([A-Z]{3})[A-Z]*", r"\1", weekday)
    second, minute, hour, day, month, year = (
        _calendar_field(given[name], default)
        for name, default in (("s", "0"), ("m", "0"), ("h", "0"), ("d", "*"), ("mo", "*"), ("y", "*"))
    )
    words = [minute, hour, day, month, weekday]
    if second != "0" or year != "*":
        words = [second, *words, *[year] * (year != "*")]
    if not _is_legal(words):
        return None
    zone = f" and timezone {given['z']!r}" if given["z"] else ""
    return f"that is systemd's OnCalendar; write '{' '.join(words)}'{zone}"


def _calendar_field(text: str | None, default: str) -> str:
    """0/15 starts at 0 and goes on; leading zeros mean nothing."""
    if text is None:
        return default
    text = re.sub(r"\b0+(?=\d)", "", text.replace("..", "-"))
    return re.sub(r"^(?:\*|0)/(\d+)$", r"*/\1", text)


def _at_call(match: re.Match[str]) -> str:
    return f"at(...) is EventBridge's form for a single run; use a trigger with 'at' and {match[1]}"


def _daily_words(match: re.Match[str]) -> str | None:
    days = {"day": "*", "weekday": "1-5"}.get(match[1].lower(), match[1][:3].upper())
    hour = int(match[2]) % 12 + 12 * (match[4].lower() == "pm") if match[4] else int(match[2])
    words = [str(int(match[3] or 0)), str(hour), "*", "*", days]
    return f"times in words are not understood; write '{' '.join(words)}'" if _is_legal(words) else None


def _command(match: re.Match[str]) -> str | None:
    if not _is_legal(match[1].split()):
        return None
    return f"a crontab's command does not belong here, the job says what runs; write '{match[1]}'"


def _small_zone(match: re.Match[str]) -> str:
    return f"write {match[1].upper()}= in capitals, or use timezone {match[2]!r}"


def _word(match: re.Match[str]) -> str:
    return f"write '{_WORD_TIMES[match[1].lower()]}'"


def _duration(match: re.Match[str]) -> str:
    return "an ISO 8601 duration is an interval; use a trigger with every_s (seconds)"


def _rrule(match: re.Match[str]) -> str:
    return "that is an RRULE, not a cron expression"


def _named(text: str) -> str | None:
    """Celery's crontab(minute=0, hour=3), pfSense's and Moodle's minute=0 hour=3."""
    given = {name: (single or double or bare).replace(" ", "") for name, single, double, bare in _NAMED.findall(text)}
    words = [next((given[name] for name in names if name in given), "*").replace("R", "H") for names in _COLUMNS]
    complete = "minute" in given or text.startswith("crontab(")  # elsewhere a missing minute may mean 0
    if not complete or "second" in given or not _is_legal(words):
        return None
    if "crontab(" not in text and "day_of_week" in given and not words[4][0].isalpha():
        return None  # APScheduler counts from Monday
    return f"fields go by their place, not by name (Celery, Moodle); write '{' '.join(words)}'{_zone_beside(text)}"


def _is_legal(words: list[str]) -> bool:
    kinds = KINDS[1:6] if len(words) == 5 else KINDS[: len(words)]
    return 5 <= len(words) <= 7 and not any(
        parse_field(kind, word.upper()).faults for kind, word in zip(kinds, words, strict=True)
    )


_DAYS = "|".join(_DAY_NAMES)
_ON_CALENDAR = re.compile(
    rf"(?=.*[:-]){_ON}(?:(?P<wd>(?:{_DAYS})[A-Za-z.,]*) )?"
    r"(?:(?:(?P<y>\*|\d{4})-)?(?P<mo>[\d*,./]+)-(?P<d>[\d*,./]+) ?)?"
    r"(?:(?P<h>[\d*,./]+):(?P<m>[\d*,./]+)(?::(?P<s>[\d*,./]+))?)?(?: (?P<z>[A-Z][A-Za-z]+(?:/[\w/+-]+)?))?",
    re.I,
)
_DIALECTS: list[tuple[re.Pattern[str], Callable[[re.Match[str]], str | None]]] = [
    (re.compile(r"@reboot(?: .*)?", re.I), _reboot),
    (re.compile(r"@once", re.I), _once),
    (re.compile(r"@every ?(.{0,40})", re.I), _every_alias),
    (re.compile(r"rate\( ?(\d{1,6}) (second|minute|hour|day|week)s? ?\)", re.I), _rate),
    (re.compile(rf"every (day|weekday|{_DAYS})\w* at (\d\d?)(?::(\d\d))? ?([ap]m)?(?: .*)?", re.I), _daily_words),
    (
        re.compile(
            r"every (\d{1,6} )?(second|sec|minute|min|hour|day|week)s?(?: from (\d\d:\d\d) to (\d\d:\d\d)| .*)?", re.I
        ),
        _every_words,
    ),
    (re.compile(r"at\( ?(\S{10,40}) ?\)", re.I), _at_call),
    (re.compile(r"((?:cron_)?tz)=(\S+) .*", re.I), _small_zone),
    (re.compile(r"cron\(['\"]?([^'\"()]*)['\"]?\)", re.I), _cron_call),
    (re.compile(r"['\"]?USING CRON ((?:\S+ ){4}\S+) ([A-Za-z][\w/+-]*)['\"]?", re.I), _zone_last),
    (re.compile(r"((?:\S+ ){4,5}\S+) ([A-Z][A-Za-z]+/[\w/+-]+|UTC|GMT)"), _zone_last),
    (re.compile(r"((?:\S+ ){4}\S+) ([a-z_][a-z0-9_-]+)"), _user_column),
    (re.compile(r"(?:\S+ ){5}\S+"), _year_last),
    (re.compile(r"((?:\S+ ){4}\S+) ((?:root |www-data )?[/~.]\S*|\S*[a-z]{2,}\S* .+)"), _command),
    (re.compile(r"# ?((?:\S+ ){4,6}\S+)"), _comment),
    (re.compile(r"((?:\S+ ){4,6}\S+) #.*"), _comment_after),
    (_ON_CALENDAR, _calendar),
    (re.compile(rf"{_ON}({'|'.join(_WORD_TIMES)})", re.I), _word),
    (re.compile(r"[\"'](hourly|daily|monthly|yearly|annually)[\"']", re.I), _word),
    (re.compile(r"every[ (](\d{1,6})\.(second|minute|hour)s?\)?(?:, roles: .*)?", re.I), _ruby_interval),
    (re.compile(r"interval: ?(\d{1,6})([smh])", re.I), _short_interval),
    (re.compile(r"(?:timedelta\(seconds=)?(\d{1,9})(?:\.0)?\)?", re.I), _seconds),
    (re.compile(r"P(?:\d+[YMWD])*(?:T(?:\d+[HMS])+)?"), _duration),
    (re.compile(r"(?:RRULE:)?FREQ=.*", re.I), _rrule),
]
