"""Sizes that no machine at hand has: how many dispatchers, workers and database cores a demand needs. Pure arithmetic.

Each part has a cost in CPU time for each run (`Figure`, measured by the bench or taken over from the repository's
figures) and a share of a core that may be used. Slots follow from Little's law: rate times mean run time, of which a
share may be busy. All parts are sized for one rate, and a burst gets what each part has beside the mean. What comes out
is as good as the figures and as linear as the assumptions, which are part of the answer.
"""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any, NamedTuple

from kernel.errors import Faults

DAY_S = 86_400
GB = 1e9
ROUNDING = 1e-9
LEAST = {"peak": 1, "attempts": 1, "burst_per_s": 0, "late_s": 0}  # of the others: more than 0


class Figure(NamedTuple):
    """A measured number and where it comes from."""

    value: float
    source: str


@dataclass(frozen=True, slots=True)
class PoolDemand:
    """A pool's part of the runs, how long they take and how its workers are made."""

    share: float
    run_s: float
    slots_a_process: int


@dataclass(frozen=True, slots=True)
class Demand:
    """What is asked of the platform."""

    schedules: int = 10_000_000
    runs_per_day: int = 100_000_000
    peak: float = 3.0  # the busiest minutes, as a multiple of the day's mean
    burst_per_s: float = 10_000.0
    burst_s: float = 10.0  # how long a burst lasts
    late_s: float = 10.0  # dispatch lateness that is allowed at its end
    attempts: float = 1.1  # for each run, retries included
    retention_days: float = 30.0
    pools: Mapping[str, PoolDemand] = field(
        default_factory=lambda: {
            "http": PoolDemand(0.85, 0.5, 200), "python": PoolDemand(0.13, 1.0, 2),
            "container": PoolDemand(0.02, 20.0, 4),
        }
    )  # fmt: skip
    use: float = 0.6  # of a core's time that may be planned with
    slot_use: float = 0.8  # of the slots, as SCALE_UTILISATION of a running platform
    dispatchers: int | None = None  # given numbers: how full they would be
    database_cores: float | None = None
    worker_processes: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Part:
    """One kind of process: what the demand needs, what is given, and the rate at which it is full."""

    name: str
    needed: float
    given: float | None
    use: float  # of the given number, or of the needed one, at the peak: of a core's time, or of the slots
    most_per_s: float  # runs a second at which the given (or needed) number is as busy as may be planned with
    why: str


def plan(demand: Demand, figures: Mapping[str, Figure]) -> dict[str, Any]:
    """What the demand needs, part by part; the part that gives way first; and everything that was assumed."""
    value = {name: figure.value for name, figure in figures.items()}
    rates = _rates(demand)
    parts = [*_dispatching(demand, value, rates), *_working(demand, value, rates), _database(demand, value, rates)]
    first = min(parts, key=lambda part: part.most_per_s)
    return {
        "demand": asdict(demand),
        "rates": {
            "mean_per_s": rates.mean, "peak_per_s": rates.peak, "burst_per_s": demand.burst_per_s,
            "sized_for_per_s": rates.sized_for,
        },
        "parts": [asdict(part) for part in parts],
        "bottleneck": {
            "part": first.name, "most_per_s": first.most_per_s, "holds": _carries(first.most_per_s, rates.peak),
        },
        "burst": _burst(demand, rates, first),
        "storage": _storage(demand, value, rates),
        "figures": {name: {"value": figure.value, "source": figure.source} for name, figure in figures.items()},
        "assumptions": assumptions(demand),
    }  # fmt: skip


def is_enough(planned: Mapping[str, Any]) -> bool:
    """Whether the part of a plan that gives way first carries the peak, and a burst in its time."""
    return bool(planned["bottleneck"]["holds"] and planned["burst"]["holds"])


class Rates(NamedTuple):
    """Runs a second: on average, in the busiest minutes, and what all parts are sized for."""

    mean: float
    peak: float
    sized_for: float


