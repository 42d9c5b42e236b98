"""What somebody asks of a backfill, read with every fault at once. Pure."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from apps.operations.backfill.recognising import ONLY
from apps.operations.backfill.segments import DEFINITIONS, NOW
from apps.operations.backfill.within import ORDERS, Range, count
from apps.schedules.input_fields import Fields
from apps.schedules.timing import Spec
from apps.schedules.timing_trigger import read_instant
from apps.schedules.timing_triggers import instant_of, instant_text
from kernel.errors import Faults

FIELDS = ("from", "to", "order", "only", "overlap", "priority", "definition")
OVERLAPS = ("allow", "skip", "buffer_all")
MAX_OCCURRENCES = 1_000_000
LOWEST_PRIORITY = 0
AT_ONCE = 10  # runs, unless somebody says otherwise
_DATE = re.compile(r"\d{4}-\d\d-\d\d")


@dataclass(frozen=True, slots=True)
class Wish:
    """Past occurrences of a schedule that are to run, and how.

    `overlap` is what becomes of a run that finds another one of the schedule alive: `allow` is beside it, `skip` not at
    all, `buffer_all` after it.
    """

    schedule_id: UUID
    within: Range
    order: str
    only: str
    overlap: str
    priority: int
    definition: str = NOW  # that of now, or those of the occurrences' own time

    @property
    def serial(self) -> bool:
        """Whether its runs never lie beside another one of the schedule."""
        return self.overlap != "allow"

    def as_params(self) -> dict[str, Any]:
        """As JSON."""
        return {
            "schedule": str(self.schedule_id), "from": instant_text(self.within.since),
            "to": instant_text(self.within.until), "order": self.order, "only": self.only, "overlap": self.overlap,
            "priority": self.priority, "definition": self.definition,
        }  # fmt: skip


def wish_of(params: Mapping[str, Any]) -> Wish:
    """The wish that was kept so."""
    return Wish(
        UUID(params["schedule"]), Range(instant_of(params["from"]), instant_of(params["to"])), params["order"],
        params["only"], params["overlap"], params["priority"], params.get("definition", NOW),
    )  # fmt: skip


def read_wish(fields: Fields, *, schedule_id: UUID, spec: Spec, now: datetime, chained: bool = False) -> Wish | None:
    """Reads FIELDS; adds what is wrong to the faults, and returns None then.

    Times without an offset are wall times in the schedule's zone, and a date is its midnight. `chained`: a run waits
    for the one before it, so that only the order of time leads anywhere.
    """
    before = len(fields.faults.errors)
    since, until = (_instant(fields, name, spec.zone) for name in ("from", "to"))
    order = fields.choice("order", ORDERS, "asc")
    only = fields.choice("only", ONLY, "missing")
    overlap = _overlap(fields, spec)
    priority = fields.whole("priority", 0, 9, LOWEST_PRIORITY)
    definition = fields.choice("definition", DEFINITIONS, NOW)
    if order == "desc" and chained:
        detail = "a step of this workflow waits for the run before, so the oldest occurrence has to run first; use asc."
        fields.faults.add("/order", "contradiction", detail)
    if since is not None and until is not None:
        _check_range(fields, Range(since, until), now)
        if definition == NOW and len(fields.faults.errors) == before:
            check_count(fields.faults, count(spec, Range(since, until)))
    if since is None or until is None or len(fields.faults.errors) > before:
        return None
    return Wish(schedule_id, Range(since, until), order, only, overlap, priority, definition)


def check_count(faults: Faults, found: int) -> None:
    """Adds a fault when a range has too many occurrences."""
    if found > MAX_OCCURRENCES:
        detail = f"the range has {found:,} occurrences; a backfill takes at most {MAX_OCCURRENCES:,}. Use several."
        faults.add("/from", "range", detail)


def _instant(fields: Fields, name: str, zone: str) -> datetime | None:
    given = fields.data.get(name)
    if given is None:
        fields.faults.add(f"/{name}", "required", "This field is required: a time, or a date in the schedule's zone.")
        return None
    if isinstance(given, str) and _DATE.fullmatch(given.strip()):
        given = f"{given.strip()}T00:00:00"
    return read_instant(given, f"/{name}", zone, fields.faults)


def _overlap(fields: Fields, spec: Spec) -> str:
    """Runs of a schedule with `allow` wait for nothing, so nothing can wait for them."""
    chosen = fields.choice("overlap", OVERLAPS, "allow" if spec.overlap == "allow" else "buffer_all")
    if spec.overlap == "allow" and chosen in OVERLAPS[1:]:
        detail = "The runs of this schedule wait for nothing: its overlap is 'allow'. Use max_in_flight, or change it."
        fields.faults.add("/overlap", "contradiction", detail)
    return chosen


def _check_range(fields: Fields, within: Range, now: datetime) -> None:
    if within.until <= within.since:
        fields.faults.add("/to", "range", "must be later than from.")
    elif within.until > now:
        fields.faults.add("/to", "range", "must not be later than now: the schedule fires what is to come by itself.")
