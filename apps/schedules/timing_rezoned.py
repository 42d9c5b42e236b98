"""Going on under other zone rules: what runs next when the clock of a zone is another one than it was.

New zone data is a clock change like any other. A schedule at fixed times goes on with its next wall time: what has run
at a wall time does not run at it again, and what lies between is not left out, whichever way the instants moved. One
that follows real time goes on in real time.
"""

from datetime import datetime, timedelta

from apps.schedules.cron_parse import compile_cron
from apps.schedules.timing_spec import Spec
from apps.schedules.timing_triggers import Cron, Every, Recurrence
from apps.schedules.timing_walls import place
from apps.schedules.timing_zones import EPOCH, zone_offsets

ZONE_SHIFT_MAX = timedelta(hours=26)  # farther apart no two clocks are
_SUB_DAILY = ("FREQ=HOURLY", "FREQ=MINUTELY", "FREQ=SECONDLY")
_SECOND = timedelta(seconds=1)


def follows_wall(spec: Spec) -> bool:
    """Whether its runs are at fixed times of its zone's clock, all of them."""
    trigger = spec.trigger
    if zone_offsets(spec.zone).steady and spec.zone == "UTC":
        return False
    if isinstance(trigger, Cron):
        return all(compile_cron(text).fixed for text in trigger.exprs)
    if isinstance(trigger, Recurrence):
        return not any(freq in trigger.rrule.upper() for freq in _SUB_DAILY)
    return isinstance(trigger, Every)


def same_wall(spec: Spec, at: datetime, *, was_s: int) -> datetime:
    """The instant, by the zone's rules of now, of the wall time that `at` had when the offset was `was_s`."""
    found = place(zone_offsets(spec.zone), (at - EPOCH) // _SECOND + was_s, True, spec.dst_fold)
    return EPOCH + found[-1] * _SECOND if found else at
