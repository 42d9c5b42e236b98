"""An explanation as JSON, the same over the API and from the command, and as text for people. Pure."""

from collections.abc import Iterator
from typing import Any

from apps.dispatch.explaining.ended import instant
from apps.dispatch.explaining.values import Check, Explanation, Holder, Thing, Verdict
from apps.dispatch.explaining.words import words_of
from kernel.durations import span
from kernel.printing import printable

# Where over the API what a remedy is done to is found; the rest is the operator's.
_PATHS = {
    "job": "jobs/{}", "workflow": "workflows/{}", "schedule": "schedules/{}", "execution": "executions/{}",
    "deadletter": "dead-letters/{}", "workflow_run": "workflow-runs/{}", "queue": "queues/{}",
    "breakers": "breakers", "usage": "usage",
}  # fmt: skip


def explanation_shape(one: Explanation) -> dict[str, Any]:
    """All of it, in members that every answer has."""
    return {
        "kind": one.kind,
        "id": one.id,
        "name": one.name,
        "state": one.state,
        "as_of": one.as_of,
        "verdict": _verdict(one.verdict),
        "checks": [_check(check) for check in one.checks],
        "position": None
        if one.position is None
        else {"ahead": one.position.ahead, "is_exact": one.position.exact, "key": one.position.key},
        "late_s": None if one.late_s is None else round(one.late_s, 3),
        "delays": [
            {"code": delay.code, "title": words_of(delay.code).title, "s": delay.seconds} for delay in one.delays
        ],
        "notes": list(one.notes),
        "next_at": one.next_at,
        "recent": [row._asdict() | {"reason": row.reason or None} for row in one.recent],
    }


def explanation_text(one: Explanation) -> str:
    """Some lines to read at night: what it is, why, until when, what to do."""
    return "\n".join(printable(line) for line in _lines(one))


def link_of(thing: Thing | None) -> str | None:
    """The path of the API where a remedy is done."""
    path = _PATHS.get(thing.kind) if thing is not None else None
    return None if path is None or thing is None else f"/api/v1/{path.format(thing.key)}"


def _verdict(one: Verdict) -> dict[str, Any]:
    words = words_of(one.code)
    return {
        "code": one.code,
        "title": words.title,
        "detail": one.detail,
        "is_fine": one.fine,
        "check": one.check,
        "limit": one.limit,
        "use": one.use,
        "since": one.since,
        "holders": [_holder(holder) for holder in one.holders],
        "clears_at": one.clears_at,
        "estimate": one.estimate or None,
        "remedy": words.remedy or None,
        "link": link_of(one.thing),
    }


def _holder(one: Holder) -> dict[str, Any]:
    return {"execution": one.execution_id, "state": one.state, "since": one.since, "expected_end_at": one.ends_at}


def _check(one: Check) -> dict[str, Any]:
    return one._asdict() | {"title": words_of(one.code).title if not one.ok else None}


def _lines(one: Explanation) -> Iterator[str]:
    verdict, words = one.verdict, words_of(one.verdict.code)
    name = one.name or "its job is gone"
    yield f"{one.kind.capitalize().replace('_', ' ')} {one.id} ({name}) is {one.state}, as of {instant(one.as_of)}."
    yield f"{'OK' if verdict.fine else 'WHY'}: {words.title} [{verdict.code}]"
    yield f"  {verdict.detail}"
    if verdict.limit is not None:
        yield f"  In use: {verdict.use or 0:g} of {verdict.limit:g}."
    if verdict.since is not None:
        yield f"  Since: {instant(verdict.since)}, {span(max(0.0, (one.as_of - verdict.since).total_seconds()))} ago."
    if verdict.clears_at is not None:
        how = f" (a guess: {verdict.estimate})" if verdict.estimate else ""
        yield f"  Until: {instant(verdict.clears_at)}, in {span((verdict.clears_at - one.as_of).total_seconds())}{how}."
    for holder in verdict.holders:
        ends = f", expected to end at {instant(holder.ends_at)}" if holder.ends_at is not None else ""
        yield f"  Held by {holder.execution_id}, {holder.state} since {instant(holder.since)}{ends}."
    if words.remedy:
        yield f"  Do: {words.remedy}"
    if one.position is not None and one.position.ahead:
        yield f"Before it: {'' if one.position.exact else 'more than '}{one.position.ahead:,} of the same flow."
    also = [check for check in one.refused() if check.code != verdict.check]
    for check in also:
        yield f"Also: {words_of(check.code).title} [{check.code}]"
    for delay in one.delays:
        yield f"Held back for {span(delay.seconds)}: {words_of(delay.code).title} [{delay.code}]"
    yield from one.notes
    if one.next_at is not None and not verdict.fine:
        yield f"Next: {instant(one.next_at)}"
