"""What people are told of a schedule: in words, its next runs, its rules, old against new before saving. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, NamedTuple

from apps.schedules.changes import changes
from apps.schedules.schedule_input import DEFAULTS, Known, read_schedule, timing_of
from apps.schedules.timing import Spec, TimingInvalid, describe, notes, seed_notes, spec_from_json
from apps.schedules.timing_api import ExclusionOf
from apps.schedules.timing_preview import Difference, Occurrence, compare, left_out, preview

NOWHERE = "00000000-0000-0000-0000-000000000000"  # a preview needs no job
LEFT_OUT_SHOWN = 10
OF_THEIR_OWN = ("trigger", "timezone", "payload")  # shown beside the rules, not among them
ALWAYS = ("misfire", "overlap")


class Line(NamedTuple):
    """One occurrence of the trigger, and whether it runs."""

    at: Occurrence
    runs: bool

    @property
    def is_special(self) -> bool:
        """Whether more than jitter is to be said of it."""
        return any(flag != "jittered" for flag in self.at.flags)


@dataclass(frozen=True, slots=True)
class Ahead:
    """The next runs, what is left out between them, and what is to be known about them; or why none can be told."""

    zone: str = "UTC"
    runs: list[Occurrence] = field(default_factory=list)
    left_out: list[Occurrence] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    problem: str = ""

    @property
    def lines(self) -> list[Line]:
        return _in_order(self.runs, self.left_out)


@dataclass(frozen=True, slots=True)
class Forecast:
    """What a form would make of a schedule: `change` is what it adds and takes away of the runs there are."""

    words: str
    zone: str
    runs: list[Occurrence]
    left_out: list[Occurrence]
    notes: list[str]
    change: Difference | None
    spec: Spec

    @property
    def lines(self) -> list[Line]:
        return _in_order(self.runs, self.left_out)


@dataclass(frozen=True, slots=True)
class Limits:
    """What a plan says about definitions."""

    min_interval_s: int
    max_payload_bytes: int


def words_of(spec_text: str) -> str:
    """A stored spec in words."""
    try:
        return describe(spec_from_json(spec_text))
    except TimingInvalid as error:
        return f"Its text can't be read: {error}"


def ahead_of(spec_text: str, *, after: datetime, count: int, key: str) -> Ahead:
    """The next `count` runs of a stored spec."""
    try:
        spec = spec_from_json(spec_text)
        runs = preview(spec, after=after, count=count, key=key)
        return Ahead(spec.zone, runs, _left_out(spec, after, runs), notes(spec))
    except TimingInvalid as error:
        return Ahead(problem=str(error))


def rules_of(shape: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """Name and value of what differs from the defaults, in the words of the API; misfire and overlap always."""
    return [
        (name.replace("_", " "), shape[name])
        for name, default in DEFAULTS.items()
        if name not in OF_THEIR_OWN and (name in ALWAYS or shape.get(name) != default)
    ]


def known_of(spec_text: str, definition: Mapping[str, Any], paused_at: datetime | None) -> Known | None:
    """A stored definition, for reading a new one against it; None where it can't be read."""
    try:
        return Known(timing_of(definition), spec_from_json(spec_text), paused_at)
    except TimingInvalid:
        return None


def forecast_of(
    data: Mapping[str, Any], *, key: str, known: Known | None, limits: Limits, exclusion_of: ExclusionOf,
    now: datetime, count: int, after: datetime | None = None,
) -> Forecast:  # fmt: skip
    """What would run of `data`, from `now` or from `after` on; `key` is empty for a schedule that is to be made.

    InvalidInput as saving would raise it, but for a name and a job, which it does not need.
    """
    whole = {**data, "name": data.get("name") or "preview", "job": data.get("job") or NOWHERE, "workflow": None}
    spec = read_schedule(
        whole, key=key, now=now, min_interval_s=limits.min_interval_s, max_payload_bytes=limits.max_payload_bytes,
        known=known, exclusion_of=exclusion_of,
    ).spec  # fmt: skip
    after = after or now
    runs = preview(spec, after=after, count=count, key=key)
    old = known.spec if known is not None else None
    differs = isinstance(old, Spec) and old != spec
    return Forecast(
        words=describe(spec), zone=spec.zone, runs=runs, left_out=_left_out(spec, after, runs),
        notes=[*notes(spec), *([] if key else seed_notes(spec, data.get("trigger")))],
        change=compare(old, spec, after=after, count=count, key=key) if differs and old is not None else None,
        spec=spec,
    )  # fmt: skip


def differences(stored: Mapping[str, Any], wanted: Mapping[str, Any]) -> list[tuple[str, Any, Any]]:
    """Member, as it is stored, as it is wanted; what is not given is wanted as its default."""
    whole = {**dict.fromkeys(stored), **timing_of({}), **wanted}
    before, after = changes(stored, {name: whole.get(name) for name in stored})
    return [(name.replace("_", " "), before.get(name), after.get(name)) for name in sorted({*before, *after})]


def _left_out(spec: Spec, after: datetime, runs: list[Occurrence]) -> list[Occurrence]:
    """Between the runs that are shown."""
    return left_out(spec, after=after, until=runs[-1].nominal_at, limit=LEFT_OUT_SHOWN) if runs else []


def _in_order(runs: list[Occurrence], left_out: list[Occurrence]) -> list[Line]:
    lines = [*(Line(one, True) for one in runs), *(Line(one, False) for one in left_out)]
    return sorted(lines, key=lambda line: (line.at.nominal_at, line.runs))
