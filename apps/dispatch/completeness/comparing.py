"""What was expected against what is written. Pure: both come as streams in the order of time."""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import NamedTuple

from apps.dispatch.completeness.expecting import Part
from apps.schedules.timing import Spec

ASKED_AT_ONCE = 1_000


class Record(NamedTuple):
    """An execution of one occurrence, or a row that says why those from `nominal_at` to `until_at` did not run."""

    nominal_at: datetime
    until_at: datetime | None
    state: str
    reason: str


@dataclass(frozen=True, slots=True)
class Gap:
    """Occurrences of one version that follow one another and of which nothing is written."""

    version: int
    spec: Spec = field(repr=False)
    first: datetime
    last: datetime
    count: int


@dataclass(slots=True)
class Comparison:
    """How many occurrences were expected, and what is known of them. `gaps` are all, oldest first."""

    expected: int = 0
    ran: int = 0  # there is an execution, whatever became of it
    made_later: int = 0  # by a backfill
    skipped: Counter[str] = field(default_factory=Counter)  # by reason
    pending: int = 0  # the due entry has not got there yet
    missing: int = 0
    gaps: list[Gap] = field(default_factory=list)


Later = Callable[[datetime, datetime], Collection[datetime]]  # occurrences from .. to that a backfill has made up for


def compare(
    parts: Iterable[Part], records: Iterable[Record], *, due_from: datetime | None, later: Later
) -> Comparison:  # fmt: skip
    """Holds expected occurrences against records, both oldest first.

    What is not written from `due_from` on is still to be fired (None: nothing is). Records that begin before the first
    part may be among them when they reach into it. `later` is asked for what is missing, ASKED_AT_ONCE at a time.
    """
    found, reader, asked = Comparison(), _Reader(records), _Missing(later)
    for part in parts:
        for at in part.instants():
            found.expected += 1
            record = reader.of(at)
            if record is not None:
                asked.end_of_gap()
                if record.state == "skipped":
                    found.skipped[record.reason] += 1
                else:
                    found.ran += 1
            elif due_from is not None and at >= due_from:
                asked.end_of_gap()
                found.pending += 1
            else:
                asked.add(part, at)
        asked.end_of_gap()
    found.gaps, found.made_later = asked.gaps()
    found.missing = sum(gap.count for gap in found.gaps)
    return found


class _Reader:
    """Goes along the records as the occurrences go on."""

    def __init__(self, records: Iterable[Record]) -> None:
        self._records: Iterator[Record] = iter(records)
        self._next = next(self._records, None)
        self._last: Record | None = None  # that reaches farthest, of those that stand for several

    def of(self, at: datetime) -> Record | None:
        """What is written of this occurrence. To be asked in the order of time."""
        own = None
        while self._next is not None and self._next.nominal_at <= at:
            record = self._next
            if record.nominal_at == at:
                own = record
            if record.until_at is not None and (self._last is None or record.until_at >= _end(self._last)):
                self._last = record
            self._next = next(self._records, None)
        if own is None and self._last is not None and at <= _end(self._last):
            own = self._last
        return own


class _Missing:
    """Occurrences without a record, as gaps, after what a backfill has made up for is taken out."""

    def __init__(self, later: Later) -> None:
        self._later = later
        self._open: list[tuple[int, Part, datetime]] = []  # (run, part, occurrence), not yet asked for
        self._gaps: list[Gap] = []
        self._made_later = 0
        self._run = 0  # of occurrences that follow one another
        self._last_run = -1  # whose end the last gap is

    def add(self, part: Part, at: datetime) -> None:
        self._open.append((self._run, part, at))
        if len(self._open) >= ASKED_AT_ONCE:
            self._ask()

    def end_of_gap(self) -> None:
        """Something that is accounted for comes next, or another version."""
        self._run += 1

    def gaps(self) -> tuple[list[Gap], int]:
        self._ask()
        return self._gaps, self._made_later

    def _ask(self) -> None:
        made = set(self._later(self._open[0][2], self._open[-1][2])) if self._open else ()
        for run, part, at in self._open:
            if at in made:
                self._made_later += 1
                self._last_run = -1
            elif run == self._last_run:
                self._gaps[-1] = replace(self._gaps[-1], last=at, count=self._gaps[-1].count + 1)
            else:
                self._gaps.append(Gap(part.version, part.spec, at, at, 1))
                self._last_run = run
        self._open.clear()


def _end(record: Record) -> datetime:
    return record.nominal_at if record.until_at is None else record.until_at
