"""A year of schedules around a zone's own clock changes, each policy with each, and what the docs say becomes of them.

`telling` makes the schedules from the changes that the year really has; `crossed` puts each with each policy;
`accounted` is docs/time.md written anew: from a preview and the instants at which a dispatcher looked to the rows.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from itertools import groupby, product
from typing import Any

from apps.schedules.exclusion import Exclusion
from apps.schedules.recurrence import day_of
from apps.schedules.timing import Spec, spec_from_api
from apps.schedules.timing_preview import preview
from apps.schedules.timing_zones import EPOCH, zone_offsets

DAY, HOUR, MINUTE = timedelta(days=1), timedelta(hours=1), timedelta(minutes=1)
GRACE_S = 86_400
KEPT_MAX = 5
GAPS, FOLDS = ("run_after", "skip"), ("first", "last", "both")
MISFIRES = ("skip", "fire_once", "fire_latest_n", "fire_all")
YEAR, KATHMANDUS = datetime(2011, 2, 1, tzinfo=UTC), datetime(1985, 6, 1, tzinfo=UTC)
# A year in which each had changes of its clock: 2011 for most, and for Samoa the day that it left out.
ZONES = {
    "Europe/Berlin": YEAR, "America/New_York": YEAR, "Australia/Lord_Howe": YEAR, "Asia/Kathmandu": KATHMANDUS,
    "Pacific/Apia": YEAR, "Africa/Casablanca": YEAR, "America/Santiago": YEAR, "Antarctica/Troll": YEAR,
}  # fmt: skip
WEEKDAYS = ("MO", "TU", "WE", "TH", "FR", "SA", "SU")


@dataclass(frozen=True)
class Change:
    """A change of a zone's clock: when, by how much, and a wall time in the middle of what it skips or repeats."""

    at: datetime
    jump_s: int
    wall: datetime


@dataclass(frozen=True)
class Row:
    """What is written of an execution or of a run of skipped ones; the instants that nobody gave are None."""

    nominal_at: datetime
    until_at: datetime | None
    count: int
    trigger: str
    state: str
    reason: str
    actual_at: datetime
    created_at: datetime


def changes_of(zone: str, start: datetime) -> list[Change]:
    """All clock changes of the year from `start`."""
    offsets = zone_offsets(zone)
    first, last = (offsets.index(int((at - EPOCH).total_seconds())) for at in (start, start + 365 * DAY))
    found = []
    for index in range(first + 1, last + 1):
        at = EPOCH + timedelta(seconds=offsets.starts[index])
        before = at.replace(tzinfo=None) + timedelta(seconds=offsets.offsets[index - 1])
        middle = before + timedelta(seconds=offsets.jump(index) / 2)
        found.append(Change(at, offsets.jump(index), middle.replace(second=0)))
    return found


def telling(zone: str, start: datetime, *, whole_year: bool = False) -> dict[str, dict[str, Any]]:
    """Schedules of all kinds by name, as the API takes them: on the days around the changes, or on each day."""
    changes = changes_of(zone, start)
    walls = [change.wall for change in changes]
    around = sorted({(wall + number * DAY).date() for wall in walls for number in (-1, 0, 1)})
    days = days_of(around)
    months = ",".join(map(str, sorted({day.month for day in around})))
    month_days = ",".join(map(str, sorted({day.day for day in around})))
    week_days = ",".join(sorted({WEEKDAYS[wall.weekday()] for wall in walls}))
    first = walls[0]
    hours = sorted({(wall.hour + number) % 24 for wall in walls for number in (-1, 0, 1)})
    some_hours = ",".join(map(str, hours))
    clock = f"{first.minute} {first.hour}"
    all_days = ["* * *"] if whole_year else days
    fixed = [
        f"{wall.minute} {wall.hour} {day}"
        for wall in walls
        for day in (all_days if whole_year else days_of(wall + number * DAY for number in (-1, 0, 1)))
    ]
    opening, closing = first + 5 * MINUTE, first + 95 * MINUTE
    window = {"from": f"{opening:%H:%M}", "to": f"{closing:%H:%M}"}
    return {
        "fixed": {"trigger": {"cron": [*fixed, "30 12 1 * *"]}},
        "several of an hour": {"trigger": {"cron": [f"0-59/15 {some_hours} {day}" for day in days]}},
        "hourly": {"trigger": {"cron": [f"0 * {day}" for day in days_of(walls)]}},
        "four a day": {"trigger": {"cron": [f"0 */6 {day}" for day in all_days]}},
        "quarters": {"trigger": {"cron": [f"*/15 {some_hours} {day}" for day in days]}},
        "midnights": {"trigger": {"cron": [f"0 0 {day}" for day in all_days]}, "jitter_s": 900},
        "seconds first": {"trigger": {"cron": [f"15 30 {some_hours} {day}" for day in days]}},
        "elapsed": {"trigger": {"every_s": 860_400}, "jitter_s": 1_800},
        "elapsed in a window": {
            "trigger": {"every_s": 900, "anchor": _text(start)}, "windows": [window], "outside": "next_opening",
            "start_at": _text(changes[0].at - 12 * HOUR), "end_at": _text(changes[0].at + 12 * HOUR),
        },
        "weeks": {"trigger": {"every": {"weeks": 1}, "anchor": (first - 98 * DAY).isoformat()}},
        "days": {"trigger": {"every": {"days": 7}, "anchor": walls[-1].isoformat()}, "max_runs": 40},
        "months": {"trigger": {"every": {"months": 1}, "anchor": walls[-1].isoformat()}},
        "rule of weeks": {
            "trigger": {
                "rrule": f"FREQ=WEEKLY;BYMONTH={months};BYDAY={week_days};BYHOUR={some_hours};BYMINUTE={first.minute}",
                "dtstart": f"{start.date()}T00:00:00", "exdate": [around[0].isoformat()],
                "rdate": [f"{around[-1]}T06:30:00"],
            },
        },
        "rule of hours": {
            "trigger": {
                "rrule": f"FREQ=HOURLY;INTERVAL=5;BYMONTH={months};BYMONTHDAY={month_days}",
                "dtstart": f"{start.date()}T00:00:00",
            },
        },
        "next opening": {
            "trigger": {"cron": [f"{clock} {day}" for day in all_days]}, "windows": [window], "outside": "next_opening",
        },
        "past midnight": {
            "trigger": {"cron": [f"*/20 * {day}" for day in days]}, "windows": [{"from": "23:10", "to": "02:40"}],
        },
        "next business day": {
            "trigger": {"cron": [f"{clock} {day}" for day in all_days]}, "calendar": "changes",
            "on_excluded": "next_business_day", "jitter_s": 600,
        },
        "previous business day": {
            "trigger": {"cron": [f"{clock} {day}" for day in all_days]}, "calendar": "changes",
            "on_excluded": "previous_business_day",
        },
        "excluded": {"trigger": {"cron": [f"*/30 */8 {day}" for day in days]}, "calendar": "changes"},
        "spread": {"trigger": {"cron": [f"*/30 {some_hours} {day}" for day in days]}, "jitter_s": 3_600},
        "once": {"trigger": {"at": first.isoformat()}},
    }  # fmt: skip


