"""A plan in words and columns, for a terminal. Pure."""

from collections.abc import Mapping
from typing import Any


def plan_text(plan: Mapping[str, Any]) -> str:
    """All of the plan, its assumptions included."""
    demand, rates, burst, storage = plan["demand"], plan["rates"], plan["burst"], plan["storage"]
    lines = [
        f"{demand['schedules']:,} schedules, {demand['runs_per_day']:,} runs a day:"
        f" {rates['mean_per_s']:,.0f}/s on average, {rates['peak_per_s']:,.0f}/s at the peak,"
        f" bursts of {rates['burst_per_s']:,.0f}/s; sized for {rates['sized_for_per_s']:,.0f}/s",
        "",
        f"  {'part':<32}{'needed':>8}{'given':>8}{'in use':>8}{'most runs/s':>14}  why",
    ]
    for part in plan["parts"]:
        given = "-" if part["given"] is None else f"{part['given']:g}"
        lines.append(
            f"  {part['name']:<32}{part['needed']:>8,.0f}{given:>8}{part['use']:>8.0%}{part['most_per_s']:>14,.0f}"
            f"  {part['why']}"
        )
    first = plan["bottleneck"]
    lines += [
        "",
        f"Gives way first: {first['part']}, at {first['most_per_s']:,.0f} runs/s"
        + (": enough for the peak." if first["holds"] else ": NOT ENOUGH for the peak."),
        _burst(burst),
        f"Storage: {storage['history_gb']:,.0f} GB of history for {demand['retention_days']:g} days,"
        f" {storage['due_index_gb']:,.1f} GB of due index,"
        f" WAL {storage['wal_mb_per_s_mean']:,.1f} MB/s on average and {storage['wal_mb_per_s_peak']:,.1f} at the peak",
        "",
        "Pools: " + "; ".join(
            f"{name} {pool['share']:.0%} of the runs of {pool['run_s']:g} s, {pool['slots_a_process']:,} slots each"
            for name, pool in demand["pools"].items()
        ),
        "Figures:",
        *(f"  {name} = {figure['value']:g}  ({figure['source']})" for name, figure in plan["figures"].items()),
        "Assumptions:",
        *(f"  - {line}" for line in plan["assumptions"]),
    ]  # fmt: skip
    return "\n".join(lines)


def _burst(burst: Mapping[str, Any]) -> str:
    if burst["seconds"] is None:
        return f"Burst: {burst['by']} can do no more than the mean: NOT ENOUGH for bursts."
    return (
        f"Burst: {burst['due']:,.0f} runs take {burst['seconds']:.1f} s to be fired, released and started"
        f" ({burst['per_s']:,.0f}/s beside the mean, bound by {burst['by']}), {burst['late_s']:.1f} s more than they"
        " came in" + (": enough for bursts." if burst["holds"] else ": NOT ENOUGH for bursts.")
    )
