"""Text to a compiled cron expression: how many fields, which alias, what is wrong and where.

Five fields start with the minute; six with the second; seven add the year at the end. Only ASCII digits and blanks
count. The length is looked at first, so that hostile text costs nothing.
"""

import re
import unicodedata
from dataclasses import dataclass, field
from functools import lru_cache

from apps.schedules.cron import ALL_YEARS, Expression
from apps.schedules.cron_fields import Fault, Parsed, parse_field
from apps.schedules.cron_hints import foreign_hint
from apps.schedules.cron_kinds import KINDS
from apps.schedules.timing_errors import TimingInvalid

MAX_LENGTH = 256
ALIASES = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
_SEARCH_YEARS = (1970, 2370)  # the calendar repeats after 400 years
_AT_ZERO, _EACH_YEAR = Parsed(text="0", mask=1), Parsed(text="*", mask=ALL_YEARS)
_WORD = re.compile(r"[^ \t]+")
_NUMBERED_DAY = re.compile(r"(?<![#/\d])[0-7]")
_ZONE = re.compile(r"(?:CRON_)?TZ=([^ \t]*)[ \t]*")


@dataclass(slots=True)
class CronText:
    """What a text means: either `expression`, or `faults`. `zone` is that of a CRON_TZ= or TZ= prefix."""

    expression: Expression | None = None
    zone: str | None = None
    faults: list[Fault] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def parse_cron(text: str, *, key: str = "") -> CronText:
    """Reads an expression and finds all of its faults. `key` seeds H. Never raises."""
    result = CronText()
    if len(text) > MAX_LENGTH:
        result.faults.append(Fault(MAX_LENGTH, "too_long", f"{len(text)} characters; at most {MAX_LENGTH} are allowed"))
        return result
    if fault := _not_ascii(text):
        result.faults.append(fault)
        return result
    start = 0
    if text[:1] in ("C", "T") and (match := _ZONE.match(text)):
        result.zone, start = match[1], match.end()
    words = text[start:].upper().split()
    if words and words[0][0] == "@":
        _parse_alias(text, start, words, result)
    elif 5 <= len(words) <= 7:
        _parse_fields(text, start, words, key, result)
    else:
        result.faults.append(_wrong_count(text, start))
    return result


@lru_cache(maxsize=8192)
def compile_cron(text: str) -> Expression:
    """The compiled form of a normalised expression; TimingInvalid for any other text."""
    result = parse_cron(text)
    if result.expression is None or result.zone is not None:
        detail = described(text, result.faults[0]) if result.faults else f"'{text}': a zone does not belong here"
        raise TimingInvalid.one("/trigger/cron", "cron", detail)
    return result.expression


def described(text: str, fault: Fault) -> str:
    """A fault as a sentence with its position, counted from 1."""
    shown = text if len(text) <= 60 else text[:60] + "..."
    return f"position {fault.at + 1} of {shown!r}: {fault.detail}{'' if fault.detail[-1] == '?' else '.'}"


def _parse_fields(text: str, start: int, words: list[str], key: str, result: CronText) -> None:
    has_seconds = len(words) > 5
    kinds = KINDS[0 if has_seconds else 1 : 7 if len(words) == 7 else 6]
    fields = [parse_field(kind, word, key) for kind, word in zip(kinds, words, strict=True)]
    if any(parsed.faults for parsed in fields):
        _tell_faults(text, start, fields, result)
        return
    if not has_seconds:
        fields.insert(0, _AT_ZERO)
    if len(fields) == 6:
        fields.append(_EACH_YEAR)
    expression = Expression(fields, has_seconds=has_seconds)
    if _never_runs(expression):
        result.faults.append(Fault(_places(text, start)[2 + has_seconds], "never", _never_hint(fields)))
        return
    result.expression = expression
    result.notes = [note for parsed in fields for note in parsed.notes]
    days, weekdays = fields[3].text, fields[5].text
    if days == "?" and _NUMBERED_DAY.search(weekdays):
        result.notes.append(
            "weekdays count from Sunday = 0 as in cron, not from Sunday = 1 as in Quartz; names say it best"
        )
    if days[0] not in "*?" and weekdays[0] not in "*?":
        result.notes.append("day of month and day of week are both restricted: the schedule runs when either matches")


def _tell_faults(text: str, start: int, fields: list[Parsed], result: CronText) -> None:
    """The hint for another dialect, or else each fault where it stands in the whole text."""
    if hint := foreign_hint(text[start:]):
        result.faults.append(Fault(start, "dialect", hint))
        return
    for parsed, place in zip(fields, _places(text, start), strict=True):
        result.faults += [Fault(place + fault.at, fault.code, fault.detail) for fault in parsed.faults]


def _places(text: str, start: int) -> list[int]:
    return [word.start() for word in _WORD.finditer(text, start)]


def _parse_alias(text: str, start: int, words: list[str], result: CronText) -> None:
    alias = words[0].lower()
    if alias not in ALIASES:
        known = ", ".join(sorted(ALIASES))
        hint = foreign_hint(text[start:]) or f"{alias[:20]} is not an alias; known are {known} and @every 90s"
        result.faults.append(Fault(_places(text, start)[0], "alias", hint))
    elif len(words) > 1:
        result.faults.append(Fault(_places(text, start)[1], "fields", f"nothing may follow {alias}"))
    else:
        _parse_fields(text, start, ALIASES[alias].split(), "", result)


def _not_ascii(text: str) -> Fault | None:
    if text.isascii() and text.isprintable():
        return None
    for at, character in enumerate(text):
        if not (" " <= character <= "~" or character == "\t"):
            code = f"U+{ord(character):04X} {unicodedata.name(character, 'control character')}"
            if character in "\r\n":
                return Fault(at, "syntax", "an expression is one line; several expressions are a list")
            return Fault(at, "not_ascii", f"{code} is not allowed; only ASCII digits, letters and blanks are")
    return None


def _wrong_count(text: str, start: int) -> Fault:
    places = _places(text, start)
    if hint := foreign_hint(text[start:]):
        return Fault(places[0] if places else 0, "dialect", hint)
    count = "1 field" if len(places) == 1 else f"{len(places)} fields"
    shape = "five (minute hour day month weekday), six (second first) or seven (year last)"
    return Fault(places[7] if len(places) > 7 else len(text), "fields", f"{count}; write {shape}")


def _never_runs(expression: Expression) -> bool:
    return not any(expression.days(year, month) for year in range(*_SEARCH_YEARS) for month in range(1, 13))


def _never_hint(fields: list[Parsed]) -> str:
    _, _, _, day, month, weekday, year = fields
    where = f"month {month.text}" + (f" of year {year.text}" if year.mask != ALL_YEARS else "")
    both = f" that also matches day of week {weekday.text}" if weekday.text not in ("*", "?") else ""
    return f"the schedule never runs: {where} has no day {day.text}{both}; did you mean L, the last day of the month?"
