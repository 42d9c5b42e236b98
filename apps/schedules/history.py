"""From when to when each version of a schedule decided what was to run: the stretches of its history. Pure.

A version decides about the occurrences later than `from_at`, up to `until_at` where something stopped it (a pause of
the schedule or of its job, its deletion), else up to where the next version begins. A pause until a time begins the
next version at that time; a resume that catches up begins it where the pause began. So the stretches tell for each
instant which version, if any, had to account for it. Suspending a tenant and downtime are none of this: what they pass
over is due all the same, and gets its rows.

What was written before versions had these times, or by a process that does not write them, is not known.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from apps.schedules.timing import Spec, TimingInvalid, spec_from_json

PAUSED, JOB_PAUSED, DELETED, COMPLETED = "paused", "job_paused", "deleted", "completed"


@dataclass(frozen=True, slots=True)
class Version:
    """A version as it is stored. `made_at` is when it was, or from when on it was to count."""

    version: int
    spec: str
    made_at: datetime
    from_at: datetime | None
    until_at: datetime | None
    ended_by: str


@dataclass(frozen=True, slots=True)
class Stretch:
    """In (`after`, `until`] this version decides; `until` None has no end yet. `spec` None can't be read."""

    version: int
    spec: Spec | None
    after: datetime
    until: datetime | None
    ended_by: str = ""  # empty: the next version took over


@dataclass(frozen=True, slots=True)
class Stopped:
    """The schedule as it is now says that nothing is in force since then, whatever its version says."""

    at: datetime
    why: str


@dataclass(frozen=True, slots=True)
class History:
    """A schedule's stretches, oldest first, without empty ones. Before `known_from` nothing is known; None: all is."""

    known_from: datetime | None
    stretches: tuple[Stretch, ...]


def history_of(versions: Sequence[Version], *, stopped: Stopped | None = None) -> History:
    """The history that these versions, by ascending number, of a schedule tell.

    `stopped` closes a last version that a process without these times left open.
    """
    known = _known(versions)
    whole = len(known) == len(versions) and all(one.from_at is not None for one in known)
    first = min((one.from_at or one.made_at for one in known), default=None)
    found = []
    for number, one in enumerate(known):
        following = known[number + 1].from_at if number + 1 < len(known) else None
        begins, ends, why = one.from_at or one.made_at, one.until_at, one.ended_by
        if ends is None and number + 1 < len(known):
            ends = following
        elif ends is None and stopped is not None and stopped.at > begins:
            ends, why = stopped.at, stopped.why
        if ends is None or ends > begins:
            found.append(Stretch(one.version, _spec(one.spec), begins, ends, why))
    return History(None if whole else first, tuple(found))


def _known(versions: Sequence[Version]) -> list[Version]:
    """The versions from which on all have their times; at least the last one, which counts since it was made."""
    for number in range(len(versions) - 1, -1, -1):
        if versions[number].from_at is None:
            return list(versions[number + 1 :] or versions[-1:])
    return list(versions)


def _spec(text: str) -> Spec | None:
    try:
        return spec_from_json(text)
    except TimingInvalid:
        return None
