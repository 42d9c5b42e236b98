"""Synthetic loads: a JSON document with tenants, jobs, arrivals, run times, slots and costs becomes settings and runs.

docs/simulate.md describes the document. Pure: the same document and seed always give the same runs.
"""

import random
from collections.abc import Iterator, Mapping
from dataclasses import fields, replace
from itertools import islice
from typing import Any

from apps.dispatch.simulation.draws import RETRY, Draw, poisson, run_time, tries_of
from apps.dispatch.simulation.settings import Arrival, Costs, JobSetting, Load, Settings, TenantSetting
from apps.dispatch.simulation.validation import (
    LIMITS,
    PREFETCH_MAX,
    arrivals_fit,
    job_fits,
    limit,
    number,
    only,
    rate_of,
    tenant_value,
)  # fmt: skip
from apps.tickets.values import lane_of
from kernel.errors import Faults
from kernel.pools import CELERY_POOLS

SECONDS_MAX = 7 * 86_400
RUNS_MAX = 5_000_000
TENANTS_MAX = 20_000
_TENANT = {*LIMITS, "plan", "own_queue", "group", "active", "reserved", "max_slots", "copies"}
_JOB = {
    "tenant", "name", "pool", "priority", "max_concurrency", "rate_limit", "key", "max_queue_age_s", "lane", "run_s",
    "fails",
    "retry", "arrivals", "overlap",
}  # fmt: skip
_TOP = {"about", "seconds", "counted_from", "tenants", "jobs", "slots", "costs", "prefetch"}


def read_spec(data: object, *, seed: int = 0, most: int = RUNS_MAX) -> tuple[Settings, Load]:
    """Settings and at most so many runs of a synthetic load. InvalidInput names what is wrong with the document."""
    faults = Faults()
    if not isinstance(data, Mapping):
        faults.add("", "not_an_object", "Give an object with seconds, tenants, jobs and slots.")
        faults.raise_if_any()
        raise AssertionError
    only(data, _TOP, "", faults)
    seconds = number(data.get("seconds", 600), faults, "/seconds", least=1, most=SECONDS_MAX)
    tenants = _tenants(data.get("tenants"), faults)
    slots = _slots(data.get("slots"), faults)
    costs = read_costs(data.get("costs", {}), Costs(), faults)
    prefetch = number(data.get("prefetch", 2), faults, "/prefetch", least=1, most=PREFETCH_MAX)
    counted_from = number(data.get("counted_from", 0), faults, "/counted_from", least=0, most=seconds)
    wanted = data.get("jobs")
    if not isinstance(wanted, list) or not wanted:
        faults.add("/jobs", "missing", "Give a list of jobs with their arrivals.")
        wanted = []
    jobs: dict[int, JobSetting] = {}
    sources: list[Iterator[Arrival]] = []
    for place, one in enumerate(wanted):
        sources += _job(one, tenants, jobs, seconds, seed, faults, f"/jobs/{place}")
    faults.raise_if_any()
    arrivals: list[Arrival] = []
    for source in sources:
        arrivals.extend(islice(source, most + 1 - len(arrivals)))  # however many a number asks for
        if len(arrivals) > most:
            faults.add("/jobs", "too_many", f"More than {most:,} runs.")
            faults.raise_if_any()
    arrivals.sort(key=lambda one: one.at)
    settings = Settings(
        tenants={one.id: one for group in tenants.values() for one in group}, jobs=jobs, slots=slots, costs=costs,
        prefetch=float(prefetch),
    )  # fmt: skip
    return settings, Load(arrivals, seconds, counted_from=float(counted_from))


def read_costs(data: object, before: Costs, faults: Faults) -> Costs:
    """The costs with some of them replaced."""
    known = {one.name for one in fields(Costs)}
    if not isinstance(data, Mapping):
        faults.add("/costs", "not_an_object", f"Known costs: {', '.join(sorted(known))}.")
        return before
    only(data, known, "/costs", faults)
    least = {"dispatchers": 1.0, "fire_per_s": 0.001}
    given = {
        name: number(value, faults, f"/costs/{name}", least=least.get(name, 0), most=1e9)
        for name, value in data.items()
        if name in known
    }
    if "dispatchers" in given:
        given["dispatchers"] = int(given["dispatchers"])
    return replace(before, **given)  # type: ignore[arg-type]  # all are numbers


def _tenants(data: object, faults: Faults) -> dict[str, list[TenantSetting]]:
    """By the name that jobs use; an entry with `copies` stands for so many equal tenants."""
    made: dict[str, list[TenantSetting]] = {}
    if not isinstance(data, Mapping) or not data:
        faults.add("/tenants", "missing", 'Give tenants by name, such as {"acme": {"weight": 3}}.')
        return made
    count = 0
    for name, one in data.items():
        pointer = f"/tenants/{name}"
        if not isinstance(one, Mapping):
            faults.add(pointer, "not_an_object", "Give an object with weight and limits.")
            continue
        only(one, _TENANT, pointer, faults)
        copies = int(number(one.get("copies", 1), faults, f"{pointer}/copies", least=1, most=TENANTS_MAX))
        values = {
            key: tenant_value(key, value, faults, f"{pointer}/{key}")
            for key, value in one.items()
            if key in _TENANT - {"copies"} and not (key in LIMITS and value is None)
        }
        made[name] = [
            TenantSetting(
                id=count + number_ + 1, slug=name if copies == 1 else f"{name}-{number_:04d}",
                **values,
            )
            for number_ in range(copies)
        ]  # fmt: skip
        count += copies
    if count > TENANTS_MAX:
        faults.add("/tenants", "too_many", f"At most {TENANTS_MAX:,}.")
    return made


