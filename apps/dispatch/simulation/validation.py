"""What a simulation is asked, field by field: numbers in bounds, known names, nothing that never ends. Pure.

Files and the admin page's text come from outside: whatever they hold, the answer is a fault with its place.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from apps.dispatch.flowshare import PRIORITY_MAX
from apps.dispatch.simulation.draws import RETRY
from apps.schedules.policy import REPLACING
from apps.tickets.values import LANE_OF
from kernel.errors import Faults
from kernel.limitrules import KEY_MAX, rate_limit
from kernel.pools import CELERY_POOLS

COUNT_MAX = 10**9  # slots, weights, limits, seconds
EVERY_LEAST_S = 0.001
PREFETCH_MAX = 100.0  # messages for each slot
ATTEMPTS_MAX = 100
KINDS = ("poisson_per_s", "flood", "every_s")
LIMITS = ("weight", "max_running", "max_live", "runs_per_min", "runs_burst", "max_runs_per_day")
OVERLAPS = ("allow", "skip", "buffer_one", "buffer_all", *REPLACING)
_LEAST = {"weight": 1, "runs_per_min": 1}
_KIND = {*KINDS, "from_s", "to_s", "at_s", "offset_s", "schedules", "jitter_s"}
_NESTED = {"key": {"values", "max"}, "retry": {*RETRY, "backoff"}}
_TEXTS = {"jitter": ("none", "full", "equal"), "backoff": ("fixed", "exponential")}


def number(value: object, faults: Faults, pointer: str, *, least: float, most: float = COUNT_MAX) -> float:
    """A number in these bounds; `least` and a fault otherwise."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value <= most:
        faults.add(pointer, "out_of_range", f"Give a number from {least:g} to {most:g}.")
        return least
    return value


def limit(value: object, faults: Faults, pointer: str, *, least: int = 0) -> int | None:
    """A limit in whole runs or slots, or None for none."""
    return None if value is None else int(number(value, faults, pointer, least=least))


def only(data: Mapping[Any, Any], known: Iterable[str], pointer: str, faults: Faults) -> None:
    """A fault for each name that is not known."""
    for name in data:
        if name not in known:
            faults.add(f"{pointer}/{name}", "unknown_field", f"Known: {', '.join(sorted(known))}.")


def tenant_value(name: str, value: Any, faults: Faults, pointer: str) -> Any:
    """One field of a tenant as settings hold it."""
    if name == "weight":
        return int(number(value, faults, pointer, least=1))
    if name in LIMITS:
        return limit(value, faults, pointer, least=_LEAST.get(name, 0))
    if name in ("reserved", "max_slots"):
        if not isinstance(value, Mapping) or not set(value) <= set(CELERY_POOLS):
            faults.add(pointer, "type", f"Give slots by pool ({', '.join(CELERY_POOLS)}).")
            return {}
        counts = {pool: limit(count, faults, f"{pointer}/{pool}") for pool, count in value.items()}
        return {pool: count for pool, count in counts.items() if count is not None}
    if not isinstance(value, bool if name in ("own_queue", "active") else str):
        faults.add(pointer, "type", "Give true or false." if name in ("own_queue", "active") else "Give a text.")
    return value


def rate_of(rate: Any, faults: Faults, pointer: str) -> tuple[int, float, int] | None:
    """(runs, seconds, burst) of a job's rate_limit, by the rule of the API; None without one."""
    own = Faults()
    given = rate_limit(rate, own)
    for one in own.errors:
        faults.add(f"{pointer}{one.pointer.removeprefix('/rate_limit')}", one.code, one.detail)
    return None if given is None or own.errors else (given["runs"], float(given["per_s"]), given["burst"])


def arrivals_fit(kinds: list[Any], faults: Faults, pointer: str) -> None:
    """Kinds of arrivals: numbers all, in steps that come to an end."""
    least = {"every_s": EVERY_LEAST_S, "schedules": 1}
    for kind in kinds:
        if not isinstance(kind, Mapping) or len(set(kind) & set(KINDS)) != 1:
            faults.add(pointer, "unknown_arrivals", f"Give one of {', '.join(KINDS)} in each.")
            continue
        only(kind, _KIND, pointer, faults)
        for name, value in kind.items():
            number(value, faults, f"{pointer}/{name}", least=least.get(name, 0))


def job_fits(one: Mapping[str, Any], faults: Faults, pointer: str) -> None:
    """What a job says beside its tenant, pool, run times, rate and arrivals."""
    number(one.get("priority", 5), faults, f"{pointer}/priority", least=0, most=PRIORITY_MAX)
    number(one.get("fails", 0), faults, f"{pointer}/fails", least=0, most=1)
    for name in ("max_concurrency", "max_queue_age_s"):
        limit(one.get(name), faults, f"{pointer}/{name}")
    for name, known, value in (
        ("lane", ("live", *LANE_OF), one.get("lane", "live")), ("overlap", OVERLAPS, one.get("overlap", "allow")),
    ):  # fmt: skip
        if value not in known:
            faults.add(f"{pointer}/{name}", "unknown", f"Known: {', '.join(known)}.")
    for name, fields in _NESTED.items():
        given = one.get(name)
        if given is not None and not isinstance(given, Mapping):
            faults.add(f"{pointer}/{name}", "not_an_object", f"Known: {', '.join(sorted(fields))}.")
        elif given:
            only(given, fields, f"{pointer}/{name}", faults)
            _nested_fits(given, faults, f"{pointer}/{name}")


def _nested_fits(given: Mapping[str, Any], faults: Faults, pointer: str) -> None:
    most = {"max": KEY_MAX, "max_attempts": ATTEMPTS_MAX}
    for name, value in given.items():
        if name in _TEXTS:
            if value not in _TEXTS[name]:
                faults.add(f"{pointer}/{name}", "unknown", f"Known: {', '.join(_TEXTS[name])}.")
        else:
            number(value, faults, f"{pointer}/{name}", least=0, most=most.get(name, COUNT_MAX))
