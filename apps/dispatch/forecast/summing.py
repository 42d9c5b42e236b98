"""From what is known of the shards to one forecast. Pure but for the rows' types."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from apps.dispatch.forecast.looking import Crowd
from apps.due.forecast import DAY_MINUTES, HOUR, MINUTE, Shard, Total
from apps.schedules.forecasting import BINS, HOURS, MINUTES, NEAR_HOURS
from apps.schedules.timing_zones import EPOCH, zone_offsets

MINUTES_SHOWN = DAY_MINUTES + 60
WATCHED = 10  # minutes whose tenants are counted
TENANTS_SHOWN = 50  # of such a minute
CHANGES_SHOWN = 50
NONE = [0] * BINS


def whole_hour(at: datetime) -> datetime:
    return at.replace(minute=0, second=0, microsecond=0)


def summed(
    shards: Iterable[Shard], *, now: datetime, peaks: Sequence[dict[str, Any]], clock_changes: Sequence[dict[str, Any]]
) -> Total | None:
    """The total from the hour of `now` on, as far as all shards that are in it reach; None when there is none.

    A shard that was not looked at for longer than a forecast reaches is left out.
    """
    start = whole_hour(now)
    minutes, hours, known = [], [], []
    for shard in shards:
        late = (start - shard.starts_at) // HOUR
        if not 0 <= late < NEAR_HOURS:
            continue
        runs = shard.runs or NONE
        near = runs[:MINUTES]
        by_hour = [sum(near[hour * 60 : hour * 60 + 60]) for hour in range(NEAR_HOURS)] + runs[MINUTES:]
        minutes.append(near[late * 60 : late * 60 + MINUTES_SHOWN])
        hours.append(by_hour[late:HOURS])
        known.append(shard)
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


def peaks_of(crowd: Crowd, starts_at: datetime) -> list[dict[str, Any]]:
    """The minutes that were watched, the fullest first, each with the tenants that have the most runs in it."""
    found = []
    for index, tenants in crowd.runs.items():
        most = sorted(tenants.items(), key=lambda one: (-one[1], one[0]))[:TENANTS_SHOWN]
        found.append({
            "at": starts_at + index * MINUTE, "runs": sum(tenants.values()), "of": len(tenants),
            "tenants": [[tenant_id, runs, crowd.keys[index, tenant_id]] for tenant_id, runs in most],
        })  # fmt: skip
    return sorted(found, key=lambda one: (-one["runs"], one["at"]))


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
    bins = list(shard.runs or NONE)
    for index, count in runs.items():
        bins[index] = max(0, bins[index] + count)
    return shard._replace(runs=bins, entries=max(0, shard.entries + entries))
