"""From what is known of the shards to one forecast. Pure but for the rows' types."""

from array import array
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from apps.due.forecast import DAY_MINUTES, HOUR, WEEK_HOURS, Shard, Total
from apps.schedules.forecasting import BINS, MINUTES, NEAR_HOURS
from apps.schedules.timing_zones import EPOCH, zone_offsets

MINUTES_SHOWN, HOURS_SHOWN = DAY_MINUTES + 60, WEEK_HOURS + 3
WATCHED = 10  # minutes whose tenants are counted
CHANGES_SHOWN = 50
NONE = array("q", bytes(8 * BINS))


def whole_hour(at: datetime) -> datetime:
    return at.replace(minute=0, second=0, microsecond=0)


def summed(
    shards: Iterable[Shard], *, now: datetime, peaks: Sequence[dict[str, Any]], clock_changes: Sequence[dict[str, Any]]
) -> Total | None:
    """The total from the hour of `now` on, as far as all shards that are in it reach; None when there is none.

    A shard that was not looked at for longer than a forecast reaches is left out.
    """
    start = whole_hour(now)
    by_age: dict[int, list[Shard]] = defaultdict(list)
    for shard in shards:
        by_age[(start - shard.starts_at) // HOUR].append(shard)
    minutes, hours, known = [], [], []
    for late, some in by_age.items():
        if not 0 <= late < NEAR_HOURS:
            continue
        runs = [sum(each) for each in zip(*(one.runs or NONE for one in some), strict=True)]
        by_hour = [sum(runs[at : at + 60]) for at in range(0, MINUTES, 60)] + runs[MINUTES:]
        minutes.append(runs[late * 60 : MINUTES][:MINUTES_SHOWN])
        hours.append(by_hour[late:][:HOURS_SHOWN])
        known += some
    if not known:
        return None
    return Total(
        starts_at=start, made_at=now, oldest_at=min(one.made_at for one in known), shards=len(known),
        entries=sum(one.entries for one in known), minutes=[sum(each) for each in zip(*minutes, strict=False)],
        hours=[sum(each) for each in zip(*hours, strict=False)], peaks=list(peaks), clock_changes=list(clock_changes),
    )  # fmt: skip


def fullest(total: Total, now: datetime, number: int = WATCHED) -> list[datetime]:
    """The minutes of the next 24 hours with the most runs, the fullest first; of equal ones those that come first."""
    known = [one for one in total.of_minutes(now) if one[1]]
    return [at for at, _ in sorted(known, key=lambda one: (-one[1], one[0]))[:number]]


def clock_changes(zones: Iterable[str], *, starts_at: datetime, until: datetime) -> list[dict[str, Any]]:
    """When the clocks of these zones change in [starts_at, until), and by how many seconds."""
    found: list[dict[str, Any]] = []
    low, high = ((at - EPOCH) // timedelta(seconds=1) for at in (starts_at, until))
    for zone in sorted(zones):
        offsets = zone_offsets(zone)
        index = offsets.index(low)
        while (change := offsets.end(index)) < high:
            index += 1
            found.append({"zone": zone, "at": EPOCH + timedelta(seconds=change), "by_s": offsets.jump(index)})
    return sorted(found, key=lambda one: (one["at"], one["zone"]))[:CHANGES_SHOWN]


def with_runs(shard: Shard, runs: Mapping[int, int], entries: int) -> Shard:
    """A shard with so many runs more by bin, and so many entries; nothing goes below none."""
    bins = array("q", shard.runs or NONE)
    for index, count in runs.items():
        bins[index] = max(0, bins[index] + count)
    return shard._replace(runs=bins, entries=max(0, shard.entries + entries))