def read_demand(data: Mapping[str, Any]) -> Demand:
    """A demand from JSON; what it leaves out keeps its default. InvalidInput names what is wrong."""
    faults, known = Faults(), {one.name: one for one in fields(Demand)}
    values: dict[str, Any] = {}
    for name, given in data.items():
        if name == "pools" and isinstance(given, Mapping):
            values[name] = {str(pool): _pool(pool, one, faults) for pool, one in given.items()}
            if not all(isinstance(one, Mapping) and "share" in one for one in given.values()):
                values[name] = {**Demand().pools, **values[name]}  # the others stay as they are
        elif name == "worker_processes" and isinstance(given, Mapping):
            values[name] = dict(given)
        elif name not in known:
            faults.add(f"/{name}", "unknown_field", f"Known: {', '.join(known)}.")
        elif name in ("pools", "worker_processes"):
            faults.add(f"/{name}", "not_an_object", "Give an object by pool.")
        elif isinstance(given, bool) or not isinstance(given, int | float) or not given < 1e15:
            faults.add(f"/{name}", "out_of_range", "Give a number.")
        elif name in LEAST and given < LEAST[name]:
            faults.add(f"/{name}", "out_of_range", f"Give a number of at least {LEAST[name]}.")
        elif name not in LEAST and given <= 0:
            faults.add(f"/{name}", "out_of_range", "Give a number above 0.")
        elif name == "dispatchers" and given != int(given):
            faults.add(f"/{name}", "out_of_range", "Give a whole number.")
        else:
            values[name] = given
    demand = replace(Demand(), **values)
    for pool, count in demand.worker_processes.items():
        if pool not in demand.pools:
            faults.add(f"/worker_processes/{pool}", "unknown_pool", f"Pools: {', '.join(demand.pools)}.")
        elif isinstance(count, bool) or not isinstance(count, int) or not 0 < count < 1e15:
            faults.add(f"/worker_processes/{pool}", "out_of_range", "Give a whole number above 0.")
    if not demand.pools or abs(sum(pool.share for pool in demand.pools.values()) - 1) > 0.01:
        faults.add("/pools", "shares", "The pools' shares add up to 1.")
    for name in ("use", "slot_use"):
        if getattr(demand, name) > 1:
            faults.add(f"/{name}", "out_of_range", "A share: at most 1.")
    faults.raise_if_any()
    return demand


def read_figures(data: Mapping[str, Any], before: Mapping[str, Figure]) -> dict[str, Figure]:
    """Figures from JSON ({"name": {"value", "source"}}) over those known before. InvalidInput of unknown ones."""
    faults, found = Faults(), dict(before)
    for name, one in data.items():
        value = one.get("value") if isinstance(one, Mapping) else one
        if before and name not in before:
            faults.add(f"/{name}", "unknown_figure", f"Known: {', '.join(sorted(before))}.")
        elif isinstance(value, bool) or not isinstance(value, int | float) or not value > 0:
            faults.add(f"/{name}", "out_of_range", "Give a number above 0.")
        else:
            source = one.get("source", "given") if isinstance(one, Mapping) else "given"
            found[name] = Figure(float(value), str(source))
    faults.raise_if_any()
    return found


def assumptions(demand: Demand) -> list[str]:
    """What the arithmetic takes for granted."""
    return [
        f"a core's time is planned with up to {demand.use:.0%}; a Python process uses one core at most",
        "costs are linear: twice the runs cost twice the time; caches, lock waits and vacuum count only as"
        " far as the bench had them",
        "the repository's figures are of no-op runs of 8 tenants: with thousands of tenants a batch has fewer runs of"
        " each schema, and costs more for each; measure yours",
        "the database is one primary; its disks keep up with the WAL named above and commits take under a millisecond",
        "parts are sized for the busier of the peak and of the mean with a burst",
        "all runs of a pool are released by the one process that holds its lease; fire scales with the dispatchers up"
        " to the shards",
        f"the pools' shares and mean run times are as given; each run is attempted {demand.attempts:g} times",
        f"a burst is {demand.burst_per_s:,.0f} runs a second for {demand.burst_s:g} s, spread evenly over shards and"
        f" tenants, on top of the mean; it may be fired, released and started {demand.late_s:g} s late at its end",
        f"slots follow Little's law, and {demand.slot_use:.0%} of them are busy: what is left is for waits, and the"
        " simulation says how long those are",
        "web, broker and network are not part of the plan; the broker carries one message for up to 100 runs",
    ]


def _pool(name: str, one: Any, faults: Faults) -> PoolDemand:
    """What a known pool's object leaves out is as it is by default."""
    try:
        before = Demand().pools.get(name)
        given = {**(asdict(before) if before else {"slots_a_process": 100}), **one}
        made = PoolDemand(float(given["share"]), float(given["run_s"]), int(given["slots_a_process"]))
        if not (0 <= made.share <= 1 and 0 < made.run_s < 1e9 and 1 <= made.slots_a_process < 1e9):
            raise ValueError
        return made
    except (KeyError, TypeError, ValueError, OverflowError):
        faults.add(f"/pools/{name}", "bad_pool", 'Give {"share": 0.8, "run_s": 0.5, "slots_a_process": 200}.')
        return PoolDemand(0, 1, 1)