def _slots(data: object, faults: Faults) -> dict[tuple[str, str], int]:
    found: dict[tuple[str, str], int] = {}
    for name, count in data.items() if isinstance(data, Mapping) else ():
        pool, _, group = str(name).partition("@")
        if pool not in CELERY_POOLS:
            faults.add(f"/slots/{name}", "unknown_pool", f"Pools: {', '.join(CELERY_POOLS)}, each also with @group.")
        found[pool, group] = int(number(count, faults, f"/slots/{name}", least=0))
    if not found:
        faults.add("/slots", "missing", 'Give slots by pool, such as {"http": 200}.')
    return found


def _job(
    one: object, tenants: Mapping[str, list[TenantSetting]], jobs: dict[int, JobSetting], seconds: float, seed: int,
    faults: Faults, pointer: str,
) -> list[Iterator[Arrival]]:  # fmt: skip
    if not isinstance(one, Mapping) or not isinstance(one.get("tenant"), str) or one["tenant"] not in tenants:
        faults.add(f"{pointer}/tenant", "unknown_tenant", "Give an object whose tenant is one of tenants.")
        return []
    only(one, _JOB, pointer, faults)
    pool = one.get("pool", "http")
    if not isinstance(pool, str) or pool not in CELERY_POOLS:
        faults.add(f"{pointer}/pool", "unknown_pool", f"Pools: {', '.join(CELERY_POOLS)}.")
    draw = run_time(one.get("run_s", 1), faults, f"{pointer}/run_s")
    kinds = one.get("arrivals")
    kinds = kinds if isinstance(kinds, list) else [kinds]
    arrivals_fit(kinds, faults, f"{pointer}/arrivals")
    job_fits(one, faults, pointer)
    rate = rate_of(one.get("rate_limit"), faults, f"{pointer}/rate_limit")
    if faults.errors:
        return []
    key = one.get("key") or {}
    made: list[Iterator[Arrival]] = []
    for tenant in tenants[one["tenant"]]:
        job = JobSetting(
            id=len(jobs) + 1, tenant=tenant.id, name=str(one.get("name", f"job-{len(jobs) + 1}")), pool=pool,
            max_concurrency=limit(one.get("max_concurrency"), faults, pointer),
            key_max=limit(key.get("max"), faults, pointer),
            rate=rate, max_queue_age_s=one.get("max_queue_age_s"),
        )  # fmt: skip
        jobs[job.id] = job
        made += [
            _arrivals(one, kind, job, draw, random.Random(f"{seed}/{job.id}/{place}"), seconds)
            for place, kind in enumerate(kinds)
        ]
    return made


def _arrivals(
    one: Mapping[str, Any], kind: Mapping[str, Any], job: JobSetting, draw: Draw, rng: random.Random, seconds: float
) -> Iterator[Arrival]:
    retry, fails = {**RETRY, **(one.get("retry") or {})}, float(one.get("fails", 0))
    keys = int((one.get("key") or {}).get("values", 0))
    lane = lane_of(str(one.get("lane", "")))
    overlap = one.get("overlap", "allow")
    fired = "every_s" in kind
    for number_, at in enumerate(_instants(kind, rng, seconds)):
        yield Arrival(
            at=at, job=job.id, tries=tries_of(rng, draw, fails=fails, retry=retry),
            priority=int(one.get("priority", 5)),
            lane=lane, key=f"{rng.randrange(keys)}" if keys else None, fired=fired, overlap=overlap,
            serial=None if overlap == "allow" else job.id * 1_000_000 + number_ % int(kind.get("schedules", 1)),
        )  # fmt: skip


def _instants(kind: Mapping[str, Any], rng: random.Random, seconds: float) -> Iterator[float]:
    start = float(kind.get("from_s", 0))
    end = min(seconds, float(kind.get("to_s", seconds)))
    if "poisson_per_s" in kind:
        yield from poisson(rng, per_s=float(kind["poisson_per_s"]), start_s=start, end_s=end)
    elif "flood" in kind:
        at = float(kind.get("at_s", start))
        yield from (at for _ in range(int(kind["flood"])))
    else:
        step, schedules, jitter = float(kind["every_s"]), int(kind.get("schedules", 1)), float(kind.get("jitter_s", 0))
        at = start + float(kind.get("offset_s", 0))
        while at < end:
            for _ in range(schedules):
                yield at + (rng.uniform(0, min(jitter, step)) if jitter else 0.0)
            at += step
