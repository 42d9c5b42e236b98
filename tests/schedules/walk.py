"""A second, slow opinion: wall clocks read minute by minute, and fields as plain sets."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Protocol
from zoneinfo import ZoneInfo

from hypothesis import strategies as st

MINUTE = timedelta(minutes=1)
CORRECTION = timedelta(hours=3)


class Walked(Protocol):
    """What a walk asks: whether the job runs at a wall time, and whether it is a fixed-time one."""

    @property
    def fixed(self) -> bool: ...

    def matches(self, wall: datetime) -> bool: ...


@dataclass(frozen=True)
class Field:
    text: str
    values: frozenset[int]


@dataclass(frozen=True)
class Job:
    """Five fields; weekdays count from Sunday, 0."""

    minute: Field
    hour: Field
    day: Field
    month: Field
    weekday: Field

    @property
    def text(self) -> str:
        return " ".join(each.text for each in (self.minute, self.hour, self.day, self.month, self.weekday))

    @property
    def fixed(self) -> bool:
        return not self.minute.text.startswith("*") and not self.hour.text.startswith("*")

    def matches(self, wall: datetime) -> bool:
        days, weekdays = wall.day in self.day.values, wall.isoweekday() % 7 in self.weekday.values
        either = not self.day.text.startswith("*") and not self.weekday.text.startswith("*")
        return (
            wall.minute in self.minute.values
            and wall.hour in self.hour.values
            and wall.month in self.month.values
            and ((days or weekdays) if either else (days and weekdays))
        )


def walk(job: Walked, zone: ZoneInfo, start: datetime, end: datetime, *, gap: str, fold: str) -> list[datetime]:
    """The instants in [start, end), both whole minutes of UTC, at which the job runs."""
    found = []
    at, before = start, _wall(start - MINUTE, zone)
    while at < end:
        wall = _wall(at, zone)
        if job.matches(wall) and (not job.fixed or _counts(at, zone, fold)):
            found.append(at)
        elif job.fixed and gap == "run_after" and MINUTE < wall - before < CORRECTION + MINUTE:
            skipped = before + MINUTE
            while skipped < wall:
                if job.matches(skipped):
                    found.append(at)
                    break
                skipped += MINUTE
        at, before = at + MINUTE, wall
    return found


def fields(low: int, high: int) -> st.SearchStrategy[Field]:
    """A field as people write it: star, number, range, step, or a list of these."""
    whole = range(low, high + 1)
    number = st.integers(low, high)
    star = st.just(Field("*", frozenset(whole)))
    star_step = st.integers(1, high + 1).map(lambda step: Field(f"*/{step}", frozenset(whole[::step])))
    single = number.map(lambda value: Field(str(value), frozenset({value})))
    from_step = st.tuples(number, st.integers(1, high)).map(
        lambda both: Field(f"{both[0]}/{both[1]}", frozenset(range(both[0], high + 1, both[1])))
    )
    span = st.tuples(number, number, st.integers(1, 9)).map(_span)
    listed = st.lists(st.one_of(single, span, from_step), min_size=2, max_size=4).map(
        lambda parts: Field(",".join(part.text for part in parts), frozenset().union(*(part.values for part in parts)))
    )
    return st.one_of(star, star, star_step, single, single, from_step, span, listed)


def jobs() -> st.SearchStrategy[Job]:
    star = Field("*", frozenset(range(32)))
    days = st.one_of(st.just(star), fields(1, 31))
    weekdays = st.one_of(st.just(star), fields(0, 7).map(_weekday))
    months = st.one_of(st.just(star), st.just(star), fields(1, 12))
    return st.builds(Job, fields(0, 59), fields(0, 23), days, months, weekdays)


def _weekday(field: Field) -> Field:
    if field.text.startswith("*/"):
        return Field(field.text, field.values - {7})
    return Field(field.text, frozenset(value % 7 for value in field.values))


def _span(parts: tuple[int, int, int]) -> Field:
    low, high, step = min(parts[:2]), max(parts[:2]), parts[2]
    return Field(f"{low}-{high}" + (f"/{step}" if step > 1 else ""), frozenset(range(low, high + 1, step)))


def _wall(at: datetime, zone: ZoneInfo) -> datetime:
    return at.astimezone(zone).replace(tzinfo=None, fold=0)


def _counts(at: datetime, zone: ZoneInfo, fold: str) -> bool:
    """Whether this pass of a repeated wall time counts for fixed-time jobs."""
    local = at.astimezone(zone)
    again = [local.replace(fold=number).astimezone(UTC) for number in (0, 1)]
    if fold == "both" or again[0] == again[1]:
        return True
    return (at == again[0]) == (fold == "first")
