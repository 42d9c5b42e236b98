"""Other schedulers' spellings: names the dialect of a refused text and offers the equivalent, where there is one."""

import re
from collections.abc import Callable

_UNITS = {"second": 1, "sec": 1, "minute": 60, "min": 60, "hour": 3600, "day": 86_400, "week": 604_800}
_WORD_TIMES = {
    "minutely": "* * * * *", "hourly": "@hourly", "daily": "@daily", "weekly": "0 0 * * 1", "monthly": "@monthly",
    "yearly": "@yearly", "annually": "@yearly", "quarterly": "0 0 1 1,4,7,10 *", "midnight": "@midnight",
}  # fmt: skip
_ON = "(?:OnCalendar=)?"
_YEAR = r"(?:\*|19[7-9]\d|2[01]\d\d)(?:[-,/]\S+)?"


def foreign_hint(text: str) -> str | None:
    """One sentence for a text of another dialect; None when it looks like none that is known."""
    text = " ".join(text.split())
    for pattern, hint in _DIALECTS:
        if match := pattern.fullmatch(text):
            return hint(match)
    return None


def _reboot(match: re.Match[str]) -> str:
    return "@reboot has no meaning here: there is no machine that starts; for a single run use a trigger with 'at'"


def _once(match: re.Match[str]) -> str:
    return "@once is not a repeating schedule; use a trigger with 'at' and the instant"


def _after_finish(match: re.Match[str]) -> str:
    return f"{match[1]} is not an alias here"


def _every_alias(match: re.Match[str]) -> str:
    return f"@every {match[1]} is an interval; write it alone, as @every 90s, @every 5m or @every 1h30m"


def _rate(match: re.Match[str]) -> str:
    seconds = int(match[1]) * _UNITS[match[2].lower()]
    return f"rate(...) is EventBridge's form; use an interval: every_s {seconds}"


def _every_words(match: re.Match[str]) -> str:
    seconds = int(match[1] or 1) * _UNITS[match[2].lower()]
    return f"that is an interval in words; use a trigger with every_s {seconds}, or @every {seconds}s"


def _cron_call(match: re.Match[str]) -> str:
    words = match[1].split()
    if len(words) == 6 and re.fullmatch(_YEAR, words[5]):
        return f"cron(...) is EventBridge's form with the year last; write '{_without_year(words)}'"
    return f"cron(...) is another scheduler's form; write '{match[1].strip()}' alone"


def _zone_last(match: re.Match[str]) -> str:
    return f"a zone inside the expression (sidekiq, Snowflake) is refused; write '{match[1]}' and timezone {match[2]!r}"


def _snowflake(match: re.Match[str]) -> str:
    return f"USING CRON is Snowflake's form; write '{match[1]}' and timezone {match[2]!r}"


def _celery(match: re.Match[str]) -> str:
    given = dict(re.findall(r"(\w+)\s*=\s*['\"]?([^'\",)]+(?:,[^'\"=)]+)*)['\"]?", match[1]))
    names = ("minute", "hour", "day_of_month", "month_of_year", "day_of_week")
    return f"crontab(...) is Celery's form; write '{' '.join(given.get(name, '*').replace(' ', '') for name in names)}'"


def _calendar(match: re.Match[str]) -> str:
    second = int(match["s"] or 0)
    fields = f"{int(match['m'])} {int(match['h'])} * * {match['d'].upper() if match['d'] else '*'}"
    return f"that is systemd's OnCalendar; write '{fields if not second else f'{second} {fields}'}'"


def _word(match: re.Match[str]) -> str:
    return f"write '{_WORD_TIMES[match[1].lower()]}'"


def _duration(match: re.Match[str]) -> str:
    return "an ISO 8601 duration is an interval; use a trigger with every_s (seconds)"


def _rrule(match: re.Match[str]) -> str:
    return "that is an RRULE, not a cron expression"


def _without_year(words: list[str]) -> str:
    year = "" if words[5] == "*" else f" {words[5]}"
    return ("0 " if year else "") + " ".join(words[:5]) + year


_DIALECTS: list[tuple[re.Pattern[str], Callable[[re.Match[str]], str]]] = [
    (re.compile(r"@reboot(?: .*)?", re.I), _reboot),
    (re.compile(r"@once", re.I), _once),
    (re.compile(r"(@(?:after|continuous|none|startup|start|random)\w*).*", re.I), _after_finish),
    (re.compile(r"@every ?(.{0,40})", re.I), _every_alias),
    (re.compile(r"rate\( ?(\d{1,6}) (second|minute|hour|day|week)s? ?\)", re.I), _rate),
    (re.compile(r"every (\d{1,6} )?(second|sec|minute|min|hour|day|week)s?(?: .*)?", re.I), _every_words),
    (re.compile(r"cron\(['\"]?([^'\"()]*)['\"]?\)", re.I), _cron_call),
    (re.compile(r"crontab\((.*)\)", re.I), _celery),
    (re.compile(r"USING CRON ((?:\S+ ){4}\S+) ([A-Za-z][\w/+-]*)", re.I), _snowflake),
    (re.compile(r"((?:\S+ ){4,5}\S+) ([A-Z][A-Za-z]+/[\w/+-]+|UTC|GMT)"), _zone_last),
    (re.compile(rf"{_ON}(?:(?P<d>[A-Z]{{3}}) )?\*-\*-\* (?P<h>\d\d?):(?P<m>\d\d)(?::(?P<s>\d\d))?", re.I), _calendar),
    (re.compile(f"{_ON}({'|'.join(_WORD_TIMES)})", re.I), _word),
    (re.compile(r"P(?:\d+[YMWD])*(?:T(?:\d+[HMS])+)?"), _duration),
    (re.compile(r"(?:RRULE:)?FREQ=.*", re.I), _rrule),
]
