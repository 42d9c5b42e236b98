"""The answer of a simulation in words and columns, for a terminal. Pure."""

from collections.abc import Iterator, Mapping
from typing import Any

SHOWN = 25  # tenants; those with the longest p99 first


def text_of(answer: Mapping[str, Any]) -> str:
    """All of the answer that a person needs."""
    window = answer["window"]
    lines = [
        f"{answer.get('about', 'Simulation')}",
        f"{window['runs']:,} runs in {window['seconds']:,.0f} s"
        + (f", after {window['warm_up_s']:,.0f} s of warming up" if window["warm_up_s"] else "")
        + f"; seed {answer['seed']}",
        "",
    ]  # fmt: skip
    if "error" in answer:
        lines += ["Present settings against reality (wait from due to first start, seconds):", *_against(answer), ""]
    lines += ["Present settings, simulated:" if "what_if" in answer else "Simulated:", *_side(answer["present"]), ""]
    if "what_if" in answer:
        changes = ", ".join(f"{path}={value}" for path, value in answer["changes"].items())
        lines += [f"What if {changes}:", *_side(answer["what_if"]), "", "Difference in p95 (what-if less present):"]
        lines += [*_difference(answer), ""]
    worth = answer["worth"]
    lines.append(f"The comparison is worth: {worth['verdict']}.")
    lines += [f"  - {reason}" for reason in worth["reasons"]]
    return "\n".join(lines)


def _side(side: Mapping[str, Any]) -> Iterator[str]:
    yield f"  {'tenant':<24}{'runs':>9}{'p50':>9}{'p95':>9}{'p99':>9}{'longest':>9}{'of due':>8}  held back by"
    yield _row("all", side["all"], "", "")
    tenants = sorted(side["tenants"].items(), key=lambda item: (-(item[1]["p99"] or 0), item[0]))
    for slug, one in tenants[:SHOWN]:
        share = "" if one["share_of_due"] is None else f"{one['share_of_due']:.0%}"
        held = ", ".join(f"{code} {seconds:,.0f} s" for code, seconds in list(one["held_by_s"].items())[:2])
        dropped = ", ".join(f"{count:,} {reason}" for reason, count in one["dropped"].items())
        starved = "STARVED " if one["starved"] else ""
        yield _row(slug, one, share, f"{starved}{held}" + (f"; not run: {dropped}" if dropped else ""))
    if len(tenants) > SHOWN:
        yield f"  ... and {len(tenants) - SHOWN:,} more tenants with shorter waits; --format json has all"
    for name, pool in side["pools"].items():
        use = "none" if pool["utilisation"] is None else f"{pool['utilisation']:.0%}"
        yield f"  slots of {name}: {pool['slots']:,}, in use {use}"
    yield f"  ({side['runs']:,} runs started, {side['rounds']:,} release passes, simulated in {side['took_s']:.1f} s)"


def _row(slug: str, one: Mapping[str, Any], share: str, rest: str) -> str:
    waits = "".join(f"{seconds(one[name]):>9}" for name in ("p50", "p95", "p99", "longest"))
    return f"  {slug:<24}{one['runs']:>9,}{waits}{share:>8}  {rest}".rstrip()


def _against(answer: Mapping[str, Any]) -> Iterator[str]:
    yield f"  {'tenant':<24}{'runs':>9}   {'p50 real/sim':>18}{'p95 real/sim':>18}{'p99 real/sim':>18}   error of p95"
    slugs = sorted(answer["error"]["tenants"], key=lambda slug: -answer["error"]["tenants"][slug]["runs"])
    for slug in slugs[:SHOWN]:
        real, ours, error = (
            answer["reality"][slug],
            answer["present"]["tenants"][slug],
            answer["error"]["tenants"][slug],
        )
        pairs = "".join(f"{seconds(real[name]) + ' / ' + seconds(ours[name]):>18}" for name in ("p50", "p95", "p99"))
        yield f"  {slug:<24}{real['runs']:>9,}   {pairs}   {percent(error['p95'])}"
    whole = answer["error"]["all"]
    yield "  error over all runs: " + ", ".join(f"{name} {percent(whole[name])}" for name in ("p50", "p95", "p99"))


def _difference(answer: Mapping[str, Any]) -> Iterator[str]:
    before, after = answer["present"]["tenants"], answer["what_if"]["tenants"]
    changes = {
        slug: after[slug]["p95"] - before[slug]["p95"]
        for slug in before
        if slug in after and after[slug]["p95"] is not None and before[slug]["p95"] is not None
    }
    shown = sorted(changes, key=lambda slug: (-abs(changes[slug]), slug))[:SHOWN]
    for slug in shown:
        yield f"  {slug:<24}{changes[slug]:>+10.2f} s"


def seconds(value: float | None) -> str:
    """A time in a column."""
    if value is None:
        return "-"
    return f"{value:.3f}" if value < 10 else f"{value:,.1f}"


def percent(value: float | None) -> str:
    return "-" if value is None else f"{value:+.0%}"
