"""What-if: settings with some of them changed, by paths such as `tenant.acme.weight=3`. Pure.

`--set` gives one path with its value, a file the same as nested objects; both become one flat mapping.
"""

import json
import random
from collections.abc import Iterable, Mapping
from dataclasses import fields, replace
from typing import Any

from apps.dispatch.simulation.settings import JobSetting, Load, Settings, TenantSetting
from apps.dispatch.simulation.spec import read_costs
from apps.dispatch.simulation.validation import limit, number, rate_of, tenant_value
from kernel.errors import Faults, FieldError, InvalidInput
from kernel.pools import CELERY_POOLS

OF_JOB = ("max_concurrency", "key_max", "max_queue_age_s")
ABOUT_RUNS = ("load", "run_s", "schedule")  # factors that change the runs and not the settings
KNOWN = (
    "tenant.SLUG.(weight | max_running | max_live | runs_per_min | runs_burst | max_runs_per_day | group | own_queue"
    " | active | reserved.POOL | max_slots.POOL), plan.NAME.(the same), slots.POOL[@GROUP],"
    " job.SLUG/NAME.(max_concurrency | rate_limit | key_max), cost.NAME, load.SLUG (a factor),"
    " run_s.SLUG[/NAME] (a factor), schedule.ID.FIELD, prefetch"
)


def flat(data: Mapping[str, Any], before: tuple[str, ...] = ()) -> dict[tuple[str, ...], Any]:
    """Nested objects as paths: {"tenant": {"acme": {"weight": 3}}} is ("tenant", "acme", "weight"): 3."""
    found: dict[tuple[str, ...], Any] = {}
    for name, value in data.items():
        path = (*before, str(name))
        whole = not isinstance(value, Mapping) or path[-1] == "rate_limit"
        found.update({path: value} if whole else flat(value, path))
    return found


def read_sets(texts: Iterable[str]) -> dict[tuple[str, ...], Any]:
    """Paths from texts such as "tenant.acme.weight=3"; a job's name may hold dots."""
    faults = Faults()
    found: dict[tuple[str, ...], Any] = {}
    for text in texts:
        path, sign, value = text.partition("=")
        parts = path.strip().split(".")
        if not sign or len(parts) < 1 or not all(parts):
            faults.add(text, "bad_change", "Write a path and a value, such as tenant.acme.weight=3.")
            continue
        if parts[0] == "job" and len(parts) > 3:
            parts = ["job", ".".join(parts[1:-1]), parts[-1]]
        found[tuple(parts)] = _value(value.strip())
    faults.raise_if_any()
    return found


def changed(settings: Settings, changes: Mapping[tuple[str, ...], Any]) -> Settings:
    """The settings with these changes, in their order. InvalidInput names every path that changes nothing."""
    faults = Faults()
    for path, value in changes.items():
        settings = _change(settings, path, value, faults)
    faults.raise_if_any()
    return settings


def factors(changes: Mapping[tuple[str, ...], Any], kind: str) -> dict[str, float]:
    """The factors of one kind of ABOUT_RUNS: {"acme": 2.0}, {"acme/sync": 0.5}."""
    faults = Faults()
    found = {
        ".".join(path[1:]): number(value, faults, ".".join(path), least=0, most=1_000)
        for path, value in changes.items()
        if path[0] == kind
    }
    faults.raise_if_any()
    return found


