"""What was found, as JSON, the same over the API and from the command, and as text for people. Pure."""

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

from apps.dispatch.completeness.checking import Completeness
from apps.dispatch.completeness.repairing import Repair
from apps.schedules.timing_triggers import instant_text

GAPS_SHOWN = 1_000
_MICROSECOND = timedelta(microseconds=1)
_UNKNOWN = {
    "not_kept": "executions of that time are deleted",
    "history_unknown": "when its versions began and ended was not written down then",
    "zone_data_changed": "the time zone's rules were others when those runs were computed",
    "unreadable": "its definition of that time can't be read",
}


def completeness_shape(one: Completeness) -> dict[str, Any]:
    """All of it. Ranges are from their first instant to the one after their last."""
    found = one.found
    return {
        "schedule": one.schedule_id,
        "from": one.since,
        "to": one.until,
        "as_of": one.as_of,
        "is_complete": one.complete,
        "expected": found.expected,
        "ran": found.ran,
        "made_later": found.made_later,
        "skipped": sum(found.skipped.values()),
        "skipped_by_reason": [{"reason": reason, "count": count} for reason, count in found.skipped.most_common()],
        "pending": found.pending,
        "missing": found.missing,
        "gaps": [
            {"version": gap.version, "first_at": gap.first, "last_at": gap.last, "count": gap.count}
            for gap in found.gaps[:GAPS_SHOWN]
        ],
        "gap_count": len(found.gaps),
        "unknown": [
            {"from": part.after + _MICROSECOND, "to": part.until + _MICROSECOND, "reason": part.reason}
            for part in one.expected.unknown
        ],
        "versions": [
            {"version": part.version, "from": part.after + _MICROSECOND, "to": part.until + _MICROSECOND}
            for part in one.expected.parts
        ],
    }


def repair_shape(one: Repair) -> dict[str, Any]:
    """What was made of what was missing."""
    return {
        "dry_run": one.dry_run,
        "made": one.made,
        "skipped": one.skipped,
        "is_put_back": one.put_back,
        "before": completeness_shape(one.before),
    }


def completeness_text(name: str, one: Completeness) -> str:
    """Some lines about one schedule."""
    return "\n".join(_lines(name, one))


def repair_text(one: Repair) -> str:
    """One line about what was done."""
    would = "would make" if one.dry_run else "made"
    rows = f"{one.skipped:,} {'occurrence' if one.skipped == 1 else 'occurrences'} recorded as skipped"
    back = "; the due entry goes back, fire goes on from there" if one.put_back else ""
    return f"  {would} {one.made:,} {'run' if one.made == 1 else 'runs'}, {rows}{back}"


def _lines(name: str, one: Completeness) -> Iterator[str]:
    found, verdict = one.found, "complete" if one.complete else f"{one.found.missing:,} missing"
    yield f"{name}: {verdict}, {instant_text(one.since)} to {instant_text(one.until)}"
    counts = [f"{found.expected:,} expected", f"{found.ran:,} ran", f"{sum(found.skipped.values()):,} skipped"]
    counts += [f"{found.made_later:,} made up for by a backfill"] if found.made_later else []
    counts += [f"{found.pending:,} not fired yet"] if found.pending else []
    yield "  " + ", ".join(counts)
    for gap in found.gaps[:GAPS_SHOWN]:
        yield f"  missing: {_range(gap.first, gap.last)} ({gap.count:,}, version {gap.version})"
    if len(found.gaps) > GAPS_SHOWN:
        yield f"  and {len(found.gaps) - GAPS_SHOWN:,} more gaps"
    for part in one.expected.unknown:
        yield f"  not known: {_range(part.after + _MICROSECOND, part.until)}: {_UNKNOWN[part.reason]}"


def _range(first: datetime, last: datetime) -> str:
    return instant_text(first) if first == last else f"{instant_text(first)} to {instant_text(last)}"
