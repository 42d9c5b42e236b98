"""How a tenant stands, in one sentence: an ordered list of rules, the first that holds is said. Pure.

Each sentence carries its evidence and the page where its cause is. The all-clear names what has run lately, since
nothing failing is also what it looks like when nothing runs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import NamedTuple

from kernel.durations import span

LATE_S = 60.0
COUNTED_MAX = 10_000


@dataclass(frozen=True, slots=True)
class Facts:
    """What is known of a tenant now. Counts stop at COUNTED_MAX."""

    now: datetime
    status: str = "active"
    dispatch_paused: bool = False
    schedules: int = 0
    jobs: int = 0
    ready: int = 0
    queued: int = 0
    running: int = 0
    delayed: int = 0
    oldest_ready_at: datetime | None = None  # that could start now
    overdue_at: datetime | None = None  # the oldest due time of an active schedule that has passed
    letters: int = 0  # open dead letters
    letters_lately: int = 0  # of the last 24 hours
    breakers: tuple[str, ...] = ()
    parked: int = 0
    last_hour: dict[str, int] = field(default_factory=dict)  # by state
    hour_capped: bool = False
    next_at: datetime | None = None


class Sentence(NamedTuple):
    tone: str
    icon: str
    text: str
    evidence: str
    url_name: str = ""
    query: str = ""
    link: str = ""


WAITING = ("portal:executions", "state=ready&window=all", "See what waits")
Rule = Callable[[Facts], Sentence | None]


def sentence_of(facts: Facts) -> Sentence:
    """The first rule that holds."""
    for rule in RULES:
        found = rule(facts)
        if found is not None:
            return found
    return _on_time(facts)


def number(count: int, one: str, many: str = "") -> str:
    """ "1 run", "2 runs", "10,000 or more runs"."""
    word = one if count == 1 else many or f"{one}s"
    return f"{COUNTED_MAX:,} or more {word}" if count > COUNTED_MAX else f"{count:,} {word}"


def _suspended(facts: Facts) -> Sentence | None:
    if facts.status == "active":
        return None
    evidence = "Schedules stand still and build up no debt. Ask whoever operates this installation."
    return Sentence("bad", "stop", f"Nothing runs: this tenant is {facts.status}.", evidence)


def _held(facts: Facts) -> Sentence | None:
    if not facts.dispatch_paused:
        return None
    evidence = f"{number(facts.ready, 'run')} wait. What runs goes on."
    return Sentence("bad", "pause", "Nothing starts: the operator has paused your runs.", evidence, *WAITING)


def _overdue(facts: Facts) -> Sentence | None:
    if facts.overdue_at is None or (late := (facts.now - facts.overdue_at).total_seconds()) < LATE_S:
        return None
    text = f"Late: the oldest run has been due for {span(late)} and is not made yet."
    evidence = "The platform is behind or stands still. Nothing is lost: each run will be made, or a row says why not."
    return Sentence("bad", "clock", text, evidence, "portal:schedules", "status=active", "See the schedules")


def _waiting(facts: Facts) -> Sentence | None:
    if facts.oldest_ready_at is None or (late := (facts.now - facts.oldest_ready_at).total_seconds()) < LATE_S:
        return None
    text = f"Slow: {number(facts.ready, 'run')} wait to start, the oldest for {span(late)}."
    evidence = f"{number(facts.running, 'run')} at work. A limit of the plan or of a job, or too few workers hold them."
    return Sentence("warn", "hourglass", text, evidence, *WAITING)


def _parked(facts: Facts) -> Sentence | None:
    if not facts.parked:
        return None
    are = "is" if facts.parked == 1 else "are"
    text = f"{number(facts.parked, 'schedule')} can't be served and {are} put aside."
    evidence = "Save the trigger again to bring one back."
    return Sentence("bad", "alert", text, evidence, "portal:schedules", "", "See the schedules")


def _dead_lately(facts: Facts) -> Sentence | None:
    if not facts.letters_lately:
        return None
    text = f"{number(facts.letters_lately, 'run')} failed for good in the last 24 hours."
    evidence = f"{number(facts.letters, 'open dead letter')} in all. {_hour(facts)}"
    return Sentence("bad", "alert", text, evidence, "portal:deadletters", "", "Look after them")


def _broken(facts: Facts) -> Sentence | None:
    if not facts.breakers:
        return None
    text = f"Calls to {', '.join(facts.breakers[:3])} are held back: too many of them failed."
    evidence = f"Runs wait without using up tries, and one call at a time looks whether it works again. {_hour(facts)}"
    return Sentence("warn", "pause", text, evidence, *WAITING)


def _dead(facts: Facts) -> Sentence | None:
    if not facts.letters:
        return None
    waits = "waits" if facts.letters == 1 else "wait"
    text = f"On time, but {number(facts.letters, 'open dead letter')} {waits} for somebody."
    return Sentence("warn", "alert", text, _hour(facts), "portal:deadletters", "", "Look after them")


def _nothing(facts: Facts) -> Sentence | None:
    if facts.schedules or facts.jobs or facts.last_hour:
        return None
    evidence = "Make a job, which says what runs, then a schedule, which says when."
    return Sentence("run", "info", "Nothing is set up yet.", evidence, "portal:jobs", "", "To the jobs")


def _on_time(facts: Facts) -> Sentence:
    return Sentence("ok", "check", "On time.", _hour(facts))


def _hour(facts: Facts) -> str:
    """The recent evidence."""
    total = sum(facts.last_hour.values())
    soon = (facts.next_at - facts.now).total_seconds() if facts.next_at is not None else 0
    ahead = f" The next is due in {span(soon)}." if soon > 0 else ""
    if not total:
        return f"Nothing ran in the last hour.{ahead}"
    parts = [f"{count:,} {state}" for state, count in sorted(facts.last_hour.items(), key=lambda one: -one[1])]
    whole = f"{number(total, 'run')} in the last hour"
    scope = f"The newest {total:,} runs of the last hour" if facts.hour_capped else whole
    return f"{scope}: {', '.join(parts)}.{ahead}"


RULES: tuple[Rule, ...] = (
    _suspended, _held, _overdue, _waiting, _parked, _dead_lately, _broken, _dead, _nothing,
)  # fmt: skip