def scaled(load: Load, settings: Settings, changes: Mapping[tuple[str, ...], Any], *, seed: int) -> Load:
    """The load with more, fewer, longer or shorter runs: load.SLUG, run_s.SLUG and run_s.SLUG/NAME are factors.

    Of a factor of 1.5 every second run comes twice; of 0.5 every second one is left out, drawn by the seed.
    """
    counts, times = factors(changes, "load"), factors(changes, "run_s")
    if not counts and not times:
        return load
    rng = random.Random(f"{seed}/load")
    names = {
        job.id: (settings.tenants[job.tenant].slug, f"{settings.tenants[job.tenant].slug}/{job.name}")
        for job in settings.jobs.values()
    }
    unknown = (counts.keys() | times.keys()) - {name for both in names.values() for name in both} - {"*"}
    if unknown:
        raise InvalidInput(
            [FieldError(name, "unknown", "Write the slug of a tenant, SLUG/NAME of a job, or *.") for name in unknown]
        )
    arrivals = []
    for one in load.arrivals:
        slug, job = names[one.job]
        longer = times.get(job, times.get(slug, times.get("*", 1.0)))
        if longer != 1.0:
            one = one._replace(tries=tuple(t if place % 2 else t * longer for place, t in enumerate(one.tries)))
        factor = counts.get(job, counts.get(slug, counts.get("*", 1.0)))
        arrivals += [one] * (int(factor) + (rng.random() < factor % 1))
    return replace(load, arrivals=arrivals)


def _value(text: str) -> Any:
    if text.lower() in ("", "none", "null"):
        return None
    try:
        return json.loads(text)
    except ValueError:
        return text


def _change(settings: Settings, path: tuple[str, ...], value: Any, faults: Faults) -> Settings:
    kind, *rest = path
    name = ".".join(path)
    if kind in ("tenant", "plan") and len(rest) in (2, 3):
        chosen = [
            one for one in settings.tenants.values() if rest[0] in ("*", one.slug if kind == "tenant" else one.plan)
        ]  # fmt: skip
        if not chosen:
            faults.add(name, "unknown", f"There is no {kind} {rest[0]!r} in this simulation.")
        new = {one.id: _tenant(one, rest[1:], value, name, faults) for one in chosen}
        return replace(settings, tenants={**settings.tenants, **new})
    if kind == "job" and len(rest) == 2:
        slugs = {one.id: one.slug for one in settings.tenants.values()}
        jobs = [one for one in settings.jobs.values() if f"{slugs[one.tenant]}/{one.name}" == rest[0]]
        if not jobs:
            faults.add(name, "unknown", f"There is no job {rest[0]!r}; write SLUG/NAME.")
        return replace(
            settings, jobs={**settings.jobs, **{one.id: _job(one, rest[1], value, name, faults) for one in jobs}}
        )
    if kind == "slots" and len(rest) == 1:
        pool, _, group = rest[0].partition("@")
        if pool not in CELERY_POOLS:
            faults.add(name, "unknown_pool", f"Pools: {', '.join(CELERY_POOLS)}, each also with @group.")
        return replace(settings, slots={**settings.slots, (pool, group): int(number(value, faults, name, least=0))})
    if kind in ("cost", "costs") and len(rest) == 1:
        return replace(settings, costs=read_costs({rest[0]: value}, settings.costs, faults))
    if kind == "prefetch" and not rest:
        return replace(settings, prefetch=number(value, faults, name, least=1, most=100))
    if kind not in ABOUT_RUNS:
        faults.add(name, "unknown", f"Known: {KNOWN}.")
    return settings


def _tenant(one: TenantSetting, path: list[str], value: Any, name: str, faults: Faults) -> TenantSetting:
    field, *pool = path
    if field in ("reserved", "max_slots") and pool:
        kept = {key: count for key, count in getattr(one, field).items() if key != pool[0]}
        if value is not None:
            kept |= tenant_value(field, {pool[0]: value}, faults, name)
        return replace(one, **{field: kept})  # type: ignore[arg-type]  # one of two mappings
    known = {each.name for each in fields(TenantSetting) if each.init} - {"id", "slug", "shared_queues"}
    if pool or field not in known:
        faults.add(name, "unknown", f"Known: {KNOWN}.")
        return one
    return replace(one, **{field: tenant_value(field, value, faults, name)})


def _job(one: JobSetting, field: str, value: Any, name: str, faults: Faults) -> JobSetting:
    if field == "rate_limit":
        return replace(one, rate=rate_of(value, faults, name))
    if field not in OF_JOB:
        faults.add(name, "unknown", f"Known: {KNOWN}.")
        return one
    return replace(one, **{field: limit(value, faults, name)})  # type: ignore[arg-type]  # one of OF_JOB, numbers all
