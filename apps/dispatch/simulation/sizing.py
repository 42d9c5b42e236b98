"""Sizes that no machine at hand has: how many dispatchers, workers and database cores a demand needs. Pure arithmetic.

Each part has a cost in CPU time for each run (`Figure`, measured by the bench or taken over from the repository's
figures) and a share of a core that may be used. Slots follow from Little's law: rate times mean run time. What comes
out is as good as the figures and as linear as the assumptions, which are part of the answer.
"""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any, NamedTuple

from kernel.errors import Faults

DAY_S = 86_400
GB = 1e9


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
    burst_s: float = 10.0  # how long a burst lasts: so much is due at one aligned minute
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
    dispatchers: int | None = None  # given numbers: how full they would be
    database_cores: float | None = None
    worker_processes: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Part:
    """One kind of process: what the demand needs, what is given, and the rate at which it is full."""

    name: str
    needed: float
    given: float | None
    use: float  # of the given number, or of the needed one, at the peak
    most_per_s: float  # runs a second that the given (or needed) number can do
    why: str


def plan(demand: Demand, figures: Mapping[str, Figure]) -> dict[str, Any]:
    """What the demand needs, part by part; the part that gives way first; and everything that was assumed."""
    value = {name: figure.value for name, figure in figures.items()}
    mean = demand.runs_per_day / DAY_S
    peak = max(mean * demand.peak, mean)
    parts = [*_dispatching(demand, value, peak), *_working(demand, value, peak), _database(demand, value, peak)]
    first = min(parts, key=lambda part: part.most_per_s)
    burst = _burst(demand, value, parts)
    return {
        "demand": asdict(demand),
        "rates": {"mean_per_s": mean, "peak_per_s": peak, "burst_per_s": demand.burst_per_s},
        "parts": [asdict(part) for part in parts],
        "bottleneck": {"part": first.name, "most_per_s": first.most_per_s, "holds": first.most_per_s >= peak},
        "burst": burst,
        "storage": _storage(demand, value, mean, peak),
        "figures": {name: {"value": figure.value, "source": figure.source} for name, figure in figures.items()},
        "assumptions": assumptions(demand),
    }  # fmt: skip


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
        elif isinstance(given, bool) or not isinstance(given, int | float) or not 0 < given < 1e15:
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
    if demand.use > 1:
        faults.add("/use", "out_of_range", "A share of a core: at most 1.")
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
        "all runs of a pool are released by the one process that holds its lease; fire scales with the dispatchers up"
        " to the shards",
        f"the pools' shares and mean run times are as given; each run is attempted {demand.attempts:g} times",
        "a burst is due at one instant, spread evenly over shards and tenants, and on top of the mean",
        "slots follow Little's law at the peak, with nothing to spare for waits: see the simulation for those",
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


def _dispatching(demand: Demand, value: Mapping[str, float], peak: float) -> list[Part]:
    a_core = 1_000 * demand.use
    fire, release = value["dispatcher_fire_ms"], value["dispatcher_release_ms"] * demand.attempts
    by_peak = peak * (fire + release) / a_core
    by_burst = demand.burst_per_s * demand.burst_s / (demand.burst_s + demand.late_s) * (fire + release) / a_core
    needed = max(2, math.ceil(max(by_peak, by_burst)))  # one may die
    count = demand.dispatchers or needed
    parts = [
        _part("dispatchers", needed, demand.dispatchers, peak, count * a_core / (fire + release), demand,
              f"{fire + release:.3f} ms of a core for each run, fired and released; at least 2, since one may die")
    ]  # fmt: skip
    for name, pool in demand.pools.items():
        most = a_core / release / pool.share if pool.share else math.inf
        parts.append(
            _part(
                f"release of pool {name}",
                1,
                1,
                peak,
                most,
                demand,
                "one process releases a pool, whatever their number",
            )
        )
    return parts


def _working(demand: Demand, value: Mapping[str, float], peak: float) -> list[Part]:
    parts = []
    for name, pool in demand.pools.items():
        rate = peak * pool.share * demand.attempts
        cost = value.get(f"worker_{name}_ms", value["worker_python_ms"])
        slots = rate * pool.run_s
        needed = max(2, math.ceil(max(slots / pool.slots_a_process, rate * cost / (1_000 * demand.use))))
        given = demand.worker_processes.get(name)
        count = given or needed
        by_slots = count * pool.slots_a_process / (pool.run_s * pool.share * demand.attempts)
        by_core = count * 1_000 * demand.use / (cost * pool.share * demand.attempts)
        why = f"{slots:,.0f} slots at the peak, {cost:.2f} ms of a core for each attempt; " + (
            "slots decide" if by_slots < by_core else "CPU time decides"
        )
        parts.append(
            _part(f"worker processes of pool {name}", needed, given, peak, min(by_slots, by_core), demand, why)
        )
    return parts


def _database(demand: Demand, value: Mapping[str, float], peak: float) -> Part:
    a_run = value["database_fire_ms"] + (value["database_release_ms"] + value["database_run_ms"]) * demand.attempts
    needed = max(2, math.ceil(peak * a_run / (1_000 * demand.use)))
    count = demand.database_cores or needed
    why = f"{a_run:.3f} ms of a core for each run: fired, released, started and settled with its history"
    return _part("database cores", needed, demand.database_cores, peak, count * 1_000 * demand.use / a_run, demand, why)


def _part(name: str, needed: float, given: float | None, peak: float, most: float, demand: Demand, why: str) -> Part:
    return Part(name, needed, given, peak / most * demand.use if most < math.inf else 0.0, most, why)


def _burst(demand: Demand, value: Mapping[str, float], parts: list[Part]) -> dict[str, Any]:
    """How fast what is due at one instant is fired and released: by the dispatchers or by the database."""
    due = demand.burst_per_s * demand.burst_s
    by_name = {part.name: part for part in parts}
    cores = demand.database_cores or by_name["database cores"].needed
    mean = demand.runs_per_day / DAY_S
    a_run = value["database_fire_ms"] + value["database_release_ms"]
    whole = a_run + value["database_run_ms"]
    left = max(0.001, cores * 1_000 * demand.use - mean * whole)
    by_database, by_dispatchers = left / a_run, by_name["dispatchers"].most_per_s
    rate = min(by_database, by_dispatchers)
    return {
        "due": due, "per_s": rate, "by": "database cores" if by_database < by_dispatchers else "dispatchers",
        "seconds": due / rate, "holds": rate >= demand.burst_per_s or due / rate <= demand.burst_s + demand.late_s,
        "late_s": max(0.0, due / rate - demand.burst_s),
    }  # fmt: skip


def _storage(demand: Demand, value: Mapping[str, float], mean: float, peak: float) -> dict[str, float]:
    return {
        "history_gb": demand.runs_per_day * demand.retention_days * value["history_bytes"] / GB,
        "due_index_gb": demand.schedules * value["schedule_bytes"] / GB,
        "wal_mb_per_s_mean": mean * value["wal_bytes"] / 1e6,
        "wal_mb_per_s_peak": peak * value["wal_bytes"] / 1e6,
    }