def crossed(
    zone: str, start: datetime, *, whole_year: bool = False
) -> Iterator[tuple[tuple[str, str, str, str, str], Spec]]:
    """Each telling schedule with each rule for gaps and folds and each misfire policy, with what it is called."""
    exclusion = Exclusion(dates=tuple(day_of(change.wall.date()) for change in changes_of(zone, start)))
    for (name, data), gap, fold, misfire in product(
        telling(zone, start, whole_year=whole_year).items(), GAPS, FOLDS, MISFIRES
    ):
        policies = {"dst_gap": gap, "dst_fold": fold, "misfire": misfire, "misfire_max": KEPT_MAX, "grace_s": GRACE_S}
        spec = spec_from_api(
            {"timezone": zone, "end_at": _text(start + 365 * DAY), **data, **policies},
            now=start,
            exclusion_of=lambda _: ("changes", exclusion),
        )
        yield (zone, name, gap, fold, misfire), spec


def promised(spec: Spec, key: str, start: datetime) -> list[tuple[datetime, datetime]]:
    """Nominal and actual instants that a preview of the year shows."""
    shown = preview(spec, after=start, until=start + 366 * DAY, count=50_000, key=key)
    return [(each.nominal_at, each.at) for each in shown]


def accounted(spec: Spec, occurrences: Iterable[tuple[datetime, datetime]], looks: list[datetime]) -> Iterator[Row]:
    """The rows of these occurrences when a dispatcher looks at these instants and finds what is due by then."""
    grace = timedelta(seconds=spec.grace_s)
    for index, group in groupby(occurrences, key=lambda each: bisect_left(looks, each[1])):
        look, due = looks[index], list(group)
        missed = [nominal for nominal, at in due if look - at > grace]
        on_time = due[len(missed) :]
        keep = {
            "skip": 0, "fire_once": int(not on_time), "fire_latest_n": spec.misfire_max,
            "fire_all": max(0, spec.misfire_max - len(on_time)),
        }[spec.misfire]  # fmt: skip
        left = missed[: max(0, len(missed) - keep)]
        if left:
            reason = "misfire_capped" if spec.misfire == "fire_all" else "misfire_skipped"
            yield Row(left[0], left[-1], len(left), "schedule", "skipped", reason, left[0], look)
        for nominal in missed[len(left) :]:
            yield Row(nominal, None, 1, "catch_up", "ready", "", look, look)
        for nominal, at in on_time:
            yield Row(nominal, None, 1, "schedule", "ready", "", at, look)


def days_of(dates: Iterable[date]) -> list[str]:
    """The last three fields of cron expressions that name these dates."""
    found: dict[int, list[str]] = {}
    for each in dates:
        found.setdefault(each.month, []).append(str(each.day))
    return [f"{','.join(days)} {month} *" for month, days in found.items()]


def _text(at: datetime) -> str:
    return at.isoformat()
