"""`max_runs` over a schedule's life: what former definitions used up, and where counting goes on.

Every occurrence counts, whether it ran or a row says why not. Occurrences that a pause passes over do not count, except
when a resume asks to make up for them. While a schedule runs, its due entry carries the number of those that are done
(`runs_done`), so that firing never counts from the start; only an entry that was made anew has to be counted once.
"""

from dataclasses import replace
from datetime import datetime, timedelta

from apps.schedules.timing import count_between
from apps.schedules.timing_spec import Spec


def runs_used(spec: Spec, *, until: datetime) -> int:
    """How many of its runs a schedule has used up by an instant, former definitions included."""
    if spec.max_runs is None or spec.runs_from is None:
        return 0
    return min(spec.max_runs, spec.runs_used + count_between(spec, after=spec.runs_from, until=until))


def rebased(spec: Spec, *, stopped_at: datetime, now: datetime) -> Spec:
    """The spec of a schedule that stood still from `stopped_at` to `now`: what it has left, it has from now on."""
    if spec.max_runs is None or spec.runs_from is None:
        return spec
    return replace(spec, runs_used=runs_used(spec, until=min(stopped_at, now)), runs_from=now)


def counted(spec: Spec, *, nominal_at: datetime, done: int | None) -> tuple[Spec, int]:
    """The spec as it counts from a due entry on, before which `done` runs lie (None: not known); and that number."""
    if spec.max_runs is None or spec.runs_from is None:
        return spec, 0
    if done is None:
        done = count_between(spec, after=spec.runs_from, until=nominal_at - timedelta(microseconds=1))
    return spec.counted(before=nominal_at, used=spec.runs_used + done), done
