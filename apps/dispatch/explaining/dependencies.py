"""Why an execution that depends on others is blocked or was skipped, in words. Pure."""

from collections.abc import Mapping, Sequence
from typing import Any

from apps.dispatch.explaining.values import HOLDERS_MAX, Holder, Thing, Verdict
from apps.workflows.dependencies.depending_reading import Parent

GONE = "gone"
NAMED_MAX = 5  # named in one sentence
FITS = {"succeeded": "succeeds", "failed": "fails", "finished": "ends", "skipped": "is skipped"}


def open_parents(parents: Sequence[Parent]) -> list[Parent]:
    """Those that it waits for still."""
    return [one for one in parents if one.met is None]


def waits_for(parents: Sequence[Parent]) -> str:
    """Which executions have to end, and how."""
    left = open_parents(parents)
    if not left:
        return "All that it depends on has ended; reconcile decides on it within minutes."
    named = ", ".join(
        f"execution {one.execution_id} {FITS[one.on]} (it is {one.state or GONE})" for one in left[:NAMED_MAX]
    )
    more = f", and {len(left) - NAMED_MAX:,} more" if len(left) > NAMED_MAX else ""
    met = f"{len(parents) - len(left):,} of {len(parents):,} that it depends on have ended as it wants. "
    return f"{met if len(parents) > 1 else ''}It waits until {named}{more}."


def holders_of(parents: Sequence[Parent]) -> list[Holder]:
    """The executions that it waits for, as those that hold it back."""
    return [
        Holder(one.execution_id, one.state or GONE, one.since, None)
        for one in open_parents(parents)[:HOLDERS_MAX]
        if one.since is not None
    ]


def not_met(error: Mapping[str, Any]) -> Verdict:
    """It was skipped; `error` is what was written down then."""
    thing = Thing("execution", str(error.get("execution", "")))
    fine = error.get("on") in ("failed", "skipped")  # what is there for a fault, and there was none
    text = f"It did not run. {error.get('message', '')}".strip()
    return Verdict("dependency_not_met", text, fine=fine, thing=thing)
