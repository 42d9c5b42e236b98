"""The figures as families of Prometheus metrics. Names and labels are stable; docs/scaling.md lists them.

Labels are pools, groups of workers and lanes: as many as an operator has set up, and none for each tenant. Counters are
by process, since each counts from its own start.
"""

from collections.abc import Callable, Iterator

from django.conf import settings
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from apps.dispatch.pressure.counted import Counted, OfDispatcher
from apps.dispatch.pressure.gauging import LANES, PoolFigures
from apps.dispatch.pressure.pool_figures import Seen
from apps.usage.archives import Totals

PLACE = ("pool", "group")
QUANTILES = {"0.5": "p50_s", "0.95": "p95_s", "0.99": "p99_s"}

# Of each pool and group of workers.
OF_POOLS: tuple[tuple[str, str, Callable[[PoolFigures], float | None]], ...] = (
    ("pool_workers", "Live worker processes.", lambda one: one.workers),
    ("pool_slots", "Slots of live workers.", lambda one: one.slots),
    ("pool_wanted_slots", "Slots that there should be.", lambda one: one.wanted_slots),
    ("pool_wanted_workers", "Worker processes that have so many slots.", lambda one: one.wanted_workers),
    ("pool_held", "Of what is ready what waits for something else than a slot.", lambda one: one.held),
    ("pool_later", "Tickets that wait for their time, such as retries.", lambda one: one.later),
    ("pool_queued", "Tickets handed to the broker and not started.", lambda one: one.queued),
    ("pool_running", "Tickets that hold a slot.", lambda one: one.running),
    ("pool_arrivals_per_second", "Runs that become ready, averaged over a minute.", lambda one: one.arrivals_per_s),
    ("pool_ended_per_second", "Attempts that give their slot back.", lambda one: one.ended_per_s),
    ("pool_run_seconds", "How long a run holds a slot.", lambda one: one.run_s),
    ("pool_pressed", "1 while catch-up yields to live work that waits.", lambda one: one.pressed),
)  # fmt: skip
OF_LANES: tuple[tuple[str, str, Callable[[PoolFigures, str], float]], ...] = (
    ("pool_ready", "Tickets that are ready, by lane.", lambda one, lane: one.ready[lane]),
    (
        "pool_oldest_wait_seconds", "Longest wait of what waits for nothing but a slot, by lane.",
        lambda one, lane: one.oldest_wait_s[lane],
    ),
)  # fmt: skip
# Of each dispatcher, since it started.
OF_DISPATCHERS: tuple[tuple[str, str, Callable[[OfDispatcher], int]], ...] = (
    ("attempts_lost", "Attempts that nobody ran any more, or past their time, that were ended.", lambda one: one.lost),
    ("released_again", "Tickets that were not started in time and released again.", lambda one: one.released_again),
    ("gaps_found", "Schedules in which occurrences were found that nothing accounts for.", lambda one: one.gaps),
)  # fmt: skip


class Families(Collector):
    """What was seen at one moment."""

    def __init__(self, seen: Seen) -> None:
        self._seen = seen

    def collect(self) -> Iterator[Metric]:
        seen, measured = self._seen, self._seen.measured
        yield _one("dispatchers", "Live dispatcher processes.", seen.dispatchers)
        yield _one("workers", "Live worker processes.", seen.workers)
        yield _one("oldest_due_seconds", "For how long the oldest due entry has been due.", seen.oldest_due_s)
        yield from _counted(seen.counters)
        yield from _archive(seen.archive)
        yield _one(
            "schemas_of_other_version",
            "Tenant schemas older or newer than this process.",
            seen.schemas_of_other_version,
        )
        if measured is not None:
            yield _one("figures_age_seconds", "When the figures below were measured.", measured.age_s)
        if measured is None or seen.stale:
            return
        yield _one("live", "Executions that are not finished.", measured.live)
        if settings.MAX_LIVE_TOTAL:
            yield _one("live_limit", "Beyond so many the API answers 503.", settings.MAX_LIVE_TOTAL)
        yield _one("delayed", "Executions that wait for their time.", measured.figures.get("delayed", 0))
        yield _one("ended_per_second", "Executions that end, over five minutes.", measured.ended_per_s)
        yield from _dispatch(measured.figures.get("dispatch", {}))
        yield from _of_pools(seen.pools())


def _one(name: str, text: str, value: float) -> Metric:
    return GaugeMetricFamily(f"shardbeat_{name}", text, value=value)


def _counted(seen: Counted) -> Iterator[Metric]:
    for name, text, of_dispatcher in OF_DISPATCHERS:
        family = CounterMetricFamily(f"shardbeat_{name}", text, labels=["process"])
        for process, one in seen.dispatchers.items():
            family.add_metric([process], of_dispatcher(one))
        yield family
    repairs = CounterMetricFamily(
        "shardbeat_repairs", "What had come apart and was put right.", labels=["process", "check"]
    )
    for process, one in seen.dispatchers.items():
        for check, count in one.repairs.items():
            repairs.add_metric([process, check], count)
    yield repairs
    stale = CounterMetricFamily(
        "shardbeat_settlements_stale", "Results that came after their attempt was over.", labels=["process"]
    )
    for process, count in seen.stale.items():
        stale.add_metric([process], count)
    yield stale


def _archive(seen: Totals) -> Iterator[Metric]:
    """Nothing where no tenant's history is archived."""
    if seen.tenants:
        yield _one("archive_executions", "Executions in archive files.", seen.executions)
        yield _one("archive_bytes", "Size of all archive files.", seen.bytes)
        yield _one("archive_failing_tenants", "Tenants whose last run of the archive failed.", seen.failing)
        yield _one(
            "archive_overdue_seconds", "For how long the oldest that may be archived should have been.", seen.overdue_s
        )
        yield _one("archive_age_seconds", "Since the tenant that waits the longest had its last run.", seen.age_s)


def _dispatch(spread: dict[str, float]) -> Iterator[Metric]:
    yield _one("dispatched", "First hand-overs to workers in the last five minutes.", spread.get("times", 0))
    family = GaugeMetricFamily(
        "shardbeat_dispatch_lateness_seconds", "Dispatch lateness in the last five minutes.", labels=["quantile"]
    )
    for label, name in QUANTILES.items():
        if name in spread:
            family.add_metric([label], spread[name])
    yield family


def _of_pools(pools: list[PoolFigures]) -> Iterator[Metric]:
    for name, text, of_pool in OF_POOLS:
        family = GaugeMetricFamily(f"shardbeat_{name}", text, labels=PLACE)
        for one in pools:
            value = of_pool(one)
            if value is not None:
                family.add_metric([one.pool, one.group], value)
        yield family
    for name, text, of_lane in OF_LANES:
        family = GaugeMetricFamily(f"shardbeat_{name}", text, labels=(*PLACE, "lane"))
        for one in pools:
            for lane in LANES:
                family.add_metric([one.pool, one.group, lane], of_lane(one, lane))
        yield family