def _rates(demand: Demand) -> Rates:
    """A burst of so many a second may take `late_s` longer than it lasts, and comes on top of the mean."""
    mean = demand.runs_per_day / DAY_S
    peak = max(mean * demand.peak, mean)
    return Rates(mean, peak, max(peak, mean + _burst_needs(demand)))


def _carries(rate: float, wanted: float) -> bool:
    """Whether a rate is as much as is wanted, but for what rounding takes: a whole number of parts may fit exactly."""
    return rate >= wanted * (1 - ROUNDING)


def _burst_needs(demand: Demand) -> float:
    return demand.burst_per_s * demand.burst_s / (demand.burst_s + demand.late_s)


def _dispatching(demand: Demand, value: Mapping[str, float], rates: Rates) -> list[Part]:
    a_core = 1_000 * demand.use
    fire, release = value["dispatcher_fire_ms"], value["dispatcher_release_ms"] * demand.attempts
    needed = max(2, math.ceil(rates.sized_for * (fire + release) / a_core))
    count = demand.dispatchers or needed
    why = f"{fire + release:.3f} ms of a core for each run, fired and released; at least 2, since one may die"
    parts = [
        _part(
            "dispatchers", needed, demand.dispatchers, rates, count * a_core / (fire + release), why, used=demand.use
        )
    ]  # fmt: skip
    for name, pool in demand.pools.items():
        most = a_core / release / pool.share if pool.share else math.inf
        why = "one process releases a pool, whatever their number"
        parts.append(_part(f"release of pool {name}", 1, 1, rates, most, why, used=demand.use))
    return parts


def _working(demand: Demand, value: Mapping[str, float], rates: Rates) -> list[Part]:
    parts = []
    for name, pool in demand.pools.items():
        attempts = pool.share * demand.attempts  # for each run of all pools
        cost = value.get(f"worker_{name}_ms", value["worker_python_ms"])
        slots = rates.sized_for * attempts * pool.run_s
        by_slots = slots / demand.slot_use / pool.slots_a_process
        by_core = rates.sized_for * attempts * cost / (1_000 * demand.use)
        needed, given = max(2, math.ceil(max(by_slots, by_core))), demand.worker_processes.get(name)
        count = given or needed
        if by_slots > by_core:
            decides, used = f"slots decide, {demand.slot_use:.0%} of them busy", demand.slot_use
            most = count * pool.slots_a_process * demand.slot_use / (pool.run_s * attempts) if attempts else math.inf
        else:
            decides, used = "CPU time decides", demand.use
            most = count * 1_000 * demand.use / (cost * attempts) if attempts else math.inf
        why = f"{slots:,.0f} runs at once, {cost:.2f} ms of a core for each attempt; {decides}"
        parts.append(_part(f"worker processes of pool {name}", needed, given, rates, most, why, used=used))
    return parts


def _database(demand: Demand, value: Mapping[str, float], rates: Rates) -> Part:
    a_run = value["database_fire_ms"] + (value["database_release_ms"] + value["database_run_ms"]) * demand.attempts
    needed = max(2, math.ceil(rates.sized_for * a_run / (1_000 * demand.use)))
    most = (demand.database_cores or needed) * 1_000 * demand.use / a_run
    why = f"{a_run:.3f} ms of a core for each run: fired, released, started and settled with its history"
    return _part("database cores", needed, demand.database_cores, rates, most, why, used=demand.use)


def _part(name: str, needed: float, given: float | None, rates: Rates, most: float, why: str, *, used: float) -> Part:
    """`used` is the part of a core's time or of the slots that is busy at `most` runs a second."""
    return Part(name, needed, given, rates.peak / most * used, most, why)


def _burst(demand: Demand, rates: Rates, first: Part) -> dict[str, Any]:
    """How fast a burst is fired, released and run: with what the part that gives way first has beside the mean."""
    due = demand.burst_per_s * demand.burst_s
    rate = max(0.0, first.most_per_s - rates.mean)
    seconds = max(demand.burst_s, due / rate) if rate else math.inf
    return {
        "due": due, "per_s": rate, "by": first.name, "seconds": seconds if rate else None,
        "holds": _carries(rate, _burst_needs(demand)), "late_s": seconds - demand.burst_s if rate else None,
    }  # fmt: skip


def _storage(demand: Demand, value: Mapping[str, float], rates: Rates) -> dict[str, float]:
    return {
        "history_gb": demand.runs_per_day * demand.retention_days * value["history_bytes"] / GB,
        "due_index_gb": demand.schedules * value["schedule_bytes"] / GB,
        "wal_mb_per_s_mean": rates.mean * value["wal_bytes"] / 1e6,
        "wal_mb_per_s_peak": rates.peak * value["wal_bytes"] / 1e6,
    }
