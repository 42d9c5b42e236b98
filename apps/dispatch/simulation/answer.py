"""The answer of a simulation as JSON: each side by tenant, the error against reality, and what it is worth. Pure."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from apps.dispatch.simulation.engine import Result
from apps.dispatch.simulation.measures import OfTenant, Waits, waits_of
from apps.dispatch.simulation.settings import Load, Settings

FLOOR_S = 0.1  # differences are held against at least so much: below it they are noise
FEW_RUNS = 100  # a p99 of fewer runs is one run
FAIR_ERROR, GOOD_ERROR = 0.5, 0.2
STARVED_SHARE = 0.8  # of the share that was due
STARVED_S = 10.0  # of contention, before a share is judged
MANY_LEFT = 0.05


class Side(NamedTuple):
    """One simulation with what it was made with."""

    settings: Settings
    result: Result


def answer(present: Side, what_if: Side | None, load: Load, *, real: bool) -> dict[str, Any]:
    """The whole answer. `real` says that the load has the waits of reality to compare with."""
    document: dict[str, Any] = {
        "window": {
            "seconds": load.seconds - load.counted_from,
            "warm_up_s": load.counted_from,
            "runs": len(load.arrivals),
        },
        "present": side(present),
    }
    if real:
        was = {tenant: waits_of(figures.real) for tenant, figures in present.result.tenants.items()}
        document["reality"] = {
            slug: figures._asdict() for slug, figures in _by_slug(present.settings, was).items() if figures.runs
        }
        document["error"] = _errors(present, was)
    if what_if is not None:
        document["what_if"] = side(what_if)
    document["worth"] = _worth(document, present, what_if, load)
    return document


def side(one: Side) -> dict[str, Any]:
    """One simulation's figures."""
    result = one.result
    everybody = waits_of([wait for figures in result.tenants.values() for wait in figures.waits])
    slugs = {tenant: setting.slug for tenant, setting in one.settings.tenants.items()}
    return {
        "all": everybody._asdict(),
        "tenants": {
            slugs[tenant]: _tenant(figures)
            for tenant, figures in sorted(result.tenants.items(), key=lambda item: slugs[item[0]])
            if figures.arrived or figures.slot_s
        },
        "pools": {
            f"{pool}@{group}" if group else pool: {
                "slots": slots,
                "utilisation": _ratio(result.busy_s.get((pool, group), 0.0), slots * result.seconds),
            }
            for (pool, group), slots in sorted(result.slots.items())
        },
        "runs": result.runs, "rounds": result.rounds, "took_s": result.took_s, "cut_short_at_s": result.cut_short,
    }  # fmt: skip


def _ratio(part: float, whole: float) -> float | None:
    return part / whole if whole else None


def _tenant(figures: OfTenant) -> dict[str, Any]:
    share = figures.got / figures.due if figures.due else None
    waits = waits_of(figures.waits)
    return {
        **waits._asdict(),
        "arrived": figures.arrived, "started": figures.started, "waiting": figures.waiting, "slot_s": figures.slot_s,
        "contended_s": figures.contended_s, "share_of_due": share,
        "starved": share is not None and share < STARVED_SHARE and figures.contended_s >= STARVED_S,
        "held_by_s": dict(sorted(figures.held.items(), key=lambda item: -item[1])[:5]),
        "dropped": dict(figures.dropped),
    }  # fmt: skip


def _by_slug(settings: Settings, of: Mapping[int, Waits]) -> dict[str, Waits]:
    return {settings.tenants[tenant].slug: waits for tenant, waits in of.items()}


def _errors(present: Side, was: Mapping[int, Waits]) -> dict[str, Any]:
    errors = {}
    for tenant, real in was.items():
        ours = waits_of(present.result.tenants[tenant].waits)
        if real.runs and ours.runs:
            errors[present.settings.tenants[tenant].slug] = {
                "p50": _error(ours.p50, real.p50), "p95": _error(ours.p95, real.p95), "p99": _error(ours.p99, real.p99),
                "runs": real.runs,
            }  # fmt: skip
    whole = waits_of([wait for figures in present.result.tenants.values() for wait in figures.real])
    ours = waits_of([wait for figures in present.result.tenants.values() for wait in figures.waits])
    return {
        "tenants": errors,
        "all": {name: _error(getattr(ours, name), getattr(whole, name)) for name in ("p50", "p95", "p99")},
        "floor_s": FLOOR_S,
    }


def _error(ours: float | None, real: float | None) -> float | None:
    """(simulated - real) / real, of at least FLOOR_S: 0.1 is 10 % too long, -0.5 half as long."""
    if ours is None or real is None:
        return None
    return (ours - real) / max(real, FLOOR_S)


def _worth(document: Mapping[str, Any], present: Side, what_if: Side | None, load: Load) -> dict[str, Any]:
    """What the comparison is worth: good, fair or little, and why not more."""
    reasons = list(load.notes)
    little = bool(reasons)
    if "error" in document:
        wrong = [error for name in ("p95", "p99") if (error := document["error"]["all"][name]) is not None]
        worst = max((abs(error) for error in wrong), default=None)
        if worst is None:
            reasons.append("no run of the window has both a real and a simulated wait")
            little = True
        elif worst > GOOD_ERROR:
            reasons.append(f"with the present settings p95 or p99 is off by {worst:.0%} of reality")
            little = little or worst > FAIR_ERROR
    for name, one in (("present settings", present), ("what-if", what_if)):
        if one is None:
            continue
        if one.result.cut_short is not None:
            reasons.append(f"the time limit ended the {name} at second {one.result.cut_short:.0f}")
            little = True
        left = sum(figures.waiting for figures in one.result.tenants.values())
        if left > MANY_LEFT * max(1, sum(figures.arrived for figures in one.result.tenants.values())):
            reasons.append(f"{left:,} runs still waited at the end of the {name}: their waits are longer than told")
    few = _few(document["present"]["tenants"])
    if few:
        shown = ", ".join(few[:5]) + (f" and {len(few) - 5} more" if len(few) > 5 else "")
        reasons.append(f"fewer than {FEW_RUNS} runs, so that p99 is the longest wait: {shown}")
    return {"verdict": "little" if little else "fair" if reasons else "good", "reasons": reasons}


def _few(tenants: Mapping[str, Mapping[str, Any]]) -> Sequence[str]:
    return [slug for slug, figures in tenants.items() if 0 < figures["runs"] < FEW_RUNS]
